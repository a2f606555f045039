"""What episodes add up to: reward terms and measures, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from gaitway.envs.legged.frame import Frame, norm
from gaitway.envs.legged.metrics import landed, measure_names, measures, substep_torques, touch_phases

TORQUE_METRIC = "peak_torque"
"""The largest share of its effort that a joint has given in the episode so far, after the warm-up."""
TRACKING_SIGMA = 0.25
"""Of the score by which commands widen: exp(-error^2 / sigma)."""


class EpisodeSums:
    """Sums of the terms `names` and of the measures of a robot with so many feet; `memory` holds tensors [B, ...]."""

    def __init__(self, names: Sequence[str], feet: int, warm_up: float) -> None:
        self.names, self.warm_up = (*names, *measure_names(feet)), warm_up
        self.metrics = (
            "fell",
            "velocity_error",
            "yaw_error",
            TORQUE_METRIC,
            *(f"{name}_episode" for name in self.names),
        )

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """What an episode carries, per instance."""
        return {
            "sums": (len(self.names),),
            "tracked": (),
            "last_position": (3,),
            "stride_clock": (),
            "stride_period": (),
            TORQUE_METRIC: (),
        }

    def attach(self, memory: Mapping[str, Tensor]) -> None:
        self._memory = memory

    def count(self, frame: Frame, parts: Tensor, payload: Tensor) -> dict[str, Tensor]:
        """Add a step, whose terms are `parts` [B, terms], with `payload` [B] kg; metrics [B] by name."""
        memory, dt = self._memory, frame.dt
        apart = frame.command[:, :2] - frame.yaw_vel[:, :2]
        error = norm(apart)
        yaw_error = frame.command[:, 2] - frame.turn
        moved = norm(frame.position[:, :2] - memory["last_position"][:, :2])
        memory["last_position"].copy_(frame.position)
        counts = (frame.steps * dt > self.warm_up).to(error.dtype)
        clock, period, phase = touch_phases(memory["stride_clock"], memory["stride_period"], landed(frame), dt)
        memory["stride_clock"].copy_(clock)
        memory["stride_period"].copy_(period)
        measured = measures(frame, apart, yaw_error, moved, frame.robot.mass + payload, phase, counts)
        memory["sums"].add_(torch.cat((parts, measured), 1))
        peak = (substep_torques(frame) / frame.robot.effort).abs().amax((1, 2)) * counts
        memory[TORQUE_METRIC].copy_(torch.maximum(memory[TORQUE_METRIC], peak))
        tracking = torch.exp(-error.square() / TRACKING_SIGMA)
        memory["tracked"].add_((tracking - memory["tracked"]) / frame.steps)
        metrics = {
            "fell": frame.terminated,
            "velocity_error": error,
            "yaw_error": yaw_error.abs(),
            TORQUE_METRIC: memory[TORQUE_METRIC],
        }
        return metrics | dict(zip(self.metrics[len(metrics) :], memory["sums"].unbind(1), strict=True))
