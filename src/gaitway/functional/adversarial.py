"""Adversarial motion priors: what a discriminator loses, what a policy earns from it, and what its numbers mean.

D says of a pair of motion features how much it looks like the expert's. Peng et al. 2021, "AMP: adversarial motion
priors for stylized physics-based character control"; forms after Mao et al. 2017 (least squares), Lim and Ye 2017
(hinge), Arjovsky et al. 2017 and Gulrajani et al. 2017 (Wasserstein, with a penalty on gradients).

| form | loss of D | penalty | reward |
|---|---|---|---|
| least_squares | E_expert (D - 1)^2 / 2 + E_policy (D + 1)^2 / 2 | E_expert |dD/dx|^2 | max(0, 1 - (D - 1)^2 / 4) |
| hinge | E_expert max(0, 1 - D) + E_policy max(0, 1 + D) | E_expert |dD/dx|^2 | max(0, 1 - (D - 1)^2 / 4) |
| wasserstein | E_policy D - E_expert D | E (|dD/dx| - 1)^2 between both | D, standardised over the rollout |

At the optimum of the least-squares form D = (p_expert - p_policy) / (p_expert + p_policy): 0 where both move alike, and
the reward is 0.75.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from gaitway.functional.policy_losses import standardise


class Form(NamedTuple):
    """One way to play the game."""

    loss: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    """D of the expert [n] and of the policy [m] -> the two parts of the loss, whose sum counts."""
    reward: Callable[[Tensor], Tensor]
    """D [...] -> reward [...]."""
    slope: float
    """The length of the gradient that the penalty asks for."""
    between: bool
    """Whether the penalty is on mixtures of both sides; else on the expert's rows."""
    bounded: bool
    """Whether rewards lie between 0 and 1."""


def least_squares_loss(expert: Tensor, policy: Tensor) -> tuple[Tensor, Tensor]:
    """Targets 1 and -1, each with weight 1/2."""
    return 0.5 * (expert - 1.0).square().mean(), 0.5 * (policy + 1.0).square().mean()


def hinge_loss(expert: Tensor, policy: Tensor) -> tuple[Tensor, Tensor]:
    return (1.0 - expert).clamp(min=0.0).mean(), (1.0 + policy).clamp(min=0.0).mean()


def wasserstein_loss(expert: Tensor, policy: Tensor) -> tuple[Tensor, Tensor]:
    return -expert.mean(), policy.mean()


def style_reward(score: Tensor) -> Tensor:
    """max(0, 1 - (D - 1)^2 / 4), 0 to 1."""
    return (1.0 - 0.25 * (score - 1.0).square()).clamp(min=0.0)


def gradient_penalty(gradient: Tensor, slope: float = 0.0) -> Tensor:
    """Mean over rows of (|g| - slope)^2 for gradients [n, D]; with slope 0 of |g|^2, which is smooth at 0."""
    square = gradient.square().sum(-1)
    if slope == 0.0:
        return square.mean()
    return ((square + 1e-12).sqrt() - slope).square().mean()


def input_gradient(network: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """dD/dx [n, D] of any network, itself with a gradient: the general way, by autograd."""
    with torch.enable_grad():
        leaf = x.detach().clone().requires_grad_()
        return torch.autograd.grad(network(leaf).sum(), leaf, create_graph=True)[0]


FORMS: dict[str, Form] = {
    "least_squares": Form(least_squares_loss, style_reward, 0.0, False, True),
    "hinge": Form(hinge_loss, style_reward, 0.0, False, True),
    "wasserstein": Form(wasserstein_loss, standardise, 1.0, True, False),
}
"""By the names that the option `form` takes."""
EDGE = 0.02
"""Rewards nearer to 0 or 1 than this say next to nothing about which way is better."""


def saturation(reward: Tensor) -> Tensor:
    """Share of rewards at an edge of 0 to 1."""
    return ((reward < EDGE) | (reward > 1.0 - EDGE)).float().mean()
