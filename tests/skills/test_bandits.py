"""Bandits by hand: what each plays next, what it thinks best, what it says of the arms; and exactly again."""

import math

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from gaitway.core.config import ConfigError
from gaitway.core.parts import make_part
from gaitway.envs.registry import make_env
from gaitway.skills.bandits import (
    BANDITS,
    Agent57Bandit,
    Bandit,
    DiscountedUCBBandit,
    EpsGreedyBandit,
    SlidingWindowUCBBandit,
    ThompsonBandit,
    UCBBandit,
    UniformBandit,
)

ORDERLY = ("ucb", "discounted_ucb", "sliding_window_ucb", "agent57")
"""Those that play each arm once before anything else."""


def told(bandit, *results):
    for arm, reward in results:
        bandit.update(arm, reward)
    return bandit


def softmax(*values):
    weights = [math.exp(value) for value in values]
    return [weight / sum(weights) for weight in weights]


def test_means_are_kept_and_the_greatest_is_played_with_ties_at_random():
    bandit = told(Bandit(Discrete(3)), (0, 1.0), (0, 3.0), (1, 2.0), (2, -1.0))
    assert bandit.means.tolist() == [2.0, 2.0, -1.0]
    assert bandit.best_action() == 0
    played = np.bincount([bandit.sample_action() for _ in range(400)], minlength=3)
    assert played[2] == 0
    assert 140 < played[0] < 260
    assert bandit.dist() == pytest.approx(softmax(2, 2, -1))


@pytest.mark.parametrize("name", ORDERLY)
@pytest.mark.parametrize("arms", [1, 3, 12])
def test_every_arm_is_played_once_first(name, arms):
    bandit = BANDITS[name](Discrete(arms))
    played = []
    for _ in range(arms):
        played.append(bandit.sample_action())
        bandit.update(played[-1], float(played[-1] == 0))
    assert played == list(range(arms))


def test_arms_whose_reward_is_still_to_come_are_not_asked_for_again_before_the_others():
    bandit = UCBBandit(Discrete(3))
    assert [bandit.sample_action() for _ in range(4)] == [0, 1, 2, 0]
    told(bandit, (0, 1.0), (2, 5.0))
    assert bandit.sample_action() == 1
    assert told(bandit, (1, 0.0)).sample_action() == 2


def test_ucb_by_hand():
    # N = 4, log 4 = 1.386: bounds 0.5 + sqrt(1.386 / 1), 1 + sqrt(1.386 / 2), 0 + sqrt(1.386)
    bandit = told(UCBBandit(Discrete(3), beta=1.0), (0, 0.5), (1, 0.8), (1, 1.2), (2, 0.0))
    bounds = [0.5 + math.sqrt(math.log(4)), 1.0 + math.sqrt(math.log(4) / 2), math.sqrt(math.log(4))]
    assert bandit.sample_action() == int(np.argmax(bounds)) == 1
    assert told(UCBBandit(Discrete(3), beta=3.0), (0, 0.5), (1, 0.8), (1, 1.2), (2, 0.0)).sample_action() == 0
    assert told(UCBBandit(Discrete(3), beta=0.0), (0, 0.5), (1, 0.8), (1, 1.2), (2, 0.0)).sample_action() == 1
    assert bandit.best_action() == 1


def test_automatic_beta_is_the_largest_reward_and_at_least_zero():
    bandit = told(UCBBandit(Discrete(2), beta="auto"), (0, -3.0), (1, -5.0))
    assert bandit.trust == 0.0
    assert bandit.sample_action() == 0
    assert told(bandit, (1, 7.0)).trust == 7.0


def test_discounted_ucb_by_hand():
    # gamma 0.5: sums (1, 0) -> (0.5, 4) -> (0.25 + 2, 2); weights (1, 0) -> (0.5, 1) -> (1.25, 0.5)
    bandit = told(DiscountedUCBBandit(Discrete(2), gamma=0.5, beta=0.1), (0, 1.0), (1, 4.0), (0, 2.0))
    assert bandit.sums.tolist() == [2.25, 2.0]
    assert bandit.weights.tolist() == [1.25, 0.5]
    assert bandit.values() == pytest.approx([1.0, 2.0 / 1.5])
    bounds = [1.0 + 0.2 * math.sqrt(math.log(3) / 1.25), 2.0 / 1.5 + 0.2 * math.sqrt(math.log(3) / 0.5)]
    assert bandit.sample_action() == int(np.argmax(bounds)) == 1
    assert bandit.best_action() == 1
    assert bandit.dist() == pytest.approx(softmax(1.8, 4.0)), "plain means, though the best arm is by sum / (n + 1)"


def test_a_window_by_hand():
    bandit = told(SlidingWindowUCBBandit(Discrete(3), window=4, beta=1.0), (0, 9.0), (1, 1.0), (2, 2.0))
    assert bandit.best_action() == 0
    told(bandit, (1, 3.0), (1, 2.0))  # the reward of arm 0 is out of the window: 1, 2, 3, 2
    sums, counts = bandit.within_window()
    assert sums.tolist() == [0.0, 6.0, 2.0]
    assert counts.tolist() == [0, 3, 1]
    assert bandit.sample_action() == 0, "an arm that is not in the window comes first"
    assert bandit.values().tolist() == [0.0, 6.0 / 4, 2.0 / 2]
    assert bandit.best_action() == 1
    assert bandit.dist() == pytest.approx(softmax(0, 2, 2))
    told(bandit, (0, 0.0))  # 2, 3, 2, 0: N = 6, but no more than the window counts
    bounds = [math.sqrt(math.log(4)), 2.5 + math.sqrt(math.log(4) / 2), 2.0 + math.sqrt(math.log(4))]
    assert bandit.sample_action() == int(np.argmax(bounds)) == 1


def test_agent57_ignores_how_long_the_window_is_and_plays_any_arm_now_and_then():
    results = ((0, 1.0), (1, 1.6), (1, 1.6), (1, 1.6), (1, 1.6))
    # 1 + 1 / 1 against 1.6 + 1 / 2; with the logarithm of 5, 1 + 1.27 against 1.6 + 0.63
    certain = told(Agent57Bandit(Discrete(2), beta=1.0, eps=0.0), *results)
    assert certain.sample_action() == 1
    assert told(SlidingWindowUCBBandit(Discrete(2), window=90, beta=1.0), *results).sample_action() == 0
    often = told(Agent57Bandit(Discrete(2), beta=0.0, eps=0.5), *results)
    played = np.bincount([often.sample_action() for _ in range(2000)], minlength=2)
    assert played[0] / 2000 == pytest.approx(0.25, abs=0.04)


def test_eps_greedy_and_uniform_play_as_often_as_they_say():
    for bandit, share in ((EpsGreedyBandit(Discrete(4), eps=0.2), 0.85), (UniformBandit(Discrete(4)), 0.25)):
        told(bandit, (2, 1.0))
        played = np.bincount([bandit.sample_action() for _ in range(4000)], minlength=4) / 4000
        assert played[2] == pytest.approx(share, abs=0.03)
        assert bandit.best_action() == 2


def test_thompson_plays_by_the_posterior():
    # arm 0: 4 rewards of mean 1, arm 1: 1 reward of 1.5; precisions 4.001 and 1.001
    bandit = told(ThompsonBandit(Discrete(2)), *(((0, 1.0),) * 4), (1, 1.5))
    mean = [(0.001 + 4.0) / 4.001, (0.001 + 1.5) / 1.001]
    spread = math.sqrt(1 / 4.001 + 1 / 1.001)
    chance = 0.5 * (1 + math.erf((mean[0] - mean[1]) / spread / math.sqrt(2)))
    played = np.mean([bandit.sample_action() == 0 for _ in range(6000)])
    assert played == pytest.approx(chance, abs=0.025)
    assert bandit.best_action() == 1


@pytest.mark.parametrize("name", BANDITS)
def test_the_same_seed_and_a_stored_state_go_on_alike(name):
    def play(bandit, pulls):
        arms = []
        for pull in range(pulls):
            arms.append(bandit.sample_action())
            if pull % 3:  # some rewards never come
                bandit.update(arms[-1], math.sin(7.0 * arms[-1] + pull))
        return arms

    make = BANDITS[name]
    one, other = make(Discrete(5), seed=3), make(Discrete(5), seed=3)
    assert play(one, 40) == play(other, 40)
    fresh = make(Discrete(5), seed=9)
    fresh.load_state_dict(one.state_dict())
    assert play(fresh, 60) == play(one, 60)
    assert fresh.dist() == pytest.approx(one.dist(), abs=0)
    with pytest.raises(ValueError, match=r"counts of the stored bandit is \[5\], here it is \[4\]"):
        make(Discrete(4)).load_state_dict(one.state_dict())


class Stubborn(Bandit):
    """One of the user: always the last arm."""

    def choose(self):
        return self.arms - 1


def test_bandits_are_made_by_name_and_bad_ones_are_told():
    given = {"space": Discrete(4), "seed": 0}
    agent57 = make_part({"name": "agent57", "beta": "auto", "window": 500, "eps": 0.5}, BANDITS, "bandit", given=given)
    assert (agent57.window, agent57.beta, agent57.eps, agent57.arms) == (500, "auto", 0.5, 4)
    assert set(BANDITS) == {
        *("uniform", "eps_greedy", "ucb", "discounted_ucb", "sliding_window_ucb", "agent57", "thompson")
    }
    with pytest.raises(ConfigError, match=r"bandit\.beta"):
        make_part({"name": "ucb", "beta": -1.0}, BANDITS, "bandit", given=given)
    for space in (Box(-1.0, 1.0, (2,)), gymnasium.spaces.MultiDiscrete([2, 2])):
        for make in (*BANDITS.values(), Stubborn):
            with pytest.raises(ValueError, match=r"a bandit chooses among arms.*use a Discrete space"):
                make(space)
    with pytest.raises(ValueError, match=r"count them from 0, Discrete\(3\)"):
        UCBBandit(Discrete(3, start=1))
    with pytest.raises(ValueError, match="there is no arm 4; this bandit has the arms 0 to 3"):
        agent57.update(4, 0.0)
    with pytest.raises(ValueError, match="the reward of arm 1 is nan"):
        agent57.update(1, math.nan)
    for make, wrong in (
        (EpsGreedyBandit, {"eps": 1.5}),
        (UCBBandit, {"beta": -1.0}),
        (UCBBandit, {"beta": "automatic"}),
        (SlidingWindowUCBBandit, {"window": 0}),
        (DiscountedUCBBandit, {"gamma": 2.0}),
    ):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} is "):
            make(Discrete(2), **wrong)
    assert Stubborn(Discrete(3)).sample_action() == 2


def regret(bandit, pulls=600, twin=False):
    env = make_env("toy/bandit", 1, seed=bandit.arms, arms=bandit.arms)
    lost = 0.0
    for _ in range(pulls):
        arm = bandit.sample_action()
        step = env.step(torch.tensor([arm]))
        lost += 0.9 - float(step.metrics["mean"][0])
        bandit.update((arm + 3) % bandit.arms if twin else arm, float(step.reward[0]))
    return lost


@pytest.mark.parametrize(("name", "options"), [("eps_greedy", {}), ("ucb", {"beta": 0.5}), ("thompson", {})])
def test_learning_bandits_lose_less_than_half_of_what_uniform_play_loses(name, options):
    uniform = regret(UniformBandit(Discrete(10)))
    assert uniform == pytest.approx(270, rel=0.15)  # 0.45 a pull
    assert regret(BANDITS[name](Discrete(10), **options)) < 0.5 * uniform
    assert regret(BANDITS[name](Discrete(10), **options), twin=True) > 0.5 * uniform, "rewards of other arms"
