"""What may happen to the folder of a run: two writers, a full disk, permissions, names."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from forked_commands import Commands, until

from gaitway.cli.compose import compose
from gaitway.cli.main import main
from gaitway.cli.train_config import TrainConfig, choices, parse
from gaitway.core import files
from gaitway.core.config import to_config
from gaitway.core.files import StateFileError, load_state, save_state
from gaitway.runners.checkpoint import CheckpointConfig, Checkpoints
from gaitway.runners.logger import Logger
from gaitway.runners.run_folder import LOCK, RunFolder, RunFolderError, RunFolderTakenError
from gaitway.runners.tensorboard_sink import MAX_WAITING_BYTES, PatientFile, TensorBoardSink

TINY = ["env.id=toy/cartpole", "env.num_envs=4", "algorithm.rollout_steps=16", "evaluation.episodes=2", "--quiet"]


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    with Commands() as running:
        yield running


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class TestTwoWriters:
    def test_the_loser_of_a_race_leaves_everything_alone(self, tmp_path):
        with RunFolder.beginning(tmp_path / "run") as first:
            first.config.write_text("mine: 1\n")
            before = contents(tmp_path)
            with pytest.raises(RunFolderTakenError, match=r"holds a run already; .*`gaitway resume"):
                RunFolder.create(tmp_path / "run")
            assert contents(tmp_path) == before
            first.config.unlink()  # as in the moment between the folder and its configuration
            with pytest.raises(RunFolderTakenError, match="is being trained by another process"):
                RunFolder.create(tmp_path / "run")
            assert first.code.is_file()

    def test_while_the_first_file_is_being_written(self, tmp_path):
        with RunFolder.beginning(tmp_path / "run") as first:
            first.code.rename(first.path / ".code.json.partial-0123456789ab")
            with pytest.raises(RunFolderTakenError, match="is being trained by another process"):
                RunFolder.create(tmp_path / "run")
            (first.path / ".code.json.partial-0123456789ab").rename(first.code)

    def test_nothing_is_left_of_a_run_that_did_not_train(self, tmp_path):
        with RunFolder.beginning(tmp_path / "a" / "b" / "run") as folder:
            folder.config.write_text("x: 1\n")
            folder.checkpoints.mkdir()
        assert list(tmp_path.iterdir()) == []

    def test_a_folder_that_was_there_stays(self, tmp_path):
        (tmp_path / "run").mkdir()
        with pytest.raises(ValueError, match="later"), RunFolder.beginning(tmp_path / "run"):
            raise ValueError("later")
        assert list((tmp_path / "run").iterdir()) == []

    @pytest.mark.parametrize("made", ["metrics.jsonl", "checkpoints/0", "failures/12"])
    def test_what_has_trained_stays(self, tmp_path, made):
        with RunFolder.beginning(tmp_path / "run") as folder:
            if made == "metrics.jsonl":
                folder.metrics.write_text("{}\n")
            else:
                (folder.path / made).mkdir(parents=True)
        assert folder.code.is_file()

    @pytest.mark.parametrize("content", ["letter.txt", "sub/letter.txt", ".hidden"])
    def test_a_strangers_folder_is_not_touched(self, tmp_path, content):
        (tmp_path / content).parent.mkdir(exist_ok=True)
        (tmp_path / content).write_text("dear\n")
        before = contents(tmp_path)
        with pytest.raises(RunFolderError, match="is not empty and not a run"):
            RunFolder.create(tmp_path)
        assert contents(tmp_path) == before

    def test_a_run_that_was_killed_before_it_had_a_configuration_is_taken_over(self, tmp_path):
        identity = RunFolder.create(tmp_path / "run").run_id
        (tmp_path / "run" / LOCK).touch()
        assert RunFolder.create(tmp_path / "run").run_id == identity

    def test_a_folder_that_another_process_removes_meanwhile_is_made_again(self, tmp_path, monkeypatch):
        lock, lost = RunFolder._lock, []

        def removed_once(folder):
            held = lock(folder)
            if not lost:
                lost.append((folder.path / LOCK).unlink())
            return held

        monkeypatch.setattr(RunFolder, "_lock", removed_once)
        folder = RunFolder.create(tmp_path / "run")
        assert folder.code.is_file()
        assert (folder.path / LOCK).is_file()

    def test_a_folder_that_cannot_be_is_not_tried_for_ever(self, tmp_path, monkeypatch):
        gone = tmp_path / "gone"
        gone.mkdir()
        monkeypatch.chdir(gone)
        gone.rmdir()
        with pytest.raises(StateFileError, match=r"cannot create the run folder run: .* choose another folder"):
            RunFolder.create("run")

    def test_a_file_in_the_way(self, tmp_path):
        (tmp_path / "file").write_text("")
        for path in ("file", "file/run"):
            with pytest.raises(RunFolderError, match="a file is in the way"):
                RunFolder.create(tmp_path / path)

    def test_two_commands_at_once(self, tmp_path, commands):
        first = commands.start(tmp_path, "train", *TINY, "total_steps=128", "run_dir=run")
        second = commands.start(tmp_path, "train", *TINY, "total_steps=128", "run_dir=run")
        codes = [first.wait(), second.wait()]
        assert sorted(codes) == [0, 1]
        said = (first, second)[codes.index(1)].said
        assert "gaitway: run " in said
        assert "another process" in said or "holds a run already" in said
        assert "Traceback" not in said
        assert Checkpoints(tmp_path / "run" / "checkpoints", RunFolder.open(tmp_path / "run").run_id).load()[1] == 128

    def test_two_commands_that_name_no_folder_get_one_each(self, tmp_path, commands):
        jobs = [commands.start(tmp_path, "train", *TINY, "total_steps=64") for _ in range(2)]
        assert [job.wait() for job in jobs] == [0, 0]
        runs = sorted((tmp_path / "runs").iterdir())
        assert [run.name for run in runs] == ["toy_cartpole_0", "toy_cartpole_0_2"]
        assert [yaml.safe_load((run / "config.yaml").read_text())["run_dir"] for run in runs] == [
            f"runs/{run.name}" for run in runs
        ]

    def test_resume_beside_a_training_touches_nothing(self, tmp_path, capsys):
        assert main(["train", *TINY, "total_steps=64", f"run_dir={tmp_path / 'run'}"]) == 0
        folder = RunFolder.open(tmp_path / "run")
        partial = folder.checkpoints / ".128.partial-0123456789ab"
        with folder.writing():
            partial.mkdir()  # a checkpoint in progress
            assert main(["resume", str(folder.path), "more=64"]) == 1
            assert "is being trained by another process; wait for it or stop it" in capsys.readouterr().err
            assert partial.is_dir()
        assert main(["resume", str(folder.path), "more=64", "--quiet"]) == 0
        assert not partial.exists()

    def test_a_folder_without_the_right_to_write(self, tmp_path, monkeypatch, capsys):
        assert main(["train", *TINY, "total_steps=64", f"run_dir={tmp_path / 'run'}"]) == 0
        opened = open

        def refuse(path, *arguments, **options):
            if str(path).endswith(LOCK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return opened(path, *arguments, **options)

        monkeypatch.setattr("builtins.open", refuse)
        assert main(["resume", str(tmp_path / "run"), "more=64"]) == 1
        assert "it is not writable; change its permissions" in capsys.readouterr().err


class TestFullDisk:
    @pytest.fixture
    def disk(self, tmp_path) -> Iterator[Path]:
        """A file system of 1 MB."""
        place = tmp_path / "disk"
        place.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, check=False
        )
        if mounted.returncode:
            pytest.skip("needs the right to mount a tmpfs")
        yield place
        subprocess.run(["umount", str(place)], check=True)

    @staticmethod
    def fill(disk: Path) -> Path:
        with contextlib.suppress(OSError), open(disk / "filler", "wb", buffering=0) as file:
            while file.write(bytes(1024)):
                pass
        assert shutil.disk_usage(disk).free == 0
        return disk / "filler"

    def start(self, commands: Commands, folder: Path, disk: Path) -> Any:
        arguments = ["total_steps=3200", "checkpoints.interval=128", "evaluation.interval=640"]
        # what is not committed here may be larger than the disk
        logging = ["logging.tensorboard=true", "logging.code=none"]
        job = commands.start(folder, "train", *TINY, *arguments, *logging, f"run_dir={disk / 'run'}")
        assert until(lambda: (disk / "run" / "checkpoints" / "256").exists())
        return job

    def test_one_that_is_freed_again_costs_nothing(self, tmp_path, disk, commands):
        job = self.start(commands, tmp_path, disk)
        filler = self.fill(disk)
        assert until(lambda: "no checkpoint at step" in job.said)
        filler.unlink()
        assert job.wait() == 0, job.said
        assert "Traceback" not in job.said
        run = disk / "run"
        assert os.readlink(run / "checkpoints" / "last") == "3200"
        load_state(run / "checkpoints" / "last", kind="checkpoint")
        steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert sorted(set(steps)) == list(range(64, 3201, 64))
        assert steps == sorted(steps)
        assert json.loads((run / "summary.json").read_text())["steps"] == 3200
        assert scalars(run, "train/return")[-1] == 3200

    def test_one_that_stays_full_leaves_an_earlier_checkpoint_and_says_so(self, tmp_path, disk, commands):
        job = self.start(commands, tmp_path, disk)
        self.fill(disk)
        assert job.wait() == 1
        run = disk / "run"
        last = os.readlink(run / "checkpoints" / "last")
        assert 0 < int(last) < 3200
        load_state(run / "checkpoints" / last, kind="checkpoint")
        assert sorted(path.name for path in (run / "checkpoints").iterdir() if path.name.startswith(".")) == []
        sentence = job.said.splitlines()[-1]
        assert f"gaitway: {run} lacks the checkpoint of step 3200" in sentence
        # a checkpoint that was being written when the disk became full leaves room for a small file
        summary = run / "summary.json"
        is_written = summary.exists() and json.loads(summary.read_text())["steps"] == 3200
        assert ("summary.json" in sentence) == (not is_written)
        assert (
            f"make room, and `gaitway resume {run}` goes on from the last whole checkpoint, of step {last}" in sentence
        )
        assert "Traceback" not in job.said
        assert "stopped at step 3200" in job.said, "training went on"

    def test_a_disk_that_is_full_from_the_start_is_a_sentence(self, disk, capsys):
        self.fill(disk)
        before = sorted(disk.iterdir())
        assert main(["train", *TINY, "total_steps=64", f"run_dir={disk / 'run'}"]) == 1
        assert "the disk is full; free some space" in capsys.readouterr().err
        assert sorted(disk.iterdir()) == before

    def test_the_summary_cannot_end_a_run(self, tmp_path, monkeypatch, capsys):
        write = files.atomic_write_json

        def full(path, data):
            if Path(path).name == "summary.json":
                raise StateFileError(f"cannot write {path}: the disk is full")
            write(path, data)

        monkeypatch.setattr("gaitway.runners.run_folder.atomic_write_json", full)
        assert main(["train", *TINY, "total_steps=128", f"run_dir={tmp_path / 'run'}"]) == 1
        said = capsys.readouterr().err
        assert "lacks summary.json: not written; its last checkpoint, of step 128, is whole" in said
        assert os.readlink(tmp_path / "run" / "checkpoints" / "last") == "128"

    def test_a_picture_is_whole_or_not_there(self, tmp_path, monkeypatch, capsys, drawn):
        from matplotlib.figure import Figure

        def half(figure, path, **options):
            Path(path).write_bytes(b"half of a picture")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(Figure, "savefig", half)
        with drawn():
            assert main(["train", *TINY, "total_steps=128", f"run_dir={tmp_path / 'run'}"]) == 1
        assert "lacks plots/: not written" in capsys.readouterr().err
        assert list((tmp_path / "run" / "plots").iterdir()) == []

    def test_the_best_of_those_that_are_saved_is_the_best(self, tmp_path, monkeypatch):
        checkpoints = Checkpoints(tmp_path, "r", CheckpointConfig(keep=1))
        assert checkpoints.save(10, {"x": 1}, best_steps=10)
        assert checkpoints.save(30, {"x": 3}, best_steps=20)  # that of step 20 could not be written
        assert checkpoints.steps() == [10, 30], "the link to the best still leads somewhere"
        assert checkpoints.steps_of("best") == 10

    def test_metrics_wait_for_room_and_for_as_long_as_it_takes(self, tmp_path, monkeypatch):
        logger = Logger(tmp_path)

        def full(*_: Any) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patched:
            patched.setattr(os, "write", full)
            patched.setattr("gaitway.runners.logger.MAX_WAITING", 3)
            for step in range(5):
                logger.log(step, {"a": step})
        assert logger.missing() == ["5 lines of metrics.jsonl"]
        logger.position()  # a checkpoint writes what waits
        assert logger.missing() == ["2 lines of metrics.jsonl"]
        logger.close()
        lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == [0, 1, 2]

    def test_a_patient_file(self, tmp_path, monkeypatch, caplog):
        file, write, room = PatientFile(tmp_path / "a" / "events"), os.write, [5]

        def narrow(descriptor, data):
            if room[0] == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            count = write(descriptor, bytes(data[: room[0]]))
            room[0] -= count
            return count

        monkeypatch.setattr(os, "write", narrow)
        file.write(b"0123")
        file.write(b"4567")
        file.write(b"89")
        assert (tmp_path / "a" / "events").read_bytes() == b"01234"
        assert caplog.text.count("the disk is full") == 1
        room[0] = 100
        file.flush()
        file.close()
        assert (tmp_path / "a" / "events").read_bytes() == b"0123456789"
        assert file.is_whole
        room[0] = 0
        file.write(bytes(MAX_WAITING_BYTES + 1))
        assert not file.is_whole

    def test_tensorboard_reads_what_is_written(self, tmp_path):
        sink = TensorBoardSink(tmp_path, 7)
        for step in (8, 9):
            sink.write(step, {"train/return": float(step)})
        sink.show("text", "note", "hello", 9, 0.0)
        sink.close()
        assert sink.is_whole()
        assert scalars(tmp_path, "train/return") == [8, 9]


def scalars(run: Path, name: str) -> list[int]:
    """Steps of a metric, as TensorBoard reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return [event.step for event in events.Scalars(name)]


class TestPermissions:
    @pytest.mark.parametrize("mask", [0o022, 0o077, 0o002, 0o027])
    def test_the_files_of_a_state_have_the_folders(self, tmp_path, mask):
        before = os.umask(mask)
        try:
            save_state(tmp_path / "state", {"x": 1}, kind="k")
        finally:
            os.umask(before)
        folder = stat.S_IMODE((tmp_path / "state").stat().st_mode)
        assert folder == 0o777 & ~mask
        for name in (files.TENSOR_FILE, files.STRUCTURE_FILE):
            assert stat.S_IMODE((tmp_path / "state" / name).stat().st_mode) == folder & 0o666


NAMES = [
    "ä", "日本", "a=b", "a(b", "a)b", "#x", "a b", " lead", "trail ", "a,b", "a'b", 'a"b', "a\\b", "a\\", "[a]", "{a}",
    "a:b", "1", "1e3", "true", "~x", "-x", "a\tb", "%d", "*", "a;b", "&", "a|b", "<x>", "!a", "@a", "`a`", "a\nb",
    ".x", "x" * 200, "\udcff", "a?b", 'a\\"b', "'a", 'a"', "NaN", "none", "a: b", "🤖", "$HOME", "null ",
]  # fmt: skip


class TestNames:
    @pytest.mark.parametrize("name", NAMES)
    def test_any_name_is_taken_as_it_stands(self, name):
        found = compose([f"run_dir=runs/{name}"], to_config(TrainConfig()), parse, **choices()).config
        assert found["run_dir"] == f"runs/{name}"

    @pytest.mark.parametrize(
        ("argument", "run_dir"),
        [
            ("run_dir=null", None),
            ("run_dir='a b'", "a b"),
            ('run_dir="a, b"', "a, b"),
            ("run_dir=runs/${seed}", "runs/0"),
            ("++run_dir=a=b", "a=b"),
        ],
    )
    def test_what_hydra_makes_of_a_path_stays(self, argument, run_dir):
        assert compose([argument], to_config(TrainConfig()), parse, **choices()).config["run_dir"] == run_dir

    @pytest.mark.parametrize("name", NAMES)
    def test_any_folder_is_made_and_found(self, tmp_path, name):
        folder = RunFolder.create(tmp_path / name)
        folder.config.write_text("x: 1\n")
        assert RunFolder.open(tmp_path / name).run_id == folder.run_id

    def test_the_home_folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.chdir(tmp_path)
        assert main(["train", *TINY, "total_steps=64", "run_dir=~/runs/x"]) == 0
        assert (tmp_path / "runs" / "x" / "summary.json").is_file()
        assert main(["info", "~/runs/x"]) == 0
        assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]

    def test_every_command_takes_a_strange_name(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        name = "ä b(1)=#日本[x]$y$"
        assert main(["train", *TINY, "total_steps=128", f"run_dir={name}", "logging.tensorboard=true"]) == 0
        assert "gaitway resume 'ä b(1)=#日本[x]$y$" in capsys.readouterr().out, "as a shell takes it"
        assert main(["resume", name, "more=64", "--quiet"]) == 0
        assert "WARNING" not in capsys.readouterr().err
        for command in ("eval", "info", "plot"):
            assert main([command, name]) == 0, capsys.readouterr().err
        assert capsys.readouterr().err == ""
        assert (tmp_path / name / "plots" / "learning_curve.png").stat().st_size > 0

    @pytest.mark.parametrize("name", ["a:b", "%d", "-x", "日本", "file:x", "a'b"])
    def test_films_too(self, tmp_path, monkeypatch, name):
        import numpy as np

        from gaitway.runners.video import VideoWriter

        monkeypatch.chdir(tmp_path)
        with VideoWriter(f"{name}/film.mp4", 30.0, (32, 32)) as film:
            film.add(np.zeros((32, 32, 3), np.uint8))
        assert (tmp_path / name / "film.mp4").is_file()


def test_a_signal_while_nothing_is_trained_leaves_no_folder(tmp_path, commands):
    before = signal.getsignal(signal.SIGTERM)
    job = commands.start(tmp_path, "train", *TINY, "total_steps=100000", "run_dir=a/run", before="""
import signal
from gaitway.runners.runner import Runner
learn = Runner.learn
Runner.learn = lambda self, *_, **__: os.kill(os.getpid(), signal.SIGTERM)
""")  # fmt: skip
    assert job.wait() == 75
    assert "gaitway: stopped by SIGTERM" in job.said
    assert not (tmp_path / "a").exists()
    assert signal.getsignal(signal.SIGTERM) == before
