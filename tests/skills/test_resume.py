"""Runs that learn skills resume bit for bit on the CPU: within a goal, and right after tasks were added."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from resume_cases import CASES, END, MIDDLE, STEPS, begun, close, differing, metrics, numbers, reopened

from gaitway.cli.build import build_runner
from gaitway.cli.main import main
from gaitway.cli.train_config import TrainConfig
from gaitway.core.files import load_state
from gaitway.runners.off_policy import OffPolicyRunner


@pytest.mark.parametrize("name", CASES)
def test_resume_is_exact(name, tmp_path):
    case = CASES[name]
    config, path = case.config(), tmp_path / "run"
    whole = begun(config, path)
    whole.learn()
    expected, lines = numbers(whole.state_dict()), metrics(path)
    files = stored_skills(path)
    close(whole)

    twin = reopened(config, path)
    fresh = numbers(twin.state_dict())
    assert twin.resume(str(case.middle)) == case.middle
    stands_in_the_middle(twin, name)
    twin.learn()
    found = numbers(twin.state_dict())
    assert differing(found, expected) == []
    assert metrics(path) == lines
    assert stored_skills(path) == files
    close(twin)

    # what is compared is all there is, and moves
    moved = {place.split("/")[1] for place in differing(fresh, expected)}
    assert {"algorithm", "replay", "env", "policy_stream", "episodes", "env_steps", "updates"} <= moved
    learnt = {place.split("/")[2] for place in differing(fresh, expected) if place.startswith("/algorithm/")}
    assert learnt >= {"policy", "engines", "temperature", "noise_stream"}
    if "diayn" in name:
        assert any(place.startswith("/carried/") for place in expected)  # the skills that are pursued
    else:
        assert learnt >= {"counts", "rounds"}
        networks = {place.split("/")[3].split(".")[0] for place in expected if place.startswith("/algorithm/policy/")}
        assert networks >= {"actor", "target_actor", "critic", "target"}


def stands_in_the_middle(runner: OffPolicyRunner, name: str) -> None:
    """That the checkpoint lies where it shows something."""
    memory = (runner.env.task if name == "walker" else runner.env.toy).logic.memory
    assert (memory["time"] > 0).any()  # within goals
    assert runner.replay.rows_added * 8 > 320  # the replay has wrapped around
    callbacks = runner.upkeep.callbacks.named
    if "curriculum" not in callbacks:
        return
    curriculum = callbacks["curriculum"].curriculum
    assert callbacks["curriculum"].reviewed == MIDDLE
    assert curriculum.new  # tasks were added by the review just before
    keys = [runner.algorithm.facts.tasks.key_of(task) for task in curriculum.new]
    assert (memory["task_weights"][keys] > 0).all()  # and are drawn
    assert not set(keys) & set(memory["task_key"].tolist())  # from the next goals on
    assert runner.algorithm.td_errors()


def stored_skills(path) -> dict[str, Any] | None:
    """What the skill file of a run holds, as text."""
    for kind in ("skills", "continuous_skills"):
        if (path / kind).exists():
            state, meta = load_state(path / kind, kind=kind)
            return {name: repr(value) for name, value in numbers({"state": state, "meta": meta}).items()}
    return None


BROKEN = {
    "a temperature": ("algorithm", "temperature"),
    "its optimiser": ("algorithm", "engines", "temperature"),
    "the critics' optimiser": ("algorithm", "engines", "critic"),
    "TD errors": ("algorithm", "counts"),
    "rounds": ("algorithm", "rounds"),
    "noise": ("algorithm", "noise_stream"),
    "replay": ("replay",),
    "goals": ("env",),
    "curriculum": ("callbacks", "curriculum"),
    "the policy's noise": ("policy_stream",),
}


def test_a_state_that_lacks_something_is_not_exact():
    config = CASES["overlap"].config()
    whole = without_evaluation(config)
    fresh = whole.state_dict()
    whole.learn(MIDDLE)
    state = whole.state_dict()
    whole.learn(STEPS)
    expected = numbers(whole.state_dict())
    whole.env.close()
    for lacking, place in ({"nothing": ()} | BROKEN).items():
        twin = without_evaluation(config)
        twin.load_state_dict(with_part(state, fresh, place))
        twin.learn(STEPS)
        exact = differing(numbers(twin.state_dict()), expected) == []
        twin.env.close()
        assert exact == (lacking == "nothing"), lacking


def without_evaluation(config: TrainConfig) -> OffPolicyRunner:
    runner = build_runner(config, None)
    runner.upkeep.judge.make_env = None
    return runner


def with_part(state: dict[str, Any], fresh: dict[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
    """`state` with the part at `place` as it was at the start."""
    if not place:
        return state
    key, *rest = place
    return state | {key: with_part(state[key], fresh[key], tuple(rest)) if rest else fresh[key]}


def test_the_command_resumes_exactly(tmp_path):
    config, path = CASES["temperature per task"].config(), tmp_path / "run"
    whole = begun(config, path)
    whole.learn()
    expected, lines = numbers(whole.state_dict()), metrics(path)
    close(whole)
    shutil.rmtree(path / "checkpoints" / str(END))
    assert main(["resume", str(path), "--checkpoint", str(MIDDLE), "--quiet"]) == 0
    assert metrics(path) == lines
    twin = reopened(config, path)
    assert twin.resume() == END
    assert differing(numbers(twin.state_dict()), expected) == []
    close(twin)
