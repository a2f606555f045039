"""The lowest points of a robot's geoms, in many states at once: forward kinematics on arrays, a loop over bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mujoco
import numpy as np

from gaitway.envs.robots.robot import BALL, FREE, SLIDE
from gaitway.functional.rotations import normalised, rotate

_SPHERE, _CAPSULE, _ELLIPSOID, _CYLINDER, _BOX, _MESH = (
    int(getattr(mujoco.mjtGeom, f"mjGEOM_{kind}"))
    for kind in ("SPHERE", "CAPSULE", "ELLIPSOID", "CYLINDER", "BOX", "MESH")
)
Pose = tuple[np.ndarray, np.ndarray]
"""Positions [n, 3] and rotations as matrices [n, 3, 3]."""


def touching_geoms(model: mujoco.MjModel, root: int | None = None) -> list[int]:
    """Geoms that can touch the floor: those of the tree below the body `root`, None for all that move."""
    return [
        number
        for number in range(model.ngeom)
        if (model.geom_contype[number] or model.geom_conaffinity[number])
        and model.geom_type[number] in _FARTHEST
        and (body := model.geom_bodyid[number]) != 0
        and (root is None or model.body_rootid[body] == root)
    ]


class LowestPoints:
    """Called with states qpos [n, nq]: the lowest point of each of G geoms in the world [n, G, 3]."""

    def __init__(self, model: mujoco.MjModel, geoms: Sequence[int]) -> None:
        self._model, self._geoms = model, [int(each) for each in geoms]
        needed: set[int] = set()
        for body in model.geom_bodyid[self._geoms]:
            while body:
                needed.add(int(body))
                body = model.body_parentid[body]
        self._bodies = sorted(needed)  # parents come first
        self._turns = {body: _matrix(model.body_quat[body]) for body in self._bodies}
        self._geom_turns = {geom: _matrix(model.geom_quat[geom]) for geom in self._geoms}
        self._spins = {joint: _cross(model.jnt_axis[joint]) for joint in range(model.njnt)}

    def __call__(self, qpos: np.ndarray) -> np.ndarray:
        model, count = self._model, len(qpos)
        poses: dict[int, Pose] = {0: (np.zeros((count, 3)), np.broadcast_to(np.eye(3), (count, 3, 3)))}
        for body in self._bodies:
            poses[body] = self._pose(body, poses[int(model.body_parentid[body])], qpos)
        return np.stack([self._lowest(geom, *poses[int(model.geom_bodyid[geom])]) for geom in self._geoms], 1)

    def _pose(self, body: int, parent: Pose, qpos: np.ndarray) -> Pose:
        model, first = self._model, int(self._model.body_jntadr[body])
        joints = range(first, first + int(model.body_jntnum[body]))
        if joints and model.jnt_type[first] == FREE:
            at = int(model.jnt_qposadr[first])
            return qpos[:, at : at + 3], _matrices(qpos[:, at + 3 : at + 7])
        place, turn = parent[0] + parent[1] @ model.body_pos[body], parent[1] @ self._turns[body]
        for joint in joints:
            at, anchor = int(model.jnt_qposadr[joint]), model.jnt_pos[joint]
            if model.jnt_type[joint] == SLIDE:
                place = place + (turn @ model.jnt_axis[joint]) * (qpos[:, [at]] - model.qpos0[at])
                continue
            if model.jnt_type[joint] == BALL:
                own = _matrices(qpos[:, at : at + 4])
            else:  # Rodrigues' formula
                angle, spin = (qpos[:, at] - model.qpos0[at])[:, None, None], self._spins[joint]
                own = np.eye(3) + np.sin(angle) * spin + (1.0 - np.cos(angle)) * (spin @ spin)
            fixed = place + turn @ anchor
            turn = turn @ own
            place = fixed - turn @ anchor
        return place, turn

    def _lowest(self, geom: int, place: np.ndarray, turn: np.ndarray) -> np.ndarray:
        model = self._model
        place, turn = place + turn @ model.geom_pos[geom], turn @ self._geom_turns[geom]
        reach = _FARTHEST[int(model.geom_type[geom])](model, geom, -turn[:, 2])
        return place + (turn @ reach[..., None])[..., 0]


def _matrices(quaternions: np.ndarray) -> np.ndarray:
    """[n, 4] of any length -> [n, 3, 3]."""
    turns = normalised(quaternions)[:, None]
    return np.swapaxes(rotate(turns, np.eye(3)), 1, 2)


def _matrix(quaternion: np.ndarray) -> np.ndarray:
    return _matrices(quaternion[None])[0]


def _cross(axis: np.ndarray) -> np.ndarray:
    """The matrix that multiplies a vector by `axis`, as a cross product."""
    return np.cross(np.eye(3), axis[None])


def _sphere(model: mujoco.MjModel, geom: int, way: np.ndarray) -> np.ndarray:
    return model.geom_size[geom, 0] * way


def _capsule(model: mujoco.MjModel, geom: int, way: np.ndarray) -> np.ndarray:
    return _sphere(model, geom, way) + _end(model, geom, way)


def _ellipsoid(model: mujoco.MjModel, geom: int, way: np.ndarray) -> np.ndarray:
    scaled = model.geom_size[geom] * way
    return model.geom_size[geom] * scaled / np.linalg.norm(scaled, axis=-1, keepdims=True)


def _cylinder(model: mujoco.MjModel, geom: int, way: np.ndarray) -> np.ndarray:
    aside = way * np.array([1.0, 1.0, 0.0])
    length = np.linalg.norm(aside, axis=-1, keepdims=True)
    return model.geom_size[geom, 0] * aside / np.maximum(length, 1e-12) + _end(model, geom, way)


def _box(model: mujoco.MjModel, geom: int, way: np.ndarray) -> np.ndarray:
    return model.geom_size[geom] * np.sign(way)


def _mesh(model: mujoco.MjModel, geom: int, way: np.ndarray) -> np.ndarray:
    mesh = int(model.geom_dataid[geom])
    first, count = int(model.mesh_vertadr[mesh]), int(model.mesh_vertnum[mesh])
    vertices = model.mesh_vert[first : first + count].astype(np.float64)
    return vertices[(way @ vertices.T).argmax(-1)]


def _end(model: mujoco.MjModel, geom: int, way: np.ndarray) -> np.ndarray:
    """The end of a geom's axis on the side of `way`."""
    return model.geom_size[geom, 1] * np.sign(way) * np.array([0.0, 0.0, 1.0])


_FARTHEST: dict[int, Callable[[mujoco.MjModel, int, np.ndarray], np.ndarray]] = {
    _SPHERE: _sphere,
    _CAPSULE: _capsule,
    _ELLIPSOID: _ellipsoid,
    _CYLINDER: _cylinder,
    _BOX: _box,
    _MESH: _mesh,
}
"""The point of a geom that lies farthest in a direction, both in its own frame [n, 3]."""
