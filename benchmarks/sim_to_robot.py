"""From simulator to robot: an exported policy drives pup12 in plain MuJoCo, by a program without gaitway.

    gaitway bench sim_to_robot RUN --out benchmarks/results/sim_to_robot.json
    gaitway bench sim_to_robot STUDENT --out benchmarks/results/sim_to_robot_student.json

RUN is a run of `pup12/gait_residual`, or one on tracks of obstacles, such as the student of `examples/quadruped`,
with a memory and a height scan. Its export drives `examples/quadruped/drive_robot.py` in a process where gaitway cannot
be imported, on a robot file whose legs have another order, without motors of its own. On the plane these are four
episodes of 5 s for each command of the evaluation grid, on tracks 40 episodes of 6 s at 0.8 m/s, with the boxes of
their layouts in the robot's file. They begin as evaluations 0, 1, ... begin, and no limits end them. The same policy
plays the same here; everything is nominal. Passed: velocity RMSD within 5 % of ours. The twin takes joints by place
instead of by name and must not pass. `check-contract` must name a wrong joint order, a missing scale and other gains.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import torch
from _rounds import machine, revision, versions
from torch import Tensor

import gaitway
from gaitway import make_env
from gaitway.cli.build import load_policy
from gaitway.cli.open_run import open_run
from gaitway.envs.legged.commands import GRID
from gaitway.envs.vec_env import Observation

SCRIPT = Path(__file__).parents[1] / "examples" / "quadruped" / "drive_robot.py"
ID, SECONDS, WARM_UP, TOLERANCE = "pup12/gait_residual", 5.0, 50, 0.05
EACH = 4
"""Episodes of each command of the grid."""
NOMINAL: dict[str, Any] = {"randomise": {"enabled": False}, "pushes": {"kick_seconds": None}, "noise": 0.0}
TRACKS, ON_TRACK, SPEED = 40, 6.0, 0.8


def robot_file(path: Path, task: Any, boxes: Sequence[Tensor] = ()) -> Path:
    """pup12 and its ground as one MJCF file: legs in another order, no motors, no sensors; boxes of a track have these
    places, half sizes and quaternions."""
    spec = task.robot.spec()
    task.add_surroundings(spec)
    for number in range(len(boxes[0]) if boxes else 0):
        geom = spec.geom(f"terrain_{number}")
        geom.pos, geom.size, geom.quat = (part[number].tolist() for part in boxes)
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
    path.write_text(ElementTree.tostring(tree, encoding="unicode"))
    return path


def elsewhere(export: Path, cases: list[dict[str, Any]], by_place: bool) -> dict[str, float]:
    """Velocity RMSD and the way along x of the robot's program; `cases` are arguments of its `drive`."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "sys.modules['gaitway'] = None\n"  # importing it raises ImportError
        "import json; given = json.loads(open(sys.argv[2]).read())\n"
        "source = open(given['script']).read(); space = {'__name__': 'drive_robot'}\n"
        "exec(compile(source, given['script'], 'exec'), space)\n"
        "import numpy as np; Robot = space['Robot']\n"
        "class ByPlace(Robot):\n"
        "    def __init__(self, *g):\n"
        "        super().__init__(*g); self.at, self.to = np.sort(self.at), np.sort(self.to)\n"
        "space['Robot'] = ByPlace if given['by_place'] else Robot\n"
        "total, way = [], []\n"
        "for case in given['cases']:\n"
        "    reached, places = space['drive'](given['export'], **case)\n"
        "    total.append(((reached[given['skip']:] - np.array(case['command'][:2])) ** 2).sum(1).mean())\n"
        "    way.append(places[-1][0] - places[0][0])\n"
        "print(json.dumps({'rmsd': float(np.sqrt(np.mean(total))), 'way': float(np.mean(way))}))\n"
    )
    given = {"script": str(SCRIPT), "export": str(export), "by_place": by_place, "skip": WARM_UP, "cases": cases}
    file = export.parent / "cases.json"
    file.write_text(json.dumps(given))
    command = [sys.executable, "-c", program, str(SCRIPT.parent), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(done.stdout)


def on_the_plane(run: str, limit: float, folder: Path) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """What the policy does here, and the same episodes as cases for elsewhere."""
    count = EACH * len(GRID)
    options: dict[str, Any] = {**NOMINAL, "commands": {"sampler": "grid"}, "action_limit": limit, "endings": []}
    env: Any = make_env(ID, count, num_threads=1, purpose="evaluation", episode_seconds=SECONDS + 1.0, **options)
    opened, config = open_run(run)
    act, task = load_policy(opened, config, env.spec, "last").inference(), env.task
    obs = env.reset(seed=list(range(count)))
    file = str(robot_file(folder / "robot.xml", task))
    cases = [begun(env, number, file, SECONDS) for number in range(count)]
    return played(env, act, obs, cases), cases


def on_tracks(run: str, folder: Path) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """The same on tracks. Episodes that leave their track count until then."""
    opened, config = open_run(run)
    told = {**config.env.options.get("commands", {}), "x": [SPEED, SPEED + 1e-9]}
    options = {**config.env.options, **NOMINAL, "commands": told, "endings": [], "episode_seconds": ON_TRACK}
    env: Any = make_env(config.env.id, TRACKS, num_threads=1, purpose="evaluation", **options)
    act, task = load_policy(opened, config, env.spec, "last").inference(), env.task
    obs = env.reset(seed=list(range(TRACKS)))
    boxes, cases = task._around.track.boxes(torch.arange(TRACKS)), []
    for number in range(TRACKS):
        file = str(robot_file(folder / f"track_{number}.xml", task, [part[number] for part in boxes]))
        cases.append({**begun(env, number, file, ON_TRACK), "command": [SPEED, 0.0, 0.0], "heading": True})
    return played(env, act, obs, cases), cases


def begun(env: Any, number: int, file: str, seconds: float) -> dict[str, Any]:
    """The episode that begins in an instance, as a case for elsewhere."""
    task = env.task
    names, joints = env.spec.drive.joints, task.qpos[number, task.view.positions].tolist()
    return {
        "file": file,
        "command": task.memory["command"][number].tolist(),
        "seconds": seconds,
        "phase": float(task.memory["phase"][number]),
        "start": {
            "base": task.qpos[number, :7].tolist(),
            "velocity": task.qvel[number, :6].tolist(),
            "joints": dict(zip(names, joints, strict=True)),
        },
    }


def played(env: Any, act: Any, obs: Observation, cases: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Velocity RMSD and the way along x of these episodes here."""
    task, count = env.task, env.num_envs
    act.reset()
    asked = np.array([case["command"][:2] for case in cases])
    start, running = task.qpos[:, 0].copy(), np.ones(count, bool)
    squared, counted, way = np.zeros(count), np.zeros(count), np.zeros(count)
    for number in range(round(cases[0]["seconds"] / env.spec.control_dt)):
        step = env.step(act(obs))
        ended = (step.terminated | step.truncated).numpy()
        going = running & ~ended  # the last step's state is gone where an episode ended
        w, i, j, k = task.qpos[:, 3:7].T
        yaw = np.arctan2(2 * (w * k + i * j), 1 - 2 * (j * j + k * k))
        x, y = task.qvel[:, :2].T
        velocity = np.stack((np.cos(yaw) * x + np.sin(yaw) * y, np.cos(yaw) * y - np.sin(yaw) * x), 1)
        if number >= WARM_UP:
            squared += going * ((velocity - asked) ** 2).sum(1)
            counted += going
        way = np.where(going, task.qpos[:, 0] - start, way)
        running, obs = going, step.obs
    each = squared / np.maximum(counted, 1.0)
    return {"rmsd": float(np.sqrt(each.mean())), "way": float(way.mean())}


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
        gaitway.load(options.run, "last").export(str(export))
        contract = json.loads((export / "policy_contract.json").read_text())
        if contract["scan"]:
            ours, cases = on_tracks(options.run, folder)
        else:
            ours, cases = on_the_plane(options.run, contract["action"]["high"][0], folder)
        robot, twin = (elsewhere(export, cases, by_place) for by_place in (False, True))
        said = mistakes(export, folder)
    good = [abs(found["rmsd"] - ours["rmsd"]) <= TOLERANCE * ours["rmsd"] for found in (robot, twin)] == [True, False]
    named = all(each.startswith("exit 1") for each in said.values())
    about = {"benchmark": "sim_to_robot", "machine": machine(), "commit": revision()}
    about |= {"versions": versions("mujoco", "onnxruntime", "torch"), "run": Path(options.run).name}
    about |= {"trained": trained(options.run), "memories": [each["size"] for each in contract["memories"]]}
    rows = {name: {key: round(value, 4) for key, value in row.items()} for name, row in
            (("here", ours), ("robot", robot), ("twin", twin))}  # fmt: skip
    result = {**about, "episodes": len(cases), **rows, "mistakes": said, "passed": good and named}
    print(json.dumps(result, indent=1))
    if options.out:
        Path(options.out).write_text(json.dumps(result, indent=1) + "\n")
    return 0 if good and named else 1


if __name__ == "__main__":
    sys.exit(main())
