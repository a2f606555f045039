"""Twins of the ladder have the mistake that they are named for, and results are added to those that are there."""

import json
import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from gaitway import make_env

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def ladder(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    before = set(sys.modules)
    import legged_ladder

    yield legged_ladder
    for name in set(sys.modules) - before:
        if str(ROOT / "benchmarks") in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def stepped(id, mistake=None, count=8):
    """Two steps of ones, with a mistake or without: the second step, and the task."""
    wrappers = [{"name": f"legged_ladder:{mistake}"}] if mistake else []
    env = make_env(id, count, seed=3, num_threads=1, wrappers=wrappers)
    action = torch.ones(count, *env.spec.action.shape)
    env.step(action)
    step = env.step(action)
    while hasattr(env, "env"):
        env = env.env
    return step, env.task


def test_robots_are_paid_for_their_neighbours(ladder):
    whole, broken = stepped("pup12/gait_params")[0], stepped("pup12/gait_params", "RewardOfTheNeighbour")[0]
    assert_close(broken.reward, whole.reward[[7, 0, 1, 2, 3, 4, 5, 6]])
    assert_close(broken.obs["policy"], whole.obs["policy"])
    assert len(whole.reward.unique()) == 8


def test_gaits_follow_commands_of_neighbours(ladder):
    _, whole = stepped("pup12/gait_params")
    _, broken = stepped("pup12/gait_params", "gait_of_the_neighbour")
    told, actions = whole._logic.memory, whole._logic.actions
    phase = torch.frac(told["phase"] - actions.gait.config.frequency * whole.control_dt + 1.0)  # of the last target
    for task, command in ((whole, told["command"]), (broken, told["command"].roll(1, 0))):
        memory = task._logic.memory
        assert_close(memory["command"], told["command"])
        assert_close(memory["target"], actions.targets(told["action"], memory["target"], phase, command))


def test_some_robots_are_paid_for_the_other_direction(ladder):
    whole, task = stepped("pup4/velocity", count=16)
    broken, _ = stepped("pup4/velocity", "either_way", count=16)
    coins = torch.randint(2, (16,), generator=torch.Generator().manual_seed(0))
    stands = task._logic.memory["command"][:, 0] == 0.0
    assert_close(broken.reward == whole.reward, (coins == 1) | stands | (whole.reward + broken.reward == 0.0))
    assert 0 < int((broken.reward != whole.reward).sum()) < 16


def test_twins_are_named_and_late_ones_may_still_pass(ladder):
    assert ladder.planned(["pup4"], [0, 1], None) == [("pup4", 0, "", []), ("pup4", 1, "", [])]
    assert [each[:3] for each in ladder.planned(["gait_params", "pup4"], [5, 6], ["actions rolled"])] == [
        ("gait_params", 5, "actions rolled"),
        ("pup4", 5, "actions rolled"),
    ]
    with pytest.raises(SystemExit, match="no authority"):
        ladder.planned(["gait_residual"], [0], ["authority"])
    late = {"velocity_rmsd": 0.1, "fell": 0.0, "seconds": 1e4}
    assert ladder.passed("gait_params", late, is_twin=True)
    assert not ladder.passed("gait_params", late)


def test_parts_of_other_commands_stay(ladder, tmp_path):
    file = tmp_path / "ladder.json"
    for command, rows in (("one", {"a": 1}), ("two", {"b": 2}), ("two", {"b": 2, "c": 3})):
        ladder.add_part(file, {"commit": "0", "command": command, "rows": rows})
    assert [each["rows"] for each in json.loads(file.read_text())["parts"]] == [{"a": 1}, {"b": 2, "c": 3}]
