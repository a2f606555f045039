"""Tasks on an empty floor: where the torso is and how it is turned, and marks that show in pictures what is asked.

Marks (targets, arrows) are sites of the decorated model's world. The model that is simulated has none of them, so they
cost nothing; `BatchTask.dress` puts them where the task has them in mind.
"""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np

from gaitway.core.config import configuration
from gaitway.envs.batch_task import Rows
from gaitway.envs.robots import world
from gaitway.envs.tasks.bisk.base import ALL, BiskConfig, BiskTask

ARROW_RADIUS, ARROW_TIP_RADIUS = 0.03, 0.07
LYING = (0.0, 1.0, 0.0, 0.0)
"""Any quaternion but that of no turn, with which MuJoCo would leave out what is written to `site_quat` later."""


@configuration(kw_only=True)
class ShapedConfig(BiskConfig):
    """Options of the tasks that can pay in two ways."""

    shaped: bool = False
    """Pays the shaped form in each step instead of the score; a fall still costs 1."""


class FloorTask(BiskTask):
    """A robot with nothing around it."""

    camera = world.WIDE

    def torso_position(self, rows: Rows = ALL) -> np.ndarray:
        """Where the torso's origin is (m) [n, 3]; y is 0 for planar robots."""
        forward = self.qpos[rows, self.view.forward]
        position = np.zeros((len(forward), 3))
        position[:, 0] = forward
        if not self.robot.is_planar:
            position[:, 1] = self.qpos[rows, self.view.forward + 1]
        position[:, 2] = self.qpos[rows, self.view.height]
        return position

    def torso_rotation(self, rows: Rows = ALL) -> np.ndarray:
        """The torso's frame [n, 3, 3], its axes in the columns: `vectors @ rotation` turns world into torso frame."""
        own, robot = self.view.positions(self.qpos, rows), self.robot
        if robot.quaternion_index is not None:
            return quaternion_matrix(own[:, robot.quaternion_index : robot.quaternion_index + 4])
        rotation = np.tile(np.eye(3), (len(own), 1, 1))
        if robot.pitch_index is not None:
            cosine, sine = np.cos(own[:, robot.pitch_index]), np.sin(own[:, robot.pitch_index])
            rotation[:, 0, 0] = rotation[:, 2, 2] = cosine
            rotation[:, 0, 2], rotation[:, 2, 0] = sine, -sine
        return rotation


def quaternion_matrix(quaternion: np.ndarray) -> np.ndarray:
    """[n, 4] (w, x, y, z), of any length but zero -> rotation matrices [n, 3, 3]."""
    w, x, y, z = quaternion.T / np.linalg.norm(quaternion, axis=1)
    matrix = np.empty((len(quaternion), 3, 3))
    matrix[:, 0, 0] = 1.0 - 2.0 * (y * y + z * z)
    matrix[:, 0, 1] = 2.0 * (x * y - w * z)
    matrix[:, 0, 2] = 2.0 * (x * z + w * y)
    matrix[:, 1, 0] = 2.0 * (x * y + w * z)
    matrix[:, 1, 1] = 1.0 - 2.0 * (x * x + z * z)
    matrix[:, 1, 2] = 2.0 * (y * z - w * x)
    matrix[:, 2, 0] = 2.0 * (x * z - w * y)
    matrix[:, 2, 1] = 2.0 * (y * z + w * x)
    matrix[:, 2, 2] = 1.0 - 2.0 * (x * x + y * y)
    return matrix


def add_mark(spec: mujoco.MjSpec, name: str, type: str, size: Sequence[float], rgba: Sequence[float]) -> None:
    """A mark of a decorated model, parked until it is put somewhere. `type` and `size` (m) as for geoms."""
    kind = getattr(mujoco.mjtGeom, f"mjGEOM_{type.upper()}")
    full_size = [*size, *[0.0] * (3 - len(size))]
    spec.worldbody.add_site(
        name=name, type=kind, size=full_size, pos=list(world.PARKED), quat=list(LYING), rgba=list(rgba)
    )


def put_mark(model: mujoco.MjModel, name: str, pos: Sequence[float] | np.ndarray) -> None:
    """Put a mark somewhere (m), upright."""
    mark = model.site(name)
    mark.pos, mark.quat = pos, (1.0, 0.0, 0.0, 0.0)


def add_arrow(spec: mujoco.MjSpec, name: str, rgba: Sequence[float]) -> None:
    """An arrow of a decorated model: a shaft, and a ball for its tip."""
    add_mark(spec, name, "capsule", [ARROW_RADIUS, 0.1], rgba)
    add_mark(spec, f"{name}_tip", "sphere", [ARROW_TIP_RADIUS], rgba)


def put_arrow(model: mujoco.MjModel, name: str, start: np.ndarray, way: np.ndarray) -> None:
    """Let an arrow reach from `start` [3] as far as `way` [3] goes (m)."""
    quat = np.zeros(4)
    mujoco.mju_quatZ2Vec(quat, np.asarray(way, dtype=np.float64))
    shaft = model.site(name)
    shaft.pos, shaft.quat = start + way / 2, quat
    shaft.size = (ARROW_RADIUS, np.linalg.norm(way) / 2, 0.0)
    put_mark(model, f"{name}_tip", start + way)
