"""How well tasks are controlled, judged by the models instead of rollouts, and the goals they are judged on.

For each task, goals are drawn for a number of start states, and the models say of the policy's mean action

    r   the mean of reachability, clipped to [0, 1]
    q   the fraction of goals with min Q >= (distance - H ctrl_cost 0.25 A) gamma^H

A critic of the reward `potential` that promises the whole distance, less what controls cost in the H steps of a goal,
knows how to get there. Definitions follow HSD-3 (Gehring et al. 2021, arXiv 2110.10809), with angles that wrap.

Goals are drawn over the whole range of each feature, or proposed where features lie that were visited together
(`estimate_joint_spaces`): both feet above the head are within every range and out of reach.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gaitway.core.config import did_you_mean
from gaitway.envs.tasks.skills.goal_logic import CONTROL_SHARE
from gaitway.envs.tasks.skills.goal_spaces import GoalSpace, wrap
from gaitway.envs.tasks.skills.goals import TaskSet, length
from gaitway.functional.clustering import GaussianMixture, k_means

JOINT_SPACES = ("gmm", "kmeans")
"""A mixture of Gaussians, or centres of clusters."""
COMPONENTS, CENTRES = 32, 1024
MOST_ROWS = 16384
"""Visited features that a fit reads; of more, so many are drawn."""


def r_controllable(reach: Tensor | np.ndarray) -> float:
    """The success that reachability `reach` [n] predicts: the mean of its values clipped to [0, 1]."""
    return float(_vector("reach", reach).clamp(0.0, 1.0).mean())


def q_controllable(
    min_q: Tensor | np.ndarray,
    distance: Tensor | np.ndarray,
    horizon: int,
    ctrl_cost: float,
    actions: int,
    gamma: float,
) -> float:
    """The fraction of goals that the smaller of two values `min_q` [n] promises to reach, at `distance` [n].

    `horizon` is the number of steps of a goal, `actions` the size of an action, `ctrl_cost` what its square costs; the
    expected square of each number of an action is taken as 0.25.
    """
    if horizon < 1 or actions < 1 or not ctrl_cost >= 0 or not 0 < gamma <= 1:
        raise ValueError(
            f"horizon is {horizon}, actions {actions}, ctrl_cost {ctrl_cost}, gamma {gamma}; use at least one step and "
            "one action, a cost of at least 0 and a discount above 0 and up to 1"
        )
    values, distances = _vector("min_q", min_q), _vector("distance", distance)
    if values.shape != distances.shape:
        raise ValueError(f"min_q is {list(values.shape)} but distance is {list(distances.shape)}; use [n] for both")
    threshold = (distances.to(values.device) - horizon * ctrl_cost * CONTROL_SHARE * actions) * gamma**horizon
    return float((values >= threshold).double().mean())


class Goals(NamedTuple):
    """Goals of one task for n start states, and what networks are shown of them."""

    goal: np.ndarray
    """[n, size], projected and absolute; 0 for features that the task leaves free."""
    desired_goal: np.ndarray
    """[n, K] float32: what is left to go in feature units, angles wrapped, as the environment shows it."""
    task: np.ndarray
    """[n, K] float32: 1 for features that the task controls."""
    distance: np.ndarray
    """[n], in projected units, angles wrapped."""


def goals_from(tasks: TaskSet, subset: str, features: np.ndarray, drawn: np.ndarray) -> Goals:
    """The goals `drawn` [n, size] in [-1, 1] of the task `subset`, for robots whose features are `features` [n, size].

    As in the environment, delta features count from where the robot is.
    """
    space = tasks.space
    features, drawn = _rows("features", features, space), _rows("drawn", drawn, space)
    if len(features) != len(drawn):
        raise ValueError(f"there are {len(drawn)} goals for {len(features)} start states; draw one for each")
    mask = tasks.mask(np.full(len(features), tasks.key_of(subset)))
    projected = space.project(features)
    goal = space.absolute(drawn, projected) * mask
    left = space.feature_difference(space.back_project(goal), features) * mask
    distance = length(space.goal_difference(goal, projected) * mask)
    desired_goal, task = (array[:, tasks.members].astype(np.float32) for array in (left, mask))
    return Goals(goal, desired_goal, task, distance)


def uniform_goals(space: GoalSpace, count: int, generator: torch.Generator, zero_twist: bool = False) -> np.ndarray:
    """Goals over the whole range, float64 [count, size] in [-1, 1); angles that wrap are 0 with `zero_twist`."""
    drawn = torch.rand((count, space.size), generator=generator, device=generator.device, dtype=torch.float64)
    goals = 2.0 * drawn.cpu().numpy() - 1.0
    if zero_twist:
        goals[:, space.twist] = 0.0
    return goals


def check_joint_space(kind: str) -> None:
    """A ValueError for what `estimate_joint_spaces` does not know."""
    if kind not in JOINT_SPACES:
        raise ValueError(
            f"estimate_joint_spaces is {kind!r}{did_you_mean(str(kind), JOINT_SPACES)}; use one of "
            f"{list(JOINT_SPACES)}, or null for goals over the whole range"
        )


def estimate_joint_spaces(
    kind: str, features: Tensor | np.ndarray, space: GoalSpace, generator: torch.Generator
) -> JointSpace:
    """Goal proposals fitted to features [m, size] that were visited: `kind` "gmm" or "kmeans".

    The fit is over all features at once; of a proposal, a task takes those that it controls. Delta features are left
    out: they say where in the world the robot was, and a goal counts from where it is.
    """
    check_joint_space(kind)
    visited = features.detach().cpu().numpy() if isinstance(features, Tensor) else features
    projected = space.project(_rows("features", visited, space))
    if not len(projected) or not np.isfinite(projected).all():
        raise ValueError(
            f"estimate_joint_spaces got {len(projected)} visited features, of which "
            f"{np.count_nonzero(~np.isfinite(projected).all(axis=1))} are not finite; collect steps first"
        )
    for index, half_turn in zip(space.twist, space.half_turn, strict=True):
        projected[:, index] = wrap(projected[:, index], half_turn)
    fitted = [index for index in range(space.size) if space.is_controllable(index) and index not in space.delta]
    if not fitted:
        return JointSpace(space, fitted, None)
    points = torch.from_numpy(projected[:, fitted])
    if len(points) > MOST_ROWS:
        chosen = torch.randperm(len(points), generator=generator, device=generator.device)[:MOST_ROWS]
        points = points[chosen.cpu()]
    if kind == "gmm":
        return JointSpace(space, fitted, GaussianMixture.fit(points, COMPONENTS, generator))
    return JointSpace(space, fitted, k_means(points, CENTRES, generator).centres)


class JointSpace:
    """Goals where visited features lie; made by `estimate_joint_spaces`."""

    def __init__(self, space: GoalSpace, fitted: list[int], model: GaussianMixture | Tensor | None) -> None:
        self.space, self.fitted, self.model = space, fitted, model

    def draw(self, count: int, generator: torch.Generator, zero_twist: bool = False) -> np.ndarray:
        """`count` proposals [count, size] in [-1, 1], as `uniform_goals` gives them: points of the mixture, or every
        centre as often as any other; features that were not fitted are uniform. With `zero_twist` angles that wrap are
        0, whatever was visited."""
        goals = uniform_goals(self.space, count, generator, zero_twist)
        if self.model is None:
            return goals
        if isinstance(self.model, GaussianMixture):
            points = self.model.sample(count, generator)
        else:
            rounds = -(-count // len(self.model))
            order = [
                torch.randperm(len(self.model), generator=generator, device=generator.device) for _ in range(rounds)
            ]
            points = self.model[torch.cat(order)[:count].cpu()]
        goals[:, self.fitted] = points.clamp(-1.0, 1.0).numpy()
        if zero_twist:
            goals[:, self.space.twist] = 0.0
        return goals


def _vector(name: str, values: Tensor | np.ndarray) -> Tensor:
    """`values` [n] in float64; ValueError for another shape, none at all, or NaN."""
    vector = torch.as_tensor(values).detach().double()
    if vector.ndim != 1 or not len(vector):
        raise ValueError(f"{name} is {list(vector.shape)}; use [n] with at least one value")
    if not bool(vector.isfinite().all()):
        raise ValueError(f"{name} holds NaN or infinite values; the network that gave them has diverged")
    return vector


def _rows(name: str, values: np.ndarray, space: GoalSpace) -> np.ndarray:
    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != space.size:
        raise ValueError(f"{name} are {list(rows.shape)}; use [n, {space.size}], one column for each of {space.names}")
    return rows
