"""The page docs/results.md, from the raw files in benchmarks/results/ alone.

    gaitway bench results            writes docs/results.md anew
    gaitway bench results --check    says whether it is what the raw files say

Run it after a raw file was added or changed. Files of other kinds than those below are left alone: what is measured
there has a page of its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from scipy.stats import t as student

ROOT = Path(__file__).resolve().parent.parent
RAW, PAGE = ROOT / "benchmarks" / "results", ROOT / "docs" / "results.md"


class Row(NamedTuple):
    """What one algorithm reached on one task."""

    algorithm: str
    task: str
    """A preset, or an environment."""
    steps: int
    seeds: tuple[int, ...]
    returns: tuple[float, ...]
    """Deterministic returns at the end, one per seed."""
    seconds: tuple[float, ...]
    machine: str
    commit: str
    command: str
    published: str = ""
    beside: str = ""
    """What another library reached in the same benchmark."""

    def cells(self, file: str) -> list[str]:
        rate = statistics.mean(self.steps / each for each in self.seconds if each) if any(self.seconds) else 0.0
        return [
            self.algorithm,
            f"`{self.task}`",
            f"{self.steps:,}",
            ", ".join(shortened(value, 4) for value in self.returns),
            interval(self.returns),
            f"{rate:,.0f}" if rate else "",
            self.machine,
            f"`{self.commit[:9].split()[0]}`" + " with changes" * ("with changes" in self.commit),
            f"`{self.command}`",
            "; ".join(part for part in (self.beside, self.published) if part),
            f"`{file}`",
        ]


def interval(values: tuple[float, ...]) -> str:
    """The mean and its 95 % interval by Student's t; the mean alone of one seed."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return shortened(mean, 4)
    half = float(student.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    return f"{shortened(mean, 4)} ± {shortened(half, 2)}"


def shortened(value: float, digits: int) -> str:
    return f"{value:.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def in_words(machine: dict[str, Any]) -> str:
    parts = [f"{machine.get('cores', '?')} cores {machine.get('processor', '')}".strip(), machine.get("gpu", "")]
    return ", ".join(part for part in parts if part)


def published(name: str) -> str:
    """The published figure for a preset or file, with its source."""
    found = json.loads((RAW / "published.json").read_text(encoding="utf-8")).get(name)
    return "" if found is None else f"published: {found['figure']}, [{found['source']}]({found['address']})"


def learning(raw: dict[str, Any], name: str) -> Iterator[Row]:
    rows, preset = raw["seeds"], raw["preset"]
    ends = [row.get("last") or dict(zip(("steps", "return"), row["curve"][-1], strict=True)) for row in rows]
    settings = f" --set {' '.join(raw['overrides'])}" if raw.get("overrides") else ""
    yield Row(
        preset.partition("_")[0],
        preset,
        max(end["steps"] for end in ends),
        tuple(row["seed"] for row in rows),
        tuple(end["return"] for end in ends),
        tuple(row.get("seconds", 0.0) for row in rows),
        in_words(raw["machine"]),
        raw["commit"],
        f"gaitway bench learning {preset} --seeds {' '.join(str(row['seed']) for row in rows)}{settings}",
        published(preset),
        raw.get("note", ""),
    )


def beside_others(raw: dict[str, Any], name: str) -> Iterator[Row]:
    rows = raw["seeds"]["gaitway"]
    others = [f"{other} {value:.0f}" for other, value in raw["mean"].items() if other != "gaitway"]
    yield Row(
        name.partition("_")[0],
        raw["env"],
        raw["steps"],
        tuple(row["seed"] for row in rows),
        tuple(row["return"] for row in rows),
        tuple(row["seconds"] for row in rows),
        in_words(raw["machine"]),
        raw["commit"],
        f"gaitway bench {name} --seeds {' '.join(str(row['seed']) for row in rows)}",
        published(name),
        f"beside it: {', '.join(others)}",
    )


def one_million(raw: dict[str, Any], name: str) -> Iterator[Row]:
    yield Row(
        "sac",
        "HalfCheetah-v5",
        raw["last"]["steps"],
        (raw["seed"],),
        (raw["last"]["return"],),
        (raw["seconds"],),
        in_words(raw["machine"]),
        raw["commit"],
        f"{raw['command']} seed={raw['seed']}",
        published(name),
    )


def gates(raw: dict[str, Any], name: str) -> Iterator[Row]:
    for algorithm, gate in raw["gates"].items():
        rows = gate["seeds"]
        teacher = f" --teacher-seed {name.rpartition('_')[2]}" if "_teacher_" in name else ""
        commit = raw.get("commit_of", {}).get(algorithm, raw["commit"])
        yield Row(
            algorithm,
            gate["preset"],
            rows[0].get("steps", rows[0].get("updates")),
            tuple(row["seed"] for row in rows),
            tuple(row["return"] for row in rows),
            tuple(row["seconds"] for row in rows),
            in_words(raw["machine"]),
            commit,
            f"gaitway bench {raw['benchmark']} --only {algorithm}{teacher}",
            beside=f"asked: {gate['threshold']:.4g}",
        )


READERS: dict[str, Callable[[dict[str, Any], str], Iterator[Row]]] = {
    "learning": learning,
    "sac_learning": beside_others,
    "td3_learning": beside_others,
    "sac_1m": one_million,
    "classic_gates": gates,
    "offline_gates": gates,
}
"""`benchmark` of a raw file -> how it is read."""
COLUMNS = (
    "algorithm", "task", "steps", "return of each seed", "mean", "steps/s", "machine", "commit", "command",
    "to compare with", "raw file",
)  # fmt: skip
HEAD = """# Results

What algorithms reach on tasks: deterministic returns at the end of training, every seed that was run, the mean with its
95 % interval (Student's t; seeds differ in starts, networks and noise). Steps/s is the mean over the seeds, evaluations
included; several runs shared the machine where the command has `--jobs`. Steps of offline algorithms (`bc`, `td3_bc`)
are updates. The page is written by `gaitway bench results` from `benchmarks/results/` alone, and a test compares the
two; figures of other kinds stand on the pages of their subjects, such as [Performance](performance.md) and
[Skills](skills.md).

"""


def shown() -> dict[str, list[Row]]:
    """The rows of every raw file that is of a kind shown here, by file."""
    found: dict[str, list[Row]] = {}
    for path in sorted(RAW.glob("*.json")):
        raw = json.loads(path.read_text(encoding="utf-8"))
        kind = raw.get("benchmark") if isinstance(raw, dict) else None
        if kind in READERS:
            found[path.name] = list(READERS[kind](raw, path.stem))
    return found


def page() -> str:
    rows = [(row, file) for file, rows in shown().items() for row in rows]
    rows.sort(key=lambda pair: (pair[0].algorithm, pair[0].task, pair[0].steps, pair[1]))
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(row.cells(file)) + " |" for row, file in rows]
    return HEAD + "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if the page is another one")
    options = parser.parse_args()
    if not options.check:
        PAGE.write_text(page(), encoding="utf-8")
        print(f"{PAGE}: {sum(map(len, shown().values()))} rows")
    elif PAGE.read_text(encoding="utf-8") != page():
        sys.exit("docs/results.md is not what benchmarks/results/ says; write it anew by `gaitway bench results`")


if __name__ == "__main__":
    main()
