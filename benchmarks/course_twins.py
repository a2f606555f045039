"""HSD-3 on a course beside agents with one mistake each, which must score less.

    gaitway bench course_twins --arms honest other_subset --device cuda --out benchmarks/results/course_twins.json

Every arm is the preset `walker_hsd3`, 400,000 samples at one update in four, judged on 50 seeds without noise:

- `uniform`: goal spaces are drawn uniformly, whatever was learnt of them. It must score less.
- `other_subset`: a decision is executed in another goal space than the one that is stored.
- `one_off`: the skills read the component beside the one that they know.
- `not_added`: goals of x count from the start of the course, not from the robot.
- `zeroed`: the weights of the skills are 0.

The last four must score at least `MARGIN` less. Every arm is written as soon as it is over; `--arms` run in this
process, one after the other, so that several processes with the same `--out` (one file each, `OUT` with the arm in its
name) share a GPU. An arm that was stopped goes on where it was, by the same command.
"""

from __future__ import annotations

import argparse
import copy
import json
from pathlib import Path
from typing import Any

import torch
from _rounds import keep, machine, revision
from torch import Tensor

from gaitway import load
from gaitway.cli.main import main as gaitway_command
from gaitway.cli.train_config import RECIPES
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Observation
from gaitway.skills.hsd3_policy import HSD3Policy, HSD3PolicyConfig
from gaitway.skills.interface import GoalInterface

MARGIN, EPISODES = 2.0, 50


class UniformSpaces(HSD3Policy):
    def choose_space(self, inputs: Tensor, kept: Tensor, stochastic: bool, generator: torch.Generator | None) -> Tensor:
        return self.uniform_space(kept, generator or self.generator(inputs.device))


class OtherSubset(HSD3Policy):
    def pursue(self, obs: Observation, decision: Tensor, is_new: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        another = torch.remainder(decision[:, :1] + 1.0, float(self.num_spaces))
        return super().pursue(obs, torch.cat((another, decision[:, 1:]), -1), is_new, kept)


class OneOff(HSD3Policy):
    def __init__(self, spec: EnvSpec, config: HSD3PolicyConfig | None = None, generator: Any = None) -> None:
        super().__init__(spec, config, generator)
        self.low.columns = (self.low.columns + 1) % spec.group(self.low.group).shape[0]


class Absolute(GoalInterface):
    def translate(self, features: Tensor, subset: Tensor, subgoal: Tensor) -> tuple[Tensor, Tensor]:
        goal, task = super().translate(features, subset, subgoal)
        return (goal - features[:, self.members] * (1.0 - self._stays)) * task, task


class NotAdded(HSD3Policy):
    def __init__(self, spec: EnvSpec, config: HSD3PolicyConfig | None = None, generator: Any = None) -> None:
        super().__init__(spec, config, generator)
        self.interface.__class__ = Absolute


class Zeroed(HSD3Policy):
    def __init__(self, spec: EnvSpec, config: HSD3PolicyConfig | None = None, generator: Any = None) -> None:
        super().__init__(spec, config, generator)
        self.low.skills = copy.deepcopy(self.low.skills)
        with torch.no_grad():
            for parameter in self.low.skills.network.parameters():
                parameter.zero_()


UNIFORM, OTHER_SUBSET, ONE_OFF, NOT_ADDED, ZEROED = (
    RECIPES["hsd3"]._replace(policy=policy) for policy in (UniformSpaces, OtherSubset, OneOff, NotAdded, Zeroed)
)
ARMS = {
    "honest": "hsd3",
    "uniform": "course_twins:UNIFORM",
    "other_subset": "course_twins:OTHER_SUBSET",
    "one_off": "course_twins:ONE_OFF",
    "not_added": "course_twins:NOT_ADDED",
    "zeroed": "course_twins:ZEROED",
}


def run(arm: str, options: argparse.Namespace) -> dict[str, Any]:
    place = options.runs / f"{options.task}_{arm}_{options.seed}"
    settings: dict[str, Any] = {
        "env.id": f"walker/{options.task}",
        "env.num_threads": options.threads,
        "algorithm.name": ARMS[arm],
        "algorithm.update_ratio": options.ratio,
        "algorithm.temperature_learning_rate": 1e-4 / options.ratio,  # they fall as fast, sample for sample
        "algorithm.overlap": True,
        "total_steps": options.steps,
        "seed": options.seed,
        "device": options.device,
        "evaluation.interval": options.interval,
        "evaluation.episodes": EPISODES,
        "checkpoints.interval": 10**9,
        "run_dir": str(place),
    }
    pairs = [f"{name}={json.dumps(value)}" for name, value in settings.items()]
    code = gaitway_command(["train", "--or-resume", "--quiet", "experiment=walker_hsd3", *pairs, *options.also])
    if code:
        raise SystemExit(code)
    lines = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
    curve = [[line["step"], line["eval/score"]] for line in lines if "eval/score" in line]
    found = load(place, "last", trust=["course_twins"], device=options.device).evaluate(EPISODES)
    return {
        "arm": arm, "task": options.task, "seed": options.seed, "steps": options.steps, "ratio": options.ratio,
        "score": found["score"], "fell": found["fell"], "curve": curve,
        "seconds": round(max(line.get("time/seconds", 0.0) for line in lines), 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--task", default="stairs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=400_000)
    parser.add_argument("--ratio", type=float, default=0.25)
    parser.add_argument("--interval", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--runs", type=Path, default=Path("runs/course_twins"))
    parser.add_argument("--also", nargs="*", default=[], help="further keys of the runs, key=value")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    known = json.loads(options.out.read_text()) if options.out is not None and options.out.exists() else {"runs": {}}
    for arm in options.arms:
        found = run(arm, options)
        known["runs"][f"{arm}, {options.task}, seed {options.seed}"] = found
        if options.out is not None:
            keep(options.out, known | {"benchmark": "course_twins", "commit": revision(), "machine": machine()})
        print(f"{arm}: score {found['score']:.2f}, fell {found['fell']:.2f}, {found['seconds']} s", flush=True)
    scores = {each["arm"]: each["score"] for each in known["runs"].values() if each["task"] == options.task}
    for arm in scores:
        if "honest" in scores and arm != "honest":
            less = scores["honest"] - scores[arm]
            holds = less > 0.0 if arm == "uniform" else less >= MARGIN
            print(f"{arm} is {less:.2f} points lower: {'holds' if holds else 'NO'}")


if __name__ == "__main__":
    main()
