"""The gradient without autograd is the gradient: every option against the general way."""

import pytest
import torch
from torch.testing import assert_close

from gaitway.agents.actor_critic import ActorCritic
from gaitway.agents.actor_critic_config import ActorCriticConfig, DistributionConfig
from gaitway.agents.branch import MemoryConfig
from gaitway.agents.observations import Observations
from gaitway.algorithms.algorithm import Now, Schedule
from gaitway.algorithms.direct_gradient import DirectGradient
from gaitway.algorithms.ppo import PPO, PPOConfig, standard_terms
from gaitway.algorithms.terms import Entropy, Surrogate, Terms, ValueLoss
from gaitway.core.execution import Execution, ExecutionConfig
from gaitway.core.seeding import stream
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup

SAMPLES = 48


def spec(low=-1.0, high=1.0) -> EnvSpec:
    groups = tuple(
        ObservationGroup(name, (Component("x", size),), (size,)) for name, size in (("policy", 5), ("all", 7))
    )
    return EnvSpec("test", groups, ActionSpec("continuous", ("a", "b"), (low, low), (high, high)), 0.02, 100)


def learner(config=None, *, env=None, **options) -> PPO:
    """A learner whose policy has moved away from its symmetric start."""
    policy = ActorCritic(env or spec(), config or ActorCriticConfig(), stream(0, "parameters"))
    generator = stream(1, "parameters")
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return PPO(policy, PPOConfig(**options), num_envs=8)


def batch_of(ppo: PPO, weight: bool = False) -> dict[str, torch.Tensor]:
    generator, policy = stream(2, "batch"), ppo.policy

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    batch = {"obs/policy": normal(SAMPLES, 5)}
    if policy.groups["critic"] != policy.groups["actor"]:
        batch["obs/all"] = normal(SAMPLES, 7)
    with torch.no_grad():
        params, value = policy.evaluate(batch)
        batch["params"] = torch.cat((params[:, :2] + 0.2 * normal(SAMPLES, 2), params[:, 2:] * 1.1), -1)
        batch["raw"] = policy.head.sample(batch["params"], generator)
        batch["log_prob"] = policy.head.log_prob(batch["params"], batch["raw"])
    batch |= {"value": value + 0.3 * normal(SAMPLES), "advantage": normal(SAMPLES), "return": value + normal(SAMPLES)}
    if weight:
        batch["weight"] = (torch.rand(SAMPLES, generator=generator) < 0.7).float()
    return batch


def batch_of_sequences(ppo: PPO) -> dict[str, torch.Tensor]:
    """Rows that no policy has said anything about yet."""
    generator = stream(2, "batch")
    batch = {
        "obs/policy": torch.randn(SAMPLES, 5, generator=generator),
        "obs/all": torch.randn(SAMPLES, 7, generator=generator),
        "params": torch.cat((torch.randn(SAMPLES, 2, generator=generator), torch.ones(SAMPLES, 2)), -1),
        "value": torch.randn(SAMPLES, generator=generator),
        "advantage": torch.randn(SAMPLES, generator=generator),
        "return": torch.randn(SAMPLES, generator=generator),
    }
    batch["raw"] = ppo.policy.head.sample(batch["params"], generator)
    return batch | {"log_prob": ppo.policy.head.log_prob(batch["params"], batch["raw"])}


def terms_of(policy, terms) -> Terms:
    return Terms(terms, policy, torch.device("cpu"))


def both_ways(ppo: PPO, batch) -> tuple[dict, dict, torch.Tensor, torch.Tensor]:
    """Statistics and flat gradients, by autograd and directly."""
    gradient = ppo.engine.parameters.gradient
    total, general = ppo.terms.loss(batch)
    ppo.engine.parameters.differentiate(total)
    by_autograd = gradient.clone()
    for parameter in ppo.policy.parameters():
        if parameter.grad is not None:
            parameter.grad.fill_(torch.nan)  # poisoned: everything must be overwritten
    ppo.terms.begin(Now())
    direct = DirectGradient.of(ppo.policy, ppo.terms)(batch)
    return general, direct, by_autograd, gradient.clone()


def wide(**distribution) -> ActorCriticConfig:
    return ActorCriticConfig(actor_hidden=(16, 8), distribution=DistributionConfig(**distribution))


CASES = {
    "plain": {},
    "entropy": {"entropy_coef": 0.01},
    "weights of the terms": {"value_coef": 1.7, "clip": 0.1},
    "value clip": {"value_clip": 0.2},
    "rescaled actions": {"env": spec(-0.5, 2.0)},
    "limits on one side of zero": {"env": spec(1.0, 3.0), "entropy_coef": 0.02},
    "linear deviation": {"config": wide(std_type="scalar"), "entropy_coef": 0.01},
    "deviation beyond its bound": {"config": wide(std_range=(1.0, 1.05), init_std=1.02), "entropy_coef": 0.01},
    "fixed deviation": {"config": wide(learn_std=False)},
    "relu": {"config": ActorCriticConfig(activation="relu", critic_hidden=(12,))},
    "elu": {"config": ActorCriticConfig(activation="elu")},
    "critic sees more": {"config": ActorCriticConfig(observations=Observations(("policy",), ("all",)))},
}


@pytest.mark.parametrize("weight", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_equals_autograd(case, weight):
    ppo = learner(**CASES[case])
    general, direct, by_autograd, by_hand = both_ways(ppo, batch_of(ppo, weight))
    assert list(direct) == list(general)
    for name, value in general.items():
        assert_close(direct[name], value, atol=2e-6, rtol=2e-5, msg=lambda text, name=name: f"{name}: {text}")
    assert by_autograd.abs().max() > 0.01
    assert_close(by_hand, by_autograd, atol=1e-6, rtol=1e-4)
    assert 0.0 < direct["clip_fraction"] < 1.0


@pytest.mark.parametrize("weight", [False, True])
@pytest.mark.parametrize("memory", [MemoryConfig("lstm", 6), MemoryConfig("gru", 6, 2), MemoryConfig("lstm", 6, 2)])
@pytest.mark.parametrize("critic", [None, MemoryConfig()])
def test_behind_a_memory_it_equals_autograd(memory, critic, weight):
    config = ActorCriticConfig(memory=memory, critic_memory=critic, observations=Observations(("policy",), ("all",)))
    ppo = learner(config, entropy_coef=0.01, value_clip=0.2)
    assert ppo._direct is not None
    flat, generator, shape = batch_of_sequences(ppo), stream(3, "batch"), (12, 4)
    batch = {name: value.unflatten(0, shape) for name, value in flat.items()}
    batch["starts"] = torch.rand(shape, generator=generator) < 0.15
    for name in ppo.policy.column_fields:
        batch[name] = torch.randn(4, ppo.policy.memories[name.removeprefix("memory/")].size, generator=generator)
    if weight:
        batch["weight"] = (torch.rand(shape, generator=generator) < 0.7).float()
    general, direct, by_autograd, by_hand = both_ways(ppo, batch)
    for name, value in general.items():
        assert_close(direct[name], value, atol=2e-6, rtol=2e-5, msg=lambda text, name=name: f"{name}: {text}")
    assert_close(by_hand, by_autograd, atol=1e-6, rtol=1e-4)
    assert by_hand.isfinite().all()


def test_further_terms_beside_a_memory_are_left_to_autograd():
    ppo = learner(ActorCriticConfig(memory=MemoryConfig("lstm", 6)))
    further = terms_of(ppo.policy, [*standard_terms(ppo.config, ppo.policy), Effort()])
    assert DirectGradient.of(ppo.policy, further) is None


def test_a_bound_stops_the_deviation_in_both_directions():
    ppo = learner(wide(std_range=(0.5, 2.0)), entropy_coef=0.01)
    with torch.no_grad():
        ppo.policy.head.log_std.copy_(torch.tensor([-3.0, 3.0]))
    _, _, by_autograd, by_hand = both_ways(ppo, batch_of(ppo))
    assert ppo.policy.head.log_std.grad.tolist() == [0.0, 0.0]
    assert_close(by_hand, by_autograd, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("schedule", ["constant", "adaptive"])
def test_training_goes_the_same_way(schedule):
    """Whole updates: the learner that may take the short way against one that may not."""

    class Twin(Surrogate):  # another type, so the general way is taken
        pass

    results = []
    for terms in ((), [Twin(0.2), ValueLoss(None, 0.5), Entropy(0.01)]):
        policy = ActorCritic(spec(), None, stream(0, "parameters"))
        config = PPOConfig(entropy_coef=0.01, schedule=schedule, normalise_advantage="minibatch")
        ppo = PPO(policy, config, num_envs=8, terms=terms)
        batch = batch_of(ppo)
        assert (ppo._direct is None) == bool(terms)
        ppo.engine.direct = ppo._direct
        ppo.terms.begin(Now())
        for _ in range(20):
            ppo.engine.step(batch)
        results.append((ppo.engine.parameters.value.detach().clone(), ppo.engine.read()))
    (short, short_statistics), (long, long_statistics) = results
    assert_close(short, long, atol=2e-5, rtol=1e-4)
    for name, value in long_statistics.items():
        assert_close(short_statistics[name], value, atol=1e-4, rtol=1e-3)


def test_other_policies_terms_and_modes_take_the_general_way():
    standard = [Surrogate(0.2), ValueLoss(None, 0.5), Entropy(0.0)]
    policies = {
        "state-dependent deviation": wide(state_dependent=True),
        "squashed": wide(kind="squashed_gaussian"),
        "beta": wide(kind="beta"),
        "an activation without a derivative here": ActorCriticConfig(activation="gelu"),
    }
    for name, config in policies.items():
        ppo = learner(config)
        assert DirectGradient.of(ppo.policy, terms_of(ppo.policy, standard)) is None, name
        assert ppo._direct is None, name
    ppo = learner()
    assert DirectGradient.of(ppo.policy, terms_of(ppo.policy, standard)) is not None
    assert DirectGradient.of(ppo.policy, terms_of(ppo.policy, standard[:2])) is None
    assert DirectGradient.of(ppo.policy, terms_of(ppo.policy, [standard[1], standard[0], standard[2]])) is None
    fresh = ActorCritic(spec(), None, stream(0, "parameters"))
    assert DirectGradient.of(fresh, terms_of(fresh, standard)) is None  # nowhere to put the gradient
    compiled = PPO(fresh, PPOConfig(), num_envs=8, execution=Execution(ExecutionConfig("compiled")))
    assert compiled._direct is None


class Effort:
    """A further term, of actor, critic and standard deviation."""

    name, coef, reads = "effort", 0.3, ()

    def __call__(self, batch, now):
        params, value = batch["new/params"], batch["new/value"]
        loss = (batch["new/mean"].square().sum(-1) + 0.5 * params[..., 2:].sum(-1) + 0.1 * value.square()).mean()
        return loss + 0.1 * batch["new/log_prob"].mean(), {"effort/value": value.mean().detach()}


@pytest.mark.parametrize("weight", [False, True])
@pytest.mark.parametrize("coef", [0.3, 0.0, Schedule(0.5, 0.1, over=1)])
def test_a_further_term_adds_its_gradient(coef, weight):
    ppo = learner(config=wide(std_type="scalar"), entropy_coef=0.01)
    ppo.terms = terms_of(ppo.policy, [*standard_terms(ppo.config, ppo.policy), Effort()])
    ppo.terms.terms[-1].coef = coef
    ppo.terms.begin(Now())
    general, direct, by_autograd, by_hand = both_ways(ppo, batch_of(ppo, weight))
    assert set(direct) == set(general)
    for name, value in general.items():
        assert_close(direct[name], value, atol=2e-6, rtol=2e-5, msg=lambda text, name=name: f"{name}: {text}")
    assert_close(by_hand, by_autograd, atol=1e-6, rtol=1e-4)
    plain = both_ways(learner(config=wide(std_type="scalar"), entropy_coef=0.01), batch_of(ppo, weight))[3]
    assert ((by_hand - plain).abs().max() > 0.01) == (coef != 0.0)


def test_what_is_not_finite_shows_and_a_clip_may_be_changed(recwarn):
    ppo = learner()
    direct, batch = DirectGradient.of(ppo.policy, ppo.terms), batch_of(ppo)
    ppo.terms.begin(Now())
    before = direct(batch)["clip_fraction"]
    ppo.terms.terms[0].clip = 0.01
    assert direct(batch)["clip_fraction"] > before
    batch["raw"][3] = 1e30
    batch["return"][5] = torch.inf
    statistics = direct(batch)
    assert not statistics["loss/value"].isfinite()
    batch["raw"][3] = torch.nan
    assert direct(batch)["loss/surrogate"].isnan()
    assert not recwarn.list
