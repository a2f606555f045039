"""Proximal policy optimisation: a list of loss terms over minibatches of one rollout.

Schulman et al. 2017, "Proximal policy optimization algorithms"; time limits bootstrap from the final observation (Pardo
et al. 2018, "Time limits in reinforcement learning").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from gaitway.agents.actor_critic import ActorCritic
from gaitway.agents.branch import Branch
from gaitway.algorithms.algorithm import (
    LossTerm,
    NotNegativeCoefficient,
    Now,
    PositiveCoefficient,
    Schedule,
    value_at,
)
from gaitway.algorithms.direct_gradient import DirectGradient
from gaitway.algorithms.engine import Engine, copied_state
from gaitway.algorithms.estimation import estimation_terms
from gaitway.algorithms.exploration_noise import noise_in_degrees
from gaitway.algorithms.learning_rates import adapted_rate, decayed
from gaitway.algorithms.memory_noise import MemoryNoise
from gaitway.algorithms.reward_streams import MAIN, RewardGroup, RewardStream, check_groups
from gaitway.algorithms.terms import (
    ActionBound,
    Entropy,
    Surrogate,
    Terms,
    Transform,
    ValueLoss,
    policy_weight,
    standardised,
    standardised_advantage,
    with_further,
)
from gaitway.core.config import configuration
from gaitway.core.execution import Execution
from gaitway.core.plain import objects_given
from gaitway.core.ranges import INCREASING, Count, NotNegative, Positive, Share, WholeNumber
from gaitway.core.ranks import here, own_stream
from gaitway.core.seeding import restore_stream
from gaitway.core.transitions import final_observations
from gaitway.core.workspace import Workspace
from gaitway.data.rollout import Minibatches, check_minibatches
from gaitway.functional.policy_losses import explained_variance, weighted_mean
from gaitway.nn.normalise import ReturnScaler, ValueNorm


@configuration
class PPOConfig:
    """Proximal policy optimisation: on-policy, clipped, from one rollout at a time."""

    name: Literal["ppo"] = "ppo"
    rollout_steps: Count = 32
    """Steps per environment and iteration (T)."""
    epochs: Count = 5
    """Passes over each rollout."""
    minibatches: Count = 4
    """Minibatches per pass; must divide T * B (feed-forward) or B (with memory)."""
    learning_rate: PositiveCoefficient = 3e-4
    """Initial rate, or a schedule of it, which takes the place of `schedule`."""
    schedule: Literal["constant", "linear", "cosine", "adaptive"] = "linear"
    """How the rate moves: to zero along a line or a cosine, or up and down with the KL divergence."""
    desired_kl: Positive = 0.01
    """Target of the adaptive schedule: above twice this the rate falls by 1.5, below half it rises by 1.5."""
    learning_rate_range: Annotated[tuple[Positive, Positive], INCREASING] = (1e-5, 1e-2)
    """Bounds of the adaptive schedule."""
    gamma: Share = 0.99
    """Discount."""
    lam: Share = 0.95
    """Trace decay of the advantage estimate."""
    clip: Positive = 0.2
    """How far the probability ratio may move before its gradient is cut."""
    value_coef: NotNegative = 0.5
    value_clip: Positive | None = None
    """Limit on one update's change of the value, in the critic's units; null for none."""
    entropy_coef: NotNegativeCoefficient = 0.0
    action_bound_coef: NotNegative = 0.0
    """Weight of the penalty on mean actions beyond the limits."""
    max_grad_norm: Positive = 0.5
    clip_networks_apart: bool = False
    """Limit the gradients of critic and actor each by itself, so that a large error of one does not slow the other."""
    normalise_advantage: Literal["rollout", "minibatch", "none"] = "rollout"
    recompute_advantage: bool = False
    """Run the critic and the advantage estimate again before every pass (feed-forward only)."""
    normalise_value: bool = False
    """The critic predicts returns in units of their running standard deviation."""
    scale_reward: bool = False
    """Divide rewards by the running standard deviation of the discounted return."""
    target_kl: Positive | None = None
    """Stop the passes of an iteration once the mean KL of a pass exceeds this; null for never."""
    optimiser: Literal["adam", "adamw", "sgd", "rmsprop"] = "adam"
    momentum: Share = 0.0
    """Of sgd."""
    weight_decay: NotNegative = 0.0
    adam_eps: Positive = 1e-5
    reward_groups: tuple[RewardGroup, ...] = ()
    """Reward sources that are valued apart, {name: ..., sources: [...], weight: ..., gamma: ..., lam: ..., episodic:
    ...}, each with a critic of its own."""
    critic_warmup: WholeNumber = 0
    """Iterations at the beginning in which the critic alone learns, for a policy that can already do something."""
    memory_noise: Share = 0.0
    """How often a sequence of a minibatch begins with noise in the place of what was remembered."""
    terms: tuple[dict[str, Any] | str, ...] = ()
    """Further losses, {name: ..., coef: ..., option: value}; one with the name of a standard loss takes its place."""

    def __post_init__(self) -> None:
        if self.critic_warmup and self.weight_decay:
            raise ValueError(
                "critic_warmup keeps the actor as it is, which weight_decay does not; set one of them to 0"
            )
        if self.scale_reward and self.normalise_value:
            raise ValueError("scale_reward and normalise_value do the same job twice; switch one of them off")
        check_groups(self.reward_groups)
        if self.momentum and self.optimiser != "sgd":
            raise ValueError(
                f"momentum is {self.momentum}, which {self.optimiser} does not have; use optimiser=sgd, or 0"
            )
        if isinstance(self.learning_rate, Schedule) and self.schedule == "adaptive":
            raise ValueError("learning_rate is a schedule, and schedule=adaptive moves it too; use schedule=constant")


class PPO:
    """Learns from one rollout at a time.

    `terms` come behind the standard ones (surrogate, value, entropy, action bound); one of the same name takes their
    place. Advantages, rewards and old log-probabilities are computed here, once per rollout: terms see finished
    numbers.
    """

    needs_whole_episodes = False

    def __init__(
        self,
        policy: ActorCritic,
        config: PPOConfig | None = None,
        *,
        num_envs: int,
        terms: Sequence[LossTerm] = (),
        seed: int = 0,
        execution: Execution | None = None,
    ) -> None:
        self.policy = policy
        self.device = next(policy.parameters()).device
        self.execution = execution or Execution(device=self.device)
        self.config = config = config or PPOConfig()
        self.num_envs = num_envs
        if policy.is_recurrent and config.recompute_advantage:
            raise ValueError("algorithm.recompute_advantage needs a feed-forward critic; set it to false")
        rows, what = self.config.rollout_steps * num_envs, "samples of a rollout (steps x environments)"
        if policy.is_recurrent:
            rows, what = num_envs, "environments (a policy with memory learns from whole environments)"
        check_minibatches(rows, config.minibatches, what)
        transforms: list[Transform] = [standardised_advantage] if config.normalise_advantage == "minibatch" else []
        self.noise: MemoryNoise | None = None
        if config.memory_noise:
            self.noise = MemoryNoise(policy, config.memory_noise, own_stream(seed, "memory noise", self.device))
            transforms.append(self.noise)
        self.terms = Terms(with_further(standard_terms(config, policy), terms), policy, self.device, transforms)
        # a value at a time limit is that of the final observation
        self.reads = (*self.terms.reads, *final_observations(policy.critic_groups))
        self.objects = objects_given(term=terms)
        self.batches = Minibatches(config.minibatches, "columns" if policy.is_recurrent else "samples")
        self.engine = Engine(
            policy,
            self.terms.loss,
            learning_rate=value_at(config.learning_rate, Now()),
            max_grad_norm=config.max_grad_norm,
            optimiser=config.optimiser,
            eps=config.adam_eps,
            weight_decay=config.weight_decay,
            momentum=config.momentum,
            clip_apart=("critic.",) if config.clip_networks_apart else (),
            before_step=self._adapt_rate if config.schedule == "adaptive" else None,
            execution=self.execution,
        )
        if config.critic_warmup:
            self.engine.mask = self.engine.parameters.mask(self.engine.parameters.names)
            self._critic_alone = self.engine.parameters.mask(policy.critic_parameters())
        self._direct = DirectGradient.of(policy, self.terms, self.execution)
        self._fuse()
        self._prepare = self.execution.program(self._prepare_rollout, "PPO's preparation of a rollout")
        self._estimate = self.execution.program(self._estimate_advantages, "PPO's new estimate of advantages")
        drawn = [] if self.noise is None else [self.noise.generator]
        self._pass = self.execution.program(self._step_all, "a pass of PPO over its minibatches", drawn)
        self.streams = [self._stream(None), *map(self._stream, config.reward_groups)]
        if policy.config.critics != len(self.streams):
            raise ValueError(
                f"the policy has {policy.config.critics} critics, but algorithm.reward_groups asks for "
                f"{len(self.streams)}, one for each group and one for the rest; set agent.critics to that"
            )
        self.reads += tuple(each.variable for each in self.streams) if config.reward_groups else ()
        self.generator = own_stream(seed, "minibatch", self.device)
        self._data = Workspace()
        self._fields: dict[str, Tensor] = {}

    @property
    def value_norm(self) -> ValueNorm | None:
        """The units of the critic, of the first one if there are several."""
        return self.streams[0].norm

    @property
    def reward_groups(self) -> dict[str, tuple[str, ...]]:
        """Which reward sources are valued apart, by group."""
        return {group.name: group.sources for group in self.config.reward_groups}

    def _stream(self, group: RewardGroup | None) -> RewardStream:
        config = self.config
        chosen: Any = config if group is None else group
        return RewardStream(
            "reward/total" if not config.reward_groups else f"reward/total/{MAIN if group is None else group.name}",
            chosen.gamma,
            chosen.lam,
            name=MAIN if group is None else group.name,
            weight=1.0 if group is None else group.weight,
            episodic=group is None or group.episodic,
            scale=ReturnScaler(self.num_envs, chosen.gamma).to(self.device) if config.scale_reward else None,
            norm=ValueNorm().to(self.device) if config.normalise_value else None,
        )

    def update(self, data: Workspace, now: Now) -> dict[str, Tensor]:
        """Learn from a rollout; returns mean losses and statistics as tensors."""
        with self.execution.numerics():
            return self._update(data, now)

    def _update(self, data: Workspace, now: Now) -> dict[str, Tensor]:
        config = self.config
        self.terms.begin(now)
        if isinstance(config.learning_rate, Schedule):
            self.engine.set_learning_rate(config.learning_rate(now))
        elif config.schedule in ("linear", "cosine"):
            self.engine.set_learning_rate(decayed(config.learning_rate, config.schedule, now.fraction))
        if config.critic_warmup:
            self._warm_up(now.iteration)
        # a path written by hand stands in for the policy's own methods only as long as these are the ones it knows
        direct = self._direct is not None and self._direct.suits(self.policy)
        self.engine.direct = self._direct if direct and (here().is_alone or "env/valid" not in data) else None
        self._fuse()
        self.prepare(data)
        last_epoch = config.epochs
        for epoch in range(config.epochs):
            if epoch and config.recompute_advantage:
                self._estimate.on(data)()
            if epoch == 0 or config.recompute_advantage:
                self.batches.pack(self._fields, self.policy.column_fields)
            self.batches.shuffle(self.generator)
            self._pass.on(self.terms.constants, self.batches.version)()
            if config.target_kl is not None and self._mean_kl() > config.target_kl:
                last_epoch = epoch + 1
                break
        metrics = self.engine.read()
        metrics["learning_rate"] = self.engine.learning_rate.clone()
        metrics["epochs"] = torch.full((), float(last_epoch), device=self.device)
        for name, explained in zip(self._explained_names, self._explained, strict=True):
            metrics[name] = explained.clone()
        params = self._fields["params"]
        std = self.policy.head.std(params)
        if std is not None:
            metrics["std"] = std.mean()
            metrics |= noise_in_degrees(self.policy.spec.action, std)
            metrics["std_at_bound"] = self.policy.head.at_bound(params) / std.numel()
        self.policy.update_normalisers(data)
        return metrics

    def _fuse(self) -> None:
        """The same of layers that are one kernel with what stands behind them."""
        for branch in (self.policy.actor, self.policy.critic):
            if isinstance(branch, Branch):
                branch.fuse(self.execution.fuses)

    def prepare(self, data: Workspace) -> dict[str, Tensor]:
        """The fields that minibatches are cut from: network inputs, old log-probabilities, advantages, returns."""
        self._data = data
        self._prepare.on(data)()
        return self._fields

    @torch.no_grad()
    def _prepare_rollout(self) -> None:
        """Everything that is computed once per rollout."""
        ws, policy = self._data, self.policy
        self._rewards = [each.reward(ws) for each in self.streams]
        self._observed = policy.observed(ws)
        raw, params = policy.raw_actions(ws), ws[policy.out("policy/params")]
        self._fields = policy.learner_inputs(ws, self._observed) | self.terms.fields(ws)
        self._fields |= {"raw": raw, "params": params, "log_prob": policy.head.log_prob(params, raw)}
        self._estimate_advantages()

    @torch.no_grad()
    def _estimate_advantages(self) -> None:
        """Fill in `value`, `advantage` and `return` (all [T, B]) and the explained variance.

        `value` is what the critic said and `return` its learning target, both in its own units; with reward groups both
        are [T, B, G], and `advantage` is the weighted sum.
        """
        ws, fields = self._data, self._fields
        if len(self.streams) == 1:
            value, following = self.policy.values(ws, self._observed)
            estimates = [self.streams[0].estimate(ws, self._rewards[0], value, following)]
            advantage, goal = estimates[0].advantage, estimates[0].goal
        else:
            rows, following = self.policy.row_values(ws, self._observed)
            value = rows[:-1]
            said = (value.unbind(-1), following.unbind(-1), rows[1:].unbind(-1))
            parts = zip(self.streams, self._rewards, *said, strict=True)
            estimates = [one.estimate(ws, *part) for one, *part in parts]
            weighted = [one.weight * each.advantage for one, each in zip(self.streams, estimates, strict=True)]
            advantage = torch.stack(weighted).sum(0)
            goal = torch.stack([each.goal for each in estimates], -1)
        if self.config.normalise_advantage == "rollout":
            advantage = standardised(advantage, policy_weight(fields))
        for name, new in (("value", value), ("advantage", advantage), ("return", goal)):
            if name in fields:  # a new estimate takes the place of the old one: recordings know that place
                fields[name].copy_(new)
            else:
                fields[name] = new
        self._explained = [explained_variance(each.value, each.target, fields.get("weight")) for each in estimates]

    @property
    def _explained_names(self) -> list[str]:
        """One for each critic."""
        return ["explained_variance", *(f"explained_variance/{each.name}" for each in self.streams[1:])]

    def _step_all(self) -> None:
        for batch in self.batches.batches:
            self.engine.step(batch)

    def _warm_up(self, iteration: int) -> None:
        """Let the critic alone move in the first iterations; behind them Adam begins anew, because its count of steps
        would let the actor's first ones be several times too long."""
        assert self.engine.mask is not None
        if iteration < self.config.critic_warmup:
            self.engine.mask.copy_(self._critic_alone)
        else:
            self.engine.mask.fill_(1.0)
        if iteration == self.config.critic_warmup:
            self.engine.reset_optimiser()

    def _adapt_rate(self, statistics: dict[str, Tensor], rate: Tensor) -> None:
        rate.copy_(adapted_rate(rate, statistics["kl"], self.config.desired_kl, self.config.learning_rate_range))

    @torch.no_grad()
    def _mean_kl(self) -> float:
        policy, fields = self.policy, self._fields
        params, _ = policy.evaluate(fields)
        return float(here().mean_(weighted_mean(policy.head.kl(fields["params"], params), policy_weight(fields))))

    def flat_parameters(self) -> list[Tensor]:
        return [self.engine.parameters.value.detach()]

    def reset_running_returns(self) -> None:
        """Every environment begins a new episode: drop the returns that were under way."""
        for each in self.streams:
            if each.scale is not None:
                each.scale.running.zero_()

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "policy": copied_state(self.policy),
            "engine": self.engine.state_dict(),
            "minibatch_stream": self.generator.get_state(),
            **self.streams[0].state_dict(),
        }
        if self.config.reward_groups:
            state["reward_groups"] = {each.name: each.state_dict() for each in self.streams[1:]}
        if self.noise is not None:
            state["memory_noise_stream"] = self.noise.generator.get_state()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.policy.load_state_dict(state["policy"])
        self.engine.load_state_dict(state["engine"])
        restore_stream(self.generator, state["minibatch_stream"])
        if self.noise is not None:
            restore_stream(self.noise.generator, state["memory_noise_stream"])
        self.streams[0].load_state_dict(dict(state))
        for each in self.streams[1:]:
            each.load_state_dict(state["reward_groups"][each.name])


def standard_terms(config: PPOConfig, policy: ActorCritic) -> list[LossTerm]:
    """Surrogate, value, entropy, if it has a weight the action bound, and one for each estimator."""
    terms: list[LossTerm] = [
        Surrogate(config.clip),
        ValueLoss(config.value_clip, config.value_coef),
        Entropy(config.entropy_coef),
    ]
    if config.action_bound_coef:
        if not policy.head.raw_is_action:
            raise ValueError("this distribution never leaves the limits; set algorithm.action_bound_coef to 0")
        terms.append(ActionBound(policy.spec.action, config.action_bound_coef))
    return terms + estimation_terms(policy)
