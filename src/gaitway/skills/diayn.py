"""DIAYN and DIAYN-C: skills without a reward, by being told apart.

Eysenbach et al. 2019, "Diversity is all you need"; numbers and order of an update follow HSD-3 (Gehring et al. 2021),
whose DIAYN-C puts skills on a continuous scale (`agent.n_embed`). A policy pursues a skill z for an episode, and a
discriminator q(z|s) guesses it from features of the state:

    reward         log q(z|s) - log p(z)                 with the discriminator as it is at the update, s seen before a
    critics        y = reward + gamma (1 - end) (min Q'(s', a', z) - alpha log pi(a'|s', z))        a' ~ pi(s', z)
    actor          mean(alpha log pi(a|s, z) - min Q(s, a, z))
    temperature    -exp(log alpha) (mean log pi(a|s, z) + target entropy)
    discriminator  -mean log q(z|s)

An update moves critics, actor and temperature, the critics' target, then the discriminator. The environment's reward
has no say. Every end of an episode is terminal, that of its time too: another skill follows. Losses are squared errors
without 1/2, and the temperature's loss is in alpha itself, as in `algorithm=multitask_sac`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from gaitway.agents.diayn_policy import MEMORY, SKILL, DIAYNPolicy
from gaitway.algorithms.algorithm import Batch, PositiveCoefficient
from gaitway.algorithms.engine import JointEngine
from gaitway.algorithms.replay_algorithm import AnnotatedRewards, Draw
from gaitway.algorithms.soft_algorithm import SoftAlgorithm, SoftConfig, Temperature
from gaitway.algorithms.soft_steps import ContinuousSteps
from gaitway.core.config import configuration
from gaitway.core.execution import Execution
from gaitway.core.ranges import Positive, PositiveShare
from gaitway.core.workspace import Variable
from gaitway.functional.skill_rewards import diversity_reward

Loss = tuple[Tensor, dict[str, Tensor]]


@configuration
class DIAYNConfig(SoftConfig):
    """DIAYN: skills that can be told apart, without any reward of the environment."""

    one_step_because = "the reward changes as the discriminator learns"
    name: Literal["diayn"] = "diayn"
    update_ratio: Positive = 0.1
    tau: PositiveShare = 0.01
    discriminator_learning_rate: PositiveCoefficient = 3e-4
    temperature_learning_rate: Positive = 1e-4
    initial_temperature: Positive = 0.1
    add_p_z: bool = True
    """Subtract log p(z), the logarithm of 1 / n_skills, so that guessing earns 0; without it every step costs, and an
    early end pays."""


class DIAYN(SoftAlgorithm):
    """Learns skills and who tells them apart."""

    config: DIAYNConfig
    policy: DIAYNPolicy

    def __init__(
        self,
        policy: DIAYNPolicy,
        config: DIAYNConfig | None = None,
        *,
        num_envs: int,
        execution: Execution | None = None,
        seed: int = 0,
    ) -> None:
        config, spec = config or DIAYNConfig(), policy.spec
        if "skills" in spec.facts and spec.options.get("implicit_soft_resets", True):
            raise ValueError(
                f"{spec.id} goes on from goal to goal within an episode, and diayn draws a skill for every episode; "
                "make it with full_episodes=true implicit_soft_resets=false normalize_gs_observation=true"
            )
        draws = {"actions": Draw((2, config.batch_size, *spec.action.shape))}  # now, and next
        self.temperature = Temperature(config.initial_temperature)
        super().__init__(
            policy, config, self.temperature, num_envs=num_envs, seed=seed, execution=execution, draws=draws
        )
        self.reads = (policy.out(SKILL), "env/truncated", f"env/obs/{policy.config.features}")
        del self.extras[policy.out(MEMORY)]  # transitions hold the skill itself
        self.discriminator_engine = self.engine(policy.discriminator, config.discriminator_learning_rate)
        self.engines["discriminator"] = self.discriminator_engine
        compiled = self.execution.compiled
        self.steps = ContinuousSteps(policy)
        self._prepare = compiled(self.steps.prepare)
        self.critic_engine.loss = compiled(self._critic_loss)
        self.discriminator_engine.loss = compiled(self._discriminator_loss)
        self.acting = JointEngine((self.actor_engine, self.temperature_engine), self._actor_loss, self.execution)

    def keep(self, variables: Mapping[str, Variable], groups: Sequence[str], rewards: AnnotatedRewards) -> None:
        if not rewards.is_plain:
            raise ValueError("diayn learns from its own reward alone; leave rewards empty")
        super().keep(variables, groups, rewards)

    def learn(self, index: Tensor, noise: Mapping[str, Tensor], phase: int) -> None:
        batch = self._batch_of(index)
        batch["alpha"] = self.temperature.log_value.detach().exp()
        target, proposal = self._prepare(batch, noise["actions"], batch["alpha"])
        self.critic_engine.step(batch | {"target": target})
        self.acting.step(batch | proposal)
        self.soft_update("critic", self.critic_engine, self.config.tau)
        self.discriminator_engine.step(batch)

    @torch.no_grad()
    def _batch_of(self, index: Tensor) -> Batch:
        """Drawn transitions with the reward of the discriminator as it is now, and ends that are terminal."""
        batch = self.transitions(index)
        batch["action"] = self.policy.unit_action(batch["action"])
        batch["discount"] = batch["discount"] * ~batch.pop("env/truncated")
        batch["reward"] = self.pseudo_reward(batch["features"], batch["one_hot"])
        return batch

    def pseudo_reward(self, features: Tensor, one_hot: Tensor) -> Tensor:
        """What states with these features [n, F] earn in pursuit of skills [n, n_skills], [n]."""
        return diversity_reward(self.policy.skill_log_probs(features), one_hot, self.config.add_p_z)

    def _critic_loss(self, batch: Batch) -> Loss:
        values = self.policy.values(self.policy.critic, batch["critic"], batch["action"])
        loss = (values - batch["target"]).square().mean(-1).sum()
        return loss, {
            "loss/critic": loss.detach(),
            "q_mean": values.detach().mean(),
            "pseudo_reward": batch["reward"].mean(),
        }

    def _actor_loss(self, batch: Batch) -> Loss:
        """The losses of the actor and of the temperature; each sees the other's part as a constant."""
        alpha, log_prob = batch["alpha"], batch["log_prob"]
        value = self.policy.values(self.steps.constant_critic, batch["critic"], batch["action"]).min(0).values
        loss = (alpha * log_prob - value).mean()
        surplus = log_prob.detach().mean() + self.target_entropy
        statistics = {"loss/actor": loss.detach(), "entropy": -log_prob.detach().mean(), "temperature": alpha}
        return loss - self.temperature.log_value.exp() * surplus, statistics

    def _discriminator_loss(self, batch: Batch) -> Loss:
        log_probs, one_hot = self.policy.skill_log_probs(batch["features"]), batch["one_hot"]
        loss = -(log_probs * one_hot).sum(-1).mean()
        right = (log_probs.argmax(-1) == one_hot.argmax(-1)).float()
        return loss, {"loss/discriminator": loss.detach(), "accuracy": right.mean()}


def play_skills(env: Any, policy: DIAYNPolicy, episodes: int, max_steps: int = 10_000) -> list[float]:
    """How well skills are told apart when they are played: of each, the share of steps whose features the discriminator
    takes for it, over `episodes` whole episodes of its mean actions on the seeds 0, 1, ... of the environment."""
    skills, device = policy.config.n_skills, env.device
    right = torch.zeros(skills, dtype=torch.float64, device=device)
    steps = torch.zeros_like(right)
    is_training = policy.training
    policy.eval()
    for first in range(0, skills * episodes, env.num_envs):
        number = torch.arange(first, first + env.num_envs, device=device)
        skill, running = number % skills, number < skills * episodes
        obs = env.reset(seed=(number // skills).tolist())
        for _ in range(max_steps):
            with torch.inference_mode():
                guess = policy.skill_log_probs(policy.features(obs[policy.config.features])).argmax(-1)
                action, _ = policy.act(obs, policy.holding(skill), False)
            right.index_add_(0, skill, (running & (guess == skill)).double())
            steps.index_add_(0, skill, running.double())
            step = env.step(action)
            running = running & ~(step.terminated | step.truncated)
            if not bool(running.any()):
                break
            obs = step.obs
    policy.train(is_training)
    return (right / steps).tolist()
