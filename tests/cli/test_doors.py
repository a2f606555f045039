"""`gaitway list`: what the lists of a configuration may name, and the options of their parts."""

import json

import pytest

from gaitway.cli import build
from gaitway.cli.compose_run import compose_run
from gaitway.cli.doors import DOORS, RUN, first_sentence, options_of, parts_of
from gaitway.cli.main import main
from gaitway.core.execution import Execution
from gaitway.envs.registry import make_env


def listed(capsys, *arguments):
    assert main(["list", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("what", DOORS)
def test_every_part_is_described_and_has_its_options(what, capsys):
    rows = listed(capsys, what)
    assert [row["name"] for row in rows] == list(DOORS[what].known)
    for row in rows:
        assert 10 < len(row["description"]) < 300, row
        names = [option["option"] for option in options_of(what, row["name"])]
        assert not {"self", "name", "env", *DOORS[what].given} & set(names), row
        assert all(option["default"] for option in options_of(what, row["name"]) if option["option"] != "description")


def test_parts_get_from_the_run_what_is_hidden():
    config = compose_run(["env.id=toy/pendulum"])[0]
    with make_env("toy/pendulum", num_envs=1) as env:
        given = build._given(config, env.spec, None, 1, Execution(device="cpu"))
    assert set(given) == RUN


def test_the_options_of_one_part(capsys):
    assert listed(capsys, "callbacks", "env_schedule") == [
        {"option": "method", "type": "str", "default": "needed"},
        {"option": "value", "type": "Coefficient", "default": "needed"},
        {"option": "of", "type": "str | None", "default": "null"},
        {"option": "evaluation", "type": "bool", "default": "false"},
    ]
    assert {"option": "hidden", "type": "tuple[Count, ...]", "default": "[512, 256]"} in options_of("rewards", "style")
    assert [each["option"] for each in options_of("terms", "entropy")] == ["coef"]  # `mean` is a function
    assert main(["list", "bandits", "uniform"]) == 0
    assert capsys.readouterr().out == "uniform has no options\n"


def test_what_is_not_there_is_named(capsys):
    for arguments, words in (
        (("terms", "entrpy"), "algorithm.terms knows no 'entrpy' (did you mean 'entropy'?); it knows action_bound, "),
        (("envs", "walker"), "envs are listed; leave walker out"),
    ):
        assert main(["list", *arguments]) == 1
        assert words in capsys.readouterr().err


def test_motions(capsys):
    assert {"id": "pup12_trot", "robot": "pup12", "description": "7 clips of up to 2 s"} in listed(capsys, "motions")


def test_first_sentences():
    class Plain:
        """Says this
        over two lines. And more.

        Later.
        """

    assert first_sentence(Plain) == "Says this over two lines"
    assert parts_of("terms")[0] == {
        "name": "surrogate", "key": "algorithm.terms", "description": "PPO's clipped policy loss",
    }  # fmt: skip
