"""Goals as displacements that one level sets for another: what is left, what it earns, and which goal explains a deed.

Nachum et al. 2018, "Data-efficient hierarchical reinforcement learning" (HIRO), arXiv 1805.08296, with the rewards of
Gehring et al. 2021, arXiv 2110.10809. A goal g [..., F] says by how much F features s are to change; after a step to s'
what is left of it is s + g - s'.
"""

from __future__ import annotations

import torch
from torch import Tensor

REWARDS = ("distance", "potential", "potential2", "potential3")
REACHED = 0.1
"""The length of what is left at which `potential3` counts a goal as reached."""


def subgoal_reward(kind: str, before: Tensor, after: Tensor, gamma: float) -> Tensor:
    """What a step earns that leaves `after` of a goal [..., F] of which `before` was left, [...].

    `distance`: -|after|; `potential`: |before| - |after|; `potential2`: |before| - gamma |after|; `potential3`: the
    same, and 1 where |after| is below 0.1.
    """
    far = torch.linalg.vector_norm(after, dim=-1)
    if kind == "distance":
        return -far
    near = torch.linalg.vector_norm(before, dim=-1)
    if kind == "potential":
        return near - far
    if kind not in REWARDS:
        raise ValueError(f"no reward of goals is called {kind!r}; there are {', '.join(REWARDS)}")
    return near - gamma * far + (far < REACHED if kind == "potential3" else 0.0)


def first_segment(phase: Tensor, done: Tensor, interval: int) -> tuple[Tensor, Tensor]:
    """Where the first whole stretch of one decision lies in rows of `2 interval - 1` steps or more, [T, B].

    Returns rows int64 [c, B], the first of which has phase 0, and which of them belong to the stretch, bool [c, B]: all
    up to the next decision or, with it, the step in which the episode is `done`. A decision lasts at most `interval`
    steps, so a new one is made within the first c rows. A row with a negative phase, which only resets, belongs to no
    stretch; where there may be one, a new decision is made within c + 1 rows: pass 2c of them.
    """
    if len(phase) < 2 * interval - 1:
        raise ValueError(f"{len(phase)} rows; the first stretch of {interval} steps lies within {2 * interval - 1}")
    first = (phase[: len(phase) - interval + 1] == 0).int().argmax(0)
    rows = first + torch.arange(interval, device=phase.device)[:, None]
    goes_on = (phase.gather(0, rows[1:]) > 0) & ~done.gather(0, rows[:-1])
    belongs = torch.cat((torch.ones_like(goes_on[:1]), goes_on)) if interval > 1 else torch.ones_like(rows).bool()
    return rows, belongs.int().cumprod(0).bool()


def candidate_goals(stored: Tensor, achieved: Tensor, noise: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Goals [2 + C, B, F] that might explain what was done: the one that was set, as it is; what was `achieved`
    [B, F]; and C normal draws about that, with standard normal `noise` [C, B, F] times a quarter of the range. All but
    the first are kept within `low` and `high` [F]."""
    drawn = achieved + noise * 0.25 * (high - low)
    others = torch.cat((achieved[None], drawn)).clamp(low, high)
    return torch.cat((stored[None], others))


def best_candidate(candidates: Tensor, log_density: Tensor, belongs: Tensor) -> Tensor:
    """The candidate [C, B, F] under which the deeds of a stretch were most likely, [B, F].

    `log_density` [C, c, B] is that of what was done in each of c steps, of which those that belong [c, B] count.
    """
    total = torch.where(belongs, log_density, 0.0).sum(1)
    chosen = total.argmax(0)
    return candidates.gather(0, chosen[None, :, None].expand(1, -1, candidates.shape[-1])).squeeze(0)
