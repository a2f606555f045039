"""The age of an episode as an observation, several groups as one vector, and what is hidden."""

from __future__ import annotations

import gymnasium
import pytest
import torch
from gymnasium.vector import SyncVectorEnv
from skill_cases import make_skills

from gaitway.envs.check import check_env
from gaitway.envs.gym.env import GymnasiumEnv
from gaitway.envs.observation_wrappers import FlattenObservation, HiddenObservation, TimeObservation
from gaitway.envs.toys.toy_env import ToyEnv
from gaitway.envs.toys.toys import CartPole
from gaitway.envs.wrappers import History, make_wrapper


def cartpole(num_envs=2, seed=0, limit=5):
    return ToyEnv(CartPole(max_episode_steps=limit), num_envs, seed, id="toy/cartpole")


def next_step_cartpole(num_envs=2, seed=0):
    factories = [lambda: gymnasium.make("CartPole-v1", max_episode_steps=12)] * num_envs
    return GymnasiumEnv(SyncVectorEnv(factories), seed=seed)


def skills(num_envs=2, seed=0):
    return make_skills("walker", num_envs, seed, max_steps=4, hard_reset_interval=2)


def test_time_counts_steps_and_ends_with_the_age_that_was_reached():
    env = TimeObservation(cartpole())
    assert env.spec.group("time").shape == (1,)
    assert env.spec.group("time").components[0].unit == "steps"
    assert env.reset(0)["time"].tolist() == [[0], [0]]
    seen, final = [], []
    for _ in range(7):
        step = env.step(torch.tensor([0, 1]))
        seen.append(int(step.obs["time"][0]))
        final.append(int(step.final_obs["time"][0]))
    assert seen == [1, 2, 3, 4, 0, 1, 2]
    assert final == [1, 2, 3, 4, 5, 1, 2]


def test_time_follows_ages_that_are_set():
    env = TimeObservation(cartpole())
    env.set_elapsed(torch.tensor([3, 4]))
    step = env.step(torch.tensor([0, 1]))
    assert step.obs["time"].tolist() == [[4], [0]]
    assert step.final_obs["time"].tolist() == [[4], [5]]


def test_flattening_keeps_order_and_names():
    plain, env = skills(), FlattenObservation(skills(), groups=["task", "observation"], into="all")
    assert env.spec.group_names == ["all", "desired_goal", "gs_observation"]
    group = env.spec.group("all")
    assert group.shape == (66,)
    assert group.columns("observation/rootz") == slice(7, 8)
    assert group.components[7].unit == "m"
    assert group.dtype == "float64"
    first, expected = env.reset(3), plain.reset(3)
    assert torch.equal(first["all"], torch.cat([expected["task"], expected["observation"]], -1))
    assert list(first) == env.spec.group_names
    action = torch.zeros(2, 6)
    for _ in range(9):
        step, expected = env.step(action), plain.step(action)
        for found, wanted in ((step.obs, expected.obs), (step.final_obs, expected.final_obs)):
            assert torch.equal(found["all"], torch.cat([wanted["task"], wanted["observation"]], -1))
    whole = FlattenObservation(skills())
    assert whole.spec.group_names == ["policy"]
    assert whole.spec.group("policy").shape == (59 + 7 + 7 + 7,)


def test_mistakes_are_named():
    with pytest.raises(KeyError, match="no observation group 'goal'"):
        FlattenObservation(skills(), groups=["goal"])
    with pytest.raises(ValueError, match="each once"):
        FlattenObservation(skills(), groups=["task", "task"])
    with pytest.raises(ValueError, match="keeps a group 'task'"):
        FlattenObservation(skills(), groups=["observation"], into="task")
    with pytest.raises(ValueError, match="already has a group 'task'"):
        TimeObservation(skills(), into="task")
    with pytest.raises(ValueError, match="no option 'group'"):
        make_wrapper(skills(), {"name": "time", "group": "age"})


@pytest.mark.parametrize(
    "wrap",
    [
        TimeObservation,
        FlattenObservation,
        lambda env: History(FlattenObservation(TimeObservation(env)), length=3),
    ],
)
@pytest.mark.parametrize("make", [cartpole, next_step_cartpole, skills])
def test_the_contract_is_kept(wrap, make):
    report = check_env(lambda num_envs, seed: wrap(make(num_envs, seed)), steps=30)
    assert report.ok, str(report)


class StaleTime(TimeObservation):
    """Forgets that an episode ended."""

    def shown(self, obs):
        self._elapsed = self._elapsed + 1
        return self._with(obs, self._elapsed)


def test_a_clock_that_does_not_restart_is_found():
    assert not check_env(lambda num_envs, seed: StaleTime(cartpole(num_envs, seed)), steps=30).ok


def test_wrappers_by_name():
    for name, kind in (("time", TimeObservation), ("frame_counter", TimeObservation), ("flatten", FlattenObservation)):
        assert type(make_wrapper(cartpole(), {"name": name})) is kind


def test_hidden_groups_and_components_are_nan_and_the_rest_is_as_it_was():
    plain, env = skills(), HiddenObservation(skills(), ["task", "observation.rootz"])
    assert env.spec == plain.spec
    column = env.spec.group("observation").columns("rootz")
    seen, shown = plain.reset(0), env.reset(0)
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        assert shown["task"].isnan().all()
        assert shown["observation"][:, column].isnan().all()
        kept = [each for each in range(seen["observation"].shape[1]) if each != column.start]
        assert torch.equal(shown["observation"][:, kept], seen["observation"][:, kept])
        assert torch.equal(shown["desired_goal"], seen["desired_goal"])
        action = 2.0 * torch.rand(2, *plain.spec.action.shape, generator=generator) - 1.0
        one, other = plain.step(action), env.step(action)
        assert other.final_obs["task"].isnan().all()
        assert torch.equal(one.reward, other.reward)
        seen, shown = one.obs, other.obs


@pytest.mark.parametrize(
    ("names", "said"),
    [([], "nothing is hidden"), (["tsk"], "did you mean 'task'"), (["observation.rootx"], "no 'observation.rootx'")],
)
def test_what_cannot_be_hidden_is_named(names, said):
    with pytest.raises(ValueError, match=said):
        HiddenObservation(skills(), names)
