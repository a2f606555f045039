"""Legged tasks on simulators whose arrays are tensors: the same `LeggedLogic`, all instances at once, by masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from gaitway.envs.episode_numbers import ALL, EpisodeNumbers
from gaitway.envs.legged.frame import Bodies, Physics, Substeps, base_pose, base_velocity, rotate, up_in_base
from gaitway.envs.legged.logic import WORTH
from gaitway.envs.legged.metrics import FALLS
from gaitway.envs.legged.randomise import MODEL_FIELDS, MODEL_NAMES, Places, write_model
from gaitway.envs.legged.rewards import TERMINATION
from gaitway.envs.tasks.legged.ground import BODY_FIELDS, BOX_FIELDS, box_numbers, surroundings
from gaitway.envs.tensor_task import TensorTask
from gaitway.envs.vec_env import Observation
from gaitway.envs.warp_worlds import WarpError, Worlds, constants_of

if TYPE_CHECKING:
    from gaitway.envs.tasks.legged.task import LeggedTask

FOLLOWING = ("geom_rbound", "geom_aabb")
"""What follows from the sizes of boxes."""


class LeggedOnTensors(TensorTask):
    """A `LeggedTask` in the type and on the device of `like`."""

    def __init__(self, task: LeggedTask, like: Tensor) -> None:
        self.task, self.view, self.model = task, task.view, task.model
        self.frame_skip, self.max_episode_steps = task.frame_skip, task.max_episode_steps
        self.fault_metrics = task.fault_metrics
        around = surroundings(task.config, like)
        if around is not None and around.camera is not None:
            raise WarpError(
                f"{task.id} shows forward_depth, whose rays Warp does not cast here; leave that group out or use "
                "env.simulator=mujoco"
            )
        if task.config.terrain.virtual_first:
            raise WarpError(
                f"{task.id} has terrain.virtual_first, and Warp's worlds share what touches what; leave it out or use "
                "env.simulator=mujoco"
            )
        if task.config.terrain.kind == "fields":
            raise WarpError(
                f"{task.id} has terrain.kind=fields, and Warp's worlds share one field; use terrain.kind=tiles with "
                "tiles=[rough], or env.simulator=mujoco"
            )
        self.logic = task.logic_on(like, around)
        self._like, self._around = like, around
        self._on_track = around is not None and around.track is not None
        self.knows_starts = not self._on_track  # where all bodies are is asked on tracks alone
        randomise = task.config.randomise
        self._delays = randomise.delay if randomise.enabled else 0
        self.derives = randomise.enabled
        self.expanded = (
            *((*MODEL_FIELDS, *constants_of(task.model)) if randomise.enabled else ()),
            *((*BOX_FIELDS, *FOLLOWING) if self._on_track else ()),
        )

    def attach(self, worlds: Worlds, numbers: EpisodeNumbers) -> None:
        super().attach(worlds, numbers)
        logic, count, like = self.logic, worlds.count, self._like
        self.memory = {name: like.new_zeros(count, *shape) for name, shape in logic.memory_shapes().items()}
        for name, (shape, dtype) in logic.lasting_shapes().items():
            kind = like.dtype if dtype.is_floating_point else dtype
            self.memory[name] = torch.zeros(count, *shape, dtype=kind, device=like.device)
        self.memory |= {name: like.new_zeros(shape) for name, shape in logic.shared_shapes(numbers.trains).items()}
        self.layout = {name: like.new_zeros(count, *shape) for name, shape in logic.layout_shapes().items()}
        sensors, torque = worlds.field("sensordata"), worlds.field("actuator_force")
        self._physics = Physics(worlds.qpos, worlds.qvel, sensors, torque)
        if self._on_track:
            position, rotation, velocity, centre = (worlds.field(name) for name in BODY_FIELDS)
            self._physics.bodies = Bodies(position, rotation, velocity, centre[:, self.view.base])
        logic.attach(self.memory, self.layout, numbers)
        if TERMINATION in logic.rewards.names:  # a fault costs what a termination does, whatever that becomes
            self.fault_reward = self.memory[WORTH][logic.rewards.number(TERMINATION)]
        self._records = self.task.needs_substeps or not numbers.trains
        rooms = (like.new_zeros(count, self.frame_skip, self.model.nu) for _ in range(3))
        self._substeps = Substeps(*rooms)
        if self.task.config.randomise.enabled:
            self._note_nominal()
        if self._on_track:
            first, last = box_numbers(self.model, self._around.track)  # type: ignore[union-attr, arg-type]
            self._boxes = {name: worlds.own[name][:, first:last] for name in (*BOX_FIELDS, *FOLLOWING)}
            self._placed = [worlds.field(name)[:, first:last] for name in ("geom_xpos", "geom_xmat")]
        if self._delays:
            self.memory["sent"] = like.new_zeros(count, self._delays, self.model.nu)

    def _note_nominal(self) -> None:
        like, model = self._like, self.model

        def floats(array: np.ndarray) -> Tensor:
            return torch.tensor(np.array(array)).to(like)

        nominal = {name: floats(getattr(model, name)) for name in MODEL_FIELDS if "." not in name}
        nominal |= {"opt.gravity": floats(model.opt.gravity), "kp": floats(model.actuator_gainprm[:, 0])}
        self._nominal = nominal | {"kd": floats(-model.actuator_biasprm[:, 2])}
        geoms = torch.from_numpy(self.view.foot_geoms.reshape(-1)).long().to(like.device)
        self._places = Places(self.view.base, geoms)

    def before_reset(self) -> None:
        self.logic.forget()

    def draw(self) -> dict[str, Tensor]:
        return self.logic.draw(ALL, self.numbers.places())

    def start(self, where: Tensor) -> None:
        logic, worlds = self.logic, self.worlds
        self._write_model()
        logic.begin(ALL, where)
        targets = logic.first_targets(worlds.qpos, worlds.qvel)
        worlds.ctrl.copy_(torch.where(where[:, None], targets, worlds.ctrl))
        if self._delays:
            sent = self.memory["sent"]
            sent.copy_(torch.where(where[:, None, None], targets[:, None], sent))

    def note_start(self, where: Tensor) -> None:
        self.logic.note_start(ALL, self._physics, where)

    def tell_start(self, where: Tensor) -> None:
        """Sensors of feet: nothing turns in first states, so feet move with their base."""
        robot, qpos = self.logic.robot, self.worlds.qpos
        position, rotation, yaw = base_pose(robot, qpos)
        base = base_velocity(robot, self.worlds.qvel, rotation, -up_in_base(rotation), yaw)["velocity"]
        feet = self.logic.chains(qpos[:, robot.positions])
        place = position[:, None] + rotate(rotation[:, None].expand(-1, robot.feet, -1), feet)
        told = torch.cat((place.flatten(1), base[:, None].expand_as(place).flatten(1)), 1)
        sensors = self._physics.sensors
        first = sensors.shape[1] - told.shape[1]
        shown = torch.where(where[:, None], told, sensors[:, first:])
        sensors.copy_(torch.cat((sensors[:, :first], shown), 1))

    def restore(self) -> None:
        self._write_model()

    def actuate(self, action: Tensor) -> None:
        target = self.logic.act(action, self._physics)
        # of all substeps here, where it can be compiled, and not in the midst of physics
        self._targets = self._delayed(target) if self._delays else [target]
        if self._delays:
            self._send(target)
        if self.logic.has_pushes:
            self.worlds.state["xfrc_applied"][:, self.view.base, :2] = self.logic.push()

    def advance(self) -> None:
        logic, worlds, substeps = self.logic, self.worlds, self._substeps
        for number in range(self.frame_skip):
            if number < len(self._targets):
                worlds.ctrl.copy_(self._targets[number])
            if self._records:
                substeps.q[:, number] = worlds.qpos[:, logic.robot.positions]
                substeps.qd[:, number] = worlds.qvel[:, logic.robot.velocities]
            worlds.step(senses=number + 1 == self.frame_skip)
            if self._records:
                substeps.torque[:, number] = self._physics.torque

    def outcome(self) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        reward, terminated, metrics = self.logic.judge(self._physics, self._substeps if self._records else None)
        return reward, terminated, metrics | {name: torch.where(self.faulty, 1.0, metrics[name]) for name in FALLS}

    def is_over(self) -> Tensor | None:
        return self.logic.is_over()

    def go_on(self, ended: Tensor) -> None:
        change = self.logic.go_on(ended, self._physics)
        if change is None:
            return
        velocity = self.worlds.qvel
        if self.view.is_planar:
            x, z = self.view.root[2][:2]
            velocity[:, x] += change[:, 0]
            velocity[:, z] += change[:, 2]
        else:
            first = self.view.root[2][0]
            velocity[:, first : first + 6] += change

    def observe(self, is_new: bool) -> Observation:
        shown = self.logic.observe(ALL, self._physics, is_new=is_new)
        self.logic.forget_step()
        return shown

    def set_reward_weight(self, name: str, weight: float) -> None:
        """As of `LeggedTask`."""
        self.logic.set_reward_weight(name, weight)

    def set_gait_authority(self, share: float) -> None:
        self.logic.set_gait_authority(share)

    def tell(self, command: Sequence[float]) -> None:
        """As of `LeggedTask`."""
        commands, told = self.logic.commands, self._like.new_tensor(command)
        if commands.held is None:
            commands.held, self.revision = told, self.revision + 1
        else:
            commands.held.copy_(told)
        self.memory["command"].copy_(commands.held)

    def levels(self) -> dict[str, float]:
        """As of `LeggedTask`; the device is looked at."""
        return self.logic.levels()

    # parts

    def _write_model(self) -> None:
        """Fields of the models follow from the layouts; those of episodes that go on are written as they are."""
        self.logic.place(ALL)
        own = self.worlds.own
        if self.task.config.randomise.enabled:
            fields = {name: own[name] for name in MODEL_FIELDS}
            layout = {name: value for name, value in self.layout.items() if name in MODEL_NAMES}
            write_model(fields, self._nominal, layout, ALL, self._places)
        if self._on_track:
            middle, half, turn = self._around.track.boxes(ALL)  # type: ignore[union-attr]
            boxes = self._boxes
            for name, value in zip(BOX_FIELDS, (middle, half, turn), strict=True):
                boxes[name].copy_(value)
            boxes["geom_rbound"].copy_(half.square().sum(-1).sqrt())
            boxes["geom_aabb"][..., 1, :].copy_(half)
            # Warp places what is fixed to the world only once
            position, rotation = self._placed
            position.copy_(middle)
            rotation.copy_(_matrices(turn))

    def _delayed(self, target: Tensor) -> list[Tensor]:
        """What the motors obey in each substep [B, A]: the target that was sent `delay` substeps ago."""
        lag = torch.round(self.layout["delay"] / float(self.model.opt.timestep)).long()  # [B, 1]
        obeyed = []
        for number in range(self.frame_skip):
            found = target
            for age in range(self._delays):
                # the last entry of `sent` was sent in the substep before this step
                back = self.memory["sent"][:, self._delays - 1 - age]
                found = torch.where(lag - number == age + 1, back, found)
            obeyed.append(found)
        return obeyed

    def _send(self, target: Tensor) -> None:
        """Remember what is sent in the substeps of this step."""
        sent, new = self.memory["sent"], min(self.frame_skip, self._delays)
        kept = torch.cat((sent[:, new:], target[:, None].expand(-1, new, -1)), 1)
        sent.copy_(kept)


def _matrices(turn: Tensor) -> Tensor:
    """Quaternions [..., 4] as rotation matrices [..., 3, 3]."""
    w, x, y, z = turn.unbind(-1)
    rows = (
        *(1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        *(2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        *(2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )
    return torch.stack(rows, -1).unflatten(-1, (3, 3))
