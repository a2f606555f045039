"""From specialists to a robot's file: every command of README.md in this folder, one for each core at a time.

    python examples/quadruped/story.py                    40 minutes on two cores
    python examples/quadruped/story.py --quick            the same with runs of seconds, which learn nothing
    python examples/quadruped/story.py --show             print the commands

Figures are in runs/quadruped/story.json. A story that was stopped goes on; runs that are over are not made again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path

HERE = Path(__file__).resolve().parent
OBSTACLES = ("crawl", "jump")
HIDDEN = ["--hide", "policy"]
"""What the teachers are shown, velocities, models and the names of obstacles among it, is NaN for the student."""
NEEDS = {
    **{"student": ("walk", *OBSTACLES), "export": ("student",)},
    **{f"eval {name}": ("student",) for name in ("skills.yaml", *OBSTACLES, "student")},
    **{
        "eval style": ("style",),
        "eval no_style": ("no style",),
        "eval estimator": ("estimator",),
        "eval velocity": ("estimator",),
    },
}
"""What has to be over before a command begins."""
MORE = {
    "train": ["--quiet", "--or-resume", "env.num_threads=1", "torch_threads=1"],
    "eval": ["--json"],
}
"""What does not change the figures: cores, and what is printed."""
QUICK = {
    **{"env.num_envs": 4, "env.options.episode_seconds": 0.2, "total_steps": 192, "preflight": "false"},
    **{"evaluation.episodes": 2, "evaluation.interval": 0},
}


def steps(folder: str) -> dict[str, list[str]]:
    """The arguments of `gaitway` by name of a step, in order."""
    config = f"config={os.path.relpath(HERE)}"
    specialist = ["train", f"{config}/specialist.yaml"]
    found = {}
    for name in OBSTACLES:
        found[name] = [*specialist, f"env.options.terrain.obstacles=[{name}]", f"run_dir={folder}/{name}"]
    walk = [*specialist, "env.options.terrain.obstacles=[walk]", "total_steps=400_000", f"run_dir={folder}/walk"]
    found["walk"] = walk
    amp = ["train", "experiment=ppo_pup12_amp_trot"]
    found["style"] = [*amp, f"run_dir={folder}/style"]
    teacher = f"cast.0.teachers={folder}/skills.yaml"
    found["student"] = ["train", f"{config}/student.yaml", teacher, f"run_dir={folder}/student"]
    found["no style"] = [*amp, "rewards=[{name: task}]", f"run_dir={folder}/no_style"]
    found["estimator"] = ["train", f"{config}/estimator.yaml", f"run_dir={folder}/estimator"]
    for name in ("skills.yaml", *OBSTACLES):
        found[f"eval {name}"] = ["eval", f"{folder}/student", "--policy", f"{folder}/{name}", "--episodes", "100"]
    found["eval student"] = ["eval", f"{folder}/student", "--checkpoint", "last", "--episodes", "100", *HIDDEN]
    for name in ("style", "no_style", "estimator"):
        found[f"eval {name}"] = ["eval", f"{folder}/{name}", "--checkpoint", "last"]
    found["eval velocity"] = [*found["eval estimator"], "--without-estimates"]
    found["export"] = ["export", f"{folder}/student", "--checkpoint", "last"]
    return found


def quick(arguments: list[str]) -> list[str]:
    """The same at a size that takes seconds."""
    if arguments[0] == "train":
        kept = [each for each in arguments if not each.startswith("total_steps=")]
        return [*kept, *(f"{key}={value}" for key, value in QUICK.items())]
    if "--episodes" in arguments:
        at = arguments.index("--episodes")
        arguments = [*arguments[:at], *arguments[at + 2 :]]
    return [*arguments, "--episodes", "2"] if arguments[0] == "eval" else arguments


def told(arguments: list[str]) -> str:
    """What a command prints; it must not fail."""
    command = [sys.executable, "-m", "gaitway", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={"OMP_NUM_THREADS": "1", **os.environ})
    if done.returncode:
        sys.exit(f"stopped at: gaitway {' '.join(arguments)}\n{done.stdout[-2000:]}")
    return done.stdout


def run_all(commands: dict[str, list[str]], jobs: int, seed: int) -> dict[str, dict]:
    """Run the commands, so many at once and each on one core; returns what evaluations print. A command that names the
    run of another one waits for it."""
    figures: dict[str, dict] = {}
    running: dict[str, Future] = {}

    def run(name: str, arguments: list[str]) -> None:
        for other in NEEDS.get(name, ()):
            running[other].result()
        print(f"{name}: gaitway {' '.join(arguments)}", flush=True)
        begin = time.perf_counter()
        said = told([*arguments, *MORE.get(arguments[0], ()), *([f"seed={seed}"] if arguments[0] == "train" else [])])
        print(f"{name}: {(time.perf_counter() - begin) / 60:.1f} minutes", flush=True)
        if arguments[0] == "eval":
            figures[name.removeprefix("eval ")] = json.loads(said)

    with ThreadPoolExecutor(jobs) as pool:
        for name, arguments in commands.items():
            running[name] = pool.submit(run, name, arguments)
        done, _ = wait(running.values(), return_when=FIRST_EXCEPTION)
        if any(each.exception() for each in done):
            pool.shutdown(cancel_futures=True)
    for each in running.values():
        if not each.cancelled():
            each.result()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default="runs/quadruped", help="where runs are kept (default: %(default)s)")
    parser.add_argument(
        "--jobs", type=int, default=len(os.sched_getaffinity(0)), help="commands at once (default: one per core)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of every run (default: %(default)s)")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    commands = {name: quick(each) if options.quick else each for name, each in steps(options.runs).items()}
    if options.show:
        for arguments in commands.values():
            print("gaitway", *arguments)
        return
    folder = Path(options.runs)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "skills.yaml", folder)
    figures = run_all(commands, options.jobs, options.seed)
    (folder / "story.json").write_text(json.dumps(figures, indent=1) + "\n")
    for name, found in figures.items():
        kept = ("success", "traverse", "fell", "velocity_rmsd", "stride_frequency", "stride_phase_1")
        print(f"{name:12s}", ", ".join(f"{each} {found[each]:.3f}" for each in kept if found.get(each) is not None))


if __name__ == "__main__":
    main()
