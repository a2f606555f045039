"""How a run is run, whatever the algorithm."""

from __future__ import annotations

from dataclasses import field

from gaitway.core.config import configuration
from gaitway.core.ranges import Count, Number, WholeNumber
from gaitway.runners.checkpoint import CheckpointConfig
from gaitway.runners.evaluate import EvaluationConfig
from gaitway.runners.video import VideoConfig


@configuration
class StopConfig:
    """Rules that end a run before its last step; both look at the evaluation."""

    threshold: Number | None = None
    """Stop once the evaluation metric reaches this, from below or, if it is a cost, from above."""
    patience: WholeNumber = 0
    """Stop after this many evaluations without a new best; 0 for never."""


@configuration
class RunnerConfig:
    """How a run is run."""

    total_steps: Count = 1_000_000
    """Planned environment steps over all instances; schedules stretch over them."""
    seed: WholeNumber = 0
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    checkpoints: CheckpointConfig = field(default_factory=CheckpointConfig)
    video: VideoConfig = field(default_factory=VideoConfig)
    stop: StopConfig = field(default_factory=StopConfig)
    log_interval: Count = 1
    """Iterations between lines of metrics.jsonl."""
    finite_checks: bool = True
    """Stop on the first number that is not finite."""
    stagger_timeouts: bool = False
    """Spread the first time-outs over the instances, so that episodes do not end in step."""

    def __post_init__(self) -> None:
        rule = "threshold" if self.stop.threshold is not None else "patience" if self.stop.patience else None
        if rule is not None and self.evaluation.metric is None:
            raise ValueError(
                f"stop.{rule} looks at evaluation.metric, which is null; name a result of the evaluation, such as "
                f"evaluation.metric=return, or leave stop.{rule} out"
            )
