"""Gaps: lengths, the window of platforms, lava in any substep, and scores by script."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from bisk_cases import (
    CORRIDOR,
    HOVER,
    act,
    begin,
    box,
    deviation,
    layout,
    make,
    num_contacts,
    pass_items,
    random_actions,
    text_model,
    without_refresh,
)
from scipy.stats import kstest

from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.tasks import NATIVE_TASKS
from gaitway.envs.tasks.bisk.gaps import AHEAD, BEHIND, MIN_PERIOD, REACH, SLOTS


def boxes(env: MujocoBatchEnv, count: int) -> list[str]:
    """The course of instance 0 as text, with a box of lava in every gap as in the published definition."""
    geoms, x = [box(-2.0, -0.1, 6.0, 0.1)], 4.0
    course = layout(env)
    for gap, platform in zip(course["gap"][0, :count].tolist(), course["platform"][0, :count].tolist(), strict=True):
        geoms.append(box(x + gap / 2, -0.15, gap / 2, 0.1))
        geoms.append(box(x + gap + platform / 2, -0.1, platform / 2, 0.1))
        x += gap + platform
    return geoms


def evenly(num_envs: int, gap: float, platform: float) -> dict[str, np.ndarray]:
    return {"gap": np.full((num_envs, 200), gap), "platform": np.full((num_envs, 200), platform)}


@pytest.mark.parametrize(("robot", "shortest"), [("walker", 0.5), ("humanoid", 1.0), ("humanoidpc", 1.0)])
def test_layout_laws(robot: str, shortest: float) -> None:
    task, generator = NATIVE_TASKS[f"{robot}/gaps"](), np.random.default_rng(2)
    draws = [task.draw(generator) for _ in range(50)]
    gaps, platforms = (np.concatenate([draw[name] for draw in draws]) for name in ("gap", "platform"))
    assert len(gaps) == len(platforms) == 10_000
    assert kstest(gaps, "uniform", args=(0.2, 0.5)).pvalue > 0.01
    assert kstest(platforms, "uniform", args=(shortest, 2.5 - shortest)).pvalue > 0.01
    assert kstest(platforms, "uniform", args=(0.75, 1.75)).pvalue < 1e-6
    fixed = NATIVE_TASKS[f"{robot}/gaps"](fixed_size=True).draw(generator)
    assert set(fixed["gap"]) == {0.2}
    assert set(fixed["platform"]) == {2.5}


@pytest.mark.parametrize("robot", ["walker", "humanoid"])
def test_the_builder_equals_boxes_written_as_text(robot: str) -> None:
    env = make(f"{robot}/gaps", allow_falls=True)
    course = layout(env)
    course["gap"][:] = 0.2
    begin(env, 3.7, settle=True, **course)
    qvel = env.scenario()["qvel"]
    qvel[:, env.task.view.forward] = 2.0
    env.load_scenario({**env.scenario(), "qvel": qvel})
    model = text_model(robot, *CORRIDOR[1:], *boxes(env, 5))
    differences = deviation(env, model, random_actions(env, 240 // env.task.frame_skip, seed=1))
    assert len(differences) > 10
    assert differences.max() < 1e-10


def test_a_moving_window_equals_all_platforms() -> None:
    env = make("cube/gaps")
    env.load_scenario(evenly(1, 0.2, 0.5))
    begin(env, 0.0, 0.21, settle=True, **evenly(1, 0.2, 0.5))
    model = text_model("cube", *CORRIDOR[1:], *boxes(env, 60))
    plan = torch.zeros(120, 1, 3, dtype=torch.float64)
    plan[:, :, 0], plan[:, :, 2] = 0.7, 0.04  # slides along on the platforms
    assert deviation(env, model, plan).max() < 1e-8
    assert env.task.progress.next[0] > 20
    assert env.task.memory["first"][0] > 10


@pytest.mark.parametrize("broken", [False, True])
def test_every_platform_can_be_touched(broken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if broken:  # without a refresh MuJoCo looks for the platforms where they were when the model was compiled
        without_refresh(monkeypatch)
    env = make("cube/gaps")
    course = layout(env)
    begins = env.task.progress.positions[0].copy()
    found = [num_contacts(env, begins[item] + course["platform"][0, item].item() / 2, 0.19) for item in (0, 50, 199)]
    if broken:
        assert 0 in found
        return
    assert all(found)
    assert num_contacts(env, begins[50] + 0.25, 0.22) == 0
    wide = evenly(1, 0.6, 1.0)
    begin(env, 4.3, 0.19, **wide)
    assert num_contacts(env, 4.3, 0.19) == 0  # within the first gap
    assert num_contacts(env, 4.0 + 50 * 1.6 + 0.3, 0.19) == 0
    assert num_contacts(env, 3.8, 0.19) > 0  # the ground before it
    for item in (0, 50, 199):
        gap = 4.0 + item * 1.6 + 0.3
        assert num_contacts(env, gap, 0.14) > 0
        assert env.task.batch.bind("sensordata")[0, env.task._lava] > 0


def test_slots_hold_all_platforms_within_reach() -> None:
    assert BEHIND + AHEAD <= SLOTS
    env = make("cube/gaps")
    generator = np.random.default_rng(0)
    begin(env, 0.0, 3.0, **evenly(1, 0.1, MIN_PERIOD - 0.1))  # the closest that is allowed
    task = env.task
    for _ in range(400):
        task.qpos[0, 0] += generator.uniform(-0.4, 0.6)
        task.progress.update(task.x())
        task.before_step()
        x, begins = task.qpos[0, 0], task.progress.positions[0]
        near = np.flatnonzero((begins < x + REACH) & (begins + MIN_PERIOD - 0.1 > x - REACH))
        first = task.memory["first"][0]
        assert set(near) <= set(range(first, first + SLOTS))
        for name, offset in (("platform", (MIN_PERIOD - 0.1) / 2), ("lava", -0.05)):
            geoms = [task.model.geom(f"{name}_{item % SLOTS}").id for item in near]
            np.testing.assert_allclose(task._geom_pos[0, geoms, 0], begins[near] + offset)


def test_new_platforms_pay_once() -> None:
    env = make("cube/gaps")
    begin(env, 0.0, 1.0)
    pass_items(env, 1, 2, (1.0, 0.0, HOVER))


@pytest.mark.parametrize("id", ["cube/gaps", "cube2d/gaps"])
def test_lava_ends_the_episode(id: str) -> None:
    env = make(id)
    begin(env, 4.35, 0.3, **evenly(1, 0.7, 2.0))
    down = (0.0, 0.0, -0.6) if id == "cube/gaps" else (0.0, -0.6)
    rewards = []
    for _ in range(8):
        step = env.step(act(env, *down))
        rewards.append(float(step.reward[0]))
        if step.terminated[0]:
            break
    assert step.terminated.tolist() == [True]
    assert rewards[-1] == -1.0
    assert not any(rewards[:-1])
    assert step.metrics["score"].tolist() == [0.0]
    assert step.metrics["fell"].tolist() == [0.0]


@pytest.mark.parametrize("options", [{}, {"lava_costs_score": True}, {"allow_falls": True}, {"shaped": True}])
def test_lava_costs_one_and_in_the_second_edition_a_point(options: dict[str, bool]) -> None:
    env = make("cube/gaps", 2, **options)
    begin(env, 4.35, 0.3, **evenly(2, 0.7, 2.0))
    env.task.qpos[:, 2] = 0.16, 0.6  # one cube drops into the gap
    step = env.step(act(env, 0.0, 0.0, -0.5))
    assert step.terminated.tolist() == [True, False]
    assert step.reward[0] == -1.0
    assert step.metrics["score"].tolist() == [-1.0 if options.get("lava_costs_score") else 0.0, 0.0]
    assert step.metrics["shaped_reward"].abs().max() < 1e-3
    assert step.metrics["fell"].tolist() == [0.0, 0.0]


def test_feet_in_the_ground_are_not_in_lava() -> None:
    # The noise of the first state puts them there.
    env = make("walker/gaps", 64)
    deep = env.scenario()["qpos"][:, 0] < 1.23  # the feet of a straight Walker are more than 5 cm deep
    assert deep.sum() > 5
    for action in random_actions(env, 4):
        step = env.step(action)
        assert not step.terminated.any()


def test_platforms_carry() -> None:
    env = make("cube/gaps")
    begin(env, 5.5, 0.3, **evenly(1, 0.7, 2.0))
    for _ in range(12):
        step = env.step(act(env, 0.0, 0.0, -1.0))
        assert step.reward.tolist() == [0.0]
        assert step.terminated.tolist() == [False]
    assert 0.15 < env.task.qpos[0, 2] < 0.21


def test_lava_counts_in_any_substep() -> None:
    # A cube that dips into the lava and is out again after the control step: no state at its ends touches.
    env = make("cube/gaps", 2)
    begin(env, 4.35, 0.3, **evenly(2, 0.7, 2.0))
    env.task.qpos[:, 2] = 0.165, 0.5
    env.task.qvel[:, 2] = -1.5
    count = env.task.batch.bind("ncon")
    step = env.step(act(env, 0.0, 0.0, 1.0))
    assert step.terminated.tolist() == [True, False]
    assert count.reshape(2)[0] >= 0
    single = make("cube/gaps")
    touched = []
    begin(single, 4.35, 0.3, **evenly(1, 0.7, 2.0))
    single.task.qpos[:, 2], single.task.qvel[:, 2] = 0.165, -1.5
    single.task.ctrl[:] = [0.0, 0.0, 1.0]
    for _ in range(5):
        single.task.batch.step(stage=1)
        touched.append(bool(single.task.batch.bind("sensordata")[0, single.task._lava]))
    assert any(touched)
    assert not touched[-1]


def test_observation_by_hand() -> None:
    env = make("cube/gaps")
    course = evenly(1, 0.5, 1.5)
    assert begin(env, 1.0, 1.0, **course)[0, :3].tolist() == pytest.approx([3.0, 3.5, 1.0])
    assert begin(env, 4.0, 1.0, **course)[0, :3].tolist() == pytest.approx([0.0, 0.5, 1.0])  # not below 4 yet
    assert begin(env, 4.2, 1.0, **course)[0, :3].tolist() == pytest.approx([1.8, 0.3, 1.0])
    assert begin(env, 5.0, 1.0, **course)[0, :3].tolist() == pytest.approx([1.0, 1.5, 1.0])
    last = 4.0 + 199 * 2.0
    assert begin(env, last + 0.2, 1.0, **course)[0, :3].tolist() == pytest.approx([1.0, 0.3, 1.0])
    assert begin(env, last + 1.0, 1.0, **course)[0, :3].tolist() == pytest.approx([1.0, 1.0, 1.0])


def test_what_cannot_be_built() -> None:
    env = make("walker/gaps")
    with pytest.raises(ValueError, match=r"0.4 m at least, because only the 16 platforms"):
        env.load_scenario(evenly(1, 0.1, 0.2))
    with pytest.raises(ValueError, match="must hold positive lengths"):
        env.load_scenario({"gap": np.zeros((1, 200))})
    with pytest.raises(ValueError, match=r"max_size reaches from 1.0 to 0.8 m"):
        make("humanoid/gaps", max_size=0.8)
    with pytest.raises(ValueError, match=r"gap reaches from 0.2 to 0.1 m"):
        make("humanoid/gaps", max_gap=0.1)
