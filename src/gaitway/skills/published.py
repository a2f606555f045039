"""Skills as HSD-3 published them (Gehring et al. 2021): plain tensors, and the JSON that lay beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gaitway.envs.registry import make_env
from gaitway.envs.spec import EnvSpec
from gaitway.envs.tasks.skills.facts import SkillFacts
from gaitway.envs.tasks.skills.goal_spaces import groups_of, subset_features
from gaitway.skills.frozen_policy import Architecture, SkillFileError, component_names

INPUTS = ("desired_goal", "observation", "task")
"""What a published policy reads, in this order."""
FIGURES = {"success": "cperf_eval", "r": "cperf_r", "q": "cperf_q", "running": "cperf_running"}
"""Our name of a figure by task -> theirs in the side-car."""


def read_published(policy: Mapping[str, Tensor], side_car: Mapping[str, Any], robot: str) -> dict[str, Any]:
    """The fields of `Skills` for the tensors `pi.1.layers.0.weight`, ..., `pi.2.mu.weight`, ... (a leading `pi.` may be
    missing) and a side-car with task_map, goal_dims, cperf, ..."""
    named, layers = _layers(policy)
    practised, spec = _practised(side_car), _spec(side_car, robot)
    facts, action = SkillFacts.of(spec), spec.action
    inputs = {name: component_names(spec, name) for name in INPUTS}
    expected = sum(map(len, inputs.values()))
    first = named["1.layers.0.weight"]
    width, size = len(first), first.shape[-1]
    if size != expected:
        raise SkillFileError(
            f"the policy reads {size} numbers, and skills of {robot} over these tasks {expected}; check robot and "
            "side-car"
        )
    architecture = Architecture((width,) * layers)
    try:
        network = architecture.build(size, len(action.names), _weights(named, layers))
    except (ValueError, RuntimeError) as error:  # the latter from heads of different widths
        raise SkillFileError(f"the published policy does not fit {robot}: {error}") from error
    figures = {ours: _by_group(facts, side_car[theirs]) for ours, theirs in FIGURES.items() if theirs in side_car}
    figures.setdefault("success", _by_group(facts, side_car.get("cperf", {})))
    figures["weight"] = _by_group(facts, practised)
    return {
        "facts": facts,
        "architecture": architecture,
        "network": network,
        "inputs": inputs,
        "actions": action.names,
        "action_low": action.low,
        "action_high": action.high,
        "figures": figures,
        "origin": {"published": True},
    }


def _layers(policy: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], int]:
    """The actor's tensors without their prefix, and the number of its hidden layers."""
    named = {name.removeprefix("pi."): value for name, value in policy.items() if re.match(r"(pi\.)?[12]\.", name)}
    layers = sorted(int(found[1]) for name in named if (found := re.fullmatch(r"1\.layers\.(\d+)\.weight", name)))
    wanted = [f"2.{part}.{kind}" for part in ("mu", "log_std") for kind in ("weight", "bias")]
    wanted += [f"1.layers.{layer}.bias" for layer in layers]
    missing = [name for name in wanted if name not in named]
    if not layers or layers != list(range(len(layers))) or missing:
        lacking = (missing or ["1.layers.0.weight"])[0]
        raise SkillFileError(
            f"the policy has the tensors {sorted(policy)[:6]} ... and lacks {lacking}; it should have "
            "pi.1.layers.0.weight and so on, pi.2.mu.* and pi.2.log_std.*"
        )
    return named, len(layers)


def _weights(named: Mapping[str, Tensor], layers: int) -> dict[str, Tensor]:
    """The same tensors under the names of our network, whose last layer is both heads."""
    state: dict[str, Tensor] = {}
    for kind in ("weight", "bias"):
        state |= {f"trunk.linears.{layer}.{kind}": named[f"1.layers.{layer}.{kind}"] for layer in range(layers)}
        state[f"last.{kind}"] = torch.cat((named[f"2.mu.{kind}"], named[f"2.log_std.{kind}"]))
    return state


def _practised(side_car: Mapping[str, Any]) -> Mapping[str, float]:
    """The tasks that were practised, and how often."""
    if not isinstance(side_car, Mapping):
        raise SkillFileError(
            f"the side-car is {type(side_car).__name__}; pass what json.load gives of that file, a dict"
        )
    dims = side_car.get("goal_dims") or side_car.get("cperf")
    if not isinstance(dims, Mapping) or not isinstance(side_car.get("task_map"), Mapping):
        raise SkillFileError("the side-car lacks task_map or goal_dims; pass the JSON that lay beside the policy")
    return dims


def _spec(side_car: Mapping[str, Any], robot: str) -> EnvSpec:
    """The contract of the environment that these skills were learnt in; groups in ascending order, as they were
    published, whichever task comes first in the side-car."""
    tasks = [str(task) for task in _practised(side_car) if task != "total"]
    for task in tasks:
        subset_features(task)  # refuses what is no task
    groups = sorted(groups_of(tasks), key=lambda group: [int(member) for member in group.split("+")])
    options: dict[str, Any] = {
        "feature_dist": dict.fromkeys(groups, 1.0),
        "task_map": {str(feature): int(place) for feature, place in side_car["task_map"].items()},
        "compat": "original",
    }
    with make_env(f"{robot.lower()}/skills", num_envs=1, **options) as env:
        return env.spec


def _by_group(facts: SkillFacts, figures: Mapping[str, float]) -> dict[str, float]:
    """Figures of the side-car, whose tasks may be flattened, in group spelling."""
    tasks, found = facts.tasks, {}
    for task, figure in figures.items():
        if task == "total":
            continue
        try:
            found[tasks.name_of(tasks.key_of(str(task)))] = float(figure)
        except TypeError as error:
            raise SkillFileError(f"the side-car says {figure!r} of the task {task!r}; use a number") from error
    return found
