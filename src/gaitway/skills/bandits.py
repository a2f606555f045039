"""Bandits: which of K arms to play, when all that is known of an arm is what it brought when it was played.

Every bandit learns by `update(arm, reward)` and is asked by `sample_action`, while it learns, or by `best_action`,
when it is to do its best. q_a is the mean of the n_a rewards of arm a, N counts all of them. UCB: Auer, Cesa-Bianchi
and Fischer 2002; discounted and windowed UCB: Garivier and Moulines 2011, arXiv 0805.3415; Agent57: Badia et al. 2020,
arXiv 2003.13350; Thompson sampling: Thompson 1933.

A bandit of one's own is a class derived from `Bandit`, named by `package.module:Class`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import gymnasium
import numpy as np
import torch

from gaitway.core.ranges import Count, NotNegative, Share
from gaitway.core.seeding import restore_stream, stream

Beta = NotNegative | Literal["auto"]
"""How much a bandit trusts in what it does not know; `auto`: as large as the largest reward seen, at least 0."""


class Bandit:
    """Plays the arm with the greatest mean; ties are broken at random."""

    def __init__(self, space: gymnasium.spaces.Discrete, seed: int = 0) -> None:
        if not isinstance(space, gymnasium.spaces.Discrete):
            raise ValueError(f"a bandit chooses among arms, and {space} has none; use a Discrete space")
        if space.start != 0:
            raise ValueError(f"the arms of {space} begin at {space.start}; count them from 0, Discrete({space.n})")
        self.arms = int(space.n)
        self.counts = np.zeros(self.arms, dtype=np.int64)
        """Rewards that each arm brought, n_a."""
        self.asked = np.zeros(self.arms, dtype=np.int64)
        """How often each arm was the answer of `sample_action`; its reward may come later than the next question."""
        self.means = np.zeros(self.arms)
        self.largest = 0.0
        """The largest reward seen, at least 0."""
        self.generator = stream(seed, "bandit")

    @property
    def pulls(self) -> int:
        """Rewards in all, N."""
        return int(self.counts.sum())

    def update(self, arm: int, reward: float) -> None:
        """Playing `arm` brought `reward`."""
        arm, reward = int(arm), float(reward)
        if not 0 <= arm < self.arms:
            raise ValueError(f"there is no arm {arm}; this bandit has the arms 0 to {self.arms - 1}")
        if not math.isfinite(reward):
            raise ValueError(f"the reward of arm {arm} is {reward}; a bandit learns from finite numbers")
        self.counts[arm] += 1
        self.means[arm] += (reward - self.means[arm]) / self.counts[arm]
        self.largest = max(self.largest, reward)
        self.learn(arm, reward)

    def sample_action(self) -> int:
        """The arm to play next."""
        arm = self.choose()
        self.asked[arm] += 1
        return arm

    def best_action(self) -> int:
        """The arm that seems best."""
        return int(self.values().argmax())

    def dist(self) -> np.ndarray:
        """The softmax of what the arms are worth, [K]: a diagnosis, nothing plays by it."""
        worth = self.worth()
        weights = np.exp(worth - worth.max())
        return weights / weights.sum()

    def state_dict(self) -> dict[str, Any]:
        arrays = {name: torch.from_numpy(value.copy()) for name, value in self.arrays().items()}
        return {"arrays": arrays, "largest": self.largest, "stream": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on as the bandit that made `state`, which had as many arms."""
        for name, value in self.arrays().items():
            stored = state["arrays"][name].numpy()
            if stored.shape != value.shape:
                raise ValueError(
                    f"{name} of the stored bandit is {list(stored.shape)}, here it is {list(value.shape)}; go on with "
                    "as many arms, and as long a window, as before"
                )
            value[...] = stored
        self.largest = float(state["largest"])
        restore_stream(self.generator, state["stream"])

    # What a bandit of one's own may replace

    def learn(self, arm: int, reward: float) -> None:
        """Learn from a reward beyond counts and means, which are up to date."""

    def choose(self) -> int:
        """The arm to play next, 0 to K - 1."""
        return self.greedy()

    def values(self) -> np.ndarray:
        """What `best_action` compares, [K]."""
        return self.means

    def worth(self) -> np.ndarray:
        """What `dist` compares, [K]."""
        return self.means

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything it has learnt, as live arrays."""
        return {"counts": self.counts, "asked": self.asked, "means": self.means}

    # For the choices of the classes below

    def greedy(self) -> int:
        best = np.flatnonzero(self.means == self.means.max())
        return int(best[self.integer(len(best))])

    def unplayed(self) -> int | None:
        """The first arm without a reward, those that were asked for least often first; None if each has brought one."""
        without = np.flatnonzero(self.counts == 0)
        return int(without[self.asked[without].argmin()]) if len(without) else None

    def integer(self, choices: int) -> int:
        return int(torch.randint(choices, (), generator=self.generator))

    def uniform(self) -> float:
        return float(torch.rand((), dtype=torch.float64, generator=self.generator))


class UniformBandit(Bandit):
    """Plays all arms alike."""

    def choose(self) -> int:
        return self.integer(self.arms)


class EpsGreedyBandit(Bandit):
    """Plays any arm with probability `eps`, else the one with the greatest mean."""

    def __init__(self, space: gymnasium.spaces.Discrete, eps: Share = 0.1, seed: int = 0) -> None:
        super().__init__(space, seed)
        self.eps = _share("eps", eps)

    def choose(self) -> int:
        return self.integer(self.arms) if self.uniform() < self.eps else self.greedy()


class UCBBandit(Bandit):
    """Each arm once, then the greatest upper confidence bound `q + beta sqrt(log N / n)`."""

    def __init__(self, space: gymnasium.spaces.Discrete, beta: Beta = 1.0, seed: int = 0) -> None:
        super().__init__(space, seed)
        self.beta = _checked_beta(beta)

    def choose(self) -> int:
        first = self.unplayed()
        if first is not None:
            return first
        return int((self.means + self.trust * np.sqrt(math.log(self.pulls) / self.counts)).argmax())

    @property
    def trust(self) -> float:
        return self.largest if self.beta == "auto" else float(self.beta)


class DiscountedUCBBandit(UCBBandit):
    """UCB for arms that change: with every reward the older ones count `gamma` times as much as before."""

    def __init__(self, space: gymnasium.spaces.Discrete, gamma: Share = 0.9, beta: Beta = 1.0, seed: int = 0) -> None:
        super().__init__(space, beta, seed)
        self.gamma = _share("gamma", gamma)
        self.sums, self.weights = np.zeros(self.arms), np.zeros(self.arms)
        """Discounted sums of rewards and of their number."""

    def learn(self, arm: int, reward: float) -> None:
        self.sums *= self.gamma
        self.weights *= self.gamma
        self.sums[arm] += reward
        self.weights[arm] += 1.0

    def choose(self) -> int:
        first = self.unplayed()
        if first is not None:
            return first
        with np.errstate(divide="ignore"):  # an arm that was forgotten altogether is worth a try
            bonus = np.sqrt(math.log(self.pulls) / self.weights)
        # without trust there is no bonus, not even an infinite one
        return int((self.values() + (2.0 * self.trust * bonus if self.trust else 0.0)).argmax())

    def values(self) -> np.ndarray:
        return self.sums / (self.weights + 1.0)

    def worth(self) -> np.ndarray:
        return _means(self.sums, self.weights)

    def arrays(self) -> dict[str, np.ndarray]:
        return super().arrays() | {"sums": self.sums, "weights": self.weights}


class SlidingWindowUCBBandit(UCBBandit):
    """UCB for arms that change: only the last `window` rewards count. An arm without one among them comes first."""

    def __init__(self, space: gymnasium.spaces.Discrete, window: Count = 10, beta: Beta = 0.0, seed: int = 0) -> None:
        super().__init__(space, beta, seed)
        if window < 1:
            raise ValueError(f"window is {window}; remember at least 1 reward")
        self.window = int(window)
        self.last_arms, self.last_rewards = np.full(self.window, -1, dtype=np.int64), np.zeros(self.window)

    def learn(self, arm: int, reward: float) -> None:
        place = (self.pulls - 1) % self.window
        self.last_arms[place], self.last_rewards[place] = arm, reward

    def choose(self) -> int:
        first = self.unplayed()
        return first if first is not None else self.upper_bound(math.log(min(self.pulls, self.window)))

    def upper_bound(self, spread: float) -> int:
        """The arm with the greatest mean within the window plus `beta sqrt(spread / n)`."""
        sums, counts = self.within_window()
        bounds = _means(sums, counts) + self.trust * np.sqrt(spread / np.maximum(counts, 1))
        return int(np.where(counts == 0, np.inf, bounds).argmax())

    def within_window(self) -> tuple[np.ndarray, np.ndarray]:
        """Sums and numbers of the last rewards of each arm, [K]."""
        known = self.last_arms >= 0
        arms, rewards = self.last_arms[known], self.last_rewards[known]
        return np.bincount(arms, rewards, self.arms), np.bincount(arms, minlength=self.arms)

    def values(self) -> np.ndarray:
        sums, counts = self.within_window()
        return sums / (counts + 1.0)

    def worth(self) -> np.ndarray:
        return _means(*self.within_window())

    def arrays(self) -> dict[str, np.ndarray]:
        return super().arrays() | {"last_arms": self.last_arms, "last_rewards": self.last_rewards}


class Agent57Bandit(SlidingWindowUCBBandit):
    """A window whose bound ignores how long it is, `beta sqrt(1 / n)`, and any arm with probability `eps`."""

    def __init__(
        self,
        space: gymnasium.spaces.Discrete,
        window: Count = 90,
        beta: Beta = 1.0,
        eps: Share = 0.5,
        seed: int = 0,
    ) -> None:
        super().__init__(space, window, beta, seed)
        self.eps = _share("eps", eps)

    def choose(self) -> int:
        first = self.unplayed()
        if first is not None:
            return first
        return self.integer(self.arms) if self.uniform() < self.eps else self.upper_bound(1.0)


class ThompsonBandit(Bandit):
    """Draws a mean for each arm from what is believed of it, and plays the greatest.

    Rewards are taken to be normal with variance 1 about a mean that is believed to be normal: with precision 1e-3 about
    1 at first, after n rewards with precision tau = 1e-3 + n about (1e-3 + n q) / tau.
    """

    prior_mean, prior_precision = 1.0, 1e-3

    def choose(self) -> int:
        precision = self.prior_precision + self.counts
        mean = (self.prior_precision * self.prior_mean + self.counts * self.means) / precision
        noise = torch.randn(self.arms, dtype=torch.float64, generator=self.generator).numpy()
        return int((mean + noise / np.sqrt(precision)).argmax())


BANDITS: dict[str, type[Bandit]] = {
    "uniform": UniformBandit,
    "eps_greedy": EpsGreedyBandit,
    "ucb": UCBBandit,
    "discounted_ucb": DiscountedUCBBandit,
    "sliding_window_ucb": SlidingWindowUCBBandit,
    "agent57": Agent57Bandit,
    "thompson": ThompsonBandit,
}
"""Bandits by the names that a configuration uses."""


def _means(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Means [K]; 0 where nothing was counted."""
    return np.divide(sums, counts, out=np.zeros(len(sums)), where=counts > 0)


def _share(name: str, value: float) -> float:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} is {value}; use a number from 0 to 1")
    return float(value)


def _checked_beta(beta: Beta) -> Beta:
    if beta != "auto" and not (isinstance(beta, int | float) and 0.0 <= beta < math.inf):
        raise ValueError(f"beta is {beta!r}; use a number of at least 0, or 'auto' for the largest reward seen")
    return beta
