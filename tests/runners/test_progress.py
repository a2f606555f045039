from __future__ import annotations

import io
import math
import re
from typing import Any

import pytest
from rich.console import Console

from gaitway.runners.progress import Progress, shares_bar

SHARES = {"simulate": 0.5, "infer": 0.2, "learn": 0.25, "log": 0.05}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """Time that passes when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_plain_lines_come_dated_every_few_seconds_and_at_the_end() -> None:
    clock, stream = Clock(), io.StringIO()
    with Progress(1000, stream=stream, clock=clock, interval_s=5.0) as progress:
        for step in range(100, 1000, 100):
            progress.update(step, {"train/return": float(step), "train/length": 20.0}, SHARES)
            clock.now += 2.0
    lines = stream.getvalue().splitlines()
    # updates at 0, 2, 4, ...: shown at 0, 6, 12, and the last one (16) at the end
    assert [int(re.search(r"step (\d+) of 1,000", line)[1]) for line in lines] == [100, 400, 700, 900]  # type: ignore[index]
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", line) for line in lines)
    # 800 steps in 16 seconds, 100 left
    assert "90.0%" in lines[-1]
    assert "50 steps/s  0:00:02 left" in lines[-1]
    assert "return 900  length 20  best 900" in lines[-1]
    assert "simulate 50% infer 20% learn 25% log 5%" in lines[-1]


def test_a_metric_keeps_its_last_value_and_best_is_the_best() -> None:
    progress = Progress(100, stream=io.StringIO())
    assert "return" not in progress.line()
    progress.update(1, {"train/return": 5.0}, {})
    progress.update(2, {"train/return": 3.0}, {})
    progress.update(3, {"train/return": math.nan}, {})
    progress.update(4, {"loss/value": 1.0}, {})
    assert "best 5" in progress.line()
    progress.update(5, {"train/return": 2.0, "best/return": 9.0}, {})  # the evaluation knows better
    assert "return 2  best 9" in progress.line()


def test_the_panel_tells_everything() -> None:
    progress = Progress(1000, title="walker/run", stream=io.StringIO())
    progress.update(
        250, {"train/return": 12.5, "train/length": 200.0, "loss/value": 0.125, "loss/surrogate": -1.0}, SHARES
    )
    console = Console(file=io.StringIO(), width=110)
    console.print(progress.panel())
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for words in ("walker/run", "25.0%", "step 250 of 1,000", "return 12.5", "length 200", "best 12.5",
                  "losses   surrogate -1   value 0.125", "█ simulate 50%", "░ log 5%"):  # fmt: skip
        assert words in text, words


def test_the_bar_of_shares_adds_up() -> None:
    bar = shares_bar(SHARES, width=40).split("  ")[0]
    assert [bar.count(mark) for mark in "█▓▒░"] == [20, 8, 10, 2]
    assert shares_bar({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}, width=10).split("  ")[0] == "███▓▓▓▓▒▒▒"


def test_a_terminal_gets_the_panel_and_its_cursor_back() -> None:
    clock, stream = Clock(), Terminal()
    with Progress(1000, stream=stream, clock=clock) as progress:
        progress.update(100, {}, SHARES)
        first = len(stream.getvalue())
        progress.update(200, {}, SHARES)  # no time has passed: not drawn
        assert len(stream.getvalue()) == first
        clock.now += 1.0
        progress.update(300, {}, SHARES)
    text = stream.getvalue()
    assert "step 100 of 1,000" in text
    assert "step 200" not in text
    assert "step 300 of 1,000" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # cursor shown after it was hidden


def test_it_can_be_used_again() -> None:
    clock, stream = Clock(), io.StringIO()
    progress = Progress(1000, stream=stream, clock=clock)
    for step in (500, 1000):
        with progress:
            progress.update(step, {}, {})
        clock.now += 1000.0  # the pause does not count as training time
    assert "steps/s" not in stream.getvalue()
    assert len(stream.getvalue().splitlines()) == 2


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_quiet_is_silent(stream: io.StringIO) -> None:
    with Progress(10, quiet=True, stream=stream) as progress:
        progress.update(5, {"train/return": 1.0}, SHARES)
    assert stream.getvalue() == ""


class Closed(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError("the reader has left")


class ClosedTerminal(Closed):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Closed(), ClosedTerminal()])
def test_a_broken_display_never_stops_training(stream: io.StringIO, caplog: pytest.LogCaptureFixture) -> None:
    with Progress(10, stream=stream) as progress:
        for step in range(5):
            progress.update(step, {}, {})
    assert caplog.text.count("no more progress display: the reader has left") == 1


def test_strange_values_never_stop_training() -> None:
    wrong: Any = {"train/return": "text"}
    with Progress(0, stream=io.StringIO()) as progress:
        progress.update(1, wrong, {})
        progress.update(2, {}, {"a": math.nan})
    assert progress.fraction == 1.0
