"""What the tasks of the bipedal-skills benchmark share: one robot on a course, settled for one step, until it falls.

The benchmark was published with HSD-3 (Gehring et al. 2021, arXiv 2110.10809). Group `policy` is the task's own numbers
followed by features of the robot (`features.py`); `BiskTask.views` says which columns are which key of the benchmark's
dictionaries. An episode begins with one control step without control, after which the robot is seen
for the first time; falls are not tested there. Metrics: `score`, whose sum over an episode is what the benchmark
reports, and `fell`. A fall ends the episode with a reward of -1 and leaves the score alone.

Tasks with a shaped form (the metric `shaped_reward`, whichever form is paid) pay it where the option `shaped` says so;
the score stays what it is.

Ids `<robot>/<task>` are comparable with published results. Ids with the ending `-fixed` differ where the benchmark is
known to err (`CORRECTIONS`); where it does not, both are the same environment.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import mujoco
import numpy as np
from mujoco.batch import Batch

from gaitway.core.config import configuration
from gaitway.core.ranges import WholeNumber
from gaitway.envs.batch_task import STAGE_VELOCITY, Arrays, Rows, SettledTask
from gaitway.envs.episode_numbers import ALL
from gaitway.envs.robots import world
from gaitway.envs.robots.registry import get_robot
from gaitway.envs.robots.robot import RobotView
from gaitway.envs.spec import Component, ObservationGroup
from gaitway.envs.task_options import resolve_options
from gaitway.envs.tasks.bisk.features import HEADINGS, Features, make_features

FIXED = "-fixed"
CORRECTIONS: Mapping[str, Any] = {"pole_velocity": True, "heading": "corrected"}
"""Options whose defaults are others in environments whose id ends in `-fixed`."""

FALL_REWARD = -1.0
SHAPED = "shaped_reward"
"""Metric of the tasks that have a shaped form: what it pays in this step, were it not for falls."""
OBSERVATION = "observation"
"""Key of the robot's features in the benchmark's dictionaries."""
GOAL_SPACE = "goal_space"

NORMAL_BLOCKS = (1, 3)
"""Which of the blocks of random numbers are normal: those for velocities."""

Config = TypeVar("Config", bound="BiskConfig")


@configuration(kw_only=True)
class BiskConfig:
    """Options of all tasks of the benchmark."""

    features: str = "joints"
    """What is said about the robot: joints, bodyfeet, in Stairs also joints-relz, bodyfeet-relz."""
    goal_space: bool = False
    """Adds the group `goal_space`: the bodyfeet features, in Stairs with the height above the ground."""
    heading: str = "original"
    """Which way the Humanoids' feet are turned in bodyfeet: as published (original) or as meant (corrected)."""
    allow_falls: bool = False
    """Falls neither end the episode nor cost anything; the metric `fell` still shows them."""
    max_episode_steps: WholeNumber = 1000

    def __post_init__(self) -> None:
        if self.heading not in HEADINGS:
            raise ValueError(f"heading is {self.heading!r}; use one of {list(HEADINGS)}")


class BiskTask(SettledTask):
    """A robot on a course. Subclasses say what the course is (`add_course`), what is seen of it and what it pays."""

    task: ClassVar[str]
    """Name in the id, after the robot's."""
    task_key: ClassVar[str]
    """Key of the task's own numbers in the benchmark's dictionary."""
    config_class: ClassVar[type[BiskConfig]] = BiskConfig
    metrics: tuple[str, ...] = ("score", "fell")
    reductions: Mapping[str, str] = {"score": "sum"}
    senses_last = True
    fault_reward = FALL_REWARD
    relative_height: ClassVar[bool] = False
    """True if the course has heights of its own, so that the robot's is measured from the ground below it."""
    is_static: ClassVar[bool] = False
    """True for courses of many boxes that stand still (`world.compile_course`)."""
    config: BiskConfig
    shaped_reward: np.ndarray
    """What the shaped form pays [B]; `judge` fills it in tasks that have one."""

    def __init__(self, robot: str, ending: str, options: Mapping[str, Any]) -> None:
        self.robot = get_robot(robot)
        self.id = f"{robot}/{self.task}{ending}"
        config = corrected(self.config_class) if ending == FIXED else self.config_class
        self.config, self.options = resolve_options(config, self.id, options)
        self.max_episode_steps = self.config.max_episode_steps
        self.prepare()
        self.view = RobotView(self.robot, self.model)
        self.features = self._make_features(self.config.features)
        self._goal_features = self._make_features(self._goal_features_name) if self.config.goal_space else None
        if self._goal_features is not None:
            self.facts = {"robot": robot, **self.facts}
        shown = [self.features, self._goal_features] if self._goal_features is not None else [self.features]
        self.fields = tuple(dict.fromkeys(name for features in shown for name in features.fields))
        if "xpos" in self.fields:
            self.stage = STAGE_VELOCITY  # positions of bodies lag one substep behind otherwise
        components = self.task_components()
        self.task_size = sum(component.size for component in components)
        self.groups = self._groups(components)
        self.layout_shapes = {"settle": (), **self.course_shapes()}

    def prepare(self) -> None:
        """Check options and compute what the model depends on; runs before it is built."""

    def add_course(self, spec: mujoco.MjSpec, decorated: bool) -> None:
        """Put everything around the robot; the same bodies, joints and geoms whether or not it is decorated."""
        world.add_floor(spec)

    def task_components(self) -> tuple[Component, ...]:
        """Names and units of the task's own numbers, which come first in `policy`."""
        raise TypeError(f"{type(self).__name__} does not implement task_components")

    def task_keys(self) -> dict[str, int]:
        """Keys of the benchmark's dictionary before `observation`, with their sizes."""
        return {self.task_key: self.task_size}

    @property
    def views(self) -> dict[str, slice]:
        """The benchmark's dictionary in its order: key -> columns of `policy`."""
        views, start = {}, 0
        for key, size in {**self.task_keys(), OBSERVATION: self.features.size}.items():
            views[key] = slice(start, start + size)
            start += size
        return views

    def course_shapes(self) -> dict[str, tuple[int, ...]]:
        """Layout of one episode: shape per instance of everything that `sample_course` returns."""
        return {}

    def object_draws(self) -> tuple[int, int]:
        """How many uniform and normal numbers the first state of other objects takes."""
        return 0, 0

    def course_draws(self) -> int:
        """How many uniform numbers a layout takes."""
        return 0

    def sample_objects(self, uniform: np.ndarray, normal: np.ndarray, qpos: np.ndarray, qvel: np.ndarray) -> None:
        """Write the first states of other objects into qpos [n, nq] and qvel [n, nv].

        `uniform` [n, k] in [0, 1) and `normal` [n, m] are as many as `object_draws` asked for.
        """

    def sample_course(self, uniform: np.ndarray) -> Arrays:
        """Layouts [n, ...] from numbers in [0, 1) [n, course_draws]."""
        return {}

    def place(self, rows: Rows) -> None:
        """Set up the course of new episodes from `layout` and qpos, before the settling step."""

    def begin(self, rows: Rows) -> None:
        """Reset counters, after the settling step."""

    def height(self, rows: Rows) -> np.ndarray | None:
        """Height of the torso above the ground (m), None where the ground is at z = 0."""
        return None

    def judge(self, fell: np.ndarray, score: np.ndarray, reward: np.ndarray, terminated: np.ndarray) -> None:
        """Fill `score` and `reward` [B] and set `terminated` where the task ends; a fall has the last word later."""
        raise TypeError(f"{type(self).__name__} does not implement judge")

    def observe_task(self, rows: Rows, out: np.ndarray) -> None:
        """Write the task's own numbers into `out` [n, task_size]."""
        raise TypeError(f"{type(self).__name__} does not implement observe_task")

    def attach(self, batch: Batch) -> None:
        super().attach(batch)
        self.shaped_reward = np.zeros(batch.nsim)
        self._numbers = np.arange(batch.nsim, dtype=np.int32)

    def draw_many(self, generators: Iterable[np.random.Generator], rows: np.ndarray) -> Arrays:
        return self._sample(self._random_numbers(generators, len(rows)))

    def _random_numbers(self, generators: Iterable[np.random.Generator], count: int) -> list[np.ndarray]:
        """Numbers for the robot's positions and velocities, other objects' and the course, in this order [n, ...]."""
        uniform, normal = self.object_draws()
        sizes = (self.robot.nq, self.robot.nv, uniform, normal, self.course_draws())
        blocks = [np.empty((count, size)) for size in sizes]
        used = [(number in NORMAL_BLOCKS, list(block)) for number, block in enumerate(blocks) if block.size]
        for row, generator in enumerate(generators):
            for is_normal, targets in used:
                (generator.standard_normal if is_normal else generator.random)(out=targets[row])
        return blocks

    def _sample(self, blocks: Sequence[np.ndarray]) -> Arrays:
        """The starts of n episodes."""
        count = len(blocks[0])
        qpos, qvel = np.empty((count, self.model.nq)), np.zeros((count, self.model.nv))
        qpos[:] = self.model.qpos0
        qpos[:, self.view.qpos], qvel[:, self.view.qvel] = self.robot.first_states(blocks[0], blocks[1])
        self.sample_objects(blocks[2], blocks[3], qpos, qvel)
        return {"qpos": qpos, "qvel": qvel, "settle": np.ones(count), **self.sample_course(blocks[4])}

    def start(self, rows: Rows) -> None:
        self.note_start(rows)
        self.place(rows)
        self.settle_new(self._numbers[rows])
        self.begin(rows)

    def outcome(self, action: np.ndarray, reward: np.ndarray, terminated: np.ndarray, metrics: Arrays) -> None:
        fell = self.view.fallen(self.qpos, self.height(ALL))
        metrics["fell"][:] = fell
        if self.config.allow_falls:
            fell = np.zeros_like(fell)
        self.judge(fell, metrics["score"], reward, terminated)
        if SHAPED in metrics:
            metrics[SHAPED][:] = self.shaped_reward
        np.putmask(reward, fell, FALL_REWARD)
        np.logical_or(terminated, fell, out=terminated)

    def observe(self, rows: Rows, out: Arrays) -> None:
        policy = out["policy"]
        self.observe_task(rows, policy[:, : self.task_size])
        height = self.height(rows) if self.relative_height else None
        self.features.write(self, rows, policy[:, self.task_size :], height if self.features.relative_height else None)
        if self._goal_features is not None:
            self._goal_features.write(self, rows, out[GOAL_SPACE], height)

    def build(self, decorated: bool = False) -> mujoco.MjModel:
        spec = self.robot.spec()
        self.add_course(spec, decorated)
        world.add_accelerometer(spec, self.robot.torso)
        if decorated:
            world.decorate(spec, self.robot.torso)
        return world.compile_course(spec) if self.is_static else world.compile_model(spec)

    @property
    def _goal_features_name(self) -> str:
        return "bodyfeet-relz" if self.relative_height else "bodyfeet"

    def _make_features(self, name: str) -> Features:
        features = make_features(name, self.view, self.config.heading)
        if features.relative_height and not self.relative_height:
            raise ValueError(
                f"features {name!r} measure the height above the ground, which is there for stairs alone; "
                f"{self.id} takes {name.removesuffix('-relz')!r}"
            )
        return features

    def _groups(self, components: tuple[Component, ...]) -> tuple[ObservationGroup, ...]:
        size = self.task_size + self.features.size
        policy = ObservationGroup(
            "policy", (*components, *self.features.components), (size,), heading=self.features.heading
        )
        if self._goal_features is None:
            return (policy,)
        shown = self._goal_features
        return policy, ObservationGroup(GOAL_SPACE, shown.components, (shown.size,), heading=shown.heading)


def corrected(config: type[Config]) -> type[Config]:
    """The same options with the defaults of `CORRECTIONS`."""
    names = [item.name for item in dataclasses.fields(config)]
    changes = [
        (name, type(value), dataclasses.field(default=value)) for name, value in CORRECTIONS.items() if name in names
    ]
    return dataclasses.make_dataclass(config.__name__, changes, bases=(config,), frozen=True, kw_only=True)


def between(low: float, high: float, uniform: np.ndarray) -> np.ndarray:
    """Numbers in [0, 1) stretched to [low, high)."""
    return low + (high - low) * uniform


def check_range(task: str, **limits: tuple[float, float]) -> None:
    """Refuse intervals (low, high) that are empty or not positive, by the names of the options that give them."""
    for name, (low, high) in limits.items():
        if not 0.0 < low <= high:
            raise ValueError(
                f"{task}: {name} reaches from {low} to {high} m; use positive numbers, the lower one first"
            )
