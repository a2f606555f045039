"""Same seed, same run: two processes with different simulator thread counts write the same metrics."""

import json
import subprocess
import sys

import pytest


def metrics(path):
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if not key.startswith("time/")} for line in lines]


@pytest.mark.parametrize("env_id", ["walker/run", "Hopper-v5"])
def test_thread_counts_do_not_change_a_run(env_id, tmp_path):
    for threads in (1, 2, 3):
        command = [sys.executable, "-m", "gaitway.cli.main", "train", f"env.id={env_id}", "env.num_envs=16"]
        command += [f"env.num_threads={threads}", f"run_dir={tmp_path / str(threads)}", "total_steps=3000", "--quiet"]
        command += ["algorithm.rollout_steps=32", "evaluation.interval=1000", "evaluation.episodes=3", "seed=5"]
        subprocess.run(command, check=True, capture_output=True)
    first = metrics(tmp_path / "1")
    assert len(first) > 5
    assert metrics(tmp_path / "2") == first
    assert metrics(tmp_path / "3") == first
