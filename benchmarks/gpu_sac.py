"""SAC updates on a GPU from a replay of a million transitions there, in every mode, against stable-baselines3.

    python benchmarks/gpu_sac.py --out benchmarks/results/gpu_sac.json

HalfCheetah's sizes (17 observations, 6 actions). 256-256 networks with batches of 256 in calls of 1, 16 and 32 updates;
the same with batches of 4096; four layers of 1024 with batches of 256. Figures are milliseconds of one update, drawing
included. Gates: the same start, transitions and noise lead ours and stable-baselines3 to the same parameters; every
mode ends at the parameters of the eager program, compiled ones after two updates, because they round differently and
differences grow; a captured call never waits for the device. `products` is the arithmetic alone, recorded as a CUDA
graph.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from _gpu import TOLERANCE, Products, Session, modes, options, precisions, standard_pairs
from _rounds import Case
from _sac_contestants import Ours, StableBaselines3, Workload, check_same_work, products

WORKLOADS: tuple[Workload, ...] = (
    Workload(updates=32),
    Workload(hidden=(1024,) * 4, updates=16),
    Workload(batch=4096, updates=16),
    Workload(updates=1),
    Workload(updates=16),
)
COMPARED_AFTER = 48
"""Updates after which modes are compared: enough for warm-up, recording and replay of both kinds of program."""


def make_ours(session: Session, work: Workload, mode: str, kind: str) -> Ours:
    """Ours in one mode, after its gates."""
    entrant = Ours(work, session.device, mode, kind)
    if mode != "eager":
        name = f"{work.title}: {mode} {kind}"
        eager = Ours(work, session.device, "eager", kind)
        for contestant in (entrant, eager):
            contestant.same_draws()
            if "compiled" not in mode:
                contestant.update(COMPARED_AFTER)
            for _ in range(2 if "compiled" in mode else 4):
                contestant.update(1)
        session.gate(f"{name} against eager {kind}", entrant.parameters, eager.parameters, TOLERANCE[kind])
        for _ in range(4):
            entrant.update()
            entrant.update(1)
        session.check_no_waiting(name, entrant.update)
    return entrant


def measure(session: Session, work: Workload) -> None:
    device, quick = session.device, session.options.quick
    with session.errors(f"{work.title}: same work as stable-baselines3"):
        check_same_work(session, work)
    makers: dict[str, Any] = {
        f"stable-baselines3 {k}": partial(StableBaselines3, work, device, k) for k in precisions(device)
    }
    for mode, kind in modes(device, quick):
        # compiling takes a minute: once with the usual sizes, once where there is something to fuse
        if work in WORKLOADS[:2] or "compiled" not in mode or device == "cpu":
            makers[f"gaitway {mode} {kind}"] = partial(make_ours, session, work, mode, kind)
    entrants = session.enter(makers, f"{work.title}: ")
    kinds = ["fp32"] if device == "cpu" else ["fp32", "tf32", "bf16"]
    one = replace(work, updates=1)
    bounds = session.enter(
        {f"products {k}": partial(Products, products(one), k, device) for k in kinds}, f"{work.title}: "
    )
    raw = session.race(entrants | bounds, 1 if quick else max(1, 96 // work.updates), f"{work.title}: ")["total"]
    floor = {name: f"products {name.split()[-1]}" for name in raw}
    case = Case(work.title, "ms", raw, floor={name: bound for name, bound in floor.items() if bound in raw})
    recommended = "gaitway captured tf32" if device != "cpu" else "gaitway eager fp32"
    session.add(replace(case, pairs=standard_pairs(case, "stable-baselines3 fp32", recommended)))


def main() -> None:
    found = options(__doc__)
    session = Session("gpu_sac", found)
    workloads = WORKLOADS
    if found.quick:
        small = [replace(work, hidden=(16,) * len(work.hidden), batch=32, capacity=4000) for work in WORKLOADS]
        workloads = (small[1], small[3])
    session.stages = len(workloads)
    for work in workloads:
        with session.errors(work.title):
            measure(session, work)
    session.finish()


if __name__ == "__main__":
    main()
