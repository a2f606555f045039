"""What may be wrong with a clip: `check_clip(clip, Skeleton.of_robot(robot))`."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from gaitway.envs.motions.clip import Clip
from gaitway.envs.motions.frames import VELOCITIES, with_velocities
from gaitway.envs.motions.lowest import LowestPoints, touching_geoms
from gaitway.envs.motions.skeleton import Skeleton
from gaitway.functional.rotations import inverse, product, rotation_vector

NORM_ERROR = 1e-3
"""How far from 1 the length of a quaternion may be."""
FASTEST = {"joint": 50.0, "root": 20.0, "turn": 50.0}
"""Speeds (rad/s, m/s, rad/s) beyond which a step from frame to frame is a jump."""
SEAM = {"joint": 0.1, "height": 0.02, "turn": 0.1}
"""How far (rad, m, rad) the last frame of a loop may be from its first."""
VELOCITY_ERROR = 0.05
"""Share by which stored velocities may differ from those of positions, as a root of mean squares."""
LIMIT_EXCESS = 0.01
"""How far (rad, m) a joint may be beyond its limit."""
DEPTH = 0.005
"""How deep (m) the robot may be in the floor."""


@dataclass(frozen=True)
class Finding:
    """One question about a clip and its answer."""

    question: str
    verdict: str
    """"ok", "warning" or "wrong"."""
    answer: str


def check_clip(clip: Clip, skeleton: Skeleton | None = None) -> list[Finding]:
    """All questions, of a clip that could be read; limits and the floor need a robot."""
    found = [_norms(clip), _jumps(clip), _velocities(clip)]
    if clip.loop:
        found.append(_seam(clip))
    if skeleton is not None:
        qpos, _ = skeleton.fit(clip.joints, clip.bodies, clip.balls, clip.name).states(clip.frames)
        found += [_limits(clip, skeleton, qpos), _floor(skeleton, qpos)]
    return found


def velocity_errors(clip: Clip) -> dict[str, float]:
    """Stored velocities against differences of positions: the root of the mean square of the difference, as a share of
    that of the differences, by field; fields at rest are left out."""
    fresh, errors = with_velocities(clip.frames, clip.dt, clip.loop), {}
    for name in VELOCITIES:
        stored, expected = getattr(clip.frames, name), getattr(fresh, name)
        size = float(np.sqrt(np.mean(np.square(expected)))) if expected.size else 0.0
        off = float(np.sqrt(np.mean(np.square(stored - expected)))) if expected.size else 0.0
        if max(size, off) > 1e-6:
            errors[name] = off / max(size, 1e-6)
    return errors


def _norms(clip: Clip) -> Finding:
    verdict = "ok" if clip.norm_error <= NORM_ERROR else "wrong"
    return Finding("quaternions", verdict, f"lengths differ from 1 by at most {clip.norm_error:.1e}")


def _jumps(clip: Clip) -> Finding:
    frames, found = clip.frames, []
    steps = np.abs(np.diff(frames.joint_positions, axis=0)) / clip.dt
    if steps.size:
        frame, column = np.unravel_index(steps.argmax(), steps.shape)
        found.append((steps[frame, column], FASTEST["joint"], f"{clip.joints[column]} at", "rad/s", frame))
    if clip.bodies:
        moved = np.linalg.norm(np.diff(frames.body_positions[:, 0], axis=0), axis=1) / clip.dt
        found.append((moved.max(), FASTEST["root"], "the root at", "m/s", moved.argmax()))
        turned = np.linalg.norm(_turns(frames.body_rotations[1:, 0], frames.body_rotations[:-1, 0]), axis=1) / clip.dt
        found.append((turned.max(), FASTEST["turn"], "the root turns at", "rad/s", turned.argmax()))
    if not found:
        return Finding("continuity", "ok", "nothing moves")
    speed, limit, what, unit, frame = max(found, key=lambda each: each[0] / each[1])
    verdict = "ok" if speed <= limit else "wrong"
    return Finding(
        "continuity", verdict, f"fastest: {what} {speed:.3g} {unit} after frame {int(frame)} (limit {limit:g})"
    )


def _velocities(clip: Clip) -> Finding:
    errors = velocity_errors(clip)
    if not errors:
        return Finding("velocities", "ok", "nothing moves")
    name = max(errors, key=errors.__getitem__)
    verdict = "ok" if errors[name] <= VELOCITY_ERROR else "warning"
    return Finding("velocities", verdict, f"{name} differ from differences of positions by {errors[name]:.1%}")


def _seam(clip: Clip) -> Finding:
    frames, off = clip.frames, []
    gap = np.abs(frames.joint_positions[-1] - frames.joint_positions[0])
    if gap.size:
        off.append((float(gap.max()), SEAM["joint"], clip.joints[int(gap.argmax())], "rad"))
    if clip.bodies:
        rise = abs(float(clip.displacement[2]))
        turn = float(np.linalg.norm(_turns(frames.body_rotations[-1, 0], frames.body_rotations[0, 0])))
        off += [(rise, SEAM["height"], "the height", "m"), (turn, SEAM["turn"], "the rotation", "rad")]
    if not off:
        return Finding("loop", "ok", "nothing moves")
    size, limit, what, unit = max(off, key=lambda each: each[0] / each[1])
    verdict = "ok" if size <= limit else "wrong"
    return Finding("loop", verdict, f"the last frame misses the first by {size:.3g} {unit} in {what} (limit {limit:g})")


def _limits(clip: Clip, skeleton: Skeleton, qpos: np.ndarray) -> Finding:
    model, numbers = skeleton.model, skeleton.joint_numbers
    limited = numbers[model.jnt_limited[numbers].astype(bool)]
    if not len(limited):
        return Finding("joint limits", "ok", f"{skeleton.name} has none")
    angles = qpos[:, model.jnt_qposadr[limited]]
    low, high = model.jnt_range[limited].T
    excess = np.maximum(low - angles, angles - high)
    frame, column = np.unravel_index(excess.argmax(), excess.shape)
    worst, joint = float(excess[frame, column]), model.joint(int(limited[column])).name
    if worst <= 0.0:
        return Finding("joint limits", "ok", f"within all {len(limited)} of {skeleton.name}")
    verdict = "ok" if worst <= LIMIT_EXCESS else "wrong"
    return Finding("joint limits", verdict, f"{joint} is {worst:.3g} rad beyond its limit in frame {frame}")


def _floor(skeleton: Skeleton, qpos: np.ndarray) -> Finding:
    heights = lowest_points(skeleton.model, qpos)
    if heights is None:
        return Finding("floor", "ok", f"nothing of {skeleton.name} touches anything")
    frame = int(heights.argmin())
    verdict = "ok" if heights[frame] >= -DEPTH else "wrong"
    return Finding("floor", verdict, f"the lowest point is at {heights[frame]:+.3f} m, in frame {frame}")


def lowest_points(model: mujoco.MjModel, qpos: np.ndarray) -> np.ndarray | None:
    """Height [n] of the lowest point of what can touch the floor, in states qpos [n, nq]; None if nothing can."""
    geoms = touching_geoms(model)
    return LowestPoints(model, geoms)(qpos)[..., 2].min(1) if geoms else None


def _turns(after: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Rotation vectors [..., 3] from one rotation to another."""
    return rotation_vector(product(after, inverse(before)))
