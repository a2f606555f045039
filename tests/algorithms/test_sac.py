"""Soft actor-critic: equal to a plain implementation number for number, exact in chunks and through checkpoints."""

import copy
import dataclasses
import itertools
import math

import pytest
import torch
from sac_cases import (
    ASYMMETRIC,
    CHOICE,
    LEGS,
    SMALL,
    filled,
    make,
    parameters,
    steps_of,
    unit_transitions,
    without_direct,
)
from torch import nn
from torch.testing import assert_close

from gaitway.algorithms.algorithm import Now, Schedule
from gaitway.algorithms.direct_soft_steps import DirectSteps
from gaitway.algorithms.sac import SACConfig, target_entropy
from gaitway.algorithms.soft_steps import ContinuousSteps, DiscreteSteps
from gaitway.core.seeding import stream

# --- a plain implementation, as in the paper and in the order of stable-baselines3 -----------------------------------


def plain_network(sizes):
    layers = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def plain_copies(network, members=None):
    """Separate float64 networks with the parameters of one of ours."""
    found = list(network.parameters())
    weights, biases = found[::2], found[1::2]
    made = []
    for member in range(members or 1):
        own = [w[member].T if members else w for w in weights]
        plain = plain_network([own[0].shape[1], *(len(w) for w in own)]).double()
        with torch.no_grad():
            for layer, w, b in zip(plain[::2], own, biases, strict=True):
                layer.weight.copy_(w)
                layer.bias.copy_(b[member, 0] if members else b)
        made.append(plain)
    return made


class PlainSAC:
    def __init__(self, sac):
        policy, config = sac.policy, sac.config
        self.config, self.discrete, self.groups = config, policy.is_discrete, policy.groups
        self.low, self.high = (torch.tensor(limit, dtype=torch.float64) for limit in (LEGS.low, LEGS.high))
        (self.actor,) = plain_copies(policy.actor)
        self.critics = plain_copies(policy.critic, policy.config.critics)
        self.targets = copy.deepcopy(self.critics)
        self.log_alpha = nn.Parameter(torch.tensor(math.log(config.initial_temperature), dtype=torch.float64))
        self.target_entropy = sac.target_entropy
        self.parameters = [p for critic in self.critics for p in critic.parameters()]
        self.actor_optimiser = torch.optim.Adam(self.actor.parameters(), config.actor_learning_rate)
        self.critic_optimiser = torch.optim.Adam(self.parameters, config.critic_learning_rate)
        self.alpha_optimiser = torch.optim.Adam([self.log_alpha], config.temperature_learning_rate)

    def sample(self, inputs, noise):
        if self.discrete:
            log_probs = self.actor(inputs).log_softmax(-1)
            return log_probs, (log_probs.exp() * log_probs).sum(-1)
        mean, log_std = self.actor(inputs).chunk(2, -1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-5.0, 2.0).exp())
        u = normal.mean + normal.stddev * noise
        return u.tanh(), (normal.log_prob(u) - torch.log(1 - u.tanh() ** 2)).sum(-1)

    def value(self, critics, inputs, action):
        if self.discrete:
            return torch.stack([critic(inputs) for critic in critics]).amin(0)
        return torch.stack([critic(torch.cat((inputs, action), -1)).squeeze(-1) for critic in critics]).amin(0)

    def soft_value(self, critics, inputs, proposal, log_prob, alpha):
        value = self.value(critics, inputs, proposal)
        if self.discrete:
            return (proposal.exp() * (value - alpha * proposal)).sum(-1)
        return value - alpha * log_prob

    def step(self, optimiser, loss, parameters):
        gradients = torch.autograd.grad(loss, parameters)
        if self.config.max_grad_norm is not None and len(parameters) > 1:
            norm = torch.cat([g.flatten() for g in gradients]).norm()
            gradients = [g * min(1.0, self.config.max_grad_norm / (norm.item() + 1e-6)) for g in gradients]
        for p, gradient in zip(parameters, gradients, strict=True):
            p.grad = gradient
        optimiser.step()

    def update(self, batch, noise):
        batch, noise = {name: value.double() for name, value in batch.items()}, noise.double()
        actor, critic = (torch.cat([batch[f"obs/{g}"] for g in self.groups[w]], -1) for w in ("actor", "critic"))
        next_actor, next_critic = (
            torch.cat([batch[f"next_obs/{g}"] for g in self.groups[w]], -1) for w in ("actor", "critic")
        )
        proposal, log_prob = self.sample(actor, noise[0])
        alpha = self.log_alpha.detach().exp()
        alpha_loss = -(self.log_alpha * (log_prob + self.target_entropy).detach()).mean()
        self.step(self.alpha_optimiser, alpha_loss, [self.log_alpha])
        with torch.no_grad():
            following, next_log_prob = self.sample(next_actor, noise[1])
            soft = self.soft_value(self.targets, next_critic, following, next_log_prob, alpha)
            target = batch["reward"] + batch["discount"] * soft
        if self.discrete:
            chosen = (batch["action"] - 2).long().unsqueeze(-1)
            values = [c(critic).gather(-1, chosen).squeeze(-1) for c in self.critics]
        else:
            unit = 2 * (batch["action"] - self.low) / (self.high - self.low) - 1
            values = [c(torch.cat((critic, unit), -1)).squeeze(-1) for c in self.critics]
        loss = 0.5 * sum(((value - target) ** 2).mean() for value in values)
        self.step(self.critic_optimiser, loss, self.parameters)
        actor_loss = -self.soft_value(self.critics, critic, proposal, log_prob, alpha).mean()
        self.step(self.actor_optimiser, actor_loss, list(self.actor.parameters()))
        with torch.no_grad():
            for own, target_net in zip(self.critics, self.targets, strict=True):
                for p, t in zip(own.parameters(), target_net.parameters(), strict=True):
                    t += self.config.tau * (p - t)
        return {"loss/critic": loss.item(), "loss/actor": actor_loss.item(), "entropy": -log_prob.mean().item()}


CASES = {
    "continuous": {},
    "one critic, clipped": {"critics": 1, "config": dataclasses.replace(SMALL, max_grad_norm=0.3)},
    "five critics": {"critics": 5},
    "asymmetric": ASYMMETRIC,
    "three steps": {"config": dataclasses.replace(SMALL, n_step=3)},
    "discrete": {"action": CHOICE},
    "discrete, asymmetric": {"action": CHOICE, **ASYMMETRIC},
}


@pytest.mark.parametrize("way", ["direct", "autograd"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_ten_updates_are_those_of_a_plain_implementation(case, way, monkeypatch):
    if way == "autograd":
        without_direct(monkeypatch)
    sac = make(**case)
    general = DiscreteSteps if sac.policy.is_discrete else ContinuousSteps
    assert isinstance(sac.steps, DirectSteps if way == "direct" and not sac.policy.is_discrete else general)
    replay, twin, plain = filled(sac), filled(sac), PlainSAC(sac)
    noise_stream, expected = stream(0, "sac"), []
    shape = sac.draws["actions"].shape if sac.draws else (2, sac.config.batch_size)
    for _ in range(10):
        index = twin.draw((sac.config.batch_size,))
        noise = torch.zeros(shape) if sac.policy.is_discrete else torch.empty(shape).normal_(generator=noise_stream)
        expected.append(plain.update(twin.gather(index), noise))
    sac.update(replay, 10, Now())
    members = sac.policy.config.critics
    pairs = [(sac.policy.actor, [plain.actor], None)]
    pairs += [(sac.policy.critic, plain.critics, members), (sac.policy.target, plain.targets, members)]
    for ours, theirs, count in pairs:
        for own, other in zip(plain_copies(ours, count), theirs, strict=True):
            for p, q in zip(own.parameters(), other.parameters(), strict=True):
                assert_close(p, q, atol=1e-5, rtol=1e-5)
    assert sac.temperature.log_value.item() == pytest.approx(plain.log_alpha.item(), abs=1e-6)
    metrics = sac.metrics()
    for name in expected[0]:
        assert metrics[name].item() == pytest.approx(sum(row[name] for row in expected) / 10, rel=1e-4), name


# --- where values stop and where they go on --------------------------------------------------------------------------


def test_time_limits_bootstrap_from_the_final_observation_and_terminations_do_not():
    sac = make(num_envs=3)
    ws = steps_of(sac, steps=2)
    ws["env/terminated"] = torch.tensor([[True, False, False], [False] * 3])
    ws["env/truncated"] = torch.tensor([[False, True, False], [False] * 3])
    replay = sac.make_replay()
    replay.add(ws)
    index = replay.draw((400,))
    batch = unit_transitions(sac, replay, index)
    noise, alpha = torch.randn(2, 400, 2, generator=stream(0, "noise")), torch.tensor(0.3)
    target, _ = sac.steps.prepare(batch, noise, alpha)
    reward, obs = ws["env/reward"], ws["env/obs/policy"]
    reached = torch.stack((obs[1], obs[2]))
    reached[0, 1] = ws["env/final_obs/policy"][0, 1]
    seen = set()
    with torch.no_grad():
        for row in range(400):
            t, env = next((t, e) for t in range(2) for e in range(3) if torch.equal(batch["actor"][row], obs[t, e]))
            seen.add((t, env))
            action, log_prob = sac.policy.propose(reached[t, env][None], noise[1, row][None])
            value = sac.policy.values(sac.policy.target, reached[t, env][None], action).amin(0) - alpha * log_prob
            expected = reward[t, env] + (0.0 if (t, env) == (0, 0) else 0.99 * value.item())
            assert target[row].item() == pytest.approx(float(expected), abs=1e-5)
    assert len(seen) == 6


# --- exactness -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [LEGS, CHOICE], ids=["continuous", "discrete"])
def test_how_updates_are_grouped_changes_nothing(action):
    results = []
    for together, calls in ((1, [11]), (4, [11]), (4, [1] * 11), (16, [6, 5])):
        sac = make(action, dataclasses.replace(SMALL, updates_per_program=together))
        replay = filled(sac)
        for updates in calls:
            sac.update(replay, updates, Now())
        results.append(parameters(sac))
    assert all(torch.equal(results[0], other) for other in results[1:])


@pytest.mark.parametrize("way", ["direct", "autograd"])
def test_a_checkpoint_goes_on_exactly(way, monkeypatch):
    if way == "autograd":
        without_direct(monkeypatch)
    sac = make(normalise_observations=True)
    sac.policy.update_normalisers(steps_of(sac))
    replay = filled(sac)
    sac.update(replay, 5, Now())
    state, rows = sac.state_dict(), replay.state_dict()
    sac.update(replay, 7, Now())
    twin = make(seed=1, normalise_observations=True)
    again = twin.make_replay()
    again.load_state_dict(rows)
    twin.update(again, 3, Now())  # a life of its own before
    again.load_state_dict(rows)
    twin.load_state_dict(state)
    twin.update(again, 7, Now())
    assert torch.equal(parameters(twin), parameters(sac))
    assert twin.generator.get_state().equal(sac.generator.get_state())


@pytest.mark.parametrize("missing", ["policy", "temperature", "actor", "critic", "noise_stream"])
def test_a_checkpoint_that_lacks_something_is_not_exact(missing):
    sac = make()
    replay = filled(sac)
    sac.update(replay, 5, Now())
    twin = make()
    state, fresh = sac.state_dict(), twin.state_dict()
    if missing in ("actor", "critic"):
        state["engines"] = state["engines"] | {missing: fresh["engines"][missing]}
    else:
        state[missing] = fresh[missing]
    rows = replay.state_dict()
    sac.update(replay, 5, Now())
    again = twin.make_replay()
    again.load_state_dict(rows)
    twin.load_state_dict(state)
    twin.update(again, 5, Now())
    assert not torch.equal(parameters(twin), parameters(sac))


def test_the_same_seed_gives_the_same_numbers_and_another_does_not():
    found = []
    for seed, noise_seed in ((0, 0), (0, 0), (0, 1)):
        sac = make(seed=seed)
        sac.generator = stream(noise_seed, "sac")
        sac.update(filled(sac), 3, Now())
        found.append(parameters(sac))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_another_replay_or_a_moved_one_is_noticed():
    sac = make()
    first, second = filled(sac), filled(sac, seed=1)
    sac.update(first, 2, Now())
    batch = sac._batch
    sac.update(first, 2, Now())
    assert sac._batch is batch
    sac.update(second, 2, Now())
    assert sac._batch is not batch
    with pytest.raises(ValueError, match="no whole transition"):
        sac.update(sac.make_replay(), 1, Now())


def test_metrics_are_means_since_the_last_call():
    sac = make()
    replay = filled(sac)
    assert sac.metrics() == {}
    sac.update(replay, 3, Now())
    metrics = sac.metrics()
    assert set(metrics) == {
        "loss/critic", "loss/actor", "q_mean", "entropy", "temperature", "gradient_norm/actor", "gradient_norm/critic",
    }  # fmt: skip
    assert metrics["temperature"].item() == pytest.approx(1.0, abs=2e-3)  # three steps of 3e-4 from where it starts
    assert sac.metrics() == {}
    sac.update(replay, 1, Now())
    assert metrics["loss/critic"] != sac.metrics()["loss/critic"]


@pytest.mark.parametrize("way", ["direct", "autograd"])
def test_rates_that_fall_are_those_of_each_update(way, monkeypatch):
    """What two updates at 2e-3 and two at 1e-3 make is what a schedule makes that says so."""
    if way == "autograd":
        without_direct(monkeypatch)
    rates = {"actor_learning_rate": 2e-3, "critic_learning_rate": 2e-3}
    falling = {name: Schedule(2e-3, 1e-3, 100, "linear", "steps") for name in rates}
    one, other = make(config=dataclasses.replace(SMALL, **falling)), make(config=dataclasses.replace(SMALL, **rates))
    here, there = filled(one), filled(other)
    for steps in (0, 100):
        one.update(here, 2, Now(env_steps=steps))
    other.update(there, 2, Now())
    for name in ("actor", "critic"):
        other.engines[name].set_learning_rate(1e-3)
    other.update(there, 2, Now())
    assert torch.equal(parameters(one), parameters(other))
    constant = make(config=dataclasses.replace(SMALL, **rates))
    constant.update(filled(constant), 4, Now())
    assert not torch.equal(parameters(one), parameters(constant))


def test_a_constant_temperature_stays():
    sac = make(config=dataclasses.replace(SMALL, learn_temperature=False, initial_temperature=0.2))
    sac.update(filled(sac), 5, Now())
    assert sac.temperature.log_value.exp().item() == pytest.approx(0.2)
    assert sac.metrics()["temperature"].item() == pytest.approx(0.2)


def test_target_entropies():
    assert target_entropy(make().policy, SMALL) == -2.0
    assert target_entropy(make(CHOICE).policy, SMALL) == pytest.approx(0.5 * math.log(3))
    assert target_entropy(make(CHOICE).policy, dataclasses.replace(SMALL, discrete_entropy=0.9)) == pytest.approx(
        0.9 * math.log(3)
    )
    assert target_entropy(make().policy, dataclasses.replace(SMALL, target_entropy=-7.0)) == -7.0


def test_the_replay_holds_what_the_policy_reads():
    sac = make(**ASYMMETRIC)
    replay = filled(sac)
    drawn = replay.gather(replay.draw((5,)))
    assert set(drawn) == {"action", "reward", "discount", "truncated"} | {
        f"{which}/{name}" for which in ("obs", "next_obs") for name in ("policy", "critic", "extra")
    }
    assert (replay.capacity, replay.num_envs, replay.gamma, replay.n_step) == (400, 4, 0.99, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"tau": 0.0}, "tau is 0; use a number > 0 and <= 1"),
        ({"gamma": 1.5}, "gamma is 1.5"),
        ({"update_ratio": 0.0}, "update_ratio"),
        ({"actor_learning_rate": -1.0}, "actor_learning_rate"),
        ({"initial_temperature": 0.0}, "initial_temperature"),
        ({"learning_starts": -1}, "learning_starts"),
        ({"discrete_entropy": 2.0}, "discrete_entropy"),
        ({"max_grad_norm": 0.0}, "max_grad_norm"),
    ],
)
def test_mistakes_in_the_config_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        SACConfig(**options)
