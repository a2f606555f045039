from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from gaitway.core.files import StateFileError
from gaitway.envs.registry import make_env
from gaitway.envs.spec import EnvSpec
from gaitway.runners.run_folder import RunFolder, RunFolderError


def finished_run(path: Path) -> RunFolder:
    folder = RunFolder.create(path)
    folder.config.write_text("seed: 3\n")
    return folder


def test_create_then_open(tmp_path: Path) -> None:
    folder = finished_run(tmp_path / "runs" / "deep" / "first")
    opened = RunFolder.open(folder.path)
    assert opened.run_id == folder.run_id
    assert len(folder.run_id) == 32
    assert opened.read_config() == {"seed": 3}
    assert RunFolder.create(tmp_path / "second").run_id != folder.run_id


def test_the_run_id_survives_a_new_record_and_a_move(tmp_path: Path) -> None:
    folder = finished_run(tmp_path / "a")
    before = folder.run_id
    folder.write_code({"versions": {"python": "3"}})
    assert folder.read_code() == {"run_id": before, "versions": {"python": "3"}}
    folder.path.rename(tmp_path / "b")
    assert RunFolder.open(tmp_path / "b").run_id == before


def test_small_files_come_back(tmp_path: Path) -> None:
    folder = finished_run(tmp_path / "a")
    contract = make_env("toy/pendulum").spec.to_dict()
    folder.write_contract(contract)
    folder.write_summary({"best": {"return": float("nan")}, "steps": 3})
    assert EnvSpec.from_dict(folder.read_contract()).to_dict() == contract
    folder.write_contract({"id": "walker/run"})
    with pytest.raises(RunFolderError, match=r"contract\.json is damaged \(groups is missing"):
        folder.read_contract()
    assert folder.read_summary() == {"best": {"return": None}, "steps": 3}


def test_an_existing_run_is_not_overwritten(tmp_path: Path) -> None:
    finished_run(tmp_path / "a")
    with pytest.raises(RunFolderError, match=r"holds a run already; go on with it by `gaitway resume .*/a` or choose"):
        RunFolder.create(tmp_path / "a")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.png").write_text("")
    with pytest.raises(RunFolderError, match="is not empty and not a run; choose another run_dir"):
        RunFolder.create(tmp_path / "photos")
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(RunFolderError, match="a file is in the way"):
            RunFolder.create(path)


def test_an_empty_folder_or_one_without_a_configuration_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    RunFolder.create(tmp_path / "empty")  # and is killed here, before config.yaml is written
    RunFolder.create(tmp_path / "empty")


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_disk_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(StateFileError, match=r"cannot create the run folder .*(not writable|disk is full); .* folder"):
        RunFolder.create(tmp_path / "a")


def test_what_is_not_a_run_folder(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="there is no folder"):
        RunFolder.open(tmp_path / "none")
    finished_run(tmp_path / "seed_0")
    with pytest.raises(RunFolderError, match=r"is not a run folder .* it holds the runs .*seed_0"):
        RunFolder.open(tmp_path)
    with pytest.raises(RunFolderError, match="has no checkpoint yet"):
        RunFolder.open(tmp_path / "seed_0").need_checkpoint()


@pytest.mark.parametrize("content", ["{", "[1]", "{}", '{"run_id": 3}'])
def test_damaged_records(tmp_path: Path, content: str) -> None:
    folder = finished_run(tmp_path / "a")
    folder.code.write_text(content)
    with pytest.raises(RunFolderError, match="restore"):
        _ = RunFolder.open(folder.path).run_id
    with pytest.raises(RunFolderError, match=r"is .* a complete run folder"):
        folder.read_summary()


def test_one_process_trains_at_a_time(tmp_path: Path) -> None:
    folder = finished_run(tmp_path / "a")
    with folder.writing():
        second = RunFolder.open(tmp_path / "a").writing()
        with pytest.raises(RunFolderError, match="is being trained by another process; wait for it or stop it"), second:
            pass
    with folder.writing():
        pass
