"""What pictures have in common: how a figure begins, how it ends, and where its legend goes.

A figure is drawn off screen, is written only where a path is given, and opens a window only when that is asked for.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import EngFormatter, MaxNLocator

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
STYLE: Any = {
    "text.parse_math": False,  # names of runs and metrics are text, whatever signs they hold
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "savefig.dpi": 160,
}


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
        path = Path(path) if Path(path).suffix else Path(f"{path}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        for text in figure.findobj(Text):  # names of folders may hold bytes that are no text
            if not text.get_text().isascii():
                text.set_text(text.get_text().encode(errors="replace").decode())
        partial = path.with_name(f".{path.stem}.partial{path.suffix}")
        try:  # a full disk leaves no half of a picture
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Glyph .* missing")  # a sign that the font lacks is a box
                figure.savefig(partial, dpi=STYLE["savefig.dpi"])
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
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


def label_curves(axes: Axes, x_label: str, y_label: str) -> None:
    """Axes of curves over steps, which are shown as 1M, 2M, ..."""
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.margins(x=0.02)


def legend_below(figure: Figure, handles: Sequence[Any], labels: Sequence[str], title: str | None = None) -> None:
    """A legend under everything, where nothing can lie under it, in as many columns as fit."""
    if not handles:
        return
    widest = max(len(label) for label in labels) + 5  # the sample of a line and the gap behind it
    columns = max(1, min(len(labels), int(figure.get_figwidth() * 13.5) // widest))
    rows = -(-len(labels) // columns)
    columns = -(-len(labels) // rows)  # the same number of rows, evenly filled
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, title=title)
