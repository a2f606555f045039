"""A stopwatch that answers."""

import pytest

from gaitway.core.chrono import Chrono, duration_text


def test_bug_84_stop_returns_seconds_and_text(capsys):
    now = iter([10.0, 10.0 + 3723.004, 20.0, 20.5])
    chrono = Chrono(clock=lambda: next(now))
    seconds, text = chrono.stop()
    assert seconds == pytest.approx(3723.004)
    assert text == "1h 2mn 3s 4ms"
    chrono.restart()
    assert chrono.stop() == (0.5, "500ms")
    assert capsys.readouterr().out == ""


def test_the_true_clock_runs_forwards():
    chrono = Chrono()
    assert 0 <= chrono.stop().seconds <= chrono.stop().seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0ms"), (0.0123, "12ms"), (59.9996, "1mn 0s 0ms"), (60, "1mn 0s 0ms"), (7200.5, "2h 0mn 0s 500ms")],
)
def test_text(seconds, text):
    assert duration_text(seconds) == text


def test_time_does_not_run_backwards():
    with pytest.raises(ValueError, match="negative"):
        duration_text(-1)
