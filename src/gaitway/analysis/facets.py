"""Curves of many runs from one table: colour, line style, rows and columns of panels each stand for something.

The table is a pandas DataFrame with one row per run and step, such as `Runs.read("runs").frame()` gives.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, MaxNLocator

from gaitway.analysis.figures import distinct_colours, finish, legend_below, new_figure
from gaitway.analysis.plots import STEPS_LABEL, STYLE, UNITS

Facet = str | Sequence[str] | None
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 3)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


@mpl.rc_context(STYLE)
def plot_dataframe(
    table: pd.DataFrame,
    y: str,
    x: str = "step",
    *,
    hue: Facet = None,
    style: Facet = None,
    row: Facet = None,
    col: Facet = None,
    kind: Literal["line", "scatter"] = "line",
    band: Literal["range", "std", "none"] = "range",
    x_label: str | None = None,
    y_label: str | None = None,
    path: str | Path | None = None,
    show: bool = False,
) -> tuple[np.ndarray, Figure]:
    """One panel per value of `row` and `col`, one curve per value of `hue` and `style`; returns the axes `[R, C]`.

    Each of the four is a column of the table or a list of columns, whose values are joined as `a=1,b=2`. Rows without
    `y` or without one of these are left out. A line is the mean of the rows with the same x, its band their range or
    standard deviation; `kind="scatter"` draws every row as a point.
    """
    if kind not in ("line", "scatter"):
        raise ValueError(f"kind is {kind!r}; use 'line' or 'scatter'")
    facets = {"hue": _names(hue), "style": _names(style), "row": _names(row), "col": _names(col)}
    data = _complete_rows(table, x, y, facets)
    values = {}
    for name, names in facets.items():
        data[f"__{name}"] = _labels(data, names)
        values[name] = _ordered(data, names, f"__{name}")
    look = _Looks(values["hue"], values["style"])
    rows, columns = len(values["row"]), len(values["col"])
    figure = new_figure(max(4.6, 3.0 * columns + 0.8), 2.5 * rows + 1.2, show=show)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for (i, row_value), (j, col_value) in itertools.product(enumerate(values["row"]), enumerate(values["col"])):
        axes = panels[i, j]
        inside = data[(data["__row"] == row_value) & (data["__col"] == col_value)]
        for hue_value, style_value in itertools.product(values["hue"], values["style"]):
            part = inside[(inside["__hue"] == hue_value) & (inside["__style"] == style_value)]
            if len(part):
                _draw(
                    axes, part[x].to_numpy(float), part[y].to_numpy(float), kind, band, look.of(hue_value, style_value)
                )
        axes.set_title(_wrapped([row_value, col_value]), fontsize=9)
        if i == rows - 1:
            axes.set_xlabel(x_label or (STEPS_LABEL if x == "step" else _plain(x)))
        if j == 0:
            axes.set_ylabel(y_label or UNITS.get(y.rpartition("/")[2], _plain(y)))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4))
        axes.margins(x=0.03)
    handles, labels = look.legend(kind)
    if any(axes.collections for axes in panels.flat):
        handles.append(Patch(color="0.3", alpha=0.2, linewidth=0))
        labels.append("range of the runs" if band == "range" else "standard deviation of the runs")
    legend_below(figure, handles, labels)
    return panels, finish(figure, path=path, show=show)


class _Looks:
    """Colour by hue, line and marker by style."""

    def __init__(self, hues: list[str], styles: list[str]) -> None:
        self.colours = dict(zip(hues, distinct_colours(len(hues)), strict=True))
        self.lines = dict(zip(styles, itertools.cycle(LINES), strict=False))
        self.markers = dict(zip(styles, itertools.cycle(MARKERS), strict=False))

    def of(self, hue: str, style: str) -> dict[str, Any]:
        return {"color": self.colours[hue], "linestyle": self.lines[style], "marker": self.markers[style]}

    def legend(self, kind: str) -> tuple[list[Artist], list[str]]:
        """A line for every hue and for every style, not for every pair of them."""
        handles: list[Artist] = []
        labels: list[str] = []
        plain = {"marker": ""} if kind == "line" else {"linestyle": "none"}
        first_hue, first_style = next(iter(self.colours)), next(iter(self.lines))
        for hue in self.colours:
            if hue:
                handles.append(Line2D([], [], markersize=4, **self.of(hue, first_style) | plain))
                labels.append(hue)
        for style in self.lines:
            if style:
                handles.append(Line2D([], [], markersize=4, **self.of(first_hue, style) | plain | {"color": "0.3"}))
                labels.append(style)
        return handles, labels


def _draw(axes: Axes, x: np.ndarray, y: np.ndarray, kind: str, band: str, look: dict[str, Any]) -> None:
    if kind == "scatter":
        axes.plot(x, y, markersize=3.5, alpha=0.7, markeredgewidth=0, **look | {"linestyle": "none"})
        return
    places, groups = _by_place(x, y)
    centre = np.array([group.mean() for group in groups])
    marker = look["marker"] if len(places) == 1 else ""
    axes.plot(places, centre, **look | {"marker": marker})
    if band != "none" and any(len(group) > 1 for group in groups):
        if band == "range":
            low, high = np.array([group.min() for group in groups]), np.array([group.max() for group in groups])
        else:
            deviation = np.array([group.std(ddof=1) if len(group) > 1 else 0.0 for group in groups])
            low, high = centre - deviation, centre + deviation
        axes.fill_between(places, low, high, color=look["color"], alpha=0.2, linewidth=0)


def _by_place(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """The distinct x in ascending order, and for each the values y there."""
    order = np.argsort(x, kind="stable")
    places, starts = np.unique(x[order], return_index=True)
    return places, np.split(y[order], starts[1:])


def _complete_rows(table: pd.DataFrame, x: str, y: str, facets: dict[str, list[str]]) -> pd.DataFrame:
    """A copy of the columns that are needed, without rows that lack one of them."""
    if x not in table and table.index.name == x:
        table = table.reset_index()
    needed = list(dict.fromkeys([x, y, *itertools.chain.from_iterable(facets.values())]))
    unknown = [name for name in needed if name not in table]
    if unknown:
        raise KeyError(f"the table has no column {unknown[0]!r}; it has {', '.join(map(str, table.columns))}")
    data = table[needed].dropna()
    if data.empty:
        raise ValueError(f"no row of the table has all of {', '.join(needed)}; nothing is left to draw")
    return data.copy()


def _labels(data: pd.DataFrame, names: list[str]) -> list[str]:
    if not names:
        return [""] * len(data)
    rows = data[names].itertuples(index=False, name=None)
    return [",".join(f"{_plain(n)}={_text(v)}" for n, v in zip(names, values, strict=True)) for values in rows]


def _ordered(data: pd.DataFrame, names: list[str], label: str) -> list[str]:
    """The labels of one facet, in the order of the values they stand for."""
    if names:
        with contextlib.suppress(TypeError):  # values that cannot be compared stay in the order of the table
            data = data.sort_values(names, kind="stable")
    return list(dict.fromkeys(data[label]))


def _wrapped(labels: Sequence[str], width: int = 34) -> str:
    """Labels below each other, broken between their parts where they are too wide for a panel."""
    lines: list[str] = []
    for label in filter(None, labels):
        lines.append("")
        for part in label.split(","):
            if lines[-1] and len(lines[-1]) + len(part) + 2 > width:
                lines[-1] += ","
                lines.append("")
            lines[-1] += (", " if lines[-1] else "") + part
    return "\n".join(lines)


def _names(facet: Facet) -> list[str]:
    return [] if facet is None else [facet] if isinstance(facet, str) else list(facet)


def _plain(name: str) -> str:
    """The name of a column as one reads it: hyper-parameters without their mark."""
    return name.removeprefix("_hp/")


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
