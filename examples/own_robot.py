"""A robot of one's own: an MJCF file, a task for it on MuJoCo's native batch, and a critic that knows more.

    python examples/own_robot.py
    PYTHONPATH=examples gaitway train env.id=own_robot:OwnRobotEnv env.num_envs=64 total_steps=400000

A balancer drives at the speed it is told. Its load and its motor differ from episode to episode; the critic sees them.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mujoco.batch import Batch

from gaitway import PPO, ActorCritic, OnPolicyRunner, PPOConfig, RunnerConfig, check_env
from gaitway.envs.batch_task import BatchTask, Rows
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.robots.robot import Robot
from gaitway.envs.spec import Component, ObservationGroup
from gaitway.runners.evaluate import run_episodes

Arrays = dict[str, np.ndarray]
RANGES = {"target": (-1.0, 1.0), "load": (0.5, 2.0), "strength": (0.7, 1.3)}
UNITS = {"pitch": "rad", "pitch_rate": "rad/s", "wheel_rate": "rad/s", "target": "m/s", "speed": "m/s", "load": "kg"}
PARTS = tuple(Component(name, 1, unit) for name, unit in (UNITS | {"strength": ""}).items())


class Balance(BatchTask):
    """Reward: upright + tracking - effort, each a metric. A mast that tilts by more than 0.7 rad ends the episode."""

    id, max_episode_steps = "own/balance", 200
    robot = Robot("balancer", Path(__file__).with_name("own_robot.xml"), frame_skip=4)
    groups = (ObservationGroup("policy", PARTS[:4], (4,)), ObservationGroup("critic", PARTS, (7,)))
    metrics = ("upright", "tracking", "effort", "speed", "fell")
    layout_shapes = dict.fromkeys(RANGES, ())  # numbers that `draw` gives an episode besides its first state

    def attach(self, batch: Batch) -> None:
        super().attach(batch)
        self.mass = batch.expand("body_mass")[:, self.model.body("load").id]  # [B], a view: to each instance its own
        self.gear = batch.expand("actuator_gear")[:, 0, 0]

    def draw(self, generator: np.random.Generator) -> Arrays:
        qpos, qvel = self.robot.initial_qpos(), np.zeros(self.model.nv)
        qpos[self.robot.pitch_index] = generator.uniform(-0.2, 0.2)
        return {"qpos": qpos, "qvel": qvel} | {name: generator.uniform(*limits) for name, limits in RANGES.items()}

    def start(self, rows: Rows) -> None:
        self.mass[rows] = self.layout["load"][rows]
        self.gear[rows] = self.model.actuator_gear[0, 0] * self.layout["strength"][rows]
        self.batch.set_const(np.arange(self.batch.nsim, dtype=np.int32)[rows])  # what MuJoCo derives from masses

    def restore(self) -> None:
        self.start(slice(None))  # a stored state holds the layout, from which the model's numbers follow

    def outcome(self, action: np.ndarray, reward: np.ndarray, terminated: np.ndarray, metrics: Arrays) -> None:
        pitch, metrics["speed"][:] = self.qpos[:, 2], self.qvel[:, 0]
        metrics["upright"][:] = 0.5 * np.cos(pitch)
        metrics["tracking"][:] = np.exp(-4.0 * np.square(metrics["speed"] - self.layout["target"]))
        metrics["effort"][:] = 0.05 * np.square(action[:, 0])
        metrics["fell"][:] = terminated[:] = np.abs(pitch) > 0.7
        reward[:] = metrics["upright"] + metrics["tracking"] - metrics["effort"]

    def observe(self, rows: Rows, out: Arrays) -> None:
        qvel, values = self.qvel[rows], {name: drawn[rows] for name, drawn in self.layout.items()}
        values |= {"pitch": self.qpos[rows, 2], "pitch_rate": qvel[:, 2], "wheel_rate": qvel[:, 3], "speed": qvel[:, 0]}
        for group in self.groups:
            out[group.name][:] = np.stack([values[part.name] for part in group.components], axis=1)


class OwnRobotEnv(MujocoBatchEnv):
    def __init__(self, num_envs: int = 1, seed: int = 0, **common: Any) -> None:
        super().__init__(Balance(), num_envs, seed, **common)


def main(quick: bool = False) -> None:
    print(check_env(OwnRobotEnv))
    env, steps = OwnRobotEnv(num_envs=64), 40_960 if quick else 200_000
    policy = ActorCritic(env.spec, generator=torch.Generator().manual_seed(0))  # reads the groups policy and critic
    algorithm = PPO(policy, PPOConfig(rollout_steps=32, learning_rate=2e-3), num_envs=env.num_envs)
    runner = OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=steps))
    for more in (0, steps):
        runner.learn(more)
        found = run_episodes(OwnRobotEnv(20, purpose="evaluation"), runner.inference_policy(), episodes=20)
        print(f"{runner.env_steps} steps: " + ", ".join(f"{name} {float(x.mean()):.2f}" for name, x in found.items()))


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
