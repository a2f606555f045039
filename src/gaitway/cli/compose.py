"""What the user asked for, on top of the defaults: presets, a file of their own, and `key=value` arguments.

Hydra reads the presets and its override language. Its own checks are replaced: it accepts a misspelt key in a preset in
silence and explains one on the command line in several lines, so every key is let through here and `schema`, which
builds the frozen dataclasses, refuses what it does not know. Later layers win:

    defaults  <  experiment=NAME  <  config=FILE.yaml  <  key=value

The file may name the experiment that it builds on itself: `defaults: [{experiment: NAME}]`.
Nothing is registered with Hydra outside a call of `compose`.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra._internal.defaults_list import DefaultsList
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from omegaconf.resolvers import oc

from gaitway.cli.arguments import quoted
from gaitway.cli.config_file import DEFAULT, write_config
from gaitway.cli.presets import CONF_FOLDER, preset_folders, presets_in
from gaitway.core.config import (
    ConfigError,
    UnknownKeyError,
    choose,
    did_you_mean,
    flatten,
    load_yaml,
    read_config,
    to_config,
)
from gaitway.runners.confidential import variable_against

__all__ = ["DEFAULT", "Composed", "compose", "read_config", "write_config"]

COMMAND_LINE = "command line"
_PRIMARY = "_gaitway_defaults_"
MANY = 12
"""More presets than these are counted in an error, and not listed."""
PATHS = ("run_dir", "data.path")
"""Keys whose value on the command line is a path, taken as it stands; in quotes, or `null`, it is Hydra's."""


@dataclass(frozen=True)
class Composed:
    """The effective configuration, and for each dotted key where its value comes from."""

    config: dict[str, Any]
    """Plain values, with the types that `schema` gave them."""
    sources: dict[str, str]
    """Dotted key -> "default", "experiment NAME", "file PATH" or "command line"."""
    experiment: str | None = None
    """The preset that was asked for."""


def compose(
    overrides: Sequence[str],
    defaults: Mapping[str, Any],
    schema: Callable[[dict[str, Any]], Any],
    *,
    choices: Mapping[str, Mapping[str, Mapping[str, Any]]] | None = None,
    followers: Mapping[str, tuple[str, Mapping[str, Mapping[str, Any]]]] | None = None,
    own: Callable[[str], Mapping[str, Mapping[str, Any]]] | None = None,
    config_dir: str | Path | None = None,
    conf_folder: Path = CONF_FOLDER,
) -> Composed:
    """Compose the arguments of a command; every mistake in them is a `ConfigError` of one sentence.

    `defaults` are plain (`to_config(TrainConfig())`). `choices` are the sections whose keys depend on their `name`:
    `{"algorithm": {"ppo": to_config(PPOConfig()), ...}}`; `algorithm=ppo` and `algorithm.name=ppo` mean the same.
    `followers` are the sections whose keys depend on the name of another section:
    `{"agent": ("algorithm", {"ppo": to_config(ActorCriticConfig()), ...})}`. `own` gives these sections' defaults for a
    choice of the user, whose name is `package.module:Object`.
    `config_dir` holds presets of the user (`experiment/*.yaml`) besides those in `conf_folder`.
    """
    layers = _Layers(preset_folders(conf_folder, config_dir), dict(choices or {}), dict(followers or {}), own)
    arguments = layers.read_arguments(overrides)
    with _hydra(layers, defaults):
        composed, sources = _compose_once(layers, arguments)
        for section in layers.choices:
            name = composed[section].get("name") if isinstance(composed.get(section), dict) else None
            layers.choose(section, name, f"{section}.name")
            if name != layers.chosen[section]:
                # the name was set like any other key, so the defaults of that choice are still missing
                arguments = [argument for argument in arguments if argument.partition("=")[0] != section]
                arguments.append(f"{section}={name}")
                layers.store_choices()
                source = sources[f"{section}.name"]
                composed, sources = _compose_once(layers, arguments)
                sources[f"{section}.name"] = source
    defaults = layers.defaults_in_force(defaults)
    _check_deletions(arguments, defaults)
    typed = _validate(schema, composed, sources, defaults)
    if dataclasses.is_dataclass(typed) and not isinstance(typed, type):
        composed = _overlay(composed, to_config(typed))
    return Composed(composed, sources, layers.experiment)


@dataclass
class _Layers:
    """Where the layers of one call come from."""

    folders: list[Path]
    choices: dict[str, Mapping[str, Mapping[str, Any]]]
    followers: dict[str, tuple[str, Mapping[str, Mapping[str, Any]]]]
    own: Callable[[str], Mapping[str, Mapping[str, Any]]] | None = None
    experiment: str | None = None
    file: Path | None = None
    file_experiment: str | None = None
    """The preset that the file builds on."""
    file_content: DictConfig | None = None
    chosen: dict[str, str] = field(default_factory=dict)
    """Section -> the choice in force, filled by composing."""

    def read_arguments(self, overrides: Sequence[str]) -> list[str]:
        """The arguments for Hydra: choices of a group as they are, values in the form that may add a key."""
        arguments = []
        for text in overrides:
            if text.startswith("config="):  # a path is not bound by Hydra's rules for values
                self._read_file(os.path.expanduser(text.removeprefix("config=")))
                arguments.append("config=file")
                continue
            text = _with_plain_path(text)
            override = _parse(text)
            key, value = override.key_or_group, override.value()
            if self._is_group(key) and not isinstance(value, dict):
                self._check_choice(key, value)
                self.experiment = str(value) if key == "experiment" else self.experiment
                arguments.append(text.lstrip("+"))
            elif key in self.followers and not isinstance(value, dict) and not override.is_delete():
                leader = self.followers[key][0]
                raise ConfigError(
                    f"{key} is {value!r}, but it goes with the {leader}; set {leader}=NAME, or single keys of {key}",
                    key,
                )
            elif override.is_delete():
                arguments.append(text)
            else:
                arguments.append("++" + text.lstrip("+"))
        base = self.file_experiment
        if base is not None and self.experiment not in (None, base):
            places = f"{self.experiment!r} on the command line and {base!r} in {self.file}"
            raise ConfigError(f"experiment is {places}; name one of them", "experiment")
        if base is not None and self.experiment is None:
            self.experiment = base
            arguments.append(f"experiment={base}")
        return arguments

    def choose(self, section: str, name: Any, key: str) -> None:
        """Refuse a name that is no choice for a section; that of a choice of the user becomes one."""
        if self.own is not None and isinstance(name, str) and ":" in name:
            found = self.own(name)
            self.choices[section] = {**self.choices[section], name: found[section]}
            for follower, (leader, entries) in self.followers.items():
                if leader == section:
                    self.followers[follower] = (leader, {**entries, name: found[follower]})
        choose(self.choices[section], name, key)

    def store_choices(self) -> None:
        """Give Hydra the defaults of every choice."""
        for section, options in self.choices.items():
            for name, entry in options.items():
                _store_choice(section, name, {"name": name, **entry})
        for section, (_, entries) in self.followers.items():
            for name, entry in entries.items():
                _store_choice(section, name, dict(entry))

    def defaults_in_force(self, defaults: Mapping[str, Any]) -> dict[str, Any]:
        """The defaults with the sections as they are for what was chosen."""
        chosen: dict[str, Any] = {}
        for section, options in self.choices.items():
            chosen[section] = {"name": self.chosen[section], **options[self.chosen[section]]}
        for section, (leader, entries) in self.followers.items():
            chosen[section] = entries[self.chosen[leader]]
        return {**defaults, **chosen}

    def label(self, config_path: str) -> str:
        group, _, name = config_path.partition("/")
        if config_path == "config/file":
            return f"file {self.file}"
        return f"{group} {name}" if self.source_file(config_path) else DEFAULT

    def source_file(self, config_path: str) -> Path | None:
        paths = [folder / f"{config_path}.yaml" for folder in self.folders]
        return next((path for path in paths if path.is_file()), None)

    def content(self, config_path: str) -> dict[str, Any]:
        source = self.source_file(config_path)
        loaded = OmegaConf.load(source) if source is not None else self.file_content
        content: Any = OmegaConf.to_container(loaded, resolve=False) if loaded is not None else {}
        return {str(key): value for key, value in content.items() if key != "defaults"}

    def _is_group(self, key: str) -> bool:
        return key in ("experiment", *self.choices) or any((folder / key).is_dir() for folder in self.folders)

    def _check_choice(self, key: str, value: Any) -> None:
        if key in self.choices:
            self.choose(key, value, key)
        elif not isinstance(value, str) or not self.source_file(f"{key}/{value}"):
            known = sorted(presets_in(self.folders, key))
            hint = did_you_mean(str(value), known)
            if str(value).endswith((".yaml", ".yml")):
                hint = f" (for a file of your own write config={value})"
            listed = f"there are {', '.join(known)}" if known else "there is none"
            if len(known) > MANY:
                listed = f"`gaitway list {key}s` names all {len(known)}"
            raise ConfigError(f"there is no {key} {value!r}{hint}; {listed}", key)
        else:
            presets_in(self.folders, key)  # refuses a name that is taken twice, of which Hydra would ignore one

    def _read_file(self, name: str) -> None:
        self.file = Path(name)
        try:
            load_yaml(self.file)  # refuses what only seems small, before OmegaConf writes it out
            content = OmegaConf.load(self.file)
        except OSError as error:
            raise ConfigError(f"cannot read config={name}: {error.strerror}; check the path", "config") from error
        except (yaml.YAMLError, OmegaConfBaseException, UnicodeDecodeError) as error:
            raise ConfigError(f"{name} is not a configuration: {_one_line(error)}; correct it there") from error
        if not isinstance(content, DictConfig):
            raise ConfigError(f"{name} holds a list; a configuration is a mapping of keys to values")
        self.file_experiment = self._base(OmegaConf.to_container(content))
        content.pop("defaults", None)
        self.file_content = content

    def _base(self, content: Any) -> str | None:
        """The preset that a file of the user builds on."""
        wanted = "a file builds on one preset by `defaults: [{experiment: NAME}]`"
        if "experiment" in content:
            raise ConfigError(f"{self.file} has the key 'experiment'; {wanted}", "experiment")
        if "defaults" not in content:
            return None
        entries = content["defaults"]
        entry = entries[0] if isinstance(entries, list) and len(entries) == 1 else None
        if not isinstance(entry, dict) or list(entry) != ["experiment"]:
            raise ConfigError(f"defaults is {entries!r} in {self.file}; {wanted} and on nothing else", "defaults")
        try:
            self._check_choice("experiment", entry["experiment"])
        except ConfigError as error:
            raise ConfigError(f"{error} (from the file {self.file})", error.key) from error
        return entry["experiment"]


def several_values(text: str) -> tuple[str, list[Any] | None]:
    """The key of an argument, and its values where it has several (`key=a,b`, `key=range(1,4)`); None for one."""
    if text.partition("=")[0].lstrip("+") in PATHS:
        return text.partition("=")[0], None
    try:
        override = OverridesParser.create().parse_override(text)
    except HydraException:
        return "", None  # what is wrong with it is said when it is composed
    key = override.key_or_group
    if not override.is_sweep_override():
        return key, None
    return key, [_parse(f"{key}={value}").value() for value in override.sweep_string_iterator()]


def _with_plain_path(text: str) -> str:
    """The argument with its value in quotes where it is a path, which may hold any character that Hydra knows.

    `${seed}` in it is still the value of another key.
    """
    key, sign, path = text.partition("=")
    name = key.lstrip("+")
    is_quoted = len(path) > 1 and path[0] == path[-1] and path[0] in "'\""
    if name not in PATHS or not sign or is_quoted or path in ("", "null"):
        return text
    return f"{key}={quoted(path)}"


def _parse(text: str) -> Override:
    try:
        override = OverridesParser.create().parse_override(text)
    except HydraException as error:
        reason = str(error).splitlines()[0].rstrip(".")
        advice = "write key=value, and quote a value with spaces, commas, # or letters such as ä: 'key=\"a, b\"'"
        raise ConfigError(f"cannot read the argument {text!r} ({reason}); {advice}") from error
    except RecursionError as error:
        raise ConfigError(f"the argument {text[:40]!r}... is nested too deeply; write it into a file") from error
    key = override.key_or_group
    if not key:
        raise ConfigError(f"cannot read the argument {text!r}; write key=value")
    if override.is_sweep_override():
        raise ConfigError(
            f"{key} has several values in {text!r}; give one, or a list as {key}=[...], or try each by -m", key
        )
    if key.split(".")[0].split("/")[0] == "hydra":
        raise ConfigError(f"{text!r} sets Hydra itself, which has no effect here; remove it", key)
    return override


class _Repository(dict[str, Any]):
    """What Hydra's store holds. Hydra copies all of it to compose, and what it takes from the copy once more."""

    def __deepcopy__(self, memo: dict[int, Any]) -> _Repository:
        return _Repository(self)


_nodes: dict[tuple[str, str], tuple[str, Any]] = {}
"""By section and choice: what the defaults were, and what Hydra makes of them, which takes a while."""


def _store_choice(section: str, name: str, entry: dict[str, Any]) -> None:
    """Give Hydra the defaults of a choice."""
    store, written = ConfigStore.instance(), repr(entry)
    if _nodes.get((section, name), ("",))[0] != written:
        store.store(name=name, group=section, node=entry)
        _nodes[section, name] = written, store.repo[section][f"{name}.yaml"]
    store.repo.setdefault(section, {})[f"{name}.yaml"] = _nodes[section, name][1]


@contextmanager
def _hydra(layers: _Layers, defaults: Mapping[str, Any]) -> Iterator[None]:
    """Hydra with our layers, and afterwards as it was: also inside a program that uses Hydra for itself."""
    sections = (*layers.choices, *layers.followers)
    base = {key: value for key, value in defaults.items() if key not in sections}
    groups = [{section: defaults[section]["name"]} for section in layers.choices]
    groups += [{section: f"${{{leader}}}"} for section, (leader, _) in layers.followers.items()]
    primary = {"defaults": ["_self_", *groups, {"experiment": None}, {"config": None}], **base}
    primary["hydra"] = {"searchpath": [f"file://{folder}" for folder in layers.folders[1:]]}
    store, instance = ConfigStore.instance(), GlobalHydra.instance()
    saved_store, saved_hydra = store.repo, instance.hydra
    store.repo = _Repository({key: value for key, value in saved_store.items() if key not in ("config", *sections)})
    instance.clear()
    OmegaConf.register_new_resolver("oc.env", harmless_variable, replace=True)
    try:
        store.store(name=_PRIMARY, node=primary)
        store.store(name="file", group="config", package="_global_", node=layers.file_content or {})
        layers.store_choices()
        with hydra.initialize_config_dir(str(layers.folders[0]), job_name="gaitway", version_base="1.3"):
            yield
    finally:
        OmegaConf.register_new_resolver("oc.env", oc.env, replace=True)
        store.repo = saved_store
        GlobalHydra.instance().hydra = saved_hydra


def harmless_variable(name: str, *default: Any) -> Any:
    """`${oc.env:NAME}`, unless it looks like a secret: what it stands for is written into the run folder."""
    reason = variable_against(name, os.environ.get(name, ""))
    if reason is not None:
        raise ConfigError(
            f"${{oc.env:{name}}} would be written into the run folder, and {reason}; let your code read it from the "
            "environment itself"
        )
    return oc.env(name, *default)


def _compose_once(layers: _Layers, arguments: list[str]) -> tuple[dict[str, Any], dict[str, str]]:
    try:
        merged = hydra.compose(_PRIMARY, arguments)
        composed: Any = OmegaConf.to_container(merged, resolve=True, throw_on_missing=True)
        plan = GlobalHydra.instance().config_loader().compute_defaults_list(_PRIMARY, arguments, RunMode.RUN)
        layers.chosen = {section: str(plan.overrides.known_choices[section]) for section in layers.choices}
    except (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError, OSError, RecursionError) as error:
        secret = next((each for each in _causes(error) if isinstance(each, ConfigError)), None)
        if secret is not None:
            raise secret from error
        reason = _one_line(error).replace(f"In '{_PRIMARY}': ", "").rstrip(".")
        if unfit := re.match(r"Error merging override \+*([^=]+)=(.*)", reason):
            key, value = unfit.groups()
            wanted = (
                f"a list; write {key}=[...]" if value.startswith("{") else f"a mapping; write '{key}={{key: value}}'"
            )
            raise ConfigError(f"{key} is {value}; expected {wanted}", key) from error
        raise ConfigError(f"cannot compose the configuration: {reason}; correct the argument or file") from error
    if "experiment" in composed:
        raise ConfigError("an experiment file must begin with the line '# @package _global_'; add it", "experiment")
    return composed, _sources(layers, plan, arguments, flatten(composed))


def _sources(layers: _Layers, plan: DefaultsList, arguments: list[str], keys: Iterable[str]) -> dict[str, str]:
    """The last layer that set each key, read from the order in which Hydra merged them."""
    marks: list[tuple[str, str]] = []
    for entry in plan.defaults:
        if entry.config_path is not None and layers.label(entry.config_path) != DEFAULT:
            label = layers.label(entry.config_path)
            marks += [(key, label) for key in _assigned(layers.content(entry.config_path), entry.package or "")]
    for section, decided in plan.overrides.override_metadata.items():
        if section in layers.choices:
            path = decided.containing_config_path
            marks.append((f"{section}.name", COMMAND_LINE if path is None else layers.label(path)))
    for override in map(_parse, arguments):
        group, value = override.key_or_group, override.value()
        # a choice sets its name alone, which is marked above
        if group not in layers.choices or isinstance(value, dict):
            marks += [(key, COMMAND_LINE) for key in _assigned({group: value}, "")]
    marks.reverse()
    # a mark may also stand for an element of the value or for a mapping around the key
    return {
        key: next(
            (label for name, label in marks if f"{name}.".startswith(f"{key}.") or key.startswith(f"{name}.")), DEFAULT
        )
        for key in keys
    }


def _assigned(content: Mapping[str, Any], path: str) -> list[str]:
    return [key for key, value in flatten(content, path).items() if value != {}]


def _check_deletions(arguments: list[str], defaults: Mapping[str, Any]) -> None:
    known = flatten(defaults)
    for argument in arguments:
        key = argument[1:].partition("=")[0]
        if argument.startswith("~") and any(name == key or name.startswith(f"{key}.") for name in known):
            raise ConfigError(f"{key} has a default and cannot be removed by {argument!r}; set it instead", key)


def _validate(
    schema: Callable[[dict[str, Any]], Any],
    composed: dict[str, Any],
    sources: Mapping[str, str],
    defaults: Mapping[str, Any],
) -> Any:
    try:
        return schema(composed)
    except ConfigError as error:
        message, key = str(error), error.key.partition("[")[0]
        if isinstance(error, UnknownKeyError):
            elsewhere = [name for name in flatten(defaults) if name.rpartition(".")[2] == key.rpartition(".")[2]]
            message += f"; there is {', '.join(elsewhere)}" if elsewhere else ""
        said = {source for name, source in sources.items() if name == key or name.startswith(f"{key}.")} - {DEFAULT}
        where = f" (from the {', the '.join(sorted(said))})" if said and key else ""
        raise type(error)(message + where, error.key) from error


def _overlay(plain: dict[str, Any], typed: Mapping[str, Any]) -> dict[str, Any]:
    """The values as the dataclasses hold them (1e6 became 1000000), for the keys that the user sees."""
    result = {}
    for key, value in plain.items():
        other = typed.get(key, value)
        result[key] = _overlay(value, other) if isinstance(value, dict) and isinstance(other, Mapping) else other
    return result


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _one_line(error: Exception) -> str:
    """The cause of a long complaint in one line; Hydra wraps that of OmegaConf in an empty exception."""
    text = str(error) or str(error.__cause__ or type(error).__name__)
    text = text.partition("Config search path:")[0].partition("full_key:")[0]
    return " ".join(line.strip() for line in text.splitlines() if line.strip())
