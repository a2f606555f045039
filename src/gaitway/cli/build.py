"""Configuration -> objects: the only file that knows both. Plain constructor calls one can search for."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from gaitway.agents.mutex import Mutex, MutexConfig
from gaitway.agents.policy import CastPolicy, FunctionPolicy, InferencePolicy, Policy, acting_part
from gaitway.algorithms.terms import TERMS
from gaitway.cli.open_run import read_run
from gaitway.cli.train_config import EnvConfig, TrainConfig, changed_options, recipe_of
from gaitway.core.agent import Agent
from gaitway.core.config import ConfigError, from_config, read_yaml, resolve_class
from gaitway.core.execution import Execution
from gaitway.core.parts import find_part, make_part, make_parts
from gaitway.core.ranks import here
from gaitway.core.seeding import SeedFrom, stream
from gaitway.core.trust import REFERENCE, Kind, TrustError, judge_file, speaking
from gaitway.data.cursors import open_followed
from gaitway.data.dataset import DataConfig, Dataset, check_fits
from gaitway.data.trajectories import Trajectories
from gaitway.envs.misfit import misfit_of
from gaitway.envs.registry import make_env
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import VecEnv
from gaitway.rewards import SOURCES
from gaitway.rewards.source import Rewards
from gaitway.runners.callbacks import CALLBACKS
from gaitway.runners.capacity import LimitedTensors, check_learning
from gaitway.runners.cast import AGENTS, Cast
from gaitway.runners.checkpoint import Checkpoints
from gaitway.runners.description import named
from gaitway.runners.distributed import algorithm_of_rank, instances_of_rank
from gaitway.runners.logger import Logger
from gaitway.runners.off_policy import OffPolicyRunner
from gaitway.runners.offline import OfflineRunner
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.pretraining import Pretraining
from gaitway.runners.progress import Progress
from gaitway.runners.run_folder import RunFolder
from gaitway.runners.runner import Runner
from gaitway.runners.runner_config import RunnerConfig

Function = TypeVar("Function", bound=Callable[..., Any])
TERM, SOURCE = ("__call__",), ("annotate",)
CALLBACK = ("begin", "after_iteration", "after_evaluation", "after_checkpoint", "end")
"""Methods that tell terms, reward sources and callbacks, which are protocols and no classes."""


def by_origin(function: Function) -> Function:
    """Names that `function` resolves are those of whoever wrote the configuration it is given."""

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        given = (*arguments[:2], *options.values())
        config = next(each for each in given if isinstance(each, TrainConfig))
        with speaking(config.origin):
            return function(*arguments, **options)

    return call  # type: ignore[return-value]


@by_origin
def build_env(config: TrainConfig, purpose: str = "train", num_envs: int | None = None) -> VecEnv:
    """The training environment, or one for evaluation with the changes of `evaluation.env`."""
    need_named(config, "its environment", "env", *(["evaluation"] if purpose == "evaluation" else []))
    env = config.env
    seed, ranks = config.seed, here()
    if purpose == "evaluation":
        env = _merge_env(env, config.evaluation.env)
    if num_envs is None:
        num_envs = instances_of_rank(env.num_envs)
        seed = seed if ranks.is_alone else SeedFrom(seed, ranks.rank * num_envs)
    return make_env(
        env.id,
        num_envs=num_envs,
        seed=seed,
        num_threads=env.num_threads,
        device=config.device,
        purpose=purpose,
        wrappers=env.wrappers,
        simulator=env.simulator,
        **env.options,
    )


@by_origin
def build_policy(config: TrainConfig, spec: EnvSpec, generator: torch.Generator | None = None) -> Any:
    """The networks of the config for an environment, on the CPU."""
    with LimitedTensors("a network", "agent (actor_hidden, critic_hidden, ...)"):
        policy = recipe_of(config.algorithm.name).policy(spec, config.agent, generator)
    check_learning(sum(each.numel() for each in policy.parameters()), config.device)
    return policy


@by_origin
def build_algorithm(config: TrainConfig, env: VecEnv) -> Any:
    policy = build_policy(config, env.spec, stream(config.seed, "parameters")).to(config.device)
    execution = Execution(config.execution, config.device)
    make, parts = recipe_of(config.algorithm.name).algorithm, {}
    if getattr(config.algorithm, "terms", ()):
        given = _given(config, env.spec, policy, env.num_envs, execution)
        parts["terms"] = _make(config, env.spec, config.algorithm.terms, TERMS, "algorithm.terms", given, TERM)
    own = algorithm_of_rank(config.algorithm)
    return make(policy, own, num_envs=env.num_envs, seed=config.seed, execution=execution, **parts)


@by_origin
def build_cast(
    config: TrainConfig, spec: EnvSpec, policy: Any, num_envs: int = 1, *, acting: bool = False
) -> list[Agent]:
    """The agents that play with the policy, which is among them where the list names it.

    `acting` leaves out those that say they have no part in it (`Agent.plays`), such as a recorder.
    """
    given = _given(config, spec, policy, num_envs, None)
    found: list[Agent] = []
    for number, entry in enumerate(config.cast):
        entry = {"name": entry} if isinstance(entry, str) else entry
        if entry.get("name") == "policy":
            found.append(policy)
            continue
        made = find_part(entry, AGENTS, f"cast[{number}]", Agent)[1]
        if acting and not getattr(made, "plays", True):
            continue
        convert = _frozen(config, spec)
        agent = make_part(entry, AGENTS, f"cast[{number}]", given=given, convert_types=convert, kind=Agent)
        if not isinstance(agent, Agent):
            raise ConfigError(f"cast[{number}] is a {type(agent).__name__}; derive it from gaitway.Agent", "cast")
        found.append(agent)
    return found


@by_origin
def build_rewards(config: TrainConfig, spec: EnvSpec, policy: Any, num_envs: int, execution: Execution) -> list[Any]:
    given = _given(config, spec, policy, num_envs, execution)
    return _make(config, spec, config.rewards, SOURCES, "rewards", given, SOURCE)


def _given(
    config: TrainConfig, spec: EnvSpec, policy: Any, num_envs: int, execution: Execution | None
) -> dict[str, Any]:
    """What a part of a list may ask for by the name of a parameter."""
    return {
        "spec": spec,
        "action": spec.action,
        "policy": policy,
        "num_envs": num_envs,
        "device": torch.device(config.device),
        "seed": config.seed,
        "execution": execution or Execution(config.execution, config.device),
    }


def _make(
    config: TrainConfig,
    spec: EnvSpec,
    entries: Any,
    known: Mapping[str, Any],
    key: str,
    given: Mapping[str, Any],
    kind: Kind,
) -> list[Any]:
    return make_parts(entries, known, key, given=given, convert_types=_frozen(config, spec), kind=kind)


def _frozen(config: TrainConfig, spec: EnvSpec) -> dict[Any, Callable[[Any, str], Any]]:
    """How an option becomes a policy: see `load_frozen`."""

    return {Policy: lambda source, key: load_frozen(source, key, spec, config.device)}


@by_origin
def build_data(config: TrainConfig, policy: Any) -> Dataset | Trajectories | None:
    """The dataset of the config, checked against what the policy reads and does; None where there is none. One that is
    still being recorded is what there is of it."""
    data, name = config.data, config.algorithm.name
    offline, off_policy = recipe_of(name).runs(OfflineRunner), recipe_of(name).runs(OffPolicyRunner)
    pretrains = config.pretrain.iterations != 0
    if data.path is None:
        if offline:
            raise ConfigError(
                f"{name} learns from a dataset; name one by data.path=DIR, `gaitway collect` records them"
            )
        if data != DataConfig() or pretrains:
            raise ConfigError("data says what is done with a dataset; name it by data.path=DIR")
        return None
    if pretrains and not recipe_of(name).runs(OnPolicyRunner):
        raise ConfigError(f"{name} has no stage before it plays; leave pretrain.iterations out, or use ppo", "pretrain")
    if not (offline or off_policy or pretrains):
        raise ConfigError(
            f"{name} learns from what it plays alone; leave data.path out, set pretrain.iterations, or use sac or bc"
        )
    if (offline or pretrains) and (data.prefill or data.share):
        raise ConfigError(f"{name} learns from the dataset alone; data.prefill and data.share are for sac, td3 and dqn")
    if off_policy and not (data.prefill or data.share):
        raise ConfigError("data.path is set, but nothing uses it; set data.prefill=true or data.share=0.5")
    judge_file(data.path, "data.path")
    if config.pretrain.follow:
        followed = open_followed(data.path)
        check_fits(followed.spec, f"the dataset {data.path}", policy.spec, policy.all_groups)
        return followed
    found = Dataset.open(data.path, data.sha256)
    found.check_fits(policy.spec, policy.all_groups)
    return found


@by_origin
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

    make = partial(build_env, config)  # not a closure: other processes may be asked to call it
    parts: dict[str, Any] = {"folder": folder, "make_env": make, "logger": logger, "progress": progress}
    recipe, data = recipe_of(config.algorithm.name), build_data(config, algorithm.policy)
    if data is not None and config.pretrain.iterations:
        parts["pretraining"] = Pretraining(config.pretrain, data, env, algorithm, config.seed)
    elif data is not None:
        parts["data"] = data
        parts |= {} if recipe.runs(OfflineRunner) else {"prefill": config.data.prefill, "share": config.data.share}
    for key in ("cast", "rewards", "callbacks"):
        if getattr(config, key) and key not in inspect.signature(recipe.runner).parameters:
            raise ConfigError(f"{config.algorithm.name} has no use for {key}; leave the list empty", key)
    if config.rewards and not getattr(algorithm, "learns_from_rewards", True):
        raise ConfigError(
            f"{config.algorithm.name} learns from labels and not from rewards; leave rewards empty", "rewards"
        )
    given = {"algorithm": algorithm, "evaluation_interval": config.evaluation.interval}
    lists: dict[str, Any] = {
        "cast": build_cast(config, env.spec, algorithm.policy, env.num_envs),
        "rewards": build_rewards(config, env.spec, algorithm.policy, env.num_envs, algorithm.execution),
        "callbacks": _make(config, env.spec, config.callbacks, CALLBACKS, "callbacks", given, CALLBACK),
    }
    parts |= {key: made for key, made in lists.items() if made}
    return recipe.runner(env, algorithm, runner_config, **parts)


def need_named(config: TrainConfig, what: str, *places: str) -> None:
    """Refuse a run of a program that was given objects for one of `places` (all, if there are none)."""
    lacking = [each for each in config.objects if not places or each.partition(" ")[0] in places]
    if lacking:
        raise ConfigError(
            f"{config.run_dir} was made by a program with {named(lacking)}, which no configuration can name, so {what} "
            "cannot be made here; go on in that program (`runner.resume()`), or name the class in a configuration by "
            "package.module:Class"
        )


class LoadedPolicy(NamedTuple):
    """What a checkpoint holds of a run's cast."""

    policy: Any
    cast: Cast
    steps: int
    which: str
    """The checkpoint: `last` where there is no best."""

    def inference(
        self, stochastic: bool = False, generator: torch.Generator | None = None
    ) -> InferencePolicy | CastPolicy:
        """What acts, as a function of observations."""
        return self.cast.inference(stochastic, generator)


@by_origin
def load_policy(folder: RunFolder, config: TrainConfig, spec: EnvSpec | None, which: str) -> LoadedPolicy:
    """The policy of a checkpoint; `spec` is that of the environment it is to play in, which must show what acting reads
    and take its actions."""
    checkpoints = Checkpoints(folder.checkpoints, folder.run_id)
    if which == "best" and not (folder.checkpoints / "best").exists():
        which = "last"
    state, steps = checkpoints.load(which)
    need_named(config, "what acts", "policy", "network", "block", "cast")
    contract = EnvSpec.from_dict(folder.read_contract())
    policy = build_policy(config, contract)
    others = build_cast(config, contract, policy, acting=True)
    whole = others if any(agent is policy for agent in others) else [policy, *others]
    cast = Cast(policy, acting_part(whole), config.seed)
    if spec is not None:
        # alone a policy acts without what its critic reads; in a cast its step reads all of it
        alone = tuple(f"env/obs/{name}" for name in policy.actor_groups)
        misfit = misfit_of(contract, spec, alone if cast.agents == [policy] else cast.reads())
        if misfit is not None:
            raise ConfigError(f"the policy of {folder.path} does not fit {spec.id}: {misfit}")
    policy.load_state_dict(state["algorithm"]["policy"])
    cast.load_state_dict(state.get("cast", {}))
    for agent in cast.agents:
        agent.to(config.device).eval()
    return LoadedPolicy(policy, cast, steps, which)


@by_origin
def load_learnt(config: TrainConfig, contract: EnvSpec, state: Mapping[str, Any]) -> dict[str, Any]:
    """Everything of a checkpoint's state that was learnt, by name: policy, reward sources, agents of the cast."""
    policy = build_policy(config, contract)
    policy.load_state_dict(state["algorithm"]["policy"])
    cast = Cast(policy, build_cast(config, contract, policy, acting=True), config.seed)
    cast.load_state_dict(state.get("cast", {}))
    rewards = Rewards(build_rewards(config, contract, policy, config.env.num_envs, Execution(device="cpu")))
    rewards.load_state_dict(state.get("sources", {}))
    return {"policy": policy} | rewards.modules() | cast.modules()


def load_frozen(source: Any, key: str, spec: EnvSpec, device: str) -> Policy:
    """A policy that learns no more, for parts of a configuration that take one: the best of a run, named by its folder,
    a mutex, named by its file, or a function, named by `package.module:name`, both for the environment `spec`."""
    if not isinstance(source, str):
        raise ConfigError(
            f"{key} is {source!r}; name the folder of a run, a mutex file, or a function by package.module:name", key
        )
    if REFERENCE.match(source) and not os.path.exists(source):
        function = resolve_class(source, key)
        if not callable(function) or isinstance(function, type):
            raise ConfigError(f"{key}: {source!r} is no function; name one that maps observations to actions", key)
        return FunctionPolicy(function, spec, source)  # type: ignore[return-value]
    judge_file(source, key)
    if is_mutex_file(source):
        return load_mutex(source, spec, device).policy
    return _load_best(source, key, device)


def is_mutex_file(source: str) -> bool:
    """Whether `source` names a file that says of which policies a mutex is made."""
    return os.path.splitext(source)[1] in (".yaml", ".yml") and os.path.isfile(source)


def load_mutex(path: str, spec: EnvSpec, device: str) -> LoadedPolicy:
    """The mutex of a YAML file, for the environment `spec`. Children are folders of runs, relative to the file; each is
    opened under the name of its maker."""
    data = read_yaml(Path(path).read_text(encoding="utf-8"), path)
    try:
        config = from_config(MutexConfig, data)
        entries = [*config.children, *([config.down] if config.down else [])]
        children = []
        for number, entry in enumerate(entries):
            place, key = os.path.join(os.path.dirname(path), entry.run), f"children[{number}].run"
            judge_file(place, key)
            children.append(_load_best(place, key, device))
        mutex = Mutex(spec, config, children).seed(0).to(device)
    except TrustError:
        raise
    except (ValueError, FileNotFoundError) as error:
        raise ConfigError(f"{path}: {error}") from error
    return LoadedPolicy(mutex, Cast(mutex), 0, "mutex")


def _load_best(source: str, key: str, device: str) -> Policy:
    """The best policy of a run, frozen."""
    folder = RunFolder.open(source)
    config = read_run(folder, device)
    loaded = load_policy(folder, config, None, "best")
    if len(loaded.cast.agents) > 1:
        raise ConfigError(f"{key}: what acts in {source} is more than a policy; name a run without a cast", key)
    if loaded.steps == 0:
        raise ConfigError(
            f"{key}: {source} has not learnt yet, its only checkpoint is of step 0; train it first, "
            f"`gaitway resume {source}`",
            key,
        )
    return loaded.policy.requires_grad_(False).to(device)


def _merge_env(env: EnvConfig, changes: Mapping[str, Any]) -> EnvConfig:
    known = {f.name for f in fields(EnvConfig)} - {"num_envs"}  # the evaluation decides how many it needs
    unknown = set(changes) - known
    if unknown:
        raise ConfigError(f"evaluation.env has the unknown key {sorted(unknown)[0]!r}; known are {sorted(known)}")
    merged = dict(changes)
    if "options" in merged:
        merged["options"] = changed_options(env.options, merged["options"])
    return replace(env, **merged)
