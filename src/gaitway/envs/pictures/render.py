"""Pictures of MuJoCo scenes on machines with and without a screen.

MuJoCo chooses its OpenGL backend once, when it is imported, from the variable MUJOCO_GL. `prepare_gl` sets it: EGL if
its libraries can be loaded, else OSMesa, else "disable", because MuJoCo cannot even be imported when the variable names
a backend whose libraries are missing, and training must never depend on them. It runs when gaitway is imported and
therefore imports nothing heavy.
"""

from __future__ import annotations

import atexit
import ctypes
import ctypes.util
import functools
import logging
import os
import sys
import weakref
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

if TYPE_CHECKING:
    import mujoco

logger = logging.getLogger(__name__)

APT_COMMAND = (
    "apt-get update && apt-get install -y --no-install-recommends libegl1 libopengl0 libgl1-mesa-dri libosmesa6"
)
"""What makes both headless backends work on Debian and Ubuntu."""

FOLLOW = "follow"
"""Name of the camera that every model has."""

OFF = ("disable", "disabled", "off", "false", "0")
"""Values of MUJOCO_GL with which MuJoCo loads no OpenGL at all."""

Quality = Literal["fast", "shadows", "full"]
"""`fast`: no shadows, no reflections, no multisampling. `shadows`: shadows of moderate sharpness. `full`: all that the
model asks for. In software OpenGL a picture of 480 x 360 takes about 10, 30 and 90 ms."""

SHADOW_SIZE = 2048
"""Pixels per side of the shadow map of quality `shadows`; MuJoCo's own 4096 take three times as long."""


def prepare_gl() -> str:
    """Set MUJOCO_GL for the first `import mujoco` of this process and return it ("" for MuJoCo's own choice).

    A value that the user set stays, unless its libraries cannot be loaded. With a screen and no headless library
    MuJoCo's own choice, a window, stays.
    """
    chosen = os.environ.get("MUJOCO_GL", "").lower().strip()
    if not sys.platform.startswith("linux") or (chosen and _loadable(chosen)):
        return chosen
    backend = next((name for name in ("egl", "osmesa") if _loadable(name)), "")
    if not backend and (chosen or not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))):
        backend = "disable"
    if backend:
        os.environ["MUJOCO_GL"] = backend
    return backend


@functools.cache
def rendering_problem() -> str | None:
    """None if pictures can be drawn here, else one sentence with the reason and the command that mends it.

    Draws a small scene the first time it is called.
    """
    prepare_gl()
    import mujoco

    scene = "<mujoco><worldbody><geom type='sphere' size='1' rgba='1 1 1 1'/></worldbody></mujoco>"
    model = mujoco.MjModel.from_xml_string(scene)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    painter = MujocoPainter(model)
    try:
        drawn = bool(painter.draw(data, 32, 32).any())
    except RuntimeError as error:
        return str(error)
    finally:
        painter.close()
    return None if drawn else _explanation("the frame came out black")


class MujocoPainter:
    """Draws one model; keeps a renderer, and with it an OpenGL context, for every size it was asked for.

    Draw from one thread only: OpenGL contexts belong to the thread that made them.
    """

    def __init__(self, model: mujoco.MjModel, quality: Quality = "fast") -> None:
        if quality not in get_args(Quality):
            raise ValueError(f"the quality is {quality!r}; use one of {', '.join(get_args(Quality))}")
        self.model = model
        self.quality = quality
        self._renderers: dict[tuple[int, int], mujoco.Renderer] = {}
        self._follower: mujoco.MjvCamera | None = None
        self._warned = False
        weakref.finalize(self, _free, self._renderers).atexit = False  # see _close_at_exit

    def draw(
        self, data: mujoco.MjData, width: int = 640, height: int = 480, camera: str | int | None = None
    ) -> np.ndarray:
        """A picture of `data`, uint8 `[height, width, 3]`; its positions must be up to date (`mj_forward`).

        `camera` is a name or number of the model's cameras, -1 for the free camera that overlooks the whole model, or
        "follow" for one that goes along with the robot, seen from the side. None takes the model's first camera, and
        "follow" where there is none. A camera of the model that is called "follow" comes first.
        """
        if camera is None:
            camera = 0 if self.model.ncam else FOLLOW
        frame = self._draw(data, width, height, camera)
        if not frame.any() and not self._warned:
            self._renderers.pop((width, height)).close()  # a context that was lost draws black
            frame = self._draw(data, width, height, camera)
            if not frame.any():
                self._warned = True
                logger.warning("the picture is wholly black: camera %r sees nothing that is lit", camera)
        return frame

    def aim(self, camera: mujoco.MjvCamera, which: str | int) -> None:
        """Set a camera, for example of MuJoCo's viewer, to what `draw` would use for `which`."""
        import mujoco

        if which == FOLLOW and not self._has_own_follow():
            source = self._following_camera()
            for name in ("type", "trackbodyid", "distance", "azimuth", "elevation"):
                setattr(camera, name, getattr(source, name))
            camera.lookat[:] = source.lookat
        elif which == -1:
            mujoco.mjv_defaultFreeCamera(self.model, camera)
        else:
            camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
            camera.fixedcamid = self.model.camera(which).id

    def close(self) -> None:
        """Free the OpenGL contexts; calling it twice is fine, drawing again opens new ones."""
        _free(self._renderers)

    def _draw(self, data: mujoco.MjData, width: int, height: int, camera: str | int) -> np.ndarray:
        import mujoco

        renderer = self._renderers.get((width, height))
        if renderer is None:
            renderer = self._renderers[width, height] = self._new_renderer(width, height)
        follows = camera == FOLLOW and not self._has_own_follow()
        renderer.update_scene(data, self._following_camera() if follows else camera)
        renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = self.quality != "fast"
        renderer.scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = self.quality == "full"
        return renderer.render()

    def _has_own_follow(self) -> bool:
        return FOLLOW in (self.model.camera(number).name for number in range(self.model.ncam))

    def _new_renderer(self, width: int, height: int) -> mujoco.Renderer:
        import mujoco

        visual = self.model.vis
        quality, size = visual.quality, visual.global_
        kept = (quality.offsamples, quality.shadowsize, size.offwidth, size.offheight)
        if self.quality != "full":
            quality.offsamples = 0
            quality.shadowsize = min(kept[1], SHADOW_SIZE)
        size.offwidth = max(kept[2], width)
        size.offheight = max(kept[3], height)
        try:
            renderer = mujoco.Renderer(self.model, height, width)
        except Exception as error:  # PyOpenGL, GLFW and MuJoCo raise a dozen unrelated types when OpenGL is missing
            raise RuntimeError(_explanation(f"{type(error).__name__}: {error}")) from error
        finally:
            quality.offsamples, quality.shadowsize, size.offwidth, size.offheight = kept
        _close_at_exit(self)
        return renderer

    def _following_camera(self) -> mujoco.MjvCamera:
        """A side view that follows the first moving body, far enough away to hold all that hangs on it."""
        import mujoco

        if self._follower is None:
            model, camera = self.model, mujoco.MjvCamera()
            if model.njnt == 0:
                mujoco.mjv_defaultFreeCamera(model, camera)
            else:
                root = model.body_rootid[model.jnt_bodyid[0]]
                data = mujoco.MjData(model)
                mujoco.mj_forward(model, data)
                geoms = np.flatnonzero(model.body_rootid[model.geom_bodyid] == root)
                away = np.linalg.norm(data.geom_xpos[geoms] - data.subtree_com[root], axis=1) + model.geom_rbound[geoms]
                camera.type = mujoco.mjtCamera.mjCAMERA_TRACKING
                camera.trackbodyid = root
                camera.distance = 3.0 * (away.max() if len(geoms) else model.stat.extent)
                camera.azimuth, camera.elevation = 90.0, -12.0  # looks along +y: a robot that runs along +x goes right
            self._follower = camera
        return self._follower


def _loadable(backend: str) -> bool:
    """Whether the shared libraries of a backend load; a name that MuJoCo does not know counts as one that does not."""
    if backend not in ("egl", "osmesa"):
        return backend in ("glfw", "glx", "wgl", "cgl", *OFF)
    names = ["libEGL.so.1", "libOpenGL.so.0"] if backend == "egl" else [ctypes.util.find_library("OSMesa")]
    try:
        # None would load the program itself
        return all(name is not None and ctypes.CDLL(name) is not None for name in names)
    except OSError:
        return False


def _explanation(reason: str) -> str:
    backend = os.environ.get("MUJOCO_GL", "")
    if backend in OFF:
        reason = "no OpenGL library was found, or it was switched off"
    reason = " ".join(reason.split())[:200]
    other = " or set MUJOCO_GL=osmesa" if backend == "egl" and _loadable("osmesa") else ""
    return (
        f"pictures cannot be drawn here (MUJOCO_GL={backend or 'unset'}: {reason}); on Debian or "
        f"Ubuntu run `{APT_COMMAND}` as root{other}, then start again and import gaitway before mujoco"
    )


def _free(renderers: dict[tuple[int, int], mujoco.Renderer]) -> None:
    """Close renderers, each in its own context: MuJoCo would free its textures in whichever context is current."""
    while renderers:
        renderer = renderers.popitem()[1]
        if renderer._gl_context is not None:
            renderer._gl_context.make_current()
        renderer.close()


_painters: weakref.WeakSet[MujocoPainter] = weakref.WeakSet()


def _close_at_exit(painter: MujocoPainter) -> None:
    # MuJoCo registers the end of EGL with the first context. Exit handlers run last in, first out, so that closing what
    # is still open comes before it only if it is registered after it.
    if not _painters:
        atexit.unregister(_close_painters)
        atexit.register(_close_painters)
    _painters.add(painter)


def _close_painters() -> None:
    for painter in list(_painters):
        painter.close()
