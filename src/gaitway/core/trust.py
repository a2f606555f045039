"""Who asked for a name, and what may be imported because of it.

Importing a module runs it, so a name is judged before anything is imported. What the person at this machine types, or
wrote into a run of their own, resolves to whatever Python finds. What stands in the folder of a run that was made
elsewhere, or changed since, resolves to names inside gaitway and ids that gymnasium has registered, to those of the
kind that is asked for, and to what the person allows by `--trust`.

An `Origin` says who speaks. A configuration carries its own (`TrainConfig.origin`), and whoever makes objects of it
does so inside `speaking(config.origin)`; every import by name in this library asks `judge`, which looks there.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from typing import Any

LIBRARY = "gaitway"
REFERENCE = re.compile(r"^(?!(?:cpu|cuda|mps|xla|xpu):\d+$)[^\W\d][\w.]*:(?!//)\S")
"""`package.module:Name`, and gymnasium's `module:Env-v0`; not `cuda:0` or an address."""
RUN_FILES = ("config.yaml", "code.json")
"""What tells the folder of a run."""

Kind = type | tuple[str, ...]
"""What a key asks for: a class, or the methods of a protocol, of which a class has at least one."""


class TrustError(ValueError):
    """A run that was not made here names what is not ours; the message says what, and how to allow it."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


@dataclass(frozen=True)
class Origin:
    """Who wrote the names of a configuration."""

    folder: str = ""
    """The run folder they stand in, of a run that is not the person's own; empty: the person wrote them."""
    reason: str = ""
    """Why it does not count as their own."""
    trusted: tuple[str, ...] = ()
    """Modules, files and folders that the person allows besides."""

    @property
    def is_person(self) -> bool:
        return not self.folder

    def trusting(self, *names: str) -> Origin:
        """The same with further names allowed."""
        return replace(self, trusted=(*self.trusted, *names))

    def allows_module(self, module: str) -> bool:
        """Whether `module`, or a package around it, is among what the person trusts."""
        names = [name.partition(":")[0] for name in self.trusted]
        return self.is_person or any(f"{module}.".startswith(f"{name}.") for name in names)

    def allows_file(self, path: str | os.PathLike[str]) -> bool:
        """Whether `path`, or a folder around it, is among what the person trusts."""
        place = os.path.realpath(os.path.expanduser(path))
        roots = [os.path.realpath(os.path.expanduser(name)) for name in self.trusted]
        return self.is_person or any(place == root or place.startswith(root.rstrip(os.sep) + os.sep) for root in roots)


_PERSON = Origin()
_speaker: ContextVar[Origin] = ContextVar("gaitway_origin", default=_PERSON)


def speaker() -> Origin:
    """Whose names are being resolved; the person's unless somebody says otherwise."""
    return _speaker.get()


@contextmanager
def speaking(origin: Origin) -> Iterator[None]:
    """Names inside the block are those of `origin`."""
    token = _speaker.set(origin)
    try:
        yield
    finally:
        _speaker.reset(token)


def judge(reference: str, key: str = "") -> None:
    """Refuse to import the module of `module:Name` unless the speaker may; to be called before any import by name."""
    module, origin = reference.partition(":")[0], speaker()
    if origin.allows_module(module) or _is_ours(module):
        return
    raise _refusal(
        key, f"{reference!r}, for which the module {module!r}{_place(module)} would be imported and run", module
    )


def judge_kind(found: Any, reference: str, kind: Kind | None, key: str = "") -> None:
    """Refuse what a stranger's `module:Name` stands for where it is no class of ours of the `kind` that is asked for;
    without a kind nothing is."""
    origin = speaker()
    if origin.allows_module(reference.partition(":")[0]):
        return
    owner = getattr(found, "__module__", None) or type(found).__module__
    if kind is None or not _is_ours(owner) or not _fits(found, kind):
        wanted = kind.__name__ if isinstance(kind, type) else f"class with {' or '.join(kind)}" if kind else "such name"
        raise TrustError(
            f"{_where(key)}{reference!r} is no {wanted}, and nothing else may be named there by {origin.folder}, which "
            f"{origin.reason}; correct its config.yaml",
            key,
        )


def judge_file(path: str | os.PathLike[str], key: str = "") -> None:
    """Refuse a file or folder that a stranger's run names, unless the person allows it."""
    if not speaker().allows_file(path):
        raise _refusal(key, f"the file or folder {os.fspath(path)!r}", os.fspath(path))


def judge_options(value: Any, key: str = "") -> None:
    """Refuse names of modules and of files anywhere in the options of a part that a stranger's run describes: what gets
    them may import or open what they name."""
    if speaker().is_person:
        return
    if isinstance(value, Mapping):
        for name, item in value.items():
            judge_options(name, key)
            judge_options(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            judge_options(item, f"{key}[{index}]")
    elif isinstance(value, str):
        if REFERENCE.match(value) and not _is_plain_id(value):
            judge(value.removeprefix("gymnasium:"), key)
        elif _names_file(value):
            judge_file(value, key)


def check_trusted(names: tuple[str, ...]) -> tuple[str, ...]:
    """What `--trust` was given, or a ValueError: a module, `module:Name`, or a path."""
    for name in names:
        is_module = all(part.isidentifier() for part in name.partition(":")[0].split("."))
        if not (is_module or os.sep in name or os.path.lexists(os.path.expanduser(name))):
            raise ValueError(f"--trust is {name!r}; name a module such as my_package, or a file or folder that exists")
    return names


@contextmanager
def present_folder() -> Iterator[None]:
    """Put the folder that the person stands in last on Python's path while a name is imported that `judge` has let
    pass: modules that are installed come first, and a folder of or inside a run is never put there."""
    folder = _present_folder()
    if folder is None or folder in sys.path or "" in sys.path:
        yield
        return
    sys.path.append(folder)
    try:
        yield
    finally:
        with suppress(ValueError):  # the module may have changed the path itself
            sys.path.remove(folder)


def run_folder_around(folder: str) -> str | None:
    """The folder of a run that `folder` is or lies in."""
    while True:
        if all(os.path.lexists(os.path.join(folder, name)) for name in RUN_FILES):
            return folder
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def _present_folder() -> str | None:
    try:
        folder = os.getcwd()
    except OSError:  # it was removed
        return None
    return None if run_folder_around(folder) else folder


def _refusal(key: str, what: str, remedy: str) -> TrustError:
    origin = speaker()
    return TrustError(
        f"{_where(key)}{origin.folder} names {what}, but it {origin.reason}; if you trust that, add --trust {remedy}",
        key,
    )


def _where(key: str) -> str:
    return f"{key}: " if key else ""


def _place(module: str) -> str:
    """Where the package of `module` would be found; nothing is imported to find out."""
    top = module.partition(".")[0]
    folder = _present_folder()
    with suppress(Exception):  # a path of the user's may hold anything, and the sentence does without
        spec = PathFinder.find_spec(top, [*sys.path, *([folder] if folder else [])])
        if spec is not None and spec.origin is not None:
            return f" ({spec.origin})"
    return ""


def _is_ours(module: Any) -> bool:
    return isinstance(module, str) and f"{module}.".startswith(f"{LIBRARY}.")


def _is_plain_id(value: str) -> bool:
    """`gymnasium:CartPole-v1`, `envpool:Pong-v5`: an id of what is registered, which names no module."""
    prefix, _, rest = value.partition(":")
    return prefix in ("gymnasium", "envpool") and ":" not in rest


def _fits(found: Any, kind: Kind) -> bool:
    if isinstance(kind, type):
        return issubclass(found, kind) if isinstance(found, type) else isinstance(found, kind)
    classes = found.__mro__[:-1] if isinstance(found, type) else ()
    return any(name in vars(each) for each in classes for name in kind)


def _names_file(value: str) -> bool:
    """Whether a text leads out of the working folder, is an address, or names a file that is there."""
    parts = re.split(r"[/\\]", value)
    if (
        os.path.isabs(value)
        or value.startswith("~")
        or ".." in parts
        or "://" in value
        or re.match(r"[A-Za-z]:\\", value)
    ):
        return True
    places = ("", speaker().folder)
    with suppress(ValueError, OSError):  # not every text can be a path
        return (len(parts) > 1 or "." in value) and any(os.path.isfile(os.path.join(place, value)) for place in places)
    return False
