"""What algorithms share: the protocols of terms and algorithms, where training stands on the device; schedules from
`core/schedules.py`."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from gaitway.core.execution import Execution
from gaitway.core.schedules import (
    Coefficient,
    NotNegativeCoefficient,
    Now,
    PositiveCoefficient,
    Schedule,
    ShareCoefficient,
    value_at,
)
from gaitway.core.workspace import Workspace

__all__ = [
    "Algorithm",
    "Batch",
    "Coefficient",
    "DeviceNow",
    "LossTerm",
    "NotNegativeCoefficient",
    "Now",
    "PositiveCoefficient",
    "RolloutConfig",
    "Schedule",
    "ShareCoefficient",
    "value_at",
]

Batch = dict[str, Tensor]


class DeviceNow:
    """The same as numbers on the device, for losses: a recorded update reads what stands there when it is replayed."""

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.iteration = torch.zeros((), dtype=torch.int64, device=device)
        self.env_steps = torch.zeros((), dtype=torch.int64, device=device)
        self.fraction = torch.zeros((), device=device)

    def set(self, now: Now) -> None:
        self.iteration.fill_(now.iteration)
        self.env_steps.fill_(now.env_steps)
        self.fraction.fill_(now.fraction)


class LossTerm(Protocol):
    """One loss of an on-policy algorithm. The algorithm runs the policy once per minibatch and puts its outputs into
    `batch` under `new/*`; a term never runs the network. It looks at no tensor's value (`if loss > 1`): updates may be
    compiled or recorded as a CUDA graph. `coef` may be a `Schedule`; `now` holds tensors.

    A term may have `prepare(ws) -> fields` and `transform(batch, now) -> batch` too, see `terms.Terms`."""

    name: str
    coef: Coefficient
    reads: tuple[str, ...]
    """Variables of the workspace, cut into minibatches, and `new/<name>` of blocks."""

    def __call__(self, batch: Batch, now: DeviceNow) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss (a scalar) and statistics (scalars) of one minibatch."""
        ...


class RolloutConfig(Protocol):
    """What a runner asks of the config of an on-policy algorithm."""

    @property
    def rollout_steps(self) -> int: ...


class Algorithm(Protocol):
    """On-policy: a rollout in, metrics out."""

    policy: Any
    num_envs: int
    execution: Execution
    reads: tuple[str, ...]
    """Variables that it reads besides those of the policy."""
    needs_whole_episodes: bool
    """Whether every rollout begins with new episodes."""

    @property
    def config(self) -> RolloutConfig: ...

    def update(self, data: Workspace, now: Now) -> dict[str, Tensor]: ...

    def flat_parameters(self) -> list[Tensor]:
        """All that is learnt, as flat tensors."""
        ...

    def reset_running_returns(self) -> None:
        """Every environment begins a new episode."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...
