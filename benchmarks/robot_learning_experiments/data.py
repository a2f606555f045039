"""Experiments of datasets, recorders and stages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from gaitway import InferencePolicy, make_env
from gaitway.cli.build import load_frozen
from gaitway.core.seeding import stream
from gaitway.data.trajectories import TrajectoryWriter
from gaitway.envs.vec_env import Observation
from gaitway.runners.collect import RandomPolicy, Taught, collect_steps
from robot_learning_experiments.experiment import Arm, Claim, Figures, Job, experiment, least, most, tested
from robot_learning_experiments.teachers import student

tested("T-QUEUE", "rollouts that keep the rows of earlier ones", "data/test_rolling_rollout.py")
tested("T-FILES", "what a recorder wrote before it was killed is read, every row as often as asked",
       "data/test_cursors.py", "data/test_codecs.py", "data/test_parkour_datasets.py")  # fmt: skip

ITERATIONS, ROWS, INSTANCES = 20, 64, 128
FIRST_STAGE = ITERATIONS * ROWS * INSTANCES
SETTINGS = {
    "env": {"id": "toy/pendulum", "num_envs": INSTANCES},
    "agent": {"memory": {"kind": "gru"}, "observations": {"actor": ["pos"], "critic": ["pos", "vel"]}}
    | {"distribution": {"init_std": 0.3}},
    "algorithm": {"name": "ppo", "rollout_steps": ROWS, "epochs": 5, "minibatches": 4, "learning_rate": 3e-4}
    | {"gamma": 0.95, "scale_reward": True, "critic_warmup": 5},
    "pretrain": {"epochs": 16, "gradient_length": 8, "learning_rate": 3e-3},
    "evaluation.interval": 0,
}


class Late(Taught):
    """Broken: the label of a step is that of the step before."""

    def __call__(self, obs: Observation) -> Tensor:
        before, action = self.label, super().__call__(obs)
        self.label = self.label if before is None else before
        return action


def recorded(folder: Path, seed: int, who: type[Taught]) -> Path:
    """Labels of the controller, in episodes of its own and in such that a third of random actions disturb."""
    if not folder.exists():
        env, generator = make_env("toy/pendulum", num_envs=INSTANCES, seed=seed), stream(seed, "collect")
        frozen = load_frozen("gaitway.envs.toys.controllers:swing_up", "teachers", env.spec, "cpu")
        teacher = InferencePolicy(frozen)
        disturbed = RandomPolicy(env.spec.action, generator, InferencePolicy(frozen), 1 / 3)
        extras = {"teacher/action": ((1,), torch.float32)}
        with TrajectoryWriter(folder, env.spec, extras=extras) as writer:
            collect_steps(env, who(teacher, generator, disturbed, 0.5), writer, FIRST_STAGE)
    return folder


def two_stages(who: type[Taught] = Taught) -> Arm:
    """What the policy earns when its own stage begins, and after 100 thousand steps of it."""

    def run(job: Job) -> Figures:
        data = {"data.path": str(recorded(job.folder / "data", job.seed, who)), "pretrain.iterations": ITERATIONS}
        start = student(job.train(**SETTINGS, **data, name="start", total_steps=FIRST_STAGE))
        end = student(job.train(**SETTINGS, **data, name="whole", total_steps=FIRST_STAGE + 100_000))
        return {"return": start["return"], "loss": start["loss"], "loss after": end["loss"]} | {
            "teacher": start["teacher"]
        }

    return run


def claims(arms: Mapping[str, Figures]) -> list[Claim]:
    found = arms["two stages"]
    return [
        most("loss against the teacher as the second stage begins", found["loss"], 0.30),
        most("loss at its end", found["loss after"], 0.30),
        least("teacher", found["teacher"], -300.0),
    ]


experiment(
    "T-TWOSTAGE",
    "a policy that begins with a dataset plays nearly as its teacher when its own stage begins, and goes on",
    arms={"two stages": two_stages()},
    twins={"labels a step late": two_stages(Late)},
    claims=claims,
)
