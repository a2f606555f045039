"""Do MuJoCo and Warp simulate the same robots? The same task, the same starts, the same actions, the same policies.

    gaitway bench warp_agreement --train 4096 60_000_000 1024 15_000_000 --out benchmarks/results/warp_agreement.json

`smooth`: robots thrown into the air that touch nothing, 50 steps of the same actions; the largest difference of qpos
and qvel, as it is and as a share of numbers above 1, asked 1e-4 of the latter in float32 (joints turn by 28 rad/s, of
which a float knows 2e-6). `tasks`: observations and rewards of the first steps of each task. `policies`: for each run
given, or trained here (`--train`), 1,000 episodes of the deterministic policy on either simulator, each on seeds of its
own: two-sample tests (Kolmogorov-Smirnov) of return and length, asked p >= 0.01 of both, and the ratio of the mean
returns, asked within 5 %.
`starts`: `walker/run` and `humanoid/run` draw other numbers on Warp, from the same distribution. With fewer than 256
instances torch compiles nothing. Tasks and policies that `--out` holds are not done again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from _warp import Clock, Results, config_of, learn, options, runner_of
from scipy import stats

from gaitway import make_env
from gaitway.cli.build import build_env, load_policy
from gaitway.cli.open_run import open_run
from gaitway.cli.train_config import TrainConfig
from gaitway.core.seeding import stream
from gaitway.envs.mujoco_warp import WarpEnv
from gaitway.envs.vec_env import Actor, VecEnv
from gaitway.runners.evaluate import play_episodes

SMOOTH, RATIO, LEAST_P = 1e-4, 0.05, 0.01
MAX_STEPS = 10_000
"""After which an episode is no longer followed."""
TASKS: dict[str, dict[str, Any]] = {
    "pup12/velocity": {"pushes": {"kick_seconds": None}},
    "pup12/gait_residual": {},
    "pup12/velocity_rough": {},
    "pup12/field_leap": {},
    "pup4/velocity": {},
    "walker/run": {},
    "humanoid/run": {},
}


def smooth(device: str, count: int, steps: int) -> dict[str, float]:
    """Free flight: 30 m up, upright, every joint driven."""
    given = {"randomise": {"enabled": True}, "pushes": {"kick_seconds": None}, "endings": []}
    with (
        make_env("pup12/velocity", count, 0, device=device, simulator="warp", **given) as there,
        make_env("pup12/velocity", count, 0, **given) as here,
    ):
        start = here.scenario()
        start["qpos"][:, 2] = 30.0
        here.load_scenario(start)
        there.load_scenario({name: start[name] for name in start.keys() & there.scenario().keys()})
        generator = torch.Generator().manual_seed(0)
        apart = {"qpos": 0.0, "qvel": 0.0, "share of qpos": 0.0, "share of qvel": 0.0}
        for _ in range(steps):
            action = torch.randn(count, *here.spec.action.shape, generator=generator)
            there.step(action)
            here.step(action)
            one, other = there.scenario(), here.scenario()
            for name in ("qpos", "qvel"):
                error = (one[name] - other[name]).abs()
                share = error / other[name].abs().clamp(min=1.0)
                apart[name] = max(apart[name], float(error.max()))
                apart[f"share of {name}"] = max(apart[f"share of {name}"], float(share.max()))
    return {"steps": steps, "instances": count, **apart}


def first_steps(id: str, change: dict[str, Any], device: str, count: int, steps: int) -> list[dict[str, float]]:
    with (
        make_env(id, count, 3, device=device, simulator="warp", **change) as there,
        make_env(id, count, 3, **change) as here,
    ):
        start = here.scenario()
        there.load_scenario({name: start[name] for name in start.keys() & there.scenario().keys()})
        here.load_scenario(start)
        generator, found = torch.Generator().manual_seed(0), []
        for _ in range(steps):
            action = 0.3 * torch.randn(count, *here.spec.action.shape, generator=generator)
            one, other = there.step(action), here.step(action)
            same = ~(one.terminated.cpu() ^ other.terminated)
            row = {
                name: float((one.final_obs[name].cpu() - value)[same].abs().max())
                for name, value in other.final_obs.items()
            }
            row["reward"] = float((one.reward.cpu() - other.reward)[same].abs().max())
            found.append({name: round(value, 7) for name, value in row.items()} | {"ends differ": int((~same).sum())})
    return found


def both(config: TrainConfig, act_on: Callable[[VecEnv], Actor], episodes: int) -> dict[str, Any]:
    """Episodes of a deterministic policy on either simulator."""
    tables: dict[str, dict[str, torch.Tensor]] = {}
    found: dict[str, Any] = {"trained on": config.env.simulator, "episodes": episodes, "velocity_rmsd": {}}
    for simulator, first in (("warp", 0), ("mujoco", episodes)):  # the test is one of independent samples
        changed = replace(config, env=replace(config.env, simulator=simulator))
        with build_env(changed, "evaluation", episodes) as env:
            tables[simulator] = play_episodes(env, act_on(env), list(range(first, first + episodes)), MAX_STEPS)
            pooled = {name: figure(tables[simulator]) for name, figure in env.spec.pooled.items()}
            found |= {f"counts of {simulator}": env.counts()} if isinstance(env, WarpEnv) else {}
        found[f"faults on {simulator}"] = int(tables[simulator]["physics_error"].gt(0).sum())
        found["velocity_rmsd"][simulator] = round(pooled.get("velocity_rmsd", float("nan")), 4)
    for name in ("return", "length"):
        one, other = tables["warp"][name], tables["mujoco"][name]
        test = stats.ks_2samp(one.numpy(), other.numpy())
        found[name] = {
            "warp": round(float(one.mean()), 4),
            "mujoco": round(float(other.mean()), 4),
            "ratio": round(float(one.mean() / other.mean()), 4),
            "KS": round(float(test.statistic), 4),
            "p": round(float(test.pvalue), 5),
        }
    return found


def of_run(run: str, device: str, episodes: int) -> dict[str, Any]:
    folder, config = open_run(run, device)

    def act_on(env: VecEnv) -> Actor:
        return load_policy(folder, config, env.spec, "last").inference(False, stream(0, "evaluation", env.device))

    return {"run": run, **both(config, act_on, episodes)}


def trained(given: Any, simulator: str, instances: int, steps: int) -> dict[str, Any]:
    """Train the preset on a simulator, and play the policy on both."""
    where = (f"env.simulator={simulator}", f"env.num_envs={instances}", "execution.mode=captured")
    where = where if given.device == "cuda" else (*where[:2], "execution.mode=eager")
    config = config_of(
        given.preset, given.device, *where, f"seed={given.seed}", "evaluation.interval=0", *given.changes
    )
    runner = runner_of(config)
    clock = Clock(runner.env.device)
    learn(runner, steps)
    seconds = clock.seconds()
    cast = runner.upkeep.judge.cast

    def act_on(env: VecEnv) -> Actor:
        return cast.inference(False, stream(given.seed, "evaluation", env.device))

    with cast.resting():
        found = both(config, act_on, given.episodes)
    runner.env.close()
    return {"seed": given.seed, "steps": steps, "seconds": round(seconds, 1), **found}


def starts(id: str, device: str, count: int) -> dict[str, float]:
    """The largest difference of means and deviations of first states, in units of the noise."""
    with make_env(id, count, 0, device=device, simulator="warp") as there, make_env(id, count, 0) as here:
        one, other = there.scenario(), here.scenario()
    found = {}
    for name in ("qpos", "qvel"):
        scale = other[name].std(0).clamp(min=1e-9)
        found[f"{name} mean"] = float(((one[name].mean(0) - other[name].mean(0)) / scale).abs().max())
        found[f"{name} deviation"] = float((one[name].std(0) / scale - 1.0).abs().max())
    return {name: round(value, 4) for name, value in found.items()}


def batched(values: Sequence[int], count: int) -> Iterator[Sequence[int]]:
    return (values[first : first + count] for first in range(0, len(values), count))


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--run", nargs="*", default=[], help="folders of runs, one trained on each simulator")
    parser.add_argument(
        "--train", type=int, nargs="*", default=[],
        help="instances and steps on Warp, then on MuJoCo: train the preset on each",
    )  # fmt: skip
    parser.add_argument("--preset", default="ppo_pup12_velocity_gpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--changes", nargs="*", default=[], help="key=value")
    parser.add_argument("--instances", type=int, default=128)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    given = parser.parse_args()
    results = Results("warp_agreement", given, ("tasks", "run"))
    if not results.held("smooth"):
        results.note(smooth=smooth(given.device, given.instances, given.steps))
    flight = results.held("smooth")
    for id in given.tasks:
        if id not in results.held("tasks"):
            found = first_steps(id, TASKS[id], given.device, given.instances, 10)
            results.note(tasks=results.held("tasks") | {id: found})
        if id.endswith("/run") and id not in results.held("starts"):
            drawn = starts(id, given.device, 16 * given.instances)
            results.note(starts=results.held("starts") | {id: drawn})
    todo: dict[str, Callable[[], dict[str, Any]]] = {
        run: partial(of_run, run, given.device, given.episodes) for run in given.run
    }
    for simulator, (instances, steps) in zip(("warp", "mujoco"), batched(given.train, 2), strict=False):
        todo[f"trained on {simulator}"] = partial(trained, given, simulator, instances, steps)
    for name, play in todo.items():
        if name not in results.held("policies"):
            results.note(policies=results.held("policies") | {name: play()})
    good = max(flight["share of qpos"], flight["share of qvel"]) <= SMOOTH
    for name in todo:
        each = results.held("policies")[name]
        good &= abs(each["return"]["ratio"] - 1.0) <= RATIO
        good &= all(each[name]["p"] >= LEAST_P for name in ("return", "length"))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
