"""Hurdles, Limbo and HurdlesLimbo: layout, geometry, the window of four, scores by script."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch
from bisk_cases import (
    CORRIDOR,
    HOVER,
    ROBOTS,
    act,
    begin,
    box,
    deviation,
    evenly,
    layout,
    make,
    num_contacts,
    pass_items,
    random_actions,
    text_model,
)
from scipy.stats import kstest

from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.tasks import NATIVE_TASKS
from gaitway.envs.tasks.bisk.hurdles import BAR_RADIUS, MIN_SPACING, SLOTS

TASKS = ("hurdles", "limbo", "hurdleslimbo")


def obstacles(env: MujocoBatchEnv, count: int = 200) -> list[str]:
    """The course of instance 0 as static geoms, from the published definition."""
    course, geoms = layout(env), []
    for item in range(count):
        x, height = course["position"][0, item].item(), course["height"][0, item].item()
        if env.task.kinds[item % SLOTS] == "hurdle":
            geoms.append(box(x, height / 2 + 0.01, 0.05, height))
        else:
            z = height + 0.1
            geoms.append(f'<geom type="capsule" fromto="{x!r} -8 {z!r} {x!r} 8 {z!r}" size="0.1"/>')
    return geoms


@pytest.mark.parametrize(
    ("id", "low", "high"), [("walker/hurdles", 0.1, 0.3), ("walker/limbo", 1.2, 1.5), ("humanoid/limbo", 1.0, 1.3)]
)
def test_layout_laws(id: str, low: float, high: float) -> None:
    task, generator = NATIVE_TASKS[id](), np.random.default_rng(1)
    draws = [task.draw(generator) for _ in range(60)]
    position = np.stack([draw["position"] for draw in draws])
    spacing = np.diff(np.insert(position, 0, 1.0, axis=1), axis=1)
    heights = np.concatenate([draw["height"] for draw in draws])
    assert ((position[:, 0] >= 4) & (position[:, 0] <= 7)).all()
    assert spacing.size >= 10_000
    assert kstest(spacing.reshape(-1), "uniform", args=(3, 3)).pvalue > 0.01
    assert kstest(heights, "uniform", args=(low, high - low)).pvalue > 0.01
    assert kstest(heights, "uniform", args=(low, (high - low) * 1.1)).pvalue < 1e-6


def test_turns_of_hurdle_and_bar() -> None:
    task, generator = NATIVE_TASKS["walker/hurdleslimbo"](), np.random.default_rng(1)
    heights = np.stack([task.draw(generator)["height"] for _ in range(100)])
    assert kstest(heights[:, 0::2].reshape(-1), "uniform", args=(0.1, 0.2)).pvalue > 0.01
    assert kstest(heights[:, 1::2].reshape(-1), "uniform", args=(1.2, 0.3)).pvalue > 0.01
    fixed = NATIVE_TASKS["humanoid/hurdleslimbo"](fixed_height=True, max_hurdle_height=0.25, min_bar_height=1.1)
    assert fixed.draw(generator)["height"][:4].tolist() == [0.25, 1.1, 0.25, 1.1]
    assert NATIVE_TASKS["walker/hurdles"](fixed_height=True).draw(generator)["height"].tolist() == [0.3] * 200
    assert NATIVE_TASKS["cube/limbo"](fixed_height=True).draw(generator)["height"].tolist() == [1.0] * 200


@pytest.mark.parametrize("robot", ["walker", "humanoid"])
@pytest.mark.parametrize("task", TASKS)
def test_the_builder_equals_static_geoms_written_as_text(robot: str, task: str) -> None:
    env = make(f"{robot}/{task}", allow_falls=True)
    course = layout(env)
    course["position"] -= course["position"][:, :1] - 0.45  # the first one right before the robot
    if task == "limbo":
        course["height"] -= course["height"][:, :1] - 1.25  # at chest height
    qpos, qvel = env.scenario()["qpos"], env.scenario()["qvel"]
    qvel[:, env.task.view.forward] = 2.0
    env.load_scenario({"qpos": qpos, "qvel": qvel, **course})
    model = text_model(robot, *CORRIDOR, *obstacles(env, 4))
    steps = 240 // env.task.frame_skip
    plan = random_actions(env, steps)
    assert deviation(env, model, plan).max() < 1e-10
    # the obstacle was in the way
    env.load_scenario({"qpos": qpos, "qvel": qvel, **course})
    assert deviation(env, text_model(robot, *CORRIDOR), plan).max() > 1e-3


def test_a_moving_window_equals_all_obstacles() -> None:
    env = make("cube/hurdles")  # a bar lies parallel to the cube, for which MuJoCo finds contacts by chance
    course = {"position": 2.0 + 3.5 * np.arange(200)[None], "height": np.full((1, 200), 0.1)}
    plan = torch.zeros(120, 1, 3, dtype=torch.float64)
    plan[:, 0, 0] = 1.0
    plan[:, 0, 2] = 0.1 * torch.sin(torch.arange(120) * 0.25) + 0.8 * HOVER  # bounces on the hurdles
    begin(env, 0.0, 0.4, **course)
    model = text_model("cube", *CORRIDOR, *obstacles(env))
    assert deviation(env, model, plan, settle=False).max() < 1e-10
    assert env.task.progress.next[0] >= 8
    begin(env, 0.0, 0.4, **course)
    assert deviation(env, text_model("cube", *CORRIDOR), plan, settle=False).max() > 0.1


@pytest.mark.parametrize("task", TASKS)
def test_every_obstacle_can_be_touched(task: str) -> None:
    env = make(f"cube/{task}")
    course = layout(env)
    for item in (0, 50, 51, 199):
        x, height = course["position"][0, item].item(), course["height"][0, item].item()
        is_bar = env.task.kinds[item % SLOTS] == "bar"
        assert num_contacts(env, x - 0.1, height + 0.1 if is_bar else 0.3) > 0
        assert num_contacts(env, x - 0.1, height - 0.3 if is_bar else 1.5 * height + 0.3) == 0  # below it, above it
        assert num_contacts(env, x - 0.5, height + 0.1 if is_bar else 0.3) == 0


def test_slots_hold_the_nearest_obstacles() -> None:
    task = make("walker/hurdles").task
    for following in range(202):
        items = task.slot_items(np.array([following]))[0]
        assert sorted(items) == [following - 1, following, following + 1, following + 2]
        assert [item % SLOTS for item in items] == list(range(SLOTS))


@pytest.mark.parametrize("robot", ROBOTS)
def test_no_robot_reaches_beyond_the_window(robot: str) -> None:
    # obstacle next - 2 is more than the spacing behind the torso, next + 3 more than three times that ahead
    reach = longest_reach(NATIVE_TASKS[f"{robot}/hurdles"]().model)
    assert 0.3 < reach < 1.5
    fastest = 0.5 / 0.05  # m/s, the window is moved after each control step
    assert reach + BAR_RADIUS + fastest * 0.025 < MIN_SPACING


def longest_reach(model: mujoco.MjModel) -> float:
    """How far from the torso's origin a part can be in any posture: the chain of joints laid out straight."""
    torso = model.body("torso").id
    ends = {torso: (0.0, np.zeros(3))}  # length of the chain, and the last joint's anchor in the frame of the body
    for body in range(torso + 1, model.nbody):
        if model.body_parentid[body] not in ends:
            continue
        length, last = ends[model.body_parentid[body]]
        first = model.body_jntadr[body]
        anchors = model.jnt_pos[first : first + model.body_jntnum[body]]
        if not len(anchors):
            ends[body] = (length, last - model.body_pos[body])
            continue
        turned = np.zeros(3)
        mujoco.mju_rotVecQuat(turned, anchors[0], model.body_quat[body])
        length += np.linalg.norm(model.body_pos[body] + turned - last)
        ends[body] = (length + np.linalg.norm(np.diff(anchors, axis=0), axis=1).sum(), anchors[-1])
    geoms = [geom for geom in range(model.ngeom) if model.geom_bodyid[geom] in ends]
    return max(
        ends[model.geom_bodyid[geom]][0]
        + np.linalg.norm(model.geom_pos[geom] - ends[model.geom_bodyid[geom]][1])
        + model.geom_rbound[geom]
        for geom in geoms
    )


@pytest.mark.parametrize(("task", "distance", "height"), [("hurdles", 0, 1.5), ("limbo", 0, 0.4), ("limbo", 0, 2.0)])
def test_new_obstacles_pay_once(task: str, distance: int, height: float) -> None:
    env = make(f"cube/{task}")
    begin(env, 0.0, height)
    pass_items(env, distance, distance + 2, (1.0, 0.0, HOVER))


def test_new_obstacles_pay_once_in_turns() -> None:
    env = make("cube2d/hurdleslimbo", min_bar_height=1.5)
    begin(env, 0.0, 1.0)  # above hurdles, below bars
    pass_items(env, 1, 3, (1.0, HOVER))


@pytest.mark.parametrize(("task", "obstacle", "height"), [("hurdles", 0.3, 0.3), ("limbo", 1.0, 1.1)])
def test_pushing_against_an_obstacle_pays_nothing(task: str, obstacle: float, height: float) -> None:
    env = make(f"cube/{task}")
    begin(env, 3.0, height, **evenly(1, obstacle))
    rewards = [float(env.step(act(env, 1.0, 0.0, HOVER)).reward[0]) for _ in range(50)]
    assert not any(rewards)
    assert 4.5 < env.task.qpos[0, 0] < 5.0


def test_observations_by_hand() -> None:
    hurdles, limbo, both = (make(f"cube/{task}", 2) for task in TASKS)
    seen = begin(hurdles, 3.0, 1.0, **evenly(2, 0.2))
    assert seen[:, :3].tolist() == pytest.approx(np.array([[2.0, 0.4, 1.0]] * 2))
    seen = begin(hurdles, 5.0, 1.0, **evenly(2, 0.2))  # at its place it is still the next one
    assert seen[0, :3].tolist() == pytest.approx([0.0, 0.4, 1.0])
    seen = begin(hurdles, 900.0, 1.0, **evenly(2, 0.2))
    assert seen[0, :3].tolist() == pytest.approx([10.0, 0.1, 1.0])
    seen = begin(limbo, 3.0, 0.3, **evenly(2, 1.15))
    assert seen[0, :3].tolist() == pytest.approx([2.0, 1.35, 1.0])
    seen = begin(limbo, 900.0, 0.3, **evenly(2, 1.15))
    assert seen[0, :3].tolist() == pytest.approx([1.0, 2.0, 1.0])
    course = evenly(2, 0.2)
    course["height"][:, 1::2] = 1.1
    seen = begin(both, 3.0, 0.3, **course)
    assert seen[0, :4].tolist() == pytest.approx([0.0, 2.0, 0.22, 1.0])
    seen = begin(both, 7.0, 0.3, **course)
    assert seen[0, :4].tolist() == pytest.approx([1.0, 2.0, 1.3, 1.0])
    seen = begin(both, 900.0, 0.3, **course)
    assert seen[0, :4].tolist() == pytest.approx([0.0, 10.0, 0.1, 1.0])


@pytest.mark.parametrize("shaped", [False, True])
@pytest.mark.parametrize(
    ("task", "x", "z", "course"),
    [
        ("hurdles", 4.9, 1.5, {}),
        ("limbo", 4.9, 0.3, {}),
        ("hurdleslimbo", 4.9, 1.5, {}),
        ("gaps", 4.1, 1.5, {"gap": np.full((1, 200), 0.2), "platform": np.full((1, 200), 2.5)}),
        ("stairs", 3.4, 3.0, {"step_length": np.full((1, 20), 1.0)}),
    ],
)
def test_the_way_made_is_always_known_and_can_pay(
    task: str, x: float, z: float, course: dict[str, np.ndarray], shaped: bool
) -> None:
    env = make(f"cube/{task}", shaped=shaped)
    begin(env, x, z, **(course or evenly(1, 1.0 if task == "limbo" else 0.2)))
    before, total = env.task.qpos[0, 0], 0.0
    scores = []
    for _ in range(6):
        step = env.step(act(env, 1.0, 0.0, HOVER))
        paid = step.metrics["shaped_reward"] if shaped else step.metrics["score"]
        assert torch.equal(step.reward, paid)
        total += float(step.metrics["shaped_reward"][0])
        scores.append(float(step.metrics["score"][0]))
    assert total == pytest.approx(env.task.qpos[0, 0] - before, abs=1e-12)
    assert total > 0.1
    assert sum(scores) == 1.0


@pytest.mark.parametrize("shaped", [False, True])
def test_a_fall_costs_one_and_leaves_the_way_made_alone(shaped: bool) -> None:
    env = make("walker/hurdles", shaped=shaped)
    begin(env, 0.0)
    env.task.qpos[0, :3] = 0.5, 0.0, 1.5
    env.task.qvel[0, 1] = 3.0
    step = env.step(torch.zeros(1, 6))
    assert step.reward.tolist() == [-1.0]
    assert step.terminated.tolist() == [True]
    assert step.metrics["shaped_reward"][0] == pytest.approx(step.final_obs["policy"][0, 4].item(), abs=1e-12)
    assert step.metrics["shaped_reward"][0] > 0.01


def test_the_score_counts_one_for_several_and_falls_leave_it() -> None:
    env = make("walker/hurdles", 2)
    position = np.tile(5.0 + 4.0 * np.arange(200), (2, 1))
    begin(env, 4.99, position=position)
    env.task.qvel[:, 1] = 4.0
    env.task.qpos[1, 2] = 1.39
    env.task.qvel[1, 2] = 5.0
    step = env.step(torch.zeros(2, 6))
    assert step.metrics["score"].tolist() == [1.0, 1.0]
    assert step.reward.tolist() == [1.0, -1.0]
    assert step.terminated.tolist() == [False, True]


def test_layouts_that_cannot_be_simulated() -> None:
    env = make("walker/hurdles")
    course = layout(env)
    near = course["position"].clone()
    near[0, 7] = near[0, 6] + 1.5
    with pytest.raises(ValueError, match=r"less than 2.0 m apart"):
        env.load_scenario({"position": near})
    with pytest.raises(ValueError, match=r"'height' of walker/hurdles .* less than 1.33 m"):
        env.load_scenario({"height": course["height"] + 2.0})
    with pytest.raises(ValueError, match="use positive heights"):
        env.load_scenario({"height": course["height"] * 0})


def test_options_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match=r"max_height reaches from 0.1 to 0.05 m"):
        make("walker/hurdles", max_height=0.05)
    with pytest.raises(ValueError, match="min_height is 'low'; use 'auto' or a positive height"):
        make("walker/limbo", min_height="low")
    with pytest.raises(ValueError, match="min_bar_height is -1"):
        make("walker/hurdleslimbo", min_bar_height=-1)
    assert make("walker/limbo", min_height=1.1).spec.options == {"min_height": 1.1}
