"""Pictures of comparisons: two learning curves with dots where they differ, the scores of two groups, profiles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from numpy.typing import ArrayLike

from gaitway.analysis.aggregate import Interval
from gaitway.analysis.compare import Comparison, CurveComparison
from gaitway.analysis.figures import finish, label_curves, legend_below, new_figure
from gaitway.analysis.plots import COLOURS, STEPS_LABEL, STYLE, UNITS

MARKERS = ("o", "s")
"""Shapes of the two groups, so that colour is not all that tells them apart."""
LINES = ("-", "--", "-.", ":")


@mpl.rc_context(STYLE)
def curves_figure(
    curves: CurveComparison,
    labels: tuple[str, str],
    *,
    x_label: str = STEPS_LABEL,
    y_label: str = UNITS["return"],
    path: str | Path | None = None,
    show: bool = False,
) -> Figure:
    """Two curves with their bands, and black dots above them at the steps where they differ significantly."""
    figure = new_figure(6.0, 3.9, show=show)
    axes = figure.add_subplot()
    _draw_curves(axes, curves, labels, x_label, y_label)
    legend_below(figure, *axes.get_legend_handles_labels())
    return finish(figure, path=path, show=show)


@mpl.rc_context(STYLE)
def comparison_figure(
    found: Comparison,
    *,
    x_label: str = STEPS_LABEL,
    y_label: str | None = None,
    path: str | Path | None = None,
    show: bool = False,
) -> Figure:
    """The curves of two groups, if they have any, beside the score of every run with the interval of the centre."""
    y_label = y_label or UNITS.get(found.metric.rpartition("/")[2], found.metric)
    figure = new_figure(7.6 if found.curves is not None else 4.0, 4.0, show=show)
    if found.curves is None:
        scores = figure.add_subplot()
    else:
        left, scores = figure.subplots(1, 2, width_ratios=(2.2, 1.0))
        _draw_curves(left, found.curves, found.labels, x_label, y_label)
    _draw_scores(scores, found, y_label if found.curves is None else "")
    legend_below(figure, *figure.axes[0].get_legend_handles_labels())
    return finish(figure, path=path, show=show)


@mpl.rc_context(STYLE)
def profile_figure(
    profiles: Mapping[str, Interval],
    thresholds: ArrayLike,
    *,
    x_label: str = "score",
    path: str | Path | None = None,
    show: bool = False,
) -> Figure:
    """Performance profiles, one line with its band per algorithm: the fraction of runs above each score."""
    figure = new_figure(6.0, 3.9, show=show)
    axes = figure.add_subplot()
    levels = np.asarray(thresholds)
    for number, (label, profile) in enumerate(profiles.items()):
        colour, line = COLOURS[number % len(COLOURS)], LINES[number % len(LINES)]
        axes.plot(levels, profile.value, color=colour, linestyle=line, label=label)
        axes.fill_between(levels, profile.low, profile.high, color=colour, alpha=0.2, linewidth=0)
    axes.set_xlabel(x_label)
    axes.set_ylabel("fraction of runs above it")
    axes.set_ylim(-0.03, 1.03)
    axes.margins(x=0.02)
    legend_below(figure, *axes.get_legend_handles_labels())
    return finish(figure, path=path, show=show)


def dot_height(curves: CurveComparison) -> float:
    """Where the dots of significance go: 5 % of the range of the values above the highest of them."""
    ends = [part for one in (curves.first, curves.second) for part in (one.centre, one.low, one.high)]
    values = np.concatenate(ends)
    if np.isnan(values).all():
        return 0.0
    top, bottom = float(np.nanmax(values)), float(np.nanmin(values))
    return top + 0.05 * ((top - bottom) or max(abs(top), 1.0))


def _draw_curves(axes: Axes, curves: CurveComparison, labels: tuple[str, str], x_label: str, y_label: str) -> None:
    for number, (label, one) in enumerate(zip(labels, (curves.first, curves.second), strict=True)):
        axes.plot(curves.steps, one.centre, color=COLOURS[number], linestyle=LINES[number], label=label)
        axes.fill_between(curves.steps, one.low, one.high, color=COLOURS[number], alpha=0.2, linewidth=0)
    where = curves.steps[curves.significant]
    if len(where):
        corrected = "" if curves.correction == "none" else f", {curves.correction.capitalize()} corrected"
        label = f"p < {curves.alpha:g}{corrected}"
        height = np.full(len(where), dot_height(curves))
        axes.plot(where, height, "o", color="black", markersize=3.5, linestyle="none", label=label)
    axes.set_title(_describe(curves))
    label_curves(axes, x_label, y_label)


def _draw_scores(axes: Axes, found: Comparison, y_label: str) -> None:
    for number, (label, scores, centre) in enumerate(zip(found.labels, found.scores, found.centres, strict=True)):
        colour = COLOURS[number]
        spread = np.linspace(-0.12, 0.12, len(scores)) if len(scores) > 1 else np.zeros(1)
        places, marker = number - 0.1 + spread, MARKERS[number]
        axes.plot(places, scores, marker, color=colour, alpha=0.6, markersize=4, label=f"{label}: runs")
        ends = [[centre.value - centre.low], [centre.high - centre.value]]
        axes.errorbar(
            [number + 0.2], [centre.value], ends, fmt="D", color="black", ecolor=colour, elinewidth=2.2, capsize=4,
            markersize=4,
        )  # fmt: skip
    axes.set_xticks([0, 1], [f"{len(scores)} runs" if len(scores) > 1 else "1 run" for scores in found.scores])
    axes.set_xlim(-0.5, 1.5)
    axes.set_ylabel(y_label)
    axes.grid(visible=False, axis="x")
    where = "" if found.at is None else f"at step {EngFormatter(sep='')(float(f'{found.at:.3g}'))}: "
    axes.set_title(f"{where}p = {found.p_value:.2g}")
    axes.set_xlabel(f"diamond: interquartile mean,\n{100 * (1 - found.alpha):g} % interval")


def _describe(curves: CurveComparison) -> str:
    centre = {"iqm": "interquartile mean"}.get(curves.central, curves.central)
    band = {"std": "standard deviation", "sem": "standard error"}.get(
        str(curves.error), f"{curves.error} % of the runs"
    )
    return f"{centre} and {band}"
