"""Skill learners on a GPU: recorded updates give the eager numbers and never wait for the host; a run resumes."""

from dataclasses import replace

import pytest
import torch
from resume_cases import CASES, MIDDLE, begun, close, differing, metrics, numbers, reopened
from torch.testing import assert_close

from gaitway import OffPolicyRunner, RunnerConfig, make_env
from gaitway.agents.diayn_policy import DIAYNPolicy, DIAYNPolicyConfig
from gaitway.agents.skill_policy import SkillPolicy, SkillPolicyConfig
from gaitway.algorithms.algorithm import Now
from gaitway.core.execution import Execution, ExecutionConfig
from gaitway.core.seeding import stream
from gaitway.skills.diayn import DIAYN, DIAYNConfig
from gaitway.skills.multitask_sac import TD_ROUNDS, MultitaskSAC, MultitaskSACConfig

DEVICE, RECORDED = "cuda", "captured"

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

LEARNER = {
    "batch_size": 64,
    "learning_starts": 200,
    "iteration_steps": 160,
    "replay_size": 5000,
    "updates_per_program": 8,
    "update_ratio": 0.5,
    "actor_learning_rate": 3e-4,
    "critic_learning_rate": 3e-4,
    "temperature_learning_rate": 1e-3,
}
HIDDEN = {"actor_hidden": (64, 64, 64), "critic_hidden": (64, 64, 64)}
EXPLICIT = {"full_episodes": True, "implicit_soft_resets": False, "normalize_gs_observation": True}
KINDS = ["one temperature", "temperature per task", "diayn", "diayn-c"]


def make(kind: str, mode: str = "eager", precision: str = "fp32") -> OffPolicyRunner:
    """Eight robots with goals of at most 12 steps; multi-task SAC on all tasks of the Walker, DIAYN on the toy."""
    is_diayn = kind.startswith("diayn")
    env_id, options = ("point/skills", EXPLICIT) if is_diayn else ("walker/skills", {"rank_max": 5, "reset_p": 0.05})
    env = make_env(env_id, num_envs=8, seed=0, device=DEVICE, max_steps=12, **options)
    execution, generator = Execution(ExecutionConfig(mode, precision), DEVICE), stream(0, "parameters")
    if is_diayn:
        sizes = DIAYNPolicyConfig(
            **HIDDEN, discriminator_hidden=(32, 32), n_skills=4, n_embed=7 if kind == "diayn-c" else None
        )
        policy = DIAYNPolicy(env.spec, sizes, generator).to(DEVICE)
        algorithm = DIAYN(policy, DIAYNConfig(**LEARNER), num_envs=8, execution=execution)
    else:
        config = MultitaskSACConfig(**LEARNER, per_task_temperature=kind == "temperature per task")
        policy = SkillPolicy(env.spec, SkillPolicyConfig(**HIDDEN), generator).to(DEVICE)
        algorithm = MultitaskSAC(policy, config, num_envs=8, execution=execution)
    return OffPolicyRunner(env, algorithm, RunnerConfig(total_steps=10**9))


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
    rounds = (8, 1, 8, 1, 8, 1, 8, 3, 8, 1, 1)  # more than TD_ROUNDS, so that TD errors are noted too
    assert len(rounds) > TD_ROUNDS
    for updates in rounds:
        recorded.algorithm.update(recorded.replay, updates, Now())
        eager.algorithm.update(eager.replay, updates, Now())
    assert recorded.algorithm._many.is_recorded
    assert recorded.algorithm._single[0].is_recorded
    assert difference(flat(recorded), flat(eager)) < tolerance
    assert difference(flat(eager), before) > 10 * tolerance  # which says something: they have moved
    ours, theirs = recorded.algorithm.temperature, eager.algorithm.temperature
    assert_close(ours.log_value, theirs.log_value, atol=10 * tolerance, rtol=0)
    if kind in ("one temperature", "temperature per task"):
        ours, theirs = recorded.algorithm.counts, eager.algorithm.counts
        assert torch.equal(ours.used, theirs.used)
        assert torch.equal(ours.seen, theirs.seen)
        assert float(ours.seen.sum()) == recorded.replay.size  # nothing was overwritten
        assert torch.equal(ours.known, theirs.known)
        assert_close(ours.error, theirs.error, atol=10 * tolerance, rtol=100 * tolerance)
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
        for _ in range(TD_ROUNDS + 1):  # one of them notes TD errors
            if isinstance(runner.algorithm, MultitaskSAC):
                runner.algorithm._counted_rows = 0  # all rows are counted, as if they had just been added
            runner.algorithm.update(runner.replay, 17, Now())
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("kind", ["temperature per task", "diayn-c"])
def test_a_recorded_run_resumes_exactly(kind: str) -> None:
    whole, first, second = make(kind, RECORDED), make(kind, RECORDED), make(kind, RECORDED)
    whole.learn(1600)
    first.learn(800)
    second.load_state_dict(first.state_dict())
    second.learn(800)
    assert second.parameters_sha256() == whole.parameters_sha256()
    assert torch.equal(flat(second), flat(whole))  # targets and temperatures too


@pytest.mark.parametrize("name", ["temperature per task", "diayn"])
def test_a_run_resumes_from_its_folder(name: str, tmp_path) -> None:
    """Right after a review that added tasks, which lie in the environment's weights."""
    config = replace(CASES[name].config(), device=DEVICE, execution=ExecutionConfig(RECORDED, "fp32"))
    path = tmp_path / "run"
    whole = begun(config, path)
    whole.learn()
    expected, lines = numbers(whole.state_dict()), metrics(path)
    close(whole)
    twin = reopened(config, path)
    assert twin.resume(str(MIDDLE)) == MIDDLE
    twin.learn()
    # TD errors of a task are added up in any order on a GPU; these runs do not weigh tasks by them
    assert set(differing(numbers(twin.state_dict()), expected)) <= {"/algorithm/counts/error"}
    close(twin)
    for ours, theirs in zip(metrics(path), lines, strict=True):
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            assert ours[key] == pytest.approx(value, rel=1e-5 if key.startswith("td_error/") else 0, nan_ok=True), key
