"""An algorithm of one's own: Munchausen Q-learning, a leaf of `ReplayAlgorithm` with its equations and nothing else.

    python examples/own_algorithm.py

With pi = softmax(Q' / temperature) of the target network Q' (Vieillard et al. 2020, arXiv 2007.14430):

    target   y = R + weight temperature log pi(a|s), cut at -1,  +  d temperature logsumexp(Q'(s', .) / temperature)
    loss     mean huber(Q(s, a) - y)

The base class draws transitions, keeps metrics and state and records CUDA graphs; the runner plays.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gaitway import OffPolicyRunner, RunnerConfig, make_env
from gaitway.agents.value_policy import ValuePolicy
from gaitway.algorithms.algorithm import Batch
from gaitway.algorithms.engine import FlatParameters
from gaitway.algorithms.replay_algorithm import ReplayAlgorithm, ReplayConfig
from gaitway.functional.value_losses import huber, taken
from gaitway.runners.evaluate import run_episodes


@dataclass(frozen=True)
class MunchausenConfig(ReplayConfig):
    learning_rate: float = 1e-3
    temperature: float = 0.03
    weight: float = 0.9
    tau: float = 0.01


class Munchausen(ReplayAlgorithm):
    config: MunchausenConfig

    def __init__(self, policy: ValuePolicy, config: MunchausenConfig, *, num_envs: int, seed: int = 0) -> None:
        super().__init__(policy, config, num_envs=num_envs, seed=seed, execution=None)
        self.targets["values"] = FlatParameters(policy.target, target_of=policy.values)
        self.values = self.engines["values"] = self.engine(policy.values, config.learning_rate)
        self.values.loss = self.loss
        policy.epsilon.fill_(0.1)  # how often it plays any action

    def learn(self, index: Tensor, noise: Mapping[str, Tensor], phase: int) -> None:
        """One update on the transitions `index` [n]."""
        batch = self.transitions(index)
        batch["target"] = self.target(batch)
        self.values.step(batch)
        self.soft_update("values", self.values, self.config.tau)

    @torch.no_grad()
    def target(self, batch: Batch) -> Tensor:
        temperature, network = self.config.temperature, self.policy.target
        log_policy = (network(batch["actor"]) / temperature).log_softmax(-1)
        bonus = (temperature * taken(log_policy, batch["action"])).clamp(min=-1.0)
        next_value = temperature * (network(batch["next/actor"]) / temperature).logsumexp(-1)
        return batch["reward"] + self.config.weight * bonus + batch["discount"] * next_value

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        values = taken(self.policy.values(batch["actor"]), batch["action"])
        loss = huber(values - batch["target"], width=1.0).mean()
        return loss, {"loss/values": loss.detach(), "q_mean": values.detach().mean()}


def main(quick: bool = False) -> None:
    env, steps = make_env("toy/cartpole", num_envs=8, seed=0), 4_000 if quick else 50_000
    policy = ValuePolicy(env.spec, generator=torch.Generator().manual_seed(0))
    config = MunchausenConfig(batch_size=128, replay_size=50_000, update_ratio=0.5)
    runner = OffPolicyRunner(env, Munchausen(policy, config, num_envs=8, seed=0), RunnerConfig(steps, seed=0))
    test = make_env("toy/cartpole", num_envs=10, purpose="evaluation")
    for more in (0, *[steps // 4] * 4):
        runner.learn(more)
        episodes = run_episodes(test, runner.inference_policy(), episodes=10)
        print(f"{runner.env_steps} steps: return {float(episodes['return'].mean()):.0f}")


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
