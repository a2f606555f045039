"""The networks of soft actor-critic: a stochastic actor, an ensemble of critics and its slowly following target.

Continuous actions are tanh-squashed Gaussians within the environment's limits. Inside, actions are in units of half
the range, -1 to 1 whatever the robot: that is what critics read and what log-probabilities are densities of, so that
an entropy means the same everywhere. Discrete actions are categorical, and critics answer for all of them at once.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gaitway.agents.action_range import check_finite_limits
from gaitway.agents.observations import Observations, actor_and_critic_groups, input_size
from gaitway.agents.replay_policy import ReplayPolicy
from gaitway.envs.vec_env import ActionSpec, EnvSpec, Observation
from gaitway.functional.soft_losses import squashed_action
from gaitway.nn.distributions import Head, make_distribution
from gaitway.nn.ensemble import Ensemble
from gaitway.nn.trunks import Init, Network, SingleLayers, TrunkKind

LOWEST_LOG_STD = -13.8  # a deviation of 1e-6, the least that Gaussian heads take


@dataclass(frozen=True)
class SoftActorCriticConfig:
    """Networks of actor and critics."""

    observations: Observations = field(default_factory=Observations)
    actor_hidden: tuple[int, ...] = (256, 256)
    critic_hidden: tuple[int, ...] = (256, 256)
    activation: str = "relu"
    critics: int = 2
    """How many critics; the smallest of their values counts."""
    trunk: TrunkKind = "mlp"
    """`mlp`; `d2rl`, which feeds the input to every layer; `residual`, normalised blocks of one width."""
    layer_norm: bool = False
    """Normalise behind each linear layer (`residual` does so within its blocks always)."""
    log_std_range: tuple[float, float] = (-5.0, 2.0)
    """Bounds of the logarithm of the standard deviation, before squashing."""
    init: Init = "default"
    """`default`: PyTorch's uniform start; `orthogonal`."""
    normalise_observations: bool = False
    observation_clip: float = 10.0
    """Normalised observations are kept within +- this; 0 for no limit."""

    def __post_init__(self) -> None:
        if self.critics < 1:
            raise ValueError(f"critics is {self.critics}; use at least 1, usually 2")
        low, high = self.log_std_range
        if not LOWEST_LOG_STD <= low < high:
            raise ValueError(
                f"log_std_range is {self.log_std_range}; it must increase and start at {LOWEST_LOG_STD} or above"
            )


class SoftActorCritic(ReplayPolicy):
    """Actor, critics and target critics over named observation groups."""

    is_recurrent = False

    def __init__(
        self, spec: EnvSpec, config: SoftActorCriticConfig | None = None, generator: torch.Generator | None = None
    ) -> None:
        config = config or SoftActorCriticConfig()
        groups = actor_and_critic_groups(spec, config.observations)
        super().__init__(spec, groups, config.normalise_observations, config.observation_clip)
        self.config = config
        self.head = _make_head(spec, config.log_std_range)
        self.is_discrete = spec.action.kind == "discrete"
        actor_size, critic_size = (input_size(spec, self.groups[which]) for which in ("actor", "critic"))
        self.actor = Network(
            actor_size,
            config.actor_hidden,
            self.head.inputs,
            layers=SingleLayers(config.init, generator),
            trunk=config.trunk,
            activation=config.activation,
            layer_norm=config.layer_norm,
        )
        self.critic = Ensemble(
            config.critics,
            critic_size if self.is_discrete else critic_size + len(spec.action.names),
            config.critic_hidden,
            self.head.inputs if self.is_discrete else 1,
            trunk=config.trunk,
            activation=config.activation,
            layer_norm=config.layer_norm,
            init=config.init,
            generator=generator,
        )
        self.target = copy.deepcopy(self.critic).requires_grad_(False)

    # Playing

    def act(
        self, obs: Observation, state: Tensor | None, stochastic: bool, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """One action per row of `obs`; `generator` None is the agent's own (see `seed`)."""
        params = self.head(self.actor_output(self.inputs(obs, "actor")))
        if stochastic:
            raw = self.head.sample(params, generator or self.generator(params.device))
        else:
            raw = self.head.mode(params)
        return self.head.action(raw), None

    # Learning

    def actor_output(self, inputs: Tensor) -> Tensor:
        """What the actor says, float32 [B, head.inputs]: mean | logarithm of std, or logits."""
        return self.actor(inputs).float()

    def propose(self, inputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Continuous: an action in units of half the range [B, A] made of standard normal `noise` [B, A], and its
        log-density [B]."""
        return squashed_action(self.actor_output(inputs), noise, self.config.log_std_range)

    def log_probs(self, inputs: Tensor) -> Tensor:
        """Discrete: logarithms of the probabilities of all actions, [B, A]."""
        return self.head(self.actor_output(inputs))

    def unit_action(self, action: Tensor) -> Tensor:
        """Continuous: the environment's action [..., A] in units of half the range."""
        return self.range.unit(action)

    def values(self, critics: Ensemble, inputs: Tensor, action: Tensor | None = None) -> Tensor:
        """What `critics` (the online ones, their target, a twin) say, float32: continuous [N, B] of the unit `action`
        [B, A], discrete [N, B, A] of all actions."""
        values = critics(inputs, action).float()
        return values if action is None else values.squeeze(-1)


def _make_head(spec: EnvSpec, log_std_range: tuple[float, float]) -> Head:
    action: ActionSpec = spec.action
    if action.kind == "discrete":
        return make_distribution(action, "categorical")
    if action.kind != "continuous":
        raise ValueError(
            f"{spec.id} takes {len(action.names)} choices at once; soft actor-critic needs continuous actions or one "
            "choice. Use algorithm=ppo"
        )
    check_finite_limits(spec, "soft actor-critic")
    low, high = (math.exp(bound) for bound in log_std_range)
    init_std = min(max(1.0, low), high)  # heads insist on one within the range; here the last layer decides
    return make_distribution(
        action, "squashed_gaussian", state_dependent=True, init_std=init_std, std_range=(low, high)
    )
