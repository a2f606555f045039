"""What a robot is told: velocities forwards and to the left (m/s) and a turn to the left (rad/s), [n, 3].

Samplers are functions of uniform numbers. A command lasts for a time of its own in every row; with `heading` the turn
follows from a direction to face, anew in every step.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from torch import Tensor

from gaitway.core.config import configuration
from gaitway.core.ranges import IN_ORDER, Number, Positive, PositiveShare, Share
from gaitway.envs.legged.frame import norm

Interval = Annotated[tuple[Number, Number], IN_ORDER]
STILL = 0.1
"""Commands slower than this (m/s) mean: stay where you are."""
HEADING_GAIN, MAX_TURN = 0.5, 1.0
GOAL_GAINS = (1.0, 1.0, 1.0)
"""Velocities for a metre to go, 1/s, and the turn for a radian."""
MAX_BEARING = 1.0
"""Goals further aside than this (rad) are turned to before anything else."""
DRAWS = 12
"""Numbers that a new command takes."""
REPLACED, MEAN_WAIT = 0.5, 5.0
"""The joystick's: chance that a component changes, mean seconds between changes."""
JOYSTICK_SHARES = (0.9, 0.25, 0.5)
SHOWN_SHARE = 0.6
"""Of the highest speed: how fast robots go that are watched."""
CLIP_VELOCITY = "clip_velocity"
"""In the layout, [4]: 1 where an episode begins within a clip, else 0, and the velocity that the clip reaches."""

GRID = (
    *((0.0, 0.0, 0.0), (0.3, 0.0, 0.0), (-0.3, 0.0, 0.0), (0.6, 0.0, 0.0), (-0.6, 0.0, 0.0), (0.9, 0.0, 0.0)),
    *((0.0, 0.3, 0.0), (0.0, -0.3, 0.0), (0.0, 0.0, 0.5), (0.0, 0.0, -0.5), (0.0, 0.0, 1.0), (0.0, 0.0, -1.0)),
    *((0.6, 0.0, 0.5), (0.6, 0.0, -0.5), (0.5, 0.2, 0.0)),
)
"""Commands of evaluations, one for each instance in turn; clipped to the ranges of the task."""


@configuration(kw_only=True)
class CommandConfig:
    """Which commands a task gives."""

    sampler: Literal["uniform", "joystick", "grid", "field", "goal"] = "uniform"
    """`grid`: instance i keeps command i of a list of 15 that evaluations share; `field`: forwards alone, and turns
    that lead back to the direction of the track; `goal`: in every step towards a point behind the next obstacle."""
    x: Interval = (-1.0, 1.0)
    """Forwards, m/s."""
    y: Interval = (-0.6, 0.6)
    """To the left, m/s."""
    turn: Interval = (-1.0, 1.0)
    """To the left, rad/s."""
    seconds: Annotated[tuple[Positive, Positive], IN_ORDER] | None = (4.0, 8.0)
    """How long a command lasts; null: for the episode."""
    stand: Share = 0.1
    """Chance that the command is to stand."""
    heading: bool = False
    """Turn towards a direction from U(-pi, pi) instead of at a rate."""
    curriculum: bool = False
    """Begin with half of the ranges, and widen them as they are followed (training alone)."""
    widen_above: Share = 0.8
    """Share of the best tracking reward from which on the ranges widen."""
    start_share: PositiveShare = 0.5
    """Of the ranges, with a curriculum."""
    fixed: tuple[Number, Number, Number] | None = None
    """This command and no other: x, y, turn."""
    from_clip: Share = 0.0
    """Chance that an episode that begins within a clip (wrapper `starts`) is first told the velocity of the clip."""


class Commands:
    """The sampler of one task; `low` and `high` [3]."""

    def __init__(self, config: CommandConfig, is_planar: bool, like: Tensor) -> None:
        self.config = config
        limits = (config.x, (0.0, 0.0) if is_planar else config.y, (0.0, 0.0) if is_planar else config.turn)
        self.low, self.high = (like.new_tensor([pair[end] for pair in limits]) for end in (0, 1))
        self._grid = like.new_tensor(GRID).clamp(self.low, self.high)
        self._shares, self._gains = like.new_tensor(JOYSTICK_SHARES), like.new_tensor(GOAL_GAINS)
        self.held = None if config.fixed is None else like.new_tensor(config.fixed)
        """The command [3] of all instances for as long as it is there."""

    def draw(self, uniform: Tensor, command: Tensor, share: Tensor, place: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """New commands [n, 3], seconds until the next ones [n] and directions to face [n].

        `uniform` [n, DRAWS]; `command` [n, 3] is the present one; `share` [n] of the ranges; `place` [n] in the grid.
        """
        if self.held is not None:
            never = torch.full_like(share, math.inf)
            return self.held.expand(len(share), 3).clone(), never, torch.zeros_like(share)
        config = self.config
        wanted = share[:, None] * (self.low + (self.high - self.low) * uniform[:, :3])
        if config.sampler == "grid":
            wanted = self._grid[torch.remainder(place.long(), len(GRID))]
        elif config.sampler == "joystick":
            wanted = torch.where(uniform[:, 3:6] < self._shares, wanted, torch.zeros_like(wanted))
            wanted = torch.where(uniform[:, 6:9] < REPLACED, wanted, command)
        elif config.sampler == "goal":
            wanted = torch.zeros_like(wanted)
        elif config.sampler == "field":
            wanted = torch.cat((wanted[:, :1], torch.zeros_like(wanted[:, 1:])), 1)
        else:
            crawls = norm(wanted[:, :2]) < STILL
            wanted = torch.cat((wanted[:, :2] * ~crawls[:, None], wanted[:, 2:]), 1)
            wanted = wanted * (uniform[:, 9:10] >= config.stand)
        seconds = torch.full_like(share, math.inf)
        if config.sampler == "joystick":
            seconds = -MEAN_WAIT * torch.log1p(-uniform[:, 10])
        elif config.seconds is not None and config.sampler not in ("grid", "goal"):
            seconds = config.seconds[0] + (config.seconds[1] - config.seconds[0]) * uniform[:, 10]
        heading = math.pi * (2.0 * uniform[:, 11] - 1.0)
        return wanted, seconds, torch.zeros_like(heading) if config.sampler == "field" else heading

    def of_clips(self, uniform: Tensor, command: Tensor, velocity: Tensor) -> Tensor:
        """First commands [n, 3], those of clips where numbers `uniform` [n] say so; `velocity` [n, 4] as of
        `CLIP_VELOCITY`."""
        if self.held is not None:
            return command
        chosen = (velocity[:, 0] > 0.0) & (uniform < self.config.from_clip)
        return torch.where(chosen[:, None], velocity[:, 1:], command)

    @property
    def shown(self) -> tuple[float, float, float] | None:
        """What shows a robot in motion, straight ahead, where it would keep a command of the grid, of which the first
        is to stand; None where commands are drawn or given."""
        if self.config.sampler != "grid" or self.held is not None:
            return None
        low, high = self.config.x
        return SHOWN_SHARE * max(high, low, key=abs), 0.0, 0.0

    @property
    def has_goal(self) -> bool:
        """Whether commands follow from a place to go to."""
        return self.config.sampler == "goal" and self.held is None

    def to_goal(self, away: Tensor) -> Tensor:
        """Commands [n, 3] towards places `away` [n, 2] in the yaw frame, within the ranges of the task."""
        bearing = torch.atan2(away[:, 1], away[:, 0])
        wanted = (self._gains * torch.cat((away, bearing[:, None]), 1)).clamp(self.low, self.high)
        turns = bearing.abs() > MAX_BEARING
        return torch.cat((torch.where(turns, torch.zeros_like(bearing), wanted[:, 0])[:, None], wanted[:, 1:]), 1)

    @property
    def has_heading(self) -> bool:
        """Whether the turn follows from a direction to face."""
        return self.config.sampler == "field" or (self.config.heading and self.config.sampler != "grid")

    def towards(self, command: Tensor, heading: Tensor, yaw: Tensor) -> Tensor:
        """Commands [n, 3] whose turn leads to a direction; as they are without `heading`."""
        if self.held is not None or not self.has_heading:
            return command
        away = torch.remainder(heading - yaw + math.pi, 2.0 * math.pi) - math.pi
        turn = (HEADING_GAIN * away).clamp(-MAX_TURN, MAX_TURN)
        stands = (command == 0.0).all(1)
        return torch.cat((command[:, :2], torch.where(stands, torch.zeros_like(turn), turn)[:, None]), 1)


def widened(
    share: Tensor, mean: Tensor, count: Tensor, ended: Tensor, score: Tensor, above: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The command curriculum after a step: share of the ranges, mean score, episodes since the last change (all [1]).

    `ended` [B] marks episodes that are over, `score` [B] in [0, 1] how well they followed. The mean is exponential over
    2 B episodes; ranges widen by 0.1 at most once in 2 B episodes.
    """
    window = 2.0 * len(ended)
    finished = ended.to(score.dtype).sum()
    total = (score * ended).sum()
    weight = (finished / window).clamp(max=1.0)
    average = torch.where(finished > 0, total / finished.clamp(min=1.0), mean[0])
    mean, count = mean + weight * (average - mean), count + finished
    wider = (mean > above) & (count >= window)
    return (
        torch.where(wider, (share + 0.1).clamp(max=1.0), share),
        mean,
        torch.where(wider, torch.zeros_like(count), count),
    )
