"""From starting Python to something useful: imports, the command line, the first update of PPO and SAC.

    gaitway bench start_up --out benchmarks/results/start_up.json
    gaitway bench start_up --only commands --out benchmarks/results/start_up_commands.json

`--only commands` measures the commands that read run folders (at most 2 s each is asked for), and how long 1,000 small
runs take to be read (4 s) and to be looked at again (0.5 s). Every figure but those is the life of a fresh process, in
rotated order; caches of files are warm for all. `import torch` alone is the floor of everything that learns.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RUNS = 1000
SMALL_RUN = ["env.id=toy/cartpole", "env.num_envs=8", "algorithm.rollout_steps=16", "algorithm.minibatches=2",
             "total_steps=12800", "evaluation.interval=1280", "evaluation.episodes=2", "--quiet"]  # fmt: skip
ENV = "HalfCheetah-v5"


def ppo_ours() -> None:
    from gaitway import PPO, ActorCritic, OnPolicyRunner, PPOConfig, RunnerConfig, make_env

    env = make_env(ENV, num_envs=16, seed=0)
    algorithm = PPO(ActorCritic(env.spec), PPOConfig(rollout_steps=32, minibatches=1), num_envs=16)
    OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=512)).learn()


def ppo_sb3() -> None:
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    PPO("MlpPolicy", make_vec_env(ENV, 16), n_steps=32, batch_size=512, n_epochs=5, device="cpu").learn(512)


def sac_ours() -> None:
    from gaitway import RunnerConfig, make_env
    from gaitway.agents.soft_actor_critic import SoftActorCritic
    from gaitway.algorithms.sac import SAC, SACConfig
    from gaitway.runners.off_policy import OffPolicyRunner

    env = make_env(ENV, num_envs=1, seed=0)
    config = SACConfig(learning_starts=100, iteration_steps=101)
    OffPolicyRunner(env, SAC(SoftActorCritic(env.spec), config, num_envs=1), RunnerConfig(total_steps=101)).learn()


def sac_sb3() -> None:
    from stable_baselines3 import SAC

    SAC("MlpPolicy", ENV, learning_starts=100, device="cpu").learn(101)


def commands_that_look(folder: Path, rounds: int) -> list[Any]:
    """The life of each command that reads run folders, and reading many of them in one process."""
    from _rounds import Case, life_of, race

    gaitway, run = [sys.executable, "-m", "gaitway"], folder / "run"
    other = folder / "other"
    for seed, place in enumerate((run, other)):
        subprocess.run([*gaitway, "train", *SMALL_RUN, f"seed={seed}", f"run_dir={place}"], check=True)
    commands = {
        "list experiments": ["list", "experiments"],
        "info": ["info", str(run)],
        "plot": ["plot", str(run)],
        "plot --metric": ["plot", str(run), "--metric", "loss/value"],
        "compare": ["compare", str(run), str(other), "--out", str(folder / "compare.png")],
        "report": ["report", str(run), str(other), "-o", str(folder / "report.html")],
        "floor (python -c pass)": [],
    }
    lives = {
        name: life_of([*gaitway, *words] if words else [sys.executable, "-c", "pass"])
        for name, words in commands.items()
    }
    cases: list[Any] = [Case("commands that read run folders", "s", race(lives, rounds), [], None)]
    many = folder / "many"
    for number in range(RUNS):
        place = many / f"run_{number}"
        place.mkdir(parents=True)
        for name in ("config.yaml", "summary.json", "metrics.jsonl", "code.json"):
            shutil.copy(run / name, place / name)
    first, again = [], []
    for _ in range(rounds):
        for figures, seconds in zip((first, again), read_twice(many), strict=True):
            figures.append(seconds)
    size = (run / "metrics.jsonl").stat().st_size
    title = f"{RUNS} runs of {len((run / 'metrics.jsonl').read_bytes().splitlines())} lines ({size:,} bytes) each"
    return [*cases, Case(title, "s", {"read": first, "looked at again": again}, [], None)]


def read_twice(folder: Path) -> tuple[float, float]:
    """Seconds to read all runs of a folder, and to look at them again with the same reader."""
    from gaitway.analysis.runs import RunReader

    reader, seconds = RunReader(), []
    for _ in range(2):
        started = time.perf_counter()
        assert len(reader.read_all([folder])) == RUNS
        seconds.append(time.perf_counter() - started)
    return seconds[0], seconds[1]


WORKERS = {"ppo_ours": ppo_ours, "ppo_sb3": ppo_sb3, "sac_ours": sac_ours, "sac_sb3": sac_sb3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", choices=["commands"], default=None, help="the commands that read run folders alone")
    parser.add_argument("--worker", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        WORKERS[options.worker]()
        return

    from _rounds import PEER_PYTHON, ROOT, Case, life_of, race, report

    if options.only == "commands":
        with tempfile.TemporaryDirectory() as folder:
            report(options.out, "start_up", commands_that_look(Path(folder), options.rounds))
        return
    peer = str(ROOT / PEER_PYTHON)
    ours_and_peers = {
        "import": {
            "gaitway": [sys.executable, "-c", "import gaitway"],
            "gaitway and its runner": [sys.executable, "-c", "from gaitway import OnPolicyRunner"],
            "floor (import torch)": [sys.executable, "-c", "import torch"],
            "stable-baselines3": [peer, "-c", "import stable_baselines3"],
            "rsl_rl.runners": [peer, "-c", "import rsl_rl.runners"],
            "torchrl": [peer, "-c", "import torchrl.objectives"],
            "skrl": [peer, "-c", "import skrl.agents.torch.ppo"],
            "tianshou": [peer, "-c", "import tianshou.algorithm"],
        },
        "command line": {"gaitway --help": [sys.executable, "-m", "gaitway.cli.main", "--help"]},
        "first update of PPO": {
            "gaitway": [sys.executable, __file__, "--worker", "ppo_ours"],
            "floor (import torch)": [sys.executable, "-c", "import torch"],
            "stable-baselines3": [peer, __file__, "--worker", "ppo_sb3"],
        },
        "first update of SAC": {
            "gaitway": [sys.executable, __file__, "--worker", "sac_ours"],
            "floor (import torch)": [sys.executable, "-c", "import torch"],
            "stable-baselines3": [peer, __file__, "--worker", "sac_sb3"],
        },
    }
    cases = []
    for title, commands in ours_and_peers.items():
        try:
            raw = race({name: life_of(command) for name, command in commands.items()}, options.rounds)
        except RuntimeError as error:  # what one process cannot do should not cost the other figures
            print(f"{title}: {error}", file=sys.stderr)
            continue
        ours = "gaitway and its runner" if title == "import" else "gaitway"
        pairs = [(ours, name) for name in raw if not name.startswith(("gaitway", "floor"))]
        bound = "floor (import torch)"
        floor = {
            name: bound for name in raw if bound in raw and commands[name][-1] != "import gaitway"
        }  # without torch
        cases.append(Case(title, "s", raw, pairs, floor or None))
    report(options.out, "start_up", cases)


if __name__ == "__main__":
    main()
