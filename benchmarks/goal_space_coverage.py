"""Where uniform decisions lead the Walker, goal space by goal space: nothing is learnt, translation errors show.

    gaitway bench goal_space_coverage --out benchmarks/results/goal_space_coverage.json

In each of the 31 goal spaces of the library's Walker skills uniform goals are set on `walker/hurdles`, `--samples`
steps in all. Shown are how many places were visited (SimHash of what the high level sees) and the furthest x, a mean
over instances. Goal spaces that hold x must dominate in both: the five that get furthest hold x, and on average those
with x get `FURTHER` times as far as the others and visit more places. (The specification says "dominate" without a
number; these are ours.) The twin does not add the robot's place to goals of x, which then lie within three metres of
the start; goal spaces without x are the same with it and without.

Goals are set every five steps, as HSD-3 sets them, and again every `HELD` steps, in which they are pursued further.
`follows`, the correlation of a goal of x with the way along x that is made until the next one, says how far goals of x
are pursued at all; of the twin's, which differ by where they count from, it says nearly the same.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
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
EVERY, HELD = 5, 25
"""Steps between goals: those of HSD-3; 0.6 s, of 5, 25 and 100 what shows x best in 11 goal spaces on seed 100."""


class Absolute(GoalInterface):
    """Broken: goals of x count from the start, not from where the robot is."""

    def translate(self, features: Tensor, subset: Tensor, subgoal: Tensor) -> tuple[Tensor, Tensor]:
        goal, task = super().translate(features, subset, subgoal)
        here = features[:, self.members] * (1.0 - self._stays)
        return (goal - here) * task, task


@torch.inference_mode()
def play(
    env: VecEnv, skills: Skills, subset: str, samples: int, seed: int, interval: int, broken: bool
) -> dict[str, Any]:
    """Places visited, and the furthest x, a mean over instances."""
    small = {"actor_hidden": (8,), "critic_hidden": (8,)}  # uniform decisions ask no network
    config = HSD3PolicyConfig(subsets=subset.replace(",", "-"), interval=interval, **small)
    policy = HSD3Policy(env.spec, config, skills=skills)
    if broken:
        policy.interface.__class__ = Absolute
    position = policy.interface.members.tolist().index(X)
    table = SimHash(env.spec.group("policy").shape[0])
    generator, state, furthest = stream(seed, "decisions"), None, torch.full((INSTANCES,), -torch.inf)
    obs = env.reset(seed=seed)
    start = obs["goal_space"][:, X].clone()
    goal, since, alive = torch.zeros(INSTANCES), start.clone(), torch.zeros(INSTANCES, dtype=torch.bool)
    pairs: list[Tensor] = []
    for _ in range(samples // INSTANCES):
        due = torch.ones(INSTANCES, dtype=torch.bool) if state is None else state[:, 0] < 0.5
        here = obs["goal_space"][:, X].clone()
        action, state = policy.act(obs, state, True, generator, uniform=True)
        assert state is not None
        pairs.append(torch.stack((goal, here - since), -1)[due & alive])
        goal, since = torch.where(due, state[:, 2 + position], goal), torch.where(due, here, since)
        step = env.step(action)
        furthest = torch.maximum(furthest, step.final_obs["goal_space"][:, X] - start)
        table.add(table.keys(step.final_obs["policy"]))
        ended = step.terminated | step.truncated
        alive = (alive | due) & ~ended
        state = state * ~ended[:, None]
        obs = step.obs
    follows = torch.corrcoef(torch.cat(pairs).T)[0, 1].item() if has_x(subset) else None
    return {"places": float(table.unique()), "furthest": furthest.mean().item(), "follows": follows}


Rows = Mapping[str, Mapping[str, Any]]


def verdicts(rows: Rows, twins: Rows) -> dict[str, bool]:
    """Whether goal spaces with x dominate, and the twin falls back."""
    order = sorted(rows, key=lambda name: -rows[name]["furthest"])
    with_x, without = ([name for name in rows if has_x(name) == flag] for flag in (True, False))
    return {
        "the five that get furthest hold x": all(has_x(name) for name in order[:5]),
        "goal spaces with x get further": mean(rows, with_x, "furthest") > FURTHER * mean(rows, without, "furthest"),
        "goal spaces with x visit more places": mean(rows, with_x, "places") > mean(rows, without, "places"),
        "the twin does not get as far": max(row["furthest"] for row in twins.values())
        < max(rows[name]["furthest"] for name in with_x),
    }


def figures(rows: Rows, twins: Rows) -> dict[str, float]:
    """Means of goal spaces with x and without, and in how many of the 15 pairs that differ by x alone x leads."""
    with_x, without = ([name for name in rows if has_x(name) == flag] for flag in (True, False))
    pairs = [(name, ",".join(each for each in name.split(",") if each != str(X))) for name in with_x if name != str(X)]
    found: dict[str, float] = {}
    for measure in ("furthest", "places"):
        found |= {
            f"{measure} with x": mean(rows, with_x, measure),
            f"{measure} without x": mean(rows, without, measure),
            f"{measure} of the twin with x": mean(twins, with_x, measure),
            f"{measure}: pairs in which x leads": sum(rows[a][measure] > rows[b][measure] for a, b in pairs),
            f"{measure}: goal spaces with x that the twin gets less of": sum(
                twins[name][measure] < rows[name][measure] for name in with_x
            ),
        }
    for kind, each in (("", rows), (" of the twin", twins)):
        found[f"least that x follows its goals{kind}"] = min(each[name]["follows"] for name in with_x)
        found[f"x follows its goals{kind}"] = mean(each, with_x, "follows")
    return found


def has_x(name: str) -> bool:
    return str(X) in name.split(",")


def mean(rows: Rows, names: Sequence[str], measure: str) -> float:
    return sum(rows[name][measure] for name in names) / len(names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--intervals", type=int, nargs="+", default=[EVERY, HELD])
    parser.add_argument("--out", default=None)
    parser.add_argument("--commit", default=None, help="what to write down as the commit (default: this checkout's)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    skills = Skills.load("walker")
    env = make_env("walker/hurdles", INSTANCES, seed=options.seed, num_threads=1, goal_space=True)
    found: dict[str, Any] = {}
    for interval in options.intervals:
        rows: dict[str, dict[str, dict[str, Any]]] = {"skills": {}, "x is absolute": {}}
        for kind, broken in (("skills", False), ("x is absolute", True)):
            for name in subsets_of_skills(skills):
                if broken and not has_x(name):
                    continue
                row = rows[kind][name] = play(env, skills, name, options.samples, options.seed, interval, broken)
                print(
                    f"every {interval:3} steps  {kind:14}  {name:14}  furthest x {row['furthest']:6.2f} m   "
                    f"places {row['places']:8.0f}   follows {row['follows'] or 0.0:5.2f}",
                    flush=True,
                )
        of = (rows["skills"], rows["x is absolute"])
        found[f"every {interval} steps"] = {"goal_spaces": rows, "figures": figures(*of), "verdicts": verdicts(*of)}
    for kind, each in found.items():
        for name, value in each["figures"].items():
            print(f"{kind}: {name}: {value:.2f}")
        for verdict, holds in each["verdicts"].items():
            print(f"{kind}: {verdict}: {'yes' if holds else 'MISSED'}")
    if options.out:
        result = {
            "benchmark": "goal_space_coverage", "commit": options.commit or revision(), "machine": machine(),
            "skills_sha256": skills.sha256, "samples": options.samples, "seed": options.seed, **found,
        }  # fmt: skip
        Path(options.out).write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(0 if all(all(each["verdicts"].values()) for each in found.values()) else 1)


if __name__ == "__main__":
    main()
