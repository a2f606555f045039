"""The networks of the switching ensemble: several soft actor-critics of one shape, of which one acts at a time.

While exploring in training a member drawn at random takes over every `interval` steps; in evaluations member 0 plays.
Members share nothing but their shape. Who acts is what the policy remembers: the member's number plus 1 and for how
many steps it has acted; zeros, as everywhere, before an episode begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from gaitway.agents.blocks import Block
from gaitway.agents.observations import StateVariable
from gaitway.agents.replay_policy import StatefulPolicy, make_critics
from gaitway.agents.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig
from gaitway.core.config import configuration
from gaitway.core.ranges import Count
from gaitway.core.seeding import fill
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Observation
from gaitway.nn.ensemble import Ensemble
from gaitway.nn.trunks import TrunkKind

MEMORY = "member/memory"


@configuration
class SwitchingPolicyConfig(SoftActorCriticConfig):
    """Networks of every member, in the shapes of HSD-3 (Gehring et al. 2021)."""

    members: Count = 5
    interval: Count = 5
    """Steps after which another member takes over; 1: each step may be another's."""
    actor_hidden: tuple[Count, ...] = (256, 256, 256, 256)
    critic_hidden: tuple[Count, ...] = (256, 256, 256, 256)
    trunk: TrunkKind = "d2rl"
    zero_critics: bool = True


class SwitchingPolicy(StatefulPolicy, SoftActorCritic):
    """Actors and critics of M members. What learning reads and says is [M, n, ...]: n rows for each."""

    config: SwitchingPolicyConfig
    actor: Ensemble
    critic: Ensemble
    target: Ensemble

    def __init__(
        self,
        spec: EnvSpec,
        config: SwitchingPolicyConfig | None = None,
        generator: torch.Generator | None = None,
        blocks: Sequence[Block] = (),
    ) -> None:
        config = config or SwitchingPolicyConfig()
        if spec.action.kind != "continuous":
            raise ValueError(f"{spec.id} has {spec.action.kind} actions; the switching ensemble needs continuous ones")
        if "task" in spec.group_names:
            raise ValueError(
                f"{spec.id} shows a group 'task', by which one policy would learn many tasks, and the members of a "
                "switching ensemble all learn one; use an environment without it, or algorithm=multitask_sac"
            )
        if config.blocks or blocks or config.actor_network or config.critic_network:
            raise ValueError(
                "members of a switching ensemble are stacked networks of one shape; leave agent.blocks, actor_network "
                "and critic_network empty"
            )
        super().__init__(spec, config, generator)
        self.memories = {MEMORY: StateVariable(2, acts=True, through_time=False, parts=(("member", 1), ("steps", 1)))}
        self.writes = tuple(self.variables(1, 1))

    def make_actor(self, inputs: int, outputs: int, generator: torch.Generator | None) -> nn.Module:
        config = self.config
        return Ensemble(
            config.members,
            inputs,
            config.actor_hidden,
            outputs,
            trunk=config.trunk,
            activation=config.activation,
            layer_norm=config.layer_norm,
            init=config.init,
            generator=generator,
        )

    def make_critics(self, inputs: int, outputs: int, generator: torch.Generator | None) -> nn.Module:
        """First critic of every member, second critic of every member, ..."""
        stacked = self.config.critics * self.config.members
        return make_critics(self.config, inputs, outputs, generator, last_init=[self.config.critics_start] * stacked)

    # Playing

    def act(
        self,
        obs: Observation,
        state: Tensor | None,
        stochastic: bool,
        generator: torch.Generator | None = None,
        uniform: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """One action per row of `obs`, and who acts since when; if `uniform` any action, and members take turns."""
        inputs = self.inputs(self.normalised(obs), ("actor",)).networks["actor"]
        after = self._in_charge(inputs, state, stochastic, generator)
        member = (after[:, :1].long() - 1).clamp(min=0)
        said = self.actor(inputs).float()  # [M, B, 2A]
        params = self.head(said.gather(0, member[None].expand(1, -1, said.shape[-1])).squeeze(0))
        raw = self.head.sample(params, generator or self.generator(params.device)) if stochastic else None
        action = self.head.action(self.head.mode(params) if raw is None else raw)
        return self.uniform_action(obs, generator) if uniform else action, after

    def _in_charge(
        self, inputs: Tensor, state: Tensor | None, stochastic: bool, generator: torch.Generator | None
    ) -> Tensor:
        """Who acts, plus 1, and for how many steps, this one included, [B, 2]."""
        held = inputs.new_zeros(inputs.shape[0], 2) if state is None else state
        is_over = (held[:, :1] == 0) | (held[:, 1:] >= self.config.interval)
        if stochastic and self.training:
            drawn = fill(held.new_empty(held.shape[0], 1), generator or self.generator(held.device), "uniform_")
            following = (drawn * self.config.members).floor().clamp(max=self.config.members - 1) + 1
        else:
            following = torch.ones_like(held[:, :1])
        return torch.cat((torch.where(is_over, following, held[:, :1]), torch.where(is_over, 1.0, held[:, 1:] + 1)), -1)

    # Learning, with rows of every member

    def read(self, drawn: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What networks read of drawn transitions: `actor`, `critic`, and `next/...`, [n, D]; who acted has no say."""
        batch: dict[str, Tensor] = {}
        for source, prefix in (("obs", ""), ("next_obs", "next/")):
            observed = self.normalised({name: drawn[f"{source}/{name}"] for name in self.all_groups})
            batch |= {f"{prefix}{which}": value for which, value in self.inputs(observed).networks.items()}
        return batch

    def actor_output(self, inputs: Tensor) -> Tensor:
        """[M, n, D] -> [M, n, 2A]."""
        return self.actor.network(inputs).float()

    def values(self, critics: nn.Module, inputs: Tensor, action: Tensor | None = None) -> Tensor:
        """[M, n, D] and unit actions [M, n, A] -> [critics, M, n]."""
        assert action is not None
        joined = torch.cat((inputs, action), -1).repeat(self.config.critics, 1, 1)
        return critics.network(joined).float().view(self.config.critics, *action.shape[:-1])  # type: ignore[operator]
