"""`gaitway collect` and runs that learn from what it wrote, as a user meets them."""

import json
import shutil

import pytest
import torch
import yaml
from torch.testing import assert_close

import gaitway
from gaitway.cli import training
from gaitway.cli.followed_run import FollowedRun
from gaitway.cli.main import main
from gaitway.core.files import load_state
from gaitway.core.seeding import stream
from gaitway.data.dataset import Dataset
from gaitway.data.trajectories import Trajectories
from gaitway.envs.registry import make_env
from gaitway.runners.collect import RandomPolicy, Taught

SWINGS = ["env.id=toy/pendulum", "env.num_envs=1", "agent.actor_hidden=[8]", "agent.critic_hidden=[8]",
          "algorithm.batch_size=8", "evaluation.episodes=1", "evaluation.max_steps=10"]  # fmt: skip
OFFLINE = ["algorithm=td3_bc", *SWINGS, "algorithm.iteration_steps=10", "total_steps=30", "checkpoints.interval=10"]
PLAYED = ["algorithm=td3", *SWINGS, "algorithm.iteration_steps=20", "algorithm.learning_starts=20",
          "algorithm.replay_size=300", "total_steps=60", "checkpoints.interval=20"]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def no_plots():
    """Pictures are tested elsewhere, and take longer than these runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "plot_run", lambda path: [])
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory, no_plots):
    """A run that played, and datasets of its environment and of another."""
    folder = tmp_path_factory.mktemp("collected")
    assert main(["train", *PLAYED, f"run_dir={folder / 'run'}", "--quiet"]) == 0
    for env, name in (("toy/pendulum", "swings"), ("toy/cartpole", "poles")):
        assert main(["collect", env, "--steps", "100", "--out", str(folder / name), "--quiet"]) == 0
    return folder


@pytest.fixture
def copy(place, tmp_path):
    shutil.copytree(place / "swings", tmp_path / "swings")
    return tmp_path / "swings"


def sentence(capsys):
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("gaitway:")]
    assert len(lines) == 1
    return lines[0]


def info(path, capsys):
    capsys.readouterr()
    assert main(["info", str(path), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


class TestCollect:
    def test_random_actions_of_an_environment(self, place, tmp_path, capsys):
        out = tmp_path / "data"
        options = ["--steps=60", "--num-envs=2", "--seed=4"]
        assert main(["collect", "toy/cartpole", *options, "--out", str(out)]) == 0
        shown = capsys.readouterr().out
        data = Trajectories(out)
        assert (data.num_steps, data.spec.id) == (60, "toy/cartpole")
        assert data.description == "random actions in toy/cartpole, seed 4"
        assert "100.0%  step 60 of 60" in shown
        assert str(Dataset(data, str(out))) in shown
        again = tmp_path / "again"
        assert main(["collect", "toy/cartpole", *options, f"--out={again}", "--quiet"]) == 0
        assert Dataset.open(again).sha256 == Dataset.open(out).sha256
        assert main(["collect", "toy/cartpole", "--steps=60", f"--out={tmp_path / 'c'}", "--seed=5", "--quiet"]) == 0
        assert Dataset.open(tmp_path / "c").sha256 != Dataset.open(out).sha256

    def test_a_policy_with_and_without_noise(self, place, tmp_path):
        found = {}
        for name, options in {
            "best": [],
            "last": ["--policy", "last"],
            "earlier": ["--policy", "40"],
            "stochastic": ["--stochastic"],
            "mixed": ["--random-share", "0.5"],
            "random": ["--policy", "random"],
        }.items():
            out = tmp_path / name
            assert main(["collect", str(place / "run"), "--steps", "40", "--out", str(out), *options, "--quiet"]) == 0
            found[name] = Trajectories(out).transitions()["action"].flatten()
        descriptions = {name: Trajectories(tmp_path / name).description for name in found}
        assert descriptions["best"].startswith("td3, best of run (step ")
        assert descriptions["earlier"] == "td3, 40 of run (step 40), seed 0"
        assert descriptions["stochastic"].endswith(", stochastic, seed 0")
        assert descriptions["mixed"].endswith(", 50% random, seed 0")
        assert (found["best"] != found["stochastic"]).all()
        assert (found["best"] != found["random"]).all()
        assert (found["earlier"] != found["last"]).any()
        assert (found["mixed"] != found["best"]).sum() > 5  # after the first random action states differ

    def test_nothing_is_overwritten_but_more_can_be_added(self, copy, capsys):
        before = Dataset.open(copy)
        assert main(["collect", "toy/pendulum", "--steps", "10", "--out", str(copy)]) == 1
        assert "exists already; choose another folder, or add to a dataset there with --append" in sentence(capsys)
        assert Dataset.open(copy).sha256 == before.sha256
        assert main(["collect", "toy/pendulum", "--steps=10", f"--out={copy}", "--append", "--quiet"]) == 0
        assert Dataset.open(copy).num_steps == before.num_steps + 10
        assert main(["collect", "toy/cartpole", "--steps=10", f"--out={copy}", "--append", "--quiet"]) == 1
        assert "was recorded with other groups" in sentence(capsys)

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["toy/pendulum", "--policy", "best"], "is no run folder and has no policy 'best'; use --policy random"),
            (["toy/pendulm"], "toy/pendulum"),
            (["toy/pendulum", "--seed", "-1"], "use an integer >= 0"),
        ],
    )
    def test_mistakes_leave_nothing_behind(self, arguments, said, tmp_path, capsys):
        out = tmp_path / "data"
        assert main(["collect", *arguments, "--steps", "10", "--out", str(out)]) == 1
        assert said in sentence(capsys)
        assert not out.exists()

    def test_labels_and_codecs(self, place, tmp_path):
        """What the run would have done, beside random actions; a driver per episode."""
        out = tmp_path / "data"
        arguments = ["collect", "toy/pendulum", "--label", str(place / "run"), "--teacher-share", "0.5", "--num-envs=4"]
        assert main([*arguments, "--steps=1600", f"--out={out}", "--codec", "vel=u16_range:-2:2", "--quiet"]) == 0
        data = Trajectories(out)
        assert data.description == "random actions in toy/pendulum, labels by run, seed 0"
        assert data.codecs["env/obs/vel"].name == "u16_range"
        loaded = gaitway.load(str(place / "run"))
        taught = []
        for episodes in data.chunks():
            fields = episodes.transitions()
            expected = loaded.act({"pos": fields["obs/pos"], "vel": fields["obs/vel"]})
            assert_close(fields["teacher/action"], expected, rtol=0, atol=2e-3)  # the codec moved what it sees
            same = (fields["action"] == fields["teacher/action"]).flatten().split(episodes.lengths)
            taught += [float(each.float().mean()) for each in same]
        assert set(taught) == {0.0, 1.0}  # whole episodes
        assert len(taught) == 8

    def test_least_episodes_and_whole_ones_alone(self, tmp_path, capsys):
        """Without a metric `success` it is the time limit that tells; episodes under way at the end have not met it."""
        out = tmp_path / "data"
        assert main(["collect", "toy/pendulum", "--success-only", "--episodes=3", f"--out={out}", "--quiet"]) == 0
        data = Trajectories(out)
        assert data.num_episodes >= 3
        assert {length for chunk in data.chunks() for length in chunk.lengths} == {200}  # none that was under way
        assert data.description == "random actions in toy/pendulum, seed 0, whole episodes alone"
        assert main(["collect", "toy/pendulum", f"--out={tmp_path / 'other'}"]) == 1
        assert "nothing says how much to record" in sentence(capsys)

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["toy/pendulum", "--follow", "runs/none"], "random actions teach nothing; name a run"),
            (["toy/pendulum", "--label", "runs/none"], "runs/none"),
            (["toy/pendulum", "--codec", "vel"], "write GROUP=u8_unit, GROUP=f16 or GROUP=u16_range:LOW:HIGH"),
        ],
    )
    def test_recordings_that_cannot_be_made(self, arguments, said, tmp_path, capsys):
        out = tmp_path / "data"
        assert main(["collect", *arguments, "--steps", "10", "--out", str(out)]) == 1
        assert said in sentence(capsys)
        assert not out.exists()

    def test_a_share_beyond_one(self, capsys):
        with pytest.raises(SystemExit):
            main(["collect", "toy/pendulum", "--steps=9", "--out=d", "--teacher-share", "{start: 2, end: 0, over: 9}"])
        assert "leaves 0 to 1" in capsys.readouterr().err

    def test_a_run_that_is_followed(self, place, tmp_path):
        """The teacher plays until there is a run, then its newest checkpoint does, until the run is over."""
        student, out = tmp_path / "student", tmp_path / "data"
        follow = ["collect", str(place / "run"), "--follow", str(student), f"--out={out}", "--keep-latest=5", "--quiet"]
        assert main([*follow, "--steps=300"]) == 0
        alone = Trajectories(out)
        assert set(alone.extras) == {"teacher/action"}
        assert "labels for student" in alone.description
        assert all((part["action"] == part["teacher/action"]).all() for part in [alone.transitions()])
        shutil.copytree(place / "run", student, symlinks=True)
        assert main(["resume", str(student), "more=20", "--quiet"]) == 0
        assert main([*follow, "--steps=300", "--append", "--teacher-share", "{start: 1, end: 0, over: 2}"]) == 0
        both = Trajectories(out)
        assert both.listed[: len(alone.listed)] == alone.listed
        fields = both.read(both.listed[-1]).transitions()
        assert (fields["action"] != fields["teacher/action"]).all()  # iteration 2 is over: the student drives alone
        assert main([*follow, "--append"]) == 0  # nothing says how much, and the run is over
        assert Trajectories(out).written == both.written

    def test_newer_checkpoints_are_taken_as_they_come(self, place, tmp_path, caplog):
        student = tmp_path / "student"
        with make_env("toy/pendulum", num_envs=3) as env:
            obs = env.reset()
            taught = Taught(RandomPolicy(env.spec.action, stream(0, "a")), stream(0, "b"))
            followed = FollowedRun(student, taught, env.spec)
            assert f"there is no run at {student} yet; until it has a checkpoint" in caplog.text
            assert (followed(), taught.student, followed.steps) == (False, None, -1)
            shutil.copytree(place / "run", student, symlinks=True)
            assert followed()
            before = taught.student(obs)
            assert main(["resume", str(student), "more=20", "--quiet"]) == 0
            assert (followed(), followed.steps) == (True, 80)
            assert not torch.equal(taught.student(obs), before)
            assert_close(taught.student(obs), gaitway.load(str(student), checkpoint="last").act(obs))

    def test_steps_must_be_some(self, capsys):
        with pytest.raises(SystemExit):
            main(["collect", "toy/pendulum", "--steps", "0", "--out", "data"])
        assert "'0' is not a whole number" in capsys.readouterr().err


class TestOfflineRuns:
    def test_train_and_resume_exactly(self, place, tmp_path, capsys, monkeypatch):
        monkeypatch.chdir(place)
        whole, parts = tmp_path / "whole", tmp_path / "parts"
        assert main(["train", *OFFLINE, "data.path=swings", f"run_dir={whole}"]) == 0
        shown = capsys.readouterr().out
        assert "the dataset swings: 100 steps in " in shown
        assert "replay:" not in shown
        config = yaml.safe_load((whole / "config.yaml").read_text())
        assert config["data"]["path"] == str((place / "swings").resolve())
        assert config["data"]["sha256"] == Dataset.open("swings").sha256
        assert main(["train", *OFFLINE, "data.path=swings", f"run_dir={parts}", "total_steps=15", "--quiet"]) == 0
        monkeypatch.chdir(tmp_path)  # from anywhere
        assert main(["resume", str(parts), "until=30", "--quiet"]) == 0
        assert info(parts, capsys)["parameters_sha256"] == info(whole, capsys)["parameters_sha256"]
        assert info(whole, capsys)["algorithm"] == "td3_bc"
        assert main(["eval", str(whole), "--json"]) == 0
        assert main(["resume", str(whole), "more=10", "--fresh-replay"]) == 1
        assert "--fresh-replay is for off-policy runs" in sentence(capsys)

    def test_behaviour_cloning(self, place, tmp_path, capsys):
        small = ["algorithm=bc", "env.id=toy/cartpole", "env.num_envs=1", "algorithm.batch_size=8", "total_steps=20",
                 "algorithm.iteration_steps=10", "evaluation.episodes=1", f"data.path={place / 'poles'}"]  # fmt: skip
        assert main(["train", *small, f"run_dir={tmp_path / 'run'}", "--quiet"]) == 0
        lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
        assert {"train/accuracy", "loss/actor", "train/updates"} <= set().union(*lines)

    def test_a_dataset_that_has_grown_is_gone_or_changed(self, copy, tmp_path, capsys):
        run, whole = tmp_path / "run", tmp_path / "whole"
        for folder, steps in ((run, 10), (whole, 20)):
            assert (
                main(["train", *OFFLINE, f"data.path={copy}", f"run_dir={folder}", f"total_steps={steps}", "--quiet"])
                == 0
            )
        assert main(["collect", "toy/pendulum", "--steps=10", f"--out={copy}", "--append", "--quiet"]) == 0
        assert main(["resume", str(run), "until=20", "--quiet"]) == 0  # with what it began with, bit for bit
        assert info(run, capsys)["parameters_sha256"] == info(whole, capsys)["parameters_sha256"]
        shutil.rmtree(copy)
        assert main(["collect", "toy/pendulum", "--steps=10", f"--out={copy}", "--seed=7", "--quiet"]) == 0
        capsys.readouterr()
        assert main(["resume", str(run), "more=10", "--quiet"]) == 1
        assert "has changed: its fingerprint is" in sentence(capsys)
        shutil.rmtree(copy)
        assert main(["resume", str(run), "more=10", "--quiet"]) == 1
        assert f"the dataset {copy} is missing; put it back" in sentence(capsys)

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (OFFLINE, "td3_bc learns from a dataset; name one by data.path=DIR"),
            ([*OFFLINE, "data.path=poles"], "the dataset poles (recorded in toy/cartpole) does not fit toy/pendulum"),
            ([*OFFLINE, "data.path=other"], "the dataset other is missing"),
            ([*OFFLINE, "data.path=swings", "data.share=0.5"], "data.prefill and data.share are for sac, td3 and dqn"),
            ([*PLAYED, "data.path=swings"], "nothing uses it; set data.prefill=true or data.share=0.5"),
            ([*PLAYED, "data.prefill=true"], "name it by data.path=DIR"),
            ([*PLAYED, "data.path=swings", "data.share=2"], "share is 2"),
            ([*PLAYED, "data.path=swings", "data.shared=1"], "did you mean 'data.share'"),
            ([*PLAYED, "data.path=swings", "data.prefill=true", "algorithm.replay_size=50"], "replay_size=100 or more"),
            (["env.id=toy/pendulum", "data.path=swings"], "ppo learns from what it plays alone"),
            (["env.id=toy/pendulum", "pretrain.iterations=2"], "name it by data.path=DIR"),
            ([*PLAYED, "data.path=swings", "pretrain.iterations=2"], "td3 has no stage before it plays"),
        ],
    )
    def test_mistakes_are_found_before_anything_is_written(self, arguments, said, place, tmp_path, capsys, monkeypatch):
        monkeypatch.chdir(place)
        run = tmp_path / "run"
        assert main(["train", *arguments, f"run_dir={run}", "--quiet"]) == 1
        assert said in sentence(capsys)
        assert not run.exists()


def test_two_stages_by_command(place, tmp_path, capsys):
    small = ["env.id=toy/pendulum", "env.num_envs=2", "algorithm.rollout_steps=8", "algorithm.minibatches=2",
             "agent.actor_hidden=[8]", "agent.critic_hidden=[8]", "evaluation.episodes=1", "evaluation.max_steps=5",
             "checkpoints.interval=16", f"data.path={place / 'swings'}", "pretrain.iterations=2"]  # fmt: skip
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main(["train", *small, "total_steps=64", f"run_dir={whole}", "--quiet"]) == 0
    assert main(["train", *small, "total_steps=16", f"run_dir={parts}", "--quiet"]) == 0
    assert main(["resume", str(parts), "until=64", "--quiet"]) == 0
    assert "the dataset's stage ends after 2 iterations, as planned" in (whole / "run.log").read_text()
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert {"loss/imitation", "data/passes", "loss/surrogate"} <= set().union(*lines)
    first, second = (load_state(each / "checkpoints" / "last", kind="checkpoint")[0] for each in (whole, parts))
    assert first["iteration"] == second["iteration"] == 4


@pytest.mark.parametrize("how", [["data.prefill=true"], ["data.share=0.5"]])
def test_off_policy_runs_with_a_dataset_resume_exactly(how, place, tmp_path, capsys):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    data = [f"data.path={place / 'swings'}", *how]
    assert main(["train", *PLAYED, *data, f"run_dir={whole}"]) == 0
    shown = capsys.readouterr().out
    assert "replay: 300 transitions" in shown
    assert "100 steps in" in shown
    assert main(["train", *PLAYED, *data, f"run_dir={parts}", "total_steps=40", "--quiet"]) == 0
    assert main(["resume", str(parts), "until=60", "--quiet"]) == 0
    assert info(parts, capsys)["parameters_sha256"] == info(whole, capsys)["parameters_sha256"]
    plain = json.loads((place / "run" / "metrics.jsonl").read_text().splitlines()[0])["train/replay_size"]
    first = json.loads((whole / "metrics.jsonl").read_text().splitlines()[0])["train/replay_size"]
    assert first - plain == (100 if "data.prefill=true" in how else 0)


@pytest.mark.parametrize("name", ["bc_cartpole", "td3_bc_pendulum", "ppo_pendulum_recorded"])
def test_presets_compose(name, capsys):
    assert main(["train", f"experiment={name}", "--show-config"]) == 0
    assert "path: data/" in capsys.readouterr().out


def test_options_of_an_environment_are_those_of_a_run(place, tmp_path, capsys):
    short = "env.options.max_episode_steps=20"
    assert main(["collect", "toy/pendulum", short, "--steps", "100", "--out", str(tmp_path / "data"), "--quiet"]) == 0
    assert "5 whole episodes" in capsys.readouterr().out
    assert main(["eval", "toy/pendulum", short, "--policy", str(place / "run"), "--episodes", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["length"] == 10  # evaluations of the run stop there
    assert main(["eval", "toy/pendulum", short.replace("20", "5"), "--policy", str(place / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["length"] == 5
    for command in (["collect", "--steps", "1", "--out", str(tmp_path / "none")], ["eval", "--policy", "random"]):
        assert main([command[0], str(place / "run"), short, *command[1:]]) == 1
        assert "the one key here is device" in sentence(capsys)
