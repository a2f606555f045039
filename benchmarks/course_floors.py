"""What a course gives to a high level that has learnt nothing: the floors that HSD-3 must leave behind.

    gaitway bench course_floors --tasks stairs goalwall hurdles --out benchmarks/results/course_floors.json

Over the library's Walker skills, without noise, on evaluation seeds 0 to 49:

- `untrained`: the high level as its networks are drawn, for ten seeds of the networks. It always asks for about the
  same, so that what it scores depends on what the draw happens to like: one of them says little.
- `uniform`: goal spaces and goals drawn anew at every decision.
- `constant`: one goal in one goal space throughout. Of all goal spaces that hold x, with x at several places and the
  other features at the centre of their ranges, the best three on seeds 100 to 119 are measured on seeds 0 to 49.

And `met`: in which share of 500 other episodes exploration scores at all, by uniform decisions and by an untrained
high level that draws from its distributions, as training does. Where nobody meets a reward, nobody learns from one.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from _rounds import machine, revision
from torch import Tensor

from gaitway.agents.policy import InferencePolicy
from gaitway.core.seeding import stream
from gaitway.envs.registry import make_env
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Observation, VecEnv
from gaitway.runners.evaluate import play_episodes
from gaitway.skills.hsd3_policy import HSD3Policy, HSD3PolicyConfig
from gaitway.skills.interface import subsets_of_skills
from gaitway.skills.skill_file import Skills

EPISODES, CHOSEN_ON, STEPS, X = 50, 20, 1000, 1
EXPLORED = 10
"""Times `EPISODES` in which it is seen whether exploration scores."""
PLACES = (0.1, 0.2, 0.3, 0.5, 1.0)
"""Goals of x, in units of 3 m."""
SMALL = {"actor_hidden": (8,), "critic_hidden": (8,)}


class Uniform(InferencePolicy):
    """Decides anything."""

    @torch.inference_mode()
    def __call__(self, obs: Observation) -> Tensor:
        policy: Any = self.policy
        action, self._state = policy.act(obs, self._state, True, self.generator, uniform=True)
        return action


class Constant(HSD3Policy):
    """Decides on the same goal always."""

    goal: Tensor

    def decide(self, inputs: Tensor, kept: Tensor, stochastic: bool, generator: torch.Generator | None) -> Tensor:
        goal = (self.goal * self.interface.action_mask[0]).expand(inputs.shape[0], -1)
        return self.decision(torch.zeros(inputs.shape[0], dtype=torch.int64), goal)


def constant(spec: EnvSpec, skills: Skills, subset: str, place: float) -> Constant:
    policy = Constant(spec, HSD3PolicyConfig(subsets=subset.replace(",", "-"), **SMALL), skills=skills)
    policy.goal = torch.zeros(policy.goal_size)
    policy.goal[policy.interface.members.tolist().index(X)] = place
    return policy


def score(env: VecEnv, act: InferencePolicy, seeds: list[int]) -> dict[str, float]:
    found = play_episodes(env, act, seeds, STEPS)
    return {name: float(found[name].mean()) for name in ("score", "length", "fell")}


def share_met(env: VecEnv, act: InferencePolicy) -> float:
    """The share of episodes with a score above 0."""
    rounds = [range(1000 + EPISODES * each, 1000 + EPISODES * (each + 1)) for each in range(EXPLORED)]
    found = [play_episodes(env, act, list(seeds), STEPS)["score"] > 0 for seeds in rounds]
    return float(torch.cat(found).float().mean())


def floors(task: str, threads: int, nets: int, subsets: list[str] | None = None) -> dict[str, Any]:
    skills, seeds = Skills.load("walker"), list(range(EPISODES))
    options = {"goal_space": True, "purpose": "evaluation", "num_threads": threads}
    result: dict[str, Any] = {"untrained": [], "grid": {}, "constant": {}}
    with make_env(f"walker/{task}", num_envs=EPISODES, **options) as env:
        for seed in range(nets):
            policy = HSD3Policy(env.spec, HSD3PolicyConfig(), stream(seed, "parameters"), skills=skills)
            result["untrained"].append(score(env, InferencePolicy(policy), seeds))
        result["uniform"] = score(env, Uniform(policy, True, torch.Generator().manual_seed(0)), seeds)
        explorers = {"uniform": Uniform, "untrained": InferencePolicy}
        result["met"] = {
            name: share_met(env, kind(policy, True, torch.Generator().manual_seed(0)))
            for name, kind in explorers.items()
        }
        with make_env(f"walker/{task}", num_envs=CHOSEN_ON, **options) as small:
            others = [100 + seed for seed in range(CHOSEN_ON)]
            for subset in subsets or subsets_of_skills(skills):
                for place in PLACES if str(X) in subset.split(",") else ():
                    act = InferencePolicy(constant(env.spec, skills, subset, place))
                    result["grid"][f"{subset} x={place}"] = score(small, act, others)["score"]
        for name in sorted(result["grid"], key=lambda each: -result["grid"][each])[:3]:
            subset, _, place = name.partition(" x=")
            act = InferencePolicy(constant(env.spec, skills, subset, float(place)))
            result["constant"][name] = score(env, act, seeds)
    drawn = [each["score"] for each in result["untrained"]]
    result["best"] = max(result["uniform"]["score"], *drawn, *(each["score"] for each in result["constant"].values()))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["stairs", "goalwall", "hurdles"])
    parser.add_argument("--threads", type=int, default=1, help="of the simulator")
    parser.add_argument("--networks", type=int, default=10, help="untrained high levels")
    parser.add_argument("--subsets", nargs="+", default=None, help="goal spaces of constant goals (default: all)")
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    for task in given.tasks:
        started = time.perf_counter()
        found[task] = floors(task, given.threads, given.networks, given.subsets)
        drawn = " ".join(f"{each['score']:.2f}" for each in found[task]["untrained"])
        held = ", ".join(f"{name}: {each['score']:.2f}" for name, each in found[task]["constant"].items())
        met = ", ".join(f"{name} {share:.3f}" for name, share in found[task]["met"].items())
        uniform, best = found[task]["uniform"]["score"], found[task]["best"]
        print(f"{task}: untrained {drawn}; uniform {uniform:.2f}; constant {held}; best {best:.2f}; met by {met}; "
              f"{time.perf_counter() - started:.0f} s", flush=True)  # fmt: skip
        if given.out is not None:
            told = {"benchmark": "course_floors", "commit": revision(), "machine": machine(), "tasks": found}
            given.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
