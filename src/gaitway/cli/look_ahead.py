"""What `train` says before a run: `runners/preflight.py` for a configuration."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from gaitway.algorithms.replay_algorithm import ReplayAlgorithm, ReplayConfig
from gaitway.cli.build import build_env, build_runner
from gaitway.cli.checks import rows_of, variables_of
from gaitway.cli.train_config import TrainConfig, recipe_of
from gaitway.core.config import ConfigError
from gaitway.core.free_memory import free_memory
from gaitway.envs.vec_env import VecEnv
from gaitway.runners.capacity import Need, check_together, in_words, rows_bytes, stored_bytes
from gaitway.runners.evaluate import evaluation_instances
from gaitway.runners.off_policy import OffPolicyRunner
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.preflight import Pace, Preflight, Report
from gaitway.runners.runner import Runner

LINE_BYTES = 2000
"""Of a line of metrics.jsonl, about."""
UPDATE_S = 1.5e-10
"""Seconds that a core needs at least to learn a parameter from a sample: six operations at forty a nanosecond."""
REHEARSED_ROUNDS = 16
"""Rounds of an off-policy iteration in a rehearsal."""


def look_ahead(config: TrainConfig, env: VecEnv, algorithm: Any, pace: Pace, dry: bool) -> Report:
    """What is known of the run before its folder is made; a ConfigError for what has no room."""
    memory = memory_needs(config, env, algorithm)
    report = Report(config.evaluation.metric)
    if config.preflight or dry:
        # what is made twice must have room twice
        rehearses = can_rehearse(config) and 2 * memory["needed"] < (memory["free"] or 2**62)
        pace = replace(pace, learning_s=least_learning_s(config, algorithm.policy))
        ahead = Preflight(config, env.spec, config.env.num_envs, pace, dry)
        report = ahead.measure(partial(build_env, config), partial(rehearsal, config) if rehearses else None)
    report.memory = memory
    report.disk = disk_needs(config, algorithm, report.warnings)
    return report


def least_learning_s(config: TrainConfig, policy: torch.nn.Module) -> float:
    """Seconds that the updates of a run take at least on the CPU; 0 where that is not known."""
    algorithm = config.algorithm
    if torch.device(config.device).type != "cpu":
        return 0.0
    passes = getattr(algorithm, "epochs", 0)
    if isinstance(algorithm, ReplayConfig):
        passes = algorithm.update_ratio * algorithm.batch_size
    parameters = sum(each.numel() for each in policy.parameters() if each.requires_grad)
    return UPDATE_S * parameters * passes * config.total_steps / (config.torch_threads or 1)


def memory_needs(config: TrainConfig, env: VecEnv, algorithm: Any) -> dict[str, Any]:
    """What a run will take besides what is made already; a ConfigError if it is not there."""
    instances = evaluation_instances(env.spec, config.evaluation.episodes)
    each = env.device_bytes() or env.instance_bytes()  # of the memory that is asked below
    needs = [
        Need(
            "the rollout",
            rows_bytes(variables_of(config, env, algorithm.policy)),
            "env.num_envs or the rollout's steps",
        ),
        Need("the environment of evaluations", each * instances, "evaluation.episodes"),
    ]
    if isinstance(algorithm, ReplayAlgorithm) and recipe_of(config.algorithm.name).runs(OffPolicyRunner):
        replay = algorithm.replay_bytes(algorithm.config.replay_size)
        needs.append(Need("the replay", replay, "algorithm.replay_size"))
    free = free_memory(config.device)
    try:
        needed = check_together(needs, free, f"on {config.device}")
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return {"needed": needed, "free": free, "parts": {need.what: need.bytes for need in needs}}


def disk_needs(config: TrainConfig, algorithm: Any, warnings: list[str]) -> dict[str, Any]:
    """What a run will write: refused where not even two checkpoints fit, warned of where not all of it does."""
    each = stored_bytes(algorithm.state_dict())
    kept = config.total_steps // config.checkpoints.interval + 2
    if not config.checkpoints.keep_all:
        every = config.checkpoints.every
        kept = min(kept, config.checkpoints.keep + 1 + (config.total_steps // every if every else 0))
    iterations = config.total_steps // max(rows_of(config) * config.env.num_envs, 1)
    parts = {
        "checkpoints": each * kept,
        "metrics.jsonl": LINE_BYTES * (iterations // config.log_interval + 1),
    }
    if isinstance(algorithm, ReplayAlgorithm) and recipe_of(config.algorithm.name).runs(OffPolicyRunner):
        size = algorithm.config.replay_size
        parts["replay"] = algorithm.replay_bytes(min(size, max(config.total_steps, 1)))
    needed, free = sum(parts.values()), _free_disk(config.run_dir or "runs")
    if free is not None and 2 * each > free:
        raise ConfigError(
            f"two checkpoints take {in_words(2 * each)}, where {in_words(free)} are free: the disk is full; free some "
            "space, choose another run_dir, or use smaller networks in agent",
            "run_dir",
        )
    if free is not None and needed > free:
        largest = max(parts, key=lambda name: parts[name])
        key = {"replay": "algorithm.replay_size", "checkpoints": "checkpoints.keep"}.get(
            largest, "log_interval (raise)"
        )
        warnings.append(
            f"the run writes about {in_words(needed)}, where {in_words(free)} are free; most of it is {largest}: free "
            f"some space or lower {key}"
        )
    return {"needed": needed, "free": free, "parts": parts}


def can_rehearse(config: TrainConfig) -> bool:
    """Whether a second learner can play a little without a trace: no cast that may write, no dataset, no GPU, on which
    recordings are made first."""
    recipe = recipe_of(config.algorithm.name)
    is_known = recipe.runs(OnPolicyRunner) or recipe.runs(OffPolicyRunner)
    is_plain = not (config.cast or config.callbacks or config.data.path or config.init_from.run)
    return is_known and is_plain and torch.device(config.device).type == "cpu"


@contextmanager
def rehearsal(config: TrainConfig) -> Iterator[Runner]:
    """A runner like that of the run, which writes nothing; off-policy, with short iterations and a small replay."""
    algorithm = config.algorithm
    if isinstance(algorithm, ReplayConfig):
        steps = config.env.num_envs * algorithm.steps_per_round * REHEARSED_ROUNDS
        size = min(algorithm.replay_size, max(algorithm.batch_size, 100 * steps))
        algorithm = replace(algorithm, iteration_steps=steps, learning_starts=steps, replay_size=size)
    with build_env(config) as env:
        runner = build_runner(replace(config, algorithm=algorithm), None, env)
        try:
            yield runner
        finally:
            runner.close()


def _free_disk(place: str) -> int | None:
    """Bytes that are free where a folder will be."""
    path = Path(place).expanduser().absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None
