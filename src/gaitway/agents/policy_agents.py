"""Small actors for lessons and examples, all with the same options, and the divergence of two of them.

    actor = categorical_actor(env.spec)
    actor = gaussian_actor(env.spec, std="tunable")       # or "fixed", "state" for one that the network emits
    actor = squashed_actor(env.spec)

| option of `step` | what is written |
|---|---|
| | `action`, `logprob` `[B]`; where the head keeps a value behind the action, `policy/raw` |
| `stochastic=False` | the same for the mode |
| `predict_proba=True` | `logprob_predict` `[B]`: the stored `action` is scored and left alone |
| `compute_entropy=True` | `entropy` `[B]` too; without a closed form minus the log-probability of one more sample |
| `reparametrise=True` | as usual, but gradients flow through the sample, as SAC and DDPG need them |

Without `reparametrise` the action is a constant and `logprob` the density at that constant, which is what REINFORCE,
A2C and PPO differentiate; through a Gaussian sample the gradient of its own log-density by the mean would be 0.
`actor.distribution(ws)` is the policy at all steps at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gaitway.agents.value_agents import ObservationInput
from gaitway.core.agent import Agent
from gaitway.core.small_agents import SeedableAgent
from gaitway.core.workspace import Workspace
from gaitway.envs.spec import EnvSpec
from gaitway.nn.distributions import Distribution, Head, kl_divergence, make_distribution
from gaitway.nn.mlp import MLP
from gaitway.nn.state_dependent_noise import ExplorationWeights, StateDependentNoise


class DistributionActor(SeedableAgent):
    """A network and a head: a stochastic policy of any kind.

    With a `StateDependentNoise` head every column has an exploration matrix, which is drawn anew where an episode
    begins, every `resample` rows if that is given, and by `resample_noise`. Samples with `reparametrise` do without.
    """

    def __init__(
        self,
        spec: EnvSpec,
        head: Head | None = None,
        hidden: Sequence[int] = (64, 64),
        activation: str = "tanh",
        groups: Sequence[str] = (),
        name: str | None = None,
        seed: int | None = None,
        generator: torch.Generator | None = None,
        resample: int | None = None,
    ) -> None:
        """`head` None is that of `make_distribution(spec.action)`; `seed` is for actions, `generator` for weights."""
        super().__init__(name, seed, rule="last")
        if resample is not None and resample < 1:
            raise ValueError(f"resample is {resample}; give the number of rows between matrices, or None")
        self.input = ObservationInput(spec, "actor", groups)
        self.head = make_distribution(spec.action) if head is None else head
        self.resample = resample
        # features are what an activation made; other heads read a linear layer, small at first so that the first
        # policy is nearly the same everywhere
        last = activation if isinstance(self.head, StateDependentNoise) else None
        gain = 1.0 if last else 0.01
        self.network = MLP(self.input.size, hidden, self.head.inputs, activation, last, "orthogonal", gain, generator)
        if last is None:
            layer = self.network.layers[-1]
            assert isinstance(layer, nn.Linear)
            self.head.init_last_layer(layer)
        self.reads = self.input.names
        self.writes = ("action", "logprob") if self.head.raw_is_action else ("action", "logprob", "policy/raw")
        self._weights: ExplorationWeights | None = None

    def step(
        self,
        ws: Workspace,
        t: int,
        *,
        stochastic: bool = True,
        predict_proba: bool = False,
        compute_entropy: bool = False,
        reparametrise: bool = False,
    ) -> None:
        output = self.network(self.input.row(ws, t))
        params = self.head(output)
        if predict_proba:
            ws.put(self.out("logprob_predict"), t, self.head.log_prob(params, self._stored(ws, t)))
        else:
            raw = self._draw(output, params, t, reparametrise) if stochastic else self.head.mode(params)
            if not reparametrise:
                raw = raw.detach()
            ws.put(self.out("action"), t, self.head.action(raw))
            ws.put(self.out("logprob"), t, self.head.log_prob(params, raw))
            if not self.head.raw_is_action:
                ws.put(self.out("policy/raw"), t, raw)
        if compute_entropy:
            ws.put(self.out("entropy"), t, self._entropy(params))

    def distribution(self, ws: Workspace, t: int | None = None) -> Distribution:
        """The policy at row t `[B]`, or at all steps `[T, B]`."""
        obs = self.input.steps(ws) if t is None else self.input.row(ws, t)
        return Distribution(self.head, self.head(self.network(obs)), self.generator(obs.device))

    @property
    def resets(self) -> bool:
        return isinstance(self.head, StateDependentNoise)

    def reset(self, ws: Workspace, t: int, mask: Tensor) -> None:
        """New exploration matrices for the columns whose episode ended."""
        held = self._weights
        if held is not None and held.each is not None and len(held.each) == len(mask) and bool(mask.any()):
            self._weights = held.where(mask, self._new_weights(len(mask), held.single.device))

    def resample_noise(self) -> None:
        """New exploration matrices for all columns, before the next row."""
        self._weights = None

    def _draw(self, output: Tensor, params: Tensor, t: int, reparametrise: bool) -> Tensor:
        if reparametrise or not isinstance(self.head, StateDependentNoise):
            return self.head.sample(params, self.generator(params.device))
        held = self._weights
        is_due = self.resample is not None and t % self.resample == 0
        if is_due or held is None or held.each is None or len(held.each) != len(output):
            held = self._weights = self._new_weights(len(output), output.device)
        return self.head.mode(params) + self.head.noise(output, held)

    def _new_weights(self, batch_size: int, device: torch.device) -> ExplorationWeights:
        assert isinstance(self.head, StateDependentNoise)
        with torch.no_grad():  # they outlive the graph of this row
            return self.head.sample_weights(self.generator(device), batch_size)

    def _stored(self, ws: Workspace, t: int) -> Tensor:
        """What the stored action was made of; found back from the action where somebody has changed it since."""
        action = ws.at("action", t)
        if self.head.raw_is_action:
            return action
        found = self.head.raw(action)
        if "policy/raw" not in ws:
            return found
        kept = ws.at("policy/raw", t)
        return torch.where(self.head.action(kept) == action, kept, found)

    def _entropy(self, params: Tensor) -> Tensor:
        exact = self.head.action_entropy(params)
        if exact is not None:
            return exact
        return -self.head.log_prob(params, self.head.sample(params, self.generator(params.device)))


class DeterministicActor(Agent):
    """One continuous action per state, within the limits: `centre + half_range * tanh(network)` where there are any.

    It takes the options of the other actors. `stochastic` changes nothing: exploring is the work of an agent after
    this one (`agents/explorers.py`). It has no density, so `predict_proba` and `compute_entropy` are refused. Gradients
    flow through its action unless `reparametrise=False`.
    """

    centre: Tensor
    half_range: Tensor
    bounded: Tensor

    def __init__(
        self,
        spec: EnvSpec,
        hidden: Sequence[int] = (64, 64),
        activation: str = "relu",
        groups: Sequence[str] = (),
        name: str | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(name)
        if spec.action.kind != "continuous":
            raise ValueError(f"{spec.id} takes a {spec.action.kind} action; DeterministicActor needs a continuous one")
        self.input = ObservationInput(spec, "actor", groups)
        self.network = MLP(self.input.size, hidden, len(spec.action.names), activation, generator=generator)
        low, high = torch.tensor(spec.action.low), torch.tensor(spec.action.high)
        bounded = torch.isfinite(low) & torch.isfinite(high)
        self.register_buffer("bounded", bounded, persistent=False)
        self.register_buffer("centre", torch.where(bounded, (high + low) / 2, 0.0), persistent=False)
        self.register_buffer("half_range", torch.where(bounded, (high - low) / 2, 1.0), persistent=False)
        self.reads, self.writes = self.input.names, ("action",)

    def step(
        self,
        ws: Workspace,
        t: int,
        *,
        stochastic: bool = True,
        predict_proba: bool = False,
        compute_entropy: bool = False,
        reparametrise: bool = True,
    ) -> None:
        if predict_proba or compute_entropy:
            raise ValueError("a deterministic policy has no density; use gaussian_actor or squashed_actor for that")
        action = self.action(self.input.row(ws, t))
        ws.put(self.out("action"), t, action if reparametrise else action.detach())

    def action(self, obs: Tensor) -> Tensor:
        """`[..., D] -> [..., A]`."""
        output = self.network(obs)
        return torch.addcmul(self.centre, self.half_range, torch.where(self.bounded, output.tanh(), output))


class KLAgent(Agent):
    """Writes `kl` `[B]`: KL(old || new) of two policies in the state of row t. Both belong to somebody else: they are
    no part of this agent's parameters."""

    def __init__(self, old: DistributionActor, new: DistributionActor, name: str | None = None) -> None:
        super().__init__(name)
        self._policies = (old, new)  # in a tuple, so that nn.Module does not register them
        self.reads = tuple(dict.fromkeys((*old.reads, *new.reads)))
        self.writes = ("kl",)

    def step(self, ws: Workspace, t: int) -> None:
        old, new = (policy.distribution(ws, t) for policy in self._policies)
        ws.put(self.out("kl"), t, kl_divergence(old, new))


def categorical_actor(spec: EnvSpec, **network: Any) -> DistributionActor:
    """Chooses among discrete actions; `network` are the arguments of `DistributionActor`."""
    kind = "categorical" if spec.action.kind == "discrete" else "multi_categorical"
    return DistributionActor(spec, make_distribution(spec.action, kind), **network)


def gaussian_actor(
    spec: EnvSpec,
    std: Literal["fixed", "tunable", "state"] = "tunable",
    init_std: float = 1.0,
    **network: Any,
) -> DistributionActor:
    """A Gaussian whose deviation is fixed, one learnt number per dimension, or what the network says of each state.

    Actions may lie beyond the limits: environments clip them, and the density stays exact.
    """
    return DistributionActor(spec, _gaussian(spec, "gaussian", std, init_std), **network)


def squashed_actor(
    spec: EnvSpec,
    std: Literal["fixed", "tunable", "state"] = "state",
    init_std: float = 1.0,
    **network: Any,
) -> DistributionActor:
    """A Gaussian behind tanh, whose actions never leave the limits; `std` as in `gaussian_actor`."""
    return DistributionActor(spec, _gaussian(spec, "squashed_gaussian", std, init_std), **network)


def _gaussian(spec: EnvSpec, kind: str, std: str, init_std: float) -> Head:
    if std not in ("fixed", "tunable", "state"):
        raise ValueError(f"std is {std!r}; use 'fixed', 'tunable' or 'state'")
    return make_distribution(
        spec.action, kind, init_std=init_std, learn_std=std != "fixed", state_dependent=std == "state"
    )
