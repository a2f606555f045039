"""Robots that measure velocity, angular velocity and gravity at a site of their base, in its frame."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from legged_cases import frame_of, tensor, with_imu

from gaitway import make_env
from gaitway.cli.main import main
from gaitway.envs.legged.frame import Frame, RobotTensors, moved_to, rotate
from gaitway.envs.robots.pup import PUP4, PUP12
from gaitway.envs.spec import EnvSpec, Imu
from gaitway.envs.tasks.legged.making import make_legged
from gaitway.envs.tasks.legged.model import robot_tensors
from gaitway.envs.tasks.legged.task import LeggedTask
from gaitway.rewards.style import StyleReward

NOMINAL: dict[str, Any] = {"randomise": {"enabled": False}, "noise": 0.0, "pushes": {"kick_seconds": None}}
MAST = (
    '<body name="mast" pos="0.1 0 0.05" quat="0.70710678 0 0 0.70710678">'
    '<site name="imu" pos="0.02 0 0.03" quat="0.70710678 0.70710678 0 0"/></body>'
)
"""Turned by 90 degrees about z, and on it a site that is turned by 90 degrees about x: its axes are y, z and x of the
trunk. It is at (0.1, 0, 0.05) + (0, 0.02, 0.03), because x of the mast is y of the trunk."""
ODD = '<site name="imu" pos="0.13 -0.04 0.06" quat="0.8 -0.3 0.4 0.2"/>'
LEAVES = ["lin_vel_true", "ang_vel_true", "gravity_true", "lin_vel_unscaled", "ang_vel_unscaled"]
BASE = ["lin_vel_base", "ang_vel_base", "gravity_base"]


def made(robot: str, num_envs: int = 2, **options: Any) -> Any:
    shown = {"observations": {"imu": LEAVES, "base": BASE}, **NOMINAL, **options}
    return make_env("legged:velocity", num_envs, num_threads=1, dtype="float64", robot=robot, **shown)


def columns(env: Any, group: str, value: torch.Tensor, leaf: str) -> np.ndarray:
    """A leaf in its unit."""
    spec = env.spec.group(group)
    scale = next(part.scale for part in spec.components if part.name == leaf)
    return value[:, spec.columns(leaf)].numpy() / scale


def test_a_site_on_a_mast_is_found(tmp_path: Path) -> None:
    imu = made(with_imu(tmp_path, MAST)).spec.drive.imu
    assert imu.site == "imu"
    np.testing.assert_allclose(imu.position, [0.1, 0.02, 0.08], atol=1e-8)
    # a third of a turn about (1, 1, 1): x becomes y, y becomes z, z becomes x
    np.testing.assert_allclose(imu.rotation, [0.5, 0.5, 0.5, 0.5], atol=1e-8)
    report = make_legged("legged:velocity", {"robot": str(tmp_path / "imu.yaml")}).report()
    assert report.endswith("imu: the site imu, [0.1, 0.02, 0.08] m in the base, turned by the quaternion "
                           "[0.5, 0.5, 0.5, 0.5]")  # fmt: skip


def test_what_is_measured_by_hand(tmp_path: Path) -> None:
    """The velocity at the site is v + w x p, told along y, z and x of the trunk."""
    view = make_legged("legged:velocity", {"robot": with_imu(tmp_path, MAST)}).view
    frame = frame_of(lin_vel=[1.0, 2.0, 3.0], ang_vel=[0.5, -0.2, 0.4], gravity=[0.0, 0.6, -0.8])
    frame.robot = robot_tensors(view)
    # w x p = (-0.2 0.08 - 0.4 0.02, 0.4 0.1 - 0.5 0.08, 0.5 0.02 + 0.2 0.1) = (-0.024, 0, 0.03)
    torch.testing.assert_close(frame.imu_lin_vel, tensor(2.0, 3.03, 0.976), atol=1e-7, rtol=0)
    torch.testing.assert_close(frame.imu_ang_vel, tensor(-0.2, 0.4, 0.5), atol=1e-7, rtol=0)
    torch.testing.assert_close(frame.imu_gravity, tensor(0.6, -0.8, 0.0), atol=1e-7, rtol=0)
    frame.robot = moved_to(frame.robot, torch.zeros(1))  # as on a GPU
    assert frame.robot.imu_position.dtype == frame.robot.imu_rotation.dtype == torch.float32


def as_mujoco_measures(robot: str) -> None:
    """Of bases that move and turn: what a site's own velocimeter and gyroscope say, and gravity in its axes."""
    env = made(robot)
    task: LeggedTask = env.task
    data, velocity = mujoco.MjData(task.model), np.zeros(6)
    site, base = task.model.site("imu").id, task.model.body("trunk").id
    generator = torch.Generator().manual_seed(0)
    moved = 0.0
    for _ in range(8):
        obs = env.step(2.0 * torch.randn(2, *env.spec.action.shape, generator=generator).double()).obs
        for row in range(2):
            data.qpos[:], data.qvel[:] = task.qpos[row], task.qvel[row]
            mujoco.mj_forward(task.model, data)
            mujoco.mj_objectVelocity(task.model, data, mujoco.mjtObj.mjOBJ_SITE, site, velocity, 1)
            gravity = data.site_xmat[site].reshape(3, 3).T @ [0.0, 0.0, -1.0]
            expected = {"ang_vel": velocity[:3], "lin_vel": velocity[3:], "gravity": gravity}
            for leaf in LEAVES:
                found = columns(env, "imu", obs["imu"], leaf)[row]
                np.testing.assert_allclose(found, _known(expected[leaf[:7]], found), atol=1e-9)
            mujoco.mj_objectVelocity(task.model, data, mujoco.mjtObj.mjOBJ_XBODY, base, velocity, 1)
            own = {"ang_vel": velocity[:3], "lin_vel": velocity[3:], "gravity": -data.xmat[base].reshape(3, 3)[2]}
            for leaf in BASE:
                found = columns(env, "base", obs["base"], leaf)[row]
                np.testing.assert_allclose(found, _known(own[leaf[:7]], found), atol=1e-9)
            moved = max(moved, float(np.abs(velocity).max()))
    assert moved > 0.5


def _known(vector: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Planar robots have x and z of vectors, and the turn about y."""
    return {3: vector, 2: vector[[0, 2]], 1: vector[[1]]}[len(found)]


@pytest.mark.parametrize("site", [MAST, ODD])
def test_what_is_measured_is_what_mujoco_measures_there(site: str, tmp_path: Path) -> None:
    as_mujoco_measures(with_imu(tmp_path, site))


def test_planar_robots_measure_in_their_plane(tmp_path: Path) -> None:
    """Turned about y, also upside down."""
    for quat in ("0.9 0 0.4358899 0", "0 0.9 0 0.4358899"):
        as_mujoco_measures(with_imu(tmp_path, f'<site name="imu" pos="0.1 0.05 0.06" quat="{quat}"/>', PUP4))


def turned_the_other_way(frame: Frame, vector: torch.Tensor) -> torch.Tensor:
    turn = frame.robot.imu_rotation
    assert turn is not None
    return rotate(turn.expand(len(vector), 4), vector)


def without_a_lever(view: Any, *rest: Any) -> RobotTensors:
    found = robot_tensors(view, *rest)
    return type(found)(**{**vars(found), "imu_position": torch.zeros(3, dtype=torch.float64)})


@pytest.mark.parametrize(
    "twin",
    [
        ("gaitway.envs.legged.frame.Frame._in_imu", turned_the_other_way),
        ("gaitway.envs.tasks.legged.task.robot_tensors", without_a_lever),
    ],
)
def test_other_measurements_are_found(twin: tuple[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*twin)
    with pytest.raises(AssertionError):
        as_mujoco_measures(with_imu(tmp_path, ODD))


def test_a_site_in_the_middle_changes_nothing_but_the_name_of_the_frame(tmp_path: Path) -> None:
    """Noise, biases and the rest are those of the same robot without an IMU; the contract says which frame it is."""
    robots = [str(tmp_path / "plain.yaml"), with_imu(tmp_path)]
    with_imu(tmp_path, imu_site=None)
    (tmp_path / "imu.yaml").rename(robots[0])
    with_imu(tmp_path)
    envs = [make_env("legged:velocity", 2, seed=4, num_threads=1, robot=robot) for robot in robots]
    generator = torch.Generator().manual_seed(0)
    for _ in range(6):
        action = torch.randn(2, 12, generator=generator)
        one, other = (env.step(action) for env in envs)
        assert all(torch.equal(one.obs[name], other.obs[name]) for name in ("policy", "critic"))
    frames = [{part.name: part.frame for part in env.spec.group("critic").components} for env in envs]
    changed = {name for name, frame in frames[0].items() if frame != frames[1][name]}
    assert changed == {"lin_vel_true", "ang_vel_true", "gravity_true"}
    assert {frames[0][name] for name in changed} == {"base"}
    assert {frames[1][name] for name in changed} == {"imu"}
    assert frames[1]["foot_force"] == "base"


def test_motion_priors_compare_the_base(tmp_path: Path) -> None:
    """Clips know nothing of IMUs: `amp` is what it is without one, to the last bit, with experts and references."""
    starts = {"name": "starts", "motion": "pup12_trot", "probability": 0.5, "reference": True}
    options: dict[str, Any] = {"seed": 2, "num_threads": 1, "wrappers": [starts], **NOMINAL}
    plain = make_env("pup12/amp_trot", 2, **options)
    env = make_env("pup12/amp_trot", 2, robot=with_imu(tmp_path, ODD), **options)
    generator = torch.Generator().manual_seed(0)
    for _ in range(6):
        action = torch.randn(2, 12, generator=generator)
        one, other = plain.step(action), env.step(action)
        assert torch.equal(one.obs["amp"], other.obs["amp"])
        assert torch.equal(one.obs["reference"], other.obs["reference"])
        assert not torch.allclose(one.obs["policy"], other.obs["policy"], atol=1e-2)
    assert env.spec.facts["amp"] == plain.spec.facts["amp"]
    assert {part.frame for part in env.spec.group("amp").components} == {"", "base"}
    experts = [StyleReward(each.spec, "pup12_trot", expert_pairs=16, replay=0).expert for each in (plain, env)]
    assert torch.equal(*experts)
    classic = make_env("pup12/amp_trot", 1, num_threads=1, robot=str(tmp_path / "imu.yaml"),
                       observations={"policy": ["policy"], "amp": ["amp_without_gravity"]})  # fmt: skip
    assert classic.spec.group("amp").shape == (43,)
    assert classic.spec.facts["amp"]["gravity"] is False


def test_rewards_and_endings_are_those_of_the_base(tmp_path: Path) -> None:
    one = make_env("pup12/velocity", 2, seed=1, num_threads=1)
    other = make_env("pup12/velocity", 2, seed=1, num_threads=1, robot=with_imu(tmp_path, ODD))
    generator = torch.Generator().manual_seed(0)
    for _ in range(8):
        action = torch.randn(2, 12, generator=generator)
        steps = [env.step(action) for env in (one, other)]
        assert torch.equal(steps[0].reward, steps[1].reward)
        assert torch.equal(steps[0].terminated, steps[1].terminated)


# contracts


def test_contracts_keep_an_imu_and_say_nothing_without_one(tmp_path: Path) -> None:
    spec = made(with_imu(tmp_path, MAST)).spec
    plain = json.loads(json.dumps(spec.to_dict()))
    again = EnvSpec.from_dict(plain)
    assert isinstance(again.drive.imu, Imu)
    assert again.drive == spec.drive
    assert again.groups == spec.groups
    bare = make_env("pup12/velocity", 1, num_threads=1).spec
    assert "imu" not in bare.to_dict()["drive"]
    assert EnvSpec.from_dict(json.loads(json.dumps(bare.to_dict()))).drive == bare.drive


def test_check_contract_names_another_imu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sites = {
        "here": '<site name="imu" pos="0.1 0 0"/>',
        "ahead": '<site name="imu" pos="0.2 0 0"/>',
        "turned": '<site name="imu" pos="0.1 0 0" quat="0 0 0 1"/>',
    }
    for name, site in sites.items():
        spec = make_env("legged:velocity", 1, num_threads=1, robot=with_imu(tmp_path, site)).spec
        (tmp_path / f"{name}.json").write_text(json.dumps(spec.to_dict()))
    (tmp_path / "none.json").write_text(json.dumps(make_env("pup12/velocity", 1, num_threads=1).spec.to_dict()))

    def difference(one: str, other: str) -> str:
        code = main(["check-contract", *(str(tmp_path / f"{name}.json") for name in (one, other))])
        said = capsys.readouterr()
        assert code == (one != other)
        return (said.out + said.err).replace("\n", " ")

    difference("here", "here")
    assert "the position of the IMU: [0.1, 0.0, 0.0] in" in difference("here", "ahead")
    assert "the rotation of the IMU: [1.0, 0.0, 0.0, 0.0] in" in difference("here", "turned")
    assert "the frame of 'ang_vel', obs/policy[0:3]: 'imu' in" in difference("here", "none")


# refusals


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"imu_site": "ium"}, r"'ium' of pup12 matches no site of it \(did you mean 'imu'"),
        ({"imu_site": "("}, "is no regular expression"),
        ({"imu_site": ".*", "site": '<site name="imu"/><site name="lidar"/>'}, "matches 2 sites"),
        ({"strip": ["imu"]}, "'imu' of pup12 matches no site of it"),
        (
            {"site": '<body name="head"><joint/><geom size="0.01"/><site name="imu"/></body>'},
            "imu_site of pup12 is 'imu' on 'head', which moves against its base; name a site that is fixed to 'trunk'",
        ),
    ],
)
def test_sites_that_measure_nothing_are_refused(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        make_legged("legged:velocity", {"robot": with_imu(tmp_path, **changes)})


def test_a_planar_robot_cannot_look_aside(tmp_path: Path) -> None:
    aside = with_imu(tmp_path, '<site name="imu" quat="0.9659258 0.258819 0 0"/>', PUP4)
    with pytest.raises(ValueError, match="turned out of the plane in which the robot moves; turn it about y alone"):
        make_legged("legged:velocity", {"robot": aside})
    assert make_legged("legged:velocity", {"robot": with_imu(tmp_path, robot=PUP4)}).view.imu is not None
    assert make_legged("pup12/velocity", {}).view.imu is None
    assert PUP12.imu_site is None
