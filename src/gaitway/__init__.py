"""gaitway teaches robots to move: reinforcement learning, skills and everything around them, on one data structure.

The names a user types are here and are loaded when they are first used, so that `import gaitway` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gaitway.envs.registration import register_gymnasium_ids
from gaitway.envs.render import prepare_gl
from gaitway.version import __version__

prepare_gl()  # MuJoCo reads the choice when it is imported, which may happen any time after this
register_gymnasium_ids()

if TYPE_CHECKING:
    from gaitway.agents.actor_critic import ActorCritic, ActorCriticConfig, InferencePolicy
    from gaitway.agents.deterministic_actor_critic import DeterministicActorCritic, DeterministicActorCriticConfig
    from gaitway.agents.explorers import EpsilonGreedy, GaussianNoise, OrnsteinUhlenbeck, Softmax, UniformActor
    from gaitway.agents.policy_agents import (
        DeterministicActor,
        DistributionActor,
        KLAgent,
        categorical_actor,
        gaussian_actor,
        squashed_actor,
    )
    from gaitway.agents.predict import predict_action
    from gaitway.agents.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig
    from gaitway.agents.value_agents import ContinuousQCritic, DiscreteQCritic, ValueCritic
    from gaitway.agents.value_policy import ValuePolicy, ValuePolicyConfig
    from gaitway.algorithms.a2c import A2C, A2CConfig
    from gaitway.algorithms.cloning import BehaviourCloning, CloningConfig
    from gaitway.algorithms.ddpg import DDPG, DDPGConfig
    from gaitway.algorithms.dqn import DQN, DQNConfig
    from gaitway.algorithms.evolution import CEM, ES, CEMConfig, ESConfig
    from gaitway.algorithms.ppo import PPO, PPOConfig
    from gaitway.algorithms.reinforce import Reinforce, ReinforceConfig
    from gaitway.algorithms.sac import SAC, SACConfig
    from gaitway.algorithms.td3 import TD3, TD3BC, TD3BCConfig, TD3Config
    from gaitway.core.agent import Agent, Agents, TemporalAgent
    from gaitway.core.agent_files import load_agent, save_agent
    from gaitway.core.checks import check_transitions
    from gaitway.core.epochs import frame_episodes, frame_windows, step_episodes, step_windows
    from gaitway.core.execution import Execution, ExecutionConfig
    from gaitway.core.n_remote import NRemoteAgent
    from gaitway.core.n_step import n_step_transitions
    from gaitway.core.population import AgentPopulation, ParamPopulation
    from gaitway.core.remote import AsynchronousAgent, RemoteAgent
    from gaitway.core.sampling import minibatches_of
    from gaitway.core.small_agents import CopyAgent, EpisodesDone, PrintAgent, SeedableAgent, WithOptions
    from gaitway.core.tracing import Trace
    from gaitway.core.workers import RemoteError, WorkerConfig
    from gaitway.core.workspace import Workspace
    from gaitway.data.dataset_agents import DataLoaderAgent, ShuffledDatasetAgent
    from gaitway.data.minari_datasets import MinariEpisodes
    from gaitway.data.mixing import MixedReplay, dataset_replay, fill_replay
    from gaitway.data.prioritised_replay import PrioritisedReplay
    from gaitway.data.replay import Replay
    from gaitway.data.step_replay import StepReplay
    from gaitway.data.trajectories import Trajectories, TrajectoryWriter
    from gaitway.envs.check import check_env
    from gaitway.envs.env_agent import EnvAgent
    from gaitway.envs.frame_agent import FrameAgent
    from gaitway.envs.frame_streams import to_frames, to_steps
    from gaitway.envs.registry import list_envs, make_env
    from gaitway.envs.rendering_agent import Rendering, Window
    from gaitway.envs.space_distribution import distribution_for
    from gaitway.envs.vec_env import EnvSpec, Step, VecEnv
    from gaitway.nn.distributions import Distribution, kl_divergence, make_distribution
    from gaitway.runners.evaluate import evaluate
    from gaitway.runners.evolution import EvolutionRunner
    from gaitway.runners.off_policy import OffPolicyRunner
    from gaitway.runners.offline import OfflineRunner
    from gaitway.runners.on_policy import OnPolicyRunner
    from gaitway.runners.record import record_video
    from gaitway.runners.run_folder import RunFolder
    from gaitway.runners.runner_config import RunnerConfig

_HOMES = {
    "A2C": "algorithms.a2c",
    "A2CConfig": "algorithms.a2c",
    "ActorCritic": "agents.actor_critic",
    "ActorCriticConfig": "agents.actor_critic",
    "Agent": "core.agent",
    "AgentPopulation": "core.population",
    "Agents": "core.agent",
    "AsynchronousAgent": "core.remote",
    "BehaviourCloning": "algorithms.cloning",
    "CEM": "algorithms.evolution",
    "CEMConfig": "algorithms.evolution",
    "CloningConfig": "algorithms.cloning",
    "ContinuousQCritic": "agents.value_agents",
    "CopyAgent": "core.small_agents",
    "DDPG": "algorithms.ddpg",
    "DDPGConfig": "algorithms.ddpg",
    "DQN": "algorithms.dqn",
    "DQNConfig": "algorithms.dqn",
    "DataLoaderAgent": "data.dataset_agents",
    "DeterministicActor": "agents.policy_agents",
    "DeterministicActorCritic": "agents.deterministic_actor_critic",
    "DeterministicActorCriticConfig": "agents.deterministic_actor_critic",
    "DiscreteQCritic": "agents.value_agents",
    "Distribution": "nn.distributions",
    "DistributionActor": "agents.policy_agents",
    "ES": "algorithms.evolution",
    "ESConfig": "algorithms.evolution",
    "EnvAgent": "envs.env_agent",
    "EnvSpec": "envs.vec_env",
    "EpisodesDone": "core.small_agents",
    "EpsilonGreedy": "agents.explorers",
    "EvolutionRunner": "runners.evolution",
    "Execution": "core.execution",
    "ExecutionConfig": "core.execution",
    "FrameAgent": "envs.frame_agent",
    "GaussianNoise": "agents.explorers",
    "InferencePolicy": "agents.actor_critic",
    "KLAgent": "agents.policy_agents",
    "MinariEpisodes": "data.minari_datasets",
    "MixedReplay": "data.mixing",
    "NRemoteAgent": "core.n_remote",
    "OffPolicyRunner": "runners.off_policy",
    "OfflineRunner": "runners.offline",
    "OnPolicyRunner": "runners.on_policy",
    "OrnsteinUhlenbeck": "agents.explorers",
    "PPO": "algorithms.ppo",
    "PPOConfig": "algorithms.ppo",
    "ParamPopulation": "core.population",
    "PrintAgent": "core.small_agents",
    "PrioritisedReplay": "data.prioritised_replay",
    "Reinforce": "algorithms.reinforce",
    "ReinforceConfig": "algorithms.reinforce",
    "RemoteAgent": "core.remote",
    "RemoteError": "core.workers",
    "Rendering": "envs.rendering_agent",
    "Replay": "data.replay",
    "RunFolder": "runners.run_folder",
    "RunnerConfig": "runners.runner_config",
    "SAC": "algorithms.sac",
    "SACConfig": "algorithms.sac",
    "SeedableAgent": "core.small_agents",
    "ShuffledDatasetAgent": "data.dataset_agents",
    "SoftActorCritic": "agents.soft_actor_critic",
    "SoftActorCriticConfig": "agents.soft_actor_critic",
    "Softmax": "agents.explorers",
    "Step": "envs.vec_env",
    "StepReplay": "data.step_replay",
    "TD3": "algorithms.td3",
    "TD3BC": "algorithms.td3",
    "TD3BCConfig": "algorithms.td3",
    "TD3Config": "algorithms.td3",
    "TemporalAgent": "core.agent",
    "Trace": "core.tracing",
    "Trajectories": "data.trajectories",
    "TrajectoryWriter": "data.trajectories",
    "UniformActor": "agents.explorers",
    "ValueCritic": "agents.value_agents",
    "ValuePolicy": "agents.value_policy",
    "ValuePolicyConfig": "agents.value_policy",
    "VecEnv": "envs.vec_env",
    "Window": "envs.rendering_agent",
    "WithOptions": "core.small_agents",
    "WorkerConfig": "core.workers",
    "Workspace": "core.workspace",
    "categorical_actor": "agents.policy_agents",
    "check_env": "envs.check",
    "check_transitions": "core.checks",
    "dataset_replay": "data.mixing",
    "distribution_for": "envs.space_distribution",
    "evaluate": "runners.evaluate",
    "fill_replay": "data.mixing",
    "frame_episodes": "core.epochs",
    "frame_windows": "core.epochs",
    "gaussian_actor": "agents.policy_agents",
    "kl_divergence": "nn.distributions",
    "list_envs": "envs.registry",
    "load_agent": "core.agent_files",
    "make_distribution": "nn.distributions",
    "make_env": "envs.registry",
    "minibatches_of": "core.sampling",
    "n_step_transitions": "core.n_step",
    "predict_action": "agents.predict",
    "record_video": "runners.record",
    "save_agent": "core.agent_files",
    "squashed_actor": "agents.policy_agents",
    "step_episodes": "core.epochs",
    "step_windows": "core.epochs",
    "to_frames": "envs.frame_streams",
    "to_steps": "envs.frame_streams",
}

__all__ = [
    "A2C",
    "CEM",
    "DDPG",
    "DQN",
    "ES",
    "PPO",
    "SAC",
    "TD3",
    "TD3BC",
    "A2CConfig",
    "ActorCritic",
    "ActorCriticConfig",
    "Agent",
    "AgentPopulation",
    "Agents",
    "AsynchronousAgent",
    "BehaviourCloning",
    "CEMConfig",
    "CloningConfig",
    "ContinuousQCritic",
    "CopyAgent",
    "DDPGConfig",
    "DQNConfig",
    "DataLoaderAgent",
    "DeterministicActor",
    "DeterministicActorCritic",
    "DeterministicActorCriticConfig",
    "DiscreteQCritic",
    "Distribution",
    "DistributionActor",
    "ESConfig",
    "EnvAgent",
    "EnvSpec",
    "EpisodesDone",
    "EpsilonGreedy",
    "EvolutionRunner",
    "Execution",
    "ExecutionConfig",
    "FrameAgent",
    "GaussianNoise",
    "InferencePolicy",
    "KLAgent",
    "MinariEpisodes",
    "MixedReplay",
    "NRemoteAgent",
    "OffPolicyRunner",
    "OfflineRunner",
    "OnPolicyRunner",
    "OrnsteinUhlenbeck",
    "PPOConfig",
    "ParamPopulation",
    "PrintAgent",
    "PrioritisedReplay",
    "Reinforce",
    "ReinforceConfig",
    "RemoteAgent",
    "RemoteError",
    "Rendering",
    "Replay",
    "RunFolder",
    "RunnerConfig",
    "SACConfig",
    "SeedableAgent",
    "ShuffledDatasetAgent",
    "SoftActorCritic",
    "SoftActorCriticConfig",
    "Softmax",
    "Step",
    "StepReplay",
    "TD3BCConfig",
    "TD3Config",
    "TemporalAgent",
    "Trace",
    "Trajectories",
    "TrajectoryWriter",
    "UniformActor",
    "ValueCritic",
    "ValuePolicy",
    "ValuePolicyConfig",
    "VecEnv",
    "Window",
    "WithOptions",
    "WorkerConfig",
    "Workspace",
    "__version__",
    "categorical_actor",
    "check_env",
    "check_transitions",
    "dataset_replay",
    "distribution_for",
    "evaluate",
    "fill_replay",
    "frame_episodes",
    "frame_windows",
    "gaussian_actor",
    "kl_divergence",
    "list_envs",
    "load_agent",
    "make_distribution",
    "make_env",
    "minibatches_of",
    "n_step_transitions",
    "predict_action",
    "record_video",
    "save_agent",
    "squashed_actor",
    "step_episodes",
    "step_windows",
    "to_frames",
    "to_steps",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"gaitway has no {name!r}; it has {sorted(_HOMES)}")
    return getattr(importlib.import_module(f"gaitway.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
