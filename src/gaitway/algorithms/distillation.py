"""Distillation: a student learns what its teacher does, from labels alone and from the states that the student visits.

The cast's teacher labels every step. Each epoch walks over the rollout in order, in segments of `gradient_length` rows:

    loss of a segment    mean over its rows of distance(student, label)     (`algorithms/imitation.py`)
    memory               begins with the state before the rollout, is carried from segment to segment without gradient

so that there are epochs * ceil(rollout_steps / gradient_length) gradient steps; the last segment may be shorter. There
is no reward, no return and no critic in it. Rusu et al. 2015, "Policy distillation"; Ross et al. 2011 (DAgger).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from gaitway.agents.actor_critic import ActorCritic
from gaitway.algorithms.algorithm import Batch, LossTerm, Now
from gaitway.algorithms.engine import Engine, copied_state
from gaitway.algorithms.estimation import estimation_terms
from gaitway.algorithms.imitation import Form, Imitation
from gaitway.algorithms.learning_rates import decayed
from gaitway.algorithms.memory_noise import MemoryNoise
from gaitway.algorithms.terms import Terms, with_further
from gaitway.core.config import configuration
from gaitway.core.execution import Execution
from gaitway.core.plain import objects_given
from gaitway.core.ranges import Count, NotNegative, Positive, Range, Share
from gaitway.core.ranks import own_stream
from gaitway.core.seeding import restore_stream
from gaitway.core.workspace import Workspace
from gaitway.data.rolling_rollout import RollingRollout

PPO_TERMS = ("surrogate", "value", "entropy")


@configuration
class DistillationConfig:
    """A student learns the actions of a teacher in the cast, without a reward."""

    name: Literal["distillation"] = "distillation"
    rollout_steps: Count = 32
    """Steps per environment and iteration (T)."""
    epochs: Count = 1
    """Passes over each rollout."""
    gradient_length: Count = 15
    """Rows of one gradient step, and how far gradients flow back through a memory."""
    form: Form | None = None
    """What is learnt, see docs/teachers.md; null: `squared`, or `log_prob` where actions are choices."""
    learning_rate: Positive = 1e-3
    """Initial rate."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the rate moves: not at all, or to zero along a line or a cosine."""
    max_grad_norm: Positive | None = None
    """Limit of the gradient's norm; null for none."""
    memory_noise: Share = 0.0
    """How often a segment begins with noise in the place of what the student remembers."""
    dilation: Annotated[float, Range(1)] = 1.0
    """How many rollouts' worth of the newest rows is learnt from; 1: the present rollout alone."""
    optimiser: Literal["adam", "adamw"] = "adam"
    weight_decay: NotNegative = 0.0
    adam_eps: Positive = 1e-8
    terms: tuple[dict[str, Any] | str, ...] = ()
    """Further losses, {name: ..., coef: ..., option: value}; `imitation` takes the place of the standard one."""


class Distillation:
    """Learns the labels of one rollout at a time, in order of time."""

    needs_whole_episodes = False
    learns_from_rewards = False

    def __init__(
        self,
        policy: ActorCritic,
        config: DistillationConfig | None = None,
        *,
        num_envs: int,
        terms: Sequence[LossTerm] = (),
        seed: int = 0,
        execution: Execution | None = None,
    ) -> None:
        self.policy, self.num_envs = policy, num_envs
        self.config = config = config or DistillationConfig()
        self.device = next(policy.parameters()).device
        self.execution = execution or Execution(device=self.device)
        self.generator = own_stream(seed, "memory noise", self.device)
        noise = [MemoryNoise(policy, config.memory_noise, self.generator)] if config.memory_noise else []
        standard: list[LossTerm] = [Imitation(policy, config.form), *estimation_terms(policy)]
        self.terms = Terms(with_further(standard, terms), policy, self.device, noise, critic=False)
        own = [term.name for term in terms if term.name in PPO_TERMS]
        if config.dilation > 1 and own:
            raise ValueError(
                f"algorithm.dilation keeps rows of earlier policies, from which the term {own[0]!r} cannot learn; set "
                "it to 1, or leave that term out"
            )
        self.rolling = RollingRollout(config.dilation)
        self.reads, self.objects = self.terms.reads, objects_given(term=terms)
        self.engine = Engine(
            policy,
            self.terms.loss,
            learning_rate=config.learning_rate,
            max_grad_norm=config.max_grad_norm,
            optimiser=config.optimiser,
            eps=config.adam_eps,
            weight_decay=config.weight_decay,
            execution=self.execution,
        )
        self._prepare = self.execution.program(self._prepare_rollout, "distillation's preparation of a rollout")
        self._pass = self.execution.program(self._step_all, "a pass of distillation over its rollout", [self.generator])
        self._data = Workspace()
        self._found: Batch = {}
        self._fields: Batch = {}
        self._version = 0

    def update(self, data: Workspace, now: Now) -> dict[str, Tensor]:
        """Learn from a rollout; returns mean losses and statistics as tensors."""
        config = self.config
        with self.execution.numerics():
            self.terms.begin(now)
            if config.schedule != "constant":
                self.engine.set_learning_rate(decayed(config.learning_rate, config.schedule, now.fraction))
            self.prepare(self.rolling.add(data))
            for _ in range(config.epochs):
                self._pass.on(self.terms.constants, self._version)()
        metrics = self.engine.read()
        metrics["learning_rate"] = self.engine.learning_rate.clone()
        std = self.policy.head.std(self._fields["params"])
        if std is not None:
            metrics["std"] = std.mean()
        self.policy.update_normalisers(data)  # last, so that the policy that learns is the one that acted
        return metrics

    def prepare(self, data: Workspace) -> Batch:
        """What segments are cut from, in memory that stays where it is."""
        self._data = data
        self._prepare.on(data)()
        if _layout(self._found) != _layout(self._fields):
            self._fields = {name: value.clone() for name, value in self._found.items()}
            self._version += 1
        for name, value in self._found.items():
            self._fields[name].copy_(value)
        return self._fields

    @torch.no_grad()
    def _prepare_rollout(self) -> None:
        ws, policy = self._data, self.policy
        self._found = policy.learner_inputs(ws) | self.terms.fields(ws)
        self._found |= {"raw": policy.raw_actions(ws), "params": ws[policy.out("policy/params")]}

    def _step_all(self) -> None:
        """A pass over the rollout."""
        steps, length, policy = len(self._fields["params"]), self.config.gradient_length, self.policy
        columns = policy.column_fields
        remembered = {name: self._fields[name] for name in columns}
        for start in range(0, steps, length):
            rows = slice(start, min(start + length, steps))
            segment = {name: field[rows] for name, field in self._fields.items() if name not in columns} | remembered
            if not policy.is_recurrent:
                segment = {name: field.flatten(0, 1) for name, field in segment.items()}
            elif rows.stop < steps:
                remembered = policy.states_after(segment)
            self.engine.step(segment)

    def flat_parameters(self) -> list[Tensor]:
        return [self.engine.parameters.value.detach()]

    def reset_running_returns(self) -> None:
        """There are none."""

    def state_dict(self) -> dict[str, Any]:
        return {
            "policy": copied_state(self.policy),
            "engine": self.engine.state_dict(),
            "memory_noise_stream": self.generator.get_state(),
            **({"rolling": self.rolling.state_dict()} if self.config.dilation > 1 else {}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.policy.load_state_dict(state["policy"])
        self.engine.load_state_dict(state["engine"])
        restore_stream(self.generator, state["memory_noise_stream"])
        if "rolling" in state:
            self.rolling.load_state_dict(state["rolling"], self.device)


def _layout(fields: Batch) -> dict[str, tuple[object, ...]]:
    return {name: (value.shape, value.dtype) for name, value in fields.items()}
