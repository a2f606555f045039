"""How a run is run, whatever the algorithm."""

from __future__ import annotations

from dataclasses import dataclass, field

from gaitway.runners.checkpoint import CheckpointConfig
from gaitway.runners.evaluate import EvaluationConfig
from gaitway.runners.video import VideoConfig


@dataclass(frozen=True)
class StopConfig:
    """Rules that end a run before its last step; both look at the evaluation."""

    threshold: float | None = None
    """Stop once the evaluation metric reaches this."""
    patience: int = 0
    """Stop after this many evaluations without a new best; 0 for never."""

    def __post_init__(self) -> None:
        if self.patience < 0:
            raise ValueError(f"patience is {self.patience}; use a number of evaluations, or 0 for never")


@dataclass(frozen=True)
class RunnerConfig:
    """How a run is run."""

    total_steps: int = 1_000_000
    """Planned environment steps over all instances; schedules stretch over them."""
    seed: int = 0
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    checkpoints: CheckpointConfig = field(default_factory=CheckpointConfig)
    video: VideoConfig = field(default_factory=VideoConfig)
    stop: StopConfig = field(default_factory=StopConfig)
    log_interval: int = 1
    """Iterations between lines of metrics.jsonl."""
    finite_checks: bool = True
    """Stop on the first number that is not finite."""
    stagger_timeouts: bool = False
    """Spread the first time-outs over the instances, so that episodes do not end in step."""

    def __post_init__(self) -> None:
        if self.total_steps < 1 or self.log_interval < 1:
            key = "total_steps" if self.total_steps < 1 else "log_interval"
            raise ValueError(f"{key} is {getattr(self, key)}; use at least 1")
