"""Controllers of toys do what they are written for; with one sign wrong they do not."""

import pytest

from gaitway.envs.registry import make_env
from gaitway.envs.toys.controllers import follow_reference, swing_up


def earned(env_id, controller):
    env = make_env(env_id, num_envs=64, seed=7)
    obs, total = env.reset(), 0.0
    for _ in range(200):
        step = env.step(controller(obs))
        obs, total = step.obs, total + step.reward.mean().item()
    return total


@pytest.mark.parametrize(("env_id", "controller", "least"), [
    ("toy/pendulum", swing_up, -180.0),
    ("toy/oscillator", follow_reference, 199.0),
])  # fmt: skip
def test_controllers_control(env_id, controller, least):
    assert earned(env_id, controller) > least
    assert earned(env_id, lambda obs: -controller(obs)) < least - abs(0.5 * least)
