"""Commands: ranges, stands, headings, the joystick, the grid, and ranges that widen."""

from __future__ import annotations

import itertools
import math

import torch

from gaitway.envs.legged.commands import DRAWS, GRID, CommandConfig, Commands, widened
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.registry import make_env
from gaitway.envs.wrappers import innermost

LIKE = torch.zeros(0, dtype=torch.float64)


def drawn(
    config: CommandConfig, count: int = 4000, share: float = 1.0, planar: bool = False
) -> tuple[torch.Tensor, ...]:
    uniform = torch.rand(count, DRAWS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    before = torch.full((count, 3), 7.0, dtype=torch.float64)
    sampler = Commands(config, planar, LIKE)
    return sampler.draw(uniform, before, torch.full((count,), share).double(), torch.arange(count).double())


def test_uniform_commands() -> None:
    command, seconds, heading = drawn(CommandConfig())
    stands = (command == 0.0).all(1)
    assert 0.07 < stands.double().mean() < 0.13  # a tenth
    speed = command[:, :2].norm(dim=1)
    assert not ((speed > 0.0) & (speed < 0.1)).any()
    for column, limit in enumerate((1.0, 0.6, 1.0)):
        assert limit * 0.99 < command[:, column].abs().max() <= limit
    assert 4.0 <= seconds.min() < 4.1
    assert 7.9 < seconds.max() <= 8.0
    assert heading.abs().max() <= math.pi
    half, _, _ = drawn(CommandConfig(), share=0.5)
    assert half[:, 0].abs().max() <= 0.5
    planar, _, _ = drawn(CommandConfig(), planar=True)
    assert (planar[:, 1:] == 0.0).all()


def test_a_command_may_last_for_the_episode() -> None:
    assert torch.isinf(drawn(CommandConfig(seconds=None))[1]).all()


def test_the_joystick_keeps_half_of_it() -> None:
    command, seconds, _ = drawn(CommandConfig(sampler="joystick", x=(-1.5, 1.5), y=(-0.8, 0.8), turn=(-1.2, 1.2)))
    kept = (command == 7.0).double().mean(0)
    assert ((kept > 0.46) & (kept < 0.54)).all()
    shares = (command == 0.0).double().mean(0)  # half of 0.1, 0.75, 0.5
    torch.testing.assert_close(shares, torch.tensor([0.05, 0.375, 0.25]).double(), atol=0.03, rtol=0)
    assert 4.6 < seconds.mean() < 5.4


def test_the_grid_has_a_command_for_each_place() -> None:
    command, seconds, _ = drawn(CommandConfig(sampler="grid"), count=30)
    torch.testing.assert_close(command[:15], torch.tensor(GRID).double())
    assert torch.equal(command[:15], command[15:])
    assert torch.isinf(seconds).all()
    narrow, _, _ = drawn(CommandConfig(sampler="grid", x=(-0.5, 1.0), turn=(-0.8, 0.8)), count=15)
    assert narrow[:, 0].min() == -0.5
    assert narrow[:, 2].abs().max() == 0.8


def test_headings_are_turned_to_the_shorter_way() -> None:
    sampler = Commands(CommandConfig(heading=True), False, LIKE)
    command = torch.tensor([[0.5, 0.0, 0.3], [0.5, 0.0, 0.3], [0.0, 0.0, 0.0]]).double()
    turned = sampler.towards(command, torch.tensor([3.0, 0.4, 1.0]).double(), torch.tensor([-3.0, 0.0, 0.0]).double())
    # from -3 to 3 rad is 6 - 2 pi = -0.28 the short way; half of it
    torch.testing.assert_close(turned[:, 2], torch.tensor([0.5 * (6.0 - 2 * math.pi), 0.2, 0.0]).double())
    assert torch.equal(turned[:, :2], command[:, :2])


def test_goals_lead_within_the_ranges_and_are_turned_to_first() -> None:
    """2 m ahead; 0.3 m ahead and 0.2 m to the left; behind to the right."""
    sampler = Commands(CommandConfig(sampler="goal", x=(0.0, 0.8), y=(-0.1, 0.1), turn=(-0.9, 0.9)), False, LIKE)
    away = torch.tensor([[2.0, 0.0], [0.3, 0.2], [-1.0, -0.05]]).double()
    wanted = [[0.8, 0.0, 0.0], [0.3, 0.1, math.atan2(0.2, 0.3)], [0.0, -0.05, -0.9]]
    torch.testing.assert_close(sampler.to_goal(away), torch.tensor(wanted).double())
    command, seconds, _ = drawn(CommandConfig(sampler="goal"), count=3)
    assert (command == 0.0).all()
    assert torch.isinf(seconds).all()
    sampler.held = torch.ones(3)  # somebody tells them
    assert not sampler.has_goal


def test_ranges_widen_when_they_are_followed() -> None:
    share, mean, count = (torch.tensor([value]).double() for value in (0.5, 0.0, 0.0))
    ended = torch.tensor([True, False, True, False])
    shares = []
    for score in [0.9] * 40 + [0.1] * 40:
        share, mean, count = widened(share, mean, count, ended, torch.full((4,), score).double(), 0.8)
        shares.append(float(share))
    # the mean passes 0.8 after 8 steps ((3/4)^8 = 0.1); then a step of 0.1 for every 8 episodes, four steps
    assert shares[6] == 0.5
    assert shares[39] == 1.0
    assert shares[-1] == 1.0  # ranges do not shrink
    steps = {round(b - a, 6) for a, b in itertools.pairwise(shares)}
    assert steps == {0.0, 0.1}
    changes = [k for k in range(1, 80) if shares[k] != shares[k - 1]]
    assert min(b - a for a, b in itertools.pairwise(changes)) >= 4
    still = widened(share, mean, count, torch.zeros(4, dtype=torch.bool), torch.ones(4).double(), 0.8)
    assert torch.equal(still[1], mean)


def test_a_reset_forgets_how_far_ranges_had_widened() -> None:
    with make_env("pup12/velocity", 64, num_threads=1, commands={"curriculum": True}) as env:
        first = {name: value.clone() for name, value in env.reset(0).items()}
        base = innermost(env)
        assert isinstance(base, MujocoBatchEnv)
        memory = base.task.memory
        for name, value in (("share", 1.0), ("score", 0.7), ("episodes", 50.0)):
            memory[name][:] = value
        again = env.reset(0)
        assert all(torch.equal(first[name], again[name]) for name in first)
        assert (memory["score"].item(), memory["episodes"].item()) == (0.0, 0.0)
