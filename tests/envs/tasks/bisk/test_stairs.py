"""Stairs: lengths, geometry, the ground below the torso, and scores by script."""

from __future__ import annotations

import mujoco
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


def boxes(env: MujocoBatchEnv) -> list[str]:
    """The course of instance 0 as text, step by step from the published definition."""
    geoms, x = [], 3.0
    for step, length in enumerate(layout(env)["step_length"][0].tolist()):
        if step == 10:
            geoms.append(box(x + 3.0, 1.0, 3.0, 1.0))
            x += 6.0
        height = 0.2 * (step + 1) if step < 10 else 0.2 * (20 - step)
        geoms.append(box(x + length / 2, height / 2, length / 2, height / 2))
        x += length
    return geoms


def test_layout_law() -> None:
    task, generator = NATIVE_TASKS["walker/stairs"](), np.random.default_rng(1)
    lengths = np.concatenate([task.draw(generator)["step_length"] for _ in range(500)])
    assert len(lengths) == 10_000
    assert kstest(lengths, "uniform", args=(0.5, 0.5)).pvalue > 0.01
    assert kstest(lengths, "uniform", args=(0.5, 0.55)).pvalue < 1e-6


@pytest.mark.parametrize("robot", ["walker", "humanoid"])
def test_the_builder_equals_boxes_written_as_text(robot: str) -> None:
    env = make(f"{robot}/stairs", allow_falls=True)
    for start, height in ((2.75, 1.3), (3.0 + float(layout(env)["step_length"][0, :10].sum()) + 5.9, 3.3)):
        begin(env, start, height, settle=True, **layout(env))
        qvel = env.scenario()["qvel"]
        qvel[:, env.task.view.forward] = 2.0
        env.load_scenario({**env.scenario(), "qvel": qvel})
        model = text_model(robot, *CORRIDOR, *boxes(env))
        plan = random_actions(env, 240 // env.task.frame_skip, seed=1)
        assert deviation(env, model, plan).max() < 1e-10


@pytest.mark.parametrize("broken", [False, True])
def test_every_step_can_be_touched(broken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    env = make("cube/stairs")
    course = layout(env)
    tops = [0.2 * (step + 1) for step in range(10)] + [0.2 * (20 - step) for step in range(10, 20)]
    centres = env.task.progress.positions[0].copy()
    if broken:  # without a refresh MuJoCo looks for the boxes where they were when the model was compiled
        without_refresh(monkeypatch)
        env = make("cube/stairs", seed=4)
        env.load_scenario(course)
    found = [num_contacts(env, centres[step], tops[step] + 0.19) for step in (0, 5, 9, 10, 19)]
    above = [num_contacts(env, centres[step], tops[step] + 0.22) for step in (0, 5, 9, 10, 19)]
    if broken:
        assert 0 in found
    else:
        assert all(found)
        assert not any(above)
        top = (centres[9] + centres[10]) / 2
        assert num_contacts(env, top, 2.19) > 0
        assert num_contacts(env, top, 2.22) == 0


def test_the_ground_equals_a_ray() -> None:
    env = make("walker/stairs")
    model = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody>" + "".join([CORRIDOR[0], *boxes(env)]) + "</worldbody></mujoco>"
    )
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    generator = np.random.default_rng(0)
    geom = np.zeros(1, dtype=np.int32)
    for x in generator.uniform(-3, 30, 200):
        ray = mujoco.mj_ray(model, data, [x, 0.0, 4.0], [0.0, 0.0, -1.0], None, 1, -1, geom, None)
        assert 4.0 - env.task.ground(np.array([0]), np.array([x]))[0] == pytest.approx(ray, abs=1e-9)


def test_height_and_falls_are_measured_from_the_ground() -> None:
    env = make("walker/stairs", 2)
    top = 3.0 + env.scenario()["step_length"][:, :10].sum(1).numpy() + 3.0
    seen = begin(env, float(top[0]), 3.2, **layout(env))
    assert seen[0, 3].item() == pytest.approx(1.2)
    env.task.qpos[1, 0] = 2.85  # 0.85 m above the top
    env.task.qpos[1, 3:] = [0.9, -1.8, 0.0] * 2  # legs folded, so that the ground does not push it up
    step = env.step(torch.zeros(2, 6))
    assert step.terminated.tolist() == [False, True]
    assert step.final_obs["policy"][0, 3].item() == pytest.approx(env.task.qpos[0, 0] - 2.0, abs=1e-12)
    plain = make("walker/stairs", 2, features="joints")
    assert begin(plain, float(top[0]), 3.2, **layout(env))[0, 3].item() == pytest.approx(3.2)


def test_observation_by_hand() -> None:
    env = make("cube/stairs")
    course = {"step_length": np.full((1, 20), 0.8)}
    assert begin(env, 0.0, 5.0, **course)[0, :3].tolist() == pytest.approx([3.4, 4.2, 1.0])
    assert begin(env, 10.7, 5.0, **course)[0, :3].tolist() == pytest.approx([6.7, 7.5, 1.0])  # 11 + 6 + 0.4
    last = 11.0 + 6.0 + 9 * 0.8 + 0.4
    assert begin(env, last - 0.5, 5.0, **course)[0, :3].tolist() == pytest.approx([0.5, 10.0, 1.0])
    assert begin(env, last + 0.1, 5.0, **course)[0, :3].tolist() == pytest.approx([10.0, 20.0, 1.0])


def test_new_steps_pay_once() -> None:
    env = make("cube/stairs")
    begin(env, 0.0, 3.0)
    pass_items(env, 0, 2, (1.0, 0.0, HOVER))


def test_a_full_run_scores_twenty() -> None:
    env = make("cube/stairs", 2)
    total = torch.zeros(2)
    for _ in range(160):
        step = env.step(act(env, 1.0, 0.0, 1.0))
        total += step.reward
        assert torch.equal(step.reward, step.metrics["score"])
    assert total.tolist() == [20.0, 20.0]
    assert env.elapsed.tolist() == [160, 160]


def test_the_first_step_stops_a_cube() -> None:
    env = make("cube/stairs")
    begin(env, 0.0, 0.3)
    assert not any(float(env.step(act(env, 1.0, 0.0, HOVER)).reward[0]) for _ in range(64))
    assert env.task.qpos[0, 0] < 3.0


def test_more_flights() -> None:
    env = make("cube/stairs", num_flights=4)
    length = np.full((1, 40), 1.0)
    begin(env, 0.0, 9.0, step_length=length)
    x = np.array([2.9, 3.1, 12.5, 15.0, 19.5, 28.5, 30.0, 41.5, 49.5, 55.0, 70.0])
    ground = [float(env.task.ground(np.array([0]), np.array([at]))[0]) for at in x]
    # up 3..13, top to 19, down to 29, floor to 41, up to 51, top to 57, down to 67
    assert ground == pytest.approx([0.0, 0.2, 2.0, 2.0, 2.0, 0.2, 0.0, 0.2, 1.8, 2.0, 0.0])
    assert num_contacts(env, 41.5, 0.39) > 0
    with pytest.raises(ValueError, match="num_flights is 3; use an even number"):
        make("cube/stairs", num_flights=3)


def test_five_pairs_of_flights() -> None:
    env = make("cube/stairscont")
    assert env.scenario()["step_length"].shape == (1, 100)
    assert env.spec.options == {}
    assert make("cube/stairscont", num_flights=2).spec.options == {"num_flights": 2}
    begin(env, 0.0, 9.0, step_length=np.full((1, 100), 1.0))
    # a pair is 10 up, 6 level, 10 down, with 12 m of floor to the next: pair k begins at 3 + 38 k
    for pair in range(5):
        x = 3.0 + 38.0 * pair + np.array([-0.1, 0.1, 9.5, 13.0, 16.5, 25.5, 26.1])
        ground = env.task.ground(np.zeros(len(x), dtype=np.int64), x)
        assert ground.tolist() == pytest.approx([0.0, 0.2, 2.0, 2.0, 2.0, 0.2, 0.0])
    assert num_contacts(env, 3.0 + 4 * 38.0 + 25.5, 0.39) > 0  # the last step
    length = np.full((1, 100), 1.0)
    last = 3.0 + 4 * 38.0 + 25.5
    assert begin(env, last - 1.5, 9.0, step_length=length)[0, :3].tolist() == pytest.approx([0.5, 1.5, 1.0])
    assert begin(env, last + 0.1, 9.0, step_length=length)[0, :3].tolist() == pytest.approx([10.0, 20.0, 1.0])


def test_what_cannot_be_built() -> None:
    env = make("cube/stairs")
    with pytest.raises(ValueError, match=r"'step_length' of cube/stairs holds -1.0 m"):
        env.load_scenario({"step_length": np.full((1, 20), -1.0)})
    with pytest.raises(ValueError, match=r"step_length reaches from 2.0 to 1.0 m"):
        make("cube/stairs", step_length_min=2.0)
