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

ACTION = "action"
LEGACY_GROUPS = {"policy": "policy", "critic": "critic", "ref_obs": "amp"}
"""What older runners call groups of ours."""


class RslRlEnv:
    """What rsl_rl's runners ask of an environment; made by `as_rsl_rl_env`.

    Observations are a TensorDict of all groups where tensordict is installed, else a dict, in memory of their own.
    `dones` are ends of either kind, `extras["time_outs"]` those by a time limit, `extras["final_obs"]` the final
    observations, `extras["log"]` the mean of every metric: of totals (`_episode`) over the episodes that ended last,
    because rsl_rl averages over all steps, those without an end among them; before the first end they are left out.

    With `legacy` there is `extras["observations"]` too, as older runners read it: `policy`, `critic` and `ref_obs` (the
    group `amp`), as far as the environment shows them.
    """

    gives_final_obs = True

    def __init__(self, env: VecEnv, obs: Observation | None = None, legacy: bool = False) -> None:
        if env.spec.action.kind != "continuous":
            raise ValueError(f"{env.spec.id} has {env.spec.action.kind} actions; rsl_rl takes continuous ones")
        if env.spec.reset_rows:
            raise ValueError(f"{env.spec.id} resets in the next step, which rsl_rl does not know; use another one")
        self.env, self.unwrapped, self._legacy = env, self, legacy
        self.num_envs, self.num_actions, self.device = env.num_envs, len(env.spec.action.names), env.device
        self.max_episode_length = env.spec.max_episode_steps
        self.step_dt = env.spec.control_dt
        self.cfg: dict[str, Any] = {"id": env.spec.id, "num_envs": env.num_envs, **dict(env.spec.options)}
        self.extras: dict[str, Any] = {}
        self._told: dict[str, Tensor] = {}
        """Means of totals over the episodes that ended last."""
        self._obs = _own(env.reset(None) if obs is None else obs)

    @property
    def episode_length_buf(self) -> Tensor:
        return self.env.elapsed

    @episode_length_buf.setter
    def episode_length_buf(self, ages: Tensor) -> None:
        self.env.set_elapsed(ages.to(torch.int64))

    @property
    def obs_segments(self) -> dict[str, tuple[int, ...]]:
        """Components of the group `policy` (else of the first group) and their shapes, in order."""
        names = self.env.spec.group_names
        return self._segments("policy" if "policy" in names else names[0])

    @property
    def privileged_obs_segments(self) -> dict[str, tuple[int, ...]]:
        """The same of the group `critic`, if there is one."""
        return self._segments("critic") if "critic" in self.env.spec.group_names else self.obs_segments

    @property
    def privileged_alias(self) -> dict[str, str]:
        """Components that are noisy, and those that show the same without noise."""
        return dict(self.env.spec.facts.get("legged", {}).get("privileged_alias", {}))

    def mirror(
        self, obs: Mapping[str, Tensor] | None = None, actions: Tensor | None = None
    ) -> tuple[Any, Tensor | None]:
        """Mirror images of observations and of actions [..., A]; either may be None, and is None then."""
        seen = None
        if obs is not None:
            rows = next(iter(obs.values())).shape[0]
            seen = self._bundle({name: self._image(name, value) for name, value in obs.items()}, rows)
        return seen, None if actions is None else self._image(ACTION, actions)

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
        self.extras = {"time_outs": step.truncated.clone(), "final_obs": final, "log": self._log(step.metrics, done)}
        if self._legacy:
            self.extras["observations"] = {
                old: self._obs[name] for old, name in LEGACY_GROUPS.items() if name in self._obs
            }
        return self._bundle(self._obs), step.reward.clone(), done, self.extras

    def close(self) -> None:
        self.env.close()

    def _log(self, metrics: Mapping[str, Tensor], done: Tensor) -> dict[str, Tensor]:
        """Means over instances; of totals over those that ended last."""
        now = {name: value.float().mean() for name, value in metrics.items() if not name.endswith("_episode")}
        if not self._told and not bool(done.any()):  # after the first end no value is looked at: that waits for a GPU
            return now
        for name in metrics.keys() - now.keys():
            mean = torch.where(done, metrics[name].float(), torch.nan).nanmean()
            self._told[name] = torch.where(mean.isnan(), self._told.get(name, mean), mean)
        return now | self._told

    def _segments(self, name: str) -> dict[str, tuple[int, ...]]:
        """Components that are pieces of one leaf, because their scales differ, are one segment."""
        group = self.env.spec.group(name)
        if not group.is_vector:
            return {name: group.shape}
        leaves = self.env.spec.facts.get("legged", {}).get("leaves", {}).get(name, ())
        sizes: dict[str, int] = {}
        for part in group.components:
            stem = part.name.rpartition("_")[0]
            segment = stem if stem in leaves and part.name not in leaves else part.name
            sizes[segment] = sizes.get(segment, 0) + part.size
        return {segment: (size,) for segment, size in sizes.items()}

    def _image(self, name: str, value: Tensor) -> Tensor:
        images = self.env.spec.facts.get("mirror", {})
        if name not in images:
            raise ValueError(
                f"{self.env.spec.id} has no mirror image of {name!r}, only of {sorted(images)}; give its robot one, "
                "and leave groups out that have none"
            )
        order = torch.tensor(images[name]["order"], device=value.device)
        return value[..., order] * torch.tensor(images[name]["sign"], dtype=value.dtype, device=value.device)

    def _bundle(self, obs: Mapping[str, Tensor], rows: int | None = None) -> Any:
        try:
            from tensordict import TensorDict
        except ImportError:
            return dict(obs)
        return TensorDict(dict(obs), batch_size=[self.num_envs if rows is None else rows], device=self.device)


def as_rsl_rl_env(env: VecEnv, legacy: bool = False) -> RslRlEnv:
    """One of our environments as rsl_rl wants it; its episodes begin anew."""
    return RslRlEnv(env, legacy=legacy)


def with_mirror_images(
    env: RslRlEnv, obs: Mapping[str, Tensor] | None = None, actions: Tensor | None = None
) -> tuple[Any, Tensor | None]:
    """Rows, and behind them their mirror images: rsl_rl's `data_augmentation_func`."""
    seen, acted = env.mirror(obs, actions)
    if obs is not None:
        rows = 2 * next(iter(obs.values())).shape[0]
        seen = env._bundle({name: torch.cat((value, seen[name])) for name, value in obs.items()}, rows)
    return seen, None if actions is None or acted is None else torch.cat((actions, acted))


def _own(obs: Observation) -> Observation:
    """Copies: the environment uses the memory of its results again."""
    return {name: value.clone() for name, value in obs.items()}
