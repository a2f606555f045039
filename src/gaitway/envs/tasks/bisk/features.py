"""Feature extractors: what is said about a robot, as one row of numbers per instance, for all instances at once.

| name | content | sizes |
|---|---|---|
| `joints` | qpos, qvel and the external wrenches on all bodies, clipped to -1..1 | Walker 60, Humanoids 151 |
| `bodyfeet` | where the body and the feet are: the space in which skills have goals | Walker 7, Humanoids 12 |

With the ending `-relz` the height entry is the height above the ground below the torso, which the task supplies; names
stay the same, so that a skill trained on flat ground also takes these. Definitions follow the bipedal-skills benchmark
(Gehring et al. 2021, arXiv 2110.10809).

    features = make_features("joints", RobotView(robot, model))
    task.fields = features.fields            # with STAGE_VELOCITY after steps, so that positions are current
    features.write(task, rows, out)          # in observe: out [n, features.size], any float type
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from gaitway.core.config import did_you_mean
from gaitway.envs.robots.robot import Index, Robot, RobotView, position_components, velocity_components
from gaitway.envs.spec import Component

log = logging.getLogger("gaitway")

FEATURES = ("joints", "joints-relz", "bodyfeet", "bodyfeet-relz")
HEADINGS = ("original", "corrected")
FEET = {
    "walker": ("torso", "left_foot", "right_foot"),
    "humanoid": ("pelvis", "left_foot", "right_foot"),
    "humanoidpc": ("pelvis", "left_foot", "right_foot"),
}
"""Bodies that `bodyfeet` reads: the one that feet are measured from, the left and the right foot."""
FORCE_LIMIT = 1.0
"""Contact forces (N) and torques (N m) are shown clipped to this: practically signed contact flags."""

DEGENERATE = 1e-12
"""Below this length a projection has no direction: a robot upside down has no heading."""

_XX, _XY, _XZ, _YX, _YY, _YZ, _ZX, _ZY, _ZZ = range(9)


class PhysicsArrays(Protocol):
    """What features read, a `BatchTask` for example: live float64 arrays of all B instances."""

    @property
    def qpos(self) -> np.ndarray: ...

    @property
    def qvel(self) -> np.ndarray: ...

    @property
    def field(self) -> Mapping[str, np.ndarray]: ...


class Features:
    """One extractor for one robot in one model. Subclasses fill the height entry like all others."""

    fields: tuple[str, ...]
    """MjData fields besides qpos and qvel that must be bound, and be current where they are positions."""
    height_column: int
    heading = ""
    """How feet are turned, for features that have a choice."""

    def __init__(self, name: str, view: RobotView, components: tuple[Component, ...], relative_height: bool) -> None:
        self.name = name
        self.view = view
        self.components = components
        self.size = sum(component.size for component in components)
        self.relative_height = relative_height
        """True if `write` needs the height above the ground."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(component.name for component in self.components)

    def write(
        self, physics: PhysicsArrays, rows: Index, out: np.ndarray, height: np.ndarray | None = None
    ) -> np.ndarray:
        """Fill `out` [n, size] for instances `rows` (all, or n indices) and return it.

        `height` [n]: the torso's height above the ground (m), for features with a relative height and only for those.
        """
        if (height is None) == self.relative_height:
            wanted = "needs the height above the ground [n]" if self.relative_height else "takes no height"
            raise ValueError(f"{self.name} {wanted}; features that end in -relz take one, the others do not")
        self._write(physics, rows, out)
        if height is not None:
            out[:, self.height_column] = height
        return out

    def _write(self, physics: PhysicsArrays, rows: Index, out: np.ndarray) -> None:
        raise TypeError(f"{type(self).__name__} does not implement _write")


class JointFeatures(Features):
    """`joints`: the robot's qpos and qvel, then for each body torque xyz (N m) and force xyz (N), clipped to -1..1.

    The wrenches are MuJoCo's `cfrc_ext` of the last substep; the model needs `world.add_accelerometer`.
    """

    fields = ("cfrc_ext",)

    def __init__(self, name: str, view: RobotView, relative_height: bool) -> None:
        super().__init__(name, view, joint_components(view.robot), relative_height)
        self.height_column = view.robot.height_index
        self._velocities = view.robot.nq
        self._forces = view.robot.nq + view.robot.nv

    def _write(self, physics: PhysicsArrays, rows: Index, out: np.ndarray) -> None:
        view = self.view
        out[:, : self._velocities] = view.positions(physics.qpos, rows)
        out[:, self._velocities : self._forces] = view.velocities(physics.qvel, rows)
        forces = view.forces(physics.field["cfrc_ext"], rows)
        np.clip(forces, -FORCE_LIMIT, FORCE_LIMIT, out=out[:, self._forces :])


class WalkerBodyFeet(Features):
    """`bodyfeet` of the Walker: rootz, rootx, rooty, then x and z of the left and the right foot in the torso's frame.

    Feet are `R^T (foot - torso)` with the torso's rotation R, between the origins of the bodies.
    """

    fields = ("xpos", "xmat")
    height_column = 0

    def __init__(self, name: str, view: RobotView, feet: tuple[str, str, str], relative_height: bool) -> None:
        roots = (Component("rootz:p", 1, "m"), Component("rootx:p", 1, "m"), Component("rooty:p", 1, "rad"))
        super().__init__(name, view, roots + _feet_components("xz"), relative_height)
        self._origin, *self._feet = (view.body(body) for body in feet)

    def _write(self, physics: PhysicsArrays, rows: Index, out: np.ndarray) -> None:
        xpos, frame = physics.field["xpos"], physics.field["xmat"][rows, self._origin]
        out[:, :3] = self.view.positions(physics.qpos, rows)[:, :3]
        origin = xpos[rows, self._origin]
        for number, foot in enumerate(self._feet):
            away = xpos[rows, foot] - origin
            x, z = away[:, 0], away[:, 2]  # the y axis of a planar robot stays where it is
            out[:, 3 + 2 * number] = frame[:, _XX] * x + frame[:, _ZX] * z
            out[:, 4 + 2 * number] = frame[:, _XZ] * x + frame[:, _ZZ] * z


class HumanoidBodyFeet(Features):
    """`bodyfeet` of the Humanoids: root x, y, z, heading tz, swing sy and sx, then xyz of the left and the right foot.

    The root's rotation is split into a turn about the vertical (tz, in (-pi, pi]) and a swing; sy and sx are the first
    and third of its extrinsic y-z-x Euler angles. Feet are offsets from the pelvis. The benchmark turns them by the
    pelvis' heading, and skills made there expect that (`heading="original"`); expressing them in the frame of the
    heading takes the opposite turn (`heading="corrected"`).
    """

    fields = ("xpos", "xmat")
    height_column = 2

    def __init__(
        self, name: str, view: RobotView, feet: tuple[str, str, str], relative_height: bool, heading: str
    ) -> None:
        roots = (
            *(Component(f"root:p{axis}", 1, "m") for axis in "xyz"),
            *(Component(f"root:{angle}", 1, "rad") for angle in ("tz", "sy", "sx")),
        )
        super().__init__(name, view, roots + _feet_components("xyz"), relative_height)
        self.heading = heading
        self._origin, *self._feet = (view.body(body) for body in feet)

    def _write(self, physics: PhysicsArrays, rows: Index, out: np.ndarray) -> None:
        own = self.view.positions(physics.qpos, rows)
        out[:, :3] = own[:, :3]
        out[:, 3], out[:, 4], out[:, 5] = twist_and_swing(own[:, 3:7])
        xpos = physics.field["xpos"]
        cosine, sine = heading_of(physics.field["xmat"][rows, self._origin])
        if self.heading == "corrected":
            sine = -sine
        origin = xpos[rows, self._origin]
        for number, foot in enumerate(self._feet):
            away = xpos[rows, foot] - origin
            column = 6 + 3 * number
            out[:, column] = cosine * away[:, 0] - sine * away[:, 1]
            out[:, column + 1] = sine * away[:, 0] + cosine * away[:, 1]
            out[:, column + 2] = away[:, 2]


def make_features(name: str, view: RobotView, heading: str = "original") -> Features:
    """The extractor called `name` for the robot of `view`; `heading` concerns the feet of the Humanoids' `bodyfeet`."""
    if name not in FEATURES:
        raise ValueError(f"no features {name!r}{did_you_mean(name, FEATURES)}; there are {list(FEATURES)}")
    if heading not in HEADINGS:
        raise ValueError(f"heading is {heading!r}; use one of {list(HEADINGS)}")
    base, _, ending = name.partition("-")
    robot, relative_height = view.robot, ending == "relz"
    if base == "joints":
        return JointFeatures(name, view, relative_height)
    if robot.name not in FEET:
        raise ValueError(f"{robot.name} has no feet; bodyfeet exists for {', '.join(FEET)}, else use joints")
    if robot.is_planar:
        return WalkerBodyFeet(name, view, FEET[robot.name], relative_height)
    if heading == "original":
        say_original_heading(robot.name)
    return HumanoidBodyFeet(name, view, FEET[robot.name], relative_height, heading)


@functools.cache
def say_original_heading(robot: str) -> None:
    """One line, once per robot: features of the same name in two environments are not the same numbers."""
    log.warning(
        f"{robot}: feet in bodyfeet (goal_space) are turned by the original heading, as published; {robot}/skills "
        "turns them by the corrected one, so that the same state differs, in play by up to 1.49 m. Where both meet, "
        "write heading=corrected here, or compat=original for the skills"
    )


def joint_components(robot: Robot) -> tuple[Component, ...]:
    """Names and units of the `joints` features: qpos, qvel and the wrench on every body, torque first as in MuJoCo."""
    kinds = (("torque", "N m"), ("force", "N"))
    forces = tuple(Component(f"{body}_{kind}", 3, unit) for body in robot.bodies for kind, unit in kinds)
    return position_components(robot.model) + velocity_components(robot.model) + forces


def twist_and_swing(quaternion: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Quaternions [n, 4] (w, x, y, z), of any length but zero -> heading tz, swing sy, swing sx (rad), each [n].

    With the twist t = (w, 0, 0, z) / r and r = |(w, z)| the swing q t^-1 is (r, x', y', 0), which leaves
    tan sy = 2 r y' / (r^2 + x'^2 - y'^2) and tan sx = 2 r x' / (r^2 - x'^2 + y'^2). Upside down, where r = 0, there is
    no heading and tz is 0.
    """
    w, x, y, z = quaternion.T
    length = np.hypot(w, z)
    has_heading = length > DEGENERATE
    safe = np.where(has_heading, length, 1.0)
    cosine, sine = np.where(has_heading, w / safe, 1.0), np.where(has_heading, z / safe, 0.0)
    half = np.arctan2(sine, cosine)  # in (-pi, pi]; the same rotation has half a turn more or less
    half = half - np.pi * (half > np.pi / 2) + np.pi * (half <= -np.pi / 2)
    swing_x, swing_y = x * cosine - y * sine, y * cosine + x * sine
    squares = length * length, swing_x * swing_x, swing_y * swing_y
    swing_about_y = np.arctan2(2 * length * swing_y, squares[0] + squares[1] - squares[2])
    swing_about_x = np.arctan2(2 * length * swing_x, squares[0] - squares[1] + squares[2])
    return 2 * half, swing_about_y, swing_about_x


def heading_of(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rotation matrices [n, 9], row by row -> cosine and sine [n] of their turn about the vertical.

    Upside down there is none: (1, 0).
    The turn is that of the quaternion (w, 0, 0, z): cos = (w^2 - z^2) / (w^2 + z^2), sin = 2 w z / (w^2 + z^2), with
    4 (w^2 - z^2) = 2 (m_xx + m_yy) and 4 w z = m_yx - m_xy.
    """
    cosine, sine = matrix[:, _XX] + matrix[:, _YY], matrix[:, _YX] - matrix[:, _XY]
    length = np.hypot(cosine, sine)
    has_heading = length > DEGENERATE
    safe = np.where(has_heading, length, 1.0)
    return np.where(has_heading, cosine / safe, 1.0), np.where(has_heading, sine / safe, 0.0)


def _feet_components(axes: str) -> tuple[Component, ...]:
    return tuple(Component(f"{foot}:p{axis}", 1, "m") for foot in ("left_foot", "right_foot") for axis in axes)
