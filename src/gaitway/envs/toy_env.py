"""Small tasks on tensors: thousands of instances cost next to nothing.

`ToyEnv` owns time (steps, ends, resets, random streams, stored state); a `Toy` owns meaning: what the state `[B, S]` of
the instances is, how it moves and what is seen of it. States are float64 whatever the output type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaitway.core.seeding import EpisodeStreams
from gaitway.envs.vec_env import (
    ActionSpec,
    Component,
    EnvSpec,
    Observation,
    ObservationGroup,
    Step,
    VecEnv,
    check_action,
)

Groups = dict[str, tuple[Component, ...]]


class Toy:
    """One task; subclasses set the attributes and write the methods."""

    groups: Groups
    action: ActionSpec
    control_dt: float = 0.0
    max_episode_steps: int = 0
    metrics: tuple[str, ...] = ()
    options: Mapping[str, Any]
    """Options that differ from the defaults."""

    def draw(self, generator: np.random.Generator) -> Sequence[float]:
        """First state of one episode, `S` numbers."""
        raise TypeError(f"{type(self).__name__} does not implement draw")

    def advance(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """State `[B, S]` and checked action -> next state `[B, S]`, reward `[B]`, terminated bool `[B]`."""
        raise TypeError(f"{type(self).__name__} does not implement advance")

    def observe(self, state: Tensor) -> Observation:
        """What is seen of the states `[B, S]`: one tensor `[B, D]` per group."""
        raise TypeError(f"{type(self).__name__} does not implement observe")

    def measure(self, state: Tensor) -> dict[str, Tensor]:
        """Metrics `[B]` of the states just reached."""
        return {}


class ToyEnv(VecEnv):
    """`num_envs` instances of a `Toy`. Every returned tensor is new, so nothing is ever overwritten."""

    def __init__(
        self,
        toy: Toy,
        num_envs: int = 1,
        seed: int | Sequence[int] = 0,
        *,
        num_threads: int | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        purpose: str = "train",
        id: str = "toy",
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs is {num_envs}; use at least 1")
        self.toy = toy
        self.num_envs = num_envs
        self.device = torch.device(device)
        self._dtype = dtype
        self._streams = EpisodeStreams(num_envs, purpose)
        name = str(dtype).removeprefix("torch.")
        self.spec = EnvSpec(
            id=id,
            groups=tuple(
                ObservationGroup(group, components, (sum(component.size for component in components),), name)
                for group, components in toy.groups.items()
            ),
            action=toy.action,
            control_dt=toy.control_dt,
            max_episode_steps=toy.max_episode_steps,
            metrics=toy.metrics,
            options=toy.options,
        )
        self.reset(seed)

    def reset(self, seed: int | Sequence[int] | None = None) -> Observation:
        self._streams.restart(seed)
        self._state = self._draw(np.arange(self.num_envs))
        self._elapsed = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
        return self._observe(self._state)

    def step(self, action: Tensor) -> Step:
        action = check_action(action, self.spec, self.num_envs).to(self.device)
        reached, reward, terminated = self.toy.advance(self._state, action)
        self._elapsed = self._elapsed + 1
        truncated = torch.zeros_like(terminated)
        if self.spec.max_episode_steps:
            truncated = (self._elapsed >= self.spec.max_episode_steps) & ~terminated
        done = terminated | truncated
        final_obs = self._observe(reached)
        metrics = {name: value.to(self._dtype, copy=True) for name, value in self.toy.measure(reached).items()}
        self._state, obs = reached, final_obs
        if done.any():
            self._state = self._restarted(reached, done)
            self._elapsed = torch.where(done, 0, self._elapsed)
            obs = self._observe(self._state)
        return Step(obs, reward.to(self._dtype, copy=True), terminated, truncated, final_obs, metrics)

    def state_dict(self) -> dict[str, Any]:
        return {
            "state": self._state.clone(),
            "elapsed": self._elapsed.clone(),
            **{name: torch.from_numpy(array.copy()) for name, array in self._streams.arrays().items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> Observation:
        known = ["state", "elapsed", *self._streams.arrays()]
        if set(state) != set(known):
            raise ValueError(f"a state of {self.spec.id} has the entries {known}; got {list(state)}")
        self._state = self._checked(state["state"])
        self._elapsed = state["elapsed"].clone().to(self.device)
        for name, array in self._streams.arrays().items():
            array[...] = state[name].cpu().numpy()
        return self._observe(self._state)

    def scenario(self) -> dict[str, Tensor]:
        """The present states `[B, S]`."""
        return {"state": self._state.clone()}

    def load_scenario(self, scenario: Mapping[str, Any]) -> Observation:
        if set(scenario) != {"state"}:
            raise KeyError(f"a scenario of {self.spec.id} has the fields ['state']; got {list(scenario)}")
        self._state = self._checked(scenario["state"])
        self._elapsed = torch.zeros_like(self._elapsed)
        return self._observe(self._state)

    @property
    def elapsed(self) -> Tensor:
        return self._elapsed.clone()

    def set_elapsed(self, steps: Tensor) -> None:
        limit = self.spec.max_episode_steps
        if steps.shape != (self.num_envs,) or bool((steps < 0).any()) or (limit and bool((steps >= limit).any())):
            raise ValueError(f"ages must be {self.num_envs} integers in 0..{limit - 1}; got {steps.tolist()}")
        self._elapsed = steps.to(self.device, torch.int64).clone()

    def _observe(self, state: Tensor) -> Observation:
        return {name: value.to(self._dtype, copy=True) for name, value in self.toy.observe(state).items()}

    def _draw(self, rows: np.ndarray) -> Tensor:
        """First states `[len(rows), S]` of the present episodes of `rows`."""
        first = [self.toy.draw(self._streams.generator(row)) for row in rows.tolist()]
        return torch.tensor(first, dtype=torch.float64, device=self.device)

    def _restarted(self, reached: Tensor, done: Tensor) -> Tensor:
        rows = done.nonzero().squeeze(-1)
        numbers = rows.cpu().numpy()
        self._streams.episode[numbers] += 1
        return reached.index_copy(0, rows, self._draw(numbers))

    def _checked(self, state: Any) -> Tensor:
        state = torch.as_tensor(state, dtype=torch.float64, device=self.device)
        if state.shape != self._state.shape:
            raise ValueError(
                f"the state has shape {list(state.shape)}; {self.spec.id} with {self.num_envs} instances takes "
                f"{list(self._state.shape)}"
            )
        return state.clone()
