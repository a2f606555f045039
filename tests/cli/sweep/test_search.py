"""Optuna as sweeps use it: what is asked, told and pruned, with its own journal."""

import sys

import pytest

from gaitway.cli.sweep.plan import SweepConfig
from gaitway.cli.sweep.search import Search, TrialOfSearch, make_pruner, make_sampler
from gaitway.core.config import ConfigError, from_config

optuna = pytest.importorskip("optuna")

PARAMETERS = {"rate": {"low": 1e-4, "high": 1e-1, "log": True}, "size": {"low": 2, "high": 4}, "kind": ["a", "b"]}


def config(**more):
    content = {"parameters": PARAMETERS, "pruner": {"name": "median", "n_startup_trials": 1}, **more}
    return from_config(SweepConfig, {"optuna": content}).optuna


def opened(path, is_cost=False, **more):
    search = Search(config(**more), path)
    search.open(is_cost)
    return search


def test_a_trial_that_is_worse_than_the_median_is_pruned(tmp_path):
    journal = tmp_path / "journal"
    search = opened(journal)
    good, bad = search.ask(0), search.ask(0)
    assert (good.number, bad.number, good.seed) == (0, 1, 0)
    assert 1e-4 <= good.parameters["rate"] <= 1e-1
    assert good.parameters["size"] in (2, 3, 4)
    assert good.parameters["kind"] in ("a", "b")
    first = TrialOfSearch(config(), journal, good.number)  # as the process of the trial does
    for step, value in ((10, 5.0), (20, 9.0)):
        first.report(value, step)
        assert not first.should_prune()
    search.tell(good.number, "done", 9.0)
    second = TrialOfSearch(config(), journal, bad.number)
    second.report(6.0, 10)
    assert not second.should_prune()
    second.report(3.0, 20)
    second.report(3.0, 20)  # a run that was resumed evaluates again
    assert second.should_prune()
    search.tell(bad.number, "pruned", 6.0)
    search.tell(bad.number, "done", 6.0)  # by a driver that does not know: it stays as it is
    states = [
        trial.state.name for trial in optuna.load_study(study_name="sweep", storage=search._study._storage).trials
    ]
    assert states == ["COMPLETE", "PRUNED"]


def test_of_a_cost_the_higher_trial_is_pruned_and_the_lowest_is_the_best(tmp_path):
    journal = tmp_path / "journal"
    search = opened(journal, is_cost=True)
    good, bad = search.ask(0), search.ask(0)
    TrialOfSearch(config(), journal, good.number).report(0.2, 10)  # as it is
    search.tell(good.number, "done", 0.2)
    second, third = (TrialOfSearch(config(), journal, one.number) for one in (bad, search.ask(0)))
    second.report(0.9, 10)
    third.report(0.1, 10)
    assert (second.should_prune(), third.should_prune()) == (True, False)
    search.tell(bad.number, "done", 0.9)
    assert search._study.best_trial.number == good.number


def test_a_search_in_the_wrong_direction_is_not_gone_on_with(tmp_path):
    opened(tmp_path / "journal").ask(0)
    with pytest.raises(ConfigError, match=r"was begun to look for the highest value of its metric, .* --out DIR"):
        opened(tmp_path / "journal", is_cost=True)


def test_another_driver_goes_on_with_the_study(tmp_path):
    search = opened(tmp_path / "journal")
    asked = [search.ask(None).parameters for _ in range(2)]
    again = opened(tmp_path / "journal")
    third = again.ask(None)
    assert third.number == 2
    assert third.parameters not in asked  # another stream than that of the first
    again.tell(0, "failed", None)
    assert [trial.state.name for trial in again._study.trials] == ["FAIL", "RUNNING", "RUNNING"]


def test_the_sampler_is_seeded(tmp_path):
    one, same, other = (opened(tmp_path / name, seed=seed).ask(None) for name, seed in (("a", 1), ("b", 1), ("c", 2)))
    assert one.parameters == same.parameters != other.parameters


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"sampler": "tpi"}, "optuna.sampler.name is 'tpi' (did you mean 'tpe'?)"),
        (
            {"pruner": {"name": "median", "n_startup": 1}},
            "has no option 'n_startup' (did you mean 'n_startup_trials'?)",
        ),
        ({"pruner": {"name": "percentile"}}, "optuna.pruner: "),
    ],
)
def test_samplers_and_pruners_are_checked(more, said):
    def make():
        return make_sampler(optuna, config(**more), 0), make_pruner(optuna, config(**more))

    with pytest.raises(ConfigError) as error:
        make()
    assert said in str(error.value)


def test_without_optuna_a_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r'pip install "gaitway\[optuna\]"`, or use grid or random'):
        Search(config(), tmp_path / "journal")
