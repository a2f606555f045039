"""SVPG beside its control: the same particles, environments and steps, with and without the kernel.

    gaitway bench svpg_comparison --seeds 10 11 12 --out benchmarks/results/svpg_comparison.json \\
        --picture docs/images/svpg_histogram.png

Every run is trained by the command line; then each of its particles, as it is at the end, plays 20 episodes
deterministically from starts that training never saw. The picture shows the returns of the particles of all seeds,
each group sorted from the best down. With `--runs DIR` run folders are kept, and what is finished there is not trained
again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from _rounds import machine, revision
from classic_gates import gaitway

from gaitway.agents.policy import InferencePolicy
from gaitway.analysis.trajectories import plot_histograms
from gaitway.cli.build import build_env, load_policy
from gaitway.cli.open_run import open_run
from gaitway.runners.evaluate import run_episodes

PRESET = "svpg_cartpole"
EPISODES = 20


def groups(temperatures: list[float]) -> dict[str, list[str]]:
    """What is compared: a name and what it adds to the command."""
    found = {"independent": ["algorithm.coupled=false"]}
    return found | {f"SVPG, temperature {t:g}": [f"algorithm.temperature={t}"] for t in temperatures}


def measure(path: Path, seed: int, overrides: list[str]) -> dict[str, object]:
    """Train one seed; the returns of its particles, and how far apart they are."""
    if not (path / "summary.json").exists():
        gaitway("train", f"experiment={PRESET}", f"seed={seed}", f"run_dir={path}", "env.num_threads=1", *overrides,
                "--quiet")  # fmt: skip
    folder, config = open_run(str(path))
    env = build_env(config, "evaluation", EPISODES)
    policy, steps, _ = load_policy(folder, config, env, "last")
    returns = [float(run_episodes(env, InferencePolicy(m), EPISODES)["return"].mean()) for m in policy.members]
    env.close()
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    updates = [row for row in rows if "particles/distance" in row]
    return {
        "seed": seed,
        "steps": steps,
        "returns": returns,
        "acting": int(policy.best),
        "distance": updates[-1]["particles/distance"],
        "distance_at_start": updates[0]["particles/distance"],
        "seconds": round(json.loads((path / "summary.json").read_text())["seconds"], 1),
        "curve": [[row["step"], row["eval/return"]] for row in rows if "eval/return" in row],
    }


def summary(seeds: list[dict]) -> dict[str, float]:
    """Of all particles of all seeds, and of the one per seed that acts."""
    returns = np.array([row["returns"] for row in seeds])
    acting = [row["returns"][row["acting"]] for row in seeds]
    return {
        "mean": float(returns.mean()),
        "median": float(np.median(returns)),
        "mean_of_best": float(returns.max(1).mean()),
        "mean_of_acting": float(np.mean(acting)),
        "solved": int((returns >= 475).sum()),
        "particles": returns.size,
        "distance": float(np.mean([row["distance"] for row in seeds])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12])
    parser.add_argument("--temperatures", type=float, nargs="+", default=[1e-3, 0.1])
    parser.add_argument("--runs", default=None, help="where run folders are kept (default: they are not)")
    parser.add_argument("--out", default=None)
    parser.add_argument("--picture", default=None)
    parser.add_argument("--commit", default=None, help="what to write down as the commit (default: this checkout's)")
    parser.add_argument("--set", nargs="*", default=[], dest="overrides", help="key=value for every run")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, dict] = {}
    with tempfile.TemporaryDirectory() as temporary:
        runs = Path(options.runs or temporary)
        for name, more in groups(options.temperatures).items():
            folder = name.replace(", temperature ", "_")
            seeds = [measure(runs / f"{folder}_{seed}", seed, [*more, *options.overrides]) for seed in options.seeds]
            found[name] = {"summary": summary(seeds), "seeds": seeds}
            numbers = "  ".join(f"{key} {value:.4g}" for key, value in found[name]["summary"].items())
            print(f"{name:26s} {numbers}", flush=True)
    if options.picture:
        returns = {name: np.concatenate([row["returns"] for row in group["seeds"]]) for name, group in found.items()}
        title = f"CartPole-v1: particles of {len(options.seeds)} seeds"
        plot_histograms(returns, title=title, path=options.picture)
    if options.out:
        result = {
            "benchmark": "svpg_comparison", "commit": options.commit or revision(), "machine": machine(),
            "preset": PRESET, "episodes": EPISODES, "overrides": options.overrides, "groups": found,
        }  # fmt: skip
        Path(options.out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
