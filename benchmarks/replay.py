"""Replay: adding steps and drawing minibatches, against stable-baselines3, torchrl, skrl and tianshou.

    gaitway bench replay --out benchmarks/results/replay.json

Rows are those of HalfCheetah-v5 (17 observations, 6 actions: 168 bytes a transition) and Humanoid-v5 (348 and 17: 2860
bytes), 256 and 4096 of them drawn from a million. `bare gather` is the reference: one index_select on a matrix that
holds whole transitions, with indices drawn beforehand; everybody else draws theirs. `same memory` reads into a batch
made beforehand, as an update does. Additions of 1 and 16 instances go into a full buffer of 100,000. Gate: every
transition that a contestant returns must be one that was put in, field by field. Humanoid needs 17 GB of memory;
`--rows HalfCheetah` 2.
"""

from __future__ import annotations

import argparse
import gc
import itertools
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from _replay_contestants import CHUNK, ENTRIES, BareGather, Contestant, Gaitway, stream
from _rounds import Case, calls_for, enter_peers, gate, race, report, timed, versions

SIZES = {"HalfCheetah": (17, 6), "Humanoid": (348, 17)}
"""Observations and actions."""
PEERS = ("stable-baselines3", "torchrl", "skrl", "tianshou")


def check(name: str, contestant: Contestant, sample: object, truth: BareGather) -> None:
    """Everything drawn must have been put in; what follows a terminated step is nobody's business."""
    found = {field: np.asarray(value) for field, value in contestant.read(sample).items()}
    numbers = torch.from_numpy(found["obs"][:, 0].astype(np.int64))
    expected = truth.read(truth.words.index_select(0, numbers))
    going_on = ~expected["terminated"].numpy()
    for field, value in expected.items():
        rows = going_on if field == "next_obs" else slice(None)
        gate(f"{name}, {field}", found[field][rows], value.numpy()[rows], 1e-7)
    expected_distinct = truth.filled * (1.0 - np.exp(-len(numbers) / truth.filled))
    if len(np.unique(numbers)) < 0.9 * expected_distinct:
        raise RuntimeError(f"{name} does not draw evenly: {len(np.unique(numbers))} different ones of {len(numbers)}")


def measure_samples(kind: str, capacity: int, rounds: int, seconds: float) -> list[Case]:
    sizes = SIZES[kind]
    truth = BareGather(capacity, 1, sizes)
    entrants, notes = {}, []
    for name, make in ENTRIES.items():
        try:
            entrants[name] = make(capacity, 1, sizes)
        except Exception as error:
            notes.append(f"{name} was not entered: {error}")
    for start, chunk in zip(itertools.count(0, CHUNK), stream(capacity, 1, sizes), strict=False):
        for contestant in (truth, *entrants.values()):
            contestant.fill(start, chunk)
    for name, contestant in entrants.items():
        contestant.finish()
        check(name, contestant, contestant.sample(4096), truth)
    ours = entrants["gaitway"]
    assert isinstance(ours, Gaitway)
    ours.sample_again(4096)
    check("gaitway, same memory", ours, ours.sample_again(4096), truth)
    cases = []
    for n in (256, 4096):
        contestants: dict[str, Callable[[], float]] = {}
        functions = {name: contestant.sample for name, contestant in [*entrants.items(), ("bare gather", truth)]}
        functions |= {"gaitway, same memory": ours.sample_again, "bare gather, same memory": truth.sample_again}
        for name, function in functions.items():
            draw = partial(function, n)
            contestants[name] = timed(draw, calls_for(draw, seconds), 1e-6)
        raw = race(contestants, rounds)
        pairs = [("gaitway", name) for name in raw if name != "gaitway" and "same" not in name]
        pairs.append(("gaitway, same memory", "bare gather, same memory"))
        cases.append(Case(f"{kind}: draw {n} of {capacity:,}", "us", raw, pairs, "bare gather", notes))
    return cases


def measure_additions(kind: str, envs: int, capacity: int, rounds: int, seconds: float) -> Case:
    sizes, steps = SIZES[kind], capacity // envs
    truth = BareGather(capacity, envs, sizes)
    (chunk,) = stream(min(steps, CHUNK), envs, sizes)
    truth.fill(0, chunk)
    # the stream goes round and round: the last step leads to the first observation
    chunk["obs"][-1], chunk["next_obs"][-1] = chunk["obs"][0], chunk["obs"][0]
    chunk["terminated"][-1] = chunk["truncated"][-1] = False
    truth.fill(0, chunk)
    contestants, notes = {}, []
    for name, make in ENTRIES.items():
        try:
            contestant = make(capacity, envs, sizes)
            contestant.prepare(chunk)
            turn = itertools.cycle(range(len(chunk["reward"])))
            for _ in range(2 * steps):
                contestant.add(next(turn))
            check(name, contestant, contestant.sample(4096), truth)
        except Exception as error:
            notes.append(f"{name} was not entered: {type(error).__name__} {error}")
            continue
        add = _add(contestant, turn)
        contestants[name] = timed(add, calls_for(add, seconds), 1e-6)
    raw = race(contestants, rounds)
    pairs = [("gaitway", name) for name in raw if name != "gaitway"]
    return Case(f"{kind}: add a step of {envs}", "us", raw, pairs, notes=notes)


def _add(contestant: Contestant, turn: Iterator[int]) -> Callable[[], object]:
    return lambda: contestant.add(next(turn))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.2, help="length of one contestant's turn")
    parser.add_argument("--capacity", type=int, default=1_000_000)
    parser.add_argument("--rows", nargs="+", choices=list(SIZES), default=list(SIZES))
    options = parser.parse_args()
    enter_peers("stable_baselines3", "torchrl")
    torch.set_num_threads(1)
    cases = []
    for kind in options.rows:
        cases += measure_samples(kind, options.capacity, options.rounds, options.seconds)
        gc.collect()
        for envs in (1, 16):
            capacity = min(100_000, options.capacity)
            cases.append(measure_additions(kind, envs, capacity, options.rounds, options.seconds))
            gc.collect()
    report(options.out, "replay", cases, threads=1, versions=versions("torch", "numpy", *PEERS))


if __name__ == "__main__":
    main()
