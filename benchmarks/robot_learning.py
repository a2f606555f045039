"""Experiments of robot learning, each beside twins with one mistake that must fail.

    gaitway bench robot_learning                      all of them
    gaitway bench robot_learning T-SYM T-APPO         these
    gaitway bench robot_learning --list               what there is
    gaitway bench robot_learning --list --missing     what the results lack

Arms are run for the seeds 0, 1 and 2, twins for seed 0, one after the other, each in a process of its own with one
thread. Every row is printed and kept at once, with commit and machine, in `benchmarks/results/robot_learning/ID.json`;
rows of other seeds and arms in that file stay. Limits were chosen on seeds of 100 and above (`--seeds 100 101 102`) and
frozen. Exit status 1: a claim does not hold, a twin passes, or a run is missing.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from _rounds import ROOT, machine, revision
from robot_learning_experiments import EXPERIMENTS
from robot_learning_experiments.experiment import Experiment, Job
from robot_learning_experiments.results import Results

OUT = ROOT / "benchmarks" / "results" / "robot_learning"


def run_here(experiment: Experiment, arm: str, seed: int, place: Path) -> dict[str, Any]:
    """One arm with one seed, in this process: its figures, and what it notes beside them."""
    root = place / experiment.id
    job = Job(seed, root / str(seed) / arm.replace(" ", "_"), root / "shared")
    job.folder.mkdir(parents=True, exist_ok=True)
    job.shared.mkdir(exist_ok=True)
    run = {**experiment.arms, **experiment.twins}[arm]
    figures = {name: float(value) for name, value in run(job).items()}
    return {"figures": figures, **job.notes}


def run_apart(experiment: Experiment, arm: str, seed: int, place: Path) -> dict[str, Any]:
    """The same in a process of its own, forked off this one, so that arms may change what they like."""
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    with tempfile.TemporaryFile("w+") as said:

        def work() -> None:
            for stream in (1, 2):
                os.dup2(said.fileno(), stream)
            sys.stdout = sys.stderr = said
            sender.send_bytes(json.dumps(run_here(experiment, arm, seed, place)).encode())

        process = fork.Process(target=work)
        process.start()
        sender.close()
        try:
            return json.loads(receiver.recv_bytes())
        except EOFError:  # it ended without figures
            said.seek(0)
            raise RuntimeError(f"{experiment.id}, {arm}, seed {seed}:\n{said.read()[-4000:]}") from None
        finally:
            process.join()


def wanted(experiment: Experiment, options: argparse.Namespace) -> Iterator[tuple[str, int]]:
    seeds = options.seeds or experiment.seeds
    for seed in seeds:
        for arm in experiment.arms:
            yield arm, seed
    for twin in experiment.twins:
        yield twin, seeds[0]


def code() -> str:
    """The commit of this checkout, and whether sources were changed since."""
    places = [str(ROOT / "src"), str(ROOT / "benchmarks"), f":!{OUT}"]
    command = ["git", "-C", str(ROOT), "status", "--porcelain", "--", *places]
    changed = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    return f"{revision()}{' with changes' if changed else ''}"


def carry_out(experiment: Experiment, options: argparse.Namespace, place: Path) -> dict[str, Any] | None:
    """Run what is asked of an experiment, and say what came of it; the verdict, or None of seeds that are for
    calibration, of which nothing is promised."""
    results = Results(experiment, options.out / f"{experiment.id}.json" if options.out else None)
    print(f"{experiment.id}: {experiment.title}", flush=True)
    for arm, seed in wanted(experiment, options):
        if (options.arms and arm not in options.arms) or (options.missing and results.has(arm, seed)):
            continue
        started, commit = time.perf_counter(), options.commit or code()
        try:
            found = run_apart(experiment, arm, seed, place)
        except RuntimeError as error:  # the others are run all the same
            print(error, flush=True)
            continue
        seconds = round(time.perf_counter() - started, 1)
        results.keep(arm, seed, found | {"seconds": seconds, "commit": commit, "machine": machine()})
        shown = ", ".join(f"{name} {value:.4g}" for name, value in found["figures"].items())
        print(f"  {arm}, seed {seed}: {shown} ({seconds:.0f} s)", flush=True)
    for seed in options.seeds or experiment.seeds:
        claims = results.claims(seed)
        print(f"  seed {seed}: {'; '.join(map(str, claims)) if claims else 'runs are missing'}")
    if options.seeds and not set(options.seeds) & set(experiment.seeds):
        return None
    verdict = results.verdict()
    print(f"  {'holds' if verdict['holds'] else f'MISSED: {verdict}'}", flush=True)
    return verdict


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", nargs="*", metavar="ID", help="which experiments (default: all)")
    parser.add_argument("--list", action="store_true", help="say which there are")
    parser.add_argument("--seeds", type=int, nargs="+", default=None, help="other seeds than the experiment's own")
    parser.add_argument("--arms", nargs="+", default=None, help="these arms and twins alone")
    parser.add_argument("--missing", action="store_true", help="only what the results lack")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the results (default: %(default)s)")
    parser.add_argument("--place", type=Path, default=None, help="where runs are kept (default: they are not)")
    parser.add_argument("--commit", default=None, help="what to write down as the commit (default: this checkout's)")
    options = parser.parse_args()
    unknown = sorted(set(options.ids) - set(EXPERIMENTS))
    if unknown:
        parser.error(f"there is no experiment {', '.join(unknown)}; there are {', '.join(EXPERIMENTS)}")
    chosen = [EXPERIMENTS[id] for id in options.ids or EXPERIMENTS]
    if options.list:
        for each in chosen:
            lacks = Results(each, options.out / f"{each.id}.json").verdict()["missing"]
            if lacks or not options.missing:
                print(f"{each.id:12s} {each.title}{f': lacks {lacks}' if options.missing else ''}")
        return
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        place = (options.place or Path(folder)).resolve()
        found = {each.id: carry_out(each, options, place) for each in chosen}
    verdicts = {id: verdict for id, verdict in found.items() if verdict is not None}
    missed = [id for id, verdict in verdicts.items() if not verdict["holds"]]
    if verdicts:
        print(f"{len(verdicts) - len(missed)} of {len(verdicts)} hold{': missed ' * bool(missed)}{', '.join(missed)}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
