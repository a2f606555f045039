"""HSD-3: soft actor-critic over pairs of a goal space and a goal in it (Gehring et al. 2021, arXiv 2110.10809).

The high level chooses one of D goal spaces with probability p(d|s) and in each of them a goal g_d with G entries, of
which the mask of d keeps some. With l_d the mean log-density of the entries kept and H the entropy of p,

    V(s) = sum_d p(d|s) (min_n Q_n(s, d, g_d) - alpha_c[d] l_d) + alpha_d (H - log D)

in which the expectation over goal spaces is exact. The shift by log D keeps the bonus for the choice at or below 0.
Shapes: `values` [N, B, D] of N critics; `log_probs` [B, D] of the goal spaces, normalised; `log_density` [B, D].
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

IMPOSSIBLE = -1000.0
"""Log-probabilities are not taken below this, where the probability is 0 in float64 too: p log p is 0 for log p = -inf
as well, and not 0 times infinity."""


def mean_log_density(log_density: Tensor, mask: Tensor) -> Tensor:
    """Per-entry log-densities [B, D, G] -> their mean over the entries that `mask` [D, G] keeps, [B, D].

    Entries that are masked get no gradient; a row of the mask without an entry has the mean 0.
    """
    if log_density.shape[1:] != mask.shape:
        raise ValueError(
            f"log_density is {list(log_density.shape)} and the mask {list(mask.shape)}; use [B, D, G] and [D, G]"
        )
    kept = mask != 0
    return torch.where(kept, log_density, 0.0).sum(-1) / kept.sum(-1).clamp(min=1)


def hsd3_target(
    reward: Tensor,
    discount: Tensor,
    values: Tensor,
    log_probs: Tensor,
    log_density: Tensor,
    alpha_c: Tensor,
    alpha_d: Tensor | float,
) -> Tensor:
    """The learning target of the critics, [B]: `reward + discount * V`, all of the state at which the window ends.

    `values` are those of the target network. `discount` [B] is 0 where the episode terminated, gamma^steps elsewhere.
    """
    return reward + discount * soft_value(values.amin(0), log_probs, log_density, alpha_c, alpha_d)


def hsd3_actor_loss(
    values: Tensor, log_probs: Tensor, log_density: Tensor, alpha_c: Tensor, alpha_d: Tensor | float
) -> Tensor:
    """`-mean V`: the loss of both policies, of which each gets its gradient by one backward pass."""
    return -soft_value(values.min(0).values, log_probs, log_density, alpha_c, alpha_d).mean()


def soft_value(
    values: Tensor, log_probs: Tensor, log_density: Tensor, alpha_c: Tensor, alpha_d: Tensor | float
) -> Tensor:
    """V above, [B], from the least of the critics' values [B, D]."""
    _check_choices(log_probs, values=values, log_density=log_density)
    choice = values - alpha_c * log_density - alpha_d * log_probs.clamp(min=IMPOSSIBLE)
    return (log_probs.exp() * choice).sum(-1) - alpha_d * math.log(log_probs.shape[-1])


def choice_entropy(log_probs: Tensor) -> Tensor:
    """H above, the entropy of the choice among goal spaces [B, D], [B]; one of probability 0 adds 0."""
    return -(log_probs.exp() * log_probs.clamp(min=IMPOSSIBLE)).sum(-1)


@torch.no_grad()
def hsd3_temperature_gradients(
    log_probs: Tensor,
    log_density: Tensor,
    log_alpha_c: Tensor,
    log_alpha_d: Tensor | float,
    target_c: float,
    target_d: float,
) -> tuple[Tensor, Tensor]:
    """The gradients of the temperatures' losses with respect to `log_alpha_c` [D] and `log_alpha_d`, a scalar:

        -mean_B sum_d p(d) exp(log_alpha_c[d]) (l_d + target_c),      exp(log_alpha_d) (mean_B H - target_d)

    A temperature rises while its entropy, -l_d per entry of a goal and H of the choice, is below its target.
    """
    _check_choices(log_probs, log_density=log_density)
    probability = log_probs.exp()
    goals = -log_alpha_c.exp() * (probability * (log_density + target_c)).mean(0)
    alpha_d = log_alpha_d.exp() if isinstance(log_alpha_d, Tensor) else math.exp(log_alpha_d)
    return goals, alpha_d * (choice_entropy(log_probs).mean() - target_d)


def _check_choices(log_probs: Tensor, **others: Tensor) -> None:
    """Refuse what is not [B, D]: [B] against [B, D] would broadcast in silence where B equals D."""
    for name, tensor in others.items():
        if log_probs.ndim != 2 or tensor.shape != log_probs.shape:
            raise ValueError(
                f"{name} is {list(tensor.shape)} and log_probs {list(log_probs.shape)}; both are [B, D], a column per "
                "goal space (values before the least of the critics [N, B, D])"
            )
