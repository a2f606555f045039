"""T-APPO-MJ: from style alone a robot runs as a policy ran that had learnt to run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gaitway import InferencePolicy, LoadedRun, make_env
from gaitway.cli.build import build_env
from gaitway.envs.motions.recording import record
from robot_learning_experiments.experiment import Arm, Claim, Figures, Job, experiment, last_of, least, most

ROBOT = "HalfCheetah-v5"
JOINTS = ("bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot")
CLIPS = 20
SHORT = {"env.options": {"max_episode_steps": 100}, "evaluation.env": {"options": {"max_episode_steps": 1000}}}
"""Episodes of two seconds, of which 90 % begin within the clips; evaluations begin and end as the task says."""
FRAMES = {"hidden": [256, 128], "between_frames": False}
"""A small discriminator, on frames as they were recorded: six of them make a period."""


def clips(job: Job, slower: float = 1.0) -> tuple[Path, LoadedRun]:
    """A run that has learnt to run, once for all arms, and the folder of 20 clips of it; `slower` says that there is
    more time between their frames than there is."""
    teacher = job.train("ppo_halfcheetah", shared="reference", seed=100, **{"evaluation.interval": 0})
    folder = job.shared / f"clips_{slower:g}"
    if not folder.exists():
        env = make_env(ROBOT, num_envs=1)
        for seed in range(CLIPS):
            clip = record(env, InferencePolicy(teacher.policy), seconds=4.0, warmup=2.0, seed=seed)
            frames = clip.frames
            if slower != 1.0:
                slow = {
                    name: getattr(frames, name) / slower
                    for name in ("joint_velocities", "body_velocities", "body_angular_velocities")
                }
                clip = dataclasses.replace(clip, frames=frames.replaced(**slow))
            clip.save(folder / str(seed))
    return folder, teacher


@torch.no_grad()
def gait(run: LoadedRun, instances: int = 8, steps: int = 400) -> Figures:
    """Speed (m/s) and the frequency (Hz) at which the joints swing most, over the second half of fresh episodes."""
    with build_env(run.config, "evaluation", instances) as env:
        names = [component.name for component in env.spec.group("policy").components]
        columns = [names.index(name) for name in JOINTS]
        obs, act, seen, speeds = env.reset(seed=list(range(instances))), InferencePolicy(run.policy), [], []
        for _ in range(steps):
            step = env.step(act(obs))
            obs = step.obs
            seen.append(obs["policy"][:, columns].double())
            speeds.append(step.metrics["speed"].double().mean())
    joints = torch.stack(seen)[steps // 2 :].numpy()
    window = np.hanning(len(joints))[:, None, None]
    spectrum = np.square(np.abs(np.fft.rfft((joints - joints.mean(0)) * window, 4096, axis=0))).sum((1, 2))
    peak = np.fft.rfftfreq(4096, env.spec.control_dt)[spectrum.argmax()]
    return {"speed": float(torch.stack(speeds)[steps // 2 :].mean()), "frequency": float(peak)}


def imitated(weight: float = 1.0, slower: float = 1.0, **settings: Any) -> Arm:
    def run(job: Job) -> Figures:
        folder, teacher = clips(job, slower)
        starts, wanted = clips(job)[0], gait(teacher)
        features = {"name": "features", "features": "amp"}
        style = {"name": "style", "motion": str(folder), "weight": weight, **FRAMES}
        trained = job.train(
            "ppo_halfcheetah",
            **{
                "env.wrappers": [features, {"name": "starts", "motion": str(starts), "probability": 0.9}],
                "rewards": [{"name": "task", "weight": 0}, style],
                "algorithm.gamma": 0.95,
                **SHORT,
                "agent.observations": {"actor": ["policy"], "critic": ["policy"]},
                "evaluation.interval": 0,
                **settings,
            },
        )
        found = gait(trained)
        return found | last_of(trained, "reward/style") | {f"reference {name}": wanted[name] for name in wanted}

    return run


def off(found: float, wanted: float) -> float:
    """How far from what is wanted, as a share of it."""
    return abs(found - wanted) / max(abs(wanted), 1e-9)


def claims(arms: Mapping[str, Figures]) -> list[Claim]:
    found, blind = arms["style"], arms["no reward"]
    speed, frequency = found["reference speed"], found["reference frequency"]
    return [
        most("speed off the reference's, as a share", off(found["speed"], speed), 0.25),
        most("frequency off the reference's, as a share", off(found["frequency"], frequency), 0.1),
        least("speed off the reference's without reward, as a share", off(blind["speed"], speed), 0.25),
    ]


experiment(
    "T-APPO-MJ",
    "from style alone HalfCheetah runs as a policy ran that had learnt it",
    arms={"style": imitated(), "no reward": imitated(weight=0.0, total_steps=100_000)},
    twins={"clips with another time between frames": imitated(slower=2.0)},
    claims=claims,
)
