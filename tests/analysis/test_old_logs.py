"""BBRL's log files: written here by plain pickle as its TFLogger lays them out, read by a machine that runs nothing."""

from __future__ import annotations

import bz2
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gaitway.analysis import old_logs
from gaitway.analysis.old_logs import OldLogError, find_old_logs, read_old_log, read_old_logs
from gaitway.analysis.runs import group_runs

RECORDS = [
    [("reward", 0, 1.5), ("loss", 0, 2), ("reward", 10, 2.5)],
    [("reward", 20, 3.5), ("note", 20, "a text"), ("reward", 20, 9.0)],
]


def write_log(folder: Path, parts: Any = RECORDS, params: Any = None, packed: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for part in parts:
        content = part if isinstance(part, bytes) else pickle.dumps(part)
        if packed:  # every flush of the logger opened the file again and began a new stream
            with bz2.BZ2File(folder / "db.pickle.bzip2", "ab") as file:
                file.write(content)
        else:
            with (folder / "db.pickle").open("ab") as file:
                file.write(content)
    if params is not None:
        (folder / "params.pickle").write_bytes(pickle.dumps(params))
        (folder / "params.json").write_text(str(params) + "\n")
    return folder


class Hostile:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (str(self.path), "w")


@pytest.mark.parametrize("packed", [True, False])
def test_a_log_becomes_a_run(tmp_path: Path, packed: bool) -> None:
    run = read_old_log(write_log(tmp_path / "log", params={"lr": 0.1, "net": {"hidden": [64, 64]}}, packed=packed))
    assert run.series("reward").to_dict() == {0: 1.5, 10: 2.5, 20: 3.5}  # of two values at 20 the first
    assert run.series("loss").to_dict() == {0: 2.0}
    assert run.metrics.index.name == "step"
    assert list(run.metrics) == ["reward", "loss"]  # texts are not metrics
    assert run.config == {"lr": 0.1, "net": {"hidden": [64, 64]}}
    assert run.name == "log"


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol_of_the_time_is_read(tmp_path: Path, protocol: int) -> None:
    values = [1, 2**70, -0.1, True, None, {"a": [1, (2, {3})]}]
    log = write_log(tmp_path / "log", [pickle.dumps([("x", i, value) for i, value in enumerate(values)], protocol)])
    assert read_old_log(log, strict=False).series("x").to_dict() == {0: 1.0, 1: 2.0**70, 2: -0.1, 3: 1.0}


@pytest.mark.parametrize(
    "value",
    [np.float64(0.1), np.float32(0.1), np.float16(0.1), np.int64(-5), np.uint8(200), np.bool_(True), np.int32(7)],
)
def test_numpy_numbers_come_back_exactly(tmp_path: Path, value: Any) -> None:
    big_endian = np.array([value]).astype(value.dtype.newbyteorder(">"))[0]
    log = write_log(tmp_path / "log", [[("x", 0, value), ("x", np.int64(1), big_endian)]])
    assert read_old_log(log).series("x").to_dict() == {0: float(value), 1: float(value)}


@pytest.mark.parametrize(
    "value", [np.complex64(1j), np.array([1.0, 2.0]), np.str_("x"), torch.tensor(1.0), Path("x"), object, len]
)
def test_anything_else_is_refused_in_one_sentence_or_left_out(
    tmp_path: Path, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    log = write_log(tmp_path / "log", [[("x", 0, value), ("y", 0, 1.0)]])
    with pytest.raises(OldLogError) as caught:
        read_old_log(log)
    assert str(caught.value).count("\n") == 0
    assert "read" in str(caught.value)
    run = read_old_log(log, strict=False)
    assert list(run.metrics) == ["y"]
    assert "1 values that are neither numbers nor texts are left out" in caplog.text


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("packed", [True, False])
def test_a_hostile_log_is_never_executed(tmp_path: Path, strict: bool, packed: bool) -> None:
    created = tmp_path / "created"
    log = write_log(tmp_path / "log", [[("x", 0, Hostile(created)), ("x", 1, 1.0)]], packed=packed)
    (log / "params.pickle").write_bytes(pickle.dumps(Hostile(created)))
    if strict:
        with pytest.raises(OldLogError, match=r"holds a _?io.open, and only numbers, texts and plain containers"):
            read_old_log(log, strict=True)
    else:
        assert read_old_log(log, strict=False).series("x").to_dict() == {1: 1.0}
    assert not created.exists()
    pickle.loads((log / "params.pickle").read_bytes()).close()  # the same program in Python's own machine
    assert created.exists()


@pytest.mark.parametrize(
    "program",
    [
        b"cos\nsystem\n(S'echo'\ntR.",  # a call by name
        b"(S'echo'\nios\nsystem\n.",  # INST
        b"(cos\nsystem\nS'echo'\no.",  # OBJ
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04echo\x85R.",  # STACK_GLOBAL
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cbuiltins\ngetattr\n(cbuiltins\nset\nS'__class__'\ntR.",
        b"\x80\x02P1\n.",  # PERSID
        b"\x80\x02\x82\x01.",  # EXT1: an entry of copyreg's table
        b"cnumpy\ndtype\n}(S'_make'\nI1\nsb.",  # BUILD on a function of the machine
        b"cnumpy\ndtype\n(N}(S'_make'\nI1\nstb.",  # the same through slots
        b"cnumpy._core.multiarray\nscalar\n(cnumpy\ndtype\n(S'O8'\ntRI1\ntR.",  # an object in a scalar
        b"cnumpy._core.multiarray\nscalar\n(cnumpy\ndtype\n(S'f8'\ntRC\x02ab" + b"tR.",  # too few bytes
    ],
)
def test_programs_in_the_language_of_pickles_reach_nothing(
    tmp_path: Path, program: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    monkeypatch.setattr(os, "system", called.append)
    for strict in (True, False):
        log = write_log(tmp_path / str(strict), [program])
        with pytest.raises(OldLogError):  # if it runs to its end, what it leaves is no list of records
            read_old_log(log, strict=strict)
    assert called == []
    healthy = write_log(tmp_path / "healthy", [[("x", 0, np.float32(0.5))]])
    assert read_old_log(healthy).series("x").to_dict() == {0: 0.5}  # the machine is as it was


def test_a_cut_log_is_read_up_to_the_cut(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = write_log(tmp_path / "whole", packed=False)
    content = (whole / "db.pickle").read_bytes()
    first = len(pickle.dumps(RECORDS[0]))
    for end in (first + 3, len(content) - 1):
        cut = write_log(tmp_path / str(end), [content[:end]], packed=False)
        assert read_old_log(cut).metrics.index.tolist() == [0, 10]
    assert caplog.text.count("is cut off") == 2
    packed = write_log(tmp_path / "packed")
    content = (packed / "db.pickle.bzip2").read_bytes()
    (packed / "db.pickle.bzip2").write_bytes(content[: len(bz2.compress(pickle.dumps(RECORDS[0]))) + 30])
    assert read_old_log(packed).metrics.index.tolist() == [0, 10]
    assert caplog.text.count("is cut off") == 3


def test_hyper_parameters_may_be_a_text_or_missing(tmp_path: Path) -> None:
    assert read_old_log(write_log(tmp_path / "none")).config == {}
    log = write_log(tmp_path / "foreign", params={"lr": 0.1})
    (log / "params.pickle").write_bytes(pickle.dumps(Hostile(tmp_path / "x")))  # as of a config object
    assert read_old_log(log).config == {"lr": 0.1}
    (log / "params.json").write_text("__import__('os').system('echo')")
    with pytest.raises(OldLogError, match=r"params.pickle holds a"):
        read_old_log(log)
    assert read_old_log(log, strict=False).config == {}


def test_folders_of_logs(tmp_path: Path) -> None:
    for number, rate in enumerate((0.1, 0.2, 0.1)):
        write_log(tmp_path / "sweep" / str(number), params={"lr": rate}, packed=number != 1)
    assert [path.name for path in find_old_logs(tmp_path)] == ["0", "1", "2"]
    groups = group_runs(read_old_logs(tmp_path))
    assert {label: [run.name for run in runs] for label, runs in groups.items()} == {
        "lr=0.1": ["0", "2"],
        "lr=0.2": ["1"],
    }
    with pytest.raises(OldLogError, match="no old log in"):
        read_old_logs(tmp_path / "nowhere")
    with pytest.raises(OldLogError, match=r"neither db.pickle.bzip2 nor db.pickle"):
        read_old_log(tmp_path)


@pytest.mark.parametrize("wrong", [{"a": 1}, [("x", 1)], [(1, 1, 1.0)], [("x", float("inf"), 1.0)], [("x", 0.5, 1.0)]])
def test_something_else_in_its_place_is_named(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(OldLogError, match=r"does not hold \(name, iteration, value\) records"):
        read_old_log(write_log(tmp_path / "log", [wrong]))


@pytest.mark.parametrize("packed", [True, False])
def test_a_log_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    monkeypatch.setattr(old_logs, "MAX_BYTES", 10_000)
    log = write_log(tmp_path / "log", [[("x", 0, "0" * 20_000)]], packed=packed)
    with pytest.raises(OldLogError, match="holds more than 10,000 bytes"):
        read_old_log(log)
    (tmp_path / "log" / "db.pickle.bzip2").write_bytes(b"no bzip2 at all")
    with pytest.raises(OldLogError, match="is damaged"):
        read_old_log(log)


def test_nothing_is_kept_of_what_is_left_out(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    figure.add_subplot().bar(["one", "two"], [1, 2])
    log = write_log(tmp_path / "log", [[("figure", 0, figure), ("x", 0, 1.0), ("video", 0, np.zeros((2, 3)))]])
    assert list(read_old_log(log, strict=False).metrics) == ["x"]
