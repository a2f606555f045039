"""`init_from`: a run that begins with what another one has learnt.

Weights and temperatures are taken from the best checkpoint of a run, or from its last where none is the best; from a
skill file the actor's weights, which is all it holds. Counters, optimisers, the replay and random streams are those of
a new run. What does not fit by name and shape is refused, before the run folder is made, unless `parts`, `rules` or
`new_inputs` say how it is matched (agents/transfer.py): then a table tells what became of every part.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from gaitway.agents.observations import ObservingPolicy
from gaitway.agents.transfer import Report, Rule, check_units, transfer
from gaitway.cli.build import build_policy, by_origin
from gaitway.cli.open_run import read_run
from gaitway.cli.train_config import InitConfig, TrainConfig, recipe_of
from gaitway.core.config import ConfigError
from gaitway.core.trust import RUN_FILES
from gaitway.envs.misfit import misfit_of
from gaitway.envs.spec import EnvSpec
from gaitway.envs.tasks.skills.facts import SkillFacts
from gaitway.nn.head import Head
from gaitway.runners.checkpoint import Checkpoints
from gaitway.runners.evolution import EvolutionRunner
from gaitway.runners.run_folder import RunFolder, check_links
from gaitway.skills.frozen_policy import SkillFileError
from gaitway.skills.places import is_shipped
from gaitway.skills.skill_file import Skills, find_skills

KEY = "init_from"
READ_FILES = {
    "starts": "motion",
    "style": "motion",
    "tracking": "motion",
    "teacher": "teachers",
    "action_distance": "frozen",
}
"""Parts of lists with an option that names files or folders."""
LEARNT = ("policy", "temperature", "value_norm")
"""Parts of an algorithm's state that hold what was learnt, and in which units."""


def pinned(config: TrainConfig) -> TrainConfig:
    """The config with the whole paths of what it begins with, a run or skills, motion clips, robots and teachers, so
    that config.yaml says them wherever it is read."""
    wrappers, rewards, cast = (
        tuple(map(_pinned_part, each)) for each in (config.env.wrappers, config.rewards, config.cast)
    )
    env = replace(config.env, wrappers=wrappers, options=_pinned_robot(config.env.options))
    config = replace(config, env=env, rewards=rewards, cast=cast)
    if getattr(config.algorithm, "terms", ()):
        terms = tuple(map(_pinned_part, config.algorithm.terms))
        config = replace(config, algorithm=replace(config.algorithm, terms=terms))
    skills = getattr(config.agent, "skills", None)
    if isinstance(skills, str) and not is_shipped(skills) and os.path.exists(os.path.expanduser(skills)):
        config = replace(config, agent=replace(config.agent, skills=os.path.realpath(os.path.expanduser(skills))))
    run = config.init_from.run
    if run is None or is_shipped(run) or not os.path.exists(os.path.expanduser(run)):
        return config
    return replace(config, init_from=replace(config.init_from, run=os.path.realpath(os.path.expanduser(run))))


def _pinned_robot(options: dict[str, Any]) -> dict[str, Any]:
    """Options of an environment; the file of a robot with its whole path."""
    robot = options.get("robot")
    if not isinstance(robot, str) or not robot.endswith((".yaml", ".yml")) or not os.path.exists(robot):
        return options
    return {**options, "robot": os.path.realpath(robot)}


def _pinned_part(entry: Any) -> Any:
    """The entry of a list; that of a part of ours that reads files with their whole paths."""
    option = READ_FILES.get(entry.get("name", "")) if isinstance(entry, dict) else None
    if option is None or entry.get(option) is None:
        return entry
    named = entry[option]
    folders = [named] if isinstance(named, str) else list(named)
    found = [os.path.realpath(each) if os.path.exists(each) else each for each in folders]
    return {**entry, option: found[0] if isinstance(named, str) else found}


@by_origin
def init_from(config: TrainConfig, algorithm: Any) -> str | None:
    """Let `algorithm`, as it was just made, begin as the configuration says; a line that tells with what, None where
    it says nothing, followed by a table where it was matched."""
    run = config.init_from.run
    if run is None:
        return None
    if recipe_of(config.algorithm.name).runs(EvolutionRunner):
        raise ConfigError(f"{config.algorithm.name} searches around a point of its own; leave {KEY} out", KEY)
    place = Path(os.path.expanduser(run))
    is_run = all((place / name).is_file() for name in RUN_FILES)
    keys = config.init_from
    try:
        if is_run:
            line = _from_parts(place, algorithm, keys) if keys.is_partial else _from_run(place, algorithm)
        elif keys.is_partial:
            raise ConfigError(
                f"{KEY}: parts, rules and new_inputs are for runs, and {run} is none; leave them out", KEY
            )
        else:
            line = _from_skills(run, algorithm)
        if keys.std is not None:
            _set_std(algorithm, keys.std)
            line += f"\nstd      {keys.std:g}"
        return line
    except SkillFileError as error:
        raise ConfigError(f"{KEY}.run: {error}", KEY) from error


def _opened(place: Path) -> tuple[RunFolder, dict[str, Any], EnvSpec, str]:
    """A run, the state of its algorithm, its contract, and which checkpoint it is in words."""
    folder = RunFolder.open(place)
    check_links(folder.path, folder.origin())
    which = "best" if (folder.checkpoints / "best").exists() else "last"
    state, steps = Checkpoints(folder.checkpoints, folder.run_id).load(which)
    words = f"begins with the weights of {place}, {which} checkpoint (step {steps:,})"
    return folder, state["algorithm"], EnvSpec.from_dict(folder.read_contract()), words


def _from_run(place: Path, algorithm: Any) -> str:
    _, stored, contract, words = _opened(place)
    _check_contract(place, contract, algorithm.policy)
    parts = _modules(algorithm)
    for name in LEARNT:
        if (name in parts) != (name in stored):
            has, lacks = ("this run", place) if name in parts else (place, "this run")
            raise ConfigError(
                f"{KEY}.run: {has} learns a {name} and {lacks} does not; use one algorithm, with the same options, for "
                "both",
                KEY,
            )
    for name, module in parts.items():
        _check_sizes(str(place), name, stored[name], module.state_dict())
    for name, module in parts.items():
        module.load_state_dict(stored[name])
    return words


def _from_parts(place: Path, algorithm: Any, keys: InitConfig) -> str:
    """Match what the run learnt to what there is here, by name; the line, and the table of what became of it."""
    folder, stored, contract, words = _opened(place)
    policy = algorithm.policy
    besides = LEARNT[1:]
    try:
        source = build_policy(read_run(folder, "cpu"), contract)
        source.load_state_dict(stored["policy"])
        if not (isinstance(source, ObservingPolicy) and isinstance(policy, ObservingPolicy)):
            raise ValueError(
                "only policies that read observation groups can be matched by name; leave parts and rules out"
            )
        if contract.action != policy.spec.action:
            raise ValueError(
                f"it acts by {', '.join(contract.action.names)}, here by {', '.join(policy.spec.action.names)} or "
                "within other limits"
            )
        check_units(contract, policy.spec)
        inside = [part for part in keys.parts if part not in besides]
        rules = [Rule.of(entry) for entry in keys.rules]
        report = Report() if keys.parts and not inside else transfer(source, policy, inside, rules, keys.new_inputs)
        modules = {name: module for name, module in _modules(algorithm).items() if name != "policy"}
        for name in besides:
            if name in keys.parts and not (name in modules and name in stored):
                raise ValueError(f"parts names {name!r}, which is not {'here' if name in stored else 'there'}")
        for name, module in modules.items():
            if name in stored and (not keys.parts or name in keys.parts):
                _check_sizes(str(place), name, stored[name], module.state_dict())
                module.load_state_dict(stored[name])
                report.loaded.append(name)
            else:
                report.new.append(name)
    except ValueError as error:
        raise ConfigError(f"{KEY}.run: {place}: {error}", KEY) from error
    return "\n".join((words, *report.lines()))


def _set_std(algorithm: Any, std: float) -> None:
    head = getattr(algorithm.policy, "head", None)
    try:
        if not isinstance(head, Head):
            raise ValueError(f"{type(algorithm.policy).__name__} has no standard deviation of its own; leave it out")
        head.set_std(std)
    except ValueError as error:
        raise ConfigError(f"{KEY}.std: {error}", f"{KEY}.std") from error


def _from_skills(run: str, algorithm: Any) -> str:
    skills = Skills.load(os.path.expanduser(run) if not is_shipped(run) else run)
    policy = algorithm.policy
    if "skills" not in policy.spec.facts:
        raise ConfigError(
            f"{KEY}.run: {policy.spec.id} has no goals, and the skills of {run} bring a robot to goals; use "
            f"{skills.facts.robot}/skills",
            KEY,
        )
    skills.check_env(policy.spec)
    order = tuple(getattr(policy, "groups", {}).get("actor", ()))
    actor = getattr(policy, "actor", None)
    if order != tuple(skills.inputs) or not isinstance(actor, nn.Module):
        raise ConfigError(
            f"{KEY}.run: the skills of {run} read {', '.join(skills.inputs)} in this order, the actor here "
            f"{', '.join(order)}; use algorithm=multitask_sac, or set agent.observations",
            KEY,
        )
    state = skills.network.state_dict()
    _check_sizes(run, "actor", state, actor.state_dict())
    for module in (actor, getattr(policy, "target_actor", None)):
        if module is not None:
            module.load_state_dict(state)
    return f"begins with the actor of {find_skills(run)}"


def _modules(algorithm: Any) -> dict[str, nn.Module]:
    known: Mapping[str, Any] = getattr(algorithm, "modules", {})
    found = {name: known.get(name, getattr(algorithm, name, None)) for name in LEARNT}
    return {name: module for name, module in found.items() if isinstance(module, nn.Module)}


def _check_contract(place: Path, contract: EnvSpec, policy: Any) -> None:
    """Refuse a run of another robot, of other goals, or whose observations mean something else."""
    spec: EnvSpec = policy.spec
    if "skills" in contract.facts and "skills" in spec.facts:
        misfit = SkillFacts.of(contract).misfit(SkillFacts.of(spec))
        if misfit is not None:
            raise ConfigError(f"{KEY}.run: {place} does not fit {spec.id}: {misfit}", KEY)
    misfit = misfit_of(contract, spec, tuple(f"env/obs/{name}" for name in policy.all_groups))
    if misfit is not None:
        raise ConfigError(f"{KEY}.run: the policy of {place} does not fit {spec.id}: {misfit}", KEY)


def _check_sizes(source: str, part: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Refuse a state that differs in a name or a shape."""
    for name in dict.fromkeys((*ours, *theirs)):
        there, here = theirs.get(name), ours.get(name)
        if isinstance(there, Tensor) and isinstance(here, Tensor) and there.shape == here.shape:
            continue
        if (name in ours) != (name in theirs):
            has, lacks = ("this run", source) if name in ours else (source, "this run")
            reason = f"{has} has {name!r} and {lacks} has not"
        elif isinstance(there, Tensor) and isinstance(here, Tensor):
            reason = f"{name!r} is {list(there.shape)} there and {list(here.shape)} here"
        else:
            continue  # extra state, which its module reads itself
        raise ConfigError(
            f"{KEY}.run: the {part} of {source} has other sizes: {reason}; set agent and algorithm as they are there",
            KEY,
        )
