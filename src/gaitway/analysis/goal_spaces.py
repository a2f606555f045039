"""Which goal spaces a high level chose: their shares over the course of a run, and at its end task by task.

HSD-3 logs the probability of each goal space (`share/<subset>`), HSD-Bandit how often each arm was played
(`bandit/pulls/<subset>`), which is shown as a share of the episodes since the line before.
"""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from gaitway.analysis.figures import COLOURS, STYLE, label_curves, new_figure
from gaitway.analysis.runs import Run

SHOWN = 7
"""Goal spaces with a colour of their own; the others are added up."""
OTHERS, OTHERS_COLOUR = "others", "#BBBBBB"
LAST = 0.2
"""Share of a run, at its end, over which shares per task are averaged."""


def goal_space_shares(run: Run) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Steps [N] and for each goal space, by its subset of features, its share of the choices then [N]; empty for a run
    that chooses none."""
    for prefix, counts in (("share/", False), ("bandit/pulls/", True)):
        names = [str(name) for name in run.metrics if str(name).startswith(prefix)]
        if not names:
            continue
        table = np.stack([run.series(name).to_numpy(dtype=float) for name in names])
        if counts:
            table = np.diff(table, axis=1, prepend=0.0)
        total = table.sum(0)
        kept = total > 0.0
        steps = run.series(names[0]).index.to_numpy()[kept]
        shares = table[:, kept] / total[kept]
        return steps, {name.removeprefix(prefix): row for name, row in zip(names, shares, strict=True)}
    return np.zeros(0), {}


@mpl.rc_context(STYLE)
def goal_spaces_figure(run: Run) -> Figure | None:
    """Shares of the goal spaces against environment steps, one above the other; None for a run without any."""
    steps, shares = goal_space_shares(run)
    if not len(steps) or len(shares) < 2:
        return None
    bands, colours = _bands(shares, _most_chosen([shares]))
    figure = new_figure(6.4, 3.6)
    axes = figure.add_subplot()
    axes.stackplot(steps, list(bands.values()), labels=list(bands), colors=colours, linewidth=0)
    axes.set_ylim(0.0, 1.0)
    axes.margins(x=0)
    label_curves(axes, "environment steps", "share of the decisions")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), title="goal space", reverse=True)
    figure.suptitle(f"goal spaces of {run.name}, {task_of(run)}")
    return figure


@mpl.rc_context(STYLE)
def goal_spaces_by_task_figure(runs: Sequence[Run]) -> Figure | None:
    """For each task the mean shares of the goal spaces at the end of its runs; None where no run chooses any."""
    found: dict[str, list[dict[str, float]]] = {}
    for run in runs:
        steps, shares = goal_space_shares(run)
        if len(steps) and len(shares) > 1:
            late = steps >= steps[-1] - LAST * (steps[-1] - steps[0])
            found.setdefault(task_of(run), []).append({name: float(row[late].mean()) for name, row in shares.items()})
    if not found:
        return None
    names = dict.fromkeys(name for members in found.values() for each in members for name in each)
    means = {
        task: {name: np.array([np.mean([each.get(name, 0.0) for each in members])]) for name in names}
        for task, members in found.items()
    }
    shown = _most_chosen(list(means.values()))
    figure = new_figure(6.4, 1.4 + 0.5 * len(means))
    axes = figure.add_subplot()
    labels = [f"{task} ({len(found[task])} run{'s' * (len(found[task]) > 1)})" for task in means]
    left = np.zeros(len(means))
    per_task = [_bands(shares, shown) for shares in means.values()]
    for number, (name, colour) in enumerate(zip(per_task[0][0], per_task[0][1], strict=True)):
        widths = np.array([float(list(bands.values())[number][0]) for bands, _ in per_task])
        axes.barh(labels, widths, left=left, color=colour, label=name)
        left += widths
    axes.set_xlim(0.0, 1.0)
    axes.invert_yaxis()
    axes.grid(False)
    axes.set_xlabel("share of the decisions")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), title="goal space")
    figure.suptitle("goal spaces by task, last fifth of each run")
    return figure


def task_of(run: Run) -> str:
    env = run.config.get("env")
    return str(env.get("id", "")) if isinstance(env, dict) else ""


def _most_chosen(shares: Sequence[dict[str, np.ndarray]]) -> list[str]:
    names = dict.fromkeys(name for each in shares for name in each)
    mean = {name: float(np.mean([each[name].mean() for each in shares if name in each])) for name in names}
    return sorted(mean, key=lambda name: -mean[name])[:SHOWN]


def _bands(shares: dict[str, np.ndarray], shown: Sequence[str]) -> tuple[dict[str, np.ndarray], list[str]]:
    """The shares of those that are shown, of all others together, and their colours."""
    bands = {name: shares[name] for name in shown}
    rest = [row for name, row in shares.items() if name not in shown]
    colours = list(COLOURS[: len(bands)])
    if rest:
        bands[OTHERS] = np.sum(rest, axis=0)
        colours.append(OTHERS_COLOUR)
    return bands, colours
