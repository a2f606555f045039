"""Simulators of others, as far as an adapter sees them: the smallest physics behind each library's own state API.

A mass on a line: the action pushes it, an episode ends beyond |x| = 1 or after LIMIT steps. All instances draw from one
stream, as those libraries do. The only stubs of simulators in the tests: none of these libraries is installed here.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from gaitway.envs.foreign.manager_env import ManagerEnv

LIMIT = 12


class Mass:
    """The physics. x, v [N]; `age` counts the steps of an episode."""

    def __init__(self, num_envs: int, seed: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.x, self.v = torch.zeros(num_envs), torch.zeros(num_envs)
        self.age = torch.zeros(num_envs, dtype=torch.long)
        self.start(torch.ones(num_envs, dtype=torch.bool))

    def start(self, rows: torch.Tensor) -> None:
        drawn = 0.4 * torch.rand(len(rows), generator=self.generator) - 0.2
        self.x, self.v = torch.where(rows, drawn, self.x), torch.where(rows, 0.0, self.v)
        self.age[rows] = 0

    def push(self, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Reward, fell, timed out."""
        self.v = self.v + 0.2 * action[:, 0].clamp(-1, 1)
        self.x = self.x + 0.2 * self.v
        self.age += 1
        fell = self.x.abs() > 1
        return 1.0 - self.x.abs(), fell, self.age >= LIMIT

    def seen(self) -> torch.Tensor:
        return torch.stack((self.x, self.v), -1)


class RslRl:
    """rsl_rl 5: a mapping of groups, int64 dones, `time_outs` in extras; `log` where episodes end."""

    num_actions, max_episode_length, device, step_dt = 1, LIMIT, "cpu", 0.02
    cfg: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, num_envs: int, seed: int = 0) -> None:
        self.num_envs, self.mass = num_envs, Mass(num_envs, seed)
        self.buffer = torch.zeros(num_envs, 2)  # one memory for all observations
        self.extras: dict[str, Any] = {"log": {"Episode/reached": 0.0}}

    @property
    def episode_length_buf(self) -> torch.Tensor:
        return self.mass.age

    @episode_length_buf.setter
    def episode_length_buf(self, ages: torch.Tensor) -> None:
        self.mass.age = ages

    def seed(self, seed: int) -> None:
        self.mass.generator.manual_seed(seed)

    def reset(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        self.mass.start(torch.ones(self.num_envs, dtype=torch.bool))
        return self.get_observations(), {}

    def get_observations(self) -> dict[str, torch.Tensor]:
        self.buffer.copy_(self.mass.seen())
        return {"policy": self.buffer, "critic": self.mass.x[:, None]}

    def step(self, actions: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor, dict[str, Any]]:
        reward, fell, late = self.mass.push(actions)
        ended = fell | late
        extras = {"time_outs": late & ~fell, "log": {"Episode/reached": self.mass.x[ended].abs().mean()}}
        self.restart(ended)
        return self.get_observations(), reward, ended.long(), extras

    def restart(self, ended: torch.Tensor) -> None:
        self.mass.start(ended)


class ResetsLate(RslRl):
    """Restarts in the step after the end."""

    waiting: torch.Tensor | None = None

    def restart(self, ended: torch.Tensor) -> None:
        if self.waiting is not None:
            self.mass.start(self.waiting)
        self.waiting = ended


class BreaksDown(RslRl):
    """Gives NaN in its fifth step."""

    steps = 0

    def step(self, actions: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor, dict[str, Any]]:
        said = super().step(actions)
        self.steps += 1
        if self.steps == 5:
            said[0]["critic"][2] = torch.nan
        return said


class Parkour(RslRl):
    """The parkour fork: one flat vector with segments, privileged observations beside it, five values from `step`."""

    obs_segments = {"place": (1,), "speed": (1)}  # noqa: RUF012

    def get_observations(self) -> torch.Tensor:
        return self.mass.seen()

    def get_privileged_observations(self) -> torch.Tensor:
        return self.mass.x[:, None]

    def step(self, actions: torch.Tensor) -> tuple[Any, ...]:
        _, reward, dones, extras = super().step(actions)
        return self.get_observations(), self.get_privileged_observations(), reward, dones, extras


class _Term:
    target_names = ("slide",)


class Manager:
    """Isaac Lab and mjlab: managers, five values from `step`; without `auto_reset` the caller resets (mjlab)."""

    device, step_dt, max_episode_length = "cpu", 0.02, LIMIT

    def __init__(self, num_envs: int, seed: int = 0, auto_reset: bool = True, finite: bool = False) -> None:
        self.num_envs, self.mass, self.closed = num_envs, Mass(num_envs, seed), False
        self.cfg = SimpleNamespace(auto_reset=auto_reset, is_finite_horizon=finite)
        self.observation_manager = SimpleNamespace(
            active_terms={"policy": ["place", "speed"], "critic": ["place"]},
            group_obs_term_dim={"policy": [(1,), (1,)], "critic": [(1,)]},
        )
        self.action_manager = SimpleNamespace(
            total_action_dim=1, active_terms=["effort"], get_term=lambda name: _Term()
        )

    @property
    def unwrapped(self) -> Manager:
        return self

    @property
    def episode_length_buf(self) -> torch.Tensor:
        return self.mass.age

    def reset(
        self, seed: int | None = None, env_ids: torch.Tensor | None = None
    ) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        if seed is not None:
            self.mass.generator.manual_seed(seed)
        rows = torch.zeros(self.num_envs, dtype=torch.bool)
        rows[slice(None) if env_ids is None else env_ids] = True
        self.mass.start(rows)
        return self.seen(), {"log": {"Metrics/age": self.mass.age.float().mean()}}

    def seen(self) -> dict[str, torch.Tensor]:
        return {"policy": self.mass.seen(), "critic": self.mass.x[:, None].clone()}

    def step(self, action: torch.Tensor) -> tuple[Any, ...]:
        reward, fell, late = self.mass.push(action)
        if self.cfg.auto_reset:
            self.mass.start(fell | late)
        return self.seen(), reward, fell, late, {"log": {}}

    def close(self) -> None:
        self.closed = True


def isaac(num_envs: int, seed: int, purpose: str, **common: Any) -> ManagerEnv:
    """`env.id=foreign_stubs:isaac`, of which a process runs one."""
    return ManagerEnv(Manager(num_envs, seed), "isaac/mass", clip_actions=1.0, purpose=purpose, one_per_process=True)


class State:
    """A state of Brax: everything is in it, arrays in the place of JAX's."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


class Brax:
    """Wrapped for training: `reset(keys)`, `step(state, action)`; finished instances go back to their first state, or,
    with `full_reset`, to a new one. `resets` False: without the wrapper that resets. `grouped`: Playground's groups."""

    action_size, dt = 1, 0.02

    def __init__(self, full_reset: bool = False, resets: bool = True, grouped: bool = False) -> None:
        self._full_reset, self.resets, self.grouped = full_reset, resets, grouped

    def reset(self, keys: np.ndarray) -> State:
        drawn = [np.random.default_rng([*key, 0]).uniform(-0.2, 0.2) for key in keys]
        place = np.array(drawn, dtype=np.float32)
        none = np.zeros(len(keys), dtype=np.float32)
        info = {"steps": none.copy(), "truncation": none.copy(), "episode_metrics": {"length": none.copy()}}
        state = State(
            x=place, v=none.copy(), done=none.copy(), reward=none, info=info, metrics={}, keys=keys, restarts=0
        )
        if self.resets:
            info["AutoResetWrapper_first_obs"] = state.x
        return self.shown(state)

    def shown(self, state: State) -> State:
        seen = np.stack((state.x, state.v), -1)
        state.obs = {"state": seen, "privileged_state": state.x[:, None]} if self.grouped else seen
        return state

    def step(self, state: State, action: np.ndarray) -> State:
        steps = np.where(state.done > 0, 0, state.info["steps"]) + 1
        v = state.v + np.float32(0.2) * action[:, 0]
        x = state.x + np.float32(0.2) * v
        fell = np.abs(x) > 1
        late = (steps >= LIMIT) & ~fell
        done = (fell | (steps >= LIMIT)).astype(np.float32)
        reward = (1 - np.abs(x)).astype(np.float32)
        restarts = state.restarts + 1
        if self.resets:
            start = state.info["AutoResetWrapper_first_obs"]
            if self._full_reset:
                drawn = [np.random.default_rng([*key, restarts]).uniform(-0.2, 0.2) for key in state.keys]
                start = np.array(drawn, dtype=np.float32)
            x, v = np.where(done > 0, start, x), np.where(done > 0, np.float32(0), v)
        length = {"episode_metrics": {"length": steps.astype(np.float32)}}
        info = {**state.info, "steps": steps.astype(np.float32), "truncation": late.astype(np.float32), **length}
        return self.shown(
            State(x=x, v=v, done=done, reward=reward, info=info, metrics={}, keys=state.keys, restarts=restarts)
        )


def numpy_keys(seed: int, count: int) -> np.ndarray:
    return np.array([[seed, number] for number in range(count)])
