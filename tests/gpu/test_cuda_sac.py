"""SAC on a GPU: recorded updates give the eager numbers and never wait for the host; a run resumes exactly."""

import dataclasses

import pytest
import torch

from gaitway import SAC, OffPolicyRunner, RunnerConfig, SACConfig, SoftActorCritic, SoftActorCriticConfig, make_env
from gaitway.algorithms.algorithm import Now
from gaitway.core.execution import Execution, ExecutionConfig
from gaitway.core.seeding import stream

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

CONFIG = SACConfig(batch_size=64, learning_starts=200, iteration_steps=160, replay_size=5000, updates_per_program=8)


def make_sac(
    mode: str = "eager",
    precision: str = "fp32",
    env_id: str = "HalfCheetah-v5",
    agent: SoftActorCriticConfig | None = None,
    num_envs: int = 8,
    **changes: object,
) -> OffPolicyRunner:
    env = make_env(env_id, num_envs=num_envs, seed=0, device="cuda")
    config = dataclasses.replace(CONFIG, **changes)
    agent = agent or SoftActorCriticConfig(actor_hidden=(64, 64), critic_hidden=(64, 64))
    policy = SoftActorCritic(env.spec, agent, stream(0, "parameters")).to("cuda")
    execution = Execution(ExecutionConfig(mode, precision), "cuda")
    algorithm = SAC(policy, config, num_envs=num_envs, execution=execution)
    return OffPolicyRunner(env, algorithm, RunnerConfig(total_steps=10**9))


def flat(runner: OffPolicyRunner) -> torch.Tensor:
    return torch.cat([value.reshape(-1) for value in runner.algorithm.flat_parameters()])


def difference(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm())


@pytest.mark.parametrize(
    ("mode", "precision", "tolerance"),
    [
        ("captured", "fp32", 1e-5),
        ("compiled_captured", "fp32", 1e-4),
        ("captured", "tf32", 2e-3),
        ("captured", "bf16", 2e-2),
    ],
)
@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "toy/cue"])
def test_recorded_updates_equal_eager_ones(env_id: str, mode: str, precision: str, tolerance: float) -> None:
    eager, recorded = make_sac(env_id=env_id), make_sac(mode, precision, env_id)
    eager.learn(480)
    recorded.load_state_dict(eager.state_dict())
    for updates in (8, 1, 8, 1, 8, 1, 8, 3):
        recorded.algorithm.update(recorded.replay, updates, Now())
        eager.algorithm.update(eager.replay, updates, Now())
    assert recorded.algorithm._many.is_recorded
    assert recorded.algorithm._single[0].is_recorded
    assert difference(flat(recorded), flat(eager)) < tolerance


@pytest.mark.parametrize(
    "agent",
    [
        SoftActorCriticConfig(actor_hidden=(32, 32), critic_hidden=(32, 32), trunk="d2rl", layer_norm=True),
        SoftActorCriticConfig(actor_hidden=(32, 32), critic_hidden=(32, 32), trunk="residual", critics=5),
    ],
)
def test_other_trunks_can_be_recorded(agent: SoftActorCriticConfig) -> None:
    eager, recorded = make_sac(agent=agent), make_sac("captured", agent=agent)
    for runner in (eager, recorded):
        runner.learn(640)
    assert recorded.algorithm._many.is_recorded
    assert difference(flat(recorded), flat(eager)) < 1e-3  # whole runs: rounding is amplified by the simulation


def test_a_recorded_update_never_waits_for_the_host() -> None:
    runner = make_sac("captured")
    runner.learn(640)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        runner.algorithm.update(runner.replay, 17, Now())
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_recorded_run_resumes_exactly() -> None:
    whole, first, second = make_sac("captured"), make_sac("captured"), make_sac("captured")
    whole.learn(1600)
    first.learn(800)
    second.load_state_dict(first.state_dict())
    second.learn(800)
    assert second.parameters_sha256() == whole.parameters_sha256()


def test_a_round_of_few_updates_is_one_recording_with_the_numbers_of_single_ones() -> None:
    together, apart = make_sac("captured", num_envs=4), make_sac("captured", num_envs=4, updates_per_program=1)
    for runner in (together, apart):
        runner.learn(640)
    assert together.algorithm._rest[4].is_recorded
    assert together.parameters_sha256() == apart.parameters_sha256()


def test_left_to_itself_it_overlaps_repeats_itself_and_resumes_exactly() -> None:
    chosen, asked = make_sac("captured", num_envs=4, overlap="auto"), make_sac("captured", num_envs=4, overlap=True)
    for runner in (chosen, asked):
        runner.learn(960)
    assert chosen.world.meanwhile is not None
    assert chosen.parameters_sha256() == asked.parameters_sha256()
    first, second = (make_sac("captured", num_envs=4, overlap="auto") for _ in range(2))
    first.learn(480)
    second.load_state_dict(first.state_dict())
    second.learn(480)
    assert second.parameters_sha256() == chosen.parameters_sha256()
