"""What algorithms share: where training stands (`Now`), numbers that change with it (`Schedule`), the term protocol."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

import torch
from torch import Tensor

from gaitway.core.config import configuration
from gaitway.core.execution import Execution
from gaitway.core.ranges import Number, Positive, Range
from gaitway.core.workspace import Workspace

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Now:
    """Where training stands when an update begins."""

    iteration: int = 0
    env_steps: int = 0
    fraction: float = 0.0
    """Environment steps over the planned total, 0 to 1."""


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


@configuration
class Schedule:
    """A number that moves from `start` to `end` and stays there."""

    start: Number
    end: Number
    over: Positive
    """How long the way takes, in `unit`."""
    kind: Literal["linear", "cosine", "exponential"] = "linear"
    unit: Literal["iterations", "steps", "fraction"] = "iterations"
    """What `over` counts: iterations, environment steps, or the fraction of the planned total."""

    def __post_init__(self) -> None:
        if self.kind == "exponential" and min(self.start, self.end) <= 0:
            raise ValueError(f"an exponential schedule needs positive ends, not {self.start} and {self.end}")

    @property
    def extremes(self) -> tuple[float, float]:
        """All values lie between these two; a field's range holds both."""
        return self.start, self.end

    def __call__(self, now: Now) -> float:
        position = {"iterations": now.iteration, "steps": now.env_steps, "fraction": now.fraction}[self.unit]
        x = min(max(position / self.over, 0.0), 1.0)
        if self.kind == "cosine":
            x = 0.5 - 0.5 * math.cos(math.pi * x)
        if self.kind == "exponential":
            return self.start * (self.end / self.start) ** x
        return self.start + (self.end - self.start) * x


Coefficient = Annotated[float | Schedule, Range()]
"""A number, or a schedule of it; the names below have narrower ranges."""
NotNegativeCoefficient = Annotated[float | Schedule, Range(0)]
PositiveCoefficient = Annotated[float | Schedule, Range(0, above=True)]
ShareCoefficient = Annotated[float | Schedule, Range(0, 1)]


def value_at(coefficient: Coefficient, now: Now) -> float:
    """The number a coefficient stands for at `now`."""
    return coefficient(now) if isinstance(coefficient, Schedule) else float(coefficient)


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
