"""The steps of soft actor-critic: critics that the actor leaves alone, and learning that broken twins fail."""

import dataclasses
import math

import pytest
import torch
from sac_cases import filled, make, unit_transitions, without_direct
from torch.testing import assert_close

from gaitway.algorithms import soft_steps
from gaitway.algorithms.algorithm import Now
from gaitway.algorithms.sac import SACConfig
from gaitway.core.seeding import stream
from gaitway.core.workspace import Workspace
from gaitway.envs.spec import ActionSpec

# --- the actor's step does not touch the critics ---------------------------------------------------------------------


def test_constant_critics_give_the_same_gradient_and_get_none(monkeypatch):
    without_direct(monkeypatch)
    sac = make()
    policy, replay = sac.policy, filled(sac)
    batch = unit_transitions(sac, replay, replay.draw((16,)))
    noise, alpha = torch.randn(2, 16, 2, generator=stream(0, "noise")), torch.tensor(0.3)
    sac.critic_engine.parameters.gradient.fill_(7.0)
    proposal = sac.steps.prepare(batch, noise, alpha)[1] | {"entropy": alpha}
    loss, _ = sac.steps.actor_loss(proposal | {"critic": batch["critic"], "alpha": alpha})
    actor = list(policy.actor.parameters())
    gradients = torch.autograd.grad(loss, actor, retain_graph=True)
    with pytest.raises(RuntimeError, match="not have been used"):
        torch.autograd.grad(loss, list(policy.critic.parameters()), retain_graph=True)
    loss.backward()
    assert bool((sac.critic_engine.parameters.gradient == 7.0).all())
    action, log_prob = policy.propose(batch["actor"], noise[0])
    unfrozen = (alpha * log_prob - policy.values(policy.critic, batch["critic"], action).amin(0)).mean()
    for found, expected in zip(gradients, torch.autograd.grad(unfrozen, actor), strict=True):
        assert_close(found, expected, atol=1e-7, rtol=1e-5)


# --- a task of two steps: wait, then answer with the number that was shown --------------------------------------------

ANSWER = ActionSpec("continuous", ("answer",), (-1.0,), (1.0,))
GUESS = ActionSpec("discrete", ("answer",), choices=(2,))
ENVS, EPISODES = 50, 20
LEARNER = SACConfig(
    batch_size=64, replay_size=2 * ENVS * EPISODES, gamma=0.9, tau=0.05, initial_temperature=0.2,
    actor_learning_rate=3e-3, critic_learning_rate=3e-3, temperature_learning_rate=1e-2,
)  # fmt: skip


def episodes(action):
    """Steps of random answers: nothing for the first one, 5 - 4 (answer - number)^2 for the second, which ends it;
    discrete answers get 5 for the right sign of the number and 1 for the wrong one."""
    generator, rows = stream(0, "episodes"), 2 * EPISODES
    number = (torch.rand(EPISODES + 1, ENVS, generator=generator) * 1.6 - 0.8).repeat_interleave(2, 0)[: rows + 1]
    second = (torch.arange(rows + 1) % 2 == 1).float().unsqueeze(-1).expand(rows + 1, ENVS)
    if action.kind == "discrete":
        answer = torch.randint(2, (rows, ENVS), generator=generator)
        reward = torch.where(answer == (number[:-1] > 0), 5.0, 1.0)
    else:
        answer = torch.rand(rows, ENVS, 1, generator=generator) * 2 - 1
        reward = 5.0 - 4.0 * (answer.squeeze(-1) - number[:-1]) ** 2
    obs = torch.stack((number, second), -1)
    ends = second[:-1] == 1
    return Workspace.packed(
        {
            "env/obs/policy": obs,
            "env/final_obs/policy": obs[1:].clone(),
            "action": answer,
            "env/reward": torch.where(ends, reward, 0.0),
            "env/terminated": ends,
            "env/truncated": torch.zeros_like(ends),
        }
    )


def learn_to_answer(action=ANSWER, config=LEARNER, updates=700):
    """How the policy answers and what the critics say after learning from random answers alone."""
    sac = make(action, config, groups={"policy": 2}, num_envs=ENVS, actor_hidden=(32, 32), critic_hidden=(32, 32))
    replay = sac.make_replay()
    replay.add(episodes(action))
    sac.update(replay, updates - 100, Now())
    sac.metrics()
    sac.update(replay, 100, Now())
    number = torch.linspace(-0.7, 0.7, 14)
    first, second = (torch.stack((number, torch.full_like(number, step)), -1) for step in (0.0, 1.0))
    policy = sac.policy
    answer = policy.act({"policy": second}, None, stochastic=False)[0]
    with torch.no_grad():
        if action.kind == "discrete":
            right = number > 0
            wrong = (answer != right).float()
            best, before = (policy.values(policy.critic, x).amin(0) for x in (second, first))
            best = best.gather(-1, right.long().unsqueeze(-1))
        else:
            wrong = (answer.squeeze(-1) - number).abs()
            best = policy.values(policy.critic, second, number.unsqueeze(-1))
            before = policy.values(policy.critic, first, torch.zeros(14, 1))
    return {
        "error": wrong.mean().item(),
        "value of the best answer": best.mean().item(),
        "value before": before.mean().item(),
        "entropy": sac.metrics()["entropy"].item(),
    }


def verdict(found, entropy, tolerance=0.35):
    """The best answer is worth 5; what is expected before it is 0.9 times less than that, but not much."""
    return {
        "answers": found["error"] < 0.15,
        "knows the end": abs(found["value of the best answer"] - 5.0) < 0.4,
        "looks ahead": 3.4 < found["value before"] < 5.2,
        "keeps its entropy": abs(found["entropy"] - entropy) < tolerance,
    }


@pytest.mark.slow
@pytest.mark.parametrize("way", ["direct", "autograd"])
def test_it_learns_to_answer(way, monkeypatch):
    if way == "autograd":
        without_direct(monkeypatch)
    found = learn_to_answer()
    assert all(verdict(found, -1.0).values()), found


@pytest.mark.slow
def test_it_learns_discrete_answers():
    found = learn_to_answer(GUESS)
    assert all(verdict(found, 0.5 * math.log(2), 0.15).values()), found


def never_ends(reward, discount, values, log_prob, alpha):
    return reward + 0.9 * (values.amin(0) - alpha * log_prob)


def wrong_sign(values, log_prob, alpha):
    return (-alpha * log_prob - values.amin(0)).mean()


def upside_down(values, log_prob, alpha):
    return (alpha * log_prob + values.amin(0)).mean()


TWINS = {
    "ends are not ends": ("soft_target", never_ends, {}, "knows the end"),
    "entropy pushed down": ("actor_loss", wrong_sign, {}, "keeps its entropy"),
    "actor goes downhill": ("actor_loss", upside_down, {}, "answers"),
    "target never follows": (None, None, {"tau": 1e-9}, "looks ahead"),
    "no temperature": (None, None, {"learn_temperature": False, "initial_temperature": 1e-6}, "keeps its entropy"),
    "wrong end of the scale": (None, None, {"target_entropy": 0.6}, "keeps its entropy"),
}


@pytest.mark.slow
@pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS.keys())
def test_broken_twins_do_not(twin, monkeypatch):
    name, function, options, symptom = twin
    without_direct(monkeypatch)
    if name is not None:
        monkeypatch.setattr(soft_steps, name, function)
    found = learn_to_answer(config=dataclasses.replace(LEARNER, **options))
    assert not verdict(found, -1.0)[symptom], found
