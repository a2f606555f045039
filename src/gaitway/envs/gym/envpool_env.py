"""EnvPool environments: C++ simulators on a thread pool, reset in the step after an episode's end.

The row of such a reset comes with `valid` false. EnvPool fixes its seeds when a pool is made, so `reset(seed)` makes a
new pool. Two things cannot be had from it: its state cannot be stored, and a fall in the very step of the time limit is
reported as a time-out.
"""

from __future__ import annotations

import dataclasses
import difflib
import warnings
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import torch

from gaitway.core.seeding import PURPOSES, instance_seeds
from gaitway.envs.gym.env import GymnasiumEnv, derived_seed
from gaitway.envs.vec_env import Observation, VecEnv
from gaitway.envs.wrappers import Wrapper

NO_LIMIT = 2**31 - 1
"""What EnvPool writes for an environment without time limit."""


class EnvPoolEnv(Wrapper):
    """`task` is an EnvPool id such as `"HalfCheetah-v5"`; `options` go to `envpool.make_gymnasium`.

    `num_threads` None leaves the choice to EnvPool (one per CPU). `metrics` and `flags` name entries of the info
    dict.
    """

    env: GymnasiumEnv

    def __init__(
        self,
        task: str,
        num_envs: int = 1,
        seed: int | Sequence[int] = 0,
        *,
        num_threads: int | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        purpose: str = "train",
        id: str | None = None,
        metrics: Sequence[str] = (),
        flags: Sequence[str] = (),
        **options: Any,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs is {num_envs}; use at least 1")
        if purpose not in PURPOSES:
            raise ValueError(f"purpose is {purpose!r}; use one of {sorted(PURPOSES)}")
        self._task, self._options, self._purpose = task, options, purpose
        self._num_threads = num_threads or 0
        self._adapter: dict[str, Any] = {
            "device": device,
            "dtype": dtype,
            "metrics": metrics,
            "flags": flags,
            "id": id or f"envpool:{task}",
        }
        self._entropy = instance_seeds(seed, num_envs)
        self._restarts = 0
        self._warned = False
        super().__init__(self._make())
        limit = int(self._pool.config.get("max_episode_steps", 0))
        limit = 0 if limit >= NO_LIMIT else limit
        self.spec = dataclasses.replace(
            self.env.spec, max_episode_steps=limit, options=options | dict(self.env.spec.options)
        )

    def reset(self, seed: int | Sequence[int] | None = None) -> Observation:
        if seed is None:
            return self.env.reset()
        self._entropy, self._restarts = instance_seeds(seed, self.num_envs), 0
        return self._remake()

    def state_dict(self) -> dict[str, Any]:
        return {"entropy": torch.from_numpy(self._entropy.view(np.int64).copy()), "restarts": self._restarts}

    def load_state_dict(self, state: Mapping[str, Any]) -> Observation:
        """Start new episodes with fresh seeds, with a warning: EnvPool cannot restore a state."""
        if len(state["entropy"]) != self.num_envs:
            raise ValueError(f"the state holds {len(state['entropy'])} instances, this environment {self.num_envs}")
        if not self._warned:
            warnings.warn(
                f"the state of {self.spec.id} cannot be restored; its instances start new episodes with fresh seeds",
                stacklevel=2,
            )
            self._warned = True
        self._entropy = state["entropy"].cpu().numpy().copy().view(np.uint64)
        self._restarts = int(state["restarts"]) + 1
        return self._remake()

    def render(self, index: int = 0, width: int = 640, height: int = 480) -> np.ndarray:
        return VecEnv.render(self, index, width, height)

    def _remake(self) -> Observation:
        self.env.close()
        self.env = self._make()
        return self.env.observation

    def _make(self) -> GymnasiumEnv:
        spawn_key = PURPOSES[self._purpose]
        seeds = [derived_seed([*row.tolist(), self._restarts], spawn_key) % NO_LIMIT for row in self._entropy]
        envpool = _envpool()
        if self._task not in envpool.list_all_envs():
            close = difflib.get_close_matches(self._task, envpool.list_all_envs(), 3, 0.5)
            hint = f"did you mean {' or '.join(close)}?" if close else "see envpool.list_all_envs()"
            raise ValueError(f"envpool has no environment {self._task!r}; {hint}")
        threads = min(self._num_threads, len(seeds))
        self._pool = envpool.make_gymnasium(
            self._task, num_envs=len(seeds), seed=seeds, num_threads=threads, **self._options
        )
        return GymnasiumEnv(self._pool, seed=None, **self._adapter)


def _envpool() -> ModuleType:
    try:
        import envpool
    except ImportError as error:
        raise ImportError('envpool is not installed; run: pip install "gaitway[envpool]"') from error
    return envpool
