"""Which numbers a field of a configuration takes, declared in its annotation.

    rollout_steps: Count = 32
    clip: Positive = 0.2
    target_kl: Positive | None = None
    hidden: tuple[Count, ...] = (64, 64)
    learning_rate_range: Annotated[tuple[Positive, Positive], INCREASING] = (1e-5, 1e-2)

Every one of these names stands for `Annotated[int or float, Range(...)]`. Numbers are finite unless their range says
otherwise. `core.config` looks at the ranges wherever a configuration is made: from a file, by an option, in Python.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import types
import typing
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, Union, get_args, get_origin

LARGEST_INTEGER = 2**63 - 1
"""What 64 bits hold: no counter, seed or shape goes beyond."""


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`, `above` and `below` without the bound itself."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    below: bool = False
    finite: bool = True

    def holds(self, number: Any) -> bool:
        if math.isnan(number) or (self.finite and math.isinf(number)):
            return False
        if isinstance(number, numbers.Integral) and abs(int(number)) > LARGEST_INTEGER:
            return False
        is_low_enough = number < self.high or (number == self.high and not self.below)
        return is_low_enough and (number > self.low or (number == self.low and not self.above))

    def __str__(self) -> str:
        """The range as the tables of the documentation write it."""
        low = "" if self.low == -math.inf else f"{'>' if self.above else '>='} {_plain(self.low)}"
        high = "" if self.high == math.inf else f"{'<' if self.below else '<='} {_plain(self.high)}"
        if low and high and not (self.above or self.below):
            return f"{_plain(self.low)} to {_plain(self.high)}"
        return " and ".join(part for part in (low, high) if part) or ("any" if self.finite else "any, or .inf")


@dataclasses.dataclass(frozen=True)
class Increasing:
    """The numbers of a list, each greater than the one before; if not `strict`, they may be equal."""

    strict: bool = True

    def __str__(self) -> str:
        return "increasing" if self.strict else "in order"


INCREASING, IN_ORDER = Increasing(), Increasing(strict=False)

Count = Annotated[int, Range(1)]
WholeNumber = Annotated[int, Range(0)]
Integer = Annotated[int, Range()]
Number = Annotated[float, Range()]
Positive = Annotated[float, Range(0, above=True)]
NotNegative = Annotated[float, Range(0)]
Share = Annotated[float, Range(0, 1)]
PositiveShare = Annotated[float, Range(0, 1, above=True)]
Limit = Annotated[float, Range(finite=False)]
"""A bound, which may be infinite: there is none then."""


def refusal(hint: Any, value: Any, name: str) -> str | None:
    """Why `value` is not a number that the annotation `hint` takes, in words that begin with `name`; None if it is.

    Hints without a range take everything. A range around a schedule (whatever has `extremes`) holds for all its values.
    """
    base, marks = _parts(hint)
    if get_origin(base) in (Union, types.UnionType):
        return _refusal_of_union(hint, base, marks, value, name)
    spans = [mark for mark in marks if isinstance(mark, Range)]
    if spans:
        return _refusal_of_number(spans[0], hint, value, name)
    if _is_sequence(base) and isinstance(value, list | tuple):
        items = list(_items(base, value))
        found = [refusal(item, each, f"{name}[{index}]") for index, (item, each) in enumerate(items)]
        wrong = next((sentence for sentence in found if sentence), None)
        for mark in (mark for mark in marks if wrong is None and isinstance(mark, Increasing)):
            if any(a > b or (a == b and mark.strict) for a, b in pairwise(value)):
                return f"{name} is {_written(value)}; write the smaller number first"
        return wrong
    return None


def range_of(hint: Any) -> str:
    """The range of an annotation as the tables of the documentation write it: "> 0 or null"; "" where it has none."""
    base, marks = _parts(hint)
    own = " and ".join(str(mark) for mark in marks if isinstance(mark, Range | Increasing))
    if get_origin(base) in (Union, types.UnionType):
        inside = [range_of(member) for member in get_args(base) if member is not type(None)]
        texts = [text for text in (own, *inside) if text]
        return f"{texts[0]} or null" if texts and type(None) in get_args(base) else " or ".join(texts)
    if _is_sequence(base):
        inside = list(dict.fromkeys(range_of(item) for item in get_args(base) if item is not ...))
        texts = [f"each {text}" for text in inside if text] + ([own] if own else [])
        return ", ".join(texts)
    return own


def is_numeric(hint: Any) -> bool:
    """Whether numbers stand in an annotation: by themselves, in a list, or beside something else."""
    base, _ = _parts(hint)
    if get_origin(base) in (Union, types.UnionType) or _is_sequence(base):
        return any(is_numeric(each) for each in get_args(base) if each is not ...)
    return base in (int, float)


def has_range(hint: Any) -> bool:
    """Whether every number in an annotation has a range."""
    base, marks = _parts(hint)
    if any(isinstance(mark, Range) for mark in marks):
        return True
    if get_origin(base) in (Union, types.UnionType) or _is_sequence(base):
        return all(has_range(each) for each in get_args(base) if each is not ...)
    return base not in (int, float)


def ranged_hints(cls: type) -> dict[str, Any]:
    """The annotations of a class with their ranges. One that a subclass writes anew without a range (`clip: float =
    0.1`) keeps that of its parent."""
    found: dict[str, Any] = {}
    for parent in reversed(cls.__mro__):
        if "__annotations__" not in parent.__dict__:
            continue
        for name, hint in typing.get_type_hints(parent, include_extras=True).items():
            if name in parent.__annotations__ and not (name in found and range_of(found[name]) and not range_of(hint)):
                found[name] = hint
    return found


def _refusal_of_union(hint: Any, base: Any, marks: tuple[Any, ...], value: Any, name: str) -> str | None:
    members = get_args(base)
    if value is None and type(None) in members:
        return None
    span = next((mark for mark in marks if isinstance(mark, Range)), None)
    if span is not None:
        return _refusal_of_number(span, hint, value, name)
    is_list, is_number = isinstance(value, list | tuple), _is_number(value)
    fitting = [each for each in members if (_is_sequence(_parts(each)[0]) if is_list else is_numeric(each))]
    if is_list or is_number:
        found = refusal(fitting[0], value, name) if fitting else None
        return f"{found}{alternatives(members)}" if found else None
    others = [each for each in members if not is_numeric(each) and each is not type(None)]
    is_known = any(value in get_args(each) if get_origin(each) is Literal else True for each in others)
    return _refused(hint, value, name) if fitting and not is_known else None


def _refusal_of_number(span: Range, hint: Any, value: Any, name: str) -> str | None:
    if hasattr(value, "extremes"):
        found = (number for number in value.extremes if not span.holds(number))
        wrong = next(found, None)
        return None if wrong is None else f"{name} reaches {_written(wrong)}; use {words_of(hint)}"
    if not _is_number(value) or not span.holds(value):
        return _refused(hint, value, name)
    is_whole = isinstance(value, numbers.Integral) or _parts(hint)[0] is not int
    return None if is_whole else _refused(hint, value, name)


def _refused(hint: Any, value: Any, name: str) -> str:
    if isinstance(value, numbers.Integral) and abs(int(value)) > LARGEST_INTEGER:
        return f"{name} is {_written(value)}; use {words_of(hint)} that 64 bits hold, up to {LARGEST_INTEGER}"
    words = words_of(hint)
    is_infinite = isinstance(value, float) and math.isinf(value)
    return f"{name} is {_written(value)}; use {words.replace('a number', 'a finite number') if is_infinite else words}"


def words_of(hint: Any) -> str:
    """What to write for an annotation with a range: "an integer >= 1", "a finite number, or null"."""
    base, marks = _parts(hint)
    members = get_args(base) if get_origin(base) in (Union, types.UnionType) else ()
    inside = [each for each in members if is_numeric(each)]
    if inside:
        return words_of(Annotated[inside[0], *marks] if marks else inside[0]) + alternatives(members)
    span = next((mark for mark in marks if isinstance(mark, Range)), Range())
    written = str(span)
    if written.startswith("any"):
        return "an integer" if base is int else "a finite number" if span.finite else "a number, or .inf for no bound"
    kind = "an integer" if base is int else "a number"
    return f"{kind} {f'from {written}' if ' to ' in written else written}"


def alternatives(members: tuple[Any, ...]) -> str:
    """What may stand in the place of a number, to be written behind its range."""
    words = [repr(word) for each in members if get_origin(each) is Literal for word in get_args(each)]
    words += ["null"] if type(None) in members else []
    return "".join(f", or {word}" for word in words)


def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    if get_origin(hint) is Annotated:
        base, *marks = get_args(hint)
        return base, tuple(marks)
    return hint, ()


def _items(base: Any, value: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    arguments = [each for each in get_args(base) if each is not ...]
    hints = arguments if len(arguments) == len(value) and len(arguments) > 1 else arguments[:1] * len(value)
    return zip(hints, value, strict=False)


def _is_sequence(base: Any) -> bool:
    kind = get_origin(base) or base
    return isinstance(kind, type) and issubclass(kind, Sequence) and kind is not str


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _written(value: Any) -> str:
    if isinstance(value, float) or (_is_number(value) and abs(value) > LARGEST_INTEGER):
        return (
            f"{float(value):g}" if abs(value) < 1e300 else f"{value:.6g}" if isinstance(value, float) else "too large"
        )
    return repr(value)


def _plain(number: float) -> str:
    return f"{number:g}"
