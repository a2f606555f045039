"""The bench `robot_learning`: claims, twins and files, on experiments that are three lines."""

import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def parts(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from robot_learning_experiments import experiment, results

    yield experiment, results
    for name in [name for name in sys.modules if name.startswith("robot_learning_experiments")]:
        del sys.modules[name]


def an_experiment(experiment, **changes):
    arms = {"honest": lambda job: {"x": 1.0}, "baseline": lambda job: {"x": 0.0}}

    def claims(arms):
        return [experiment.least("gain", arms["honest"]["x"] - arms["baseline"]["x"], 0.5)]

    parts = {"arms": arms, "twins": {"broken": lambda job: {"x": 0.0}}, "claims": claims} | changes
    return experiment.Experiment("T-X", "a title", **parts)


def row(x):
    return {"figures": {"x": x}, "seconds": 1.0}


def fill(results, honest=(1.0, 1.0, 1.0), broken=0.0):
    for seed, x in enumerate(honest):
        results.keep("honest", seed, row(x))
        results.keep("baseline", seed, row(0.0))
    results.keep("broken", 0, row(broken))
    return results.verdict()


def test_arms_hold_and_twins_fail(parts, tmp_path):
    experiment, results = parts
    kept = results.Results(an_experiment(experiment), tmp_path / "T-X.json")
    assert fill(kept)["holds"]
    written = json.loads((tmp_path / "T-X.json").read_text())
    assert written["verdict"]["seeds_passed"] == [0, 1, 2]
    assert written["claims"]["2"] == [{"what": "gain", "found": 1.0, "relation": ">=", "limit": 0.5}]
    assert written["arms"]["broken"]["0"]["figures"] == {"x": 0.0}


@pytest.mark.parametrize("broken", [0.5, 1.0])
def test_a_twin_that_passes_is_a_miss(parts, broken):
    experiment, results = parts
    verdict = fill(results.Results(an_experiment(experiment), None), broken=broken)
    assert not verdict["holds"]
    assert verdict["twins_that_passed"] == ["broken"]


@pytest.mark.parametrize(
    ("worst", "needed", "holds"), [(0.4, None, False), (0.4, 2, True), (float("nan"), None, False)]
)
def test_seeds_are_counted(parts, worst, needed, holds):
    experiment, results = parts
    verdict = fill(results.Results(an_experiment(experiment, seeds_needed=needed), None), (1.0, worst, 1.0))
    assert verdict["holds"] is holds
    assert verdict["seeds_passed"] == [0, 2]


def test_a_run_that_is_missing_is_a_miss_and_rows_in_the_file_stay(parts, tmp_path):
    experiment, results = parts
    path = tmp_path / "T-X.json"
    kept = results.Results(an_experiment(experiment), path)
    kept.keep("honest", 0, row(1.0))
    assert kept.verdict()["missing"] == ["0", "1", "2", "broken"]
    again = results.Results(an_experiment(experiment), path)
    again.keep("baseline", 0, row(0.0))
    assert again.has("honest", 0)
    assert again.verdict()["seeds_passed"] == [0]


def test_a_twin_may_take_the_place_of_another_arm(parts):
    experiment, results = parts
    kept = results.Results(an_experiment(experiment, breaks={"broken": "baseline"}), None)
    fill(kept, broken=1.0)
    assert [claim.found for claim in kept.claims(0, "broken")] == [0.0]


def test_mistakes_are_named(parts):
    experiment, _ = parts
    with pytest.raises(ValueError, match="arms and twins at once"):
        an_experiment(experiment, twins={"honest": None})
    with pytest.raises(ValueError, match="which are no twin or no arm"):
        an_experiment(experiment, breaks={"broken": "nobody"})


def test_an_id_is_registered_once(parts):
    experiment, _ = parts
    with pytest.raises(ValueError, match="T-GAE is registered twice"):
        experiment.experiment("T-GAE", "again", arms={"one": None}, claims=None)


def test_arms_run_in_processes_of_their_own(parts, tmp_path):
    experiment, _ = parts
    import robot_learning

    changed = []

    def meddle(job):
        changed.append(job.seed)
        job.notes["who"] = "meddler"
        return {"changed": len(changed)}

    def fail(job):
        raise KeyError("what is missing")

    made = an_experiment(experiment, arms={"meddles": meddle, "fails": fail})
    try:
        assert robot_learning.run_apart(made, "meddles", 3, tmp_path) == {
            "figures": {"changed": 1.0},
            "who": "meddler",
        }
        assert changed == []
        with pytest.raises(RuntimeError, match=r"(?s)T-X, fails, seed 3:.*what is missing"):
            robot_learning.run_apart(made, "fails", 3, tmp_path)
    finally:
        sys.modules.pop("robot_learning")


def test_figures_of_other_benchmarks_are_read_and_not_measured_again(parts):
    experiment, _ = parts
    from robot_learning_experiments import family  # registers them

    assert family
    [arm] = experiment.EXPERIMENTS["T-PPO-HOPPER"].arms.values()
    written = json.loads((BENCHMARKS / "results" / "learning_ppo_hopper.json").read_text())
    found = [arm(experiment.Job(seed, None, None))["return"] for seed in range(3)]
    assert found == written["final_returns"][:3]


A_TEST_FILE = """
import pytest

def test_right(): pass

class TestMore:
    @pytest.mark.parametrize("x", [1, 2])
    def test_wrong_for_2(self, x): assert x == 1

def test_left_out(): pytest.skip("not here")
"""


def test_what_came_of_every_test_is_told(parts, tmp_path, monkeypatch):
    experiment, _ = parts
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_some.py").write_text(A_TEST_FILE)
    monkeypatch.setattr(experiment, "ROOT", tmp_path)
    monkeypatch.setenv("PYTEST_ADDOPTS", "-c /dev/null --rootdir .")
    monkeypatch.setitem(experiment.TESTS, "T-SOME", ("test_some.py::test_right",))
    [arm] = experiment.tested("T-SOME", "some tests", "test_some.py").arms.values()
    job = experiment.Job(0, tmp_path, tmp_path)
    assert arm(job) == {"passed": 2, "failed": 1, "skipped": 1}
    assert {name: found["outcome"] for name, found in job.notes["tests"].items()} == {
        "test_some.py::test_right": "passed",
        "test_some.py::TestMore::test_wrong_for_2[1]": "passed",
        "test_some.py::TestMore::test_wrong_for_2[2]": "failed",
        "test_some.py::test_left_out": "skipped",
    }
    del experiment.EXPERIMENTS["T-SOME"]
    [arm] = experiment.tested("T-SOME", "one that is not there", "test_none.py").arms.values()
    with pytest.raises(RuntimeError, match=r"test_none\.py"):
        arm(job)
