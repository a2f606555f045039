"""A SAC update on the CPU (256-256 networks, batch 256, HalfCheetah's sizes) against stable-baselines3.

    gaitway bench sac_update --out benchmarks/results/sac_update.json

Both libraries draw their minibatches from a filled replay of their own and run their own update, in one process and
with one and two torch threads. Gate: from the same start, with the same transitions and noise, both are at the same
parameters after 10 updates, to 1e-5. `products` is the arithmetic alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from _rounds import Case, enter_peers, race, report, versions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--updates", type=int, default=50, help="updates per round")
    parser.add_argument("--capacity", type=int, default=1_000_000)
    parser.add_argument("--compiled", action="store_true", help="enter ours also compiled, which takes a minute")
    options = parser.parse_args()
    enter_peers("stable_baselines3")

    from _gpu import Entrant, Products, Session
    from _sac_contestants import Ours, StableBaselines3, Workload, check_same_work, products

    work = Workload(updates=options.updates, capacity=options.capacity)
    session = Session("sac_update", argparse.Namespace(device="cpu", out=None, ungated=False))
    check_same_work(session, work)
    modes = ["eager", "compiled"] if options.compiled else ["eager"]
    makers: dict[str, Callable[[], Entrant]] = {}
    for threads in (1, 2):
        for mode in modes:
            makers[f"gaitway {mode}, {threads} threads"] = partial(Ours, work, "cpu", mode, "fp32", threads)
        makers[f"stable-baselines3, {threads} threads"] = partial(StableBaselines3, work, "cpu", "fp32", threads)
        makers[f"products, {threads} threads"] = partial(Products, products(work), "fp32", "cpu", threads)
    entrants = {name: make() for name, make in makers.items()}

    def figure(name: str) -> float:
        milliseconds = entrants[name]()["total"]
        return milliseconds / work.updates if name.startswith("products") else milliseconds

    raw = race({name: partial(figure, name) for name in entrants}, options.rounds)
    case = Case("SAC update, 256-256, batch 256", "ms", raw)
    ours, peer, floor = (
        case.best([name for name in raw if name.startswith(who)]) for who in ("gaitway", "stable", "products")
    )
    pairs = [(ours, peer), *((f"gaitway eager, {n} threads", f"stable-baselines3, {n} threads") for n in (1, 2))]
    case = Case(case.name, case.unit, raw, list(dict.fromkeys(pairs)), floor)
    report(options.out, "sac_update", [case], gates=session.found["gates"], versions=versions("stable-baselines3"))


if __name__ == "__main__":
    main()
