"""Options of native tasks; the tasks themselves are tested beside them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from gaitway.envs.batch_task import resolve_options


@dataclass(frozen=True, kw_only=True)
class Options:
    speed: float = 1.0
    steps: int = 5


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("foo", "robot/run has no option 'foo'; it has ['speed', 'steps']"),
        ("sped", "robot/run has no option 'sped' (did you mean 'speed'?); it has ['speed', 'steps']"),
    ],
)
def test_an_unknown_option_is_answered_in_one_sentence(name: str, sentence: str) -> None:
    with pytest.raises(TypeError) as error:
        resolve_options(Options, "robot/run", {name: 1})
    assert str(error.value) == sentence


def test_only_changed_options_are_reported() -> None:
    assert resolve_options(Options, "robot/run", {"speed": 2, "steps": 5}) == (Options(speed=2.0), {"speed": 2.0})
