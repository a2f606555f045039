"""Ensembles without autograd give the numbers of ensembles with it."""

import pytest
import torch
from torch.testing import assert_close

from gaitway.core.seeding import stream
from gaitway.nn.ensemble import Ensemble
from gaitway.nn.ensemble_stack import EnsembleStack


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=stream(seed, "test"))


def made(members=2, hidden=(16, 16), activation="relu", **options):
    ensemble = Ensemble(members, 7, hidden, options.pop("outputs", 1), activation=activation, **options)
    for p in ensemble.parameters():
        p.grad = torch.full_like(p, float("nan"))  # must be overwritten, not added to
    return ensemble


@pytest.mark.parametrize("activation", ["relu", "tanh", "elu"])
@pytest.mark.parametrize("hidden", [(16,), (16, 16), (8, 24, 16)])
@pytest.mark.parametrize("members", [1, 2, 5])
def test_values_and_gradients(members, hidden, activation):
    ensemble = made(members, hidden, activation)
    stack = EnsembleStack.of(ensemble)
    for rows in (9, 4):  # another batch size gets other memory
        x, more, weight = randn(rows, 5), randn(rows, 2, seed=1).requires_grad_(), randn(members, rows, seed=2)
        expected = ensemble(x, more).squeeze(-1)
        assert_close(stack.forward(x, more.detach()), expected)
        wanted = torch.autograd.grad((expected * weight).sum(), [more, *ensemble.parameters()])
        assert_close(stack.backward_actions(weight, 2).T, wanted[0])
        stack.backward(weight)
        for p, gradient in zip(ensemble.parameters(), wanted[1:], strict=True):
            assert_close(p.grad, gradient)


def test_stacks_that_share_memory_keep_their_own_parameters():
    first, second = made(), made()
    one = EnsembleStack.of(first)
    two = EnsembleStack.of(second, like=one)
    x, more = randn(4, 5), randn(4, 2, seed=1)
    for stack, ensemble in ((one, first), (two, second), (one, first)):
        assert_close(stack.forward(x, more), ensemble(x, more).squeeze(-1))
    with torch.no_grad():
        next(second.parameters()).mul_(2.0)
    assert_close(two.forward(x, more), second(x, more).squeeze(-1))


@pytest.mark.parametrize(
    "options",
    [{"layer_norm": True}, {"trunk": "d2rl"}, {"trunk": "residual"}, {"activation": "silu"}, {"outputs": 2}],
    ids=str,
)
def test_other_ensembles_are_left_to_autograd(options):
    assert EnsembleStack.of(made(**options)) is None
    assert EnsembleStack.of(made(hidden=())) is None
    assert EnsembleStack.of(made().double()) is None
