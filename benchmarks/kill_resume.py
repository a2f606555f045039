"""Kills runs with SIGKILL at random moments and resumes them: the parameters must end bit for bit the same.

gaitway bench kill_resume --kills 20 --out benchmarks/results/kill_resume.json
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SMALL = ["evaluation.episodes=2", "evaluation.interval=6000", "checkpoints.interval=3000"]
RUNS = {
    "feed-forward": ["experiment=ppo_hopper", "total_steps=40000", "algorithm.epochs=4", "env.num_threads=1"],
    "recurrent": ["experiment=ppo_cartpole_masked", "total_steps=40000"],
}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "gaitway.cli.main", *arguments]


def fingerprint(run: Path) -> str:
    output = subprocess.run(command("info", str(run), "--json"), check=True, capture_output=True, text=True).stdout
    return json.loads(output)["parameters_sha256"]


def metrics(run: Path) -> list[dict]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.startswith("time/")} for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default=None)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    rows = []
    folder = Path(tempfile.mkdtemp(prefix="gaitway-kill-"))
    for name, arguments in RUNS.items():
        whole = folder / f"{name}-whole"
        started = time.perf_counter()
        subprocess.run(
            command("train", *arguments, *SMALL, f"run_dir={whole}", "--quiet"), check=True, capture_output=True
        )
        length = time.perf_counter() - started
        expected, lines = fingerprint(whole), metrics(whole)
        kills = 0
        while kills < options.kills // len(RUNS):
            run = folder / f"{name}-{len(rows)}"
            arguments_now = command("train", *arguments, *SMALL, f"run_dir={run}", "--quiet")
            moments = []
            while True:  # one run may be killed several times before it is done
                process = subprocess.Popen(arguments_now, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                moment = draw.uniform(0.1, 1.0) * length
                try:
                    process.wait(timeout=moment)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                    moments.append(round(moment, 2))
                    kills += 1
                else:
                    if process.returncode != 0:
                        raise RuntimeError(f"{name} ended with exit code {process.returncode} after kills at {moments}")
                    break
                if (run / "config.yaml").exists():
                    arguments_now = command("resume", str(run), "--quiet")
                else:
                    shutil.rmtree(run, ignore_errors=True)  # killed before it was a run
            row = {"run": name, "killed_after_s": moments, "equal": fingerprint(run) == expected,
                   "metrics_equal": metrics(run) == lines}  # fmt: skip
            rows.append(row)
            print(row, flush=True)
    shutil.rmtree(folder)
    result = {"benchmark": "kill_resume", "kills": sum(len(r["killed_after_s"]) for r in rows), "rows": rows,
              "all_equal": all(r["equal"] and r["metrics_equal"] for r in rows)}  # fmt: skip
    print(json.dumps({k: v for k, v in result.items() if k != "rows"}))
    if options.out:
        Path(options.out).write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(0 if result["all_equal"] else 1)


if __name__ == "__main__":
    main()
