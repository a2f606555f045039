"""Two algorithms, several seeds, and statistics that say how much of the difference may be luck.

    python examples/comparison.py [FOLDER]

A2C and PPO learn CartPole. Every run has a folder of its own with its configuration and its metrics, as `gaitway train`
makes them, in FOLDER or in a temporary one. From there on nothing but these folders is used, and `gaitway compare
FOLDER/a2c FOLDER/ppo --last 3` says the same.
"""

import sys
from pathlib import Path
from tempfile import mkdtemp

from gaitway import RunFolder
from gaitway.analysis.compare import Comparison, compare_groups
from gaitway.analysis.comparison_figures import comparison_figure
from gaitway.analysis.groups import Group
from gaitway.analysis.stats import PermutationTest
from gaitway.analysis.tables import Runs
from gaitway.cli.build import build_runner
from gaitway.cli.config_file import write_config
from gaitway.cli.train_config import effective, parse
from gaitway.core.config import to_config
from gaitway.runners.logger import Logger

ALGORITHMS = {
    "a2c": {"name": "a2c", "rollout_steps": 32, "learning_rate": 3e-3, "lam": 0.95},
    "ppo": {"name": "ppo", "rollout_steps": 64, "learning_rate": 1e-3, "minibatches": 8},
}
METRIC, INTERVAL = "eval/return", 1024


def train(folder: Path, algorithm: str, seed: int, steps: int) -> None:
    """One run; the keys are those of `gaitway train`."""
    keys = {
        "env": {"id": "toy/cartpole", "num_envs": 16},
        "algorithm": ALGORITHMS[algorithm],
        "evaluation": {"interval": INTERVAL, "episodes": 5, "stochastic": False},
        "total_steps": steps,
        "seed": seed,
    }
    config, run = effective(parse(keys)), RunFolder.create(folder / algorithm / str(seed))
    write_config(run.config, to_config(config), sources={})
    build_runner(config, run, logger=Logger(run.path)).learn()


def report(found: Comparison) -> None:
    for label, scores, (centre, low, high) in zip(found.labels, found.scores, found.centres, strict=True):
        reached = " ".join(f"{score:.0f}" for score in sorted(scores))
        print(f"{label}: interquartile mean {centre:.0f}, 95 % interval {low:.0f} to {high:.0f}, of {reached}")
    first, second = found.labels
    print(f"chance that a run of {second} beats one of {first}: {found.improvement.value:.2f}")
    print(f"{found.test.label}: p = {found.p_value:.2g}")
    other = PermutationTest()
    print(f"{other.label}: p = {other.p_value(*found.scores):.2g}")
    curves = found.curves  # tested at every evaluation, and corrected for testing so often
    print(f"along the curves: different at {curves.significant.sum()} of {len(curves.steps)} evaluations")
    print(found.sentence)


def main(quick: bool = False, folder: str | None = None) -> None:
    seeds, steps = (5, 5 * INTERVAL) if quick else (10, 24 * INTERVAL)
    place = Path(folder or mkdtemp(prefix="comparison_"))
    for algorithm in ALGORITHMS:
        for seed in range(seeds):
            train(place, algorithm, seed, steps)
    runs = Runs.read(place)
    table = runs.frame().groupby(["step", "_hp/algorithm/name"])[METRIC].mean()  # a pandas frame of all that was logged
    print(table.dropna().unstack().round().iloc[:: 1 if quick else 4])
    groups = [Group.from_runs(name, runs.filter("algorithm/name", name), METRIC) for name in ALGORITHMS]
    found = compare_groups(*groups, metric=METRIC, last=3)  # the mean of the last three evaluations is what counts
    report(found)
    comparison_figure(found, path=place / "comparison.png")
    print(f"runs and picture: {place}")


if __name__ == "__main__":
    folders = [argument for argument in sys.argv[1:] if argument != "--quick"]
    main("--quick" in sys.argv, *folders[:1])
