"""T-GROUPS: rewards that are valued apart, each critic and its advantages against float64, beside broken twins."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gaitway.agents.actor_critic import ActorCritic, ActorCriticConfig, MemoryConfig
from gaitway.algorithms.algorithm import Now
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.algorithms.reward_streams import RewardGroup
from gaitway.core.seeding import stream
from gaitway.envs.registry import make_env
from gaitway.rewards.source import TaskReward
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.runner_config import RunnerConfig

GROUPS = (
    RewardGroup("lean", ("lean",), weight=0.5, gamma=0.8, lam=0.7),
    RewardGroup("lasting", ("place", "speed"), weight=-2.0, gamma=0.9, lam=0.6, episodic=False),
)


class Column:
    """A reward source: one column of what was seen."""

    when = "collected"
    reads = ("env/obs/policy",)

    def __init__(self, name, column, weight=1.0):
        self.name, self.column, self.weight = name, column, weight

    def annotate(self, ws):
        ws[f"reward/{self.name}"] = ws["env/obs/policy"][: ws.T, :, self.column] * 10

    def update(self, ws, now):
        return {}

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def sources():
    return [TaskReward(0.5), Column("place", 0, 3.0), Column("speed", 1), Column("lean", 2, 2.0)]


def make_runner(memory="none", groups=GROUPS, **changes):
    env = make_env("toy/cartpole", num_envs=6, seed=1, max_episode_steps=17)
    agent = ActorCriticConfig(init="default", critics=1 + len(groups), memory=MemoryConfig(memory, size=8))
    config = PPOConfig(**{"rollout_steps": 40, "minibatches": 2, "normalise_advantage": "none"} | changes)
    config = PPOConfig(**{**config.__dict__, "reward_groups": groups})
    policy = ActorCritic(env.spec, agent, stream(0, "parameters"))
    algorithm = PPO(policy, config, num_envs=6)
    return OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=10**9), rewards=sources())


def prepared(runner, rollouts=1):
    for _ in range(rollouts):
        runner._collect()
        runner.iteration += 1
        runner._annotate(Now())
        fields = runner.algorithm.prepare(runner.rollout)
    return fields


def by_hand(runner, critic, gamma, lam, reward, episodic=True):
    """Advantages [T, B] of one stream in float64, a loop over rows and environments."""
    ws, policy = runner.rollout, runner.policy
    with torch.no_grad():
        seen = policy.normalised({"policy": ws["env/obs/policy"]})["policy"]
        value = policy.critic.network.networks[critic](seen)[..., 0].double().numpy()
        final = policy.normalised({"policy": ws["env/final_obs/policy"]})["policy"]
        at_end = policy.critic.network.networks[critic](final)[..., 0].double().numpy()
    terminated, truncated = ws["env/terminated"].numpy(), ws["env/truncated"].numpy()
    advantage, carry = np.zeros(reward.shape), np.zeros(reward.shape[1])
    for t in reversed(range(len(reward))):
        for b in range(reward.shape[1]):
            following, going_on = value[t + 1, b], 1.0
            if episodic and truncated[t, b]:
                following = at_end[t, b]
            if episodic and terminated[t, b]:
                following = 0.0
            if episodic and (terminated[t, b] or truncated[t, b]):
                going_on = 0.0
            delta = reward[t, b] + gamma * following - value[t, b]
            carry[b] = delta + gamma * lam * going_on * carry[b]
        advantage[t] = carry
    return advantage, advantage + value[:-1]


def expected(runner):
    ws = runner.rollout
    obs = ws["env/obs/policy"][:-1].double().numpy() * 10
    main, main_return = by_hand(runner, 0, 0.99, 0.95, 0.5 * ws["env/reward"].double().numpy())
    lean, lean_return = by_hand(runner, 1, 0.8, 0.7, 2.0 * obs[..., 2])
    lasting, lasting_return = by_hand(runner, 2, 0.9, 0.6, 3.0 * obs[..., 0] + obs[..., 1], episodic=False)
    returns = np.stack((main_return, lean_return, lasting_return), -1)
    return main + 0.5 * lean - 2.0 * lasting, returns


def test_each_critic_has_its_own_discount_trace_and_ends():
    runner = make_runner()
    fields = prepared(runner)
    assert bool(runner.rollout["env/terminated"].any())
    assert bool(runner.rollout["env/truncated"].any())
    advantage, returns = expected(runner)
    assert_close(fields["advantage"].double(), torch.from_numpy(advantage), atol=1e-4, rtol=1e-5)
    assert_close(fields["return"].double(), torch.from_numpy(returns), atol=1e-4, rtol=1e-5)
    assert fields["value"].shape == (40, 6, 3)


@pytest.mark.parametrize("broken", ["gamma", "lam", "weight", "episodic"])
def test_broken_twins_are_seen(broken):
    wrong = {"gamma": 0.99, "lam": 0.95, "weight": 1.0, "episodic": True}[broken]
    twin = make_runner(groups=(GROUPS[0], RewardGroup(**{**GROUPS[1].__dict__, broken: wrong})))
    fields = prepared(twin)
    assert np.abs(fields["advantage"].numpy() - expected(twin)[0]).max() > 0.1


def test_advantages_are_summed_and_then_standardised_once():
    runner = make_runner(normalise_advantage="rollout")
    fields = prepared(runner)
    advantage, _ = expected(runner)
    wanted = (advantage - advantage.mean()) / advantage.std(ddof=1)
    assert_close(fields["advantage"].double(), torch.from_numpy(wanted), atol=1e-4, rtol=1e-4)


def test_the_value_loss_is_the_sum_and_each_critic_learns_from_its_own_stream():
    runner = make_runner()
    fields = prepared(runner)
    policy, terms = runner.policy, runner.algorithm.terms
    terms.begin(Now())
    batch = {name: field.flatten(0, 1) for name, field in fields.items()}
    _, statistics = terms.loss(batch)
    errors = (policy.evaluate(batch)[1] - batch["return"]).square().mean(0)
    assert_close(statistics["loss/value"], errors.sum())
    other = batch | {"return": batch["return"] + torch.tensor([0.0, 5.0, 0.0])}
    found = []
    for each in (batch, other):
        total, _ = terms.loss(each)
        critics = policy.critic.network.networks
        found.append([torch.autograd.grad(total, critics[g].last.weight, retain_graph=True)[0] for g in range(3)])
    changed = [not torch.equal(one, two) for one, two in zip(*found, strict=True)]
    assert changed == [False, True, False]


@pytest.mark.parametrize("option", ["normalise_value", "scale_reward"])
def test_units_are_those_of_each_stream(option):
    runner = make_runner(**{option: True})
    prepared(runner, 3)
    spreads = [
        (each.norm.statistics if option == "normalise_value" else each.scale.statistics).std.item()
        for each in runner.algorithm.streams
    ]
    assert len({round(each, 3) for each in spreads}) == 3


def test_a_memory_learns_with_groups_and_metrics_are_told_apart():
    runner = make_runner("gru")
    runner._collect()
    more = runner._annotate(Now())
    metrics = runner.algorithm.update(runner.rollout, Now())
    assert {"explained_variance", "explained_variance/lean", "explained_variance/lasting"} <= set(metrics)
    assert {"reward/total", "reward/total/main", "reward/total/lean", "reward/total/lasting"} <= set(more)
    parts = sum(runner.rollout[f"reward/total/{name}"] for name in ("main", "lean", "lasting"))
    assert_close(runner.rollout["reward/total"], parts)


def test_critics_and_groups_that_do_not_fit_are_refused():
    env = make_env("toy/cartpole", num_envs=4)
    policy = ActorCritic(env.spec, ActorCriticConfig())
    with pytest.raises(ValueError, match=r"1 critics, but algorithm.reward_groups asks for 2.*set agent.critics"):
        PPO(policy, PPOConfig(reward_groups=GROUPS[:1]), num_envs=4)
    with pytest.raises(ValueError, match="names the source 'lena' \\(did you mean 'lean'"):
        make_runner(groups=(RewardGroup("lean", ("lena",)),))
    with pytest.raises(ValueError, match="leave one out"):
        make_runner(groups=(RewardGroup("all", ("task", "place", "speed", "lean")),))
    with pytest.raises(ValueError, match="'lean' is in two reward groups"):
        PPOConfig(reward_groups=(GROUPS[0], RewardGroup("other", ("lean",))))
    with pytest.raises(ValueError, match="share a name"):
        PPOConfig(reward_groups=(GROUPS[0], RewardGroup("lean", ("place",))))
    with pytest.raises(ValueError, match="'main' are the sources of no group"):
        RewardGroup("main", ("lean",))
    with pytest.raises(ValueError, match="has no sources"):
        RewardGroup("empty", ())
