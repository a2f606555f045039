"""From a gymnasium action space to its head, and the number of an action's dimensions."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gaitway.envs.gym.space_distribution import action_dimension, distribution_for
from gaitway.envs.gym.spaces import ActionCodec
from gaitway.nn.distributions import KINDS

BOX = spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([1.0, 4.0], np.float32))
CASES = {
    "Box": (BOX, "gaussian", 2, 2),
    "Box [2, 3]": (spaces.Box(-1, 1, (2, 3)), "gaussian", 6, 6),
    "Box []": (spaces.Box(-1, 1, ()), "gaussian", 1, 1),
    "Box without limits": (spaces.Box(-np.inf, np.inf, (3,)), "gaussian", 3, 3),
    "Discrete": (spaces.Discrete(4), "categorical", 1, 4),
    "Discrete from 3": (spaces.Discrete(4, start=3), "categorical", 1, 4),
    "MultiDiscrete": (spaces.MultiDiscrete([3, 2]), "multi_categorical", 2, 5),
    "MultiDiscrete from 1": (spaces.MultiDiscrete([3, 2], start=[1, 0]), "multi_categorical", 2, 5),
    "MultiDiscrete [2, 2]": (spaces.MultiDiscrete([[3, 2], [4, 2]]), "multi_categorical", 4, 11),
    "MultiBinary": (spaces.MultiBinary(3), "bernoulli", 3, 3),
    "MultiBinary [2, 2]": (spaces.MultiBinary([2, 2]), "bernoulli", 4, 4),
}


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_actions_of_the_head_are_actions_of_the_space(name):
    space, kind, dimension, outputs = CASES[name]
    head = distribution_for(space)
    assert type(head) is KINDS[kind]
    assert head.inputs == outputs
    assert action_dimension(space) == dimension == int(np.prod(head.raw_shape))
    generator = torch.Generator().manual_seed(0)
    action = head.action(head.sample(head(torch.zeros(200, head.inputs)), generator))
    codec = ActionCodec(space)
    assert action.shape == (200, *codec.spec.shape)
    assert action.dtype == codec.spec.dtype
    for each in codec.to_numpy(action):
        assert space.contains(np.asarray(each, space.dtype))


def test_other_kinds_and_options():
    squashed = distribution_for(BOX, "squashed_gaussian", state_dependent=True)
    assert squashed.action(torch.tensor([50.0, -50.0])).tolist() == [1.0, 0.0]
    noisy = distribution_for(BOX, "state_dependent_noise", latent=8, full_std=False)
    assert noisy.log_std.shape == (8, 1)
    assert type(distribution_for(spaces.MultiBinary(2), "multi_categorical")) is KINDS["multi_categorical"]
    with pytest.raises(ValueError, match="does not fit"):
        distribution_for(spaces.Discrete(3), "beta")


def test_spaces_without_a_distribution():
    entries = spaces.Dict({"turn": spaces.Discrete(3), "push": BOX})
    assert action_dimension(entries) == 3
    assert action_dimension(spaces.Tuple((BOX, spaces.MultiBinary(4)))) == 6
    for space in (entries, spaces.Text(5), spaces.Box(0, 5, (2,), np.int64)):
        with pytest.raises(NotImplementedError, match="supported are"):
            distribution_for(space)
    with pytest.raises(NotImplementedError, match="no fixed number"):
        action_dimension(spaces.Sequence(spaces.Discrete(2)))
