"""How an environment describes itself: observation groups of named components, actions with names and limits, and what
drives the robot. Policies are built from an `EnvSpec` and checked against it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

import torch
from torch import Tensor

from gaitway.core.config import from_config
from gaitway.core.ranges import Count, Integer, Limit, NotNegative, Number, Positive, WholeNumber
from gaitway.core.results import costs_of

REWARD_PARTS = ("reward_", "reward/")
"""How metrics begin that are parts of the reward."""
EVENTS = ("fell", "success", "is_success", "physics_error")
"""Metrics that say whether something happened, in every environment that has them."""


@dataclass(frozen=True)
class Component:
    """One named piece of an observation group, e.g. `Component("knee", 1, "rad")`."""

    name: str
    size: WholeNumber = 1
    unit: str = ""
    scale: Number = 1.0
    """What is shown is the quantity in its unit, less `offset`, times this."""
    offset: Number = 0.0
    """What is subtracted before the scale, in the unit."""
    clip: Positive | None = None
    """What is shown lies between this and its negative; None: anywhere."""
    noise: NotNegative = field(default=0.0, compare=False)
    """Half-width of the uniform noise that training adds before the scale, in the unit."""
    frame: str = ""
    """In which frame a vector is told: "base", "imu" (`Drive.imu`), "yaw" (turned about the vertical alone), "world";
    empty: none."""
    history: Count = 1
    """Values of so many steps one after another, oldest first; `size` counts all of them."""
    steps_ago: WholeNumber = field(default=0, compare=False)
    """How old the value is where steps of the past are components of their own, whose names say it too."""

    def __post_init__(self) -> None:
        if self.size % self.history:
            raise ValueError(
                f"component {self.name!r} has a size of {self.size}, which {self.history} steps of history do not "
                "share equally; make size a multiple of history"
            )


SAID_OF_COMPONENTS = ("scale", "offset", "clip", "noise", "frame", "history", "steps_ago")
"""What files say about a component only where there is something to say."""


@dataclass(frozen=True)
class ObservationGroup:
    """A named tensor `[B, *shape]` that the environment emits; its components lie in this order on the last axis."""

    name: str
    components: tuple[Component, ...]
    shape: tuple[WholeNumber, ...]
    dtype: str = "float32"
    heading: str = ""
    """How the Humanoids' feet in it are turned, "original" or "corrected"; empty where there are none."""

    def __post_init__(self) -> None:
        if not isinstance(getattr(torch, self.dtype, None), torch.dtype):
            raise ValueError(f"group {self.name!r} has the type {self.dtype!r}; use one of torch, such as float32")
        size = sum(component.size for component in self.components)
        if len(self.shape) == 1 and size != self.shape[0]:
            raise ValueError(f"group {self.name!r} has shape {self.shape} but its components add up to {size}")

    @property
    def torch_dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype)

    @property
    def is_vector(self) -> bool:
        return len(self.shape) == 1

    def columns(self, name: str) -> slice:
        """Where component `name` lies on the last axis."""
        start = 0
        for component in self.components:
            if component.name == name:
                return slice(start, start + component.size)
            start += component.size
        raise KeyError(f"no component {name!r} in group {self.name!r}; it has {[c.name for c in self.components]}")


@dataclass(frozen=True)
class ActionSpec:
    """The actions of `step`: continuous `[B, A]` floats, discrete `[B]` int64, or multi_discrete `[B, K]` int64."""

    kind: str
    """"continuous", "discrete" or "multi_discrete"."""
    names: tuple[str, ...]
    """One per action dimension (discrete: one)."""
    low: tuple[Limit, ...] = ()
    """Continuous: lower limit per dimension, -inf if there is none."""
    high: tuple[Limit, ...] = ()
    choices: tuple[Count, ...] = ()
    """Discrete: (n,); multi_discrete: how many values each dimension has."""
    start: tuple[Integer, ...] = ()
    """Discrete kinds: the smallest value of each dimension, empty for zeros."""
    unit: str = ""
    scale: tuple[Number, ...] = ()
    """Continuous: what the action stands for is `offset + scale * action` in `unit`; empty: 1, the action itself."""
    offset: tuple[Number, ...] = ()
    """The same per dimension, e.g. the joint angles of a pose; empty: 0."""
    meaning: str = ""
    """What an action does, e.g. "joint_offset": targets of the joints are `offset + scale * action`; empty: controls of
    the simulator."""

    def __post_init__(self) -> None:
        if self.kind not in ("continuous", "discrete", "multi_discrete"):
            raise ValueError(f"action kind is {self.kind!r}; use continuous, discrete or multi_discrete")
        if self.kind == "continuous" and not len(self.names) == len(self.low) == len(self.high):
            raise ValueError(
                f"{len(self.names)} action names, {len(self.low)} lower and {len(self.high)} upper limits must agree"
            )
        if self.kind != "continuous" and len(self.choices) != len(self.names):
            raise ValueError(f"{len(self.names)} action names but {len(self.choices)} numbers of choices")
        for name, values in (("scale", self.scale), ("offset", self.offset)):
            if values and (self.kind != "continuous" or len(values) != len(self.names)):
                raise ValueError(
                    f"{name} has {len(values)} numbers for {len(self.names)} {self.kind} actions; continuous ones have "
                    "one each, or none is given"
                )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one instance's action."""
        return () if self.kind == "discrete" else (len(self.names),)

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32 if self.kind == "continuous" else torch.int64

    def idle(self) -> Tensor:
        """One instance's action that does as little as can be: 0 or what is nearest to it; of choices, the first."""
        if self.kind == "continuous":
            low, high = (torch.tensor(limit, dtype=self.dtype) for limit in (self.low, self.high))
            return torch.zeros(self.shape, dtype=self.dtype).clamp(low, high)
        return torch.tensor(self.start or [0] * len(self.choices), dtype=self.dtype).view(self.shape)


@dataclass(frozen=True)
class Imu:
    """Where on the base body velocity, angular velocity and gravity are measured, in components of the frame "imu"."""

    site: str
    position: tuple[Number, Number, Number]
    """In the base (m)."""
    rotation: tuple[Number, Number, Number, Number]
    """Quaternion w x y z that turns vectors of its frame into those of the base."""


@dataclass(frozen=True)
class Drive:
    """What executes the actions of a robot: force = kp (target - position) - kd velocity within +-effort, at every
    substep of the physics. All tuples have one entry per joint, in this order."""

    joints: tuple[str, ...]
    default_pose: tuple[Number, ...]
    """rad, m"""
    kp: tuple[Number, ...]
    """N m / rad"""
    kd: tuple[Number, ...]
    """N m s / rad"""
    effort: tuple[Number, ...]
    """N m"""
    physics_dt: NotNegative
    """Seconds per substep."""
    quaternion: str = "wxyz"
    """The order of quaternions."""
    imu: Imu | None = None
    """What measures how the base moves; None: the base body's own frame does."""

    def __post_init__(self) -> None:
        for name in ("default_pose", "kp", "kd", "effort"):
            if len(getattr(self, name)) != len(self.joints):
                raise ValueError(f"{name} has {len(getattr(self, name))} numbers for {len(self.joints)} joints")
        if self.quaternion not in ("wxyz", "xyzw"):
            raise ValueError(f"quaternion is {self.quaternion!r}; use wxyz or xyzw")


@dataclass(frozen=True)
class Pooled:
    """A figure of several episodes together: the sum of one metric over the sum of another."""

    of: str
    per: str
    root: bool = False
    """The square root of it, e.g. of a mean square."""
    factor: Number = 1.0
    least: NotNegative = 0.0
    """Episodes with less than this of `least_of` are left out, e.g. those that hardly moved."""
    least_of: str | None = None
    """Null: `per`."""
    angle: bool = False
    """The sums are sines and cosines: their angle, as a share of a turn from 0 to 1."""

    @property
    def sums(self) -> tuple[str, ...]:
        """The metrics that it is made of."""
        return self.of, self.per, *(() if self.least_of is None else (self.least_of,))

    def __call__(self, table: Mapping[str, Tensor]) -> float:
        """The figure of episodes [n] by metric; those whose numbers are not finite are left out."""
        of, per = table[self.of].double(), table[self.per].double()
        known = torch.isfinite(of) & torch.isfinite(per)
        if self.angle:
            sine, cosine = float(of[known].sum()), float(per[known].sum())
            return math.atan2(sine, cosine) / (2.0 * math.pi) % 1.0 if sine or cosine else math.nan
        known &= (per if self.least_of is None else table[self.least_of]) >= self.least
        total = float(per[known].sum())
        if total <= 0.0:
            return math.nan
        found = self.factor * float(of[known].sum()) / total
        return math.sqrt(found) if self.root else found


@dataclass(frozen=True)
class EnvSpec:
    """The description of an environment from which policies are built and against which they are checked."""

    id: str
    groups: tuple[ObservationGroup, ...]
    action: ActionSpec
    control_dt: NotNegative
    """Seconds per step, 0 if the task has no clock."""
    max_episode_steps: WholeNumber
    """Steps after which an episode is truncated, 0 for never."""
    metrics: tuple[str, ...] = ()
    """Names in `Step.metrics`; those ending in `_episode` are totals, valid where the episode ended."""
    flags: tuple[str, ...] = ()
    """Those of `metrics` that say whether something happened, 0 or 1: counted once per episode, not averaged over
    steps. Those of `EVENTS` are counted so without being named."""
    reductions: Mapping[str, str] = field(default_factory=dict)
    """How a metric becomes one number of an episode, where that is not its mean over the steps: `sum` or `last`."""
    pooled: Mapping[str, Pooled] = field(default_factory=dict)
    """Figures of an evaluation that are no means over its episodes, of totals of episodes."""
    reset_rows: bool = False
    """True if the environment needs a step of its own to reset after an end; `Step.valid` is false in that step."""
    final_observations: Literal["exact", "previous"] = "exact"
    """What `final_obs` holds where an episode ended: the final observation, or, of simulators that do not tell it, the
    one before the last step. Values at time limits are then those of that observation, and motion priors leave such
    steps out."""
    exact_state: bool = True
    """True if an environment restored by `load_state_dict` continues bit for bit."""
    restores_state: bool = False
    """Without `exact_state`: a restored environment has the same state and goes on from there, not bit for bit."""
    one_per_process: bool = False
    """True if its simulator runs once in a process: a run then has its own environment alone, without evaluations,
    films and what is measured before it."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of `make_env` that differ from the task's own defaults."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Further plain facts that later users of a policy need, by subject: a goal space, what counts as heading."""
    drive: Drive | None = None
    """What executes the actions, where they are targets of joints; None: nothing is said about it."""

    def __post_init__(self) -> None:
        if unknown := [name for name in self.flags if name not in self.metrics]:
            raise ValueError(f"flags of {self.id} names {unknown[0]!r}, which is not among its metrics: add it there")
        for name, figure in self.pooled.items():
            if unknown := [each for each in figure.sums if each not in self.metrics]:
                raise ValueError(f"pooled of {self.id} has {name!r} of {unknown[0]!r}, which is not among its metrics")
        for name, reduction in self.reductions.items():
            if name not in self.metrics or reduction not in ("mean", "sum", "last"):
                raise ValueError(
                    f"reductions of {self.id} has {name!r}: {reduction!r}; use its metrics, and mean, sum or last"
                )

    @property
    def keeps_episodes(self) -> bool:
        """Whether episodes go on in a restored environment; else new ones begin."""
        return self.exact_state or self.restores_state

    @property
    def events(self) -> frozenset[str]:
        """The metrics that an episode has or has not: 1 if they were at any of its steps."""
        return frozenset((*EVENTS, *self.flags))

    @property
    def ingredients(self) -> frozenset[str]:
        """The metrics that pooled figures are made of: sums that say nothing by themselves."""
        return frozenset(name for figure in self.pooled.values() for name in figure.sums)

    @property
    def costs(self) -> frozenset[str]:
        """Results of evaluations of which less is better: falls, faults, and what `facts["costs"]` names."""
        return costs_of(self.facts)

    @property
    def reward_parts(self) -> tuple[str, ...]:
        """The metrics that are parts of the reward: called so, or terms of a legged task's reward."""
        terms = {f"{term}_episode" for term in self.facts.get("legged", {}).get("rewards", ())}
        return tuple(name for name in self.metrics if name.startswith(REWARD_PARTS) or name in terms)

    def reduction(self, name: str) -> str:
        """How metric `name` becomes one number of an episode: `total` (told at its end), `any`, `mean`, `sum` or
        `last`."""
        if name.endswith("_episode"):
            return "total"
        return "any" if name in self.events else self.reductions.get(name, "mean")

    def group(self, name: str) -> ObservationGroup:
        for group in self.groups:
            if group.name == name:
                return group
        raise KeyError(f"environment {self.id!r} has no observation group {name!r}; it has {self.group_names}")

    @property
    def group_names(self) -> list[str]:
        return [group.name for group in self.groups]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, as stored in `contract.json`."""
        plain = asdict(self)
        plain |= {name: dict(getattr(self, name)) for name in ("options", "facts", "reductions")}
        _say_only(plain, EnvSpec, ("drive", "final_observations", "restores_state", "one_per_process"))
        for figure in plain["pooled"].values():
            _say_only(figure, Pooled, ("least_of",))
        if not self.pooled:
            del plain["pooled"]
        if self.drive is not None:
            _say_only(plain["drive"], Drive, ("imu",))
        _say_only(plain["action"], ActionSpec, ("scale", "offset", "meaning"))
        for group in plain["groups"]:
            _say_only(group, ObservationGroup, ("heading",))  # said where there are feet
            for component in group["components"]:
                _say_only(component, Component, SAID_OF_COMPONENTS)
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> EnvSpec:
        """The inverse; a ValueError that names what is missing or wrong."""
        action = plain.get("action") if isinstance(plain, Mapping) else None
        if isinstance(action, Mapping):
            plain = {**plain, "action": with_infinities(action)}
        return from_config(cls, plain)


def with_infinities(action: Mapping[str, Any]) -> dict[str, Any]:
    """The plain form of an `ActionSpec` with infinite limits where JSON, which has none, holds null."""
    found = dict(action)
    for name, limit in (("low", -math.inf), ("high", math.inf)):
        if isinstance(found.get(name), list | tuple):
            found[name] = [limit if value is None else value for value in found[name]]
    return found


def _say_only(plain: dict[str, Any], cls: type, names: Sequence[str]) -> None:
    """Leave out what is as it is by default, so that files say only what there is to say."""
    defaults = {each.name: each.default for each in fields(cls)}
    for name in names:
        if plain[name] == defaults[name]:
            del plain[name]
