"""Learning gates of the classic algorithms: a preset, a budget of steps, a return that most seeds must reach.

    gaitway bench classic_gates --only reinforce a2c --jobs 2 --out benchmarks/results/classic_gates_on_policy.json

Every seed is trained by the command line in a process of its own; then the final policy, not the best one, plays 20
episodes deterministically from starts that training never saw (`gaitway eval --checkpoint last`). Every seed is
reported; a run that fails, or that took more steps than its budget, has not passed. Evolution is trained twice, with
one process and with two, and must end with the same parameters. The exit code is 1 unless every gate holds. With
`--runs DIR` the run folders are kept, and what is finished there is not trained again.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import yaml
from _rounds import machine, revision

EPISODES = 20
NEEDED = 0.8
"""The share of the seeds that must pass: four of five."""


class Gate(NamedTuple):
    """What a preset must reach."""

    preset: str
    threshold: float
    """Mean return of the evaluation episodes."""
    budget: int | None = None
    """Environment steps, None for as many as the preset says."""
    settings: tuple[str, ...] = ()
    """Changes of the preset."""
    twin: tuple[str, ...] = ()
    """Changes for a second run of every seed, which must end with the same parameters; none for no such run."""


ONE, TWO = ("algorithm.processes=1",), ("algorithm.processes=2",)

GATES = {
    "reinforce": Gate("reinforce_cartpole", 475.0, 500_000),
    "a2c": Gate("a2c_cartpole", 475.0, 200_000),
    "dqn": Gate("dqn_cartpole", 475.0, 50_000),
    "ddpg": Gate("ddpg_pendulum", -200.0, 20_000),
    "td3": Gate("td3_pendulum", -200.0, 20_000),
    "cem": Gate("cem_cartpole", 475.0, settings=ONE, twin=TWO),
    "es": Gate("es_cartpole", 475.0, settings=ONE, twin=TWO),
}


def gaitway(*arguments: str) -> str:
    """What a command printed; one thread, because runs stand beside each other."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "gaitway.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise RuntimeError(f"gaitway {shlex.join(arguments)}: {lines[-1]}")
    return done.stdout


def measure(gate: Gate, seed: int, runs: Path, overrides: list[str]) -> dict[str, object]:
    """Train one seed and measure what came out."""
    path, twin = runs / f"{gate.preset}_{seed}", runs / f"{gate.preset}_{seed}_twin"
    try:
        train(gate.preset, seed, path, [*gate.settings, *overrides])
        if gate.twin:
            train(gate.preset, seed, twin, [*gate.twin, *overrides])
        hashes = {parameters_sha256(each) for each in ((path, twin) if gate.twin else (path,))}
        found = json.loads(
            gaitway("eval", str(path), "--episodes", str(EPISODES), "--checkpoint", "last", "--json").splitlines()[-1]
        )
    except RuntimeError as error:
        print(f"{gate.preset} seed {seed}: {error}", file=sys.stderr, flush=True)
        return {"seed": seed, "passed": False, "error": str(error)}
    summary = json.loads((path / "summary.json").read_text())
    as_asked = (gate.budget is None or found["steps"] <= gate.budget) and len(hashes) == 1
    row = {
        "seed": seed,
        "return": found["return"],
        "return_std": found["return_std"],
        "steps": found["steps"],
        "seconds": round(summary["seconds"], 1),
        "passed": bool(as_asked and found["return"] >= gate.threshold),
        "parameters_sha256": sorted(hashes),
        "curve": curve(path),
    }
    print(
        f"{gate.preset} seed {seed}: {found['return']:.1f} after {found['steps']:,} steps", file=sys.stderr, flush=True
    )
    return row


def train(preset: str, seed: int, path: Path, changes: list[str]) -> None:
    """Train into a run folder; what was begun there is finished, and what is finished is left alone."""
    if path.exists() and not is_finished(path):
        gaitway("resume", str(path), "--quiet")
    elif not path.exists():
        wanted = [f"experiment={preset}", f"seed={seed}", f"run_dir={path}", "env.num_threads=1", *changes]
        gaitway("train", *wanted, "--quiet")


def is_finished(path: Path) -> bool:
    """Whether the run came to its planned end, or to one that its own rules made; summaries are written earlier too."""
    if not (path / "summary.json").exists():
        return False
    summary = json.loads((path / "summary.json").read_text())
    planned = yaml.safe_load((path / "config.yaml").read_text())["total_steps"]
    return summary["steps"] >= planned or summary["stopped_by"] in ("threshold", "patience")


def parameters_sha256(path: Path) -> str:
    return json.loads(gaitway("info", str(path), "--json").splitlines()[-1])["parameters_sha256"]


def curve(path: Path) -> list[list[float]]:
    """Steps and returns of the evaluations during training."""
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [[line["step"], line["eval/return"]] for line in lines if "eval/return" in line]


def run(options: argparse.Namespace, runs: Path) -> dict[str, dict[str, object]]:
    jobs = [(name, seed) for name in options.only for seed in options.seeds]
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(lambda job: measure(GATES[job[0]], job[1], runs, options.overrides), jobs))
    found: dict[str, dict[str, object]] = {}
    for name in options.only:
        seeds = [row for job, row in zip(jobs, rows, strict=True) if job[0] == name]
        passed = sum(bool(row["passed"]) for row in seeds)
        found[name] = {
            **GATES[name]._asdict(),
            "passed": passed,
            "of": len(seeds),
            "holds": passed >= NEEDED * len(seeds),
            "seeds": seeds,
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sorted(GATES), default=list(GATES), metavar="GATE")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--runs", default=None, help="where run folders are kept (default: they are not)")
    parser.add_argument("--out", default=None)
    parser.add_argument("--commit", default=None, help="what to write down as the commit (default: this checkout's)")
    parser.add_argument("--set", nargs="*", default=[], dest="overrides", help="key=value for every run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        gates = run(options, Path(options.runs or folder))
    for name, gate in gates.items():
        returns = [f"{row['return']:.0f}" if "return" in row else "failed" for row in gate["seeds"]]  # type: ignore[attr-defined]
        verdict = "holds" if gate["holds"] else "MISSED"
        print(f"{name:10s} {gate['preset']:20s} >= {gate['threshold']:g}: {gate['passed']} of {gate['of']}, {verdict}")
        print(f"{'':10s} {', '.join(returns)}")
    if options.out:
        result = {
            "benchmark": "classic_gates", "commit": options.commit or revision(), "machine": machine(),
            "episodes": EPISODES, "overrides": options.overrides, "gates": gates,
        }  # fmt: skip
        Path(options.out).write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(0 if all(gate["holds"] for gate in gates.values()) else 1)


if __name__ == "__main__":
    main()
