"""From an action space to its distribution in one call, and how many numbers an action is."""

from __future__ import annotations

import math
from typing import Any

from gymnasium import Space, spaces

from gaitway.envs.gym.spaces import ActionCodec
from gaitway.nn.distributions import Head, make_distribution


def distribution_for(space: Space, kind: str = "auto", **options: Any) -> Head:
    """The head for a gymnasium action space.

    "auto": Box gaussian, Discrete categorical, MultiDiscrete multi_categorical, MultiBinary bernoulli; actions are
    flat (`[..., A]`) and in the numbering of the space, its `start` included. Other kinds and `options` are those of
    `make_distribution`.
    """
    try:
        action = ActionCodec(space).spec
    except ValueError as error:
        raise NotImplementedError(f"no distribution for this space: {error}") from error
    if kind == "auto" and isinstance(space, spaces.MultiBinary):
        kind = "bernoulli"
    return make_distribution(action, kind, **options)


def action_dimension(space: Space) -> int:
    """Numbers in one action: Box and MultiBinary all entries, MultiDiscrete one per choice, Discrete 1; Dict and Tuple
    the sum over their entries, each of which is a variable of its own."""
    if isinstance(space, spaces.Dict):
        return sum(action_dimension(entry) for entry in space.spaces.values())
    if isinstance(space, spaces.Tuple):
        return sum(action_dimension(entry) for entry in space.spaces)
    if isinstance(space, spaces.Discrete):
        return 1
    if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        return math.prod(space.shape)
    raise NotImplementedError(
        f"actions of a {type(space).__name__} space have no fixed number of dimensions; supported are Box, Discrete, "
        "MultiDiscrete, MultiBinary, and Dict or Tuple of these"
    )
