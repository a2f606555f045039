"""Where episodes went, and what they brought: lines through two dimensions of the observations, bars of returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike
from torch import Tensor

from gaitway.analysis.figures import distinct_colours, finish, legend_below, new_figure
from gaitway.analysis.plane import as_array, stored
from gaitway.analysis.plots import COLOURS, STYLE, UNITS
from gaitway.core.workspace import Workspace

FINAL = "env/final_obs/"
MAX_NAMED_COLUMNS = 8


@mpl.rc_context(STYLE)
def plot_trajectory(
    data: Workspace | Tensor | np.ndarray,
    x: int = 0,
    y: int = 1,
    *,
    group: str | Sequence[str] | None = None,
    done: Any = None,
    labels: tuple[str, str] | None = None,
    title: str = "trajectories",
    path: str | Path | None = None,
    show: bool = False,
) -> tuple[np.ndarray, Figure]:
    """Dimensions `x` and `y` of observations over time, `[T, B, 2]`; a line per episode, a colour per column.

    `data` is observations `[T, B, D]` or a Workspace, of which `group` is drawn: the observation groups of these names
    side by side, else `policy`, else all. `done` `[T, B]` is true in the
    rows in which an episode ends: the row after it begins the next one and no line leads there. In a Workspace that is
    `env/done`, and where `env/final_obs/...` is stored too, the line goes on to the state that was really reached.
    Circles are starts, crosses are ends.
    """
    final = None
    if isinstance(data, Workspace):
        observations = as_array(stored(data, group))
        if any(name.startswith(FINAL) for name in data):
            final = as_array(stored(data, group, FINAL))
        done = data["env/done"] if done is None and "env/done" in data else done
    else:
        observations = as_array(data)
    if observations.ndim != 3:
        raise ValueError(f"observations are {list(observations.shape)}; they must be [T, B, D]")
    rows, columns, size = observations.shape
    for which in (x, y):
        if not 0 <= which < size:
            raise ValueError(f"there is no dimension {which}; the observations have 0 to {size - 1}")
    ends = _ends(done, rows, columns)
    points = observations[:, :, [x, y]].astype(np.float64)
    figure = new_figure(4.8, 4.4, show=show)
    axes = figure.add_subplot()
    for column, colour in enumerate(distinct_colours(columns)):
        for episode, is_over in _episodes(points, ends, final, (x, y), column):
            axes.plot(*episode.T, color=colour, linewidth=1.2)
            axes.plot(*episode[0], "o", color=colour, markersize=5, markeredgecolor="white", zorder=5)
            if is_over:
                axes.plot(*episode[-1], "x", color=colour, markersize=5, markeredgewidth=1.4, zorder=5)
    axes.set_xlabel(labels[0] if labels else f"observation[{x}]")
    axes.set_ylabel(labels[1] if labels else f"observation[{y}]")
    axes.set_title(title)
    _trajectory_legend(figure, columns, bool(ends.any()))
    return points, finish(figure, path=path, show=show)


@mpl.rc_context(STYLE)
def plot_histograms(
    returns: Mapping[str, ArrayLike],
    *,
    colours: Sequence[str] | None = None,
    title: str = "",
    x_label: str = "rank, best first",
    y_label: str = UNITS["return"],
    path: str | Path | None = None,
    show: bool = False,
) -> tuple[np.ndarray, Figure]:
    """Grouped bars of several lists of returns, each sorted from the best down; returns them so, `[lists, N]`.

    Ranks that a shorter list does not have are NaN and have no bar; so are values that are NaN, which come last.
    """
    if not returns:
        raise ValueError("there is nothing to draw; pass {name: returns, ...}")
    lists = [np.sort(np.asarray(values, np.float64).reshape(-1)) for values in returns.values()]  # NaN goes last
    sorted_down = [np.concatenate([part[~np.isnan(part)][::-1], part[np.isnan(part)]]) for part in lists]
    count = max(len(part) for part in sorted_down)
    table = np.stack([np.pad(part, (0, count - len(part)), constant_values=np.nan) for part in sorted_down])
    colours = list(colours) if colours is not None else distinct_colours(len(lists))
    if len(colours) != len(lists):
        raise ValueError(f"{len(colours)} colours for {len(lists)} lists; pass one for each, or none")
    figure = new_figure(min(9.0, 2.6 + 0.28 * count * max(1, len(lists) / 2)), 3.6, show=show)
    axes = figure.add_subplot()
    width = 0.8 / len(lists)
    ranks = np.arange(1, count + 1)
    for number, (name, values, colour) in enumerate(zip(returns, table, colours, strict=True)):
        place = ranks + (number - (len(lists) - 1) / 2) * width
        axes.bar(place, values, width, color=colour, label=name, hatch=("", "///", "...", "xx")[number % 4],
                 edgecolor="white", linewidth=0.4)  # fmt: skip
    axes.axhline(0.0, color="black", linewidth=0.8)
    axes.set_xlim(0.4, count + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=20 if count <= 20 else 10, integer=True, min_n_ticks=1))
    axes.grid(visible=False, axis="x")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.set_title(title)
    if len(lists) > 1:
        legend_below(figure, *axes.get_legend_handles_labels())
    return table, finish(figure, path=path, show=show)


def _ends(done: Any, rows: int, columns: int) -> np.ndarray:
    """True where an episode ends, bool `[rows, columns]`; steps may be one row fewer than observations."""
    ends = np.zeros((rows, columns), bool)
    if done is not None:
        given = as_array(done).astype(bool)
        if given.ndim != 2 or given.shape[1] != columns or given.shape[0] not in (rows, rows - 1):
            raise ValueError(f"done is {list(given.shape)}; it must be [{rows}, {columns}] or one row fewer")
        ends[: len(given)] = given
    return ends


def _episodes(
    points: np.ndarray, ends: np.ndarray, final: np.ndarray | None, dims: tuple[int, int], column: int
) -> Iterator[tuple[np.ndarray, bool]]:
    """The points `[n, 2]` of each episode of one column, and whether it ended."""
    start = 0
    for row in [*np.flatnonzero(ends[:, column]).tolist(), None]:
        episode = points[start : None if row is None else row + 1, column]
        if row is not None and final is not None and row < len(final):
            episode = np.concatenate([episode, final[row : row + 1, column, list(dims)]])
        if len(episode):
            yield episode, row is not None
        start = len(points) if row is None else row + 1


def _trajectory_legend(figure: Figure, columns: int, has_ends: bool) -> None:
    handles: list[Line2D] = []
    labels: list[str] = []
    if 1 < columns <= MAX_NAMED_COLUMNS:
        handles = [Line2D([], [], color=colour) for colour in distinct_colours(columns)]
        labels = [f"column {column}" for column in range(columns)]
    for marker, label in (("o", "start"), ("x", "end"))[: 1 + has_ends]:
        handles.append(Line2D([], [], color=COLOURS[6], marker=marker, linestyle="none", markersize=4))
        labels.append(label)
    legend_below(figure, handles, labels)
