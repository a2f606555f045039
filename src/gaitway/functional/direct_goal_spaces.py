"""What the policies of HSD-3 propose, and their loss, with gradients written by hand: half the operations of autograd.

On a GPU a recorded update of HSD-3 is a few large products and some hundred small operations, each of which takes about
as long as any other. The reference implementations, with the same results, are `soft_losses.squashed_entries` with
`goal_space_losses.mean_log_density`, and `goal_space_losses.hsd3_actor_loss`. Shapes: B rows, D goal spaces, G entries
of a goal, N critics.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from gaitway.functional.goal_space_losses import IMPOSSIBLE
from gaitway.functional.soft_losses import LOG_NORMALISER


def proposed_goals(
    output: Tensor, noise: Tensor, log_std_range: tuple[float, float], mask: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:
    """Goals [B, D, G] of tanh-squashed Gaussians times `mask` [D, G], and their log-densities [B, D], means over
    entries with the `weight` [D, G] of each, which adds up to 1 in every row; differentiable in `output` [B, D, 2G]."""
    goals, log_density = _ProposedGoals.apply(output, noise, log_std_range, mask, weight)
    return goals, log_density


def deciding_loss(values: Tensor, log_probs: Tensor, log_density: Tensor, alpha_c: Tensor, alpha_d: Tensor) -> Tensor:
    """`hsd3_actor_loss` of values [N, B, D], log_probs and log_density [B, D], in which it is differentiable; the
    temperatures are constants."""
    loss: Tensor = _DecidingLoss.apply(values, log_probs, log_density, alpha_c, alpha_d)
    return loss


class _ProposedGoals(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, output: Tensor, noise: Tensor, log_std_range: tuple[float, float], mask: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        mean, log_std = output.chunk(2, -1)
        clamped = log_std.clamp(*log_std_range)
        spread = clamped.exp().mul_(noise)
        u = mean + spread
        action = u.tanh()
        # minus the log-density of each entry without its constant, as in `soft_losses`
        cost = torch.sub(clamped, F.softplus(u, 2.0), alpha=4.0).add_(u, alpha=2.0).addcmul_(noise, noise, value=0.5)
        ctx.save_for_backward(action, spread, log_std, clamped, mask, weight)
        return action * mask, -LOG_NORMALISER - cost.mul_(weight).sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_goals: Tensor, by_log_density: Tensor) -> tuple[Tensor | None, ...]:
        """`d tanh(u) / du = 1 - tanh(u)^2`; a log-density has the derivatives `2 tanh(u)` by u and -1 by log_std."""
        action, spread, log_std, clamped, mask, weight = ctx.saved_tensors
        size = action.shape[-1]
        share = by_log_density.unsqueeze(-1) * weight
        found = action.new_empty(*action.shape[:-1], 2 * size)
        by_u, by_log_std = found.split(size, -1)
        torch.ops.aten.tanh_backward.grad_input(by_goals * mask, action, grad_input=by_u)
        by_u.addcmul_(share, action, value=2.0)
        torch.mul(by_u, spread, out=by_log_std)
        by_log_std.sub_(share).mul_(log_std == clamped)
        return found, None, None, None, None


class _DecidingLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, values: Tensor, log_probs: Tensor, log_density: Tensor, alpha_c: Tensor, alpha_d: Tensor
    ) -> Tensor:
        least, which = values.min(0)
        probability = log_probs.exp()
        choice = least.addcmul_(log_density, alpha_c, value=-1.0)
        choice.addcmul_(log_probs.clamp(min=IMPOSSIBLE), alpha_d, value=-1.0)
        count, spaces = log_probs.shape
        ctx.save_for_backward(which, probability, choice, alpha_c, alpha_d)
        ctx.members = len(values)
        return torch.add(alpha_d * math.log(spaces), (probability * choice).sum(), alpha=-1.0 / count)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """`-p / B` by the least values; times `choice - alpha_d` by log p, and times `-alpha_c` by the log-density."""
        which, probability, choice, alpha_c, alpha_d = ctx.saved_tensors
        share = probability * (gradient * (-1.0 / len(probability)))
        by_values = share.new_zeros(ctx.members, *share.shape).scatter_(0, which.unsqueeze(0), share.unsqueeze(0))
        return by_values, (choice - alpha_d) * share, share * -alpha_c, None, None
