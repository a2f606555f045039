"""A PPO iteration on one core, ours beside rsl_rl's: 128 instances, 24 steps, 5 passes of 4 minibatches.

    .venv-peers/bin/python benchmarks/cpu_ppo.py --out benchmarks/results/cpu_ppo.json

Cases: networks of 128-128, ours as it is and with one further loss (the distance to a frozen policy's actions; rsl_rl's
without it), networks of 64-64, and an LSTM of 64 in front of networks of 128-128. First both compute the same
gradients from the same rollout. Contestants take turns in one process with one thread; what counts is the processor
time of an iteration, which other work on the machine disturbs less than the time on the wall, and the ratio within a
round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from _ppo_iteration import Ours, RslRl, Sizes, check_same_work
from _rounds import machine, revision, versions
from torch import Tensor

from gaitway.algorithms.imitation import ActionDistance

FLAT = Sizes(envs=128, steps=24, hidden=(128, 128))
SMALL = Sizes(envs=128, steps=24, hidden=(64, 64))
LSTM = Sizes(envs=128, steps=24, hidden=(128, 128), memory=64)


Makers = dict[str, Callable[[], Any]]


class ProcessorTime:
    """Milliseconds of processor time between calls."""

    def start(self) -> None:
        self.last = time.process_time()

    def lap(self) -> float:
        before, self.last = self.last, time.process_time()
        return 1e3 * (self.last - before)


class Gate:
    """Keeps by how much two results differ, and refuses too much of it."""

    device = "cpu"

    def __init__(self) -> None:
        self.found: dict[str, float] = {}

    def gate(self, name: str, found: Tensor, expected: Tensor, limit: float) -> None:
        self.found[name] = float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-12))
        if not self.found[name] <= limit:
            raise RuntimeError(f"{name}: {self.found[name]:.2e}, above {limit}; the two do not do the same work")


def distance(policy: Any) -> list[Any]:
    """The distance to a policy that stays as this one begins."""
    return [ActionDistance(deepcopy(policy).requires_grad_(False), policy)]


def plain(sizes: Sizes) -> tuple[Sizes, Makers]:
    """Both libraries as they are."""
    return sizes, {
        "rsl_rl": lambda: RslRl(sizes, "cpu", "fp32"),
        "gaitway": lambda: Ours(sizes, "cpu", "eager", "fp32"),
    }


def race(makers: Makers, rounds: int) -> dict[str, list[dict[str, float]]]:
    """`rounds` iterations of each, in rotated order, after two that do not count."""
    entrants = {name: make() for name, make in makers.items()}
    for each in entrants.values():
        each.watch = ProcessorTime()
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in entrants}
    names = list(entrants)
    for number in range(-2, rounds):
        for name in (*names[number % len(names) :], *names[: number % len(names)]):
            found = entrants[name]()
            if number >= 0:
                rows[name].append(found)
    return rows


def summary(rows: dict[str, list[dict[str, float]]], peer: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, each in rows.items():
        found[name] = {f"{phase}_ms": statistics.median(row[phase] for row in each) for phase in each[0]}
        for phase in ("update", "total"):
            ratios = sorted(theirs[phase] / own[phase] for own, theirs in zip(each, rows[peer], strict=True))
            found[name][f"{phase}_ratio"] = {"median": statistics.median(ratios), "low": ratios[0], "high": ratios[-1]}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--only", choices=("flat", "small", "lstm"), default=None)
    options = parser.parse_args()
    torch.set_num_threads(1)
    further = {"gaitway with a further loss": lambda: Ours(FLAT, "cpu", "eager", "fp32", make_terms=distance)}
    cases: dict[str, tuple[Sizes, Makers]] = {
        "flat": (FLAT, plain(FLAT)[1] | further),
        "small": plain(SMALL),
        "lstm": plain(LSTM),
    }
    result: dict[str, Any] = {"benchmark": "cpu_ppo", "commit": revision(), "machine": machine(), "cases": {}}
    result["versions"] = versions("torch", "rsl-rl-lib")
    for name, (sizes, makers) in cases.items():
        if options.only not in (None, name):
            continue
        gate = Gate()
        check_same_work(gate, sizes)  # type: ignore[arg-type]
        rows = race(makers, options.rounds)
        result["cases"][name] = {"same_work": gate.found, "summary": summary(rows, "rsl_rl"), "rounds": rows}
        print(json.dumps({name: result["cases"][name]["summary"]}, indent=1), flush=True)
        if options.out:
            options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
