"""One sweep by local processes, Ray and SLURM ends with the same parameters; a SLURM job sent SIGUSR1 is requeued.

    scripts/local_slurm.sh start; export SLURM_CONF=...
    gaitway bench clusters --out benchmarks/results/clusters.json

Three trials of PPO on a pendulum by each executor: every `parameters_sha256` must be the same. Then the same sweep by
SLURM again, in which the job of a trial is sent SIGUSR1 in its middle: it must save, be queued again by SLURM, go on
and end with the same fingerprint. Then once more, one job at a time: the job that runs is cancelled (`scancel`) in its
middle and one that waits before it begins; both trials must count as stopped, and end with the same fingerprints when
the sweep is resumed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from _provenance import add_commit, let_children_import, provenance

SWEEP: dict[str, Any] = {
    "base": {
        "env": {"id": "toy/pendulum", "num_envs": 4, "num_threads": 1},
        "total_steps": 12_800,
        "evaluation": {"interval": 6_400, "episodes": 2},
        "checkpoints": {"interval": 1280},
        "algorithm": {"name": "ppo", "rollout_steps": 32, "minibatches": 2, "epochs": 2},
        "agent": {"actor_hidden": [16], "critic_hidden": [16]},
        "torch_threads": 1,
    },
    "seeds": "0..2",
}
GAITWAY = [sys.executable, "-m", "gaitway"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None)
    parser.add_argument("--executors", nargs="+", default=["local", "ray", "slurm"])
    add_commit(parser)
    options = parser.parse_args()
    origin = provenance("clusters", options.commit)
    let_children_import()
    out = None if options.out is None else Path(options.out).resolve()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        found = {name: swept(name) for name in options.executors}
        result: dict[str, Any] = origin | {
            "slurm": version(),
            "fingerprints": found,
            "all_equal": len({tuple(each) for each in found.values()}) == 1,
        }
        write(result, out)
        for name, disturb in {"cancelled": cancelled, "requeued": requeued}.items():
            if "slurm" in found:
                result[name] = disturb(found["slurm"])
                write(result, out)
        os.chdir("/")
    print(json.dumps(result, indent=1))
    disturbed = [result[name] for name in ("cancelled", "requeued") if name in result]
    whole = result["all_equal"] and all(each["all_equal"] for each in disturbed)
    sys.exit(0 if whole and result.get("cancelled", {}).get("both_stopped", True) else 1)


def write(result: dict[str, Any], out: Path | None) -> None:
    result["machine"]["load_at_end"] = os.getloadavg()[0]
    if out is not None:
        out.write_text(json.dumps(result, indent=1) + "\n")


def swept(executor: str, name: str | None = None) -> list[str]:
    """The fingerprints of a sweep's trials."""
    name = name or executor
    Path(f"{name}.yaml").write_text(yaml.safe_dump(SWEEP | {"executor": executor}))
    subprocess.run([*GAITWAY, "sweep", f"{name}.yaml", "--out", name], check=True)
    return fingerprints(name)


def requeued(undisturbed: list[str]) -> dict[str, Any]:
    Path("signal.yaml").write_text(yaml.safe_dump(SWEEP | {"executor": "slurm"}))
    driver = subprocess.Popen([*GAITWAY, "sweep", "signal.yaml", "--out", "signal"])
    while (gone := steps_of(Path("signal/0001"))) < 4000:
        if driver.poll() is not None:
            raise RuntimeError("the sweep ended before it could be disturbed")
        time.sleep(0.05)
    notes = [json.loads(line) for line in Path("signal/outcomes.jsonl").read_text().splitlines()]
    job = next(note["job"] for note in notes if note["number"] == 1)
    subprocess.run(["scancel", "--signal=USR1", job], check=True)
    sent, states = time.perf_counter(), []
    while driver.poll() is None:
        command = ["squeue", "--noheader", "--array", "-o", "%i %T %r"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        state = next((line.partition(" ")[2] for line in done.stdout.splitlines() if line.split()[0] == job), "gone")
        if not states or states[-1][1] != state:
            states.append([round(time.perf_counter() - sent, 1), state])
        time.sleep(0.5)
    ends = fingerprints("signal")
    ending = json.loads(Path("signal/output/0001.ending.json").read_text())
    return {
        "job": job, "signal_at_step": gone, "states": states, "ending": ending, "driver": driver.returncode,
        "fingerprints": ends, "all_equal": ends == undisturbed,
    }  # fmt: skip


def cancelled(undisturbed: list[str]) -> dict[str, Any]:
    asked = {"executor": "slurm", "cluster": {"array_size": 1}}
    Path("cancel.yaml").write_text(yaml.safe_dump(SWEEP | asked))
    driver = subprocess.Popen([*GAITWAY, "sweep", "cancel.yaml", "--out", "cancel"])
    while (gone := steps_of(Path("cancel/0000"))) < 4000:
        if driver.poll() is not None:
            raise RuntimeError("the sweep ended before it could be disturbed")
        time.sleep(0.05)
    jobs = [json.loads(line)["job"] for line in Path("cancel/outcomes.jsonl").read_text().splitlines()]
    subprocess.run(["scancel", jobs[2], jobs[0]], check=True)
    code = driver.wait()
    rows = status("cancel")
    both = rows[0]["state"] == "stopped" and rows[2]["state"] in ("stopped", "waiting")  # the third one never began
    subprocess.run([*GAITWAY, "sweep", "--resume", "cancel"], check=True)
    ends = fingerprints("cancel")
    return {
        "cancelled_at_step": gone, "driver": code, "states": [row["state"] for row in rows],
        "steps": [row["steps"] for row in rows], "both_stopped": both, "fingerprints": ends,
        "all_equal": ends == undisturbed,
    }  # fmt: skip


def steps_of(run: Path) -> int:
    try:
        return int(json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["step"])
    except (OSError, ValueError, IndexError, KeyError):
        return 0


def fingerprints(name: str) -> list[str]:
    found = []
    for row in status(name):
        command = [*GAITWAY, "info", row["run"], "--verify", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append(str(json.loads(done.stdout.splitlines()[-1])["parameters_sha256"]))
    return found


def status(name: str) -> list[dict[str, Any]]:
    done = subprocess.run([*GAITWAY, "sweep", "status", name, "--json"], capture_output=True, text=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def version() -> str:
    try:
        return subprocess.run(["sbatch", "--version"], capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return "none"


if __name__ == "__main__":
    main()
