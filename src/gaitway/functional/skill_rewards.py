"""DIAYN: skills are rewarded for being told apart.

Eysenbach et al. 2019, "Diversity is all you need: learning skills without a reward function".
"""

from __future__ import annotations

import math

from torch import Tensor


def diversity_reward(log_probs: Tensor, one_hot: Tensor, add_p_z: bool = True) -> Tensor:
    """`log q(z|s) - log p(z)`, [...], of skills z given as `one_hot` [..., K], by the discriminator's log-probabilities
    [..., K] of all skills; p(z) = 1/K, and without `add_p_z` the second term is left out.

    With it the reward is 0 where the discriminator guesses, and log K at best: living on pays.
    """
    if log_probs.shape != one_hot.shape:
        raise ValueError(
            f"log_probs are {list(log_probs.shape)} and one_hot {list(one_hot.shape)}; both must be [..., K]"
        )
    reward = (log_probs * one_hot).sum(-1)
    return reward + math.log(one_hot.shape[-1]) if add_p_z else reward
