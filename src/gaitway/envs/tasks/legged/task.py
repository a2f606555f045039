"""Legged tasks on MuJoCo's native batch: `LeggedLogic` on tensors that share memory with the batch's arrays."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
import torch
from mujoco.batch import Batch, SimulationError
from torch import Tensor

from gaitway.envs.batch_task import STAGE_VELOCITY, Arrays, BatchTask, Rows
from gaitway.envs.episode_numbers import ALL
from gaitway.envs.legged.commands import Commands
from gaitway.envs.legged.config import LeggedConfig
from gaitway.envs.legged.frame import Bodies, Physics, Substeps, base_pose, moved_to
from gaitway.envs.legged.gaits import Gait
from gaitway.envs.legged.logic import WORTH, LeggedLogic
from gaitway.envs.legged.metrics import FALLS, costs, figures
from gaitway.envs.legged.mirror import Sides, images
from gaitway.envs.legged.observations import PRIVILEGED_ALIAS, Observations, amp_leaves
from gaitway.envs.legged.rewards import SUBSTEP_TERMS, TERMINATION, Rewards
from gaitway.envs.legged.sums import TORQUE_METRIC
from gaitway.envs.legged.terrain import scan
from gaitway.envs.legged.terrain.bank import FieldBank
from gaitway.envs.legged.terrain.surroundings import SUCCESS, Surroundings
from gaitway.envs.motions.features import GROUP as AMP_GROUP
from gaitway.envs.motions.features import MotionFeatures
from gaitway.envs.robots import world
from gaitway.envs.robots.legged import LeggedView
from gaitway.envs.tasks.legged.ground import (
    BODY_FIELDS,
    BOX_FIELDS,
    CONTACT_FIELDS,
    FIELD_OF_GEOM,
    TERRAIN_CAMERA,
    TERRAIN_GROUP,
    VIEWS,
    BoxPool,
    ChosenFields,
    add_terrain,
    body_points,
    check_layout,
    check_robot,
    image_group,
    surroundings,
)
from gaitway.envs.tasks.legged.model import (
    LIKE,
    action_spec,
    check_legs,
    foot_chains,
    make_actions,
    robot_of,
    robot_tensors,
    tensor_of,
)
from gaitway.envs.tasks.legged.own_models import OwnModels, keep_targets
from gaitway.envs.tensor_task import TensorTask

log = logging.getLogger("gaitway")

SUBSTEP_FIELDS = ("qpos", "qvel", "actuator_force")
"""What terms of substeps look at: positions and velocities after a substep, and the force in it."""
STEP_COSTS = ("fell", "velocity_error", "yaw_error", TORQUE_METRIC)
"""Metrics of steps of which less is better."""
AXES = ("x", "y", "turn")
FAULTED = (*FALLS, "seconds_episode")
"""What is told of instances whose physics failed: a fault is a fall."""


class LeggedTask(BatchTask):
    """A robot that is told where to go. Numbers are float64, as physics has them."""

    draws_in_steps = True
    stage = STAGE_VELOCITY
    start_stage = STAGE_VELOCITY
    fault_metrics = FAULTED
    _models: OwnModels | None = None
    _boxes: BoxPool | None = None
    _chosen: ChosenFields | None = None
    _has_tried = False
    """Whether terms of users were called once."""

    def __init__(self, id: str, config: LeggedConfig, options: Mapping[str, Any]) -> None:
        self.id, self.config, self.options = id, config, options
        self.legged = robot_of(config)
        self.robot = self.legged.robot
        self._around = around = surroundings(config)
        on_track = around is not None and around.track is not None
        self.fields = ("sensordata", "actuator_force", *(BODY_FIELDS if on_track else ()))
        self.view = view = LeggedView(self.legged, self.model)
        if around is not None:
            check_robot(config, view)
        self._check_payload(config.randomise.payload if config.randomise.enabled else None, "randomise.payload")
        self._logic = self.logic_on(LIKE, around)
        self._warn_of_command()
        robot, actions, observations = self._logic.robot, self._logic.actions, self._logic.observations
        rewards = self._logic.rewards
        self.groups = observations.groups
        self.metrics = self._logic.metrics
        self.flags = ("fell", *((SUCCESS,) if on_track else ()))
        self.reductions = {TORQUE_METRIC: "last", **({} if around is None else around.reductions)}
        self.pooled = figures(robot.feet) | ({} if around is None else around.pooled)
        self.camera = None if around is None else TERRAIN_CAMERA
        self.standing_geoms = view.foot_geoms.reshape(-1).tolist()
        self.max_episode_steps = round(config.episode_seconds / self.control_dt)
        if not self.max_episode_steps:  # 0 would mean that episodes never end
            shortest = f"a step, which takes {self.control_dt:g} s; use at least that"
            raise ValueError(f"episode_seconds is {config.episode_seconds:g}, shorter than {shortest}")
        self._check_warm_up()
        self.action, self.drive = action_spec(actions), view.drive()
        self.layout_shapes = self._logic.layout_shapes()
        paid = [term.weight for term in config.terms if term.name == TERMINATION]
        self.fault_reward = paid[0] * self.control_dt if paid else 0.0
        self.needs_substeps = any(name in SUBSTEP_TERMS for name in rewards.names)
        self.facts = {"legged": self._facts(), "costs": [*STEP_COSTS, *costs(self.pooled)]}
        if actions.gait is not None:
            check_legs(config.action, view)
            self.facts["gait"] = actions.gait.facts
        if any("height_scan" in names for names in observations.leaves.values()):
            self.facts["scan"] = scan.facts(config.terrain.scan)
        mirror = view.mirrored()
        if mirror is not None and not view.is_planar:
            joints, signs, feet = (each.tolist() for each in mirror)
            self.facts["mirror"] = images(
                observations.leaves,
                config.action,
                config.gait.name,
                Sides(joints, signs, feet, view.imu),
                Surroundings.leaf_mirrors(config.terrain),
            )
        compared = observations.leaves.get(AMP_GROUP)
        comparable = amp_leaves(view.imu is not None)
        if compared in comparable.values():
            has_gravity = compared == comparable["amp"]
            features = MotionFeatures(robot.joints, "free", self.foot_names, self.robot.name, has_gravity)
            self.facts[AMP_GROUP] = features.facts

    def logic_on(self, like: Tensor, around: Surroundings | None) -> LeggedLogic:
        """What the task means, in the type and on the device of `like`, as `around` is already."""
        config, view = self.config, self.view
        robot = moved_to(robot_tensors(view, config.action_scale), like)
        if around is not None:
            around.points = moved_to(body_points(view), like) if around.track is not None else None
        actions = make_actions(config, self.legged, robot)
        observations = Observations(
            config.observations,
            robot,
            len(actions.names),
            config.noise,
            actions.has_gait,
            like,
            Surroundings.leaf_sizes(config.terrain),
            image_group(config.terrain.depth, config.noise),
        )
        return LeggedLogic(
            config,
            robot,
            actions,
            observations,
            Commands(config.commands, robot.is_planar, like),
            moved_to(foot_chains(view), like),
            Rewards(config.terms, config.clip_negative),
            dt=self.control_dt,
            timestep=float(self.model.opt.timestep),
            foot_friction=float(self.model.geom_friction[view.foot_geoms[0, 0], 0]),
            around=around,
        )

    def on_tensors(self, like: Tensor) -> TensorTask:
        from gaitway.envs.tasks.legged.on_tensors import LeggedOnTensors

        return LeggedOnTensors(self, like)

    def add_surroundings(self, spec: mujoco.MjSpec) -> None:
        add_terrain(spec, self._around)
        if self._delay:
            keep_targets(spec, self._delay)

    def build(self, decorated: bool = False) -> mujoco.MjModel:
        if self._around is None:
            return super().build(decorated)
        spec = self.robot.spec()
        self.add_surroundings(spec)
        if decorated:
            place, turn = VIEWS[self.config.terrain.kind]
            world.add_camera(spec, TERRAIN_CAMERA, place, turn, follows=True, torso=self.robot.torso)
            world.decorate(spec, self.robot.torso)
        return world.compile_course(spec)

    def dress(self, index: int, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        if self._boxes is not None:
            self._boxes.paint(index, model)

    def attach(self, batch: Batch) -> None:
        super().attach(batch)
        logic, count = self._logic, batch.nsim
        block, self.memory = _in_one_piece(count, logic.memory_shapes())
        for name, (shape, dtype) in logic.lasting_shapes().items():
            self.memory[name] = torch.zeros(count, *shape, dtype=dtype).numpy()
        self.memory |= {name: np.zeros(shape) for name, shape in logic.shared_shapes(self.numbers.trains).items()}
        sensors, torque = self.field["sensordata"], self.field["actuator_force"]
        self._physics = Physics(tensor_of(self.qpos), tensor_of(self.qvel), tensor_of(sensors), tensor_of(torque))
        if BODY_FIELDS[0] in self.field:
            position, rotation, velocity, centre = (tensor_of(self.field[name]) for name in BODY_FIELDS)
            self._physics.bodies = Bodies(position, rotation, velocity, centre[:, self.view.base])
        self._ctrl = tensor_of(self.ctrl)
        layout = {name: tensor_of(array) for name, array in self.layout.items()}
        memory = {name: tensor_of(array) for name, array in self.memory.items()}
        logic.attach(memory, layout, self.numbers, tensor_of(block))
        self._numbers = torch.arange(count)
        self._records = self.needs_substeps or not self.numbers.trains  # measures of evaluations look at all of them
        rooms = (torch.zeros(count, self.frame_skip, self.model.nu, dtype=torch.float64) for _ in range(3))
        self._substeps = Substeps(*rooms)
        widths = (self.model.nq, self.model.nv, self.model.nu)
        self._recorded = {
            name: np.zeros((count, self.frame_skip - 1, width))
            for name, width in zip(SUBSTEP_FIELDS, widths, strict=True)
        }
        if logic.has_pushes:
            self._force = tensor_of(batch.bind("xfrc_applied"))[:, self.view.base]
        if self.config.randomise.enabled:
            self._models = OwnModels(batch, self.model, self.view, self._delay)
        self._boxes = BoxPool(batch, self.model, self._around) if self._around and self._around.track else None
        bank = self._around.terrain if self._around is not None else None
        self._chosen = ChosenFields(batch, self.model, bank) if isinstance(bank, FieldBank) else None

    def detach(self) -> None:
        super().detach()
        self._logic.frame = None
        for name in ("_physics", "_ctrl", "_force", "_models", "_boxes", "_chosen"):
            self.__dict__.pop(name, None)

    def before_reset(self) -> None:
        self._logic.forget()

    def draw_many(self, generators: Iterable[np.random.Generator], rows: np.ndarray) -> Arrays:
        chosen = torch.from_numpy(rows.astype(np.int64))
        drawn = self._logic.draw(chosen, self.numbers.places(chosen))
        return {name: value.numpy() for name, value in drawn.items()}

    def ground(self, rows: np.ndarray, points: np.ndarray) -> np.ndarray:
        if self._around is None:
            return super().ground(rows, points)
        return self._around.terrain.ground(torch.from_numpy(rows.astype(np.int64)), torch.from_numpy(points)).numpy()

    def start(self, rows: Rows) -> None:
        chosen = self._numbers[rows] if isinstance(rows, slice) else torch.from_numpy(rows.astype(np.int64))
        self._write_model(chosen)
        self._logic.begin(chosen)
        targets = self._logic.first_targets(self._physics.qpos[chosen], self._physics.qvel[chosen])
        self._ctrl[chosen] = targets
        if self._models is not None:
            self._models.refill(chosen, targets)
        self.batch.forward(chosen.numpy().astype(np.int32), stage=self.start_stage)
        self._logic.note_start(chosen, self._physics.rows(chosen))
        if not self._has_tried:
            self._has_tried = True
            substeps = Substeps(*(part[chosen] for part in vars(self._substeps).values())) if self._records else None
            self._logic.try_terms(chosen, self._physics.rows(chosen), substeps)

    def restore(self) -> None:
        self._follow_weights()
        self._write_model(self._numbers)

    def actuate(self, action: np.ndarray) -> None:
        self._ctrl.copy_(self._logic.act(torch.from_numpy(action), self._physics))
        if self._logic.has_pushes:
            self._force[:, :2] = self._logic.push()

    def advance(self) -> None:
        if not self._records:
            super().advance()
            return
        failed: SimulationError | None = None
        robot, physics, substeps, last = self._logic.robot, self._physics, self._substeps, self.frame_skip - 1
        substeps.q[:, 0] = physics.qpos[:, robot.positions]
        substeps.qd[:, 0] = physics.qvel[:, robot.velocities]
        if last:
            try:
                found = self.batch.rollout(last, record=SUBSTEP_FIELDS, out=self._recorded)
            except SimulationError as error:  # the others go on
                failed, found = error, self._recorded
            qpos, qvel, torque = (torch.from_numpy(found[name]) for name in SUBSTEP_FIELDS)
            substeps.q[:, 1:] = qpos[..., robot.positions]
            substeps.qd[:, 1:] = qvel[..., robot.velocities]
            substeps.torque[:, :last] = torque
        try:
            self.move(None, 1)
        except SimulationError as error:
            failed = error
        substeps.torque[:, last] = physics.torque
        if failed is not None:
            raise failed

    def outcome(self, action: np.ndarray, reward: np.ndarray, terminated: np.ndarray, metrics: Arrays) -> None:
        paid, ends, measured = self._logic.judge(self._physics, self._substeps if self._records else None)
        reward[:], terminated[:] = paid.numpy(), ends.numpy()
        for name, value in measured.items():
            metrics[name][:] = value.numpy()
        if self.faulty is not None:
            for name in FALLS:
                metrics[name][self.faulty] = 1.0

    def truncate(self, terminated: np.ndarray, truncated: np.ndarray) -> None:
        over = self._logic.is_over()
        if over is not None:
            truncated |= over.numpy() & ~terminated

    def go_on(self, ended: np.ndarray) -> None:
        change = self._logic.go_on(torch.from_numpy(ended), self._physics)
        if change is None:
            return
        columns = list(self.view.root[2])
        if self.view.is_planar:
            self._physics.qvel[:, columns[:2]] += change[:, [0, 2]]
        else:
            first = columns[0]
            self._physics.qvel[:, first : first + 6] += change

    def observe(self, rows: Rows, out: Arrays) -> None:
        if isinstance(rows, slice):
            self._look(None)
            shown = self._logic.observe(ALL, self._physics)
        else:
            chosen = torch.from_numpy(rows.astype(np.int64))
            self._look(chosen)
            shown = self._logic.observe(chosen, self._physics.rows(chosen), is_new=True)
        for name, value in shown.items():
            out[name][:] = value.numpy()

    def check_scenario(self, given: Mapping[str, np.ndarray]) -> None:
        if self._around is not None:
            check_layout(self._around, given)
        if "payload" in given and self.config.randomise.enabled:
            self._check_payload((given["payload"].min(), given["payload"].max()), "scenario field 'payload'")
        if self._delay and "delay" in given:
            kept = self._delay * float(self.model.opt.timestep)
            if given["delay"].max() > kept * (1.0 + 1e-6) or given["delay"].min() < 0.0:
                raise ValueError(
                    f"scenario field 'delay' has {given['delay'].min():g} to {given['delay'].max():g} s, and motors "
                    f"keep the targets of {kept:g} s; use 0 to {kept:g}, or a larger env.options.randomise.delay"
                )

    def _check_payload(self, limits: tuple[float, float] | None, what: str) -> None:
        """Refuse loads [kg] that leave the base without mass."""
        mass = float(self.model.body_mass[self.view.base])
        if limits is not None and mass + limits[0] <= 0.0:
            raise ValueError(
                f"{what} has {limits[0]:g} kg, and {self.legged.base_body!r}, the base of {self.legged.name}, weighs "
                f"{mass:g} kg; use more than {-mass:g}"
            )

    def _check_warm_up(self) -> None:
        """Refuse a warm-up that leaves no step to measure; where nobody wrote one, the episode is meant to be short."""
        warm_up, longest = self.config.warm_up, self.max_episode_steps * self.control_dt
        if warm_up < longest:
            return
        said = (
            f"warm_up of {self.id} is {warm_up:g} s, and an episode lasts {longest:g} s: no step is left to measure "
            f"and figures of tracking, gait and effort are nan; use less than {longest:g}"
        )
        if "warm_up" in self.options:
            raise ValueError(said)
        _warn_once(said)

    def _warn_of_command(self) -> None:
        for (axis, (low, high)), value in zip(self._ranges.items(), self.config.commands.fixed or (), strict=False):
            if not low <= value <= high:
                _warn_once(
                    f"commands.fixed of {self.id} has {axis} {value:g}, and commands.{axis} is {low:g} to {high:g}: a "
                    "policy that was trained in these ranges has never been told so"
                )

    def _look(self, rows: Tensor | None) -> None:
        """Cameras of `rows`, which begin, take an image; None: those whose turn it is."""
        around = self._around
        if around is None or around.camera is None:
            return
        is_new = rows is not None
        rows = around.image_due(self._logic.steps(ALL)).nonzero()[:, 0] if rows is None else rows
        if not len(rows):
            return
        physics = self._physics.rows(rows)
        position, rotation, _ = base_pose(self._logic.robot, physics.qpos)
        begins, ways = around.rays(rows, position, rotation)
        # a state that is not finite is a fault: whatever the rays say, nobody sees it
        begins, ways = torch.nan_to_num(begins.expand_as(ways)), torch.nan_to_num(ways)
        distance, _ = self.batch.ray(
            begins.numpy(), ways.numpy(), geomgroup=TERRAIN_GROUP, ids=rows.numpy().astype(np.int32)
        )
        self._logic.hold_images(rows, torch.from_numpy(distance), is_new)

    @property
    def foot_names(self) -> tuple[str, ...]:
        """The feet by name, as bodies of a clip: a geom of each."""
        return tuple(self.model.geom(int(geoms[0])).name for geoms in self.view.foot_geoms)

    @property
    def shown_command(self) -> tuple[float, float, float] | None:
        """What a robot that is watched is told if nobody else does; None: it has commands that let it move."""
        return self._logic.commands.shown

    def tell(self, command: Sequence[float]) -> None:
        """From now on all instances have this command (x, y, turn); what they see next shows it."""
        logic = self._logic
        logic.commands.held = LIKE.new_tensor(command)
        logic.memory["command"][:] = logic.commands.held

    def set_reward_weight(self, name: str, weight: float) -> None:
        """From now on the reward term `name` has this weight, in states that are stored too."""
        self._logic.set_reward_weight(name, weight)
        self._follow_weights()

    def set_gait_authority(self, share: float) -> None:
        """From now on `gait_residual` corrects this share of the gait, and the default pose for the rest."""
        self._logic.set_gait_authority(share)

    def _follow_weights(self) -> None:
        """A fault costs what a termination does."""
        rewards = self._logic.rewards
        if TERMINATION in rewards.names:
            self.fault_reward = float(self._logic.memory[WORTH][rewards.number(TERMINATION)])

    def levels(self) -> dict[str, float]:
        """Mean, lowest and highest level of the robots on each kind of terrain."""
        return self._logic.levels()

    @property
    def gait(self) -> Gait:
        """The gait that actions steer or correct."""
        found = self._logic.actions.gait
        if found is None:
            raise ValueError(f"{self.id} has no gait; its action is {self.config.action}, use a gait mode")
        return found

    def report(self) -> str:
        """The robot, as a table."""
        return self.view.report()

    def _facts(self) -> dict[str, Any]:
        mirror, latency = self.view.mirrored(), self._logic.latency
        return {
            "robot": self.legged.name,
            "feet": len(self.legged.feet),
            "leaves": {name: list(leaves) for name, leaves in self._logic.observations.leaves.items()},
            "privileged_alias": dict(PRIVILEGED_ALIAS),
            "rewards": list(self._logic.rewards.names),
            "commands": self._ranges,
            **({} if latency is None else {"latency": latency.facts}),
            "mirror": None
            if mirror is None
            else dict(zip(("joints", "signs", "feet"), (each.tolist() for each in mirror), strict=True)),
        }

    @property
    def _ranges(self) -> dict[str, list[float]]:
        """Commands that the task gives, by axis; a planar robot is told nothing but x."""
        commands = self._logic.commands
        return dict(zip(AXES, torch.stack((commands.low, commands.high), 1).tolist(), strict=True))

    @property
    def _delay(self) -> int:
        """Substeps by which targets may reach their motors late."""
        return self.config.randomise.delay if self.config.randomise.enabled else 0

    @property
    def expanded(self) -> tuple[str, ...]:
        """Fields of the model that every instance has its own values of."""
        boxes = BOX_FIELDS if self._boxes is not None else ()
        chosen = (FIELD_OF_GEOM,) if self._chosen is not None else ()
        fields = self._models.fields if self._models is not None else ()
        return (*fields, *boxes, *chosen, *(CONTACT_FIELDS if self.config.terrain.virtual_first else ()))

    def _write_model(self, rows: Tensor) -> None:
        """Fields of the models of `rows` follow from their layout. Constants that follow from these, bounding volumes
        among them, are always computed anew: robots would sink into boxes that were moved."""
        self._logic.place(rows)
        if self._models is not None:
            self._models.write(rows, self._logic.layout)
        if self._boxes is not None:
            self._boxes.write(rows)
        if self._chosen is not None:
            self._chosen.write(rows)
        if self._models is not None or self._boxes is not None or self._chosen is not None:
            self.batch.set_const(rows.numpy().astype(np.int32))


@functools.cache
def _warn_once(text: str) -> None:
    """A run makes several environments, all of which would say the same."""
    log.warning(text)


def _in_one_piece(count: int, shapes: Mapping[str, tuple[int, ...]]) -> tuple[np.ndarray, Arrays]:
    """Zeros [count, total], and views of it [count, *shape] by name."""
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    block = np.zeros((count, ends[-1]))
    found = {
        name: block[:, end - math.prod(shape) : end].reshape(count, *shape)
        for (name, shape), end in zip(shapes.items(), ends, strict=True)
    }
    assert all(np.shares_memory(block, array) for array in found.values())
    return block, found
