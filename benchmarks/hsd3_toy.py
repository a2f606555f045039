"""HSD-3 on the toy robot: a course that asks for x, one that asks for x and z, beside twins with one mistake each.

    gaitway bench hsd3_toy --skills runs/point_pretrain_100 --out benchmarks/results/hsd3_toy.json

The skill file is that of a run of the preset `point_pretrain`. Every case learns `STEPS` samples on one thread of the
CPU and is judged without noise on 50 seeds after every `EVERY` of them. Single evaluations jump (the best of fifteen
goal spaces that are nearly alike is taken), so that `mean_score`, the mean over the curve, is what compares runs of the
same seed: it says how soon the course was learnt. Floors are the untrained high level and uniform decisions.

- duck: the entropy of the choice falls; the goal space decided on most holds x (feature 0) and z (feature 2); the last
  score is at least `SCORE` of 19 and `MARGIN` above both floors. Once below the bars a robot needs no goal of z any
  more, so that `decided_above_bars` says what was decided where it does.
- corridor: the same with x alone, and its mean score is above that of SD, one goal space with all features.
- Twins on duck, each with the figure by which it is to be told apart from the unbroken agent of the same seeds.
  Mask ignored: `everywhere`, by all levels, so that the choice of a goal space has no effect (share of goal spaces with
  x); `entries`, by goals alone, whose further entries critics see and densities count (mean score); `unmasked`, by what
  is left to go, which skills are shown for features too that they are not asked for (mean score). Time fed to the
  policy: `clocked`, steps since the episode began while acting, 0 while learning (mean score); `timed`, the phase of
  the row while learning, 0 while acting (mean score). `flipped`: entropies count with the wrong sign (last score).

Budget, figures and their tests were chosen on seeds 100 to 102. Every run is written as soon as it is over, and what is
there is not run again; a run that a signal ends early is not written.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from _rounds import machine, revision
from torch import Tensor

from gaitway import OffPolicyRunner, RunnerConfig, make_env
from gaitway.agents.policy import InferencePolicy
from gaitway.algorithms.algorithm import Batch
from gaitway.core.seeding import stream
from gaitway.envs.spec import EnvSpec
from gaitway.envs.toys.point_course import BAR_HEIGHT
from gaitway.runners.evaluate import run_episodes
from gaitway.skills.deciding_policy import PHASE
from gaitway.skills.goal_space_policy import GoalSpacePolicy
from gaitway.skills.hsd3 import HSD3, HSD3Config
from gaitway.skills.hsd3_policy import HSD3Policy, HSD3PolicyConfig
from gaitway.skills.interface import GoalInterface
from gaitway.skills.skill_file import Skills

STEPS, EVERY, EPISODES = 20_000, 2000, 50
SCORE, MARGIN = 15.0, 3.0
SHOWN_BY = {
    "duck everywhere": "share_of_x",
    "duck entries": "mean_score",
    "duck unmasked": "mean_score",
    "duck clocked": "mean_score",
    "duck timed": "mean_score",
    "duck flipped": "score",
}
"""By which figure a twin is to be told apart."""
T_5_PERCENT = {2: 6.31, 3: 2.92, 4: 2.35, 5: 2.13}
"""Student's t that a mean of so many differences exceeds in one of twenty cases where there is none."""
RATES = ("space_learning_rate", "goal_learning_rate", "critic_learning_rate", "temperature_learning_rate")
LEARNER: dict[str, Any] = {
    "update_ratio": 0.1,
    "batch_size": 128,
    "replay_size": 100_000,
    "iteration_steps": EVERY,
    "initial_temperature_c": 0.1,
    "initial_temperature_d": 0.1,
    **dict.fromkeys(RATES, 1e-3),
}
SIZES = {"actor_hidden": (64, 64, 64), "critic_hidden": (64, 64, 64)}
FULL, Z = "0-1-2-3", 2


class Unmasked(GoalInterface):
    """Broken: what is left to go is shown for all features, whichever the goal space asks for."""

    def translate(self, features: Tensor, subset: Tensor, subgoal: Tensor) -> tuple[Tensor, Tensor]:
        task = self.task_bits[subset]
        here = features[:, self.members]
        return self._wrapped(subgoal * self._inverse + self._centre - here * self._stays), task

    def carry(self, features: Tensor, next_features: Tensor, desired_goal: Tensor, task: Tensor) -> Tensor:
        return self._wrapped((features - next_features)[:, self.members] + desired_goal)


class Everywhere(GoalInterface):
    """Broken: whichever goal space is chosen, the skills are asked for all features."""

    def translate(self, features: Tensor, subset: Tensor, subgoal: Tensor) -> tuple[Tensor, Tensor]:
        return super().translate(features, torch.full_like(subset, self.subsets.index(FULL.replace("-", ","))), subgoal)


def without_mask(interface: GoalInterface) -> None:
    """Broken: goals have entries that do not belong to their goal space; critics see them, densities count them."""
    interface.action_mask.fill_(1.0)
    interface.entry_weight.fill_(1.0 / interface.subgoal_size)


class Clocked(HSD3Policy):
    """Broken: who decides sees the steps since the episode began, and learns with 0 in their place."""

    def __init__(
        self,
        spec: EnvSpec,
        config: HSD3PolicyConfig | None = None,
        generator: torch.Generator | None = None,
        *,
        skills: Skills | None = None,
    ) -> None:
        given = config or HSD3PolicyConfig()
        GoalSpacePolicy.__init__(self, spec, given, generator, skills=skills, remembers=(("clock", 1),))
        self.spaces = self.make_actor(self.num_spaces, generator)

    def decide(self, inputs: Tensor, kept: Tensor, stochastic: bool, generator: torch.Generator | None) -> Tensor:
        return super().decide(torch.cat((inputs[:, :-1], kept[:, -1:]), -1), kept, stochastic, generator)

    def pursue(self, obs: dict[str, Tensor], decision: Tensor, is_new: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        action, rest = super().pursue(obs, decision, is_new, kept[:, :-1])
        return action, torch.cat((rest, kept[:, -1:] + 1.0), -1)


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
    """Counts the goal spaces that are decided on: [0] by robots that would not pass a bar, [1] by those below it."""

    def __init__(self, policy: HSD3Policy, uniform: bool = False) -> None:
        super().__init__(policy, uniform, torch.Generator().manual_seed(0))
        self.uniform, self.counts = uniform, torch.zeros(2, policy.num_spaces)

    @torch.inference_mode()
    def __call__(self, obs: dict[str, Tensor]) -> Tensor:
        policy: Any = self.policy
        before = policy.initial_state(EPISODES, "cpu") if self._state is None else self._state
        action, self._state = policy.act(obs, before, self.stochastic, self.generator, self.uniform)
        decided = before[:, 0] < 0.5
        below = (obs["goal_space"][:, Z] <= BAR_HEIGHT)[decided].long()
        self.counts.index_put_((below, self._state[decided, 1].long()), torch.ones(()), accumulate=True)
        return action


CASES: dict[str, dict[str, Any]] = {
    "duck": {"env": "point/duck"},
    "duck everywhere": {"env": "point/duck", "twin": "everywhere"},
    "duck entries": {"env": "point/duck", "twin": "entries"},
    "duck unmasked": {"env": "point/duck", "twin": "unmasked"},
    "duck clocked": {"env": "point/duck", "twin": "clocked"},
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
    names = policy.interface.subsets
    return {
        "score": float(found["score"].mean()),
        "fell": float(found["fell"].mean()),
        "decided": _most(names, act.counts.sum(0)),
        "decided_above_bars": _most(names, act.counts[0]),
        "above_bars": round(float(act.counts[0].sum() / act.counts.sum()), 3),
    }


def _most(names: Sequence[str], counts: Tensor) -> dict[str, float]:
    """The three goal spaces that are most frequent, and their shares."""
    share = counts / counts.sum().clamp(min=1)
    return {names[place]: round(float(share[place]), 3) for place in share.argsort(descending=True)[:3].tolist()}


def broken(policy: HSD3Policy, twin: str | None, skills: Skills) -> None:
    """Put the mistakes of the interface into a policy."""
    kind = {"unmasked": Unmasked, "everywhere": Everywhere}.get(twin or "")
    if kind is not None:
        policy.interface = kind(skills.space, policy.interface.subsets, skills.task_map)
    if twin in ("entries", "everywhere"):
        without_mask(policy.interface)


def run(case: Mapping[str, Any], seed: int, skills: Skills, steps: int) -> dict[str, Any]:
    started, twin = time.process_time(), case.get("twin")
    env = make_env(case["env"], num_envs=20, seed=seed)
    make: type[HSD3Policy] = {"timed": Timed, "clocked": Clocked}.get(twin or "", HSD3Policy)
    sizes = HSD3PolicyConfig(**SIZES, subsets=case.get("subsets", "from_lo"))
    policy = make(env.spec, sizes, stream(seed, "parameters"), skills=skills)
    broken(policy, twin, skills)
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
    curve = []
    for mark in range(EVERY, steps + 1, EVERY):
        runner.learn(EVERY)
        if runner.env_steps != mark:  # a signal ends a run early, and what it has learnt by then is no result
            raise SystemExit(f"stopped after {runner.env_steps} of {steps} steps; nothing is written")
        curve.append(judged(policy, case["env"]))
    env.close()
    last = told[-1]
    shares = {name.removeprefix("share/"): value for name, value in last.items() if name.startswith("share/")}
    return {
        **curve[-1],
        "curve": [each["score"] for each in curve],
        "mean_score": sum(each["score"] for each in curve) / len(curve),
        "floors": floors,
        "entropy": [math.log(policy.num_spaces), last["entropy_d"]],
        "shares": dict(sorted(shares.items(), key=lambda each: -each[1])[:5]),
        "share_of_x": sum(value for name, value in shares.items() if "0" in name.split(",")),
        **{name: last[name] for name in ("residual_variance", "entropy_c", "temperature_c", "temperature_d")},
        "steps": runner.env_steps,
        "cpu_seconds": round(time.process_time() - started, 1),
    }


def verdicts(name: str, found: Mapping[str, Any], sd: Mapping[str, Any] | None) -> dict[str, bool]:
    """What the specification asks of a run of the unbroken agent; `sd` is SD on the corridor with the same seed."""
    needed = {"duck": ("0", "2"), "corridor": ("0",)}[name]
    modal = next(iter(found["decided"])).split(",")
    says = {
        "entropy of the choice falls": found["entropy"][1] < found["entropy"][0],
        f"modal goal space holds {' and '.join(needed)}": set(needed) <= set(modal),
    }
    if name == "duck":
        above = found["score"] - max(found["floors"].values()) >= MARGIN
        return says | {f"score of {SCORE:g}, {MARGIN:g} above floors": found["score"] >= SCORE and above}
    return says if sd is None else says | {"beats SD at equal samples": found["mean_score"] > sd["mean_score"]}


def told_apart(measure: str, unbroken: Sequence[Mapping[str, Any]], twin: Sequence[Mapping[str, Any]]) -> str:
    """Whether the gap between runs on the same seeds is significant."""
    gaps = torch.tensor([one[measure] - other[measure] for one, other in zip(unbroken, twin, strict=True)])
    error = float(gaps.std() / math.sqrt(len(gaps)))
    t = float(gaps.mean()) / max(error, 1e-9)
    each = ", ".join(f"{gap:.2f}" for gap in gaps.tolist())
    return f"{measure} lower by {each}; t {t:.1f}: {'told apart' if t > T_5_PERCENT[len(gaps)] else 'NOT told apart'}"


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
            key = key_of(name, seed, given.steps)
            if key not in runs:
                runs[key] = run(CASES[name], seed, skills, given.steps)
                told = known | {"skills_sha256": skills.sha256, "commit": revision(), "machine": machine()}
                if given.out is not None:
                    given.out.write_text(json.dumps(told, indent=1) + "\n")
            found = runs[key]
            floors = "  ".join(f"{floor} {value:.2f}" for floor, value in found["floors"].items())
            entropy = " -> ".join(f"{value:.2f}" for value in found["entropy"])
            print(
                f"{key}: score {found['score']:.2f}, mean of its curve {found['mean_score']:.2f} ({floors})  "
                f"entropy {entropy}  with x {found['share_of_x']:.3f}  {found['decided']}"
            )
    seeds = {name: [seed for seed in given.seeds if key_of(name, seed, given.steps) in runs] for name in CASES}
    for name in ("duck", "corridor"):
        for seed in seeds[name]:
            sd = runs.get(key_of("corridor sd", seed, given.steps))
            for claim, holds in verdicts(name, runs[key_of(name, seed, given.steps)], sd).items():
                print(f"{name}, seed {seed}: {claim}: {'yes' if holds else 'NO'}")
    for name, measure in SHOWN_BY.items():
        both = sorted({*seeds[name]} & {*seeds["duck"]})
        pair = [[runs[key_of(each, seed, given.steps)] for seed in both] for each in ("duck", name)]
        if len(both) in T_5_PERCENT:
            print(f"{name}, seeds {both}: {told_apart(measure, *pair)}")


def key_of(name: str, seed: int, steps: int) -> str:
    return f"{name}, seed {seed}, {steps} steps"


if __name__ == "__main__":
    main()
