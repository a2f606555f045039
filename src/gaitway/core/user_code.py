"""What the user's code did wrong, in one sentence: which method of which class, file and line, and what is expected.

Errors of user code are told in one way wherever it is called. `UserCode` stands around the calls: an error that passes
through a function of the user's becomes a `UserCodeError` that names it; errors of our own pass unchanged. The original
is its cause, so that the full traceback is in `run.log` and shown by GAITWAY_TRACEBACK=1.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import sysconfig
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OURS = (str(Path(__file__).resolve().parents[1]),)
LIBRARIES = tuple(str(Path(sysconfig.get_path(kind)).resolve()) for kind in ("stdlib", "purelib", "platlib"))


class SentenceError(RuntimeError):
    """Not a mistake in the arguments, but one that a command answers with its sentence alone all the same."""


class UserCodeError(ValueError):
    """A sentence about a function that the user wrote."""


class UserCode:
    """Around calls of user code; holds nothing, so that one object serves everywhere.

    `expected` says by the name of a method what it should do. Where no function of the user's is on the way to an error
    and `owner` is given, its method `method` gave something back that others could not use.
    """

    def __init__(self, expected: Mapping[str, str], owner: Any = None, method: str = "") -> None:
        self.expected, self.owner, self.method = expected, owner, method

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, UserCodeError | KeyboardInterrupt | GeneratorExit):
            return
        sentence = told(error, self.expected)
        if sentence is None and self.owner is not None and is_foreign(self.owner) and isinstance(error, Exception):
            sentence = blamed(self.owner, self.method, f"was followed by {_said(error)}", self.expected)
        if sentence is not None:
            raise UserCodeError(sentence) from error


def told(error: BaseException, expected: Mapping[str, str] | None = None) -> str | None:
    """The sentence for an error that came out of a function of the user's; None where none was called."""
    frames = _foreign_frames(error)
    if not frames:
        return None
    (code, line), (last, last_line) = frames[0], frames[-1]
    where = f"{_short(code.co_filename)}:{line}"
    if (last.co_filename, last_line) != (code.co_filename, line):
        where += f", in {last.co_qualname} at {_short(last.co_filename)}:{last_line}"
    name = "the module" if code.co_name == "<module>" else code.co_qualname.replace("<locals>.", "")
    hint = _expectation(code.co_name, expected or {})
    return f"{name} ({where}) {_deed(error)}{hint}"


def blamed(owner: Any, method: str, deed: str, expected: Mapping[str, str] | None = None) -> str:
    """The sentence about what a method of `owner` gave back: `MyTask.draw (my_task.py:12) returned None; ...`."""
    return f"{place_of(owner, method)} {deed}{_expectation(method, expected or {})}"


def place_of(owner: Any, method: str = "") -> str:
    """`Class.method (file:line)`, or `Class (file:line)` where it has no such method."""
    cls = owner if isinstance(owner, type) else type(owner)
    found = inspect.unwrap(getattr(cls, method)) if method and hasattr(cls, method) else cls
    name = f"{cls.__qualname__}.{method}" if method else cls.__qualname__
    try:
        file, line = inspect.getsourcefile(found), inspect.getsourcelines(found)[1]
    except (TypeError, OSError):  # written at a prompt, or in C
        return name
    return f"{name} ({_short(str(file))}:{line})"


def is_foreign(owner: Any) -> bool:
    """Whether a class, or an object's class, is not one of ours."""
    module = sys.modules.get((owner if isinstance(owner, type) else type(owner)).__module__)
    return not str(getattr(module, "__name__", "")).startswith("gaitway.")


def import_user_module(name: str) -> types.ModuleType:
    """Import a module that the user named; whatever it does instead of being imported is a `UserCodeError`. A module
    that is not there stays a ModuleNotFoundError."""
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise
        missing = f"needs the module {error.name!r}, which is not installed; install it"
        raise UserCodeError(f"{name!r} {_import_place(error)}{missing}") from error
    except SyntaxError as error:
        where = f"{_short(str(error.filename))}:{error.lineno}"
        raise UserCodeError(f"{name!r} cannot be imported, {where} is not Python ({error.msg}); correct it") from error
    except BaseException as error:  # SystemExit as well: a script without `if __name__ == "__main__"`
        advice = "put what is a program under `if __name__ == '__main__':`" if isinstance(error, SystemExit) else ""
        advice = advice or "a module only defines things when it is imported"
        raise UserCodeError(
            f"{name!r} cannot be imported, it {_import_place(error)}{_deed(error)}; {advice}"
        ) from error


def _import_place(error: BaseException) -> str:
    frames = _foreign_frames(error)
    return f"({_short(frames[-1][0].co_filename)}:{frames[-1][1]}) " if frames else ""


def _foreign_frames(error: BaseException) -> list[tuple[types.CodeType, int]]:
    """Code of the user's on the way to an error, and its lines."""
    found, trace = [], error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        # what dataclass generates, ours or the user's, has the file "<string>" too, and nobody wrote it
        if _is_foreign_file(code.co_filename) and not code.co_qualname.startswith("__create_fn__"):
            found.append((code, trace.tb_lineno))
        trace = trace.tb_next
    return found


def _is_foreign_file(name: str) -> bool:
    if name.startswith("<"):
        return name.startswith(("<string>", "<stdin>"))
    return not str(Path(name).resolve()).startswith((*OURS, *LIBRARIES))


def _deed(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"called exit({error.code if error.code is not None else ''})"
    return f"raised {_said(error)}"


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, KeyError) and error.args and " " in str(error.args[0]):  # a sentence, not a key
        text = str(error.args[0])
    return f"{type(error).__name__}" + (f": {text[:300]}" if text else "")


def _expectation(method: str, expected: Mapping[str, str]) -> str:
    return f"; {method} {expected[method]}" if method in expected else ""


def _short(file: str) -> str:
    """A path as one would type it from here."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except ValueError:
        return file
