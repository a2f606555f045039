"""The networks of soft actor-critic: a stochastic actor, an ensemble of critics and its slowly following target.

Continuous actions are tanh-squashed Gaussians within the environment's limits. Inside, actions are in units of half
the range, -1 to 1 whatever the robot: that is what critics read and what log-probabilities are densities of, so that
an entropy means the same everywhere. Discrete actions are categorical, and critics answer for all of them at once.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Annotated

import torch
from torch import Tensor, nn

from gaitway.agents.action_range import check_finite_limits
from gaitway.agents.blocks import Block
from gaitway.agents.policy import is_overridden
from gaitway.agents.replay_policy import NetworksConfig, ReplayPolicy, make_actor, make_critics
from gaitway.core.config import configuration
from gaitway.core.plain import objects_given
from gaitway.core.ranges import INCREASING, Range
from gaitway.envs.spec import ActionSpec, EnvSpec
from gaitway.functional.soft_losses import squashed_action
from gaitway.nn.distributions import Head, make_distribution
from gaitway.nn.ensemble import Ensemble
from gaitway.nn.trunks import LastInit, Network

LogStd = Annotated[float, Range(-13.8)]
"""Deviations from 1e-6, the least that Gaussian heads take."""


@configuration
class SoftActorCriticConfig(NetworksConfig):
    """Networks of actor and critics."""

    log_std_range: Annotated[tuple[LogStd, LogStd], INCREASING] = (-5.0, 2.0)
    """Bounds of the logarithm of the standard deviation, before squashing."""
    zero_critics: bool = False
    """Values start at 0: the critics' last layers do, but those of `critic_network`."""

    @property
    def critics_start(self) -> LastInit:
        return "zero" if self.zero_critics else "default"


class SoftActorCritic(ReplayPolicy):
    """Actor, critics and target critics over named observation groups."""

    def __init__(
        self,
        spec: EnvSpec,
        config: SoftActorCriticConfig | None = None,
        generator: torch.Generator | None = None,
        blocks: Sequence[Block] = (),
        *,
        actor: nn.Module | None = None,
        critic: nn.Module | None = None,
    ) -> None:
        """`actor` [B, D] -> [B, head.inputs] and `critic` (inputs, actions or None) -> [N, B, outputs] are networks of
        your own."""
        self.config = config = config or SoftActorCriticConfig()
        normalise, clip = config.normalise_observations, config.observation_clip
        super().__init__(spec, config.observations, normalise, clip, (*config.blocks, *blocks), generator)
        self.objects = objects_given(block=blocks, network=[each for each in (actor, critic) if each is not None])
        self.head = _make_head(spec, config.log_std_range)
        self.is_discrete = spec.action.kind == "discrete"
        outputs, more = (self.head.inputs, 0) if self.is_discrete else (1, len(spec.action.names))
        self.actor = actor or self.make_actor(self.input_size("actor"), self.head.inputs, generator)
        self.critic = critic or self.make_critics(self.input_size("critic") + more, outputs, generator)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)

    @property
    def is_plain(self) -> bool:
        if len(self.blocks) or is_overridden(self, SoftActorCritic) or type(self.actor) is not Network:
            return False
        return type(self.critic) is Ensemble and type(self.target) is Ensemble

    def make_actor(self, inputs: int, outputs: int, generator: torch.Generator | None) -> nn.Module:
        """The actor of the config, `[B, inputs] -> [B, outputs]`."""
        return make_actor(self.config, inputs, outputs, generator)

    def make_critics(self, inputs: int, outputs: int, generator: torch.Generator | None) -> nn.Module:
        """The critics of the config, `[B, inputs] -> [N, B, outputs]`."""
        starts = [self.config.critics_start] * self.config.critics
        return make_critics(self.config, inputs, outputs, generator, last_init=starts)

    # Playing

    def choose(self, inputs: Tensor, stochastic: bool, generator: torch.Generator | None) -> Tensor:
        params = self.head(self.actor_output(inputs))
        if stochastic:
            raw = self.head.sample(params, generator or self.generator(params.device))
        else:
            raw = self.head.mode(params)
        return self.head.action(raw)

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

    def values(self, critics: nn.Module, inputs: Tensor, action: Tensor | None = None) -> Tensor:
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
