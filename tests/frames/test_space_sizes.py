"""Sizes and kinds of observations and actions, for every space and every thing that has one."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from gaitway.envs.registry import make_env
from gaitway.frames.agent import FrameAgent
from gaitway.frames.space_sizes import (
    action_size,
    is_continuous_action,
    is_continuous_observation,
    is_discrete_action,
    is_discrete_observation,
    observation_size,
    space_size,
)

SIZES = [
    (spaces.Box(-1, 1, (3,)), 3),
    (spaces.Box(-1, 1, ()), 1),
    (spaces.Discrete(4, start=2), 4),
    (spaces.MultiDiscrete([2, 5]), (2, 5)),
    (spaces.MultiBinary(6), 6),
    (spaces.MultiBinary([2, 3]), (2, 3)),
    (spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1, (2,)))), (2, 2)),
    (spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Dict({"c": spaces.Box(0, 1, (7,))})}), {"a": 3, "b": {"c": 7}}),
]


@pytest.mark.parametrize(("space", "size"), SIZES, ids=[str(space) for space, _ in SIZES])
def test_the_table(space, size):
    assert space_size(space) == size
    assert action_size(space) == observation_size(space) == size


def test_more_axes_give_the_shape_and_a_warning():
    with pytest.warns(UserWarning, match=r"\(4, 4, 3\)"):
        assert space_size(spaces.Box(0, 255, (4, 4, 3), np.uint8)) == (4, 4, 3)
    with pytest.raises(TypeError, match="Box, Discrete"):
        space_size(spaces.Text(3))


def test_one_answer_wherever_the_environment_comes_from():
    sources = [
        gymnasium.make("CartPole-v1"),
        SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 2),
        make_env("gymnasium:CartPole-v1", num_envs=2),
        make_env("gymnasium:CartPole-v1").spec,
        FrameAgent("CartPole-v1", 2),
        FrameAgent(make_env("gymnasium:CartPole-v1")),
    ]
    for source in sources:
        assert (observation_size(source), action_size(source)) == (4, 2), source
        assert is_discrete_action(source)
        assert not is_continuous_action(source)
        assert is_continuous_observation(source)
        assert not is_discrete_observation(source)
    walker = make_env("walker/run")
    assert (observation_size(walker), action_size(walker)) == (17, 6)
    assert is_continuous_action(walker)
    with pytest.raises(TypeError, match="neither spaces nor a spec"):
        action_size("CartPole-v1")


def test_kinds_of_nested_and_of_multi_discrete_spaces():
    mixed = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(0, 1, (2,))})
    assert not is_continuous_observation(mixed)
    assert not is_discrete_observation(mixed)
    assert is_discrete_action(spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([3]))))
    assert not is_continuous_action(spaces.Box(0, 3, (2,), np.int64))
    lake = FrameAgent("FrozenLake-v1")
    assert is_discrete_observation(lake)
    assert observation_size(lake) == 16
    assert observation_size(make_env("gymnasium:FrozenLake-v1")) == 16  # one-hot


def test_multi_discrete_and_several_groups_of_a_spec():
    class Blocks(gymnasium.Env):
        observation_space = spaces.Dict({"x": spaces.Box(0, 1, (2,)), "y": spaces.Box(0, 1, (5,))})
        action_space = spaces.MultiDiscrete([2, 3])

        def reset(self, *, seed=None, options=None):
            return {"x": np.zeros(2, np.float32), "y": np.zeros(5, np.float32)}, {}

    from gaitway.envs.gym.env import GymnasiumEnv

    env = GymnasiumEnv(Blocks)
    assert observation_size(env) == {"x": 2, "y": 5}
    assert action_size(env) == (2, 3)
