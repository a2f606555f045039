"""How hard the terrain of an episode is: levels that rise and fall with what each robot achieved in the last one."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from gaitway.envs.legged.terrain.config import TerrainConfig
from gaitway.envs.legged.terrain.obstacles import LEVELS

UNKNOWN = -1.0
"""The next level of a robot that has achieved nothing yet."""
FIRST_LEVELS = 3
"""Training begins on one of so many."""
CLEAN = 0.02
"""Level up among virtual obstacles: the deepest point of the robot was inside by at most so much (m), as a mean over
the way through them."""
MOVED = 1.0
"""Robots that were told to walk less than this (m) never move down."""


def next_level(level: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """Levels [n] after episodes; up wins where both hold. `LEVELS`, one beyond the top, stands for any."""
    change = torch.where(up, torch.ones_like(level), -down.to(level.dtype))
    return (level + change).clamp(min=0.0)


def by_progress(memory: Mapping[str, Tensor], half: float, passed: Tensor) -> tuple[Tensor, Tensor]:
    """Who moves up [B] and down [B] on squares of twice `half` m: half of one as progress along the command, or less
    than half of what it asked for. Who has `passed` [B] the border upright moves up too, if not down: from a start
    ahead of the middle it is less than half a square away."""
    progress, asked = memory["progress"], memory["asked"]
    down = (progress < 0.5 * asked) & (asked > MOVED)
    return (progress > half) | (passed & ~down), down


def graduated(planned: Tensor, solid: Tensor) -> tuple[Tensor, Tensor]:
    """Planned levels [n], and who meets solid obstacles from now on [n]: whoever has passed the hardest virtual ones
    begins anew."""
    passed = (planned >= LEVELS) & (solid == 0.0)
    return torch.where(passed, torch.full_like(planned, UNKNOWN), planned), torch.maximum(solid, passed.to(solid.dtype))


def first_level(config: TerrainConfig, trains: bool, planned: Tensor, uniform: Tensor) -> Tensor:
    """Levels [n] of new episodes: `planned` [n] by `next_level`, with `uniform` [n] where any of them will do."""
    if config.level is not None:
        return torch.full_like(planned, float(config.level))
    anywhere = torch.floor(uniform * LEVELS)
    if not (trains and config.curriculum):
        return anywhere
    begins = torch.floor(uniform * FIRST_LEVELS)
    known = torch.where(planned >= LEVELS, anywhere, planned)
    return torch.where(planned == UNKNOWN, begins, known)


def share_of(level: Tensor) -> Tensor:
    """How hard a level is, from 0 to 1."""
    return level / (LEVELS - 1)
