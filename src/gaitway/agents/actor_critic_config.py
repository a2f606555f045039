"""What an actor-critic is made of, as a configuration says it."""

from __future__ import annotations

from dataclasses import field, fields
from typing import Annotated, Any, Literal

from gaitway.agents.branch import MemoryConfig
from gaitway.agents.observations import Observations
from gaitway.core.config import configuration
from gaitway.core.ranges import INCREASING, Count, NotNegative, Positive
from gaitway.envs.spec import EnvSpec


@configuration
class DistributionConfig:
    """How the actor's output becomes an action."""

    kind: Literal["auto", "gaussian", "squashed_gaussian", "beta", "categorical", "multi_categorical"] = "auto"
    """`auto`: Gaussian for continuous actions, (multi-)categorical for discrete ones."""
    init_std: Positive = 1.0
    """Initial standard deviation, in units of half the action range where there are limits."""
    std_range: Annotated[tuple[Positive, Positive], INCREASING] = (1e-6, 1e6)
    std_type: Literal["log", "scalar"] = "log"
    learn_std: bool = True
    state_dependent: bool = False
    """The network emits the standard deviation too."""
    std_floor: tuple[Positive, ...] = ()
    """The least standard deviation of each action, in the units of `init_std`; empty: `std_range` alone."""
    mean_activation: Literal["none", "tanh"] = "none"
    """What bounds the mean: tanh keeps it within the limits of the actions, while samples may leave them."""


@configuration
class ActorCriticConfig:
    """Networks of actor and critic."""

    observations: Observations = field(default_factory=Observations)
    actor_hidden: tuple[Count, ...] = (64, 64)
    critic_hidden: tuple[Count, ...] = (64, 64)
    activation: str = "tanh"
    init: Literal["default", "orthogonal"] = "orthogonal"
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    critic_memory: MemoryConfig | None = None
    """The critic's own; null: like the actor's."""
    blocks: tuple[dict[str, Any], ...] = ()
    """Features made of features: {name: mlp | history | recurrent | conv1d | conv2d | estimator | package.module:Class,
    reads: [...], writes: ...}."""
    actor_network: dict[str, Any] | None = None
    """A network of your own, {name: package.module:Class, option: value}; null: an MLP of `actor_hidden`."""
    critic_network: dict[str, Any] | None = None
    critics: Count = 1
    """Value functions, each a network of its own: one, and one more for each of `algorithm.reward_groups`, which sets
    this."""
    distribution: DistributionConfig = field(default_factory=DistributionConfig)
    deterministic: bool = False
    """Play the distribution's mode in rollouts too; losses that compare probabilities of actions refuse that."""
    normalise_observations: bool = True
    observation_clip: NotNegative = 10.0
    """Normalised observations are kept within +- this; 0 for no limit."""
    normaliser_until: Count | None = None
    """Statistics of observations rest once they have seen so many rows; null: never."""


def distribution_options(spec: EnvSpec, config: ActorCriticConfig) -> dict[str, Any]:
    """The options of the config that the chosen kind of distribution has: only Gaussians have a standard deviation."""
    chosen = config.distribution
    if spec.action.kind != "continuous" or chosen.kind not in ("auto", "gaussian", "squashed_gaussian"):
        return {}
    return {f.name: getattr(chosen, f.name) for f in fields(chosen) if f.name != "kind"}
