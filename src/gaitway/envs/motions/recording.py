"""Clips of a policy: `record(make_env("walker/run"), act, seconds=4)`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from gaitway.envs.batch_task import BatchTask
from gaitway.envs.motions.clip import Clip
from gaitway.envs.motions.frames import MotionError
from gaitway.envs.motions.skeleton import Skeleton, robot_name
from gaitway.envs.vec_env import Actor, VecEnv
from gaitway.envs.wrappers import innermost


def record(
    env: VecEnv,
    act: Actor,
    seconds: float = 4.0,
    warmup: float = 1.0,
    seed: int = 0,
    episodes: int = 20,
    bodies: Sequence[str] | None = None,
) -> Clip:
    """The first `seconds` without an end of an episode, from `warmup` seconds after its start on.

    `env` is a native task, of which the first instance is recorded: qpos and qvel as they are when the policy sees
    them. After so many `episodes` that ended too early it is given up. `bodies` as in `Skeleton.clip`; those of legged
    robots are their feet unless others are named, as motion priors compare them.
    """
    task = getattr(innermost(env), "task", None)
    if not isinstance(task, BatchTask):
        raise MotionError(f"{env.spec.id} is no native task, so its state cannot be read; use one such as walker/run")
    dt = env.spec.control_dt
    skipped, wanted = round(warmup / dt), round(seconds / dt)
    if wanted < 1:
        raise MotionError(f"{seconds:g} s are less than a step of {dt:g} s; record longer")
    limit = env.spec.max_episode_steps
    if limit and skipped + wanted >= limit:
        raise MotionError(f"episodes end after {limit * dt:g} s; record at most {(limit - 1) * dt - warmup:g} s")
    bodies = getattr(task, "foot_names", None) if bodies is None else bodies
    skeleton, longest = Skeleton.of_task(task), 0
    obs, states, age = env.reset(seed), [], 0
    held = [task.batch.bind(name) for name in ("qpos", "qvel")]  # of whatever simulates
    act.reset()
    for _ in range(episodes):
        ended = False
        while not ended:
            if age >= skipped:
                states.append([each[0].copy() for each in held])
            if len(states) == wanted + 1:
                qpos, qvel = (np.array(each) for each in zip(*states, strict=True))
                robot = robot_name(task)
                meta = {"task": env.spec.id, "seed": seed} | ({"robot": robot} if robot else {})
                name = env.spec.id.replace("/", "_")
                return skeleton.clip(qpos, qvel, 1.0 / dt, bodies, name=name, meta=meta)
            with torch.no_grad():
                step = env.step(act(obs))
            obs, age = step.obs, age + 1
            ended = bool(step.terminated[0] | step.truncated[0])
            if ended:
                act.reset(step.terminated | step.truncated)
        longest, states, age = max(longest, age), [], 0
    raise MotionError(
        f"none of {episodes} episodes lasted {(skipped + wanted) * dt:g} s, the longest {longest * dt:g} s; "
        "record less, or a policy that stays up"
    )
