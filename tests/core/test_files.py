from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import pickle
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gaitway.core import files
from gaitway.core.files import (
    StateFileError,
    atomic_write_json,
    atomic_write_text,
    load_meta,
    load_state,
    remove_leftovers,
    save_state,
    swap_link,
)

STATE = {"weights": torch.arange(6.0).reshape(2, 3), "steps": 12}


class Hostile:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return (open, (self.path, "w"))


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """A real disk that refuses more than `size` bytes per file, also for the superuser."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def rewrite(folder: Path, **changes: Any) -> None:
    """Change state.json and make its checksum right again, as an attacker would."""
    document = json.loads((folder / "state.json").read_text())
    document.pop("checksum")
    document.update(changes)
    document["checksum"] = files._checksum(document)
    (folder / "state.json").write_text(json.dumps(document))


def assert_same(left: Any, right: Any) -> None:
    assert type(left) is type(right)
    if isinstance(left, torch.Tensor):
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        assert torch.equal(left.flatten().view(torch.uint8), right.flatten().view(torch.uint8))
    elif isinstance(left, dict):
        assert list(left) == list(right)
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, list):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_same(one, other)
    elif isinstance(left, float) and math.isnan(left):
        assert math.isnan(right)
    else:
        assert left == right


def test_everything_comes_back_exactly(tmp_path: Path) -> None:
    dtypes = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint64]
    dtypes += [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]
    state = {
        "tensors": {str(dtype): torch.tensor([0, 1, 1], dtype=dtype) for dtype in dtypes},
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "empty": torch.zeros(0, 4, dtype=torch.int32),
        "not a number": torch.tensor([math.nan, math.inf, -0.0]),
        "floats": [0.1, 1e-320, -0.0, math.nan, math.inf, -math.inf, 1.7976931348623157e308],
        "integers": [0, -1, 2**63, 2**64 + 1, -(2**200)],
        "flags": [True, False, None],
        "text": 'umlaut ü, quote ", newline \n, lone \ud800',
        "nested": [[], {}, [{"a": [torch.ones(1)]}]],
        "optimiser": {0: {"step": torch.tensor(3.0)}, 1: {"step": torch.tensor(4.0)}, "1": "not one"},
        "$tensor": "a key that looks like ours",
        "a/b": torch.zeros(1),
        "a": {"b": torch.ones(1)},
        "stream": torch.Generator().manual_seed(1).get_state(),
    }
    save_state(tmp_path / "x", state, kind="test", meta={"run_id": "abc", "steps": 7})
    loaded, meta = load_state(tmp_path / "x", kind="test")
    assert_same(loaded, state)
    assert meta == {"run_id": "abc", "steps": 7}
    assert math.copysign(1, loaded["floats"][2]) == -1
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == ["state.json", "state.safetensors"]


def test_numpy_scalars_tuples_and_parameters_become_plain(tmp_path: Path) -> None:
    state = {
        "number": np.float32(0.1),
        "count": np.int64(3),
        "flag": np.bool_(True),
        "betas": (0.9, 0.999),
        "p": torch.nn.Parameter(torch.ones(2)),
    }
    save_state(tmp_path / "x", state, kind="test")
    loaded, _ = load_state(tmp_path / "x", kind="test")
    assert_same({k: loaded[k] for k in ("number", "count", "flag", "betas")},
                {"number": 0.10000000149011612, "count": 3, "flag": True, "betas": [0.9, 0.999]})  # fmt: skip
    assert not loaded["p"].requires_grad


def test_views_and_shared_memory(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    state = {"base": base, "again": base, "column": base[:, 1], "part": base[1:], "turned": base.T}
    state["wide"] = torch.ones(1).expand(5)
    save_state(tmp_path / "x", state, kind="test")
    loaded, _ = load_state(tmp_path / "x", kind="test")
    for name, value in state.items():
        assert torch.equal(loaded[name], value), name
    loaded["base"].zero_()
    assert torch.equal(loaded["again"], base)


def test_loaded_tensors_do_not_depend_on_the_file(tmp_path: Path) -> None:
    save_state(tmp_path / "x", STATE, kind="test")
    loaded, _ = load_state(tmp_path / "x", kind="test")
    with open(tmp_path / "x" / "state.safetensors", "r+b") as file:
        file.write(bytes(file.seek(0, os.SEEK_END)))
        file.seek(0)
        file.write(b"\xff" * 200)
    assert torch.equal(loaded["weights"], STATE["weights"])


def test_what_cannot_be_stored_is_named(tmp_path: Path) -> None:
    for value, words in [
        (np.zeros(3), "state/rng/key is a numpy.ndarray"),
        ({1, 2}, "is a builtins.set"),
        (lambda: 0, "function"),
        (torch.zeros(2, 2).to_sparse(), "cannot be stored"),
        ({None: 1}, "has the key None"),
        ({True: 1}, "has the key True"),
    ]:
        with pytest.raises(TypeError, match=words):
            save_state(tmp_path / "x", {"rng": {"key": value}}, kind="test")
    assert not list(tmp_path.iterdir())


def test_a_pickle_in_place_of_the_tensors_is_never_executed(tmp_path: Path) -> None:
    created = tmp_path / "created by the pickle"
    save_state(tmp_path / "x", STATE, kind="test")
    target = tmp_path / "x" / "state.safetensors"
    torch.save({"weights": Hostile(created)}, tmp_path / "torch.pt")
    for content in (pickle.dumps(Hostile(created)), (tmp_path / "torch.pt").read_bytes()):
        target.write_bytes(content)
        with pytest.raises(StateFileError, match="damaged"):
            load_state(tmp_path / "x", kind="test")
        # also when the checksums were made to fit
        rewrite(tmp_path / "x", tensors={"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()})
        with pytest.raises(StateFileError, match="is not safetensors"):
            load_state(tmp_path / "x", kind="test")
    (tmp_path / "x" / "state.json").write_bytes(pickle.dumps(Hostile(created)))
    with pytest.raises(StateFileError, match="is not JSON"):
        load_state(tmp_path / "x", kind="test")
    assert not created.exists()
    pickle.loads(pickle.dumps(Hostile(created))).close()  # the pickle would have worked
    assert created.exists()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            lambda x: (x / "state.safetensors").write_bytes((x / "state.safetensors").read_bytes()[:-1]),
            "bytes instead of",
        ),
        (lambda x: (x / "state.safetensors").write_bytes(b""), "0 bytes instead of"),
        (lambda x: flip(x / "state.safetensors", -1), "state.safetensors was changed"),
        (lambda x: (x / "state.safetensors").unlink(), "state.safetensors is missing"),
        (lambda x: ((x / "state.safetensors").unlink(), os.mkfifo(x / "state.safetensors")), "is missing"),
        (lambda x: ((x / "state.safetensors").unlink(), (x / "state.safetensors").mkdir()), "is missing"),
        (lambda x: (x / "state.json").unlink(), "state.json is missing"),
        (lambda x: (x / "state.json").write_text((x / "state.json").read_text()[:-20]), "is not JSON"),
        (lambda x: (x / "state.json").write_bytes(b"\xff\xfe"), "is not JSON"),
        (lambda x: (x / "state.json").write_text("[" * 100_000), "is not JSON"),
        (lambda x: (x / "state.json").write_text("[]"), "not a gaitway state"),
        (lambda x: (x / "state.json").write_text("{}"), "not a gaitway state"),
        (lambda x: edit(x / "state.json", '"steps": 12', '"steps": 13'), "state.json was changed"),
        (lambda x: edit(x / "state.json", '"steps": 12', '"steps": NaN'), "is not JSON"),
        (lambda x: rewrite(x, format_version=2), r"format version 2 and this gaitway \(.*\) reads up to 1; upgrade"),
        (lambda x: rewrite(x, format_version="1"), "no format version"),
        (lambda x: rewrite(x, kind="motion"), "holds a 'motion' where a 'test' is needed"),
        (lambda x: rewrite(x, state={"weights": {"$tensor": "other"}}), "damaged"),
        (lambda x: rewrite(x, state={"steps": 12}), "do not belong together"),
        (lambda x: rewrite(x, state=[1]), "damaged"),
        (lambda x: rewrite(x, tensors=None), "damaged"),
    ],
)
def test_damage_is_one_sentence(tmp_path: Path, damage: Any, words: str) -> None:
    save_state(tmp_path / "x", STATE, kind="test")
    load_state(tmp_path / "x", kind="test")
    damage(tmp_path / "x")
    with pytest.raises(StateFileError, match=words) as caught:
        load_state(tmp_path / "x", kind="test")
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "x") in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "fix"),
    [("checkpoint", "use another checkpoint"), ("replay chunk", "use another checkpoint"), ("test", "make it again")],
)
def test_what_is_damaged_is_copied_or_made_again_as_its_kind_can_be(tmp_path: Path, kind: str, fix: str) -> None:
    save_state(tmp_path / "x", STATE, kind=kind)
    (tmp_path / "x" / "state.safetensors").write_bytes(b"")
    with pytest.raises(StateFileError, match=f"x is damaged .*; copy it again or {fix}$"):
        load_state(tmp_path / "x", kind=kind)
    (tmp_path / "x" / "state.safetensors").unlink()
    with pytest.raises(StateFileError, match=f"x is incomplete .*; copy it again or {fix}$"):
        load_state(tmp_path / "x", kind=kind)
    (tmp_path / "x" / "state.json").write_text("{")
    with pytest.raises(StateFileError, match=f"x is damaged .*; copy it again or {fix}$"):
        load_meta(tmp_path / "x", kind=kind)


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_no_folder_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StateFileError, match="holds no state"):
        load_state(tmp_path / "none", kind="test")


def test_an_existing_state_is_replaced_and_other_folders_are_not(tmp_path: Path) -> None:
    save_state(tmp_path / "x", STATE, kind="test")
    save_state(tmp_path / "x", {"steps": 13}, kind="test")
    assert load_state(tmp_path / "x", kind="test")[0] == {"steps": 13}
    (tmp_path / "diary").mkdir()
    (tmp_path / "diary" / "page.txt").write_text("dear")
    with pytest.raises(StateFileError, match="not a state folder"):
        save_state(tmp_path / "diary", STATE, kind="test")
    with pytest.raises(StateFileError, match="not a state folder"):
        save_state(tmp_path / "diary" / "page.txt", STATE, kind="test")
    assert (tmp_path / "diary" / "page.txt").read_text() == "dear"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["diary", "x"]


@pytest.mark.parametrize("call", range(1, 5))
def test_a_full_disk_leaves_the_old_state_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """The n-th sync fails: tensors, structure, the new folder; the fourth is after the new state is in place."""
    save_state(tmp_path / "x", STATE, kind="test")
    calls = []

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StateFileError, match="the disk is full; free some space") as caught:
        save_state(tmp_path / "x", {"steps": 13}, kind="test")
    assert "\n" not in str(caught.value)
    monkeypatch.undo()
    assert load_state(tmp_path / "x", kind="test")[0]["steps"] == (12 if call < 4 else 13)
    assert not list(tmp_path.glob(".x.partial-*"))
    save_state(tmp_path / "x", {"steps": 14}, kind="test")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_write_that_the_system_cuts_short(tmp_path: Path) -> None:
    save_state(tmp_path / "x", STATE, kind="test")
    with file_size_limit(4096):
        with pytest.raises(StateFileError, match="cannot write"):
            save_state(tmp_path / "x", {"big": torch.zeros(10_000)}, kind="test")
        with pytest.raises(StateFileError, match="cannot write"):
            save_state(tmp_path / "x", {"big": list(range(10_000))}, kind="test")
    assert_same(load_state(tmp_path / "x", kind="test")[0], STATE)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_folder_that_is_not_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(StateFileError, match="it is not writable; change its permissions or choose another folder"):
        save_state(tmp_path / "x", STATE, kind="test")
    (tmp_path / "file").write_text("")
    monkeypatch.undo()
    with pytest.raises(StateFileError, match="cannot write"):
        save_state(tmp_path / "file" / "x", STATE, kind="test")


@pytest.mark.parametrize("moment", ["while writing", "between the renames", "after the renames"])
def test_a_killed_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """Killed means that no handler runs, so the clean-up is switched off."""
    save_state(tmp_path / "x", STATE, kind="test")
    rename, rmtree, renames = os.rename, files.shutil.rmtree, []

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    def die_at_second(source: Path, target: Path) -> None:
        renames.append(target)
        if len(renames) >= 2:
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(files.shutil, "rmtree", lambda *_, **__: None)
    if moment == "while writing":
        monkeypatch.setattr(files, "sync_folder", die)
    if moment == "between the renames":
        monkeypatch.setattr(os, "rename", die_at_second)
    if moment == "after the renames":
        save_state(tmp_path / "x", {"steps": 13}, kind="test")
    else:
        with pytest.raises(KeyboardInterrupt):
            save_state(tmp_path / "x", {"steps": 13}, kind="test")
    monkeypatch.undo()
    assert len(list(tmp_path.iterdir())) > 1 or moment == "between the renames"
    expected = 13 if moment == "after the renames" else 12
    assert load_state(tmp_path / "x", kind="test")[0]["steps"] == expected
    assert files.shutil.rmtree is rmtree
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert load_state(tmp_path / "x", kind="test")[0]["steps"] == expected


def test_leftovers_are_cleaned_by_the_next_save_and_nothing_else_is(tmp_path: Path) -> None:
    (tmp_path / ".x.partial-0123456789ab").mkdir()
    (tmp_path / ".x.partial-notes").mkdir()
    (tmp_path / ".y.partial-0123456789ab").write_text("a cut text")
    save_state(tmp_path / "x", STATE, kind="test")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".x.partial-notes", ".y.partial-0123456789ab", "x"]
    remove_leftovers(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".x.partial-notes", "x"]
    remove_leftovers(tmp_path / "none")


def test_a_state_that_lost_its_name_is_found(tmp_path: Path) -> None:
    save_state(tmp_path / "12", STATE, kind="test")
    swap_link(tmp_path / "last", "12")
    (tmp_path / "12").rename(tmp_path / ".12.previous")
    assert load_state(tmp_path / "last", kind="test")[0]["steps"] == 12
    remove_leftovers(tmp_path)
    assert (tmp_path / "12" / "state.json").is_file()
    (tmp_path / "12").rename(tmp_path / ".12.previous")
    save_state(tmp_path / "12", {"steps": 13}, kind="test")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["12", "last"]


def test_text_and_json_are_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.json"
    atomic_write_json(path, {"a": math.nan, "b": [math.inf, 1.5], "c": (1, {"d": -math.inf})})
    assert json.loads(path.read_text()) == {"a": None, "b": [None, 1.5], "c": [1, {"d": None}]}
    with file_size_limit(100), pytest.raises(StateFileError, match="cannot write"):
        atomic_write_text(path, "x" * 1000)
    assert json.loads(path.read_text())["b"] == [None, 1.5]
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    with pytest.raises(StateFileError, match="disk is full"):
        atomic_write_text(path, "x")
    assert [found.name for found in tmp_path.iterdir()] == ["summary.json"]


def test_links_are_relative_and_swapped(tmp_path: Path) -> None:
    for name in ("100", "200"):
        save_state(tmp_path / "run" / name, {"steps": int(name)}, kind="test")
    swap_link(tmp_path / "run" / "last", "100")
    swap_link(tmp_path / "run" / "last", tmp_path / "run" / "200")
    assert os.readlink(tmp_path / "run" / "last") == "200"
    (tmp_path / "run").rename(tmp_path / "moved")
    assert load_state(tmp_path / "moved" / "last", kind="test")[0] == {"steps": 200}
    with pytest.raises(StateFileError, match="is not a link"):
        swap_link(tmp_path / "moved" / "100", "200")


def test_saving_through_a_link_keeps_the_link(tmp_path: Path) -> None:
    save_state(tmp_path / "12", STATE, kind="test")
    swap_link(tmp_path / "last", "12")
    save_state(tmp_path / "last", {"steps": 13}, kind="test")
    assert (tmp_path / "last").is_symlink()
    assert load_state(tmp_path / "12", kind="test")[0] == {"steps": 13}


def test_a_file_system_that_cannot_sync_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def no_folders(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", no_folders)
    save_state(tmp_path / "x", STATE, kind="test")
    assert_same(load_state(tmp_path / "x", kind="test")[0], STATE)
