"""What is a run on Warp worth that was killed and resumed? Beside runs of the same seeds that nobody disturbed.

    gaitway bench warp_kills --out benchmarks/results/warp_kills.json

On a GPU a resumed run goes on from the same physical state and not bit for bit (`warp_soak` shows both), so what can
be asked is whether its return is another one. Each seed is trained twice: in peace, and killed by SIGKILL at a random
moment between a fifth and four fifths of the way, then begun again by the same command. Asked: returns of the last
evaluation do not differ (two-sided permutation test over all ways to share them out, p >= 0.05), and no killed run
ends more than 10 % below the mean of the others.

A second call with the same `--work` goes on with what is not done. A run that was to be left in peace and was stopped
all the same begins anew; one that was to be killed is resumed once more. Fifteen processes begin here, and none of
them waits for torch's compiler: TORCHDYNAMO_DISABLE is 1 for them, unless it is set already, and what would be compiled
is recorded as it is written.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _provenance import let_children_import
from _rounds import keep, kept, revision
from _warp import Results, options
from precision_parity import p_value

LEAST_P, BELOW = 0.05, 0.1
CHECKPOINTS = 20
"""How many a run writes."""


def trained(given: Any, seed: int, kill_at: float | None) -> dict[str, Any]:
    """One run; `kill_at` is the share of its steps after which it is killed, once."""
    work = Path(given.work).resolve()
    run = work / f"{'in_peace' if kill_at is None else 'killed'}_{seed}"
    moment = work / f"{run.name}.steps"  # is there when it has been killed
    ended = work / f"{run.name}.json"
    command = [sys.executable, "-m", "gaitway", "train", "--or-resume", "--quiet", f"experiment={given.preset}"]
    command += [f"device={given.device}", f"seed={seed}", f"run_dir={run}", f"total_steps={given.steps}"]
    command += [f"checkpoints.interval={given.steps // CHECKPOINTS}", "evaluation.interval=0", "preflight=false"]
    command += ["logging.code=none", *given.changes]
    source = {"commit": given.commit or revision(), "command": command}
    if known := kept(ended, source):
        return known["row"]
    began = time.monotonic()
    if kill_at is None:
        shutil.rmtree(run, ignore_errors=True)  # what a call before this one has begun was disturbed
    elif not moment.exists():
        moment.write_text(str(killed(command, run, kill_at * given.steps)))
    with (work / f"{run.name}.log").open("ab") as log:
        subprocess.run(command, check=True, stdout=log, stderr=log)
    last = json.loads((run / "summary.json").read_text())["last"]
    row: dict[str, Any] = {"killed at": None if kill_at is None else int(moment.read_text())}
    row |= {"seconds": round(time.monotonic() - began, 1)}
    names = [name for name in ("return", "velocity_rmsd", "fell") if last.get(name) is not None]
    row |= {name: round(last[name], 4) for name in names}
    keep(ended, source | {"row": row})
    return row


def killed(command: Sequence[str], run: Path, steps: float) -> int:
    """Begin the run and kill it soon after its first checkpoint behind so many steps; the steps of its last one."""
    shutil.rmtree(run, ignore_errors=True)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while last_checkpoint(run) < steps:
        if process.poll() is not None:
            raise SystemExit(f"{run} ended before it could be killed; use more --steps")
        time.sleep(0.05)
    time.sleep(random.Random(str(run.name)).uniform(0.0, 0.5))
    process.kill()
    process.wait()
    return last_checkpoint(run)


def last_checkpoint(run: Path) -> int:
    return max((int(each.name) for each in (run / "checkpoints").glob("*") if each.name.isdigit()), default=0)


def difference(one: Sequence[float], other: Sequence[float]) -> dict[str, float]:
    """Means, and the share of all ways to deal these numbers out in which means are as far apart as here."""
    return {
        "in peace": round(statistics.mean(one), 4),
        "killed": round(statistics.mean(other), 4),
        "p": round(p_value([*one], [*other]), 4),
    }


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--preset", default="ppo_pup12_velocity_gpu")
    parser.add_argument("--steps", type=int, default=10_000_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--work", default="runs/warp_kills", help="folder of the runs")
    parser.add_argument("--changes", nargs="*", default=["execution.mode=captured"], help="key=value")
    given = parser.parse_args()
    Path(given.work).mkdir(parents=True, exist_ok=True)
    let_children_import()
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    results = Results("warp_kills", given)
    rows: dict[str, dict[str, Any]] = {"in peace": {}, "killed": {}}
    for seed in given.seeds:
        moment = random.Random(seed).uniform(0.2, 0.8)
        for kind, kill_at in (("in peace", None), ("killed", moment)):
            rows[kind][str(seed)] = trained(given, seed, kill_at)
            results.note(runs=rows)
    peaceful, disturbed = ([row["return"] for row in rows[kind].values()] for kind in ("in peace", "killed"))
    found = difference(peaceful, disturbed)
    results.note(found=found)
    good = found["p"] >= LEAST_P and min(disturbed) >= found["in peace"] - BELOW * abs(found["in peace"])
    return 0 if good or given.device == "cpu" else 1


if __name__ == "__main__":
    sys.exit(main())
