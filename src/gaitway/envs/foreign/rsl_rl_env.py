"""Our environments in rsl_rl's hands.

from rsl_rl.runners import OnPolicyRunner
env = as_rsl_rl_env(gaitway.make_env("pup12/gait_params", 128))
OnPolicyRunner(env, config, log_dir=None, device="cpu").learn(100)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gaitway.envs.vec_env import Observation, VecEnv


class RslRlEnv:
    """What rsl_rl's runners ask of an environment; made by `as_rsl_rl_env`.

    Observations are a TensorDict of all groups where tensordict is installed, else a dict, in memory of their own.
    `dones` are ends of either kind, `extras["time_outs"]` those by a time limit, `extras["final_obs"]` the final
    observations, `extras["log"]` the mean of every metric: of totals (`_episode`) over the episodes that ended.
    """

    gives_final_obs = True

    def __init__(self, env: VecEnv, obs: Observation | None = None) -> None:
        if env.spec.action.kind != "continuous":
            raise ValueError(f"{env.spec.id} has {env.spec.action.kind} actions; rsl_rl takes continuous ones")
        if env.spec.reset_rows:
            raise ValueError(f"{env.spec.id} resets in the next step, which rsl_rl does not know; use another one")
        self.env, self.unwrapped = env, self
        self.num_envs, self.num_actions, self.device = env.num_envs, len(env.spec.action.names), env.device
        self.max_episode_length = env.spec.max_episode_steps
        self.step_dt = env.spec.control_dt
        self.cfg: dict[str, Any] = {"id": env.spec.id, "num_envs": env.num_envs, **dict(env.spec.options)}
        self.extras: dict[str, Any] = {}
        self._obs = _own(env.reset(None) if obs is None else obs)

    @property
    def episode_length_buf(self) -> Tensor:
        return self.env.elapsed

    @episode_length_buf.setter
    def episode_length_buf(self, ages: Tensor) -> None:
        self.env.set_elapsed(ages.to(torch.int64))

    def get_observations(self) -> Any:
        """The observation for the next action; nothing is drawn anew."""
        return self._bundle(self._obs)

    def reset(self) -> tuple[Any, dict[str, Any]]:
        self._obs = _own(self.env.reset())
        return self.get_observations(), {}

    def seed(self, seed: int) -> int:
        self._obs = _own(self.env.reset(seed))
        return seed

    def step(self, actions: Tensor) -> tuple[Any, Tensor, Tensor, dict[str, Any]]:
        step = self.env.step(actions)
        self._obs = _own(step.obs)
        done = step.terminated | step.truncated
        final = self._bundle(_own(step.final_obs))
        log = {name: _mean(name, value, done) for name, value in step.metrics.items()}
        self.extras = {"time_outs": step.truncated.clone(), "final_obs": final, "log": log}
        return self._bundle(self._obs), step.reward.clone(), done, self.extras

    def close(self) -> None:
        self.env.close()

    def _bundle(self, obs: Mapping[str, Tensor]) -> Any:
        try:
            from tensordict import TensorDict
        except ImportError:
            return dict(obs)
        return TensorDict(dict(obs), batch_size=[self.num_envs], device=self.device)


def as_rsl_rl_env(env: VecEnv) -> RslRlEnv:
    """One of our environments as rsl_rl wants it; its episodes begin anew."""
    return RslRlEnv(env)


def _own(obs: Observation) -> Observation:
    """Copies: the environment uses the memory of its results again."""
    return {name: value.clone() for name, value in obs.items()}


def _mean(name: str, value: Tensor, done: Tensor) -> Tensor:
    """The mean over instances; of totals over those that ended, NaN if there are none."""
    if not name.endswith("_episode"):
        return value.float().mean()
    told = torch.where(done, value.float(), torch.nan)
    return told.nanmean()
