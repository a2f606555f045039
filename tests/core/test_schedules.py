"""Schedules against hand arithmetic."""

import pytest

from gaitway.core.schedules import Now, Schedule, value_at


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


@pytest.mark.parametrize(
    ("kind", "at", "expected"),
    [
        ("linear", (0, 50, 100, 300), (1.0, 0.5, 0.0, 0.0)),
        ("decay", (0, 100, 300), (1.0, 0.3660, 0.0490)),  # 0.99^100, 0.99^300
        ("tanh", (0, 100, 200), (0.8808, 0.5, 0.1192)),  # (1 + tanh 1) / 2, its middle, (1 - tanh 1) / 2
    ],
)
def test_schedules_of_a_teachers_share(kind, at, expected):
    """T-SCHED: the check values for S = 100."""
    schedule = Schedule(1.0, 0.0, over=100, kind=kind)
    assert [schedule(Now(iteration=x)) for x in at] == pytest.approx(expected, abs=1e-4)
    shifted = Schedule(3.0, 1.0, over=100, kind=kind)  # between other ends the same share of the way is left
    assert [shifted(Now(iteration=x)) for x in at] == pytest.approx([1.0 + 2.0 * e for e in expected], abs=2e-4)


def test_a_number_is_its_own_schedule():
    assert value_at(0.3, Now(fraction=0.9)) == 0.3


def test_impossible_schedules_are_refused():
    with pytest.raises(ValueError, match="over is 0; use a number > 0"):
        Schedule(1.0, 0.0, over=0)
    with pytest.raises(ValueError, match="positive ends"):
        Schedule(1.0, 0.0, 1, kind="exponential")
    with pytest.raises(ValueError, match="over must be above 1, not 1"):
        Schedule(1.0, 0.0, 1, kind="decay")
