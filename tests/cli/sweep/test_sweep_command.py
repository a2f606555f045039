"""`gaitway sweep` and its short forms: planned, killed, resumed, looked at."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from gaitway.cli.main import main
from gaitway.cli.sweep.command import best_of
from gaitway.cli.sweep.driver import Driver, sentence_of
from gaitway.cli.sweep.folder import Record, SweepFolder
from gaitway.cli.sweep.plan import Trial
from gaitway.core.config import ConfigError
from gaitway.runners.checkpoint import Checkpoints

TINY = {
    "env": {"id": "toy/cartpole", "num_envs": 4, "num_threads": 1},
    "algorithm": {"rollout_steps": 16, "minibatches": 2, "epochs": 1},
    "agent": {"actor_hidden": [8], "critic_hidden": [8]},
    "evaluation": {"interval": 640, "episodes": 1, "max_steps": 20},
    "checkpoints": {"interval": 320},
    "logging": {"code": "none"},
}
FAILING = """
import os
import time


class Hold:
    name = "hold"

    def after_iteration(self, moment):
        while moment.now.env_steps >= 960 and os.path.exists("hold"):
            time.sleep(0.02)


class Fail:
    name = "fail"

    def begin(self, moment):
        raise ValueError("the foot is too short")
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def planned(monkeypatch):
    """Sweeps are planned and not run."""
    monkeypatch.setattr(Driver, "run", lambda self: 0)


def write(file, **content):
    Path(file).write_text(yaml.safe_dump(content))
    return file


def status(capsys, folder):
    capsys.readouterr()
    assert main(["sweep", "status", str(folder), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def processes(folder):
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        found += [path] if b"gaitway.cli.sweep.trial" in words and os.fsencode(folder) in words else []
    return found


@pytest.mark.slow
def test_a_killed_driver_takes_its_trials_along_and_another_one_finishes_them_bit_for_bit(here, capsys):
    (here / "failing.py").write_text(FAILING)
    (here / "hold").touch()  # so that the one is not done before the other has failed
    lists = [[{"name": "failing:Hold"}], [{"name": "failing:Fail"}]]
    write("s.yaml", base=TINY | {"total_steps": 9600, "seed": 3}, grid={"callbacks": lists}, workers=2)
    driver = subprocess.Popen([sys.executable, "-m", "gaitway", "sweep", "s.yaml"], stdout=subprocess.DEVNULL)
    folder, deadline = SweepFolder("runs/sweeps/s"), time.monotonic() + 300
    while time.monotonic() < deadline:
        records = folder.records() if folder.outcomes.exists() else []
        if len(records) == 2 and records[1].state == "failed" and (records[0].steps or 0) > 0:
            break
        time.sleep(0.05)
    assert (records[0].state, records[1].state) == ("running", "failed")
    assert "the foot is too short" in records[1].sentence
    assert len(processes("runs/sweeps/s")) == 1
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    (here / "hold").unlink()
    killed = time.monotonic()
    while processes("runs/sweeps/s"):
        assert time.monotonic() - killed < 10
        time.sleep(0.05)
    rows = status(capsys, folder.path)
    assert [row["state"] for row in rows] == ["stopped", "failed"]
    assert 0 < rows[0]["steps"] < 9600
    (here / "failing.py").write_text(FAILING.replace('raise ValueError("the foot is too short")', "pass"))
    assert main(["sweep", "--resume", "runs/sweeps/s", "--retry-failed"]) == 0
    rows = status(capsys, folder.path)
    assert [(row["state"], row["steps"]) for row in rows] == [("done", 9600)] * 2
    # as a run that nobody disturbed
    plan = folder.read_plan(0)["arguments"]
    assert main(["train", *plan, "run_dir=alone", "--quiet"]) == 0
    found = []
    for run in ("alone", "runs/sweeps/s/0000", "runs/sweeps/s/0001"):
        capsys.readouterr()
        assert main(["info", run, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out)["parameters_sha256"])
    assert found[0] == found[1] == found[2]
    assert best_of(folder.records()).trial.number == 0
    assert main(["train", "--from-trial", "runs/sweeps/s:1", "seed=9", "--show-config"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["seed"], shown["callbacks"], shown["run_dir"]) == (9, lists[1], "runs/toy_cartpole_9")


def test_trials_are_planned_with_everything_resolved_and_their_share_of_the_cores(here, capsys, planned, monkeypatch):
    monkeypatch.setenv("HEIGHT", "17")
    base = TINY | {"env": {"id": "toy/cartpole", "num_envs": 64}, "total_steps": "${oc.decode:${oc.env:HEIGHT}}"}
    assert main(["sweep", write("s.yaml", name="mine", base=base, grid={"seed": [3, 4]}), "--workers", "2"]) == 0
    rows = status(capsys, "runs/sweeps/mine")
    assert [(row["parameters"], row["state"]) for row in rows] == [({"seed": 3}, "waiting"), ({"seed": 4}, "waiting")]
    config = SweepFolder("runs/sweeps/mine").read_plan(1)["config"]
    cores = len(os.sched_getaffinity(0)) // 2 or 1
    assert (config["seed"], config["total_steps"], config["env"]["num_threads"]) == (4, 17, cores)
    assert main(["sweep", "s.yaml"]) == 1
    assert (
        "holds a sweep already; go on with it by `gaitway sweep --resume runs/sweeps/mine`" in capsys.readouterr().err
    )


def test_short_forms_of_train(here, capsys, planned):
    settings = [f"{section}.{key}={value}" for section in ("env", "algorithm") for key, value in TINY[section].items()]
    assert main(["train", *settings, "--seeds", "0..2"]) == 0
    assert [row["seed"] for row in status(capsys, "runs/sweeps/toy_cartpole")] == [0, 1, 2]
    assert (
        main(["train", *settings, "-m", "algorithm.gamma=0.9,0.99", "agent.activation=tanh,elu", "run_dir=there"]) == 0
    )
    tried = [tuple(row["parameters"].values()) for row in status(capsys, "there")]
    assert tried == [(0.9, "tanh"), (0.9, "elu"), (0.99, "tanh"), (0.99, "elu")]
    assert main(["train", "algorithm.gamma=0.9,0.99"]) == 1
    assert "or try each by -m" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"grid": {"algorithm.learning_rat": [1]}}, "did you mean 'algorithm.learning_rate'?"),
        ({"base": TINY, "grid": {"algorithm.gamma": [0.9, 7]}}, "algorithm.gamma is 7"),
        ({"base": TINY, "grid": {"evaluation.metric": ["speed"]}}, "the metric is 'speed'; the evaluation will have"),
    ],
)
def test_a_mistake_in_any_trial_is_refused_before_the_first_one_begins(content, said, here, capsys):
    assert main(["sweep", write("s.yaml", **content)]) == 1
    assert said in capsys.readouterr().err
    assert not (here / "runs").exists()


def test_what_is_no_sweep_is_refused(here, capsys, planned):
    write("s.yaml", base=TINY)
    for arguments, said in (
        (["sweep"], "name one sweep file"),
        (["sweep", "s.yaml", "--retry-failed"], "add --resume DIR"),
        (["sweep", "--resume", "runs"], "give the folder of a sweep"),
        (["sweep", "gone.yaml"], "cannot read gone.yaml"),
        (["train", "-m", "seed=1"], "-m tries several values"),
    ):
        assert main(arguments) == 1
        assert said in capsys.readouterr().err
    assert main(["sweep", "s.yaml"]) == 0
    folder = SweepFolder("runs/sweeps/s")
    with folder.driving():
        assert main(["sweep", "--resume", "runs/sweeps/s"]) == 1
    assert "is being driven by another process" in capsys.readouterr().err
    folder.file.write_text(folder.file.read_text().replace("toy/cartpole", "evil:Env"))
    assert main(["sweep", "--resume", "runs/sweeps/s"]) == 1
    assert "was not made here, or its sweep.yaml was changed" in capsys.readouterr().err
    plan = folder.plans / "0000.json"
    plan.write_text(plan.read_text().replace("toy/cartpole", "evil:Env"))
    with pytest.raises(ConfigError, match="was not made here, or was changed"):
        folder.read_plan(0)


def test_the_best_is_that_of_all_seeds():
    def record(number, rate, seed, value, state="done"):
        return Record(Trial(number, {"rate": rate}, seed), state, 10, value)

    lucky = [record(0, 1, 0, 10.0), record(1, 1, 1, 0.0), record(2, 2, 0, 6.0), record(3, 2, 1, 6.0)]
    assert best_of(lucky).trial.number == 2
    assert best_of([*lucky, record(4, 3, 0, 99.0), record(5, 3, 1, None, "failed")]).trial.number == 2
    with pytest.raises(ConfigError, match="no trial of this sweep is done"):
        best_of([record(0, 1, 0, 1.0, "pruned")])
    with pytest.raises(ConfigError, match=r"has a value by evaluation.metric; name one by its number"):
        best_of([record(0, 1, 0, None)])


def test_the_best_of_a_cost_is_the_lowest_and_the_table_shows_it_as_it_is(here, capsys, planned):
    settings = [f"{section}.{key}={value}" for section in TINY for key, value in TINY[section].items()]
    assert main(["train", *settings, "-m", "seed=0,1", "run_dir=s"]) == 0
    folder = SweepFolder("s")
    for number, value in enumerate((0.75, 0.25)):
        run = folder.run(number)
        run.path.mkdir()
        run.code.write_text('{"run_id": "it"}')
        run.config.write_text("evaluation: {metric: slips}\n")
        run.contract.write_text(json.dumps({"facts": {"costs": ["slips"]}}))
        facts = {"best": {"slips": value, "steps": 8}, "last": {}}
        assert Checkpoints(run.checkpoints, run.run_id).save(8, {}, 8, facts=facts)
        folder.note(number, "done")
    assert [(row["state"], row["value"]) for row in status(capsys, "s")] == [("done", 0.75), ("done", 0.25)]
    assert best_of(folder.records()).trial.number == 1
    run.contract.write_text("{}")
    folder.run(0).contract.unlink()
    assert best_of(folder.records()).trial.number == 0  # no cost, as far as anybody knows


@pytest.mark.parametrize(("metric", "direction"), [("length", "MAXIMIZE"), ("physics_error", "MINIMIZE")])
def test_a_search_minimises_costs(metric, direction, here, planned):
    optuna = pytest.importorskip("optuna")
    parameters = {"algorithm.gamma": {"low": 0.9, "high": 0.99}}
    base = TINY | {"env": {"id": "walker/run", "num_envs": 1, "num_threads": 1}}
    write("s.yaml", base=base, optuna={"metric": metric, "parameters": parameters})
    assert main(["sweep", "s.yaml"]) == 0
    assert main(["sweep", "--resume", "runs/sweeps/s"]) == 0
    journal = optuna.storages.journal.JournalFileBackend("runs/sweeps/s/optuna.journal")
    study = optuna.load_study(study_name="sweep", storage=optuna.storages.JournalStorage(journal))
    assert study.direction.name == direction


def test_a_search_without_a_metric_is_refused_and_seeds_are_not(here, capsys, planned):
    pytest.importorskip("optuna")
    base = TINY | {"evaluation": {"metric": None}}
    parameters = {"algorithm.gamma": {"low": 0.9, "high": 0.99}}
    assert main(["sweep", write("s.yaml", base=base, optuna={"parameters": parameters})]) == 1
    assert "evaluation.metric is null; name one as optuna.metric, such as return" in capsys.readouterr().err
    assert main(["sweep", write("t.yaml", base=base, seeds="0..1")]) == 0
    assert len(status(capsys, "runs/sweeps/t")) == 2


def test_failures_are_told_by_what_was_said_last(tmp_path):
    output = tmp_path / "0000.txt"
    output.write_text("something\ngaitway: the first\nnoise\ngaitway: the foot is too short\nnext\n")
    assert sentence_of(output, 1) == "the foot is too short"
    output.write_text("Traceback (most recent call last):\nRuntimeError: out of reach\n")
    assert sentence_of(output, 1) == "RuntimeError: out of reach"
    assert sentence_of(output, -9) == "it was killed (SIGKILL)"


def test_one_command_line_begins_and_goes_on(here, capsys):
    settings = [f"{section}.{key}={value}" for section in TINY for key, value in TINY[section].items()]
    line = ["train", *settings, "run_dir=run", "--or-resume", "--quiet"]
    assert main([*line, "total_steps=128"]) == 0
    assert main([*line, "total_steps=256"]) == 0
    assert main(["train", *settings, "run_dir=whole", "total_steps=256", "--quiet"]) == 0
    capsys.readouterr()
    assert main([*line, "total_steps=256"]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert main([*line, "total_steps=256", "algorithm.gamma=0.5"]) == 1
    assert "run was begun with algorithm.gamma=0.99, and this asks for 0.5" in capsys.readouterr().err
    assert main(["train", *settings, "--or-resume"]) == 1
    assert "add run_dir=DIR" in capsys.readouterr().err
    steps = [json.loads(text)["step"] for text in Path("run/metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(steps)
    assert steps[-1] == 256
