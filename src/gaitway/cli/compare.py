"""`gaitway compare A B`: do two groups of runs differ, by how much, and where along their curves?

Nothing that trains is imported, and what computes only when the command runs, so that the parser stays quick.
"""

from __future__ import annotations

import argparse
import glob
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from gaitway.analysis.compare import Comparison, CurveComparison
    from gaitway.analysis.groups import Group
    from gaitway.analysis.runs import Run

TESTS = ("welch", "t", "mann-whitney", "ranked-t", "bootstrap", "permutation")
FILES = (".txt", ".csv", ".npy", ".npz")
FEW = 5
"""Runs below which bootstrap intervals are known to be too narrow."""


def add_parser(commands: Any) -> None:
    """Add `compare` to the subparsers of the command line."""
    parser = commands.add_parser(
        "compare",
        help="test whether two groups of runs differ",
        description="Compare two groups: gaitway compare runs/ppo runs/sac, or gaitway compare 'runs/ppo_*' sac.csv",
        epilog="Files are .txt, .csv, .npy or .npz of shape [steps, runs], or [runs]: one score each. A CSV column or "
        "an NPZ array called `step` holds the steps. docs/statistics.md explains tests and intervals.",
    )
    what = "run folder, folder of runs, quoted glob of them, or file of numbers"
    parser.add_argument("first", metavar="A", help=what)
    parser.add_argument("second", metavar="B", help=what)
    parser.add_argument("--metric", default=None, help="default: return, of evaluations where there are any")
    parser.add_argument("--test", choices=TESTS, default="welch", help="default: welch")
    parser.add_argument("--alpha", type=float, default=0.05, help="level of the test, intervals are for 1 - alpha")
    parser.add_argument(
        "--correction", choices=("none", "bonferroni", "holm"), default="holm", help="along the curve; default: holm"
    )
    parser.add_argument(
        "--at", type=float, default=None, metavar="STEP", help="default: the last that all runs reached"
    )
    parser.add_argument("--last", type=int, default=1, metavar="N", help="average the last N values up to that step")
    parser.add_argument("--central", choices=("iqm", "median", "mean"), default="iqm", help="line of the curves")
    parser.add_argument("--error", default="80", help="band of the curves: percentage of the runs, std or sem")
    parser.add_argument("--downsample", type=int, default=None, metavar="N", help="test at every N-th step")
    parser.add_argument("--point-every", type=float, default=1, metavar="N", help="steps from row to row of a file")
    parser.add_argument("--labels", nargs=2, default=None, metavar=("A", "B"), help="names of the groups")
    parser.add_argument("--out", default="compare.png", metavar="FILE", help="picture; the numbers go to FILE.json")
    parser.add_argument("--json", action="store_true", help="print the numbers instead of the table")
    parser.set_defaults(command="compare")


def compare(options: argparse.Namespace) -> int:
    """Print a table and a verdict, write the picture and the numbers; 0 whatever the verdict."""
    from gaitway.analysis.compare import compare_groups
    from gaitway.analysis.comparison_figures import comparison_figure
    from gaitway.analysis.stats import make_test

    picture = Path(options.out)
    if picture.suffix in ("", ".json"):
        picture = picture.with_suffix(".png") if picture.suffix else picture / "compare.png"
    first, second, metric, notes = read_groups(options)
    found = compare_groups(
        first,
        second,
        make_test(options.test),
        metric=metric,
        alpha=options.alpha,
        correction=options.correction,
        central=options.central,
        error=options.error,
        at=options.at,
        last=options.last,
        downsample=options.downsample,
    )
    files = all(Path(text).suffix.lower() in FILES for text in (options.first, options.second))
    comparison_figure(found, x_label="step" if files else "environment steps", path=picture)
    numbers = picture.with_suffix(".json")
    content = found.to_dict()
    numbers.write_text(json.dumps(content, indent=1) + "\n")
    if options.json:
        print(json.dumps(content))
    else:
        show(found, notes)
        print(f"\n{picture}\n{numbers}")
    return 0


def read_groups(options: argparse.Namespace) -> tuple[Group, Group, str, list[str]]:
    """Both groups, the full name of the metric, and what the reader should know about the groups."""
    from gaitway.analysis.groups import Group, find_metric
    from gaitway.analysis.tables import Runs

    found = [find(text, options.metric) for text in (options.first, options.second)]
    labels = options.labels or distinct(options.first, options.second)
    of_group = [one if isinstance(one, list) else [] for one in found]
    shared = {run.folder.resolve() for run in of_group[0]} & {run.folder.resolve() for run in of_group[1]}
    if shared:
        raise ValueError(f"{min(shared)} is in both groups; name groups that have no run in common")
    runs = [*of_group[0], *of_group[1]]
    metric = find_metric(runs, options.metric or "return") if runs else options.metric or "value"
    groups, notes = [], []
    for label, one in zip(labels, found, strict=True):
        if isinstance(one, list):
            groups.append(Group.from_runs(label, one, metric))
            differing = list(Runs(one).differing())
            if differing:
                notes.append(f"note: the runs of {label} differ in more than the seed: {', '.join(differing[:5])}")
        else:
            groups.append(Group.from_array(label, one[0], steps=one[1], point_every=options.point_every))
    return groups[0], groups[1], metric, notes


def find(text: str, metric: str | None) -> list[Run] | tuple[np.ndarray, np.ndarray | None]:
    """What an argument stands for: runs, or an array with the steps of its rows if it names them."""
    from gaitway.analysis.arrays import read_array
    from gaitway.analysis.runs import load_runs

    matches = [Path(text)] if Path(text).exists() else [Path(match) for match in sorted(glob.glob(text))]
    if not matches:
        from gaitway.core.run_names import nearest_runs

        near = nearest_runs(text)
        raise ValueError(f"there is nothing at {text}{near}; name a run folder, a folder of runs, a glob or a file")
    files = [path for path in matches if path.is_file() and path.suffix.lower() in FILES]
    if len(files) == 1 and len(matches) == 1:
        return read_array(files[0], metric)
    folders = [path for path in matches if path.is_dir()]
    if files and not folders:
        raise ValueError(f"{text} matches {len(files)} files; give one file with a column for each run")
    if not folders:
        raise ValueError(f"{text} is neither a folder nor a file that ends with {', '.join(FILES)}")
    return load_runs(folders)


def show(found: Comparison, notes: Sequence[str] = ()) -> None:
    """The table, what it means, and where the curves differ."""
    from rich.table import Table

    from gaitway.core.terminal import Terminal

    console = Terminal(highlight=False, markup=False, soft_wrap=True, width=None if sys.stdout.isatty() else 160)
    percent = f"{100 * (1 - found.alpha):g} % interval"
    where = "" if found.at is None else f" at step {found.at:,.0f}"
    console.print(f"{found.metric}{where}\n")
    table = Table("", "runs", "mean", "lowest", "highest", "interquartile mean", percent, box=None, pad_edge=False)
    for label, scores, centre in zip(found.labels, found.scores, found.centres, strict=True):
        numbers = (scores.mean(), scores.min(), scores.max(), centre.value)
        table.add_row(label, str(len(scores)), *(f"{number:.4g}" for number in numbers), _ends(centre))
    console.print(table, soft_wrap=False)
    if min(len(scores) for scores in found.scores) < FEW:
        console.print(f"(with fewer than {FEW} runs the intervals of interquartile means are too narrow)")
    first, second = found.labels
    difference, chance = found.difference, found.improvement
    console.print(f"\n{second} minus {first}: {difference.value:.4g} on average, {percent} {_ends(difference)}")
    overlap = f"{percent} {_ends(chance)}" if 0.0 < chance.value < 1.0 else "the groups do not overlap"
    console.print(f"chance that a run of {second} is above one of {first}: {chance.value:.2f}, {overlap}")
    if found.p_value == found.p_value:  # not NaN: there was something to test
        console.print(f"{found.test.label[0].upper()}{found.test.label[1:]}: p = {found.p_value:.3g}")
    if found.left_out:
        console.print(f"left out, because they have no value{where}: {', '.join(found.left_out)}")
    if found.curves is not None and (found.curves.p_values == found.curves.p_values).any():
        console.print(_along(found.curves))
    for note in notes:
        console.print(note)
    console.print(f"\n{found.sentence}")


def distinct(first: str, second: str) -> tuple[str, str]:
    """Short labels for two arguments: their last parts, or all of them where those are equal."""
    short = [Path(text).stem if Path(text).suffix.lower() in FILES else Path(text).name for text in (first, second)]
    if all(short) and short[0] != short[1]:
        return short[0], short[1]
    return (first, second) if first != second else (f"{first} (A)", f"{second} (B)")


def _along(curves: CurveComparison) -> str:
    import numpy as np

    tested, steps = int(np.sum(~np.isnan(curves.p_values))), curves.steps[curves.significant]
    corrected = "without correction" if curves.correction == "none" else f"{curves.correction.capitalize()} corrected"
    if not len(steps):
        return f"Along the curve: no difference at any of {tested} steps, {corrected}"
    span = f"from step {steps[0]:,.0f} to {steps[-1]:,.0f}" if len(steps) > 1 else f"at step {steps[0]:,.0f}"
    return f"Along the curve: different at {len(steps)} of {tested} steps, {span}, {corrected}"


def _ends(interval: Any) -> str:
    if interval.low != interval.low:  # NaN: one run
        return "-"
    return f"{interval.low:.4g} to {interval.high:.4g}"
