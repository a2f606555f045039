"""What only a GPU can show: recorded updates give the eager numbers, never wait for the host, and fall back aloud."""

import logging
from collections import Counter
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from gaitway import PPO, ActorCritic, ActorCriticConfig, OnPolicyRunner, PPOConfig, RunnerConfig, make_env
from gaitway.agents.branch import MemoryConfig
from gaitway.agents.observations import Observations
from gaitway.algorithms.algorithm import Now
from gaitway.algorithms.ppo import standard_terms
from gaitway.core.execution import Execution, ExecutionConfig
from gaitway.core.seeding import stream
from gaitway.nn.memory import Memory
from gaitway.rewards.novelty import RandomNetworkDistillation

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

CONFIG = PPOConfig(rollout_steps=16, epochs=3, minibatches=2, schedule="adaptive", entropy_coef=0.01)
MEMORIES = {
    "mlp": MemoryConfig(),
    "gru": MemoryConfig("gru", size=32),
    "lstm": MemoryConfig("lstm", size=32, layers=2),
}


def make_ppo(mode: str = "eager", precision: str = "fp32", memory: str = "mlp", terms=()) -> OnPolicyRunner:
    env = make_env("HalfCheetah-v5", num_envs=8, seed=0, device="cuda")
    agent = ActorCriticConfig(actor_hidden=(64, 64), critic_hidden=(64, 64), memory=MEMORIES[memory])
    policy = ActorCritic(env.spec, agent, stream(0, "parameters")).to("cuda")
    every = [*standard_terms(CONFIG, policy), *terms]
    execution = Execution(ExecutionConfig(mode, precision), "cuda")
    algorithm = PPO(policy, CONFIG, num_envs=8, terms=every, execution=execution)
    return OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=10**9))


PAST = {"name": "history", "reads": ["pos", "vel"], "writes": "past", "length": 4, "size": 8}


class Estimate:
    """A term: the first number of the block should be the velocity."""

    name = "estimate"
    coef = 0.5
    reads = ("env/obs/vel", "new/past")

    def __call__(self, batch, now):
        return (batch["new/past"][..., :1] - batch["env/obs/vel"]).square().mean(), {}


def make_assembled(mode: str = "eager", kind: type[ActorCritic] = ActorCritic, memory: str = "mlp") -> OnPolicyRunner:
    """PPO with a history block, a further term and a reward source that learns."""
    env = make_env("toy/pendulum", num_envs=8, seed=0, device="cuda", max_episode_steps=10)
    agent = ActorCriticConfig(
        actor_hidden=(32,), critic_hidden=(32,), init="default", blocks=(PAST,), memory=MEMORIES[memory],
        observations=Observations(("pos", "past")),
    )  # fmt: skip
    policy = kind(env.spec, agent, stream(0, "parameters")).to("cuda")
    execution = Execution(ExecutionConfig(mode, "fp32"), "cuda")
    algorithm = PPO(policy, CONFIG, num_envs=8, terms=[Estimate()], execution=execution)
    novelty = RandomNetworkDistillation(env.spec, 0.1, updates=2, batch_size=32, device="cuda", execution=execution)
    return OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=10**9), rewards=[novelty])


def difference(one: Tensor, other: Tensor) -> float:
    """Relative to the size of the parameters."""
    return float((one - other).norm() / other.norm())


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize(
    ("mode", "precision", "tolerance"),
    [
        ("captured", "fp32", 1e-5),
        ("compiled_captured", "fp32", 1e-5),
        ("captured", "tf32", 2e-3),
        ("captured", "bf16", 2e-2),
    ],
)
def test_recorded_updates_equal_eager_ones(memory: str, mode: str, precision: str, tolerance: float) -> None:
    eager, recorded = make_ppo(memory=memory), make_ppo(mode, precision, memory)
    eager.learn(128)
    for iteration in range(3):
        one, other = eager.algorithm, recorded.algorithm
        other.load_state_dict(one.state_dict())
        other.update(eager.rollout, Now(iteration))
        one.update(eager.rollout, Now(iteration))
        assert difference(other.engine.parameters.value, one.engine.parameters.value) < tolerance
    assert recorded.algorithm._pass.is_recorded


@pytest.mark.parametrize("memory", MEMORIES)
def test_recorded_collection_draws_the_eager_actions(memory: str) -> None:
    eager, recorded = make_ppo(memory=memory), make_ppo("captured", memory=memory)
    for runner in (eager, recorded):
        runner._begin()
        runner._collect()
    for name in ("action", "policy/params", "env/reward"):
        assert torch.allclose(eager.rollout[name], recorded.rollout[name], atol=1e-4), name


def test_a_recorded_update_never_waits_for_the_host() -> None:
    runner = make_ppo("captured")
    runner.learn(3 * 128)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        runner.algorithm.update(runner.rollout, Now(3, 384, 0.3))
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("memory", ["mlp", "gru"])
def test_recorded_updates_with_block_term_and_reward_source_equal_eager_ones(memory: str) -> None:
    eager, recorded = make_assembled(memory=memory), make_assembled("captured", memory=memory)
    eager.learn(128)
    recorded.rewards.load_state_dict(eager.rewards.state_dict())
    before = eager.policy.blocks[0].network.last.weight.detach().clone()
    for iteration in range(4):
        one, other, now = eager.algorithm, recorded.algorithm, Now(iteration)
        other.load_state_dict(one.state_dict())
        eager.rewards.begin(now)
        eager.rewards.annotate(eager.rollout)
        for runner in (recorded, eager):
            runner.rewards.update(eager.rollout, now)
            runner.algorithm.update(eager.rollout, now)
        assert difference(other.engine.parameters.value, one.engine.parameters.value) < 1e-5
    assert recorded.algorithm._pass.is_recorded
    assert difference(*(runner.rewards.sources[1].engine.parameters.value for runner in (recorded, eager))) < 1e-5
    assert not torch.equal(recorded.policy.blocks[0].network.last.weight, before)


@pytest.mark.parametrize("memory", ["mlp", "gru"])
def test_recorded_collection_moves_the_memories_on_as_the_eager_one(memory: str) -> None:
    eager, recorded = make_assembled(memory=memory), make_assembled("captured", memory=memory)
    for runner in (eager, recorded):
        runner._begin()
        for iteration in range(3):  # rows go on from the last one, beyond the ends of episodes
            runner.iteration = iteration
            runner._collect()
    assert bool(eager.rollout["env/truncated"].any())
    for name in ("action", "env/reward", *eager.policy.memories):
        assert torch.allclose(eager.rollout[name], recorded.rollout[name], atol=1e-4), name
        assert bool(recorded.rollout[name].any()), name


class Deaf(ActorCritic):
    """Overrides what networks read, and the outputs; counts how often it is asked."""

    asked: ClassVar[Counter[str]] = Counter()

    def inputs(self, *args, **options):
        self.asked["inputs"] += 1
        found = super().inputs(*args, **options)
        return found._replace(networks={name: 0.5 * value for name, value in found.networks.items()})

    def outputs(self, batch):
        self.asked["outputs"] += 1
        found = super().outputs(batch)
        return found | {"value": found["value"] + 1.0}


def test_overrides_are_obeyed_in_captured_mode() -> None:
    plain, eager = make_assembled("captured"), make_assembled(kind=Deaf)
    Deaf.asked.clear()
    recorded = make_assembled("captured", kind=Deaf)
    for runner in (plain, eager, recorded):
        runner._begin()
        runner._collect()
    assert Deaf.asked["inputs"]
    assert torch.allclose(recorded.rollout["action"], eager.rollout["action"], atol=1e-4)
    assert not torch.allclose(recorded.rollout["action"], plain.rollout["action"], atol=1e-4)
    for runner in (plain, eager, recorded):
        runner.rewards.begin(Now())
        runner.rewards.annotate(runner.rollout)
    for iteration in range(4):
        for runner in (plain, recorded):
            runner.algorithm.load_state_dict(eager.algorithm.state_dict())
            runner.algorithm.update(eager.rollout, Now(iteration))
        eager.algorithm.update(eager.rollout, Now(iteration))
        one, other, third = (r.algorithm.engine.parameters.value for r in (eager, recorded, plain))
        assert difference(other, one) < 1e-5
        assert difference(third, one) > 1e-4
    assert recorded.algorithm._pass.is_recorded
    assert Deaf.asked["outputs"]


def test_a_recorded_update_with_block_term_and_reward_source_never_waits_for_the_host() -> None:
    runner = make_assembled("captured")
    runner.learn(5 * 128)
    assert runner.algorithm._pass.is_recorded
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        runner._annotate(Now(5, 640, 0.3))
        runner.algorithm.update(runner.rollout, Now(5, 640, 0.3))
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_recorded_run_with_memories_resumes_exactly() -> None:
    whole, first, second = (make_assembled("captured", memory="gru") for _ in range(3))
    whole.learn(8 * 128)
    first.learn(4 * 128)
    second.load_state_dict(first.state_dict())
    second.learn(4 * 128)
    assert second.parameters_sha256() == whole.parameters_sha256()


class Impatient:
    """A broken term: it looks at its own value."""

    name = "impatient"
    coef = 1.0
    reads = ()

    def __call__(self, batch, now):
        loss = batch["new/value"].square().mean()
        return loss * min(loss.item(), 1.0), {}


def test_what_cannot_be_recorded_runs_eagerly_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    eager, refused = make_ppo(terms=[Impatient()]), make_ppo("captured", terms=[Impatient()])
    eager.learn(128)
    refused.algorithm.load_state_dict(eager.algorithm.state_dict())
    with caplog.at_level(logging.WARNING, "gaitway"):
        for _ in range(2):
            refused.algorithm.update(eager.rollout, Now())
            eager.algorithm.update(eager.rollout, Now())
    assert len([r for r in caplog.records if "cannot be recorded as a CUDA graph and runs eagerly" in r.message]) == 1
    one, other = eager.algorithm.engine.parameters.value, refused.algorithm.engine.parameters.value
    assert difference(other, one) < 1e-5
    assert torch.randn(3, device="cuda").isfinite().all()  # the GPU goes on working


def test_a_generator_survives_a_refused_recording() -> None:
    generator = torch.Generator("cuda").manual_seed(1)
    twin = torch.Generator("cuda").manual_seed(1)
    out = torch.zeros(4, device="cuda")

    def draw() -> None:
        out.normal_(generator=generator)
        out.sum().item()

    program = Execution(ExecutionConfig("captured"), "cuda").program(draw, "a draw", [generator])
    for _ in range(5):
        program()
        assert torch.equal(out, torch.empty(4, device="cuda").normal_(generator=twin))
    assert program.refused


def test_a_recorded_generator_goes_on_as_eagerly_and_can_be_restored() -> None:
    generator = torch.Generator("cuda").manual_seed(1)
    twin = torch.Generator("cuda").manual_seed(1)
    out = torch.zeros(1000, device="cuda")

    def draw() -> None:
        out.normal_(generator=generator)

    program = Execution(ExecutionConfig("captured"), "cuda").program(draw, "a draw", [generator])
    saved = None
    for number in range(8):
        if number == 5:
            saved = generator.get_state()
        program()
        assert torch.equal(out, torch.empty(1000, device="cuda").normal_(generator=twin)), number
    last = out.clone()
    generator.set_state(saved)
    for _ in range(3):
        program()
    assert torch.equal(out, last)


def test_a_recorded_run_resumes_exactly() -> None:
    whole, first, second = make_ppo("captured"), make_ppo("captured"), make_ppo("captured")
    whole.learn(8 * 128)
    first.learn(4 * 128)
    second.load_state_dict(first.state_dict())
    second.learn(4 * 128)
    assert second.parameters_sha256() == whole.parameters_sha256()


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("layers", [1, 2])
def test_fused_memories_equal_the_plain_ones(kind: str, layers: int) -> None:
    generator = torch.Generator().manual_seed(0)
    memory = Memory(kind, 5, 16, layers, generator).double()
    x = torch.randn(7, 3, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    state = torch.randn(3, memory.state_size, generator=generator, dtype=torch.float64, requires_grad=True)
    starts = torch.rand(7, 3, generator=generator) < 0.3
    names = [name for name, _ in memory.named_parameters()]
    results = {}
    for device in ("cpu", "cuda"):
        memory = memory.to(device)
        out = memory.sequence(x.to(device), state.to(device), starts.to(device), "stepwise")
        gradients = torch.autograd.grad(out.square().sum(), [x, state, *memory.parameters()])
        results[device] = [out.detach().cpu(), *(gradient.cpu() for gradient in gradients)]
    for name, one, other in zip(["out", "x", "state", *names], results["cpu"], results["cuda"], strict=True):
        assert torch.allclose(one, other, atol=1e-6, rtol=1e-6), name


def test_the_first_replay_draws_as_eagerly_on_a_gpu_that_others_keep_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch begins a recording by resetting the place of its generators, on the stream of the recording. Here that
    happens late, while the first replay, on another stream, is about to draw."""
    generator = torch.Generator("cuda").manual_seed(1)
    twin = torch.Generator("cuda").manual_seed(1)
    out = torch.zeros(1000, device="cuda")

    def draw() -> None:
        torch.cuda._sleep(200_000_000)
        out.normal_(generator=generator)

    execution = Execution(ExecutionConfig("captured"), "cuda")
    program, synchronize = execution.program(draw, "a draw", [generator]), torch.cuda.synchronize

    def busy(*arguments: Any) -> None:  # the last thing before a recording begins
        synchronize(*arguments)
        with torch.cuda.stream(execution._stream):
            torch.cuda._sleep(100_000_000)

    monkeypatch.setattr(torch.cuda, "synchronize", busy)
    for number in range(5):
        program()
        assert torch.equal(out, torch.empty(1000, device="cuda").normal_(generator=twin)), number
    assert program.is_recorded
