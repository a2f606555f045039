"""Legged tasks by their ids: a preset, and options over it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gaitway.core.config import from_config, to_config
from gaitway.envs.legged.config import LeggedConfig
from gaitway.envs.legged.presets import PRESETS
from gaitway.envs.legged.rewards import TERMINATION
from gaitway.envs.robots.legged import RobotError
from gaitway.envs.tasks.legged.model import robot_of
from gaitway.envs.tasks.legged.task import LeggedTask


def make_legged(id: str, options: Mapping[str, Any]) -> LeggedTask:
    """The task of a preset, with options in the place of its own."""
    own = from_config(LeggedConfig, PRESETS[id])
    preset = to_config(own)
    if id == "legged:velocity" and "robot" not in options:
        raise RobotError("legged:velocity needs a robot: write env.options.robot=FILE.yaml, or the name of one we know")
    try:
        config = from_config(LeggedConfig, _merged(preset, options), "env.options")
    except TypeError as error:
        raise TypeError(f"{id}: {error}") from error
    if "rewards" not in options:
        config = _as_paid(config, own)
    return LeggedTask(id, config, _plain(options, preset))


def _as_paid(config: LeggedConfig, preset: LeggedConfig) -> LeggedConfig:
    """With the preset's price of a termination, which its weight times dt is, for robots of another rate too."""
    steps = [robot.timestep * robot.substeps for robot in (robot_of(preset), robot_of(config))]
    if steps[0] == steps[1]:
        return config
    terms = [
        dataclasses.replace(term, weight=term.weight * steps[0] / steps[1]) if term.name == TERMINATION else term
        for term in config.rewards
    ]
    return dataclasses.replace(config, rewards=terms)


def _merged(preset: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options over a preset; mappings are merged, but for lists of groups."""
    merged = dict(preset)
    for name, value in options.items():
        is_part = isinstance(value, Mapping) and isinstance(preset.get(name), Mapping) and name != "observations"
        merged[name] = _merged(preset[name], value) if is_part else value
    return merged


def _plain(options: Mapping[str, Any], preset: Mapping[str, Any]) -> dict[str, Any]:
    """Those options that differ from the preset."""
    return {name: to_config(value) for name, value in options.items() if to_config(value) != preset.get(name)}
