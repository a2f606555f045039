"""Catch butterflies with a net: `butterflies`, for the cube.

Ten spheres of radius 0.1 m hang in the air at U(-1, 1)^3 * (4, 4, 0.5) + (0, 0, 1.6) m. A sphere that the disc of the
net touches after any substep is caught: it scores 1 and is gone. One that is touched in the settling step is gone
without a score. There is no shaped form.

A cube has neither hand nor head. Its hand is the middle of its upper side: from there the handle rises 0.5 m, and above
it stands the disc, of radius 0.15 m, in the plane of x and z, its centre 0.85 m above the cube's. Its head, the frame
that butterflies are seen from, is the cube itself. The net weighs nothing and collides with nothing, so the cube hovers
as ever. The published package gives its test cube a disc of 0.5 m and hangs the butterflies at 1.0 m
(`net_radius`, `zoff`).

A disc with centre c, normal n and radius R touches a sphere with centre p and radius r where p is no further from the
disc than r: with the height h = (p - c) n and the distance d from the axis, max(d - R, 0)^2 + h^2 <= r^2.

Observed are 100 numbers, a grid of 10 x 10 directions seen from the head, row by row. For a butterfly in the direction
(nx, ny, nz) the row is floor(acos(ny) / 18 deg) and the column floor((atan2(nx, nz) + 180 deg) / 36 deg), 9 at most. A
field holds exp(-distance) of the nearest butterfly in it, 0 without one.

From the second edition of the bipedal-skills benchmark, where humanoids that are not among our robots hold the net.
"""

from __future__ import annotations

import mujoco
import numpy as np
from mujoco.batch import Batch

from gaitway.core.config import configuration
from gaitway.core.ranges import Count, Number, Positive
from gaitway.envs.batch_task import Arrays, Rows
from gaitway.envs.robots import world
from gaitway.envs.spec import Component
from gaitway.envs.tasks.bisk.base import BiskConfig, between
from gaitway.envs.tasks.bisk.open_floor import FloorTask, add_mark, put_mark

RADIUS = 0.1
"""Of a butterfly (m)."""
HAND = 0.2
"""Height of the hand above the cube's origin (m)."""
HANDLE_LENGTH, HANDLE_RADIUS = 0.5, 0.01
DISC_THICKNESS = 0.005
"""Only in pictures: the disc that catches has none."""
HEIGHT_RANGE = 0.5
"""Butterflies hang at most this far (m) above and below their middle height."""
FIELDS = 10
"""Rows, and columns, of the grid."""


@configuration(kw_only=True)
class ButterfliesConfig(BiskConfig):
    n_butterflies: Count = 10
    goal_area: Positive = 4.0
    """Butterflies hang in -goal_area..goal_area (m) in x and y."""
    zoff: Number = 1.6
    """Their middle height (m)."""
    net_radius: Positive = 0.15


class ButterfliesTask(FloorTask):
    task = "butterflies"
    task_key = "butterflies"
    config_class = ButterfliesConfig
    config: ButterfliesConfig

    def prepare(self) -> None:
        config = self.config
        if self.robot.name != "cube":
            raise ValueError(f"{self.id}: only the cube has a net; use cube/butterflies")
        self._disc = np.array([0.0, 0.0, HAND + HANDLE_LENGTH + config.net_radius])  # its centre in the cube's frame

    def add_course(self, spec: mujoco.MjSpec, decorated: bool) -> None:
        world.add_floor(spec)
        if not decorated:
            return
        hand, kinds, radius = spec.body(self.robot.torso), mujoco.mjtGeom, self.config.net_radius
        middle = [0.0, 0.0, HAND + HANDLE_LENGTH / 2]
        handle_size, disc_size = [HANDLE_RADIUS, HANDLE_LENGTH / 2, 0.0], [radius, DISC_THICKNESS, radius]
        hand.add_site(name="handle", type=kinds.mjGEOM_CAPSULE, size=handle_size, pos=middle, rgba=[0.4, 0.3, 0.2, 1.0])
        hand.add_site(
            name="net", type=kinds.mjGEOM_ELLIPSOID, size=disc_size, pos=self._disc, rgba=[0.9, 0.9, 0.9, 0.6]
        )
        for number in range(self.config.n_butterflies):
            share = number / self.config.n_butterflies
            add_mark(spec, f"butterfly_{number}", "sphere", [RADIUS], (1.0 - share, 0.3 + 0.4 * share, share, 1.0))

    def task_components(self) -> tuple[Component, ...]:
        return (Component("butterflies", FIELDS * FIELDS),)

    def course_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"butterfly": (self.config.n_butterflies, 3)}

    def course_draws(self) -> int:
        return 3 * self.config.n_butterflies

    def sample_course(self, uniform: np.ndarray) -> Arrays:
        """Butterfly by butterfly, x, y, z."""
        area = self.config.goal_area
        drawn = between(-1.0, 1.0, uniform).reshape(len(uniform), -1, 3)
        return {"butterfly": drawn * [area, area, HEIGHT_RANGE] + [0.0, 0.0, self.config.zoff]}

    def attach(self, batch: Batch) -> None:
        super().attach(batch)
        self.memory["caught"] = np.zeros((batch.nsim, self.config.n_butterflies), dtype=bool)
        self._records = {"qpos": np.zeros((batch.nsim, self.frame_skip, self.model.nq))}

    def settle(self, numbers: np.ndarray) -> None:
        qpos = self.batch.rollout(self.frame_skip, record=("qpos",), ids=numbers)["qpos"]
        self.memory["caught"][numbers] = self._touches(qpos, self.layout["butterfly"][numbers])

    def skip_settling(self, numbers: np.ndarray) -> None:
        super().skip_settling(numbers)
        self.memory["caught"][numbers] = False

    def advance(self) -> None:
        self.batch.rollout(self.frame_skip, record=("qpos",), out=self._records)

    def judge(self, fell: np.ndarray, score: np.ndarray, reward: np.ndarray, terminated: np.ndarray) -> None:
        caught = self.memory["caught"]
        new = self._touches(self._records["qpos"], self.layout["butterfly"]) & ~caught
        score[:] = np.count_nonzero(new, axis=1)
        caught |= new
        reward[:] = score

    def observe_task(self, rows: Rows, out: np.ndarray) -> None:
        seen = (self.layout["butterfly"][rows] - self.torso_position(rows)[:, None]) @ self.torso_rotation(rows)
        field, value = grid_fields(seen)
        value[self.memory["caught"][rows]] = 0.0
        out[:] = 0.0
        np.maximum.at(out, (np.arange(len(out))[:, None], field), value.astype(out.dtype))

    def dress(self, index: int, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        for number, place in enumerate(self.layout["butterfly"][index]):
            is_caught = self.memory["caught"][index, number]
            put_mark(model, f"butterfly_{number}", world.PARKED if is_caught else place)

    def _touches(self, qpos: np.ndarray, butterflies: np.ndarray) -> np.ndarray:
        """Positions after each substep [n, substeps, nq], butterflies [n, m, 3] -> which were touched [n, m]."""
        places = qpos[:, :, self.view.qpos]  # the cube's joints are x, y, z, and it does not turn
        away = butterflies[:, None] - (places + self._disc)[:, :, None]
        return np.any(disc_touches(away, self.config.net_radius, RADIUS), axis=1)


def disc_touches(away: np.ndarray, disc_radius: float, radius: float) -> np.ndarray:
    """Offsets of spheres from the centre of a disc whose normal is y [..., 3] -> whether they touch it [...]."""
    beyond = np.maximum(np.hypot(away[..., 0], away[..., 2]) - disc_radius, 0.0)
    return np.less_equal(beyond * beyond + np.square(away[..., 1]), radius * radius)


def grid_fields(seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Offsets in the head's frame [..., 3] -> number of the field and exp(-distance) [...]."""
    distance = np.linalg.norm(seen, axis=-1)
    unit = seen / np.maximum(distance, np.finfo(np.float64).tiny)[..., None]
    latitude = np.arccos(np.clip(unit[..., 1], -1.0, 1.0))
    longitude = np.arctan2(unit[..., 0], unit[..., 2]) + np.pi
    row = np.minimum((latitude * (FIELDS / np.pi)).astype(np.int64), FIELDS - 1)
    column = np.minimum((longitude * (FIELDS / (2 * np.pi))).astype(np.int64), FIELDS - 1)
    return FIELDS * row + column, np.exp(-distance)
