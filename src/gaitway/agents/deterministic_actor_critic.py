"""The networks of DDPG and TD3: a deterministic actor, critics, and slowly following targets of both.

Actions are `tanh` of the actor's output, in units of half the action range; critics read them so. While it plays, the
policy adds Gaussian noise to its actions.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gaitway.agents.action_range import check_finite_limits
from gaitway.agents.blocks import Block
from gaitway.agents.policy import is_overridden
from gaitway.agents.replay_policy import NetworksConfig, ReplayPolicy, make_actor, make_critics
from gaitway.core.config import configuration
from gaitway.core.plain import objects_given
from gaitway.core.ranges import Count, NotNegative
from gaitway.core.seeding import fill
from gaitway.envs.spec import EnvSpec
from gaitway.nn.ensemble import Ensemble
from gaitway.nn.trunks import Network


@configuration
class DeterministicActorCriticConfig(NetworksConfig):
    """Networks of actor and critics."""

    noise_std: NotNegative = 0.1
    """Standard deviation of the noise added to actions while playing, in units of half the action range."""


@configuration
class SingleCriticConfig(DeterministicActorCriticConfig):
    """Networks of actor and critic."""

    critics: Count = 1
    """DDPG has one; with more the smallest of their values counts."""


class DeterministicActorCritic(ReplayPolicy):
    """Actor, critics and the targets of both over named observation groups."""

    def __init__(
        self,
        spec: EnvSpec,
        config: DeterministicActorCriticConfig | None = None,
        generator: torch.Generator | None = None,
        blocks: Sequence[Block] = (),
        *,
        actor: nn.Module | None = None,
        critic: nn.Module | None = None,
    ) -> None:
        """`actor` [B, D] -> [B, A] and `critic` (inputs, actions) -> [N, B, 1] are networks of your own."""
        self.config = config = config or DeterministicActorCriticConfig()
        if spec.action.kind != "continuous":
            raise ValueError(f"{spec.id} has {spec.action.kind} actions; a deterministic actor needs continuous ones")
        check_finite_limits(spec, "a deterministic actor")
        normalise, clip = config.normalise_observations, config.observation_clip
        super().__init__(spec, config.observations, normalise, clip, (*config.blocks, *blocks), generator)
        self.objects = objects_given(block=blocks, network=[each for each in (actor, critic) if each is not None])
        actions = len(spec.action.names)
        self.actor = actor or make_actor(config, self.input_size("actor"), actions, generator)
        self.critic = critic or make_critics(config, self.input_size("critic") + actions, 1, generator)
        self.target_actor = copy.deepcopy(self.actor).requires_grad_(False)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)

    @property
    def is_plain(self) -> bool:
        if len(self.blocks) or is_overridden(self, DeterministicActorCritic):
            return False
        return type(self.actor) is Network and type(self.critic) is Ensemble

    # Playing

    def choose(self, inputs: Tensor, stochastic: bool, generator: torch.Generator | None) -> Tensor:
        unit = self.unit_actions(self.actor, inputs)
        if stochastic and self.config.noise_std:
            noise = fill(torch.empty_like(unit), generator or self.generator(unit.device))
            unit = torch.add(unit, noise, alpha=self.config.noise_std).clamp(-1.0, 1.0)
        return self.range.action(unit)

    # Learning

    def unit_actions(self, actor: nn.Module, inputs: Tensor) -> Tensor:
        """What `actor` (the one that learns, or its target) does, in units of half the range: [B, A]."""
        return actor(inputs).float().tanh()

    def values(self, critics: nn.Module, inputs: Tensor, action: Tensor) -> Tensor:
        """What `critics` (those that learn, their targets, a twin) say of the unit `action` [B, A]: [N, B]."""
        return critics(inputs, action).float().squeeze(-1)
