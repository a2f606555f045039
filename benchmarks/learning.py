"""Learning curves of the presets: five seeds each, every seed reported.

    gaitway bench learning ppo_halfcheetah ppo_walker2d ppo_hopper --seeds 0 1 2 3 4 --jobs 2 --out benchmarks/results

Writes one JSON per preset: the commit, the command, every seed's evaluations and final return, and the interquartile
mean of the final returns; and one picture of the curves.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from pathlib import Path

import numpy as np
from _rounds import machine, revision
from scipy.stats import trim_mean


def train(preset: str, seed: int, folder: str, overrides: list[str]) -> dict[str, object]:
    """One run, in a process of its own; a run folder that is finished already is read instead."""
    from gaitway.cli.build import build_runner
    from gaitway.cli.compose import compose
    from gaitway.cli.config_file import write_config
    from gaitway.cli.train_config import TrainConfig, choices, effective, parse
    from gaitway.core.config import to_config
    from gaitway.runners.logger import Logger
    from gaitway.runners.run_folder import RunFolder

    path = Path(folder) / f"{preset}_{seed}"
    if not (path / "summary.json").exists():
        wanted = [f"experiment={preset}", f"seed={seed}", *overrides]
        composed = compose(wanted, to_config(TrainConfig()), parse, **choices())
        config = effective(parse(composed.config))
        run = RunFolder.create(path)
        write_config(run.config, to_config(config), composed.sources)
        runner = build_runner(config, run, logger=Logger(run.path))
        run.write_contract(runner.env.spec.to_dict())
        runner.learn()
        runner.close()
    summary = json.loads((path / "summary.json").read_text())
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    curve = [[line["step"], line["eval/return"]] for line in lines if "eval/return" in line]
    print(f"{preset} seed {seed}: return {summary['last']['return']:.0f} after {summary['seconds']:.0f} s", flush=True)
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
        axis.set(title=preset, xlabel="million environment steps", ylabel="return (deterministic)")
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
    parser.add_argument(
        "--commit", default=None, help="what to write down as the commit (default: that of this checkout)"
    )
    parser.add_argument("--set", nargs="*", default=[], dest="overrides", help="key=value for every run")
    options = parser.parse_args()
    if options.out:
        Path(options.out).mkdir(parents=True, exist_ok=True)
    overrides = ["env.num_threads=1", *options.overrides] if options.jobs > 1 else options.overrides
    jobs = [(preset, seed, options.runs, overrides) for preset in options.presets for seed in options.seeds]
    with multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=1) as pool:
        rows = pool.starmap(train, jobs, chunksize=1)
    results = {preset: [r for j, r in zip(jobs, rows, strict=True) if j[0] == preset] for preset in options.presets}
    for preset, found in results.items():
        finals = [row["last"]["return"] for row in found]
        result = {
            "benchmark": "learning", "preset": preset, "commit": options.commit or revision(), "overrides": overrides,
            "machine": machine(),
            "final_returns": finals, "iqm": float(trim_mean(finals, 0.25)), "seeds": found,
        }  # fmt: skip
        print(preset, "final returns", [round(x) for x in finals], "IQM", round(result["iqm"]))
        if options.out:
            (Path(options.out) / f"learning_{preset}.json").write_text(json.dumps(result, indent=1) + "\n")
    if options.out:
        draw(results, Path(options.out) / f"learning_{'_'.join(options.presets)}.png")


if __name__ == "__main__":
    main()
