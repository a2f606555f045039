"""What a frame agent steps: gymnasium environments in this process, a gymnasium vector environment, or any VecEnv.

A source takes the seeds of a start and the actions of a row and answers in the words of the VecEnv contract (`Step`).
How it meets the end of an episode decides which streams it can give:

| source | framed | compact | frozen |
|---|---|---|---|
| gymnasium environments of this process | yes | yes | yes: a finished one rests |
| vector environment, next-step resets | yes | no | yes: what follows the end is not shown |
| vector environment, same-step resets | no | yes | yes, likewise |
| VecEnv | only with `spec.reset_rows` | only without | yes, likewise |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor

from gaitway.core.transitions import over_events
from gaitway.core.workspace import Workspace
from gaitway.envs.spec import EnvSpec, ObservationGroup
from gaitway.envs.vec_env import Observation, Step, VecEnv

MODES = ("framed", "compact", "frozen")


class FrameSource:
    """`num_envs` environments under a frame agent. The first entry of `modes` is what the source does by itself."""

    id: str
    num_envs: int
    groups: tuple[ObservationGroup, ...]
    modes: tuple[str, ...]
    remedy: str
    """What to do for a mode that is not among `modes`."""
    spec: EnvSpec | None
    """What a policy is built from; None for actions that are dictionaries, tuples or boxes of integers."""
    device: torch.device = torch.device("cpu")
    resets_at_once = False
    """Whether a finished environment already stands at the start of its next episode, and is drawn there."""

    def space(self, name: str) -> Space:
        """`observation_space` or `action_space` of one environment."""
        found = getattr(self, name, None)
        if found is None:
            raise TypeError(f"{self.id} is no gymnasium environment and has no {name}; its spec says what it takes")
        return found

    def reset(self, seeds: list[int]) -> Observation:
        """Start an episode everywhere, environment k with `seeds[k]`."""
        raise TypeError(f"{type(self).__name__} does not implement reset")

    def step(self, ws: Workspace, t: int, ended: Tensor, mode: str) -> Step:
        """Act on row t; `ended` bool `[B]` says where that row is the last one of an episode, or a repeated one."""
        raise TypeError(f"{type(self).__name__} does not implement step")

    def state_dict(self) -> dict[str, Any]:
        """Enough to go on bit for bit; empty where that is impossible."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any], ended: Tensor) -> None:
        """Undo `state_dict`; `ended` bool `[B]` is that of the last row."""
        raise TypeError(f"{type(self).__name__} does not implement load_state_dict")

    def render(self, index: int, width: int, height: int) -> np.ndarray:
        raise TypeError(f"{type(self).__name__} does not implement render")

    def on_end(self, callback: Callable[[], None] | None) -> bool:
        """As `VecEnv.on_end`: a moment to draw final states where `resets_at_once`."""
        return False

    def close(self) -> None:
        """Free what the environments hold."""


def ignored_rows(ended: Tensor, mode: str) -> Tensor | None:
    """Where an action is not acted on, `[B]`: on the last rows of episodes; a compact stream has no such rows."""
    return None if mode == "compact" else ended


class VecEnvFrames(FrameSource):
    """Any VecEnv. It resets in the same step, or with `spec.reset_rows` in a row of its own."""

    def __init__(self, env: VecEnv, variable: str, clip: bool) -> None:
        self.env = env
        self.spec: EnvSpec = env.spec
        self._variable, self._clip = variable, clip
        self.id, self.num_envs, self.device = env.spec.id, env.num_envs, env.device
        self.groups = env.spec.groups
        self.resets_at_once = not env.spec.reset_rows
        self.modes = ("compact", "frozen") if self.resets_at_once else ("framed", "frozen")
        self.remedy = (
            "its finished instances reset within the step, so that the last row would be overwritten; use "
            "mode='compact', or collect step rows with EnvAgent and convert them with frames.streams.framed_columns"
            if self.resets_at_once
            else "its finished instances reset in a row of their own; use mode='framed', or frames.streams.step_columns"
        )
        self._limits = [torch.tensor(limit, device=env.device) for limit in (env.spec.action.low, env.spec.action.high)]
        self._idle = env.spec.action.idle()

    def reset(self, seeds: list[int]) -> Observation:
        return self.env.reset(seeds)

    def step(self, ws: Workspace, t: int, ended: Tensor, mode: str) -> Step:
        action = ws.at(self._variable, t)
        ignored = ignored_rows(ended, mode)
        if len(action) != self.num_envs:
            raise ValueError(f"{self._variable!r} has {len(action)} rows for {self.num_envs} instances of {self.id}")
        if self.spec.action.kind == "discrete" and action.dim() == 2 and action.shape[1] == 1:
            action = action[:, 0]
        if self._clip and self.spec.action.kind == "continuous":
            action = action.to(self.device).clamp(*self._limits)
        if ignored is not None and ignored.any():
            idle = self._idle.to(action.device, action.dtype).expand_as(action)
            action = torch.where(over_events(ignored.to(action.device), action), idle, action)
        return self.env.step(action)

    def state_dict(self) -> dict[str, Any]:
        return self.env.state_dict() if self.spec.keeps_episodes else {}

    def load_state_dict(self, state: Mapping[str, Any], ended: Tensor) -> None:
        self.env.load_state_dict(state)

    def render(self, index: int, width: int, height: int) -> np.ndarray:
        return self.env.render(index, width, height)

    def on_end(self, callback: Callable[[], None] | None) -> bool:
        return self.env.on_end(callback)

    def close(self) -> None:
        self.env.close()
