"""What a sweep tries: `base` settings, and a `grid`, `random` draws or an `optuna` search of parameters, on each seed.

A trial is a list of `key=value` arguments, those of `gaitway train`. Trials of a grid and of random draws are known
before the first one begins; those of a search come one by one (`search.py`).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gaitway.cli.arguments import GROUPS, argument
from gaitway.core.config import ConfigError, configuration, flatten, from_config, read_config
from gaitway.core.ranges import Count, WholeNumber


@configuration
class RandomConfig:
    """Parameters drawn independently of each other."""

    trials: Count = 10
    """Draws; each is tried on every seed."""
    seed: WholeNumber = 0
    """Of the draws, not of the runs."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """key: [choices], or {low, high} with log: true for a logarithmic scale; whole numbers where both ends are."""


@configuration
class OptunaConfig:
    """Parameters chosen by Optuna, which learns from the trials that are over."""

    trials: Count = 20
    seed: WholeNumber = 0
    """Of the sampler, not of the runs."""
    sampler: str | dict[str, Any] = "tpe"
    """tpe, random or qmc; {name: tpe, option: value} for options of Optuna's class."""
    pruner: str | dict[str, Any] = "median"
    """none, median, percentile, hyperband or halving, with options likewise."""
    metric: str | None = None
    """What is maximised or, if it is a cost, minimised, a result of the evaluation; null: evaluation.metric of the
    runs."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """As for random draws."""


@configuration
class SweepConfig:
    """What a sweep file says."""

    name: str | None = None
    """Of the folder in runs/sweeps/; null: the name of the file."""
    base: dict[str, Any] | tuple[str, ...] = ()
    """Settings of every trial: keys of a configuration, `experiment` and `config` included, or a list of key=value."""
    seeds: Any = None
    """`0..9` for 0 to 9, a list, or a number; null: the seed of `base`."""
    grid: dict[str, Any] = field(default_factory=dict)
    """key: [values]; every combination is tried."""
    random: RandomConfig | None = None
    optuna: OptunaConfig | None = None
    config_dir: str | None = None
    """A folder with presets of yours, experiment/NAME.yaml."""
    workers: Count = 1
    """Trials that run at the same time; they share the cores evenly. Of a cluster: trials of a search."""
    executor: Literal["local", "ray", "slurm"] = "local"
    """Who runs the trials: processes here, tasks of a Ray cluster, jobs of SLURM."""
    cluster: str | dict[str, Any] | None = None
    """What a trial asks of a cluster: the name of a preset, cluster/NAME.yaml, or settings that differ from it."""

    def __post_init__(self) -> None:
        if self.random is not None and self.optuna is not None:
            raise ValueError("random and optuna are both there; use one of them")
        seeds = seeds_of(self.seeds) or ()
        if self.optuna is not None and (self.grid or len(seeds) > 1):
            raise ValueError(
                "optuna chooses one trial at a time; leave grid out, give one seed, and repeat the best trial on more "
                "seeds by `gaitway train --from-trial DIR --seeds 0..9`"
            )
        for key, values in self.grid.items():
            if not isinstance(values, list | tuple) or not values:
                raise ValueError(f"grid.{key} is {values!r}; give a list of at least one value")
        for section in (self.random, self.optuna):
            if section is not None and not section.parameters:
                which = "random" if section is self.random else "optuna"
                raise ValueError(f"{which}.parameters is empty; name what is to be tried, key: {{low: ..., high: ...}}")
        for key, spec in self.searched.items():
            Span.of(key, spec)
        overlap = [key for key in self.searched if key in self.grid]
        if overlap:
            raise ValueError(f"{overlap[0]} is in grid and among the parameters; leave it in one of them")
        fixed = [text.partition("=")[0].lstrip("+") for text in self.settings]
        for key in ("run_dir", *(("seed",) if self.seeds is not None else ())):
            if key in (*fixed, *self.grid, *self.searched):
                raise ValueError(f"{key} is chosen by the sweep; leave it out")
        if self.cluster is not None and self.executor == "local":
            raise ValueError("cluster says what a cluster gives; add executor: slurm or executor: ray, or leave it out")

    @property
    def searched(self) -> dict[str, Any]:
        """Parameters that are drawn or searched for."""
        section = self.random or self.optuna
        return {} if section is None else dict(section.parameters)

    @property
    def settings(self) -> list[str]:
        """`base` as arguments."""
        if not isinstance(self.base, Mapping):
            return [str(text) for text in self.base]
        flat = flatten({key: value for key, value in self.base.items() if key not in GROUPS})
        groups = [f"{key}={self.base[key]}" for key in GROUPS if isinstance(self.base.get(key), str)]
        rest = flatten({key: self.base[key] for key in GROUPS if isinstance(self.base.get(key), Mapping)})
        return groups + [argument(key, value) for key, value in (flat | rest).items()]


@dataclass(frozen=True)
class Trial:
    """One run of a sweep."""

    number: int
    parameters: dict[str, Any]
    """What is tried, by key."""
    seed: int | None
    """None: that of the base."""

    @property
    def arguments(self) -> list[str]:
        """What makes it differ from the base."""
        seeds = [] if self.seed is None else [f"seed={self.seed}"]
        return [argument(key, value) for key, value in self.parameters.items()] + seeds


@dataclass(frozen=True)
class Span:
    """The values a parameter may take: choices, or from `low` to `high`."""

    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    whole: bool = False

    @classmethod
    def of(cls, key: str, spec: Any) -> Span:
        """As a sweep file says it."""
        if isinstance(spec, Mapping) and set(spec) == {"choices"}:
            spec = spec["choices"]
        if isinstance(spec, list | tuple):
            if not spec:
                raise ConfigError(f"{key} has no choices; give a list of at least one value", key)
            return cls(tuple(spec))
        known = isinstance(spec, Mapping) and {"low", "high"} <= set(spec) <= {"low", "high", "log"}
        if not known:
            raise ConfigError(f"{key} is {spec!r}; write [choices], or {{low: ..., high: ..., log: true}}", key)
        low, high, log = spec["low"], spec["high"], spec.get("log", False)
        numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high))
        if not numbers or not math.isfinite(low) or not math.isfinite(high) or not low < high:
            raise ConfigError(
                f"{key} goes from {low!r} to {high!r}; low and high are numbers, low the smaller one", key
            )
        if not isinstance(log, bool) or (log and low <= 0):
            raise ConfigError(f"{key} has log: {log!r} and low: {low!r}; a logarithmic scale is true and above 0", key)
        return cls((), low, high, log, isinstance(low, int) and isinstance(high, int))

    def draw(self, generator: np.random.Generator) -> Any:
        """A value, each as likely as the others; on a logarithmic scale if that is asked for."""
        if self.choices:
            return self.choices[int(generator.integers(len(self.choices)))]
        if self.whole and not self.log:
            return int(generator.integers(int(self.low), int(self.high) + 1))
        if not self.log:
            return float(generator.uniform(self.low, self.high))
        high = self.high + 1 if self.whole else self.high  # each whole number has its share of the scale
        value = math.exp(generator.uniform(math.log(self.low), math.log(high)))
        return min(int(value), int(self.high)) if self.whole else float(np.clip(value, self.low, self.high))


def read_sweep(path: str | Path) -> SweepConfig:
    """The sweep of a YAML file; every mistake in it is a ConfigError of one sentence."""
    try:
        return from_config(SweepConfig, read_config(path))
    except ConfigError as error:
        raise type(error)(f"{path}: {error}" if str(path) not in str(error) else str(error), error.key) from error


def seeds_of(value: Any) -> list[int] | None:
    """The seeds that `0..9`, a list or a number stand for; None for None."""
    if value is None:
        return None
    found: list[int] = []
    for each in value if isinstance(value, list | tuple) else str(value).split(","):
        span = re.fullmatch(r"\s*(\d+)\s*(?:\.\.\s*(\d+))?\s*", str(each))
        first, last = (int(span[1]), int(span[2] or span[1])) if span else (1, 0)
        if isinstance(each, bool) or last < first or last - first >= 10_000:
            raise ConfigError(f"seeds is {value!r}; write 0..9 for 0 to 9, or 0,3,5, or a list", "seeds")
        found += range(first, last + 1)
    if len(set(found)) != len(found) or not found:
        raise ConfigError(f"seeds is {value!r}; each seed is tried once, at least one", "seeds")
    return found


def planned_trials(config: SweepConfig) -> list[Trial]:
    """All trials of a grid, of random draws and of seeds, in their order; none for a search, which makes its own."""
    if config.optuna is not None:
        return []
    sets = [grid | drawn for grid in _combinations(config.grid) for drawn in _draws(config.random)]
    seeds: Sequence[int | None] = seeds_of(config.seeds) or [None]
    return [Trial(number, *each) for number, each in enumerate(itertools.product(sets, seeds))]


def _combinations(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _draws(config: RandomConfig | None) -> list[dict[str, Any]]:
    """Draw k is the same however many there are."""
    if config is None:
        return [{}]
    spans = {key: Span.of(key, spec) for key, spec in config.parameters.items()}
    generators = [np.random.default_rng([config.seed, number]) for number in range(config.trials)]
    return [{key: span.draw(generator) for key, span in spans.items()} for generator in generators]
