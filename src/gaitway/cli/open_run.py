"""A run folder and its configuration, for a device that is here and under the name of whoever wrote it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch

from gaitway.cli.arguments import OF_ENV, env_options
from gaitway.cli.train_config import EnvConfig, TrainConfig, changed_options, parse
from gaitway.core.config import ConfigError, from_config, read_config
from gaitway.core.execution import Execution, ExecutionConfig
from gaitway.core.trust import speaking
from gaitway.runners.run_folder import RunFolder, check_links
from gaitway.skills.places import KINDS


def open_run(path: str, device: str | None = None) -> tuple[RunFolder, TrainConfig]:
    """The run folder and its config; torch set to the run's thread count.

    `device` takes the place of the one it was trained on; where that is not here, the CPU does.
    """
    folder = RunFolder.open(path)
    config = read_run(folder, device)
    if config.torch_threads:
        torch.set_num_threads(config.torch_threads)
    return folder, config


def read_run(folder: RunFolder, device: str | None) -> TrainConfig:
    """The config of a run, under its own name and for a device that is here."""
    data = read_config(folder.config)
    origin = folder.origin(data)
    check_links(folder.path, origin)
    stored, notes = data.get("device", TrainConfig.device), []
    if device is None and not _is_here(stored):
        device = "cpu"
        notes.append(f"{folder.path} was trained on {stored}, which is not here: the CPU is used")
    if device is not None and device != stored:
        data["device"] = device
        if not _can_run(data.get("execution"), device):
            data["execution"] = {}
            notes.append(f"what execution says needs {stored}: it is chosen for {device}")
        env = data.get("env")
        if device == "cpu" and isinstance(env, dict) and env.get("simulator") == "warp":
            data["env"] = env | {"simulator": "mujoco"}
            notes.append("what Warp simulated on the GPU, MuJoCo does on the CPU")
    if notes:
        print(f"gaitway: {'; '.join(notes)}", file=sys.stderr)
    agent = data.get("agent")
    if isinstance(agent, dict) and agent.get("skills") and any((folder.path / kind).is_dir() for kind in KINDS):
        data["agent"] = agent | {"skills": str(folder.path)}  # the copy that the run was made with
    with speaking(origin):
        return parse(data)


def in_environment(config: TrainConfig, env_id: str, settings: Sequence[str] = ()) -> TrainConfig:
    """The config with another environment; wrappers stay, because the policy was trained behind them. `settings` are
    options of the environment, given as env.options.NAME=VALUE: what is typed holds in evaluations too."""
    if unknown := [text for text in settings if not text.startswith(OF_ENV)]:
        raise ConfigError(f"{unknown[0]!r} is not understood; write device=cpu, device=cuda or {OF_ENV}NAME=VALUE")
    if ":" in env_id:  # whatever the run may name, this was typed
        module = env_id.removeprefix("gymnasium:").partition(":")[0]
        config = replace(config, origin=config.origin.trusting(module))
    env, evaluation = config.env, config.evaluation
    if env.id != env_id:
        env, evaluation = EnvConfig(env_id, wrappers=env.wrappers), replace(evaluation, env={})
    if settings:
        given = {"options": env_options(settings)}
        env = replace(env, options=changed_options(env.options, given["options"]))
        evaluation = replace(evaluation, env=changed_options(evaluation.env, given))
    return replace(config, env=env, evaluation=evaluation)


def _can_run(execution: Any, device: str) -> bool:
    """Whether a section `execution` can be obeyed on a device; what is wrong with either is left to `parse`."""
    with suppress(ConfigError, RuntimeError):
        config = from_config(ExecutionConfig, execution or {}, "execution")
        try:
            Execution(config, device)
        except ValueError:
            return not _is_here(device)
    return True


def _is_here(device: Any) -> bool:
    """Whether torch can use a device; what is no device is left to those who say so."""
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        return True
    return found.type != "cuda" or (torch.cuda.is_available() and (found.index or 0) < torch.cuda.device_count())
