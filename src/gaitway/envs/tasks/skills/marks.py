"""The goal of a skill environment, drawn into its pictures.

A post stands where the robot is to go, a disc lies at the height its root is to have, arrows show how its torso is to
be turned (its upward and, for robots that turn on the floor, its forward axis), and a ball each where its feet are to
be. Only features that the task controls are drawn; what has two or three parts takes the others from where it is.
"""

from __future__ import annotations

from collections.abc import Mapping

import mujoco
import numpy as np

from gaitway.envs.robots import world
from gaitway.envs.tasks.bisk.features import heading_of
from gaitway.envs.tasks.bisk.open_floor import add_arrow, add_mark, put_arrow, put_mark, quaternion_matrix

POST, DISC, UPWARD, FORWARD = "goal_post", "goal_disc", "goal_upward", "goal_forward"
FEET = ("left_foot", "right_foot")
POST_HEIGHT, POST_RADIUS, DISC_RADIUS, FOOT_RADIUS, ARROW_LENGTH = 2.0, 0.03, 0.4, 0.07, 0.7
GREEN, BLUE, ORANGE = (0.2, 0.9, 0.3, 0.7), (0.3, 0.6, 1.0, 0.8), (1.0, 0.6, 0.1, 0.8)
PLACE = {"rootx:p": 0, "root:px": 0, "root:py": 1}
HEIGHT = ("rootz:p", "root:pz")
ANGLES = ("root:tz", "root:sy", "root:sx")


def add_goal_marks(spec: mujoco.MjSpec) -> None:
    """Marks of a decorated model, parked until there is a goal to show."""
    add_mark(spec, POST, "cylinder", [POST_RADIUS, POST_HEIGHT / 2], GREEN)
    add_mark(spec, DISC, "cylinder", [DISC_RADIUS, 0.01], GREEN)
    for name in (UPWARD, FORWARD):
        add_arrow(spec, name, GREEN)
    for name, colour in zip(FEET, (BLUE, ORANGE), strict=True):
        add_mark(spec, f"goal_{name}", "sphere", [FOOT_RADIUS], colour)


def put_goal_marks(
    model: mujoco.MjModel,
    data: mujoco.MjData,
    torso: str,
    origin: str,
    heading: str,
    features: Mapping[str, float],
    left: Mapping[str, float],
) -> None:
    """Show what is `left` to go for the features that the task controls, in feature units, from the present `features`.

    `data` must have current positions of bodies. `torso` is the body that turns, feet are measured from the body
    `origin`, by `heading` where they turn with that alone.
    """
    for name in (POST, DISC, UPWARD, f"{UPWARD}_tip", FORWARD, f"{FORWARD}_tip", *(f"goal_{foot}" for foot in FEET)):
        put_mark(model, name, world.PARKED)
    place = data.body(torso).xpos.copy()
    for name, axis in PLACE.items():
        place[axis] += left.get(name, 0.0)
    if any(name in left for name in PLACE):
        put_mark(model, POST, (place[0], place[1], POST_HEIGHT / 2))
    for name in HEIGHT:
        if name in left:
            put_mark(model, DISC, (place[0], place[1], place[2] + left[name]))
    centre = data.body(torso).xpos
    wanted = {name: value + left.get(name, 0.0) for name, value in features.items()}
    if "rooty:p" in left:
        put_arrow(model, UPWARD, centre, ARROW_LENGTH * _pitched(data.body(torso).xmat, left["rooty:p"])[:, 2])
    elif any(name in left for name in ANGLES):
        rotation = quaternion_matrix(swung(*(np.array([wanted[name]]) for name in ANGLES)))[0]
        put_arrow(model, UPWARD, centre, ARROW_LENGTH * rotation[:, 2])
        put_arrow(model, FORWARD, centre, ARROW_LENGTH * rotation[:, 0])
    for foot in FEET:
        if any(name.startswith(f"{foot}:") for name in left):
            place, frame = data.body(origin).xpos, _frame(data.body(origin).xmat, heading)
            now = frame.T @ (data.body(foot).xpos - place)
            away = [wanted.get(f"{foot}:p{axis}", now[number]) for number, axis in enumerate("xyz")]
            put_mark(model, f"goal_{foot}", place + frame @ away)


def swung(heading: np.ndarray, swing_y: np.ndarray, swing_x: np.ndarray) -> np.ndarray:
    """The quaternion [n, 4] (w, x, y, z) that `features.twist_and_swing` takes apart into these angles [n].

    The swing turns about y, then z, then x; that nothing of it is a turn about the vertical leaves for the second
    tan(z/2) = -tan(x/2) tan(y/2).
    """
    x, y = np.tan(swing_x / 2), np.tan(swing_y / 2)
    z = -x * y
    half_turn = np.tan(heading / 2)
    one, zero = np.ones_like(x), np.zeros_like(x)
    swing = _times(_times((one, x, zero, zero), (one, zero, zero, z)), (one, zero, y, zero))
    turned = np.stack(_times(swing, (one, zero, zero, half_turn)), axis=1)
    return turned / np.linalg.norm(turned, axis=1, keepdims=True)


def _times(one: tuple[np.ndarray, ...], other: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """The product of two quaternions, component by component."""
    (a, b, c, d), (e, f, g, h) = one, other
    return (
        a * e - b * f - c * g - d * h,
        a * f + b * e + c * h - d * g,
        a * g - b * h + c * e + d * f,
        a * h + b * g - c * f + d * e,
    )


def _pitched(matrix: np.ndarray, angle: float) -> np.ndarray:
    """A body's axes [3, 3] after a further turn about the world's y."""
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.array([[cosine, 0.0, sine], [0.0, 1.0, 0.0], [-sine, 0.0, cosine]]) @ matrix.reshape(3, 3)


def _frame(matrix: np.ndarray, heading: str) -> np.ndarray:
    """What turns offsets of feet into the world, [3, 3]: the body's own frame, or its heading, forwards or (as
    published) backwards."""
    if not heading:
        return matrix.reshape(3, 3)
    cosine, sine = (float(part[0]) for part in heading_of(matrix[None]))
    sine = sine if heading == "corrected" else -sine
    return np.array([[cosine, -sine, 0.0], [sine, cosine, 0.0], [0.0, 0.0, 1.0]])
