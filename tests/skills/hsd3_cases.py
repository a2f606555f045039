"""What tests of HSD-3 share: small skills of the toy robot, agents over them, and rows of play."""

from __future__ import annotations

from typing import Any

import torch

from gaitway import OffPolicyRunner, RunnerConfig, make_env
from gaitway.agents.skill_policy import SkillPolicy, SkillPolicyConfig
from gaitway.core.execution import Execution
from gaitway.core.seeding import stream
from gaitway.envs.spec import EnvSpec
from gaitway.skills.hsd3 import HSD3, HSD3Config
from gaitway.skills.hsd3_policy import HSD3Policy, HSD3PolicyConfig
from gaitway.skills.skill_file import Skills

HIDDEN = {"actor_hidden": (16, 16, 16), "critic_hidden": (16, 16, 16)}
NUM_ENVS, BATCH = 4, 32
LEARNER = {
    "batch_size": BATCH,
    "replay_size": 4096,
    "learning_starts": 40,
    "iteration_steps": 80,
    "space_learning_rate": 1e-2,
    "goal_learning_rate": 2e-2,
    "critic_learning_rate": 3e-2,
    "temperature_learning_rate": 4e-2,
    "tau": 0.1,
}


def point_skills(seed: int = 7) -> Skills:
    """Skills of the toy robot that have learnt nothing, for all combinations of its four groups."""
    with make_env("point/skills", rank_max=4) as env:
        sizes = SkillPolicyConfig(actor_hidden=(8, 8), critic_hidden=(8, 8))
        policy = SkillPolicy(env.spec, sizes, torch.Generator().manual_seed(seed))
    return Skills.of_policy(policy)


def make_policy(spec: EnvSpec, skills: Skills | None = None, **options: Any) -> HSD3Policy:
    config = HSD3PolicyConfig(**(HIDDEN | {"subsets": "0#2#3"} | options))
    return HSD3Policy(spec, config, torch.Generator().manual_seed(3), skills=skills or point_skills())


def make_runner(
    env_id: str = "point/duck",
    agent: dict[str, Any] | None = None,
    *,
    device: str = "cpu",
    execution: Execution | None = None,
    steps: int = 23,
    skills: Skills | None = None,
    **algorithm: Any,
) -> OffPolicyRunner:
    """A learner on a course whose episodes are cut after a number of steps that no interval divides."""
    env = make_env(env_id, num_envs=NUM_ENVS, seed=0, device=device, max_episode_steps=steps)
    policy = make_policy(env.spec, skills, **(agent or {})).to(device)
    learner = HSD3(policy, HSD3Config(**(LEARNER | algorithm)), num_envs=NUM_ENVS, execution=execution)
    return OffPolicyRunner(env, learner, RunnerConfig(total_steps=10**9))


def noise_stream(algorithm: HSD3) -> torch.Generator:
    """Random numbers like those that the updates of a fresh learner draw."""
    return stream(0, type(algorithm).__name__.lower(), algorithm.device)
