"""HSD-3 on a GPU: recorded updates give the eager numbers and never wait for the host, plays are recorded too, runs
resume."""

import pytest
import torch
from hsd3_cases import NUM_ENVS, make_runner
from torch.testing import assert_close

from gaitway import OffPolicyRunner
from gaitway.algorithms.algorithm import Now
from gaitway.core.execution import Execution, ExecutionConfig

DEVICE, RECORDED = "cuda", "captured"

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

KINDS = {
    "full": {},
    "drawn": {"expectation_d": 2},
    "decisions alone": {"dense": False},
    "one goal space": {"agent": {"subsets": "0-2-3"}},
    "every step a decision": {"agent": {"interval": 1}},
    "overlapped": {"overlap": True},
}
LEARNER = {
    "batch_size": 64,
    "learning_starts": 200,
    "iteration_steps": 160,
    "updates_per_program": 8,
    "update_ratio": 0.5,
    "space_learning_rate": 3e-4,
    "goal_learning_rate": 3e-4,
    "critic_learning_rate": 3e-4,
    "temperature_learning_rate": 1e-3,
    "tau": 0.005,
}


def make(kind: str, mode: str = "eager", precision: str = "fp32") -> OffPolicyRunner:
    execution = Execution(ExecutionConfig(mode, precision), DEVICE)
    return make_runner(device=DEVICE, execution=execution, **(LEARNER | KINDS[kind]))


def flat(runner: OffPolicyRunner) -> torch.Tensor:
    return torch.cat([value.reshape(-1) for value in runner.algorithm.flat_parameters()])


def difference(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm())


@pytest.mark.parametrize(
    ("mode", "precision", "tolerance"),
    [(RECORDED, "fp32", 1e-5), (f"compiled_{RECORDED}", "fp32", 1e-4), (RECORDED, "tf32", 2e-3)],
)
@pytest.mark.parametrize("kind", KINDS)
def test_recorded_updates_equal_eager_ones(kind: str, mode: str, precision: str, tolerance: float) -> None:
    eager, recorded = make(kind), make(kind, mode, precision)
    eager.learn(480)
    recorded.load_state_dict(eager.state_dict())
    before = flat(eager).clone()
    for updates in (8, 1, 8, 1, 8, 1, 8, 1):  # statistics are of the last update of a recording, so both cut alike
        recorded.algorithm.update(recorded.replay, updates, Now())
        eager.algorithm.update(eager.replay, updates, Now())
    assert recorded.algorithm._many.is_recorded
    assert recorded.algorithm._single[0].is_recorded
    assert difference(flat(recorded), flat(eager)) < tolerance
    assert difference(flat(eager), before) > 10 * tolerance  # which says something: they have moved
    for name, ours in recorded.algorithm.temperatures.named_parameters():
        theirs = eager.algorithm.temperatures.get_parameter(name)
        assert_close(ours, theirs, atol=10 * tolerance, rtol=0)
    said, expected = recorded.algorithm.metrics(), eager.algorithm.metrics()
    assert said.keys() == expected.keys()
    for name, value in expected.items():
        assert_close(said[name], value, atol=100 * tolerance, rtol=100 * tolerance, msg=lambda text, n=name: n + text)


@pytest.mark.parametrize("kind", KINDS)
def test_a_recorded_update_never_waits_for_the_host(kind: str) -> None:
    runner = make(kind, RECORDED)
    runner.learn(640)
    for updates in (8, 1, 8, 1, 8, 1):  # both kinds of recordings are made
        runner.algorithm.update(runner.replay, updates, Now())
    assert runner.algorithm._many.is_recorded
    assert runner.algorithm._single[0].is_recorded
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            runner.algorithm.update(runner.replay, 17, Now())
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_recorded_decisions_are_the_eager_ones() -> None:
    """Without noise both play the same, step by step, through decisions, ends and new episodes."""
    eager, recorded = make("full"), make("full", RECORDED)
    for runner in (eager, recorded):
        runner.learn(800)
    ours, theirs = recorded.rollout, eager.rollout
    assert torch.equal(ours["decision/phase"], theirs["decision/phase"])
    assert set(ours["decision/phase"].unique().tolist()) == {0, 1, 2, 3, 4}
    assert ours["decision"].shape == (160 // NUM_ENVS, NUM_ENVS, 5)
    space = ours["decision"][..., 0]
    assert torch.equal(space, space.round())
    assert bool((space < recorded.policy.num_spaces).all())


@pytest.mark.parametrize("kind", ["full", "drawn"])
def test_a_recorded_run_resumes_exactly(kind: str) -> None:
    whole, first, second = make(kind, RECORDED), make(kind, RECORDED), make(kind, RECORDED)
    whole.learn(1600)
    first.learn(800)
    second.load_state_dict(first.state_dict())
    second.learn(800)
    assert second.parameters_sha256() == whole.parameters_sha256()
    assert torch.equal(flat(second), flat(whole))  # targets and temperatures too


def test_the_skills_move_along_and_stay_as_they_are() -> None:
    runner = make("full", RECORDED)
    before = runner.policy.low.skills.sha256
    assert next(runner.policy.low.skills.network.parameters()).device.type == DEVICE
    runner.learn(640)
    assert runner.policy.low.skills.sha256 == before
