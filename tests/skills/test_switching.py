"""The switching ensemble: members learn as if they were alone, and take turns as they should."""

from dataclasses import replace

import pytest
import torch

from gaitway.agents.switching_policy import SwitchingPolicy, SwitchingPolicyConfig
from gaitway.core.seeding import stream
from gaitway.envs.registry import make_env
from gaitway.envs.spec import Component, ObservationGroup
from gaitway.skills.switching import SwitchingConfig, SwitchingEnsemble

SMALL = SwitchingPolicyConfig(members=3, actor_hidden=(16, 16), critic_hidden=(16, 16))
LEARNER = SwitchingConfig(batch_size=12, replay_size=200, actor_learning_rate=1e-2, critic_learning_rate=1e-2)


def made(members=3, **options):
    spec = make_env("toy/pendulum").spec
    policy = SwitchingPolicy(spec, replace(SMALL, members=members, **options), stream(0, "parameters"))
    return SwitchingEnsemble(policy, replace(LEARNER, batch_size=4 * members), num_envs=4)


def drawn(rows, seed=0):
    """Made-up transitions as a replay gives them."""
    generator = stream(seed, "rows")

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    ends = torch.rand(rows, generator=generator) < 0.3
    batch = {"action": normal(rows, 1).clamp(-2, 2), "reward": normal(rows), "discount": torch.where(ends, 0.0, 0.99)}
    for name in ("actor", "critic", "next/actor", "next/critic"):
        batch[name] = normal(rows, 3)
    return batch


def learn(algorithm, batch, noise):
    algorithm.transitions = lambda index: dict(batch)
    algorithm.learn(torch.zeros(0, dtype=torch.int64), {"actions": noise}, 0)


def member_state(module, member, members):
    """The parameters of one member: every `members`-th of stacked critics."""
    return {name: value[member::members] for name, value in module.state_dict().items()}


def test_each_member_learns_as_if_it_were_alone():
    together = made()
    with torch.no_grad():  # all critics start at 0, and then no actor would learn
        for parameter in together.policy.critic.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=stream(1, "start")), alpha=0.1)
    alone = []
    for member in range(3):
        single = made(1)
        for name in ("actor", "critic", "target"):
            getattr(single.policy, name).load_state_dict(member_state(getattr(together.policy, name), member, 3))
        alone.append(single)
    for number in range(3):
        batch, noise = drawn(12, number), torch.randn(2, 3, 4, 1, generator=stream(number, "noise"))
        learn(together, batch, noise)
        for member, single in enumerate(alone):
            rows = slice(4 * member, 4 * member + 4)
            learn(single, {name: value[rows] for name, value in batch.items()}, noise[:, member : member + 1])
    for member, single in enumerate(alone):
        for name in ("actor", "critic", "target"):
            for key, value in member_state(getattr(together.policy, name), member, 3).items():
                torch.testing.assert_close(value, getattr(single.policy, name).state_dict()[key], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(together.temperature.log_value[member], single.temperature.log_value[0])
    assert together.temperature.log_value.unique().numel() == 3, "every member has a temperature of its own"


def test_the_losses_by_hand():
    """One member, the formulas of the module in float64."""
    algorithm = made(1)
    policy, batch, noise = algorithm.policy, drawn(4), torch.randn(2, 1, 4, 1, generator=stream(0, "noise"))
    with torch.no_grad():
        for each in (policy.critic, policy.target):
            each.network.last.bias.copy_(torch.tensor([0.3, -0.2]).view(2, 1, 1))
    double = SwitchingPolicy(policy.spec, policy.config).double()
    double.load_state_dict(policy.state_dict())

    def proposal(inputs, noise):
        mean, log_std = double.actor.network(inputs[None].double())[0].chunk(2, -1)
        log_std = log_std.clamp(-5, 2)
        u = mean + log_std.exp() * noise.double()
        density = torch.distributions.Normal(mean, log_std.exp()).log_prob(u) - torch.log(1 - u.tanh() ** 2)
        return u.tanh(), density.sum(-1)

    alpha = 0.1
    action, log_prob = proposal(batch["next/actor"], noise[1, 0])
    following = double.target.network(torch.cat((batch["next/critic"].double(), action), -1).expand(2, -1, -1))
    target = batch["reward"] + batch["discount"] * (following.squeeze(-1).amin(0) - alpha * log_prob)
    unit = batch["action"].double() / 2.0
    values = double.critic.network(torch.cat((batch["critic"].double(), unit), -1).expand(2, -1, -1)).squeeze(-1)
    now, now_log_prob = proposal(batch["actor"], noise[0, 0])
    chosen = double.critic.network(torch.cat((batch["critic"].double(), now), -1).expand(2, -1, -1)).squeeze(-1)
    algorithm.critic_engine.set_learning_rate(0.0)  # so that the actor sees the critics from before
    learn(algorithm, batch, noise)
    algorithm._has_news = True
    found = algorithm.metrics()
    assert found["loss/critic"].item() == pytest.approx((values - target).square().mean(-1).sum().item(), rel=1e-4)
    unexplained = ((values - target).var(-1) / target.var(-1)).mean()
    assert found["residual_variance"].item() == pytest.approx(unexplained.item(), rel=1e-4)
    assert found["loss/actor"].item() == pytest.approx((alpha * now_log_prob - chosen.amin(0)).mean().item(), rel=1e-4)
    assert found["entropy"].item() == pytest.approx(-now_log_prob.mean().item(), rel=1e-4)


def test_residual_variance_is_that_of_each_member_by_itself():
    """Targets of the members are a thousand apart; critics that say the mean of their own explain none of the rest."""
    algorithm, spread = made(2), torch.tensor([1.0, 2.0, 3.0, 4.0])
    target = torch.stack((spread, 1000 + spread))
    algorithm.policy.values = lambda *_: said
    for error, share in ((torch.zeros(4), 0.0), (2.5 - spread, 1.0), (0.5 * (2.5 - spread), 0.25)):
        said = (target + error).expand(2, 2, 4)
        _, found = algorithm._critic_loss({"critic": None, "action": None, "target": target})
        assert found["residual_variance"].item() == pytest.approx(share, abs=1e-5)


def test_members_act_differently_and_evaluations_are_those_of_the_first():
    policy = made(5).policy
    obs = {
        name: torch.randn(1, size, generator=stream(0, "obs")).expand(64, -1) for name, size in (("pos", 2), ("vel", 1))
    }
    members = torch.arange(64) % 5
    state = torch.stack((members + 1.0, torch.ones(64)), -1)
    with torch.inference_mode():
        action, after = policy.act(obs, state, False)
        said = policy.head.action(policy.head.mode(policy.head(policy.actor(torch.cat(list(obs.values()), -1))[:, 0])))
    assert len(action[:5].unique()) == 5
    torch.testing.assert_close(action, said[members])
    assert torch.equal(after[:, 0], state[:, 0])
    assert policy.eval().act(obs, None, True)[1][:, 0].unique().tolist() == [1.0]
    assert policy.train().act(obs, None, False)[1][:, 0].unique().tolist() == [1.0]


def test_members_take_turns_after_the_interval_and_at_the_start_of_episodes():
    policy = made(5, interval=3).policy
    policy.seed(0)
    obs, state, history = {"pos": torch.zeros(400, 2), "vel": torch.zeros(400, 1)}, None, []
    with torch.inference_mode():
        for _ in range(9):
            state = policy.act(obs, state, True)[1]
            history.append(state.clone())
    steps = torch.stack(history)[:, 0, 1].tolist()
    assert steps == [1, 2, 3] * 3
    members = torch.stack(history)[..., 0]
    for start in (0, 3, 6):
        assert (members[start : start + 3] == members[start]).all()
        counts = torch.bincount(members[start].long() - 1, minlength=5)
        assert counts.min() > 50, "drawn uniformly"
    assert 0.6 < (members[0] != members[3]).float().mean() < 0.95
    state = state.clone()
    state[:7] = 0.0
    after = policy.act(obs, state, True)[1]
    assert after[:7, 1].tolist() == [1.0] * 7
    assert (after[7:, 1] == 1).all(), "the third step was the last of its member"


def test_bad_input_is_told_in_a_sentence():
    spec = make_env("toy/pendulum").spec
    with_task = replace(spec, groups=(*spec.groups, ObservationGroup("task", (Component("bits", 3),), (3,))))
    with pytest.raises(
        ValueError, match=r"shows a group 'task'.*use an environment without it, or algorithm=multitask"
    ):
        SwitchingPolicy(with_task)
    with pytest.raises(ValueError, match="toy/cartpole has discrete actions"):
        SwitchingPolicy(make_env("toy/cartpole").spec)
    policy = SwitchingPolicy(spec, SMALL)
    with pytest.raises(ValueError, match=r"batch_size is 10, which 3 members cannot share.*such as 9"):
        SwitchingEnsemble(policy, replace(LEARNER, batch_size=10), num_envs=1)
    with pytest.raises(ValueError, match="stacked networks of one shape"):
        SwitchingPolicy(spec, replace(SMALL, actor_network={"name": "torch.nn:Linear"}))
