"""The policy of HSD-Bandit: a bandit chooses a goal space for each episode, networks choose goals in it.

While it learns, an arm is drawn where an episode begins and kept to its end; the undiscounted return of the episode is
what the arm brought, however the episode ended. In evaluations the arm that seems best is played. With one goal space
there is nothing to choose: SD of HSD-3 (Gehring et al. 2021).

Arms are drawn when the steps before were collected, between two steps, so that acting itself is work on tensors alone:
`waiting` holds the arm that each instance begins its next episode with. Several steps in one round may end an episode
within it; the next one then begins with an arm drawn at the end of the last.

Where several processes train together each has the same bandit, which is told what the episodes of all of them brought
and draws arms for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import torch
from torch import Tensor

from gaitway.core.config import configuration
from gaitway.core.parts import make_part
from gaitway.core.ranks import here
from gaitway.core.workspace import Workspace
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Observation
from gaitway.skills.bandits import BANDITS, Bandit
from gaitway.skills.deciding_policy import DECISION
from gaitway.skills.goal_space_policy import GoalSpaceConfig, GoalSpacePolicy
from gaitway.skills.skill_file import Skills

PUBLISHED = {"name": "agent57", "window": 500, "beta": "auto", "eps": 0.5}


@configuration
class BanditPolicyConfig(GoalSpaceConfig):
    """Networks that choose goals, and the bandit that chooses goal spaces."""

    bandit: dict[str, Any] | None = None
    """{name: uniform | eps_greedy | ucb | ... | package.module:Class, option: value}; null: agent57 as published, with
    window 500, beta auto and eps 0.5."""


class BanditPolicy(GoalSpacePolicy):
    """`bandit` chooses one of D goal spaces per episode, `goals` goals in it, `low` acts."""

    config: BanditPolicyConfig
    best_arm: Tensor

    def __init__(
        self,
        spec: EnvSpec,
        config: BanditPolicyConfig | None = None,
        generator: torch.Generator | None = None,
        *,
        skills: Skills | None = None,
    ) -> None:
        config = config or BanditPolicyConfig()
        super().__init__(spec, config, generator, skills=skills, remembers=(("arm", 1),))
        seed = 0 if generator is None else int(torch.randint(2**31, (), generator=generator))
        given = {"space": gymnasium.spaces.Discrete(self.num_spaces), "seed": seed}
        entry = PUBLISHED if config.bandit is None else config.bandit
        self.bandit: Bandit = make_part(entry, BANDITS, "agent.bandit", given=given, kind=Bandit)
        self.register_buffer("best_arm", torch.zeros((), dtype=torch.int64), persistent=False)
        self.waiting: Tensor | None = None
        self.returns: Tensor | None = None
        """Of the episodes under way, on the CPU, float64 [B]."""

    def expect(self, num_envs: int) -> None:
        """So many instances are about to begin their first episodes."""
        ranks = here()
        first = [self.bandit.sample_action() for _ in range(num_envs * ranks.size)]
        own = first[num_envs * ranks.rank :][:num_envs]
        self.waiting = torch.tensor(own, device=self.best_arm.device)
        self.returns = torch.zeros(num_envs, dtype=torch.float64)

    # Playing

    def choose_space(self, inputs: Tensor, kept: Tensor, stochastic: bool, generator: torch.Generator | None) -> Tensor:
        return self._arms(kept, stochastic and self.training)

    def uniform_space(self, kept: Tensor, generator: torch.Generator) -> Tensor:
        """Goals may be uniform; arms are the bandit's all the same."""
        return self._arms(kept, True)

    def _arms(self, kept: Tensor, explores: bool) -> Tensor:
        """The arms [B] that are being played, and new ones where an episode begins."""
        held = kept[:, -1].long() - 1
        fresh = self.best_arm.expand(kept.shape[0])
        if explores and self.waiting is not None and len(self.waiting) == len(kept):
            fresh = self.waiting
        return torch.where(held >= 0, held, fresh)

    def pursue(self, obs: Observation, decision: Tensor, is_new: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        action, mine = super().pursue(obs, decision, is_new, kept[:, :-1])
        return action, torch.cat((mine, decision[:, :1] + 1.0), -1)

    def collected(self, ws: Workspace, start: int, stop: int) -> None:
        """Tell the bandit what the episodes that ended brought, and draw the arms that follow them."""
        if self.waiting is None or self.returns is None:
            self.expect(ws.B)
            assert self.waiting is not None
            assert self.returns is not None
        if self.num_spaces == 1:  # nothing to choose, and to ask a GPU for returns would wait for its updates
            return
        rewards, done = ws["env/reward"][start:stop].double().cpu(), (ws["env/done"][start:stop] != 0).cpu()
        arms = ws[self.out(DECISION)][start:stop, :, 0].long().cpu()
        ranks, brought = here(), []
        for t, (reward, ended, arm) in enumerate(zip(rewards, done, arms, strict=True)):
            self.returns += reward
            for instance in ended.nonzero().flatten().tolist():
                brought.append((t, ranks.rank, instance, int(arm[instance]), float(self.returns[instance])))
                self.returns[instance] = 0.0
        for _, rank, instance, arm, value in sorted(tuple(each) for told in ranks.exchange(brought) for each in told):
            self.bandit.update(arm, value)
            following = self.bandit.sample_action()
            if rank == ranks.rank:
                self.waiting[instance] = following
        self.best_arm.fill_(self.bandit.best_action())

    # State

    def get_extra_state(self) -> dict[str, Any]:
        none = torch.zeros(0)
        return super().get_extra_state() | {
            "bandit": self.bandit.state_dict(),
            "waiting": none.long() if self.waiting is None else self.waiting.clone(),
            "returns": none.double() if self.returns is None else self.returns.clone(),
        }

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        super().set_extra_state(state)
        self.bandit.load_state_dict(state["bandit"])
        self.best_arm.fill_(self.bandit.best_action())
        waiting, device = state["waiting"], self.best_arm.device
        if self.waiting is not None and self.waiting.shape == waiting.shape:
            self.waiting.copy_(waiting)  # a recorded step reads this memory
        elif len(waiting):
            self.waiting = waiting.clone().to(device)
        self.returns = state["returns"].clone() if len(state["returns"]) else self.returns

    def _apply(self, fn: Any, recurse: bool = True) -> BanditPolicy:
        super()._apply(fn, recurse)
        if self.waiting is not None:
            self.waiting = self.waiting.to(self.best_arm.device)
        return self
