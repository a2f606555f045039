"""DIAYN on the toy robot: ten skills that a discriminator tells apart, beside a twin without a reward.

    gaitway bench diayn --out benchmarks/results/diayn.json

For every seed the preset `point_diayn` is trained on one core, and the same with a pseudo-reward of 0. Then every skill
plays `EPISODES` episodes of mean actions on starts that training never saw, and the discriminator guesses the skill
from the features of every step, the first ones, in which all skills are in the same place, included:

- the share of right guesses is above `KNOWN`, of the twin's below `GUESSED` (one in ten is chance);
- the file of continuous skills that the run wrote acts like the whole policy, skill by skill, to `EQUAL`.

Tasks and numbers were chosen on seeds of 100 and above; the seeds reported are 0, 1 and 2.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from _rounds import machine, revision
from torch import Tensor

from gaitway.cli.build import build_env, build_runner, load_policy
from gaitway.cli.compose import compose
from gaitway.cli.config_file import write_config
from gaitway.cli.train_config import RECIPES, TrainConfig, choices, effective, parse
from gaitway.core.config import to_config
from gaitway.runners.logger import Logger
from gaitway.runners.run_folder import RunFolder
from gaitway.skills.continuous_skills import ContinuousSkills
from gaitway.skills.diayn import DIAYN, play_skills

EPISODES = 10
KNOWN, GUESSED = 0.8, 0.3
EQUAL = 1e-6


class WithoutReward(DIAYN):
    """Broken: whatever the discriminator says, nothing is earned."""

    def pseudo_reward(self, features: Tensor, one_hot: Tensor) -> Tensor:
        return torch.zeros_like(super().pseudo_reward(features, one_hot))


TWIN = RECIPES["diayn"]._replace(algorithm=WithoutReward)


def trained(place: Path, seed: int, *arguments: str) -> dict[str, Any]:
    """One run in this process with one thread; how well its skills are told apart, and how far its file is from it."""
    wanted = ["experiment=point_diayn", f"seed={seed}", "torch_threads=1", "env.num_threads=1", *arguments]
    composed = compose(wanted, to_config(TrainConfig()), parse, **choices())
    config = effective(parse(composed.config))
    folder = RunFolder.create(place)
    write_config(folder.config, to_config(config), composed.sources)
    runner = build_runner(config, folder, logger=Logger(folder.path))
    folder.write_contract(runner.env.spec.to_dict())
    summary = runner.learn()
    runner.close()
    runner.env.close()
    policy = load_policy(folder, config, None, "last").policy
    with build_env(config, "evaluation", 50) as env:
        accuracy = play_skills(env, policy, EPISODES)
        observation = env.reset(seed=list(range(50)))["observation"].clone()
    return {
        "accuracy": sum(accuracy) / len(accuracy),
        "by_skill": accuracy,
        "file_distance": distance(policy, ContinuousSkills.load(place), observation),
        "steps": runner.env_steps,
        "updates": runner.updates,
        "seconds": summary["seconds"],
    }


def distance(policy: Any, skills: ContinuousSkills, observation: Tensor) -> float:
    """The largest difference between actions of the file and of the whole policy, over all trained skills."""
    largest = 0.0
    for skill in range(policy.config.n_skills):
        chosen = torch.full((len(observation),), skill)
        with torch.inference_mode():
            whole, _ = policy.act({"observation": observation}, policy.holding(chosen), False)
        largest = max(largest, float((skills.act(observation, skills.points[chosen]) - whole).abs().max()))
    return largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", default=None)
    parser.add_argument("--commit", default=None, help="what to write down as the commit (default: this checkout's)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in options.seeds:
            place = Path(folder) / str(seed)
            row = {"diayn": trained(place / "diayn", seed)}
            row["no reward"] = trained(place / "twin", seed, "algorithm.name=diayn:TWIN")
            known, guessed = row["diayn"], row["no reward"]
            equal = max(known["file_distance"], guessed["file_distance"]) <= EQUAL
            passed = known["accuracy"] > KNOWN and guessed["accuracy"] < GUESSED and equal
            rows.append({"seed": seed, **row, "passed": passed})
            told = f"accuracy {known['accuracy']:.3f}, without reward {guessed['accuracy']:.3f}"
            print(
                f"seed {seed}: {told}, file within {known['file_distance']:.1e}{'' if passed else '  MISSED'}",
                flush=True,
            )
    holds = all(row["passed"] for row in rows)
    print("holds" if holds else "MISSED")
    if options.out:
        result = {
            "benchmark": "diayn", "commit": options.commit or revision(), "machine": machine(),
            "torch_threads": torch.get_num_threads(), "episodes": EPISODES,
            "thresholds": {"known": KNOWN, "guessed": GUESSED, "equal": EQUAL}, "seeds": rows, "holds": holds,
        }  # fmt: skip
        Path(options.out).write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
