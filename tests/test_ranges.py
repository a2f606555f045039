"""Every number of every configuration has its range, and is held to it: from Python, from a file, as an option."""

import dataclasses
import importlib
import inspect
import math
import pkgutil
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest

import gaitway
from gaitway.agents.blocks import BLOCKS
from gaitway.algorithms.ppo import PPOConfig
from gaitway.algorithms.terms import TERMS
from gaitway.cli.train_config import RECIPES, TrainConfig
from gaitway.core.config import CONFIGURATIONS, OutOfRangeError, configuration, convert, from_config
from gaitway.core.ranges import (
    IN_ORDER,
    INCREASING,
    LARGEST_INTEGER,
    Count,
    Limit,
    Number,
    Positive,
    Range,
    Share,
    has_range,
    is_numeric,
    range_of,
    ranged_hints,
    refusal,
)
from gaitway.envs.toys.toys import TOYS
from gaitway.envs.wrappers import WRAPPERS
from gaitway.rewards import SOURCES
from gaitway.runners.callbacks import CALLBACKS
from gaitway.runners.cast import AGENTS
from gaitway.skills.bandits import BANDITS

NEEDS_TRITON = "gaitway.nn.dense_kernels"
for _module in pkgutil.walk_packages(gaitway.__path__, "gaitway."):
    if not _module.name.endswith("__main__") and _module.name != NEEDS_TRITON:
        importlib.import_module(_module.name)

OURS = [cls for cls in CONFIGURATIONS if cls.__module__.startswith("gaitway.")]
FIELDS = [
    pytest.param(cls, field, ranged_hints(cls)[field.name], id=f"{cls.__module__}.{cls.__name__}.{field.name}")
    for cls in OURS
    for field in dataclasses.fields(cls)
    if is_numeric(ranged_hints(cls)[field.name])
]


def test_every_dataclass_of_options_is_a_configuration():
    """A class that is called Config, or is made from a configuration, declares its numbers."""
    found = {RECIPES[name].config for name in RECIPES} | {RECIPES[name].agent for name in RECIPES}
    for module in [
        each for name, each in vars(importlib.import_module("sys"))["modules"].items() if "gaitway." in name
    ]:
        for name, cls in vars(module).items():
            is_one = isinstance(cls, type) and dataclasses.is_dataclass(cls) and name.endswith(("Config", "Options"))
            found |= {cls} if is_one and cls.__module__.startswith("gaitway.") else set()
    assert len(found) > 40
    assert sorted(cls.__qualname__ for cls in found - set(CONFIGURATIONS)) == []


@pytest.mark.parametrize(("cls", "field", "hint"), FIELDS)
def test_every_number_has_a_range(cls, field, hint):
    assert has_range(hint), f"{cls.__name__}.{field.name} is {hint}; declare what it may be, see core/ranges.py"
    assert range_of(hint)


def required(cls: type) -> dict[str, Any]:
    return {field.name: 1.0 for field in dataclasses.fields(cls) if field.default is field.default_factory}


@pytest.mark.parametrize(("cls", "field", "hint"), FIELDS)
def test_no_field_takes_a_number_outside_its_range(cls, field, hint):
    kinds = ("nan", "inf", "below", "above", "text", "huge")
    values = [value for kind in kinds for value in wrong_values(hint, kind)]
    assert values
    for value in values:
        with pytest.raises(ValueError, match=rf"^{field.name}(\[\d\])? (is|reaches) .*; (use|write) "):
            cls(**required(cls) | {field.name: value})


def wrong_values(hint: Any, kind: str) -> list[Any]:
    """Values of a kind that are wrong for an annotation; none where it has no wrong ones of this kind."""
    if get_origin(hint) is Annotated and not any(isinstance(mark, Range) for mark in get_args(hint)[1:]):
        hint = get_args(hint)[0]
    if get_origin(hint) is tuple:
        inside = get_args(hint)
        count = 2 if ... not in inside else 1
        return [(each,) * count for each in wrong_values(inside[0], kind)]
    if get_origin(hint) is not Annotated:  # a union
        if str in get_args(hint) and kind == "text":
            return []
        return [value for member in get_args(hint) if is_numeric(member) for value in wrong_values(member, kind)]
    span = next(mark for mark in get_args(hint)[1:] if isinstance(mark, Range))
    outside = {
        "nan": [math.nan],
        "inf": [math.inf, -math.inf] if span.finite else [],
        "below": [] if span.low == -math.inf else [span.low if span.above else span.low - 1],
        "above": [] if span.high == math.inf else [span.high if span.below else span.high + 1],
        "text": ["many"],
        "huge": [10**30] if get_args(hint)[0] is int else [],
    }
    return outside[kind]


PARTS = {**TERMS, **SOURCES, **BLOCKS, **CALLBACKS, **AGENTS, **WRAPPERS, **TOYS, **BANDITS}


@pytest.mark.parametrize("name", PARTS)
def test_options_of_parts_have_ranges(name):
    part = PARTS[name]
    if isinstance(part, str):
        module, _, attribute = part.partition(":")
        part = getattr(importlib.import_module(module), attribute)
    given = {"num_envs", "seed", "return"}
    hints = get_type_hints(part.__init__, include_extras=True)
    for key, hint in hints.items():
        if key in inspect.signature(part).parameters and key not in given and is_numeric(hint):
            assert has_range(hint), f"{name}: {key} is {hint}"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"algorithm": {"clip": -1}}, "algorithm.clip is -1; use a number > 0"),
        ({"algorithm": {"value_coef": -1}}, "algorithm.value_coef is -1; use a number >= 0"),
        ({"algorithm": {"target_kl": math.nan}}, "algorithm.target_kl is nan; use a number > 0, or null"),
        (
            {"algorithm": {"learning_rate_range": [0.1, 0.01]}},
            r"range is \(0.1, 0.01\); write the smaller",
        ),
        ({"algorithm": {"learning_rate_range": [0.1, math.inf]}}, r"learning_rate_range\[1\] is inf; use a finite"),
        (
            {"algorithm": {"entropy_coef": {"start": -1, "end": 0, "over": 3}}},
            "coef reaches -1; use a number >= 0",
        ),
        (
            {"algorithm": {"entropy_coef": {"start": 1, "end": 0, "over": 0}}},
            "coef.over is 0; use a number > 0",
        ),
        ({"algorithm": {"name": "dqn", "epsilon": 2}}, "algorithm.epsilon is 2; use a number from 0 to 1"),
        ({"algorithm": {"name": "sac", "replay_size": 10}}, "replay_size is 10, less than batch_size, 256"),
        ({"algorithm": {"name": "sac", "gamma": 1.5}}, "algorithm.gamma is 1.5; use a number from 0 to 1"),
        ({"stop": {"threshold": math.nan}}, "stop.threshold is nan; use a finite number, or null"),
        ({"evaluation": {"episodes": 0}}, "evaluation.episodes is 0; use an integer >= 1"),
        ({"agent": {"actor_hidden": [64, 0]}}, r"agent.actor_hidden\[1\] is 0; use an integer >= 1"),
        ({"agent": {"memory": {"size": -3}}}, "agent.memory.size is -3; use an integer >= 1"),
        ({"agent": {"distribution": {"std_range": [1, 0.1]}}}, r"std_range is \(1.0, 0.1\); write the smaller"),
        ({"seed": 10**30}, "seed is 1e.30; use an integer >= 0 that 64 bits hold"),
        ({"seed": -1}, "seed is -1; use an integer >= 0"),
        ({"total_steps": 0}, "total_steps is 0; use an integer >= 1"),
        ({"env": {"num_envs": 0}}, "env.num_envs is 0; use an integer >= 1"),
        ({"env": {"num_threads": 0}}, "env.num_threads is 0; use an integer >= 1, or null"),
        ({"torch_threads": -1}, "torch_threads is -1; use an integer >= 1, or null"),
        ({"data": {"share": 1.5}}, "data.share is 1.5; use a number from 0 to 1"),
        ({"video": {"size": [1, 1]}}, r"video.size\[0\] is 1; use an integer from 2 to 8192"),
        (
            {"algorithm": {"name": "svpg"}, "agent": {"particles": 65}},
            "particles is 65, more than env.num_envs, 64",
        ),
    ],
)
def test_a_file_hears_the_whole_key(data, said):
    from gaitway.cli.train_config import parse

    with pytest.raises(ValueError, match=said):
        parse(data)


def test_python_hears_the_same():
    with pytest.raises(OutOfRangeError, match="clip is -1; use a number > 0"):
        PPOConfig(clip=-1)
    with pytest.raises(ValueError, match="clip is 'wide'; use a number > 0"):
        PPOConfig(clip="wide")
    with pytest.raises(ValueError, match=r"seed is 1\.5; use an integer >= 0"):
        TrainConfig(seed=1.5)
    with pytest.raises(ValueError, match="epochs is True; use an integer >= 1"):
        PPOConfig(epochs=True)


def test_a_subclass_keeps_the_range_of_what_it_writes_anew():
    @dataclasses.dataclass(frozen=True)
    class Patient(PPOConfig):
        clip: float = 0.1
        patience: int = 3

    assert Patient(clip=0.3).clip == 0.3
    with pytest.raises(ValueError, match="clip is 0; use a number > 0"):
        Patient(clip=0.0)
    with pytest.raises(ValueError, match=r"algorithm\.clip is -1"):
        from_config(Patient, {"clip": -1}, "algorithm")


@configuration
class Sample:
    count: Count = 3
    share: Share | None = None
    pair: Annotated[tuple[Positive, Positive], INCREASING] = (1.0, 2.0)
    bound: Limit = math.inf
    any: Number = 0.0
    angle: Annotated[float, Range(-180, 180, below=True)] = 0.0


def test_ranges_read_as_the_documentation_writes_them():
    written = {name: range_of(hint) for name, hint in ranged_hints(Sample).items()}
    assert written == {
        "count": ">= 1",
        "share": "0 to 1 or null",
        "pair": "each > 0, increasing",
        "bound": "any, or .inf",
        "any": "any",
        "angle": ">= -180 and < 180",
    }


def test_what_lies_inside_passes():
    assert from_config(Sample, {"count": 1e3, "share": None, "pair": [1, 5], "bound": -math.inf}).count == 1000
    assert convert(Share, 1, "x") == 1.0
    assert refusal(Count, LARGEST_INTEGER, "x") is None
    assert refusal(Annotated[float, Range(0, 1)], 1.0, "x") is None


@pytest.mark.parametrize(
    ("hint", "value", "said"),
    [
        (Count, 0, "x is 0; use an integer >= 1"),
        (Count, 2.5, "x is 2.5; use an integer >= 1"),
        (Positive, math.inf, "x is inf; use a finite number > 0"),
        (Number, math.nan, "x is nan; use a finite number"),
        (Limit, math.nan, "x is nan; use a number, or .inf for no bound"),
        (Share | None, 2, "x is 2; use a number from 0 to 1, or null"),
        (tuple[Count, ...], (3, 0), "x[1] is 0; use an integer >= 1"),
        (Annotated[tuple[Number, Number], INCREASING], (2, 2), "x is (2, 2); write the smaller number first"),
        (Annotated[tuple[Number, Number], IN_ORDER], (2, 1), "x is (2, 1); write the smaller number first"),
    ],
)
def test_the_sentence_says_what_to_write(hint, value, said):
    assert refusal(hint, value, "x") == said


def test_numbers_in_order_may_be_equal():
    assert refusal(Annotated[tuple[Number, Number], IN_ORDER], (0, 0), "x") is None
    assert (str(INCREASING), str(IN_ORDER)) == ("increasing", "in order")
