"""Reachability: the probability that the present policy attains its goal before the goal's time is over.

It is learnt by undiscounted temporal differences (Gehring et al. 2021, arXiv 2110.10809). In a step, `reached` is 1
where the goal was attained and `last` is 1 where the goal ended in it, attained or not, so that nothing follows:

    target = reached + (1 - last) R'(s', a'),   a' ~ policy(s')

What ends an episode (`terminated`) has no say: a goal that ends there has `last` set. The network's output is not
squashed; it is clipped to [0, 1] where it is read.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from gaitway.functional.checks import check_alike


def reachability_target(reached: Tensor, last: Tensor, next_value: Tensor) -> Tensor:
    """The learning target `[B]`, without gradient; `next_value` [B] is that of the target network.

    `reached` and `last` [B] are numbers or flags. Where `last` is 1 the next value is not used, not even a NaN.
    """
    reached, last = (flag if flag.is_floating_point() else flag.to(next_value.dtype) for flag in (reached, last))
    check_alike(next_value=next_value, reached=reached, last=last)
    with torch.no_grad():
        return torch.where(last == 1, reached, reached + (1 - last) * next_value)


def reachability_loss(value: Tensor, target: Tensor) -> Tensor:
    """The mean squared error of `value` [B] against `target` [B], without a factor of 1/2."""
    check_alike(value=value, target=target)
    return F.mse_loss(value, target)
