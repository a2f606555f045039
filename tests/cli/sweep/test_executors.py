"""Who runs the trials of a sweep: what clusters are asked for, what is missing is said, jobs are found again."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from gaitway.cli.main import main
from gaitway.cli.sweep import slurm_executor
from gaitway.cli.sweep.cluster import ClusterConfig, cluster_of
from gaitway.cli.sweep.command import make_executor, plan_of
from gaitway.cli.sweep.driver import sentence_of
from gaitway.cli.sweep.executors import cores_of_trial
from gaitway.cli.sweep.folder import SweepFolder
from gaitway.cli.sweep.plan import SweepConfig, planned_trials
from gaitway.cli.sweep.slurm_executor import SlurmJob, ending, own_id
from gaitway.core.config import ConfigError, from_config

PENDULUM = {
    "env": {"id": "toy/pendulum", "num_envs": 2},
    "total_steps": 64,
    "algorithm": {"name": "ppo", "rollout_steps": 16, "minibatches": 1, "epochs": 1},
}


def sweep(**content):
    return from_config(SweepConfig, content)


def test_a_cluster_is_a_preset_with_changes(tmp_path):
    assert cluster_of(sweep(executor="slurm")) == ClusterConfig()  # the preset states the defaults
    changed = cluster_of(sweep(executor="slurm", cluster={"partition": "gpu", "cpus_per_task": 4}))
    assert (changed.partition, changed.cpus_per_task, changed.max_restarts) == ("gpu", 4, 3)
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "ours.yaml").write_text("{time_limit_min: 7}")
    assert cluster_of(sweep(executor="slurm", cluster="ours", config_dir=str(tmp_path))).time_limit_min == 7
    with pytest.raises(ConfigError, match=r"there is no cluster 'our'; there are \['ours', 'slurm'\]"):
        cluster_of(sweep(executor="slurm", cluster="our", config_dir=str(tmp_path)))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"executor": "slrum"}, "executor is 'slrum'"),
        ({"executor": "local", "cluster": {"partition": "a"}}, "add executor: slurm or executor: ray"),
    ],
)
def test_mistakes_get_a_sentence(content, said):
    with pytest.raises(ConfigError) as error:
        sweep(**content)
    assert said in str(error.value)


def test_a_misspelt_setting_of_a_cluster_gets_a_sentence():
    with pytest.raises(ConfigError, match=r"did you mean 'cluster\.partition'"):
        cluster_of(sweep(executor="slurm", cluster={"partion": "a"}))


def test_cores_of_a_trial():
    assert cores_of_trial(sweep(executor="slurm", cluster={"cpus_per_task": 3}), 8) == 3
    assert cores_of_trial(sweep(), 10_000) == 1


@pytest.mark.parametrize("executor", ["slurm"])
def test_without_sbatch_the_local_executor_is_named_and_nothing_is_made(executor, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    Path("a.yaml").write_text(yaml.safe_dump({"base": PENDULUM, "executor": executor}))
    assert main(["sweep", "a.yaml", "--out", "made"]) == 1
    assert "sbatch, which this machine does not have" in (said := capsys.readouterr().err)
    assert "use executor: local" in said
    assert not Path("made").exists()


@pytest.mark.parametrize(("executor", "module", "extra"), [("slurm", "submitit", "slurm"), ("ray", "ray", "ray")])
def test_a_missing_extra_is_named(executor, module, extra, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/sbatch")
    for name in (module, "gaitway.processes.ray_workers"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=rf'`pip install "gaitway\[{extra}\]"`, or use executor: local'):
        make_executor(sweep(executor=executor), SweepFolder(tmp_path), 1)


def test_a_job_says_how_it_ended_or_is_missed(tmp_path, monkeypatch):
    class Queue:
        def __init__(self):
            self.here = {"7_1": "RUNNING"}

        def states(self):
            return self.here

    folder = SweepFolder(tmp_path)
    folder.output.mkdir()
    queue = Queue()
    job = SlurmJob("7_1", ending(folder, 1), queue)
    assert job.code() is None
    ending(folder, 1).write_text(json.dumps({"code": 75, "restarts": 3}))
    assert job.code() == 75
    ending(folder, 1).unlink()
    monkeypatch.setattr(slurm_executor, "SETTLE_S", 0.05)
    assert job.code() is None  # it is in the queue
    queue.here = {}
    time.sleep(0.1)
    monkeypatch.setenv("PATH", "")  # without SLURM nobody knows why
    assert job.code() == -9


def test_a_job_that_never_began_is_stopped(tmp_path, monkeypatch):
    """SLURM knows nothing of a part of an array that was cancelled while it waited."""
    folder = SweepFolder(tmp_path)
    folder.output.mkdir()
    folder.output_of(1).write_text("what an earlier job said\n")
    monkeypatch.setattr(slurm_executor, "SETTLE_S", 0.0)
    monkeypatch.setenv("PATH", "")
    job, spoken = (SlurmJob("7_1", ending(folder, 1), SimpleNamespace(states=dict)) for _ in range(2))
    assert job.code() == 75
    folder.output_of(1).write_text("what an earlier job said\nand this one\n")
    assert spoken.code() == -9


SCONTROL = """#!/bin/sh
echo "JobId=8 ArrayJobId=7 ArrayTaskId=1 JobName=s"
echo "   JobState=$STATE Reason=None Dependency=(null)"
"""


@pytest.mark.parametrize(("state", "code"), [("CANCELLED", 75), ("OUT_OF_MEMORY", 1)])
def test_what_slurm_says_of_a_job_that_said_nothing(state, code, tmp_path, monkeypatch):
    """The words are those of a real `scontrol show job`; `gaitway bench clusters` cancels real jobs."""
    (tmp_path / "scontrol").write_text(SCONTROL)
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("STATE", state)
    monkeypatch.setattr(slurm_executor, "SETTLE_S", 0.0)
    folder = SweepFolder(tmp_path)
    folder.output.mkdir()
    queue = SimpleNamespace(states=dict)
    job = SlurmJob("7_1", ending(folder, 1), queue)
    assert (job.code(), job.code()) == (code, code)
    if code == 1:
        assert sentence_of(folder.output_of(1), 1).startswith("SLURM ended the job and calls it OUT_OF_MEMORY; see")
    else:
        assert not folder.output_of(1).exists()


JOB = """
import os, signal, sys
from gaitway.cli.sweep.slurm_executor import run_in_job
from gaitway.runners.upkeep import Upkeep

save = Upkeep.save
def saved_and_told(upkeep, steps):
    save(upkeep, steps)
    for name in sys.argv[2:] if steps == 32 else ():
        os.kill(os.getpid(), getattr(signal, name))

Upkeep.save = saved_and_told
sys.exit(run_in_job(sys.argv[1], 0, 3))
"""


@pytest.mark.parametrize(("signals", "is_queued_again"), [(["SIGTERM"], False), (["SIGUSR1", "SIGTERM"], True)])
def test_a_cancelled_job_is_not_queued_again_and_one_told_to_save_is(signals, is_queued_again, tmp_path, monkeypatch):
    """The signal comes after a checkpoint of the same step, which therefore knows nothing of it."""
    config = sweep(base=PENDULUM | {"checkpoints": {"interval": 32}}, seeds="0..0")
    folder, trial = SweepFolder.create(tmp_path / "s", config), planned_trials(config)[0]
    folder.write_plan(trial, plan_of(config, trial, 1))
    command = tmp_path / "bin" / "scontrol"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent), prepend=os.pathsep)
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.delenv("SLURM_ARRAY_JOB_ID", raising=False)
    arguments = [sys.executable, "-c", JOB, str(folder.path), *signals]
    assert subprocess.run(arguments, timeout=120, check=False).returncode == 75, folder.output_of(0).read_text()
    assert (tmp_path / "asked").exists() == is_queued_again
    assert ending(folder, 0).exists() != is_queued_again
    if is_queued_again:
        assert (tmp_path / "asked").read_text() == "requeue 12\n"


def test_the_id_of_a_job(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.delenv("SLURM_ARRAY_JOB_ID", raising=False)
    assert own_id() == "12"
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "10")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "2")
    assert own_id() == "10_2"


def test_what_was_last_given_a_trial_is_remembered(tmp_path):
    folder = SweepFolder.create(tmp_path / "s", SweepConfig())
    assert folder.job_of(0) is None
    folder.note(0, "running", job="3_0")
    folder.note(1, "running", pid=1)
    assert folder.job_of(0) == "3_0"
    assert folder.job_of(1) is None


slurm = pytest.mark.skipif(
    not os.environ.get("SLURM_CONF") or shutil.which("sbatch") is None,
    reason="needs SLURM: scripts/local_slurm.sh start",
)


@slurm
def test_trials_of_slurm_end_as_local_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = []
    for executor in ("local", "slurm"):
        Path("a.yaml").write_text(yaml.safe_dump({"base": PENDULUM, "seeds": "0..1", "executor": executor}))
        assert main(["sweep", "a.yaml", "--out", executor]) == 0
        runs = [SweepFolder(executor).run(number).path for number in range(2)]
        facts = [json.loads((run / "checkpoints/last/state.json").read_text())["meta"]["facts"] for run in runs]
        found.append([each["parameters_sha256"] for each in facts])
    assert found[0] == found[1]
