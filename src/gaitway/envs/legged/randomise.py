"""How models differ from episode to episode, and what pushes robots about: draws as functions of uniform numbers.

What is drawn is stored in the layout of an episode; whoever simulates writes it into the fields of the model, always
from the nominal numbers, so that nothing drifts.

| name | size | what | field |
|---|---|---|---|
| `friction` | 1 | of the feet | `geom_friction` |
| `payload` | 1 | kg on the base | `body_mass`, `body_inertia` |
| `com` | 3 | where the base's centre of mass is, m | `body_ipos` |
| `link_mass` | 1 | factor of all other bodies | `body_mass`, `body_inertia` |
| `kp`, `kd` | A | factors of the gains | `actuator_gainprm`, `actuator_biasprm` |
| `strength` | A | common factor of a motor | the same |
| `encoder` | A | rad by which a joint is misread | `actuator_biasprm`, observations |
| `friction_loss`, `damping`, `armature` | 1 | factors of the joints | `dof_frictionloss`, ... |
| `delay` | 1 | s from target to force, whole substeps | `actuator_delay` |
| `gravity` | 3 | added to gravity, m/s2 | `opt.gravity` |
| `gravity_bias` | 3 | of the observed gravity | none |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from gaitway.core.config import configuration
from gaitway.core.ranges import IN_ORDER, NotNegative, Number, Positive, WholeNumber
from gaitway.envs.episode_numbers import Index
from gaitway.envs.legged.frame import RobotTensors

Factors = Annotated[tuple[Positive, Positive], IN_ORDER]
Interval = Annotated[tuple[Number, Number], IN_ORDER]
Wait = Annotated[tuple[Positive, Positive], IN_ORDER]
FADE = 0.9
"""How fast a kick fades from what critics see, per step."""
PUSH_DRAWS = 8
HISTORY = 64
"""Substeps for which motors keep targets, at most: eight control steps of most robots, as long as their sensors do."""


@configuration(kw_only=True)
class RandomiseConfig:
    """How models differ; null leaves a quantity nominal."""

    enabled: bool = True
    friction: Factors | None = (0.4, 1.25)
    """Of the feet."""
    payload: Interval | None = (-1.0, 2.0)
    """kg"""
    com: tuple[NotNegative, NotNegative, NotNegative] | None = (0.03, 0.03, 0.02)
    """+- m along x, y, z"""
    link_mass: Factors | None = (0.9, 1.1)
    gains: Factors | None = (0.9, 1.1)
    """Factors of kp and of kd, for each joint."""
    strength: Factors | None = (0.9, 1.1)
    encoder: NotNegative = 0.02
    """+- rad"""
    friction_loss: Factors | None = (0.5, 2.0)
    damping: Factors | None = (0.8, 1.2)
    armature: Factors | None = (0.9, 1.1)
    delay: WholeNumber = 0
    """Targets reach their motors up to so many substeps later, at most `HISTORY`."""
    gravity: NotNegative = 0.0
    """+- m/s2 per axis"""
    gravity_bias: NotNegative = 0.02

    def __post_init__(self) -> None:
        if self.delay > HISTORY:
            raise ValueError(
                f"randomise.delay is {self.delay} substeps, longer than the history: motors keep the targets of "
                f"{HISTORY}; use at most {HISTORY}"
            )


@configuration(kw_only=True)
class PushConfig:
    """Kicks change the velocity at once, force pushes act for a moment; null: none."""

    kick_seconds: Wait | None = None
    """Time between kicks."""
    kick: NotNegative = 0.5
    """+- m/s along x and y"""
    kick_turn: NotNegative = 0.3
    """+- rad/s about each axis"""
    push_seconds: Wait | None = None
    """Time between pushes."""
    push: NotNegative = 1.5
    """Largest change of velocity (m/s) by a push."""
    push_lasts: Wait = (0.05, 0.2)
    """s"""


@dataclass(frozen=True)
class Places:
    """Where in a model the robot's parts are."""

    base: int
    foot_geoms: Tensor
    """int64"""


MODEL_FIELDS = (
    *("geom_friction", "body_mass", "body_inertia", "body_ipos", "actuator_gainprm", "actuator_biasprm"),
    *("dof_frictionloss", "dof_damping", "dof_armature", "opt.gravity"),
)
"""Fields of the model that differ by instance; with delays also `actuator_delay`."""


def layout_shapes(robot: RobotTensors) -> dict[str, tuple[int, ...]]:
    joints, one, three = (robot.size,), (1,), (3,)
    return {
        **dict.fromkeys(("friction", "payload", "link_mass", "friction_loss", "damping", "armature", "delay"), one),
        **dict.fromkeys(("com", "gravity", "gravity_bias"), three),
        **dict.fromkeys(("kp", "kd", "strength", "encoder"), joints),
    }


MODEL_NAMES = frozenset(
    ("friction", "payload", "com", "link_mass", "kp", "kd", "strength", "encoder", "friction_loss", "damping")
) | {"armature", "delay", "gravity"}


def draws_needed(robot: RobotTensors) -> int:
    return sum(math.prod(shape) for shape in layout_shapes(robot).values())


class ModelDraws:
    """How the models of episodes differ, as one affine function of uniform numbers: nominal ones have no width."""

    def __init__(self, config: RandomiseConfig, robot: RobotTensors, friction: float, timestep: float) -> None:
        """`friction` is the feet's nominal one."""
        self._sizes = [size for (size,) in layout_shapes(robot).values()]
        self._names = tuple(layout_shapes(robot))
        self._delays, self._timestep = config.delay + 1 if config.enabled else 0, timestep
        on = config.enabled

        def between(limits: tuple[float, float] | None, nominal: float) -> tuple[float, float]:
            return limits if limits is not None and on else (nominal, nominal)

        def around(width: float) -> tuple[float, float]:
            return (-width, width) if on else (0.0, 0.0)

        factors = {
            **{"friction": (config.friction, friction), "payload": (config.payload, 0.0)},
            **{"link_mass": (config.link_mass, 1.0), "kp": (config.gains, 1.0), "kd": (config.gains, 1.0)},
            **{"strength": (config.strength, 1.0), "friction_loss": (config.friction_loss, 1.0)},
            **{"damping": (config.damping, 1.0), "armature": (config.armature, 1.0)},
        }
        spans = {name: [between(*each)] for name, each in factors.items()}
        spans |= {"encoder": [around(config.encoder)], "gravity": [around(config.gravity)], "delay": [(0.0, 1.0)]}
        spans |= {
            "gravity_bias": [around(config.gravity_bias)],
            "com": [around(width) for width in config.com or (0, 0, 0)],
        }
        rows = [
            spans[name][k % len(spans[name])]
            for name, size in zip(self._names, self._sizes, strict=True)
            for k in range(size)
        ]
        self._low, high = (robot.pose.new_tensor([row[end] for row in rows]) for end in (0, 1))
        self._width = high - self._low

    def __call__(self, uniform: Tensor) -> dict[str, Tensor]:
        """[n, draws_needed] -> [n, size] by name."""
        drawn = torch.addcmul(self._low, self._width, uniform).split(self._sizes, 1)
        found = dict(zip(self._names, drawn, strict=True))
        found["delay"] = torch.floor(found["delay"] * self._delays) * self._timestep
        return found


def write_model(
    fields: Mapping[str, Tensor], nominal: Mapping[str, Tensor], layout: Mapping[str, Tensor], rows: Index, of: Places
) -> None:
    """Write what `layout` [B, ...] says about `rows` into fields of their models [B, ...], from nominal ones [...]."""
    drawn = {name: layout[name][rows] for name in layout if name in MODEL_NAMES}
    apart = rows if isinstance(rows, slice) else rows.unsqueeze(1)
    fields["geom_friction"][apart, of.foot_geoms, 0] = drawn["friction"].expand(-1, len(of.foot_geoms))
    mass = nominal["body_mass"] * drawn["link_mass"]
    mass[:, of.base] = nominal["body_mass"][of.base] + drawn["payload"][:, 0]
    mass[:, 0] = nominal["body_mass"][0]
    ratio = mass / nominal["body_mass"].clamp(min=1e-12)
    fields["body_mass"][rows] = mass
    fields["body_inertia"][rows] = nominal["body_inertia"] * ratio[..., None]
    fields["body_ipos"][rows, of.base] = nominal["body_ipos"][of.base] + drawn["com"]
    kp, kd = (nominal[name] * drawn[name] * drawn["strength"] for name in ("kp", "kd"))
    fields["actuator_gainprm"][rows, :, 0] = kp
    fields["actuator_biasprm"][rows, :, 0] = -kp * drawn["encoder"]
    fields["actuator_biasprm"][rows, :, 1] = -kp
    fields["actuator_biasprm"][rows, :, 2] = -kd
    for field, name in (
        ("dof_frictionloss", "friction_loss"),
        ("dof_damping", "damping"),
        ("dof_armature", "armature"),
    ):
        fields[field][rows] = nominal[field] * drawn[name]
    fields["opt.gravity"][rows] = nominal["opt.gravity"] + drawn["gravity"]
    if "actuator_delay" in fields:
        fields["actuator_delay"][rows] = drawn["delay"].expand(-1, nominal["kp"].shape[0])


def draw_kick(config: PushConfig, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Changes of the base's velocity [n, 6] (linear in the world, angular in the base) and seconds to the next [n]."""
    centred = 2.0 * uniform[:, :5] - 1.0
    linear, turning = config.kick * centred[:, :2], config.kick_turn * centred[:, 2:5]
    change = torch.cat((linear, torch.zeros_like(linear[:, :1]), turning), 1)
    return change, _wait(config.kick_seconds, uniform[:, 5])


def draw_push(config: PushConfig, uniform: Tensor, mass: float) -> tuple[Tensor, Tensor, Tensor]:
    """Impulses [n, 2] (N s), how long they last [n] and seconds to the next [n]."""
    impulse, angle = mass * config.push * uniform[:, 0], 2.0 * math.pi * uniform[:, 1]
    low, high = config.push_lasts
    ways = torch.stack((impulse * angle.cos(), impulse * angle.sin()), 1)
    return ways, low + (high - low) * uniform[:, 2], _wait(config.push_seconds, uniform[:, 3])


def push_force(impulse: Tensor, lasts: Tensor, gone: Tensor, dt: float) -> Tensor:
    """Mean force [n, 2] over the next `dt` seconds of a half sine that gives `impulse` [n, 2] in `lasts` seconds [n],
    of which `gone` [n] are over."""
    now, then = (gone / lasts).clamp(0.0, 1.0), ((gone + dt) / lasts).clamp(0.0, 1.0)
    share = (torch.cos(math.pi * now) - torch.cos(math.pi * then)) / 2.0
    return impulse * (share / dt)[:, None]


def _wait(limits: tuple[float, float] | None, uniform: Tensor) -> Tensor:
    if limits is None:
        return torch.full_like(uniform, math.inf)
    return limits[0] + (limits[1] - limits[0]) * uniform
