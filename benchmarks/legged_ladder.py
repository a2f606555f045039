"""The ladder of legged robots: do presets learn what they are told, and in which time?

    gaitway bench legged_ladder gait_params gait_residual pup4 --out benchmarks/results/legged_ladder.json

Each rung trains its preset from the command line and judges the deterministic policy of the last checkpoint. On the
grid, 120 episodes: `gait_params` passes with a velocity RMSD of at most 0.12 m/s and no fall in at most 120 s,
`gait_residual`, models and kicks as in training, with 0.12 m/s, falls in at most 2 % of episodes, in at most 360 s,
`go1` and `spot`, robots of others that steer a trot, with 0.25 m/s in at most 900 s.
`pup4`: told 0.5 and 1.0 m/s, 16 episodes each; passed: the mean speed error is at most 0.2 m/s at both. `walker`,
`humanoid`, `velocity`, `amp_trot`: figures alone. `seconds` is `time/seconds` of the run; `cpu_seconds` are those of
the whole process, start and evaluation included, which others on the machine hardly change. A twin, seed of the first:
`no authority` corrects the gait by nothing, and must not pass; those of `gait_params` are in `legged_gaits`.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from _rounds import machine, revision, versions

from gaitway import make_env
from gaitway.cli.build import load_policy
from gaitway.cli.open_run import open_run
from gaitway.runners.evaluate import run_episodes

PRESETS = {
    **{"gait_params": "ppo_pup12_gait_params", "gait_residual": "ppo_pup12_gait_residual"},
    **{"go1": "ppo_go1_gait_params", "spot": "ppo_go1_gait_params"},
    **{"pup4": "ppo_pup4_velocity", "walker": "ppo_walker_velocity"},
    **{"humanoid": "ppo_humanoid_velocity", "velocity": "ppo_pup12_velocity", "amp_trot": "ppo_pup12_amp_trot"},
}
CHANGES = {"spot": ["env.options.robot=spot", "env.options.gait.height=0.46", "env.options.gait.lift=0.12"]}
TWINS = {"gait_residual": {"no authority": ["env.options.action_scale=1e-6"]}}
SPEED_ERROR = 0.2
RMSD = {"gait_params": 0.12, "gait_residual": 0.12, "go1": 0.25, "spot": 0.25}
FALLS = {"gait_params": 0.0, "gait_residual": 0.02, "go1": 1.0, "spot": 1.0}
SECONDS = {"gait_params": 120.0, "gait_residual": 360.0, "go1": 900.0, "spot": 900.0}
SPEEDS = (0.5, 1.0)


def trained(rung: str, seed: int, steps: int | None, threads: int, changes: list[str], folder: Path) -> Path:
    run = folder / f"{rung}_{seed}"
    command = [sys.executable, "-m", "gaitway", "train", f"experiment={PRESETS[rung]}", f"seed={seed}", "--quiet"]
    command += [f"run_dir={run}", "evaluation.interval=0", f"env.num_threads={threads}", f"torch_threads={threads}"]
    command += [f"total_steps={steps}"] if steps else []
    subprocess.run([*command, *CHANGES.get(rung, []), *changes], check=True, stdout=subprocess.DEVNULL)
    return run


def cpu_seconds() -> float:
    """What processes that this one started and that have ended took of the cores."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def judged(rung: str, run: Path) -> dict[str, float]:
    """The figures of the evaluation that ended the run, and what the rung asks for besides."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found = {
        name.removeprefix("eval/"): value for row in rows for name, value in row.items() if name.startswith("eval/")
    }
    kept = ("return", "length", "fell", "velocity_rmsd", "yaw_rmsd", "cost_of_transport", "stride_frequency")
    result = {name: round(found[name], 4) for name in kept if found.get(name) is not None}
    result["seconds"] = round(max(row.get("time/seconds", 0.0) for row in rows), 1)
    result["steps"] = float(max(row["step"] for row in rows))
    if rung == "pup4":
        for speed in SPEEDS:
            env = make_env("pup4/velocity", 16, num_threads=1, purpose="evaluation", commands={"fixed": [speed, 0, 0]})
            opened, config = open_run(str(run))
            table = run_episodes(env, load_policy(opened, config, env.spec, "last").inference(), 16)
            result[f"speed_error_{speed:g}"] = round(float(table["velocity_error"].mean()), 4)
    return result


def passed(rung: str, row: dict[str, float]) -> bool | None:
    """None where a rung has no threshold."""
    if rung in FALLS:
        return row["velocity_rmsd"] <= RMSD[rung] and row["fell"] <= FALLS[rung] and row["seconds"] <= SECONDS[rung]
    if rung == "pup4":
        return all(row[f"speed_error_{speed:g}"] <= SPEED_ERROR for speed in SPEEDS)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rungs", nargs="+", choices=list(PRESETS))
    parser.add_argument("--out", default=None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=None, help="instead of the preset's")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--twins", action="store_true")
    parser.add_argument("--commit", default=None, help="what to write down as the commit (default: this checkout's)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: dict[str, Any] = {}
    plan: list[tuple[str, int, str, list[str]]] = [
        (rung, seed, "", []) for rung in options.rungs for seed in options.seeds
    ]
    if options.twins:
        plan += [
            (rung, options.seeds[0], name, changes)
            for rung in options.rungs
            for name, changes in TWINS.get(rung, {}).items()
        ]
    with tempfile.TemporaryDirectory() as folder:
        for rung, seed, twin, changes in plan:
            spent = cpu_seconds()
            run = trained(rung, seed, options.steps, options.threads, changes, Path(folder) / (twin or "honest"))
            row = {**judged(rung, run), "cpu_seconds": round(cpu_seconds() - spent, 1)}
            name = f"{rung}, seed {seed}" + (f", twin {twin}" if twin else "")
            rows[name] = {**row, "passed": passed(rung, row)}
            print(name, rows[name], flush=True)
            if options.out:
                about = {"benchmark": "legged_ladder", "machine": machine(), "commit": options.commit or revision()}
                about |= {"versions": versions("mujoco", "torch"), "threads": options.threads}
                Path(options.out).write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    bad = [name for name, row in rows.items() if row["passed"] is not None and row["passed"] == ("twin" in name)]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
