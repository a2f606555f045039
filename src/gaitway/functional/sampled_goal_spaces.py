"""HSD-3 with an expectation over goal spaces that is drawn: k of D per row, with replacement, by their probabilities.

Each function equals its exact counterpart in `goal_space_losses` in the mean over draws, gradients included. Entropy of
the choice needs no critic, so it stays exact. Shapes: `values` [N, B, k] of the drawn goal spaces, which `drawn`
[B, k, D] names as one-hot rows; `log_probs`, `log_density` [B, D] of all of them.
"""

from __future__ import annotations

import math

from torch import Tensor

from gaitway.functional.goal_space_losses import IMPOSSIBLE, choice_entropy


def sampled_target(
    reward: Tensor,
    discount: Tensor,
    values: Tensor,
    log_probs: Tensor,
    log_density: Tensor,
    drawn: Tensor,
    alpha_c: Tensor,
    alpha_d: Tensor | float,
) -> Tensor:
    """The learning target of the critics, [B]: `reward + discount * V` with the mean over the k draws in V."""
    cost = _costs(values.amin(0), log_density, drawn, alpha_c)
    return reward + discount * (alpha_d * _shifted_entropy(log_probs) - cost.mean(-1))


def sampled_actor_loss(
    values: Tensor,
    log_probs: Tensor,
    log_density: Tensor,
    drawn: Tensor,
    alpha_c: Tensor,
    alpha_d: Tensor | float,
) -> Tensor:
    """The loss of both policies. Goals learn through the values; the choice, through which no gradient flows, by
    `log p(d) (cost_d - baseline)` with cost_d = alpha_c[d] l_d - min Q: the baseline of a draw is the mean cost of the
    row's other draws, or, for k = 1, that of the other rows."""
    cost = _costs(values.min(0).values, log_density, drawn, alpha_c)
    known = cost.detach()
    if known.shape[-1] > 1:
        baseline = (known.sum(-1, keepdim=True) - known) / (known.shape[-1] - 1)
    else:
        baseline = (known.sum() - known) / max(len(known) - 1, 1)
    score = (drawn * log_probs.clamp(min=IMPOSSIBLE).unsqueeze(-2)).sum(-1) * (known - baseline)
    # the score has a gradient and no say in the value
    return (cost + score - score.detach()).mean() - (alpha_d * _shifted_entropy(log_probs)).mean()


def _costs(values: Tensor, log_density: Tensor, drawn: Tensor, alpha_c: Tensor) -> Tensor:
    """`alpha_c[d] l_d - min Q` of every draw, [B, k]."""
    if drawn.shape != (*values.shape, log_density.shape[-1]):
        raise ValueError(
            f"values are {list(values.shape)}, log_density {list(log_density.shape)} and drawn {list(drawn.shape)}; "
            "use [B, k], [B, D] and [B, k, D]"
        )
    return (drawn * (alpha_c * log_density).unsqueeze(-2)).sum(-1) - values


def _shifted_entropy(log_probs: Tensor) -> Tensor:
    """`H - log D`, [B], at most 0."""
    return choice_entropy(log_probs) - math.log(log_probs.shape[-1])
