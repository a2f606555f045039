"""The example that drives a robot without gaitway: gait and scan are ours, and a contract with others is named."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from legged_cases import with_imu

from gaitway import make_env
from gaitway.envs.legged.terrain import scan
from gaitway.export.contract import first_difference, read_interface

SCAN: dict[str, Any] = {
    "observations": {"policy": ["policy", "phase", "height_scan"]},
    "action": "gait_residual",
    "noise": 0.0,
}
SCRIPT = Path(__file__).parents[2] / "examples" / "quadruped" / "drive_robot.py"


def script() -> Any:
    found = importlib.util.spec_from_file_location("drive_robot", SCRIPT)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_gait_of_the_robot_is_that_of_the_task() -> None:
    module = script()
    env = make_env("pup12/gait_residual", 1, num_threads=1)
    facts = json.loads(json.dumps(env.spec.facts["gait"]))
    generator = np.random.default_rng(0)
    for _ in range(20):
        phase, command = generator.random(), generator.uniform(-0.5, 0.5, 3)
        ours = env.task.gait.pose(torch.tensor([phase], dtype=torch.float64), torch.tensor(command)[None])  # type: ignore[attr-defined]
        np.testing.assert_allclose(module.gait_pose(facts, phase, command), ours[0].numpy(), atol=1e-12)


def test_the_scan_of_the_robot_is_that_of_the_task(tmp_path: Path) -> None:
    terrain = {"obstacles": ["crawl", "jump", "leap", "hurdle"], "level": 7, "scan": "ahead", "onehot_width": 11}
    env: Any = make_env("pup12/field_lite", 4, seed=3, num_threads=1, purpose="evaluation", terrain=terrain, **SCAN)
    seen, task, columns = env.reset(3)["policy"], env.task, env.spec.group("policy").columns("height_scan")
    grid = json.loads(json.dumps(env.spec.facts["scan"]))
    boxes = task._around.track.boxes(torch.arange(4))
    drive = dataclasses.asdict(env.spec.drive)
    for number in range(4):
        spec = task.robot.spec()
        task.add_surroundings(spec)
        for box in range(boxes[0].shape[1]):
            geom = spec.geom(f"terrain_{box}")
            geom.pos, geom.size, geom.quat = (part[number, box].tolist() for part in boxes)
        spec.compile()
        file = tmp_path / f"{number}.xml"
        file.write_text(spec.to_xml())
        robot = script().Robot(file, drive)
        for ahead in (0.0, 1.013, 2.017, 4.011):  # in the midst of obstacles as well
            task.qpos[number, 0] += ahead
            robot.begin(task.qpos[number, :7], task.qpos[number, task.view.positions])
            shown = seen[number, columns] if not ahead else None
            top = task._around.terrain.top(slice(number, number + 1), _around(task, number, grid))
            ours = (task.qpos[number, 2] - top[0] - grid["usual"]).clamp(-grid["limit"], grid["limit"])
            np.testing.assert_allclose(robot.scan(grid), ours.numpy(), atol=2e-6)  # files have six digits
            if shown is not None:
                np.testing.assert_allclose(5.0 * robot.scan(grid), shown.numpy(), atol=2e-5)


@pytest.mark.parametrize("turned", [True, False])
def test_the_robot_measures_what_the_task_shows(turned: bool, tmp_path: Path) -> None:
    """At a turned IMU; without one, in the base. A program that takes the base's for the IMU's is far off."""
    site = '<site name="imu" pos="0.13 -0.04 0.06" quat="0.8 -0.3 0.4 0.2"/>'
    path = with_imu(tmp_path, site, imu_site="imu" if turned else None)
    env: Any = make_env("legged:velocity", 1, num_threads=1, dtype="float64", robot=path, noise=0.0,
                        observations={"policy": ["ang_vel_true", "gravity_true"]})  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        shown = env.step(2.0 * torch.randn(1, 12, generator=generator).double()).obs["policy"][0].numpy()
    drive = json.loads(json.dumps(dataclasses.asdict(env.spec.drive)))
    for contract, fits in ((drive, True), (drive | {"imu": None}, not turned)):
        robot = script().Robot(tmp_path / "imu.xml", contract)
        robot.begin(env.task.qpos[0, :7], env.task.qpos[0, env.task.view.positions], env.task.qvel[0, :6])
        turning, gravity, *_ = robot.sensors()
        assert np.allclose(np.concatenate((0.25 * turning, gravity)), shown, atol=1e-9) == fits
    assert np.abs(shown[:3]).max() > 0.05


def _around(task: Any, number: int, grid: dict[str, Any]) -> torch.Tensor:
    """Points of a scan in the world [1, P, 2]."""
    w, i, j, k = task.qpos[number, 3:7]
    yaw = torch.tensor([np.arctan2(2 * (w * k + i * j), 1 - 2 * (j * j + k * k))])
    lines = [first + step * torch.arange(count, dtype=torch.float64) for first, step, count in (grid["x"], grid["y"])]
    return scan.scanned(torch.cartesian_prod(*lines), torch.tensor(task.qpos[number : number + 1, :3]), yaw)


def test_another_scan_is_another_contract(tmp_path: Path) -> None:
    for name, which in (("A", "ahead"), ("B", "around")):
        env = make_env("pup12/field_lite", 1, num_threads=1, terrain={"scan": which}, **SCAN)
        plain = env.spec.to_dict()
        assert plain["facts"]["scan"]["usual"] == 0.3
        plain["groups"] = []  # their sizes differ as well
        (tmp_path / f"{name}.json").write_text(json.dumps(plain))
    said = first_difference(*(read_interface(tmp_path / f"{name}.json") for name in "AB"))
    assert said is not None
    assert "the x of the scan: [-0.5, 0.1, 21] in" in said


def test_another_gait_is_another_contract(tmp_path: Path) -> None:
    for name, frequency in (("A", 2.5), ("B", 2.0)):
        env = make_env("pup12/gait_residual", 1, num_threads=1, gait={"frequency": frequency})
        (tmp_path / f"{name}.json").write_text(json.dumps(env.spec.to_dict()))
    said = first_difference(*(read_interface(tmp_path / f"{name}.json") for name in "AB"))
    assert said is not None
    assert "the frequency of the gait: 2.5 in" in said
