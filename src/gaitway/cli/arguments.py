"""Plain values as `key=value` arguments, in Hydra's grammar, and the one such argument of commands that only look."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from gaitway.core.config import ConfigError, read_yaml

GROUPS = ("experiment", "config", "algorithm")
"""Keys whose values name something: a preset, a file, an algorithm."""
PLAIN_TEXT = re.compile(r"[A-Za-z_][\w./-]*")
WORDS = {"true", "false", "null", "nan", "inf"}
"""Texts that are taken for something else unless they are in quotes."""
OF_ENV = "env.options."
"""Before names of an environment's options, where there are other keys too."""


def argument(key: str, value: Any) -> str:
    """`key=value` as the command line takes it."""
    return f"{key}={value if key in GROUPS and isinstance(value, str) else text_of(value)}"


def text_of(value: Any) -> str:
    """A plain value as text that is read as the same value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{text_of(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(text_of(item) for item in value) + "]"
    if isinstance(value, str) and (not PLAIN_TEXT.fullmatch(value) or value.lower() in WORDS):
        return quoted(value)
    return str(value)


def quoted(text: str) -> str:
    """The text in quotes, whatever it holds; `${seed}` in it is still the value of another key."""
    return '"' + re.sub(r"(\\*)(\"|\Z)", lambda found: found[1] * 2 + (r"\"" if found[2] else ""), text) + '"'


def device_of(settings: Sequence[str]) -> tuple[str | None, list[str]]:
    """The value of `device=NAME` among `key=value` arguments, None without one, and the other arguments."""
    devices = [text.removeprefix("device=") for text in settings if text.startswith("device=")]
    if len(devices) > 1 or "" in devices:
        raise ConfigError(f"{' '.join(settings)} names no one device; write device=cpu or device=cuda", "device")
    return next(iter(devices), None), [text for text in settings if not text.startswith("device=")]


def device_alone(settings: Sequence[str]) -> str | None:
    """The value of `device=NAME` for commands that take no other key."""
    device, others = device_of(settings)
    if others:
        raise ConfigError(f"{others[0]!r} is not understood; the one key here is device=cpu or device=cuda")
    return device


def env_options(texts: Sequence[str]) -> dict[str, Any]:
    """Options of an environment, given as NAME=VALUE or as for a run, env.options.NAME=VALUE; dots lead into parts."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        *outer, last = name.removeprefix(OF_ENV).split(".")
        part = found
        for key in outer:
            part = part.setdefault(key, {}) if isinstance(part, dict) else part
        if not equals or not isinstance(part, dict):
            raise ConfigError(f"{text!r} is not understood; write options as name=value")
        try:
            part[last] = read_yaml(value, text)
        except yaml.YAMLError as error:
            raise ConfigError(f"{text!r} is not understood; write options as name=value") from error
    return found
