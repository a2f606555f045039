"""Policies that decide on a goal space and on a goal in it: what HSD-3 and its bandits share.

A decision is the number of a goal space d, one of D subsets of the features that the skills control, and a subgoal [G]
in [-1, 1], of which the entries of d count (`GoalInterface`). Goals are tanh-squashed Gaussians with a head per goal
space; critics read observation, goal space and goal (`TaskGoalCritics`). In pursuit what is left to go is carried
along: the target stays where it was set while the robot moves.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Annotated

import torch
from torch import Tensor

from gaitway.agents.soft_actor_critic import LogStd
from gaitway.core.config import configuration, did_you_mean
from gaitway.core.ranges import INCREASING, Count, Share, WholeNumber
from gaitway.core.seeding import fill
from gaitway.envs.misfit import heading_option
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Observation
from gaitway.functional.direct_goal_spaces import proposed_goals
from gaitway.nn.task_goal_critics import TaskGoalCritics
from gaitway.nn.trunks import Network, SingleLayers
from gaitway.skills.deciding_policy import DecidingConfig, DecidingPolicy, frozen_skills
from gaitway.skills.frozen_policy import SkillFileError
from gaitway.skills.interface import FROM_SKILLS, GoalInterface, subsets_of_skills
from gaitway.skills.low_level import LowLevel, shown_names
from gaitway.skills.skill_file import Skills


@configuration
class GoalSpaceConfig(DecidingConfig):
    """Which goal spaces there are to decide on, and the networks that do."""

    features: str = "goal_space"
    """The observation group with the features that goals are set for."""
    subsets: str | WholeNumber = FROM_SKILLS
    """The goal spaces: from_lo, those that the skill file says its skills attain; or groups of features as in
    0#1#3+4, all combinations of which are taken."""
    from_lo_eps: Share = 1.0
    """With from_lo, goal spaces with a success of at least 1 minus this; 1 for all."""
    rank_min: Count = 1
    """Groups of features that a goal space combines at least."""
    rank_max: Count = 99
    """Groups that it combines at most."""
    delta_actions: bool = False
    """Goals of all features, and not of delta features alone, count from where the robot is."""
    mask_feats: tuple[WholeNumber, ...] = ()
    """Numbers of features that nobody sets goals for: they are asked to the centre of their ranges."""
    log_std_range: Annotated[tuple[LogStd, LogStd], INCREASING] = (-5.0, 2.0)
    """Bounds of the logarithm of the goals' standard deviation, before squashing."""
    published_scale: bool = False
    """Start the critics' layers after the first smaller by 1 / sqrt(2), as those of the published double critic do."""


class GoalSpacePolicy(DecidingPolicy):
    """Goals, critics and their target over frozen skills; a leaf says which goal space is taken (`choose_space`)."""

    config: GoalSpaceConfig
    low: LowLevel[Skills]

    def __init__(
        self,
        spec: EnvSpec,
        config: GoalSpaceConfig,
        generator: torch.Generator | None = None,
        *,
        skills: Skills | None = None,
        remembers: Sequence[tuple[str, int]] = (),
    ) -> None:
        """`remembers` names and sizes what a leaf keeps of the pursuit besides, behind all else."""
        skills = skills or frozen_skills(Skills, config)
        columns = feature_columns(skills, spec, config.features)
        names = subsets_of_skills(skills, str(config.subsets), config.from_lo_eps, config.rank_min, config.rank_max)
        interface = GoalInterface(
            skills.space,
            names,
            skills.task_map,
            delta_actions=config.delta_actions,
            mask_features=config.mask_feats,
        )
        size = interface.subgoal_size
        parts = (("goal_space", 1), ("subgoal", size), ("left", size), ("features", len(columns)), *remembers)
        low = LowLevel(skills, skills.facts.robot, spec)
        super().__init__(spec, config, low, parts, 1 + size, (config.features,), generator)
        self.interface = interface
        self.num_spaces, self.goal_size = interface.num_subsets, size
        self.register_buffer("columns", torch.tensor(columns), persistent=False)
        self.register_buffer("numbers", torch.arange(self.num_spaces), persistent=False)
        self.goals = self.make_actor(2 * self.num_spaces * size, generator)
        """[B, D] -> for each goal space mean | logarithm of std, [B, num_spaces * 2 * goal_size]."""
        self.critic = TaskGoalCritics(
            config.critics,
            self.input_size("critic"),
            self.num_spaces,
            size,
            config.critic_hidden,
            trunk=config.trunk,
            activation=config.activation,
            layer_norm=config.layer_norm,
            init=config.init,
            published_scale=config.published_scale,
            generator=generator,
        )
        self.target = copy.deepcopy(self.critic).requires_grad_(False)

    columns: Tensor
    numbers: Tensor

    def make_actor(self, outputs: int, generator: torch.Generator | None) -> Network:
        """A network of the config that decides, `[B, D] -> [B, outputs]`."""
        config = self.config
        return Network(
            self.input_size("actor"),
            config.actor_hidden,
            outputs,
            layers=SingleLayers(config.init, generator),
            trunk=config.trunk,
            activation=config.activation,
            layer_norm=config.layer_norm,
        )

    @property
    def is_plain(self) -> bool:
        return False

    # Playing

    def choose_space(self, inputs: Tensor, kept: Tensor, stochastic: bool, generator: torch.Generator | None) -> Tensor:
        """The number of a goal space, int64 [B], per row of what deciding networks read and what is `kept`."""
        raise TypeError(f"{type(self).__name__} does not implement choose_space")

    def decide(self, inputs: Tensor, kept: Tensor, stochastic: bool, generator: torch.Generator | None) -> Tensor:
        space = self.choose_space(inputs, kept, stochastic, generator)
        heads = self.goal_heads(inputs)
        head = heads.gather(1, space[:, None, None].expand(-1, 1, heads.shape[-1])).squeeze(1)
        mean, log_std = head.chunk(2, -1)
        if stochastic:
            noise = fill(torch.empty(mean.shape, device=mean.device), generator or self.generator(mean.device))
            mean = torch.addcmul(mean, log_std.clamp(*self.config.log_std_range).exp(), noise)
        return self.decision(space, mean.tanh() * self.interface.action_mask[space])

    def decide_uniformly(self, kept: Tensor, generator: torch.Generator) -> Tensor:
        mask = self.interface.action_mask
        space = self.uniform_space(kept, generator)
        goal = fill(torch.empty(kept.shape[0], self.goal_size, device=mask.device), generator, "uniform_") * 2.0 - 1.0
        return self.decision(space, goal * mask[space])

    def uniform_space(self, kept: Tensor, generator: torch.Generator) -> Tensor:
        """The number of a goal space, int64 [B], before anything is learnt."""
        drawn = fill(torch.empty(kept.shape[0], device=self.columns.device), generator, "uniform_")
        return (drawn * self.num_spaces).long().clamp(max=self.num_spaces - 1)  # a product of floats may round up

    def decision(self, space: Tensor, goal: Tensor) -> Tensor:
        """Goal spaces [B] and goals [B, G] as decisions [B, 1 + G]."""
        return torch.cat((space.unsqueeze(-1).float(), goal), -1)

    def split(self, decision: Tensor) -> tuple[Tensor, Tensor]:
        """The goal spaces, int64 [B], and goals [B, G] of decisions [B, 1 + G]."""
        return decision[:, 0].long(), decision[:, 1:]

    def pursue(self, obs: Observation, decision: Tensor, is_new: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        space, goal = self.split(decision)
        features = obs[self.config.features].float().index_select(-1, self.columns)
        left, before = kept.split([self.goal_size, features.shape[-1]], -1)
        fresh, task = self.interface.translate(features, space, goal)
        left = torch.where(is_new, fresh, self.interface.carry(before, features, left, task))
        action = self.low.act(obs, {"desired_goal": left, "task": task})
        return action, torch.cat((left, features), -1)

    def state_lines(self, state: Tensor) -> list[str]:
        """The goal space in force, and of each of its features the goal in [-1, 1] and what is left to go, in the units
        of the feature; `state` [S] is that after a step."""
        number, rest = int(state[1]), state[2 : 2 + 2 * self.goal_size].tolist()
        goal, left = rest[: self.goal_size], rest[self.goal_size :]
        names, members = self.interface.space.names, self.interface.members.tolist()
        return [f"goal space {self.interface.subsets[number]}"] + [
            f"{names[members[place]]} goal {goal[place]:+.2f} left {left[place]:+.2f}"
            for place in self.interface.subgoal_index[number]
        ]

    # Learning

    def goal_heads(self, inputs: Tensor) -> Tensor:
        """Mean | logarithm of std of the goals in every goal space, float32 [B, D, 2G]."""
        return self.goals(inputs).float().unflatten(-1, (self.num_spaces, 2 * self.goal_size))

    def propose(self, inputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """A goal in every goal space [B, D, G], made of standard normal `noise` [B, D, G] and masked, and the mean
        log-density of its entries [B, D]."""
        mask, weight = self.interface.action_mask, self.interface.entry_weight
        return proposed_goals(self.goal_heads(inputs), noise, self.config.log_std_range, mask, weight)

    def one_hot(self, space: Tensor) -> Tensor:
        """Goal spaces [...] as columns, float32 [..., D]."""
        return (space.unsqueeze(-1) == self.numbers).float()


def feature_columns(skills: Skills, spec: EnvSpec, group: str) -> list[int]:
    """Where the features of the skills' goal space lie in an observation group, by name."""
    if group not in spec.group_names:
        there = ", ".join(spec.group_names)
        raise SkillFileError(
            f"{spec.id} shows no goal features {group!r}{did_you_mean(group, spec.group_names)}, only {there}; set "
            "agent.features to the group that has them, or env.options={goal_space: true} where none has"
        )
    shown, heading = shown_names(spec, group), spec.group(group).heading
    lacking = [name for name in skills.space.names if name not in shown]
    if lacking:
        raise SkillFileError(
            f"these skills of {skills.facts.robot} know goals of {lacking[0]!r}, which is not among the features "
            f"{', '.join(shown)} of {spec.id}; use the skills of its robot"
        )
    if heading and heading != skills.facts.heading:
        raise SkillFileError(
            f"these skills turn feet by the {skills.facts.heading} heading, {spec.id} by the {heading} one; write "
            f"{heading_option(spec, group, skills.facts.heading)}"
        )
    return [shown.index(name) for name in skills.space.names]
