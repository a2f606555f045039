"""From simulator to robot: an exported gait policy drives pup12 in plain MuJoCo, by a program without gaitway.

    gaitway bench sim_to_robot RUN --out benchmarks/results/sim_to_robot.json

RUN is a run of `pup12/gait_residual`. Its export drives `examples/quadruped/drive_robot.py` in a process where gaitway
cannot be imported, on a robot file whose legs have another order, without motors of its own. For each command of the
evaluation grid four episodes of 5 s begin at four phases of the gait, on the nominal robot; the same policy plays the
same commands here, nominal too. Passed: velocity RMSD within 5 % of ours. The twin takes joints by place instead of
by name and must not pass. `check-contract` must name a wrong joint order, a missing scale and other gains.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import torch
from _rounds import machine, revision, versions

import gaitway
from gaitway import make_env
from gaitway.cli.build import load_policy
from gaitway.cli.open_run import open_run
from gaitway.envs.legged.commands import GRID
from gaitway.runners.evaluate import run_episodes

SCRIPT = Path(__file__).parents[1] / "examples" / "quadruped" / "drive_robot.py"
ID, SECONDS, WARM_UP, TOLERANCE = "pup12/gait_residual", 5.0, 50, 0.05
PHASES = (0.0, 0.25, 0.5, 0.75)
NOMINAL: dict[str, Any] = {"randomise": {"enabled": False}, "pushes": {"kick_seconds": None}, "noise": 0.0}


def robot_file(folder: Path) -> Path:
    """pup12 and its floor as one MJCF file: legs in another order, no motors, no sensors."""
    task: Any = make_env(ID, 1, num_threads=1, **NOMINAL).task  # type: ignore[attr-defined]
    spec = task.robot.spec()
    task.add_surroundings(spec)
    spec.compile()
    tree = ElementTree.fromstring(spec.to_xml())
    for part in ("actuator", "sensor", "keyframe"):
        for found in tree.findall(part):
            tree.remove(found)
    trunk = next(body for body in tree.iter("body") if body.get("name") == "trunk")
    legs = trunk.findall("body")
    for leg in legs:
        trunk.remove(leg)
    trunk.extend([legs[2], legs[0], legs[3], legs[1]])
    path = folder / "robot.xml"
    path.write_text(ElementTree.tostring(tree, encoding="unicode"))
    return path


def commands() -> list[tuple[float, float, float]]:
    """The grid as the task trains it: within its ranges."""
    low, high = (-0.5, -0.3, -0.8), (1.0, 0.3, 0.8)
    return [tuple(np.clip(each, low, high).tolist()) for each in GRID]


def elsewhere(export: Path, file: Path, by_place: bool) -> float:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import types\n"
        "sys.modules['gaitway'] = None\n"  # importing it raises ImportError
        "import json; given = json.loads(sys.argv[2])\n"
        "source = open(given['script']).read(); space = {'__name__': 'drive_robot'}\n"
        "exec(compile(source, given['script'], 'exec'), space)\n"
        "import numpy as np; Robot = space['Robot']\n"
        "class ByPlace(Robot):\n"
        "    def __init__(self, *g):\n"
        "        super().__init__(*g); self.at, self.to = np.sort(self.at), np.sort(self.to)\n"
        "space['Robot'] = ByPlace if given['by_place'] else Robot\n"
        "total = []\n"
        "for command in given['commands']:\n"
        "    for phase in given['phases']:\n"
        "        reached = space['drive'](given['export'], given['file'], command, given['seconds'], phase)\n"
        "        total.append(((reached[given['skip']:] - np.array(command[:2])) ** 2).sum(1).mean())\n"
        "print(float(np.sqrt(np.mean(total))))\n"
    )
    given = {
        **{"script": str(SCRIPT), "export": str(export), "file": str(file), "by_place": by_place, "skip": WARM_UP},
        **{"commands": commands(), "phases": PHASES, "seconds": SECONDS},
    }
    command = [sys.executable, "-c", program, str(SCRIPT.parent), json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def here(run: str, limit: float) -> tuple[float, float]:
    count = 8 * len(GRID)
    options: dict[str, Any] = {**NOMINAL, "commands": {"sampler": "grid"}, "action_limit": limit}
    env = make_env(ID, count, num_threads=1, purpose="evaluation", **options)
    folder, config = open_run(run)
    table = run_episodes(env, load_policy(folder, config, env.spec, "best").inference(), count)
    return env.spec.pooled["velocity_rmsd"](table), float(table["fell"].mean())


def trained(run: str) -> str:
    """What the run is, besides its name."""
    loaded = gaitway.load(run)
    config = loaded.config
    return f"{config.env.id}, seed {config.seed}, step {loaded.steps:,} of {config.total_steps:,}"


def mistakes(export: Path, folder: Path) -> dict[str, str]:
    """What `gaitway check-contract` says of robots that are not the contract's."""
    plain = json.loads((export / "policy_contract.json").read_text())
    said = {}
    for name in ("joint order", "missing scale", "other gains"):
        other = json.loads(json.dumps(plain))
        if name == "joint order":
            names = other["action"]["names"]
            names[0], names[1] = names[1], names[0]
        elif name == "missing scale":
            other["action"]["scale"] = []
        else:
            other["drive"]["kp"][3] = 40.0
        path = folder / "other.json"
        path.write_text(json.dumps(other))
        command = [sys.executable, "-m", "gaitway", "check-contract", str(export), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        words = (done.stdout + done.stderr).strip().replace(f"{folder}/", "")
        said[name] = f"exit {done.returncode}: {words}"
    return said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--out", default=None)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export = folder / "export"
        gaitway.load(options.run).export(str(export))
        limit = json.loads((export / "policy_contract.json").read_text())["action"]["high"][0]
        file = robot_file(folder)
        ours, fell = here(options.run, limit)
        robot, twin = (elsewhere(export, file, by_place) for by_place in (False, True))
        row = {
            **{
                "run": Path(options.run).name,
                "trained": trained(options.run),
                "here": round(ours, 4),
                "fell_here": fell,
                "robot": round(robot, 4),
            },
            **{"twin": round(twin, 4), "mistakes": mistakes(export, folder)},
        }
    good = abs(robot - ours) <= TOLERANCE * ours and abs(twin - ours) > TOLERANCE * ours
    named = all(said.startswith("exit 1") for said in row["mistakes"].values())
    about = {"benchmark": "sim_to_robot", "machine": machine(), "commit": revision()}
    result = {**about, "versions": versions("mujoco", "onnxruntime", "torch"), **row, "passed": good and named}
    print(json.dumps(result, indent=1))
    if options.out:
        Path(options.out).write_text(json.dumps(result, indent=1) + "\n")
    return 0 if good and named else 1


if __name__ == "__main__":
    sys.exit(main())
