"""Soft actor-critic: off-policy, for continuous and discrete actions, with a learnt temperature.

Haarnoja et al. 2018, "Soft actor-critic algorithms and applications". One update draws a batch of transitions and makes
a step of the temperature, of the critics and of the actor, in this order; then the target critics follow a little. All
three see the actor and the temperature as they were before the update, the actor sees the new critics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gaitway.agents.soft_actor_critic import SoftActorCritic
from gaitway.algorithms.algorithm import Batch, Now
from gaitway.algorithms.direct_soft_steps import DirectSteps
from gaitway.algorithms.engine import Engine, FlatParameters, copied_state
from gaitway.algorithms.soft_steps import ContinuousSteps, DiscreteSteps, Loss
from gaitway.core.execution import Execution
from gaitway.core.seeding import stream
from gaitway.data.step_gather import TransitionBatch
from gaitway.data.step_replay import StepReplay
from gaitway.functional.soft_losses import temperature_gradient

Steps = ContinuousSteps | DiscreteSteps | DirectSteps


@dataclass(frozen=True)
class SACConfig:
    """Soft actor-critic: off-policy, from a replay of everything seen lately."""

    name: Literal["sac"] = "sac"
    update_ratio: float = 1.0
    """Updates per environment step."""
    batch_size: int = 256
    replay_size: int = 1_000_000
    """Transitions that are kept."""
    learning_starts: int = 1000
    """Environment steps with uniform actions before learning begins."""
    steps_per_round: int = 1
    """Steps of every environment between updates."""
    iteration_steps: int = 1000
    """Environment steps, of all environments together, between log lines."""
    overlap: bool = False
    """Make the updates of a round while the next step is simulated, so that a GPU learns while the CPU simulates. The
    policy then acts one round behind, in every run alike."""
    gamma: float = 0.99
    """Discount."""
    tau: float = 0.005
    """How far the target critics follow at each update."""
    n_step: int = 1
    """Rewards that are added up before the critics take over."""
    actor_learning_rate: float = 3e-4
    critic_learning_rate: float = 3e-4
    temperature_learning_rate: float = 3e-4
    initial_temperature: float = 1.0
    learn_temperature: bool = True
    """False keeps the temperature as it is."""
    target_entropy: float | None = None
    """Where a learnt temperature drives the policy's entropy. Null: minus the number of action dimensions, with actions
    in units of half their range; with discrete actions `discrete_entropy` times the greatest, log A."""
    discrete_entropy: float = 0.5
    """The 0.98 of the literature keeps the policy all but uniform where few actions are good."""
    max_grad_norm: float | None = None
    """Limit of the gradient's norm, of actor and critics each; null for none."""
    optimiser: Literal["adam", "adamw"] = "adam"
    weight_decay: float = 0.0
    adam_eps: float = 1e-8
    updates_per_program: int = 16
    """Updates recorded together as one CUDA graph; what is left over runs one by one."""

    def __post_init__(self) -> None:
        for key in ("batch_size", "replay_size", "steps_per_round", "iteration_steps", "n_step", "updates_per_program"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} is {getattr(self, key)}; use at least 1")
        for key in ("actor_learning_rate", "critic_learning_rate", "temperature_learning_rate", "initial_temperature"):
            if getattr(self, key) <= 0:
                raise ValueError(f"{key} is {getattr(self, key)}; use a positive number")
        if self.update_ratio <= 0:
            raise ValueError(f"update_ratio is {self.update_ratio}; use a positive number such as 1")
        if self.learning_starts < 0:
            raise ValueError(f"learning_starts is {self.learning_starts}; use 0 or more steps")
        if not 0.0 <= self.gamma <= 1.0:
            raise ValueError(f"gamma is {self.gamma}; use a number from 0 to 1")
        if not 0.0 < self.tau <= 1.0:
            raise ValueError(f"tau is {self.tau}; use a number above 0 and up to 1, such as 0.005")
        if not 0.0 <= self.discrete_entropy <= 1.0:
            raise ValueError(f"discrete_entropy is {self.discrete_entropy}; use a number from 0 to 1")
        if self.max_grad_norm is not None and self.max_grad_norm <= 0:
            raise ValueError(f"max_grad_norm is {self.max_grad_norm}; use a positive number, or null for no limit")


class SAC:
    """Learns from batches of a replay."""

    reads: tuple[str, ...] = ()

    def __init__(
        self,
        policy: SoftActorCritic,
        config: SACConfig | None = None,
        *,
        num_envs: int,
        execution: Execution | None = None,
        seed: int = 0,
    ) -> None:
        self.policy, self.num_envs, self.seed = policy, num_envs, seed
        self.config = config = config or SACConfig()
        self.device = next(policy.parameters()).device
        self.execution = execution or Execution(device=self.device)
        if self.device.type == "cpu":
            _keep_freed_memory()
        self.target_entropy = target_entropy(policy, config)
        self.temperature = Temperature(config.initial_temperature).to(self.device)
        self.temperature_engine = Engine(
            self.temperature,
            _unset,
            learning_rate=config.temperature_learning_rate,
            max_grad_norm=None,
            eps=config.adam_eps,
        )
        self.target = FlatParameters(policy.target, gradients=False)
        self.critic_engine = self._engine(policy.critic, config.critic_learning_rate)
        self.actor_engine = self._engine(policy.actor, config.actor_learning_rate)
        self.steps = self._make_steps()
        self._prepare = self.execution.compiled(self.steps.prepare)
        self.generator = stream(seed, "sac", self.device)
        updates, batch_size = config.updates_per_program, config.batch_size
        self._index = torch.zeros(updates, batch_size, dtype=torch.int64, device=self.device)
        self._noise = torch.zeros(updates, 2, batch_size, *self.steps.noise_shape, device=self.device)
        self._many = self.execution.program(self._update_many, f"{updates} updates of SAC")
        self._one = self.execution.program(self._update_one, "an update of SAC")
        self._replay: StepReplay | None = None
        self._replay_version = 0
        self._batch: TransitionBatch | None = None
        self._has_news = False

    def make_replay(self, device: torch.device | str | None = None) -> StepReplay:
        """An empty replay for what the policy reads and does."""
        device = torch.device(device or self.device)
        generator = stream(self.seed, "replay", device)
        size, gamma = self.config.replay_size, self.config.gamma
        return StepReplay(size, **self._replay_arguments(), gamma=gamma, device=device, generator=generator)

    def replay_bytes(self, size: int) -> int:
        """What a replay of `size` transitions takes."""
        return StepReplay.bytes_needed(size, **self._replay_arguments())

    def _replay_arguments(self) -> dict[str, Any]:
        spec = self.policy.spec
        return {
            "num_envs": self.num_envs,
            "groups": {name: (spec.group(name).shape, spec.group(name).torch_dtype) for name in self.policy.all_groups},
            "action": (spec.action.shape, spec.action.dtype),
            "n_step": self.config.n_step,
            "max_episode_steps": spec.max_episode_steps or None,
            "reset_rows": spec.reset_rows,
        }

    def update(self, replay: StepReplay, updates: int, now: Now) -> None:
        """Make `updates` updates; statistics add up until `metrics` is called.

        Indices and noise are drawn update by update, so that how updates are grouped does not change what is learnt.
        """
        self._attach(replay)
        self._has_news |= updates > 0
        together = self.config.updates_per_program
        for _ in range(updates // together):
            self._draw(together)
            self._many()
        for _ in range(updates % together):
            self._draw(1)
            self._one()

    def metrics(self) -> dict[str, Tensor]:
        """Mean losses and statistics since the last call, as tensors; nothing without an update."""
        found: dict[str, Tensor] = {}
        if not self._has_news:
            return found
        self._has_news = False
        for name, engine in (("actor", self.actor_engine), ("critic", self.critic_engine)):
            read = engine.read()
            found |= {f"{key}/{name}" if key == "gradient_norm" else key: value for key, value in read.items()}
        return found

    def learnt(self) -> list[Tensor]:
        """All that is learnt, as flat tensors."""
        return [*(engine.parameters.value.detach() for engine in self._engines().values()), self.target.value.detach()]

    def forget_running(self) -> None:
        """Every environment begins a new episode; nothing here depends on it."""

    def state_dict(self) -> dict[str, Any]:
        state = {"policy": copied_state(self.policy), "temperature": copied_state(self.temperature)}
        engines = {name: engine.state_dict() for name, engine in self._engines().items()}
        return state | {"engines": engines, "noise_stream": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.policy.load_state_dict(state["policy"])
        self.temperature.load_state_dict(state["temperature"])
        for name, engine in self._engines().items():
            engine.load_state_dict(state["engines"][name])
        self.generator.set_state(state["noise_stream"])
        self._forget_programs()  # they may know of an optimiser that had no state yet

    def _engine(self, module: nn.Module, rate: float) -> Engine:
        """Without its loss, which is made of views of the parameters that the engine makes flat."""
        config = self.config
        return Engine(
            module,
            _unset,
            learning_rate=rate,
            max_grad_norm=config.max_grad_norm,
            optimiser=config.optimiser,
            eps=config.adam_eps,
            weight_decay=config.weight_decay,
        )

    def _engines(self) -> dict[str, Engine]:
        return {"actor": self.actor_engine, "critic": self.critic_engine, "temperature": self.temperature_engine}

    def _attach(self, replay: StepReplay) -> None:
        """Learn from `replay` from now on; recordings that read from other memory are dropped."""
        if replay is self._replay and replay.version == self._replay_version:
            return
        if replay.device != self.device:
            raise ValueError(
                f"the replay lies on {replay.device}, the networks on {self.device}; make it with make_replay()"
            )
        self._replay, self._replay_version = replay, replay.version
        self._batch = replay.batch(self.config.batch_size)
        self._forget_programs()

    def _forget_programs(self) -> None:
        self._many.forget()
        self._one.forget()

    def _draw(self, updates: int) -> None:
        """Indices and noise of the next `updates` updates, into memory that recordings read."""
        assert self._replay is not None
        for index, noise in zip(self._index[:updates], self._noise, strict=False):
            self._replay.draw((self.config.batch_size,), out=index)
            if self.steps.noise_shape:
                noise.normal_(generator=self.generator)

    def _update_many(self) -> None:
        for index, noise in zip(self._index, self._noise, strict=True):
            self._update(index, noise)

    def _update_one(self) -> None:
        self._update(self._index[0], self._noise[0])

    def _update(self, index: Tensor, noise: Tensor) -> None:
        """One update on the transitions `index` [n], with the noise [2, n, A] of actions now and next."""
        assert self._replay is not None
        batch = self._inputs(self._replay.gather(index, self._batch))
        alpha = self.temperature.log_value.detach().exp()
        target, proposal = self._prepare(batch, noise, alpha)
        with torch.no_grad():
            entropy = -proposal["log_prob"].mean()
            if self.config.learn_temperature:
                self._move_temperature(entropy)
        self.critic_engine.step({"critic": batch["critic"], "action": batch["action"], "target": target})
        self.actor_engine.step({"critic": batch["critic"], "alpha": alpha, "entropy": entropy} | proposal)
        with torch.no_grad():
            self.target.value.lerp_(self.critic_engine.parameters.value, self.config.tau)

    def _move_temperature(self, entropy: Tensor) -> None:
        """A gradient step whose gradient is known without differentiating."""
        gradient = self.temperature.log_value.grad
        assert gradient is not None
        gradient.copy_(temperature_gradient(entropy, self.target_entropy))
        self.temperature_engine.optimiser.step()

    def _inputs(self, drawn: Mapping[str, Tensor]) -> Batch:
        """What the networks read of drawn transitions: `actor`, `critic`, `next/actor`, `next/critic`, `action`."""
        policy = self.policy
        batch = {"reward": drawn["reward"], "discount": drawn["discount"], "action": self.steps.action(drawn["action"])}
        for source, prefix in (("obs", ""), ("next_obs", "next/")):
            obs = {name: drawn[f"{source}/{name}"] for name in policy.all_groups}
            batch[f"{prefix}actor"] = batch[f"{prefix}critic"] = policy.inputs(obs, "actor")
            if policy.groups["critic"] != policy.groups["actor"]:
                batch[f"{prefix}critic"] = policy.inputs(obs, "critic")
        return batch

    def _make_steps(self) -> Steps:
        """How losses and gradients are computed: written out where that is possible, else by autograd."""
        policy, execution = self.policy, self.execution
        if execution.mode == "eager" and execution.precision == "fp32":
            direct = DirectSteps.of(policy)
            if direct is not None:
                self.critic_engine.direct, self.actor_engine.direct = direct.critic_gradient, direct.actor_gradient
                return direct
        steps = DiscreteSteps(policy) if policy.is_discrete else ContinuousSteps(policy)
        self.critic_engine.loss = execution.compiled(steps.critic_loss)
        self.actor_engine.loss = execution.compiled(steps.actor_loss)
        return steps


class Temperature(nn.Module):
    """The weight of the entropy, learnt as its logarithm."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log_value = nn.Parameter(torch.tensor(math.log(initial)))


def target_entropy(policy: SoftActorCritic, config: SACConfig) -> float:
    """The entropy that a learnt temperature drives the policy to."""
    if config.target_entropy is not None:
        return config.target_entropy
    action = policy.spec.action
    if policy.is_discrete:
        return config.discrete_entropy * math.log(action.choices[0])
    return -float(len(action.names))


def _unset(batch: Batch) -> Loss:
    raise TypeError("this engine was given no loss")


def _keep_freed_memory() -> None:
    """Let the C library keep blocks of megabytes that are freed, instead of fetching them anew at every update.

    glibc returns large blocks to the kernel, and taking them back costs a page fault per 4 kB: a tenth of an update on
    the CPU. It stops doing so for blocks up to the largest that it has seen come and go, at most 32 MB.
    """
    torch.empty(2**25 - 2**16, dtype=torch.uint8)
