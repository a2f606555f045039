"""One instance of a native environment as a MuJoCo model and data, decorated, for pictures and for the viewer.

scene = Scene(native_task(env))
scene.update(3)
MujocoPainter(scene.model).draw(scene.data, camera=scene.camera)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np

from gaitway.envs.batch_task import BatchTask
from gaitway.envs.pictures.render import FOLLOW, MujocoPainter, Quality
from gaitway.envs.robots.world import WIDE
from gaitway.envs.vec_env import VecEnv
from gaitway.envs.wrappers import innermost

STATE = ("qpos", "qvel", "mocap_pos", "mocap_quat")
GEOMETRY = ("geom_pos", "geom_quat", "geom_size")
"""Model fields that a task may give every instance its own values of."""


class Scene:
    """The decorated model of a task, brought to the state of any instance.

    Geoms that stand elsewhere, or are larger, in one instance than in the training model (`Batch.expand`) do so here
    too. They are found by their names, or by their numbers where both models have the same geoms.
    """

    def __init__(self, task: BatchTask) -> None:
        self.task = task
        self.model = task.render_model()
        self.data = mujoco.MjData(self.model)
        if (self.model.nq, self.model.nv, self.model.nmocap) != (task.model.nq, task.model.nv, task.model.nmocap):
            raise ValueError(f"the decorated model of {task.id} has another state than the one that is simulated")
        self._own: mujoco.MjModel | None = None
        self._pairs = _same_geoms(task.model, self.model)
        self._drawn_as = {name: getattr(self.model, name).copy() for name in GEOMETRY}

    @property
    def camera(self) -> str | int:
        """The task's camera, else the robot's first, else the one that follows the robot."""
        own = self.model.ncam and self.model.camera(0).name != WIDE
        return self.task.camera or (0 if own else FOLLOW)

    def update(self, index: int) -> None:
        """Take the state, and the geometry, of instance `index`."""
        batch = self.task.batch
        if not 0 <= index < batch.nsim:
            raise IndexError(f"instance {index} does not exist; there are {batch.nsim}")
        for name in STATE:
            getattr(self.data, name)[:] = batch.bind(name)[index]
        self._own = batch.get_model(index, self._own)
        simulated, drawn = self._pairs
        for name, usual in self._drawn_as.items():
            values = getattr(self._own, name)[simulated]
            moved = (values != getattr(self.task.model, name)[simulated]).any(axis=1)
            target = getattr(self.model, name)
            target[:] = usual
            target[drawn[moved]] = values[moved]
        self.task.dress(index, self.model, self.data)
        mujoco.mj_forward(self.model, self.data)


class CameraError(ValueError):
    """The environment cannot be drawn in the way that was asked for."""


class Camera:
    """Pictures of one instance of any environment that can be drawn; called with width and height.

    Native environments can be drawn with shadows (`quality`) and from any of their cameras; others take neither. Close
    it to free the OpenGL context.
    """

    def __init__(self, env: VecEnv, index: int = 0, camera: str | int | None = None, quality: Quality = "fast") -> None:
        self.env, self.index, self.camera = env, index, camera
        task = native_task(env)
        if task is None and (camera is not None or quality != "fast"):
            raise CameraError(f"{env.spec.id} draws itself; cameras and shadows are there for native tasks alone")
        self._scene = None if task is None else Scene(task)
        self._painter = None if self._scene is None else MujocoPainter(self._scene.model, quality)
        if self._scene is not None:
            known = cameras(self._scene.model)
            if isinstance(camera, str) and camera not in known:
                raise CameraError(f"{env.spec.id} has no camera {camera!r}; it has {', '.join(known)}")

    def __call__(self, width: int, height: int) -> np.ndarray:
        if self._scene is None or self._painter is None:
            return self.env.render(self.index, width, height)
        self._scene.update(self.index)
        camera = self._scene.camera if self.camera is None else self.camera
        return self._painter.draw(self._scene.data, width, height, camera)

    def close(self) -> None:
        if self._painter is not None:
            self._painter.close()

    def __enter__(self) -> Camera:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def native_task(env: VecEnv) -> BatchTask | None:
    """The task of a native environment, through any wrappers; None for other environments."""
    task = getattr(innermost(env), "task", None)
    return task if isinstance(task, BatchTask) else None


def send_off(env: VecEnv) -> tuple[float, float, float] | None:
    """Have a legged robot that is watched, and that nobody commands, go somewhere instead of standing; what it is told,
    None where it has commands of its own."""
    task: Any = native_task(env)
    command = getattr(task, "shown_command", None)
    if command is not None:
        env.call("tell", command)
    return command


def cameras(model: mujoco.MjModel) -> list[str]:
    """Names of cameras that a picture can be taken with."""
    return [*dict.fromkeys([FOLLOW, *filter(None, (model.camera(i).name for i in range(model.ncam)))])]


def _same_geoms(one: mujoco.MjModel, other: mujoco.MjModel) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the geoms that both models have, in each of them."""

    def names(model: mujoco.MjModel) -> Sequence[str]:
        return [model.geom(i).name for i in range(model.ngeom)]

    mine, theirs = names(one), names(other)
    if mine == theirs:
        every = np.arange(one.ngeom)
        return every, every
    places = {name: place for place, name in enumerate(theirs) if name}
    pairs = [(place, places[name]) for place, name in enumerate(mine) if name in places]
    found = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]
