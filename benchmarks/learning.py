"""Learning curves of the presets: five seeds each, every seed reported.

    gaitway bench learning ppo_halfcheetah ppo_walker2d ppo_hopper --seeds 0 1 2 3 4 --jobs 2 --out benchmarks/results

Writes one JSON per preset: the commit, the command, every seed's evaluations and final return, and the interquartile
mean of the final returns; and one picture of the curves.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from scipy.stats import trim_mean


def train(preset: str, seed: int, folder: Path, overrides: list[str]) -> dict[str, object]:
    run = folder / f"{preset}_{seed}"
    if not (run / "summary.json").exists():
        command = [sys.executable, "-m", "gaitway.cli.main", "train", f"experiment={preset}", f"seed={seed}"]
        subprocess.run([*command, f"run_dir={run}", "--quiet", *overrides], check=True, stdout=subprocess.DEVNULL)
    summary = json.loads((run / "summary.json").read_text())
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    curve = [[line["step"], line["eval/return"]] for line in lines if "eval/return" in line]
    return {
        "seed": seed,
        "last": summary["last"],
        "best": summary["best"],
        "seconds": summary["seconds"],
        "curve": curve,
    }


def draw(results: dict[str, list[dict]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(results), figsize=(4 * len(results), 3.2), layout="constrained", squeeze=False)
    for axis, (preset, rows) in zip(axes[0], results.items(), strict=True):
        for row in rows:
            steps, returns = zip(*row["curve"], strict=True)
            axis.plot(np.array(steps) / 1e6, returns, lw=1, alpha=0.8, label=f"seed {row['seed']}")
        axis.set(title=preset, xlabel="million environment steps", ylabel="evaluation return")
        axis.grid(alpha=0.3)
    axes[0][0].legend(fontsize=7)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--runs", default="runs/learning")
    parser.add_argument("--out", default=None)
    parser.add_argument("--set", nargs="*", default=[], dest="overrides", help="key=value for every run")
    options = parser.parse_args()
    overrides = ["env.num_threads=1", *options.overrides] if options.jobs > 1 else options.overrides
    revision = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    jobs = [(preset, seed) for preset in options.presets for seed in options.seeds]
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(lambda job: train(*job, Path(options.runs), overrides), jobs))
    results = {preset: [r for j, r in zip(jobs, rows, strict=True) if j[0] == preset] for preset in options.presets}
    for preset, found in results.items():
        finals = [row["last"]["return"] for row in found]
        result = {
            "benchmark": "learning", "preset": preset, "commit": revision, "overrides": overrides,
            "final_returns": finals, "iqm": float(trim_mean(finals, 0.25)), "seeds": found,
        }  # fmt: skip
        print(preset, "final returns", [round(x) for x in finals], "IQM", round(result["iqm"]))
        if options.out:
            (Path(options.out) / f"learning_{preset}.json").write_text(json.dumps(result, indent=1) + "\n")
    if options.out:
        draw(results, Path(options.out) / f"learning_{'_'.join(options.presets)}.png")


if __name__ == "__main__":
    main()
