"""Legs and gaits: what goes out comes back, and feet neither jump nor slip."""

from __future__ import annotations

import dataclasses
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from legged_cases import pup12

from gaitway.envs.legged.config import LeggedConfig
from gaitway.envs.legged.gaits import OFFSETS, GaitConfig, stride
from gaitway.envs.legged.kinematics import leg_angles, leg_foot
from gaitway.envs.robots.registry import get_legged_robot
from gaitway.envs.tasks.legged.making import make_legged
from gaitway.envs.tasks.legged.model import foot_chains, make_actions

LEG = (0.21, 0.21)
GAITS = {
    "trot": GaitConfig(),
    "slow trot": GaitConfig(frequency=2.0),
    "pace": GaitConfig(name="pace"),
    "bound": GaitConfig(name="bound", duty=0.55),
    "walk": GaitConfig(name="walk", frequency=1.25, duty=0.75),
}


def test_angles_and_feet_are_inverse() -> None:
    generator = torch.Generator().manual_seed(0)
    low, high = torch.tensor([-0.8, -0.6, -2.7]), torch.tensor([0.8, 2.0, -0.9])
    angles = (low + (high - low) * torch.rand(1000, 3, generator=generator)).double()
    offset = torch.where(torch.rand(1000, generator=generator) < 0.5, 0.08, -0.08).double()
    feet = leg_foot(angles, offset, *LEG)
    below = feet[:, 2] < -0.1  # a foot above its hip has two answers
    again = leg_foot(leg_angles(feet, offset, *LEG), offset, *LEG)
    assert below.sum() > 500
    torch.testing.assert_close(again[below], feet[below], atol=1e-9, rtol=0)
    torch.testing.assert_close(leg_angles(feet, offset, *LEG)[below], angles[below], atol=1e-7, rtol=0)
    assert (leg_angles(torch.tensor([[0.0, 0.08, -9.0]]).double(), offset[:1].abs(), *LEG)[0, 2]).abs() < 1e-6


def test_knees_that_bend_the_other_way_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    turned = torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)
    monkeypatch.setitem(globals(), "leg_angles", lambda *given: turned * leg_angles_of(*given))
    with pytest.raises(AssertionError):
        test_angles_and_feet_are_inverse()


leg_angles_of, stride_of = leg_angles, stride


@pytest.mark.parametrize("name", ["pup12", "pup4", "walker", "humanoid"])
def test_chains_are_the_model(name: str) -> None:
    """Feet by chains of hinges against MuJoCo's own kinematics, with the base anywhere."""
    id = "legged:velocity"
    view = make_legged(id, {"robot": name, "randomise": {"enabled": False}}).view
    generator, data = np.random.default_rng(0), mujoco.MjData(view.model)
    chains = foot_chains(view)
    for _ in range(5):
        q = generator.uniform(view.low, view.high)
        data.qpos[:] = view.home
        data.qpos[view.positions] = q
        mujoco.mj_kinematics(view.model, data)
        sites = [data.site(f"foot_{foot}").xpos - data.xpos[view.base] for foot in range(len(view.robot.feet))]
        found = chains(torch.from_numpy(q)[None])[0]
        np.testing.assert_allclose(found.numpy(), np.array(sites), atol=1e-12)


@pytest.mark.parametrize("gait", GAITS.values(), ids=GAITS)
def test_feet_neither_jump_nor_slip(gait: GaitConfig) -> None:
    velocity = torch.tensor([[0.6, -0.2]], dtype=torch.float64)
    step = 1e-5

    def place(phase: float) -> tuple[torch.Tensor, torch.Tensor]:
        return stride(torch.tensor([phase % 1.0], dtype=torch.float64), velocity, gait)

    for phase in (0.0, gait.duty):  # touch-down and lift-off
        before, after = place(phase - step), place(phase + step)
        assert (before[0] - after[0]).abs().max() < 1e-4
        assert (before[1] - after[1]).abs() < 1e-6
        slopes = [(place(phase + k + step)[0] - place(phase + k)[0]) / step for k in (-2 * step, step)]
        torch.testing.assert_close(slopes[0], slopes[1], atol=1e-2, rtol=0)
    seconds = 0.1 / gait.frequency  # within stance a foot goes back as fast as the ground
    moved = place(0.3)[0] - place(0.2)[0]
    torch.testing.assert_close(moved, -velocity * seconds, atol=1e-12, rtol=0)
    assert float(place(gait.duty + (1 - gait.duty) / 2)[1]) == pytest.approx(gait.lift)
    assert float(place(0.1)[1]) == 0.0


def _jumps(phase: torch.Tensor, velocity: torch.Tensor, gait: GaitConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Feet leave the ground forwards: the slope of the cubic has another sign."""
    along, lift = stride_of(phase, velocity, gait)
    u = ((phase - gait.duty) / (1.0 - gait.duty)).clamp(min=0.0)
    slope = -velocity * ((1.0 - gait.duty) / gait.frequency)
    return along - 2.0 * slope * (u - 3.0 * u**2 + 2.0 * u**3)[..., None], lift


def _swapped(phase: torch.Tensor, velocity: torch.Tensor, gait: GaitConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """As long on the ground as it should be in the air."""
    return stride_of(phase, velocity, dataclasses.replace(gait, duty=1.0 - gait.duty))


@pytest.mark.parametrize("twin", [_jumps, _swapped])
@pytest.mark.parametrize("gait", GAITS.values(), ids=GAITS)
def test_feet_that_jump_are_found(gait: GaitConfig, twin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "stride", twin)
    with pytest.raises(AssertionError):
        test_feet_neither_jump_nor_slip(gait)


@pytest.mark.parametrize("gait", GAITS.values(), ids=GAITS)
def test_gaits_close_and_stay_within_the_joints(gait: GaitConfig) -> None:
    view, robot = pup12()
    actions = make_actions(LeggedConfig(action="gait_residual", gait=gait), get_legged_robot("pup12"), robot)
    assert actions.gait is not None
    frames = round(1.0 / gait.frequency / 0.02)
    assert frames == pytest.approx(1.0 / gait.frequency / 0.02)  # a whole number of control steps
    phase = torch.arange(frames + 1).double() / frames
    for command in ([0.8, 0.0, 0.0], [0.4, 0.3, 0.0], [0.0, 0.0, 0.8], [-0.4, 0.0, 0.3]):
        pose = actions.gait.pose(phase, torch.tensor(command).double().expand(frames + 1, 3))
        torch.testing.assert_close(pose[0], pose[-1], atol=1e-12, rtol=0)
        assert ((pose > robot.low) & (pose < robot.high)).all()
    assert set(OFFSETS) >= {gait.name}
    assert view.mass > 12.0
