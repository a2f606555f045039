"""What a motion prior compares: features of a frame that do not depend on where a robot is and which way it heads.

The same function computes them of a simulated robot and of a clip, so that a discriminator can find no difference but
that of the motions. In this order:

| component | size | of |
|---|---|---|
| `height` | 1 | the root's place above z = 0 (m) |
| `gravity` | 3, planar 2 | the unit vector downwards, in the root's frame |
| `velocity` | 3, planar 2 | the root's velocity in its own frame (m/s) |
| `angular_velocity` | 3, planar 1 | the same of its rotation (rad/s) |
| a joint's name | 1 | its position (rad, m) |
| a joint's name and `_velocity` | 1 | its velocity |
| a body's name and `_position` | 3, planar 2 | where asked for: its place in the root's frame (m) |

Planar robots have x and z of vectors and the turn about y. A root that is fixed has no components. `gravity` can be
left out, as in the first motion priors for quadrupeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gaitway.envs.batch_task import BatchTask, Rows
from gaitway.envs.motions.clip import Clip
from gaitway.envs.motions.frames import Frames, MotionError, columns_of
from gaitway.envs.motions.library import MotionLibrary
from gaitway.envs.motions.skeleton import Skeleton, robot_name
from gaitway.envs.spec import Component, EnvSpec
from gaitway.functional.rotations import rotate_back

GROUP = "amp"
ROOTS = ("free", "planar", "fixed")


class MotionFeatures:
    """Features [n, size] of frames whose joints and bodies have any order; missing ones are an error."""

    def __init__(
        self,
        joints: Sequence[str],
        root: str = "free",
        bodies: Sequence[str] = (),
        robot: str = "",
        gravity: bool = True,
    ) -> None:
        """`robot` is whose features they are, where that has a name. Without `gravity` that component is left out."""
        if root not in ROOTS:
            raise ValueError(f"root is {root!r}; use one of {list(ROOTS)}")
        if root == "fixed" and bodies:
            raise MotionError(
                f"places of {', '.join(bodies)} are measured from a root, and this one is fixed; use none"
            )
        self.joints, self.root, self.bodies = tuple(joints), root, tuple(bodies)
        self.robot, self.gravity = robot, gravity
        axes, turns = {"free": ([0, 1, 2], [0, 1, 2]), "planar": ([0, 2], [1]), "fixed": ([], [])}[root]
        self._axes, self._turns = np.array(axes, dtype=np.int64), np.array(turns, dtype=np.int64)
        own = (
            Component("height", 1, "m"),
            *((Component("gravity", len(axes)),) if gravity else ()),
            Component("velocity", len(axes), "m/s"),
            Component("angular_velocity", len(turns), "rad/s"),
        )
        self.components: tuple[Component, ...] = (
            *(own if axes else ()),
            *(Component(name, 1, "rad") for name in self.joints),
            *(Component(f"{name}_velocity", 1, "rad/s") for name in self.joints),
            *(Component(f"{name}_position", len(axes), "m") for name in self.bodies),
        )
        self.size = sum(component.size for component in self.components)

    @classmethod
    def of_spec(cls, spec: EnvSpec, group: str = GROUP) -> MotionFeatures:
        """The features that an environment shows as `group`, as its contract states them."""
        facts = spec.facts.get(group)
        if group not in spec.group_names or not isinstance(facts, Mapping) or "joints" not in facts:
            raise MotionError(
                f"{spec.id} has no group {group!r} of motion features; add the wrapper "
                f"{{name: features, features: amp, into: {group}}}"
            )
        return cls(
            tuple(facts["joints"]),
            str(facts["root"]),
            tuple(facts["bodies"]),
            str(facts.get("robot", "")),
            bool(facts.get("gravity", True)),
        )

    @property
    def facts(self) -> dict[str, Any]:
        """What `of_spec` reads, plain."""
        plain = {"joints": list(self.joints), "root": self.root, "bodies": list(self.bodies)}
        return plain | ({"robot": self.robot} if self.robot else {}) | ({} if self.gravity else {"gravity": False})

    def __call__(
        self, frames: Frames, joints: Sequence[str], bodies: Sequence[str], clip: str = "the clip"
    ) -> np.ndarray:
        """Features [n, size] of `frames`, whose columns have these names; the first body is the root."""
        columns = columns_of(joints, self.joints, clip, "joint")
        parts = [frames.joint_positions[:, columns], frames.joint_velocities[:, columns]]
        if self.root != "fixed":
            if not bodies:
                raise MotionError(f"{clip} holds no root; use one that tells where the robot is")
            position, rotation = frames.body_positions[:, 0], frames.body_rotations[:, 0]
            down = np.broadcast_to([0.0, 0.0, -1.0], position.shape)
            own = (
                position[:, 2:],
                *((rotate_back(rotation, down)[:, self._axes],) if self.gravity else ()),
                rotate_back(rotation, frames.body_velocities[:, 0])[:, self._axes],
                rotate_back(rotation, frames.body_angular_velocities[:, 0])[:, self._turns],
            )
            away = [
                rotate_back(rotation, frames.body_positions[:, column] - position)[:, self._axes]
                for column in columns_of(bodies, self.bodies, clip, "body")
            ]
            parts = [*own, *parts, *away]
        return np.concatenate(parts, 1)

    def of_clip(self, clip: Clip) -> np.ndarray:
        """Features [F, size] of all frames of a clip."""
        return self(clip.frames, clip.joints, clip.bodies, clip.name)

    def at(self, library: MotionLibrary, clip: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Features [n, size] of clips [n] of a library at times [n] (s)."""
        name = library.clips[0].name
        return self(library.at(clip, times), library.joints, library.bodies, name)

    def draw_pairs(
        self,
        library: MotionLibrary,
        generator: np.random.Generator,
        count: int,
        dt: float,
        between_frames: bool = True,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Features of `count` pairs of frames `dt` seconds apart, [n, size] each; see `MotionLibrary.draw`."""
        clip, times = library.draw(generator, count, dt, between_frames)
        return self.at(library, clip, times), self.at(library, clip, times + dt)


class ObservedMotion:
    """Motion features of a native task, as the wrapper `features` shows them."""

    heading = ""
    relative_height = False

    def __init__(self, task: BatchTask, bodies: Sequence[str] = ()) -> None:
        self.name = GROUP
        self._skeleton = skeleton = Skeleton.of_task(task)
        if skeleton.balls:
            raise MotionError(
                f"{skeleton.name} has the ball joint {skeleton.balls[0]!r}, which motion features leave out"
            )
        known = [task.model.body(number).name for number in range(1, task.model.nbody)]
        self._bodies = [task.model.body(known[at]).id for at in columns_of(known, bodies, skeleton.name, "body")]
        root = skeleton.kind if skeleton.kind in ROOTS else "free"
        self.motion = MotionFeatures(skeleton.joints, root, tuple(bodies), robot_name(task))
        self.components, self.size = self.motion.components, self.motion.size
        self.fields: tuple[str, ...] = ("xpos",) if bodies else ()
        self._names = (*skeleton.bodies, *bodies)

    def write(self, task: BatchTask, rows: Rows, out: np.ndarray, height: np.ndarray | None = None) -> np.ndarray:
        """Fill `out` [n, size] for instances `rows` (all, or n indices) and return it."""
        frames = self._skeleton.frames(task.qpos[rows], task.qvel[rows])
        if self._bodies:
            places = task.field["xpos"][rows][:, self._bodies]
            frames = frames.replaced(body_positions=np.concatenate([frames.body_positions, places], 1))
        out[:] = self.motion(frames, self._skeleton.joints, self._names, self._skeleton.name)
        return out
