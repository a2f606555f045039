"""Draws the pictures of docs/pictures.md: `python scripts/docs_pictures.py RUN SWEEP`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from gaitway.analysis.facets import plot_dataframe
from gaitway.analysis.maps import action_value_map
from gaitway.analysis.plane import Plane
from gaitway.analysis.tables import Runs
from gaitway.analysis.trajectories import plot_trajectory
from gaitway.cli.build import build_env, load_policy
from gaitway.cli.open_run import open_run

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
STEPS = 400


def main(run: str, sweep: str) -> None:
    folder, config = open_run(run)
    with build_env(config, "evaluation", 4) as env:
        loaded = load_policy(folder, config, env.spec, "best")
        act, obs, seen, done = loaded.inference(), env.reset(seed=[0, 1, 2, 3]), [], []
        for _ in range(STEPS):
            seen.append(obs["policy"].clone())
            step = env.step(act(obs))
            obs = step.obs
            done.append(step.terminated | step.truncated)
        observations, ends = torch.stack(seen), torch.stack(done)
    plane = Plane.of(env, "angle", "angular_velocity", bounds={"angle": (-0.2, 0.2)}, data=observations)
    names = ["push left", "push right"]
    action_value_map(loaded.policy, plane, action="greedy", names=names, path=IMAGES / "map_greedy_action.png")
    action_value_map(loaded.policy, plane, label="value (discounted steps)", path=IMAGES / "map_value.png")
    labels = ("position [m]", "velocity [m/s]")
    plot_trajectory(observations, 0, 1, done=ends, labels=labels, path=IMAGES / "trajectories.png")
    table = Runs.read(sweep).frame()
    rate, gamma = "_hp/algorithm/learning_rate", "_hp/algorithm/gamma"
    plot_dataframe(table, "train/return", hue=rate, col=gamma, path=IMAGES / "facets.png")


if __name__ == "__main__":
    main(*sys.argv[1:])
