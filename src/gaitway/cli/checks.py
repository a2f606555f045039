"""What is refused before a run begins or goes on: too much memory, an evaluation that could not be made, names of a
stranger."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from gaitway.algorithms.replay_algorithm import ReplayConfig
from gaitway.algorithms.terms import TERMS
from gaitway.cli.build import CALLBACK, SOURCE, TERM, build_env, build_policy, by_origin
from gaitway.cli.train_config import TrainConfig
from gaitway.core.agent import Agent
from gaitway.core.config import ConfigError, to_config
from gaitway.core.parts import find_part, judge_part
from gaitway.core.storage import Variable
from gaitway.core.trust import Kind, judge, judge_file, judge_options
from gaitway.core.user_code import UserCodeError
from gaitway.envs.check import first_problem
from gaitway.envs.env_agent import env_variables
from gaitway.envs.vec_env import VecEnv
from gaitway.rewards import SOURCES
from gaitway.runners.callbacks import CALLBACKS
from gaitway.runners.capacity import check_instances, check_rows, rows_bytes
from gaitway.runners.cast import AGENTS
from gaitway.runners.evaluate import result_names
from gaitway.runners.preflight import timed_step
from gaitway.runners.run_folder import RunFolder
from gaitway.runners.runner import learning_rates
from gaitway.skills.places import is_shipped

LARGE = 4096
"""Instances, or steps of a rollout, from which it is worth looking at one instance before all are made."""


def check_memory(config: TrainConfig) -> None:
    """Refuse what this machine has no room for, by what a single instance needs, before anything of that size is made.
    What is refused while it is made (replay, rollout, networks) is so all the same; this comes earlier."""
    num_envs, rows = config.env.num_envs, rows_of(config)
    if num_envs < LARGE and rows < LARGE:
        return
    with build_env(config, num_envs=1) as env:
        check_instances(env.instance_bytes(), num_envs)
        variables = variables_of(config, env, build_policy(config, env.spec))
        check_rows(variables, num_envs, rows, config.device)
        if env.device_bytes():  # where robots are simulated beside what is learnt from them
            each = env.device_bytes() + rows_bytes(variables) // num_envs
            check_instances(each, num_envs, config.device, f" on {config.device} with their rollout")


def rows_of(config: TrainConfig) -> int:
    """Steps of every instance in the workspace of an iteration."""
    algorithm = config.algorithm
    if isinstance(algorithm, ReplayConfig):
        rounds = max(1, algorithm.iteration_steps // (config.env.num_envs * algorithm.steps_per_round))
        return rounds * algorithm.steps_per_round
    return getattr(algorithm, "rollout_steps", 0)


def variables_of(config: TrainConfig, env: VecEnv, policy: Any) -> list[Variable]:
    """What lies in that workspace of the environment and the policy."""
    num_envs, rows = config.env.num_envs, rows_of(config)
    final = getattr(policy, "critic_groups", ())
    variables = env_variables(env.spec, num_envs, rows, env.spec.group_names, final, env.spec.metrics)
    return [*variables.values(), *policy.variables(num_envs, rows).values()]


@by_origin
def check_evaluation(config: TrainConfig, env: VecEnv) -> tuple[float, float]:
    """Refuse an evaluation that could not be made, before training rather than in the midst of it; the seconds that an
    instance of it took to make, and to step (0 where there will be none)."""
    if env.spec.one_per_process:
        return 0.0, 0.0
    started = time.perf_counter()
    with build_env(config, "evaluation", 1) as twin:
        made = time.perf_counter()
        if twin.spec.groups != env.spec.groups or twin.spec.action != env.spec.action:
            raise ConfigError(
                "evaluation.env changes observations or actions; a policy needs those it was trained with"
            )
        problem = first_problem(twin)
        if problem is not None:
            raise UserCodeError(f"{problem}; `gaitway check {config.env.id}` says more")
        known = result_names(twin.spec, config.evaluation)
        if config.evaluation.metric is not None and config.evaluation.metric not in known:
            raise ConfigError(f"evaluation.metric is {config.evaluation.metric!r}; the evaluation will have {known}")
        action = twin.spec.action.idle().to(twin.device).expand(1, *twin.spec.action.shape)
        return made - started, timed_step(twin, action)


def check_rates(config: TrainConfig, facts: Mapping[str, Any], folder: RunFolder) -> None:
    """Refuse to go on with learning rates that are no longer those of the checkpoint, whose optimisers keep theirs."""
    asked, known = learning_rates(config.algorithm), facts.get("learning_rates") or {}
    for key, rate in known.items():
        if key in asked and asked[key] != rate:
            raise ConfigError(
                f"algorithm.{key} is {asked[key]} in {folder.config}, but the checkpoint goes on with {rate}; put that "
                f"back, or begin another run: {anew(folder, f'algorithm.{key}={asked[key]}')}",
                f"algorithm.{key}",
            )


def anew(folder: RunFolder, setting: str) -> str:
    """The command that begins a run with the weights of another one and a setting of its own."""
    return f"`gaitway train config={folder.shown}/config.yaml init_from.run={folder.shown} run_dir=NEW {setting}`"


@by_origin
def judge_run(config: TrainConfig) -> None:
    """Refuse a run for what going on with it would import or open, before a line of it is written."""
    if config.origin.is_person:
        return
    plain = to_config(config)
    plain["agent"].pop("skills", None)  # judged where they are opened: the run's own copy is no stranger to it
    for section in ("env", "agent", "algorithm", "rewards", "cast", "callbacks"):
        judge_options(plain[section], section)
    judge_options(plain["evaluation"]["env"], "evaluation.env")
    if config.logging.wandb is not None:  # it speaks to whatever address its options name, with the person's key
        judge("wandb:init", "logging.wandb")
    for place in config.repositories:  # git runs what a repository's own settings name
        judge_file(place, "repositories")
    if config.data.path is not None:
        judge_file(config.data.path, "data.path")
    if config.init_from.run is not None and not is_shipped(config.init_from.run):
        judge_file(config.init_from.run, "init_from.run")
    lists: tuple[tuple[str, Any, Mapping[str, Any], Kind], ...] = (
        ("algorithm.terms", getattr(config.algorithm, "terms", ()), TERMS, TERM),
        ("rewards", config.rewards, SOURCES, SOURCE),
        ("cast", config.cast, AGENTS, Agent),
        ("callbacks", config.callbacks, CALLBACKS, CALLBACK),
    )
    for key, entries, known, kind in lists:
        for number, entry in enumerate(entries):
            entry = {"name": entry} if isinstance(entry, str) else entry
            if entry.get("name") != "policy":
                _, make, options = find_part(entry, known, f"{key}[{number}]", kind)
                judge_part(make, options, f"{key}[{number}]")
