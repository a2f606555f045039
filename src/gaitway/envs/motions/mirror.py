"""What becomes of a motion in a mirror."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gaitway.envs.motions.frames import Frames, MotionError

_POLAR, _AXIAL, _TURN = (1.0, -1.0, 1.0), (-1.0, 1.0, -1.0), (1.0, -1.0, 1.0, -1.0)
MIRRORED = {
    "body_positions": _POLAR,
    "body_velocities": _POLAR,
    "body_angular_velocities": _AXIAL,
    "body_rotations": _TURN,
    "ball_rotations": _TURN,
    "ball_velocities": _AXIAL,
}
"""Signs of x, y, z (of w, x, y, z) in a mirror whose normal is y: lengths flip y, turns flip x and z."""

_SIDES = {"left": "right", "Left": "Right", "LEFT": "RIGHT"}
_TOKENS = {"l": "r", "L": "R", "FL": "FR", "RL": "RR", "HL": "HR", "LF": "RF", "LH": "RH"}


class Mirror:
    """What becomes of a motion in a mirror: which joint takes whose place, with which sign.

    `joints` maps each joint to its partner, itself where it has none, and `signs` to 1 or -1; names that are missing
    are swapped by left and right in their names, with the sign 1. A robot knows better: `Skeleton.mirror`.
    """

    def __init__(self, joints: Mapping[str, str] | None = None, signs: Mapping[str, float] | None = None) -> None:
        self.joints, self.signs = dict(joints or {}), dict(signs or {})
        if wrong := [name for name, sign in self.signs.items() if sign not in (1, -1)]:
            raise MotionError(f"the sign of {wrong[0]!r} in a mirror is {self.signs[wrong[0]]!r}; use 1 or -1")

    def __call__(
        self, frames: Frames, joints: Sequence[str], bodies: Sequence[str], balls: Sequence[str] = ()
    ) -> Frames:
        """Mirrored frames with the same names."""
        columns = {"joint": self._partners(joints), "body": self._partners(bodies), "ball": self._partners(balls)}
        moved = {name: array[:, columns[name.partition("_")[0]]] for name, array in frames.arrays().items()}
        signs = np.array([self.signs.get(name, 1.0) for name in joints])
        for name in ("joint_positions", "joint_velocities"):
            moved[name] = moved[name] * signs
        for name, flips in MIRRORED.items():
            moved[name] = moved[name] * np.array(flips)
        return Frames(**moved)

    def _partners(self, names: Sequence[str]) -> list[int]:
        places = {name: place for place, name in enumerate(names)}
        partners = [self.joints.get(name) or other_side(name) for name in names]
        if lacking := [partner for partner in partners if partner not in places]:
            raise MotionError(f"the mirror has no place for {lacking[0]!r}; the clip has {list(names)}")
        if len(set(partners)) != len(partners):
            raise MotionError("the mirror gives two joints the same place; map each to another partner")
        return [places[partner] for partner in partners]


def other_side(name: str) -> str:
    """`left_knee` -> `right_knee`, `FR_hip_joint` -> `FL_hip_joint`; a name without a side stays."""
    for left, right in _SIDES.items():
        for here, there in ((left, right), (right, left)):
            if here in name:
                return name.replace(here, there, 1)
    swaps = {**_TOKENS, **{right: left for left, right in _TOKENS.items()}}
    parts = name.split("_")
    for place, part in enumerate(parts):
        if part in swaps:
            return "_".join([*parts[:place], swaps[part], *parts[place + 1 :]])
    return name
