"""The blackboard's edges: actions on final rows, values logged twice, hyper-parameters, seeds of workers, lone runs."""

from __future__ import annotations

import io
import json
import math
import random
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from gaitway.analysis.compare import compare_curves, compare_groups
from gaitway.analysis.groups import Group
from gaitway.analysis.plots import losses_figure
from gaitway.analysis.runs import load_run
from gaitway.analysis.stats import make_test
from gaitway.analysis.tables import Runs
from gaitway.cli.main import main
from gaitway.core.agent import Agent, Agents, TemporalAgent
from gaitway.core.config import ConfigError
from gaitway.core.seeding import global_state
from gaitway.core.workspace import Workspace
from gaitway.envs.registry import make_env
from gaitway.frames.agent import FrameAgent
from gaitway.processes.n_remote import NRemoteAgent
from gaitway.runners.logger import Logger
from gaitway.runners.progress import Progress

# --- actions on final rows ------------------------------------------------------------------------------------------


class Short(gymnasium.Env):
    """Two steps an episode; remembers the actions it was given."""

    observation_space = spaces.Box(-1.0, 1.0, (1,))

    def __init__(self, space: spaces.Space) -> None:
        self.action_space, self.age, self.given = space, 0, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.age += 1
        self.given.append(action)
        return np.zeros(1, np.float32), 1.0, self.age == 2, False, {}


class Careless(Agent):
    """A good action where the episode goes on, `bad` on the final row."""

    writes = ("action",)

    def __init__(self, good: torch.Tensor, bad: torch.Tensor) -> None:
        super().__init__()
        self.good, self.bad = good, bad

    def step(self, ws: Workspace, t: int) -> None:
        done = ws.at("env/done", t)
        where = done.view(-1, *[1] * self.good.dim())
        ws.put("action", t, torch.where(where, self.bad, self.good))


NAN, INF = math.nan, math.inf
SPACES: dict[str, tuple[spaces.Space, Any, list[Any]]] = {
    "discrete": (spaces.Discrete(3), 1, [-1, 7, 2**40]),
    "discrete_from_5": (spaces.Discrete(3, start=5), 6, [0, -1]),
    "multi_discrete": (spaces.MultiDiscrete([2, 3]), [1, 2], [[-1, -1], [9, 0]]),
    "multi_binary": (spaces.MultiBinary(2), [1, 0], [[-1, 5]]),
    "box": (spaces.Box(-1.0, 1.0, (2,)), [0.5, -0.5], [[NAN, 0.0], [INF, -INF]]),
    "box_above_0": (spaces.Box(2.0, 3.0, (1,)), [2.5], [[NAN]]),
    "integer_box": (spaces.Box(0, 9, (2,), np.int64), [3, 4], [[-5, 70]]),
}
CASES = [(name, bad) for name, (_, _, every) in SPACES.items() for bad in every]


def tensor(value: Any) -> torch.Tensor:
    return torch.tensor(value)


@pytest.mark.parametrize("mode", ["framed", "frozen"])
@pytest.mark.parametrize(("kind", "bad"), CASES)
def test_what_stands_on_a_final_row_is_not_looked_at(mode: str, kind: str, bad: Any) -> None:
    space, good, _ = SPACES[kind]
    env = Short(space)
    ws = Workspace()
    cast = Agents(FrameAgent(env, mode=mode), Careless(tensor(good), tensor(bad)))
    TemporalAgent(cast).run(ws, n_steps=8)
    assert all(np.array_equal(action, good) for action in env.given)
    assert len(env.given) == (5 if mode == "framed" else 2)
    assert torch.equal(ws.at("action", 2)[0], tensor(bad)) or kind.startswith("box")  # the workspace keeps it


@pytest.mark.parametrize("mode", ["framed", "frozen"])
@pytest.mark.parametrize(("kind", "bad"), CASES)
def test_the_same_of_vector_environments(mode: str, kind: str, bad: Any) -> None:
    space, good, _ = SPACES[kind]
    reset = AutoresetMode.NEXT_STEP
    vector = SyncVectorEnv([lambda: Short(space)] * 2, autoreset_mode=reset)
    cast = Agents(FrameAgent(vector, mode=mode), Careless(tensor(good), tensor(bad)))
    TemporalAgent(cast).run(Workspace(), n_steps=8)


@pytest.mark.parametrize("bad", [-1, 9])
def test_a_final_row_of_a_native_environment(bad: int) -> None:
    world = FrameAgent(make_env("toy/cartpole", num_envs=2, max_episode_steps=3), mode="frozen")
    ws = Workspace()
    TemporalAgent(Agents(world, Careless(tensor(1), tensor(bad)))).run(ws, n_steps=8)
    assert ws["env/timestep"][-1].tolist() == [3, 3]


def test_nan_on_a_final_row_of_a_native_environment() -> None:
    world = FrameAgent(make_env("toy/pendulum", num_envs=2, max_episode_steps=3), mode="frozen")
    TemporalAgent(Agents(world, Careless(tensor([0.5]), tensor([NAN])))).run(Workspace(), n_steps=8)


@pytest.mark.parametrize(("kind", "bad"), [case for case in CASES if case[0] != "multi_binary"])
def test_elsewhere_the_same_is_refused(kind: str, bad: Any) -> None:
    if kind == "integer_box":
        pytest.skip("boxes of integers take what fits their dtype")
    space, _, _ = SPACES[kind]
    cast = Agents(FrameAgent(Short(space), mode="framed"), Careless(tensor(bad), tensor(bad)))
    with pytest.raises((ValueError, AssertionError)):
        TemporalAgent(cast).run(Workspace(), n_steps=3)


def test_in_a_compact_stream_every_row_counts() -> None:
    cast = Agents(FrameAgent(Short(spaces.Discrete(3)), mode="compact"), Careless(tensor(1), tensor(-1)))
    with pytest.raises(ValueError, match="-1"):
        TemporalAgent(cast).run(Workspace(), n_steps=8)


# --- the logger -----------------------------------------------------------------------------------------------------


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1), (1, 3, 2), (5, 1, 3)])
@pytest.mark.parametrize("again", [0, 1, 2])
def test_the_first_value_of_a_step_stays_whatever_the_order(tmp_path: Path, order: tuple[int, ...], again: int) -> None:
    with Logger(tmp_path) as logger:
        for step in order:
            logger.log(step, {"a": float(step)})
        logger.log(order[again], {"a": 99.0, "b": 7.0})
        assert logger.repeated == {"a": 1}
    run = load_run(tmp_path)
    assert run.series("a").to_dict() == {step: float(step) for step in order}
    assert run.series("b").to_dict() == {order[again]: 7.0}
    assert [line["a"] for line in lines(tmp_path) if "a" in line] == [float(step) for step in order]


def test_a_second_program_in_the_same_folder_keeps_what_the_first_said(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        with Logger(tmp_path, compress=value == 1.0) as logger:
            for step in (3, 1, 2):
                logger.log(step, {"a": value})
    assert load_run(tmp_path).series("a").to_dict() == {1: 1.0, 2: 1.0, 3: 1.0}
    assert len(lines(tmp_path)) == 3


def test_a_first_value_that_is_not_a_number_stays_too(tmp_path: Path) -> None:
    with Logger(tmp_path) as logger:
        logger.log(1, {"a": math.nan, "b": 1.0})
        logger.log(1, {"a": 5.0})
    assert load_run(tmp_path).series("a").empty
    # and a reader of a file that somebody else wrote agrees
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "a": null}\n{"step": 1, "a": 5.0}\n{"step": 1, "b": 1.0}\n')
    assert load_run(tmp_path).series("a").empty


def test_steps_that_grow_build_no_index(tmp_path: Path) -> None:
    with Logger(tmp_path) as logger:
        for step in range(100):
            logger.log(step, {"a": 1.0})
            logger.log(step, {"b": 1.0})
        assert logger._names_at is None


VALUES: dict[str, Any] = {
    "learning_rate": 3e-4,
    "network": {"width": 64, "layers": [64, 64], "activation": "tanh"},
    "clip": True,
    "note": "größer",
    "nothing": None,
}


def test_hyper_parameters_of_a_program_are_found(tmp_path: Path) -> None:
    for width in (32, 64):
        with Logger(tmp_path / str(width)) as logger:
            logger.save_config({**VALUES, "network": {**VALUES["network"], "width": width}, "seed": np.int64(3)})
            logger.log(1, {"return": float(width)})
    runs = Runs.read(tmp_path)
    assert [run.name for run in runs.filter("network/width", 64)] == ["64"]
    assert len(runs.filter("clip", True)) == 2
    assert runs.differing() == {"network/width": [32, 64]}
    assert runs.values("learning_rate") == [3e-4]
    assert runs.values("note") == ["größer"]
    assert runs[0].seed == 3


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["a"], "list"),
        (3, "int"),
        ({"net": torch.nn.Linear(1, 1)}, "net"),
        ({"a": {"b": object()}}, "a/b"),
        ({"a": np.zeros(3)}, "numbers, texts, lists"),
        ({1: 2}, "key 1"),
        ({"f": print}, "f is"),
    ],
)
def test_what_is_no_configuration_is_refused(tmp_path: Path, values: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        Logger(tmp_path / "run").save_config(values)
    assert not (tmp_path / "run").exists()


def test_a_folder_keeps_its_configuration(tmp_path: Path) -> None:
    logger = Logger(tmp_path)
    logger.save_config({"a": 1, "b": math.nan})
    logger.save_config({"a": 1, "b": math.nan})  # the same again
    before = (tmp_path / "config.yaml").read_bytes()
    with pytest.raises(ConfigError, match=r"config\.yaml is there and says something else"):
        logger.save_config({"a": 2})
    assert (tmp_path / "config.yaml").read_bytes() == before
    Logger(None).save_config({"a": 1})  # nowhere


def test_a_program_of_ones_own_is_no_run_to_evaluate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Logger(tmp_path) as logger:
        logger.save_config(VALUES)
    assert main(["eval", str(tmp_path)]) != 0
    assert "not a run folder" in capsys.readouterr().err


# --- seeds of workers -----------------------------------------------------------------------------------------------


class Dice(Agent):
    """Draws from the process-wide generators, as user code may."""

    writes = ("x",)

    def step(self, ws: Workspace, t: int) -> None:
        ws.put("x", t, torch.rand(1) + float(np.random.rand()) + random.random())  # noqa: NPY002


def test_seeding_the_agents_seeds_the_generators_of_their_processes() -> None:
    here = global_state()["torch"]
    agents, ws = NRemoteAgent.create(TemporalAgent(Dice()), 2, 3, n_steps=3)
    agents.seed(0)  # before the start
    drawn = []
    with agents:
        for seed in (None, None, 0, 1):
            if seed is not None:
                agents.seed(seed)
            agents(ws, 0, n_steps=3)
            drawn.append(ws["x"].clone())
    first, second, again, other = drawn
    assert not torch.equal(first[:, 0], first[:, 1])
    assert not torch.equal(first, second)  # a seed counts once
    assert torch.equal(first, again)
    assert torch.equal(first[:, 1], other[:, 0])  # process k has seed + k
    assert torch.equal(here, global_state()["torch"])  # generators of this process are left alone


# --- one run against one --------------------------------------------------------------------------------------------


def group(label: str, *scores: float) -> Group:
    return Group.from_array(label, np.array(scores))


@pytest.mark.parametrize("test", ["welch", "t", "mann-whitney", "ranked-t", "bootstrap", "permutation"])
@pytest.mark.parametrize(("ours", "theirs"), [((1.0,), (2.0,)), ((1.0,), (2.0, 3.0, 4.0)), ((1.0, 2.0, 3.0), (9.0,))])
def test_a_lone_run_has_no_p_value(test: str, ours: tuple[float, ...], theirs: tuple[float, ...]) -> None:
    found = compare_groups(group("a", *ours), group("b", *theirs), make_test(test))
    assert math.isnan(found.p_value)
    assert not found.significant
    assert found.to_dict()["p_value"] is None
    assert "two runs of each are needed" in found.sentence


def test_lone_curves_have_no_p_values() -> None:
    found = compare_curves(np.zeros((6, 1)), np.ones((6, 1)), downsample=1)
    assert np.isnan(found.p_values).all()
    assert not found.significant.any()


def test_compare_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in (("a", 1.0), ("b", 2.0)):
        with Logger(tmp_path / name) as logger:
            for step in (1, 2, 3):
                logger.log(step, {"eval/return": value * step})
    assert main(["compare", "a", "b"]) == 0
    text = capsys.readouterr().out
    assert "p =" not in text
    assert "Along the curve" not in text
    assert "two runs of each are needed" in text


# --- pictures and the bar -------------------------------------------------------------------------------------------


def test_the_panel_called_entropy_shows_the_entropy(tmp_path: Path) -> None:
    with Logger(tmp_path) as logger:
        for step in (1, 2, 3):
            logger.log(step, {"loss/entropy": -1.0 - step, "loss/value": 2.0})
    figure = losses_figure(load_run(tmp_path))
    assert figure is not None
    shown = {axes.get_ylabel(): axes.lines[0].get_ydata().tolist() for axes in figure.axes}
    assert shown == {"entropy": [2.0, 3.0, 4.0], "value": [2.0, 2.0, 2.0]}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("total", [1000, 1001, 20_000])
def test_the_bar_ends_at_100_percent(total: int) -> None:
    stream, now = Terminal(), [0.0]
    with Progress(total, stream=stream, clock=lambda: now[0]) as progress:
        for step in range(0, total + 300, 300):
            progress.update(step, {}, {})
            now[0] += 0.001  # faster than the display is drawn
        assert "100.0%" in stream.getvalue()


def test_a_run_that_stops_early_does_not_claim_to_be_done() -> None:
    stream = Terminal()
    with Progress(1000, stream=stream) as progress:
        progress.update(500, {}, {})
    assert "100.0%" not in stream.getvalue()


def test_names_of_bbrl_that_are_gone_are_named() -> None:
    page = (Path(__file__).parents[2] / "docs" / "from_bbrl.md").read_text()
    for name in ("modulo", "every_n_seconds", "cache_size", "save_config"):
        assert name in page, name
