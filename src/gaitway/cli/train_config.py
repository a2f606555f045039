"""What `gaitway train` can be told: recipes of algorithms, and the configuration as frozen dataclasses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from gaitway.agents.actor_critic import ActorCritic
from gaitway.agents.actor_critic_config import ActorCriticConfig
from gaitway.agents.deterministic_actor_critic import (
    DeterministicActorCritic,
    DeterministicActorCriticConfig,
    SingleCriticConfig,
)
from gaitway.agents.diayn_policy import DIAYNPolicy, DIAYNPolicyConfig
from gaitway.agents.hiro_policy import HiroPolicy, HiroPolicyConfig
from gaitway.agents.particles import Particles, ParticlesConfig
from gaitway.agents.skill_policy import SkillPolicy, SkillPolicyConfig
from gaitway.agents.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig
from gaitway.agents.switching_policy import SwitchingPolicy, SwitchingPolicyConfig
from gaitway.agents.value_policy import ValuePolicy, ValuePolicyConfig
from gaitway.algorithms.a2c import A2C, A2CConfig
from gaitway.algorithms.cloning import BehaviourCloning, CloningConfig
from gaitway.algorithms.ddpg import DDPG, DDPGConfig
from gaitway.algorithms.distillation import Distillation, DistillationConfig
from gaitway.algorithms.dqn import DQN, DQNConfig
from gaitway.algorithms.evolution import CEM, ES, CEMConfig, ESConfig, EvolvedActorConfig
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.algorithms.reinforce import Reinforce, ReinforceConfig
from gaitway.algorithms.replay_algorithm import ReplayConfig
from gaitway.algorithms.sac import SAC, SACConfig
from gaitway.algorithms.svpg import SVPG, SVPGConfig
from gaitway.algorithms.td3 import TD3, TD3BC, TD3BCConfig, TD3Config
from gaitway.core.config import ConfigError, choose, configuration, from_config, resolve_class, to_config
from gaitway.core.cpus import choose_num_threads, usable_cpus
from gaitway.core.execution import Execution, ExecutionConfig, check_device
from gaitway.core.ranges import Count, Positive
from gaitway.core.trust import Origin, speaker, speaking
from gaitway.data.dataset import DataConfig
from gaitway.runners.evolution import EvolutionRunner
from gaitway.runners.off_policy import OffPolicyRunner
from gaitway.runners.offline import OfflineRunner
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.pretraining import PretrainConfig
from gaitway.runners.runner import Runner
from gaitway.runners.runner_config import RunnerConfig
from gaitway.skills.bandit_policy import BanditPolicy, BanditPolicyConfig
from gaitway.skills.diayn import DIAYN, DIAYNConfig
from gaitway.skills.hiro import Hiro, HiroConfig
from gaitway.skills.hsd3 import HSD3, HSD3Config
from gaitway.skills.hsd3_policy import HSD3Policy, HSD3PolicyConfig
from gaitway.skills.hsd_bandit import HSDBandit, HSDBanditConfig
from gaitway.skills.multitask_sac import MultitaskSAC, MultitaskSACConfig
from gaitway.skills.sac_hrl import SACHRL, SACHRLConfig
from gaitway.skills.sac_hrl_policy import SACHRLPolicy, SACHRLPolicyConfig
from gaitway.skills.switching import SwitchingConfig, SwitchingEnsemble


class Recipe(NamedTuple):
    """What an algorithm is made of. Configs are dataclasses; policies are made of (spec, config, generator), algorithms
    of (policy, config, num_envs, seed, execution)."""

    config: type
    agent: type
    policy: Callable[..., Any]
    algorithm: Callable[..., Any]
    runner: Callable[..., Runner]

    def runs(self, kind: type[Runner]) -> bool:
        """Whether its runner is a `kind`."""
        return isinstance(self.runner, type) and issubclass(self.runner, kind)


RECIPES: dict[str, Recipe] = {
    "ppo": Recipe(PPOConfig, ActorCriticConfig, ActorCritic, PPO, OnPolicyRunner),
    "a2c": Recipe(A2CConfig, ActorCriticConfig, ActorCritic, A2C, OnPolicyRunner),
    "distillation": Recipe(DistillationConfig, ActorCriticConfig, ActorCritic, Distillation, OnPolicyRunner),
    "reinforce": Recipe(ReinforceConfig, ActorCriticConfig, ActorCritic, Reinforce, OnPolicyRunner),
    "svpg": Recipe(SVPGConfig, ParticlesConfig, Particles, SVPG, OnPolicyRunner),
    "sac": Recipe(SACConfig, SoftActorCriticConfig, SoftActorCritic, SAC, OffPolicyRunner),
    "multitask_sac": Recipe(MultitaskSACConfig, SkillPolicyConfig, SkillPolicy, MultitaskSAC, OffPolicyRunner),
    "hsd_bandit": Recipe(HSDBanditConfig, BanditPolicyConfig, BanditPolicy, HSDBandit, OffPolicyRunner),
    "sac_hrl": Recipe(SACHRLConfig, SACHRLPolicyConfig, SACHRLPolicy, SACHRL, OffPolicyRunner),
    "hiro": Recipe(HiroConfig, HiroPolicyConfig, HiroPolicy, Hiro, OffPolicyRunner),
    "switching": Recipe(SwitchingConfig, SwitchingPolicyConfig, SwitchingPolicy, SwitchingEnsemble, OffPolicyRunner),
    "hsd3": Recipe(HSD3Config, HSD3PolicyConfig, HSD3Policy, HSD3, OffPolicyRunner),
    "diayn": Recipe(DIAYNConfig, DIAYNPolicyConfig, DIAYNPolicy, DIAYN, OffPolicyRunner),
    "dqn": Recipe(DQNConfig, ValuePolicyConfig, ValuePolicy, DQN, OffPolicyRunner),
    "ddpg": Recipe(DDPGConfig, SingleCriticConfig, DeterministicActorCritic, DDPG, OffPolicyRunner),
    "cem": Recipe(CEMConfig, EvolvedActorConfig, ActorCritic, CEM, EvolutionRunner),
    "es": Recipe(ESConfig, EvolvedActorConfig, ActorCritic, ES, EvolutionRunner),
    "td3": Recipe(TD3Config, DeterministicActorCriticConfig, DeterministicActorCritic, TD3, OffPolicyRunner),
    "td3_bc": Recipe(TD3BCConfig, DeterministicActorCriticConfig, DeterministicActorCritic, TD3BC, OfflineRunner),
    "bc": Recipe(CloningConfig, ActorCriticConfig, ActorCritic, BehaviourCloning, OfflineRunner),
}
"""Algorithms by name."""
LARGE_UPDATE = 256 * 256
"""Rows times width from which a second torch thread is worth its waiting."""


def recipe_of(name: Any) -> Recipe:
    """The recipe of an algorithm: one of ours, or one of the user by `package.module:RECIPE`."""
    if not isinstance(name, str) or ":" not in name:
        return choose(RECIPES, name, "algorithm.name")
    recipe = resolve_class(name, "algorithm.name", Recipe)
    if not isinstance(recipe, Recipe):
        reason = f"{name!r} is {recipe!r}; it should be a Recipe(config, agent, policy, algorithm, runner)"
    elif not all(isinstance(each, type) and is_dataclass(each) for each in (recipe.config, recipe.agent)):
        reason = f"config and agent of {name!r} should be dataclasses, for the keys of two sections"
    elif "name" not in {each.name for each in fields(recipe.config)}:
        reason = f"{recipe.config.__name__} has no field for the name of its recipe; add `name: str = ''` to it"
    else:
        return recipe
    raise ConfigError(f"algorithm.name: {reason}", "algorithm.name")


@configuration
class EnvConfig:
    """Which environment, and how many of it."""

    id: str = "walker/run"
    """A native id (`gaitway list envs`), `gymnasium:ID`, `envpool:ID`, `mjlab:ID` or `package.module:Name`."""
    num_envs: Count = 64
    num_threads: Count | None = None
    """Simulator threads; null: one per core, but not more than instances."""
    options: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the task, e.g. {reset_noise_scale: 0}."""
    wrappers: tuple[dict[str, Any], ...] = ()
    """Wrappers from the inside out: {name: ..., option: value}."""
    simulator: Literal["mujoco", "warp"] = "mujoco"
    """Of a native task: mujoco, on threads of the CPU, or warp, on the GPU (extra gpu; device=cuda)."""


def changed_options(options: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Options of an environment, with changes; mappings among them are merged, as on the command line."""
    found = dict(options)
    for name, value in changes.items():
        is_part = isinstance(value, Mapping) and isinstance(found.get(name), Mapping)
        found[name] = changed_options(found[name], value) if is_part else value
    return found


@configuration
class LoggingConfig:
    """Where metrics go beside metrics.jsonl."""

    media: bool = True
    """Pictures, texts and pages that are logged are kept in media/."""
    tensorboard: bool = False
    wandb: dict[str, Any] | None = None
    """Keyword arguments of wandb.init, e.g. {project: gait, group: walkers, mode: offline}, and interval_s, the least
    seconds between deliveries; null for none."""
    compress: bool = False
    """Pack metrics.jsonl when the run ends; a resumed run unpacks it."""
    code: Literal["none", "tracked", "all"] = "all"
    """Which uncommitted changes of source files are archived in code/: none, those of tracked files, or untracked files
    too. Files that look like a secret never are."""


@configuration
class InitConfig:
    """What a run begins with."""

    run: str | None = None
    """The folder of a run, of which weights and temperatures are taken, or a skill file, of which the actor is: a
    folder, or the name of one that comes with the library; null: networks as they are drawn. Counters, optimisers and
    the replay are new in any case."""
    parts: tuple[str, ...] = ()
    """What is taken of a run: `actor`, `critic`, `normalisers`, `head`, `blocks`, `blocks.NAME`, `temperature`,
    `value_norm`; empty: everything, which must then fit unless one of the keys below says otherwise."""
    rules: tuple[dict[str, Any], ...] = ()
    """Where weights come from by name, {match: REGEX, from: source | fresh | rename:NAME}; the first that matches
    decides."""
    new_inputs: Literal["zero"] | None = None
    """Components that the run did not have: `zero` begins with weights of 0; null: they are refused."""
    std: Positive | None = None
    """Standard deviation of the policy to begin with; null: that of the run."""

    def __post_init__(self) -> None:
        if self.run is not None and not self.run.strip():
            raise ValueError("run is empty; name a run folder or a skill file, or leave it out")
        if self.run is None and (self.is_partial or self.std is not None):
            raise ValueError("the keys of init_from say what is taken of a run; name it by init_from.run=DIR")

    @property
    def is_partial(self) -> bool:
        """Whether what does not fit is matched by name, instead of refused."""
        return bool(self.parts or self.rules or self.new_inputs)


@configuration
class TrainConfig(RunnerConfig):
    """Everything `gaitway train` can be told."""

    run_dir: str | None = None
    """Where the run is written; null: a fresh folder under runs/."""
    device: str = "cpu"
    execution: ExecutionConfig = field(default_factory=ExecutionConfig)
    torch_threads: Count | None = None
    """Threads of torch; null: 1, because two torch threads beside a busy simulator cost more than they bring; 2 for
    off-policy learning on the CPU with batches and networks of 256 or more, beside which the simulator rests."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    preflight: bool = True
    """Look ahead before the first step: memory, disk, duration, returns of zero and random actions, for 10 s or 2 % of
    the run at most; the numbers of the run are the same without it."""
    repositories: tuple[str, ...] = ()
    """Further git repositories whose state is archived in the run folder."""
    env: EnvConfig = field(default_factory=EnvConfig)
    algorithm: Any = field(default_factory=PPOConfig)
    """The config of the recipe that its `name` stands for."""
    agent: Any = field(default_factory=ActorCriticConfig)
    """The agent's config of that recipe."""
    init_from: InitConfig = field(default_factory=InitConfig)
    data: DataConfig = field(default_factory=DataConfig)
    pretrain: PretrainConfig = field(default_factory=PretrainConfig)
    rewards: tuple[dict[str, Any] | str, ...] = ()
    """Reward sources beside the task's own, {name: rnd | sim_hash | package.module:Class, weight: ..., option: value};
    name `task` to give that another weight than 1."""
    cast: tuple[dict[str, Any] | str, ...] = ()
    """Agents that play with the policy, {name: recorder | package.module:Class, option: value}, behind it or, where the
    list names `policy`, around it."""
    callbacks: tuple[dict[str, Any] | str, ...] = ()
    """What happens between iterations, {name: env_schedule | package.module:Class, option: value}."""
    objects: tuple[str, ...] = ()
    """Written by runs of programs: what they were given that no configuration can name, `place module:Class`."""
    origin: Origin = field(default_factory=speaker, compare=False, repr=False, metadata={"written": False})
    """Who wrote the names in it, and may therefore import what; no key."""

    def __post_init__(self) -> None:
        super().__post_init__()
        name = getattr(self.algorithm, "name", None)
        with speaking(self.origin):
            recipe = recipe_of(name)
        for section, wanted in (("algorithm", recipe.config), ("agent", recipe.agent)):
            found = getattr(self, section)
            if not isinstance(found, wanted):
                raise ValueError(f"{section} is a {type(found).__name__}; {name} takes a {wanted.__name__}")
        if (particles := getattr(self.agent, "particles", 1)) > self.env.num_envs:
            raise ValueError(
                f"agent.particles is {particles}, more than env.num_envs, {self.env.num_envs}; each needs an instance"
            )
        if self.run_dir is not None and not self.run_dir.strip():
            raise ValueError("run_dir is empty; name a folder, or leave it out for a fresh one under runs/")


def parse(data: Mapping[str, Any]) -> TrainConfig:
    """A plain nested dict -> TrainConfig, or a ConfigError that names the key and what would work.

    Its names are those of whoever is speaking (`core.trust`).
    """
    section = data.get("algorithm") or {}
    name = section.get("name", "ppo") if isinstance(section, Mapping) else section
    recipe = recipe_of(name)
    if isinstance(section, Mapping):  # a recipe of the user may use a config of ours, whose name is another
        section = {key: value for key, value in section.items() if key != "name"}
    algorithm: Any = from_config(recipe.config, section, "algorithm")
    sections: dict[str, Any] = {
        "algorithm": replace(algorithm, name=name),
        "agent": from_config(recipe.agent, data.get("agent") or {}, "agent"),
    }
    config = from_config(TrainConfig, {**data, **sections})
    try:
        check_device(config.device)
        Execution(config.execution, config.device)  # refuses what the device cannot do
    except ValueError as error:
        raise ConfigError(str(error), "device") from error
    return config


def choices() -> dict[str, Any]:
    """The sections whose keys depend on the algorithm, with their defaults, as `compose` takes them."""
    sections = {name: sections_of(name) for name in RECIPES}
    algorithms = {name: each["algorithm"] for name, each in sections.items()}
    agents = {name: each["agent"] for name, each in sections.items()}
    return {"choices": {"algorithm": algorithms}, "followers": {"agent": ("algorithm", agents)}, "own": sections_of}


def sections_of(name: str) -> dict[str, Any]:
    """The defaults of the sections `algorithm` and `agent` for an algorithm, plain."""
    recipe = recipe_of(name)
    try:
        return {"algorithm": to_config(recipe.config()) | {"name": name}, "agent": to_config(recipe.agent())}
    except TypeError as error:
        reason = f"{name!r} has no plain defaults ({error}); give every field of its config and its agent one"
        raise ConfigError(f"algorithm.name: {reason}", "algorithm.name") from error


def effective(config: TrainConfig, cores: int | None = None) -> TrainConfig:
    """The config with every automatic choice made, so that a resumed run makes the same ones; `cores` are those it may
    use (default: all)."""
    threads = choose_num_threads(config.env.num_threads, min(config.env.num_envs, cores or config.env.num_envs))
    torch_threads = config.torch_threads or min(_choose_torch_threads(config), cores or 2)
    groups = getattr(config.algorithm, "reward_groups", ())
    if groups and getattr(config.agent, "critics", 0) == 1:
        config = replace(config, agent=replace(config.agent, critics=1 + len(groups)))
    return replace(config, env=replace(config.env, num_threads=threads), torch_threads=torch_threads)


def default_run_dir(config: TrainConfig, experiment: str | None) -> str:
    """runs/<experiment or environment>_<seed>, with a number behind it if that is taken."""
    stem = experiment or config.env.id.replace("/", "_").replace(":", "_")
    base = Path("runs") / f"{stem}_{config.seed}"
    candidate, number = base, 1
    while candidate.exists():
        number += 1
        candidate = base.with_name(f"{base.name}_{number}")
    return str(candidate)


def _choose_torch_threads(config: TrainConfig) -> int:
    """The fixed rule: one, or two where they help and are there. The simulator waits while a replay is learnt from."""
    if not isinstance(config.algorithm, ReplayConfig) or torch.device(config.device).type != "cpu":
        return 1
    agent = to_config(config.agent)
    width = max((size for key, sizes in agent.items() if key.endswith("hidden") for size in sizes), default=0)
    wanted = 2 if config.algorithm.batch_size * width >= LARGE_UPDATE else 1
    return min(wanted, usable_cpus())
