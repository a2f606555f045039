"""What is seen: leaves, each a named vector with unit, scale and noise, and groups that are leaves one after another.

Shown is (quantity + noise) * scale, within +-100; noise is uniform, drawn anew in every step, the same for a leaf in
whatever group it stands. Leaves that end in `_true` are the clean twins of noisy ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from gaitway.core.config import did_you_mean
from gaitway.envs.legged.frame import Frame, RobotTensors, rotate_back
from gaitway.envs.spec import Component, ObservationGroup

CLIP = 100.0
FORCE_LIMIT = 200.0
"""N, of a foot as it is shown."""
COM_SPREAD = 0.05
IMU = "imu"
"""The frame of what is measured, the base's where a robot names no site for it."""


@dataclass
class Seen:
    """What leaves are functions of: a frame, and what else a task knows of its rows."""

    frame: Frame
    phase: Tensor
    """Of the gait, in cycles [n]."""
    drawn: Mapping[str, Tensor]
    """How the model of an episode differs, by name [n, ...] (`randomise.py`)."""
    push: Tensor
    """The last kick, fading [n, 3], and the running force over the robot's weight [n, 3]."""
    around: Mapping[str, Tensor] = field(default_factory=dict)
    """Leaves of the terrain [n, size] (`terrain/surroundings.py`)."""
    late: Tensor | None = None
    """How many steps ago was measured what is seen [n, 1] (`latency.py`); None: in this one."""


@dataclass(frozen=True)
class Leaf:
    """A named vector. `size` takes the robot and the number of actions."""

    size: Callable[[RobotTensors, int], int]
    value: Callable[[Seen], Tensor]
    unit: str = ""
    scale: float | tuple[float, ...] = 1.0
    noise: float = 0.0
    frame: str = ""
    parts: tuple[tuple[str, int], ...] = ()
    """Names and sizes, where its numbers are told apart; one of the sizes may be 0: the rest."""


def _axes(kept: slice) -> Callable[[Tensor, RobotTensors], Tensor]:
    """The columns of a vector that a planar robot has."""
    return lambda vector, robot: vector[:, kept] if robot.is_planar else vector


_linear, _turning, _forward = _axes(slice(0, 3, 2)), _axes(slice(1, 2)), _axes(slice(0, 1))


def _vector(planar: int, full: int = 3) -> Callable[[RobotTensors, int], int]:
    return lambda robot, actions: planar if robot.is_planar else full


def _joints(robot: RobotTensors, actions: int) -> int:
    return robot.size


def _feet(count: int) -> Callable[[RobotTensors, int], int]:
    return lambda robot, actions: robot.feet * count


def _fixed(count: int) -> Callable[[RobotTensors, int], int]:
    return lambda robot, actions: count


def _in_base(vector: Tensor, frame: Frame) -> Tensor:
    """World vectors of feet [n, F, 3] in the base frame [n, 3 F]."""
    rotation = frame.rotation[:, None].expand(-1, vector.shape[1], -1)
    return rotate_back(rotation, vector).flatten(1)


def _robot_config(seen: Seen) -> Tensor:
    """Friction of the feet, where the base's centre of mass is (/0.05), payload (kg), strength of each motor - 1."""
    drawn = seen.drawn
    return torch.cat(
        (drawn["friction"], drawn["com"] / COM_SPREAD, drawn["payload"], drawn["strength"] - 1.0),
        1,
    )


def _roll_pitch_yaw(frame: Frame) -> Tensor:
    w, i, j, k = frame.rotation.unbind(1)
    roll = torch.atan2(2.0 * (w * i + j * k), 1.0 - 2.0 * (i * i + j * j))
    pitch = torch.asin((2.0 * (w * j - k * i)).clamp(-1.0, 1.0))
    return torch.stack((roll, pitch, frame.yaw), 1)


LIN_VEL = Leaf(_vector(2), lambda s: _linear(s.frame.imu_lin_vel, s.frame.robot), "m/s", 2.0, 0.1, IMU)
ANG_VEL = Leaf(_vector(1), lambda s: _turning(s.frame.imu_ang_vel, s.frame.robot), "rad/s", 0.25, 0.2, IMU)
GRAVITY = Leaf(
    _vector(2), lambda s: _linear(s.frame.imu_gravity + s.drawn["gravity_bias"], s.frame.robot), "", 1.0, 0.05, IMU
)
DOF_POS = Leaf(_joints, lambda s: s.frame.q + s.drawn["encoder"] - s.frame.robot.pose, "rad", 1.0, 0.01)
DOF_VEL = Leaf(_joints, lambda s: s.frame.qd, "rad/s", 0.05, 1.5)


def _clean(leaf: Leaf, value: Callable[[Seen], Tensor] | None = None) -> Leaf:
    return Leaf(leaf.size, value or leaf.value, leaf.unit, leaf.scale, 0.0, leaf.frame)


def _around(name: str) -> Callable[[Seen], Tensor]:
    return lambda seen: seen.around[name]


TERRAIN_LEAVES: dict[str, Leaf] = {
    "terrain_level": Leaf(_fixed(1), _around("terrain_level"), "of the hardest"),
    "engaging_block": Leaf(
        _fixed(0),
        _around("engaging_block"),
        "m",
        parts=(("engaging_distance", 1), ("engaging_kind", 0), ("engaging_size", 2)),
    ),
    "sidewall_distance": Leaf(_fixed(2), _around("sidewall_distance"), "m"),
    "height_scan": Leaf(_fixed(0), _around("height_scan"), "m", 5.0, 0.1, "yaw"),
}
"""Of terrains alone, which say how large they are."""
IMAGE = "forward_depth"
"""The leaf that is an image, and a group by itself."""
LEAVES: dict[str, Leaf] = {
    **TERRAIN_LEAVES,
    "lin_vel": LIN_VEL,
    "ang_vel": ANG_VEL,
    "projected_gravity": GRAVITY,
    "commands": Leaf(_vector(1), lambda s: _forward(s.frame.command, s.frame.robot), "m/s, rad/s", (2.0, 2.0, 0.25)),
    "dof_pos": DOF_POS,
    "dof_vel": DOF_VEL,
    "last_actions": Leaf(lambda robot, actions: actions, lambda s: s.frame.action),
    "phase": Leaf(
        _fixed(2), lambda s: torch.stack(((2 * torch.pi * s.phase).sin(), (2 * torch.pi * s.phase).cos()), 1)
    ),
    "lin_vel_hidden": _clean(LIN_VEL, lambda s: torch.zeros_like(_linear(s.frame.lin_vel, s.frame.robot))),
    "lin_vel_true": _clean(LIN_VEL),
    "ang_vel_true": _clean(ANG_VEL),
    "gravity_true": _clean(GRAVITY, lambda s: _linear(s.frame.imu_gravity, s.frame.robot)),
    "dof_pos_true": _clean(DOF_POS, lambda s: s.frame.q - s.frame.robot.pose),
    "dof_vel_true": _clean(DOF_VEL),
    "yaw_velocity": Leaf(_vector(2), lambda s: _linear(s.frame.yaw_vel, s.frame.robot), "m/s", frame="yaw"),
    "ang_vel_unscaled": Leaf(_vector(1), lambda s: _turning(s.frame.imu_ang_vel, s.frame.robot), "rad/s", frame=IMU),
    "commands_unscaled": Leaf(_vector(1), lambda s: _forward(s.frame.command, s.frame.robot), "m/s, rad/s"),
    "base_pose": Leaf(
        _fixed(6),
        lambda s: torch.cat((s.frame.position, _roll_pitch_yaw(s.frame)), 1),
        "m, rad",
        (0.0, 0.0, 0.0, 1.0, 1.0, 1.0),
        frame="world",
    ),
    "base_height": Leaf(_fixed(1), lambda s: s.frame.height[:, None], "m", 5.0),
    "foot_contact": Leaf(_feet(1), lambda s: s.frame.contact.to(s.frame.height.dtype)),
    "foot_air_time": Leaf(_feet(1), lambda s: s.frame.air_time, "s"),
    "foot_force": Leaf(
        _feet(3), lambda s: _in_base(s.frame.foot_force, s.frame).clamp(-FORCE_LIMIT, FORCE_LIMIT), "N", 0.01, 0, "base"
    ),
    "foot_pos": Leaf(
        _feet(3),
        lambda s: _in_base(s.frame.foot_position - s.frame.position[:, None], s.frame),
        "m",
        frame="base",
    ),
    "foot_vel": Leaf(
        _feet(3),
        lambda s: _in_base(s.frame.foot_velocity - s.frame.velocity[:, None], s.frame),
        "m/s",
        0.2,
        frame="base",
    ),
    "joint_torque": Leaf(_joints, lambda s: s.frame.torque / s.frame.robot.effort, "of the limit"),
    "robot_config": Leaf(lambda robot, actions: 5 + robot.size, _robot_config),
    "gain_factors": Leaf(
        lambda robot, actions: 2 * robot.size, lambda s: torch.cat((s.drawn["kp"] - 1.0, s.drawn["kd"] - 1.0), 1)
    ),
    "latency": Leaf(_fixed(1), lambda s: s.drawn["delay"], "s", 50.0),
    "observation_latency": Leaf(
        _fixed(1), lambda s: torch.zeros_like(s.phase)[:, None] if s.late is None else s.late, "steps"
    ),
    "push": Leaf(_fixed(6), lambda s: s.push),
    "height_unscaled": Leaf(_fixed(1), lambda s: s.frame.height[:, None], "m"),
    "lin_vel_unscaled": Leaf(_vector(2), lambda s: _linear(s.frame.imu_lin_vel, s.frame.robot), "m/s", frame=IMU),
    "lin_vel_base": Leaf(_vector(2), lambda s: _linear(s.frame.lin_vel, s.frame.robot), "m/s", frame="base"),
    "ang_vel_base": Leaf(_vector(1), lambda s: _turning(s.frame.ang_vel, s.frame.robot), "rad/s", frame="base"),
    "gravity_base": Leaf(_vector(2), lambda s: _linear(s.frame.gravity, s.frame.robot), frame="base"),
    "dof_pos_absolute": Leaf(_joints, lambda s: s.frame.q, "rad"),
    "dof_vel_unscaled": Leaf(_joints, lambda s: s.frame.qd, "rad/s"),
}

PROPRIOCEPTION = ("lin_vel", "ang_vel", "projected_gravity", "commands", "dof_pos", "dof_vel", "last_actions")
POLICY = PROPRIOCEPTION[1:]
CLEAN = ("lin_vel_true", "ang_vel_true", "gravity_true", "commands", "dof_pos_true", "dof_vel_true", "last_actions")
CRITIC = (
    *CLEAN,
    *("base_height", "foot_contact", "foot_force", "foot_vel", "foot_air_time", "joint_torque"),
    *("robot_config", "gain_factors", "latency", "push"),
)
GAIT = ("yaw_velocity", "ang_vel_unscaled", "gravity_true", "commands_unscaled", "phase", "last_actions")
AMP = (
    *("height_unscaled", "gravity_true", "lin_vel_unscaled", "ang_vel_unscaled"),
    *("dof_pos_absolute", "dof_vel_unscaled", "foot_pos"),
)
"""What a motion prior compares, in the order of `MotionFeatures` with the feet as bodies."""
AMP_WITHOUT_GRAVITY = tuple(name for name in AMP if name != "gravity_true")
OF_BASE = {"gravity_true": "gravity_base", "lin_vel_unscaled": "lin_vel_base", "ang_vel_unscaled": "ang_vel_base"}
"""What a motion prior compares of robots with an IMU: clips know the base alone."""
AGGREGATES: dict[str, tuple[str, ...]] = {
    "amp": AMP,
    "amp_without_gravity": AMP_WITHOUT_GRAVITY,
    "proprioception": PROPRIOCEPTION,
    "policy": POLICY,
    "critic": CRITIC,
    "gait": GAIT,
    "field_teacher": (*PROPRIOCEPTION, "base_pose", "robot_config", "engaging_block", "sidewall_distance"),
    "field_student": ("lin_vel_hidden", *POLICY),
}
"""Names that stand for several leaves in a list of observations."""
PRIVILEGED_ALIAS = {
    "lin_vel": "lin_vel_true",
    "ang_vel": "ang_vel_true",
    "projected_gravity": "gravity_true",
    "dof_pos": "dof_pos_true",
    "dof_vel": "dof_vel_true",
}
"""Noisy leaves and their clean twins."""
MEASURED = tuple(PRIVILEGED_ALIAS)
"""What sensors tell, which may be late."""
TOLD = ("commands", "last_actions")
"""What a controller knows by itself."""


def amp_leaves(has_imu: bool) -> dict[str, tuple[str, ...]]:
    """What `amp` and `amp_without_gravity` stand for."""
    names = {"amp": AMP, "amp_without_gravity": AMP_WITHOUT_GRAVITY}
    if not has_imu:
        return names
    return {name: tuple(OF_BASE.get(leaf, leaf) for leaf in leaves) for name, leaves in names.items()}


def listed(lists: Mapping[str, Sequence[str]]) -> set[str]:
    """The leaves that groups consist of, aggregates written out."""
    return {leaf for names in lists.values() for name in names for leaf in AGGREGATES.get(name, (name,))}


class Observations:
    """The groups of a task: `groups` describes them, a call fills them."""

    def __init__(
        self,
        lists: Mapping[str, Sequence[str]],
        robot: RobotTensors,
        actions: int,
        noise: float,
        has_phase: bool,
        like: Tensor,
        around: Mapping[str, int] | None = None,
        image: ObservationGroup | None = None,
    ) -> None:
        """`around` are the leaves that the terrain has, and their sizes; `image` is what the camera shows."""
        around = around or {}
        has_imu = robot.imu_rotation is not None
        self.leaves = {group: _leaves(names, group, has_phase, around, has_imu) for group, names in lists.items()}
        self.images = tuple(group for group, names in self.leaves.items() if names == (IMAGE,))
        vectors = {group: names for group, names in self.leaves.items() if group not in self.images}
        self._vectors = vectors
        self._used = list(dict.fromkeys(name for names in vectors.values() for name in names))
        self.sizes = sizes = {name: around.get(name) or LEAVES[name].size(robot, actions) for name in self._used}
        """Of all leaves that somebody sees."""
        self._measures = {group: any(name in MEASURED for name in names) for group, names in vectors.items()}
        scales = {name: _scale(LEAVES[name], sizes[name]) for name in self._used}
        self.groups = tuple(
            replace(image, name=group)
            if image is not None and group in self.images
            else ObservationGroup(
                group,
                tuple(part for name in names for part in _components(name, sizes[name], scales[name], noise, has_imu)),
                (sum(sizes[name] for name in names),),
            )
            for group, names in self.leaves.items()
        )
        noisy = [name for name in self._used if LEAVES[name].noise and noise]
        starts = dict(zip(noisy, itertools.accumulate((sizes[name] for name in noisy), initial=0), strict=False))
        self.noise_size = sum(sizes[name] for name in noisy)
        self._scale = {
            group: like.new_tensor([scale for name in names for scale in scales[name]])
            for group, names in vectors.items()
        }
        self._noise: dict[str, tuple[Tensor, Tensor]] = {}
        """Of groups with noise: which random number each entry takes [D], and how much of it [D]."""
        for group, names in vectors.items():
            if any(name in starts for name in names):
                places = [
                    starts.get(name, 0) + k if name in starts else 0 for name in names for k in range(sizes[name])
                ]
                widths = [noise * LEAVES[name].noise for name in names for _ in range(sizes[name])]
                self._noise[group] = torch.tensor(places, device=like.device), like.new_tensor(widths)

    def values(self, seen: Seen, names: Iterable[str] | None = None) -> dict[str, Tensor]:
        """Leaves [n, size] as they are, all that somebody sees or those of `names`."""
        return {name: LEAVES[name].value(seen) for name in (self._used if names is None else names)}

    def __call__(
        self, values: Mapping[str, Tensor], uniform: Tensor | None, late: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        """Groups [n, D] of `values`; `uniform` [n, noise_size] in [0, 1), None where nothing is noisy.

        Groups with a leaf of `MEASURED` have values of `late` where there are any.
        """
        found = {}
        for group, names in self._vectors.items():
            known = {**values, **late} if late and self._measures[group] else values
            shown = torch.cat([known[name] for name in names], 1)
            if uniform is not None and group in self._noise:
                places, widths = self._noise[group]
                shown += widths * (2.0 * uniform[:, places] - 1.0)
            found[group] = shown.mul_(self._scale[group]).clamp_(-CLIP, CLIP)
        return found


def _leaves(
    names: Sequence[str], group: str, has_phase: bool, around: Mapping[str, int], has_imu: bool
) -> tuple[str, ...]:
    """A list with aggregates written out."""
    found: list[str] = []
    aggregates = AGGREGATES | amp_leaves(has_imu)
    for name in names:
        found += aggregates.get(name, (name,))
    for name in found:
        if (name in TERRAIN_LEAVES or name == IMAGE) and name not in around:
            has = f"has {sorted(around)}" if around else "has none of the kind"
            raise ValueError(f"group {group!r} lists {name}, and the terrain {has}; choose another, or remove it")
        if name == IMAGE and len(found) > 1:
            raise ValueError(f"group {group!r} lists forward_depth beside others; give the image a group of its own")
        if name not in LEAVES and name != IMAGE:
            known = [*LEAVES, *AGGREGATES, IMAGE]
            raise ValueError(f"no observation {name!r} for {group!r}{did_you_mean(name, known)}; there are {known}")
        if name == "phase" and not has_phase:
            raise ValueError(f"group {group!r} lists phase, and only gaits have one; remove it or use a gait mode")
        if found.count(name) > 1:
            raise ValueError(f"group {group!r} lists {name!r} twice; write it once")
    return tuple(found)


def _scale(leaf: Leaf, size: int) -> list[float]:
    return [leaf.scale] * size if isinstance(leaf.scale, float) else list(leaf.scale)[:size]


def _components(name: str, size: int, scales: Sequence[float], noise: float, has_imu: bool) -> tuple[Component, ...]:
    """One component for each part, else one where all numbers share a scale, else one for each."""
    leaf = LEAVES[name]
    frame = "base" if leaf.frame == IMU and not has_imu else leaf.frame
    facts = {"clip": CLIP, "noise": noise * leaf.noise, "frame": frame}
    if leaf.parts:
        rest = size - sum(count for _, count in leaf.parts)
        return tuple(Component(part, count or rest, leaf.unit, scale=scales[0], **facts) for part, count in leaf.parts)  # type: ignore[arg-type]
    if len(set(scales)) <= 1:
        return (Component(name, size, leaf.unit, scale=scales[0] if scales else 1.0, **facts),)  # type: ignore[arg-type]
    return tuple(
        Component(f"{name}_{number}", 1, leaf.unit, scale=scale, **facts)  # type: ignore[arg-type]
        for number, scale in enumerate(scales)
    )
