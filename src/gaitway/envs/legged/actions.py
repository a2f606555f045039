"""From actions to targets of joints. Each mode is a function of (action, memory) without a row of its own.

| mode | target |
|---|---|
| `joint_offset` | the default pose + scale a |
| `joint_delta` | the present position + scale a, sampled once per step |
| `gait_residual` | a gait at its phase, for the command, + 0.15 a; its authority may fade to the default pose |
| `gait_params` | a gait whose command, heights and stance follow a filtered action of six numbers |
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gaitway.envs.legged.frame import RobotTensors
from gaitway.envs.legged.gaits import Gait

MODES = ("joint_offset", "joint_delta", "gait_residual", "gait_params")
PARAMETERS = ("forward", "sideways", "turn", "front_height", "rear_height", "stance")
"""What the six numbers of `gait_params` change: the gait's command, heights of the hips, feet ahead of the hips."""
COMMAND_SCALE = (0.6, 0.4, 0.8)
HEIGHT_SCALE, STANCE_SCALE = 0.04, 0.03
KEPT = 0.75
"""Share of the filtered action of `gait_params` that stays from step to step."""


@dataclass(frozen=True)
class Actions:
    """How actions of one task are meant; `scale` [A] is of `joint_delta` and `gait_residual`, else the robot's."""

    mode: str
    limit: float
    """Actions are clipped to this and its negative."""
    robot: RobotTensors
    gait: Gait | None
    scale: Tensor

    @property
    def names(self) -> tuple[str, ...]:
        return PARAMETERS if self.mode == "gait_params" else self.robot.joints

    @property
    def has_gait(self) -> bool:
        return self.mode.startswith("gait")

    def taken(self, action: Tensor, filtered: Tensor) -> Tensor:
        """What counts as the action of this step [n, A]: the clipped one, or the filter's state."""
        action = action.clamp(-self.limit, self.limit)
        if self.mode == "gait_params":
            return (KEPT * filtered + (1.0 - KEPT) * action).clamp(-1.0, 1.0)
        return action

    def targets(
        self, taken: Tensor, q: Tensor, phase: Tensor, command: Tensor, authority: Tensor | None = None
    ) -> Tensor:
        """Targets of the joints [n, A] for `taken` actions; phase [n] in cycles, as it is observed.

        `authority` [1] is the share of the gait in `gait_residual`: at 0 actions correct the default pose instead.
        """
        robot = self.robot
        if self.mode == "joint_offset":
            target = robot.action_offset + robot.action_scale * taken
        elif self.mode == "joint_delta":
            target = q + self.scale * taken
        elif self.mode == "gait_residual":
            pose = self._gait().pose(phase, command)
            if authority is not None:
                pose = torch.lerp(robot.pose.expand_as(pose), pose, authority)
            target = pose + self.scale * taken
        else:
            target = self._of_parameters(taken, phase, command)
        return target.clamp(robot.low, robot.high)

    def _of_parameters(self, u: Tensor, phase: Tensor, command: Tensor) -> Tensor:
        gait = self._gait()
        asked = torch.stack([command[:, k] + scale * u[:, k] for k, scale in enumerate(COMMAND_SCALE)], 1)
        heights = gait.config.height + HEIGHT_SCALE * u[:, 3:5].repeat_interleave(2, 1)
        return gait.pose(phase, asked, heights, gait.config.x_offset + STANCE_SCALE * u[:, 5])

    def _gait(self) -> Gait:
        assert self.gait is not None
        return self.gait
