"""Courses of the toy robot: gates that count once, bars that stop, falls, and names that its skills know."""

from __future__ import annotations

import pytest
import torch

from gaitway.envs.check import check_env
from gaitway.envs.registry import make_env
from gaitway.runners.evaluate import play_episodes

RIGHT = (1.0, 0.0, 0.0, 0.0)
GENTLE = (0.6, 0.0, 0.0, 0.0)


class Constant:
    """Always the same action; with `low` it dives first."""

    def __init__(self, action: tuple[float, ...], low: bool = False) -> None:
        self.action, self.low = torch.tensor(action), low

    def __call__(self, obs: dict[str, torch.Tensor]) -> torch.Tensor:
        height = obs["goal_space"][:, 2]
        action = self.action.repeat(len(height), 1)
        if self.low:
            action[:, 2] = (0.3 - height).clamp(-0.4, 0.4)
            action[:, 0] *= (height < 0.38).float()
        return action

    def reset(self, mask: torch.Tensor | None = None) -> None: ...


@pytest.mark.parametrize("env_id", ["point/corridor", "point/duck"])
def test_it_is_sound(env_id):
    report = check_env(lambda num_envs, seed: make_env(env_id, num_envs, seed, max_episode_steps=7), steps=20)
    assert report.ok, str(report)


def test_gates_count_once():
    with make_env("point/corridor", num_envs=3, max_episode_steps=200) as env:
        found = play_episodes(env, Constant(GENTLE), [0, 1, 2], 300)
    assert torch.equal(found["score"], torch.floor(found["progress"] / 0.5))
    assert torch.equal(found["score"], found["return"])
    assert bool((found["score"] >= 8).all())
    with make_env("point/corridor", num_envs=1, max_episode_steps=200) as env:
        total = 0.0
        for t in range(160):  # back and forth over the same gates
            step = env.step(torch.tensor([[0.5 if t % 80 < 40 else -0.5, 0.0, 0.0, 0.0]]))
            total += float(step.reward[0])
        assert 1 <= total <= 3


def test_bars_stop_who_does_not_duck():
    with make_env("point/duck", num_envs=4) as env:
        upright = play_episodes(env, Constant(GENTLE), [0, 1, 2, 3], 300)
        ducked = play_episodes(env, Constant(GENTLE, low=True), [0, 1, 2, 3], 300)
    assert upright["score"].tolist() == [1.0] * 4  # the gate before the first bar
    assert bool((upright["progress"] < 1.0).all())
    assert bool((ducked["score"] >= 6).all())


def test_falls_cost_a_point_of_the_return_alone():
    with make_env("point/corridor", num_envs=1) as env:
        fell = False
        for t in range(200):
            step = env.step(torch.tensor([[1.0 if t // 8 % 2 else -1.0, 0.0, -1.0, 0.0]]))
            if bool(step.terminated[0]):
                fell = True
                assert float(step.reward[0]) == -1.0
                assert float(step.metrics["fell"][0]) == 1.0
                break
    assert fell


def test_what_is_seen_has_the_names_of_the_skills():
    with make_env("point/skills") as skills, make_env("point/duck", num_envs=2) as env:
        shown = [component.name for component in env.spec.group("policy").components]
        assert shown[:4] == ["next_gate", "next_bar", "x", "y"]
        assert shown[4:] == [component.name for component in skills.spec.group("observation").components]
        names = [component.name for component in env.spec.group("goal_space").components]
        assert names == ["x", "y", "z", "heading"]
        obs = env.reset()
        assert obs["policy"][:, :2].tolist() == [[0.5, 1.0]] * 2
        assert torch.equal(obs["policy"][:, 4], obs["goal_space"][:, 2])
        assert torch.allclose(obs["policy"][:, 5], obs["goal_space"][:, 3].cos(), atol=1e-6)
