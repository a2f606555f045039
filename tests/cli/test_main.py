"""The command line as a user meets it: in one process, on tiny runs."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys

import pytest
import yaml
from forked_commands import Commands, until

from gaitway.cli.main import main
from gaitway.core.config import to_config
from gaitway.core.files import load_state, save_state
from gaitway.envs.robots.pup import PUP4

TINY = ["env.id=toy/cartpole", "env.num_envs=8", "algorithm.rollout_steps=16", "algorithm.minibatches=2",
        "evaluation.episodes=2", "evaluation.interval=256", "checkpoints.interval=128", "total_steps=512"]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory, drawn):
    path = tmp_path_factory.mktemp("runs") / "tiny"
    with drawn():
        assert main(["train", *TINY, f"run_dir={path}", "seed=3", "--quiet"]) == 0
    return path


def test_the_run_folder_holds_everything(run):
    names = {path.name for path in run.iterdir()}
    assert {"config.yaml", "contract.json", "code.json", "summary.json", "metrics.jsonl", "run.log", "plots"} <= names
    assert {"preflight.json", "wiring.json"} <= names
    wiring = {row["variable"]: row for row in json.loads((run / "wiring.json").read_text())["variables"]}
    assert wiring["action"]["writers"] == ["ActorCritic"]
    assert wiring["action"]["readers"] == ["Advance"]
    assert os.readlink(run / "checkpoints" / "last") == "512"
    summary = json.loads((run / "summary.json").read_text())
    assert summary["steps"] == 512
    assert {"return", "length"} <= set(summary["last"])
    assert {"return", "length"} <= set(summary["best"])
    assert summary["steps_per_second"] > 0
    code = json.loads((run / "code.json").read_text())
    assert code["versions"]["gaitway"]
    assert "# command line" in (run / "config.yaml").read_text()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert {"loss/surrogate", "loss/value", "train/return"} <= set().union(*lines)
    assert any("eval/return" in line for line in lines)
    shares = {name: value for name, value in lines[-2].items() if name.startswith("time/share_")}
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["time/share_evaluate"] > 0.0
    assert shares["time/share_film"] == 0.0


def test_info(run, capsys):
    assert main(["info", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["algorithm"] == "ppo"
    assert found["env"] == "toy/cartpole"
    assert found["steps"] == 512
    assert len(found["parameters_sha256"]) == 64
    assert {"format_version", "best", "last"} <= set(found)


def test_info_reads_its_device(run, capsys):
    assert main(["info", str(run), "device=cpu"]) == 1
    assert "nothing is computed on cpu or elsewhere; add --verify or leave device= out" in capsys.readouterr().err
    assert main(["info", str(run), "seed=3"]) == 1
    assert "'seed=3' is not understood; the one key here is device=cpu or device=cuda" in capsys.readouterr().err
    assert main(["info", str(run), "--verify", "device=abacus"]) == 1
    assert "abacus" in capsys.readouterr().err


def test_info_verifies_what_a_checkpoint_says(run, tmp_path, capsys):
    main(["info", str(run), "--json"])
    said = json.loads(capsys.readouterr().out)
    main(["info", str(run), "--json", "--verify"])
    assert json.loads(capsys.readouterr().out) == said
    copy = tmp_path / "copy"
    shutil.copytree(run, copy, symlinks=True)
    rewrite_facts(copy, lambda facts: facts | {"parameters_sha256": "0" * 64})
    assert main(["info", str(copy)]) == 0  # it is what the checkpoint says
    assert main(["info", str(copy), "--verify"]) == 1
    assert f"have the fingerprint {said['parameters_sha256']}, but it says 00000" in capsys.readouterr().err
    rewrite_facts(copy, lambda facts: {})  # as checkpoints were before they knew it
    capsys.readouterr()
    assert main(["info", str(copy), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found | {"run_dir": said["run_dir"]} == said


def rewrite_facts(run, change):
    path = (run / "checkpoints" / "last").resolve()
    state, meta = load_state(path, kind="checkpoint")
    save_state(path, state, kind="checkpoint", meta=meta | {"facts": change(meta["facts"])})


def test_commands_that_read_files_load_no_torch(run, tmp_path):
    # one process for all of them: it ends with the first that does
    program = """
import sys
from gaitway.cli.main import main
from gaitway.core.files import load_state, save_state
run, out = sys.argv[1:]
for command in (["list", "experiments"], ["info", run], ["plot", run, "--metric", "loss/value"], ["plot", run],
                ["compare", run, run, "--out", out], ["report", run, "-o", out + ".html"], ["info", run + "x"]):
    main(command)
    assert "torch" not in sys.modules, command
"""
    command = [sys.executable, "-c", program, str(run), str(tmp_path / "out.png")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert f"there is no folder {run}x (did you mean {run}?)" in done.stderr
    assert (run / "plots" / "loss_value.png").stat().st_size > 1000


def test_presets_of_ones_own(tmp_path, capsys):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\n# Mine.\nseed: 11\n")
    assert main(["list", "experiments", "--config-dir", str(tmp_path), "--json"]) == 0
    assert {"id": "mine", "description": "Mine."} in json.loads(capsys.readouterr().out)
    assert main(["train", "experiment=mine", "--config-dir", str(tmp_path), "--show-config"]) == 0
    assert "seed: 11" in capsys.readouterr().out
    assert main(["train", "--config-dir", str(tmp_path / "gone"), "--show-config"]) == 1
    assert "is not a folder" in capsys.readouterr().err


def test_eval_repeats_the_summary(run, capsys):
    assert main(["eval", str(run), "--checkpoint", "last", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    summary = json.loads((run / "summary.json").read_text())
    assert found["return"] == summary["last"]["return"]
    assert main(["eval", str(run), "--episodes", "3"]) == 0
    assert "3 episodes" in capsys.readouterr().out


def test_resume_goes_on(run, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy, symlinks=True)
    assert main(["resume", str(copy), "more=256", "--quiet"]) == 0
    capsys.readouterr()
    main(["info", str(copy), "--json"])
    assert json.loads(capsys.readouterr().out)["steps"] == 768


def test_plot_writes_pictures(run, capsys):
    assert main(["plot", str(run)]) == 0
    assert (run / "plots" / "learning_curve.png").stat().st_size > 1000


def test_plot_draws_any_metric(run, tmp_path, capsys):
    out = tmp_path / "two.png"
    assert main(["plot", str(run), "--metric", "loss/value", "time/seconds", "--out", str(out)]) == 0
    assert out.stat().st_size > 1000
    assert main(["plot", str(run), "--metric", "loss/valeu"]) == 1
    assert "no run has the metric 'loss/valeu' (did you mean 'loss/value'?)" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["envs", "robots", "algorithms", "experiments"])
def test_list(what, capsys):
    assert main(["list", what, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows
    assert all(row["id"] and row["description"] for row in rows)
    assert main(["list", what]) == 0


def test_list_robots_knows_legged_ones_and_tells_of_each(tmp_path, capsys):
    assert main(["list", "robots", "--json"]) == 0
    known = [row["id"] for row in json.loads(capsys.readouterr().out)]
    assert {"halfcheetah", "pup12", "pup4", "go1", "spot", "g1", "h1", "t1"} <= set(known)
    assert len(set(known)) == len(known)
    assert main(["list", "robots"]) == 0
    assert "from gaitway[robots]" in capsys.readouterr().out
    assert main(["list", "robots", "pup12"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("pup12: 12.76 kg, 19 positions, 18 velocities, 12 joints, 4 feet, free root")
    assert "FL_calf_joint" in told
    own = to_config(PUP4) | {"name": "mine", "mjcf": str(PUP4.robot.path)}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(own))
    assert main(["list", "robots", str(tmp_path / "mine.yaml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["report"].startswith("mine: 12.76 kg")
    (tmp_path / "lame.yaml").write_text(yaml.safe_dump(own | {"mirror": {"swap": [["F", "G"]]}}))
    for arguments, words in (
        (["robots", "pup21"], "did you mean 'pup12'"),
        (["envs", "pup12"], "leave pup12 out"),
        (["robots", str(tmp_path / "lame.yaml")], "the mirror of mine makes 'G_thigh_joint' of 'F_thigh_joint'"),
    ):
        assert main(["list", *arguments]) == 1
        assert words in capsys.readouterr().err


@pytest.mark.parametrize("name", ["terrain.level", "env.options.terrain.level"])
def test_check_takes_the_options_of_a_run(name, capsys):
    assert main(["check", "pup12/velocity", f"{name}=10"]) == 1
    assert "env.options.terrain.level is 10; use an integer from 0 to 9, or null" in capsys.readouterr().err


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "gaitway", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()[0]) == (0, "gaitway")


def test_check(capsys):
    assert main(["check", "toy/pendulum"]) == 0
    assert main(["check", "gymnasium:CartPole-v1"]) == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train", "env.id=walker/rum"], "walker/run"),
        (["train", "env.idd=walker/run"], "env.id"),
        (["train", "algorithm.epoch=3"], "algorithm.epochs"),
        (["train", "experiment=ppo_walker_rum"], "ppo_walker_run"),
        (["train", "algorithm.epochs=many"], "algorithm.epochs"),
        (["train", "algorithm.minibatches=7"], "use algorithm.minibatches=8"),
        (["train", "algorithm.gamma=1.5"], "gamma"),
        (["train", "seed=-1"], "seed"),
        (["train", "device=cuda"], "device=cpu"),
        (["train", "agent.observations.actor=[camera]"], "policy"),
        (["info", "nowhere"], "nowhere"),
        (["eval", "."], "run folder"),
        (["resume", "nowhere"], "nowhere"),
        (["check", "Walker2d-v6"], "Walker2d-v5"),
        (["bench", "nothing"], "nothing"),
        (["collect", ".", "--steps", "1", "--out", "data"], "is a folder, but not of a run: it lacks config.yaml"),
        (["collect", "walker/run", "--steps", "1", "--out", ""], "--out is empty; name the folder of the dataset"),
        (["check", "gymnasium:CartPole-v1", "nope=1"], "has no option 'nope'; remove it from env.options"),
        (["motion", "info", ".."], "is something else: it holds"),
        (["train", "experiment=nope"], "there is no experiment 'nope'; `gaitway list experiments` names all"),
    ],
)
def test_mistakes_get_one_sentence(arguments, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if arguments[0] == "bench":
        (tmp_path / "benchmarks").mkdir()
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert sentence in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["eval"], "gaitway eval: the following arguments are required: DIR; `gaitway eval --help` tells more\n"),
        (["eval", "x", "--episodes", "0"], "is not a whole number of at least 1"),
        (["nope"], "invalid choice: 'nope'"),
        (["info", "x", "--bogus"], "gaitway: unrecognized arguments: --bogus; `gaitway --help` tells more"),
    ],
)
def test_wrong_use_gets_one_line(arguments, sentence, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    error = capsys.readouterr().err
    assert end.value.code == 2
    assert sentence in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("damage", ["metrics.jsonl", "summary.json"])
def test_plots_of_damaged_files_are_refused(damage, run, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy, symlinks=True)
    (copy / damage).write_bytes(b"\xff{" * 20)
    assert main(["plot", str(copy)]) == 1
    assert damage in capsys.readouterr().err


def test_an_existing_run_folder_is_not_overwritten(run, capsys):
    before = (run / "config.yaml").read_bytes()
    assert main(["train", *TINY, f"run_dir={run}"]) == 1
    assert "gaitway resume" in capsys.readouterr().err
    assert (run / "config.yaml").read_bytes() == before


def test_resume_changes_no_settings_and_never_in_silence(run, tmp_path, capsys):
    copy, new = tmp_path / "copy", tmp_path / "new"
    shutil.copytree(run, copy, symlinks=True)
    assert main(["resume", str(copy), "algorithm.learning_rate=1e-05"]) == 1
    said = capsys.readouterr().err
    assert "'algorithm.learning_rate=1e-05' is refused: resume goes on with a run as it was begun" in said
    text = (copy / "config.yaml").read_text()
    (copy / "config.yaml").write_text(text.replace("  learning_rate: 0.0003", "  learning_rate: 1.0e-05"))
    assert main(["resume", str(copy), "more=128"]) == 1
    told = capsys.readouterr().err
    assert f"algorithm.learning_rate is 1e-05 in {copy}/config.yaml, but the checkpoint goes on with 0.0003" in told
    (copy / "config.yaml").write_text(text)
    command = shlex.split(said.partition("`gaitway ")[2].partition("`")[0].replace("NEW", str(new)))
    assert main([*command, "total_steps=128", "--quiet"]) == 0, "what the sentence says works"
    assert "learning_rate: 1.0e-05" in (new / "config.yaml").read_text()


def test_resume_takes_another_number_of_simulator_threads_and_ends_at_the_same_numbers(run, tmp_path, capsys):
    ends = {}
    for threads in (1, 2):
        copy = tmp_path / str(threads)
        shutil.copytree(run, copy, symlinks=True)
        assert main(["resume", str(copy), "more=128", f"env.num_threads={threads}", "--quiet"]) == 0
        capsys.readouterr()
        assert main(["info", str(copy), "--json"]) == 0
        ends[threads] = json.loads(capsys.readouterr().out)["parameters_sha256"]
    assert ends[1] == ends[2]
    for wrong in (["env.num_threads=0"], ["env.num_threads=many"], ["env.num_threads=1", "env.num_threads=2"]):
        assert main(["resume", str(run), "more=128", *wrong]) == 1
        assert "says no one number of threads; write env.num_threads=4" in capsys.readouterr().err


def test_a_folder_without_checkpoint_starts_over_on_resume_and_is_refused_elsewhere(run, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy, symlinks=True)
    shutil.rmtree(copy / "checkpoints")
    assert main(["info", str(copy)]) == 1
    assert "no checkpoint" in capsys.readouterr().err
    assert main(["resume", str(copy), "--quiet"]) == 0
    capsys.readouterr()
    main(["info", str(run), "--json"])
    whole = json.loads(capsys.readouterr().out)
    main(["info", str(copy), "--json"])
    assert json.loads(capsys.readouterr().out)["parameters_sha256"] == whole["parameters_sha256"]


def test_options_may_stand_between_keys(tmp_path, capsys):
    assert main(["train", "seed=4", "--show-config", "env.id=toy/cue"]) == 0
    shown = capsys.readouterr().out
    assert "seed: 4" in shown
    assert "id: toy/cue" in shown
    for wrong in (["train", "--sed", "seed=4"], ["resume", "a", "--quiet", "until"], ["info", "a", "b"]):
        with pytest.raises(SystemExit) as stop:
            main(wrong)
        assert stop.value.code == 2


@pytest.fixture(scope="module")
def commands():
    with Commands() as commands:
        yield commands


def test_a_second_interrupt_stops_at_once(tmp_path, commands):
    path = tmp_path / "run"
    slow = ["env.id=Humanoid-v5", "env.num_envs=64", "env.num_threads=1", "algorithm.rollout_steps=4096"]
    job = commands.start(tmp_path, "train", *slow, f"run_dir={path}")
    assert until((path / "checkpoints" / "last").exists, 60), job.said
    os.kill(job.pid, signal.SIGINT)
    assert until(lambda: "Ctrl-C again stops at once" in job.said)
    assert job.is_running  # the iteration, minutes long here, goes on
    os.kill(job.pid, signal.SIGINT)
    assert job.wait(20) == 130
    assert "gaitway resume" in job.said
    assert "Traceback" not in job.said


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGINT, 130)])
def test_signals_finish_the_iteration_save_and_tell(number, code, tmp_path, commands):
    path = tmp_path / "run"
    job = commands.start(tmp_path, "train", *TINY, "total_steps=1e9", f"run_dir={path}")
    assert until(lambda: list((path / "checkpoints").glob("[1-9]*")), 60), job.said
    os.kill(job.pid, number)
    assert job.wait() == code, job.said
    steps = json.loads((path / "summary.json").read_text())["steps"]
    assert os.readlink(path / "checkpoints" / "last") == str(steps)
    assert steps > 0


def test_a_run_whose_end_cannot_be_saved_fails(tmp_path, monkeypatch, capsys):
    from gaitway.runners import checkpoint

    save = checkpoint.save_state

    def full_after_the_first(folder, *arguments, **options):
        if folder.name != "0":
            raise checkpoint.StateFileError("the disk is full")
        save(folder, *arguments, **options)

    monkeypatch.setattr(checkpoint, "save_state", full_after_the_first)
    assert main(["train", *TINY, f"run_dir={tmp_path / 'run'}", "--quiet"]) == 1
    assert "lacks the checkpoint of step 512" in capsys.readouterr().err
    assert os.readlink(tmp_path / "run" / "checkpoints" / "last") == "0"


def test_going_back_to_an_older_checkpoint_and_on_from_there(run, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy, symlinks=True)
    assert main(["resume", str(copy), "more=256", "--quiet"]) == 0
    assert main(["resume", str(copy), "--checkpoint", "640", "until=700", "--quiet"]) == 0
    assert os.readlink(copy / "checkpoints" / "last") == "768"
    assert main(["resume", str(copy), "--checkpoint", "640", "more=1", "--quiet"]) == 0
    assert os.readlink(copy / "checkpoints" / "last") == "768"
    steps = [json.loads(line)["step"] for line in (copy / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(steps)
    assert main(["resume", str(copy), "--checkpoint", "123", "--quiet"]) == 1
    assert "no checkpoint '123'; it has" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ("evaluation.env={options: {foo: 1}}", "'foo'"),
        ("evaluation.env.num_env=3", "unknown key 'num_env'"),
        ("evaluation.metric=sped", "evaluation.metric is 'sped'"),
        ("evaluation.env.id=HalfCheetah-v5", "changes observations or actions"),
        ("torch_threads=-1", "torch_threads is -1"),
        ("total_steps=-5", "total_steps is -5"),
        ("algorithm=sax", "algorithm is 'sax' (did you mean 'sac'?); the choices are "),
        ("execution.mode=captured", "execution.mode is captured, but CUDA graphs need a GPU; use eager or compiled"),
        ("execution.mode=fast", "'captured'"),
        ("execution.precision=tf32", "execution.precision is tf32, which only a GPU has; use fp32 or bf16"),
        ("algorithm.max_grad_norm=0", "max_grad_norm is 0"),
        ("stop.patience=-1", "patience is -1"),
    ],
)
def test_mistakes_are_found_before_anything_is_written(argument, sentence, tmp_path, capsys):
    path = tmp_path / "run"
    small = ["env.id=Hopper-v5", "env.num_envs=4", "total_steps=64", "algorithm.rollout_steps=16"]
    assert main(["train", *small, f"run_dir={path}", argument]) == 1
    assert sentence in capsys.readouterr().err
    assert not path.exists()


def test_naming_the_algorithm_keeps_the_preset(capsys):
    assert main(["train", "experiment=ppo_halfcheetah", "algorithm=ppo", "algorithm.epochs=3", "--show-config"]) == 0
    shown = capsys.readouterr().out
    assert "minibatches: 16" in shown
    assert "epochs: 3" in shown


def test_a_lost_link_is_named_and_nothing_starts_over(run, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy, symlinks=True)
    (copy / "checkpoints" / "last").unlink()
    assert main(["resume", str(copy), "--quiet"]) == 1
    assert "no checkpoint 'last'; it has" in capsys.readouterr().err


def test_a_finished_run_has_nothing_to_do(run, capsys):
    assert main(["resume", str(run)]) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_resuming_beyond_the_plan_keeps_where_values_came_from(run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy, symlinks=True)
    assert main(["resume", str(copy), "until=640", "--quiet"]) == 0
    text = (copy / "config.yaml").read_text()
    assert "total_steps: 640  # gaitway resume" in text
    assert "num_envs: 8  # command line" in text


def test_gymnasium_environments_can_be_filmed(tmp_path, capsys):
    small = ["env.num_envs=4", "algorithm.minibatches=2", "total_steps=256", "evaluation.episodes=2"]
    path = tmp_path / "run"
    assert main(["train", "experiment=ppo_cartpole", *small, f"run_dir={path}", "--quiet"]) == 0
    assert main(["play", str(path), "--length", "5"]) == 0
    assert (path / "videos" / "play.mp4").stat().st_size > 500
