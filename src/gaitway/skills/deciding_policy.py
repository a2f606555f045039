"""Policies that decide for several steps at once, over a frozen low level that acts at every one.

A decision is W numbers. It is made at the first step of an episode and `interval` steps after each decision, and kept
in between. All that is remembered is one flat state `[B, S]`: the phase (steps since the last decision), the decision,
and what its pursuit needs from step to step. Zeros begin an episode: phase 0 says decide now.

Every step writes the decision in force and its phase beside the action; these are what is learnt from. Networks read
their observations and, as the last number, the phase: critics that of the row, whoever decides always 0.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from gaitway.agents.observations import Observations, StateVariable
from gaitway.agents.replay_policy import NetworksConfig, StatefulPolicy
from gaitway.algorithms.replay_algorithm import ReplayAlgorithm
from gaitway.core.config import configuration
from gaitway.core.ranges import Count
from gaitway.core.trust import judge_file, speaker
from gaitway.core.workspace import Variable
from gaitway.data.step_rows import Decisions
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Observation
from gaitway.nn.trunks import TrunkKind
from gaitway.skills.frozen_policy import FrozenPolicy, SkillFileError
from gaitway.skills.low_level import LowLevel
from gaitway.skills.places import GOAL_SKILLS, is_shipped

DECISION, PHASE, MEMORY = "decision", "decision/phase", "decision/memory"
INTERVAL = 5
"""Steps between decisions where neither the configuration nor the environment says otherwise."""


@configuration
class DecidingConfig(NetworksConfig):
    """Networks that decide over a skill file, in the shapes of HSD-3 (Gehring et al. 2021)."""

    skills: str | None = None
    """The skill file: a folder, a run folder that holds one, or the name of one that comes with the library."""
    interval: Count | None = None
    """Steps from one decision to the next; null: 5, or what the environment asks for (1 in PoleBalance)."""
    observations: Observations = field(default_factory=Observations)
    """What decisions depend on. The skills find their own inputs by name in the group `policy`."""
    actor_hidden: tuple[Count, ...] = (256, 256, 256, 256)
    critic_hidden: tuple[Count, ...] = (256, 256, 256, 256)
    trunk: TrunkKind = "d2rl"


class DecidingPolicy(StatefulPolicy):
    """A policy over `low`, which learns nothing. Leaves say what a decision is (`decide`) and how it is pursued
    (`pursue`); `parts` names and sizes what they remember behind the phase: the decision first."""

    config: DecidingConfig
    low: LowLevel[Any]

    def __init__(
        self,
        spec: EnvSpec,
        config: DecidingConfig,
        low: LowLevel[Any],
        parts: Sequence[tuple[str, int]],
        decision_size: int,
        further_groups: Sequence[str] = (),
        generator: torch.Generator | None = None,
    ) -> None:
        """`further_groups` are read at every step by `pursue` and not learnt from."""
        if config.blocks or config.actor_network is not None or config.critic_network is not None:
            raise ValueError(
                "decisions are made by networks of their own shape; leave agent.blocks, actor_network and "
                "critic_network out"
            )
        self.config, self.low, self.decision_size = config, low, decision_size
        super().__init__(
            spec, config.observations, config.normalise_observations, config.observation_clip, (), generator
        )
        self.interval = config.interval or int(spec.facts.get("decision_interval", INTERVAL))
        acting = dict.fromkeys((*self.actor_groups, low.group, *further_groups))
        self.actor_groups = tuple(acting)
        self.reads = tuple(f"env/obs/{name}" for name in dict.fromkeys((*self.all_groups, *acting)))
        whole = (("phase", 1), *parts)
        self.kept_size = sum(size for _, size in parts) - decision_size
        """How many numbers the pursuit of a decision remembers."""
        self.memories = {
            MEMORY: StateVariable(sum(size for _, size in whole), acts=True, through_time=False, parts=whole)
        }
        self.writes = tuple(self.variables(1, 1))

    def decide(self, inputs: Tensor, kept: Tensor, stochastic: bool, generator: torch.Generator | None) -> Tensor:
        """A decision [B, W] per row of what deciding networks read, [B, D]; `kept` [B, .] is what the pursuit of the
        last one remembered, zeros where an episode begins."""
        raise TypeError(f"{type(self).__name__} does not implement decide")

    def decide_uniformly(self, kept: Tensor, generator: torch.Generator) -> Tensor:
        """Decisions [B, W], each possible one as likely as any other; `kept` [B, .] as above."""
        raise TypeError(f"{type(self).__name__} does not implement decide_uniformly")

    def pursue(self, obs: Observation, decision: Tensor, is_new: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        """The action [B, A] that follows from decisions [B, W], made just now where `is_new` [B, 1], and what is to be
        remembered of their pursuit; `kept` [B, .] is that of the step before."""
        raise TypeError(f"{type(self).__name__} does not implement pursue")

    def input_size(self, which: str) -> int:
        return super().input_size(which) + 1

    # Playing

    def act(
        self,
        obs: Observation,
        state: Tensor | None,
        stochastic: bool,
        generator: torch.Generator | None = None,
        uniform: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """One action per row of `obs`, and what is remembered after it; `uniform` decides anything."""
        observed = self.normalised(obs)
        first = next(iter(observed.values()))
        count = first.shape[0]  # and not len(), which would fix the number of rows of an export
        before = self.initial_state(count, first.device) if state is None else state
        assert before is not None
        phase, decision, kept = before.split([1, self.decision_size, self.kept_size], -1)
        is_new = phase < 0.5
        if uniform:
            fresh = self.decide_uniformly(kept, generator or self.generator(first.device))
        else:
            fresh = self.decide(self.inputs_at(observed, "actor"), kept, stochastic, generator)
        decision = torch.where(is_new, fresh, decision)
        action, kept = self.pursue(obs, decision, is_new, kept)
        following = torch.where(phase > self.interval - 1.5, 0.0, phase + 1.0)
        return action, torch.cat((following, decision, kept), -1)

    def variables(self, num_envs: int, rows: int) -> dict[str, Variable]:
        """The dense variables `step` writes in `rows` steps."""
        own = {
            self.out(DECISION): Variable(rows, num_envs, (self.decision_size,), torch.float32),
            self.out(PHASE): Variable(rows, num_envs, (), torch.int64),
        }
        return super().variables(num_envs, rows) | own

    def told(self, obs: Observation, before: Tensor, after: Tensor) -> dict[str, Tensor]:
        """The decision in force, and how many steps ago it was made."""
        return {DECISION: after[:, 1 : 1 + self.decision_size], PHASE: before[:, 0].long()}

    # Learning

    def inputs_at(self, observed: Mapping[str, Tensor], which: str, phase: Tensor | None = None) -> Tensor:
        """What a network reads of normalised groups, `phase` [B] steps after a decision (None: where one is due)."""
        rows = self.inputs(observed, (which,)).networks[which]
        last = rows.new_zeros(rows.shape[0], 1) if phase is None else phase.to(rows.dtype).unsqueeze(-1)
        return torch.cat((rows, last), -1)

    def read(self, drawn: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What networks read of drawn transitions, [n, D]: `critic` with the phase of the row; `actor`, `critic/new`
        and `next/...` as where a decision is due."""
        now, later = (
            self.normalised({name: drawn[f"{source}/{name}"] for name in self.all_groups})
            for source in ("obs", "next_obs")
        )
        (actor, new), (next_actor, next_critic) = self._due(now), self._due(later)
        return {
            "actor": actor,
            "critic": self.inputs_at(now, "critic", drawn[self.out(PHASE)]),
            "critic/new": new,
            "next/actor": next_actor,
            "next/critic": next_critic,
        }

    def _due(self, observed: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """What actors and critics read of normalised groups where a decision is due: one tensor if it is the same."""
        actor = self.inputs_at(observed, "actor")
        same = self.groups["actor"] == self.groups["critic"]
        return actor, actor if same else self.inputs_at(observed, "critic")

    # The skill file

    def files(self) -> dict[str, Callable[[Path], None]]:
        """What a run folder must hold besides weights, by name, as functions that write it."""
        return {self.low.skills.kind: self.low.skills.save}

    def get_extra_state(self) -> dict[str, Any]:
        return {"skills_sha256": self.low.skills.sha256}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        known, found = state["skills_sha256"], self.low.skills.sha256
        if known != found:
            raise SkillFileError(
                f"this was learnt over skills with the fingerprint {known[:12]}, and {self.config.skills} has "
                f"{found[:12]}; put that skill file back, or begin a new run"
            )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self.low.to(next(self.parameters()).device)
        return self


def frozen_skills(kind: type[FrozenPolicy], config: DecidingConfig) -> Any:
    """The skills that a configuration names."""
    if config.skills is None:
        ours = "one that comes with the library (agent.skills=walker), " if kind.kind == GOAL_SKILLS else ""
        raise SkillFileError(
            f"agent.skills names no skill file; name {ours}the folder of a pre-training or of a skill file"
        )
    own = speaker().folder
    if not is_shipped(config.skills) and not (own and os.path.realpath(config.skills) == os.path.realpath(own)):
        judge_file(config.skills, "agent.skills")
    return kind.load(config.skills)


def learn_from_decisions(algorithm: ReplayAlgorithm, dense: bool = True) -> None:
    """Let a replay algorithm store and read the decisions of its policy, a `DecidingPolicy`, instead of actions: each
    transition goes up to where the next one is due. `dense`: from every step on; else from decisions on alone."""
    policy: DecidingPolicy = algorithm.policy
    algorithm.n_step = policy.interval
    algorithm.decisions = Decisions(policy.out(PHASE), only=not dense)
    algorithm.reads = (*algorithm.reads, policy.out(DECISION), policy.out(PHASE))
    del algorithm.extras[policy.out(MEMORY)]
