"""Schedules against hand arithmetic."""

import pytest

from gaitway.algorithms.algorithm import Now, Schedule, value_at


@pytest.mark.parametrize(
    ("schedule", "now", "expected"),
    [
        (Schedule(1.0, 0.0, 1.0, unit="fraction"), Now(fraction=0.25), 0.75),
        (Schedule(1.0, 0.0, 1.0, unit="fraction"), Now(fraction=2.0), 0.0),
        (
            Schedule(2.0, 4.0, over=10),
            Now(iteration=5, fraction=0.9),
            3.0,
        ),  # counts iterations unless it says otherwise
        (Schedule(2.0, 4.0, over=1000, unit="steps"), Now(iteration=5, env_steps=250), 2.5),
        (Schedule(1.0, 0.0, 4, "cosine"), Now(iteration=2), 0.5),
        (Schedule(1.0, 0.0, 3, "cosine"), Now(iteration=1), 0.75),  # 1 - (1 - cos 60 deg) / 2
        (Schedule(1.0, 0.01, 8, "exponential"), Now(iteration=4), 0.1),
    ],
)
def test_schedule(schedule, now, expected):
    assert schedule(now) == pytest.approx(expected)
    assert value_at(schedule, now) == pytest.approx(expected)


def test_a_number_is_its_own_schedule():
    assert value_at(0.3, Now(fraction=0.9)) == 0.3


def test_impossible_schedules_are_refused():
    with pytest.raises(ValueError, match="over is 0; use a number > 0"):
        Schedule(1.0, 0.0, over=0)
    with pytest.raises(ValueError, match="positive ends"):
        Schedule(1.0, 0.0, 1, kind="exponential")
