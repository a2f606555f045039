"""Parts by name: an entry of a list in a configuration becomes the object that it describes.

`rewards: [{name: count, scale: 0.1}, {name: my_package.my_module:Mine, size: 3}]` lists parts of ours and of the user.
The constructor's signature says which options there are, as a dataclass says it for a section of the configuration.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from gaitway.core.config import ConfigError, UnknownKeyError, convert, did_you_mean, join, resolve_class
from gaitway.core.ranges import ranged_hints
from gaitway.core.trust import Kind, judge_file, judge_options, speaker
from gaitway.core.user_code import told

Converters = Mapping[Any, Callable[[Any, str], Any]]


def make_part(
    entry: Mapping[str, Any],
    known: Mapping[str, Callable[..., Any] | str],
    key: str,
    *,
    given: Mapping[str, Any],
    convert_types: Converters | None = None,
    kind: Kind | None = None,
) -> Any:
    """The part that `{name: NAME or package.module:Class, option: value, ...}` describes.

    `key` is where the entry stands (`rewards[1]`), for the errors. A name of `known` may itself stand for
    `package.module:Class`, which is imported when it is used. `given` are things that a part may ask for by the name of
    a parameter (spec, policy, device, ...): those that it declares are passed, others are not, and none of them can be
    an option. Options are converted by the annotations of the parameters, as every key of a configuration is; a value
    whose type a configuration cannot hold is passed as it is, or as what `convert_types[type](value, key)` returns.
    `kind` is what the list holds; a run from elsewhere may name nothing else.
    """
    name, make, options = find_part(entry, known, key, kind)
    judge_part(make, options, key)
    bound = bind_options(name, make, options, key, given=given, convert_types=convert_types)
    try:
        return make(*bound.args, **bound.kwargs)
    except (ValueError, TypeError, KeyError) as error:  # a check of the constructor
        reason = told(error) or str(error.args[0] if error.args else type(error).__name__)
        raise ConfigError(reason if reason.startswith(key) else f"{key}: {reason}", key) from error


def bind_options(
    name: str,
    make: Callable[..., Any],
    options: Mapping[str, Any],
    key: str,
    *,
    given: Mapping[str, Any],
    convert_types: Converters | None = None,
    leading: int = 0,
) -> inspect.BoundArguments:
    """The arguments of `make`, options checked and converted as `make_part` says; the `leading` first ones are left to
    whoever calls it, and the entry has its options under `options`."""
    try:
        signature = inspect.signature(make)
    except (ValueError, TypeError) as error:
        why = "its parameters cannot be read, or there is none for what it gets"
        raise ConfigError(
            f"{key}: {name!r} cannot be used here ({why}); name another class or function", key
        ) from error
    place = join(key, "options") if leading else key
    parameters = list(signature.parameters.values())[leading:]
    parameters = [item for item in parameters if item.kind is not item.VAR_POSITIONAL]
    rest = next((item.name for item in parameters if item.kind is item.VAR_KEYWORD), None)
    arguments = {item.name: given[item.name] for item in parameters if item.name in given and item.name != rest}
    # `name` says which part it is
    open_ones = {item.name: item for item in parameters if item.name not in {*given, rest, "name"}}
    for option in options:
        if option in given:
            raise ConfigError(f"{key}: {name} gets its {option} from the run; remove that option", join(place, option))
        if option not in open_ones and rest is None:
            hint = did_you_mean(str(option), open_ones)
            listed = f"it has {', '.join(sorted(open_ones))}" if open_ones else "it has none"
            raise UnknownKeyError(f"{key}: {name} has no option {option!r}{hint}; {listed}", join(place, option))
    needed = [item.name for item in open_ones.values() if item.default is item.empty and item.name not in options]
    if needed:
        written = ", ".join(f"{each}: ..." for each in needed)
        written = f"options: {{{written}}}" if leading else written
        raise ConfigError(f"{key}: {name} needs {', '.join(needed)}; write {{name: {name}, {written}}}", key)
    hints = _hints(make)
    for option, value in options.items():
        if option in open_ones:
            arguments[option] = _converted(hints.get(option, Any), value, join(place, option), convert_types or {})
    if rest is not None:
        arguments[rest] = {option: value for option, value in options.items() if option not in open_ones}
    return inspect.BoundArguments(signature, arguments)


def make_parts(
    entries: Any,
    known: Mapping[str, Callable[..., Any] | str],
    key: str,
    *,
    given: Mapping[str, Any],
    convert_types: Converters | None = None,
    kind: Kind | None = None,
) -> list[Any]:
    """The parts of a list, by `make_part`; an entry may be a name alone."""
    if not isinstance(entries, list | tuple):
        raise ConfigError(f"{key} is {entries!r}; write a list, [{{name: ...}}, ...]", key)
    named = [{"name": entry} if isinstance(entry, str) else entry for entry in entries]
    return [
        make_part(entry, known, f"{key}[{index}]", given=given, convert_types=convert_types, kind=kind)
        for index, entry in enumerate(named)
    ]


def find_part(
    entry: Any, known: Mapping[str, Callable[..., Any] | str], key: str, kind: Kind | None = None
) -> tuple[str, Callable[..., Any], dict[str, Any]]:
    """The name of an entry, the class or function that it stands for, and its options."""
    choices = f"one of {', '.join(sorted(known))} or package.module:Class" if known else "package.module:Class"
    options = dict(entry) if isinstance(entry, Mapping) else {}
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise ConfigError(f"{key} is {entry!r}, which has no name; write {{name: ...}} with {choices}", key)
    if name not in known and ":" not in name:
        raise ConfigError(f"{key}: there is no {name!r}{did_you_mean(name, known)}; use {choices}", join(key, "name"))
    found: Any = known.get(name, name)
    found = resolve_class(found, key, kind) if isinstance(found, str) else found
    if not callable(found):
        raise ConfigError(f"{key}: {name!r} is {found!r}; name a class or a function", join(key, "name"))
    return name, found, options


def judge_part(make: Callable[..., Any], options: Mapping[str, Any], key: str) -> None:
    """Refuse options of a stranger's part that name modules or files, before it is made (`core.trust`)."""
    if speaker().is_person:
        return
    judge_options(options, key)
    for option, hint in _hints(make).items():
        if option in options and (hint is Path or Path in get_args(hint)):
            judge_file(str(options[option]), join(key, option))


def _hints(make: Any) -> dict[str, Any]:
    """The types of the parameters; without those that are not annotated or cannot be resolved."""
    while isinstance(make, partial):
        make = make.func
    function = getattr(make, "__init__") if isinstance(make, type) else make  # noqa: B009
    try:  # the fields of a dataclass may come from classes in other modules
        if isinstance(make, type) and dataclasses.is_dataclass(make):
            return ranged_hints(make)
        return typing.get_type_hints(function, include_extras=True)
    except Exception:  # an annotation is any expression; the others may still be known
        hints = {}
        for name, annotation in getattr(function, "__annotations__", {}).items():
            with suppress(Exception):
                alone = SimpleNamespace(__annotations__={name: annotation})
                scope = getattr(function, "__globals__", {})
                hints[name] = typing.get_type_hints(alone, scope, include_extras=True)[name]
        return hints


def _converted(hint: Any, value: Any, key: str, convert_types: Converters) -> Any:
    bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    members = get_args(bare) if get_origin(bare) in (Union, UnionType) else (bare,)
    if get_origin(bare) is tuple and get_args(bare)[-1] is Ellipsis and get_args(bare)[0] in convert_types:
        make, entries = convert_types[get_args(bare)[0]], value if isinstance(value, list | tuple) else [value]
        return tuple(make(each, f"{key}[{index}]") for index, each in enumerate(entries))
    own = [convert_types[kind] for kind in (get_origin(each) or each for each in members) if kind in convert_types]
    if own and not (value is None and type(None) in members):
        return own[0](value, key)
    try:
        return convert(hint, value, key)
    except (TypeError, NameError):  # a type that a configuration cannot hold
        return value
