"""Experiments of PPO and its family: memories, exploration, symmetry, style, tracking; and what tests prove of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaitway import LoadedRun, make_env
from gaitway.agents.actor_critic import ActorCritic
from gaitway.algorithms.algorithm import Now
from gaitway.algorithms.symmetry import Symmetry, mirror_of
from gaitway.core.workspace import Workspace
from gaitway.envs.vec_env import Component, EnvSpec
from gaitway.rewards.style import CURRENT, EXPERT, StyleReward
from gaitway.rewards.tracking import TrackingReward
from robot_learning_experiments.experiment import Arm, Claim, Figures, Job, experiment, least, most, tested, within

PPO = "tests/algorithms/test_ppo.py"
tested("T-GAE", "advantages by hand", "tests/functional/test_returns.py")
tested("T-TIMEOUT", "a time limit is not an end", PPO, "-k", "time_limit or withheld_time_outs")
tested("T-TIMEOUT-2", "bootstrap from the final observation", PPO, "-k", "timeout_2")
tested("T-RATIO", "the update computes what the policy did", PPO, "-k", "ratio")
tested("T-LR", "the adaptive learning rate", PPO, "-k", "adaptive_rate")
tested("T-NORMADV", "advantages are normalised where asked", PPO, "-k", "advantages_are_normalised")
tested("T-REC", "a memory remembers the cue", PPO, "-k", "cue")
tested("T-REPLAY", "the replay equals a list", "tests/data/test_replay.py::TestRing::test_t_replay")
tested("T-SPLIT", "episodes are cut and joined bit by bit", "tests/functional/test_sequences.py")
tested("T-NORM", "running moments by hand", "tests/nn/test_normalise.py")
tested("T-GROUPS", "critics of reward groups against float64", "tests/algorithms/test_reward_streams.py")
tested("T-RND", "what was seen is predicted; the target never moves", "tests/rewards/test_novelty.py")
AMP = "tests/functional/test_adversarial.py"
tested("T-AMP-D", "at the optimum D is the contrast of the densities", AMP, "-k", "amp_d")
tested(
    "T-AMP-GP", "the penalty is on what D reads, squared", AMP, "tests/nn/test_discriminator.py", "-k", "gp or gradient"
)
tested("T-RESUME", "a resumed run ends with the bits of one that was not stopped", "tests/behaviour/test_resume.py")
tested("T-COMPILE", "the compiled update gives the eager numbers", "tests/algorithms/test_compile.py")


def returns(experiment: str, **settings: Any) -> Arm:
    """An arm that trains and tells the mean return of the last policy over 20 fresh episodes."""

    def run(job: Job) -> Figures:
        trained = job.train(experiment, **{"evaluation.interval": 0, **settings})
        return {"return": trained.evaluate(20)["return"]}

    return run


# --- T-PPO -----------------------------------------------------------------------------------------------------------

experiment(
    "T-PPO",
    "PPO balances the pole of InvertedPendulum-v5 in 200 thousand steps",
    arms={"ppo": returns("ppo_inverted_pendulum")},
    claims=lambda arms: [least("return", arms["ppo"]["return"], 900.0)],
)
experiment(
    "T-PPO-HOPPER",
    "PPO hops in a million steps",
    arms={"ppo": returns("ppo_hopper", total_steps=1_000_000)},
    claims=lambda arms: [least("return", arms["ppo"]["return"], 1000.0)],
    seeds_needed=2,
)

# --- T-PEND ----------------------------------------------------------------------------------------------------------


def pendulum(actor: list[str], memory: str = "none") -> Arm:
    groups = {"agent.observations.actor": actor, "agent.observations.critic": ["pos", "vel"]}
    if memory != "none":
        groups |= {"agent.memory": {"kind": memory, "size": 64}}
    return returns("ppo_pendulum", **groups)


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
    claims=claims_of_pendulum,
)


# --- T-APPO ----------------------------------------------------------------------------------------------------------


class SwappedLabels(StyleReward):
    """Broken: the clips are called the policy's, and the reverse."""

    def _fill(self, rows: Tensor) -> None:
        super()._fill(rows)
        pairs = self._batch["pairs"]
        pairs[[EXPERT, CURRENT]] = pairs[[CURRENT, EXPERT]]


class FrozenDiscriminator(StyleReward):
    """Broken: the discriminator stays as it was made."""

    def update(self, ws: Workspace, now: Now) -> dict[str, Tensor]:
        kept = {name: value.clone() for name, value in self.discriminator.state_dict().items()}
        metrics = super().update(ws, now)
        self.discriminator.load_state_dict(kept)
        return metrics


def oscillation(run: LoadedRun, episodes: int = 20) -> Figures:
    """Frequency (Hz) and amplitude (m) of the last 3 s of episodes on fresh starts, medians over episodes."""
    env = make_env("toy/oscillator", num_envs=episodes, purpose="evaluation")
    obs, seen = env.reset(seed=list(range(episodes))), []
    for _ in range(199):
        obs = env.step(run.act(obs)).obs
        seen.append(obs["amp"][:, 0].double())
    place = torch.stack(seen)[-150:].numpy()
    window = np.hanning(len(place))[:, None]
    spectrum = np.abs(np.fft.rfft((place - place.mean(0)) * window, 8192, axis=0))
    peaks = np.fft.rfftfreq(8192, env.spec.control_dt)[spectrum.argmax(0)]
    return {"frequency": float(np.median(peaks)), "amplitude": float(np.median(np.ptp(place, axis=0) / 2))}


def last_metrics(run: LoadedRun, *names: str) -> Figures:
    """Numbers of the log, means over the last ten lines that have them."""
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    return {name: float(np.mean([line[name] for line in lines if name in line][-10:])) for name in names}


def oscillator(source: str = "style", **settings: Any) -> Arm:
    def run(job: Job) -> Figures:
        rewards: list[dict[str, Any]] = [{"name": "task", "weight": 0}]
        options = {"motion": "oscillator", "hidden": [64, 64], "learning_rate": 1e-3, "gradient_penalty": 0.3}
        rewards.append({"name": source, **options, "trunk_decay": 0, "head_decay": 0})
        trained = job.train("ppo_oscillator_style", **{"rewards": rewards, "evaluation.interval": 0, **settings})
        found = last_metrics(trained, "reward/style", "style/score_expert", "style/score_policy")
        return oscillation(trained) | found

    return run


def claims_of_style(arms: Mapping[str, Figures]) -> list[Claim]:
    found = arms["style"]
    return [
        *within("frequency", found["frequency"], 0.9, 1.1),
        *within("amplitude", found["amplitude"], 0.4, 0.6),
        *within("score of the clips", found["style/score_expert"], -0.35, 0.35),
        *within("score of the policy", found["style/score_policy"], -0.35, 0.35),
        *within("style", found["reward/style"], 0.55, 0.9),
    ]


experiment(
    "T-APPO",
    "from style alone a mass swings as the clip does",
    arms={"style": oscillator()},
    twins={
        "untrained": oscillator(total_steps=2048),
        "labels swapped": oscillator(f"{__name__}:SwappedLabels"),
        "frozen discriminator": oscillator(f"{__name__}:FrozenDiscriminator"),
    },
    claims=claims_of_style,
)


# --- T-SYM -----------------------------------------------------------------------------------------------------------

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
        return asymmetry(job.train("ppo_pendulum", **{"algorithm.terms": terms, "evaluation.interval": 0}))

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


# --- T-TRACK ---------------------------------------------------------------------------------------------------------


class OtherPhase(TrackingReward):
    """Broken: the clip runs a quarter of a turn ahead of the clock."""

    def at_phase(self, turns: Tensor) -> Tensor:
        return super().at_phase(turns + 0.25)


def tracking(source: str) -> Arm:
    """Mean |q - q_ref| of the last policy on fresh starts, in m of an amplitude of 0.5, and frequency and amplitude."""

    def run(job: Job) -> Figures:
        rewards = [{"name": "task", "weight": 0}, {"name": source, "motion": "oscillator"}]
        trained = job.train("ppo_oscillator_tracking", **{"rewards": rewards, "evaluation.interval": 0})
        return {"error": trained.evaluate(20)["tracking_error"]} | oscillation(trained)

    return run


experiment(
    "T-TRACK",
    "from the distance to a clip alone a mass follows it in time",
    arms={"tracking": tracking("tracking")},
    twins={"another phase": tracking(f"{__name__}:OtherPhase")},
    claims=lambda arms: [
        most("error", arms["tracking"]["error"], 0.1),
        *within("frequency", arms["tracking"]["frequency"], 0.9, 1.1),
    ],
)
