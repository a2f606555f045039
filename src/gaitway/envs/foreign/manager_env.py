"""Isaac Lab's and mjlab's environments as they are, without their wrappers for a learner.

    from gaitway.envs.foreign.manager_env import ManagerEnv
    def velocity(num_envs, seed, **common):               # env.id=my_module:velocity
        cfg = ...; cfg.scene.num_envs, cfg.seed = num_envs, seed
        return ManagerEnv(gymnasium.make("Isaac-Velocity-Flat-Anymal-C-v0", cfg=cfg), id="isaac/velocity")

`make_env("mjlab:Mjlab-Cartpole-Balance", 256)` makes one of mjlab's. mjlab can leave resets to whoever steps it
(`auto_reset=False`): final observations are then exact. Isaac Lab cannot, and runs one simulator in a process.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gaitway.core.user_code import UserCodeError
from gaitway.envs.foreign.groups import tensors_of
from gaitway.envs.foreign.tensor_env import ForeignEnv, Outcome, logged_numbers, unnamed_actions
from gaitway.envs.vec_env import VecEnv

_single: weakref.WeakSet[ManagerEnv] = weakref.WeakSet()
"""Environments of simulators of which a process runs one."""


class ManagerEnv(ForeignEnv):
    """A manager-based or direct environment: `step` returns (groups, reward, terminated, truncated, extras).

    A group may be a tensor alone, which becomes `policy`. Names of components are the terms of the observation manager,
    names of actions those of the action manager. `clip_actions` is the limit of actions. `one_per_process` refuses a
    second one while this one is open; runs do without one.
    """

    closed = False

    def __init__(
        self,
        env: Any,
        id: str,
        *,
        clip_actions: float | None = None,
        finite_checks: int = 1,
        purpose: str = "train",
        one_per_process: bool = False,
    ) -> None:
        if one_per_process and any(not other.closed for other in _single):
            raise ValueError(
                f"{id} is the second environment of a simulator that runs once per process; close the first one, or "
                "use another process"
            )
        self.env, self._inner = env, getattr(env, "unwrapped", env)
        inner = self._inner
        for name in ("num_envs", "episode_length_buf", "max_episode_length", "step_dt"):
            if not hasattr(inner, name):
                raise UserCodeError(f"{type(inner).__name__} has no {name!r}, which Isaac Lab and mjlab have")
        mode = getattr(inner, "metadata", {}).get("autoreset_mode")
        if mode is not None and "NEXT" in str(mode).upper():
            raise UserCodeError(
                f"{id} resets in the next step ({mode}); make it reset in the step that ends an episode"
            )
        self.num_envs, self.device = int(inner.num_envs), torch.device(inner.device)
        self.is_on_device = self.device.type == "cuda"
        self._clip = clip_actions
        self._resets_here = not getattr(inner.cfg, "auto_reset", True)
        self._is_finite = bool(getattr(inner.cfg, "is_finite_horizon", False))
        obs, extras = self.env.reset()
        names = _action_names(inner)
        self._describe(
            id,
            self._groups(obs),
            unnamed_actions(_num_actions(inner), clip_actions, names),
            control_dt=float(inner.step_dt),
            max_episode_steps=int(inner.max_episode_length),
            exact_final=self._resets_here,
            terms=_terms(inner),
            log=logged_numbers(extras),
            finite_checks=finite_checks,
            purpose=purpose,
            one_per_process=one_per_process,
        )
        if one_per_process:
            _single.add(self)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.env.close()

    @property
    def elapsed(self) -> Tensor:
        return self._inner.episode_length_buf.to(torch.int64).clone()

    def set_elapsed(self, steps: Tensor) -> None:
        self._inner.episode_length_buf[:] = steps.to(self._inner.episode_length_buf)

    def _restart(self, seed: int | None) -> Mapping[str, Tensor]:
        return self._groups(self.env.reset(seed=seed)[0])

    def _advance(self, action: Tensor) -> Outcome:
        if self._clip is not None:
            action = action.clamp(-self._clip, self._clip)
        obs, reward, terminated, truncated, extras = self.env.step(action)
        groups = self._groups(obs)
        terminated, truncated = terminated.bool().clone(), truncated.bool().clone()
        if self._is_finite:  # the time limit is the end of the task
            terminated, truncated = terminated | truncated, torch.zeros_like(truncated)
        log = logged_numbers(extras)
        if not self._resets_here:
            return Outcome(groups, reward, terminated, truncated, None, log)
        ended, final = terminated | truncated, {name: value.clone() for name, value in groups.items()}
        reward = reward.clone()
        if bool(ended.any()):
            obs, extras = self._inner.reset(env_ids=ended.nonzero().squeeze(-1))
            groups, log = self._groups(obs), logged_numbers(extras)
        return Outcome(groups, reward, terminated, truncated, final, log)

    def _groups(self, obs: Any) -> dict[str, Tensor]:
        return {"policy": obs} if isinstance(obs, Tensor) else tensors_of(obs, "the observation")


def make_mjlab(
    task: str,
    num_envs: int = 1,
    seed: int | Sequence[int] = 0,
    *,
    device: torch.device | str = "cpu",
    purpose: str = "train",
    clip_actions: float | None = None,
    finite_checks: int = 1,
    play: bool = False,
    episode_seconds: float | None = None,
    **common: Any,
) -> VecEnv:
    """A task of mjlab's registry, with exact final observations; `play` takes its settings for showing, and
    `episode_seconds` the place of its time limit."""
    try:
        import mjlab.tasks  # noqa: F401 (fills the registry)
        from mjlab.envs import ManagerBasedRlEnv
        from mjlab.tasks.registry import list_tasks, load_env_cfg
    except ImportError as error:
        raise ImportError(f"mjlab cannot be imported ({error}); install it in the environment of this run") from error
    known = {"num_threads", "dtype"}
    if unknown := [name for name in common if name not in known]:
        raise ValueError(
            f"mjlab:{task} has no option {unknown[0]!r}; use clip_actions, episode_seconds, finite_checks, play"
        )
    if task not in list_tasks():
        raise ValueError(f"mjlab has no task {task!r}; it has {', '.join(list_tasks())}")
    cfg = load_env_cfg(task, play=play)
    cfg.scene.num_envs, cfg.auto_reset = num_envs, False
    if episode_seconds is not None:
        cfg.episode_length_s = episode_seconds
    env = ManagerBasedRlEnv(cfg, device=str(device))
    made = ManagerEnv(env, f"mjlab:{task}", clip_actions=clip_actions, finite_checks=finite_checks, purpose=purpose)
    made.reset(seed)
    return made


def _terms(inner: Any) -> dict[str, dict[str, Any]]:
    """Names and shapes of what a group consists of, where an observation manager knows."""
    manager = getattr(inner, "observation_manager", None)
    names, shapes = getattr(manager, "active_terms", {}), getattr(manager, "group_obs_term_dim", {})
    return {
        group: dict(zip(terms, shapes[group], strict=True))
        for group, terms in names.items()
        if len(shapes.get(group, ())) == len(terms)
    }


def _num_actions(inner: Any) -> int:
    manager = getattr(inner, "action_manager", None)
    if manager is not None:
        return int(manager.total_action_dim)
    return int(inner.single_action_space.shape[0])


def _action_names(inner: Any) -> list[str]:
    """Joints by name, behind the name of their term; empty where the simulator does not tell."""
    manager: Any = getattr(inner, "action_manager", None)
    terms = () if manager is None else manager.active_terms
    return [
        f"{term}/{target}" for term in terms for target in getattr(manager.get_term(term), "target_names", None) or ()
    ]
