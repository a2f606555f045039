"""Same seed, same run: two processes with different simulator thread counts write the same metrics."""

import json
import os
import subprocess
import sys

import pytest


def metrics(path):
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if not key.startswith("time/")} for line in lines]


REPLAY = ["algorithm.learning_starts=300", "algorithm.iteration_steps=200", "algorithm.update_ratio=0.2",
          "algorithm.replay_size=1000", "algorithm.batch_size=32"]  # fmt: skip
CARTPOLE, HOPPER = ["env.id=gymnasium:CartPole-v1"], ["env.id=Hopper-v5"]
EVOLUTION = ["env.num_envs=1", "algorithm.population=6", "algorithm.episodes=3", "algorithm.max_episode_steps=30"]
RUNS = {
    "ppo": [*HOPPER, "algorithm.rollout_steps=32"],
    "ppo, walker": ["env.id=walker/run", "algorithm.rollout_steps=32"],
    "sac": [*HOPPER, "algorithm=sac", *REPLAY, "agent.actor_hidden=[32,32]", "agent.critic_hidden=[32,32]"],
    "reinforce": [
        "env.id=toy/cartpole",
        "env.options.max_episode_steps=40",
        "algorithm=reinforce",
        "algorithm.rollout_steps=40",
    ],
    "a2c": [*HOPPER, "algorithm=a2c"],
    "dqn": [*CARTPOLE, "algorithm=dqn", *REPLAY],
    "dqn, prioritised": [*CARTPOLE, "algorithm=dqn", *REPLAY, "algorithm.prioritised=true", "algorithm.n_step=3"],
    "ddpg": [*HOPPER, "algorithm=ddpg", *REPLAY],
    "td3": [*HOPPER, "algorithm=td3", *REPLAY],
    "cem": [*HOPPER, "algorithm=cem", *EVOLUTION],
    "es": [*HOPPER, "algorithm=es", *EVOLUTION],
}
SCRIPT = """
import json, sys
from gaitway.cli.build import build_runner
from gaitway.cli.train_config import TrainConfig, choices, effective, parse
from gaitway.cli.compose import compose
from gaitway.core.config import to_config
from gaitway.runners.run_folder import RunFolder

for path, options in json.load(sys.stdin).items():
    config = effective(parse(compose(options, to_config(TrainConfig()), parse, **choices()).config))
    runner = build_runner(config, RunFolder.create(path))
    runner.learn()
    runner.close()
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One process after the other, for each number of threads."""
    folder = tmp_path_factory.mktemp("runs")
    for threads in (1, 3):
        common = ["env.num_envs=8", f"env.num_threads={threads}", "total_steps=800", "seed=5"]
        common += ["evaluation.interval=400", "evaluation.episodes=3", "evaluation.max_steps=30"]
        requests = {str(folder / name / str(threads)): [*common, *options] for name, options in RUNS.items()}
        environment = os.environ | {"PYTHONHASHSEED": str(threads)}
        found = subprocess.run(
            [sys.executable, "-c", SCRIPT], input=json.dumps(requests), text=True, capture_output=True, env=environment
        )
        assert found.returncode == 0, found.stderr
    return folder


@pytest.mark.parametrize("name", RUNS)
def test_processes_and_thread_counts_do_not_change_a_run(name, runs):
    first = metrics(runs / name / "1")
    assert sum("train/return" in line for line in first) > 1
    assert any("eval/return" in line for line in first)
    assert metrics(runs / name / "3") == first
