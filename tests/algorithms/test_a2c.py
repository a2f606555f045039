"""A2C: one update against loops in float64, time limits, memories, and a task that broken twins do not solve."""

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
from gaitway.algorithms import a2c
from gaitway.algorithms.a2c import A2C, A2CConfig
from gaitway.algorithms.algorithm import Now
from gaitway.envs.registry import make_env
from gaitway.envs.wrappers import Wrapper

CONFIG = A2CConfig(
    rollout_steps=12, learning_rate=1e-2, schedule="constant", gamma=0.9, lam=0.8, entropy_coef=0.02, max_grad_norm=None
)
GRU = dataclasses.replace(SMALL, memory=MemoryConfig("gru", 8))
LSTM = dataclasses.replace(SMALL, memory=MemoryConfig("lstm", 8))


# --- One update, recomputed ------------------------------------------------------------------------------------------


def plain_advantages(policy, ws, config):
    """Advantages and values by the definition: every n-step error of every step, weighted, in float64."""

    def value(obs, state):
        output, after = policy.critic(obs.double(), None if state is None else state.double())
        return output.item(), after

    def before(t, b):
        return ws["critic/memory"][t, b : b + 1] if policy.is_recurrent else None

    advantage, values = torch.zeros(ws.T, ws.B).double(), torch.zeros(ws.T, ws.B).double()
    errors = torch.zeros(ws.T, ws.B).double()
    for b in range(ws.B):
        for t in range(ws.T):
            values[t, b], state = value(ws["env/obs/policy"][t, b : b + 1], before(t, b))
            following = 0.0
            if ws["env/truncated"][t, b]:
                following, _ = value(ws["env/final_obs/policy"][t, b : b + 1], state)
            elif not ws["env/terminated"][t, b]:
                following, _ = value(ws["env/obs/policy"][t + 1, b : b + 1], before(t + 1, b))
            errors[t, b] = ws["env/reward"][t, b].double() + config.gamma * following - values[t, b]
        for t in range(ws.T):
            for k in range(t, ws.T):
                advantage[t, b] += (config.gamma * config.lam) ** (k - t) * errors[k, b]
                if ws["env/done"][k, b]:
                    break
    return advantage, values


def plain_gradients(policy, ws, config):
    """The gradient of the textbook's loss, step by step through time, in float64 by autograd."""
    policy = copy.deepcopy(policy).double()
    with torch.no_grad():
        advantage, values = plain_advantages(policy, ws, config)
    target = advantage + values
    valid = ws["env/valid"] if "env/valid" in ws else torch.ones(ws.T, ws.B, dtype=torch.bool)
    if config.normalise_advantage:
        counted = advantage[valid]
        advantage = (advantage - counted.mean()) / counted.std()
    states = {"actor": None, "critic": None}
    if policy.is_recurrent:
        states = {name: ws[f"{name}/memory"][0].double() for name in states}
    log_prob, entropy, error = [], [], []
    for t in range(ws.T):
        obs = ws["env/obs/policy"][t].double()
        output, states["actor"] = policy_step(policy.actor, obs, states["actor"])
        value, states["critic"] = policy_step(policy.critic, obs, states["critic"])
        params = policy.head(output)
        log_prob.append(policy.head.log_prob(params, ws["action"][t]))
        entropy.append(policy.head.entropy(params))
        error.append(target[t] - value.squeeze(-1))
        if policy.is_recurrent:
            keep = (~(ws["env/done"][t] | ~valid[t])).unsqueeze(-1)
            states = {name: state * keep for name, state in states.items()}
    n = valid.sum()
    total = -(torch.stack(log_prob) * advantage)[valid].sum() / n
    total = total + config.value_coef * torch.stack(error)[valid].square().sum() / n
    total = total - config.entropy_coef * torch.stack(entropy)[valid].sum() / n
    gradients = torch.autograd.grad(total, list(policy.parameters()), materialize_grads=True)
    return dict(zip(dict(policy.named_parameters()), (g.float() for g in gradients), strict=True)), total.item()


def policy_step(branch, x, state):
    if branch.memory is not None:
        x, state = branch.memory.step(x, state)
    return branch.network(x), state


@pytest.mark.parametrize("agent", [SMALL, GRU, LSTM], ids=["plain", "gru", "lstm"])
@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("valid", [False, True])
@pytest.mark.parametrize("action", [CHOICE, FORCES], ids=["discrete", "continuous"])
def test_one_update_is_that_of_the_textbook(agent, normalise, valid, action):
    config = dataclasses.replace(CONFIG, normalise_advantage=normalise)
    policy = make_policy(action, agent)
    ws = rollout_of(policy, valid=valid)
    assert bool(ws["env/terminated"].any())
    assert bool(ws["env/truncated"].any())
    expected, total = plain_gradients(policy, ws, config)
    twin = copy.deepcopy(policy)
    algorithm = A2C(policy, config, num_envs=ws.B)
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


def test_with_lam_one_the_targets_are_n_step_returns():
    policy = make_policy()
    ws = rollout_of(policy, steps=4, num_envs=1)
    ws["env/reward"] = torch.tensor([[1.0], [2.0], [4.0], [8.0]])
    ws["env/terminated"] = torch.tensor([[False], [True], [False], [False]])
    ws["env/truncated"] = torch.zeros(4, 1, dtype=torch.bool)
    algorithm = A2C(policy, dataclasses.replace(CONFIG, lam=1.0, gamma=0.5), num_envs=1)
    with torch.no_grad():
        beyond = policy.critic.network(ws["env/obs/policy"][4])[0, 0].item()
        returns = algorithm.prepare(ws)["return"].flatten().tolist()
    assert returns == pytest.approx([2.0, 2.0, 8.0 + 0.25 * beyond, 8.0 + 0.5 * beyond], abs=1e-5)


# --- Bugs 56 and 82 --------------------------------------------------------------------------------------------------


def test_bug_56_advantages_stay_in_their_environment_and_episode():
    policy = make_policy()
    algorithm = A2C(policy, CONFIG, num_envs=5)
    ws = rollout_of(policy)
    with torch.no_grad():
        before = algorithm.prepare(ws)["advantage"]
        row, column = ws["env/done"].nonzero()[-1].tolist()
        reward = ws["env/reward"].clone()
        reward[row + 1 :, column] += 100.0  # after the end
        reward[:, (column + 1) % 5] += 100.0  # next door
        ws["env/reward"] = reward
        after = algorithm.prepare(ws)["advantage"]
    untouched = [b for b in range(5) if b not in (column, (column + 1) % 5)]
    assert torch.equal(before[:, untouched], after[:, untouched])
    assert torch.equal(before[: row + 1, column], after[: row + 1, column])
    assert (after[:, (column + 1) % 5] - before[:, (column + 1) % 5]).min() > 50


def test_bug_82_the_critic_learns_the_return_not_the_advantage():
    policy = make_policy()
    algorithm = A2C(policy, CONFIG, num_envs=5)
    ws = rollout_of(policy)
    with torch.no_grad():
        advantage = algorithm.prepare(ws)["advantage"]
        value, _ = policy.values(ws)
    metrics = algorithm.update(ws, Now())
    assert metrics["loss/value"].item() == pytest.approx(advantage.square().mean().item(), rel=1e-5)  # (A + V - V)^2
    assert abs(metrics["loss/value"].item() - (advantage - value).square().mean().item()) > 1e-3


def test_bug_82_rows_without_a_step_have_no_entropy():
    policy = make_policy()
    ws = rollout_of(policy, valid=True)
    valid = ws["env/valid"]
    assert not bool(valid.all())
    entropy = policy.head.entropy(ws["policy/params"])
    metrics = A2C(policy, CONFIG, num_envs=5).update(ws, Now())
    assert metrics["loss/entropy"].item() == pytest.approx(-entropy[valid].mean().item(), rel=1e-5)
    assert abs(metrics["loss/entropy"].item() + entropy.mean().item()) > 1e-6


# --- Time limits -----------------------------------------------------------------------------------------------------


class TimeOutsWithheld(Wrapper):
    """A broken twin: calls every time-out a termination."""

    def step(self, action):
        step = super().step(action)
        return dataclasses.replace(
            step, terminated=step.terminated | step.truncated, truncated=torch.zeros_like(step.truncated)
        )


def learnt_value(env):
    config = A2CConfig(rollout_steps=10, gamma=0.9, learning_rate=0.1, max_grad_norm=None)
    agent = dataclasses.replace(SMALL, actor_hidden=(), critic_hidden=())
    runner = make_runner(env, A2C, config, agent, total_steps=10 * 2 * 250)
    runner.learn()
    value, _ = runner.policy.values(runner.rollout)
    return value.mean().item()


def test_a_time_limit_is_not_an_end():
    # reward 1 for ever: V = 1 / (1 - 0.9) = 10
    assert learnt_value(make_env("toy/constant", num_envs=2, seed=0)) == pytest.approx(10.0, abs=0.2)


def test_withheld_time_outs_give_the_wrong_value():
    # the mean of (1 - 0.9^k) / (1 - 0.9) over the k = 10, ..., 1 steps that are left
    env = TimeOutsWithheld(make_env("toy/constant", num_envs=2, seed=0))
    assert learnt_value(env) == pytest.approx(4.14, abs=0.2)


# --- A task that broken twins do not solve ---------------------------------------------------------------------------


def learnt(seed=0, agent=SMALL):
    """Staying earns 0.5 for four steps, leaving 1 at once: right within an episode, wrong per step."""
    config = A2CConfig(rollout_steps=6, learning_rate=1e-2, gamma=1.0)
    env = patience(each=0.5)
    runner = make_runner(env, A2C, config, agent, seed=seed, total_steps=100 * 6 * env.num_envs)
    runner.learn()
    return stays(runner)


def test_staying_pays_two_and_is_learnt():
    assert learnt() > 0.8


def test_advantages_that_leak_into_the_episode_before_teach_to_leave(monkeypatch):
    right = a2c.gae

    def leaking(terminated, done, **fields):
        never = torch.zeros_like(done)
        return right(terminated=never, done=never, **fields)

    monkeypatch.setattr(a2c, "gae", leaking)
    assert learnt() < 0.2


def test_a_flipped_sign_teaches_to_leave(monkeypatch):
    right = a2c.PolicyLoss.__call__

    def flipped(self, batch, now):
        loss, statistics = right(self, batch, now)
        return -loss, statistics

    monkeypatch.setattr(a2c.PolicyLoss, "__call__", flipped)
    assert learnt() < 0.2


# --- Memory ----------------------------------------------------------------------------------------------------------


def cue_return(agent, updates):
    env = make_env("toy/cue", num_envs=32, seed=0, K=2)
    config = A2CConfig(rollout_steps=9, learning_rate=1e-2, gamma=1.0)
    runner = make_runner(env, A2C, config, agent, total_steps=updates * 9 * 32)
    runner.learn()
    test = make_env("toy/cue", num_envs=64, seed=100, K=2, purpose="evaluation")
    act, obs, total = runner.inference_policy(), test.reset(seed=100), 0.0
    for _ in range(3):
        step = test.step(act(obs))
        total, obs = total + step.reward.mean().item(), step.obs
    return total


@pytest.mark.slow
def test_memory_solves_the_cue_and_nothing_else_does():
    agent = dataclasses.replace(SMALL, memory=MemoryConfig("gru", 16))
    assert cue_return(agent, 250) >= -0.3
    assert cue_return(SMALL, 250) <= -0.9  # the best memoryless answer is 0, which costs 1
