"""The proof that an export is the policy: the same observations, the same actions.

Recorded observations of several episodes are replayed through every file, each with its own memory. Then one of them
drives an episode, and the policy acts on the same observations with a memory of its own; two separate simulations
would drift apart. Differences are those of actions; where an action is beyond 1, in relation to it, because that is how
floating-point numbers round.

A policy that chooses one of several things to pursue for a while (`choice_margin`) may choose another one where two are
nearly equal. Such steps, up to the next choice, are counted and not compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Actor, Observation, VecEnv
from gaitway.export.acting_step import ActingStep, limited
from gaitway.export.programs import ExportError

TOLERANCE = 1e-5
OBSERVATIONS, EPISODES = 1000, 10
DRIVEN_STEPS = 1000
"""The longest episode that is driven."""
MOST_ROUNDING = 1e-3
"""Actions that move by more than this are not said to be rounded."""
NEAR_TIE = 1e-4
"""Log-probabilities that are closer than this may change places by rounding alone."""


class Exported(Protocol):
    """A file of an export that acts; arrays by group, `[B, ...]` each."""

    def __call__(self, observation: Mapping[str, Any]) -> np.ndarray: ...

    def reset(self, rows: Any = None) -> None: ...


class TorchRunner:
    """A `torch.export` program with its memory, in the form of `RobotRunner`."""

    def __init__(self, program: Any, step: ActingStep, batch: int) -> None:
        self.program, self.groups = program, [group.name for group in step.groups]
        self._fresh = [torch.tensor(port.reset).expand(batch, -1) for port in step.memories]
        self.memory = self._fresh

    def reset(self, rows: Any = None) -> None:
        ended = torch.ones(1, 1, dtype=torch.bool) if rows is None else torch.as_tensor(rows)[:, None]
        self.memory = [torch.where(ended, *both) for both in zip(self._fresh, self.memory, strict=True)]

    @torch.inference_mode()
    def __call__(self, observation: Mapping[str, Any]) -> np.ndarray:
        inputs = [torch.as_tensor(observation[name]) for name in self.groups]
        action, *self.memory = self.program(*inputs, *self.memory)
        return action.numpy()


class NamedInputs:
    """Gives a `RobotRunner` the components of each group by the names that the environment gave them, so that an order
    of the contract which is not that of the environment shows."""

    def __init__(self, runner: Exported, spec: EnvSpec) -> None:
        self.runner, self.places = runner, {}
        for group in spec.groups:
            names = [component.name for component in group.components]
            if group.is_vector and len(set(names)) == len(names):
                self.places[group.name] = {name: group.columns(name) for name in names}

    def reset(self, rows: Any = None) -> None:
        self.runner.reset(rows)

    def __call__(self, observation: Mapping[str, Any]) -> np.ndarray:
        named = {group: self._named(group, value) for group, value in observation.items()}
        return self.runner(named)

    def _named(self, group: str, value: np.ndarray) -> Any:
        places = self.places.get(group)
        return value if places is None else {name: value[..., place] for name, place in places.items()}


class Row(NamedTuple):
    """One step of all instances."""

    observation: dict[str, np.ndarray]
    starts: np.ndarray
    """Where what is remembered is forgotten before the step, bool [B]."""
    action: np.ndarray
    """What the policy did, within limits."""
    compared: np.ndarray
    """Where that does not follow from a choice between near equals, bool [B]."""


@dataclass(frozen=True)
class Recording:
    """What the policy saw and did."""

    spec: EnvSpec
    """Of the environment."""
    rows: list[Row]
    observations: int
    episodes: int

    @property
    def near_ties(self) -> int:
        """Steps that follow from a choice between near equals."""
        return sum(int(np.count_nonzero(~row.compared)) for row in self.rows)

    @property
    def share_at_limits(self) -> float:
        """How many of the continuous actions are at one of their limits."""
        action = self.spec.action
        if action.kind != "continuous":
            return 0.0
        actions = np.stack([row.action for row in self.rows])
        low, high = np.asarray(action.low, dtype=np.float32), np.asarray(action.high, dtype=np.float32)
        return float(np.mean((actions <= low) | (actions >= high)))


@dataclass(frozen=True)
class Proof:
    """What was compared, and the largest difference of actions by file and part."""

    observations: int
    episodes: int
    driven_steps: int
    share_at_limits: float
    """Actions at a limit, where differences do not show."""
    differences: dict[str, float]
    near_ties: int = 0
    """Steps that are not compared, because they follow from a choice between near equals."""

    @property
    def largest(self) -> float:
        """NaN, if any is."""
        return float(np.max(list(self.differences.values())))

    def check(self, what: str, tolerance: float = TOLERANCE, moved: float = 0.0) -> None:
        """Refuse an export whose actions differ by more than `tolerance`; `moved` is what rounding alone may do."""
        if self.largest <= tolerance:
            return
        worst = next(name for name, value in self.differences.items() if not value <= tolerance)
        told = f"{worst} the actions differ by {self.differences[worst]:.3g}, more than {tolerance:g}"
        if self.largest <= moved <= MOST_ROUNDING:
            raise ExportError(
                f"the export of {what} is not proven: {told}, so nothing was written; rounding does as much, because "
                f"the policy's own actions move by {moved:.3g} where each number that it sees is the next float; take "
                f"it as it is by --tolerance {2.0 * self.largest:.0e}"
            )
        raise ExportError(
            f"the export of {what} is not its policy: {told}, so nothing was written; a part of the policy acts "
            "otherwise when it is exported, most often because it remembers something that is not among its memories"
        )


class Ties:
    """Follows which instances do what a choice between near equals asks for; `act` is asked before each step."""

    def __init__(self, act: Actor) -> None:
        self.margin = getattr(act, "choice_margin", None)
        self.open: Tensor | None = None

    def compared(self, obs: Observation) -> np.ndarray:
        """Where the next actions are to be compared, bool [B]."""
        margin = None if self.margin is None else self.margin(obs)
        if margin is None:
            return np.ones(len(next(iter(obs.values()))), dtype=bool)
        before = torch.zeros_like(margin, dtype=torch.bool) if self.open is None else self.open
        self.open = torch.where(torch.isfinite(margin), margin < NEAR_TIE, before)
        return (~self.open).cpu().numpy()


@torch.inference_mode()
def record(env: VecEnv, act: Actor, groups: tuple[str, ...]) -> Recording:
    """At least `OBSERVATIONS` of at least `EPISODES` episodes, played as evaluations are."""
    obs = env.reset(seed=list(range(env.num_envs)))
    act.reset()
    starts = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
    rows: list[Row] = []
    ties = Ties(act)
    seen, episodes, steps = 0, env.num_envs, math.ceil(4 * OBSERVATIONS / env.num_envs)
    for _ in range(steps):  # of environments that reset in rows of their own, many may not count
        observation, compared = _arrays(obs, groups), ties.compared(obs)
        action = limited(act(obs), env.spec.action)
        rows.append(Row(observation, starts.cpu().numpy().copy(), action.cpu().numpy().copy(), compared))
        step = env.step(action)
        ended = step.terminated | step.truncated
        starts = ended if step.valid is None else ended | ~step.valid
        seen += env.num_envs if step.valid is None else int(step.valid.sum())
        if seen >= OBSERVATIONS and episodes >= EPISODES:
            break
        episodes += int(ended.sum())
        act.reset(starts)
        obs = step.obs
    return Recording(env.spec, rows, seen, episodes)


def replay(recording: Recording, exported: Exported) -> float:
    """The largest difference between what the policy did and what `exported` does of the same observations."""
    exported.reset()
    largest = 0.0
    for row in recording.rows:
        exported.reset(row.starts)
        found = exported(row.observation)
        same = found.shape == row.action.shape
        kept = row.compared if same else slice(None)
        largest = _larger(largest, difference(found[kept], row.action[kept]))
    return largest


def moved_by_rounding(recording: Recording, one: Exported, other: Exported) -> float:
    """By how much actions move where each number of an observation is the next float: `one` and `other` are the same
    policy twice, with a memory each."""
    largest = 0.0
    for each in (one, other):
        each.reset()
    for row in recording.rows:
        for each in (one, other):
            each.reset(row.starts)
        following = {
            name: np.nextafter(value, value.dtype.type(np.inf)) if value.dtype.kind == "f" else value
            for name, value in row.observation.items()
        }
        wanted, found = one(row.observation), other(following)
        largest = _larger(largest, difference(found[row.compared], wanted[row.compared]))
    return largest


@torch.inference_mode()
def drive(env: VecEnv, act: Actor, exported: Exported, groups: tuple[str, ...], seed: int) -> tuple[float, int]:
    """Let `exported` drive an episode of a single instance; the largest difference to what the policy would do of the
    same observations, and the steps."""
    obs = env.reset(seed=[seed])
    act.reset()
    exported.reset()
    largest, steps, ended, ties = 0.0, 0, False, Ties(act)
    while steps < DRIVEN_STEPS and not ended and math.isfinite(largest):
        action = exported(_arrays(obs, groups))
        compared = bool(ties.compared(obs).all())
        wanted = limited(act(obs), env.spec.action).cpu().numpy()
        if compared:
            largest = _larger(largest, difference(action, wanted))
        if math.isfinite(largest):
            step = env.step(torch.as_tensor(action).to(env.device))
            obs, ended = step.obs, bool((step.terminated | step.truncated).any())
        steps += 1
    return largest, steps


def difference(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference of actions, NaN if one is no number or shapes differ; other choices differ by 1."""
    if found.shape != wanted.shape:
        return math.nan
    if wanted.dtype.kind != "f":
        return float(np.any(found != wanted))
    with np.errstate(invalid="ignore"):
        return float(np.max(np.abs(found - wanted) / np.maximum(1.0, np.abs(wanted)), initial=0.0))


def _larger(one: float, other: float) -> float:
    return float(np.maximum(one, other))  # NaN, if one of them is


def _arrays(obs: Observation, groups: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Copies: environments use their memory again."""
    return {name: _array(obs[name]) for name in groups}


def _array(value: Tensor) -> np.ndarray:
    return value.detach().cpu().numpy().copy()
