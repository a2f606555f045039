"""Fused layers on a GPU: their numbers, recorded and compiled, and that a compiled PPO in TF32 uses them."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from gaitway import PPO, ActorCritic, ActorCriticConfig, OnPolicyRunner, PPOConfig, RunnerConfig, make_env
from gaitway.algorithms.algorithm import Now
from gaitway.core import execution
from gaitway.core.execution import Execution, ExecutionConfig
from gaitway.core.seeding import stream
from gaitway.core.workspace import Variable, Workspace
from gaitway.nn.fused_dense import FusedDense, dense, dense_backward, has_triton
from gaitway.nn.mlp import MLP

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
    pytest.mark.skipif(not has_triton(), reason="needs triton, which comes with PyTorch for a GPU"),
]


@pytest.fixture(autouse=True)
def _programs_fuse(monkeypatch):
    monkeypatch.setattr(execution, "FUSES_PRODUCTS", True)


@pytest.fixture
def fused(monkeypatch):
    monkeypatch.setattr(execution, "_fused", True)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


def parts(sizes, rows):
    draw = torch.Generator("cuda").manual_seed(0)
    weights = [torch.randn(b, a, device="cuda", generator=draw) / a**0.5 for a, b in itertools.pairwise(sizes)]
    biases = [0.1 * torch.randn(b, device="cuda", generator=draw) for b in sizes[1:]]
    x = torch.randn(rows, sizes[0] + 4, device="cuda", generator=draw)[:, : sizes[0]]
    return x, weights, biases, torch.randn(rows, sizes[-1], device="cuda", generator=draw)


@pytest.mark.parametrize("kind", ["elu", "relu"])
@pytest.mark.parametrize("rows", [24_576, 1000, 7])
@pytest.mark.parametrize("sizes", [(48, 512, 256, 128, 12), (48, 512, 256, 128, 1), (5, 64, 64, 3), (33, 130, 17)])
def test_layers_and_their_gradients_are_those_of_float64(fused, sizes, rows, kind):
    x, weights, biases, gradient = parts(sizes, rows)
    wanted = [each.requires_grad_() for each in (*weights, *biases)]
    found = dense(x, weights, biases, kind)[-2]
    exact = [each.detach().double().requires_grad_() for each in wanted]
    h = x.double()
    for number in range(len(weights)):
        h = h @ exact[number].t() + exact[len(weights) + number]
        if number < len(weights) - 1:
            h = F.elu(h) if kind == "elu" else h.relu()
    assert float((found - h).norm() / h.norm()) < 2e-3
    expected = torch.autograd.grad((h * gradient).sum(), exact)
    for one, other in zip(torch.autograd.grad((found * gradient).sum(), wanted), expected, strict=True):
        apart = float((one - other).norm() / other.norm().clamp(min=1e-6))
        # where a rectifier bends, rounding decides: of 2,000 units one or two are on its other side, sqrt(1e-3) = 3e-2
        assert apart < (4e-3 if kind == "elu" else 6e-2), (one.shape, apart)


def test_a_recording_gives_the_same_bits(fused):
    x, weights, biases, gradient = parts((48, 512, 256, 128, 12), 24_576)

    def work():
        *values, prepared = dense(x, weights, biases, "elu")
        return [*values, *dense_backward(gradient, x, weights, values[:-1], prepared, "elu")]

    plain = [each.clone() for each in work()]
    work()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = work()
    for _ in range(3):
        graph.replay()
        assert all(torch.equal(one, other) for one, other in zip(recorded, plain, strict=True))


def test_what_is_not_a_number_stays_so(fused):
    network = MLP(4, (64, 64), 2, "elu").cuda()
    x = torch.zeros(300, 4, device="cuda")
    x[7, 1] = float("nan")
    found = FusedDense.of(network)(x)
    assert found[7].isnan().all()
    assert not found[:7].isnan().any()
    assert not found[8:].isnan().any()


def make_ppo(mode, precision):
    env = make_env("HalfCheetah-v5", num_envs=16, seed=0, device="cuda")
    agent = ActorCriticConfig(actor_hidden=(64, 32), critic_hidden=(64, 32), activation="elu")
    policy = ActorCritic(env.spec, agent, stream(0, "parameters")).to("cuda")
    config = PPOConfig(rollout_steps=16, epochs=1, minibatches=1, schedule="adaptive", entropy_coef=0.01)
    algorithm = PPO(policy, config, num_envs=16, execution=Execution(ExecutionConfig(mode, precision), "cuda"))
    return OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=10**9))


def test_a_compiled_ppo_in_tf32_learns_with_fused_layers(caplog):
    plain, fast = make_ppo("eager", "fp32"), make_ppo("compiled_captured", "tf32")
    plain.learn(256)
    for iteration in range(4):
        one, other = plain.algorithm, fast.algorithm
        other.load_state_dict(one.state_dict())
        other.update(plain.rollout, Now(iteration))
        one.update(plain.rollout, Now(iteration))
        apart = other.engine.parameters.gradient - one.engine.parameters.gradient
        assert float(apart.norm() / one.engine.parameters.gradient.norm()) < 4e-3
    assert fast.policy.actor._fused is not None
    assert fast.policy.critic._fused is not None
    assert fast.algorithm._pass.is_recorded
    assert "cannot be" not in caplog.text
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        fast.algorithm.update(plain.rollout, Now(4))
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_compiled_run_with_fused_layers_resumes_exactly():
    whole, first, second = (make_ppo("compiled_captured", "tf32") for _ in range(3))
    whole.learn(8 * 256)
    first.learn(4 * 256)
    second.load_state_dict(first.state_dict())
    second.learn(4 * 256)
    assert second.parameters_sha256() == whole.parameters_sha256()


def test_rows_written_together_are_those_written_one_by_one():
    variables = {"a": Variable(4, 3, (2,), torch.float32), "b": Variable(4, 3, (), torch.bool)}
    variables |= {"c": Variable(5, 3, (), torch.float32), "d": Variable(4, 3, (5,), torch.uint8)}
    one, other = (Workspace.dense(variables, "cuda") for _ in range(2))
    names, shifts = list(variables), [0, 0, 1, 0]
    put = one.copiers(names, shifts)
    for t in range(4):
        strided = torch.randn(2, 3, device="cuda").t()  # not in one piece
        values = [strided, torch.rand(3, device="cuda") < 0.5, torch.randn(3, device="cuda")]
        values.append(torch.randint(0, 255, (3, 5), device="cuda", dtype=torch.uint8))
        put(t, values)
        for name, shift, value in zip(names, shifts, values, strict=True):
            other.put(name, t + shift, value)
    assert all(torch.equal(one[name], other[name]) for name in names)
