"""What a runner that a program made is, as a configuration: so that its folder is a run that every command takes.

What has a name is written as `gaitway train` would write it. What has none, an own term or reward source for instance,
is listed under `objects`, `place module:Class`: such a run is read and played as far as it does not need them, and
nobody goes on with it without them.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
import yaml

from gaitway.agents.policy import acting_part
from gaitway.core.config import to_config
from gaitway.core.files import StateFileError, atomic_write_text, writing_advice
from gaitway.core.plain import objects_given, plain, reference
from gaitway.envs.registry import make_env
from gaitway.envs.vec_env import VecEnv
from gaitway.rewards.source import TaskReward
from gaitway.runners.code_archive import archive_code
from gaitway.runners.run_folder import RunFolder

if TYPE_CHECKING:
    from gaitway.runners.runner import Runner

log = logging.getLogger("gaitway")
LIBRARY = "gaitway."
SHOWN = 3
"""Objects that a sentence names."""


def write_run(runner: Runner, folder: RunFolder) -> None:
    """Make `folder` whole: configuration, contract, code, fingerprint. A configuration that is there stays."""
    if folder.config.exists():
        return
    text = yaml.safe_dump(describe(runner, folder), sort_keys=False, allow_unicode=True)
    try:
        folder.write_contract(runner.env.spec.to_dict())
        archive_code(folder, ())
        atomic_write_text(folder.config, text)  # last: with it the folder counts as a run
    except OSError as error:
        raise StateFileError(f"cannot write the run folder {folder.path}: {writing_advice(error)}") from error
    problem = folder.sign()
    if problem is not None:
        log.warning("%s will not count as your own run: %s", folder.path, problem)


def write_files(runner: Runner, folder: RunFolder) -> None:
    """What is written once: who reads and writes which variable, and what the policy was made of and does not learn,
    such as a skill file."""
    wiring = getattr(runner, "wiring", None)
    if wiring is not None and not folder.wiring.exists():
        folder.write_wiring([asdict(row) for row in wiring.rows()])
    files = getattr(runner.policy, "files", None)
    for name, write in (files() if files is not None else {}).items():
        if not (folder.path / name).exists():
            write(folder.path / name)


def describe(runner: Runner, folder: RunFolder) -> dict[str, Any]:
    """The configuration of `runner`, plain."""
    stages = _Stages(runner)
    env, other, evaluation = stages.env, stages.evaluation, dict(to_config(runner.config)["evaluation"])
    if env is not None and other is not None:
        changed = {key: other[key] for key in ("id", "options", "wrappers") if other[key] != env[key]}
        evaluation["env"] = evaluation["env"] or changed
    policy, algorithm = runner.policy, runner.algorithm
    execution = getattr(getattr(algorithm, "execution", None), "config", None)
    return {
        **to_config(runner.config),
        "evaluation": evaluation,
        "run_dir": str(folder.path),
        "device": str(next(policy.parameters()).device),
        **({} if execution is None else {"execution": to_config(execution)}),
        "torch_threads": torch.get_num_threads(),
        "env": env or {"id": runner.env.spec.id, "num_envs": runner.env.num_envs},
        "algorithm": _section(algorithm),
        "agent": _section(policy),
        **_data_section(runner),
        "objects": list(objects_of(runner, stages)),
    }


class _Stages:
    """Where a runner trains and where it evaluates, as far as a configuration can say."""

    def __init__(self, runner: Runner) -> None:
        self.env = self.evaluation = _env_section(runner.env)
        self.objects = () if self.env is not None else objects_given(env=runner.env)
        if runner.make_env is not None and self.env is not None:
            with runner.make_env("evaluation", 1) as twin:
                self.evaluation = _env_section(twin)
                self.objects = () if self.evaluation is not None else objects_given(evaluation=twin)


def objects_of(runner: Runner, stages: _Stages) -> tuple[str, ...]:
    """What a runner holds that no configuration can name, `place module:Class`."""
    found = [*stages.objects]
    for place, part in (("policy", runner.policy), ("algorithm", runner.algorithm)):
        if not reference(part).startswith(LIBRARY) or not hasattr(part, "config"):
            found += objects_given(**{place: part})
        found += getattr(part, "objects", ())
    acting = acting_part(runner.cast.agents)
    for agent in runner.cast.others.values():
        found += objects_given(**{"cast" if any(each is agent for each in acting) else "watcher": agent})
    sources = [source for source in runner.rewards.sources if type(source) is not TaskReward or source.weight != 1.0]
    found += objects_given(reward=sources, callback=[*runner.upkeep.callbacks.named.values()])
    if _data_of(runner) is not None and not _data_section(runner):
        found += objects_given(data=_data_of(runner).source)
    return tuple(found)


def check_objects(runner: Runner, folder: RunFolder) -> None:
    """Refuse to go on with a run that was made with objects which `runner` lacks."""
    recorded = (folder.read_config().get("objects") or []) if folder.config.exists() else []
    there = objects_of(runner, _Stages(runner)) if recorded else ()
    lacking = [each for each in recorded if each not in there]
    if lacking:
        raise ValueError(
            f"{folder.path} was made with {named(lacking)}, which this runner lacks; give it the same objects"
        )


def named(objects: list[str] | tuple[str, ...]) -> str:
    """Objects for a sentence."""
    shown = [f"the {each}" for each in objects[:SHOWN]]
    more = f" and {len(objects) - SHOWN} more" if len(objects) > SHOWN else ""
    return ", ".join(shown) + more


def _env_section(env: VecEnv) -> dict[str, Any] | None:
    """How `make_env` was called for an environment; None where it was not, or with what a file cannot hold."""
    recipe = env.recipe
    if getattr(recipe, "func", None) is not make_env:
        return None
    given = inspect.signature(make_env).bind(*recipe.args, **recipe.keywords)  # type: ignore[union-attr]
    given.apply_defaults()
    called = given.arguments
    if str(called["dtype"]).removeprefix("torch.") != "float32":
        return None
    try:
        return {
            "id": called["id"],
            "simulator": called["simulator"],
            "num_envs": called["num_envs"],
            "num_threads": getattr(env, "num_threads", called["num_threads"]),
            "options": plain(called["options"], "options"),
            "wrappers": plain(called["wrappers"], "wrappers"),
        }
    except TypeError as error:
        log.debug("%s has no name: %s", env.spec.id, error)
        return None


def _section(part: Any) -> dict[str, Any]:
    found = to_config(getattr(part, "config", None))
    return dict(found) if isinstance(found, Mapping) else {}


def _data_of(runner: Runner) -> Any:
    return getattr(runner, "data", None)


def _data_section(runner: Runner) -> dict[str, Any]:
    """The dataset by its folder; empty where there is none, or none on disk."""
    data = _data_of(runner)
    folder = getattr(getattr(data, "source", None), "folder", None)
    if data is None or folder is None:
        return {}
    mixing = {"prefill": getattr(runner, "prefill", False), "share": getattr(runner, "share", 0.0)}
    return {"data": {"path": str(folder.resolve()), "sha256": data.sha256, **mixing}}
