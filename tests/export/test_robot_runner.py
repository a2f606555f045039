"""The file that goes to the robot: alone, with NumPy and onnxruntime."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import gaitway
from gaitway.export.acting_step import limited
from gaitway.export.robot_runner import RobotRunner

ALONE = """
import importlib.abc, runpy, sys

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("gaitway", "torch", "onnx", "onnxscript"):
            raise ImportError(f"{name} is not on the robot")

sys.meta_path.insert(0, Blocked())
"""


def alone(folder, script, *arguments):
    """Run with nothing of ours to import; `script` follows the blocker."""
    command = [sys.executable, "-I", "-c", ALONE + script, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="module")
def robot(exported, tmp_path_factory):
    """The export alone in another place, without the torch program."""
    folder = tmp_path_factory.mktemp("robot") / "policy"
    shutil.copytree(exported, folder)
    (folder / "policy.pt2").unlink()
    return folder


@pytest.fixture
def copy(robot, tmp_path):
    return Path(shutil.copytree(robot, tmp_path / "copy"))


def observations(rows, seed=0):
    draw = np.random.default_rng(seed)
    return [{"pos": draw.normal(size=2).astype(np.float32), "vel": draw.normal(size=1).astype(np.float32)}
            for _ in range(rows)]  # fmt: skip


def test_it_runs_alone(robot):
    done = alone(robot, "sys.argv = ['robot_runner.py', '--calls', '20']\n"
                 "runpy.run_path('robot_runner.py', run_name='__main__')")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "obs/pos                  float32 [2]: cos, sin" in done.stdout
    assert "actor/memory_in          float32 [8], comes back as actor/memory_out" in done.stdout
    assert "microseconds a call      median" in done.stdout
    assert "a step lasts 50,000" in done.stdout


def test_it_says_where_the_imu_is(copy):
    file = copy / "policy_contract.json"
    imu = {"site": "head", "position": [0.1, 0.0, 0.05], "rotation": [0.0, 1.0, 0.0, 0.0]}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"drive": {"joints": [], "imu": imu}}))
    done = alone(copy, "sys.argv = ['robot_runner.py', '--calls', '20']\n"
                 "runpy.run_path('robot_runner.py', run_name='__main__')")  # fmt: skip
    assert done.returncode == 0, done.stderr
    expected = "the site head at [0.1, 0.0, 0.05] m in the base, turned by the quaternion [0.0, 1.0, 0.0, 0.0]"
    assert f"frame imu                {expected}" in done.stdout


def test_the_blocker_blocks(robot):
    assert "not on the robot" in alone(robot, "import torch").stderr
    assert "not on the robot" in alone(robot, "import gaitway.version").stderr


def test_alone_it_does_what_the_policy_does(robot, run):
    rows = observations(12)
    script = """
import json
found = runpy.run_path("robot_runner.py")
runner = found["RobotRunner"](".")
rows = json.loads(sys.argv[1])
first = [runner(row).tolist() for row in rows]
runner.reset()
print(json.dumps([first, [runner(row).tolist() for row in rows]]))
"""
    plain = [{name: value.tolist() for name, value in row.items()} for row in rows]
    done = alone(robot, script, json.dumps(plain))
    assert done.returncode == 0, done.stderr
    first, again = json.loads(done.stdout)
    loaded = gaitway.load(run)
    wanted = [loaded.predict(row) for row in rows]
    assert np.abs(np.array(first) - np.array(wanted)).max() <= 1e-6
    assert first == again
    assert np.abs(np.diff(np.array(first), axis=0)).max() > 1e-3


def test_rows_remember_and_forget_by_themselves(robot, run):
    rows, runner = observations(3), RobotRunner(robot, batch=2)
    policy = gaitway.load(run).policy
    state = policy.initial_state(2, "cpu")
    for at, row in enumerate(rows):
        obs = {name: np.stack([value, -value]) for name, value in row.items()}
        if at == 2:
            runner.reset([False, True])
            state = state * torch.tensor([[1.0], [0.0]])
        with torch.no_grad():
            tensors = {name: torch.from_numpy(value) for name, value in obs.items()}
            action, state = policy.act(tensors, state, False)
        assert np.abs(runner(obs) - limited(action, policy.spec.action).numpy()).max() <= 1e-6


def test_components_by_name_are_put_in_order(robot):
    runner, other = RobotRunner(robot), RobotRunner(robot)
    named = {"vel": {"velocity": 0.5}, "pos": {"sin": 0.2, "cos": -0.1}}
    assert runner(named) == other({"pos": [-0.1, 0.2], "vel": [0.5]})


class TestMistakes:
    @pytest.mark.parametrize(
        ("observation", "words"),
        [
            ({"pos": [0, 0]}, "reads the groups ['pos', 'vel'], and the observation has ['pos']"),
            ({"pos": [0, 0], "speed": [0]}, "and the observation has ['pos', 'speed']"),
            ({"pos": [0, 0, 0], "vel": [0]}, "group 'pos' is [3]; pass [2]"),
            ({"pos": [[0, 0]], "vel": [0]}, "group 'pos' is [1, 2]; pass [2]"),
            ({"pos": [0, np.nan], "vel": [0]}, "group 'pos' holds numbers that are not finite in 'sin'"),
            ({"pos": {"sin": 0.0}, "vel": [0]}, "lacking or unknown: ['cos']"),
            ({"pos": {"sin": 0.0, "cos": [0.0, 1.0]}, "vel": [0]}, "component 'cos' of 'pos' has 2 numbers; pass 1"),
        ],
    )
    def test_wrong_observations(self, robot, observation, words):
        runner = RobotRunner(robot)
        with pytest.raises(ValueError) as caught:
            runner(observation)
        assert words in str(caught.value)
        assert all((value == 0).all() for value in runner.memory.values())  # nothing was remembered of it

    def test_another_model(self, copy):
        content = (copy / "policy.onnx").read_bytes()
        (copy / "policy.onnx").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        done = alone(copy, "runpy.run_path('robot_runner.py', run_name='__main__')")
        assert done.returncode == 1
        assert "is not the file that policy_contract.json describes" in done.stderr
        assert "Traceback" not in done.stderr

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda c: c["inputs"].reverse(), "differ in an input"),
            (lambda c: c["memories"][0].update(size=9), "differ in an input"),
            (lambda c: c["memories"].clear(), "differ in an input"),
            (lambda c: c["action"].update(shape=[2]), "differ in an output"),
            (lambda c: c.update(format_version=2), "use the robot_runner.py that was written with it"),
            (lambda c: c.update(format="something"), "is not the contract of an export"),
        ],
    )
    def test_another_contract(self, copy, change, words):
        contract = json.loads((copy / "policy_contract.json").read_text())
        change(contract)
        (copy / "policy_contract.json").write_text(json.dumps(contract))
        with pytest.raises(ValueError, match=words):
            RobotRunner(copy)
