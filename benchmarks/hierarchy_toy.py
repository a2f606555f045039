"""Every agent of the hierarchy study on the toy course `point/duck`, beside itself untrained and flat SAC.

    gaitway bench hierarchy_toy --skills runs/point_pretrain_100 --scale runs/point_diayn_100 \\
        --out benchmarks/results/hierarchy_toy.json

`--skills` is a run of the preset `point_pretrain`, `--scale` one of `point_diayn`. Every agent learns on one thread of
the CPU and is judged without noise on 50 seeds: points of an episode, 19 at most. Those that know skills get 8,000
samples, those that learn to move at the same time 40,000. Shown beside it is the same agent before its first update. An
agent learns where its score is above its untrained self on every seed and by `MARGIN` in the mean. `hiro astray` is
broken: its low level is taught with the goals of other robots, so that it cannot be led. Every run is written as soon
as it is over, and what is there is not run again.

HIRO's goals have to be within reach: in five steps this robot moves at most 0.25 m and turns 0.5 rad. With goals of 3 m
the low level earned a hundredth per step, less than its entropy was worth, and never learnt to follow them. Its
settings were chosen on seed 100.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from _rounds import machine, revision
from torch import Tensor

from gaitway import load, train
from gaitway.algorithms.algorithm import Batch
from gaitway.cli.train_config import RECIPES
from gaitway.skills.hiro import Hiro

EPISODES, MARGIN = 50, 0.5
COURSE = "point/duck"
SMALL = {"actor_hidden": [64, 64, 64], "critic_hidden": [64, 64, 64], "trunk": "d2rl"}
PLAY = {"batch_size": 128, "replay_size": 100_000, "iteration_steps": 2000}
RATES = {"critic_learning_rate": 1e-3, "temperature_learning_rate": 1e-3}
GOALS = {"goal_learning_rate": 1e-3}
FAST: dict[str, Any] = PLAY | RATES | {"update_ratio": 0.1}
RANGES = {"x": [-0.3, 0.3], "y": [-0.3, 0.3], "z": [-0.2, 0.2], "heading": [-0.5, 0.5]}
FLAT: dict[str, Any] = FAST | {"update_ratio": 0.2, "actor_learning_rate": 1e-3, "initial_temperature": 0.02}
HIRO: dict[str, Any] = {
    "algorithm": {"name": "hiro", **FLAT, "steps_per_round": 5},
    "agent": SMALL | {"goal_ranges": RANGES, "interval": 5, "dense": True},
    "total_steps": 40_000,
}  # fmt: skip
AGENTS: dict[str, dict[str, Any]] = {
    "hsd3": {
        "algorithm": {"name": "hsd3", **FAST, **GOALS, "space_learning_rate": 1e-3,
                      "initial_temperature_c": 0.1, "initial_temperature_d": 0.1},
        "agent": SMALL | {"skills": "SKILLS"},
    },
    "hsd_bandit": {
        "algorithm": {"name": "hsd_bandit", **FAST, **GOALS, "initial_temperature": 0.1},
        "agent": SMALL | {"skills": "SKILLS"},
    },
    "sd": {
        "algorithm": {"name": "hsd_bandit", **FAST, **GOALS, "initial_temperature": 0.1},
        "agent": SMALL | {"skills": "SKILLS", "subsets": "0-1-2-3", "bandit": {"name": "uniform"}},
    },
    "sac_hrl": {
        "algorithm": {"name": "sac_hrl", **FAST, "actor_learning_rate": 1e-3, "initial_temperature": 0.1},
        "agent": SMALL | {"skills": "SCALE"},
    },
    "hiro": HIRO,
    "hiro astray": HIRO | {"algorithm": HIRO["algorithm"] | {"name": "hierarchy_toy:ASTRAY"}},
    "switching": {
        "algorithm": {"name": "switching", **FLAT, "batch_size": 320, "steps_per_round": 5},
        "agent": SMALL,
        "total_steps": 40_000,
    },
    "sac": {"algorithm": {"name": "sac", **FLAT}, "agent": SMALL, "total_steps": 40_000},
}  # fmt: skip


class Astray(Hiro):
    """Broken: the low level learns from goals that others were set."""

    def low_batch(self, index: Tensor) -> Batch:
        batch, goals = super().low_batch(index), self.policy.high.decisions
        for name in ("actor", "next/actor"):
            seen, goal = batch[name].split([batch[name].shape[1] - goals, goals], 1)
            batch[name] = torch.cat((seen, goal.roll(1, 0)), 1)
        return batch | {"critic": batch["actor"], "next/critic": batch["next/actor"]}


ASTRAY = RECIPES["hiro"]._replace(algorithm=Astray)


def run(name: str, seed: int, files: dict[str, str], steps: int | None, course: str = COURSE) -> dict[str, Any]:
    """One run: the score at its end and before its first update."""
    settings = json.loads(json.dumps(AGENTS[name]))
    skills = settings["agent"].get("skills")
    if skills is not None:
        settings["agent"]["skills"] = files[skills]
    total = steps or settings.pop("total_steps", 8000)
    settings.pop("total_steps", None)
    whole: dict[str, Any] = {
        "env": {"id": course, "num_envs": 20},
        "evaluation": {"interval": 0, "episodes": EPISODES, "metric": "score", "stochastic": False},
        "checkpoints": {"interval": 10**9},
        "seed": seed,
        "torch_threads": 1,
        "quiet": True,
        **settings,
    }
    started = time.process_time()
    with tempfile.TemporaryDirectory() as place:
        resting = whole["algorithm"] | {"iteration_steps": 100, "learning_starts": 10**6}  # no update at all
        untrained = train(total_steps=100, run_dir=f"{place}/untrained", **(whole | {"algorithm": resting}))
        floor = untrained.evaluate(EPISODES)
        learnt = train(total_steps=total, run_dir=f"{place}/run", **whole)
        found = load(learnt.path, "last", trust=["hierarchy_toy"]).evaluate(EPISODES)
        lines = [json.loads(line) for line in (Path(place) / "run" / "metrics.jsonl").read_text().splitlines()]
    told = {key: value for line in lines for key, value in line.items()}
    last = {key: value for key, value in told.items() if key.startswith(("share/", "train/", "loss/", "bandit/"))}
    return {
        "score": found["score"], "fell": found["fell"], "untrained": floor["score"], "steps": total,
        "seconds": round(time.process_time() - started, 1), "metrics": last,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skills", required=True, help="a run of point_pretrain")
    parser.add_argument("--scale", default=None, help="a run of point_diayn, for sac_hrl")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--agents", nargs="+", default=list(AGENTS), choices=list(AGENTS))
    parser.add_argument("--course", default=COURSE, help="point/duck (default), or point/corridor, without bars")
    parser.add_argument("--steps", type=int, default=None, help="samples of every agent (default: as above)")
    given = parser.parse_args()
    files = {"SKILLS": given.skills, "SCALE": given.scale}
    known = json.loads(given.out.read_text()) if given.out is not None and given.out.exists() else {"runs": {}}
    runs = known["runs"]
    for name in given.agents:
        if AGENTS[name]["agent"].get("skills") == "SCALE" and given.scale is None:
            print(f"{name}: left out, --scale names no file")
            continue
        scores = []
        for seed in given.seeds:
            key = f"{name}, {given.course}, seed {seed}"
            if key not in runs:
                runs[key] = run(name, seed, files, given.steps, given.course)
                told = known | {"benchmark": "hierarchy_toy", "commit": revision(), "machine": machine()}
                if given.out is not None:
                    given.out.write_text(json.dumps(told, indent=1) + "\n")
            found = runs[key]
            scores.append((found["score"], found["untrained"]))
            print(f"{key}: score {found['score']:.2f}, untrained {found['untrained']:.2f}, {found['steps']} samples, "
                  f"{found['seconds']} s", flush=True)  # fmt: skip
        gain = statistics.mean(score - floor for score, floor in scores)
        learns = gain >= MARGIN and all(score > floor for score, floor in scores)
        print(f"{name}: {gain:+.2f} points, learns: {learns}")


if __name__ == "__main__":
    main()
