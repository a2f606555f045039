"""Interleaved rounds: contestants take turns, so that noise hits all of them alike; and the tables made of them.

Contestants are functions of one process, or worker processes where they need their own environment or their own
threads. Medians over rounds count, ratios are formed within a round.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
PEER_PYTHON = ".venv-peers/bin/python"
Raw = dict[str, list[float]]


class Contestant:
    """A worker process that answers each line on its input with one JSON line: the result of a round."""

    def __init__(self, name: str, command: Sequence[str], threads: int) -> None:
        self.name = name
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def round(self) -> dict[str, float]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} stopped with exit code {self.process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)


def compete(
    contestants: Sequence[Contestant],
    rounds: int,
    warm_up: int = 1,
    note: Callable[[dict[str, dict[str, float]]], object] | None = None,
) -> dict[str, list[dict[str, float]]]:
    """`rounds` results of each, in rotated order, after `warm_up` that do not count; `note` gets those of a round."""
    results: dict[str, list[dict[str, float]]] = {contestant.name: [] for contestant in contestants}
    try:
        for number in range(-warm_up, rounds):
            for contestant in _rotated(contestants, number):
                result = contestant.round()
                if number >= 0:
                    results[contestant.name].append(result)
                    print(f"round {number + 1}/{rounds} {contestant.name}: {result}", file=sys.stderr, flush=True)
            if number >= 0 and note is not None:
                note({name: found[-1] for name, found in results.items()})
    finally:
        for contestant in contestants:
            contestant.close()
    return results


def race(contestants: Mapping[str, Callable[[], float]], rounds: int, warm_up: int = 1) -> Raw:
    """The same within one process: a contestant is a function that runs one round and returns its figure."""
    results: Raw = {name: [] for name in contestants}
    for number in range(-warm_up, rounds):
        for name in _rotated(list(contestants), number):
            figure = contestants[name]()
            if number >= 0:
                results[name].append(figure)
    return results


def timed(function: Callable[[], object], calls: int, unit: float = 1.0, threads: int = 1) -> Callable[[], float]:
    """A contestant for `race`: one round is `calls` calls; its figure is the time of one in units of `unit` seconds."""

    def run() -> float:
        import torch

        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        started = time.perf_counter()
        for _ in range(calls):
            function()
        return (time.perf_counter() - started) / calls / unit

    return run


def life_of(command: Sequence[str], threads: int = 1) -> Callable[[], float]:
    """A contestant for `race`: one round is a whole process; its figure is how long it lived, in seconds."""

    def run() -> float:
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        started = time.perf_counter()
        done = subprocess.run(list(command), env=environment, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - started
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip().splitlines()[-1:]}")
        return seconds

    return run


def calls_for(function: Callable[[], object], seconds: float) -> int:
    """How many calls take about `seconds`; also warms up."""
    function()
    started = time.perf_counter()
    function()
    return max(1, min(100_000, int(seconds / max(time.perf_counter() - started, 1e-9))))


@dataclass(frozen=True)
class Case:
    """One workload and what every contestant made of it, round by round."""

    name: str
    unit: str
    """`steps/s` (more is better) or a unit of time (less is better)."""
    raw: Mapping[str, Sequence[float]]
    pairs: Sequence[tuple[str, str]] = ()
    """(ours, peer): the ratios of interest, above 1 where ours is faster."""
    floor: str | Mapping[str, str] | None = None
    """The contestant that is the bound (nothing but the work that cannot be left out), or one for each contestant."""
    notes: Sequence[str] = field(default_factory=tuple)

    def faster(self, one: str, other: str) -> dict[str, float]:
        """How many times faster `one` is than `other`."""
        first, second = (one, other) if self.unit.endswith("/s") else (other, one)
        return ratio(self.raw[first], self.raw[second])

    def best(self, names: Sequence[str]) -> str:
        """The fastest of `names` by its median."""
        choose = max if self.unit.endswith("/s") else min
        return choose(names, key=lambda name: statistics.median(self.raw[name]))

    def fractions(self) -> dict[str, float]:
        """Speed as a fraction of the bound's, for those that have one."""
        floors = dict.fromkeys(self.raw, self.floor) if isinstance(self.floor, str) else self.floor or {}
        return {name: self.faster(name, bound)["median"] for name, bound in floors.items()}

    def result(self) -> dict[str, object]:
        """Everything as plain numbers, for the JSON file."""
        ratios = {f"{one} / {other}": self.faster(one, other) for one, other in self.pairs}
        return {
            "unit": self.unit,
            "figures": {name: median_spread(values) for name, values in self.raw.items()},
            "times_faster": ratios,
            "fraction_of_floor": self.fractions(),
            "notes": list(self.notes),
            "raw": {name: list(values) for name, values in self.raw.items()},
        }


def show(cases: Sequence[Case]) -> None:
    """Tables on the screen: medians with their spread and the fraction of the floor, then ratios with intervals."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    for case in cases:
        fractions = case.fractions()
        table = Table(title=case.name, title_justify="left", box=None, pad_edge=False)
        for heading, justify in (("contestant", "left"), (case.unit, "right"), ("from .. to", "right")):
            table.add_column(heading, justify=justify)  # type: ignore[arg-type]
        if case.floor:
            table.add_column("of the floor", justify="right")
        for name, values in case.raw.items():
            spread = f"{_number(min(values))} .. {_number(max(values))}"
            fraction = [f"{fractions[name]:.1%}" if name in fractions else ""] if case.floor else []
            table.add_row(name, _number(statistics.median(values)), spread, *fraction)
        console.print(table)
        if case.pairs:
            table = Table(box=None, pad_edge=False)
            for heading, justify in (("", "left"), ("times faster", "right"), ("95 % interval", "right")):
                table.add_column(heading, justify=justify)  # type: ignore[arg-type]
            for one, other in case.pairs:
                found = case.faster(one, other)
                interval = f"{found['low']:.2f} .. {found['high']:.2f}"
                table.add_row(f"{one} than {other}", f"{found['median']:.2f}", interval)
            console.print(table)
        for note in case.notes:
            console.print(note, markup=False)
        console.print()


def report(path: str | None, benchmark: str, cases: Sequence[Case], **more: object) -> None:
    """Write the raw results to `path`, if there is one, and show the tables."""
    found: dict[str, object] = {"benchmark": benchmark, "machine": machine(), **more}
    found["cases"] = {case.name: case.result() for case in cases}
    if path:
        keep(path, found)
    show(cases)


def median_spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def ratio(numerator: Sequence[float], denominator: Sequence[float], seed: int = 0) -> dict[str, float]:
    """Median of the per-round ratios and a bootstrap interval of it."""
    ratios = np.array(numerator) / np.array(denominator)
    draws = np.random.default_rng(seed).choice(ratios, (5000, len(ratios)))
    low, high = np.quantile(np.median(draws, axis=1), [0.025, 0.975])
    return {"median": float(np.median(ratios)), "low": float(low), "high": float(high)}


def relative_error(found: object, expected: object) -> float:
    """Largest difference over the largest expected magnitude; NaN counts as infinitely wrong."""
    a, b = np.asarray(found, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    if a.shape != b.shape:
        raise RuntimeError(f"shapes differ: {a.shape} and {b.shape}")
    worst = float(np.abs(a - b).max() / max(float(np.abs(b).max()), 1e-30))
    return worst if worst == worst else float("inf")


def gate(what: str, found: object, expected: object, tolerance: float) -> float:
    """Refuse to time contestants that do not do the same work; returns the error found."""
    error = relative_error(found, expected)
    if error > tolerance:
        raise RuntimeError(f"{what}: relative error {error:.2e}, allowed {tolerance:.0e}; nothing is timed")
    return error


def enter_peers(*packages: str) -> None:
    """Go on in the virtual environment of the peers, with this checkout's library, unless `packages` are here.

    Contestants of one process share its allocator, its threads and its torch, and can be compared number by number.
    """
    if all(importlib.util.find_spec(package) for package in packages):
        return
    python = ROOT / PEER_PYTHON
    if not python.exists():
        raise SystemExit(
            f"{python} is not there; make it with: python3 -m venv .venv-peers && "
            ".venv-peers/bin/pip install -c constraints.txt -r benchmarks/peers.txt"
        )
    if os.environ.get("GAITWAY_PEERS"):
        raise SystemExit(f"{python} lacks one of {packages}; install benchmarks/peers.txt into it again")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "GAITWAY_PEERS": "1"}
    os.execve(python, [str(python), *sys.argv], environment)


def revision() -> str:
    """The commit of this checkout; of a copy without one, what GAITWAY_COMMIT says."""
    if "GAITWAY_COMMIT" in os.environ:
        return os.environ["GAITWAY_COMMIT"]
    return subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()


def machine() -> dict[str, object]:
    """What a result was measured on."""
    import torch

    found: dict[str, object] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "processor": _processor(),
        "load_at_end": os.getloadavg()[0],
    }
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    return found


def versions(*packages: str) -> dict[str, str]:
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    return found


def keep(path: str | Path, result: Mapping[str, object]) -> None:
    """Write a file of results that is whole whenever this is stopped."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(json.dumps(result, indent=1) + "\n")
    fresh.replace(path)


def kept(path: str | Path | None, same: Mapping[str, object]) -> dict[str, Any]:
    """What a file of results holds already, if all of it was made with the `same` commit and settings; else nothing."""
    if path is None or not Path(path).exists():
        return {}
    found: dict[str, Any] = json.loads(Path(path).read_text())
    other = [name for name, value in same.items() if found.get(name) != json.loads(json.dumps(value))]
    if other:
        print(f"{path} was made with another {', '.join(other)}; everything begins anew", file=sys.stderr)
        return {}
    return found


def write(path: str | None, result: Mapping[str, object]) -> None:
    print(json.dumps(result, indent=1))
    if path:
        keep(path, result)


def _rotated(contestants: Sequence, number: int) -> list:
    shift = number % len(contestants)
    return [*contestants[shift:], *contestants[:shift]]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
