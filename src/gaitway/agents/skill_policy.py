"""The networks of multi-task soft actor-critic: those of SAC, and one that says how likely a goal is reached.

Reachability R(s, task, goal, a) reads what the critics read and answers with one number, so it is one more member of
their ensemble: critics and reachability are one batched product, forwards and backwards, and so are their targets.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import field

import torch
from torch import Tensor, nn

from gaitway.agents.blocks import Block
from gaitway.agents.observations import Observations
from gaitway.agents.replay_policy import make_critics
from gaitway.agents.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig
from gaitway.core.config import configuration
from gaitway.core.ranges import Count
from gaitway.envs.spec import EnvSpec
from gaitway.nn.ensemble import Ensemble, ModuleEnsemble, constant_twin
from gaitway.nn.trunks import LastInit, TrunkKind

GOAL_GROUPS = ("desired_goal", "observation", "task")
"""What a skill reads, in this order, which its file states."""


@configuration
class SkillPolicyConfig(SoftActorCriticConfig):
    """Networks of actor, critics and reachability, in the shapes of HSD-3 (Gehring et al. 2021)."""

    observations: Observations = field(default_factory=lambda: Observations(GOAL_GROUPS, GOAL_GROUPS))
    actor_hidden: tuple[Count, ...] = (1024, 1024, 1024, 1024)
    critic_hidden: tuple[Count, ...] = (1024, 1024, 1024, 1024)
    """Of the critics and of reachability."""
    trunk: TrunkKind = "d2rl"
    zero_critics: bool = True
    published_scale: bool = False
    """Start the critics' layers after the first smaller by 1 / sqrt(2), as those of the published double critic do."""


class SkillPolicy(SoftActorCritic):
    """Actor, critics, reachability, and their slowly following targets.

    `critic` is an ensemble of the critics, whose values start at 0, and behind them reachability, which starts close to
    it.
    """

    config: SkillPolicyConfig

    def __init__(
        self,
        spec: EnvSpec,
        config: SkillPolicyConfig | None = None,
        generator: torch.Generator | None = None,
        blocks: Sequence[Block] = (),
    ) -> None:
        config = config or SkillPolicyConfig()
        if spec.action.kind != "continuous":
            raise ValueError(f"{spec.id} has {spec.action.kind} actions; skills are learnt with continuous ones")
        missing = [name for name in GOAL_GROUPS if name in config.observations.actor and name not in spec.group_names]
        if missing:
            raise ValueError(
                f"skills read {missing[0]!r}, and {spec.id} has the groups {spec.group_names}; use walker/skills, "
                "humanoid/skills, point/skills or an environment of your own with a goal space"
            )
        super().__init__(spec, config, generator, blocks)
        self.target_actor = copy.deepcopy(self.actor).requires_grad_(False)

    def make_critics(self, inputs: int, outputs: int, generator: torch.Generator | None) -> nn.Module:
        starts: list[LastInit] = [*[self.config.critics_start] * self.config.critics, "small"]
        scaled = [*[self.config.published_scale] * self.config.critics, False]  # reachability was a network apart
        return make_critics(self.config, inputs, outputs, generator, last_init=starts, published_scale=scaled)

    @property
    def is_plain(self) -> bool:
        return False  # the fast paths know two critics, not what stands behind them

    def critics_alone(self) -> nn.Module:
        """The critics without reachability, in the same memory, as constants: gradients flow through them, not into
        them. Make it after the parameters have found their place."""
        twin = constant_twin(self.critic)
        if isinstance(twin, ModuleEnsemble):
            return ModuleEnsemble(list(twin.networks)[:-1])
        assert isinstance(twin, Ensemble)
        twin.members = self.config.critics
        for parameter in twin.parameters():
            parameter.data = parameter.data[:-1]
        return twin

    def reach(self, inputs: Tensor, action: Tensor) -> Tensor:
        """Estimated probability of reaching the goal, [B], for what the critic reads and a unit action [B, A]; within
        [0, 1]."""
        return self.values(self.critic, inputs, action)[-1].clamp(0.0, 1.0)

    def min_value(self, inputs: Tensor, action: Tensor) -> Tensor:
        """The smallest of the critics' values, [B]."""
        return self.values(self.critic, inputs, action)[:-1].amin(0)

    def mean_action(self, inputs: Tensor) -> Tensor:
        """What the policy does without noise, in units of half the range, [B, A]."""
        mean, _ = self.actor_output(inputs).chunk(2, -1)
        return mean.tanh()
