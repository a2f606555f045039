"""Learning gates of the doors: novelty, blocks, action distance and recorder, each beside twins that must fail.

    gaitway bench doors --out benchmarks/results/doors.json

For every seed:

- novelty: with random network distillation the combination lock opens in `OPENED` of the episodes at least; without it,
  with a target that follows the predictor, and with a predictor that rests, in `SHUT` at most.
- blocks: with velocities hidden, the history block and the recurrent block balance for `BALANCED` steps at least; a
  history of one step and no block at all for `FALLEN` at most.
- distance: the mean squared distance of the policy's actions to the frozen run's is at most `NEARER` of that without
  the term, and the return at least `SWUNG`; with the frozen run's actions in other instances it is not that small.
- recorder: behaviour cloning on what the recorder kept of a PPO run is within `CLOSE` of that run's return, which is
  `BALANCED` at least; on actions recorded one step late it is not.

The final policy, not the best one, plays `EPISODES` episodes deterministically from starts that training never saw.
Tasks, numbers and twins were chosen on seeds of 100 and above; the seeds reported are 0, 1 and 2.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _rounds import machine, revision
from torch import Tensor, nn

from gaitway.agents.policy import InferencePolicy, Policy
from gaitway.agents.recorder import Recorder
from gaitway.algorithms.algorithm import Batch, Now
from gaitway.algorithms.engine import Engine
from gaitway.algorithms.imitation import TARGET, ActionDistance
from gaitway.cli.build import build_env, build_runner, load_frozen, load_policy
from gaitway.cli.compose import compose
from gaitway.cli.config_file import write_config
from gaitway.cli.train_config import TrainConfig, choices, effective, parse
from gaitway.core.config import read_config, to_config
from gaitway.core.execution import Execution
from gaitway.core.workspace import Workspace
from gaitway.data.dataset import Dataset
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Observation
from gaitway.rewards.novelty import RandomNetworkDistillation
from gaitway.runners.evaluate import run_episodes
from gaitway.runners.logger import Logger
from gaitway.runners.run_folder import RunFolder

EPISODES = 20
OPENED, SHUT = 0.95, 0.05
BALANCED, FALLEN = 450.0, 150.0
NEARER, SWUNG = 0.5, -250.0
CLOSE = 0.05
FROZEN_SEED = 100
"""Of the run whose actions are kept near; the seeds that are reported are others."""


class TargetLearnsAlong(RandomNetworkDistillation):
    """The target learns to be predictable by the same loss. Reported, but no twin: the two agree only where they
    learnt, so that what was never seen is new all the same."""

    def __init__(self, spec: EnvSpec, weight: float = 1.0, seed: int = 0, execution: Execution | None = None) -> None:
        super().__init__(spec, weight, seed=seed, execution=execution)
        both = nn.ModuleList([self.predictor, self.target.requires_grad_(True)])
        self.engine = Engine(both, self._loss, learning_rate=1e-3, max_grad_norm=None, execution=execution)
        self._learn = Execution().program(lambda: self.engine.step({"obs": self._rows}), "a step of both networks")


class TargetFollows(RandomNetworkDistillation):
    """Broken: the target learns along, it is the predictor after every update."""

    def update(self, ws: Workspace, now: Now) -> dict[str, Tensor]:
        metrics = super().update(ws, now)
        self.target.load_state_dict(self.predictor.state_dict())
        return metrics


class PredictorRests(RandomNetworkDistillation):
    """Broken: nothing becomes familiar."""

    def update(self, ws: Workspace, now: Now) -> dict[str, Tensor]:
        kept = [parameter.clone() for parameter in self.predictor.parameters()]
        metrics = super().update(ws, now)
        with torch.no_grad():
            for parameter, before in zip(self.predictor.parameters(), kept, strict=True):
                parameter.copy_(before)
        return metrics


class OtherInstances(ActionDistance):
    """Broken: what the frozen policy would do in the neighbouring instance."""

    def prepare(self, ws: Workspace) -> Batch:
        return {TARGET: super().prepare(ws)[TARGET].roll(1, 1)}


class LateRecorder(Recorder):
    """Broken: keeps every action with the observation after the one it answered."""

    def _record(self, rows: Workspace, done: Tensor) -> None:
        late = {name: rows[name].roll(1, 0) if name == "action" else rows[name] for name in rows}
        super()._record(Workspace.packed(late, extra_row=rows.extra_row), done)


class Beside:
    """A policy that acts, and the mean squared distance to what a frozen one would do: within the limits, in units of
    half the range."""

    def __init__(self, acting: InferencePolicy, frozen: Policy) -> None:
        self.acting, self.frozen = acting, InferencePolicy(frozen)
        action = frozen.spec.action
        self.low, self.high = torch.tensor(action.low), torch.tensor(action.high)
        self.distances: list[Tensor] = []

    def __call__(self, obs: Observation) -> Tensor:
        action = self.acting(obs)
        apart = action.clamp(self.low, self.high) - self.frozen(obs).clamp(self.low, self.high)
        self.distances.append((apart * 2 / (self.high - self.low)).square().sum(-1).mean())
        return action

    def reset(self, mask: Tensor | None = None) -> None:
        self.acting.reset(mask)


def train(run: Path, seed: int, *arguments: str) -> RunFolder:
    """One run in this process with one thread of torch; a run folder that is finished already is taken as it is."""
    if (run / "summary.json").exists():
        return RunFolder.open(run)
    wanted = [f"seed={seed}", "torch_threads=1", "env.num_threads=1", *arguments]
    composed = compose(wanted, to_config(TrainConfig()), parse, **choices())
    config = effective(parse(composed.config))
    folder = RunFolder.create(run)
    write_config(folder.config, to_config(config), composed.sources)
    runner = build_runner(config, folder, logger=Logger(folder.path))
    folder.write_contract(runner.env.spec.to_dict())
    runner.learn()
    runner.close()
    return folder


def measured(folder: RunFolder, frozen: str | None = None) -> dict[str, float]:
    """What the final policy of a run earns, how long its training took, and its distance to a frozen run's."""
    config = parse(read_config(folder.config))
    with build_env(config, "evaluation", EPISODES) as env:
        policy: Any = load_policy(folder, config, env.spec, "last").inference()
        beside = None if frozen is None else Beside(policy, load_frozen(frozen, "frozen", config.device))
        table = run_episodes(env, beside or policy, EPISODES)
    seconds = json.loads((folder.path / "summary.json").read_text())["seconds"]
    found = {"return": float(table["return"].mean()), "seconds": seconds}
    return found if beside is None else found | {"distance": float(torch.stack(beside.distances).mean())}


def novelty(place: Path, seed: int) -> dict[str, Any]:
    variants = {
        "rnd": "rewards=[{name: rnd, weight: 0.1}]",
        "no bonus": "rewards=[]",
        "target follows": "rewards=[{name: doors:TargetFollows, weight: 0.1}]",
        "predictor rests": "rewards=[{name: doors:PredictorRests, weight: 0.1}]",
        "target learns along": "rewards=[{name: doors:TargetLearnsAlong, weight: 0.1}]",
    }
    row = {
        name: measured(train(place / name, seed, "experiment=ppo_lock_rnd", change))
        for name, change in variants.items()
    }
    twins = [row[name]["return"] for name in ("no bonus", "target follows", "predictor rests")]
    return {**row, "passed": row["rnd"]["return"] >= OPENED and max(twins) <= SHUT}


def blocks(place: Path, seed: int) -> dict[str, Any]:
    plain = ["agent.blocks=[]", "agent.observations.actor=[policy]", "agent.observations.critic=[policy]"]
    variants = {
        "history": [],
        "recurrent": ["agent.blocks=[{name: recurrent, reads: [policy], writes: past, size: 32}]"],
        "length 1": ["agent.blocks=[{name: history, reads: [policy], writes: past, length: 1, size: 16}]"],
        "no block": plain,
    }
    row = {
        name: measured(train(place / name, seed, "experiment=ppo_cartpole_history", *changes))
        for name, changes in variants.items()
    }
    balanced = min(row["history"]["return"], row["recurrent"]["return"]) >= BALANCED
    return {**row, "passed": balanced and max(row["length 1"]["return"], row["no block"]["return"]) <= FALLEN}


def distance(place: Path, seed: int) -> dict[str, Any]:
    frozen = place.parent / "frozen"
    model = train(frozen, FROZEN_SEED, "experiment=ppo_pendulum")
    variants = {
        "near": f"algorithm.terms=[{{name: action_distance, frozen: {frozen}}}]",
        "no term": "algorithm.terms=[]",
        "other instances": f"algorithm.terms=[{{name: doors:OtherInstances, frozen: {frozen}}}]",
    }
    row = {
        name: measured(train(place / name, seed, "experiment=ppo_pendulum", change), str(frozen))
        for name, change in variants.items()
    }
    limit = NEARER * row["no term"]["distance"]
    near = row["near"]["distance"] <= limit and row["near"]["return"] >= SWUNG
    row["frozen"] = measured(model)
    return {**row, "passed": near and row["other instances"]["distance"] > limit}


def recorder(place: Path, seed: int) -> dict[str, Any]:
    kept, late = place / "data", place / "late"
    cast = ", ".join(
        f"{{name: {name}, path: {path}, start: 160_000}}"
        for name, path in (("recorder", kept), ("doors:LateRecorder", late))
    )
    teacher = train(place / "teacher", seed, "experiment=ppo_cartpole_recorded", f"cast=[{cast}]")
    row: dict[str, Any] = {"teacher": measured(teacher)}
    for name, path in (("bc", kept), ("one step late", late)):
        row[name] = measured(train(place / name, seed, "experiment=bc_cartpole", f"data.path={path}"))
    data = Dataset.open(kept)
    row["data"] = {"steps": data.num_steps, "episodes": data.num_episodes, "mean_return": data.mean_return}
    limit = (1.0 - CLOSE) * row["teacher"]["return"]
    taught = row["teacher"]["return"] >= BALANCED and row["bc"]["return"] >= limit
    return {**row, "passed": taught and row["one step late"]["return"] < limit}


GATES: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "novelty": novelty,
    "blocks": blocks,
    "distance": distance,
    "recorder": recorder,
}


def say(name: str, row: dict[str, Any]) -> None:
    parts = []
    for variant, found in row.items():
        if isinstance(found, dict) and "return" in found:
            near = f" (distance {found['distance']:.4f})" if "distance" in found else ""
            parts.append(f"{variant} {found['return']:.4g}{near}")
    print(f"{name:9s} seed {row['seed']}: {', '.join(parts)}{'' if row['passed'] else '  MISSED'}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sorted(GATES), default=list(GATES), metavar="GATE")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--place", default=None, help="where datasets and runs are kept (default: they are not)")
    parser.add_argument("--out", default=None)
    parser.add_argument("--commit", default=None, help="what to write down as the commit (default: this checkout's)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    gates: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            rows = []
            for seed in options.seeds:
                place = Path(options.place or folder).resolve() / name / str(seed)
                rows.append({"seed": seed, **GATES[name](place, seed)})
                say(name, rows[-1])
            gates[name] = {"seeds": rows, "holds": all(row["passed"] for row in rows)}
    for name, gate in gates.items():
        print(f"{name:9s} {'holds' if gate['holds'] else 'MISSED'}")
    if options.out:
        thresholds = {
            "opened": OPENED, "shut": SHUT, "balanced": BALANCED, "fallen": FALLEN, "nearer": NEARER, "swung": SWUNG,
            "close": CLOSE,
        }  # fmt: skip
        result = {
            "benchmark": "doors", "commit": options.commit or revision(), "machine": machine(),
            "torch_threads": torch.get_num_threads(), "episodes": EPISODES, "frozen_seed": FROZEN_SEED,
            "thresholds": thresholds, "gates": gates,
        }  # fmt: skip
        Path(options.out).write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(0 if all(gate["holds"] for gate in gates.values()) else 1)


if __name__ == "__main__":
    main()
