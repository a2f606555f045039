"""Random network distillation: what a network cannot predict yet is new, and new is good.

Burda et al. 2018, "Exploration by random network distillation". A fixed random network f maps an observation to a few
numbers, a predictor g learns to say the same of what was seen, so with the observation x that a step led to

    reward      |f(x) - g(x)|^2 / std,   std: its running standard deviation
    loss        mean |f(x) - g(x)|^2

Observations are normalised by running statistics and kept within +- 5, without which f would hardly tell them apart.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gaitway.agents.observations import input_size
from gaitway.algorithms.algorithm import Batch, Coefficient, Now
from gaitway.algorithms.engine import Engine
from gaitway.core.execution import Execution
from gaitway.core.ranges import Count, Positive
from gaitway.core.ranks import own_stream
from gaitway.core.seeding import restore_stream, stream
from gaitway.core.transitions import final_observations
from gaitway.core.workspace import Workspace
from gaitway.envs.spec import EnvSpec
from gaitway.nn.mlp import MLP
from gaitway.nn.normalise import RunningNorm
from gaitway.rewards.reached import judged_groups, reached
from gaitway.rewards.source import When

CLIP = 5.0


class RandomNetworkDistillation(nn.Module):
    """A bonus for observations that were seldom seen."""

    name = "rnd"
    when: When = "drawn"

    def __init__(
        self,
        spec: EnvSpec,
        weight: Coefficient = 1.0,
        groups: tuple[str, ...] = (),
        hidden: tuple[Count, ...] = (64, 64),
        size: Count = 16,
        learning_rate: Positive = 1e-3,
        updates: Count = 8,
        batch_size: Count = 256,
        seed: int = 0,
        device: torch.device | str = "cpu",
        execution: Execution | None = None,
    ) -> None:
        """Novelty is judged by `groups` (none: what an actor reads by default); `updates` gradient steps of
        `batch_size` rows follow every rollout."""
        super().__init__()
        chosen = judged_groups(spec, groups)
        if min(size, updates, batch_size) < 1 or learning_rate <= 0:
            raise ValueError("size, updates, batch_size and learning_rate must all be positive")
        self.weight, self.updates = weight, updates
        self.groups = chosen
        self.reads = (*(f"env/obs/{name}" for name in chosen), *final_observations(chosen))
        generator = stream(seed, "rnd parameters")
        inputs = input_size(spec, chosen)
        self.target = MLP(inputs, hidden, size, "relu", None, "orthogonal", 1.0, generator).requires_grad_(False)
        self.predictor = MLP(inputs, hidden, size, "relu", None, "orthogonal", 1.0, generator)
        self.observations, self.errors = RunningNorm((inputs,), clip=CLIP), RunningNorm(())
        self.to(device)
        self.generator = own_stream(seed, "rnd", device)
        execution = execution or Execution(device=device)
        self.engine = Engine(
            self.predictor, self._loss, learning_rate=learning_rate, max_grad_norm=None, execution=execution
        )
        self._rows = torch.zeros(batch_size, inputs, device=device)
        self._learn = execution.program(lambda: self.engine.step({"obs": self._rows}), "a step of the novelty reward")

    def annotate(self, ws: Workspace) -> None:
        error = self._error(self.observations(self._reached(ws)))
        ws["reward/rnd"] = error * torch.rsqrt(self.errors.var + 1e-8).float()

    def update(self, ws: Workspace, now: Now) -> dict[str, Tensor]:
        with torch.no_grad():
            seen, valid = self._reached(ws), ws["env/valid"] if "env/valid" in ws else None
            self.observations.update(seen, valid)
            observed = self.observations(seen)
            self.errors.update(self._error(observed), valid)
            rows = (observed if valid is None else observed[valid]).flatten(0, -2)
        for _ in range(self.updates):
            index = torch.randint(len(rows), (len(self._rows),), generator=self.generator, device=rows.device)
            torch.index_select(rows, 0, index, out=self._rows)
            self._learn()
        return {f"rnd/{name}": value for name, value in self.engine.read().items()}

    def get_extra_state(self) -> dict[str, object]:
        return {"engine": self.engine.state_dict(), "stream": self.generator.get_state()}

    def set_extra_state(self, state: dict[str, object]) -> None:
        self.engine.load_state_dict(state["engine"])  # type: ignore[arg-type]
        restore_stream(self.generator, state["stream"])  # type: ignore[arg-type]
        self._learn.forget()

    def _reached(self, ws: Workspace) -> Tensor:
        """The observations that steps led to, [T, B, D]."""
        return reached(ws, self.groups)

    def _error(self, observed: Tensor) -> Tensor:
        return (self.target(observed) - self.predictor(observed)).square().mean(-1)

    def _loss(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        loss = self._error(batch["obs"]).mean()
        return loss, {"loss": loss.detach()}
