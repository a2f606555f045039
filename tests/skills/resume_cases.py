"""What tests of resumed runs share: small runs that learn skills, and comparisons of all that they are."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import torch

from gaitway.agents.diayn_policy import DIAYNPolicyConfig
from gaitway.agents.skill_policy import SkillPolicyConfig
from gaitway.cli.build import build_runner
from gaitway.cli.config_file import write_config
from gaitway.cli.train_config import EnvConfig, TrainConfig
from gaitway.core.config import to_config
from gaitway.runners.checkpoint import CheckpointConfig
from gaitway.runners.evaluate import EvaluationConfig
from gaitway.runners.logger import Logger
from gaitway.runners.off_policy import OffPolicyRunner
from gaitway.runners.run_folder import RunFolder
from gaitway.runners.video import VideoConfig
from gaitway.skills.diayn import DIAYNConfig
from gaitway.skills.multitask_sac import MultitaskSACConfig

STEPS = 8 * 12  # environment steps of an iteration
MIDDLE, END = 4 * STEPS, 7 * STEPS
HORIZON = 7  # goals are cut by checkpoints, which come every 12 steps
SMALL = {"actor_hidden": (16, 16), "critic_hidden": (16, 16)}
# the replay wraps around after the third iteration, and TD errors are noted in between
LEARNER = {
    "iteration_steps": STEPS,
    "steps_per_round": 2,
    "learning_starts": STEPS,
    "replay_size": 320,
    "batch_size": 16,
    "update_ratio": 0.3,
}
FAST = {"actor_learning_rate": 1e-2, "critic_learning_rate": 1e-2, "temperature_learning_rate": 1e-2}
LATER = {"name": "curriculum", "interval": MIDDLE, "max_new_tasks": 2}
OFTEN = {"name": "curriculum", "interval": STEPS, "max_new_tasks": 1, "weighting": "tderr"}
MEASURED = {"name": "curriculum", "interval": None, "eval_mode": "rollouts", "weighting": "lp_smooth"}
FILE = {"name": "skill_file", "trials": 1}
DIAYN_FILE = {"name": "diayn_skills", "episodes": 1}
EXPLICIT = {"full_episodes": True, "implicit_soft_resets": False, "normalize_gs_observation": True}


@dataclass
class Case:
    """What differs from `point/skills` with a curriculum whose first review with new tasks comes in the middle."""

    env: str = "point/skills"
    options: dict[str, Any] = field(default_factory=dict)
    algorithm: dict[str, Any] = field(default_factory=dict)
    callbacks: tuple[dict[str, Any], ...] = (LATER, FILE)
    middle: int = MIDDLE
    end: int = END

    def config(self) -> TrainConfig:
        is_diayn = DIAYN_FILE in self.callbacks
        ours = LEARNER | FAST | self.algorithm
        sizes = {"n_skills": 4, "n_embed": 7, "discriminator_hidden": (16,)} if is_diayn else {}
        trials = {} if is_diayn else {"options": {"rank_max": 2, "max_steps": HORIZON}}
        return TrainConfig(
            env=EnvConfig(self.env, 8, 1, options={"max_steps": HORIZON} | self.options),
            algorithm=DIAYNConfig(**ours) if is_diayn else MultitaskSACConfig(**ours),
            agent=DIAYNPolicyConfig(**SMALL, **sizes) if is_diayn else SkillPolicyConfig(**SMALL),
            callbacks=self.callbacks,
            total_steps=self.end,
            torch_threads=1,
            evaluation=EvaluationConfig(
                interval=2 * STEPS, trials=1, episodes=4, stochastic=False, metric="return", max_steps=200, env=trials
            ),
            checkpoints=CheckpointConfig(interval=STEPS, keep_all=True),
            video=VideoConfig(interval=0),
        )


CASES = {
    "one temperature": Case(),
    "temperature per task": Case(algorithm={"per_task_temperature": True}),
    "overlap": Case(algorithm={"overlap": True, "per_task_temperature": True}, callbacks=(OFTEN, FILE)),
    "reviews after evaluations": Case(callbacks=(MEASURED,), options={"reset_p": 0.1, "precision": 0.5}),
    "no curriculum": Case(callbacks=(), options={"rank_max": 4, "hard_reset_interval": 3}, middle=5 * STEPS),
    "diayn": Case(options=EXPLICIT | {"hard_reset_interval": 3}, callbacks=(DIAYN_FILE,)),
    "walker": Case(env="walker/skills", algorithm={"per_task_temperature": True}, end=MIDDLE + STEPS),
}


def begun(config: TrainConfig, path) -> OffPolicyRunner:
    """A new run in the folder `path`."""
    folder = RunFolder.create(path)
    write_config(folder.config, to_config(config), {})
    return build_runner(config, folder, logger=Logger(folder.path))


def reopened(config: TrainConfig, path) -> OffPolicyRunner:
    """A fresh runner on the folder of a run, as `gaitway resume` makes it."""
    folder = RunFolder.open(path)
    return build_runner(config, folder, logger=Logger(folder.path))


def close(runner: OffPolicyRunner) -> None:
    runner.close()
    runner.env.close()


def metrics(path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.startswith("time/")} for line in lines]


def numbers(value: Any, name: str = "") -> dict[str, Any]:
    """All that a state holds, by its place in it; clocks and positions in files are not of the run."""
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for key in value:
            if not (name == "" and key in ("seconds", "logger", "version")):
                found |= numbers(value[key], f"{name}/{key}")
        return found
    if isinstance(value, list | tuple):
        return {key: each for i, item in enumerate(value) for key, each in numbers(item, f"{name}/{i}").items()}
    return {name: value.clone() if isinstance(value, torch.Tensor) else value}


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Where two states differ, in any bit."""
    apart = sorted(one.keys() ^ other.keys())
    return apart + [name for name in one.keys() & other.keys() if not same(one[name], other[name])]


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        # NaN included: what a replay has not filled yet may be anything, and is the same anything
        return a.dtype == b.dtype and a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
    return type(a) is type(b) and (a == b or (a != a and b != b))
