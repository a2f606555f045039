"""Experiments of teachers, distillation and imitation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch

from gaitway import InferencePolicy, LoadedRun, load, make_env
from gaitway.agents.teacher import ACTION, Teacher
from gaitway.core.workspace import Workspace
from gaitway.envs.toys.controllers import follow_reference, swing_up
from robot_learning_experiments.experiment import Arm, Claim, Figures, Job, experiment, least, logged, most, tested

HERE = "robot_learning_experiments.teachers"
tested("T-SCHED", "schedules, and the share of episodes that a teacher drives", "core/test_schedules.py")
tested("T-TPPO-B", "log-probabilities of what was executed")
tested("T-FORMS", "every form of imitation against float64", "functional/test_imitation.py",
       "algorithms/test_imitation.py")  # fmt: skip
tested("T-RESAMPLE", "noise takes the place of whole memories")


class LateLabels(Teacher):
    """Broken: every label is that of the step before."""

    def step(self, ws: Workspace, t: int) -> None:
        before = ws.at(ACTION, t - 1).clone() if t else None
        super().step(ws, t)
        if before is not None:
            ws.put(ACTION, t, before)


class OwnLabels(Teacher):
    """Broken: the label is what was executed, the student's own draw where the student drives."""

    def step(self, ws: Workspace, t: int) -> None:
        super().step(ws, t)
        ws.put(ACTION, t, ws.at("action", t))


def cast(teacher: str = "teacher", probability: Any = 0.0, controller: str = "swing_up") -> list[dict[str, Any]]:
    source = f"gaitway.envs.toys.controllers:{controller}"
    return [{"name": teacher, "teachers": source, "probability": probability}]


DECAY = {"start": 1.0, "end": 0.0, "over": 10, "kind": "decay"}


@torch.no_grad()
def earned(act: Any, env_id: str = "toy/pendulum", episodes: int = 64) -> float:
    """Mean return of one episode in each of so many fresh instances, the same for all who act."""
    env = make_env(env_id, num_envs=episodes, seed=987)
    obs, total, goes_on = env.reset(), torch.zeros(episodes), torch.ones(episodes, dtype=torch.bool)
    for _ in range(env.spec.max_episode_steps or 200):
        step = env.step(act(obs))
        obs, total = step.obs, total + step.reward * goes_on
        goes_on &= ~step.terminated
    return float(total.mean())


def student(run: LoadedRun) -> Figures:
    teacher = earned(swing_up)
    own = earned(InferencePolicy(run.policy))
    return {"return": own, "teacher": teacher, "loss": (teacher - own) / abs(teacher)}


# --- T-TPPO ----------------------------------------------------------------------------------------------------------


def distilled(teacher: str = "teacher", probability: Any = DECAY, memory: str = "gru") -> Arm:
    def run(job: Job) -> Figures:
        settings = {"cast": cast(teacher, probability), "agent.memory.kind": memory, "evaluation.interval": 0}
        return student(job.train("distill_pendulum", **settings))

    return run


def claims_of_dagger(arms: Mapping[str, Figures]) -> list[Claim]:
    own = arms["dagger"]["return"]
    return [
        most("loss against the teacher", arms["dagger"]["loss"], 0.10),
        least("above feed-forward", own - arms["feed-forward"]["return"], 300.0),
        least("above cloning", own - arms["cloning"]["return"], 0.0),
    ]


experiment(
    "T-TPPO",
    "a memory that sees positions alone swings the pendulum up as its teacher does that sees velocities too",
    arms={
        "dagger": distilled(),
        "feed-forward": distilled(memory="none"),
        "cloning": distilled(probability=1.0),
    },
    twins={"labels a step late": distilled(f"{HERE}:LateLabels"), "own labels": distilled(f"{HERE}:OwnLabels")},
    claims=claims_of_dagger,
)

# --- T-TPPO-RL -------------------------------------------------------------------------------------------------------


def steps_to(run: LoadedRun, least_return: float, budget: int) -> float:
    """Steps after which an evaluation reached `least_return`; the budget if none did."""
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    reached = [line["step"] for line in lines if line.get("eval/return", -1e9) >= least_return]
    return float(min(reached, default=budget))


def guided(budget: int, **settings: Any) -> Arm:
    def run(job: Job) -> Figures:
        often = {"evaluation.interval": 10_000, "evaluation.episodes": 32, "total_steps": budget}
        trained = job.train("tppo_pendulum", **often, **settings)
        teacher = earned(swing_up)
        return {"steps": steps_to(trained, 1.1 * teacher, budget), "teacher": teacher} | student(trained)

    return run


experiment(
    "T-TPPO-RL",
    "with a teacher PPO reaches nine tenths of it in at most half the steps",
    arms={
        "guided": guided(120_000),
        "alone": guided(240_000, **{"cast": [], "algorithm.terms": []}),
    },
    twins={"labels a step late": guided(120_000, cast=cast(f"{HERE}:LateLabels", DECAY))},
    claims=lambda arms: [
        most("steps", arms["guided"]["steps"], 100_000),
        least("times as many steps alone", arms["alone"]["steps"] / arms["guided"]["steps"], 2.0),
    ],
)

# --- T-DIST ----------------------------------------------------------------------------------------------------------

LINEAR = {
    "env": {"id": "toy/oscillator", "num_envs": 32},
    "total_steps": 100_000,
    "agent": {"actor_hidden": [64], "observations": {"actor": ["policy", "phase"]}},
    "evaluation.interval": 0,
}


def linear(epochs: int = 4, teacher: str = "teacher") -> Arm:
    def run(job: Job) -> Figures:
        numbers = {"name": "distillation", "rollout_steps": 24, "epochs": epochs, "gradient_length": 6}
        rates = {"learning_rate": 3e-3, "schedule": "linear"}
        who = cast(teacher, controller="follow_reference")
        trained = job.train(**LINEAR, algorithm=numbers | rates, cast=who)
        obs = make_env("toy/oscillator", num_envs=256, seed=987).reset()
        error = (trained.act(obs) - follow_reference(obs)).square().sum(-1).mean()
        return {"error": float(error), "return": earned(InferencePolicy(trained.policy), "toy/oscillator")}

    return run


POLE = "InvertedPendulum-v5"
GAINS = (-1.81, -9.94, -1.86, -1.76)
"""Of the linear quadratic regulator for the cost x^2 + th^2 + 0.1 (xd^2 + thd^2) + 0.1 u^2, 0.04 s apart."""


def balance(obs: Any) -> torch.Tensor:
    """`InvertedPendulum-v5`: a linear controller of slider, hinge and their velocities."""
    return -(obs["policy"].float() @ torch.tensor(GAINS)).clamp(-3.0, 3.0).unsqueeze(-1)


def pole(teacher: str = "teacher", memory: str = "gru") -> Arm:
    """A student that sees positions alone; its return beside that of the controller."""

    def run(job: Job) -> Figures:
        seen = {"name": "mlp", "reads": ["policy.slider", "policy.hinge"], "writes": "seen", "hidden": [], "size": 16}
        settings = {
            "env": {"id": POLE, "num_envs": 16},
            "total_steps": 100_000,
            "agent": {"memory": {"kind": memory}, "blocks": [seen], "observations": {"actor": ["seen"]}},
            "algorithm": {"name": "distillation", "rollout_steps": 64, "epochs": 4, "gradient_length": 8}
            | {"learning_rate": 3e-3, "schedule": "linear"},
            "cast": [{"name": teacher, "teachers": f"{HERE}:balance", "probability": DECAY}],
        }
        trained = job.train(**settings, **{"evaluation.interval": 0})
        whole = earned(balance, POLE, 20)
        return {"share": trained.evaluate(20)["return"] / whole, "teacher": whole}

    return run


experiment(
    "T-DIST",
    "a linear teacher is learnt to an error of 1e-4, and from positions alone nearly all that it earns",
    arms={"distillation": linear(), "positions alone": pole()},
    twins={
        "labels a step late": linear(teacher=f"{HERE}:LateLabels"),
        "positions alone without memory": pole(memory="none"),
        "positions alone, own labels": pole(f"{HERE}:OwnLabels"),
    },
    breaks=dict.fromkeys(("positions alone without memory", "positions alone, own labels"), "positions alone"),
    claims=lambda arms: [
        most("squared error", arms["distillation"]["error"], 1e-4),
        least("return", arms["distillation"]["return"], 0.95 * earned(follow_reference, "toy/oscillator")),
        least("share of the teacher's return, positions alone", arms["positions alone"]["share"], 0.95),
    ],
)

# --- T-LATENT --------------------------------------------------------------------------------------------------------

LIGHT = {"id": "toy/light", "num_envs": 64}
SEEING = {"name": "conv2d", "reads": ["camera"], "writes": "seen", "channels": [8, 16], "size": 8, "hidden": [32]}
KNOWING = {"name": "mlp", "reads": ["light"], "writes": "known", "hidden": [32], "size": 8}


class LatentsOfTheNeighbour(Teacher):
    """Broken: latents of the neighbouring instance."""

    def step(self, ws: Workspace, t: int) -> None:
        super().step(ws, t)
        name = "teacher/latent/known"
        ws.put(name, t, ws.at(name, t).roll(1, 0))


def latent(teacher: str = "teacher") -> Arm:
    """Likeness of a camera's latent to that of an encoder that knows where the light is, in fresh episodes."""

    def run(job: Job) -> Figures:
        known = {"blocks": [KNOWING], "observations": {"actor": ["known"], "critic": ["light"]}}
        its = {"agent": known, "env": LIGHT, "total_steps": 60_000, "seed": 100}
        rates = {"rollout_steps": 32, "epochs": 5, "minibatches": 4, "learning_rate": 1e-3, "gamma": 0.5}
        expert = job.train(shared="expert", **its, algorithm={"name": "ppo"} | rates, **{"evaluation.interval": 0})
        before = {name: value.clone() for name, value in expert.policy.state_dict().items()}
        trained = job.train(
            env=LIGHT,
            total_steps=100_000,
            agent={"blocks": [SEEING], "observations": {"actor": ["seen"]}, "distribution": {"init_std": 0.3}},
            algorithm={"name": "distillation", "epochs": 4, "gradient_length": 8}
            | {"terms": [{"name": "latent_imitation", "latents": {"seen": "known"}, "form": "squared"}]},
            cast=[{"name": teacher, "teachers": str(expert.path), "latents": ["known"]}],
            **{"evaluation.interval": 0},
        )
        obs = make_env("toy/light", num_envs=256, seed=987).reset()
        mine = trained.policy.answer(obs, None).written["seen"]
        theirs = expert.policy.answer(obs, None).written["known"]
        losses = logged(trained, "loss/latent/seen")
        again = load(expert.path, "last").policy.state_dict()
        return {
            "cosine": float(torch.cosine_similarity(mine, theirs, -1).mean()),
            "loss left": losses[-1] / losses[0],
            "teacher moved": float(sum(not torch.equal(value, before[name]) for name, value in again.items())),
        }

    return run


experiment(
    "T-LATENT",
    "an encoder of pictures learns the latent of one that knows",
    arms={"latents": latent()},
    twins={"latents of the neighbouring instance": latent(f"{HERE}:LatentsOfTheNeighbour")},
    claims=lambda arms: [
        least("cosine similarity", arms["latents"]["cosine"], 0.95),
        most("loss beside that of the start", arms["latents"]["loss left"], 0.05),
        most("parts of the teacher that moved", arms["latents"]["teacher moved"], 0.0),
    ],
)
