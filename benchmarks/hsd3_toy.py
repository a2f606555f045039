"""HSD-3 on the toy robot: a course that asks for x, one that asks for x and z, beside twins with one mistake each.

    gaitway bench hsd3_toy --skills runs/point_pretrain_0 --out benchmarks/results/hsd3_toy.json

The skill file is that of a run of the preset `point_pretrain`. Every case learns `STEPS` samples on one thread of the
CPU and is judged without noise on 50 seeds: score, entropy of the choice at the beginning and at the end, and which
goal spaces were decided on. Floors are the untrained high level and uniform decisions.

- duck: the score is at least `SCORE` of 19 and `MARGIN` above both floors, the entropy of the choice falls, and the
  goal space decided on most contains x (feature 0) or z (feature 2), which between them the course needs.
- corridor: the same with x alone. SD, one goal space with all features, stands beside it. The actuators of this robot
  do not hinder each other, so it pays nothing to leave features alone, and SD is expected to do as well.
- Twins on duck: `unmasked`, what is left to go is shown for features too that the goal space leaves alone; `flipped`,
  entropies count with the wrong sign; `timed`, policies are taught with the phase of the row where they always see 0.

Settings were chosen on seed 100. Every run is written as soon as it is over, and what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from _rounds import machine, revision
from torch import Tensor

from gaitway import OffPolicyRunner, RunnerConfig, make_env
from gaitway.agents.policy import InferencePolicy
from gaitway.algorithms.algorithm import Batch
from gaitway.core.seeding import stream
from gaitway.runners.evaluate import run_episodes
from gaitway.skills.deciding_policy import PHASE
from gaitway.skills.hsd3 import HSD3, HSD3Config
from gaitway.skills.hsd3_policy import HSD3Policy, HSD3PolicyConfig
from gaitway.skills.interface import GoalInterface
from gaitway.skills.skill_file import Skills

STEPS, EPISODES = 8000, 50
SCORE, MARGIN = 15.0, 3.0
RATES = ("space_learning_rate", "goal_learning_rate", "critic_learning_rate", "temperature_learning_rate")
LEARNER: dict[str, Any] = {
    "update_ratio": 0.1,
    "batch_size": 128,
    "replay_size": 100_000,
    "iteration_steps": 2000,
    "initial_temperature_c": 0.1,
    "initial_temperature_d": 0.1,
    **dict.fromkeys(RATES, 1e-3),
}
SIZES = {"actor_hidden": (64, 64, 64), "critic_hidden": (64, 64, 64)}
FULL = "0-1-2-3"


class Unmasked(GoalInterface):
    """Broken: what is left to go is shown for all features, whichever the goal space asks for."""

    def translate(self, features: Tensor, subset: Tensor, subgoal: Tensor) -> tuple[Tensor, Tensor]:
        task = self.task_bits[subset]
        here = features[:, self.members]
        return self._wrapped(subgoal * self._inverse + self._centre - here * self._stays), task

    def carry(self, features: Tensor, next_features: Tensor, desired_goal: Tensor, task: Tensor) -> Tensor:
        return self._wrapped((features - next_features)[:, self.members] + desired_goal)


class Timed(HSD3Policy):
    """Broken: policies learn with the phase of the row, and act without."""

    def read(self, drawn: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = super().read(drawn)
        observed = self.normalised({name: drawn[f"obs/{name}"] for name in self.all_groups})
        phase = drawn[self.out(PHASE)]
        return found | {
            "actor": self.inputs_at(observed, "actor", phase),
            "critic/new": self.inputs_at(observed, "critic", phase),
        }


class Flipped(HSD3):
    """Broken: entropies are costs."""

    def _batch_of(self, index: Tensor) -> Batch:
        batch = super()._batch_of(index)
        return batch | {name: -batch[name] for name in ("alpha_c", "alpha_d")}


class Watched(InferencePolicy):
    """Counts the goal spaces that are decided on."""

    def __init__(self, policy: HSD3Policy, uniform: bool = False) -> None:
        super().__init__(policy, uniform, torch.Generator().manual_seed(0))
        self.uniform, self.counts = uniform, torch.zeros(policy.num_spaces)

    @torch.inference_mode()
    def __call__(self, obs: dict[str, Tensor]) -> Tensor:
        policy: Any = self.policy
        before = policy.initial_state(EPISODES, "cpu") if self._state is None else self._state
        action, self._state = policy.act(obs, before, self.stochastic, self.generator, self.uniform)
        decided = before[:, 0] < 0.5
        self.counts += torch.bincount(self._state[decided, 1].long(), minlength=len(self.counts))
        return action


CASES: dict[str, dict[str, Any]] = {
    "duck": {"env": "point/duck"},
    "duck unmasked": {"env": "point/duck", "twin": "unmasked"},
    "duck flipped": {"env": "point/duck", "twin": "flipped"},
    "duck timed": {"env": "point/duck", "twin": "timed"},
    "duck sd": {"env": "point/duck", "subsets": FULL},
    "corridor": {"env": "point/corridor"},
    "corridor sd": {"env": "point/corridor", "subsets": FULL},
}


def judged(policy: HSD3Policy, env_id: str, uniform: bool = False) -> dict[str, Any]:
    with make_env(env_id, num_envs=EPISODES, purpose="evaluation") as env:
        act = Watched(policy, uniform)
        found = run_episodes(env, act, EPISODES)
    share = act.counts / act.counts.sum()
    top = share.argsort(descending=True)[:3].tolist()
    return {
        "score": float(found["score"].mean()),
        "fell": float(found["fell"].mean()),
        "decided": {policy.interface.subsets[place]: round(float(share[place]), 3) for place in top},
    }


def run(case: Mapping[str, Any], seed: int, skills: Skills, steps: int) -> dict[str, Any]:
    started, twin = time.process_time(), case.get("twin")
    env = make_env(case["env"], num_envs=20, seed=seed)
    make: type[HSD3Policy] = Timed if twin == "timed" else HSD3Policy
    sizes = HSD3PolicyConfig(**SIZES, subsets=case.get("subsets", "from_lo"))
    policy = make(env.spec, sizes, stream(seed, "parameters"), skills=skills)
    if twin == "unmasked":
        policy.interface = Unmasked(skills.space, policy.interface.subsets, skills.task_map)
    learner = Flipped if twin == "flipped" else HSD3
    algorithm = learner(policy, HSD3Config(**LEARNER), num_envs=20, seed=seed)
    runner = OffPolicyRunner(env, algorithm, RunnerConfig(total_steps=10**9, seed=seed))
    floors = {"untrained": judged(policy, case["env"])["score"], "uniform": judged(policy, case["env"], True)["score"]}
    told: list[dict[str, float]] = []
    metrics = algorithm.metrics

    def listened() -> dict[str, Tensor]:
        found = metrics()
        if found:
            told.append({name: float(value) for name, value in found.items()})
        return found

    algorithm.metrics = listened  # type: ignore[method-assign]
    runner.learn(steps)
    env.close()
    last = told[-1]
    shares = {name.removeprefix("share/"): value for name, value in last.items() if name.startswith("share/")}
    return {
        **judged(policy, case["env"]),
        "floors": floors,
        "entropy": [math.log(policy.num_spaces), last["entropy_d"]],
        "shares": dict(sorted(shares.items(), key=lambda each: -each[1])[:5]),
        "residual_variance": last["residual_variance"],
        "steps": runner.env_steps,
        "cpu_seconds": round(time.process_time() - started, 1),
    }


def verdict(name: str, found: Mapping[str, Any]) -> bool:
    """Whether a run of the unbroken agent shows what it must."""
    needed = {"0", "2"} if name.startswith("duck") else {"0"}
    modal = next(iter(found["decided"])).split(",")
    above = found["score"] - max(found["floors"].values()) >= (MARGIN if name.startswith("duck") else 0.0)
    return found["score"] >= SCORE and above and found["entropy"][1] < found["entropy"][0] and bool(needed & set(modal))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--skills", required=True, help="a run of point_pretrain")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    skills = Skills.load(given.skills)
    known = json.loads(given.out.read_text()) if given.out is not None and given.out.exists() else {"runs": {}}
    runs = known["runs"]
    for seed in given.seeds:
        for name in given.cases:
            key = f"{name}, seed {seed}, {given.steps} steps"
            if key not in runs:
                runs[key] = run(CASES[name], seed, skills, given.steps)
                told = known | {"skills_sha256": skills.sha256, "commit": revision(), "machine": machine()}
                if given.out is not None:
                    given.out.write_text(json.dumps(told, indent=1) + "\n")
            found = runs[key]
            floors = "  ".join(f"{floor} {value:.2f}" for floor, value in found["floors"].items())
            entropy = " -> ".join(f"{value:.2f}" for value in found["entropy"])
            says = f"shows it: {verdict(name, found)}" if name in ("duck", "corridor") else ""
            print(f"{key}: score {found['score']:.2f} ({floors})  entropy {entropy}  {found['decided']}  {says}")


if __name__ == "__main__":
    main()
