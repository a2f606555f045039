"""Same seed, same run: two processes with different simulator thread counts write the same metrics."""

import json
import subprocess
import sys

import pytest


def metrics(path):
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if not key.startswith("time/")} for line in lines]


PPO = ["algorithm.rollout_steps=32"]
SAC = ["algorithm=sac", "algorithm.learning_starts=600", "algorithm.iteration_steps=400", "algorithm.update_ratio=0.2",
       "algorithm.replay_size=2000", "agent.actor_hidden=[32,32]", "agent.critic_hidden=[32,32]"]  # fmt: skip


@pytest.mark.parametrize(
    ("env_id", "options", "counts"),
    [("walker/run", PPO, (1, 2, 3)), ("Hopper-v5", PPO, (1, 2, 3)), ("Hopper-v5", SAC, (1, 3))],
)
def test_thread_counts_do_not_change_a_run(env_id, options, counts, tmp_path):
    for threads in counts:
        command = [sys.executable, "-m", "gaitway.cli.main", "train", f"env.id={env_id}", "env.num_envs=16", *options]
        command += [f"env.num_threads={threads}", f"run_dir={tmp_path / str(threads)}", "total_steps=3000", "--quiet"]
        command += ["evaluation.interval=1000", "evaluation.episodes=3", "seed=5"]
        subprocess.run(command, check=True, capture_output=True)
    first = metrics(tmp_path / "1")
    assert len(first) > 5
    for threads in counts[1:]:
        assert metrics(tmp_path / str(threads)) == first
