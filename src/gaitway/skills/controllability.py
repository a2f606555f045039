"""How well every task can be done, asked of the learner's own models: no environment is stepped.

For each task the policy is put, in thought, where goals began lately, and is given goals there: uniform ones, or those
that visited features propose. Reachability answers with a probability (`r`); the critics answer whether the goal is
worth at least what going there would bring (`q`). Gehring et al. 2021 (HSD-3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from gaitway.core.seeding import stream
from gaitway.data.step_replay import StepReplay
from gaitway.skills.estimates import (
    MOST_ROWS,
    estimate_joint_spaces,
    goals_from,
    q_controllable,
    r_controllable,
    uniform_goals,
)
from gaitway.skills.multitask_sac import MultitaskSAC

NUM_STATES = 1024


class Estimates(NamedTuple):
    """Of every task, from 0 to 1."""

    r: dict[str, float]
    q: dict[str, float]


@torch.no_grad()
def estimate_controllability(
    algorithm: MultitaskSAC, tasks: Iterable[str], joint_space: str | None = None
) -> Estimates:
    """Estimates for `tasks`, given in group spelling; zeros before the first update, and where a replay is so small
    that no goal begins in it.

    `joint_space`, "gmm" or "kmeans", proposes goals where features were visited together (`estimate_joint_spaces`).
    States and goals are drawn from a stream of their own that begins anew each time: asking changes nothing.
    """
    tasks = list(tasks)
    replay = getattr(algorithm.replay, "online", algorithm.replay)  # what a dataset adds was not lived through
    unknown = Estimates(dict.fromkeys(tasks, 0.0), dict.fromkeys(tasks, 0.0))
    if replay is None or not algorithm.updates:
        return unknown
    facts, policy, config = algorithm.facts, algorithm.policy, algorithm.config
    generator = stream(algorithm.seed, "controllability")
    index = replay.draw_where(NUM_STATES, "env/metric/time", 0.0, generator)
    if not len(index):
        return unknown
    drawn = replay.gather(index)
    features = drawn["obs/gs_observation"].cpu().numpy().astype(np.float64)
    obs = {name.removeprefix("obs/"): value for name, value in drawn.items() if name.startswith("obs/")}
    like = obs["task"]
    draw: Callable[..., np.ndarray] = partial(uniform_goals, facts.space)
    if joint_space is not None:
        visited = _visited_features(replay, generator)
        draw = estimate_joint_spaces(joint_space, visited, facts.space, generator).draw
    zero_twist = bool(policy.spec.options.get("zero_twist_goals", False))
    r, q = {}, {}
    for task in tasks:
        goals = goals_from(facts.tasks, task, features, draw(len(features), generator, zero_twist))
        obs |= {name: torch.from_numpy(getattr(goals, name)).to(like.device) for name in ("desired_goal", "task")}
        action = policy.mean_action(policy.network_input(obs, "actor"))
        values = policy.values(policy.critic, policy.network_input(obs, "critic"), action).cpu()
        r[task] = r_controllable(values[-1])
        q[task] = q_controllable(
            values[:-1].amin(0),
            goals.distance,
            facts.horizon,
            facts.ctrl_cost,
            len(policy.spec.action.names),
            float(config.gamma),
        )
    return Estimates(r, q)


def _visited_features(replay: StepReplay, generator: torch.Generator) -> np.ndarray:
    """Features [m, size] of steps drawn from the replay, all where there are few."""
    slots = replay.slots(replay.first_row, replay.stop_row)
    if len(slots) > MOST_ROWS:
        slots = slots[torch.randint(len(slots), (MOST_ROWS,), generator=generator).to(slots.device)]
    return replay.gather(slots)["obs/gs_observation"].double().cpu().numpy()
