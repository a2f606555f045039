"""Contracts name what goes in and out, and where two of them differ first."""

import copy
import json

import pytest

from gaitway.cli.main import main
from gaitway.export.contract import first_difference, read_interface


@pytest.fixture
def plain(exported):
    return json.loads((exported / "policy_contract.json").read_text())


@pytest.fixture
def differing(plain, exported, tmp_path):
    """The first difference between the export and a copy of its contract that `change` has changed."""

    def compare(change):
        other = copy.deepcopy(plain)
        change(other)
        (tmp_path / "other.json").write_text(json.dumps(other))
        one = read_interface(exported)
        found = first_difference(one, read_interface(tmp_path / "other.json"))
        back = first_difference(read_interface(tmp_path / "other.json"), one)
        assert (found is None) == (back is None)
        return found and found.replace(str(exported), "A").replace(str(tmp_path / "other.json"), "B")

    return compare


def test_what_a_contract_says(plain, run):
    assert (plain["run"], plain["algorithm"], plain["env"], plain["steps"]) == ("run", "ppo", "toy/pendulum", 256)
    assert [entry["name"] for entry in plain["inputs"]] == ["obs/pos", "obs/vel"]
    pos, vel = plain["inputs"]
    assert [(part["name"], part["start"], part["size"]) for part in pos["components"]] == [("cos", 0, 1), ("sin", 1, 1)]
    assert vel["components"][0] == {
        "start": 0, "name": vel["components"][0]["name"], "size": 1, "unit": "8 rad/s", "scale": 1.0, "offset": 0.0,
        "clip": None, "noise": 0.0, "frame": "", "history": 1, "steps_ago": 0,
    }  # fmt: skip
    assert pos["normalisation"]["clip"] == 10.0
    (memory,) = plain["memories"]
    assert (memory["input"], memory["output"], memory["size"], memory["reset"]) == (
        "actor/memory_in", "actor/memory_out", 8, 0.0
    )  # fmt: skip
    assert memory["parts"] == [{"name": "hidden 0", "start": 0, "size": 8}]
    assert plain["action"]["low"] == [-2.0]
    assert plain["action"]["clipped"] is True
    assert plain["rate_hz"] == pytest.approx(1.0 / plain["control_dt"])


def of_group(at, **changes):
    return lambda contract: contract["inputs"][at].update(changes)


def of_part(group, at, **changes):
    return lambda contract: contract["inputs"][group]["components"][at].update(changes)


def of_action(**changes):
    return lambda contract: contract["action"].update(changes)


def of_memory(**changes):
    return lambda contract: contract["memories"][0].update(changes)


class TestDifferences:
    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (of_part(1, 0, unit="deg/s"), "unit of 'velocity', obs/vel[0:1]: '8 rad/s' in A, 'deg/s' in B"),
            (of_part(1, 0, scale=0.05), "scale of 'velocity', obs/vel[0:1]: 1 in A, 0.05 in B"),
            (of_part(0, 1, name="tan"), "components differ from obs/pos[1:2] on: 'sin' in A, 'tan' in B"),
            (
                lambda c: c["inputs"][0]["components"].reverse(),
                "order of components differs from obs/pos[0:1] on: 'cos'",
            ),
            (lambda c: c["inputs"].reverse(), "order of inputs: number 0 is 'pos' in A and 'vel' in B"),
            (lambda c: c["inputs"].pop(), "A reads the group 'vel', which B does not have"),
            (of_group(0, dtype="float64"), "dtype of obs/pos: 'float32' in A, 'float64' in B"),
            (of_memory(reset=1.0), "reset value of the memory 'actor/memory'"),
            (of_memory(parts=[{"name": "cell 0", "start": 0, "size": 8}]), "layout of the memory 'actor/memory'"),
            (lambda c: c["memories"].clear(), "memory 'actor/memory' is in A alone"),
            (of_action(names=["push"]), "actions differ from action[0] on: 'torque' in A, 'push' in B"),
            (of_action(unit="mNm"), "unit of the actions: 'N m' in A, 'mNm' in B"),
            (of_action(low=[None]), "low of action[0], 'torque': -2 in A, -inf in B"),
            (of_action(scale=[0.25]), "scale of action[0], 'torque': 1 in A, 0.25 in B"),
            (lambda c: c.update(control_dt=0.5), "rate: a step lasts 0.05 s in A and 0.5 s in B"),
        ],
    )
    def test_each_is_named(self, differing, change, words):
        assert words in differing(change)

    def test_statistics_and_origin_are_no_part_of_the_promise(self, differing):
        assert differing(lambda c: c.update(steps=1, run="another", checkpoint="last", proof={}, files={})) is None
        assert differing(lambda c: c["inputs"][0]["normalisation"].update(mean=[1.0, 1.0])) is None
        assert differing(of_action(scale=[1.0], offset=[0.0])) is None  # what empty ones mean

    def test_the_first_comes_first(self, differing):
        def change(contract):
            contract["control_dt"] = 1.0
            contract["inputs"][1]["components"][0]["unit"] = "turns"

        assert "unit of 'velocity'" in differing(change)


class TestDrives:
    """What executes the actions, where both contracts tell."""

    IMU = {"site": "imu", "position": [0.1, 0.0, 0.0], "rotation": [1.0, 0.0, 0.0, 0.0]}  # noqa: RUF012
    DRIVE = {  # noqa: RUF012
        "joints": ["hip", "knee"], "default_pose": [0.0, 0.9], "kp": [60.0, 60.0], "kd": [1.5, 1.5],
        "effort": [23.7, 35.5], "physics_dt": 0.005, "quaternion": "wxyz", "imu": IMU,
    }  # fmt: skip

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"joints": ["knee", "hip"]}, "the order of joints differs from joint 0 on: 'hip' in A, 'knee' in B"),
            ({"kp": [60.0, 35.0]}, "the kp of 'knee': 60 in A, 35 in B"),
            ({"default_pose": [0.0, 0.8]}, "the default_pose of 'knee': 0.9 in A, 0.8 in B"),
            ({"effort": [1.0, 35.5]}, "the effort of 'hip': 23.7 in A, 1 in B"),
            ({"physics_dt": 0.004}, "the physics_dt of the drive: 0.005 in A, 0.004 in B"),
            ({"quaternion": "xyzw"}, "the quaternion of the drive: 'wxyz' in A, 'xyzw' in B"),
            ({"imu": {**IMU, "position": [0.1, 0.0, 0.2]}}, "the position of the IMU: [0.1, 0.0, 0.0] in A, [0.1, 0.0"),
            ({"imu": {**IMU, "rotation": [0.0, 1.0, 0.0, 0.0]}}, "the rotation of the IMU: [1.0, 0.0, 0.0, 0.0] in A"),
            ({"imu": None}, "the position of the IMU: [0.1, 0.0, 0.0] in A, None in B"),
        ],
    )
    def test_each_is_named(self, plain, tmp_path, changes, words):
        for name, drive in (("A", self.DRIVE), ("B", self.DRIVE | changes)):
            (tmp_path / name).write_text(json.dumps(plain | {"drive": drive}))
        found = first_difference(read_interface(tmp_path / "A"), read_interface(tmp_path / "B"))
        assert words in found.replace(f"{tmp_path}/", "")

    def test_the_name_of_the_site_does_not_matter_and_older_contracts_have_none(self, plain, tmp_path):
        older = {name: value for name, value in self.DRIVE.items() if name != "imu"}
        drives = {"A": self.DRIVE, "B": self.DRIVE | {"imu": self.IMU | {"site": "head"}}, "C": older}
        for name, drive in drives.items():
            (tmp_path / name).write_text(json.dumps(plain | {"drive": drive}))
        one, other, old = (read_interface(tmp_path / name) for name in drives)
        assert first_difference(one, other) is None
        assert old.drive.imu is None
        assert first_difference(old, old) is None

    def test_what_one_does_not_tell_is_not_compared(self, plain, exported, tmp_path):
        (tmp_path / "B").write_text(json.dumps(plain | {"drive": self.DRIVE}))
        assert first_difference(read_interface(exported), read_interface(tmp_path / "B")) is None


class TestCommand:
    def test_an_export_fits_its_run(self, run, exported, capsys):
        assert main(["check-contract", str(exported), str(run)]) == 0
        assert "agree: 3 numbers in, 1 actions out, a step of 0.05 s" in capsys.readouterr().out
        assert main(["check-contract", str(run), str(exported / "policy_contract.json")]) == 0

    def test_two_that_differ(self, run, exported, tmp_path, capsys):
        other = json.loads((run / "contract.json").read_text())
        other["groups"] = other["groups"][:1]
        other["groups"][0]["components"][0]["unit"] = "m"
        (tmp_path / "contract.json").write_text(json.dumps(other))
        assert main(["check-contract", str(exported), str(tmp_path)]) == 1
        shown = capsys.readouterr().err
        assert shown.count("\n") == 1
        assert "reads the group 'vel'" in shown

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (None, "there is no contract in"),
            ("{", "is no contract ("),
            ("[1]", "is no contract (it is no mapping)"),
            ('{"id": "x"}', "is no contract (groups is missing"),
            ('{"format": "gaitway export", "format_version": 1}', "is no contract (it lacks 'inputs')"),
            ('{"format": "gaitway export", "format_version": 9}', "its format version is 9"),
            ('{"format": "gaitway export", "format_version": 1, "inputs": [3]}', "is no contract ("),
            ("[" * 100_000, "is no contract ("),
        ],
    )
    def test_what_is_no_contract(self, exported, tmp_path, content, words, capsys):
        if content is not None:
            (tmp_path / "contract.json").write_text(content)
        assert main(["check-contract", str(exported), str(tmp_path)]) == 1
        shown = capsys.readouterr().err
        assert words in shown
        assert shown.count("\n") == 1

    def test_old_contracts_of_runs_still_load(self, run, exported, tmp_path):
        old = json.loads((run / "contract.json").read_text())
        assert "scale" not in old["groups"][0]["components"][0]  # nothing is said that was not said before
        (tmp_path / "contract.json").write_text(json.dumps(old))
        assert first_difference(read_interface(exported), read_interface(tmp_path)) is None
