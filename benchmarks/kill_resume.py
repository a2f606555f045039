"""Kills runs with SIGKILL at random moments and resumes them: they must end bit for bit the same.

Compared are the parameters, the whole last checkpoint (optimisers, replay, environments, curriculum), and every
line of the metrics but its times.

gaitway bench kill_resume --kills 20 --out benchmarks/results/kill_resume.json
gaitway bench kill_resume --kills 10 --only skills --out benchmarks/results/kill_resume.json
gaitway bench kill_resume --kills 10 --only parts --out benchmarks/results/kill_resume.json
gaitway bench kill_resume --kills 10 --only hierarchies --out benchmarks/results/kill_resume.json
(the last three replace what that file says of such runs, and keep the rest; `parts` are all runs with several parts of
robot learning, see _robot_parts.py, `hierarchies` those of agents that decide for several steps)
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from _robot_parts import arguments as with_parts

from gaitway.core.files import load_state

NOT_OF_THE_RUN = ("seconds", "logger", "global_streams")
"""Clocks, positions in files, and the generators of the process, from which nothing here draws."""
SMALL = ["evaluation.episodes=2", "evaluation.interval=6000", "checkpoints.interval=3000"]
# a replay that wraps around several times, a checkpoint every few hundred steps
SOFT = [
    "total_steps=6000",
    "evaluation.episodes=2",
    "evaluation.interval=2000",
    "checkpoints.interval=300",
    "algorithm.iteration_steps=100",
    "algorithm.learning_starts=400",
    "algorithm.replay_size=1000",
    "algorithm.batch_size=64",
    "agent.actor_hidden=[64,64]",
    "agent.critic_hidden=[64,64]",
]
HOPPER = ["algorithm=sac", "env.id=Hopper-v5", "env.num_envs=4", "env.num_threads=1"]
# goals, a replay that wraps, and a review of the tasks every few checkpoints, which adds some
SKILLS = [
    "experiment=point_pretrain",
    "total_steps=15360",
    "env.options={max_steps: 20}",
    "evaluation.trials=2",
    "evaluation.interval=5120",
    "checkpoints.interval=640",
    "callbacks=[{name: curriculum, interval: 1280, max_new_tasks: 2, weighting: tderr}, {name: skill_file, trials: 2}]",
    "algorithm.iteration_steps=320",
    "algorithm.learning_starts=640",
    "algorithm.replay_size=4000",
    "algorithm.batch_size=64",
    "algorithm.per_task_temperature=true",
    "algorithm.overlap=true",
    "agent.actor_hidden=[32,32]",
    "agent.critic_hidden=[32,32]",
    "torch_threads=1",
]
RUNS = {
    "feed-forward": ["experiment=ppo_hopper", "total_steps=40000", "algorithm.epochs=4", "env.num_threads=1", *SMALL],
    "recurrent": ["experiment=ppo_cartpole_masked", "total_steps=40000", *SMALL],
    "sac": ["experiment=sac_pendulum", *SOFT],
    "sac-hopper": [*HOPPER, "algorithm.n_step=3", "algorithm.update_ratio=0.7", *SOFT],
    "skills": SKILLS,
}
DATASET = "a dataset of toy/oscillator"
"""Stands in arguments for the folder of one, which is recorded first."""
PARTS = {
    "-".join(parts).replace(" ", "_"): with_parts(parts, DATASET, iterations=40)
    for parts in (
        ("memory", "teacher"),
        ("encoder", "style"),
        ("estimator", "symmetry"),
        ("reward groups", "dataset stage", "memory"),
    )
}

DECIDING = [
    "env.id=point/duck",
    "env.num_envs=4",
    "env.options={max_episode_steps: 93}",
    *SOFT,
    "algorithm.iteration_steps=92",
    "algorithm.update_ratio=0.2",
    "torch_threads=1",
]
SKILL_FILE, SCALE_FILE = "a skill file of point/skills", "a file of continuous skills"
HIERARCHIES = {
    "hsd3": ["algorithm=hsd3", f"agent.skills={SKILL_FILE}", *DECIDING],
    "hsd_bandit": ["algorithm=hsd_bandit", f"agent.skills={SKILL_FILE}", *DECIDING],
    "sac_hrl": ["algorithm=sac_hrl", f"agent.skills={SCALE_FILE}", *DECIDING],
    "hiro": ["algorithm=hiro", "agent.goal_ranges={x: [-3, 3], z: [-1, 1]}", *DECIDING],
    "switching": ["algorithm=switching", "agent.members=4", *DECIDING],
}
FILES = {
    SKILL_FILE: ("skills", SKILLS),
    SCALE_FILE: ("scale", ["experiment=point_diayn", "total_steps=8000", "evaluation.trials=1", "torch_threads=1"]),
}
GROUPS = {"parts": PARTS, "hierarchies": HIERARCHIES}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "gaitway.cli.main", *arguments]


def fingerprint(run: Path) -> str:
    output = subprocess.run(command("info", str(run), "--json"), check=True, capture_output=True, text=True).stdout
    return json.loads(output)["parameters_sha256"]


def checkpoint(run: Path) -> str:
    """A digest of everything in the last checkpoint that is of the run."""
    state, _ = load_state(run / "checkpoints" / "last", kind="checkpoint")
    digest = hashlib.sha256()
    add({key: value for key, value in state.items() if key not in NOT_OF_THE_RUN}, digest)
    return digest.hexdigest()


def add(value: Any, digest: Any) -> None:
    """Put names, types, shapes and numbers of a state into `digest`."""
    if isinstance(value, dict | list | tuple):
        for key, item in sorted(value.items()) if isinstance(value, dict) else enumerate(value):
            digest.update(f"{key}:".encode())
            add(item, digest)
        digest.update(b"end")
    elif isinstance(value, torch.Tensor):
        digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
        digest.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    else:
        digest.update(repr(value).encode())


def metrics(run: Path) -> list[dict]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.startswith("time/")} for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    everything = RUNS | PARTS | HIERARCHIES
    known = [*everything, *GROUPS]
    parser.add_argument("--only", choices=known, default=None, help="one kind of run instead of all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default=None)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    rows: list[dict[str, Any]] = []
    folder = Path(tempfile.mkdtemp(prefix="gaitway-kill-"))
    runs = everything if options.only is None else GROUPS.get(options.only) or {options.only: everything[options.only]}
    is_there = options.only is not None and options.out and Path(options.out).exists()
    known_rows = json.loads(Path(options.out).read_text())["rows"] if is_there else []
    kept = [row for row in known_rows if row["run"] not in runs]
    if any(DATASET in text for arguments in runs.values() for text in arguments):
        recorded = command("collect", "toy/oscillator", "--steps=2000", f"--out={folder / 'dataset'}", "--quiet")
        subprocess.run(recorded, check=True, capture_output=True)
    for stands_for, (place, making) in FILES.items():
        if any(stands_for in text for arguments in runs.values() for text in arguments):
            made = command("train", *making, f"run_dir={folder / place}", "--quiet")
            subprocess.run(made, check=True, capture_output=True)
    for name, template in runs.items():
        arguments = [text.replace(DATASET, str(folder / "dataset")) for text in template]
        for stands_for, (place, _) in FILES.items():
            arguments = [text.replace(stands_for, str(folder / place)) for text in arguments]
        whole = folder / f"{name}-whole"
        started = time.perf_counter()
        subprocess.run(command("train", *arguments, f"run_dir={whole}", "--quiet"), check=True, capture_output=True)
        length = time.perf_counter() - started
        expected, last, lines = fingerprint(whole), checkpoint(whole), metrics(whole)
        kills = 0
        while kills < math.ceil(options.kills / len(runs)):
            run = folder / f"{name}-{len(rows)}"
            arguments_now = command("train", *arguments, f"run_dir={run}", "--quiet")
            moments = []
            while True:  # one run may be killed several times before it is done
                with open(folder / "stderr", "w") as said:
                    process = subprocess.Popen(arguments_now, stdout=subprocess.DEVNULL, stderr=said)
                moment = draw.uniform(0.1, 1.0) * length
                try:
                    process.wait(timeout=moment)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                    moments.append(round(moment, 2))
                    kills += 1
                else:
                    if process.returncode != 0:
                        last = (folder / "stderr").read_text().splitlines()[-1:]
                        raise RuntimeError(f"{name} ended with exit code {process.returncode}, kills {moments}: {last}")
                    break
                if (run / "config.yaml").exists():
                    arguments_now = command("resume", str(run), "--quiet")
                else:
                    shutil.rmtree(run, ignore_errors=True)  # killed before it was a run
            row = {"run": name, "seed": options.seed, "killed_after_s": moments,
                   "equal": fingerprint(run) == expected, "checkpoint_equal": checkpoint(run) == last,
                   "metrics_equal": metrics(run) == lines}  # fmt: skip
            rows.append(row)
            print(row, flush=True)
            if options.out:  # as they come
                Path(options.out).write_text(json.dumps(result_of(kept + rows), indent=1) + "\n")
    shutil.rmtree(folder)
    found = result_of(rows)
    print(json.dumps({k: v for k, v in found.items() if k != "rows"}))
    sys.exit(0 if found["all_equal"] else 1)


def result_of(rows: list[dict]) -> dict[str, Any]:
    kills = sum(len(row["killed_after_s"]) for row in rows)
    equal = all(value for row in rows for name, value in row.items() if name.endswith("equal"))
    return {"benchmark": "kill_resume", "kills": kills, "rows": rows, "all_equal": equal}


if __name__ == "__main__":
    main()
