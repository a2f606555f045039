"""After how many seconds of training does a quadruped walk as it is told? Whole presets on one GPU, several seeds.

    gaitway bench warp_walks --preset ppo_go1_velocity_gpu --seeds 0 1 2 3 4 \\
        --out benchmarks/results/warp_walks_go1.json

Training is cut into pieces of `--piece` seconds; after each one the deterministic policy is judged on the evaluation of
the preset (the grid of commands, 15 x 32 robots, 10 s). Seconds count training alone: evaluations are apart, and so are
compilation and recording, in iterations that are undone before training begins; they are stated. A threshold is reached
at the first evaluation with a velocity RMSD of at most so much and falls in at most 2 % of the episodes. Asked: medians
of at most 15 s for 0.20 m/s and 60 s for 0.10 m/s.
"""

from __future__ import annotations

import copy
import gc
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from _warp import Clock, Results, config_of, evaluation_env, judged, learn, options, runner_of

from gaitway.cli.build import build_env

FALLS = 0.02
ASKED = {"0.20": 15.0, "0.10": 60.0}


def walked(config: Any, env: Any, judge: Any, given: Any, note: Any) -> dict[str, Any]:
    """One seed: evaluations over seconds of training in `env`, judged in `judge`."""
    device = torch.device(config.device)
    rows = config.env.num_envs * config.algorithm.rollout_steps
    clock = Clock(device)
    env.reset(config.seed)
    runner = runner_of(config, env)
    learn(runner, rows)
    state = copy.deepcopy(runner.state_dict())
    learn(runner, given.warm_up * rows)  # compiles and records; then training goes on from where it was
    runner.load_state_dict(state)
    judged(runner, judge, given.episodes, config.seed)
    preparing = clock.seconds()
    curve: list[dict[str, float]] = []
    reached: dict[str, float] = {}
    seconds, counted = 0.0, 1
    while seconds < given.seconds:
        clock, began = Clock(device), counted
        while clock.seconds() < given.piece:
            learn(runner, rows)
            counted += 1
        piece = clock.seconds()
        seconds += piece if curve else piece * counted / (counted - began)  # the first iteration counts at this pace
        figures = judged(runner, judge, given.episodes, config.seed)
        point = {"seconds": round(seconds, 2), "steps": counted * rows, "iterations": counted}
        point |= {name: round(figures[name], 4) for name in ("velocity_rmsd", "yaw_rmsd", "fell", "return", "length")}
        curve.append(point)
        for limit in ASKED:
            if limit not in reached and point["velocity_rmsd"] <= float(limit) and point["fell"] <= FALLS:
                reached[limit] = point["seconds"]
        note(curve, reached)
        if len(reached) == len(ASKED) and not given.whole:
            break
    if given.film:
        filmed(runner, judge, Path(given.film) / f"{given.preset}_{config.seed}.mp4")
    found = {"reached": reached, "preparing s": round(preparing, 1), "curve": curve}
    found["steps/s"] = round(curve[-1]["steps"] / curve[-1]["seconds"])
    return found


def filmed(runner: Any, env: Any, path: Path) -> None:
    """Ten seconds of instance 5, which is told to run (0.9 m/s), drawn on the CPU."""
    import imageio

    from gaitway.core.seeding import stream

    path.parent.mkdir(parents=True, exist_ok=True)
    act = runner.upkeep.judge.cast.inference(False, stream(0, "evaluation", env.device))
    obs = env.reset(list(range(env.num_envs)))
    act.reset()
    with imageio.get_writer(str(path), fps=25) as film:
        for number in range(500):
            obs = env.step(act(obs)).obs
            if number % 2:
                film.append_data(env.render(5, 480, 360))


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--preset", default="ppo_go1_velocity_gpu")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--seconds", type=float, default=70.0, help="of training, at most")
    parser.add_argument("--piece", type=float, default=2.0)
    parser.add_argument("--episodes", type=int, default=480)
    parser.add_argument(
        "--warm-up", type=int, default=3, help="iterations in which everything is compiled and recorded"
    )
    parser.add_argument("--mode", default="captured", help="execution.mode of the updates")
    parser.add_argument("--whole", action="store_true", help="go on to the end when both thresholds are reached")
    parser.add_argument("--film", default=None, help="folder for a clip of each seed")
    parser.add_argument("--changes", nargs="*", default=[], help="key=value")
    given = parser.parse_args()
    results = Results("warp_walks", given)
    seeds: dict[str, Any] = {}
    env = judge = None
    for seed in given.seeds:
        began = time.monotonic()
        changes = (f"seed={seed}", f"execution.mode={given.mode}", "evaluation.interval=0", *given.changes)
        config = config_of(given.preset, given.device, *changes)
        if env is None:  # compiled once for all seeds
            env, judge = build_env(config), evaluation_env(config, given.episodes)
            results.note(**{"environments s": round(time.monotonic() - began, 1)})

        def note(curve: list[dict[str, float]], reached: dict[str, float], seed: int = seed) -> None:
            seeds[str(seed)] = {"reached": dict(reached), "curve": list(curve)}
            results.note(seeds=seeds)

        seeds[str(seed)] = walked(config, env, judge, given, note)
        seeds[str(seed)]["wall s"] = round(time.monotonic() - began, 1)
        results.note(seeds=seeds)
        gc.collect()
    missed = float("inf")
    medians = {
        limit: statistics.median([seed["reached"].get(limit, missed) for seed in seeds.values()]) for limit in ASKED
    }
    results.note(medians={limit: value if value < missed else None for limit, value in medians.items()})
    return 0 if given.device == "cpu" or all(medians[limit] <= asked for limit, asked in ASKED.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
