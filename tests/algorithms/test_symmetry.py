"""T-SYM, the part that arithmetic decides: mirrors by name, doubled rows, the mirror loss, statistics that commute."""

import pytest
import torch
from torch.testing import assert_close

from gaitway.agents.actor_critic import ActorCritic
from gaitway.agents.actor_critic_config import ActorCriticConfig, DistributionConfig
from gaitway.agents.branch import MemoryConfig
from gaitway.agents.observations import Observations
from gaitway.algorithms.algorithm import DeviceNow, Now
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.algorithms.symmetry import Symmetry, mirror_of
from gaitway.core.seeding import stream
from gaitway.envs.registry import make_env
from gaitway.envs.spec import Component
from gaitway.functional.policy_losses import clipped_surrogate, value_error
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.runner_config import RunnerConfig

PENDULUM = {"pos": {"sin": "-sin"}, "vel": {"velocity": "-velocity"}, "action": {"torque": "-torque"}}
ROBOT = (
    Component("left_hip"),
    Component("gravity", 3),
    Component("right_hip"),
    Component("left_foot", 2),
    Component("right_foot", 2),
    Component("height"),
)


def make(mirror=PENDULUM, distribution="auto", ppo=None, **options):
    """A runner with a symmetry term, and the term."""
    env = make_env("toy/pendulum", num_envs=8, seed=1)
    agent = ActorCriticConfig(init="default", distribution=DistributionConfig(distribution))
    policy = ActorCritic(env.spec, agent, stream(0, "parameters"))
    term = Symmetry(env.spec, policy, mirror, **options)
    algorithm = PPO(policy, ppo or PPOConfig(rollout_steps=16, minibatches=2), num_envs=8, terms=[term])
    return OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=10**9)), term


def batch_of(runner):
    runner._collect()
    runner.algorithm.terms.begin(Now())
    return {name: field.flatten(0, 1) for name, field in runner.algorithm.prepare(runner.rollout).items()}


# --- mirrors ---


def test_swapped_words_and_signs_by_hand():
    entries = {"gravity": ["gravity", 1, -1, 1], "left_foot": ["right_foot", 1, -1], "right_foot": ["left_foot", 1, -1]}
    mirror = mirror_of(ROBOT, entries, ("left", "right"), "it")
    x = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0])
    image = torch.tensor([5.0, 2.0, -3.0, 4.0, 1.0, 8.0, -9.0, 6.0, -7.0, 10.0])
    assert torch.equal(mirror(x), image)
    assert torch.equal(mirror(mirror(x)), x)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"left_hip": "right_hip"}, "pair them up"),
        ({"left_hip": "-right_hip", "right_hip": "left_hip"}, "pair them up"),
        ({"left_hpi": "right_hip"}, "did you mean 'left_hip'"),
        ({"left_hip": "right_knee"}, "which it lacks"),
        ({"left_hip": "left_foot"}, "different sizes"),
        ({"gravity": ["gravity", 1, -1]}, "a sign for each of its 3 numbers"),
        ({"gravity": ["gravity", 1, -1, 2]}, "a sign for each of its 3 numbers"),
        ({"height": 3}, "write other, -other"),
    ],
)
def test_mirrors_that_make_no_sense_are_refused(entries, said):
    with pytest.raises(ValueError, match=said):
        mirror_of(ROBOT, entries, (), "it")


# --- what learns from images ---


def test_rows_and_images_by_hand():
    runner, term = make()
    batch = batch_of(runner)
    both = term.doubled(batch)
    n = len(batch["raw"])
    for name, signs in (("obs/pos", [1.0, -1.0]), ("obs/vel", [-1.0]), ("raw", [-1.0])):
        assert torch.equal(both[name][:n], batch[name])
        assert torch.equal(both[name][n:], batch[name] * torch.tensor(signs))
    for name in ("advantage", "return", "value", "log_prob"):
        assert torch.equal(both[name], torch.cat((batch[name], batch[name])))


@pytest.mark.parametrize("augment", [True, False])
def test_surrogate_and_value_are_means_over_rows_and_images_and_the_rest_is_not(augment):
    runner, term = make(augment=augment, ppo=PPOConfig(rollout_steps=16, minibatches=2, entropy_coef=0.1), coef=0.5)
    policy, batch = runner.policy, batch_of(runner)
    _, found = runner.algorithm.terms.loss(batch)
    images = batch | {f"obs/{g}": term.groups[g](batch[f"obs/{g}"]) for g in ("pos", "vel")}
    images["raw"] = -batch["raw"]
    surrogates, values = [], []
    for rows in (batch, images):
        params, value = policy.evaluate(rows)
        log_prob = policy.head.log_prob(params, rows["raw"])
        surrogates.append(clipped_surrogate(log_prob, batch["log_prob"], batch["advantage"], 0.2)[0].mean())
        values.append(value_error(value, value, batch["return"], None).mean())
    kept = 2 if augment else 1
    assert_close(found["loss/surrogate"], sum(surrogates[:kept]) / kept)
    assert_close(found["loss/value"], sum(values[:kept]) / kept)
    params, _ = policy.evaluate(batch)
    assert_close(found["loss/entropy"], -policy.head.entropy(params).mean())
    assert_close(found["kl"], policy.head.kl(batch["params"], params).mean())
    mean, image = (policy.head.mode(policy.evaluate(rows)[0]) for rows in (batch, images))
    assert_close(found["loss/symmetry"], (image + mean).square().mean())
    assert_close(found["asymmetry"], (image + mean).abs().mean())
    parts = ("surrogate", "value", "entropy", "symmetry")
    total = sum(c * found[f"loss/{p}"] for c, p in zip((1.0, 0.5, 0.1, 0.5), parts, strict=True))
    assert_close(found["loss/total"], total)


def test_the_mirror_loss_has_no_gradient_through_the_image():
    _runner, term = make()
    mean, image = (torch.randn(5, 1, requires_grad=True) for _ in range(2))
    loss, _ = term({"new/mean": mean, "new/mirrored/mean": image}, DeviceNow())
    by_mean, by_image = torch.autograd.grad(loss, (mean, image), allow_unused=True)
    assert by_mean is None
    assert_close(by_image, 2 * (image + mean).detach() / 5)


def test_advantages_are_standardised_before_images_are_added():
    runner, _term = make(ppo=PPOConfig(rollout_steps=16, minibatches=2, normalise_advantage="minibatch"))
    batch = runner.algorithm.terms.transformed(batch_of(runner))
    assert_close(batch["advantage"].std(), torch.tensor(1.0), atol=1e-4, rtol=0)
    assert len(batch["advantage"]) == 16 * 8


@pytest.mark.parametrize("distribution", ["gaussian", "squashed_gaussian"])
def test_a_policy_that_is_its_own_image_has_no_mirror_loss(distribution):
    runner, _ = make(distribution=distribution)
    with torch.no_grad():
        for parameter in runner.policy.actor.parameters():  # without biases, and blind for cos, tanh makes it odd
            parameter.zero_() if parameter.ndim == 1 else None
        runner.policy.actor.network.layers[0].weight[:, 0] = 0.0
    _, found = runner.algorithm.terms.loss(batch_of(runner))
    assert found["loss/symmetry"] < 1e-12


# --- statistics ---


def test_mirror_and_normaliser_commute_bit_by_bit():
    runner, term = make()
    for _ in range(3):
        runner._iterate(10**9)
    policy = runner.policy
    obs = {"pos": torch.randn(100, 2) * 3, "vel": torch.randn(100, 1) * 3}
    image = {name: term.groups[name](value) for name, value in obs.items()}
    for name, value in policy.normalised(image).items():
        assert torch.equal(value, term.groups[name](policy.normalised(obs)[name]))
    assert policy.normalisers.of("vel").mean.item() == 0.0
    assert policy.normalisers.of("pos").count == 2 * 3 * 16 * 8
    assert policy.normalisers.of("pos").mean[0].abs() > 0.0


def test_statistics_without_images_do_not_commute():
    runner, term = make()
    runner.policy.normalisers.mirrors = {}  # the broken twin
    runner._iterate(10**9)
    obs = torch.randn(100, 1)
    normalise = runner.policy.normalisers.of("vel")
    assert (normalise(term.groups["vel"](obs)) - term.groups["vel"](normalise(obs))).abs().max() > 1e-3


def test_statistics_are_those_of_rows_and_images():
    runner, term = make()
    runner._iterate(10**9)
    rows = runner.rollout["env/obs/pos"][:-1].flatten(0, 1).double()
    both = torch.cat((rows, term.groups["pos"](rows.float()).double()))
    assert_close(runner.policy.normalisers.of("pos").mean, both.mean(0), atol=1e-6, rtol=1e-6)
    assert_close(runner.policy.normalisers.of("pos").var, both.var(0, correction=0), atol=1e-6, rtol=1e-6)


# --- refusals ---


def test_what_has_no_mirror_image_is_refused():
    env = make_env("toy/pendulum", num_envs=4)
    recurrent = ActorCritic(env.spec, ActorCriticConfig(memory=MemoryConfig("gru", 8)))
    with pytest.raises(ValueError, match="symmetry is for policies without memory, and this one remembers"):
        Symmetry(env.spec, recurrent, PENDULUM)
    history = {"name": "history", "reads": ["pos"], "writes": "past", "length": 3, "size": 4}
    remembering = ActorCriticConfig(blocks=(history,), observations=Observations(("past",)))
    with pytest.raises(ValueError, match="symmetry is for policies without memory"):
        Symmetry(env.spec, ActorCritic(env.spec, remembering), PENDULUM)
    plain = ActorCritic(env.spec, ActorCriticConfig())
    with pytest.raises(ValueError, match="the mirror changes nothing"):
        Symmetry(env.spec, plain, {"pos": {"sin": "sin"}})
    with pytest.raises(ValueError, match="mirror names 'position'"):
        Symmetry(env.spec, plain, {"position": {}})
    with pytest.raises(ValueError, match="write two words"):
        Symmetry(env.spec, plain, PENDULUM, swap=("left",))
    discrete = make_env("toy/cartpole", num_envs=4)
    with pytest.raises(ValueError, match="continuous actions of a Gaussian"):
        Symmetry(discrete.spec, ActorCritic(discrete.spec), {})


def test_limits_that_are_not_those_of_the_image_are_refused():
    import dataclasses

    env = make_env("toy/pendulum", num_envs=4)
    spec = dataclasses.replace(env.spec, action=dataclasses.replace(env.spec.action, low=(-1.0,)))
    with pytest.raises(ValueError, match="limits of 'torque' are not those of its mirror image"):
        Symmetry(spec, ActorCritic(spec), PENDULUM)
