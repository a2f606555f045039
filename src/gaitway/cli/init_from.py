"""`init_from`: a run that begins with what another one has learnt.

Weights and temperatures are taken from the best checkpoint of a run, or from its last where none is the best; from a
skill file the actor's weights, which is all it holds. Counters, optimisers, the replay and random streams are those of
a new run. Nothing is taken in part: what does not fit by name and shape is refused, before the run folder is made.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from gaitway.cli.build import by_origin
from gaitway.cli.train_config import TrainConfig, recipe_of
from gaitway.core.config import ConfigError
from gaitway.core.trust import RUN_FILES
from gaitway.envs.misfit import misfit_of
from gaitway.envs.tasks.skills.facts import SkillFacts
from gaitway.envs.vec_env import EnvSpec
from gaitway.runners.checkpoint import Checkpoints
from gaitway.runners.evolution import EvolutionRunner
from gaitway.runners.run_folder import RunFolder, check_links
from gaitway.skills.frozen_policy import SkillFileError
from gaitway.skills.places import is_shipped
from gaitway.skills.skill_file import Skills, find_skills

KEY = "init_from"
LEARNT = ("policy", "temperature", "value_norm")
"""Parts of an algorithm's state that hold what was learnt, and in which units."""


def pinned(config: TrainConfig) -> TrainConfig:
    """The config with the whole paths of what it begins with, a run or skills and the clips of starts, so that
    config.yaml says them wherever it is read."""
    wrappers = tuple(_pinned_clips(entry) for entry in config.env.wrappers)
    config = replace(config, env=replace(config.env, wrappers=wrappers))
    run = config.init_from.run
    if run is None or is_shipped(run) or not os.path.exists(os.path.expanduser(run)):
        return config
    return replace(config, init_from=replace(config.init_from, run=os.path.realpath(os.path.expanduser(run))))


def _pinned_clips(wrapper: dict[str, Any]) -> dict[str, Any]:
    """The entry of a wrapper; of `starts` with the whole paths of its clips."""
    motion = wrapper.get("motion")
    if wrapper.get("name") != "starts" or motion is None:
        return wrapper
    folders = [motion] if isinstance(motion, str) else list(motion)
    found = [os.path.realpath(each) if os.path.exists(each) else each for each in folders]
    return {**wrapper, "motion": found[0] if isinstance(motion, str) else found}


@by_origin
def init_from(config: TrainConfig, algorithm: Any) -> str | None:
    """Let `algorithm`, as it was just made, begin as the configuration says; a line that tells with what, None where
    it says nothing. The later keys of `init_from` belong here."""
    run = config.init_from.run
    if run is None:
        return None
    if recipe_of(config.algorithm.name).runs(EvolutionRunner):
        raise ConfigError(f"{config.algorithm.name} searches around a point of its own; leave {KEY} out", KEY)
    place = Path(os.path.expanduser(run))
    is_run = all((place / name).is_file() for name in RUN_FILES)
    try:
        return _from_run(place, algorithm) if is_run else _from_skills(run, algorithm)
    except SkillFileError as error:
        raise ConfigError(f"{KEY}.run: {error}", KEY) from error


def _from_run(place: Path, algorithm: Any) -> str:
    folder = RunFolder.open(place)
    check_links(folder.path, folder.origin())
    which = "best" if (folder.checkpoints / "best").exists() else "last"
    state, steps = Checkpoints(folder.checkpoints, folder.run_id).load(which)
    contract = EnvSpec.from_dict(folder.read_contract())
    _check_contract(place, contract, algorithm.policy)
    stored, parts = state["algorithm"], _modules(algorithm)
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
    return f"begins with the weights of {place}, {which} checkpoint (step {steps:,})"


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
