"""Gradients of soft actor-critic without autograd: the numbers of autograd, wherever they are used."""

import dataclasses

import pytest
import torch
from sac_cases import ASYMMETRIC, CHOICE, SMALL, filled, make, unit_transitions
from torch.testing import assert_close

from gaitway.algorithms.algorithm import Now
from gaitway.algorithms.direct_soft_steps import DirectSteps
from gaitway.algorithms.sac import SAC
from gaitway.algorithms.soft_steps import ContinuousSteps
from gaitway.core.execution import Execution, ExecutionConfig
from gaitway.core.seeding import stream


@pytest.mark.parametrize("activation", ["relu", "tanh", "elu"])
@pytest.mark.parametrize("options", [{}, {"critics": 5}, ASYMMETRIC, {"critic_hidden": (40, 8, 24)}], ids=str)
def test_gradients_are_those_of_autograd(options, activation):
    sac = make(activation=activation, **options)
    direct, general = sac.steps, ContinuousSteps(sac.policy)
    assert isinstance(direct, DirectSteps)
    replay = filled(sac)
    noise, alpha = torch.randn(2, 16, 2, generator=stream(0, "noise")), torch.tensor(0.3)
    batch = unit_transitions(sac, replay, replay.draw((16,)))
    target, proposal = general.prepare(batch, noise, alpha)
    found, drawn = direct.prepare(batch, noise, alpha)
    assert not target.requires_grad
    assert_close(found, target, atol=1e-5, rtol=1e-5)
    assert_close(drawn["log_prob"], proposal["log_prob"], atol=1e-5, rtol=1e-5)

    critic_batch = batch | {"target": target}
    loss, statistics = general.critic_loss(critic_batch)
    expected = torch.autograd.grad(loss, list(sac.policy.critic.parameters()))
    sac.critic_engine.parameters.gradient.fill_(float("nan"))
    assert_close(direct.critic_gradient(critic_batch), statistics)
    for p, gradient in zip(sac.policy.critic.parameters(), expected, strict=True):
        assert_close(p.grad, gradient, atol=1e-6, rtol=1e-4)

    actor_batch = {"critic": batch["critic"], "alpha": alpha, "entropy": alpha} | proposal
    loss, statistics = general.actor_loss(actor_batch)
    expected = torch.autograd.grad(loss, list(sac.policy.actor.parameters()))
    sac.actor_engine.parameters.gradient.fill_(float("nan"))
    assert_close(direct.actor_gradient(actor_batch), statistics)
    for p, gradient in zip(sac.policy.actor.parameters(), expected, strict=True):
        assert_close(p.grad, gradient, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    "options",
    [{"layer_norm": True}, {"trunk": "d2rl"}, {"trunk": "residual"}, {"activation": "silu"}, {"action": CHOICE}],
    ids=str,
)
def test_other_policies_are_left_to_autograd(options):
    sac = make(**options)
    assert not isinstance(sac.steps, DirectSteps)
    before = sac.flat_parameters()[0].clone()
    sac.update(filled(sac), 2, Now())
    assert not torch.equal(sac.flat_parameters()[0], before)


def test_other_precisions_are_left_to_autograd():
    policy = make().policy
    execution = Execution(ExecutionConfig(precision="bf16"))
    sac = SAC(policy, dataclasses.replace(SMALL), num_envs=4, execution=execution)
    assert isinstance(sac.steps, ContinuousSteps)
    sac.update(filled(sac), 3, Now())
    assert all(bool(torch.isfinite(value).all()) for value in (*sac.flat_parameters(), *sac.metrics().values()))
    assert all(p.dtype == torch.float32 for p in policy.parameters())
