"""Configuration -> objects: the only file that knows both. Plain constructor calls one can search for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from gaitway.agents.actor_critic import ActorCritic, ActorCriticConfig
from gaitway.agents.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.algorithms.replay_algorithm import ReplayConfig
from gaitway.algorithms.sac import SAC, SACConfig
from gaitway.core.config import ConfigError, choose, from_config, to_config
from gaitway.core.execution import Execution, ExecutionConfig
from gaitway.core.seeding import stream
from gaitway.envs.mujoco_batch import choose_num_threads
from gaitway.envs.registry import make_env
from gaitway.envs.vec_env import EnvSpec, VecEnv
from gaitway.runners.logger import Logger
from gaitway.runners.off_policy import OffPolicyRunner
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.progress import Progress
from gaitway.runners.run_folder import RunFolder
from gaitway.runners.runner_config import RunnerConfig

Runner = OnPolicyRunner | OffPolicyRunner


class Recipe(NamedTuple):
    """What an algorithm is made of. Configs are dataclasses; policies are made of (spec, config, generator), algorithms
    of (policy, config, num_envs, seed, execution)."""

    config: type
    agent: type
    policy: Callable[..., Any]
    algorithm: Callable[..., Any]
    runner: type[OnPolicyRunner] | type[OffPolicyRunner]


RECIPES: dict[str, Recipe] = {
    "ppo": Recipe(PPOConfig, ActorCriticConfig, ActorCritic, PPO, OnPolicyRunner),
    "sac": Recipe(SACConfig, SoftActorCriticConfig, SoftActorCritic, SAC, OffPolicyRunner),
}
"""Algorithms by name."""
AlgorithmConfig = PPOConfig | SACConfig
AgentConfig = ActorCriticConfig | SoftActorCriticConfig
LARGE_UPDATE = 256 * 256
"""Rows times width from which a second torch thread is worth its waiting."""


@dataclass(frozen=True)
class EnvConfig:
    """Which environment, and how many of it."""

    id: str = "walker/run"
    """A native id (`gaitway list envs`), `gymnasium:ID`, `envpool:ID` or `package.module:Name`."""
    num_envs: int = 64
    num_threads: int | None = None
    """Simulator threads; null: one per core, but not more than instances."""
    options: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the task, e.g. {reset_noise_scale: 0}."""
    wrappers: tuple[dict[str, Any], ...] = ()
    """Wrappers from the inside out: {name: ..., option: value}."""


@dataclass(frozen=True)
class LoggingConfig:
    """Where metrics go beside metrics.jsonl."""

    tensorboard: bool = False
    wandb: dict[str, Any] | None = None
    """Keyword arguments of wandb.init, e.g. {project: gait, mode: offline}; null for none."""


@dataclass(frozen=True)
class TrainConfig(RunnerConfig):
    """Everything `gaitway train` can be told."""

    run_dir: str | None = None
    """Where the run is written; null: a fresh folder under runs/."""
    device: str = "cpu"
    execution: ExecutionConfig = field(default_factory=ExecutionConfig)
    torch_threads: int | None = None
    """Threads of torch; null: 1, because two torch threads beside a busy simulator cost more than they bring; 2 for
    off-policy learning on the CPU with batches and networks of 256 or more, beside which the simulator rests."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    repositories: tuple[str, ...] = ()
    """Further git repositories whose state is archived in the run folder."""
    env: EnvConfig = field(default_factory=EnvConfig)
    algorithm: AlgorithmConfig = field(default_factory=PPOConfig)
    agent: AgentConfig = field(default_factory=ActorCriticConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        wanted = RECIPES[self.algorithm.name].agent
        if not isinstance(self.agent, wanted):
            raise ValueError(f"agent is a {type(self.agent).__name__}; {self.algorithm.name} takes a {wanted.__name__}")
        if self.torch_threads is not None and self.torch_threads < 1:
            raise ValueError(f"torch_threads is {self.torch_threads}; use a positive number, or null for 1")
        if self.run_dir is not None and not self.run_dir.strip():
            raise ValueError("run_dir is empty; name a folder, or leave it out for a fresh one under runs/")


def parse(data: Mapping[str, Any]) -> TrainConfig:
    """A plain nested dict -> TrainConfig, or a ConfigError that names the key and what would work."""
    section = data.get("algorithm") or {}
    name = section.get("name", "ppo") if isinstance(section, Mapping) else section
    recipe = choose(RECIPES, name, "algorithm.name")
    sections: dict[str, Any] = {
        "algorithm": from_config(recipe.config, section, "algorithm"),
        "agent": from_config(recipe.agent, data.get("agent") or {}, "agent"),
    }
    config = from_config(TrainConfig, {**data, **sections})
    try:
        torch.device(config.device)
    except RuntimeError as error:
        raise ConfigError(f"device is {config.device!r}; use cpu, cuda or cuda:0") from error
    if config.device.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device is {config.device!r} but torch finds no GPU; use device=cpu")
    Execution(config.execution, config.device)  # refuses what the device cannot do
    return config


def choices() -> dict[str, Any]:
    """The sections whose keys depend on the algorithm, with their defaults, as `compose` takes them."""
    algorithms = {name: to_config(recipe.config()) for name, recipe in RECIPES.items()}
    agents = {name: to_config(recipe.agent()) for name, recipe in RECIPES.items()}
    return {"choices": {"algorithm": algorithms}, "followers": {"agent": ("algorithm", agents)}}


def effective(config: TrainConfig) -> TrainConfig:
    """The config with every automatic choice made, so that a resumed run makes the same ones."""
    threads = choose_num_threads(config.env.num_threads, config.env.num_envs)
    torch_threads = config.torch_threads or _choose_torch_threads(config)
    return replace(config, env=replace(config.env, num_threads=threads), torch_threads=torch_threads)


def build_env(config: TrainConfig, purpose: str = "train", num_envs: int | None = None) -> VecEnv:
    """The training environment, or one for evaluation with the changes of `evaluation.env`."""
    env = config.env
    if purpose == "evaluation":
        env = _merge_env(env, config.evaluation.env)
    return make_env(
        env.id,
        num_envs=num_envs or env.num_envs,
        seed=config.seed,
        num_threads=env.num_threads,
        device=config.device,
        purpose=purpose,
        wrappers=env.wrappers,
        **env.options,
    )


def check_evaluation(config: TrainConfig, env: VecEnv) -> None:
    """Refuse an evaluation that could not be made, before training rather than in the midst of it."""
    with build_env(config, "evaluation", 1) as twin:
        if twin.spec.groups != env.spec.groups or twin.spec.action != env.spec.action:
            raise ConfigError(
                "evaluation.env changes observations or actions; a policy needs those it was trained with"
            )
        known = ["return", "length", "return_std", *twin.spec.metrics]
        known += ["stochastic_return"] if config.evaluation.stochastic else []
    if config.evaluation.metric not in known:
        raise ConfigError(f"evaluation.metric is {config.evaluation.metric!r}; the evaluation will have {known}")


def build_policy(config: TrainConfig, spec: EnvSpec, generator: torch.Generator | None = None) -> Any:
    """The networks of the config for an environment, on the CPU."""
    return RECIPES[config.algorithm.name].policy(spec, config.agent, generator)


def build_algorithm(config: TrainConfig, env: VecEnv) -> Any:
    policy = build_policy(config, env.spec, stream(config.seed, "parameters")).to(config.device)
    execution = Execution(config.execution, config.device)
    make = RECIPES[config.algorithm.name].algorithm
    return make(policy, config.algorithm, num_envs=env.num_envs, seed=config.seed, execution=execution)


def build_runner(
    config: TrainConfig,
    folder: RunFolder | None,
    env: VecEnv | None = None,
    *,
    progress: Progress | None = None,
    logger: Logger | None = None,
) -> Runner:
    """Environment (unless it is given), policy, algorithm and runner of a config."""
    if config.torch_threads:
        torch.set_num_threads(config.torch_threads)
    env = env or build_env(config)
    algorithm = build_algorithm(config, env)
    runner_config = RunnerConfig(**{f.name: getattr(config, f.name) for f in fields(RunnerConfig)})

    def make(purpose: str, num_envs: int) -> VecEnv:
        return build_env(config, purpose, num_envs)

    parts: dict[str, Any] = {"folder": folder, "make_env": make, "logger": logger, "progress": progress}
    return RECIPES[config.algorithm.name].runner(env, algorithm, runner_config, **parts)


def default_run_dir(config: TrainConfig, experiment: str | None) -> str:
    """runs/<experiment or environment>_<seed>, with a number behind it if that is taken."""
    stem = experiment or config.env.id.replace("/", "_").replace(":", "_")
    base = Path("runs") / f"{stem}_{config.seed}"
    candidate, number = base, 1
    while candidate.exists():
        number += 1
        candidate = base.with_name(f"{base.name}_{number}")
    return str(candidate)


def _merge_env(env: EnvConfig, changes: Mapping[str, Any]) -> EnvConfig:
    known = {f.name for f in fields(EnvConfig)} - {"num_envs"}  # the evaluation decides how many it needs
    unknown = set(changes) - known
    if unknown:
        raise ConfigError(f"evaluation.env has the unknown key {sorted(unknown)[0]!r}; known are {sorted(known)}")
    merged = dict(changes)
    if "options" in merged:
        merged["options"] = {**env.options, **merged["options"]}
    return replace(env, **merged)


def _choose_torch_threads(config: TrainConfig) -> int:
    """The fixed rule: one, or two where they help and are there. The simulator waits while a replay is learnt from."""
    if not isinstance(config.algorithm, ReplayConfig) or torch.device(config.device).type != "cpu":
        return 1
    agent = to_config(config.agent)
    width = max((size for key, sizes in agent.items() if key.endswith("hidden") for size in sizes), default=0)
    wanted = 2 if config.algorithm.batch_size * width >= LARGE_UPDATE else 1
    return min(wanted, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
