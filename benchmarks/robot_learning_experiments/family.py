"""Experiments of PPO and its family: memories, exploration, symmetry; and what tests prove of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gaitway import LoadedRun, make_env
from gaitway.agents.actor_critic import ActorCritic
from gaitway.algorithms.algorithm import Batch, DeviceNow, Now
from gaitway.algorithms.symmetry import Symmetry, mirror_of
from gaitway.algorithms.terms import Surrogate
from gaitway.core.files import load_state
from gaitway.core.workspace import Workspace
from gaitway.envs.spec import Component, EnvSpec
from gaitway.rewards.novelty import RandomNetworkDistillation
from robot_learning_experiments.experiment import (
    Arm,
    Claim,
    Figures,
    Job,
    experiment,
    found_in,
    least,
    logged,
    most,
    tested,
)

tested("T-GAE", "advantages by hand", "functional/test_returns.py")
tested("T-TIMEOUT", "a time limit is not an end")
tested("T-TIMEOUT-2", "bootstrap from the final observation")
tested("T-RATIO", "the update computes what the policy did")
tested("T-LR", "the adaptive learning rate")
tested("T-NORMADV", "advantages are normalised where asked")
tested("T-REPLAY", "the replay equals a list")
tested("T-SPLIT", "episodes are cut and joined bit by bit", "functional/test_sequences.py")
tested("T-NORM", "running moments by hand", "nn/test_normalise.py")
tested("T-GROUPS", "critics of reward groups against float64", "algorithms/test_reward_streams.py")
tested("T-AMP-D", "at the optimum D is the contrast of the densities")
tested("T-AMP-GP", "the penalty is on what D reads, squared", "nn/test_discriminator.py")
tested("T-RESUME", "a resumed run ends with the bits of one that was not stopped")
tested("T-COMPILE", "the compiled update gives the eager numbers", "algorithms/test_compile.py")


def returns(experiment: str | None, episodes: int = 20, **settings: Any) -> Arm:
    """An arm that trains and tells the mean return of the last policy over fresh episodes."""

    def run(job: Job) -> Figures:
        trained = job.train(experiment, **{"evaluation.interval": 0, **settings})
        return {"return": trained.evaluate(episodes)["return"]}

    return run


def terms(*names: str) -> dict[str, Any]:
    return {"algorithm.terms": [{"name": name} for name in names]}


# --- T-PPO -----------------------------------------------------------------------------------------------------------


class Backwards(Surrogate):
    """Broken: the sign of the advantage."""

    def __call__(self, batch: Batch, now: DeviceNow) -> tuple[Tensor, dict[str, Tensor]]:
        return super().__call__(batch | {"advantage": -batch["advantage"]}, now)


class RatioOfAnother(Surrogate):
    """Broken: log-probabilities of the rollout are those of the neighbouring row, as a wrong shape would have it."""

    def __call__(self, batch: Batch, now: DeviceNow) -> tuple[Tensor, dict[str, Tensor]]:
        return super().__call__(batch | {"log_prob": batch["log_prob"].roll(1, 0)}, now)


def last_return(found: Any, seed: int) -> Figures:
    """Of the raw files of `gaitway bench learning`."""
    return {"return": found["seeds"][seed]["last"]["return"]}


experiment(
    "T-PPO",
    "PPO balances the pole of InvertedPendulum-v5 in 200 thousand steps, as `gaitway bench learning` found",
    arms={"ppo": found_in("learning_ppo_inverted_pendulum.json", last_return)},
    twins={
        "sign of the advantage": returns("ppo_inverted_pendulum", **terms(f"{__name__}:Backwards")),
        "ratio of another row": returns("ppo_inverted_pendulum", **terms(f"{__name__}:RatioOfAnother")),
    },
    claims=lambda arms: [least("return", arms["ppo"]["return"], 900.0)],
)
experiment(
    "T-PPO-HOPPER",
    "PPO hops in a million steps, as `gaitway bench learning ppo_hopper` found",
    arms={"ppo": found_in("learning_ppo_hopper.json", last_return)},
    claims=lambda arms: [least("return", arms["ppo"]["return"], 1000.0)],
    seeds_needed=2,
)

# --- T-REC -----------------------------------------------------------------------------------------------------------


def cue(memory: str) -> Arm:
    settings = {
        "env": {"id": "toy/cue", "num_envs": 64},
        "total_steps": 120_000,
        "algorithm": {"name": "ppo", "rollout_steps": 32, "epochs": 5, "minibatches": 4, "learning_rate": 3e-3}
        | {"schedule": "linear"},
        "agent": {"memory": {"kind": memory, "size": 32}, "activation": "elu", "normalise_observations": False},
    }
    return returns(None, 200, **settings)


def of_the_neighbour(arm: Arm) -> Arm:
    """Broken: in training everyone goes on with what the neighbouring instance remembers."""

    def run(job: Job) -> Figures:
        def reset(self: ActorCritic, ws: Workspace, t: int, mask: Tensor) -> None:
            for name in ("actor/memory", "critic/memory"):
                ws.put(name, t, ws.at(name, t).roll(1, 0))

        ActorCritic.reset = reset  # type: ignore[method-assign]  # this process trains nothing else
        return arm(job)

    return run


experiment(
    "T-REC",
    "a memory remembers the cue, which costs 1 without",
    arms={"gru": cue("gru"), "lstm": cue("lstm"), "no memory": cue("none")},
    twins={"memory of the neighbouring instance": of_the_neighbour(cue("gru"))},
    claims=lambda arms: [
        least("gru", arms["gru"]["return"], -0.1),
        least("lstm", arms["lstm"]["return"], -0.1),
        most("no memory", arms["no memory"]["return"], -0.95),
    ],
)

# --- T-PEND ----------------------------------------------------------------------------------------------------------


def pendulum(actor: list[str], memory: str = "none") -> Arm:
    settings: dict[str, Any] = {"agent.observations.actor": actor, "agent.observations.critic": ["pos", "vel"]}
    if memory != "none":
        settings |= {"agent.memory": {"kind": memory, "size": 64}}
    else:  # advantages estimated anew in every pass: fewer runs end far below what they could earn
        settings |= {"algorithm.recompute_advantage": True}
    return returns("ppo_pendulum", **settings)


def claims_of_pendulum(arms: Mapping[str, Figures]) -> list[Claim]:
    recurrent, blind, full = (arms[name]["return"] for name in ("recurrent", "feed-forward", "with velocity"))
    return [
        least("recurrent", recurrent, -450.0),
        least("recurrent above feed-forward", recurrent - blind, 300.0),
        least("feed-forward that sees the velocity", full, -250.0),
    ]


experiment(
    "T-PEND",
    "with velocities hidden a memory swings the pendulum up, and nothing else does",
    arms={
        "recurrent": pendulum(["pos"], "gru"),
        "feed-forward": pendulum(["pos"]),
        "with velocity": pendulum(["pos", "vel"]),
    },
    twins={"memory of the neighbouring instance": of_the_neighbour(pendulum(["pos"], "gru"))},
    claims=claims_of_pendulum,
)


# --- T-SYM -----------------------------------------------------------------------------------------------------------

BUDGET = {"total_steps": 200_000, "evaluation.interval": 0}
PENDULUM_MIRROR = {"pos": {"sin": "-sin"}, "vel": {"velocity": "-velocity"}, "action": {"torque": "-torque"}}


class ActionsAlone(Symmetry):
    """Broken: actions are mirrored, observations are not."""

    def __init__(self, spec: EnvSpec, policy: ActorCritic, mirror: dict[str, dict[str, Any]]) -> None:
        super().__init__(spec, policy, mirror)
        self.groups = {name: mirror_of(spec.group(name).components, {}, (), name) for name in self.groups}
        policy.normalisers.mirrors = {}


class Repeated(ActionsAlone):
    """Broken: the mirror is the identity."""

    def __init__(self, spec: EnvSpec, policy: ActorCritic, mirror: dict[str, dict[str, Any]]) -> None:
        super().__init__(spec, policy, mirror)
        self.action = mirror_of([Component(name) for name in spec.action.names], {}, (), "action")


def asymmetry(run: LoadedRun, episodes: int = 20) -> Figures:
    """Mean |mu(M o) + mu(o)| where the policy goes on fresh starts, in N m of +- 2, and what it earns."""
    env = make_env("toy/pendulum", num_envs=episodes, purpose="evaluation")
    obs, apart, earned = env.reset(seed=list(range(episodes))), [], torch.zeros(episodes)
    for _ in range(200):
        action = run.act(obs)
        image = {"pos": obs["pos"] * torch.tensor([1.0, -1.0]), "vel": -obs["vel"]}
        apart.append((run.act(image).clamp(-2.0, 2.0) + action.clamp(-2.0, 2.0)).abs().mean())
        step = env.step(action)
        obs, earned = {name: value.clone() for name, value in step.obs.items()}, earned + step.reward
    return {"asymmetry": float(torch.stack(apart).mean()), "return": float(earned.mean())}


def symmetric(name: str | None, **options: Any) -> Arm:
    def run(job: Job) -> Figures:
        terms = [{"name": name, "mirror": PENDULUM_MIRROR, **options}] if name else []
        return asymmetry(job.train("ppo_pendulum", **{"algorithm.terms": terms, **BUDGET}))

    return run


def claims_of_symmetry(arms: Mapping[str, Figures]) -> list[Claim]:
    without = arms["without"]["asymmetry"]
    found = []
    for name in ("augmentation", "mirror loss"):
        apart = arms[name]["asymmetry"]
        found += [most(f"asymmetry by {name}", apart, 0.1), least(f"without over {name}", without / apart, 3.0)]
    return [*found, least("return", arms["augmentation"]["return"], -250.0)]


experiment(
    "T-SYM",
    "a policy that learns from mirror images is its own image",
    arms={
        "augmentation": symmetric("symmetry"),
        "mirror loss": symmetric("symmetry", augment=False, coef=1.0),
        "without": symmetric(None),
    },
    twins={
        "actions mirrored, observations not": symmetric(f"{__name__}:ActionsAlone"),
        "repeated instead of mirrored": symmetric(f"{__name__}:Repeated"),
    },
    claims=claims_of_symmetry,
)

# --- T-RND -----------------------------------------------------------------------------------------------------------


class FollowedTarget(RandomNetworkDistillation):
    """Broken: the target becomes what the predictor is, after every update."""

    def update(self, ws: Workspace, now: Now) -> dict[str, Tensor]:
        metrics = super().update(ws, now)
        self.target.load_state_dict(self.predictor.state_dict())
        return metrics


class TrainedTarget(RandomNetworkDistillation):
    """Broken: the target learns along."""

    def update(self, ws: Workspace, now: Now) -> dict[str, Tensor]:
        metrics = super().update(ws, now)
        with torch.no_grad():
            for mine, its in zip(self.target.parameters(), self.predictor.parameters(), strict=True):
                mine.lerp_(its, 0.01)
        return metrics


MOUNTAIN = {
    "env": {"id": "gymnasium:MountainCarContinuous-v0", "num_envs": 16},
    "total_steps": 300_000,
    "algorithm": {"name": "ppo", "rollout_steps": 128, "epochs": 5, "minibatches": 8, "learning_rate": 1e-3},
    "agent": {"distribution": {"init_std": 0.3}},  # with 1 the noise alone finds the goal
}


NOVELTY = 3.0
"""Weight of the bonus."""


def mountain(source: str | None) -> Arm:
    """Share of 20 fresh episodes that end at the goal; how far the predictor's loss fell, and the target moved."""

    def run(job: Job) -> Figures:
        rewards = [{"name": source, "weight": NOVELTY}] if source else []
        trained = job.train(**MOUNTAIN, rewards=rewards, **{"evaluation.interval": 0})
        length = trained.evaluate(20)["length"]
        found = {"reached": float(length < 999), "length": length}
        if source:
            losses = logged(trained, "rnd/loss")
            state = load_state(trained.path / "checkpoints" / "last", kind="checkpoint")[0]
            kept = state["sources"]["rnd"]
            fresh = RandomNetworkDistillation(trained.spec, seed=job.seed).state_dict()
            moved = max(float((kept[name] - fresh[name]).abs().max()) for name in fresh if name.startswith("target."))
            left = sum(losses[-10:]) / 10
            found |= {"fall of the loss": losses[0] / max(left, 1e-12), "target moved": moved}
        return found

    return run


def claims_of_novelty(arms: Mapping[str, Figures]) -> list[Claim]:
    found = arms["rnd"]
    return [
        least("goal reached", found["reached"], 1.0),
        most("goal reached without", arms["alone"]["reached"], 0.0),
        least("fall of the predictor's loss", found["fall of the loss"], 10.0),
        most("what the target moved", found["target moved"], 0.0),
    ]


def opened(found: Any, seed: int) -> Figures:
    """Share of episodes in which the lock opens, of the raw file of `gaitway bench doors`."""
    rows = found["gates"]["novelty"]["seeds"][seed]
    return {name: row["return"] for name, row in rows.items() if isinstance(row, dict)}


experiment(
    "T-RND-LOCK",
    "novelty opens a lock that the reward alone does not, as `gaitway bench doors` found",
    arms={"novelty": found_in("doors.json", opened)},
    claims=lambda arms: [
        least("opened", arms["novelty"]["rnd"], 0.95),
        *(
            most(f"opened, {name}", arms["novelty"][name], 0.05)
            for name in ("no bonus", "target follows", "predictor rests")
        ),
    ],
)
experiment(
    "T-GROUPS-LOCK",
    "novelty that has a critic of its own opens the lock, and the weight of its advantages is what does it",
    arms={"own critic": returns("ppo_lock_rnd_critic")},
    twins={
        "advantages of weight 0": returns(
            "ppo_lock_rnd_critic",
            **{
                "algorithm.reward_groups": [{"name": "novelty", "sources": ["rnd"], "episodic": False, "weight": 0.0}],
            },
        )
    },
    claims=lambda arms: [least("opened", arms["own critic"]["return"], 0.95)],
)
experiment(
    "T-RND",
    "novelty leads the car up the mountain, the reward alone does not; the target never moves",
    arms={"rnd": mountain("rnd"), "alone": mountain(None)},
    twins={
        "target follows": mountain(f"{__name__}:FollowedTarget"),
        "target learns along": mountain(f"{__name__}:TrainedTarget"),
    },
    claims=claims_of_novelty,
    seeds_needed=2,
)
