"""Commands to a legged robot that is watched."""

from __future__ import annotations

import pytest
import torch

from gaitway import make_env
from gaitway.cli.main import main
from gaitway.cli.steering import Steering
from gaitway.core.config import ConfigError


def test_a_command_is_seen_and_keys_change_it_within_what_was_trained(capsys) -> None:
    env = make_env("pup12/gait_params", 1, num_threads=1)
    steering = Steering.of(env, (0.5, 0.0, 0.2))
    assert steering is not None
    columns = env.spec.group("policy").columns("commands_unscaled")
    torch.testing.assert_close(env.reset(0)["policy"][0, columns], torch.tensor([0.5, 0.0, 0.2]))
    for key in ("up", "left", "left", "x"):
        steering.press(key)
    seen = env.step(torch.zeros(1, 6)).obs["policy"][0, columns]
    torch.testing.assert_close(seen, torch.tensor([0.6, 0.0, 0.4]))
    for _ in range(20):
        steering.press("up")
    assert steering.command == [1.0, 0.0, 0.4]  # the range ends there
    steering.press("space")
    assert steering.command == [0.0, 0.0, 0.0]
    assert steering.caption() == ("command 0, 0, 0",)
    assert capsys.readouterr().out == ""
    Steering.of(env, (2.0, 0.0, 0.0))
    assert "trains -0.5 to 1" in capsys.readouterr().out


def test_a_robot_without_legs_is_not_told(capsys) -> None:
    env = make_env("toy/cue", 1)
    assert Steering.of(env, None) is None
    with pytest.raises(ConfigError, match="--command tells a legged robot where to go, and toy/cue has none"):
        Steering.of(env, (0.0, 0.0, 0.0))
    done = main(["play", "pup12/gait_params", "--policy", "zero", "--no-video", "--command", "0.5,0,0", "--steps", "3"])
    assert done == 0
    assert "3 steps" in capsys.readouterr().out
