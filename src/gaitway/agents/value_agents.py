"""Small critics for lessons and examples: what they estimate is a variable without a trailing axis, `[B]`.

    critic = ValueCritic(env.spec)                                   # value       V(s)       [B]
    q = DiscreteQCritic(env.spec)                                    # q_values    Q(s, .)    [B, A]
    q = ContinuousQCritic(env.spec, name="q1").with_prefix("q1/")    # q1/q_value  Q(s, a)    [B]

Each one runs row by row as an agent, and as a function of tensors with any leading shape. `spec` says what the
observations are; `groups` chooses others than the environment's default.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gaitway.agents.blocks import joined
from gaitway.agents.observations import Observations, default_groups, input_size
from gaitway.core.agent import Agent
from gaitway.core.workspace import Workspace
from gaitway.envs.spec import EnvSpec
from gaitway.nn.mlp import MLP


class ObservationInput:
    """The observation groups that a network reads, as one tensor."""

    def __init__(self, spec: EnvSpec, which: str, groups: Sequence[str] = ()) -> None:
        """`which` is "actor" or "critic"; it decides what an environment means by default."""
        chosen = Observations(**{which: tuple(groups)})
        self.groups = default_groups(spec, which, chosen)
        self.names = tuple(f"env/obs/{group}" for group in self.groups)
        self.size = input_size(spec, self.groups)

    def row(self, ws: Workspace, t: int) -> Tensor:
        """Row t, float32 `[B, D]`."""
        return joined([ws.at(name, t) for name in self.names])

    def rows(self, ws: Workspace) -> Tensor:
        """All rows, that after the last step included: `[T + 1, B, D]`."""
        return joined([ws[name] for name in self.names])

    def steps(self, ws: Workspace) -> Tensor:
        """The rows of steps, `[T, B, D]`."""
        return joined([ws[name][: ws.T] for name in self.names])


class ValueCritic(Agent):
    """V(s): writes `value` `[B]`."""

    def __init__(
        self,
        spec: EnvSpec,
        hidden: Sequence[int] = (64, 64),
        activation: str = "tanh",
        groups: Sequence[str] = (),
        name: str | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(name)
        self.input = ObservationInput(spec, "critic", groups)
        self.network = MLP(self.input.size, hidden, 1, activation, generator=generator)
        self.reads, self.writes = self.input.names, ("value",)

    def step(self, ws: Workspace, t: int) -> None:
        ws.put(self.out("value"), t, self.value(self.input.row(ws, t)))

    def value(self, obs: Tensor) -> Tensor:
        """`[..., D] -> [...]`."""
        return self.network(obs).squeeze(-1)

    def values(self, ws: Workspace) -> Tensor:
        """Of every row of observations in one call, `[T + 1, B]`; nothing is written."""
        return self.value(self.input.rows(ws))


class DiscreteQCritic(Agent):
    """Q(s, .) of all actions: writes `q_values` `[B, A]`."""

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
        if spec.action.kind != "discrete":
            raise ValueError(
                f"{spec.id} takes a {spec.action.kind} action; DiscreteQCritic needs one choice (ContinuousQCritic "
                "reads an action instead)"
            )
        self.start = spec.action.start[0] if spec.action.start else 0
        self.input = ObservationInput(spec, "critic", groups)
        self.network = MLP(self.input.size, hidden, spec.action.choices[0], activation, generator=generator)
        self.reads, self.writes = self.input.names, ("q_values",)

    def step(self, ws: Workspace, t: int) -> None:
        ws.put(self.out("q_values"), t, self.q_values(self.input.row(ws, t)))

    def q_values(self, obs: Tensor) -> Tensor:
        """`[..., D] -> [..., A]`."""
        return self.network(obs)

    def of_action(self, q_values: Tensor, action: Tensor) -> Tensor:
        """The values `[...]` of the actions `[...]` (in the environment's numbering) among `q_values` `[..., A]`."""
        if action.shape != q_values.shape[:-1]:
            raise ValueError(
                f"actions are {list(action.shape)} but q_values are {list(q_values.shape)}; one action per row of "
                f"values is {list(q_values.shape[:-1])}"
            )
        return q_values.gather(-1, (action - self.start).unsqueeze(-1)).squeeze(-1)


class ContinuousQCritic(Agent):
    """Q(s, a): reads `action` `[B, A]`, writes `q_value` `[B]`."""

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
            raise ValueError(
                f"{spec.id} takes a {spec.action.kind} action; ContinuousQCritic needs a continuous one "
                "(DiscreteQCritic answers for all choices at once)"
            )
        self.input = ObservationInput(spec, "critic", groups)
        self.network = MLP(self.input.size + len(spec.action.names), hidden, 1, activation, generator=generator)
        self.reads, self.writes = (*self.input.names, "action"), ("q_value",)

    def step(self, ws: Workspace, t: int) -> None:
        ws.put(self.out("q_value"), t, self.q_value(self.input.row(ws, t), ws.at("action", t)))

    def q_value(self, obs: Tensor, action: Tensor) -> Tensor:
        """`[..., D]`, `[..., A] -> [...]`."""
        return self.network(torch.cat((obs, action), -1)).squeeze(-1)
