"""Simulators of others that compute with tensors, as a `VecEnv`.

`TensorEnv` takes an environment as rsl_rl wants it: `step` returns groups of observations (a TensorDict, or any mapping
of names to tensors), rewards, ends, and extras with `time_outs`; legged_gym, parkour and st_rl descend from the same
contract. `ManagerEnv` (Isaac Lab, mjlab) and `BraxEnv` (Brax, MuJoCo Playground) differ in how a step is asked for.

Such simulators restart an instance within the step that ends its episode, and most of them do not tell its final
observation. The one before the last step then stands in its place, as in rsl_rl: `EnvSpec.final_observations` says
"previous", and a warning says it when the environment is made.
"""

from __future__ import annotations

import dataclasses
import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gaitway.core.seeding import PURPOSES, instance_seeds
from gaitway.core.user_code import UserCodeError
from gaitway.envs.foreign.groups import Terms, as_groups, described, split, tensors_of
from gaitway.envs.foreign.rsl_rl_env import RslRlEnv
from gaitway.envs.gym.env import derived_seed
from gaitway.envs.spec import ActionSpec, EnvSpec
from gaitway.envs.vec_env import Observation, Step, VecEnv, check_action

log = logging.getLogger("gaitway")

PREVIOUS = (
    "{id} does not tell final observations; at the end of an episode the observation before the last step stands in "
    "their place (final_observations: previous)"
)


@dataclasses.dataclass(slots=True)
class Outcome:
    """What a simulator said of a step; `final` are final observations, where it tells them."""

    obs: Mapping[str, Tensor]
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    final: Mapping[str, Tensor] | None = None
    log: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Numbers, or one for each instance, told in steps that end episodes."""
    tells_limits: bool = True
    """Whether the simulator says which ends are by the time limit."""


class ForeignEnv(VecEnv):
    """What adapters share. They write `_restart` and `_advance`, and say what they know to `_describe`."""

    _first: Observation
    """The observation for the next action."""

    def _describe(
        self,
        id: str,
        obs: Mapping[str, Tensor],
        action: ActionSpec,
        *,
        control_dt: float,
        max_episode_steps: int,
        exact_final: bool,
        terms: Terms | None = None,
        segments: Terms | None = None,
        log: Mapping[str, Any] | None = None,
        finite_checks: int = 1,
        purpose: str = "train",
        one_per_process: bool = False,
    ) -> None:
        """Read the groups from the first observation; `segments` name pieces that become groups of their own."""
        if purpose not in PURPOSES:
            raise ValueError(f"purpose is {purpose!r}; use one of {sorted(PURPOSES)}")
        self._purpose, self._segments = purpose, {name: dict(each) for name, each in (segments or {}).items()}
        self._finite_checks, self._steps, self._restarts, self._warned = finite_checks, 0, 0, False
        self._resets_seen = False
        self._log_names = tuple(name for name in log or {} if not name.endswith("_episode"))
        pieces = split(obs, self._segments)
        self._shapes = {name: (self.num_envs, *value.shape[1:]) for name, value in pieces.items()}
        self.spec = EnvSpec(
            id=id,
            groups=described(pieces, terms or {}, self._segments),
            action=action,
            control_dt=control_dt,
            max_episode_steps=max_episode_steps,
            metrics=tuple(f"{name}_episode" for name in self._log_names),
            final_observations="exact" if exact_final else "previous",
            exact_state=False,
            one_per_process=one_per_process,
        )
        self._first = self._kept(obs)
        if not exact_final:
            warnings.warn(PREVIOUS.format(id=id), stacklevel=4)

    # written by each

    def _restart(self, seed: int | None) -> Mapping[str, Tensor]:
        """Begin all episodes anew, with a seed or going on with the present streams."""
        raise TypeError(f"{type(self).__name__} does not implement _restart")

    def _advance(self, action: Tensor) -> Outcome:
        raise TypeError(f"{type(self).__name__} does not implement _advance")

    # VecEnv

    def reset(self, seed: int | Sequence[int] | None = None) -> Observation:
        """One seed serves all instances: these simulators draw from one stream. Of a list, all numbers count."""
        word: int | None = None
        if seed is not None:
            self._restarts = 0
            word = derived_seed(instance_seeds(seed, self.num_envs).ravel().tolist(), PURPOSES[self._purpose]) >> 1
        self._first = self._kept(self._restart(word))
        return self._first

    def step(self, action: Tensor) -> Step:
        before = self._first
        said = self._advance(check_action(action, self.spec, self.num_envs).to(self.device))
        obs = self._kept(said.obs)
        reward = self._one_each(said.reward, "rewards")
        terminated = self._one_each(said.terminated, "terminations").bool()
        truncated = self._one_each(said.truncated, "truncations").bool() & ~terminated
        ended = terminated | truncated
        self._check(obs, said, ended)
        source = before if self.spec.final_observations == "previous" else self._final_of(said)
        final = {
            name: torch.where(ended.view(-1, *(1,) * (value.dim() - 1)), source[name].to(value.dtype), value)
            for name, value in obs.items()
        }
        metrics = {f"{name}_episode": self._logged(said.log.get(name)) for name in self._log_names}
        self._first = obs
        return Step(obs, reward.clone().float(), terminated, truncated, final, metrics)

    def state_dict(self) -> dict[str, Any]:
        return {"restarts": self._restarts}

    def load_state_dict(self, state: Mapping[str, Any]) -> Observation:
        """Start new episodes with a fresh seed, with a warning: these simulators cannot restore a state."""
        if not self._warned:
            warnings.warn(
                f"the state of {self.spec.id} cannot be restored; its instances start new episodes with a fresh seed",
                stacklevel=2,
            )
            self._warned = True
        self._restarts = int(state["restarts"]) + 1
        self._first = self._kept(self._restart(derived_seed([self._restarts], (*PURPOSES[self._purpose], 7)) >> 1))
        return self._first

    # parts

    def _kept(self, obs: Mapping[str, Tensor]) -> Observation:
        """Groups and pieces as copies of our own: simulators write the next observation into the memory of the last."""
        return {
            name: value.detach().to(self.device).clone(memory_format=torch.contiguous_format)
            for name, value in self._pieces(obs).items()
        }

    def _pieces(self, obs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Groups and the pieces of them; refused unless they are as at first."""
        found = split(obs, self._segments)
        if {name: value.shape for name, value in found.items()} == self._shapes:
            return found
        if found.keys() != self._shapes.keys():
            said = f"the groups {sorted(found)}, and at first there were {sorted(self._shapes)}"
        else:
            name = next(name for name, shape in self._shapes.items() if found[name].shape != shape)
            said = f"group {name!r} with shape {list(found[name].shape)}, and {list(self._shapes[name])} is expected"
        raise UserCodeError(
            f"{self.spec.id} gave {said}; give the same groups, with a row for each instance, in every step and reset"
        )

    def _one_each(self, value: Any, what: str) -> Tensor:
        """`value` as it is, refused unless it is [B]."""
        if isinstance(value, Tensor) and value.shape == (self.num_envs,):
            return value
        came = f"shape {list(value.shape)}" if isinstance(value, Tensor) else f"type {type(value).__name__}"
        raise UserCodeError(
            f"step of {self.spec.id} gave {what} of {came}; return a tensor of shape [{self.num_envs}], a number for "
            "each instance"
        )

    def _final_of(self, said: Outcome) -> Mapping[str, Tensor]:
        if said.final is None:
            raise UserCodeError(
                f"{self.spec.id} said that it tells final observations and told none in extras['final_obs']; "
                "fill it in every step, or leave gives_final_obs out"
            )
        return self._pieces({name: value for name, value in said.final.items() if name in self._shapes})

    def _logged(self, value: Any) -> Tensor:
        """One number for each instance, 0 where nothing was told; it counts where an episode ended."""
        if value is None:
            return torch.zeros(self.num_envs, device=self.device)
        told = torch.nan_to_num(torch.as_tensor(value, dtype=torch.float32, device=self.device).detach())
        return told.clone() if told.shape == (self.num_envs,) else told.mean().expand(self.num_envs).clone()

    def _check(self, obs: Observation, said: Outcome, ended: Tensor) -> None:
        """Refuse numbers that are not finite, every few steps, and resets that come a step too late, once."""
        self._steps += 1
        if self._finite_checks and self._steps % self._finite_checks == 0:
            for name, value in (*obs.items(), ("reward", said.reward)):
                if value.is_floating_point() and not bool(torch.isfinite(value).all()):
                    bad = (~torch.isfinite(value.reshape(self.num_envs, -1))).any(1).nonzero()[0, 0]
                    what = "the reward" if name == "reward" else f"group {name!r}"
                    raise UserCodeError(
                        f"{self.spec.id} gave a number that is not finite in {what}, instance {int(bad)}, step "
                        f"{self._steps}; the simulator broke down there: look at its reset, limits and time step"
                    )
        if not self._resets_seen and bool(ended.any()):
            self._resets_seen = True
            self._check_reset(ended)
            if not said.tells_limits:
                log.warning(
                    "%s ended episodes without extras['time_outs']: every end counts as a termination, one by the "
                    "limit of %d steps too; let step send time_outs, a bool for each instance, true where the limit "
                    "ended its episode",
                    self.spec.id,
                    self.spec.max_episode_steps,
                )

    def _check_reset(self, ended: Tensor) -> None:
        ages = self.elapsed
        late = (ended & (ages != 0)).nonzero()
        if len(late):
            row = int(late[0, 0])
            raise UserCodeError(
                f"{self.spec.id} ended the episode of instance {row} and did not restart it in the same step (its age "
                f"is {int(ages[row])}, not 0); a simulator that resets in the next step is not supported: let it reset "
                "where it ends, or make it a gymnasium vector environment, which says its autoreset mode"
            )


class TensorEnv(ForeignEnv):
    """An environment as rsl_rl wants it: `num_envs`, `num_actions`, `max_episode_length`, `episode_length_buf`,
    `device`, `get_observations()`, `step(actions)`.

    `segments` names the pieces of a flat group in order, {group: {piece: shape}}; each becomes a group of its own and
    a component of the whole one. Without it `obs_segments` of the environment describes `policy`,
    `privileged_obs_segments` `critic`. Ends without `time_outs` are terminations. `clip_actions` is the limit of
    actions. An environment whose extras hold `final_obs` says so by `gives_final_obs = True`.
    """

    def __init__(
        self,
        env: Any,
        id: str = "rsl_rl",
        *,
        segments: Terms | None = None,
        clip_actions: float | None = None,
        finite_checks: int = 1,
        purpose: str = "train",
    ) -> None:
        for name in ("num_envs", "num_actions", "max_episode_length", "episode_length_buf", "step", "get_observations"):
            if not hasattr(env, name):
                raise UserCodeError(f"{type(env).__name__} has no {name!r}, which an rsl_rl environment has; add it")
        self.env, self.num_envs = env, int(env.num_envs)
        self.device = torch.device(getattr(env, "device", "cpu"))
        self.is_on_device = self.device.type == "cuda"
        inner = getattr(env, "unwrapped", env)
        self._describe(
            id,
            self._groups(env.get_observations(), getattr(env, "extras", None) or {}),
            unnamed_actions(int(env.num_actions), clip_actions),
            control_dt=float(getattr(inner, "step_dt", 0.0)),
            max_episode_steps=int(torch.as_tensor(env.max_episode_length).max()),
            exact_final=bool(getattr(env, "gives_final_obs", False)),
            segments=segments if segments is not None else _own_segments(env),
            log=logged_numbers(getattr(env, "extras", None) or {}),
            finite_checks=finite_checks,
            purpose=purpose,
        )
        self._clip = clip_actions
        self._is_finite = bool(getattr(getattr(inner, "cfg", None), "is_finite_horizon", False))

    def close(self) -> None:
        getattr(self.env, "close", lambda: None)()

    @property
    def elapsed(self) -> Tensor:
        return self.env.episode_length_buf.to(torch.int64).clone()

    def set_elapsed(self, steps: Tensor) -> None:
        try:
            self.env.episode_length_buf = steps.to(self.env.episode_length_buf)
        except AttributeError as error:
            raise ValueError(
                f"episode_length_buf of {self.spec.id} cannot be set; use stagger_timeouts=false"
            ) from error

    def _restart(self, seed: int | None) -> Mapping[str, Tensor]:
        if seed is not None and hasattr(self.env, "seed"):
            self.env.seed(seed)
        if not hasattr(self.env, "reset"):
            if self._steps:
                raise ValueError(
                    f"{self.spec.id} has no reset, so its episodes cannot begin anew; set evaluation.interval=0 and "
                    "judge it in a process of its own"
                )
            return self._groups(self.env.get_observations(), {})
        said = self.env.reset()
        obs, more = said if isinstance(said, tuple) and len(said) == 2 else (said, {})
        if more is None or isinstance(more, Tensor):  # legged_gym's: (obs, privileged obs)
            return self._groups(obs, {}, more)
        return self._groups(obs, self._told(more, "reset"))

    def _advance(self, action: Tensor) -> Outcome:
        if self._clip is not None:
            action = action.clamp(-self._clip, self._clip)
        said = self.env.step(action)
        if not isinstance(said, tuple) or len(said) not in (4, 5):
            came = f"{len(said)} values" if isinstance(said, tuple) else f"a {type(said).__name__}"
            raise UserCodeError(
                f"step of {self.spec.id} returned {came}; return the tuple (observations, rewards, dones, extras)"
            )
        privileged = said[1] if len(said) == 5 else None  # parkour's: (obs, privileged obs, rewards, dones, infos)
        if privileged is not None and not (isinstance(privileged, Tensor) and privileged.dim() > 1):
            raise UserCodeError(
                f"step of {self.spec.id} returned five values in gymnasium's order, with no privileged observations in "
                "the second place; return (observations, rewards, dones, extras), with extras['time_outs']"
            )
        obs, (reward, dones, extras) = said[0], said[-3:]
        extras = self._told(extras, "step")
        ended, late = self._one_each(dones, "dones").bool(), extras.get("time_outs")
        limit = torch.zeros_like(ended) if late is None else self._one_each(late, "extras['time_outs']").bool()
        final = extras.get("final_obs")
        return Outcome(
            self._groups(obs, extras, privileged),
            reward,
            ended & ~limit,
            ended & limit,
            None if final is None else tensors_of(final, "final_obs"),
            logged_numbers(extras),
            tells_limits=late is not None or self._is_finite,
        )

    def _told(self, extras: Any, by: str) -> Mapping[str, Any]:
        """The extras of `step` or `reset`, refused unless they are a mapping."""
        if not hasattr(extras, "get"):
            raise UserCodeError(
                f"{by} of {self.spec.id} returned a {type(extras).__name__} in the place of extras; return a mapping, "
                "{} where there is nothing to tell"
            )
        return extras

    def _groups(self, obs: Any, extras: Mapping[str, Any], privileged: Tensor | None = None) -> dict[str, Tensor]:
        """Named groups, of whichever generation the environment is."""
        if isinstance(obs, tuple):  # st_rl: (obs, extras)
            obs, extras = obs
        found = as_groups(obs, extras.get("observations") or {})
        if privileged is None and isinstance(obs, Tensor) and hasattr(self.env, "get_privileged_observations"):
            privileged = self.env.get_privileged_observations()
        return found if privileged is None else found | {"critic": privileged}


def unnamed_actions(count: int, limit: float | None, names: Sequence[str] = ()) -> ActionSpec:
    """Continuous actions within +-limit."""
    bound = float("inf") if limit is None else float(limit)
    return ActionSpec(
        "continuous",
        tuple(names) if len(names) == count else tuple(f"action_{number}" for number in range(count)),
        (-bound,) * count,
        (bound,) * count,
    )


def logged_numbers(extras: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a simulator logs: numbers by name. `episode` is rsl_rl's older name, and wins where both are there."""
    told = extras.get("episode") or extras.get("log") or {}
    return {name: value for name, value in told.items() if isinstance(value, int | float | Tensor)}


def _own_segments(env: Any) -> Terms:
    """The segments that older environments describe their flat vectors by; groups of ours stay whole."""
    if isinstance(env, RslRlEnv):
        return {}
    found: dict[str, Mapping[str, Any]] = {}
    for group, name in (("policy", "obs_segments"), ("critic", "privileged_obs_segments")):
        if segments := getattr(env, name, None):
            found[group] = segments
    return found
