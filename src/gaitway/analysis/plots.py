"""Pictures of run folders: `plot_run` for one run, `plot_runs` to compare groups of runs.

One function per figure; none needs a display or touches matplotlib's global state. Colours are Okabe and Ito's palette,
which people with any colour vision can tell apart.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gaitway.analysis.aggregate import bootstrap_interval, iqm, mean
from gaitway.analysis.figures import COLOURS, STYLE, finish, label_curves, new_figure
from gaitway.analysis.goal_spaces import goal_spaces_by_task_figure, goal_spaces_figure
from gaitway.analysis.runs import Run, group_runs, load_run, load_runs

STEPS_LABEL = "environment steps"
UNITS = {"return": "return per episode", "length": "episode length [steps]", "speed": "speed [m/s]"}
"""Axis labels of the learning curve's metrics, by the part of their name after the slash."""
ENTROPY_LOSS = "loss/entropy"
"""Minus the entropy, because losses are minimised."""
BASELINES = {"zero": "--", "random": ":"}
"""What `preflight.json` has returns of -> how their lines are drawn."""
RETURNS = ("return_std", "stochastic_return")
"""What an evaluation tells about the return besides its mean."""

Estimate = Literal["iqm", "mean"]
Band = Literal["auto", "bootstrap", "minmax"]


def plot_run(run: Run | str | Path) -> list[Path]:
    """Write learning_curve.png, metrics.png, losses.png and goal_spaces.png into plots/ of a run; returns what there
    was data for."""
    run = run if isinstance(run, Run) else load_run(run)
    made = {
        "learning_curve.png": learning_curve_figure(run),
        "metrics.png": metrics_figure(run),
        "losses.png": losses_figure(run),
        "goal_spaces.png": goal_spaces_figure(run),
    }
    return [_save(figure, run.folder / "plots" / name) for name, figure in made.items() if figure is not None]


def plot_runs(
    runs: Iterable[Run | str | Path], out: str | Path, *, estimate: Estimate = "iqm", band: Band = "auto"
) -> Path:
    """Compare runs: one curve with a band per group of seeds. `out` is a PNG, or a folder for comparison.png."""
    found = [one for run in runs for one in ([run] if isinstance(run, Run) else load_runs([run]))]
    figure = comparison_figure(group_runs(found), estimate=estimate, band=band)
    path = Path(out)
    return _save(figure, path if path.suffix else path / "comparison.png")


def plot_goal_spaces(runs: Sequence[Run], out: str | Path) -> list[Path]:
    """Draw the shares of the goal spaces task by task, as goal_spaces.png beside the picture `out`; nothing where no
    run chooses goal spaces."""
    figure, place = goal_spaces_by_task_figure(runs), Path(out)
    return [] if figure is None else [_save(figure, (place.parent if place.suffix else place) / "goal_spaces.png")]


def plot_metrics(runs: Sequence[Run], names: Sequence[str], out: str | Path | None = None) -> list[Path]:
    """Draw metrics by their full names, a panel each with every run in it; by default into plots/ of each run."""
    pictures = [(runs, Path(out))] if out is not None else [([run], run.folder / "plots") for run in runs]
    stem = "+".join(name.replace("/", "_") for name in names)
    return [
        _save(chosen_figure(of, names), path if path.suffix else path / f"{stem}.png") for of, path in pictures if of
    ]


@mpl.rc_context(STYLE)
def chosen_figure(runs: Sequence[Run], names: Sequence[str]) -> Figure:
    """Chosen metrics in a panel each; runs of one group, which differ in their seed alone, have one colour."""
    figure, panels = _panels(len(names))
    for axes, name in zip(panels, names, strict=True):
        for (label, members), colour in zip(group_runs(runs).items(), itertools.cycle(COLOURS), strict=False):
            for number, run in enumerate(members):
                series = run.series(name)
                text = label if number == 0 else None
                axes.plot(series.index, series, color=colour, linewidth=1.0, label=text)
        if name.endswith("/return"):
            draw_baselines(axes, runs)
        _label(axes, name, runs)
    if len(runs) > 1:
        panels[0].legend(loc="best")
    figure.suptitle(_title(runs[0]) if len(runs) == 1 else f"{len(runs)} runs")
    return figure


@mpl.rc_context(STYLE)
def learning_curve_figure(run: Run) -> Figure | None:
    """Return, speed and episode length against environment steps, in training and in evaluation."""
    shown = [name for name in UNITS if any(len(run.series(f"{kind}/{name}")) for kind in ("train", "eval", "env"))]
    return _curves(run, shown, _title(run))


@mpl.rc_context(STYLE)
def metrics_figure(run: Run) -> Figure | None:
    """Every metric of the environment that the learning curve does not show, in a panel of its own."""
    logged = {str(name).partition("/")[2] for name in run.metrics if str(name).startswith(("env/", "eval/"))}
    return _curves(run, sorted(logged - {*UNITS, *RETURNS}), f"metrics of {_title(run)}")


@mpl.rc_context(STYLE)
def losses_figure(run: Run) -> Figure | None:
    """Every loss term in a panel of its own; the entropy itself where its negative is the loss."""
    names = sorted(name for name in run.metrics if str(name).startswith("loss/") and len(run.series(name)))
    if not names:
        return None
    figure, panels = _panels(len(names))
    for axes, name in zip(panels, names, strict=True):
        series = -run.series(name) if name == ENTROPY_LOSS else run.series(name)
        axes.plot(series.index, series, color=COLOURS[0], linewidth=1.0)
        _label(axes, name.removeprefix("loss/").replace("_", " "), [run])
    figure.suptitle(f"losses of {_title(run)}")
    return figure


@mpl.rc_context(STYLE)
def comparison_figure(
    groups: dict[str, list[Run]], *, estimate: Estimate = "iqm", band: Band = "auto", name: str = "return"
) -> Figure:
    """One curve per group: the centre of its runs, and how far they spread.

    Runs with evaluations show `eval/<name>`, and if any run of any group has none, all show `train/<name>`. A group is
    drawn where all its runs have data. The band "auto" is the bootstrap if every group has five runs or more, else the
    range of the runs.
    """
    runs = [run for members in groups.values() for run in members]
    kind = "eval" if all(len(run.series(f"eval/{name}")) for run in runs) else "train"
    empty = [str(run.folder) for run in runs if run.series(f"{kind}/{name}").empty]
    if empty:
        raise ValueError(f"no {kind}/{name} in metrics.jsonl of {', '.join(empty)}; leave them out")
    if band == "auto":
        band = "bootstrap" if all(len(members) >= 5 for members in groups.values()) else "minmax"
    centre = iqm if estimate == "iqm" else mean
    figure, (axes,) = _panels(1)
    for (label, members), colour in zip(groups.items(), itertools.cycle(COLOURS), strict=False):
        steps, values = align(members, f"{kind}/{name}")
        many = f"{len(members)} runs" if len(members) > 1 else "1 run"
        axes.plot(steps, centre(values), color=colour, label=f"{label} ({many})")
        if len(members) > 1:
            low, high = bootstrap_interval(values, centre) if band == "bootstrap" else (values.min(0), values.max(0))
            axes.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)
    if name == "return":
        draw_baselines(axes, runs)
    _label(axes, UNITS.get(name, name), runs)
    axes.legend(loc="best")
    where = "evaluation" if kind == "eval" else "training"
    middle = "interquartile mean" if estimate == "iqm" else "mean"
    spread = "95 % bootstrap interval" if band == "bootstrap" else "range of the runs"
    axes.set_title(f"{where}: {middle} and {spread}" if len(runs) > len(groups) else where)
    return figure


def align(runs: Sequence[Run], name: str) -> tuple[np.ndarray, np.ndarray]:
    """One metric of several runs at common steps: steps `[N]` and values `[runs, N]`.

    The steps are all that any run logged, within the range that every run has; between its own steps a run is
    interpolated linearly.
    """
    series = [run.series(name) for run in runs]
    first, last = max(one.index[0] for one in series), min(one.index[-1] for one in series)
    if first > last:
        raise ValueError(f"the runs share no steps of {name}: {[(r.name, *_ends(r, name)) for r in runs]}")
    steps = np.unique(np.concatenate([one.index.to_numpy() for one in series]))
    steps = steps[(steps >= first) & (steps <= last)]
    return steps, np.stack([np.interp(steps, one.index.to_numpy(), one.to_numpy()) for one in series])


def _curves(run: Run, names: Sequence[str], title: str) -> Figure | None:
    """A panel per metric with its curves in training and in evaluation."""
    if not names:
        return None
    figure, panels = _panels(len(names))
    for axes, name in zip(panels, names, strict=True):
        training = run.series(f"train/{name}")
        if training.empty:
            training = run.series(f"env/{name}")
        evaluation = run.series(f"eval/{name}")
        if len(training):
            axes.plot(training.index, training, color=COLOURS[5], linewidth=1.0, label="training, exploring")
        if len(evaluation):
            marker = "o" if len(evaluation) <= 40 else ""
            label = "evaluation, deterministic"
            axes.plot(evaluation.index, evaluation, color=COLOURS[0], marker=marker, markersize=3.5, label=label)
        if name == "return":
            draw_baselines(axes, [run])
        _label(axes, UNITS.get(name, name.replace("_", " ")), [run])
    panels[0].legend(loc="best")
    figure.suptitle(title)
    return figure


def draw_baselines(axes: Axes, runs: Sequence[Run]) -> None:
    """What zero and random actions return, as lines, where all runs have the same task."""
    if len({_task(run) for run in runs}) != 1:
        return
    for name, style in BASELINES.items():
        known = [run.baselines()[name] for run in runs if name in run.baselines()]
        if known:
            axes.axhline(float(np.mean(known)), color="0.45", linestyle=style, linewidth=1.0, label=f"{name} actions")


def _task(run: Run) -> str:
    """What is evaluated, whatever the number of instances."""
    env, evaluation = run.config.get("env"), run.config.get("evaluation")
    task = {key: value for key, value in env.items() if not key.startswith("num_")} if isinstance(env, dict) else env
    return str((task, evaluation.get("env") if isinstance(evaluation, dict) else None))


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    columns = 2 if count == 4 else min(3, count)
    rows = math.ceil(count / columns)
    width, height = (6.0, 3.6) if count == 1 else (3.4 * columns, 2.7 * rows)
    figure = new_figure(width, height)
    return figure, [figure.add_subplot(rows, columns, number + 1) for number in range(count)]


def _label(axes: Axes, what: str, runs: Sequence[Run]) -> None:
    is_offline = all("train/dataset_passes" in run.metrics for run in runs)  # a step is an update there
    label_curves(axes, "updates" if is_offline else STEPS_LABEL, what)


def _title(run: Run) -> str:
    env = run.config.get("env")
    task = env.get("id", "") if isinstance(env, dict) else ""
    seed = "" if run.seed is None else f"seed {run.seed}"
    return ", ".join(part for part in (run.name, str(task), seed) if part)


def _ends(run: Run, name: str) -> tuple[int, int]:
    index = run.series(name).index
    return int(index[0]), int(index[-1])


def _save(figure: Figure, path: Path) -> Path:
    finish(figure, path=path)
    return path
