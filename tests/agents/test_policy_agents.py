"""Small actors: one set of options, exact scores of stored actions, gradients, exploration by matrices, divergences."""

import math

import pytest
import torch
from torch import distributions as reference
from torch.testing import assert_close

from gaitway.agents.explorers import GaussianNoise
from gaitway.agents.policy_agents import (
    DeterministicActor,
    DistributionActor,
    KLAgent,
    categorical_actor,
    gaussian_actor,
    squashed_actor,
)
from gaitway.core.agent import Agents, TemporalAgent
from gaitway.core.seeding import stream
from gaitway.core.workspace import Workspace
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup
from gaitway.nn.distributions import make_distribution

LEGS = ActionSpec("continuous", ("hip", "knee"), (-1.0, 0.0), (1.0, 4.0))
FREE = ActionSpec("continuous", ("hip", "knee"), (-1.0, -math.inf), (1.0, math.inf))
CHOICE = ActionSpec("discrete", ("push",), choices=(3,), start=(2,))
CHOICES = ActionSpec("multi_discrete", ("turn", "jump"), choices=(4, 2), start=(1, 0))


def spec(action):
    group = ObservationGroup("policy", (Component("x", 3),), (3,))
    return EnvSpec("test", (group,), action, control_dt=0.02, max_episode_steps=10)


def noisy_actor(squash=True, **options):
    head = make_distribution(LEGS, "state_dependent_noise", latent=6, squash=squash, generator=stream(1, "head"))
    return DistributionActor(spec(LEGS), head, hidden=(8,), **options)


def actors():
    options = {"hidden": (8,), "seed": 1, "generator": stream(0, "parameters")}
    return {
        "categorical": categorical_actor(spec(CHOICE), **options),
        "several choices": categorical_actor(spec(CHOICES), **options),
        "fixed": gaussian_actor(spec(LEGS), "fixed", 0.3, **options),
        "tunable": gaussian_actor(spec(LEGS), "tunable", 0.3, **options),
        "state": gaussian_actor(spec(LEGS), "state", 0.3, **options),
        "squashed": squashed_actor(spec(LEGS), **options),
        "beta": DistributionActor(spec(LEGS), make_distribution(LEGS, "beta"), **options),
        "matrices": noisy_actor(seed=1, generator=stream(0, "parameters")),
    }


def observed(rows=3, batch=5):
    ws = Workspace()
    ws["env/obs/policy"] = torch.randn(rows, batch, 3, generator=stream(0, "test"))
    return ws


@pytest.mark.parametrize("name", actors())
def test_options_are_the_same_for_all(name):
    actor, ws = actors()[name], observed()
    TemporalAgent(actor)(ws, 0, n_steps=3, compute_entropy=True)
    assert set(ws.keys()) == {"env/obs/policy", "entropy", *actor.writes}
    assert ws["logprob"].shape == ws["entropy"].shape == (3, 5)
    action = ws["action"].clone()
    assert not ws["action"].requires_grad
    assert ws["logprob"].requires_grad
    assert_close(ws["logprob"], actor.distribution(ws).log_prob(action), atol=1e-4, rtol=1e-4)
    TemporalAgent(actor)(ws, 0, n_steps=3, predict_proba=True)
    assert torch.equal(ws["action"], action)  # scored and left alone
    assert_close(ws["logprob_predict"], ws["logprob"])
    actor(ws, 1, stochastic=False)
    assert_close(ws.at("action", 1), actor.distribution(ws, 1).mode())
    actor.seed(1)
    repeated = observed()
    actor.resample_noise()
    TemporalAgent(actor)(repeated, 0, n_steps=3, compute_entropy=True)
    assert torch.equal(repeated["action"], action)  # all randomness is the agent's own


@pytest.mark.parametrize("name", actors())
def test_a_changed_action_is_scored_as_it_stands(name):
    actor, ws = actors()[name], observed()
    actor(ws, 0)
    stored = ws.at("action", 0)
    changed = stored.clone()
    changed[0] = actor.distribution(ws, 0).sample(generator=stream(7, "other"))[0]
    ws.put("action", 0, changed)
    actor(ws, 0, predict_proba=True)
    expected = actor.distribution(ws, 0).log_prob(changed)
    assert_close(ws.at("logprob_predict", 0), expected, atol=1e-4, rtol=1e-4)


def test_saturated_actions_are_scored_exactly_by_what_was_kept():
    actor, ws = squashed_actor(spec(LEGS), "fixed", hidden=(8,), seed=1), observed()
    with torch.no_grad():
        actor.network.layers[-1].bias.fill_(30.0)
    actor(ws, 0)
    assert (ws.at("action", 0) == torch.tensor([1.0, 4.0])).all()
    assert_close(ws.at("policy/raw", 0).mean().item(), 30.0, atol=1.0, rtol=0)
    actor(ws, 0, predict_proba=True)
    assert_close(ws.at("logprob_predict", 0), ws.at("logprob", 0))
    old = actor.clone().with_prefix("old/")
    old(ws, 0, predict_proba=True)
    assert_close(ws.at("old/logprob_predict", 0), ws.at("logprob", 0))  # reads what was stored, without a prefix


def test_gaussian_scores_by_torch():
    actor, ws = gaussian_actor(spec(LEGS), "tunable", 0.3, hidden=(8,), seed=1), observed()
    actor(ws, 0, compute_entropy=True)
    mean = torch.tensor([0.0, 2.0]) + torch.tensor([1.0, 2.0]) * actor.network(ws.at("env/obs/policy", 0))
    twin = reference.Independent(reference.Normal(mean, torch.tensor([0.3, 0.6]).expand(5, 2)), 1)
    assert_close(ws.at("logprob", 0), twin.log_prob(ws.at("action", 0)))
    assert_close(ws.at("entropy", 0), twin.entropy())


def test_which_deviations_are_learnt():
    found = {}
    for name in ("fixed", "tunable", "state"):
        actor = gaussian_actor(spec(LEGS), name, 0.3, hidden=(8,))
        found[name] = (len(list(actor.head.parameters())), actor.network.outputs)
        std = actor.head.std(actor.distribution(observed()).params)
        assert_close(std, torch.tensor([0.3, 0.6]).expand(3, 5, 2))  # half ranges 1 and 2
    assert found == {"fixed": (0, 2), "tunable": (1, 2), "state": (0, 4)}
    with pytest.raises(ValueError, match="use 'fixed'"):
        gaussian_actor(spec(LEGS), "none")


def test_the_score_is_not_taken_through_the_sample():
    actor, ws = gaussian_actor(spec(LEGS), "fixed", 0.5, hidden=(), seed=1), observed()
    bias = actor.network.layers[-1].bias
    actor(ws, 0)
    params = actor.distribution(ws, 0).params.detach()
    # d log N / d mean = (a - mean) / std^2, times the half range of the mean's unit
    expected = ((ws.at("action", 0) - params[:, :2]) / params[:, 2:] ** 2 * torch.tensor([1.0, 2.0])).sum(0)
    (score,) = torch.autograd.grad(ws.at("logprob", 0).sum(), bias)
    assert_close(score, expected)
    actor(ws, 0, reparametrise=True)
    (through,) = torch.autograd.grad(ws.at("logprob", 0).sum(), bias, retain_graph=True)
    assert_close(through, torch.zeros(2), atol=1e-4, rtol=0)  # both ways cancel
    (path,) = torch.autograd.grad(ws.at("action", 0).sum(), bias)
    assert_close(path, 5 * torch.tensor([1.0, 2.0]))


def test_entropy_without_a_closed_form_is_estimated_by_a_fresh_sample():
    actor = squashed_actor(spec(LEGS), "fixed", 0.8, hidden=(8,), seed=1)
    ws = Workspace()
    ws["env/obs/policy"] = torch.zeros(1, 20_000, 3)
    actor(ws, 0, stochastic=False, compute_entropy=True)
    estimate = ws.at("entropy", 0)
    p = actor.distribution(ws.select([0]), 0)
    expected = p.estimated_entropy(20_000, stream(5, "entropy"))
    assert abs(estimate.mean() - expected.item()) < 6 * estimate.std() / math.sqrt(20_000)


def test_matrices_keep_the_noise_until_an_episode_ends():
    actor = noisy_actor(squash=False, seed=1)
    ws = Workspace()
    ws["env/obs/policy"] = torch.randn(1, 5, 3, generator=stream(0, "test")).expand(4, 5, 3)  # one state for ever
    ws["env/terminated"] = torch.zeros(4, 5, dtype=torch.bool)
    ws["env/terminated"][1, 2] = True
    ws["env/truncated"] = torch.zeros(4, 5, dtype=torch.bool)
    TemporalAgent(actor)(ws, 0, n_steps=4)
    action = ws["action"]
    assert torch.equal(action[0], action[1])
    same = torch.ones(5, dtype=torch.bool)
    same[2] = False
    assert torch.equal((action[1] == action[2]).all(-1), same)
    assert torch.equal(action[2], action[3])
    actor.resample_noise()
    actor(ws, 0)
    assert not torch.equal(ws.at("action", 0), action[0])
    often = noisy_actor(seed=1, resample=2)
    TemporalAgent(often)(ws, 0, n_steps=4)
    assert torch.equal(ws["action"][0], ws["action"][1])
    assert not (ws["action"][1] == ws["action"][2]).any()
    often(ws, 0, reparametrise=True)
    gradients = torch.autograd.grad(ws.at("action", 0).sum(), often.head.log_std)
    assert gradients[0].abs().sum() > 0
    with pytest.raises(ValueError, match="resample is 0"):
        noisy_actor(resample=0)


def test_deterministic_actor():
    actor, ws = DeterministicActor(spec(LEGS), hidden=(8,)), observed()
    actor(ws, 0, stochastic=True)
    output = actor.network(ws.at("env/obs/policy", 0))
    assert_close(ws.at("action", 0), torch.stack((output[:, 0].tanh(), 2 + 2 * output[:, 1].tanh()), -1))
    assert ws.at("action", 0).requires_grad
    actor(ws, 0, reparametrise=False)
    assert not ws.at("action", 0).requires_grad
    free = DeterministicActor(spec(FREE), hidden=(8,))
    output = free.network(ws.at("env/obs/policy", 0))
    assert_close(free.action(ws.at("env/obs/policy", 0)), torch.stack((output[:, 0].tanh(), output[:, 1]), -1))
    for option in ("predict_proba", "compute_entropy"):
        with pytest.raises(ValueError, match="has no density"):
            actor(ws, 0, **{option: True})
    with pytest.raises(ValueError, match="needs a continuous one"):
        DeterministicActor(spec(CHOICE))
    cast = Agents(actor, GaussianNoise(LEGS, 0.1, seed=0))
    cast(ws, 0, stochastic=False)
    assert_close(ws.at("action", 0), actor.action(ws.at("env/obs/policy", 0)))


@pytest.mark.parametrize("name", actors())
def test_kl_of_two_policies(name):
    new, ws = actors()[name], observed()
    old = new.clone()
    agent = KLAgent(old, new)
    assert not list(agent.parameters())
    assert agent.reads == ("env/obs/policy",)
    agent(ws, 0)
    assert_close(ws.at("kl", 0), torch.zeros(5), atol=1e-5, rtol=0)
    with torch.no_grad():
        for parameter in new.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=stream(4, "change")))
    agent.with_prefix("now/")(ws, 0)
    found = ws.at("now/kl", 0)
    assert found.shape == (5,)
    assert_close(found, old.distribution(ws, 0).kl(new.distribution(ws, 0)))
    (slope,) = torch.autograd.grad(found.sum(), new.network.layers[0].weight)
    assert slope.abs().sum() > 0


def test_kl_of_different_kinds_is_refused():
    with pytest.raises(TypeError, match="one kind"):
        KLAgent(gaussian_actor(spec(LEGS)), squashed_actor(spec(LEGS)))(observed(), 0)
