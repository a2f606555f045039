"""Distillation over more rows than those of the present rollout."""

import pytest
import torch

from gaitway.agents.actor_critic import ActorCritic, ActorCriticConfig
from gaitway.algorithms.algorithm import Now
from gaitway.algorithms.distillation import Distillation, DistillationConfig
from gaitway.algorithms.terms import Entropy
from gaitway.core.seeding import stream
from gaitway.core.workspace import Workspace
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup

SPEC = EnvSpec(
    "test/line",
    (ObservationGroup("policy", (Component("x", 2),), (2,)),),
    ActionSpec("continuous", ("push",), (-1.0,), (1.0,)),
    0.02,
    0,
)


def made(dilation, terms=()):
    policy = ActorCritic(SPEC, ActorCriticConfig(actor_hidden=(4,), critic_hidden=(4,)), stream(0, "parameters"))
    config = DistillationConfig(rollout_steps=4, gradient_length=2, dilation=dilation)
    return Distillation(policy, config, num_envs=3, terms=terms)


def rollout(number):
    generator = torch.Generator().manual_seed(number)
    return Workspace.packed(
        {
            "env/obs/policy": torch.randn(5, 3, 2, generator=generator),
            "action": torch.randn(4, 3, 1, generator=generator),
            "policy/params": torch.rand(4, 3, 2, generator=generator) + 0.5,
            "teacher/action": torch.randn(4, 3, 1, generator=generator),
            "env/terminated": torch.zeros(4, 3, dtype=torch.bool),
            "env/truncated": torch.zeros(4, 3, dtype=torch.bool),
            "env/reward": torch.zeros(4, 3),
        }
    )


def test_rows_of_earlier_rollouts_are_learnt_from_and_normalisers_count_each_row_once():
    algorithm = made(2.5)
    lengths = []
    for number in range(4):
        algorithm.update(rollout(number), Now(number))
        lengths.append(len(algorithm._fields["teacher/action"]))
    assert lengths == [4, 8, 10, 10]
    assert torch.equal(algorithm._fields["teacher/action"][-4:], rollout(3)["teacher/action"])
    assert torch.equal(algorithm._fields["teacher/action"][2:6], rollout(2)["teacher/action"])
    assert int(algorithm.policy.normalisers.of("policy").count) == 4 * 12


def test_resuming_is_exact():
    whole, first, again = made(2), made(2), made(2)
    for number in range(2):
        whole.update(rollout(number), Now(number))
        first.update(rollout(number), Now(number))
    again.load_state_dict(first.state_dict())
    for algorithm in (whole, again):
        algorithm.update(rollout(2), Now(2))
    assert torch.equal(*(each.engine.parameters.value for each in (whole, again)))


def test_losses_of_ppo_are_refused():
    with pytest.raises(ValueError, match="keeps rows of earlier policies, from which the term 'entropy' cannot learn"):
        made(2, [Entropy(0.1)])
    made(1, [Entropy(0.1)])
