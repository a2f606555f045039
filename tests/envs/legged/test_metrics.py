"""Figures of evaluations, by hand."""

from __future__ import annotations

import math

import pytest
import torch
from legged_cases import frame_of

from gaitway.envs.legged.metrics import MEASURES, figures, measures
from gaitway.envs.vec_env import Pooled


def test_roots_are_taken_of_all_episodes_together() -> None:
    # squares 0.02 in 2 steps and 0.09 in 1 step: sqrt(0.11 / 3), not (0.1 + 0.3) / 2
    table = {"a": torch.tensor([0.02, 0.09, math.nan]), "n": torch.tensor([2.0, 1.0, 5.0])}
    assert Pooled("a", "n", root=True)(table) == pytest.approx(math.sqrt(0.11 / 3))
    assert Pooled("a", "n", factor=2.0)(table) == pytest.approx(0.22 / 3)
    assert math.isnan(Pooled("a", "n")({"a": torch.zeros(2), "n": torch.zeros(2)}))


def test_what_a_step_adds() -> None:
    frame = frame_of(
        foot_velocity=[[0.3, 0.4, 1.0], [1.0, 0.0, 0.0], [0.0] * 3, [0.0] * 3],
        contact=[True, False, True, False],
        torque=[2.0, -3.0, *[0.0] * 10],
        qd=[1.0, 1.0, *[0.0] * 10],
        action=[0.5] * 12,
    )
    found = measures(frame, torch.tensor([0.2]).double(), torch.tensor([-0.3]).double(), torch.tensor([0.01]).double())
    # slip of the first foot alone; 5 W for 0.02 s
    expected = [0.04, 0.09, 1.0, 0.01, 0.1, 0.5, 2.0, 0.01, math.sqrt(3.0), 0.02]
    torch.testing.assert_close(found, torch.tensor([expected]).double(), atol=1e-7, rtol=1e-6)
    assert found.shape == (1, len(MEASURES))


def test_cost_of_transport_is_energy_over_weight_and_way() -> None:
    table = {f"{name}_episode": torch.tensor([1.0, 1.0]) for name in MEASURES}
    table["joint_work_episode"] = torch.tensor([30.0, 10.0])
    table["distance_episode"] = torch.tensor([0.5, 1.5])
    assert figures(2.0)["cost_of_transport"](table) == pytest.approx(40.0 / (2.0 * 9.81 * 2.0))
