"""Skill environments for tests, and copies of what they return."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.tasks.skills.goal_logic import GoalLogic
from gaitway.envs.tasks.skills.options import HumanoidSkillConfig, SkillConfig, WalkerSkillConfig
from gaitway.envs.tasks.skills.task import SkillTask
from gaitway.envs.vec_env import Step

CONFIGS: dict[str, type[SkillConfig]] = {
    "walker": WalkerSkillConfig,
    "humanoid": HumanoidSkillConfig,
    "humanoidpc": HumanoidSkillConfig,
}


def make_skills(
    robot: str = "walker",
    num_envs: int = 2,
    seed: int = 0,
    threads: int = 1,
    kind: type[SkillTask] = SkillTask,
    **options: Any,
) -> MujocoBatchEnv:
    """An environment in float64, so that its numbers can be computed again."""
    task = kind(robot, CONFIGS[robot](**options), options)
    return MujocoBatchEnv(task, num_envs, seed, threads, dtype=torch.float64)


def task_with(logic: type[GoalLogic]) -> type[SkillTask]:
    """The skill task with goals by other rules."""

    class Twin(SkillTask):
        def attach(self, batch):
            self.logic = logic(self.robot.name, self.config, self.space, self.robot.nu)
            super().attach(batch)

    return Twin


def actions(env: MujocoBatchEnv, steps: int, scale: float = 1.0) -> torch.Tensor:
    """[T, B, A], the same for an instance whatever the batch size."""
    generator = np.random.default_rng(1)
    size = len(env.spec.action.names)
    return torch.from_numpy(scale * generator.uniform(-1, 1, (steps, 64, size))[:, : env.num_envs])


def play(env: MujocoBatchEnv, steps: int, scale: float = 1.0) -> dict[str, torch.Tensor]:
    """Steps of `env` with random actions: every tensor by name, [T, B, ...]."""
    rows: dict[str, list[torch.Tensor]] = {}
    for action in actions(env, steps, scale):
        for name, value in tensors(env.step(action)).items():
            rows.setdefault(name, []).append(value.clone())
    return {name: torch.stack(values) for name, values in rows.items()}


def tensors(step: Step) -> dict[str, torch.Tensor]:
    flat = {"reward": step.reward, "terminated": step.terminated, "truncated": step.truncated, **step.metrics}
    flat |= {f"obs/{name}": value for name, value in step.obs.items()}
    return flat | {f"final_obs/{name}": value for name, value in step.final_obs.items()}
