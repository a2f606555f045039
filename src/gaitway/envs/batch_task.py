"""What an episode is, for all instances of a MuJoCo batch at once; `examples/own_robot.py` is one of one's own.

`MujocoBatchEnv` owns time: it steps the batch, ends and restarts episodes and fills the output buffers. A `BatchTask`
owns meaning: the model, what is observed, what is rewarded, when an episode ends and where it begins. Its methods work
on whole arrays; only `draw` is called once per restarted instance.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np

from gaitway.envs.episode_numbers import EpisodeNumbers
from gaitway.envs.robots import world
from gaitway.envs.robots.robot import Robot
from gaitway.envs.spec import ActionSpec, Drive, ObservationGroup, Pooled

if TYPE_CHECKING:
    from mujoco.batch import Batch, SimulationError
    from torch import Tensor

    from gaitway.envs.tensor_task import TensorTask

STAGE_NONE = int(mujoco.mjtStage.mjSTAGE_NONE)
STAGE_POSITION = int(mujoco.mjtStage.mjSTAGE_POS)
STAGE_VELOCITY = int(mujoco.mjtStage.mjSTAGE_VEL)
STAGE_ACCELERATION = int(mujoco.mjtStage.mjSTAGE_ACC)

FIRST = np.zeros(1, dtype=np.int32)
NO_SENSORS = int(mujoco.mjtDisableBit.mjDSBL_SENSOR)

NUMBERS = "numbers"
"""What a layout calls the words of `EpisodeNumbers`."""

Arrays = dict[str, np.ndarray]
Rows = slice | np.ndarray
"""All instances, `slice(None)`, or the sorted int32 indices of some."""


class BatchTask:
    """Base of the native tasks; subclasses set the attributes and write `draw`, `outcome` and `observe`.

    A task object belongs to one environment, because it holds the arrays of its instances: `qpos` [B, nq], `qvel`
    [B, nv], both side by side as `motion` [B, nq + nv], and `ctrl` [B, nu] (float64, live views of the physics state),
    `field[name]` for every other MjData field named in `fields`, `layout[name]` for what `draw` returns besides qpos
    and qvel, and `memory[name]` for whatever the task carries from step to step. `layout` and `memory` are part of the
    environment's stored state.
    """

    id: str
    robot: Robot
    """Who moves. `model`, `frame_skip` and `render_model` follow from it; tasks without one set the first two."""
    max_episode_steps: int
    """0 for no time limit."""
    groups: tuple[ObservationGroup, ...]
    """Groups of floats are given out in the environment's type, others, such as uint8 images, in their own."""
    action: ActionSpec | None = None
    """What an action is, for tasks with an `actuate` of their own; None: the controls of the model, as they are."""
    drive: Drive | None = None
    """What executes the actions, for whoever builds the same on a robot."""
    metrics: tuple[str, ...] = ()
    """What is measured besides the reward, its terms for example; logged and drawn under these names."""
    flags: tuple[str, ...] = ()
    """Those of `metrics` that say whether something happened, 0 or 1: counted once per episode."""
    reductions: Mapping[str, str] = {}
    """How a metric becomes one number of an episode where that is not the mean over its steps: `sum` or `last`."""
    pooled: Mapping[str, Pooled] = {}
    """Figures of several episodes together, made of totals."""
    options: Mapping[str, Any] = {}
    """Options that differ from the task's defaults."""
    facts: Mapping[str, Any] = {}
    """Plain facts for `EnvSpec.facts`."""
    fields: tuple[str, ...] = ()
    """Derived MjData fields to read, e.g. `("xpos",)`; after a step they describe the state before the last substep."""
    layout_shapes: Mapping[str, tuple[int, ...]] = {}
    """Shape per instance of every further thing that `draw` returns, e.g. obstacle positions."""
    draws_in_steps: bool = False
    """The task asks `numbers` for random numbers; `layout["numbers"]` then says which ones an episode has."""
    stage: int = STAGE_NONE
    """Forward stages computed after a step; STAGE_VELOCITY makes positions and velocities of `fields` current."""
    start_stage: int = STAGE_NONE
    """Forward stages computed after a restart, needed as soon as `fields` is not empty."""
    persistent: bool = False
    """One MjData per instance; needed where anything is called on an instance's MjData after a step."""
    senses_last: bool = False
    """Sensors, and forces that MuJoCo computes for sensors alone (`cfrc_ext`), matter in the last substep only."""
    fault_reward: float = 0.0
    fault_metrics: tuple[str, ...] = ()
    """Those of `metrics` that `outcome` gets right for `faulty` instances too; all others are 0 there."""
    standing_geoms: Sequence[int] | None = None
    """Geoms that stand on the ground, as the feet of a robot do; None: whatever of it can touch the floor."""
    camera: str | None = None
    """Camera for pictures: one of the decorated model, or "follow"; None for the robot's first, else "follow"."""

    batch: Batch
    faulty: np.ndarray | None = None
    """Instances whose physics failed in the present step [B]; None while all are sound."""
    numbers: EpisodeNumbers
    """Random numbers of every step, for all instances at once, for tasks with `draws_in_steps`."""
    qpos: np.ndarray
    qvel: np.ndarray
    motion: np.ndarray
    ctrl: np.ndarray
    field: Arrays
    layout: Arrays
    memory: Arrays
    _flags: np.ndarray | None
    _attached = False

    def on_tensors(self, like: Tensor) -> TensorTask:
        """The task for simulators whose arrays are tensors, on the device of `like`; most are written for arrays of
        NumPy alone."""
        raise ValueError(
            f"{self.id} is written for arrays of NumPy, which a GPU has none of; use env.simulator=mujoco, or a task "
            "on tensors: walker/run, humanoid/run and the legged ones (pup12/velocity, legged:velocity, ...)"
        )

    @functools.cached_property
    def model(self) -> mujoco.MjModel:
        return self.build()

    @functools.cached_property
    def frame_skip(self) -> int:
        """Physics substeps per step."""
        return self.robot.frame_skip

    def add_surroundings(self, spec: mujoco.MjSpec) -> None:
        """Put what is around the robot into its model: a floor at z = 0, unless the robot's file has a plane."""
        world.add_ground(spec)

    def build(self, decorated: bool = False) -> mujoco.MjModel:
        """The robot and what is around it, for pictures `decorated` with a sky, a light and a checkerboard."""
        spec = self.robot.spec()
        self.add_surroundings(spec)
        if decorated:
            world.decorate(spec, self.robot.torso)
        return world.compile_model(spec)

    @functools.cached_property
    def control_dt(self) -> float:
        """Seconds per step."""
        return float(self.model.opt.timestep) * self.frame_skip

    def attach(self, batch: Batch) -> None:
        """Take the arrays of `batch`. Subclasses extend it to allocate `memory` and scratch space."""
        if self._attached:
            raise ValueError(f"this {self.id} task already belongs to an environment; make a new task for each one")
        self._attached = True
        self.batch = batch
        self.qpos, self.qvel, self.ctrl = (batch.bind(name) for name in ("qpos", "qvel", "ctrl"))
        self.motion = batch.state[:, 1 : 1 + self.model.nq + self.model.nv]  # a state row starts time, qpos, qvel
        self.field = {name: batch.bind(name) for name in self.fields}
        self.layout = {name: np.zeros((batch.nsim, *shape)) for name, shape in self.layout_shapes.items()}
        if self.draws_in_steps:
            self.layout[NUMBERS] = np.zeros(batch.nsim)
        self.memory = {}
        self._flags = batch.expand("opt.disableflags") if self.senses_last else None

    def detach(self) -> None:
        """Let go of the batch, so that its threads end."""
        for name in ("batch", "qpos", "qvel", "motion", "ctrl", "field", "_flags"):
            self.__dict__.pop(name, None)

    def draw(self, generator: np.random.Generator) -> Arrays:
        """The start of one episode: `qpos` [nq], `qvel` [nv] and everything in `layout_shapes`."""
        raise TypeError(f"{type(self).__name__} does not implement draw")

    def draw_many(self, generators: Iterable[np.random.Generator], rows: np.ndarray) -> Mapping[str, np.ndarray]:
        """The starts of the next episodes of instances `rows` (sorted int32) [len(rows), ...], each from a generator
        that lasts until the next one.

        Tasks with much to draw override it, to compute on all rows at once; the numbers must be those of `draw`.
        """
        drawn = [self.draw(generator) for generator in generators]
        if not all(isinstance(start, Mapping) and start.keys() == drawn[0].keys() for start in drawn):
            return drawn[-1]  # no starts; who called says what is wrong with them
        return {name: _stacked([start[name] for start in drawn]) for name in drawn[0]}

    def ground(self, rows: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Heights [n, K] of the ground at points [n, K, 2], in the episodes that were drawn last for `rows`."""
        return np.zeros(points.shape[:2])

    def before_reset(self) -> None:
        """`env.reset` was called: every instance is about to begin a new episode."""

    def start(self, rows: Rows) -> None:
        """New episodes begin in `rows`: their state and layout are written, controls and time are zero."""
        if self.start_stage != STAGE_NONE:
            self.batch.forward(None if isinstance(rows, slice) else rows, stage=self.start_stage)

    def restore(self) -> None:
        """A stored state was put back: physics, `layout` and `memory` are written. Rebuild what follows from them."""

    def scenario(self) -> Arrays:
        """What `load_scenario` takes, by name, with the values of the present situation [B, ...]."""
        return {"qpos": self.qpos, "qvel": self.qvel, **self.layout}

    def check_scenario(self, given: Mapping[str, np.ndarray]) -> None:
        """Refuse what cannot be simulated; shapes are right and all numbers (float64) finite."""

    def actuate(self, action: np.ndarray) -> None:
        """Turn the action [B, A], as it was given, into controls; tasks with an `action` of their own override it."""
        np.copyto(self.ctrl, action)

    def before_step(self) -> None:
        """Note what `outcome` compares with; controls are written, physics has not moved."""

    def advance(self) -> None:
        """One control step of all instances."""
        self.move(None, self.frame_skip)

    def move(self, numbers: np.ndarray | None, substeps: int) -> None:
        """Advance the instances `numbers` (sorted int32), None for all; `stage` is computed at the end.

        With `senses_last` sensors are off until the last substep. The states are the same bit for bit, and a step of
        the Walker takes 6 % less time, one of the Humanoid 2 %.
        """
        from mujoco.batch import SimulationError  # here: simulators of others come with a MuJoCo that has none

        failed: SimulationError | None = None
        if self._flags is not None and substeps > 1:
            self._flags[...] = self.model.opt.disableflags | NO_SENSORS
            try:
                self.batch.step(numbers, nstep=substeps - 1)
            except SimulationError as error:  # the others ran to completion, and have one substep to go
                failed = error
            finally:
                self._flags[...] = self.model.opt.disableflags
            substeps = 1
        self.batch.step(numbers, nstep=substeps, stage=self.stage)
        if failed is not None:
            raise failed

    def outcome(self, action: np.ndarray, reward: np.ndarray, terminated: np.ndarray, metrics: Arrays) -> None:
        """Fill `reward` [B], `terminated` [B] and every metric [B] after a step; `action` [B, A] is as it was given.

        Reward and metrics are float64 and hold the numbers of the step before until overwritten; `terminated` arrives
        all false. Then come `truncate`, `go_on` and `observe`. Rows of `faulty` instances may hold anything: the
        environment overwrites them, all but `fault_metrics`.
        """
        raise TypeError(f"{type(self).__name__} does not implement outcome")

    def truncate(self, terminated: np.ndarray, truncated: np.ndarray) -> None:
        """Set `truncated` [B] where an episode ends here for another reason than time, and has not `terminated` [B]."""

    def go_on(self, ended: np.ndarray) -> None:
        """Ends are known: `ended` [B]. Episodes that go on may get a new command or a kick here, after their reward and
        before they are observed; ended ones keep theirs for the final observation."""

    def observe(self, rows: Rows, out: Arrays) -> None:
        """Write the observation of `rows` into `out[group]` [len(rows), *shape] (any float type)."""
        raise TypeError(f"{type(self).__name__} does not implement observe")

    def render_model(self) -> mujoco.MjModel:
        """The model for pictures: same qpos layout, any decoration."""
        return self.build(decorated=True) if hasattr(self, "robot") else self.model

    def dress(self, index: int, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        """Show in a picture of instance `index` what its physics does not hold: targets, colours.

        `model` is `render_model()`, `data` has the instance's state; positions are computed afterwards. What an earlier
        instance was given is still there, so everything must be set every time.
        """


class SettledTask(BatchTask):
    """A task whose episodes begin with a step without control, in which the robot falls into place.

    `layout["settle"]` [B] is 0 where an episode begins without it. Scenarios hold the state before that step.
    Subclasses write `draw_many`, and call `note_start` and `settle_new` in `start`.
    """

    def attach(self, batch: Batch) -> None:
        super().attach(batch)
        self.memory["start_qpos"] = np.zeros_like(self.qpos)
        self.memory["start_qvel"] = np.zeros_like(self.qvel)

    def draw(self, generator: np.random.Generator) -> Arrays:
        return {name: array[0] for name, array in self.draw_many([generator], FIRST).items()}

    def scenario(self) -> Arrays:
        """How the present episodes began: qpos and qvel before the settling step, and the layout."""
        start = {"qpos": self.memory["start_qpos"], "qvel": self.memory["start_qvel"]}
        return {**start, **self.layout, "settle": self.layout["settle"] != 0.0}

    def check_scenario(self, given: Mapping[str, np.ndarray]) -> None:
        settle = given.get("settle")
        if settle is not None and not np.isin(settle, (0.0, 1.0)).all():
            raise ValueError(f"scenario field 'settle' of {self.id} is {settle.tolist()}; use true or false")

    def note_start(self, rows: Rows) -> None:
        """The states of `rows` are those before the settling step."""
        self.memory["start_qpos"][rows] = self.qpos[rows]
        self.memory["start_qvel"][rows] = self.qvel[rows]

    def settle_new(self, numbers: np.ndarray) -> None:
        """Let the instances `numbers` (int32) settle, or skip it, as their layout says."""
        from mujoco.batch import SimulationError

        settles = self.layout["settle"][numbers] != 0.0
        # an instance that MuJoCo refuses to step will be refused in its next step too, and ends there as a fault
        with contextlib.suppress(SimulationError):
            if settles.any():
                self.settle(numbers[settles])
        with contextlib.suppress(SimulationError):
            if not settles.all():
                self.skip_settling(numbers[~settles])

    def settle(self, numbers: np.ndarray) -> None:
        """One control step of the instances `numbers` (int32) without control."""
        self.move(numbers, self.frame_skip)

    def skip_settling(self, numbers: np.ndarray) -> None:
        """Compute forces and positions of the instances `numbers` (int32) where they are."""
        self.batch.forward(numbers, stage=STAGE_ACCELERATION)


def _stacked(values: list[Any]) -> Any:
    try:
        return np.array(values)
    except ValueError:  # of different shapes: the caller names the first that is not as it should be
        return values[-1]


def record(metrics: Arrays, **values: np.ndarray) -> None:
    """Write the metrics of a step, [B] each, by name."""
    for name, value in values.items():
        metrics[name][:] = value


def action_spec(model: mujoco.MjModel) -> ActionSpec:
    """Names (the actuator's, else its joint's) and control limits of a model's actuators."""
    names = [
        model.actuator(i).name or model.joint(int(model.actuator_trnid[i, 0])).name or f"actuator_{i}"
        for i in range(model.nu)
    ]
    limited = model.actuator_ctrllimited.astype(bool)
    low = np.where(limited, model.actuator_ctrlrange[:, 0], -np.inf)
    high = np.where(limited, model.actuator_ctrlrange[:, 1], np.inf)
    return ActionSpec("continuous", tuple(names), tuple(low.tolist()), tuple(high.tolist()))
