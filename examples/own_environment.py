"""An environment of one's own: many instances at once on tensors, checked, then trained with PPO.

    python examples/own_environment.py

A cart must come to rest at a mark. `check_env` proves that the contract of `VecEnv` is kept: seeds, resets within the
step, final observations, independence of the batch size, state that goes on bit for bit.
"""

import sys
from typing import Any

import torch

from gaitway import PPO, ActorCritic, EnvSpec, OnPolicyRunner, PPOConfig, RunnerConfig, Step, VecEnv, check_env
from gaitway.core.seeding import EpisodeStreams
from gaitway.envs.spec import ActionSpec, Component, ObservationGroup
from gaitway.envs.vec_env import Observation, check_action
from gaitway.runners.evaluate import run_episodes


class Docking(VecEnv):
    """State [B, 2]: distance to the mark and speed. Reward: minus the distance, minus a little effort."""

    def __init__(self, num_envs: int = 1, seed: int = 0, *, purpose: str = "train", **unused: Any) -> None:
        self.num_envs, self.device = num_envs, torch.device("cpu")
        seen = ObservationGroup("policy", (Component("distance", 1, "m"), Component("speed", 1, "m/s")), (2,))
        force = ActionSpec("continuous", ("force",), (-1.0,), (1.0,), unit="N")
        self.spec = EnvSpec("docking", (seen,), force, control_dt=0.1, max_episode_steps=60)
        self.streams = EpisodeStreams(num_envs, purpose)  # of random numbers: one per instance and episode
        self.reset(seed)

    def reset(self, seed: int | list[int] | None = None) -> Observation:
        self.streams.restart(seed)
        self.state, self.age = self.draw(range(self.num_envs)), torch.zeros(self.num_envs, dtype=torch.int64)
        return {"policy": self.state}  # tensors are replaced, never written into: whoever holds one keeps it

    def step(self, action: torch.Tensor) -> Step:
        force = check_action(action, self.spec, self.num_envs).clamp(-1.0, 1.0).squeeze(-1)
        speed = self.state[:, 1] + force * 0.1
        distance = self.state[:, 0] + speed * 0.1
        reached = torch.stack((distance, speed), -1)
        terminated = distance.abs() > 3.0  # off the rails
        truncated = (self.age + 1 >= self.spec.max_episode_steps) & ~terminated
        ended = terminated | truncated
        self.streams.episode[ended.numpy()] += 1  # the next episode has another stream
        self.state, self.age = reached.clone(), torch.where(ended, 0, self.age + 1)
        self.state[ended] = self.draw(ended.nonzero().flatten().tolist())
        reward = -distance.abs() - 0.01 * force.square()
        return Step({"policy": self.state}, reward, terminated, truncated, {"policy": reached}, metrics={})

    def draw(self, instances: list[int] | range) -> torch.Tensor:
        return torch.tensor([(self.streams.generator(i).uniform(-1.0, 1.0), 0.0) for i in instances]).view(-1, 2)

    @property
    def elapsed(self) -> torch.Tensor:
        return self.age

    def state_dict(self) -> dict[str, Any]:
        return {"state": self.state, "age": self.age} | {k: torch.tensor(v) for k, v in self.streams.arrays().items()}

    def load_state_dict(self, state: dict[str, Any]) -> Observation:
        self.state, self.age = state["state"], state["age"]
        for name, array in self.streams.arrays().items():
            array[...] = state[name].numpy()
        return {"policy": self.state}


def main(quick: bool = False) -> None:
    print(check_env(Docking))
    env, steps = Docking(num_envs=16), 20_000 if quick else 100_000
    policy = ActorCritic(env.spec, generator=torch.Generator().manual_seed(0))
    algorithm = PPO(policy, PPOConfig(rollout_steps=64, learning_rate=1e-3), num_envs=env.num_envs)
    runner = OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=steps))
    for more in (0, steps):
        runner.learn(more)
        episodes = run_episodes(Docking(10, purpose="evaluation"), runner.inference_policy(), episodes=10)
        print(f"{runner.env_steps} steps: return {float(episodes['return'].mean()):.2f}")


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
