"""Features of the robot beside what a task shows, also of states that were left by a restart."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from skill_cases import actions, make_skills

from gaitway.envs.check import check_env
from gaitway.envs.feature_observation import FeatureObservation
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.registry import make_env
from gaitway.envs.toys.toy_env import ToyEnv
from gaitway.envs.toys.toys import CartPole
from gaitway.envs.vec_env import VecEnv


def test_features_equal_those_of_the_skill_environment():
    plain = make_skills(max_steps=4, hard_reset_interval=3)
    env = FeatureObservation(make_skills(max_steps=4, hard_reset_interval=3), heading="corrected", into="extra")
    assert env.spec.group("extra").components == env.spec.group("gs_observation").components
    first = env.reset(2)
    plain.reset(2)
    assert torch.equal(first["extra"], first["gs_observation"])
    ended = 0
    for action in actions(plain, 60):
        step, expected = env.step(action), plain.step(action)
        assert torch.equal(step.obs["extra"], step.obs["gs_observation"])
        assert torch.equal(step.final_obs["extra"], step.final_obs["gs_observation"])
        assert torch.equal(step.obs["observation"], expected.obs["observation"])
        ended += int(step.terminated.sum())
    assert ended > 3


def test_a_task_without_positions_computes_them_and_moves_as_before():
    plain, env = (make_env("walker/run", 2, 0, dtype="float64") for _ in range(2))
    env = FeatureObservation(env, "bodyfeet")
    task = env.env.task
    for number, action in enumerate(actions(plain, 40)):
        step, expected = env.step(action), plain.step(action)
        assert torch.equal(step.obs["policy"], expected.obs["policy"]), number
        going = ~(step.terminated | step.truncated)
        assert np.array_equal(step.obs["goal_space"][:, :3].numpy(), task.qpos[:, :3])
        assert torch.equal(step.final_obs["goal_space"][going], step.obs["goal_space"][going])
        assert torch.equal(step.final_obs["goal_space"][:, 0], step.final_obs["policy"][:, 0])


@pytest.mark.parametrize(
    ("id", "wrappers", "options"),
    [
        ("walker/run", [{"name": "features"}], {"max_episode_steps": 25}),
        ("humanoid/stand", [{"name": "features", "features": "bodyfeet-relz", "into": "feet"}], {}),
        (
            "walker/skills",
            [{"name": "features", "features": "joints"}, {"name": "features", "into": "feet"}, {"name": "flatten"}],
            {"max_steps": 4, "hard_reset_interval": 2},
        ),
    ],
)
def test_the_contract_is_kept(id, wrappers, options):
    def make(num_envs: int, seed: int) -> VecEnv:
        return make_env(id, num_envs, seed, num_threads=1, wrappers=wrappers, **options)

    report = check_env(make, steps=45)
    assert report.ok, str(report)


class LateFeatures(FeatureObservation):
    """Reads the state after the restart, as a wrapper that only looks at the arrays would."""

    def step(self, action):
        step = super().step(action)
        late = self._tensor(self._write(slice(None), np.empty_like(self._reached)))
        step.final_obs[self.into] = late
        return step


def test_features_read_too_late_are_not_those_of_the_end():
    env = LateFeatures(make_skills(max_steps=4, hard_reset_interval=1), heading="corrected")
    wrong = 0
    for action in actions(env.env, 8):
        step = env.step(action)
        wrong += int((step.final_obs["goal_space"] != step.final_obs["gs_observation"]).any())
    assert wrong > 0


def test_a_fault_repeats_the_last_features():
    env = FeatureObservation(make_skills(num_envs=2))
    before = env.step(actions(env.env, 1)[0]).obs["goal_space"].clone()
    assert isinstance(env.env, MujocoBatchEnv)
    env.env.task.qvel[1, 0] = np.nan
    step = env.step(actions(env.env, 1)[0])
    assert step.metrics["physics_error"].tolist() == [0, 1]
    assert torch.equal(step.final_obs["goal_space"][1], before[1])
    assert step.obs["goal_space"].isfinite().all()


def test_mistakes_are_named():
    for env, words in [
        (ToyEnv(CartPole(), 2), "no native task"),
        (make_env("Hopper-v5", 2), "has no robot"),
    ]:
        with pytest.raises(ValueError, match=words):
            FeatureObservation(env)
    with pytest.raises(ValueError, match="does not compute contact forces"):
        FeatureObservation(make_env("walker/run", 2), "joints")
    with pytest.raises(ValueError, match="no features"):
        FeatureObservation(make_env("walker/run", 2), "feet")
    with pytest.raises(ValueError, match="already has a group"):
        FeatureObservation(make_skills(), into="task")
