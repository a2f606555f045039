"""The effective configuration as a YAML file in which every value that is not a default says where it comes from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from gaitway.core.config import join
from gaitway.core.files import atomic_write_text

DEFAULT = "default"


def write_config(path: str | Path, config_dict: Mapping[str, Any], sources: Mapping[str, str]) -> None:
    """The effective configuration as YAML; a value that is not a default says where it comes from."""
    atomic_write_text(path, "".join(f"{line}\n" for line in _lines(config_dict, sources, "", 0)))


def change_value(path: str | Path, key: str, value: int, source: str) -> None:
    """Change one number at the top level of a written config; everything else, comments included, stays as it is."""
    text = Path(path).read_text()
    pattern = re.compile(rf"^{re.escape(key)}: *(\S+).*$", re.MULTILINE)
    found = pattern.search(text)
    if found is not None and found[1] != str(value):
        atomic_write_text(path, pattern.sub(f"{key}: {value}  # {source}", text, count=1))


def _lines(data: Mapping[str, Any], sources: Mapping[str, str], path: str, indent: int) -> Iterator[str]:
    for name, value in data.items():
        key = join(path, name)
        start = f"{'  ' * indent}{_scalar(name)}:"
        if isinstance(value, Mapping) and value:
            yield start
            yield from _lines(value, sources, key, indent + 1)
        else:
            source = sources.get(key, DEFAULT)
            yield f"{start} {_scalar(value)}" + (f"  # {source}" if source != DEFAULT else "")


class _OneLineDumper(yaml.SafeDumper):
    """Strings with line breaks in double quotes, so that every value fits one line."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"')


_OneLineDumper.add_representer(str, _represent_text)


def _scalar(value: Any) -> str:
    text = yaml.dump(value, Dumper=_OneLineDumper, default_flow_style=True, sort_keys=False, width=float("inf"))
    return text.removesuffix("...\n").strip()
