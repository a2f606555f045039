"""The example that drives a robot without gaitway: its gait is ours, and a contract with another gait is named."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import torch

from gaitway import make_env
from gaitway.export.contract import first_difference, read_interface

SCRIPT = Path(__file__).parents[2] / "examples" / "quadruped" / "drive_robot.py"


def test_the_gait_of_the_robot_is_that_of_the_task() -> None:
    found = importlib.util.spec_from_file_location("drive_robot", SCRIPT)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    env = make_env("pup12/gait_residual", 1, num_threads=1)
    facts = json.loads(json.dumps(env.spec.facts["gait"]))
    generator = np.random.default_rng(0)
    for _ in range(20):
        phase, command = generator.random(), generator.uniform(-0.5, 0.5, 3)
        ours = env.task.gait.pose(torch.tensor([phase], dtype=torch.float64), torch.tensor(command)[None])  # type: ignore[attr-defined]
        np.testing.assert_allclose(module.gait_pose(facts, phase, command), ours[0].numpy(), atol=1e-12)


def test_another_gait_is_another_contract(tmp_path: Path) -> None:
    for name, frequency in (("A", 2.5), ("B", 2.0)):
        env = make_env("pup12/gait_residual", 1, num_threads=1, gait={"frequency": frequency})
        (tmp_path / f"{name}.json").write_text(json.dumps(env.spec.to_dict()))
    said = first_difference(*(read_interface(tmp_path / f"{name}.json") for name in "AB"))
    assert said is not None
    assert "the frequency of the gait: 2.5 in" in said
