"""What a sweep file stands for: seeds, grids, draws, and the mistakes in it."""

import math

import numpy as np
import pytest
import yaml

from gaitway.cli.arguments import argument, text_of
from gaitway.cli.compose import _parse, several_values
from gaitway.cli.sweep.plan import Span, SweepConfig, Trial, planned_trials, read_sweep, seeds_of
from gaitway.core.config import ConfigError, from_config


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("0..3", [0, 1, 2, 3]), ("5", [5]), (7, [7]), ([2, "4..5"], [2, 4, 5]), ("1,3,8..9", [1, 3, 8, 9]), (None, None)],
)
def test_seeds(text, seeds):
    assert seeds_of(text) == seeds


@pytest.mark.parametrize("text", ["3..1", "a", "0..", [], "1,1", "-1", "0..20000", True, "1.5"])
def test_what_is_no_seed_is_refused(text):
    with pytest.raises(ConfigError, match="seeds is"):
        seeds_of(text)


def test_a_grid_is_every_combination_on_every_seed():
    config = from_config(SweepConfig, {"grid": {"a.b": [1, 2], "c": ["x"]}, "seeds": [4, 5]})
    assert planned_trials(config) == [
        Trial(0, {"a.b": 1, "c": "x"}, 4),
        Trial(1, {"a.b": 1, "c": "x"}, 5),
        Trial(2, {"a.b": 2, "c": "x"}, 4),
        Trial(3, {"a.b": 2, "c": "x"}, 5),
    ]
    assert planned_trials(config)[3].arguments == ["a.b=2", "c=x", "seed=5"]
    assert planned_trials(SweepConfig()) == [Trial(0, {}, None)]


def test_draws_are_those_of_their_number_and_seed():
    spec = {"rate": {"low": 1e-5, "high": 1e-1, "log": True}, "size": {"low": 1, "high": 3}, "kind": ["a", "b"]}

    def drawn(trials, seed=0):
        random = {"parameters": spec, "trials": trials, "seed": seed}
        return [trial.parameters for trial in planned_trials(from_config(SweepConfig, {"random": random}))]

    many = drawn(400)
    assert drawn(5) == many[:5]
    assert drawn(5, seed=1) != many[:5]
    decades = np.floor(np.log10([each["rate"] for each in many]))
    assert np.bincount((decades + 5).astype(int), minlength=4).tolist() == pytest.approx([100] * 4, abs=40)
    assert [sum(each["size"] == size for each in many) for size in (1, 2, 3)] == pytest.approx([133] * 3, abs=40)
    assert {each["kind"] for each in many} == {"a", "b"}


def test_whole_numbers_on_a_logarithmic_scale_stay_within_their_ends():
    generator = np.random.default_rng(0)
    found = [Span.of("n", {"low": 1, "high": 8, "log": True}).draw(generator) for _ in range(2000)]
    assert set(found) == set(range(1, 9))
    assert found.count(1) / 2000 == pytest.approx(math.log(2) / math.log(9), abs=0.05)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"grid": {"a": []}}, "grid.a is []; give a list of at least one value"),
        ({"grid": {"a": 3}}, "grid.a is 3; give a list"),
        ({"random": {"parameters": {}}}, "random.parameters is empty"),
        ({"optuna": {}}, "optuna.parameters is empty"),
        ({"random": {"parameters": {"a": []}}}, "a has no choices"),
        ({"random": {"parameters": {"a": {"low": 2, "high": 1}}}}, "a goes from 2 to 1"),
        ({"random": {"parameters": {"a": {"low": 0, "high": 1, "log": True}}}}, "a has log: True and low: 0"),
        ({"random": {"parameters": {"a": {"lo": 0, "high": 1}}}}, "write [choices], or {low: ..., high: ..."),
        ({"random": {"parameters": {"a": [1]}}, "optuna": {"parameters": {"a": [1]}}}, "use one of them"),
        ({"optuna": {"parameters": {"a": [1]}}, "seeds": "0..1"}, "optuna chooses one trial at a time"),
        ({"optuna": {"parameters": {"a": [1]}}, "grid": {"b": [1]}}, "leave grid out"),
        ({"random": {"parameters": {"a": [1]}}, "grid": {"a": [1]}}, "a is in grid and among the parameters"),
        ({"base": ["run_dir=x"]}, "run_dir is chosen by the sweep"),
        ({"base": {"seed": 1}, "seeds": "0..1"}, "seed is chosen by the sweep"),
        ({"gird": {}}, "did you mean 'grid'?"),
        ({"workers": 0}, "workers is 0"),
        ({"seeds": "x"}, "seeds is 'x'"),
    ],
)
def test_mistakes_in_a_sweep_file_get_one_sentence(content, said, tmp_path):
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError) as error:
        read_sweep(tmp_path / "sweep.yaml")
    assert said in str(error.value)
    assert "sweep.yaml" in str(error.value)


@pytest.mark.parametrize(
    "value",
    [1, 1.5, 1e-5, True, None, "tanh", "true", "1e3", "a b", 'say "x"', "back\\", "x,y", "gymnasium:A-v1", "",
     "${seed}", [1, "a,b"], {"a": [1, {"c": None}]}],
)  # fmt: skip
def test_values_become_arguments_that_are_read_back(value):
    override = _parse(f"key={text_of(value)}")
    assert override.value() == value
    assert type(override.value()) is type(value) or isinstance(value, str)


def test_names_of_presets_and_files_stand_as_they_are():
    assert argument("config", "my file.yaml") == "config=my file.yaml"
    base = {"experiment": "ppo_walker_run", "algorithm": {"gamma": 0.9}, "env": {"options": {"a": 1}}, "seed": 3}
    assert from_config(SweepConfig, {"base": base}).settings == [
        "experiment=ppo_walker_run", "env.options.a=1", "seed=3", "algorithm.gamma=0.9",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=1,2", ("a", [1, 2])),
        ("algorithm=ppo,sac", ("algorithm", ["ppo", "sac"])),
        ("a.b=[1,2],[3]", ("a.b", [[1, 2], [3]])),
        ("a=range(1,4)", ("a", [1, 2, 3])),
        ("a=[1,2]", ("a", None)),
        ("run_dir=a,b", ("run_dir", None)),
    ],
)
def test_arguments_with_several_values(text, found):
    assert several_values(text) == found
