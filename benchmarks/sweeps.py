"""A sweep whose driver is killed ends as one that was left alone; an Optuna sweep prunes.

    gaitway bench sweeps --out benchmarks/results/sweeps.json

PPO and SAC on a pendulum, five seeds each, as one sweep with two workers: once undisturbed, once with its driver killed
(SIGKILL) in the midst of a trial when four others are over, whose processes must be gone within 10 seconds, and which
is then resumed. Every `parameters_sha256` must be the same in both. Then an Optuna sweep of PPO's learning rate, in
which at least one trial must be pruned and still be playable.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from _provenance import add_commit, let_children_import, provenance

TOTAL = 15_360
COMMON: dict[str, Any] = {
    "env": {"id": "toy/pendulum", "num_envs": 4},
    "total_steps": TOTAL,
    "evaluation": {"interval": 3840, "episodes": 2},
    "checkpoints": {"interval": 640},
}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "ppo": {
        "algorithm": {"name": "ppo", "rollout_steps": 32, "minibatches": 2, "epochs": 2},
        "agent": {"actor_hidden": [16], "critic_hidden": [16]},
    },
    "sac": {
        "algorithm": {"name": "sac", "learning_starts": 320, "iteration_steps": 64, "batch_size": 32,
                      "replay_size": 4000, "update_ratio": 0.25},
        "agent": {"actor_hidden": [16], "critic_hidden": [16]},
    },
}  # fmt: skip
GAITWAY = [sys.executable, "-m", "gaitway"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None)
    add_commit(parser)
    options = parser.parse_args()
    out = options.out and Path(options.out).resolve()
    result = provenance("sweeps", options.commit)
    let_children_import()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        for name, measure in {"kill": killed_and_resumed, "optuna": pruned}.items():
            result[name] = measure(Path(place))
            result["machine"]["load_at_end"] = os.getloadavg()[0]
            if out:
                out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def killed_and_resumed(place: Path) -> dict[str, Any]:
    for name, content in ALGORITHMS.items():
        (place / f"{name}.yaml").write_text(yaml.safe_dump(COMMON | content))
    sweep = {"grid": {"config": ["ppo.yaml", "sac.yaml"]}, "seeds": "0..4", "workers": 2}
    (place / "both.yaml").write_text(yaml.safe_dump(sweep))
    subprocess.run([*GAITWAY, "sweep", "both.yaml", "--out", "whole"], check=True)
    driver = subprocess.Popen([*GAITWAY, "sweep", "both.yaml", "--out", "killed"])
    while not is_in_the_midst(steps := [steps_of(f"killed/{number:04d}") for number in range(10)]):
        time.sleep(0.05)
    at_work = len(processes("killed"))
    driver.send_signal(signal.SIGKILL)
    killed = time.perf_counter()
    driver.wait()
    while processes("killed") and time.perf_counter() - killed < 60:
        time.sleep(0.1)
    gone, left = time.perf_counter() - killed, len(processes("killed"))
    saved = [row["steps"] for row in status("killed")]
    subprocess.run([*GAITWAY, "sweep", "--resume", "killed"], check=True)
    whole, resumed = ([fingerprint(row["run"]) for row in status(name)] for name in ("whole", "killed"))
    rows = [
        {"number": row["number"], "parameters": row["parameters"], "seed": row["seed"], "steps_when_killed": done,
         "steps_saved": kept, "undisturbed": one, "resumed": other, "equal": one == other}
        for row, done, kept, one, other in zip(status("killed"), steps, saved, whole, resumed, strict=True)
    ]  # fmt: skip
    return {
        "processes_when_killed": at_work,
        "processes_left": left,
        "seconds_until_all_processes_were_gone": round(gone, 2),
        "all_equal": all(row["equal"] for row in rows) and len(rows) == 10,
        "in_the_middle": [row["number"] for row in rows if 0 < row["steps_when_killed"] < TOTAL],
        "trials": rows,
    }


def is_in_the_midst(steps: list[int]) -> bool:
    """Whether at least four trials are over, and another has gone between a quarter and three quarters of its way."""
    return sum(each >= TOTAL for each in steps) >= 4 and any(TOTAL / 4 < each < 3 * TOTAL / 4 for each in steps)


def steps_of(run: str) -> int:
    try:
        return int(json.loads(Path(run, "metrics.jsonl").read_text().splitlines()[-1])["step"])
    except (OSError, ValueError, IndexError, KeyError):
        return 0


def pruned(place: Path) -> dict[str, Any]:
    sweep = {
        "base": COMMON | ALGORITHMS["ppo"],
        "optuna": {
            "trials": 6,
            "pruner": {"name": "median", "n_startup_trials": 2},
            "parameters": {"algorithm.learning_rate": {"low": 1e-5, "high": 1e-1, "log": True}},
        },
        "seeds": 0,
    }
    (place / "search.yaml").write_text(yaml.safe_dump(sweep))
    subprocess.run([*GAITWAY, "sweep", "search.yaml", "--out", "search"], check=True)
    rows = status("search")
    stopped = [row for row in rows if row["state"] == "pruned"]
    for row in stopped[:1]:
        subprocess.run([*GAITWAY, "play", row["run"], "--no-video"], check=True)
    return {"pruned": [row["number"] for row in stopped], "trials": rows}


def status(name: str) -> list[dict[str, Any]]:
    done = subprocess.run([*GAITWAY, "sweep", "status", name, "--json"], capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else []


def fingerprint(run: str) -> str:
    done = subprocess.run([*GAITWAY, "info", run, "--verify", "--json"], capture_output=True, text=True, check=True)
    return str(json.loads(done.stdout.splitlines()[-1])["parameters_sha256"])


def processes(name: str) -> list[str]:
    """The processes of a sweep that are left."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"gaitway.cli.sweep.trial" in words and name.encode() in words:
            found.append(path.parent.name)
    return found


if __name__ == "__main__":
    main()
