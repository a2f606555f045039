"""Windows: which one opens where, how fast they run, that they close; the real viewer where there is a screen."""

from __future__ import annotations

import sys
import types

import pytest

from gaitway import make_env
from gaitway.envs.pictures import viewer
from gaitway.envs.pictures.viewer import (
    Pace,
    PictureWindow,
    SceneWindow,
    ScreenError,
    has_screen,
    open_screen,
    viewer_problem,
)


class Clock:
    """Time that passes only when somebody sleeps or works."""

    def __init__(self) -> None:
        self.now, self.slept = 100.0, []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))
        self.now += seconds


def test_the_pace_is_that_of_the_task_however_long_the_work_takes():
    clock = Clock()
    pace = Pace(0.025, clock, clock.sleep)
    for work in (0.010, 0.020, 0.030, 0.005):
        pace.wait()
        clock.now += work
    pace.wait()
    # rounds begin at 0, 25, 50, 80 (the work took 30 ms), 100: the delay is made up for
    assert clock.slept == [0.015, 0.005, 0.015]
    assert clock.now == pytest.approx(100.1)


def test_after_a_long_pause_nothing_is_made_up_for():
    clock = Clock()
    pace = Pace(0.025, clock, clock.sleep)
    pace.wait()
    clock.now += 60.0
    for _ in range(3):
        pace.wait()
    assert clock.slept == [0.025, 0.025]


@pytest.fixture
def no_screen(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)


def test_without_a_screen_one_sentence_says_so(no_screen):
    assert not has_screen()
    with make_env("HalfCheetah-v5") as env:
        with pytest.raises(ScreenError, match=r"no screen here \(DISPLAY is not set\)"):
            open_screen(env)
        with pytest.raises(ScreenError, match="no screen"):
            PictureWindow(env)


def test_a_screen_on_which_glfw_does_not_start_is_no_place_for_the_viewer(no_screen, monkeypatch):
    glfw = pytest.importorskip("glfw")
    monkeypatch.setattr(glfw, "init", lambda: False)
    monkeypatch.setenv("DISPLAY", ":9999")
    assert has_screen()
    assert "GLFW does not start" in str(viewer_problem())
    with make_env("HalfCheetah-v5") as env, pytest.raises(ScreenError, match="GLFW"):
        SceneWindow(env)


def test_other_environments_open_a_plain_window(no_screen, monkeypatch):
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    with make_env("gymnasium:CartPole-v1", purpose="evaluation") as env:
        screen = open_screen(env, (64, 48))
        assert isinstance(screen, PictureWindow)
        for _ in range(2):
            screen.show()
            assert screen.is_open
        screen.close()
        assert not screen.is_open
        with pytest.raises(ScreenError, match="no native environment"):
            SceneWindow(env)


class Handle:
    """Stands for MuJoCo's viewer: writes down what it was told."""

    def __init__(self, model, data) -> None:
        import mujoco

        self.model, self.data, self.cam, self.synced, self.running = model, data, mujoco.MjvCamera(), [], True

    def lock(self):
        import contextlib

        return contextlib.nullcontext()

    def sync(self) -> None:
        self.synced.append(self.data.qpos.copy())

    def is_running(self) -> bool:
        return self.running

    def close(self) -> None:
        self.running = False


def test_the_viewer_is_fed_with_every_state_and_looks_where_pictures_look(no_screen, monkeypatch):
    import mujoco
    import torch

    made = []

    def launch_passive(model, data, **options):
        assert options == {"key_callback": None, "show_left_ui": False, "show_right_ui": False}
        made.append(Handle(model, data))
        return made[-1]

    module = types.ModuleType("mujoco.viewer")
    module.launch_passive = launch_passive
    monkeypatch.setitem(sys.modules, "mujoco.viewer", module)
    monkeypatch.setattr(mujoco, "viewer", module, raising=False)
    monkeypatch.setattr(viewer, "viewer_problem", lambda: None)
    monkeypatch.setenv("DISPLAY", ":0")
    with make_env("HalfCheetah-v5", seed=3) as env:
        screen = open_screen(env)
        assert isinstance(screen, SceneWindow)
        (handle,) = made
        assert (handle.cam.type, handle.cam.fixedcamid) == (mujoco.mjtCamera.mjCAMERA_FIXED, 0)
        states = []
        for _ in range(3):
            screen.show()
            states.append(env.task.qpos[0].copy())
            env.step(torch.ones(1, 6))
        assert [list(state) for state in handle.synced] == [list(state) for state in states]
        assert screen.is_open
        screen.close()
        assert not screen.is_open
        SceneWindow(env, "follow")
        assert made[-1].cam.type == mujoco.mjtCamera.mjCAMERA_TRACKING


@pytest.mark.skipif(not has_screen() or viewer_problem() is not None, reason="there is no screen here")
def test_the_real_viewer_opens_and_closes():
    with make_env("HalfCheetah-v5") as env:
        screen = SceneWindow(env)
        screen.show()
        assert screen.is_open
        screen.close()
        assert not any(thread.is_alive() for thread in screen._threads)
