"""Every default in a table of the documentation is that of its dataclass.

The test reads the tables of docs/*.md with a column `default`; their first column holds the keys. A table belongs to
the configuration classes named in the lines above it, below the last heading or table; where none is named, to
`TrainConfig`. Defaults are written as in a configuration file: one for all keys of a row, or one per key. An empty
default is that of the page which the row links to. Tables with a column `kinds` list arguments of constructors and are
skipped. For parts of a list (`rewards`, `agent.blocks`, ...) the constructor takes the place of a dataclass; where an
option has no default, `required` stands in its place.

The column `range` says which numbers a key takes, in the words of `core/ranges.py`: one range for all keys of a row, or
one per key with semicolons between them.
"""

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, make_dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import pytest
import yaml

from gaitway.agents.blocks import BLOCKS
from gaitway.algorithms.estimation import Estimation
from gaitway.algorithms.imitation import ActionDistance, Imitation, LatentImitation
from gaitway.algorithms.ppo import PPOConfig
from gaitway.algorithms.reward_streams import RewardGroup
from gaitway.algorithms.symmetry import Symmetry
from gaitway.cli.sweep.cluster import ClusterConfig
from gaitway.cli.sweep.plan import OptunaConfig, RandomConfig, SweepConfig
from gaitway.cli.train_config import RECIPES, TrainConfig
from gaitway.core.config import ConfigError, from_config, resolve_class
from gaitway.core.ranges import range_of, ranged_hints
from gaitway.envs.gym.vector import AsyncOptions
from gaitway.envs.legged.commands import CommandConfig
from gaitway.envs.legged.config import LeggedConfig, StartConfig
from gaitway.envs.legged.gaits import GaitConfig
from gaitway.envs.legged.latency import LatencyConfig
from gaitway.envs.legged.randomise import PushConfig, RandomiseConfig
from gaitway.envs.legged.terrain.config import DepthConfig, TerrainConfig
from gaitway.rewards import SOURCES
from gaitway.runners.callbacks import CALLBACKS
from gaitway.runners.cast import AGENTS
from gaitway.skills.bandits import BANDITS
from gaitway.skills.curriculum import CurriculumConfig


def options_of(part: type) -> type:
    """The options of a part as a dataclass: the parameters of its constructor, but for those that the run gives it and
    for those that it hands on."""
    hints = get_type_hints(part.__init__, include_extras=True)
    parameters = [
        each
        for each in inspect.signature(part).parameters.values()
        if each.name != "algorithm" and each.kind is not each.VAR_KEYWORD
    ]
    options: list[Any] = [
        (each.name, Any, "required") if each.default is each.empty else (each.name, hints[each.name], each.default)
        for each in parameters
    ]
    made = make_dataclass(part.__name__, options)
    made.ranges = {name: range_of(hint) for name, hint in hints.items()}
    return made


DOCS = Path(__file__).resolve().parent.parent / "docs"
ALGORITHMS = {recipe.config for recipe in RECIPES.values()}
TERMS = (ActionDistance, Estimation, Imitation, LatentImitation, Symmetry)
NAMED = [*SOURCES.values(), *BLOCKS.values(), *CALLBACKS.values(), *AGENTS.values()]
"""Parts that a list may name, some of them as `package.module:Class`."""
WITH_OPTIONS = [each for each in BANDITS.values() if set(inspect.signature(each).parameters) - {"space", "seed"}]
PARTS = {options_of(resolve_class(each) if isinstance(each, str) else each) for each in (*NAMED, *WITH_OPTIONS, *TERMS)}
AGENT_CONFIGS = {recipe.agent for recipe in RECIPES.values()}
LEGGED = (
    *(LeggedConfig, CommandConfig, StartConfig, LatencyConfig),
    *(RandomiseConfig, PushConfig, GaitConfig, TerrainConfig, DepthConfig),
)
SWEEPS = (SweepConfig, RandomConfig, OptunaConfig, ClusterConfig)
OTHERS = (TrainConfig, AsyncOptions, CurriculumConfig, options_of(RewardGroup), *LEGGED, *SWEEPS)
CLASSES = {cls.__name__: cls for cls in (*ALGORITHMS, *AGENT_CONFIGS, *PARTS, *OTHERS)}


class Row(NamedTuple):
    """One row of a table of defaults."""

    line: int
    keys: list[str]
    default: str
    classes: list[type]
    range: str | None
    """None where the table has no such column."""
    link: str
    """The page of the first link of the row, without its anchor."""


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md")))
def test_documented_defaults_are_those_of_the_dataclasses(page):
    assert mistakes((DOCS / page).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("classes", [ALGORITHMS, PARTS], ids=["algorithms", "parts"])
def test_each_has_its_table(classes):
    rows = [row for path in DOCS.glob("*.md") for row in rows_of(path.read_text(encoding="utf-8"))]
    assert classes - {cls for row in rows for cls in row.classes} == set()


# broken twins

TABLE = """
## Configuration

Section `algorithm` (`PPOConfig`):

| key | default | range | meaning |
|---|---|---|---|
| `epochs` | 5 | >= 1 | passes over each rollout |
| `learning_rate_range` | [1e-5, 1e-2] | each > 0, increasing | `a|b` |
| `optimiser`, `weight_decay`, `adam_eps` | adam, 0, 1e-5 | ; >= 0; > 0 | its numbers |
| `rollout_steps` | | | as for [PPO](ppo.md#configuration) |

Section `agent` (`ValuePolicyConfig`):

| key | default |
|---|---|
| `observations.actor` | [] |

## Top level

| key | default | range | meaning |
|---|---|---|---|
| `video.size` | [480, 360] | each 2 to 8192 | in pixels |
| `device` | cpu | | |

A part, `HistoryEncoder`:

| option | default | range |
|---|---|---|
| `writes` | required | |
| `hidden` | [64] | each >= 1 |
"""


def test_a_table_that_is_right_passes():
    assert [row.keys for row in rows_of(TABLE)][5:7] == [["video.size"], ["device"]]
    assert mistakes(TABLE) == []


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("| 5 |", "| 10 |", "line 8: `epochs` of PPOConfig is 5 and not 10"),
        ("| 5 |", "| true |", "line 8: epochs is True; expected an integer"),
        (">= 1 | passes", "> 0 | passes", "line 8: the range of `epochs` in PPOConfig is '>= 1' and not '> 0'"),
        (">= 1 | passes", "| passes", "line 8: the range of `epochs` in PPOConfig is '>= 1' and not 'empty'"),
        ("; >= 0; > 0", "; > 0; > 0", "line 10: the range of `weight_decay` in PPOConfig is '>= 0' and not '> 0'"),
        ("`epochs`", "`epoch`", "line 8: PPOConfig has no key `epoch`"),
        ("`epochs`", "epochs", "line 8: the row names no key; write it in backticks"),
        ("1e-2]", "1e-3]", "line 9: `learning_rate_range` of PPOConfig is (1e-05, 0.01) and not (1e-05, 0.001)"),
        ("adam, 0, 1e-5", "adam, 0, 1e-8", "line 10: `adam_eps` of PPOConfig is 1e-05 and not 1e-08"),
        ("adam, 0, 1e-5", "adam, 0", "line 10: 2 defaults for 3 keys; write one for all, or one for each"),
        ("(ppo.md", "(a2c.md", "line 11: `rollout_steps` of PPOConfig is 32 and not 8"),
        (
            "[PPO](ppo.md#configuration)",
            "PPO",
            "line 11: no default, and no link to a page with one of `rollout_steps`",
        ),
        ("| []", "| [policy]", "line 17: `observations.actor` of ValuePolicyConfig is () and not ('policy',)"),
        ("video.size", "video.sizes", "line 23: TrainConfig has no key `video.sizes`"),
        ("| cpu", "| cuda", "line 24: `device` of TrainConfig is 'cpu' and not 'cuda'"),
        ("| required", "| past", "line 30: `writes` of HistoryEncoder is 'required' and not 'past'"),
        ("[64]", "[64, 64]", "line 31: `hidden` of HistoryEncoder is (64,) and not (64, 64)"),
        ("`hidden`", "`width`", "line 31: HistoryEncoder has no key `width`"),
    ],
)
def test_a_wrong_table_is_found(right, wrong, said):
    assert TABLE.count(right) == 1
    assert mistakes(TABLE.replace(right, wrong)) == [said]


def test_a_default_that_changes_is_found(monkeypatch):
    @dataclass(frozen=True)
    class Changed(PPOConfig):
        epochs: int = 8

    monkeypatch.setitem(CLASSES, "PPOConfig", Changed)
    assert mistakes(TABLE) == ["line 8: `epochs` of Changed is 8 and not 5"]


def mistakes(text: str) -> list[str]:
    """What the tables of a page say wrongly, a sentence each."""
    return [f"line {row.line}: {mistake}" for row in rows_of(text) for mistake in _mistakes(row)]


def rows_of(text: str) -> Iterator[Row]:
    """The rows of all tables of a page that have a column `default`."""
    classes: list[type] = []
    header: list[str] = []
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= line.lstrip().startswith("```")
        cells = _cells(line)
        if cells and not fenced:
            if not header:
                header = cells
            elif "default" in header and "kinds" not in header and set(line) - set("|-: "):
                link = re.search(r"\]\((\w+\.md)", line)
                keys = re.findall(r"`([^`]+)`", cells[0])
                spans = cells[header.index("range")] if "range" in header else None
                yield Row(number, keys, cells[header.index("default")], classes, spans, link[1] if link else "")
            continue
        if header or line.startswith("#"):
            header, classes = [], []
        if not fenced:
            classes = classes + [CLASSES[name] for name in re.findall(r"`(\w+)`", line) if name in CLASSES]


def _mistakes(row: Row) -> Iterator[str]:
    try:
        documented = _documented(row)
    except ValueError as error:
        yield str(error)
        return
    classes = row.classes or [TrainConfig]
    for key, value in documented.items():
        homes = [cls for cls in classes if _has(cls(), key)]
        if not homes:
            yield f"{' and '.join(cls.__name__ for cls in classes)} has no key `{key}`"
        for cls in homes:
            try:
                said, true = _value(from_config(cls, _nested(key, value)), key), _value(cls(), key)
            except ConfigError as error:
                yield str(error)
                continue
            if said != true:
                yield f"`{key}` of {cls.__name__} is {true!r} and not {said!r}"
    yield from _range_mistakes(row, classes)


def _range_mistakes(row: Row, classes: list[type]) -> Iterator[str]:
    if not row.default:  # both stand on the page that the row links to
        return
    written = [text.strip() for text in (row.range or "").split(";")]
    for number, key in enumerate(row.keys):
        said = written[number] if len(written) == len(row.keys) else written[0]
        for cls in [cls for cls in classes if _has(cls(), key)]:
            true = _range(cls, key)
            if said != true:
                yield f"the range of `{key}` in {cls.__name__} is {true or 'empty'!r} and not {said or 'empty'!r}"


def _range(cls: type, key: str) -> str:
    """The range that a key has in the code; "" where it has none."""
    first, _, rest = key.partition(".")
    if rest:
        return _range(type(getattr(cls(), first)), rest)
    ranges = getattr(cls, "ranges", None)
    return range_of(ranged_hints(cls)[first]) if ranges is None else ranges.get(first, "")


def _documented(row: Row) -> dict[str, Any]:
    """Key -> its default as a configuration file would hold it."""
    if not row.keys:
        raise ValueError("the row names no key; write it in backticks")
    if row.default:
        defaults = _plain(yaml.safe_load(f"[{row.default.strip('`')}]"))
        if len(defaults) not in (1, len(row.keys)):
            raise ValueError(f"{len(defaults)} defaults for {len(row.keys)} keys; write one for all, or one for each")
        return dict(zip(row.keys, defaults * (len(row.keys) // len(defaults)), strict=True))
    elsewhere: dict[str, Any] = {}
    for other in rows_of((DOCS / row.link).read_text(encoding="utf-8")) if row.link else ():
        elsewhere |= _documented(other)
    for key in row.keys:
        if key not in elsewhere:
            raise ValueError(f"no default, and no link to a page with one of `{key}`")
    return {key: elsewhere[key] for key in row.keys}


def _plain(value: Any) -> Any:
    """Numbers without a point, such as 1e-5, are text to YAML's first version."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return float(value) if isinstance(value, str) and re.fullmatch(r"-?[\d.]+e-?\d+", value) else value


def _cells(line: str) -> list[str]:
    """The cells of a line of a table, or none; a bar between backticks belongs to its cell."""
    if not line.startswith("|"):
        return []
    return [cell.strip() for cell in re.findall(r"\|((?:`[^`]*`|[^|`])*)(?=\|)", line)]


def _has(config: Any, key: str) -> bool:
    for name in key.split("."):
        if not is_dataclass(config) or name not in {field.name for field in fields(config)}:
            return False
        config = getattr(config, name)
    return True


def _value(config: Any, key: str) -> Any:
    for name in key.split("."):
        config = getattr(config, name)
    return config


def _nested(key: str, value: Any) -> dict[str, Any]:
    first, _, rest = key.partition(".")
    return {first: _nested(rest, value) if rest else value}
