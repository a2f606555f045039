"""Robots that perceive themselves late: a ring of the last frames of what they measure, of which each sees an old one.

Late are the leaves that have a clean twin (`lin_vel`, `ang_vel`, `projected_gravity`, `dof_pos`, `dof_vel`); noise is
added when they are shown. What a controller knows by itself, `commands` and `last_actions`, is late only if asked for,
and only beside leaves that are late: critics that see the clean twins see the present.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gaitway.core.config import configuration
from gaitway.core.ranges import Count, Positive, WholeNumber
from gaitway.envs.episode_numbers import Index
from gaitway.envs.legged.observations import MEASURED, TOLD
from gaitway.envs.legged.rows import put, write

FRAMES, STEPS, LEFT = "latency_frames", "latency_steps", "latency_left"
"""In memory: frames [B, H, D], newest first; how many steps ago the one that is seen was measured; steps until another
delay is drawn."""


@configuration(kw_only=True)
class LatencyConfig:
    """How late robots perceive themselves, in steps of control."""

    least: WholeNumber = 0
    """Steps, at least."""
    most: WholeNumber = 0
    """Steps, at most; each instance has a whole number of its own. 0: at once."""
    seconds: Positive | None = 2.0
    """A delay lasts so long, then another one is drawn; null: for the episode."""
    history: Count = 8
    """Frames that are kept, the present one among them."""
    delay_action_obs: bool = False
    """`commands` and `last_actions` are late as well."""

    def __post_init__(self) -> None:
        if self.least > self.most:
            raise ValueError(
                f"latency.least is {self.least} steps and latency.most is {self.most}; write the smaller number into "
                "least"
            )
        if self.most >= self.history:
            raise ValueError(
                f"latency.most is {self.most} steps, longer than the history: {self.history} frames are kept, the "
                f"oldest from {self.history - 1} steps ago; use at most {self.history - 1}, or "
                f"latency.history={self.most + 1}"
            )


class Latency:
    """Of one task; `memory` holds tensors [B, ...] of `shapes`."""

    def __init__(self, config: LatencyConfig, sizes: Mapping[str, int], dt: float) -> None:
        """`sizes` are those of all leaves that somebody sees."""
        if not any(name in sizes for name in MEASURED):
            raise ValueError(
                f"latency.most is {config.most}, but no group shows a leaf that can be late; list one of "
                f"{list(MEASURED)}, or leave latency out"
            )
        self.config = config
        late = (*MEASURED, *(TOLD if config.delay_action_obs else ()))
        self.sizes = {name: sizes[name] for name in late if name in sizes}
        self._period = None if config.seconds is None else max(1, round(config.seconds / dt))
        self.step_draws = 0 if self._period is None else 1

    @property
    def facts(self) -> dict[str, Any]:
        """Plain, for the contract."""
        config = self.config
        return {"leaves": list(self.sizes), "least": config.least, "most": config.most, "seconds": config.seconds}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {FRAMES: (self.config.history, sum(self.sizes.values())), STEPS: (), LEFT: ()}

    def attach(self, memory: Mapping[str, Tensor]) -> None:
        self._memory = memory

    def first(self, uniform: Tensor) -> dict[str, Tensor]:
        """What an episode begins with, by name [n]; `uniform` [n, 1]."""
        steps = self._drawn(uniform[:, 0])
        return {STEPS: steps, LEFT: torch.full_like(steps, self._period or 0)}

    def refill(self, rows: Index, values: Mapping[str, Tensor], where: Tensor | None) -> None:
        """Episodes of `rows` begin with `values` [n, size] by leaf: nothing was measured before."""
        frames = self._memory[FRAMES]
        write(frames, rows, self._packed(values)[:, None].expand(-1, frames.shape[1], -1), where)

    def redraw(self, goes_on: Tensor, uniform: Tensor) -> None:
        """A step is over: other delays where they are due, of episodes that go on [B]; `uniform` [B, step_draws]."""
        if self._period is None:
            return
        left = self._memory[LEFT]
        left.sub_(1.0)
        due = goes_on & (left <= 0.0)
        put(self._memory[STEPS], due, self._drawn(uniform[:, 0]))
        put(left, due, torch.full_like(left, self._period))

    def take(self, values: Mapping[str, Tensor]) -> None:
        """All instances measured `values` [B, size] by leaf; the oldest frame goes."""
        frames = self._memory[FRAMES]
        frames.copy_(torch.cat((self._packed(values)[:, None], frames[:, :-1]), 1))

    def seen(self, rows: Index) -> dict[str, Tensor]:
        """What `rows` see [n, size] by leaf."""
        frames, steps = self._memory[FRAMES][rows], self._memory[STEPS][rows]
        which = steps.long()[:, None, None].expand(-1, 1, frames.shape[2])
        found = frames.gather(1, which)[:, 0].split(list(self.sizes.values()), 1)
        return dict(zip(self.sizes, found, strict=True))

    def steps(self, rows: Index) -> Tensor:
        """How old what is seen is, in steps [n, 1]."""
        return self._memory[STEPS][rows][:, None]

    def _packed(self, values: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([values[name] for name in self.sizes], 1)

    def _drawn(self, uniform: Tensor) -> Tensor:
        least, most = self.config.least, self.config.most
        # a product may be rounded up to the number of choices
        return (least + torch.floor(uniform * (most - least + 1))).clamp(max=most)
