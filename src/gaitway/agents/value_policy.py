"""The networks of DQN: action values Q(s, .), a target that lags behind, and the epsilon-greedy choice among them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import torch
from torch import Tensor, nn

from gaitway.agents.blocks import Block
from gaitway.agents.observations import Observations, default_groups
from gaitway.agents.policy import is_overridden, make_network
from gaitway.agents.replay_policy import ReplayPolicy
from gaitway.core.config import configuration
from gaitway.core.plain import objects_given
from gaitway.core.ranges import Count, NotNegative
from gaitway.core.seeding import fill
from gaitway.envs.spec import EnvSpec
from gaitway.nn.trunks import Init, Network, SingleLayers, TrunkKind


@configuration
class ValuePolicyConfig:
    """The network of action values."""

    observations: Observations = field(default_factory=Observations)
    """Which groups it reads (as `actor`)."""
    hidden: tuple[Count, ...] = (128, 128)
    activation: str = "relu"
    dueling: bool = False
    """Learn the value of a state and the advantages of its actions apart (Wang et al. 2016)."""
    trunk: TrunkKind = "mlp"
    """`mlp`; `d2rl`, which feeds the input to every layer; `residual`, normalised blocks of one width."""
    layer_norm: bool = False
    """Normalise behind each linear layer (`residual` does so within its blocks always)."""
    init: Init = "default"
    """`default`: PyTorch's uniform start; `orthogonal`."""
    normalise_observations: bool = False
    observation_clip: NotNegative = 10.0
    """Normalised observations are kept within +- this; 0 for no limit."""
    blocks: tuple[dict[str, Any], ...] = ()
    """Features made of features: {name: mlp | history | package.module:Class, reads: [...], writes: ...}."""
    network: dict[str, Any] | None = None
    """A network of your own, {name: package.module:Class, option: value}; null: as the keys above say."""


class ActionValues(nn.Module):
    """`[..., inputs] -> [..., A]`; with `dueling` as `V + advantage - mean advantage`."""

    def __init__(self, inputs: int, actions: int, config: ValuePolicyConfig, generator: torch.Generator | None) -> None:
        super().__init__()
        self.dueling = config.dueling
        self.network = Network(
            inputs,
            config.hidden,
            1 + actions if config.dueling else actions,
            layers=SingleLayers(config.init, generator),
            trunk=config.trunk,
            activation=config.activation,
            layer_norm=config.layer_norm,
        )

    def forward(self, inputs: Tensor) -> Tensor:
        output = self.network(inputs).float()
        if not self.dueling:
            return output
        advantage = output[..., 1:]
        return output[..., :1] + advantage - advantage.mean(-1, keepdim=True)


class ValuePolicy(ReplayPolicy):
    """Takes the action of the highest value, or with probability `epsilon` any."""

    epsilon: Tensor

    def __init__(
        self,
        spec: EnvSpec,
        config: ValuePolicyConfig | None = None,
        generator: torch.Generator | None = None,
        blocks: Sequence[Block] = (),
        *,
        values: nn.Module | None = None,
    ) -> None:
        """`values` [..., D] -> [..., A] is a network of your own."""
        self.config = config = config or ValuePolicyConfig()
        if spec.action.kind != "discrete":
            raise ValueError(
                f"{spec.id} has {spec.action.kind} actions; action values need one choice among several. Use "
                "algorithm=td3 or sac for continuous actions"
            )
        made = [str(block.get("writes")) for block in config.blocks] + [block.writes for block in blocks]
        groups = default_groups(spec, "actor", config.observations, made)
        normalise, clip = config.normalise_observations, config.observation_clip
        observations = Observations(actor=groups, critic=groups)
        super().__init__(spec, observations, normalise, clip, (*config.blocks, *blocks), generator)
        self.objects = objects_given(block=blocks, network=values)
        self.first_action = spec.action.start[0] if spec.action.start else 0
        inputs, actions = self.input_size("actor"), spec.action.choices[0]
        self.values = values or make_network(
            config.network,
            "agent.network",
            inputs,
            actions,
            generator,
            lambda: ActionValues(inputs, actions, config, generator),
        )
        self.target = copy.deepcopy(self.values).requires_grad_(False)
        self.register_buffer("epsilon", torch.ones(()))
        """How often an action is drawn uniformly while playing; the algorithm lowers it."""

    @property
    def is_plain(self) -> bool:
        if len(self.blocks) or is_overridden(self, ValuePolicy):
            return False
        return type(self.values) is ActionValues and type(self.values.network) is Network

    def choose(self, inputs: Tensor, stochastic: bool, generator: torch.Generator | None) -> Tensor:
        greedy = self.values(inputs).argmax(-1) + self.first_action
        if not stochastic:
            return greedy
        generator = generator or self.generator(greedy.device)
        explores = fill(torch.empty(greedy.shape, device=greedy.device), generator, "uniform_") < self.epsilon
        return torch.where(explores, self.range.uniform(len(greedy), greedy.device, generator), greedy)
