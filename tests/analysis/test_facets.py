"""Facets: which rows end up in which panel, in which curve, and under which name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gaitway.analysis.facets import plot_dataframe
from gaitway.analysis.plots import COLOURS


def table() -> pd.DataFrame:
    """Two algorithms, two rates, two tasks, two seeds, two steps; the return says which is which."""
    rows = [
        {
            "step": step,
            "seed": seed,
            "_hp/name": name,
            "rate": rate,
            "task": task,
            "eval/return": step + 1000 * (name == "sac") + 100 * (task == "walk") + 10000 * rate + seed,
        }
        for name in ("sac", "ppo")
        for rate in (0.5, 0.25)
        for task in ("walk", "run")
        for seed in (0, 4)
        for step in (20, 10)
    ]
    return pd.DataFrame(rows)


def curves(axes: Any) -> dict[tuple[str, str], tuple[list[float], list[float]]]:
    return {(line.get_color(), line.get_linestyle()): tuple(map(list, line.get_data())) for line in axes.get_lines()}


def legend(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_hue_style_row_and_column_each_stand_for_a_column_of_the_table() -> None:
    panels, figure = plot_dataframe(table(), "eval/return", hue="_hp/name", style="rate", col="task")
    assert panels.shape == (1, 2)
    assert [axes.get_title() for axes in panels.flat] == ["task=run", "task=walk"]  # in order, not as they came
    # ppo is the first colour, sac the second; 0.25 is solid, 0.5 dashed; the mean of the seeds 0 and 4 adds 2
    assert curves(panels[0, 0]) == {
        (COLOURS[0], "-"): ([10, 20], [2512.0, 2522.0]),
        (COLOURS[0], "--"): ([10, 20], [5012.0, 5022.0]),
        (COLOURS[1], "-"): ([10, 20], [3512.0, 3522.0]),
        (COLOURS[1], "--"): ([10, 20], [6012.0, 6022.0]),
    }
    assert curves(panels[0, 1])[(COLOURS[1], "-")][1] == [3612.0, 3622.0]
    assert legend(figure) == ["name=ppo", "name=sac", "rate=0.25", "rate=0.5", "range of the runs"]
    assert panels[0, 0].get_xlabel() == "environment steps"
    assert panels[0, 0].get_ylabel() == "return per episode"
    assert panels[0, 1].get_ylabel() == ""


def test_a_list_joins_several_columns() -> None:
    panels, figure = plot_dataframe(table(), "eval/return", hue=["_hp/name", "rate"], row=["task"])
    assert panels.shape == (2, 1)
    assert legend(figure)[:2] == ["name=ppo,rate=0.25", "name=ppo,rate=0.5"]
    assert [line.get_color() for line in panels[0, 0].get_lines()] == list(COLOURS[:4])
    long = table().rename(columns={"rate": "a/very/long/name/of/a/rate", "task": "another/long/name/of/a/task"})
    panels, _ = plot_dataframe(long, "eval/return", col=["a/very/long/name/of/a/rate", "another/long/name/of/a/task"])
    first = panels[0, 0].get_title()
    assert first == "a/very/long/name/of/a/rate=0.25,\nanother/long/name/of/a/task=run"


def test_the_band_is_the_range_or_the_deviation_of_the_rows_at_one_step() -> None:
    data = pd.DataFrame({"step": [1, 1, 1, 2], "y": [1.0, 2.0, 6.0, 5.0]})

    def ends(**options: Any) -> np.ndarray:
        panels, _ = plot_dataframe(data, "y", **options)
        assert panels[0, 0].get_lines()[0].get_ydata().tolist() == [3.0, 5.0]
        (band,) = panels[0, 0].collections
        points = band.get_paths()[0].vertices
        return np.array([[points[points[:, 0] == x, 1].min(), points[points[:, 0] == x, 1].max()] for x in (1, 2)])

    assert ends().tolist() == [[1.0, 6.0], [5.0, 5.0]]
    deviation = np.sqrt((4 + 1 + 9) / 2)  # of 1, 2, 6 about 3
    assert np.allclose(ends(band="std"), [[3 - deviation, 3 + deviation], [5.0, 5.0]])
    panels, figure = plot_dataframe(data, "y", band="none")
    assert not panels[0, 0].collections
    assert not figure.legends


def test_rows_without_a_value_or_a_facet_are_left_out() -> None:
    data = pd.DataFrame(
        {"step": [1, 2, 3, 4], "y": [1.0, np.nan, 3.0, 4.0], "who": ["a", "a", None, "a"], "other": [np.nan] * 4}
    )
    panels, _ = plot_dataframe(data, "y", hue="who", band="none")
    assert curves(panels[0, 0]) == {(COLOURS[0], "-"): ([1.0, 4.0], [1.0, 4.0])}
    with pytest.raises(ValueError, match="no row of the table has all of step, y, other"):
        plot_dataframe(data, "y", hue="other")
    with pytest.raises(KeyError, match="the table has no column 'whom'; it has step, y, who, other"):
        plot_dataframe(data, "y", hue="whom")
    with pytest.raises(ValueError, match="kind is 'bar'; use 'line' or 'scatter'"):
        plot_dataframe(data, "y", kind="bar")  # type: ignore[arg-type]


def test_points_show_every_row_and_x_may_be_anything() -> None:
    panels, figure = plot_dataframe(table(), "eval/return", x="seed", hue="_hp/name", style="task", kind="scatter")
    lines = panels[0, 0].get_lines()
    assert [(line.get_color(), line.get_marker(), line.get_linestyle()) for line in lines] == [
        (COLOURS[0], "o", "None"), (COLOURS[0], "s", "None"), (COLOURS[1], "o", "None"), (COLOURS[1], "s", "None"),
    ]  # fmt: skip
    assert len(lines[0].get_xdata()) == 8
    assert panels[0, 0].get_xlabel() == "seed"
    assert legend(figure) == ["name=ppo", "name=sac", "task=run", "task=walk"]


def test_the_index_may_be_x_and_the_table_stays_as_it_is(tmp_path: Path) -> None:
    data = pd.DataFrame({"y": [1.0, 2.0], "mixed": ["a", 3]}, index=pd.Index([5, 7], name="step"))
    before = data.copy()
    panels, _ = plot_dataframe(data, "y", hue="mixed", path=tmp_path / "here.png")
    assert [
        line.get_label() for line in panels[0, 0].get_lines()
    ]  # values that cannot be sorted are drawn all the same
    assert panels[0, 0].get_lines()[0].get_marker() == "o"  # a single point would not be seen as a line
    pd.testing.assert_frame_equal(data, before)
    assert (tmp_path / "here.png").is_file()
