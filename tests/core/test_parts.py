"""Parts from entries of a list: what is passed, what is converted, and a sentence for every mistake."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pytest
import torch
from torch import Tensor

from gaitway.core.config import ConfigError, UnknownKeyError, resolve_class
from gaitway.core.parts import make_part, make_parts

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]


@dataclass(frozen=True)
class Ramp:
    start: float
    end: float

    def __post_init__(self) -> None:
        if self.start == self.end:
            raise ValueError("start and end are the same; a ramp needs two")


class Policy:
    def __init__(self, path: str) -> None:
        self.path = path


class Count:
    def __init__(
        self,
        spec: str,
        scale: float | Ramp = 1.0,
        sizes: tuple[int, ...] = (),
        steps: int = 0,
        kind: Literal["state", "pair"] = "state",
        *,
        seed: int = 0,
    ) -> None:
        if steps < 0:
            raise ValueError(f"steps is {steps}; use at least 0")
        self.got = {"spec": spec, "scale": scale, "sizes": sizes, "steps": steps, "kind": kind, "seed": seed}


class Loose:
    def __init__(self, unknown: Unknown = None, whole: int = 0, free=None, table: Tensor | None = None) -> None:
        self.got = (unknown, whole, free, table)


class Teacher:
    def __init__(self, teacher: Policy | None, others: Sequence[str] = (), distance: Callable[..., Any] = max) -> None:
        self.got = (teacher, others, distance)


@dataclass
class Weight:
    name: str = "weight"
    ramp: Ramp | None = None


def anything(first: int, /, name: str = "", **options: Any) -> tuple[int, str, dict[str, Any]]:
    return first, name, options


def failing(what: str) -> None:
    raise {"type": TypeError("wants more"), "key": KeyError("no group 'x'"), "other": RuntimeError("a bug")}[what]


CONSTANT = 3
KNOWN: dict[str, Any] = {
    "count": Count,
    "loose": Loose,
    "teacher": Teacher,
    "weight": Weight,
    "anything": anything,
    "failing": failing,
    "later": f"{__name__}:Count",
    "absent": "nowhere.at_all:Class",
}


def make(given: Mapping[str, Any] | None = None, convert_types: Any = None, /, **entry: Any) -> Any:
    given = {"spec": "SPEC", "seed": 7, "device": "cpu"} if given is None else given
    return make_part(entry, KNOWN, "rewards[1]", given=given, convert_types=convert_types)


@pytest.mark.parametrize("name", ["count", "later", f"{__name__}:Count"])
def test_what_is_declared_is_given_and_options_are_converted(name: str) -> None:
    part = make(name=name, scale={"start": 1, "end": 0}, sizes=[3, 4.0], steps=1e6)
    assert type(part).__name__ == "Count"
    assert part.got == {
        "spec": "SPEC", "scale": Ramp(1.0, 0.0), "sizes": (3, 4), "steps": 1_000_000, "kind": "state", "seed": 7
    }  # fmt: skip
    assert isinstance(part.got["steps"], int)


def test_what_cannot_be_resolved_or_held_is_passed_as_it_is() -> None:
    table, free = torch.zeros(2), object()
    assert make(name="loose", unknown="x", whole=2.0, free=free, table=table).got == ("x", 2, free, table)
    assert make(name="loose", table=[1, 2]).got == (None, 0, None, [1, 2])
    with pytest.raises(ConfigError, match=r"rewards\[1\]\.whole is 2.5; expected an integer"):
        make(name="loose", whole=2.5)


def test_types_of_the_caller() -> None:
    def load(value: Any, key: str) -> Policy:
        if not isinstance(value, str):
            raise ConfigError(f"{key} is {value!r}; name a run folder")
        return Policy(value)

    types = {Policy: load, Callable: resolve_class}
    teacher, others, distance = make(
        {}, types, name="teacher", teacher="runs/a", others=["b"], distance="math:dist"
    ).got
    assert (teacher.path, others, distance.__name__) == ("runs/a", ("b",), "dist")
    assert make({}, types, name="teacher", teacher=None).got == (None, (), max)
    with pytest.raises(ConfigError, match=r"^rewards\[1\].teacher is 3; name a run folder$"):
        make({}, types, name="teacher", teacher=3)
    with pytest.raises(ConfigError, match=r"^rewards\[1\].distance: the module 'math' has no 'dst'"):
        make({}, types, name="teacher", teacher="a", distance="math:dst")


def test_dataclasses_functions_and_open_options() -> None:
    assert make(name="weight", ramp={"start": 0, "end": 2}) == Weight("weight", Ramp(0.0, 2.0))
    assert make(name="anything", first=2.0, more="x") == (2, "", {"more": "x"})
    assert make({"first": 5, "seed": 1}, name="anything") == (5, "", {})
    half = {"half": partial(Count, "HALF", steps=2)}
    assert make_part({"name": "half", "sizes": [1]}, half, "k", given={}).got["sizes"] == (1,)


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        (
            {"scale": 2},
            "rewards[1] is {'scale': 2}, which has no name; write {name: ...} with one of absent, anything, ",
        ),
        ({"name": 3}, "rewards[1] is {'name': 3}, which has no name"),
        ({"name": "cont"}, "rewards[1]: there is no 'cont' (did you mean 'count'?); use one of absent, "),
        ({"name": "xyzzy"}, "weight or package.module:Class"),
        ({"name": f"{__name__}:Cont"}, "has no 'Cont' (did you mean 'Count'?)"),
        ({"name": "absent"}, "rewards[1]: there is no module 'nowhere' for 'nowhere.at_all:Class'; install it"),
        ({"name": "a b:C"}, "rewards[1]: 'a b:C' does not name a class"),
        ({"name": f"{__name__}:CONSTANT"}, f"rewards[1]: '{__name__}:CONSTANT' is 3; name a class or a function"),
        ({"name": "builtins:dict"}, "rewards[1]: 'builtins:dict' cannot be used here"),
        (
            {"name": "count", "size": 3},
            "rewards[1]: count has no option 'size' (did you mean 'sizes'?); it has kind, scale, sizes, steps",
        ),
        ({"name": "builtins:object", "size": 3}, "builtins:object has no option 'size'; it has none"),
        ({"name": "count", "spec": 3}, "rewards[1]: count gets its spec from the run; remove that option"),
        ({"name": "anything", "first": 1, "device": 3}, "rewards[1]: anything gets its device from the run"),
        ({"name": "teacher"}, "rewards[1]: teacher needs teacher; write {name: teacher, teacher: ...}"),
        ({"name": "anything"}, "rewards[1]: anything needs first; write"),
        ({"name": "count", "steps": "x"}, "rewards[1].steps is the text 'x'; expected an integer"),
        ({"name": "count", "sizes": [1, "x"]}, "rewards[1].sizes[1] is the text 'x'; expected an integer"),
        ({"name": "count", "kind": "pairs"}, "rewards[1].kind is 'pairs' (did you mean 'pair'?); the choices are"),
        ({"name": "count", "scale": {"strt": 1, "end": 2}}, "there is no key 'rewards[1].scale.strt' (did you mean"),
        ({"name": "count", "scale": {"start": 1, "end": 1}}, "rewards[1].scale: start and end are the same"),
        ({"name": "count", "steps": -1}, "raised ValueError: steps is -1; use at least 0"),
        ({"name": "failing", "what": "type"}, "raised TypeError: wants more"),
        ({"name": "failing", "what": "key"}, "raised KeyError: no group 'x'"),
    ],
)
def test_mistakes_are_one_sentence(entry: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make(**entry)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.key.startswith("rewards[1]")


def test_a_misspelt_option_is_an_unknown_key_and_a_bug_stays_one() -> None:
    with pytest.raises(UnknownKeyError) as caught:
        make(name="count", size=3)
    assert caught.value.key == "rewards[1].size"
    with pytest.raises(RuntimeError, match="a bug"):
        make(name="failing", what="other")


def test_lists() -> None:
    parts = make_parts(["count", {"name": "count", "steps": 2}], KNOWN, "rewards", given={"spec": "S"})
    assert [part.got["steps"] for part in parts] == [0, 2]
    assert make_parts((), KNOWN, "rewards", given={}) == []
    with pytest.raises(ConfigError, match=r"^rewards\[1\] is 3, which has no name; write \{name: \.\.\.\} with one of"):
        make_parts(["count", 3], KNOWN, "rewards", given={"spec": "S"})
    with pytest.raises(ConfigError, match=r"^rewards is 'count'; write a list, \[\{name: \.\.\.\}, \.\.\.\]$"):
        make_parts("count", KNOWN, "rewards", given={})
    with pytest.raises(ConfigError, match=r"^terms\[0\] .* with package\.module:Class$"):
        make_parts([{}], {}, "terms", given={})
