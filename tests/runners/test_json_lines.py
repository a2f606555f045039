"""Packed metrics: the same lines, the same positions, and nothing lost on the way."""

from __future__ import annotations

import errno
import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gaitway.analysis.runs import find_runs, load_run
from gaitway.runners.json_lines import JsonLines
from gaitway.runners.logger import Logger


def write(folder: Path, steps: range, compress: bool = True) -> None:
    with Logger(folder, compress=compress) as logger:
        for step in steps:
            logger.log(step, {"a/b": 0.1 * step})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def packed_lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.open(folder / "metrics.jsonl.gz", "rt")]


def test_a_closed_file_is_packed_and_says_the_same(tmp_path: Path) -> None:
    write(tmp_path / "packed", range(200))
    write(tmp_path / "plain", range(200), compress=False)
    assert names(tmp_path / "packed") == ["metrics.jsonl.gz"]
    plain = (tmp_path / "plain" / "metrics.jsonl").read_bytes()
    assert gzip.decompress((tmp_path / "packed" / "metrics.jsonl.gz").read_bytes()) == plain
    assert (tmp_path / "packed" / "metrics.jsonl.gz").stat().st_size < len(plain) / 3
    assert load_run(tmp_path / "packed").metrics.equals(load_run(tmp_path / "plain").metrics)
    assert find_runs([tmp_path]) == [tmp_path / "packed", tmp_path / "plain"]


def test_equal_runs_give_equal_bytes(tmp_path: Path) -> None:
    write(tmp_path / "a", range(5))
    write(tmp_path / "b", range(5))
    first, second = ((tmp_path / name / "metrics.jsonl.gz").read_bytes() for name in "ab")
    assert first == second


def test_going_on_unpacks_and_cuts_at_the_same_position(tmp_path: Path) -> None:
    logger = Logger(tmp_path, compress=True)
    logger.log(1, {"a": 1.0})
    position = logger.position()
    assert position == len('{"step": 1, "a": 1.0}\n')
    logger.log(2, {"a": 2.0})
    assert names(tmp_path) == ["metrics.jsonl"]  # plain while it is written: a killed run loses nothing
    logger.close()
    for compress in (True, False):  # whoever goes on, the lines are the same
        with Logger(tmp_path, compress=compress) as logger:
            logger.truncate(position)
            assert logger.position() == position
            logger.log(2, {"a": 2.5})
    assert names(tmp_path) == ["metrics.jsonl"]
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1, "a": 1.0}\n{"step": 2, "a": 2.5}\n'


def test_closing_again_packs_what_was_added(tmp_path: Path) -> None:
    logger = Logger(tmp_path, compress=True)
    for step in (1, 2):
        logger.log(step, {"a": step})
        logger.close()
        logger.close()
    assert packed_lines(tmp_path) == [{"step": 1, "a": 1}, {"step": 2, "a": 2}]


@pytest.mark.parametrize("moment", ["packing", "unpacking"])
def test_killed_between_the_two_files_both_say_the_same_and_the_plain_one_counts(tmp_path: Path, moment: str) -> None:
    write(tmp_path, range(3), compress=moment == "packing")
    plain, packed = tmp_path / "metrics.jsonl", tmp_path / "metrics.jsonl.gz"
    if moment == "packing":
        plain.write_bytes(gzip.decompress(packed.read_bytes()))
    else:
        packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert load_run(tmp_path).metrics.index.tolist() == [0, 1, 2]
    write(tmp_path, range(3, 5))
    assert names(tmp_path) == ["metrics.jsonl.gz"]
    assert [line["step"] for line in packed_lines(tmp_path)] == [0, 1, 2, 3, 4]


def test_no_room_for_packing_leaves_the_plain_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    logger = Logger(tmp_path, compress=True)
    logger.log(1, {"a": 1})
    monkeypatch.setattr(os, "replace", full)
    logger.close()
    assert names(tmp_path) == ["metrics.jsonl"]
    assert "stays uncompressed: " in caplog.text
    assert "the disk is full" in caplog.text


def test_a_damaged_file_is_kept_aside_and_logging_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, range(3))
    packed = tmp_path / "metrics.jsonl.gz"
    whole = packed.read_bytes()
    packed.write_bytes(whole[:-12])
    write(tmp_path, range(3, 4))
    assert names(tmp_path) == ["metrics.jsonl.gz", "metrics.jsonl.gz.damaged"]
    assert (tmp_path / "metrics.jsonl.gz.damaged").read_bytes() == whole[:-12]
    assert [line["step"] for line in packed_lines(tmp_path)] == [3]
    assert "cannot be unpacked" in caplog.text


def test_of_a_cut_or_damaged_file_the_part_before_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = JsonLines(tmp_path / "metrics.jsonl", compress=True)
    for step, value in enumerate(np.random.default_rng(0).random(20_000).tolist()):  # noise does not pack well
        file.append({"step": step, "a/b": value})
    file.close()
    packed = tmp_path / "metrics.jsonl.gz"
    whole = packed.read_bytes()
    assert len(whole) > 2 * 65536
    packed.write_bytes(whole[: len(whole) // 2])
    assert 5_000 < len(load_run(tmp_path).metrics) < 15_000
    assert "is cut off" in caplog.text
    packed.write_bytes(whole[:70_000] + bytes(70_000) + whole[140_000:])
    assert 0 < len(load_run(tmp_path).metrics) < 20_000
    assert "is damaged" in caplog.text


def test_members_that_were_appended_one_by_one_are_read(tmp_path: Path) -> None:
    parts = [gzip.compress(f'{{"step": {step}, "a/b": {step}}}\n'.encode()) for step in range(3)]
    (tmp_path / "metrics.jsonl.gz").write_bytes(b"".join(parts))
    assert load_run(tmp_path).series("a/b").to_dict() == {0: 0.0, 1: 1.0, 2: 2.0}
