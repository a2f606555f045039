"""What runs on the courses came to, beside the published points: scores of every seed, curves, samples a second.

    gaitway bench course_results runs/stairs/* --out benchmarks/results/courses_stairs.json --picture stairs.png

Nothing is run: the figures are those that the runs logged. Beside the score of every evaluation (`curve`) stand means
of what was logged in training since the one before: the return of the last episodes (`train_return`), of which a fall
costs 1, and the score of a step (`train_score`). Above 0 with a curve of 0, exploration scores and the mean policy
misses; at 0 nothing was ever found. Runs of one agent on one task are a group, whatever their seeds. Rows that the file
has of other agents, tasks or seeds stay in it, each with its own commit and machine; older ones have no such means.
Published points are means of nine seeds after 1, 2.5, 5 and 7.3 million samples (Gehring et al. 2021), read off the
curves.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from _rounds import keep, machine, revision

from gaitway.analysis.figures import COLOURS, STYLE, finish, label_curves, new_figure
from gaitway.analysis.goal_spaces import task_of
from gaitway.analysis.runs import Run, load_runs

SAMPLES = (1.0e6, 2.5e6, 5.0e6, 7.3e6)
PUBLISHED: dict[str, dict[str, tuple[float, ...]]] = {
    "hurdles": {"HSD-3": (10.1, 12.8, 14.8, 16.0), "SD": (9.1, 12.2, 13.7, 14.6), "SAC": (0.0, 0.0, 0.2, 1.8)},
    "limbo": {"HSD-3": (7.7, 9.9, 11.4, 12.1), "SD": (7.6, 9.8, 10.9, 11.2), "SAC": (0.0, 0.0, 0.0, 0.0)},
    "hurdleslimbo": {"HSD-3": (7.4, 10.2, 12.0, 12.4), "SD": (6.2, 8.4, 10.2, 10.8), "SAC": (0.0, 0.0, 0.1, 0.1)},
    "gaps": {"HSD-3": (1.5, 7.2, 14.2, 16.9), "SD": (1.2, 5.7, 11.8, 14.5), "SAC": (0.0, 0.0, 0.1, 0.2)},
    "stairs": {"HSD-3": (14.0, 16.3, 15.1, 17.4), "SD": (12.0, 14.3, 15.1, 15.5), "SAC": (0.9, 3.0, 4.7, 4.7)},
    "goalwall": {"HSD-3": (0.59, 0.82, 0.91, 0.94), "SD": (0.25, 0.38, 0.40, 0.41), "SAC": (0.0, 0.0, 0.0, 0.0)},
    "polebalance": {"HSD-3": (110, 567, 790, 824), "SD": (129, 438, 676, 790), "SAC": (224, 650, 848, 845)},
}


def agent_of(run: Run) -> str:
    """The name under which the study knows it."""
    name = str(run.config.get("algorithm", {}).get("name"))
    subsets = str(run.config.get("agent", {}).get("subsets", "from_lo"))
    if name == "hsd_bandit":
        return "HSD-Bandit" if subsets == "from_lo" else "SD" if subsets.count("+") >= 2 else f"SD* {subsets}"
    known = {"hsd3": "HSD-3", "sac": "SAC", "switching": "switching ensemble", "sac_hrl": "SAC-HRL", "hiro": "HIRO"}
    return known.get(name, name)


def facts(run: Run, commit: str, beside: str | None) -> dict[str, Any]:
    score, speed = run.series("eval/score"), run.series("time/steps_per_second")
    return {
        "commit": commit, "beside": beside,
        "agent": agent_of(run), "task": task_of(run), "seed": run.seed, "folder": run.folder.name,
        "update_ratio": run.config.get("algorithm", {}).get("update_ratio"),
        "temperature_learning_rate": run.config.get("algorithm", {}).get("temperature_learning_rate"),
        "num_envs": run.config.get("env", {}).get("num_envs"),
        "steps": int(run.metrics.index[-1]) if len(run.metrics) else 0,
        "curve": [[int(step), float(value)] for step, value in score.items()],
        "train_return": between(run.series("train/return"), score.index),
        "train_score": between(run.series("env/score"), score.index),
        "score": float(score.iloc[-1]) if len(score) else None,
        "samples_per_second": float(speed.iloc[-1]) if len(speed) else None,
        "shares": {name: float(run.series(f"time/share_{name}").iloc[-1]) for name in ("simulate", "infer", "learn")
                   if len(run.series(f"time/share_{name}"))},
        "goal_spaces": {str(name).removeprefix("share/"): float(run.series(name).iloc[-1])
                        for name in run.metrics if str(name).startswith("share/")},
    }  # fmt: skip


def between(logged: pd.Series, evaluated: pd.Index) -> list[list[float]]:
    """[step, mean of what was `logged` up to it and after the one before] of every step that was `evaluated`; one
    before which nothing was logged is left out."""
    place = evaluated.searchsorted(logged.index)
    means = logged[place < len(evaluated)].groupby(place[place < len(evaluated)]).mean()
    return [[int(evaluated[number]), float(value)] for number, value in means.items()]


def with_earlier(rows: list[dict[str, Any]], known: dict[str, Any]) -> list[dict[str, Any]]:
    """These rows behind those of a file that are not theirs; what an older file says once, every row of it says."""
    own = {(row["agent"], row["task"], row["seed"]) for row in rows}
    shared = {"commit": known.get("commit"), "beside": known.get("machine", {}).get("beside")}
    others = [shared | row for row in known.get("runs", []) if (row["agent"], row["task"], row["seed"]) not in own]
    return [*others, *rows]


@mpl.rc_context(STYLE)
def picture(rows: list[dict[str, Any]], path: Path) -> None:
    """Curves of every seed, a panel per task, published means as crosses."""
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    figure = new_figure(4.4 * len(tasks), 3.4)
    for number, task in enumerate(tasks):
        axes = figure.add_subplot(1, len(tasks), number + 1)
        agents = list(dict.fromkeys(row["agent"] for row in rows if row["task"] == task))
        for agent, colour in zip(agents, COLOURS, strict=False):
            mine = [row for row in rows if row["task"] == task and row["agent"] == agent]
            for place, row in enumerate(mine):
                label = f"{agent} ({len(mine)} seeds)" if place == 0 else None
                axes.plot(*zip(*row["curve"], strict=True), color=colour, linewidth=1.2, label=label)
            points = PUBLISHED.get(task.partition("/")[2], {}).get(agent)
            last = max(row["steps"] for row in rows if row["task"] == task)
            shown = [(at, value) for at, value in zip(SAMPLES, points or (), strict=False) if at <= 1.05 * last]
            if shown:
                axes.plot(*zip(*shown, strict=True), "x", color=colour, markersize=8, label=f"{agent}, published")
        label_curves(axes, "environment steps", "score")
        axes.set_title(task)
        axes.legend(loc="best")
    finish(figure, path=path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--picture", type=Path, default=None)
    parser.add_argument("--commit", default=None, help="what to write down as the commit (default: this checkout's)")
    parser.add_argument("--machine", default=None, help="what the runs were made on (default: this machine), as JSON")
    parser.add_argument("--beside", default=None, help="what else ran there")
    parser.add_argument("--what", default=None, help="a sentence on the file")
    options = parser.parse_args()
    commit, made_on = options.commit or revision(), json.loads(options.machine) if options.machine else machine()
    rows = [facts(run, commit, options.beside) for run in load_runs(options.runs)]
    known = json.loads(options.out.read_text()) if options.out is not None and options.out.exists() else {}
    rows = with_earlier(rows, known)
    for task, agent in dict.fromkeys((row["task"], row["agent"]) for row in rows):
        mine = [row for row in rows if (row["task"], row["agent"]) == (task, agent) and row["score"] is not None]
        scores = [row["score"] for row in mine]
        if not scores:
            print(f"{task} {agent}: no evaluation")
            continue
        seeds = ", ".join(f"{row['seed']}: {row['score']:.2f} ({row['steps']:,})" for row in mine)
        known = PUBLISHED.get(task.partition("/")[2], {}).get(agent)
        beside = f"; published {known[0]:g} after 1e6" if known else ""
        print(f"{task} {agent}: mean {statistics.mean(scores):.2f}; seeds {seeds}{beside}")
    if options.out is not None:
        keep(options.out, {"benchmark": "course_results", "what": options.what, "machine": made_on, "runs": rows})
    if options.picture is not None:
        picture([row for row in rows if row["curve"]], options.picture)


if __name__ == "__main__":
    main()
