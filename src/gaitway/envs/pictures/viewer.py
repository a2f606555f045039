"""A window in which an environment is watched while it runs, in real time.

Native environments open MuJoCo's own viewer: the mouse turns and moves the view, a double click selects a body, F1
lists the keys. Others are drawn into a plain window. Where neither can be opened, `open_screen` says why.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any, Protocol

from gaitway.envs.pictures.scene import Scene, native_task
from gaitway.envs.pictures.window import PlainWindow, real_time, screen_problem
from gaitway.envs.vec_env import VecEnv

KEY_NAMES = {262: "right", 263: "left", 264: "down", 265: "up", 32: "space"}
"""GLFW's numbers of keys."""
CLOSING_S = 10.0
"""How long a window may take to close."""


class ScreenError(RuntimeError):
    """No window can be opened here; the message is one sentence."""


class Screen(Protocol):
    """Something that shows instance 0 as it stands."""

    @property
    def is_open(self) -> bool: ...

    def show(self) -> None: ...

    def close(self) -> None: ...


class Pace:
    """Lets a loop pass once in `period_s` seconds; a loop that fell behind by more than a few rounds starts anew."""

    def __init__(
        self,
        period_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.period_s, self._clock, self._sleep = period_s, clock, sleep
        self._due: float | None = None

    def wait(self) -> None:
        now = self._clock()
        if self._due is None or now - self._due > 5 * self.period_s:
            self._due = now
        if self._due > now:
            self._sleep(self._due - now)
        self._due += self.period_s


class SceneWindow:
    """MuJoCo's viewer of instance 0 of a native environment, with the decorated model."""

    def __init__(
        self, env: VecEnv, camera: str | int | None = None, press: Callable[[str], None] | None = None
    ) -> None:
        task = native_task(env)
        if task is None:
            raise ScreenError(f"{env.spec.id} is no native environment; MuJoCo's viewer cannot show it")
        problem = viewer_problem()
        if problem is not None:
            raise ScreenError(problem)
        from mujoco import viewer

        from gaitway.envs.pictures.render import MujocoPainter

        self._scene = Scene(task)
        self._scene.update(0)
        self._pace = Pace(env.spec.control_dt)
        others = set(threading.enumerate())
        self._handle = viewer.launch_passive(
            self._scene.model,
            self._scene.data,
            key_callback=None if press is None else lambda code: press(KEY_NAMES.get(code, "")),
            show_left_ui=False,
            show_right_ui=False,
        )
        self._threads = [thread for thread in threading.enumerate() if thread not in others]
        with self._handle.lock():
            which = self._scene.camera if camera is None else camera
            MujocoPainter(self._scene.model).aim(self._handle.cam, which)

    @property
    def is_open(self) -> bool:
        return self._handle.is_running()

    def show(self) -> None:
        self._pace.wait()
        with self._handle.lock():
            self._scene.update(0)
        self._handle.sync()

    def close(self) -> None:
        self._handle.close()
        for thread in self._threads:  # one that still draws when the program ends takes the program down
            thread.join(CLOSING_S)


class PictureWindow(PlainWindow):
    """The environment's own pictures of instance 0 in a plain window."""

    def __init__(
        self, env: VecEnv, size: tuple[int, int] = (640, 480), press: Callable[[str], None] | None = None
    ) -> None:
        problem = screen_problem()
        if problem is not None:
            raise ScreenError(problem.split(";")[0])
        super().__init__(lambda: env.render(0, *size), size, real_time(env.spec), press)


def open_screen(
    env: VecEnv,
    size: tuple[int, int] = (640, 480),
    camera: str | int | None = None,
    press: Callable[[str], None] | None = None,
) -> Screen:
    """The best window there is for `env`; a ScreenError where there is none. `press` is told keys by name: up, down,
    left, right, space."""
    if not has_screen():
        raise ScreenError("there is no screen here (DISPLAY is not set)")
    if native_task(env) is not None and viewer_problem() is None:
        return SceneWindow(env, camera, press)
    return PictureWindow(env, size, press)


def has_screen() -> bool:
    """Whether this session has a screen at all."""
    named = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"))
    return named or not sys.platform.startswith("linux")


def viewer_problem() -> str | None:
    """None if MuJoCo's viewer can open a window here, else one sentence."""
    if sys.platform == "darwin" and not _runs_under_mjpython():
        return "on macOS MuJoCo's viewer needs `mjpython -m gaitway.cli.main` instead of `gaitway`"
    try:
        import glfw
    except ImportError as error:
        return f"MuJoCo's viewer needs GLFW ({error}); run `pip install glfw`"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", glfw.GLFWError)
        # asked here because the viewer, which asks in a thread of its own, would wait for ever
        return None if glfw.init() else "MuJoCo's viewer cannot open a window here (GLFW does not start)"


def _runs_under_mjpython() -> bool:
    import mujoco.viewer as viewer

    launcher: Any = getattr(viewer, "_MJPYTHON", None)
    return launcher is not None
