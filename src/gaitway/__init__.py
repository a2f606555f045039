"""gaitway teaches robots to move: reinforcement learning, skills and everything around them, on one data structure.

The names a user types are here and are loaded when they are first used, so that `import gaitway` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gaitway.envs.render import prepare_gl
from gaitway.version import __version__

prepare_gl()  # MuJoCo reads the choice when it is imported, which may happen any time after this

if TYPE_CHECKING:
    from gaitway.agents.actor_critic import ActorCritic, ActorCriticConfig
    from gaitway.agents.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig
    from gaitway.algorithms.ppo import PPO, PPOConfig
    from gaitway.algorithms.sac import SAC, SACConfig
    from gaitway.core.agent import Agent, Agents, TemporalAgent
    from gaitway.core.execution import Execution, ExecutionConfig
    from gaitway.core.workspace import Workspace
    from gaitway.data.replay import Replay
    from gaitway.data.step_replay import StepReplay
    from gaitway.envs.check import check_env
    from gaitway.envs.env_agent import EnvAgent
    from gaitway.envs.registry import list_envs, make_env
    from gaitway.envs.vec_env import EnvSpec, Step, VecEnv
    from gaitway.runners.evaluate import evaluate
    from gaitway.runners.off_policy import OffPolicyRunner
    from gaitway.runners.on_policy import OnPolicyRunner
    from gaitway.runners.run_folder import RunFolder
    from gaitway.runners.runner_config import RunnerConfig

_HOMES = {
    "ActorCritic": "agents.actor_critic",
    "ActorCriticConfig": "agents.actor_critic",
    "Agent": "core.agent",
    "Agents": "core.agent",
    "EnvAgent": "envs.env_agent",
    "EnvSpec": "envs.vec_env",
    "Execution": "core.execution",
    "ExecutionConfig": "core.execution",
    "OffPolicyRunner": "runners.off_policy",
    "OnPolicyRunner": "runners.on_policy",
    "PPO": "algorithms.ppo",
    "PPOConfig": "algorithms.ppo",
    "Replay": "data.replay",
    "RunFolder": "runners.run_folder",
    "RunnerConfig": "runners.runner_config",
    "SAC": "algorithms.sac",
    "SACConfig": "algorithms.sac",
    "SoftActorCritic": "agents.soft_actor_critic",
    "SoftActorCriticConfig": "agents.soft_actor_critic",
    "Step": "envs.vec_env",
    "StepReplay": "data.step_replay",
    "TemporalAgent": "core.agent",
    "VecEnv": "envs.vec_env",
    "Workspace": "core.workspace",
    "check_env": "envs.check",
    "evaluate": "runners.evaluate",
    "list_envs": "envs.registry",
    "make_env": "envs.registry",
}

__all__ = [
    "PPO",
    "SAC",
    "ActorCritic",
    "ActorCriticConfig",
    "Agent",
    "Agents",
    "EnvAgent",
    "EnvSpec",
    "Execution",
    "ExecutionConfig",
    "OffPolicyRunner",
    "OnPolicyRunner",
    "PPOConfig",
    "Replay",
    "RunFolder",
    "RunnerConfig",
    "SACConfig",
    "SoftActorCritic",
    "SoftActorCriticConfig",
    "Step",
    "StepReplay",
    "TemporalAgent",
    "VecEnv",
    "Workspace",
    "__version__",
    "check_env",
    "evaluate",
    "list_envs",
    "make_env",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"gaitway has no {name!r}; it has {sorted(_HOMES)}")
    return getattr(importlib.import_module(f"gaitway.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
