"""Checkpoints: links, what is kept, and everything that must be refused."""

import errno
import os
import pickle
import shutil

import pytest
import torch

from gaitway.core import files
from gaitway.core.files import StateFileError
from gaitway.runners.checkpoint import CheckpointConfig, Checkpoints, parameters_sha256


def state(value):
    return {"x": torch.full((3,), float(value)), "n": value}


def target(folder, link):
    return os.readlink(folder / link)


def test_links_are_relative_and_the_two_newest_and_the_best_stay(tmp_path):
    checkpoints = Checkpoints(tmp_path / "checkpoints", "run")
    for steps in (0, 10, 20, 30, 40):
        assert checkpoints.save(steps, state(steps), best_steps=10 if steps >= 10 else None)
    assert checkpoints.steps() == [10, 30, 40]
    assert target(checkpoints.folder, "last") == "40"
    assert target(checkpoints.folder, "best") == "10"
    assert checkpoints.load("last")[0]["n"] == 40
    assert checkpoints.load("best")[1] == 10
    assert torch.equal(checkpoints.load("30")[0]["x"], torch.full((3,), 30.0))


def test_history_can_be_kept(tmp_path):
    every = Checkpoints(tmp_path / "a", "run", CheckpointConfig(every=20))
    everything = Checkpoints(tmp_path / "b", "run", CheckpointConfig(keep_all=True))
    for steps in range(0, 70, 10):
        every.save(steps, state(steps), None)
        everything.save(steps, state(steps), None)
    assert every.steps() == [0, 20, 40, 50, 60]
    assert everything.steps() == list(range(0, 70, 10))


def test_going_back_leaves_no_future_behind(tmp_path):
    checkpoints = Checkpoints(tmp_path / "checkpoints", "run")
    for steps in (100, 900, 1000):
        checkpoints.save(steps, state(steps), best_steps=100)
    assert checkpoints.save(200, state(200), best_steps=100)  # resumed from 100
    assert checkpoints.steps() == [100, 200]
    assert checkpoints.load("last")[1] == 200
    assert checkpoints.steps_of("best") == 100


class Chunks:
    """Attachments that remember what they were told to keep."""

    def tidy(self, keep):
        self.kept = set(keep)


def test_attachments_stay_as_long_as_a_checkpoint_needs_them(tmp_path):
    chunks = Chunks()
    checkpoints = Checkpoints(tmp_path / "checkpoints", "run", CheckpointConfig(keep=1), chunks)
    checkpoints.save(10, state(10), 10, attached=["a"])
    checkpoints.save(20, state(20), 10, attached=["a", "b"])
    assert chunks.kept == {"a", "b"}
    checkpoints.save(30, state(30), 30, attached=["b", "c"])  # 10 is the best no more, 20 not the last
    assert checkpoints.steps() == [30]
    assert chunks.kept == {"b", "c"}
    failure = tmp_path / "failures" / "35" / "checkpoint"
    failure.parent.mkdir(parents=True)
    shutil.copytree(tmp_path / "checkpoints" / "30", failure)
    checkpoints.save(40, state(40), 40, attached=["d"])
    assert chunks.kept == {"b", "c", "d"}
    assert checkpoints.load()[1] == 40


def test_a_checkpoint_that_cannot_be_read_keeps_all_attachments(tmp_path, caplog):
    chunks = Chunks()
    checkpoints = Checkpoints(tmp_path / "checkpoints", "run", attachments=chunks)
    checkpoints.save(10, state(10), None, attached=["a"])
    (tmp_path / "checkpoints" / "10" / files.STRUCTURE_FILE).write_text("{")
    del chunks.kept
    assert checkpoints.save(20, state(20), None, attached=["b"])
    assert not hasattr(chunks, "kept")
    assert "cannot be read" in caplog.text


def test_a_full_disk_leaves_everything_older_untouched(tmp_path, monkeypatch, caplog):
    checkpoints = Checkpoints(tmp_path / "checkpoints", "run", CheckpointConfig(keep=1))
    assert checkpoints.save(1, state(1), None)

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(files.os, "fsync", full)
        assert not checkpoints.save(2, state(2), None)
    assert "no checkpoint at step 2" in caplog.text
    assert checkpoints.steps() == [1]
    assert checkpoints.load("last")[0]["n"] == 1
    assert [p.name for p in checkpoints.folder.iterdir()] in (["1", "last"], ["last", "1"])
    assert checkpoints.save(2, state(2), None)
    assert checkpoints.load("last")[0]["n"] == 2


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    Checkpoints(tmp_path / "checkpoints", "mine").save(5, state(5), None)
    with pytest.raises(StateFileError, match="belongs to another run"):
        Checkpoints(tmp_path / "checkpoints", "yours").load()


def test_no_checkpoint_names_those_there_are(tmp_path):
    checkpoints = Checkpoints(tmp_path / "checkpoints", "run")
    with pytest.raises(StateFileError, match="has no checkpoints; put them back, or train it first"):
        checkpoints.load()
    checkpoints.save(5, state(5), None)
    with pytest.raises(StateFileError, match=r"no checkpoint '7'; it has \['last', '5'\]"):
        checkpoints.load("7")


def test_a_run_copied_by_what_follows_links_is_the_same_run(tmp_path):
    # scp -r, zip and others: `last` and `best` arrive as copies
    original = Checkpoints(tmp_path / "checkpoints", "run")
    for steps in (10, 20):
        original.save(steps, state(steps), best_steps=10)
    shutil.copytree(original.folder, tmp_path / "copy")
    checkpoints = Checkpoints(tmp_path / "copy", "run")
    assert not (checkpoints.folder / "best").is_symlink()
    assert (checkpoints.load("last")[1], checkpoints.load("best")[1]) == (20, 10)
    assert checkpoints.load("best")[0]["n"] == 10
    assert checkpoints.save(30, state(30), best_steps=10)
    assert (target(checkpoints.folder, "last"), target(checkpoints.folder, "best")) == ("30", "10")
    assert checkpoints.steps() == [10, 20, 30]
    assert checkpoints.load("best")[0]["n"] == 10


def test_a_copy_of_the_best_alone_is_enough_to_play_it(tmp_path):
    # what is brought home from another machine: `tar ch RUN/checkpoints/best`
    original = Checkpoints(tmp_path / "checkpoints", "run")
    for steps in (10, 20):
        original.save(steps, state(steps), best_steps=10, facts={"score": steps})
    shutil.copytree(original.folder / "best", tmp_path / "copy" / "best")
    checkpoints = Checkpoints(tmp_path / "copy", "run")
    loaded, steps = checkpoints.load("best")
    assert (loaded["n"], steps, checkpoints.facts("best")) == (10, 10, {"score": 10})
    with pytest.raises(StateFileError, match=r"no checkpoint 'last'; it has \['best'\]"):
        checkpoints.load("last")
    with pytest.raises(StateFileError, match="belongs to another run"):
        Checkpoints(tmp_path / "copy", "other").load("best")


@pytest.mark.parametrize("steps", ["../10", "no"])
def test_a_copy_that_names_no_checkpoint_here_is_refused(tmp_path, steps):
    checkpoints = Checkpoints(tmp_path / "checkpoints", "run")
    checkpoints.save(10, state(10), best_steps=10)
    os.unlink(checkpoints.folder / "last")
    files.save_state(checkpoints.folder / "last", state(1), kind="checkpoint", meta={"run_id": "run", "steps": steps})
    with pytest.raises(StateFileError, match="no checkpoint 'last'"):
        checkpoints.load()


def test_a_hostile_pickle_is_refused_and_not_run(tmp_path):
    trap = tmp_path / "trap"

    class Hostile:
        def __reduce__(self):
            return (os.mkdir, (str(trap),))

    checkpoints = Checkpoints(tmp_path / "checkpoints", "run")
    checkpoints.save(5, state(5), None)
    for name in os.listdir(checkpoints.folder / "5"):
        path = checkpoints.folder / "5" / name
        good = path.read_bytes()
        path.write_bytes(pickle.dumps(Hostile()))
        with pytest.raises(StateFileError):
            checkpoints.load()
        path.write_bytes(good)
    stranger = checkpoints.folder / "5" / "weights.pkl"
    stranger.write_bytes(pickle.dumps(Hostile()))
    with pytest.raises(StateFileError, match=r"holds 'weights.pkl', which is not part of a state"):
        checkpoints.load()
    stranger.unlink()
    assert not trap.exists()
    assert checkpoints.load()[1] == 5


def test_impossible_numbers_are_refused():
    with pytest.raises(ValueError, match="interval"):
        CheckpointConfig(interval=0)


def test_fingerprint_sees_names_shapes_and_bits():
    base = {"a": torch.zeros(2, 3), "b": torch.ones(2)}
    assert parameters_sha256(base) == parameters_sha256(dict(reversed(base.items())))
    changed = {"a": torch.zeros(2, 3), "b": torch.tensor([1.0, 1.0 + 1e-7])}
    renamed = {"a": torch.zeros(2, 3), "c": torch.ones(2)}
    reshaped = {"a": torch.zeros(3, 2), "b": torch.ones(2)}
    assert len({parameters_sha256(x) for x in (base, changed, renamed, reshaped)}) == 4
