"""What pictures have in common: how a figure begins, how it ends, and where its legend goes.

A figure is drawn off screen, is written only where a path is given, and opens a window only when that is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from gaitway.analysis.plots import COLOURS, STYLE


def new_figure(width: float, height: float, *, show: bool = False) -> Figure:
    """An empty figure of this size in inches; only one that is to be shown has to do with a screen."""
    if show:
        from matplotlib import pyplot  # which chooses a backend for the whole process

        return pyplot.figure(figsize=(width, height))
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def finish(figure: Figure, *, path: str | Path | None = None, show: bool = False) -> Figure:
    """Write the figure to `path` (PNG, PDF, SVG by its ending), making the folders above it, and show it if asked."""
    if path is not None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path if path.suffix else path.with_name(path.name + ".png"), dpi=STYLE["savefig.dpi"])
    if show:
        from matplotlib import pyplot

        pyplot.show()
    return figure


def distinct_colours(count: int) -> list[str]:
    """`count` colours that people with any colour vision can tell apart; from nine on, a scale from dark to light."""
    if count <= len(COLOURS):
        return list(COLOURS[:count])
    scale = mpl.colormaps["viridis"]
    return [to_hex(scale(index / (count - 1))) for index in range(count)]


def legend_below(figure: Figure, handles: Sequence[Any], labels: Sequence[str], title: str | None = None) -> None:
    """A legend under everything, where nothing can lie under it, in as many columns as fit."""
    if not handles:
        return
    widest = max(len(label) for label in labels) + 5  # the sample of a line and the gap behind it
    columns = max(1, min(len(labels), int(figure.get_figwidth() * 13.5) // widest))
    rows = -(-len(labels) // columns)
    columns = -(-len(labels) // rows)  # the same number of rows, evenly filled
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, title=title)
