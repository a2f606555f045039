"""From specialists to a robot's file: every command of README.md in this folder, one after the other.

    python examples/quadruped/story.py                    an hour or more on two cores
    python examples/quadruped/story.py --quick            the same with runs of seconds, which learn nothing
    python examples/quadruped/story.py --show             print the commands

Figures are in runs/quadruped/story.json. Runs that are there are not made again: a story that was stopped goes on.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
OBSTACLES = ("crawl", "jump")
HIDDEN = ["--hide", "policy"]
"""What the teachers are shown, velocities, models and the names of obstacles among it, is NaN for the student."""
QUICK = {
    **{"env.num_envs": 4, "env.options.episode_seconds": 0.2, "total_steps": 192, "preflight": "false"},
    **{"evaluation.episodes": 2, "evaluation.interval": 0},
}


def steps(folder: str) -> dict[str, list[str]]:
    """The arguments of `gaitway` by name of a step, in order."""
    config = f"config={os.path.relpath(HERE)}"
    specialist = ["train", f"{config}/specialist.yaml"]
    walk = [*specialist, "env.options.terrain.obstacles=[walk]", "total_steps=400_000", f"run_dir={folder}/walk"]
    found = {"walk": walk}
    for name in OBSTACLES:
        found[name] = [*specialist, f"env.options.terrain.obstacles=[{name}]", f"run_dir={folder}/{name}"]
    teacher = f"cast.0.teachers={folder}/skills.yaml"
    found["student"] = ["train", f"{config}/student.yaml", teacher, f"run_dir={folder}/student"]
    for name in ("skills.yaml", *OBSTACLES):
        found[f"eval {name}"] = ["eval", f"{folder}/student", "--policy", f"{folder}/{name}", "--episodes", "100"]
    found["eval student"] = ["eval", f"{folder}/student", "--checkpoint", "last", "--episodes", "100", *HIDDEN]
    amp = ["train", "experiment=ppo_pup12_amp_trot", "total_steps=2_000_000"]
    found["style"] = [*amp, f"run_dir={folder}/style"]
    found["no style"] = [*amp, "rewards=[{name: task}]", f"run_dir={folder}/no_style"]
    found["estimator"] = ["train", f"{config}/estimator.yaml", f"run_dir={folder}/estimator"]
    for name in ("style", "no_style", "estimator"):
        found[f"eval {name}"] = ["eval", f"{folder}/{name}", "--checkpoint", "last"]
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default="runs/quadruped", help="where runs are kept (default: %(default)s)")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    folder, figures = Path(options.runs), {}
    if not options.show:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / "skills.yaml", folder)
    for name, arguments in steps(options.runs).items():
        command = quick(arguments) if options.quick else arguments
        if options.show:
            print("gaitway", *command)
            continue
        place = next((Path(each[8:]) for each in command if each.startswith("run_dir=")), None)
        if place is not None and (place / "summary.json").exists():
            continue
        print(f"{name}: gaitway {' '.join(command)}", flush=True)
        said = told([*command, *({"train": ["--quiet"], "eval": ["--json"]}.get(command[0], []))])
        if command[0] == "eval":
            figures[name.removeprefix("eval ")] = json.loads(said)
            (folder / "story.json").write_text(json.dumps(figures, indent=1) + "\n")
    for name, found in figures.items():
        kept = ("success", "traverse", "fell", "velocity_rmsd", "stride_frequency", "stride_phase_1")
        print(f"{name:12s}", ", ".join(f"{each} {found[each]:.3f}" for each in kept if found.get(each) is not None))


if __name__ == "__main__":
    main()
