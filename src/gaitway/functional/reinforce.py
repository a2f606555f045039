"""REINFORCE: the gradient of the return, from whole episodes (Williams 1992), with a baseline.

Every column holds one episode; rows after its end are masked out of every sum and count. With G_t the discounted return
from step t on, b the baseline and n the number of steps that are not masked:

    policy      - sum log pi(action) (G - b) / n          b and G are constants here
    baseline    sum (G - b)^2 / n                          G is a constant
    entropy     - sum H(pi) / n

All three are minimised; the caller adds them with its coefficients.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gaitway.functional.checks import as_flag, check_rows
from gaitway.functional.episode_returns import until_first_end
from gaitway.functional.frame_returns import RewardAt, frame_rewards
from gaitway.functional.returns import discounted_returns


class ReinforceLosses(NamedTuple):
    """Three scalars to minimise; `baseline` and `entropy` are 0 where these were not given."""

    policy: Tensor
    baseline: Tensor
    entropy: Tensor


def reinforce_losses(
    *,
    reward: Tensor,
    done: Tensor,
    log_prob: Tensor,
    gamma: float,
    baseline: Tensor | None = None,
    entropy: Tensor | None = None,
) -> ReinforceLosses:
    """Losses of step rows `[T, B]`: rows up to and including the first done row count.

    `log_prob` belongs to the actions that were taken. Every column must hold a done row.
    """
    given = {"log_prob": log_prob, "baseline": baseline, "entropy": entropy}
    check_rows(reward=reward, **{name: tensor for name, tensor in given.items() if tensor is not None})
    done = as_flag("done", done, reward)
    mask = until_first_end(done)
    count = mask.sum()

    def kept(x: Tensor) -> Tensor:  # before any product: rows after the end may be NaN
        return torch.where(mask, x, 0)

    returns = kept(discounted_returns(kept(reward.detach()), done, gamma))
    advantage, baseline_loss, entropy_loss = returns, reward.new_zeros(()), reward.new_zeros(())
    if baseline is not None:
        advantage = returns - kept(baseline.detach())
        baseline_loss = (returns - kept(baseline)).square().sum() / count
    if entropy is not None:
        entropy_loss = -kept(entropy).sum() / count
    return ReinforceLosses(-(kept(log_prob) * advantage).sum() / count, baseline_loss, entropy_loss)


def frame_reinforce_losses(
    *,
    reward: Tensor,
    done: Tensor,
    log_prob: Tensor,
    gamma: float,
    baseline: Tensor | None = None,
    entropy: Tensor | None = None,
    reward_at: RewardAt = "arrival",
) -> ReinforceLosses:
    """Losses of a frame stream `[T, B]`: rows before the first done row count; the action of a done row is not used."""
    check_rows(reward=reward)
    rows = slice(None, -1)
    return reinforce_losses(
        reward=frame_rewards(reward, reward_at),
        done=as_flag("done", done, reward)[1:],
        log_prob=log_prob[rows],
        gamma=gamma,
        baseline=None if baseline is None else baseline[rows],
        entropy=None if entropy is None else entropy[rows],
    )


def probability_terms(probabilities: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability `[...]` of the actions `[...]`, int64, and entropy `[...]`, given `probabilities` `[..., A]`."""
    if probabilities.shape[:-1] != action.shape or action.dtype != torch.int64:
        raise ValueError(
            f"probabilities are {list(probabilities.shape)} and action {list(action.shape)} {action.dtype}; "
            "use [..., A] and int64 [...]"
        )
    # a softmax may round to 0, where the logarithm and its gradient are infinite
    logarithms = probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log()
    return logarithms.gather(-1, action.unsqueeze(-1)).squeeze(-1), -(probabilities * logarithms).sum(-1)
