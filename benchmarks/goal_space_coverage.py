"""Where uniform decisions lead the Walker, goal space by goal space: nothing is learnt, translation errors show.

    gaitway bench goal_space_coverage --out benchmarks/results/goal_space_coverage.json

In each of the 31 goal spaces of the library's Walker skills uniform goals are set every five steps on `walker/hurdles`,
`--samples` steps in all. Shown are how many places were visited (SimHash of what the high level sees) and the furthest
x, a mean over instances. Goal spaces that hold x must lead: those that get furthest hold x, and on average they get
`FURTHER` times as far as the others. The twin does not add the robot's place to goals of x, which then lie within three
metres of the start.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from _rounds import machine, revision
from torch import Tensor

from gaitway.core.seeding import stream
from gaitway.envs.registry import make_env
from gaitway.envs.vec_env import VecEnv
from gaitway.rewards.sim_hash import SimHash
from gaitway.skills.hsd3_policy import HSD3Policy, HSD3PolicyConfig
from gaitway.skills.interface import GoalInterface, subsets_of_skills
from gaitway.skills.skill_file import Skills

INSTANCES, X = 10, 1
FURTHER = 1.5


class Absolute(GoalInterface):
    """Broken: goals of x count from the start, not from where the robot is."""

    def translate(self, features: Tensor, subset: Tensor, subgoal: Tensor) -> tuple[Tensor, Tensor]:
        goal, task = super().translate(features, subset, subgoal)
        here = features[:, self.members] * (1.0 - self._stays)
        return (goal - here) * task, task


@torch.inference_mode()
def play(env: VecEnv, skills: Skills, subset: str, samples: int, seed: int, broken: bool) -> dict[str, Any]:
    """Places visited, and the furthest x, a mean over instances."""
    small = {"actor_hidden": (8,), "critic_hidden": (8,)}  # uniform decisions ask no network
    policy = HSD3Policy(env.spec, HSD3PolicyConfig(subsets=subset.replace(",", "-"), **small), skills=skills)
    if broken:
        policy.interface.__class__ = Absolute
    table = SimHash(env.spec.group("policy").shape[0])
    generator, state, furthest = stream(seed, "decisions"), None, torch.full((INSTANCES,), -torch.inf)
    obs = env.reset(seed=seed)
    start = obs["goal_space"][:, X].clone()
    for _ in range(samples // INSTANCES):
        action, state = policy.act(obs, state, True, generator, uniform=True)
        step = env.step(action)
        furthest = torch.maximum(furthest, step.final_obs["goal_space"][:, X] - start)
        table.add(table.keys(step.final_obs["policy"]))
        assert state is not None
        state = state * ~(step.terminated | step.truncated)[:, None]
        obs = step.obs
    return {"places": float(table.unique()), "furthest": furthest.mean().item()}


def verdicts(rows: dict[str, dict[str, Any]]) -> dict[str, bool]:
    """Whether goal spaces with x lead."""
    has_x = {name: str(X) in name.split(",") for name in rows}
    order = sorted(rows, key=lambda name: -rows[name]["furthest"])
    mean = {
        flag: sum(rows[name]["furthest"] for name in rows if has_x[name] == flag)
        / sum(value == flag for value in has_x.values())
        for flag in (True, False)
    }
    return {
        "the five that get furthest hold x": all(has_x[name] for name in order[:5]),
        "goal spaces with x get further": mean[True] > FURTHER * mean[False],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default=None)
    parser.add_argument("--commit", default=None, help="what to write down as the commit (default: this checkout's)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    skills = Skills.load("walker")
    env = make_env("walker/hurdles", INSTANCES, seed=options.seed, num_threads=1, goal_space=True)
    found: dict[str, dict[str, Any]] = {}
    for kind, broken in (("skills", False), ("x is absolute", True)):
        found[kind] = {}
        for name in subsets_of_skills(skills):
            row = found[kind][name] = play(env, skills, name, options.samples, options.seed, broken)
            print(
                f"{kind:14}  {name:14}  furthest x {row['furthest']:6.2f} m   places {row['places']:8.0f}", flush=True
            )
    judged = verdicts(found["skills"])
    judged["the twin does not get as far"] = max(row["furthest"] for row in found["x is absolute"].values()) < max(
        row["furthest"] for row in found["skills"].values()
    )
    for verdict, holds in judged.items():
        print(f"{verdict}: {'yes' if holds else 'MISSED'}")
    if options.out:
        result = {
            "benchmark": "goal_space_coverage", "commit": options.commit or revision(), "machine": machine(),
            "samples": options.samples, "seed": options.seed, "goal_spaces": found, "verdicts": judged,
        }  # fmt: skip
        Path(options.out).write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(0 if all(judged.values()) else 1)


if __name__ == "__main__":
    main()
