"""Make the pictures and clips of the gallery: `python docs/make_gallery.py`, or some: `... "cube/*" walker/gaps`.

Stills: the robot is put near what its task is about with `load_scenario`, and drawn. Clips: a robot that follows a
script, and, with `--runner RUN`, the policy of a run of `walker/run` or `humanoid/run` on courses that it has never
seen. It is shown what it knows, the robot's state, and nothing of the course.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from gaitway import make_env
from gaitway.cli.build import load_policy
from gaitway.cli.open_run import open_run
from gaitway.envs.pictures.render import FOLLOW
from gaitway.envs.pictures.scene import Camera, native_task
from gaitway.envs.robots.registry import ROBOTS, get_robot
from gaitway.envs.robots.robot import ROOT_NQ, RobotView
from gaitway.envs.robots.world import WIDE
from gaitway.envs.spec import EnvSpec
from gaitway.envs.tasks import NATIVE_TASKS
from gaitway.envs.tasks.bisk import BENCHMARK_TASKS
from gaitway.envs.tasks.bisk.butterflies import HAND, HANDLE_LENGTH, ButterfliesTask
from gaitway.envs.vec_env import Observation, VecEnv
from gaitway.envs.wrappers import make_wrapper
from gaitway.runners.film import Act, record_episode

GALLERY = Path(__file__).with_name("gallery")
STILL_SIZE, CLIP_SIZE = (320, 240), (400, 300)
JPEG_QUALITY = 85
OTHER_TASKS = ("skills", "stand", "walk", "run")
"""What the benchmark's robots do besides."""

Scenario = Mapping[str, Tensor]
"""Of one instance, as `VecEnv.scenario` returns it."""
Player = Callable[[VecEnv], tuple[VecEnv, Act]]
"""An environment to the same as its policy sees it, and the policy."""


@dataclass(frozen=True)
class Pose:
    """The height of the torso above the ground (m) and angles of joints (rad), those that are not named being 0."""

    height: float
    angles: Mapping[str, float] = field(default_factory=dict)


def both(**angles: float) -> dict[str, float]:
    """The same angles on the right and on the left."""
    return {f"{side}_{joint}": angle for joint, angle in angles.items() for side in ("right", "left")}


STAND = {"walker": Pose(1.3), "humanoid": Pose(1.285), "halfcheetah": Pose(0.625), "cube": Pose(0.3)}
STRIDE = STAND | {
    "walker": Pose(
        1.22, {"right_hip": 0.6, "right_knee": -0.6, "left_hip": -0.3, "left_knee": -0.2, "left_ankle": 0.5}
    ),
    "humanoid": Pose(
        1.225, {"right_hip_y": -0.75, "right_knee": -0.75, "left_hip_y": 0.3, "left_knee": -0.3, "left_ankle_y": -0.5}
    ),
    "halfcheetah": Pose(0.58, {"bthigh": 0.3, "fthigh": -0.4}),
}
RUN = STRIDE | {
    "walker": Pose(1.2, {"rooty": 0.15, "right_hip": 1.1, "right_knee": -1.2, "left_hip": -0.3, "left_knee": -0.7}),
    "humanoid": Pose(1.2, {"right_hip_y": -1.2, "right_knee": -1.4, "left_hip_y": 0.3, "left_knee": -0.9}),
}
CROUCH = STRIDE | {
    "walker": Pose(0.85, {"rooty": 0.5, **both(hip=1.6, knee=-2.1, ankle=0.6)}),
    "humanoid": Pose(0.925, both(hip_y=-1.4, knee=-1.9, ankle_y=-0.5)),
}
CLIMB = STRIDE | {
    "walker": Pose(1.32, {"right_hip": 1.2, "right_knee": -1.3, "left_hip": -0.1, "left_knee": -0.1}),
    "humanoid": Pose(1.3, {"right_hip_y": -1.2, "right_knee": -1.3, "left_hip_y": 0.1, "left_knee": -0.1}),
    "halfcheetah": Pose(0.745, {"rooty": -0.25, "fthigh": -0.5}),
}
"""Poses by robot; `humanoidpc` has the humanoid's, `cube2d` the cube's."""


@dataclass(frozen=True)
class Stage:
    """Where the robot of a task stands, and what is changed around it."""

    x: Callable[[Scenario], float] = lambda scenario: 0.0
    poses: Mapping[str, Pose] = field(default_factory=lambda: STRIDE)
    ground: float = 0.0
    """Height of the ground there (m)."""
    camera: str | int | None = FOLLOW
    """None is the one that the environment itself uses."""
    cube_camera: str | int | None = 0
    """For cubes, to which `follow` comes too close."""
    arrange: Callable[[Scenario, bool], None] = lambda scenario, is_planar: None
    """Changes the scenario; is told whether the robot is planar."""


def first_obstacle(distance: float) -> Callable[[Scenario], float]:
    """`distance` (m) before the first obstacle."""
    return lambda scenario: float(scenario["position"][0, 0]) - distance


def close_ranks(scenario: Scenario, is_planar: bool) -> None:
    """The second obstacle, a bar, 3 m behind the first: the nearest that is drawn."""
    position = scenario["position"][0]
    position[1:] -= position[1] - position[0] - 3.0


def short_gap(scenario: Scenario, is_planar: bool) -> None:
    """One that fits between two feet."""
    scenario["gap"][0, 0] = 0.3


def top_of_stairs(scenario: Scenario) -> float:
    """Half a metre before the way down: ten steps begin at 3 m, 6 m of level ground follow."""
    return 8.5 + float(scenario["step_length"][0, :10].sum())


def two_targets(scenario: Scenario, is_planar: bool) -> None:
    places = [[1.2, 0.0], [-1.4, 0.0]] if is_planar else [[1.5, 1.5], [-2.0, 2.5]]
    scenario["target"][0, :2] = torch.tensor(places)


def target_ahead(scenario: Scenario, is_planar: bool) -> None:
    scenario["target"][0, 0] = torch.tensor([4.0, 0.0])


def half_left(scenario: Scenario, is_planar: bool) -> None:
    scenario["speed"][0, 0], scenario["angle"][0, 0] = 1.5, 0.0 if is_planar else math.pi / 4


STAGES = {
    "hurdles": Stage(first_obstacle(1.0)),
    "limbo": Stage(first_obstacle(1.0), CROUCH),
    "hurdleslimbo": Stage(first_obstacle(-0.9), arrange=close_ranks),
    "gaps": Stage(lambda scenario: 4.12, arrange=short_gap),
    "stairs": Stage(lambda scenario: 2.7, CLIMB),
    "stairscont": Stage(top_of_stairs, ground=2.0),
    "polebalance": Stage(cube_camera=FOLLOW),
    "goalwall": Stage(lambda scenario: 1.8, camera=None),
    "gototargets": Stage(camera=0, arrange=two_targets),
    "gotosphere": Stage(lambda scenario: 2.8, camera=0, arrange=target_ahead),
    "velocitycontrol": Stage(camera=0, arrange=half_left),
    "rundir": Stage(camera=0),
    "stand": Stage(poses=STAND),
    "run": Stage(poses=RUN),
}


def names() -> list[str]:
    """Ids of all environments that have a still: the benchmark as published, and what else its robots do."""
    tasks = (*BENCHMARK_TASKS, *OTHER_TASKS)
    return [f"{robot}/{task}" for task in tasks for robot in ROBOTS if f"{robot}/{task}" in NATIVE_TASKS]


def still(env_id: str) -> np.ndarray:
    """A picture of a typical moment, uint8 `[240, 320, 3]`."""
    robot, _, task = env_id.partition("/")
    stage = STAGES.get(task, Stage())
    with make_env(env_id, seed=0, num_threads=1) as env:
        scenario = env.scenario()
        stage.arrange(scenario, get_robot(robot).is_planar)
        env.load_scenario(placed(env, scenario, stage.x(scenario), stage.poses, stage.ground))
        return picture(env, stage.cube_camera if robot.startswith("cube") else stage.camera)


LEGGED = {
    "pup12/gait_params": 70,
    "pup12/recovery": 0,
    "pup4/velocity": 40,
    "walker/velocity": 0,
    "humanoid/velocity": 0,
}
"""Legged tasks that look different, and the steps of zero action after which they are drawn."""


def legged_still(env_id: str) -> np.ndarray:
    """A legged robot some steps after the start of an episode: a trot open loop, or on its feet."""
    with make_env(env_id, seed=1, num_threads=1) as env:
        for _ in range(LEGGED[env_id]):
            env.step(torch.zeros(1, *env.spec.action.shape))
        return picture(env, FOLLOW)


def touched_bar() -> np.ndarray:
    """The Walker in a bar that it must not touch, which is red from then on."""
    with make_env("walker/limbo", seed=0, num_threads=1, notouch=True, allow_falls=True) as env:
        scenario = env.scenario()
        env.load_scenario(placed(env, scenario, first_obstacle(0.15)(scenario), STRIDE))
        env.step(torch.zeros(1, *env.spec.action.shape))
        return picture(env, "back")


def placed(env: VecEnv, scenario: Scenario, x: float, poses: Mapping[str, Pose], ground: float = 0.0) -> Scenario:
    """The scenario with the robot at rest at x, on ground of a height (m), in its pose."""
    task = native_task(env)
    if task is None:
        raise ValueError(f"{env.spec.id} has no scenario; use a native environment")
    robot = get_robot(env.spec.id.partition("/")[0])
    pose = next(pose for name, pose in poses.items() if robot.name.startswith(name))
    state, root = robot.initial_qpos(), 0 if robot.quaternion_index is None else ROOT_NQ - 1
    state[robot.forward_index], state[robot.height_index] = x, pose.height + ground
    for joint, angle in pose.angles.items():
        state[root + robot.joints.index(joint)] = angle
    view, qpos, qvel = RobotView(robot, task.model), scenario["qpos"].clone(), scenario["qvel"].clone()
    qpos[:, view.qpos], qvel[:, view.qvel] = torch.from_numpy(state), 0.0
    changed = {**scenario, "qpos": qpos, "qvel": qvel}
    return changed | {"settle": torch.zeros(1)} if "settle" in scenario else changed


def picture(env: VecEnv, camera: str | int | None) -> np.ndarray:
    with Camera(env, camera=camera, quality="full") as draw:
        return draw(*STILL_SIZE)


@dataclass(frozen=True)
class Clip:
    """A film of one episode."""

    env_id: str
    seed: int
    length: int
    policy: Player | None = None
    """None is the runner of this robot."""
    camera: str | None = None


def chase(env: VecEnv) -> tuple[VecEnv, Act]:
    """The cube flies to the nearest butterfly that is left, with a force in proportion to the distance."""
    task = native_task(env)
    if not isinstance(task, ButterfliesTask):
        raise ValueError(f"{env.spec.id} has no butterflies; use cube/butterflies")
    hover = torch.tensor([0.0, 0.0, 9.81 * float(task.model.body("torso").mass[0]) / 50.0])
    net = np.array([0.0, 0.0, HAND + HANDLE_LENGTH + task.config.net_radius])

    def act(obs: Observation) -> Tensor:
        away = task.layout["butterfly"][0] - task.torso_position()[0] - net
        distance = np.where(task.memory["caught"][0], np.inf, np.linalg.norm(away, axis=1))
        way = away[distance.argmin()] if np.isfinite(distance).any() else np.zeros(3)
        return (hover + 0.5 * torch.from_numpy(way).float()).clamp(-1.0, 1.0)[None]

    return env, act


def runner(run: str) -> tuple[str, Player]:
    """Name of a run's robot, and its policy, which reads the same components wherever it plays."""
    folder, config = open_run(run)
    contract = EnvSpec.from_dict(folder.read_contract())
    known = [component.name for component in contract.group("policy").components]

    def play(env: VecEnv) -> tuple[VecEnv, Act]:
        selected = make_wrapper(env, {"name": "select_components", "keep": {"policy": known}})
        return selected, load_policy(folder, config, selected.spec, "best").inference()

    return contract.id.partition("/")[0], play


CLIPS = {
    "walker_hurdles": Clip("walker/hurdles", seed=22, length=240),
    "walker_gaps": Clip("walker/gaps", seed=0, length=200),
    "walker_stairs": Clip("walker/stairs", seed=50, length=160),
    "walker_goalwall": Clip("walker/goalwall", seed=46, length=200),
    "humanoid_gaps": Clip("humanoid/gaps", seed=21, length=200, camera=FOLLOW),
    "humanoid_stairs": Clip("humanoid/stairs", seed=16, length=200),
    "cube_butterflies": Clip("cube/butterflies", 0, 160, chase, WIDE),
}


def film(clip: Clip, policy: Player, path: Path) -> None:
    with make_env(clip.env_id, num_threads=1) as env:
        seen, act = policy(env)
        with Camera(env, camera=clip.camera, quality="shadows") as draw:
            shown = {"size": CLIP_SIZE, "caption": [clip.env_id], "draw": draw, "patience_s": math.inf}
            print(record_episode(seen, act, path, length=clip.length, seed=clip.seed, **shown))


def save(frame: np.ndarray, path: Path) -> None:
    Image.fromarray(frame).save(path, quality=JPEG_QUALITY, optimize=True)
    print(path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the pictures and clips of docs/gallery.md.")
    parser.add_argument("patterns", nargs="*", default=["*"], metavar="ID", help='for example walker/gaps or "cube/*"')
    parser.add_argument(
        "--runner",
        action="append",
        default=[],
        metavar="RUN",
        help="a run of walker/run or humanoid/run, whose policy plays in clips; may be given for each",
    )
    parser.add_argument("--out", type=Path, default=GALLERY, help="default: docs/gallery")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    def is_wanted(env_id: str) -> bool:
        return any(fnmatch(env_id, pattern) for pattern in options.patterns)

    for env_id in filter(is_wanted, names()):
        save(still(env_id), options.out / f"{env_id.replace('/', '_')}.jpg")
    for env_id in filter(is_wanted, LEGGED):
        save(legged_still(env_id), options.out / f"{env_id.replace('/', '_')}.jpg")
    if is_wanted("walker/limbo"):
        save(touched_bar(), options.out / "walker_limbo_notouch.jpg")
    known = dict(map(runner, options.runner))
    for name, clip in CLIPS.items():
        robot = clip.env_id.partition("/")[0]
        policy, path = clip.policy or known.get(robot), options.out / f"{name}.mp4"
        if is_wanted(clip.env_id) and policy is not None:
            film(clip, policy, path)
        elif is_wanted(clip.env_id):
            print(f"{path} is left out: it shows the policy of a run of {robot}/run, --runner RUN")


if __name__ == "__main__":
    main()
