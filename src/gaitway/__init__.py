"""gaitway teaches robots to move: reinforcement learning, skills and everything around them, on one data structure.

The names a user types are here and are loaded when they are first used, so that `import gaitway` is quick.
"""

# ruff: noqa: E402 (the path comes before what is found on it)

from __future__ import annotations

import sys

_started = next((word for flag, word in zip(sys.orig_argv, sys.orig_argv[1:], strict=False) if flag == "-m"), "")
if sys.argv[:1] == ["-m"] and _started.partition(".")[0] == "gaitway" and not sys.flags.safe_path:
    # `python -m gaitway` puts the present folder first, where a yaml.py or torch.py would be taken for the real one;
    # classes in it are found where they are named (`core.trust.present_folder`)
    del sys.path[0]

import ast
import importlib
import pathlib
from typing import TYPE_CHECKING, Any

from gaitway.core.signals import leave_on_interrupt

leave_on_interrupt()  # of a command, from its first moment on; a program that imports gaitway is not touched

from gaitway.envs.gym.registration import register_gymnasium_ids
from gaitway.envs.pictures.render import prepare_gl
from gaitway.version import __version__

prepare_gl()  # MuJoCo reads the choice when it is imported, which may happen any time after this
register_gymnasium_ids()

if TYPE_CHECKING:
    from gaitway.agents.actor_critic import ActorCritic
    from gaitway.agents.actor_critic_config import ActorCriticConfig
    from gaitway.agents.deterministic_actor_critic import (
        DeterministicActorCritic,
        DeterministicActorCriticConfig,
        SingleCriticConfig,
    )
    from gaitway.agents.explorers import EpsilonGreedy, GaussianNoise, OrnsteinUhlenbeck, Softmax, UniformActor
    from gaitway.agents.policy import InferencePolicy, Policy
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
    from gaitway.algorithms.evolution import CEM, ES, CEMConfig, ESConfig, EvolvedActorConfig
    from gaitway.algorithms.ppo import PPO, PPOConfig
    from gaitway.algorithms.reinforce import Reinforce, ReinforceConfig
    from gaitway.algorithms.sac import SAC, SACConfig
    from gaitway.algorithms.td3 import TD3, TD3BC, TD3BCConfig, TD3Config
    from gaitway.cli.python_runs import LoadedRun, load, train
    from gaitway.core.agent import Agent, Agents, TemporalAgent
    from gaitway.core.agent_files import load_agent, save_agent
    from gaitway.core.checks import check_transitions
    from gaitway.core.epochs import frame_episodes, frame_windows, step_episodes, step_windows
    from gaitway.core.execution import Execution, ExecutionConfig
    from gaitway.core.n_step import n_step_transitions
    from gaitway.core.sampling import minibatches_of
    from gaitway.core.small_agents import CopyAgent, EpisodesDone, PrintAgent, SeedableAgent, WithOptions
    from gaitway.core.tracing import Trace
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
    from gaitway.envs.gym.space_distribution import distribution_for
    from gaitway.envs.registry import list_envs, make_env
    from gaitway.envs.spec import EnvSpec
    from gaitway.envs.vec_env import Step, VecEnv
    from gaitway.frames.agent import FrameAgent
    from gaitway.frames.rendering import Rendering, Window
    from gaitway.frames.streams import to_frames, to_steps
    from gaitway.nn.distributions import Distribution, kl_divergence, make_distribution
    from gaitway.processes.n_remote import NRemoteAgent
    from gaitway.processes.population import AgentPopulation, ParamPopulation
    from gaitway.processes.remote import AsynchronousAgent, RemoteAgent
    from gaitway.processes.workers import RemoteError, WorkerConfig
    from gaitway.runners.evaluate import evaluate
    from gaitway.runners.evolution import EvolutionRunner
    from gaitway.runners.off_policy import OffPolicyRunner
    from gaitway.runners.offline import OfflineRunner
    from gaitway.runners.on_policy import OnPolicyRunner
    from gaitway.runners.record import record_video
    from gaitway.runners.run_folder import RunFolder
    from gaitway.runners.runner_config import RunnerConfig

_HOMES = {
    alias.name: node.module
    for node in ast.walk(ast.parse(pathlib.Path(__file__).read_text(encoding="utf-8")))
    if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("gaitway.")
    for alias in node.names
}
"""Name -> module, read from the imports above: they are the one list, which type checkers and editors read too."""

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"gaitway has no {name!r}; it has {__all__}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
