"""The ladder of legged robots: do presets learn what they are told, and in which time?

    gaitway bench legged_ladder gait_params gait_residual pup4 --out benchmarks/results/legged_ladder.json

Each rung trains its preset from the command line and judges the deterministic policy of the last checkpoint. On the
grid, 120 episodes: `gait_params` passes with a velocity RMSD of at most 0.12 m/s and no fall in at most 120 s,
`gait_residual`, models and kicks as in training, with 0.12 m/s, falls in at most 2 % of episodes, in at most 360 s,
`go1` and `spot`, robots of others that steer a trot, with 0.25 m/s in at most 900 s.
`pup4`: told 0.5 and 1.0 m/s, 16 episodes each; passed: the mean speed error is at most 0.2 m/s at both. `velocity`,
from nothing, with `--device cuda`: 0.25 m/s, falls in at most 5 %, in at most 540 s. `walker`, `humanoid`, `amp_trot`,
`g1`, `h1`, `t1` (humanoids of others, from nothing; `gaitway[robots]`) and `velocity` on the CPU: figures alone.
`--seconds` ends a training early, `--set` changes keys of the presets, and `--bare` measures beside each run what the
simulator alone makes of the motion of its policy, with as many instances and threads. `seconds` is `time/seconds` of
the run; `cpu_seconds` are those of the whole process, start and evaluation included, which others on the machine hardly
change. `--out` keeps the parts that the file has, and adds that of this command.

`--twins` trains, with the first seed, those that have one mistake and must not pass, in whatever time. They learn with
it and are judged without, but for `gait of the neighbour` and `no authority`, whose robots cannot do otherwise.
`gait_residual` with models redrawn in every step was no twin, for it passed (0.082 m/s on seed 0, 0.081 with models of
whole episodes); `reward rolled` stands in its place.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from _provenance import let_children_import
from _rounds import keep, machine, revision, versions
from legged_stepping import bare, make_again, noted_controls
from torch import Tensor

from gaitway import load, make_env
from gaitway.cli.build import build_env, load_policy
from gaitway.cli.open_run import open_run
from gaitway.core.signals import EXIT_REQUEUE
from gaitway.envs.legged.actions import Actions
from gaitway.envs.legged.frame import Frame
from gaitway.envs.legged.rewards import Rewards
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.tasks.legged.task import LeggedTask
from gaitway.envs.vec_env import Step, VecEnv
from gaitway.envs.wrappers import Wrapper, innermost
from gaitway.runners.evaluate import run_episodes

PRESETS = {
    **{"gait_params": "ppo_pup12_gait_params", "gait_residual": "ppo_pup12_gait_residual"},
    **{"go1": "ppo_go1_gait_params", "spot": "ppo_go1_gait_params"},
    **{"pup4": "ppo_pup4_velocity", "walker": "ppo_walker_velocity"},
    **{"humanoid": "ppo_humanoid_velocity", "velocity": "ppo_pup12_velocity", "amp_trot": "ppo_pup12_amp_trot"},
    **dict.fromkeys(("g1", "h1", "t1"), "ppo_pup12_velocity"),
}
CHANGES = {
    "spot": ["env.options.robot=spot", "env.options.gait.height=0.46", "env.options.gait.lift=0.12"],
    **{name: ["env.id=legged:velocity", f"env.options.robot={name}"] for name in ("g1", "h1", "t1")},
}
SPEED_ERROR = 0.2
ON_GPU = "velocity on a GPU"
RMSD = {"gait_params": 0.12, "gait_residual": 0.12, "go1": 0.25, "spot": 0.25, ON_GPU: 0.25}
FALLS = {"gait_params": 0.0, "gait_residual": 0.02, "go1": 1.0, "spot": 1.0, ON_GPU: 0.05}
SECONDS = {"gait_params": 120.0, "gait_residual": 360.0, "go1": 900.0, "spot": 900.0, ON_GPU: 540.0}
SPEEDS = (0.5, 1.0)


class RewardOfTheNeighbour(Wrapper):
    """Broken: every robot is paid for what its neighbour does."""

    def step(self, action: Tensor) -> Step:
        step = self.env.step(action)
        return dataclasses.replace(step, reward=step.reward.roll(1, 0))


class GaitOfTheNeighbour(Actions):
    """Broken: the gait of every robot follows the command of its neighbour."""

    def targets(self, taken: Tensor, q: Tensor, phase: Tensor, command: Tensor) -> Tensor:
        return super().targets(taken, q, phase, command.roll(1, 0))


class EitherWay(Rewards):
    """Broken: robots that a coin chose once are paid as if they had been told to go the other way."""

    def __call__(self, frame: Frame, worth: Tensor | None = None) -> tuple[Tensor, Tensor]:
        coins = torch.randint(2, (len(frame.command), 1), generator=torch.Generator().manual_seed(0))
        signs = torch.cat((2.0 * coins - 1.0, torch.ones(len(coins), 2)), 1)
        return super().__call__(dataclasses.replace(frame, command=frame.command * signs), worth)


def task_of(env: VecEnv) -> LeggedTask:
    base = innermost(env)
    assert isinstance(base, MujocoBatchEnv)
    assert isinstance(base.task, LeggedTask)
    return base.task


def gait_of_the_neighbour(env: VecEnv) -> VecEnv:
    logic = task_of(env)._logic
    logic.actions = GaitOfTheNeighbour(**vars(logic.actions))
    return env


def either_way(env: VecEnv) -> VecEnv:
    logic = task_of(env)._logic
    logic.rewards = EitherWay(logic.config.terms, logic.config.clip_negative)
    return env


def learns_with(mistake: str) -> list[str]:
    return [f"env.wrappers=[{{name: '{mistake}'}}]", "evaluation.env.wrappers=[]"]


ACTIONS_ROLLED = {"actions rolled": learns_with("legged_gaits:Rolled")}
REWARD_ROLLED = {"reward rolled": learns_with("legged_ladder:RewardOfTheNeighbour")}
TWINS = {
    "gait_params": {
        **ACTIONS_ROLLED,
        **REWARD_ROLLED,
        "gait of the neighbour": ["env.wrappers=[{name: 'legged_ladder:gait_of_the_neighbour'}]"],
        "action ignored": learns_with("legged_gaits:Ignored"),
    },
    "gait_residual": {"no authority": ["env.options.action_scale=1e-6"], **ACTIONS_ROLLED, **REWARD_ROLLED},
    "pup4": {**ACTIONS_ROLLED, "sign of the speed random": learns_with("legged_ladder:either_way")},
}


def trained(rung: str, seed: int, changes: list[str], folder: Path, options: argparse.Namespace) -> Path:
    run, threads = folder / f"{rung}_{seed}", options.threads
    command = [sys.executable, "-m", "gaitway", "train", f"experiment={PRESETS[rung]}", f"seed={seed}", "--quiet"]
    command += [f"run_dir={run}", "evaluation.interval=0", f"env.num_threads={threads}", f"device={options.device}"]
    command += [f"torch_threads={threads if options.device == 'cpu' else 1}"]
    command += [f"total_steps={options.steps}"] if options.steps else []
    command += [*CHANGES.get(rung, []), *changes, *options.set]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            process.wait(options.seconds)
        except subprocess.TimeoutExpired:  # it saves and evaluates before it ends
            process.terminate()
    if process.returncode not in (0, EXIT_REQUEUE):
        raise SystemExit(f"{shlex.join(command)} ended with {process.returncode}; see {run}/run.log")
    return run


def beside_bare(run: Path, steps: int = 25, rounds: int = 5) -> dict[str, float]:
    """Steps a second of the run's iterations, of its environment under the policy, and of the simulator alone, which
    makes the same motion again with as many instances and threads."""
    _, config = open_run(str(run))
    logged = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rate = max((row for row in logged if "time/steps_per_second" in row), key=lambda row: row["step"])
    threads, count = config.env.num_threads, config.env.num_envs
    loaded = load(run, "last")
    env = build_env(config)
    task = task_of(env)
    obs = env.reset(0)
    rates: dict[str, list[float]] = {"environment": [], "bare": []}
    for number in range(rounds + 1):
        start, spent = task.batch.state.copy(), 0.0
        with noted_controls(task) as controls:
            for _ in range(steps):
                action = loaded.act(obs)
                began = time.perf_counter()
                obs = env.step(action).obs
                spent += time.perf_counter() - began
        batch = bare(task, threads, start)
        began = time.perf_counter()
        make_again(task, batch, controls)
        seconds = time.perf_counter() - began
        if number:  # the first ones land on their feet
            rates["environment"].append(count * steps / spent)
            rates["bare"].append(count * steps / seconds)
    env.close()
    made = {"steps_per_second": rate["time/steps_per_second"]}
    made |= {f"{name}_steps_per_second": statistics.median(each) for name, each in rates.items()}
    share = made["steps_per_second"] / made["bare_steps_per_second"]
    return {name: round(value) for name, value in made.items()} | {"of_bare": round(share, 3)}


def cpu_seconds() -> float:
    """What processes that this one started and that have ended took of the cores."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def judged(rung: str, run: Path) -> dict[str, float]:
    """The figures of the evaluation that ended the run, or of one made now of a run that was stopped; and what the rung
    asks for besides."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found = {
        name.removeprefix("eval/"): value for row in rows for name, value in row.items() if name.startswith("eval/")
    }
    found = found or load(run, "last").evaluate()
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


def passed(rung: str, row: dict[str, float], is_twin: bool = False) -> bool | None:
    """None where a rung has no threshold. Twins have all the time there is: to be late is no proof."""
    if rung in FALLS:
        is_in_time = is_twin or row["seconds"] <= SECONDS[rung]
        return row["velocity_rmsd"] <= RMSD[rung] and row["fell"] <= FALLS[rung] and is_in_time
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
    parser.add_argument("--seconds", type=float, default=None, help="end a training after so many")
    parser.add_argument("--device", default="cpu", help="of the learner")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="further keys of the presets")
    parser.add_argument("--bare", action="store_true", help="measure the simulator alone beside every run")
    parser.add_argument("--twins", nargs="*", default=None, help="these of the rungs, or all, instead of the honest")
    parser.add_argument("--commit", default=None, help="what to write down as the commit (default: this checkout's)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    let_children_import()
    rows: dict[str, Any] = {}
    about = {"commit": options.commit or revision(), "versions": versions("mujoco", "torch")}
    about |= {"threads": options.threads, "command": shlex.join(["gaitway", "bench", "legged_ladder", *sys.argv[1:]])}
    with tempfile.TemporaryDirectory() as folder:
        for rung, seed, twin, changes in planned(options.rungs, options.seeds, options.twins):
            spent = cpu_seconds()
            run = trained(rung, seed, changes, Path(folder) / (twin or "honest"), options)
            row = {**judged(rung, run), "cpu_seconds": round(cpu_seconds() - spent, 1)}
            row |= beside_bare(run) if options.bare else {}
            asked = ON_GPU if (rung, options.device) == ("velocity", "cuda") else rung
            name = f"{asked}, seed {seed}" + (f", twin {twin}" if twin else "")
            rows[name] = {**row, "passed": passed(asked, row, bool(twin))}
            print(name, rows[name], flush=True)
            if options.out:
                add_part(Path(options.out), {"machine": machine(), **about, "rows": rows})
    bad = [name for name, row in rows.items() if row["passed"] is not None and row["passed"] == ("twin" in name)]
    return 1 if bad else 0


def planned(
    rungs: Sequence[str], seeds: Sequence[int], twins: Sequence[str] | None
) -> list[tuple[str, int, str, list[str]]]:
    """Rungs, seeds, names of twins and changes; `twins` as in `--twins`."""
    if twins is None:
        return [(rung, seed, "", []) for rung in rungs for seed in seeds]
    broken = {(rung, name): changes for rung in rungs for name, changes in TWINS.get(rung, {}).items()}
    unknown = set(twins) - {name for _, name in broken}
    if unknown:
        raise SystemExit(f"{rungs} have no twins {sorted(unknown)}; they have {sorted({name for _, name in broken})}")
    return [(rung, seeds[0], name, changes) for (rung, name), changes in broken.items() if name in (twins or [name])]


def add_part(path: Path, part: dict[str, Any]) -> None:
    """Beside the parts of other commands; an earlier state of this one is replaced."""
    found: dict[str, Any] = {"benchmark": "legged_ladder", "parts": []}
    found |= json.loads(path.read_text()) if path.exists() else {}
    same = ("commit", "command")
    others = [each for each in found["parts"] if any(each[name] != part[name] for name in same)]
    keep(path, {**found, "parts": [*others, part]})


if __name__ == "__main__":
    sys.exit(main())
