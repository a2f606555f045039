"""Many simulations on MuJoCo's native batch: one model, arrays in and out, no process or Python loop per instance.

`mujoco.batch.Batch` steps all instances on a thread pool with the GIL released. Around it everything is vectorised:
observations and rewards are written in one pass into preallocated buffers, and only instances whose episode ended cost
Python work of their own (drawing the next start). Physics is float64; outputs are cast to the requested type on the way
into the buffers. The numbers depend neither on the number of threads nor on the number of instances.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
import torch
from mujoco.batch import Batch, SimulationError
from torch import Tensor

from gaitway.core.cpus import choose_num_threads
from gaitway.core.seeding import EpisodeStreams
from gaitway.core.user_code import UserCode, UserCodeError, blamed, place_of
from gaitway.envs.batch_task import NUMBERS, STAGE_NONE, Arrays, BatchTask, Rows, action_spec
from gaitway.envs.episode_generator import EpisodeGenerator
from gaitway.envs.episode_numbers import ALL, EpisodeNumbers
from gaitway.envs.spec import EnvSpec
from gaitway.envs.step_buffers import FAULT_METRIC, Slots, StepBuffers
from gaitway.envs.task_rules import EXPECTED, check_drawn, check_frame_skip, check_returned, check_task
from gaitway.envs.vec_env import Observation, Step, VecEnv, check_action

if TYPE_CHECKING:
    from gaitway.envs.pictures.scene import Camera

Change = Callable[[np.ndarray, Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]
"""(instances [n], their starts as the task drew them {name: [n, ...]}) -> their starts."""
_NUMPY_DTYPE: dict[torch.dtype, type[np.floating]] = {torch.float32: np.float32, torch.float64: np.float64}


class MujocoBatchEnv(VecEnv):
    """`num_envs` instances of a `BatchTask`.

    `num_threads` None takes one thread per CPU this process may use, but never more than there are instances. Returned
    tensors are views of two alternating sets of buffers, so they stay unchanged until the call after the next one.

    A physics fault (an error, a warning counter that rose, a state that is not finite) ends that instance alone:
    terminated, the task's `fault_reward`, metric `physics_error` 1 and all others 0 but the task's `fault_metrics`,
    then a restart. Its `final_obs` repeats the last observation before the fault, because the state really reached may
    be NaN.
    """

    def __init__(
        self,
        task: BatchTask,
        num_envs: int,
        seed: int | Sequence[int] = 0,
        num_threads: int | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        purpose: str = "train",
        id: str | None = None,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs is {num_envs}; use at least 1")
        if dtype not in _NUMPY_DTYPE:
            raise ValueError(f"dtype is {dtype}; observations are torch.float32 or torch.float64")
        self._user_code = UserCode(EXPECTED)
        with self._user_code:
            check_task(task)
            task.model  # noqa: B018  a property of the user's, or built of the user's file
        check_frame_skip(task)
        self.task = task
        self.num_envs = num_envs
        self.num_threads = choose_num_threads(num_threads, num_envs)
        self.device = torch.device(device)
        self._streams = EpisodeStreams(num_envs, purpose)
        self._generators = EpisodeGenerator(self._streams)
        self.spec = environment_spec(task, id or task.id, dtype)
        self._elapsed = np.zeros(num_envs, dtype=np.int64)
        counters = {**self._streams.arrays(), "elapsed": self._elapsed}
        counted: dict[str, Any] = {name: torch.from_numpy(each) for name, each in counters.items()}
        task.numbers = EpisodeNumbers(**counted, purpose=purpose)
        self._batch: Batch | None = Batch(task.model, num_envs, self.num_threads, task.persistent)
        with self._user_code:
            task.attach(self._batch)
        if not getattr(task, "_attached", False):
            raise UserCodeError(blamed(task, "attach", "did not take the arrays", EXPECTED))
        self._state = self._batch.state
        # time, positions, velocities and activations come first in a state row; whatever is wrong shows there
        self._moving_state = self._state[:, : 1 + task.model.nq + task.model.nv + task.model.na]
        # what Batch.reset makes of a state row: time, controls and warm start included. Writing it costs a tenth of the
        # call, which wakes the thread pool.
        self._batch.reset(stage=STAGE_NONE)
        self._default_state = self._state[0].copy()
        self._warnings = self._batch.warning  # [B, kind, (last info, count)]
        self._action_shape = (num_envs, *self.spec.action.shape)
        # the action as it was given, float64; where it is the controls, in their place
        own = type(task).actuate is not BatchTask.actuate
        self._given = np.zeros(self._action_shape) if own else task.ctrl
        self._goes_on = type(task).go_on is not BatchTask.go_on
        self._buffers = StepBuffers(self.spec, num_envs, _NUMPY_DTYPE[dtype], self.device)
        self._other_buffers = StepBuffers(self.spec, num_envs, _NUMPY_DTYPE[dtype], self.device)
        self._start_rows = {name: np.zeros_like(array) for name, array in self._buffers.obs.items()}
        # reward and metrics in float64, one row each, in the order of `StepBuffers.scalars`
        self._scalars = np.zeros((1 + len(self.spec.metrics), num_envs))
        self._scalar_metrics = Slots(dict(zip(self.spec.metrics, self._scalars[1:], strict=True)), "metrics")
        self._ended = np.zeros(num_envs, dtype=bool)
        self._camera: Camera | None = None
        self._at_end: Callable[[], None] | None = None
        self._change: Change | None = None
        self.reset(seed)

    def reset(self, seed: int | Sequence[int] | None = None) -> Observation:
        self._streams.restart(seed)
        if seed is not None:
            self._generators.forget()
        self._simulation()
        with self._user_code:
            self.task.before_reset()
            return self._restart_all({})

    def step(self, action: Tensor) -> Step:
        with self._user_code:
            return self._step(action)

    def _step(self, action: Tensor) -> Step:
        controls = self._controls(action)
        self._simulation()
        previous, now = self._next_buffers()
        task = self.task
        np.copyto(self._given, controls)
        if self._given is not task.ctrl:
            task.actuate(self._given)
        task.before_step()
        task.faulty = faulty = self._advance()
        # faulty rows may hold anything until overwritten
        with np.errstate(over="ignore", invalid="ignore") if faulty is not None else contextlib.nullcontext():
            self._judge(now)
            if faulty is not None:
                now.mark_fault(faulty, task.fault_reward, task.fault_metrics)
            self._find_ends(now)
            if self._goes_on:
                task.go_on(self._ended)
            self._observe(ALL, now.final_obs)
        if faulty is not None:
            now.repeat(faulty, previous)
            self._simulation().reset(faulty, stage=STAGE_NONE)  # clears the warning counters as well
        for name, obs in now.obs.items():
            np.copyto(obs, now.final_obs[name])
        if np.count_nonzero(self._ended):
            if self._at_end is not None:
                self._at_end()
            self._follow_up(np.flatnonzero(self._ended).astype(np.int32), now.obs)
        return now.as_step()

    def _find_ends(self, now: StepBuffers) -> None:
        """Count the step, and say whose time is over and who ended."""
        task = self.task
        self._elapsed += 1
        if task.max_episode_steps:
            np.greater_equal(self._elapsed, task.max_episode_steps, out=now.truncated)
            np.greater(now.truncated, now.terminated, out=now.truncated)  # truncated and not terminated
        else:
            now.truncated.fill(False)
        task.truncate(now.terminated, now.truncated)
        np.logical_or(now.terminated, now.truncated, out=self._ended)

    @property
    def elapsed(self) -> Tensor:
        return torch.from_numpy(self._elapsed.copy()).to(self.device)

    def set_elapsed(self, steps: Tensor) -> None:
        ages = np.asarray(steps.cpu() if isinstance(steps, Tensor) else steps)
        if ages.shape != (self.num_envs,) or ages.dtype.kind not in "iu":
            raise ValueError(f"ages are {ages.dtype} {list(ages.shape)}; pass {self.num_envs} integers")
        limit = self.task.max_episode_steps
        if (ages < 0).any() or (limit and (ages >= limit).any()):
            raise ValueError(f"ages reach from {ages.min()} to {ages.max()}; they must lie in 0..{limit - 1}")
        self._elapsed[:] = ages

    def scenario(self) -> dict[str, Tensor]:
        """The present `qpos` [B, nq] and `qvel` [B, nv] and the layout of the episode, all float64.

        Tasks whose episodes begin with a settling step give the state before it, and `settle` [B] (bool).
        """
        return _tensors(self.task.scenario())

    def load_scenario(self, scenario: Mapping[str, Any]) -> Observation:
        """Restart the present episodes from `scenario`; what it does not name is as it was drawn for them."""
        self._simulation()
        known = self.task.scenario()
        given = {}
        for name, value in scenario.items():
            if name not in known:
                raise KeyError(f"{self.spec.id} has no scenario field {name!r}; it has {list(known)}")
            array = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value, dtype=np.float64)
            if array.shape != known[name].shape:
                raise ValueError(
                    f"scenario field {name!r} has shape {list(array.shape)}; {self.spec.id} with {self.num_envs} "
                    f"instances takes {list(known[name].shape)} (all fields: {list(known)})"
                )
            if not np.isfinite(array).all():
                row = int(np.argwhere(~np.isfinite(array))[0][0])
                raise ValueError(f"scenario field {name!r} of instance {row} is not finite")
            given[name] = array
        self.task.check_scenario(given)
        return self._restart_all(given)

    def state_dict(self) -> dict[str, Any]:
        flat, nested = self._stored(self._buffers.obs)
        return {"task": self.task.id, **_tensors(flat), **{kind: _tensors(arrays) for kind, arrays in nested.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> Observation:
        batch = self._simulation()
        flat, nested = self._stored({})
        if "words" in state:
            raise ValueError(f"this state of {self.spec.id} is of Warp; go on with it by env.simulator=warp, on a GPU")
        missing = [name for name in ("task", *flat, *nested) if name not in state]
        if missing:
            raise ValueError(f"the state lacks {missing}; {self.spec.id} loads what its state_dict() returned")
        if state["task"] != self.task.id:
            raise ValueError(f"this state belongs to {state['task']!r}, the environment runs {self.task.id!r}")
        _, now = self._next_buffers()
        nested["obs"] = now.obs
        targets = [(name, array, state[name]) for name, array in flat.items()]
        for kind, arrays in nested.items():
            if set(arrays) != set(state[kind]):
                raise KeyError(f"{kind} of the state holds {sorted(state[kind])}; {self.spec.id} has {sorted(arrays)}")
            targets += [(f"{kind}/{name}", array, state[kind][name]) for name, array in arrays.items()]
        for name, array, value in targets:
            if tuple(value.shape) != array.shape:
                raise ValueError(
                    f"{name} of the state has shape {list(value.shape)}, this environment {list(array.shape)}; "
                    "load it with the same number of instances, task options and MuJoCo version"
                )
        for _, array, value in targets:
            array[...] = value.detach().cpu().numpy()
        self._generators.forget()
        self._follow_numbers()
        self.task.restore()
        if self.task.persistent and self.task.stage != STAGE_NONE:
            batch.forward(stage=self.task.stage)  # such a batch goes on from the stages it computed last
        return now.observation()

    def render(self, index: int = 0, width: int = 640, height: int = 480) -> np.ndarray:
        from gaitway.envs.pictures.scene import Camera

        self._simulation()
        if self._camera is None:
            self._camera = Camera(self)
        self._camera.index = index
        return self._camera(width, height)

    def on_end(self, callback: Callable[[], None] | None) -> bool:
        self._at_end = callback
        return True

    @property
    def purpose(self) -> str:
        """What it is for, "train" or "evaluation"."""
        return self._streams.purpose

    def change_starts(self, change: Change | None) -> None:
        """Have `change` look at, and alter, the starts that the task draws; None ends that."""
        self._change = change

    def episode_generator(self, instance: int, branch: int) -> np.random.Generator:
        """A random stream of the present episode of an instance, apart from the one that the task draws from."""
        return self._streams.generator(instance, branch)

    def instance_bytes(self) -> int:
        state = self._state.shape[1] * self._state.itemsize
        return super().instance_bytes() + state + (self._data_bytes() if self.task.persistent else 0)

    def _data_bytes(self) -> int:
        data = mujoco.MjData(self.task.model)
        return int(data.nbuffer + data.narena)

    def never_written(self, actions: Tensor, seed: int = 0) -> list[str]:
        """The reward, metrics and components of observations that the task leaves alone, in resets and the steps of
        `actions` [T, B, A]; physics starts anew from `seed`."""
        rooms = [self._buffers, self._other_buffers]
        targets = {
            name: [self._start_rows[name], *(each.final_obs[name] for each in rooms)]
            for name, rows in self._start_rows.items()
            if rows.dtype.kind == "f"  # other types have no number that nobody writes
        }
        for array in (self._scalars, *(each for arrays in targets.values() for each in arrays)):
            array.fill(np.nan)
        self.reset(seed)
        for action in actions:
            self.step(action.clone())
        found = [
            f"{'reward' if not row else 'metric ' + repr(self.spec.metrics[row - 1])}"
            for row in range(len(self._scalars))
            if np.isnan(self._scalars[row]).all()
        ]
        found = [name for name in found if name != f"metric {FAULT_METRIC!r}"]
        for group in (self.spec.group(name) for name in targets):
            left = np.logical_and.reduce(
                [np.isnan(array).reshape(-1, *group.shape).all(0) for array in targets[group.name]]
            )
            names = [part.name for part in group.components if group.is_vector and left[group.columns(part.name)].all()]
            found += (
                [f"observation {group.name!r}"]
                if left.all()
                else [f"{name!r} of observation {group.name!r}" for name in names]
            )
        for array in (self._scalars, *(each for arrays in targets.values() for each in arrays)):
            np.nan_to_num(array, copy=False)
        self.reset(seed)
        return [f"{what} of {place_of(self.task, 'observe' if 'observation' in what else 'outcome')}" for what in found]

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of this environment or of its task."""
        owner = self if hasattr(self, name) else self.task
        method = getattr(owner, name, None)
        if not callable(method):
            raise AttributeError(f"neither {self.spec.id} nor its task has a method {name!r}")
        return method(*args, **kwargs)

    def close(self) -> None:
        if self._camera is not None:
            self._camera.close()
            self._camera = None
        if self._batch is not None:
            # the pool's threads live as long as any array of the batch does
            self.task.detach()
            self._state = self._moving_state = self._warnings = self._given = np.empty(0)
            self._batch = None

    def _stored(self, obs: Arrays) -> tuple[Arrays, dict[str, Arrays]]:
        """The arrays that make up the state, by name, and by kind and name; `obs` is the present observation."""
        flat = {"physics": self._state, "elapsed": self._elapsed, **self._streams.arrays()}
        return flat, {"layout": self.task.layout, "memory": self.task.memory, "obs": obs}

    def _simulation(self) -> Batch:
        if self._batch is None:
            raise RuntimeError(f"{self.spec.id} was closed; make a new environment")
        return self._batch

    def _next_buffers(self) -> tuple[StepBuffers, StepBuffers]:
        """The buffers handed out last, and the others, which the present call may fill."""
        self._buffers, self._other_buffers = self._other_buffers, self._buffers
        self._buffers.settle()
        return self._other_buffers, self._buffers

    def _controls(self, action: Tensor) -> np.ndarray:
        """`check_action`, at the price of one NumPy sum where nothing is wrong (torch's dispatch costs several)."""
        if isinstance(action, Tensor) and action.dtype in _NUMPY_DTYPE and action.shape == self._action_shape:
            array = action.numpy(force=True)
            if math.isfinite(np.add.reduce(array, axis=None, dtype=np.float64)):
                return array
        return check_action(action, self.spec, self.num_envs).double().cpu().numpy()

    def _advance(self) -> np.ndarray | None:
        """Move the physics; returns which instances are faulty [B], None if all are sound."""
        failed = None
        try:
            self.task.advance()
        except SimulationError as error:  # the others ran to completion
            failed = error.ids
        # one number each while nothing is wrong; the search by row runs only when one of them is
        finite = math.isfinite(np.add.reduce(self._moving_state, axis=None))
        if finite and failed is None and not np.count_nonzero(self._warnings):
            return None
        faulty = self._warnings[:, :, 1].any(axis=1) | ~np.isfinite(self._state).all(axis=1)
        if failed is not None:
            faulty[failed] = True
        return faulty if faulty.any() else None

    def _judge(self, now: StepBuffers) -> None:
        """Let the task judge all instances; its float64 numbers are cast in one pass."""
        now.terminated.fill(False)
        task: Any = self.task  # a user may have written `return`
        said = task.outcome(self._given, self._scalars[0], now.terminated, self._scalar_metrics)
        if said is not None:
            check_returned(self.task, "outcome", said)
        np.copyto(now.scalars, self._scalars, casting="same_kind")

    def _observe(self, rows: Rows, out: Arrays) -> None:
        task: Any = self.task
        said = task.observe(rows, out)
        if said is not None:
            check_returned(self.task, "observe", said)

    def _follow_up(self, rows: np.ndarray, obs: dict[str, np.ndarray]) -> None:
        """Begin the next episodes of `rows`, whose last ones ended in this step."""
        self._streams.episode[rows] += 1
        self._restart(rows, obs)

    def _restart_all(self, given: Mapping[str, np.ndarray]) -> Observation:
        self._simulation()
        _, now = self._next_buffers()
        self._restart(np.arange(self.num_envs, dtype=np.int32), now.obs, given)
        return now.observation()

    def _restart(
        self, rows: np.ndarray, obs: dict[str, np.ndarray], given: Mapping[str, np.ndarray] | None = None
    ) -> None:
        """Begin the present episode of `rows` as drawn, except for the fields in `given`; observe it into `obs`."""
        task = self.task
        self._state[rows] = self._default_state
        words = task.numbers.begin().numpy() if task.draws_in_steps else None
        drawn = task.draw_many(self._generators.each(rows), rows)
        targets = {"qpos": task.qpos, "qvel": task.qvel, **task.layout}
        self._check_drawn(drawn, len(rows), {name: each for name, each in targets.items() if name != NUMBERS})
        if self._change is not None:
            drawn = self._change(rows, drawn)
        if words is not None:
            drawn = {**drawn, NUMBERS: words[rows]}
        for name, target in targets.items():
            target[rows] = given[name][rows] if given and name in given else drawn[name]
        self._elapsed[rows] = 0
        self._follow_numbers()
        task.start(rows)
        first = Slots({name: array[: len(rows)] for name, array in self._start_rows.items()}, "groups")
        self._observe(rows, first)
        for name, array in first.items():
            obs[name][rows] = array

    def _follow_numbers(self) -> None:
        """Have the random numbers that the layout of the present episodes names."""
        if self.task.draws_in_steps:
            self.task.numbers.follow(torch.from_numpy(self.task.layout[NUMBERS]))

    def _check_drawn(self, drawn: Any, count: int, targets: Arrays) -> None:
        """Look at what was drawn; a task with `draw` alone is told about one episode, as it wrote it."""
        single = type(self.task).draw_many is BatchTask.draw_many
        wanted = {name: (count, *target.shape[1:]) for name, target in targets.items()}
        if isinstance(drawn, Mapping) and drawn.keys() == wanted.keys():
            arrays = [drawn[name] for name in wanted]
            if all(
                isinstance(array, np.ndarray) and array.shape == shape and array.dtype.kind in "fiub"
                for array, shape in zip(arrays, wanted.values(), strict=True)
            ) and all(math.isfinite(np.add.reduce(array, axis=None, dtype=np.float64)) for array in arrays):
                return
        if single and isinstance(drawn, Mapping):
            drawn = {name: value[0] if np.shape(value)[:1] == (count,) else value for name, value in drawn.items()}
        shapes = {name: target.shape[1:] for name, target in targets.items()} if single else wanted
        check_drawn(self.task, "draw" if single else "draw_many", drawn, shapes)


def _tensors(arrays: Arrays) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}


def environment_spec(task: BatchTask, id: str, dtype: torch.dtype) -> EnvSpec:
    name = str(dtype).removeprefix("torch.")
    return EnvSpec(
        id=id,
        groups=tuple(
            dataclasses.replace(group, dtype=name) if group.torch_dtype.is_floating_point else group
            for group in task.groups
        ),
        action=task.action or action_spec(task.model),
        drive=task.drive,
        control_dt=task.control_dt,
        max_episode_steps=task.max_episode_steps,
        metrics=(*task.metrics, FAULT_METRIC),
        flags=tuple(task.flags),
        options=dict(task.options),
        facts=dict(task.facts),
        reductions=dict(task.reductions),
        pooled=dict(task.pooled),
    )
