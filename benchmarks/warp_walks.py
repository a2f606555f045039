"""After how many seconds of training does a quadruped walk as it is told? Whole presets on one GPU, several seeds.

    gaitway bench warp_walks --preset ppo_go1_velocity_gpu --seeds 0 1 2 3 4 \\
        --out benchmarks/results/warp_walks_go1.json

Training is cut into pieces of `--piece` seconds; after each one the deterministic policy is judged on the evaluation of
the preset (the grid of commands, 15 x 32 robots, 10 s). Seconds count training alone: evaluations are apart, and so are
compilation and recording, in iterations that are undone before training begins; they are stated. A threshold is reached
at the first evaluation with a velocity RMSD of at most so much and falls in at most 2 % of the episodes. Asked: medians
of at most 15 s for 0.20 m/s and 60 s for 0.10 m/s. The seed of `--trial` comes first and is told apart.

Seeds that `--out` holds whole are not run again. `--trajectories FOLDER` keeps how the robots of the grid move for ten
seconds after each seed, as FOLDER/PRESET_SEED.npz, which any machine draws:

    gaitway bench warp_walks --draw FOLDER/ppo_go1_velocity_gpu_0.npz
"""

from __future__ import annotations

import copy
import gc
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _warp import Clock, Results, config_of, evaluation_env, judged, learn, options, runner_of

from gaitway.cli.build import build_env
from gaitway.core.seeding import stream

FALLS = 0.02
EVERY, ROBOTS = 2, 15
"""Of a trajectory: one of so many states, and so many robots, each with another command of the grid."""
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
    found = {"preparing s": round(preparing, 1)}
    found |= climbed(
        lambda: learn(runner, rows),
        lambda: judged(runner, judge, given.episodes, config.seed),
        rows,
        device,
        given,
        note,
    )
    note(found)
    if given.trajectories:
        path = Path(given.trajectories) / f"{given.preset}_{config.seed}.npz"
        try:
            keep_trajectory(runner, judge, path, given.preset, given.changes)
        except Exception as error:  # the figures of this seed and of those behind it matter more
            found["no trajectory"] = (str(error).splitlines() or [type(error).__name__])[0]
    return found


def climbed(
    iterate: Callable[[], object],
    judged: Callable[[], dict[str, float]],
    rows: int,
    device: torch.device,
    given: Any,
    note: Callable[[dict[str, Any]], object],
) -> dict[str, Any]:
    """Evaluations over seconds of training, in pieces of `given.piece`, until both thresholds are reached or
    `given.seconds` are over. One iteration of `rows` steps was made before."""
    curve: list[dict[str, float]] = []
    reached: dict[str, float] = {}
    seconds, counted = 0.0, 1
    while seconds < given.seconds:
        clock, began = Clock(device), counted
        while clock.seconds() < given.piece:
            iterate()
            counted += 1
        piece = clock.seconds()
        seconds += piece if curve else piece * counted / (counted - began)  # the first iteration counts at this pace
        figures = judged()
        point = {"seconds": round(seconds, 2), "steps": counted * rows, "iterations": counted}
        point |= {name: round(figures[name], 4) for name in ("velocity_rmsd", "yaw_rmsd", "fell", "return", "length")}
        curve.append(point)
        for limit in ASKED:
            if limit not in reached and point["velocity_rmsd"] <= float(limit) and point["fell"] <= FALLS:
                reached[limit] = point["seconds"]
        note({"reached": reached, "curve": curve})
        if len(reached) == len(ASKED) and not given.whole:
            break
    return {"reached": reached, "curve": curve, "steps/s": round(curve[-1]["steps"] / curve[-1]["seconds"])}


def keep_trajectory(runner: Any, env: Any, path: Path, preset: str, changes: list[str]) -> None:
    """Positions of the first robots of the grid for ten seconds, every other step: some 250 kB."""
    cast = runner.upkeep.judge.cast
    act = cast.inference(False, stream(0, "evaluation", env.device))
    path.parent.mkdir(parents=True, exist_ok=True)
    states = []
    with cast.resting():
        obs = env.reset(list(range(env.num_envs)))
        act.reset()
        for number in range(round(10.0 / env.spec.control_dt)):
            if number % EVERY == 0:
                states.append(env.scenario()["qpos"][:ROBOTS])
            obs = env.step(act(obs)).obs
    qpos = torch.stack(states).float().numpy()
    np.savez_compressed(
        path, qpos=qpos, seconds=EVERY * env.spec.control_dt, preset=preset, changes=np.array(changes, dtype=str)
    )


def draw(path: Path, robot: int) -> None:
    """A clip of one robot of a kept trajectory, beside it, drawn by MuJoCo on the CPU."""
    import imageio
    import mujoco

    from gaitway.envs.pictures.render import MujocoPainter
    from gaitway.envs.pictures.scene import Scene

    with np.load(path) as kept:
        qpos, seconds, preset, changes = (kept[name] for name in ("qpos", "seconds", "preset", "changes"))
    config = config_of(str(preset), "cpu", *map(str, changes), "env.simulator=mujoco")
    clip = path.with_name(f"{path.stem}_{robot}.mp4")
    with build_env(config, "evaluation", 1) as env, imageio.get_writer(str(clip), fps=1.0 / float(seconds)) as film:
        scene = Scene(env.task)  # type: ignore[attr-defined]
        painter = MujocoPainter(scene.model, "shadows")
        scene.update(0)
        for state in qpos[:, robot]:
            scene.data.qpos[:] = state
            mujoco.mj_forward(scene.model, scene.data)
            film.append_data(painter.draw(scene.data, 480, 368, scene.camera))
        painter.close()
    print(clip)


def median_of(seeds: dict[str, Any], limit: str) -> float | None:
    """Of the seconds until `limit`; None where at least half of the seeds never reach it."""
    found = statistics.median([each["reached"].get(limit, float("inf")) for each in seeds.values()])
    return found if found < float("inf") else None


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--preset", default="ppo_go1_velocity_gpu")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--trial", type=int, default=None, help="a seed that comes first and counts for no median")
    parser.add_argument("--seconds", type=float, default=70.0, help="of training, at most")
    parser.add_argument("--piece", type=float, default=2.0)
    parser.add_argument("--episodes", type=int, default=480)
    parser.add_argument(
        "--warm-up", type=int, default=3, help="iterations in which everything is compiled and recorded"
    )
    parser.add_argument("--mode", default="captured", help="execution.mode of the updates")
    parser.add_argument("--whole", action="store_true", help="go on to the end when both thresholds are reached")
    parser.add_argument("--trajectories", default=None, help="folder for what clips are drawn from")
    parser.add_argument("--changes", nargs="*", default=[], help="key=value")
    parser.add_argument("--draw", type=Path, nargs="+", default=[], help="draw these trajectories and do nothing else")
    parser.add_argument("--robot", type=int, default=5, help="of the grid, to be drawn; 5 is told to run (0.9 m/s)")
    given = parser.parse_args()
    if given.draw:
        for path in given.draw:
            draw(path, given.robot)
        return 0
    results = Results("warp_walks", given, ("seeds", "trial", "trajectories", "draw", "robot"))
    env = judge = None
    trial = [] if given.trial is None else [("trial", given.trial)]
    for kind, seed in [*trial, *(("seeds", seed) for seed in given.seeds)]:
        known: dict[str, Any] = results.held(kind)
        if "wall s" in known.get(str(seed), {}):
            continue
        began = time.monotonic()
        changes = (f"seed={seed}", f"execution.mode={given.mode}", "evaluation.interval=0", *given.changes)
        config = config_of(given.preset, given.device, *changes)
        if env is None:  # compiled once for all seeds
            env, judge = build_env(config), evaluation_env(config, given.episodes)
            results.note(**{"environments s": round(time.monotonic() - began, 1)})

        def note(row: dict[str, Any], kind: str = kind, seed: int = seed, began: float = began) -> None:
            if "steps/s" in row:
                row["wall s"] = round(time.monotonic() - began, 1)  # only of seeds that are whole
            results.note(**{kind: results.held(kind) | {str(seed): copy.deepcopy(row)}})

        note(walked(config, env, judge, given, note))
        gc.collect()
    seeds = {str(seed): results.held("seeds")[str(seed)] for seed in given.seeds}
    medians = {limit: median_of(seeds, limit) for limit in ASKED}
    results.note(medians=medians)
    good = all(medians[limit] is not None and medians[limit] <= asked for limit, asked in ASKED.items())
    return 0 if good or given.device == "cpu" else 1


if __name__ == "__main__":
    sys.exit(main())
