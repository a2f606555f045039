"""Interleaved rounds: contestants live in their own processes and take turns, so that noise hits all of them alike."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np


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


def compete(contestants: Sequence[Contestant], rounds: int, warm_up: int = 1) -> dict[str, list[dict[str, float]]]:
    """`rounds` results of each, in rotated order, after `warm_up` that do not count."""
    results: dict[str, list[dict[str, float]]] = {contestant.name: [] for contestant in contestants}
    for number in range(-warm_up, rounds):
        shift = number % len(contestants)
        for contestant in [*contestants[shift:], *contestants[:shift]]:
            result = contestant.round()
            if number >= 0:
                results[contestant.name].append(result)
                print(f"round {number + 1}/{rounds} {contestant.name}: {result}", file=sys.stderr, flush=True)
    for contestant in contestants:
        contestant.close()
    return results


def median_spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def ratio(numerator: Sequence[float], denominator: Sequence[float], seed: int = 0) -> dict[str, float]:
    """Median of the per-round ratios and a bootstrap interval of it."""
    ratios = np.array(numerator) / np.array(denominator)
    draws = np.random.default_rng(seed).choice(ratios, (5000, len(ratios)))
    low, high = np.quantile(np.median(draws, axis=1), [0.025, 0.975])
    return {"median": float(np.median(ratios)), "low": float(low), "high": float(high)}


def machine() -> dict[str, object]:
    """What a result was measured on."""
    import torch

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "processor": _processor(),
    }


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def write(path: str | None, result: Mapping[str, object]) -> None:
    text = json.dumps(result, indent=1)
    print(text)
    if path:
        Path(path).write_text(text + "\n")
