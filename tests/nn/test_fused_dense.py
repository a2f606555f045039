"""Layers that are one kernel each: the reference on the CPU equals plain layers, the kernels equal the reference."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from gaitway import PPO, ActorCritic, ActorCriticConfig, OnPolicyRunner, PPOConfig, RunnerConfig, make_env
from gaitway.algorithms.algorithm import Now
from gaitway.core import execution
from gaitway.core.execution import Execution, ExecutionConfig
from gaitway.core.seeding import stream
from gaitway.nn import fused_dense
from gaitway.nn.fused_dense import FusedDense, dense, has_triton
from gaitway.nn.mlp import MLP

HIDDEN = {"two": (16, 8), "three": (32, 16, 8)}


@pytest.fixture
def fused(monkeypatch):
    """As if this were a compiled program in TF32 on a GPU."""
    monkeypatch.setattr(execution, "_fused", True)


def make(hidden, activation="elu", outputs=3):
    return MLP(5, hidden, outputs, activation, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("hidden", HIDDEN.values(), ids=HIDDEN)
@pytest.mark.parametrize("activation", ["elu", "relu"])
@pytest.mark.parametrize("by_input", [False, True])
def test_results_and_gradients_are_those_of_plain_layers(fused, hidden, activation, by_input):
    network = make(hidden, activation).double()
    linears = [layer for layer in network.layers if isinstance(layer, nn.Linear)]
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(40, 5, generator=generator, dtype=torch.float64, requires_grad=by_input)
    weights = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    wanted = [*network.parameters(), *([x] if by_input else [])]
    plain = network(x)
    found = dense(x, [each.weight for each in linears], [each.bias for each in linears], activation)[-2]
    assert torch.allclose(found, plain, rtol=1e-13, atol=1e-14)
    expected = torch.autograd.grad((plain * weights).sum(), wanted)
    for one, other in zip(torch.autograd.grad((found * weights).sum(), wanted), expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-13)


def test_a_gradient_cut_into_pieces_is_that_of_the_whole(fused, monkeypatch):
    network = make((16, 8))
    x = torch.randn(64, 5, generator=torch.Generator().manual_seed(1))
    one = torch.autograd.grad(FusedDense.of(network)(x).square().sum(), list(network.parameters()))
    monkeypatch.setattr(fused_dense, "WEIGHT_PIECES", 4)
    other = torch.autograd.grad(FusedDense.of(network)(x).square().sum(), list(network.parameters()))
    assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-5) for a, b in zip(one, other, strict=True))


def test_other_layers_stay_as_they_are():
    assert FusedDense.of(make((16, 8))) is not None
    assert FusedDense.of(make((16,))) is not None
    for network in (
        make(()),
        make((16, 8), "tanh"),
        make((16, 8)).double(),
        make((16, 8), outputs=None),
        nn.Linear(2, 3),
    ):
        assert FusedDense.of(network) is None
    watched = make((16, 8))
    watched.layers[0].register_forward_hook(lambda *_: None)
    assert FusedDense.of(watched) is None


def test_outside_compiled_programs_the_network_itself_is_asked():
    network = make((16, 8))
    x = torch.randn(4, 5)
    assert torch.equal(FusedDense.of(network)(x), network(x))


def learnt(mode, fuses):
    env = make_env("toy/pendulum", num_envs=4, seed=0)
    agent = ActorCriticConfig(actor_hidden=(16, 8), critic_hidden=(16, 8), activation="elu")
    policy = ActorCritic(env.spec, agent, stream(0, "parameters"))
    run = Execution(ExecutionConfig(mode, "fp32"))
    config = PPOConfig(rollout_steps=8, epochs=2, minibatches=2, schedule="adaptive", entropy_coef=0.01)
    algorithm = PPO(policy, config, num_envs=4, execution=run)
    run.fuses = fuses
    runner = OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=10**6))
    runner._begin()
    runner._collect()
    metrics = algorithm.update(runner.rollout, Now())
    return algorithm.engine.parameters.value.detach().clone(), metrics, policy


@pytest.mark.long  # half a minute of the compiler, for layers that are off
def test_a_compiled_update_with_fused_layers_learns_what_an_eager_one_does(fused, monkeypatch, caplog):
    monkeypatch.setattr("gaitway.agents.branch.has_triton", lambda: True)
    asked = []
    through = FusedDense.__call__

    def counted(self, x):
        asked.append(len(x))
        return through(self, x)

    plain, numbers, _ = learnt("eager", False)
    monkeypatch.setattr(FusedDense, "__call__", counted)
    found, others, policy = learnt("compiled", True)
    assert asked
    assert "cannot be compiled" not in caplog.text
    assert policy.actor._fused is not None
    assert float((found - plain).norm() / plain.norm()) < 1e-5
    for name, value in numbers.items():
        assert torch.allclose(others[name], value, rtol=1e-3, atol=1e-5), name


KERNELS = """
import torch
from gaitway.nn import dense_kernels as kernels
from gaitway.nn import fused_dense

def rounded(x):
    return ((x.view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)

fused_dense._has_kernels = lambda x: True
for rows, sizes, kind in ((200, (48, 80, 32, 12), "elu"), (128, (5, 130, 1), "relu"), (70, (6, 16, 16, 16, 2), "elu")):
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=generator)
    weights = [draw(b, a) / a**0.5 for a, b in zip(sizes, sizes[1:])]
    biases = [0.1 * draw(b) for b in sizes[1:]]
    x, gradient = draw(rows, sizes[0] + 4)[:, : sizes[0]], draw(rows, sizes[-1])
    *values, prepared = fused_dense.dense(x, weights, biases, kind)
    for start, weight in zip(kernels.offsets(weights)[0], weights):
        size = weight.numel()
        assert torch.equal(prepared[start : start + size].view_as(weight), rounded(weight))
        assert torch.equal(prepared[start + size : start + 2 * size].view(-1, len(weight)), rounded(weight).t())
    before = x
    for number, (weight, bias, value) in enumerate(zip(weights, biases, values)):
        expected = rounded(before.contiguous()).double() @ rounded(weight).double().t() + bias.double()
        last = number == len(weights) - 1
        if not last:
            expected = torch.nn.functional.elu(expected) if kind == "elu" else expected.relu()
            assert torch.equal(rounded(value), value)
        allowed = 1e-6 if last else 5.5e-4
        assert float(((value - expected).abs() - allowed * expected.abs()).max()) < 2e-6, (sizes, number)
        before = value
    found = fused_dense.dense_backward(gradient, x, weights, values[:-1], prepared, kind)
    *by_weight, by_bias, first = found
    parts = by_bias.split(list(sizes[1:-1]))
    for layer in range(len(weights) - 1, 0, -1):
        value = values[layer - 1].double()
        expected = by_last = gradient.double().t() @ value
        assert torch.allclose(by_weight[layer].double(), expected, rtol=1e-3, atol=1e-3)
        slope = torch.where(value > 0, 1.0, value + 1.0 if kind == "elu" else torch.zeros_like(value))
        exact = (rounded(gradient).double() @ rounded(weights[layer]).double()) * slope
        assert torch.allclose(parts[layer - 1].double(), exact.sum(0), rtol=1e-5, atol=1e-4)
        gradient = rounded(exact.float())
    assert float((first - gradient).norm() / gradient.norm()) < 1e-4
    assert torch.allclose(by_weight[0], gradient.t() @ x, rtol=1e-3, atol=1e-2)
bad = torch.zeros(20, 5)
bad[3, 1] = float("nan")
bad[4, 1] = torch.tensor(0x7FFFFFFF, dtype=torch.int32).view(torch.float32)  # as a GPU writes it
weights = [torch.ones(16, 5), torch.ones(2, 16)]
for kind in ("elu", "relu"):
    *_, last, _ = fused_dense.dense(bad, weights, [torch.zeros(16), torch.zeros(2)], kind)
    assert last[3:5].isnan().all() and not last[:3].isnan().any() and not last[5:].isnan().any()
print("equal")
"""


@pytest.mark.slow
@pytest.mark.skipif(not has_triton(), reason="needs triton, which comes with PyTorch for a GPU")
def test_the_kernels_compute_what_they_should():
    """In Triton's interpreter, on the CPU; a process of its own, because that is chosen when Triton is imported."""
    folder = Path(fused_dense.__file__).parents[2]
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    run = subprocess.run(
        [sys.executable, "-c", KERNELS],
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    assert run.stdout.strip() == "equal", run.stderr[-2000:]
