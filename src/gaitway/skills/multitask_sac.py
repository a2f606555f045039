"""Multi-task soft actor-critic: one policy for many tasks, and how likely it reaches the goals of each.

Gehring et al. 2021, "Hierarchical skills for efficient exploration" (HSD-3), section on pre-training. Beside the
policy and its critics, reachability R(s, a) learns the probability that the present policy reaches the present goal in
the time that is left to it, by undiscounted temporal differences:

    critics        y = r + gamma (1 - terminal) (min Q'(s', a') - alpha log pi(a'|s'))      a' ~ pi(s')
    reachability   y = reached + (1 - last) R'(s', a')              last: the goal ended here, and was not given up
    actor          mean(alpha log pi(a|s) - min Q(s, a))
    temperature    -mean(exp(log alpha) (log pi(a|s) + target entropy))

An update moves critics and reachability, then actor and temperature, then the targets of critics, reachability and
actor. Losses are squared errors without 1/2, and the temperature's loss is in alpha itself: both as published, and
both unlike `algorithm=sac`. Reachability is one more member of the critics' ensemble: it moves with them, before the
actor instead of behind the temperature, and shares their a' instead of drawing one of its own. Critics, actor and
temperature are those of the published order all the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gaitway.agents.skill_policy import SkillPolicy
from gaitway.algorithms.algorithm import Batch, Now, PositiveCoefficient
from gaitway.algorithms.engine import FlatParameters, JointEngine
from gaitway.algorithms.replay_algorithm import Draw
from gaitway.algorithms.soft_algorithm import SoftAlgorithm, SoftConfig
from gaitway.core.config import configuration
from gaitway.core.execution import Execution
from gaitway.core.ranges import Count, Positive, Share, WholeNumber
from gaitway.data.step_replay import StepReplay
from gaitway.envs.tasks.skills.facts import SkillFacts
from gaitway.functional.reachability import reachability_target
from gaitway.functional.soft_losses import soft_target
from gaitway.skills.goal_guide import GoalGuide

COLUMNS = ("reached_goal", "last_step_of_task", "random_reset", "time", "task_key")
"""Metrics of the environment that are learnt from: columns of the replay."""
TD_ROUNDS, TD_RATE = 10, 0.01
"""Every so many rounds the mean TD error of each task moves by this rate."""

Loss = tuple[Tensor, dict[str, Tensor]]


@configuration
class MultitaskSACConfig(SoftConfig):
    """Multi-task soft actor-critic with reachability, for skills."""

    one_step_because = "goals change from step to step"
    name: Literal["multitask_sac"] = "multitask_sac"
    update_ratio: Positive = 0.05
    replay_size: Count = 3_000_000
    learning_starts: WholeNumber = 10_000
    gamma: Share | Literal["auto_horizon"] = "auto_horizon"  # type: ignore[assignment]
    """Discount; auto_horizon: 1 - 1/H for goals that may take H steps."""
    actor_learning_rate: PositiveCoefficient = 1e-4
    critic_learning_rate: PositiveCoefficient = 1e-4
    """Of critics and reachability."""
    temperature_learning_rate: Positive = 1e-4
    initial_temperature: Positive = 0.1
    per_task_temperature: bool = False
    """A temperature for every task, which moves with the transitions of that task."""


class MultitaskSAC(SoftAlgorithm):
    """Learns the skills of an environment whose contract states a goal space (`SkillFacts`)."""

    config: MultitaskSACConfig
    reads = (*(f"env/metric/{name}" for name in COLUMNS), "env/obs/gs_observation")

    def __init__(
        self,
        policy: SkillPolicy,
        config: MultitaskSACConfig | None = None,
        *,
        num_envs: int,
        execution: Execution | None = None,
        seed: int = 0,
    ) -> None:
        config = config or MultitaskSACConfig()
        self.facts = SkillFacts.of(policy.spec)
        if policy.spec.options.get("normalize_gs_observation"):
            raise ValueError(
                "multitask_sac estimates how well goals are reached from features in their own units; make the "
                "environment with normalize_gs_observation=false"
            )
        if not policy.spec.options.get("backproject_goal", True):
            raise ValueError(
                "multitask_sac estimates how well goals are reached from goals in feature units, each feature in its "
                "place; make the environment with backproject_goal=true"
            )
        if isinstance(config.gamma, str):
            config = replace(config, gamma=1.0 - 1.0 / self.facts.horizon)
        draws = {"actions": Draw((2 * config.batch_size, *policy.spec.action.shape))}  # now, and next
        num_keys, per_task = self.facts.tasks.num_keys, config.per_task_temperature
        self.temperature = TaskTemperatures(config.initial_temperature, num_keys if per_task else None)
        super().__init__(
            policy,
            config,
            self.temperature,
            num_envs=num_envs,
            seed=seed,
            execution=execution,
            draws=draws,
            entrywise=per_task,
        )
        self.counts = TaskCounts(num_keys).to(self.device)
        self.modules["counts"] = self.counts
        self.targets["actor"] = FlatParameters(policy.target_actor, target_of=policy.actor)
        self.constant_critic = policy.critics_alone()
        """The critics as the actor sees them, without reachability."""
        self.critic_engine.loss = self.execution.compiled(self._critic_loss)
        self.acting = JointEngine((self.actor_engine, self.temperature_engine), self._actor_loss, self.execution)
        self._ones = torch.ones(config.batch_size, dtype=torch.float64, device=self.device)
        self._rounds = 0
        self._counted_rows = 0
        """Time rows of the replay whose transitions were counted."""

    # Learning

    def learn(self, index: Tensor, noise: Mapping[str, Tensor], phase: int) -> None:
        batch = self._batch_of(index)
        batch |= self._proposals(batch, noise["actions"])
        self.critic_engine.step(batch | self._targets(batch))
        self.acting.step(batch)
        self.soft_update("critic", self.critic_engine, self.config.tau)
        self.soft_update("actor", self.actor_engine, self.config.tau)
        self.counts.used.index_add_(0, batch["key"], self._ones)

    def update(self, replay: StepReplay, updates: int, now: Now) -> None:
        super().update(replay, updates, now)
        # where simulation overlaps, the updates of a round come in several calls, which find no further rows
        if updates and (self._count_rows(replay) or not self.config.overlap):
            if self._rounds % TD_ROUNDS == 0:
                self._note_td_errors()
            self._rounds += 1

    def _count_rows(self, replay: StepReplay) -> bool:
        """Count by task what was added to the replay since the last time; whether there was anything."""
        stop = replay.rows_added
        start = max(self._counted_rows if self._counted_rows <= stop else 0, replay.first_row)  # it may be a new one
        self._counted_rows = stop
        if start == stop:
            return False
        keys = replay.column("env/metric/task_key", start, stop).flatten().long()
        self.counts.seen.index_add_(0, keys, torch.ones_like(keys, dtype=torch.float64))
        return True

    def _batch_of(self, index: Tensor) -> Batch:
        batch = self.transitions(index)
        metric = {name: batch.pop(f"env/metric/{name}") for name in COLUMNS}
        batch["action"] = self.policy.unit_action(batch["action"])
        batch["key"] = metric["task_key"].long()
        batch["reached"] = metric["reached_goal"]
        batch["last"] = metric["last_step_of_task"] * (1.0 - metric["random_reset"])
        batch["alpha"] = self.temperature(batch["key"]).detach()
        return batch

    def _proposals(self, batch: Batch, noise: Tensor) -> Batch:
        """What the policy would do now and next, with log-probabilities: one pass of the actor for both, by `noise`
        [2n, A]. What it would do next has no gradient."""
        policy = self.policy
        rows = torch.cat((policy.inputs_again(batch, "actor"), batch["next/actor"]))
        actions, log_probs = policy.propose(rows, noise)
        (now, following), (log_prob, next_log_prob) = actions.chunk(2), log_probs.chunk(2)
        proposed = {"proposed": now, "log_prob": log_prob}
        return proposed | {"next/action": following.detach(), "next/log_prob": next_log_prob.detach()}

    @torch.no_grad()
    def _targets(self, batch: Batch) -> Batch:
        """What critics and reachability should say, [members, n]."""
        policy = self.policy
        values = policy.values(policy.target, batch["next/critic"], batch["next/action"])
        value = soft_target(batch["reward"], batch["discount"], values[:-1], batch["next/log_prob"], batch["alpha"])
        reach = reachability_target(batch["reached"], batch["last"], values[-1])
        return {"target": torch.cat((value.expand(len(values) - 1, -1), reach[None]))}

    def _critic_loss(self, batch: Batch) -> Loss:
        policy = self.policy
        values = policy.values(policy.critic, policy.inputs_again(batch, "critic"), batch["action"])
        error = values - batch["target"]
        losses = error.square().mean(-1)
        return losses.sum(), {
            "loss/critic": losses[:-1].detach().sum(),
            "loss/reachability": losses[-1].detach(),
            "q_mean": values.detach()[:-1].mean(),
        }

    def _actor_loss(self, batch: Batch) -> Loss:
        """The losses of the actor and of the temperature; each sees the other's part as a constant."""
        policy, alpha, log_prob = self.policy, self.temperature, batch["log_prob"]
        value = policy.values(self.constant_critic, batch["critic"], batch["proposed"]).min(0).values
        loss = (batch["alpha"] * log_prob - value).mean()
        surplus = log_prob.detach() + self.target_entropy
        statistics = {
            "loss/actor": loss.detach(),
            "entropy": -log_prob.detach().mean(),
            "temperature": batch["alpha"].mean(),
        }
        return loss - alpha.mean_per_task(alpha(batch["key"]) * surplus, batch["key"]), statistics

    @torch.no_grad()
    def _note_td_errors(self) -> None:
        """Let the mean TD error of each task follow that of the transitions drawn last, and note which share of the
        targets' variance the critics leave unexplained: the best early warning of a broken critic."""
        batch = self._batch_of(self._index[0])
        batch |= self._proposals(batch, self._noise[0]["actions"])
        target = self._targets(batch)["target"][:-1]
        error = self.policy.values(self.policy.critic, batch["critic"], batch["action"])[:-1] - target
        self.counts.note_errors(batch["key"], error.abs().mean(0))
        self.counts.residual.copy_(error.var() / target.var().clamp(min=1e-12))

    def callbacks(self) -> tuple[Any, ...]:
        return (GoalGuide(self),)

    # What is known of the tasks

    def td_errors(self) -> dict[str, float]:
        """The moving TD error of every task that was learnt from."""
        return self._by_task(self.counts.error, self.counts.known > 0)

    def samples(self) -> dict[str, float]:
        """How many transitions of every task were learnt from, with repetitions."""
        return self._by_task(self.counts.used, self.counts.used > 0)

    def _by_task(self, values: Tensor, where: Tensor) -> dict[str, float]:
        listed, there = values.tolist(), where.tolist()
        return {name: listed[key] for key, name in self.facts.names.items() if there[key]}

    def metrics(self) -> dict[str, Tensor]:
        found = super().metrics()
        if found:
            seen, used, errors = self.counts.seen, self.counts.used, self.counts.error
            is_seen, is_used = torch.stack((seen > 0, used > 0)).tolist()
            for key, name in self.facts.names.items():
                if is_seen[key]:
                    found[f"seen/{name}"] = seen[key].clone()
                if is_used[key]:
                    found |= {f"samples/{name}": used[key].clone(), f"td_error/{name}": errors[key].clone()}
            found["residual_variance"] = self.counts.residual.clone()
        return found

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"rounds": self._rounds, "counted_rows": self._counted_rows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        # checkpoints of earlier versions counted nothing that was collected: begin with what their replay holds
        counts = {"seen": torch.zeros_like(self.counts.seen)} | dict(state["counts"])
        super().load_state_dict({**state, "counts": counts})
        self._rounds, self._counted_rows = state["rounds"], state.get("counted_rows", 0)


class TaskTemperatures(nn.Module):
    """The weight of the entropy as its logarithm: one for all tasks, or one for each of `num_keys`."""

    def __init__(self, initial: float, num_keys: int | None = None) -> None:
        super().__init__()
        self.log_value = nn.Parameter(torch.full((num_keys or 1,), math.log(initial)))
        self.num_keys = num_keys

    def forward(self, keys: Tensor) -> Tensor:
        """The temperature of each row, [n]."""
        value = self.log_value.exp()
        # a product, not a look-up: its gradient is a product too, the same sum in the same order every time
        return value.expand(len(keys)) if self.num_keys is None else self._one_hot(keys) @ value

    def mean_per_task(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The mean over all rows [n]; with a temperature for each task, the sum over tasks of their rows' means."""
        if self.num_keys is None:
            return rows.mean()
        one_hot = self._one_hot(keys)
        return (rows / (one_hot @ one_hot.sum(0))).sum()

    def _one_hot(self, keys: Tensor) -> Tensor:
        return (keys[:, None] == torch.arange(self.num_keys or 1, device=keys.device)).float()


class TaskCounts(nn.Module):
    """What is counted of every task, by key: transitions collected, transitions learnt from, and the moving TD error;
    and the share of the targets' variance that the critics leave unexplained."""

    seen: Tensor
    used: Tensor
    error: Tensor
    known: Tensor
    residual: Tensor

    def __init__(self, num_keys: int) -> None:
        super().__init__()
        self.register_buffer("residual", torch.zeros(()))
        for name in ("seen", "used", "error", "known"):
            dtype = torch.float64 if name in ("seen", "used") else torch.float32
            self.register_buffer(name, torch.zeros(num_keys, dtype=dtype))

    def note_errors(self, keys: Tensor, errors: Tensor) -> None:
        """Errors [n] of transitions of the tasks `keys` [n]; the first one of a task stands as it is."""
        count = torch.zeros_like(self.error).index_add_(0, keys, torch.ones_like(errors))
        mean = torch.zeros_like(self.error).index_add_(0, keys, errors) / count.clamp(min=1.0)
        moved = torch.where(self.known > 0, self.error.lerp(mean, TD_RATE), mean)
        self.error.copy_(torch.where(count > 0, moved, self.error))
        self.known.copy_(torch.maximum(self.known, (count > 0).float()))
