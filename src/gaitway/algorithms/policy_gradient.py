"""What REINFORCE and A2C share: one gradient step on all of a rollout, then the rollout is forgotten.

An algorithm writes `prepare`, the numbers that are constants of the update, and `losses`, its equations. Running the
policy over the rollout, the schedule, the optimiser, recordings and state are done here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from gaitway.agents.actor_critic import ActorCritic
from gaitway.algorithms.algorithm import Batch, Coefficient, Now, value_at
from gaitway.algorithms.engine import Engine, copied_state
from gaitway.algorithms.ppo import decayed
from gaitway.core.execution import Execution
from gaitway.core.workspace import Workspace
from gaitway.nn.normalise import ReturnScaler


@dataclass(frozen=True)
class PolicyGradientConfig:
    """How an algorithm that makes one gradient step per rollout plays and learns."""

    rollout_steps: int = 8
    """Steps per environment and iteration (T)."""
    learning_rate: float = 1e-3
    """Initial rate."""
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    """How the rate moves: not at all, or to zero along a line or a cosine."""
    gamma: float = 0.99
    """Discount."""
    value_coef: float = 0.5
    entropy_coef: Coefficient = 0.0
    scale_reward: bool = False
    """Divide rewards by the running standard deviation of the discounted return."""
    max_grad_norm: float | None = 0.5
    """Limit of the gradient's norm; null for none."""
    optimiser: Literal["adam", "adamw"] = "adam"
    weight_decay: float = 0.0
    adam_eps: float = 1e-5

    def __post_init__(self) -> None:
        if self.rollout_steps < 1:
            raise ValueError(f"rollout_steps is {self.rollout_steps}; use at least 1")
        if self.learning_rate <= 0:
            raise ValueError(f"learning_rate is {self.learning_rate}; use a positive number such as 1e-3")
        if self.max_grad_norm is not None and self.max_grad_norm <= 0:
            raise ValueError(f"max_grad_norm is {self.max_grad_norm}; use a positive number, or null for no limit")
        self.check_fraction("gamma")

    def check_fraction(self, key: str) -> None:
        if not 0.0 <= getattr(self, key) <= 1.0:
            raise ValueError(f"{key} is {getattr(self, key)}; use a number from 0 to 1")


class PolicyGradient:
    """Learns from one rollout at a time; a leaf class writes `prepare` and `losses`."""

    config: PolicyGradientConfig
    needs_whole_episodes = False
    reads: tuple[str, ...] = ()

    def __init__(
        self, policy: ActorCritic, config: PolicyGradientConfig, *, num_envs: int, execution: Execution | None
    ) -> None:
        self.policy, self.config, self.num_envs = policy, config, num_envs
        self.device = next(policy.parameters()).device
        self.execution = execution or Execution(device=self.device)
        self.engine = Engine(
            policy,
            self._loss,
            learning_rate=config.learning_rate,
            max_grad_norm=config.max_grad_norm,
            optimiser=config.optimiser,
            eps=config.adam_eps,
            weight_decay=config.weight_decay,
            execution=self.execution,
        )
        self.entropy_coef = torch.zeros((), device=self.device)
        self.reward_scale = ReturnScaler(num_envs, config.gamma).to(self.device) if config.scale_reward else None
        self._learn = self.execution.program(self._step, f"an update of {type(self).__name__}")
        self._data = Workspace()
        self._place: tuple[int, ...] = ()

    def prepare(self, ws: Workspace) -> Batch:
        """Constants of the update [T, B]; `weight` among them where some rows do not count. Called without gradient."""
        raise TypeError(f"{type(self).__name__} does not implement prepare")

    def losses(self, batch: Batch, log_prob: Tensor, entropy: Tensor, value: Tensor) -> tuple[Batch, Batch]:
        """The scalars `policy`, `value` (where one is learnt) and `entropy`, all to be minimised, and statistics, from
        what was prepared and what the policy says of the rollout, [T, B] each."""
        raise TypeError(f"{type(self).__name__} does not implement losses")

    # Called by the runner

    def update(self, data: Workspace, now: Now) -> dict[str, Tensor]:
        """One gradient step on a rollout; returns losses and statistics as tensors."""
        config = self.config
        self.entropy_coef.fill_(value_at(config.entropy_coef, now))
        if config.schedule != "constant":
            self.engine.set_learning_rate(decayed(config.learning_rate, config.schedule, now.fraction))
        self._attach(data)
        self._learn()
        metrics = self.engine.read()
        metrics["learning_rate"] = self.engine.learning_rate.clone()
        params = data[self.policy.out("policy/params")]
        std = self.policy.head.std(params)
        if std is not None:
            metrics["std"] = std.mean()
            metrics["std_at_bound"] = self.policy.head.at_bound(params) / std.numel()
        self.policy.update_normalisers(data)  # last, so that the policy that is learnt from is the one that acted
        return metrics

    def flat_parameters(self) -> list[Tensor]:
        return [self.engine.parameters.value.detach()]

    def reset_running_returns(self) -> None:
        """Every environment begins a new episode: drop the returns that were under way."""
        if self.reward_scale is not None:
            self.reward_scale.running.zero_()

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"policy": copied_state(self.policy), "engine": self.engine.state_dict()}
        if self.reward_scale is not None:
            state["reward_scale"] = copied_state(self.reward_scale)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.policy.load_state_dict(state["policy"])
        self.engine.load_state_dict(state["engine"])
        if self.reward_scale is not None:
            self.reward_scale.load_state_dict(state["reward_scale"])
        self._learn.forget()  # it may know of an optimiser that had no state yet

    # For the leaf classes

    def reward(self, ws: Workspace) -> Tensor:
        """What is learnt from [T, B]: the sum of the reward sources where there are some, perhaps scaled. Asked for
        once per update, because the scale takes every rollout into its statistics."""
        reward = ws["reward/total"] if "reward/total" in ws else ws["env/reward"]
        if self.reward_scale is None:
            return reward
        if self.needs_whole_episodes:
            self.reset_running_returns()
        return self.reward_scale.scale(reward, ws["env/done"], ws["env/valid"] if "env/valid" in ws else None)

    # Private

    def _attach(self, data: Workspace) -> None:
        """Learn from `data`; a recording that reads from other memory is dropped."""
        self._data = data
        if self.execution.captures:
            place = tuple(data[name].data_ptr() for name in data)
            if place != self._place:
                self._place = place
                self._learn.forget()

    def _step(self) -> None:
        with torch.no_grad():
            batch = self._inputs(self._data) | self.prepare(self._data)
        self.engine.step(batch)

    def _inputs(self, ws: Workspace) -> Batch:
        """What the policy needs to run over the rollout again; with memory, from the state stored before row 0."""
        policy = self.policy
        fields = policy.learner_inputs(ws) | {"raw": policy.raw_actions(ws)}
        if policy.is_recurrent:
            fields["starts"] = policy.starts(ws)
            fields |= {f"memory/{which}": ws[policy.out(f"{which}/memory")][0] for which in ("actor", "critic")}
        return fields

    def _loss(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        output, value = self.policy.outputs(batch)
        _, log_prob, entropy = self.policy.head.score(output, batch["raw"])
        losses, statistics = self.losses(batch, log_prob, entropy, value)
        weights: dict[str, float | Tensor] = {
            "policy": 1.0,
            "value": self.config.value_coef,
            "entropy": self.entropy_coef,
        }
        total = torch.stack([weights[name] * loss for name, loss in losses.items()]).sum()
        statistics |= {f"loss/{name}": loss.detach() for name, loss in (losses | {"total": total}).items()}
        return total, statistics
