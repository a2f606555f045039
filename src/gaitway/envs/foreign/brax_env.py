"""Brax's and MuJoCo Playground's environments: functions of a state, computed by JAX.

    from mujoco_playground import registry, wrapper
    def go1(num_envs, seed, **common):                    # env.id=my_module:go1
        env = wrapper.wrap_for_brax_training(registry.load("Go1JoystickFlatTerrain"), episode_length=1000)
        return BraxEnv(env, num_envs, seed, id="playground/go1", episode_length=1000)

`env` is wrapped for training by its own library: many instances, a time limit, automatic resets. There are two ways of
resetting: back to the first state of the instance, which is the libraries' own choice and gives every instance one
start for ever (said when the environment is made), or a whole reset (`full_reset=True`). Either replaces the final
observation, so the one before the last step stands in its place.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gaitway.core.user_code import UserCodeError
from gaitway.envs.foreign.tensor_env import ForeignEnv, Outcome, unnamed_actions

FIRST = "first_obs"
GROUPS = {"state": "policy", "privileged_state": "critic"}
"""Playground's names for what an actor and a critic read."""


class BraxEnv(ForeignEnv):
    """`reset(keys)` and `step(state, action)` of `env`, compiled by `compiled` (jax.jit).

    `keys(seed, n)` makes the random keys of n instances (jax.random). Groups `state` and `privileged_state` are called
    `policy` and `critic` here; one array is `policy`. Numbers cross by DLPack, without a copy; ours are copied.
    """

    def __init__(
        self,
        env: Any,
        num_envs: int,
        seed: int | Sequence[int] = 0,
        *,
        id: str,
        episode_length: int,
        compiled: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
        keys: Callable[[int, int], Any] | None = None,
        array: Callable[[Tensor], Any] | None = None,
        finite_checks: int = 1,
        purpose: str = "train",
        device: torch.device | str = "cpu",
    ) -> None:
        compiled, self._keys, self._array = compiled or _jit(), keys or _jax_keys, array or _jax_array
        self.env, self.num_envs, self.device = env, num_envs, torch.device(device)
        self.is_on_device = self.device.type == "cuda"
        self._reset, self._step = compiled(env.reset), compiled(env.step)
        self._state: Any = self._reset(self._keys(0, num_envs))
        info = self._state.info
        for name in ("truncation", "steps"):
            if name not in info:
                raise UserCodeError(f"{id} has no info[{name!r}]; wrap it for training, with its time limit")
        if not any(str(name).endswith(FIRST) for name in info):
            raise UserCodeError(
                f"{id} does not reset itself: a finished instance would stay where it ended; wrap it for training "
                "(brax.envs.training.wrap, mujoco_playground's wrap_for_brax_training)"
            )
        self._ended = torch.zeros(num_envs, dtype=torch.bool, device=self.device)
        self._ages = torch.zeros(num_envs, dtype=torch.int64, device=self.device)
        self._describe(
            id,
            self._groups(self._state.obs),
            unnamed_actions(int(env.action_size), 1.0),
            control_dt=float(getattr(env, "dt", 0.0)),
            max_episode_steps=episode_length,
            exact_final=False,
            log=info.get("episode_metrics", {}),
            finite_checks=finite_checks,
            purpose=purpose,
        )
        if not getattr(env, "_full_reset", False):
            warnings.warn(
                f"{id} begins every episode of an instance in its first state; full_reset=True draws new ones",
                stacklevel=2,
            )
        self.reset(seed)

    @property
    def elapsed(self) -> Tensor:
        return self._ages.clone()

    def set_elapsed(self, steps: Tensor) -> None:
        """Ages are part of the state of JAX, which its own functions count."""
        raise ValueError(f"{self.spec.id} cannot set episode ages; use stagger_timeouts=false")

    def _restart(self, seed: int | None) -> Mapping[str, Tensor]:
        self._restarts += seed is None
        self._state = self._reset(self._keys(self._restarts if seed is None else seed, self.num_envs))
        self._ages.zero_()
        return self._groups(self._state.obs)

    def _advance(self, action: Tensor) -> Outcome:
        self._state = state = self._step(self._state, self._array(action.clamp(-1.0, 1.0)))
        ended, limit = self._tensor(state.done) > 0.5, self._tensor(state.info["truncation"]) > 0.5
        self._ages.add_(1).masked_fill_(ended, 0)
        log = {name: self._tensor(value) for name, value in state.info.get("episode_metrics", {}).items()}
        return Outcome(self._groups(state.obs), self._tensor(state.reward), ended & ~limit, ended & limit, None, log)

    def _groups(self, obs: Any) -> dict[str, Tensor]:
        if not isinstance(obs, Mapping):
            return {"policy": self._tensor(obs)}
        return {GROUPS.get(str(name), str(name)): self._tensor(value) for name, value in obs.items()}

    def _tensor(self, array: Any) -> Tensor:
        return torch.from_dlpack(array).to(self.device)


def _jit() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return _jax().jit


def _jax_keys(seed: int, count: int) -> Any:
    jax = _jax()
    return jax.random.split(jax.random.PRNGKey(seed), count)


def _jax_array(action: Tensor) -> Any:
    return _jax().dlpack.from_dlpack(action.contiguous())


def _jax() -> Any:
    try:
        import jax
        import jax.dlpack
    except ImportError as error:
        raise ImportError("jax is not installed; Brax and MuJoCo Playground need it") from error
    return jax
