"""Any gymnasium environment as a `VecEnv`: by id, as a list of factories, or as a ready vector environment.

Environments that we make run in one process (`vectorization="sync"`) or in one process each (`"async"`) and reset in
the same step. A ready `gymnasium.vector.VectorEnv` keeps its own auto-reset mode: same-step ones hand over their last
observation in `infos["final_obs"]`, disabled ones are reset by mask, and next-step ones keep the row of their reset
with `valid` false.

Seeds: instance i is first reset with an integer drawn from `SeedSequence([seed, i, 0])` (a list of seeds: `[seed_i, 0,
0]`), later episodes go on with the environment's own generator. Sync and async therefore give the same numbers.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from torch import Tensor

from gaitway.core.seeding import PURPOSES, instance_seeds
from gaitway.core.user_code import UserCode, is_foreign
from gaitway.envs.action_arrays import ActionReader
from gaitway.envs.gym.spaces import ActionCodec, ObservationCodec, StepBuffers, moved, resized
from gaitway.envs.gym.state import restore, snapshot
from gaitway.envs.gym.vector import (
    EXPECTED,
    AsyncOptions,
    EnvFactory,
    autoreset_mode,
    check_workers,
    draws_pictures,
    facts_of,
    make_vector,
)
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Observation, Step, VecEnv

OBJECT_BYTES, PROCESS_BYTES = 20_000, 50_000_000
"""What the smallest environments take: CartPole with its wrappers and spaces, and a process that imports gymnasium."""


class GymnasiumEnv(VecEnv):
    """Gymnasium environments behind the VecEnv contract.

    `source` is an id such as `"CartPole-v1"`, a factory or a list of factories of single environments, or a ready
    VectorEnv; for an id further keyword arguments go to `gymnasium.make`. `metrics` names scalars of the info dict that
    become metrics; `flags` names further ones that say whether something happened, and need not be there where it did
    not. Continuous actions are clipped to their box on the way in. `num_threads` has no effect.
    """

    def __init__(
        self,
        source: str | EnvFactory | Sequence[EnvFactory] | VectorEnv,
        num_envs: int = 1,
        seed: int | Sequence[int] | None = 0,
        *,
        num_threads: int | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        purpose: str = "train",
        id: str | None = None,
        vectorization: str = "sync",
        async_options: AsyncOptions | Mapping[str, Any] | None = None,
        metrics: Sequence[str] = (),
        flags: Sequence[str] = (),
        **options: Any,
    ) -> None:
        if purpose not in PURPOSES:
            raise ValueError(f"purpose is {purpose!r}; use one of {sorted(PURPOSES)}")
        if options and not isinstance(source, str):
            raise ValueError(f"options {sorted(options)} go to gymnasium.make; a ready environment takes none")
        is_filmed = isinstance(source, str) and purpose == "evaluation" and num_envs == 1
        if is_filmed and "render_mode" not in options and draws_pictures(str(source)):
            options.setdefault("render_mode", "rgb_array")  # one instance for evaluation is what films are made of
        for key, names in (("metrics", metrics), ("flags", flags)):
            if isinstance(names, str) or not all(isinstance(name, str) for name in names):
                raise ValueError(f"{key} is {names!r}; write a list of names of the info dict, [is_success]")
        metrics = tuple(dict.fromkeys((*metrics, *flags)))
        self._async = AsyncOptions.of(async_options)
        with UserCode(EXPECTED):
            self._vector = make_vector(source, num_envs, vectorization, self._async, tuple(metrics), options)
        self.num_envs = int(self._vector.num_envs)
        self.device = torch.device(device)
        self._stepping = UserCode(EXPECTED, self._owner(), "step")
        self._mode = autoreset_mode(self._vector)
        self._purpose = purpose
        self._observations = ObservationCodec(self._vector.single_observation_space, dtype)
        self._actions = ActionCodec(self._vector.single_action_space)
        self._slots = [StepBuffers(self._observations, self.num_envs, tuple(metrics), dtype) for _ in range(2)]
        self._elapsed = np.zeros(self.num_envs, dtype=np.int64)
        self._pending = np.zeros(self.num_envs, dtype=bool)
        self._entropy: np.ndarray | None = None
        self._restarts = 0
        self._warned = False
        self._at_end: Callable[[], None] | None = None
        facts = facts_of(self._vector)
        self._has_time_limit = facts.has_time_limit
        self.spec = EnvSpec(
            id=id or f"gymnasium:{source if isinstance(source, str) else facts.id}",
            groups=self._observations.groups,
            action=self._actions.spec,
            control_dt=facts.control_dt,
            max_episode_steps=facts.max_episode_steps,
            metrics=tuple(metrics),
            flags=tuple(flags),
            reset_rows=self._mode is AutoresetMode.NEXT_STEP,
            options=options
            | ({} if vectorization == "sync" else {"vectorization": vectorization})
            | ({"async_options": dict(async_options)} if isinstance(async_options, Mapping) and async_options else {})
            | ({"metrics": list(metrics)} if metrics else {})
            | ({"flags": list(flags)} if flags else {}),
        )
        self._read = ActionReader(self.spec, self.num_envs)
        self.reset(seed)
        self.spec = dataclasses.replace(self.spec, exact_state=self._is_exact())

    def reset(self, seed: int | Sequence[int] | None = None) -> Observation:
        if seed is not None:
            self._entropy, self._restarts = instance_seeds(seed, self.num_envs), 0
        return self._reset(reseed=seed is not None)

    def step(self, action: Tensor) -> Step:
        values = self._actions.encode(self._read(action))
        raw, reward, terminated, truncated, infos = self._advance(values)
        slot = self._next_slot()
        done = self._write_ends(reward, terminated, truncated, slot)
        self._observations.write(raw, slot.obs)
        if slot.metrics:
            self._write_metrics(infos, slot, ~self._pending)
        final_obs = slot.obs
        if self._at_end is not None and self._mode is not AutoresetMode.SAME_STEP and done.any():
            self._at_end()
        if self.spec.reset_rows:
            self._pending = done
        elif np.count_nonzero(done):
            final_obs = self._finish(done, infos, slot)
        return slot.as_step(final_obs, self.spec.reset_rows, self.device)

    def state_dict(self) -> dict[str, Any]:
        slot = self._slots[0]
        instances, unknown = self._snapshots()
        return {
            "instances": [] if unknown else instances,
            "entropy": torch.from_numpy(self._seeds().view(np.int64).copy()),
            "restarts": self._restarts,
            "elapsed": torch.from_numpy(self._elapsed.copy()),
            "pending": torch.from_numpy(self._pending.copy()),
            "observation": {name: value.clone() for name, value in slot.obs.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> Observation:
        """Go on where `state` was taken. Where that is impossible, start new episodes with fresh seeds and warn."""
        if len(state["elapsed"]) != self.num_envs:
            raise ValueError(f"the state holds {len(state['elapsed'])} instances, this environment {self.num_envs}")
        self._entropy = state["entropy"].cpu().numpy().copy().view(np.uint64)
        self._restarts = int(state["restarts"])
        if not (self.spec.exact_state and state["instances"]):
            return self._restart()
        for env, stored in zip(self._single_envs(), state["instances"], strict=True):
            restore(env, stored)
        self._elapsed = state["elapsed"].cpu().numpy().copy()
        self._pending = state["pending"].cpu().numpy().copy()
        self._vector._autoreset_envs = self._pending.copy()  # type: ignore[attr-defined]
        slot = self._next_slot()
        for name, value in state["observation"].items():
            slot.obs[name].copy_(value)
        return self.observation

    @property
    def observation(self) -> Observation:
        """What the next action answers."""
        return moved(self._slots[0].obs, self.device)

    @property
    def elapsed(self) -> Tensor:
        return torch.from_numpy(self._elapsed.copy()).to(self.device)

    def set_elapsed(self, steps: Tensor) -> None:
        if not self._has_time_limit:
            return super().set_elapsed(steps)
        ages = steps.cpu().numpy().astype(np.int64)
        if ages.shape != (self.num_envs,) or (ages < 0).any() or (ages >= self.spec.max_episode_steps).any():
            raise ValueError(f"ages must be {self.num_envs} integers in 0..{self.spec.max_episode_steps - 1}")
        self._vector.set_attr("_elapsed_steps", ages.tolist())  # type: ignore[attr-defined]
        self._elapsed = ages
        return None

    def render(self, index: int = 0, width: int = 640, height: int = 480) -> np.ndarray:
        if self._vector.render_mode != "rgb_array":
            raise ValueError(
                f"{self.spec.id} was made without pictures; it is drawn if it takes "
                "render_mode='rgb_array' and names it in metadata['render_modes']"
            )
        singles = self._single_envs()
        frames: Any = singles[index].render() if singles else (self._vector.render() or ())[index]
        return resized(np.asarray(frames, dtype=np.uint8), width, height)

    def on_end(self, callback: Callable[[], None] | None) -> bool:
        if self._mode is AutoresetMode.SAME_STEP:
            if not isinstance(self._vector, SyncVectorEnv):
                return False  # it resets out of our sight
            self._vector.envs[:] = [Announcing.around(env, callback) for env in self._vector.envs]
        self._at_end = callback
        return True

    def instance_bytes(self) -> int:
        """A Python object each, or a process each."""
        is_process = isinstance(self._vector.unwrapped, AsyncVectorEnv)
        return super().instance_bytes() + (PROCESS_BYTES if is_process else OBJECT_BYTES)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method (or read an attribute) of every instance; a tuple, one entry per instance."""
        if isinstance(self._vector.unwrapped, SyncVectorEnv | AsyncVectorEnv):
            return self._vector.call(name, *args, **kwargs)  # type: ignore[attr-defined]
        return getattr(self._vector, name)(*args, **kwargs)

    def check_workers(self) -> None:
        check_workers(self._vector)

    def close(self) -> None:
        self._vector.close()

    def _reset(self, reseed: bool) -> Observation:
        raw = self._reset_vector(self._derived_seeds() if reseed else None)
        slot = self._next_slot()
        self._observations.write(raw, slot.obs)
        self._elapsed = np.zeros_like(self._elapsed)
        self._pending = np.zeros_like(self._pending)
        return self.observation

    def _restart(self) -> Observation:
        if not self._warned:
            warnings.warn(
                f"the state of {self.spec.id} cannot be restored ({', '.join(self._snapshots()[1])}); "
                "its instances start new episodes with fresh seeds",
                stacklevel=3,
            )
            self._warned = True
        self._restarts += 1
        return self._reset(reseed=True)

    def _derived_seeds(self) -> list[int] | int:
        spawn_key = PURPOSES[self._purpose]
        words = [[int(word) for word in (*row, self._restarts)] for row in self._seeds()]
        if isinstance(self._vector.unwrapped, SyncVectorEnv | AsyncVectorEnv):
            return [derived_seed(entropy, spawn_key) for entropy in words]
        # a vector environment of its own kind has one generator for all instances
        return derived_seed([word for entropy in words for word in entropy], spawn_key)

    def _seeds(self) -> np.ndarray:
        return instance_seeds(0, self.num_envs) if self._entropy is None else self._entropy

    def _reset_vector(self, seed: list[int] | int | None) -> Any:
        if isinstance(self._vector, AsyncVectorEnv) and self._async.reset_timeout_s is not None:
            self._vector.reset_async(seed=seed)  # type: ignore[arg-type]
            return self._wait("reset", self._vector.reset_wait, self._async.reset_timeout_s)[0]
        with UserCode(EXPECTED, self._owner(), "reset"):
            return self._vector.reset(seed=seed)[0]  # type: ignore[arg-type]

    def _advance(self, values: np.ndarray) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        if isinstance(self._vector, AsyncVectorEnv) and self._async.step_timeout_s is not None:
            self._vector.step_async(values)
            return self._wait("step", self._vector.step_wait, self._async.step_timeout_s)
        with self._stepping:
            return self._vector.step(values)

    def _owner(self) -> Any:
        """An environment of the vector, for what is said about its methods; None where they live elsewhere."""
        singles = self._single_envs()
        return singles[0].unwrapped if singles and is_foreign(singles[0].unwrapped) else None

    def _wait(self, name: str, wait: Callable[..., Any], timeout_s: float) -> Any:
        try:
            return wait(timeout=timeout_s)
        except multiprocessing.TimeoutError as error:
            self._vector.close(terminate=True)  # late answers would be taken for those of the next call
            raise TimeoutError(
                f"{name} of {self.spec.id} took longer than {timeout_s} s; raise async_options.{name}_timeout_s"
            ) from error

    def _write_ends(self, reward: Any, terminated: Any, truncated: Any, slot: StepBuffers) -> np.ndarray:
        """Everything that is `[B]`, and how old the episodes are; returns which of them ended."""
        fallen, late = np.asarray(terminated, dtype=bool), np.asarray(truncated, dtype=bool)
        self._elapsed += 1
        if not self.spec.reset_rows:
            late = late > fallen  # termination wins
            slot.fill(reward, fallen, late, True)
            return fallen | late
        live = ~self._pending
        self._elapsed[self._pending] = 0
        fallen, late = fallen & live, (late > fallen) & live
        slot.fill(np.where(live, reward, 0.0), fallen, late, live)
        return fallen | late

    def _finish(self, done: np.ndarray, infos: Mapping[str, Any], slot: StepBuffers) -> Observation:
        """Fill `final_obs` of same-step and disabled modes, and `obs` with the start of the new episodes."""
        self._elapsed[done] = 0
        if self._mode is not AutoresetMode.DISABLED:
            return slot.take_final(self._observations, infos, done, self.spec.id)
        final_obs = slot.copied_to_final()
        self._observations.write(self._vector.reset(options={"reset_mask": done})[0], slot.obs, rows=done)
        return final_obs

    def _write_metrics(self, infos: Mapping[str, Any], slot: StepBuffers, live: np.ndarray) -> None:
        last, ended = infos.get("final_info", {}), infos.get("_final_info", np.zeros_like(live))
        for name, target in slot.metrics.items():
            empty, nowhere = np.zeros(self.num_envs), np.zeros(self.num_envs, dtype=bool)
            values = np.where(ended, last.get(name, empty), infos.get(name, empty))
            present = np.where(ended, _presence(last, name, nowhere), _presence(infos, name, nowhere))
            missing = np.flatnonzero(live & ~present)
            if len(missing) and name not in self.spec.events:
                known = sorted(key for key in infos if not key.startswith(("_", "final_")))
                raise KeyError(f"infos of instance {missing[0]} has no {name!r}; it has {known}; correct metrics=")
            target.numpy()[:] = np.where(live, values, 0.0)

    def _next_slot(self) -> StepBuffers:
        """The buffers that nobody may still be reading."""
        self._slots.reverse()
        return self._slots[0]

    def _single_envs(self) -> list[gymnasium.Env]:
        """The environments of this process; wrappers around the vector could hold state that we do not see."""
        return list(self._vector.envs) if isinstance(self._vector, SyncVectorEnv) else []

    def _snapshots(self) -> tuple[list[Any], list[str]]:
        singles = self._single_envs()
        if not singles:
            return [], [f"{type(self._vector).__name__} does not show its instances"]
        pairs = [snapshot(env) for env in singles]
        return [layers for layers, _ in pairs], sorted({name for _, unknown in pairs for name in unknown})

    def _is_exact(self) -> bool:
        return not self._snapshots()[1]


class Announcing(gymnasium.Wrapper):
    """Calls a function when a finished episode is about to be replaced by the next one."""

    def __init__(self, env: gymnasium.Env, callback: Callable[[], None]) -> None:
        super().__init__(env)
        self._callback, self._ended = callback, False

    @classmethod
    def around(cls, env: gymnasium.Env, callback: Callable[[], None] | None) -> gymnasium.Env:
        inner = env.env if isinstance(env, cls) else env
        return inner if callback is None else cls(inner, callback)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        self._ended = bool(result[2] or result[3])
        return result

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        if self._ended:
            self._callback()
        self._ended = False
        return self.env.reset(**options)


def derived_seed(entropy: Sequence[int], spawn_key: tuple[int, ...]) -> int:
    """The integer that a foreign environment is seeded with, for the words (seed, instance, restarts)."""
    return int(np.random.SeedSequence(entropy, spawn_key=spawn_key).generate_state(1)[0])


def _presence(infos: Mapping[str, Any], name: str, nowhere: np.ndarray) -> np.ndarray:
    """bool [B]: which instances reported `name`; vector environments of their own kind may give no mask."""
    return infos.get(f"_{name}", ~nowhere) if name in infos else nowhere
