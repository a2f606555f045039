"""Small runs of agents that decide for several steps, and the files of skills that they begin with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from hsd3_cases import point_skills

from gaitway.agents.diayn_policy import DIAYNPolicy, DIAYNPolicyConfig
from gaitway.envs.registry import make_env
from gaitway.skills.continuous_skills import ContinuousSkills

STEPS = 4 * 23  # of an iteration
EPISODE = 33  # runs are stopped after 46 steps of each instance, 13 into an episode: no interval divides it
SMALL = [
    "env.id=point/duck",
    "env.num_envs=4",
    f"env.options={{max_episode_steps: {EPISODE}}}",
    "algorithm.batch_size=16",
    "algorithm.replay_size=300",
    "algorithm.learning_starts=60",
    f"algorithm.iteration_steps={STEPS}",
    "algorithm.update_ratio=0.2",
    f"total_steps={4 * STEPS}",
    f"evaluation={{interval: {2 * STEPS}, episodes: 2, metric: score, stochastic: false}}",
    f"checkpoints={{interval: {STEPS}, keep_all: true}}",
    "logging.code=none",
    "torch_threads=1",
]
HIDDEN = ["agent.actor_hidden=[8, 8]", "agent.critic_hidden=[8, 8]"]
RANGES = "agent.goal_ranges={x: [-3.0, 3.0], y: [-3.0, 3.0]}"
AGENTS: dict[str, list[str]] = {
    "hsd3": ["algorithm=hsd3", "agent.skills=SKILLS", "agent.subsets='0#2'", *HIDDEN],
    "hsd_bandit": ["algorithm=hsd_bandit", "agent.skills=SKILLS", "agent.subsets='0#2'", *HIDDEN],
    "sac_hrl": ["algorithm=sac_hrl", "agent.skills=CONTINUOUS", *HIDDEN],
    "hiro": ["algorithm=hiro", RANGES, "agent.interval=5", *HIDDEN],
    "switching": ["algorithm=switching", "agent.members=4", *HIDDEN],
}


def in_the_midst(policy: Any, carried: Mapping[str, torch.Tensor]) -> bool:
    """Whether some instance is to go on with what it decided before: a goal, a skill or who acts. `carried` holds what
    the policy remembers, of which a part says how long ago that was."""
    ((name, memory),) = policy.memories.items()
    sizes = dict(memory.parts)
    parts = dict(zip(sizes, carried[name].split(list(sizes.values()), -1), strict=True))
    steps = parts["phase"] if "phase" in parts else parts["steps"]
    interval = policy.interval if "phase" in parts else policy.config.interval
    return bool(((steps > 0) & (steps < interval)).any())


def write_files(place: Path) -> dict[str, Path]:
    """Files of skills in a folder, by the words that stand for them in `AGENTS`."""
    point_skills().save(place / "skills")
    with make_env("point/skills") as env:
        sizes = DIAYNPolicyConfig(
            n_skills=4, n_embed=3, actor_hidden=(8,), critic_hidden=(8,), discriminator_hidden=(8,)
        )
        policy = DIAYNPolicy(env.spec, sizes, torch.Generator().manual_seed(0))
    ContinuousSkills.of_policy(policy).save(place / "continuous")
    return {"SKILLS": place / "skills", "CONTINUOUS": place / "continuous"}
