"""Experiments of motion priors: style, tracking, and style beside a teacher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaitway import LoadedRun, make_env
from gaitway.algorithms.algorithm import Batch, DeviceNow, Now
from gaitway.algorithms.imitation import Imitation
from gaitway.cli.compose_run import compose_run
from gaitway.core.workspace import Workspace
from gaitway.envs.toys.controllers import follow_reference
from gaitway.rewards.style import CURRENT, EXPERT, StyleReward
from gaitway.rewards.tracking import TrackingReward
from robot_learning_experiments.experiment import Arm, Claim, Figures, Job, experiment, last_of, least, most, within

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


def oscillator(source: str = "style", style: Mapping[str, Any] | None = None, **settings: Any) -> Arm:
    def run(job: Job) -> Figures:
        rewards = compose_run(["experiment=ppo_oscillator_style"])[0].rewards
        changed = [rewards[0], {**rewards[1], "name": source, **(style or {})}]
        trained = job.train("ppo_oscillator_style", **{"rewards": changed, "evaluation.interval": 0, **settings})
        found = last_of(trained, "reward/style", "style/score_expert", "style/score_policy")
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
        "flat discriminator": oscillator(style={"activation": "relu", "gradient_penalty": 3.0}),
    },
    claims=claims_of_style,
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


# --- T-ATPPO ---------------------------------------------------------------------------------------------------------


class WatchedImitation(Imitation):
    """Imitation that also tells how far the labels of a minibatch are from what the teacher says of its rows."""

    def __init__(self, policy: Any) -> None:
        super().__init__(policy, coef=5.0)
        self.reads = ("env/obs/policy", "env/obs/phase", *self.reads)

    def __call__(self, batch: Batch, now: DeviceNow) -> tuple[Tensor, dict[str, Tensor]]:
        loss, found = super().__call__(batch, now)
        said = follow_reference({name: batch[f"env/obs/{name}"] for name in ("policy", "phase")})
        return loss, found | {"imitation/label_gap": (said - batch["teacher/action"]).abs().max()}


TERMS = ("loss/surrogate", "loss/value", "loss/entropy", "loss/imitation", "style/loss_expert", "style/loss_policy",
         "style/penalty")  # fmt: skip


def guided_style(teacher: str = "teacher") -> Arm:
    """PPO by style alone, beside a linear teacher that drives ever fewer episodes."""

    def run(job: Job) -> Figures:
        source = "gaitway.envs.toys.controllers:follow_reference"
        drives = {"start": 1.0, "end": 0.0, "over": 20, "kind": "decay"}
        trained = job.train(
            "ppo_oscillator_style",
            **{
                "agent.observations.actor": ["policy", "phase"],
                "cast": [{"name": teacher, "teachers": source, "probability": drives}],
                "algorithm.terms": [{"name": f"{__name__}:WatchedImitation"}],
                "total_steps": 204_800,
                "evaluation.interval": 0,
            },
        )
        lines = last_of(trained, *TERMS, "reward/style", "imitation/label_gap")
        env = make_env("toy/oscillator", num_envs=64, purpose="evaluation")
        obs, apart = env.reset(seed=list(range(64))), []
        for _ in range(199):
            action = trained.act(obs)
            apart.append((action - follow_reference(obs)).abs().mean())
            obs = env.step(action).obs
        present = sum(np.isfinite(lines[name]) for name in TERMS)
        return {
            "action error": float(torch.stack(apart).mean()),
            "style": lines["reward/style"],
            "label gap": lines["imitation/label_gap"],
            "terms": float(present),
        }

    return run


experiment(
    "T-ATPPO",
    "style and a teacher together: labels stay the teacher's, and both are learnt from",
    arms={"both": guided_style()},
    twins={"label overwritten by what was executed": guided_style("robot_learning_experiments.teachers:OwnLabels")},
    claims=lambda arms: [
        most("action error", arms["both"]["action error"], 0.05),
        *within("style", arms["both"]["style"], 0.55, 0.9),
        most("labels beside what the teacher says", arms["both"]["label gap"], 0.0),
        least("losses that are there", arms["both"]["terms"], float(len(TERMS))),
    ],
)
