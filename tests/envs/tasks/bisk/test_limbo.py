"""What is special about bars: touching them, and seeing what is under them."""

from __future__ import annotations

import pytest
import torch
from bisk_cases import (
    HOVER,
    act,
    begin,
    evenly,
    make,
)

from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.pictures.scene import Scene
from gaitway.envs.tasks import NATIVE_TASKS


@pytest.mark.parametrize("task", ["limbo", "hurdleslimbo"])
def test_touching_a_bar_costs_a_point_once(task: str) -> None:
    free, strict = make(f"cube/{task}"), make(f"cube/{task}", notouch=True)
    course = evenly(1, 1.0, first=5.0 if task == "limbo" else 1.0)
    course["height"][:, 0::2] = 0.2 if task == "hurdleslimbo" else 1.0
    totals = []
    for env in (free, strict):
        begin(env, 4.0, 1.1, **course)  # the bar is at 5 in both
        scores = []
        for push in (1.0, -1.0, 1.0):  # there, away, and there again
            for _ in range(20):
                step = env.step(act(env, push, 0.0, HOVER))
                scores.append(float(step.metrics["score"][0]))
                assert float(step.reward[0]) == scores[-1]
        totals.append(scores)
    assert not any(totals[0])
    assert sum(totals[1]) == -1.0
    assert min(totals[1]) == -1.0
    # a contact within the cube's margin of 1 cm is no touch: 5 mm before the bar, moving away
    begin(strict, 5.0 - 0.1 - 0.2 - 0.005, 1.1, **course)
    assert float(strict.step(act(strict, -1.0, 0.0, HOVER)).metrics["score"][0]) == 0.0


def colours(env: MujocoBatchEnv, scene: Scene, index: int) -> list[bool]:
    """Which of the bars in the slots are red in a picture of an instance."""
    scene.update(index)
    bars = [slot for slot, kind in enumerate(env.task.kinds) if kind == "bar"]
    drawn = [scene.model.geom(f"bar_{slot}").rgba.tolist() for slot in bars]
    assert all(colour == pytest.approx([0.8, 0.0, 0.0, 1.0]) or colour[1] > 0.8 for colour in drawn)
    return [colour[1] == 0.0 for colour in drawn]


def test_touched_bars_are_red_in_pictures_until_the_episode_ends() -> None:
    env = make("cube/limbo", 2, notouch=True, shaped=True)
    course = evenly(2, 1.0)
    course["position"][1] += 30.0  # out of reach
    begin(env, 4.0, 1.1, **course)
    scene, scores = Scene(env.task), []
    assert not any(colours(env, scene, 0))
    for _ in range(20):
        step = env.step(act(env, 1.0, 0.0, HOVER))
        scores.append(float(step.metrics["score"][0]))
        assert torch.equal(step.reward, step.metrics["shaped_reward"])  # touching costs score alone
    assert sum(scores) == -1.0
    assert colours(env, scene, 0) == [True, False, False, False]
    assert not any(colours(env, scene, 1))
    assert colours(env, scene, 0) == [True, False, False, False]
    # the bar keeps its colour when the robot passed it, and its slot gives it up for another bar
    env.task.qpos[0, 0], env.task.qpos[0, 2] = 5.5, 0.3
    env.step(act(env, 0.0, 0.0, HOVER))
    assert colours(env, scene, 0) == [True, False, False, False]
    env.task.qpos[0, 0] = 13.5  # beyond the third: bars 2 to 5 are there
    env.step(act(env, 0.0, 0.0, HOVER))
    assert not any(colours(env, scene, 0))
    env.reset()
    assert not any(colours(env, scene, 0))


def test_bars_do_not_hide_the_walker() -> None:
    """From the side a bar covers all of it; the other robots are longer, or seen from elsewhere."""
    cameras = {robot: NATIVE_TASKS[f"{robot}/limbo"]().camera for robot in ("walker", "halfcheetah", "humanoid")}
    assert cameras == {"walker": "follow", "halfcheetah": None, "humanoid": None}
