"""Learning gates of the offline algorithms: presets on recorded datasets, each beside a broken twin.

    gaitway bench offline_gates --out benchmarks/results/offline_gates.json

Behaviour cloning learns CartPole-v1 from 20 episodes of a trained policy and must reach 450; its twin is shown the same
steps with the actions shuffled among them. TD3+BC learns Pendulum-v1 from a half-trained policy, half of its episodes
with exploration noise and half with random actions among its own; it must end better than the mean return of the data
and better than its twin, TD3 on the same dataset without the imitation term. `gaitway collect` records the datasets.
The final policy, not the best one, plays 20 episodes deterministically; every seed is reported and must hold.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from _rounds import machine, revision
from classic_gates import gaitway

from gaitway.algorithms.td3 import TD3, TD3Config
from gaitway.cli.build import build_env, build_policy
from gaitway.cli.compose import compose
from gaitway.cli.train_config import TrainConfig, choices, effective, parse
from gaitway.core.config import to_config
from gaitway.core.seeding import stream
from gaitway.data.dataset import Dataset
from gaitway.data.episodes import load_episodes
from gaitway.data.trajectories import Trajectories, TrajectoryWriter
from gaitway.runners.offline import OfflineRunner
from gaitway.runners.runner_config import RunnerConfig

EPISODES = 20
CLONED = 450.0
TEACHER = {
    "cartpole": ["experiment=ppo_cartpole"],
    "pendulum": ["experiment=td3_pendulum", "total_steps=6000", "evaluation.interval=6000"],
}
"""What plays for the datasets: one policy that balances, one that is half trained."""


def teacher(name: str, place: Path, seed: int) -> str:
    """A trained run, by its folder."""
    run = place / f"{name}_teacher"
    if not (run / "summary.json").exists():
        gaitway("train", *TEACHER[name], f"seed={seed}", f"run_dir={run}", "env.num_threads=1", "--quiet")
    return str(run)


def record_cartpole(place: Path, seed: int) -> tuple[Path, Path]:
    """20 episodes of an expert, and their twin with the actions shuffled over all steps."""
    expert, shuffled = place / "cartpole_expert", place / "cartpole_shuffled"
    if not shuffled.exists():
        gaitway("collect", teacher("cartpole", place, seed), "--steps", "10000", "--out", str(expert), "--quiet")
        data = Trajectories(expert)
        episodes = load_episodes(data)
        order = torch.randperm(episodes.num_steps, generator=stream(0, "shuffle"))
        broken = {**episodes.variables, "action": episodes.variables["action"][order]}
        with TrajectoryWriter(shuffled, data.spec, description="actions of other steps") as writer:
            writer.add_episodes(replace(episodes, variables=broken))
    return expert, shuffled


def record_pendulum(place: Path, seed: int) -> Path:
    """A half-trained policy: 25 episodes with its exploration noise, 25 with a tenth of the actions random."""
    out = place / "pendulum_mixed"
    if not out.exists():
        common = ["collect", teacher("pendulum", place, seed), "--policy", "last", "--steps", "5000", "--out", str(out)]
        gaitway(*common, "--stochastic", "--quiet")
        gaitway(*common, "--random-share", "0.1", "--seed", "1", "--append", "--quiet")
    return out


def train(preset: str, data: Path, seed: int, run: Path) -> dict[str, Any]:
    """One seed of a preset, by the command line."""
    gaitway("train", f"experiment={preset}", f"data.path={data}", f"seed={seed}", f"run_dir={run}", "--quiet")
    shown = gaitway("eval", str(run), "--episodes", str(EPISODES), "--checkpoint", "last", "--json")
    found = json.loads(shown.splitlines()[-1])
    summary = json.loads((run / "summary.json").read_text())
    return {"return": found["return"], "updates": found["steps"], "seconds": summary["seconds"]}


def train_without_imitation(data: Path, seed: int) -> float:
    """The same preset with TD3 in the place of TD3+BC."""
    arguments = ["experiment=td3_bc_pendulum", f"data.path={data}", f"seed={seed}", f"evaluation.episodes={EPISODES}"]
    config = effective(parse(compose(arguments, to_config(TrainConfig()), parse, **choices()).config))
    shared = {f.name: getattr(config.algorithm, f.name) for f in fields(TD3Config) if f.name != "name"}
    runner_config = RunnerConfig(**{f.name: getattr(config, f.name) for f in fields(RunnerConfig)})
    runner_config = replace(runner_config, evaluation=replace(runner_config.evaluation, interval=0))

    def make(purpose: str, num_envs: int) -> Any:
        return build_env(config, purpose, num_envs)

    torch.set_num_threads(1)
    with build_env(config) as env:
        policy = build_policy(config, env.spec, stream(seed, "parameters"))
        algorithm = TD3(policy, TD3Config(**shared), num_envs=env.num_envs, seed=seed)
        runner = OfflineRunner(env, algorithm, runner_config, data=Dataset.open(data), make_env=make)
        runner.learn()
        runner.close()
    return runner.last["return"]


def cloning(place: Path, seeds: list[int], teacher_seed: int) -> dict[str, Any]:
    expert, shuffled = record_cartpole(place, teacher_seed)
    rows = []
    for seed in seeds:
        row = {"seed": seed, **train("bc_cartpole", expert, seed, place / f"bc_{seed}")}
        row["twin"] = train("bc_cartpole", shuffled, seed, place / f"bc_shuffled_{seed}")["return"]
        row["passed"] = row["return"] >= CLONED > row["twin"]
        rows.append(row)
        say("bc_cartpole", row, "actions shuffled")
    return {"preset": "bc_cartpole", "threshold": CLONED, "data": described(expert), "seeds": rows}


def offline(place: Path, seeds: list[int], teacher_seed: int) -> dict[str, Any]:
    mixed = record_pendulum(place, teacher_seed)
    found = described(mixed)
    rows = []
    for seed in seeds:
        row = {"seed": seed, **train("td3_bc_pendulum", mixed, seed, place / f"td3_bc_{seed}")}
        row["twin"] = train_without_imitation(mixed, seed)
        row["passed"] = row["return"] > max(found["mean_return"], row["twin"])
        rows.append(row)
        say("td3_bc_pendulum", row, "no imitation")
    return {"preset": "td3_bc_pendulum", "threshold": found["mean_return"], "data": found, "seeds": rows}


def described(folder: Path) -> dict[str, Any]:
    data = Dataset.open(folder)
    return {
        "steps": data.num_steps,
        "episodes": data.num_episodes,
        "mean_return": data.mean_return,
        "sha256": data.sha256,
    }


def say(name: str, row: dict[str, Any], twin: str) -> None:
    verdict = "" if row["passed"] else "  MISSED"
    print(f"{name} seed {row['seed']}: {row['return']:.1f}, {twin}: {row['twin']:.1f}{verdict}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=["bc", "td3_bc"], default=["bc", "td3_bc"], metavar="GATE")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--teacher-seed", type=int, default=0, help="of the run whose policy is recorded")
    parser.add_argument("--place", default=None, help="where datasets and runs are kept (default: they are not)")
    parser.add_argument("--out", default=None)
    parser.add_argument("--commit", default=None, help="what to write down as the commit (default: this checkout's)")
    options = parser.parse_args()
    gates = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(options.place or folder)
        place.mkdir(parents=True, exist_ok=True)
        for name in options.only:
            gates[name] = (cloning if name == "bc" else offline)(place, options.seeds, options.teacher_seed)
    for gate in gates.values():
        gate["holds"] = all(row["passed"] for row in gate["seeds"])
        print(f"{gate['preset']}: {'holds' if gate['holds'] else 'MISSED'}, data {gate['data']['mean_return']:.1f}")
    if options.out:
        result = {
            "benchmark": "offline_gates", "commit": options.commit or revision(), "machine": machine(),
            "episodes": EPISODES, "teacher_seed": options.teacher_seed, "gates": gates,
        }  # fmt: skip
        Path(options.out).write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(0 if all(gate["holds"] for gate in gates.values()) else 1)


if __name__ == "__main__":
    main()
