"""Lines that never lead from one episode into the next, and bars sorted from the best down."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from PIL import Image

from gaitway.analysis.plots import COLOURS
from gaitway.analysis.trajectories import plot_histograms, plot_trajectory
from gaitway.core.agent import Agent, Agents, TemporalAgent
from gaitway.core.workspace import Workspace
from gaitway.envs.env_agent import EnvAgent
from gaitway.envs.registry import make_env
from gaitway.envs.vec_env import VecEnv
from gaitway.runners.film import record_episode


def drawn(figure: Any) -> list[tuple[str, list[list[float]]]]:
    """Colour and points of every line, in the order of drawing; markers of one point are left out."""
    lines = figure.axes[0].get_lines()
    return [(line.get_color(), line.get_xydata().tolist()) for line in lines if line.get_linestyle() == "-"]


def markers(figure: Any, kind: str) -> list[list[float]]:
    return [line.get_xydata()[0].tolist() for line in figure.axes[0].get_lines() if line.get_marker() == kind]


def counting(rows: int, columns: int, size: int = 3) -> np.ndarray:
    """Observation `[t, b]` is (t, 10 b, -t)."""
    return np.stack(
        [
            np.full(columns, float(t))[:, None] * [1, 0, -1] + np.arange(columns)[:, None] * [0, 10, 0]
            for t in range(rows)
        ]
    )


def test_one_colour_per_column_and_a_break_behind_every_end() -> None:
    done = np.zeros((5, 2), bool)
    done[1, 0] = True
    points, figure = plot_trajectory(counting(5, 2), done=done)
    assert points.shape == (5, 2, 2)
    assert points[3, 1].tolist() == [3.0, 10.0]
    assert drawn(figure) == [
        (COLOURS[0], [[0.0, 0.0], [1.0, 0.0]]),
        (COLOURS[0], [[2.0, 0.0], [3.0, 0.0], [4.0, 0.0]]),
        (COLOURS[1], [[t, 10.0] for t in range(5)]),
    ]
    assert markers(figure, "o") == [[0.0, 0.0], [2.0, 0.0], [0.0, 10.0]]
    assert markers(figure, "x") == [[1.0, 0.0]]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["column 0", "column 1", "start", "end"]


def test_without_flags_there_are_no_ends_and_an_end_in_the_last_row_leaves_nothing_behind() -> None:
    _, figure = plot_trajectory(torch.from_numpy(counting(3, 1)), 0, 2)
    assert drawn(figure) == [(COLOURS[0], [[0.0, 0.0], [1.0, -1.0], [2.0, -2.0]])]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["start"]
    _, figure = plot_trajectory(counting(3, 1), 0, 2, done=np.array([[0], [0], [1]]))
    assert len(drawn(figure)) == 1
    assert markers(figure, "x") == [[2.0, -2.0]]


def test_a_workspace_brings_its_flags_its_extra_row_and_its_final_observations() -> None:
    observations = torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.5, 0.5], [1.5, 1.5]])[:, None]  # the third begins anew
    ws = Workspace.packed({"env/obs/policy": observations})
    flags = torch.tensor([[False], [True], [False]])
    ws["env/terminated"], ws["env/truncated"] = torch.zeros_like(flags), flags
    points, figure = plot_trajectory(ws)
    assert points.shape == (4, 1, 2)
    assert drawn(figure) == [(COLOURS[0], [[0.0, 0.0], [1.0, 1.0]]), (COLOURS[0], [[0.5, 0.5], [1.5, 1.5]])]
    final = torch.tensor([[9.0, 9.0], [2.0, 3.0], [9.0, 9.0]])[:, None]
    ws["env/final_obs/policy"] = final
    _, figure = plot_trajectory(ws)
    assert drawn(figure)[0] == (COLOURS[0], [[0.0, 0.0], [1.0, 1.0], [2.0, 3.0]])  # to where it really went
    assert markers(figure, "x") == [[2.0, 3.0]]


def test_many_columns_have_a_colour_each_and_no_legend_of_columns() -> None:
    _, figure = plot_trajectory(counting(3, 12))
    assert len({colour for colour, _ in drawn(figure)}) == 12
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["start"]


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (np.zeros((4, 3)), {}, r"observations are \[4, 3\]; they must be \[T, B, D\]"),
        (np.zeros((4, 1, 3)), {"y": 3}, "there is no dimension 3; the observations have 0 to 2"),
        (np.zeros((4, 1, 3)), {"done": np.zeros((2, 1))}, r"done is \[2, 1\]; it must be \[4, 1\]"),
    ],
)
def test_wrong_trajectories_are_refused(data: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plot_trajectory(data, **options)


def test_bars_are_sorted_down_and_stand_side_by_side() -> None:
    table, figure = plot_histograms({"one": [1.0, 3.0, 2.0], "two": torch.tensor([5.0, -1.0])}, title="SVPG")
    assert np.array_equal(table, [[3.0, 2.0, 1.0], [5.0, -1.0, np.nan]], equal_nan=True)
    axes = figure.axes[0]
    first, second = axes.containers
    assert [bar.get_height() for bar in first] == [3.0, 2.0, 1.0]
    assert [bar.get_height() for bar in second][:2] == [5.0, -1.0]
    middle = [[bar.get_x() + bar.get_width() / 2 for bar in bars] for bars in (first, second)]
    assert np.allclose(middle, [[0.8, 1.8, 2.8], [1.2, 2.2, 3.2]])
    assert [to_hex(bars[0].get_facecolor()).upper() for bars in (first, second)] == list(COLOURS[:2])
    assert axes.get_title() == "SVPG"
    assert axes.get_ylabel() == "return per episode"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "two"]
    table, figure = plot_histograms({"one": [np.nan, 1.0, 2.0]}, colours=["black"])
    assert np.array_equal(table, [[2.0, 1.0, np.nan]], equal_nan=True)
    assert not figure.legends  # there is nothing to tell apart
    with pytest.raises(ValueError, match="1 colours for 2 lists"):
        plot_histograms({"a": [1], "b": [2]}, colours=["black"])
    with pytest.raises(ValueError, match="nothing to draw"):
        plot_histograms({})


def test_bug_76_files_and_labels_are_where_they_belong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    observations = counting(4, 1)
    plot_trajectory(observations)
    plot_histograms({"a": [1.0]})
    assert os.listdir(tmp_path) == []  # nothing is written unless a path is given
    _, figure = plot_trajectory(observations, labels=("x [m]", "y [m]"), title="here", path="pictures/walk.png")
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("x [m]", "y [m]", "here")
    _, figure = plot_histograms({"a": [1.0]}, title="there", y_label="reward", path=tmp_path / "pictures" / "bars.png")
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("rank, best first", "reward", "there")
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == ["bars.png", "walk.png"]
    assert Image.open(tmp_path / "pictures" / "walk.png").width > 100
    for function in (plot_trajectory, plot_histograms):
        kinds = {name: parameter.kind for name, parameter in inspect.signature(function).parameters.items()}
        assert all(kinds[name] is inspect.Parameter.KEYWORD_ONLY for name in ("title", "path", "show"))


class Painted(VecEnv):
    """An environment with a picture, for films."""

    def __init__(self, env: VecEnv) -> None:
        self.env, self.spec, self.num_envs, self.device = env, env.spec, env.num_envs, env.device
        self.closed = False
        self.rewards: list[float] = []

    def reset(self, seed: Any = None) -> Any:
        return self.env.reset(seed)

    def step(self, action: torch.Tensor) -> Any:
        step = self.env.step(action)
        self.rewards.append(float(step.reward[0]))
        return step

    def render(self, index: int = 0, width: int = 640, height: int = 480) -> np.ndarray:
        return np.zeros((height, width, 3), np.uint8)

    def close(self) -> None:
        self.closed = True


class ConstantAction(Agent):
    reads = ("env/obs/pos",)
    writes = ("action",)

    def step(self, ws: Workspace, t: int) -> None:
        ws.put("action", t, torch.ones(len(ws.at("env/obs/pos", t)), 1))


def test_bug_80_a_played_episode_sums_its_rewards_and_the_default_variable_exists(tmp_path: Path) -> None:
    env = Painted(make_env("toy/pendulum", num_envs=1, max_episode_steps=7))
    shown = record_episode(env, lambda obs: torch.ones(1, 1), tmp_path / "play.mp4", size=(32, 32), seed=0)
    assert shown is not None
    assert len(env.rewards) == 7
    assert shown["return"] == pytest.approx(sum(env.rewards))
    assert shown["return"] != pytest.approx(env.rewards[-1])
    assert not env.closed  # it was not opened here
    world = EnvAgent(env.env)  # its observations are called `pos` and `vel`
    ws = Workspace()
    TemporalAgent(Agents(world.observe, ConstantAction(), world.advance))(ws, n_steps=3)
    points, _ = plot_trajectory(ws, 0, 2)
    assert np.array_equal(points, torch.cat([ws["env/obs/pos"], ws["env/obs/vel"]], -1)[..., [0, 2]].numpy())
