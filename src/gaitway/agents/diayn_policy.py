"""The networks of DIAYN: a soft actor-critic that pursues one of several skills, and a discriminator that tells which.

A skill is a number from 0 to n_skills - 1, drawn when an episode begins and kept until it ends. Actor and critics read
it as one-hot columns behind their observations. With `n_embed` (DIAYN-C) the actor maps these columns to that many
numbers within (-1, 1) first, so that every point between the trained skills is a skill too.

The skill in pursuit is what the policy remembers: its number plus 1, and 0, as everywhere, before an episode begins.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import field
from types import MappingProxyType

import torch
from torch import Tensor, nn

from gaitway.agents.blocks import Block
from gaitway.agents.observations import Inputs, Observations, StateVariable
from gaitway.agents.replay_policy import StatefulPolicy, make_critics
from gaitway.agents.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig
from gaitway.core.config import configuration, did_you_mean
from gaitway.core.ranges import Count
from gaitway.core.seeding import fill
from gaitway.core.workspace import Variable
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Observation
from gaitway.nn.multihead import SkillEmbedding
from gaitway.nn.trunks import Network, SingleLayers, TrunkKind

SKILL, MEMORY = "skill", "skill/memory"


@configuration
class DIAYNPolicyConfig(SoftActorCriticConfig):
    """Networks of actor, critics and discriminator, in the shapes of HSD-3 (Gehring et al. 2021)."""

    observations: Observations = field(default_factory=lambda: Observations(("observation",), ("observation",)))
    n_skills: Count = 10
    n_embed: Count | None = None
    """DIAYN-C: numbers within (-1, 1) that the actor makes of the one-hot skill; null: none, the actor reads it as it
    is."""
    features: str = "gs_observation"
    """The observation group that the discriminator reads."""
    feature_names: tuple[str, ...] = ()
    """Which of its components; empty: all."""
    actor_hidden: tuple[Count, ...] = (256, 256, 256, 256)
    critic_hidden: tuple[Count, ...] = (256, 256, 256, 256)
    discriminator_hidden: tuple[Count, ...] = (256, 256, 256, 256)
    trunk: TrunkKind = "d2rl"
    zero_critics: bool = True


class DIAYNPolicy(StatefulPolicy, SoftActorCritic):
    """Actor, critics, which start at 0, their targets, and the discriminator, features -> logits [..., n_skills]."""

    config: DIAYNPolicyConfig
    places: Tensor
    columns: Tensor

    def __init__(
        self,
        spec: EnvSpec,
        config: DIAYNPolicyConfig | None = None,
        generator: torch.Generator | None = None,
        blocks: Sequence[Block] = (),
    ) -> None:
        config = config or DIAYNPolicyConfig()
        if spec.action.kind != "continuous":
            raise ValueError(f"{spec.id} has {spec.action.kind} actions; diayn learns skills with continuous ones")
        if config.blocks or blocks:
            raise ValueError("the networks of diayn read observations and the skill alone; leave agent.blocks empty")
        super().__init__(spec, config, generator)
        columns = _feature_columns(spec, config)
        self.memories = {MEMORY: StateVariable(1, acts=True, through_time=False)}
        self.writes = tuple(self.variables(1, 1))
        self.register_buffer("places", torch.arange(config.n_skills), persistent=False)
        self.register_buffer("columns", torch.tensor(columns), persistent=False)
        self.discriminator = Network(
            len(columns),
            config.discriminator_hidden,
            config.n_skills,
            layers=SingleLayers(config.init, generator),
            trunk=config.trunk,
            activation=config.activation,
            layer_norm=config.layer_norm,
        )

    def input_size(self, which: str) -> int:
        return super().input_size(which) + self.config.n_skills

    def make_actor(self, inputs: int, outputs: int, generator: torch.Generator | None) -> nn.Module:
        skills, embedded = self.config.n_skills, self.config.n_embed
        if embedded is None:
            return super().make_actor(inputs, outputs, generator)
        embedding = SkillEmbedding(skills, embedded, "tanh", generator)
        base = super().make_actor(inputs - skills + embedded, outputs, generator)
        return nn.Sequential(OrderedDict(embedding=embedding, base=base))

    def make_critics(self, inputs: int, outputs: int, generator: torch.Generator | None) -> nn.Module:
        return make_critics(
            self.config, inputs, outputs, generator, last_init=[self.config.critics_start] * self.config.critics
        )

    # Playing

    def act(
        self,
        obs: Observation,
        state: Tensor | None,
        stochastic: bool,
        generator: torch.Generator | None = None,
        uniform: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """One action per row of `obs`, and the skills in pursuit after it (see `holding`).

        Where an episode begins, a skill is drawn uniformly while exploring in training; else row i pursues skill i, and
        from n_skills on again from 0. `uniform` changes nothing: a policy that knows nothing yet explores.
        """
        observed = self.normalised(obs)
        first = next(iter(observed.values()))
        count = first.shape[0]  # and not len(), which would fix the number of rows of an export
        begun = self._first_skills(count, stochastic and self.training, first.device, generator)
        held = self.initial_state(count, first.device) if state is None else state
        assert held is not None
        after = torch.where(held > 0, held, self.holding(begun))
        inputs = self.inputs(observed | {SKILL: self.one_hot(self.held(after))}, ("actor",)).networks["actor"]
        return self.choose(inputs, stochastic, generator), after

    def holding(self, skill: Tensor) -> Tensor:
        """What `act` remembers of skills [B] in pursuit, [B, 1]: pass it as the state to choose them."""
        return (skill + 1).float().unsqueeze(-1)

    def held(self, state: Tensor) -> Tensor:
        """The skills [B], int64, that a state [B, 1] holds."""
        return state.squeeze(-1).long() - 1

    def variables(self, num_envs: int, rows: int) -> dict[str, Variable]:
        """The dense variables `step` writes in `rows` steps."""
        own = {self.out(SKILL): Variable(rows, num_envs, (), torch.int64)}
        return super().variables(num_envs, rows) | own

    def told(self, obs: Observation, before: Tensor, after: Tensor) -> dict[str, Tensor]:
        """The skill in pursuit."""
        return {SKILL: self.held(after)}

    def _first_skills(
        self, count: int, is_drawn: bool, device: torch.device, generator: torch.Generator | None
    ) -> Tensor:
        """The skills [count] that rows begin with."""
        skills = self.config.n_skills
        if not is_drawn:
            return torch.arange(count, device=device) % skills
        drawn = fill(torch.empty(count, device=device), generator or self.generator(device), "uniform_")
        return (drawn * skills).long().clamp(max=skills - 1)  # a product of floats may round up

    # Learning

    def inputs(
        self,
        observed: Mapping[str, Tensor],
        networks: Sequence[str] = ("actor", "critic"),
        states: Mapping[str, Tensor] = MappingProxyType({}),
        starts: Tensor | None = None,
        masks: Mapping[str, Tensor] = MappingProxyType({}),
    ) -> Inputs:
        """Normalised groups and the one-hot `skill` behind them, as `networks` read them."""
        if SKILL not in observed:
            raise ValueError(
                "what a policy of diayn does and is worth depends on its skill; choose one by "
                "policy.act(obs, policy.holding(skill), stochastic=False)"
            )
        found = super().inputs(observed, networks)
        return found._replace(
            networks={which: torch.cat((value, observed[SKILL]), -1) for which, value in found.networks.items()}
        )

    def read(self, drawn: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What networks read of drawn transitions: `actor`, `critic`, and `next/...`, of the same skill, [n, D]; and
        what the discriminator reads and should say, `features` [n, F] and the `one_hot` skill [n, n_skills]."""
        skill = {SKILL: self.one_hot(drawn[self.out(SKILL)])}
        batch = {"features": self.features(drawn[f"obs/{self.config.features}"]), "one_hot": skill[SKILL]}
        for source, prefix in (("obs", ""), ("next_obs", "next/")):
            observed = self.normalised({name: drawn[f"{source}/{name}"] for name in self.all_groups})
            networks = self.inputs(observed | skill).networks
            batch |= {f"{prefix}{which}": value for which, value in networks.items()}
        return batch

    def one_hot(self, skill: Tensor) -> Tensor:
        """Skills [...] as columns, float32 [..., n_skills]."""
        return (skill.unsqueeze(-1) == self.places).float()

    def features(self, group: Tensor) -> Tensor:
        """What the discriminator reads of its observation group [..., D], float32 [..., F]."""
        return group.float().index_select(-1, self.columns)

    def skill_log_probs(self, features: Tensor) -> Tensor:
        """The discriminator's log-probabilities of all skills, float32 [..., n_skills]."""
        return self.discriminator(features).float().log_softmax(-1)


def _feature_columns(spec: EnvSpec, config: DIAYNPolicyConfig) -> list[int]:
    """Columns of the discriminator's group that it reads."""
    name, known = config.features, spec.group_names
    if name not in known:
        raise ValueError(
            f"agent.features names {name!r}{did_you_mean(name, known)}, but {spec.id} has the groups {known}"
        )
    group = spec.group(name)
    if not group.is_vector:
        raise ValueError(f"agent.features names {name!r}, {group.shape}; the discriminator reads vectors, use another")
    components = [component.name for component in group.components]
    columns: list[int] = []
    for wanted in config.feature_names or components:
        if wanted not in components:
            raise ValueError(
                f"agent.feature_names names {wanted!r}{did_you_mean(wanted, components)}, but {name!r} of {spec.id} "
                f"has {components}"
            )
        place = group.columns(wanted)
        columns += range(place.start, place.stop)
    if len(set(columns)) < len(columns):
        raise ValueError(f"agent.feature_names is {list(config.feature_names)}; name every component once")
    return columns
