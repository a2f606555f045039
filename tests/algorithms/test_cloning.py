"""Behaviour cloning: losses and gradients against float64, what is learnt, and a twin shown the wrong actions."""

import dataclasses

import numpy as np
import pytest
import torch

from gaitway.agents.actor_critic import ActorCritic
from gaitway.agents.actor_critic_config import ActorCriticConfig, DistributionConfig
from gaitway.agents.branch import MemoryConfig
from gaitway.algorithms.algorithm import Now
from gaitway.algorithms.cloning import BehaviourCloning, CloningConfig
from gaitway.core.seeding import stream
from gaitway.data.episodes import Episodes
from gaitway.data.mixing import dataset_replay
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup

LEGS = ActionSpec("continuous", ("hip", "knee"), (-1.0, 0.0), (1.0, 4.0))
CHOICE = ActionSpec("discrete", ("push",), choices=(3,), start=(2,))
SWITCHES = ActionSpec("multi_discrete", ("left", "right"), choices=(2, 3))
STEPS = 64


def make(action=LEGS, kind="auto", seed=0, agent=None, **changes):
    group = ObservationGroup("policy", (Component("x", 3),), (3,))
    spec = EnvSpec("test", (group,), action, control_dt=0.02, max_episode_steps=0)
    networks = ActorCriticConfig(
        actor_hidden=(12,), critic_hidden=(5,), distribution=DistributionConfig(kind), normalise_observations=False
    )
    policy = ActorCritic(spec, dataclasses.replace(networks, **(agent or {})), stream(seed, "parameters"))
    config = CloningConfig(**{"batch_size": 16, "updates_per_program": 4, "learning_rate": 1e-2} | changes)
    return BehaviourCloning(policy, config, seed=seed)


def steps(action, rule, shuffled=False):
    """One episode in which `rule` decided, from observations to actions; `shuffled` gives steps each other's."""
    generator = torch.Generator().manual_seed(1)
    obs = torch.randn(STEPS + 1, 3, generator=generator)
    done = rule(obs[:-1]).to(action.dtype)
    if shuffled:
        done = done[torch.randperm(STEPS, generator=generator)]
    flags = torch.zeros(STEPS, dtype=torch.bool)
    rewards = torch.zeros(STEPS)
    variables = {"env/obs/policy": obs, "action": done, "env/reward": rewards, "env/terminated": flags}
    return Episodes(variables | {"env/truncated": flags.clone()}, (STEPS,))


def filled(algorithm, episodes, seed=0):
    arguments = algorithm.replay_arguments()
    return dataset_replay(episodes, groups=arguments["groups"], action=arguments["action"], seed=seed)


def push(obs):
    return 2 + (obs[:, 0] > 0).long() + (obs[:, 1] > 0).long()


def switch(obs):
    return torch.stack(((obs[:, 0] > 0).long(), (obs[:, 1] > 0).long() + (obs[:, 2] > 0).long()), -1)


def move(obs):
    return torch.stack((0.8 * obs[:, 0].tanh(), 2 + 1.5 * obs[:, 1].tanh()), -1)


CASES = {
    "gaussian": (LEGS, "auto", move),
    "squashed": (LEGS, "squashed_gaussian", move),
    "categorical": (CHOICE, "auto", push),
    "multi_categorical": (SWITCHES, "auto", switch),
}


def by_hand(case, output, action):
    """Minus the mean log-likelihood in float64, from the network's output; deviations are 1 in units of half the
    range at the start."""
    if case == "categorical":
        log_prob = output - np.log(np.exp(output).sum(-1, keepdims=True))
        return -log_prob[np.arange(len(action)), action - 2].mean()
    if case == "multi_categorical":
        parts = [output[:, :2], output[:, 2:]]
        each = [part - np.log(np.exp(part).sum(-1, keepdims=True)) for part in parts]
        rows = np.arange(len(action))
        return -(each[0][rows, action[:, 0]] + each[1][rows, action[:, 1]]).mean()
    centre, half = np.array([0.0, 2.0]), np.array([1.0, 2.0])
    unit = (action - centre) / half
    value = np.arctanh(unit) if case == "squashed" else unit
    density = -0.5 * (value - output) ** 2 - 0.5 * np.log(2 * np.pi) - np.log(half)
    if case == "squashed":
        density -= np.log(1 - unit**2)
    return -density.sum(-1).mean()


@pytest.mark.parametrize("case", CASES)
def test_the_loss_is_minus_the_mean_log_likelihood(case):
    action, kind, rule = CASES[case]
    algorithm = make(action, kind)
    batch = {"actor": (fields := steps(action, rule).transitions())["obs/policy"], "action": fields["action"]}
    loss, statistics = algorithm._loss(batch)
    output, _ = algorithm.policy.actor(batch["actor"], None)
    expected = by_hand(case, output.detach().double().numpy(), batch["action"].double().numpy().astype(
        np.float64 if action.kind == "continuous" else np.int64
    ))  # fmt: skip
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert statistics["loss/actor"].item() == loss.item()


def test_the_gradient_of_a_choice_is_probability_minus_what_was_done():
    # for a softmax the derivative of the loss by the last bias is mean(p - onehot(a))
    algorithm = make(CHOICE)
    fields = steps(CHOICE, push).transitions()
    loss, _ = algorithm._loss({"actor": fields["obs/policy"], "action": fields["action"]})
    engine = algorithm.engines["actor"]
    engine.parameters.differentiate(loss)
    output, _ = algorithm.policy.actor(fields["obs/policy"], None)
    expected = (output.softmax(-1) - torch.eye(3)[fields["action"] - 2]).mean(0)
    torch.testing.assert_close(algorithm.policy.actor.network.last.bias.grad, expected.detach())


def test_accuracy_and_squared_error_by_hand():
    algorithm = make(CHOICE)
    with torch.no_grad():
        algorithm.policy.actor.network.last.weight.zero_()
        algorithm.policy.actor.network.last.bias.copy_(torch.tensor([0.0, 2.0, 1.0]))  # always action 3
    statistics = algorithm._loss({"actor": torch.zeros(4, 3), "action": torch.tensor([3, 2, 3, 4])})[1]
    assert float(statistics["accuracy"]) == 0.5
    assert "squared_error" not in statistics

    switches = make(SWITCHES)
    with torch.no_grad():
        switches.policy.actor.network.last.weight.zero_()
        switches.policy.actor.network.last.bias.copy_(torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0]))  # always (0, 2)
    done = torch.tensor([[0, 2], [0, 1], [1, 2], [1, 0]])
    assert float(switches._loss({"actor": torch.zeros(4, 3), "action": done})[1]["accuracy"]) == 0.5  # of 8 decisions

    legs = make(LEGS)
    with torch.no_grad():
        legs.policy.actor.network.last.weight.zero_()
        legs.policy.actor.network.last.bias.copy_(torch.tensor([0.5, 0.5]))  # 0 + 1 * 0.5 and 2 + 2 * 0.5
    done = torch.tensor([[0.5, 3.0], [1.5, 1.0]])
    statistics = legs._loss({"actor": torch.zeros(2, 3), "action": done})[1]
    assert float(statistics["squared_error"]) == pytest.approx((0 + 0 + 1 + 4) / 4)


@pytest.mark.parametrize("case", CASES)
def test_it_learns_what_was_done_and_a_twin_with_shuffled_actions_does_not(case):
    action, kind, rule = CASES[case]
    found = {}
    for shuffled in (False, True):
        algorithm = make(action, kind)
        replay = filled(algorithm, steps(action, rule, shuffled))
        algorithm.update(replay, 400, Now())
        fields = steps(action, rule).transitions()  # judged by the truth, in both cases
        found[shuffled] = algorithm._loss({"actor": fields["obs/policy"], "action": fields["action"]})[1]
    if action.kind == "continuous":
        assert found[False]["squared_error"] < 0.02
        assert found[True]["squared_error"] > 0.2
    else:
        assert found[False]["accuracy"] > 0.95
        assert found[True]["accuracy"] < 0.8


def test_the_deviation_becomes_that_of_the_data():
    # actions are noise around 0.2 and 2.6, the same everywhere: the best Gaussian has that mean and that deviation
    generator = torch.Generator().manual_seed(3)
    noise = torch.randn(STEPS, 2, generator=generator)
    noise = (noise - noise.mean(0)) / noise.std(0, correction=0)
    wanted = torch.tensor([0.1, 0.4])
    algorithm = make(LEGS, agent={"actor_hidden": ()}, batch_size=64)
    with torch.no_grad():
        algorithm.policy.actor.network.last.weight.zero_()
    replay = filled(algorithm, steps(LEGS, lambda obs: torch.tensor([0.2, 2.6]) + wanted * noise))
    algorithm.update(replay, 1500, Now())
    output, _ = algorithm.policy.actor(torch.zeros(1, 3), None)
    params = algorithm.policy.head(output)
    torch.testing.assert_close(params[0, :2], torch.tensor([0.2, 2.6]), atol=0.1, rtol=0)
    torch.testing.assert_close(params[0, 2:], wanted, atol=0.06, rtol=0)


def test_the_critic_stays_as_it_is_and_updates_can_be_grouped_and_stored():
    reference, parts, resumed = (make(CHOICE) for _ in range(3))
    before = [parameter.clone() for parameter in reference.policy.critic.parameters()]
    replays = [filled(reference, steps(CHOICE, push)) for _ in range(3)]
    reference.update(replays[0], 24, Now())
    for count in (1, 6, 9, 8):
        parts.update(replays[1], count, Now())
    resumed.update(replays[2], 11, Now())
    state, draws = resumed.state_dict(), replays[2].generator.get_state()
    again, replay = make(CHOICE, seed=5), filled(reference, steps(CHOICE, push))
    again.load_state_dict(state)
    replay.generator.set_state(draws)
    again.update(replay, 13, Now())
    for other in (parts, again):
        assert torch.equal(torch.cat(other.flat_parameters()), torch.cat(reference.flat_parameters()))
    for old, new in zip(before, reference.policy.critic.parameters(), strict=True):
        assert torch.equal(old, new)
    metrics = reference.metrics()
    assert set(metrics) == {"loss/actor", "entropy", "accuracy", "gradient_norm/actor"}
    assert reference.metrics() == {}


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"single steps, which teach no memory; use agent\.memory\.kind=none"):
        make(agent={"memory": MemoryConfig("gru", 4)})
    with pytest.raises(ValueError, match="learning_rate is 0; use a number > 0"):
        CloningConfig(learning_rate=0)
