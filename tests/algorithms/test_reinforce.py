"""REINFORCE: one update against loops in float64, and a task that only the right returns of the right steps solve."""

import copy
import dataclasses

import pytest
import torch
from policy_gradient_cases import (
    CHOICE,
    FORCES,
    SMALL,
    gradients_of,
    make_policy,
    make_runner,
    patience,
    rollout_of,
    stays,
)
from torch.testing import assert_close

from gaitway.agents.actor_critic import MemoryConfig
from gaitway.algorithms import reinforce
from gaitway.algorithms.algorithm import Now
from gaitway.algorithms.reinforce import Reinforce, ReinforceConfig, in_whole_episodes
from gaitway.envs.registry import make_env

CONFIG = ReinforceConfig(rollout_steps=12, learning_rate=1e-2, schedule="constant", gamma=0.9, entropy_coef=0.02)


def column(*rows):
    return torch.tensor(rows).unsqueeze(1)


def test_rows_behind_the_last_end_do_not_count():
    done = torch.tensor([[0, 0, 1], [1, 0, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]]).bool()
    expected = torch.tensor([[1, 0, 1], [1, 0, 0], [1, 0, 0], [1, 0, 0], [0, 0, 0]]).bool()
    assert torch.equal(in_whole_episodes(done), expected)


# --- One update, recomputed ------------------------------------------------------------------------------------------


def plain_gradients(policy, ws, config):
    """The gradient of the textbook's loss: episodes one by one, in float64, by autograd."""
    policy = copy.deepcopy(policy).double()
    done, reward = ws["env/done"], ws["env/reward"].double()
    policy_loss, value_loss, entropy_loss, counted = [], [], [], []
    for b in range(ws.B):
        ends = done[:, b].nonzero().flatten().tolist()
        for first, end in zip([0, *(end + 1 for end in ends)], ends, strict=False):
            for t in range(first, end + 1):
                if "env/valid" in ws and not ws["env/valid"][t, b]:
                    continue
                earned = sum(config.gamma ** (k - t) * reward[k, b] for k in range(t, end + 1))
                obs = ws["env/obs/policy"][t, b].double()
                value = policy.critic.network(obs)[0]
                params = policy.head(policy.actor.network(obs))
                counted.append(earned - value.detach() if config.baseline else earned)
                policy_loss.append(policy.head.log_prob(params, ws["action"][t, b]))
                value_loss.append((earned - value).square())
                entropy_loss.append(policy.head.entropy(params))
    advantage = torch.stack(counted)
    if config.normalise_advantage:
        advantage = (advantage - advantage.mean()) / advantage.std()
    n = len(counted)
    total = -(torch.stack(policy_loss) * advantage).sum() / n - config.entropy_coef * sum(entropy_loss) / n
    if config.baseline:
        total = total + config.value_coef * sum(value_loss) / n
    gradients = torch.autograd.grad(total, list(policy.parameters()), materialize_grads=True)
    return dict(zip(dict(policy.named_parameters()), (g.float() for g in gradients), strict=True)), total.item()


@pytest.mark.parametrize("baseline", [True, False])
@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("valid", [False, True])
@pytest.mark.parametrize("action", [CHOICE, FORCES], ids=["discrete", "continuous"])
def test_one_update_is_that_of_the_textbook(baseline, normalise, valid, action):
    config = dataclasses.replace(CONFIG, baseline=baseline, normalise_advantage=normalise)
    policy = make_policy(action)
    ws = rollout_of(policy, valid=valid)
    assert not bool(in_whole_episodes(ws["env/done"]).all())  # something is left out
    expected, total = plain_gradients(policy, ws, config)
    twin = copy.deepcopy(policy)
    algorithm = Reinforce(policy, config, num_envs=ws.B)
    metrics = algorithm.update(ws, Now())
    found = gradients_of(algorithm)
    for name, gradient in expected.items():
        assert_close(found[name], gradient, atol=2e-6, rtol=1e-4, msg=name)
    assert metrics["loss/total"].item() == pytest.approx(total, abs=1e-5)

    optimiser = torch.optim.Adam(twin.parameters(), lr=1e-2, eps=config.adam_eps)
    for name, parameter in twin.named_parameters():
        parameter.grad = found[name]
    optimiser.step()
    for (name, parameter), moved in zip(twin.named_parameters(), policy.parameters(), strict=True):
        assert_close(moved, parameter, atol=1e-7, rtol=1e-6, msg=name)


def test_without_a_baseline_the_critic_rests():
    policy = make_policy()
    before = [p.clone() for p in policy.critic.parameters()]
    metrics = Reinforce(policy, dataclasses.replace(CONFIG, baseline=False), num_envs=5).update(
        rollout_of(policy), Now()
    )
    assert all(torch.equal(p, old) for p, old in zip(policy.critic.parameters(), before, strict=True))
    assert "loss/value" not in metrics


# --- Bug 57 ----------------------------------------------------------------------------------------------------------


def by_hand(**changes):
    """Two steps and an end, then one step that nobody finished: gamma 0.5, rewards 1, 4, 8."""
    config = dataclasses.replace(CONFIG, gamma=0.5, normalise_advantage=False, baseline=False, entropy_coef=0.0)
    policy = make_policy()
    ws = rollout_of(policy, steps=3, num_envs=1)
    ws["env/reward"] = column(1.0, 4.0, 8.0)
    ws["env/terminated"], ws["env/truncated"] = column(False, True, False), column(False, False, False)
    for name, value in changes.items():
        ws[name] = value
    algorithm = Reinforce(policy, config, num_envs=1)
    log_prob = policy.head.log_prob(ws["policy/params"], ws["action"]).flatten()
    return algorithm, algorithm.update(ws, Now()), log_prob, ws


def test_bug_57_the_discount_multiplies():
    # G = [1 + 0.5 * 4, 4]; adding the discount would give [1 + 0.5 + 4, 4.5]
    algorithm, metrics, log_prob, ws = by_hand()
    assert torch.equal(algorithm.prepare(ws)["return"][:2], column(3.0, 4.0))
    assert metrics["loss/policy"].item() == pytest.approx(-(3.0 * log_prob[0] + 4.0 * log_prob[1]).item() / 2, rel=1e-5)


def test_bug_57_masked_rows_are_not_counted():
    algorithm, metrics, _, _ = by_hand()
    assert metrics["counted"].item() == pytest.approx(2 / 3)
    other, changed, _, _ = by_hand(
        **{"env/reward": column(1.0, 4.0, -1e6), "action": torch.zeros(3, 1, dtype=torch.int64)}
    )
    _, reference, _, _ = by_hand(action=torch.zeros(3, 1, dtype=torch.int64))
    assert changed["loss/policy"].item() == reference["loss/policy"].item()
    assert all(torch.isfinite(p).all() for a in (algorithm, other) for p in a.flat_parameters())


def test_bug_57_the_loss_is_minimised():
    """A step down makes what earned more than expected more likely."""
    policy = make_policy()
    config = dataclasses.replace(CONFIG, baseline=False, entropy_coef=0.0, learning_rate=1e-3)
    ws = rollout_of(policy, steps=6, num_envs=200)
    ws["env/terminated"] = torch.ones(6, 200, dtype=torch.bool)
    ws["env/truncated"] = torch.zeros(6, 200, dtype=torch.bool)
    ws["env/reward"] = (ws["action"] == 2).float()

    def chance():
        with torch.no_grad():
            return policy.head(policy.actor.network(ws["env/obs/policy"]))[..., 2].exp().mean().item()

    before = chance()
    Reinforce(policy, config, num_envs=200).update(ws, Now())
    assert chance() > before + 1e-4


# --- A task that only the right returns of the right steps solve -----------------------------------------------------


def learnt(env, rollout_steps, updates=60, seed=0, **changes):
    config = ReinforceConfig(rollout_steps=rollout_steps, learning_rate=2e-2, gamma=1.0, **changes)
    runner = make_runner(env, Reinforce, config, seed=seed, total_steps=updates * rollout_steps * env.num_envs)
    runner.learn()
    return stays(runner)


@pytest.mark.parametrize("baseline", [True, False])
def test_staying_pays_two_and_is_learnt(baseline):
    assert learnt(patience(each=0.5), 12, baseline=baseline) > 0.8


def test_returns_that_leak_into_the_episode_before_teach_to_leave(monkeypatch):
    # leaving earns 1 per step, staying 0.5: over the whole rollout leaving is better, over an episode staying
    right = reinforce.discounted_returns
    monkeypatch.setattr(
        reinforce, "discounted_returns", lambda reward, done, gamma: right(reward, torch.zeros_like(done), gamma)
    )
    assert learnt(patience(each=0.5), 12) < 0.2


def test_unfinished_episodes_teach_to_leave_if_they_count(monkeypatch):
    # staying earns 1.5 at its fourth step; of seven rows the last three open episodes that stay unpaid
    assert learnt(patience(last=1.5), 7) > 0.8
    monkeypatch.setattr(reinforce, "in_whole_episodes", torch.ones_like)
    assert learnt(patience(last=1.5), 7) < 0.2


def test_a_flipped_sign_teaches_to_leave(monkeypatch):
    right = reinforce.EpisodeLoss.__call__

    def flipped(self, batch, now):
        loss, statistics = right(self, batch, now)
        return -loss, statistics

    monkeypatch.setattr(reinforce.EpisodeLoss, "__call__", flipped)
    assert learnt(patience(each=0.5), 12) < 0.2


def test_every_rollout_begins_with_new_episodes():
    env = make_env("toy/constant", num_envs=3, seed=0)  # episodes of ten steps
    runner = make_runner(env, Reinforce, ReinforceConfig(rollout_steps=14))
    for _ in range(3):
        metrics = runner.learn(14 * 3)
        assert runner.rollout["env/done"][:, 0].nonzero().flatten().tolist() == [9]
    assert metrics["steps"] == 3 * 14 * 3
    # gamma 0.99: of a reward of 1 for ten steps, however many rows follow
    returns = runner.algorithm.prepare(runner.rollout)["return"]
    assert returns[0, 0].item() == pytest.approx(sum(0.99**k for k in range(10)), rel=1e-5)
    assert returns[9, 0].item() == 1.0


def test_memory_begins_empty_in_every_rollout():
    env = make_env("toy/cue", num_envs=4, seed=0, K=3)
    agent = dataclasses.replace(SMALL, memory=MemoryConfig("gru", 8))
    runner = make_runner(env, Reinforce, ReinforceConfig(rollout_steps=6), agent)
    for _ in range(2):
        runner.learn(6 * 4)
        assert torch.count_nonzero(runner.rollout["actor/memory"][0]) == 0
        assert torch.count_nonzero(runner.rollout["actor/memory"][1]) > 0


# --- Refusals --------------------------------------------------------------------------------------------------------


def test_rollouts_shorter_than_an_episode_are_refused():
    env = make_env("toy/cartpole", num_envs=2, seed=0)
    with pytest.raises(ValueError, match=r"rollout_steps is 100.*use algorithm.rollout_steps=500"):
        make_runner(env, Reinforce, ReinforceConfig(rollout_steps=100))


def test_a_rollout_without_an_end_is_refused():
    policy = make_policy()
    ws = rollout_of(policy)
    ws["env/terminated"] = ws["env/truncated"] = torch.zeros(12, 5, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"no episode ended within the 12 steps.*time limit"):
        Reinforce(policy, CONFIG, num_envs=5).update(ws, Now())


def test_rewards_of_sources_are_what_is_learnt_from():
    policy = make_policy()
    ws = rollout_of(policy)
    algorithm = Reinforce(policy, CONFIG, num_envs=5)
    plain = algorithm.prepare(ws)["return"]
    ws["reward/total"] = 2.0 * ws["env/reward"]
    assert_close(algorithm.prepare(ws)["return"], 2.0 * plain)
