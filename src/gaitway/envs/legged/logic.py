"""A legged task as tensors: what is carried from step to step, and what a step, an end and a beginning do to it.

Whoever simulates owns time and physics and calls, in this order: `act`, then physics, `judge`, `go_on`, `observe`; for
episodes that begin `draw` and `begin`. Nothing here looks at a value or at a row by itself, so that the same code runs
on CPU tensors that share memory with MuJoCo's arrays and on a GPU.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from gaitway.envs.episode_numbers import ALL, EpisodeNumbers, Index
from gaitway.envs.legged import randomise
from gaitway.envs.legged.actions import Actions
from gaitway.envs.legged.commands import CLIP_VELOCITY, DRAWS, Commands, widened
from gaitway.envs.legged.config import LeggedConfig
from gaitway.envs.legged.endings import FINISH, fallen, finished
from gaitway.envs.legged.frame import (
    Frame,
    Physics,
    RobotTensors,
    Substeps,
    base_pose,
    base_velocity,
    measure,
)
from gaitway.envs.legged.kinematics import FootChains
from gaitway.envs.legged.latency import Latency
from gaitway.envs.legged.observations import Observations, Seen
from gaitway.envs.legged.pushes import EPISODE_DRAWS, Pushes
from gaitway.envs.legged.pushes import SHAPES as PUSH_SHAPES
from gaitway.envs.legged.rewards import Rewards
from gaitway.envs.legged.rows import RowsOf, put, write
from gaitway.envs.legged.starts import START_DRAWS, first_states
from gaitway.envs.legged.sums import EpisodeSums
from gaitway.envs.legged.terrain.blocks import Place
from gaitway.envs.legged.terrain.surroundings import Surroundings

STEPS = "steps"
"""How many steps an episode has had. Ages that somebody sets (`VecEnv.set_elapsed`) move its end and nothing else."""
WORTH, AUTHORITY = "worth", "authority"
"""What all instances share: weight x dt of each reward term [K], and the gait's share of targets [1]."""


class LeggedLogic:
    """`memory` is what an episode carries, `layout` how it differs from others; tensors [B, ...] by name."""

    def __init__(
        self,
        config: LeggedConfig,
        robot: RobotTensors,
        actions: Actions,
        observations: Observations,
        commands: Commands,
        chains: FootChains,
        rewards: Rewards,
        dt: float,
        timestep: float,
        foot_friction: float,
        around: Surroundings | None = None,
    ) -> None:
        """`around` is None on a plane."""
        self.config, self.robot, self.actions, self.dt = config, robot, actions, dt
        self.observations, self.commands, self.chains, self.rewards = observations, commands, chains, rewards
        self.around = around
        self._models = randomise.ModelDraws(config.randomise, robot, foot_friction, timestep)
        self.pushes = Pushes(config.pushes, robot, dt)
        self.latency = Latency(config.latency, observations.sizes, dt) if config.latency.most else None
        self.sums = EpisodeSums(rewards.names, robot.feet, config.warm_up)
        self._has_curriculum = False
        self.has_kicks, self.has_pushes = self.pushes.has_kicks, self.pushes.has_pushes
        self.metrics = (
            *self.sums.metrics,
            *(("command_share",) if config.commands.curriculum else ()),
            *(around.metrics if around is not None else ()),
        )
        self.frame: Frame | None = None
        self._step_draws = {
            "command": DRAWS,
            "kick": self.pushes.kick_draws,
            "push": self.pushes.push_draws,
            "noise": observations.noise_size,
            "latency": self.latency.step_draws if self.latency is not None else 0,
        }
        starts = itertools.accumulate(self._step_draws.values(), initial=0)
        self._step_starts = dict(zip(self._step_draws, starts, strict=False))
        self._episode_draws = {
            "model": randomise.draws_needed(robot),
            "start": robot.size + START_DRAWS,
            "command": DRAWS + 1,
            "pushes": EPISODE_DRAWS,
            "terrain": around.draws if around is not None else 0,
            "latency": 1 if self.latency is not None else 0,
            "clip": 1 if config.commands.from_clip else 0,
        }
        self._names = tuple(self.memory_shapes())

    def memory_shapes(self) -> dict[str, tuple[int, ...]]:
        """Per instance; those of `shared` are of the whole batch."""
        robot, sizes = self.robot, len(self.actions.names)
        feet, joints = (robot.feet,), (robot.size,)
        return {
            **dict.fromkeys(("action", "last_action", "older_action"), (sizes,)),
            **dict.fromkeys(("last_qd", "target"), joints),
            **dict.fromkeys(("air_time", "contact_time", "peak"), feet),
            **dict.fromkeys(("phase", "command_left", "heading", STEPS), ()),
            **{"command": (3,), **PUSH_SHAPES},
            **self.sums.shapes(),
            **(self.around.memory_shapes() if self.around is not None else {}),
            **(self.latency.shapes() if self.latency is not None else {}),
        }

    def lasting_shapes(self) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Per instance, and types: what outlives an episode."""
        return self.around.lasting_shapes() if self.around is not None else {}

    def layout_shapes(self) -> dict[str, tuple[int, ...]]:
        """How episodes differ, per instance."""
        terrain = self.around.layout_shapes() if self.around is not None else {}
        clip: dict[str, tuple[int, ...]] = {CLIP_VELOCITY: (4,)} if self.config.commands.from_clip else {}
        return {"place": (), **randomise.layout_shapes(self.robot), **terrain, **clip}

    def shared_shapes(self, trains: bool) -> dict[str, tuple[int, ...]]:
        """What all instances share: what terms are worth, the gait's authority; in training the command curriculum."""
        names = ("share", "score", "episodes") if self.config.commands.curriculum and trains else ()
        gait = (AUTHORITY,) if self.actions.mode == "gait_residual" else ()
        return {WORTH: (len(self.rewards.names),), **dict.fromkeys((*gait, *names), (1,))}

    def attach(
        self,
        memory: Mapping[str, Tensor],
        layout: Mapping[str, Tensor],
        numbers: EpisodeNumbers,
        block: Tensor | None = None,
    ) -> None:
        """`block` [B, ...] is what episodes carry in one piece, if `memory` consists of views of it."""
        self.memory, self.layout, self.numbers, self._block = dict(memory), dict(layout), numbers, block
        self._has_curriculum = "share" in self.memory
        self.memory[WORTH].copy_(self.memory[WORTH].new_tensor(self.rewards.per_step(self.dt)))
        if AUTHORITY in self.memory:
            self.memory[AUTHORITY].fill_(self.config.gait.authority)
        self.pushes.attach(self.memory)
        self.sums.attach(self.memory)
        if self.latency is not None:
            self.latency.attach(self.memory)
        if self.around is not None:
            self.around.attach(self.memory, self.layout, numbers.trains)

    def forget(self) -> None:
        """Every instance is about to begin for the first time."""
        if self._has_curriculum:
            self.memory["share"].fill_(self.config.commands.start_share)
            self.memory["score"].zero_()
            self.memory["episodes"].zero_()
        if self.around is not None:
            self.around.forget_levels()

    def place(self, rows: Index) -> None:
        """The layouts of `rows` were written, by a start or by a stored state."""
        if self.around is not None:
            self.around.place(rows)

    # a step

    def act(self, action: Tensor, physics: Physics) -> Tensor:
        """Targets of the joints [B, A] for actions as they were given [B, ...]."""
        memory = self.memory
        memory["older_action"].copy_(memory["last_action"])
        memory["last_action"].copy_(memory["action"])
        memory["action"].copy_(self.actions.taken(action, memory["action"]))
        q = physics.qpos[:, self.robot.positions]
        memory["last_qd"].copy_(physics.qvel[:, self.robot.velocities])
        fading = (memory[AUTHORITY],) if AUTHORITY in memory else ()
        target = self.actions.targets(memory["action"], q, memory["phase"], memory["command"], *fading)
        memory["target"].copy_(target)
        if self.actions.gait is not None:  # what is observed next is the phase of the next target
            memory["phase"].copy_(torch.frac(memory["phase"] + self.actions.gait.config.frequency * self.dt))
        return memory["target"]

    def push(self) -> Tensor:
        """Forces on the bases during this step, in the world [B, 2]."""
        return self.pushes.force()

    def judge(self, physics: Physics, substeps: Substeps | None = None) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Reward [B], whether the episode terminates [B], and metrics [B] by name, after physics moved."""
        self.memory[STEPS].add_(1.0)
        frame = self._frame(ALL, physics, self._feet_moved(self._measured(ALL, physics)), substeps)
        frame.terminated = fallen(frame, self.config.endings)
        reward, parts = self.rewards(frame, self.memory[WORTH])
        metrics = self._count(frame, parts)
        self.pushes.fade()
        self.frame = frame
        ends = frame.terminated | finished(frame) if FINISH in self.config.endings else frame.terminated
        return reward, ends, metrics

    def go_on(self, ended: Tensor, physics: Physics) -> Tensor | None:
        """Timers of episodes that go on: new commands, pushes and kicks; changes of the bases' velocities [B, 6]."""
        memory, goes_on = self.memory, ~ended
        self._uniform = self._step_numbers(ALL)
        if self._has_curriculum:
            self._widen(ended)
        if self.around is not None and self.frame is not None:
            self.around.move_levels(ended, self.frame)
        memory["command_left"].sub_(self.dt)
        due = goes_on & (memory["command_left"] <= 0.0)
        command, seconds, heading = self.commands.draw(
            self._part("command", self._uniform), memory["command"], self._share(ALL), self.layout["place"]
        )
        put(memory["command"], due, command)
        put(memory["command_left"], due, seconds)
        put(memory["heading"], due, heading)
        if self.has_pushes:
            self.pushes.begin_due(goes_on, self._part("push", self._uniform))
        if self.latency is not None:
            self.latency.redraw(goes_on, self._part("latency", self._uniform))
        change = self.pushes.kicks(goes_on, self._part("kick", self._uniform)) if self.has_kicks else None
        if self.frame is not None:
            put(memory["command"], goes_on, self._aimed(ALL, self.frame.position, self.frame.yaw, self.frame.place))
            self.frame.command = memory["command"]
        return change

    def observe(self, rows: Index, physics: Physics, is_new: bool = False) -> dict[str, Tensor]:
        """Groups [n, D] of `rows`; those of a new episode have touched nothing yet."""
        if is_new or self.frame is None:
            frame = self._first_frame(rows, physics)
        else:
            frame = self.frame
            if self.has_kicks:
                moving = base_velocity(self.robot, physics.qvel, frame.rotation, frame.gravity, frame.yaw)
                for name, value in moving.items():
                    setattr(frame, name, value)
                frame.qd = physics.qvel[:, self.robot.velocities]
        uniform = self._part("noise", self._step_numbers(rows) if is_new else self._uniform)
        values, late = self.observations.values(self._seen(rows, frame)), None
        if self.latency is not None:
            if not is_new:  # first frames are there since `note_start`
                self.latency.take(values)
            late = self.latency.seen(rows)
        found = self.observations(values, uniform, late)
        if self.around is not None:
            steps = self.steps(rows)
            found |= {name: self.around.image(rows, steps) for name in self.observations.images}
        return found

    def steps(self, rows: Index) -> Tensor:
        """How many steps the episodes of `rows` have had [n]."""
        return self.memory[STEPS][rows].long()

    def forget_step(self) -> None:
        """The last step was judged and seen: nothing of it is needed, and whoever compiles a step need not keep it."""
        self.frame, self._uniform = None, self.robot.pose

    def is_over(self) -> Tensor | None:
        """Whose episode ends because its terrain is passed [B]; None where there is no end to it."""
        if self.around is None or self.frame is None:
            return None
        return self.around.is_over(self.frame)

    def hold_images(self, rows: Tensor, distance: Tensor, is_new: bool = False) -> None:
        """Cameras of `rows` saw these distances [n, P] along their rays, for the first time in new episodes."""
        around = self.around
        assert around is not None
        assert around.camera is not None
        noisy, steps = self.config.noise > 0.0, self.steps(rows)
        uniform = self.numbers.of_step("depth", around.camera.draws, rows, steps) if noisy else None
        around.hold(rows, distance, uniform, steps, is_new)

    # schedules, between steps

    def set_reward_weight(self, name: str, weight: float) -> None:
        """From now on the term `name` has this weight."""
        if not math.isfinite(weight):
            raise ValueError(f"the weight of {name} is {weight}; use a finite number")
        self.memory[WORTH][self.rewards.number(name)] = weight * self.dt

    def set_gait_authority(self, share: float) -> None:
        """From now on `gait_residual` corrects this share of the gait, and the default pose for the rest."""
        if AUTHORITY not in self.memory:
            raise ValueError(f"the action is {self.actions.mode}, in which no gait fades; use action=gait_residual")
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"the gait's authority is {share}; use a share from 0 to 1")
        self.memory[AUTHORITY].fill_(share)

    def levels(self) -> dict[str, float]:
        """`<kind>_mean`, `<kind>_min` and `<kind>_max` of the levels on each kind of terrain, between iterations."""
        if self.around is None:
            raise ValueError("a plane has no levels; write terrain.kind=tiles or track, or leave terrain_levels out")
        found: dict[str, float] = {}
        for name, level in self.around.levels().items():
            numbers = {"mean": level.mean(), "min": level.amin(), "max": level.amax()}
            found |= {f"{name}_{what}": float(number) for what, number in numbers.items()}
        return found

    # beginnings

    def draw(self, rows: Index, place: Tensor) -> dict[str, Tensor]:
        """The starts of new episodes of `rows`: qpos, qvel and the layout [n, ...]; `place` [n] is in the grid."""
        numbers = self._episode_numbers(rows)
        drawn = self._models(numbers["model"])
        if self.around is not None:
            drawn = {**drawn, **self.around.draw(rows, numbers["terrain"], place)}
        if self.config.commands.from_clip:  # whoever begins it within a clip writes another one
            drawn[CLIP_VELOCITY] = torch.zeros_like(place)[:, None].expand(-1, 4).clone()
        q = None
        if self.actions.gait is not None and not self.config.start.tumbled:
            phase, command, _, _ = self._first_command(numbers, rows, place)
            q = self.actions.gait.pose(phase, command)
        terrain = None if self.around is None else self.around.terrain
        start, chains = self.config.start, self.chains
        qpos, qvel = first_states(start, self.robot, chains, numbers["start"], q, terrain, rows, drawn)
        return {"qpos": qpos, "qvel": qvel, "place": place, **drawn}

    def begin(self, rows: Index, where: Tensor | None = None) -> None:
        """Forget what `rows` carried; their layout is written. Sets commands and timers.

        Who may not look at values gives all rows, and `where` [B] says which of them begin.
        """
        memory, numbers = self.memory, self._episode_numbers(rows)
        for part in (memory[name] for name in self._names) if self._block is None else (self._block,):
            write(part, rows, 0.0, where)
        phase, command, seconds, heading = self._first_command(numbers, rows, self.layout["place"][rows])
        if self.config.commands.from_clip:
            command = self.commands.of_clips(numbers["clip"][:, 0], command, self.layout[CLIP_VELOCITY][rows])
        first = {"phase": phase, "command": command, "command_left": seconds, "heading": heading}
        first |= self.pushes.first(numbers["pushes"])
        if self.latency is not None:
            first |= self.latency.first(numbers["latency"])
        for name, value in first.items():
            write(memory[name], rows, value, where)

    def first_targets(self, qpos: Tensor, qvel: Tensor) -> Tensor:
        """Targets [n, A] that leave first states as they are: what delayed motors obey until the first arrives."""
        robot = self.robot
        # kp (target - q) - kd qd = 0: who begins in motion goes on
        q, ahead = qpos[:, robot.positions], qvel[:, robot.velocities] * (robot.kd / robot.kp)
        return (q + ahead).clamp(robot.low, robot.high)

    def note_start(self, rows: Index, physics: Physics, where: Tensor | None = None) -> None:
        """The first states of `rows` are there; `where` as in `begin`."""
        memory = self.memory
        write(memory["last_qd"], rows, physics.qvel[:, self.robot.velocities], where)
        position, _, yaw = base_pose(self.robot, physics.qpos)
        write(memory["last_position"], rows, position, where)
        if self.commands.has_heading or self.commands.has_goal:
            place = None if self.around is None else self.around.where(rows, physics, position)
            write(memory["command"], rows, self._aimed(rows, position, yaw, place), where)
        if self.latency is not None:
            seen = self._seen(rows, self._first_frame(rows, physics))
            self.latency.refill(rows, self.observations.values(seen, self.latency.sizes), where)

    def try_terms(self, rows: Index, physics: Physics, substeps: Substeps | None) -> None:
        """Ask terms of users what first states are worth, so that what is wrong with them shows before the first step;
        nobody is paid."""
        self.rewards.try_own(replace(self._first_frame(rows, physics), substeps=substeps))

    # parts

    def _step_numbers(self, rows: Index) -> Tensor:
        """All random numbers of a step [n, ...], drawn at once; `_part` tells them apart."""
        return self.numbers.of_step("step", sum(self._step_draws.values()), rows, self.steps(rows))

    def _part(self, name: str, uniform: Tensor) -> Tensor:
        start = self._step_starts[name]
        return uniform[:, start : start + self._step_draws[name]]

    def _episode_numbers(self, rows: Index) -> dict[str, Tensor]:
        """All random numbers with which an episode begins."""
        drawn = self.numbers.of_episode("begin", sum(self._episode_draws.values()), rows)
        return dict(zip(self._episode_draws, drawn.split(list(self._episode_draws.values()), 1), strict=True))

    def _first_command(
        self, numbers: Mapping[str, Tensor], rows: Index, place: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        uniform = numbers["command"]
        command = torch.zeros_like(uniform[:, :3])
        drawn = self.commands.draw(uniform[:, 1:], command, self._share(rows), place)
        return uniform[:, 0], *drawn

    def _aimed(self, rows: Index, position: Tensor, yaw: Tensor, place: Place | None) -> Tensor:
        """The commands [n, 3] of `rows`, turned towards headings or led to goals where they follow these."""
        command, commands = self.memory["command"][rows], self.commands
        if not commands.has_goal or place is None:
            return commands.towards(command, self.memory["heading"][rows], yaw)
        x, y = (place.goal() - position[:, :2]).unbind(1)
        cos, sin = torch.cos(yaw), torch.sin(yaw)
        return commands.to_goal(torch.stack((cos * x + sin * y, cos * y - sin * x), 1))

    def _share(self, rows: Index) -> Tensor:
        like = self.memory["phase"][rows]
        return self.memory["share"].expand_as(like) if self._has_curriculum else torch.ones_like(like)

    def _measured(self, rows: Index, physics: Physics) -> dict[str, Tensor]:
        measured = measure(self.robot, physics)
        return measured if self.around is None else self.around.above_ground(rows, measured)

    def _frame(self, rows: Index, physics: Physics, measured: dict[str, Tensor], substeps: Substeps | None) -> Frame:
        memory = self.memory
        kept = {
            name: memory[name][rows]
            for name in (
                *("command", "action", "last_action", "older_action", "last_qd"),
                *("air_time", "contact_time", "peak"),
            )
        }
        kept = {**kept, **{name: value for name, value in measured.items() if name in kept}}
        rest = {name: value for name, value in measured.items() if name not in kept}
        return Frame(
            robot=self.robot,
            dt=self.dt,
            **rest,
            **kept,
            ctrl=memory["target"][rows],
            steps=self.steps(rows),
            terminated=torch.zeros_like(measured["yaw"], dtype=torch.bool),
            substeps=substeps,
            place=None if self.around is None else self.around.where(rows, physics, measured["position"]),
        )

    def _first_frame(self, rows: Index, physics: Physics) -> Frame:
        """Of new episodes, which have touched nothing yet."""
        measured = self._measured(rows, physics)
        for name in ("foot_force", "link_force", "trunk_force", "torque"):
            measured[name] = torch.zeros_like(measured[name])
        measured["contact"] = torch.zeros_like(measured["contact"])
        first = torch.zeros_like(measured["contact"])
        return self._frame(rows, physics, {**measured, "first_contact": first}, None)

    def _seen(self, rows: Index, frame: Frame) -> Seen:
        around = self.around.seen(rows, frame) if self.around is not None else {}
        late = self.latency.steps(rows) if self.latency is not None else None
        drawn = RowsOf(self.layout, rows)
        return Seen(frame, self.memory["phase"][rows], drawn, self.pushes.seen(rows), around, late)

    def _feet_moved(self, measured: dict[str, Tensor]) -> dict[str, Tensor]:
        """Count the times and heights of feet. A foot that lands shows the time and the peak of its flight."""
        memory, contact = self.memory, measured["contact"]
        flight = memory["air_time"].clone()
        peak = torch.maximum(memory["peak"], measured["foot_height"])
        landed = contact & (flight > 0.0)
        none = torch.zeros_like(flight)
        memory["air_time"].copy_(torch.where(contact, none, flight + self.dt))
        memory["contact_time"].copy_(torch.where(contact, memory["contact_time"] + self.dt, none))
        memory["peak"].copy_(torch.where(contact, none, peak))
        return {
            **measured,
            "first_contact": landed,
            "air_time": torch.where(landed, flight, memory["air_time"]),
            "contact_time": memory["contact_time"],
            "peak": torch.where(landed, peak, memory["peak"]),
        }

    def _count(self, frame: Frame, parts: Tensor) -> dict[str, Tensor]:
        """Add this step to what the episode adds up to."""
        metrics = self.sums.count(frame, parts, self.layout["payload"][:, 0])
        if self.config.commands.curriculum:
            metrics["command_share"] = self._share(ALL)
        return metrics if self.around is None else {**metrics, **self.around.count(frame)}

    def _widen(self, ended: Tensor) -> None:
        memory = self.memory
        share, score, episodes = widened(
            memory["share"],
            memory["score"],
            memory["episodes"],
            ended,
            torch.nan_to_num(memory["tracked"]),  # faulty instances may hold anything
            self.config.commands.widen_above,
        )
        memory["share"].copy_(share)
        memory["score"].copy_(score)
        memory["episodes"].copy_(episodes)
