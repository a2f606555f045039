"""Optuna, called directly: which parameters are tried next, and whether a trial is worth going on with.

What it knows lies in a journal file in the sweep's folder. The driver asks and tells; the process of a trial reports
its evaluations and asks whether to stop (`learn(trial=...)`, which knows nothing of Optuna).
"""

from __future__ import annotations

import inspect
import shlex
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gaitway.cli.sweep.plan import OptunaConfig, Span, Trial
from gaitway.core.config import ConfigError, choose, did_you_mean

STUDY = "sweep"
SAMPLERS = {"tpe": "TPESampler", "random": "RandomSampler", "qmc": "QMCSampler"}
PRUNERS = {
    "none": "NopPruner",
    "median": "MedianPruner",
    "percentile": "PercentilePruner",
    "hyperband": "HyperbandPruner",
    "halving": "SuccessiveHalvingPruner",
}


class Search:
    """The study of a sweep, for its driver."""

    def __init__(self, config: OptunaConfig, journal: Path) -> None:
        optuna = _optuna()
        self.config, self.journal, self._optuna = config, journal, optuna
        self._spaces = {key: _distribution(optuna, Span.of(key, spec)) for key, spec in config.parameters.items()}
        self._study: Any = None

    def open(self, is_cost: bool = False) -> None:
        """Begin the study, or go on with it: with another stream of random numbers for each time it is opened. Of a
        cost it looks for the lowest value."""
        storage = _storage(self._optuna, self.journal)
        known = len(storage.get_all_studies()) and len(storage.get_all_trials(0))
        sampler = make_sampler(self._optuna, self.config, self.config.seed + known)
        direction = "minimize" if is_cost else "maximize"
        self._study = self._optuna.create_study(
            storage=storage,
            study_name=STUDY,
            direction=direction,
            load_if_exists=True,
            sampler=sampler,
            pruner=make_pruner(self._optuna, self.config),
        )
        if self._study.direction.name.lower() != direction:  # of a version that knew no costs
            sweep = self.journal.parent
            raise ConfigError(
                f"{sweep} was begun to look for the {'lowest' if direction == 'maximize' else 'highest'} value of its "
                f"metric, which is the worst; begin it anew by `gaitway sweep {shlex.quote(f'{sweep}/sweep.yaml')} "
                "--out DIR`"
            )

    def ask(self, seed: int | None) -> Trial:
        """The next trial; its number is that of Optuna."""
        asked = self._study.ask(self._spaces)
        return Trial(asked.number, dict(asked.params), seed)

    def tell(self, number: int, state: str, value: float | None) -> None:
        """What became of a trial; one that was told before, by a driver that was killed, is left alone."""
        states = self._optuna.trial.TrialState
        known = self._study.get_trials(deepcopy=False)
        if number >= len(known) or known[number].state.is_finished():
            return
        if state == "done" and value is not None:
            self._study.tell(number, value)
        else:
            self._study.tell(number, state=states.PRUNED if state == "pruned" else states.FAIL)


class TrialOfSearch:
    """What the process of a trial tells Optuna, as `learn(trial=...)` takes it."""

    def __init__(self, config: OptunaConfig, journal: Path, number: int) -> None:
        optuna = _optuna()
        study = optuna.load_study(
            study_name=STUDY, storage=_storage(optuna, journal), pruner=make_pruner(optuna, config)
        )
        self._trial = optuna.trial.Trial(study, study.get_trials(deepcopy=False)[number]._trial_id)

    def report(self, value: float, step: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a run that goes on evaluates some steps again, with the same result
            self._trial.report(value, step)

    def should_prune(self) -> bool:
        return bool(self._trial.should_prune())


def make_sampler(optuna: Any, config: OptunaConfig, seed: int) -> Any:
    return _part(optuna.samplers, SAMPLERS, config.sampler, "optuna.sampler", {"seed": seed})


def make_pruner(optuna: Any, config: OptunaConfig) -> Any:
    return _part(optuna.pruners, PRUNERS, config.pruner, "optuna.pruner", {})


def _part(
    module: Any, known: Mapping[str, str], entry: str | Mapping[str, Any], key: str, given: dict[str, Any]
) -> Any:
    """A sampler or pruner with its options, which are checked by name."""
    options = {"name": entry} if isinstance(entry, str) else dict(entry)
    make = getattr(module, choose(known, options.pop("name", None), f"{key}.name"))
    names = inspect.signature(make).parameters
    for name in options:
        if name not in names:
            raise ConfigError(f"{key} has no option {name!r}{did_you_mean(name, names)}; it has {sorted(names)}", key)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that an option is experimental
        try:
            return make(**{name: value for name, value in given.items() if name in names} | options)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{key}: {error}", key) from error


def _distribution(optuna: Any, span: Span) -> Any:
    if span.choices:
        return optuna.distributions.CategoricalDistribution(list(span.choices))
    if span.whole:
        return optuna.distributions.IntDistribution(int(span.low), int(span.high), log=span.log)
    return optuna.distributions.FloatDistribution(span.low, span.high, log=span.log)


def _storage(optuna: Any, journal: Path) -> Any:
    from optuna.storages.journal import JournalFileBackend

    return optuna.storages.JournalStorage(JournalFileBackend(str(journal)))


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ConfigError(
            'optuna is not installed; `pip install "gaitway[optuna]"`, or use grid or random instead', "optuna"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
