"""The networks of DDPG and TD3: a deterministic actor, critics, and slowly following targets of both.

Actions are `tanh` of the actor's output, in units of half the action range; critics read them so. While it plays, the
policy adds Gaussian noise to its actions.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gaitway.agents.action_range import check_finite_limits
from gaitway.agents.observations import Observations, actor_and_critic_groups, input_size
from gaitway.agents.replay_policy import ReplayPolicy
from gaitway.envs.vec_env import EnvSpec, Observation
from gaitway.nn.ensemble import Ensemble
from gaitway.nn.trunks import Init, Network, SingleLayers, TrunkKind


@dataclass(frozen=True)
class DeterministicActorCriticConfig:
    """Networks of actor and critics."""

    observations: Observations = field(default_factory=Observations)
    actor_hidden: tuple[int, ...] = (256, 256)
    critic_hidden: tuple[int, ...] = (256, 256)
    activation: str = "relu"
    critics: int = 2
    """How many critics; the smallest of their values counts (Fujimoto et al. 2018). DDPG has one."""
    noise_std: float = 0.1
    """Standard deviation of the noise added to actions while playing, in units of half the action range."""
    trunk: TrunkKind = "mlp"
    """`mlp`; `d2rl`, which feeds the input to every layer; `residual`, normalised blocks of one width."""
    layer_norm: bool = False
    """Normalise behind each linear layer (`residual` does so within its blocks always)."""
    init: Init = "default"
    """`default`: PyTorch's uniform start; `orthogonal`."""
    normalise_observations: bool = False
    observation_clip: float = 10.0
    """Normalised observations are kept within +- this; 0 for no limit."""

    def __post_init__(self) -> None:
        if self.critics < 1:
            raise ValueError(f"critics is {self.critics}; use 1 (DDPG) or 2 (TD3)")
        if self.noise_std < 0:
            raise ValueError(f"noise_std is {self.noise_std}; use 0 or more")


@dataclass(frozen=True)
class SingleCriticConfig(DeterministicActorCriticConfig):
    """Networks of actor and critic."""

    critics: int = 1
    """DDPG has one; with more the smallest of their values counts."""


class DeterministicActorCritic(ReplayPolicy):
    """Actor, critics and the targets of both over named observation groups."""

    is_recurrent = False

    def __init__(
        self,
        spec: EnvSpec,
        config: DeterministicActorCriticConfig | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        config = config or DeterministicActorCriticConfig()
        if spec.action.kind != "continuous":
            raise ValueError(f"{spec.id} has {spec.action.kind} actions; a deterministic actor needs continuous ones")
        check_finite_limits(spec, "a deterministic actor")
        groups = actor_and_critic_groups(spec, config.observations)
        super().__init__(spec, groups, config.normalise_observations, config.observation_clip)
        self.config = config
        actor_size, critic_size = (input_size(spec, self.groups[which]) for which in ("actor", "critic"))
        self.actor = Network(
            actor_size,
            config.actor_hidden,
            len(spec.action.names),
            layers=SingleLayers(config.init, generator),
            trunk=config.trunk,
            activation=config.activation,
            layer_norm=config.layer_norm,
        )
        self.critic = Ensemble(
            config.critics,
            critic_size + len(spec.action.names),
            config.critic_hidden,
            1,
            trunk=config.trunk,
            activation=config.activation,
            layer_norm=config.layer_norm,
            init=config.init,
            generator=generator,
        )
        self.target_actor = copy.deepcopy(self.actor).requires_grad_(False)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)

    # Playing

    def act(
        self, obs: Observation, state: Tensor | None, stochastic: bool, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """One action per row of `obs`; `generator` None is the agent's own (see `seed`)."""
        unit = self.unit_actions(self.actor, self.inputs(obs, "actor"))
        if stochastic and self.config.noise_std:
            noise = torch.empty_like(unit).normal_(generator=generator or self.generator(unit.device))
            unit = torch.add(unit, noise, alpha=self.config.noise_std).clamp(-1.0, 1.0)
        return self.range.action(unit), None

    # Learning

    def unit_actions(self, actor: Network, inputs: Tensor) -> Tensor:
        """What `actor` (the one that learns, or its target) does, in units of half the range: [B, A]."""
        return actor(inputs).float().tanh()

    def values(self, critics: Ensemble, inputs: Tensor, action: Tensor) -> Tensor:
        """What `critics` (those that learn, their targets, a twin) say of the unit `action` [B, A]: [N, B]."""
        return critics(inputs, action).float().squeeze(-1)
