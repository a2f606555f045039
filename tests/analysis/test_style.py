"""What a discriminator's numbers say."""

import json

import pytest

from gaitway.analysis.runs import load_run
from gaitway.analysis.style import style_of, verdict


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((0.99, 0.98, 0.7), "has won"),
        ((0.97, 0.95, 0.1), "does not move like the clips yet"),
        ((0.55, 0.6, 0.0), "moves like the clips"),
        ((0.8, 0.75, 0.0), "more and more"),
        ((0.95, 0.3, 0.0), "takes much of the policy"),
        ((0.1, 0.05, 0.9), "collapsed"),
        ((float("nan"), 0.5, 0.0), "not finite"),
    ],
)
def test_the_verdict_in_words(numbers, words):
    assert words in verdict(*numbers)


def test_the_last_numbers_of_a_run_count(tmp_path):
    lines = [
        {"step": 1, "style/accuracy_expert": 0.99, "style/accuracy_policy": 0.99, "style/saturation": 0.9},
        {"step": 2, "style/accuracy_expert": 0.55, "style/accuracy_policy": 0.6, "style/saturation": 0.0},
        {"step": 3, "loss/value": 1.0},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert style_of(load_run(tmp_path)) == verdict(0.55, 0.6, 0.0)
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss/value": 1.0}\n')
    assert style_of(load_run(tmp_path)) is None
