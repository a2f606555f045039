"""Strict configuration: a plain mapping becomes a frozen dataclass, or an error that names the key and the fix.

The dataclasses are the only home of defaults. `from_config` fills one from what YAML and the command line say, refusing
unknown keys and wrong types; `to_config` is its inverse. Conversions that are accepted, because YAML writes them so:
an integer for a float, `1e6` for an integer, a list for a tuple, the name of an enum member.

`@configuration` makes such a dataclass. Its numbers say in their annotations what they may be (`core.ranges`), and are
checked whoever makes the object; what concerns several fields is checked in `__post_init__`, after that.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import types
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, dataclass_transform, get_args, get_origin

import yaml

from gaitway.core.ranges import alternatives, range_of, ranged_hints, refusal, words_of
from gaitway.core.trust import Kind, judge, judge_kind, present_folder
from gaitway.core.user_code import UserCodeError, import_user_module

Config = TypeVar("Config")
LARGEST_FILE = 1_000_000
"""Bytes; presets have less than 2,000."""
MOST_VALUES = 100_000
MOST_NESTED = 2_000
"""Brackets of a YAML text, and characters of a line, up to which libyaml reads it: what is nested deeper overflows its
stack."""
CONFIGURATIONS: list[type] = []
"""Every class that `@configuration` made, for tests that look at all of them."""


class ConfigError(ValueError):
    """A mistake in a configuration; `key` is the dotted key it is about ("" for the whole)."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


class UnknownKeyError(ConfigError):
    """A key that does not exist, most often a misspelt one."""


class OutOfRangeError(ConfigError):
    """A number that the range of its field does not hold."""


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def configuration(cls: Any = None, /, *, kw_only: bool = False) -> Any:
    """A frozen dataclass whose numbers are held to their declared ranges; subclasses are, too."""
    if cls is None:
        return functools.partial(configuration, kw_only=kw_only)
    own = cls.__dict__.get("__post_init__")

    def check(self: Any) -> None:
        check_ranges(self)
        if own is not None:
            own(self)
        elif hasattr(parent := super(made, self), "__post_init__"):
            parent.__post_init__()

    cls.__post_init__ = check
    made = dataclasses.dataclass(frozen=True, kw_only=kw_only)(cls)
    CONFIGURATIONS.append(made)
    return made


def check_ranges(config: Any) -> None:
    """Refuse a configuration with a number outside its range."""
    for name, hint in _ranged(type(config)).items():  # type: ignore[arg-type]
        found = refusal(hint, getattr(config, name), name)
        if found is not None:
            raise OutOfRangeError(found, name)


@functools.cache
def _ranged(cls: Any) -> dict[str, Any]:
    hints = ranged_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if range_of(hints[field.name])}


def from_config(cls: type[Config], data: Any, path: str = "") -> Config:
    """An instance of the dataclass `cls` from a plain mapping; `path` is where the mapping sits, for the errors."""
    if not isinstance(data, Mapping):
        raise _wrong_type(data, f"a mapping of {cls.__name__}", path)
    fields = {field.name: field for field in dataclasses.fields(cls) if _is_written(field)}  # type: ignore[arg-type]
    for key in data:
        if key not in fields:
            raise unknown_key(path, key, fields)
    hints = ranged_hints(cls)
    values = {name: convert(hints[name], data[name], join(path, name)) for name in fields if name in data}
    for name, field in fields.items():
        if name not in values and _is_required(field):
            key = join(path, name)
            raise ConfigError(f"{key} is missing and has no default; set it to {describe(hints[name])}", key)
    try:
        return cls(**values)
    except OutOfRangeError as error:
        raise OutOfRangeError(join(path, error.args[0]), join(path, error.key)) from error
    except (ValueError, TypeError, KeyError) as error:  # a check of __post_init__
        reason = error.args[0] if error.args else type(error).__name__
        raise ConfigError(f"{path}: {reason}" if path else f"{reason}", path) from error


def to_config(obj: Any) -> Any:
    """The plain form of a configuration: dicts, lists, numbers, strings, booleans and None."""
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        return {
            field.name: to_config(getattr(obj, field.name)) for field in dataclasses.fields(obj) if _is_written(field)
        }
    if isinstance(obj, Enum):
        return obj.name
    if isinstance(obj, Mapping):
        return {key: to_config(value) for key, value in obj.items()}
    if isinstance(obj, list | tuple):
        return [to_config(value) for value in obj]
    if isinstance(obj, Path):
        return str(obj)
    if obj is None or isinstance(obj, bool | int | float | str):
        return obj
    raise TypeError(f"a configuration cannot hold {obj!r}; use numbers, strings, lists, mappings or dataclasses")


def flatten(data: Mapping[str, Any], path: str = "", separator: str = ".") -> dict[str, Any]:
    """`{"a": {"b": 1}}` becomes `{"a.b": 1}`; lists and empty mappings are values."""
    flat: dict[str, Any] = {}
    for name, value in data.items():
        key = f"{path}{separator}{name}" if path else str(name)
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, key, separator))
        else:
            flat[key] = value
    return flat


def resolve_class(reference: str, key: str = "", kind: Kind | None = None) -> Any:
    """The class or function that `package.module:Name` refers to, as far as whoever names it may (`core.trust`).

    `kind` is what the key asks for; it binds those who may name parts of ours alone.
    """
    where = f"{key}: " if key else ""
    module_name, _, name = reference.partition(":") if isinstance(reference, str) else ("", "", "")
    if not (module_name and name and all(part.isidentifier() for part in [*module_name.split("."), *name.split(".")])):
        raise ConfigError(f"{where}{reference!r} does not name a class; write 'package.module:ClassName'", key)
    try:
        judge(reference, key)
        with present_folder():
            found: Any = import_user_module(module_name)
    except UserCodeError as error:
        raise ConfigError(f"{where}{error}", key) from error
    except ModuleNotFoundError as error:
        advice = "install it or start in the folder that holds it"
        raise ConfigError(f"{where}there is no module {error.name!r} for {reference!r}; {advice}", key) from error
    for part in name.split("."):
        if not hasattr(found, part):
            hint = did_you_mean(part, [known for known in dir(found) if not known.startswith("_")])
            raise ConfigError(f"{where}the module {module_name!r} has no {name!r}{hint}", key)
        found = getattr(found, part)
    judge_kind(found, reference, kind, key)
    return found


def choose(choices: Mapping[str, Config], name: Any, key: str) -> Config:
    """The entry `name` of `choices` for the key that names it, for example an algorithm."""
    if not isinstance(name, str) or name not in choices:
        hint = did_you_mean(str(name), choices)
        raise ConfigError(f"{key} is {name!r}{hint}; the choices are {', '.join(sorted(choices))}", key)
    return choices[name]


def read_config(path: str | Path) -> dict[str, Any]:
    """The mapping of a YAML file, read without any extension of YAML."""
    try:
        data = load_yaml(path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; check the path") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}; correct it there") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} holds {_found(data)}; a configuration is a mapping of keys to values")
    return data


def load_yaml(path: str | Path) -> Any:
    """What a YAML file says, see `read_yaml`; errors of the file system and of YAML pass."""
    size = Path(path).stat().st_size
    if size > LARGEST_FILE:
        raise ConfigError(f"{path} has {size:,} bytes; a configuration has at most {LARGEST_FILE:,}")
    return read_yaml(Path(path).read_text(encoding="utf-8"), str(path))


def read_yaml(text: str, where: str) -> Any:
    """What a YAML text says, read without any extension of YAML. Aliases may repeat a value, but neither contain
    themselves nor multiply into more than a configuration can mean."""
    try:
        data = yaml.load(text, Loader=_loader(text))
        count = _values_in(data, {})
    except RecursionError as error:
        raise ConfigError(f"{where} is nested too deeply, or contains itself; write its values out") from error
    except ValueError as error:  # a date or a number that Python does not have
        raise ConfigError(f"{where} holds a value that cannot be read ({error}); correct it there") from error
    if count > MOST_VALUES:
        raise ConfigError(f"{where} multiplies by aliases into {count:,} values; write out what is meant")
    return data


def _loader(text: str) -> Any:
    """libyaml's reader, seven times as fast as that in Python, where it is there and the text cannot harm it: a level
    of nesting takes a bracket or a column."""
    quick = getattr(yaml, "CSafeLoader", None)
    harmless = text.count("[") + text.count("{") < MOST_NESTED
    harmless = harmless and max(map(len, text.splitlines()), default=0) < MOST_NESTED
    return quick if quick is not None and harmless else yaml.SafeLoader


def _values_in(data: Any, known: dict[int, int]) -> int:
    """How many values there are if every alias is written out; what is shared is looked at once."""
    if not isinstance(data, dict | list):
        return 1
    if id(data) not in known:
        children = data.values() if isinstance(data, dict) else data
        known[id(data)] = 1 + sum(_values_in(child, known) for child in children)
    return known[id(data)]


def convert(hint: Any, value: Any, path: str) -> Any:
    """`value` as the type `hint` asks for, or a `ConfigError` that names `path`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin is Annotated:
        found = convert(arguments[0], value, path)
        sentence = refusal(hint, found, path)
        if sentence is not None:
            raise OutOfRangeError(sentence, path)
        return found
    if origin in (Union, types.UnionType):
        return _convert_union(arguments, value, path)
    if origin is Literal:
        for choice in arguments:
            if type(choice) is type(value) and choice == value:
                return choice
        hint_text = did_you_mean(str(value), [str(choice) for choice in arguments])
        raise ConfigError(f"{path} is {value!r}{hint_text}; the choices are {describe(hint)}", path)
    if dataclasses.is_dataclass(hint):
        return from_config(hint, value, path)  # type: ignore[arg-type]
    kind = origin or hint
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return _convert_mapping(arguments, value, path, hint)
    if isinstance(kind, type) and issubclass(kind, Sequence) and kind is not str:
        return _convert_sequence(kind, arguments, value, path, hint)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return value if isinstance(value, kind) else choose(kind.__members__, value, path)
    return _convert_scalar(kind, value, path)


def describe(hint: Any) -> str:
    """A type in the words of a configuration file."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        is_number = arguments[0] in (int, float) and range_of(hint)
        return words_of(hint) if is_number else describe(arguments[0])
    if origin in (Union, types.UnionType):
        return " or ".join(describe(argument) for argument in arguments)
    if origin is Literal:
        return ", ".join(repr(argument) for argument in arguments)
    if hint is type(None):
        return "null"
    if dataclasses.is_dataclass(hint):
        return f"a mapping of {getattr(hint, '__name__', hint)}"
    kind = origin or hint
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return f"a mapping to {describe(arguments[1])}" if arguments and arguments[1] is not Any else "a mapping"
    if isinstance(kind, type) and issubclass(kind, tuple | list | Sequence) and kind is not str:
        items = [describe(argument) for argument in arguments if argument is not ...]
        if kind is tuple and items and ... not in arguments:
            return f"a list of {len(items)} values ({', '.join(items)})"
        return f"a list, each {items[0]}" if items else "a list"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "one of " + ", ".join(kind.__members__)
    names = {bool: "true or false", int: "an integer", float: "a number", str: "text", Path: "a path", Any: "anything"}
    return names.get(kind, str(kind))


def unknown_key(path: str, name: Any, known: Iterable[str]) -> UnknownKeyError:
    """The error for a key of the mapping at `path` that does not exist, with the nearest one that does."""
    known = sorted(known)
    key, inside = join(path, name), f" of {path}" if path else ""
    listed = f"the known keys{inside} are {', '.join(known)}" if known else f"{path} has no keys"
    return UnknownKeyError(f"there is no key {key!r}{did_you_mean(str(name), known, path)}; {listed}", key)


def did_you_mean(name: str, known: Iterable[str], path: str = "") -> str:
    """A question about the nearest name in brackets, or nothing when none is near."""
    nearest = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (did you mean {join(path, nearest[0])!r}?)" if nearest else ""


def join(path: str, name: Any) -> str:
    return f"{path}.{name}" if path else str(name)


def _convert_union(members: tuple[Any, ...], value: Any, path: str) -> Any:
    if value is None and type(None) in members:
        return None
    every = members
    members = tuple(member for member in members if member is not type(None))
    if any(type(value) is member for member in members):
        return value
    # one member of the right shape: its own complaint says more than "none of these"
    fitting = [member for member in members if _shape(member) == _shape_of(value)] or list(members)
    if len(fitting) == 1 and _shape_of(value) != "scalar":
        return convert(fitting[0], value, path)
    for member in fitting:
        try:
            return convert(member, value, path)
        except OutOfRangeError as error:
            raise OutOfRangeError(f"{error}{alternatives(every)}", error.key) from error
        except ConfigError:
            continue
    raise _wrong_type(value, " or ".join(describe(member) for member in members), path)


def _convert_mapping(arguments: tuple[Any, ...], value: Any, path: str, hint: Any) -> dict[Any, Any]:
    if not isinstance(value, Mapping):
        raise _wrong_type(value, describe(hint), path)
    key_hint, item_hint = arguments or (str, Any)
    for key in value:
        convert(key_hint, key, f"a key of {path}")
    return {key: convert(item_hint, item, join(path, key)) for key, item in value.items()}


def _convert_sequence(kind: type, arguments: tuple[Any, ...], value: Any, path: str, hint: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise _wrong_type(value, describe(hint), path)
    if kind is tuple and arguments and ... not in arguments:
        if len(value) != len(arguments):
            raise ConfigError(f"{path} has {len(value)} values; expected {describe(hint)}", path)
        pairs = zip(arguments, value, strict=True)
        return tuple(convert(item, each, f"{path}[{index}]") for index, (item, each) in enumerate(pairs))
    item_hint = arguments[0] if arguments else Any
    items = [convert(item_hint, item, f"{path}[{index}]") for index, item in enumerate(value)]
    return items if kind is list else tuple(items)


def _convert_scalar(kind: Any, value: Any, path: str) -> Any:
    if kind in (type(None), None):
        if value is None:
            return None
    elif kind is float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    elif kind is int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, float) and value.is_integer():
            return int(value)
    elif kind is Path:
        if isinstance(value, str | Path):
            return Path(value)
    elif kind in (bool, str):
        if isinstance(value, kind):
            return value
    else:
        raise TypeError(f"{path} has the type {kind!r}, which a configuration file cannot hold")
    raise _wrong_type(value, describe(kind), path)


def _shape(hint: Any) -> str:
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    kind = get_origin(hint) or hint
    if dataclasses.is_dataclass(kind) or (isinstance(kind, type) and issubclass(kind, Mapping)):
        return "mapping"
    sequence = isinstance(kind, type) and issubclass(kind, Sequence) and kind is not str
    return "sequence" if sequence else "scalar"


def _shape_of(value: Any) -> str:
    return "mapping" if isinstance(value, Mapping) else "sequence" if isinstance(value, list | tuple) else "scalar"


def _is_written(field: dataclasses.Field[Any]) -> bool:
    """Whether a field stands in files; others say what a configuration knows of itself."""
    return field.init and field.metadata.get("written", True)


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _wrong_type(value: Any, expected: str, path: str) -> ConfigError:
    return ConfigError(f"{path or 'the configuration'} is {_found(value)}; expected {expected}", path)


def _found(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return f"the text {value!r}"
    if isinstance(value, Mapping):
        return f"a mapping ({', '.join(map(str, value)) or 'empty'})"
    return f"the list {value!r}" if isinstance(value, list | tuple) else repr(value)
