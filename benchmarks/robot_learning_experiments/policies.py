"""Experiments of encoders, estimators, adaptors and mutexes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from gaitway.algorithms.algorithm import Batch
from gaitway.algorithms.estimation import Estimation
from gaitway.cli.build import build_env
from gaitway.core.workspace import Workspace
from robot_learning_experiments.experiment import Arm, Claim, Figures, Job, experiment, least, most, tested
from robot_learning_experiments.teachers import student

tested("T-EST-G", "who trains an estimator, and whom it trains")
tested("T-STACK", "an adaptor, then an estimator that reads what it says")
tested("T-SHARED", "several heads on one pass")
tested("T-LOADMAP", "weights of one policy for another that is not quite the same", "agents/test_transfer.py")
tested("T-MUTEX", "who acts, what children read and remember", "agents/test_mutex.py")
tested("T-PRIVATE", "what the actor must not see may be anything")

# --- T-EST -----------------------------------------------------------------------------------------------------------

STEPS = {"env.num_envs": 64, "algorithm.rollout_steps": 32, "algorithm.epochs": 5, "algorithm.minibatches": 4,
         "total_steps": 600_000, "evaluation.interval": 0}  # fmt: skip
BLOCK = {"name": "estimator", "reads": ["pos"], "writes": "velocity", "target": ["vel"], "hidden": [32],
         "replace": 1.0}  # fmt: skip
REMEMBERS = BLOCK | {"memory": "gru", "memory_size": 16}


class OfTheNeighbour(Estimation):
    """Broken: the target is that of the neighbouring instance."""

    def prepare(self, ws: Workspace) -> Batch:
        return {name: value.roll(1, 1) for name, value in super().prepare(ws).items()}


def estimating(block: Mapping[str, Any], **settings: Any) -> Arm:
    """Trains with an estimate in the place of the velocity; return, and R^2 of the estimate in fresh episodes."""

    def run(job: Job) -> Figures:
        trained = job.train("ppo_pendulum_estimator", **STEPS, **{"agent.blocks": [dict(block)]}, **settings)
        return {"return": trained.evaluate(50)["return"], "r2": explained(trained)}

    return run


@torch.no_grad()
def explained(trained: Any) -> float:
    """1 - squared error / variance of the velocity over 50 episodes of the deterministic policy."""
    policy, told, true = trained.policy, [], []
    with build_env(trained.config, "evaluation", 50) as env:
        obs, state = env.reset(seed=list(range(50))), policy.initial_state(50, "cpu")
        for _ in range(env.spec.max_episode_steps):
            found = policy.answer(obs, state)
            told.append(policy.estimators["estimate/velocity"].insertion(found.written["estimate/velocity"]))
            true.append(obs["vel"].clone())
            obs, state = env.step(policy.head.action(policy.head.mode(found.params))).obs, found.state
    estimate, target = torch.cat(told).double(), torch.cat(true).double()
    return float(1.0 - (estimate - target).square().sum() / (target - target.mean()).square().sum())


def taught(term: str | None = None) -> Arm:
    """The same of a student that has no reward: `T-TPPO` with an estimate in the place of its memory."""

    def run(job: Job) -> Figures:
        trained = job.train(
            "distill_pendulum",
            **{
                "agent.memory.kind": "none",
                "agent.blocks": [REMEMBERS | {"hidden": [64], "memory_size": 32}],
                "agent.observations": {"actor": ["pos", "vel"], "critic": ["pos", "vel"]},
                "algorithm.terms": [{"name": term, "of": "velocity"}] if term else [],
                "evaluation.interval": 0,
            },
        )
        return student(trained) | {"r2": explained(trained)}

    return run


def full(job: Job) -> Figures:
    return {"return": job.train("ppo_pendulum", **STEPS).evaluate(50)["return"]}


def claims(arms: Mapping[str, Figures]) -> list[Claim]:
    recurrent, whole = arms["recurrent"], arms["full state"]["return"]
    return [
        least("R^2, recurrent", recurrent["r2"], 0.9),
        least("R^2 above feed-forward", recurrent["r2"] - arms["feed-forward"]["r2"], 0.3),
        least("return beside that with the velocity", recurrent["return"] - whole, -0.1 * abs(whole)),
    ]


experiment(
    "T-EST",
    "a memory tells the pendulum's velocity from positions, and the actor loses nothing by reading the estimate",
    arms={"recurrent": estimating(REMEMBERS), "feed-forward": estimating(BLOCK), "full state": full},
    twins={
        "target of the neighbouring instance": estimating(
            REMEMBERS,
            **{"algorithm.terms": [{"name": "robot_learning_experiments.policies:OfTheNeighbour", "of": "velocity"}]},
        )
    },
    claims=claims,
)

# --- T-ESTTPPO -------------------------------------------------------------------------------------------------------

experiment(
    "T-ESTTPPO",
    "a student without memory swings the pendulum up as its teacher does, by an estimate of the velocity",
    arms={"estimator": taught()},
    twins={"target of the neighbouring instance": taught("robot_learning_experiments.policies:OfTheNeighbour")},
    claims=lambda arms: [
        most("loss against the teacher", arms["estimator"]["loss"], 0.10),
        least("R^2", arms["estimator"]["r2"], 0.9),
    ],
)
