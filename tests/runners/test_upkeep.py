"""What surrounds the iterations of every runner."""

import json
from types import SimpleNamespace

import pytest
import torch

from gaitway import PPO, ActorCritic, OnPolicyRunner, PPOConfig, RunnerConfig
from gaitway.core.workspace import Workspace
from gaitway.envs.registry import make_env
from gaitway.envs.wrappers import Wrapper
from gaitway.runners.upkeep import Upkeep, counted_steps, crossed, to_numbers


@pytest.mark.parametrize(
    ("before", "after", "interval", "expected"),
    [(0, 99, 100, False), (0, 100, 100, True), (99, 101, 100, True), (100, 199, 100, False), (0, 5, 0, False)],
)
def test_crossed(before, after, interval, expected):
    assert crossed(before, after, interval) is expected


def test_faults_are_spoken_of_once(caplog):
    episodes = SimpleNamespace(faults=12, steps=24)
    upkeep = SimpleNamespace(episodes=episodes, env=SimpleNamespace(spec=SimpleNamespace(id="mine")))
    upkeep._told_of_faults = False
    for _ in range(3):
        Upkeep._warn_of_faults(upkeep)
    assert len(caplog.messages) == 1
    assert "physics of mine failed in 12 of 24 steps" in caplog.text
    assert "use a shorter time step" in caplog.text


def test_to_numbers():
    assert to_numbers({"a": torch.tensor(1.5), "b": torch.tensor([2])}) == {"a": 1.5, "b": 2.0}
    assert to_numbers({}) == {}


def test_rows_that_only_reset_are_no_steps():
    plain = Workspace.packed({"env/reward": torch.zeros(4, 3)})
    assert (counted_steps(plain), counted_steps(plain, 1, 3)) == (12, 6)
    valid = torch.ones(4, 3, dtype=torch.bool)
    valid[1, 2] = valid[3, 0] = False
    ws = Workspace.packed({"env/reward": torch.zeros(4, 3), "env/valid": valid})
    assert [counted_steps(ws), counted_steps(ws, 0, 2), counted_steps(ws, 2)] == [10, 5, 5]


class Crowded(Wrapper):
    """Counts two things a step that no metric tells."""

    new = 0

    def step(self, action):
        self.new += 2
        return super().step(action)

    def counted(self):
        found, self.new = {"warp/crowded": float(self.new)}, 0
        return found


def test_lines_tell_what_was_counted_since_the_line_before(tmp_path):
    """Every third iteration of 8 steps is written: 3 * 8 * 2."""
    env = Crowded(make_env("toy/pendulum", num_envs=4))
    algorithm = PPO(ActorCritic(env.spec), PPOConfig(rollout_steps=8, minibatches=1, epochs=1), num_envs=4)
    runner = OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=7 * 32, log_interval=3), folder=tmp_path / "run")
    runner.learn()
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [(row["step"], row["warp/crowded"]) for row in rows] == [(96, 48.0), (192, 48.0)]
