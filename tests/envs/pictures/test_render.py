"""Pictures: the choice of backend, what is drawn, and the sentence for machines that cannot draw."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from gaitway.envs.pictures import render
from gaitway.envs.pictures.render import APT_COMMAND, MujocoPainter, prepare_gl, rendering_problem

SCENE = """
<mujoco>
  <visual><quality offsamples="4"/><global offwidth="64" offheight="48"/></visual>
  <worldbody>
    <geom type="plane" size="50 50 1" rgba="0.2 0.3 0.4 1"/>
    <body name="cart" pos="0 0 1">
      <joint type="slide" axis="1 0 0"/>
      <geom type="box" size="0.3 0.3 0.3" rgba="1 0 0 1"/>
    </body>
    {camera}
  </worldbody>
</mujoco>
"""

needs_gl = pytest.mark.skipif(rendering_problem() is not None, reason=str(rendering_problem()))


@pytest.fixture
def scene():
    import mujoco

    def build(camera: str = "", at: float = 0.0):
        model = mujoco.MjModel.from_xml_string(SCENE.format(camera=camera))
        data = mujoco.MjData(model)
        data.qpos[0] = at
        mujoco.mj_forward(model, data)
        return model, data

    return build


def red(frame: np.ndarray) -> np.ndarray:
    """Where the picture shows the cart, [H, W] bool."""
    level = frame.astype(int)
    return (level[..., 0] > 60) & (level[..., 1:] < level[..., :1] * 0.4).all(axis=-1)


@needs_gl
def test_draws_the_scene_at_any_size_and_leaves_the_model_alone(scene):
    model, data = scene()
    painter = MujocoPainter(model)
    for width, height in ((64, 48), (200, 120), (64, 48)):  # larger than the model's own frame buffer
        frame = painter.draw(data, width, height)
        assert frame.shape == (height, width, 3)
        assert frame.dtype == np.uint8
        assert red(frame).mean() > 0.01
        assert red(frame).mean() < 0.5
    assert len(painter._renderers) == 2
    assert (model.vis.quality.offsamples, model.vis.global_.offwidth, model.vis.global_.offheight) == (4, 64, 48)
    painter.close()
    painter.close()


@needs_gl
def test_the_camera_follows_the_robot(scene):
    model, near = scene()
    _, far = scene(at=40.0)
    painter = MujocoPainter(model)
    columns = [np.flatnonzero(red(painter.draw(data, 64, 48)).any(axis=0)).mean() for data in (near, far)]
    assert columns == pytest.approx([31.5, 31.5], abs=1.5)  # the middle of 64 columns, however far it went
    assert red(painter.draw(near, 64, 48, camera=-1)).any()
    assert not red(painter.draw(far, 64, 48, camera=-1)).any()  # the free camera stays behind
    painter.close()


@needs_gl
def test_a_camera_of_the_model_comes_first(scene):
    model, data = scene(camera='<camera name="up" pos="0 -3 1" euler="180 0 0"/>')  # looks away from the robot
    painter = MujocoPainter(model)
    assert not red(painter.draw(data, 64, 48)).any()
    assert np.array_equal(painter.draw(data, 64, 48), painter.draw(data, 64, 48, camera="up"))
    assert red(painter.draw(data, 64, 48, camera="follow")).any()
    with pytest.raises(ValueError, match="side"):
        painter.draw(data, 64, 48, camera="side")
    painter.close()


@needs_gl
def test_a_camera_with_trackcom_follows_and_a_fixed_one_does_not(scene):
    where = 'pos="0 -4 1" xyaxes="1 0 0 0 0 1"'
    model, near = scene(camera=f'<camera name="along" mode="trackcom" {where}/><camera name="still" {where}/>')
    _, far = scene(camera=f'<camera name="along" mode="trackcom" {where}/><camera name="still" {where}/>', at=30.0)
    painter = MujocoPainter(model)
    assert red(painter.draw(near, 64, 48, "along")).any()
    assert red(painter.draw(far, 64, 48, "along")).sum() == red(painter.draw(near, 64, 48, "along")).sum()
    assert red(painter.draw(near, 64, 48, "still")).any()
    assert not red(painter.draw(far, 64, 48, "still")).any()
    painter.close()


@needs_gl
def test_quality_switches_shadows_on(scene):
    lamp = '<light directional="true" pos="0 0 5" dir="1 0 -1" diffuse="1 1 1"/><camera pos="0 -4 2" euler="70 0 0"/>'
    model, data = scene(camera=lamp)
    frames = {}
    for quality in ("fast", "shadows", "full"):
        painter = MujocoPainter(model, quality)
        frames[quality] = painter.draw(data, 200, 120).astype(int)
        painter.close()
    darker = {quality: (frames["fast"] - frame).max(axis=2) > 30 for quality, frame in frames.items()}
    assert darker["shadows"].sum() > 200  # a patch of the floor at the right of the cart
    assert np.flatnonzero(darker["shadows"].any(axis=0)).mean() > 100
    assert darker["full"].sum() == pytest.approx(darker["shadows"].sum(), rel=0.2)
    assert (model.vis.quality.offsamples, model.vis.quality.shadowsize) == (4, 4096)  # as before
    with pytest.raises(ValueError, match="fast, shadows, full"):
        MujocoPainter(model, "best")


@needs_gl
def test_a_lost_context_is_replaced_and_a_dark_scene_is_mentioned_once(scene, monkeypatch, caplog):
    import mujoco

    model, data = scene()
    painter, real, drawn = MujocoPainter(model), mujoco.Renderer.render, []

    def render(self):
        drawn.append(self)
        return real(self) if len(drawn) > 1 else np.zeros((48, 64, 3), np.uint8)

    monkeypatch.setattr(mujoco.Renderer, "render", render)
    assert painter.draw(data, 64, 48).any()
    assert len(drawn) == 2
    assert drawn[0] is not drawn[1]
    assert not caplog.records
    monkeypatch.setattr(mujoco.Renderer, "render", lambda self: np.zeros((48, 64, 3), np.uint8))
    for _ in range(3):
        assert not painter.draw(data, 64, 48).any()
    assert caplog.text.count("wholly black") == 1
    painter.close()


@needs_gl
def test_another_camera_can_be_aimed_alike(scene):
    import mujoco

    model, _ = scene(camera='<camera name="side" pos="0 -3 1" xyaxes="1 0 0 0 0 1"/>')
    painter, camera = MujocoPainter(model), mujoco.MjvCamera()
    painter.aim(camera, "side")
    assert (camera.type, camera.fixedcamid) == (mujoco.mjtCamera.mjCAMERA_FIXED, 0)
    painter.aim(camera, "follow")
    assert (camera.type, camera.trackbodyid) == (mujoco.mjtCamera.mjCAMERA_TRACKING, 1)
    assert (camera.azimuth, camera.elevation) == (90.0, -12.0)
    assert camera.distance > 1.0
    painter.aim(camera, -1)
    assert camera.type == mujoco.mjtCamera.mjCAMERA_FREE


@needs_gl
@pytest.mark.parametrize("how", ["closed", "forgotten"])
def test_a_painter_that_goes_does_not_harm_the_others(scene, how):
    model, data = scene()
    one, other = MujocoPainter(model), MujocoPainter(model)
    one.draw(data, 64, 48)
    expected = other.draw(data, 64, 48)
    if how == "closed":
        one.close()
    else:
        del one
    assert np.array_equal(other.draw(data, 64, 48), expected)
    other.close()


@pytest.mark.parametrize(
    ("libraries", "given", "screen", "expected"),
    [
        ({"egl", "osmesa"}, None, False, "egl"),
        ({"osmesa"}, None, False, "osmesa"),
        ({"egl", "osmesa"}, "osmesa", False, "osmesa"),
        ({"egl"}, "glfw", False, "glfw"),
        ({"osmesa"}, "egl", False, "osmesa"),
        (set(), "egl", True, "disable"),
        (set(), None, False, "disable"),
        (set(), None, True, ""),
    ],
)
def test_choice_of_the_backend(monkeypatch, libraries, given, screen, expected):
    monkeypatch.setattr(render, "_loadable", lambda name: name in libraries or name not in ("egl", "osmesa"))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("MUJOCO_GL", given or "")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("DISPLAY", ":0" if screen else "")
    assert prepare_gl() == expected
    assert os.environ["MUJOCO_GL"] == expected


def run_python(code: str, **variables: str) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYOPENGL_PLATFORM"} | variables
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


def test_prepare_gl_does_not_import_mujoco():
    code = (
        "import sys; from gaitway.envs.pictures.render import prepare_gl; prepare_gl(); print('mujoco' in sys.modules)"
    )
    assert run_python(code, MUJOCO_GL="") == "False"


def test_without_opengl_one_sentence_names_the_command():
    sentence = run_python("from gaitway.envs.pictures.render import *; print(rendering_problem())", MUJOCO_GL="disable")
    assert APT_COMMAND in sentence
    assert "MUJOCO_GL=disable" in sentence
    assert "\n" not in sentence


@needs_gl
def test_an_open_painter_does_not_disturb_the_end_of_the_program():
    code = """
from gaitway.envs.pictures.render import *
prepare_gl()
import mujoco
model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
painter = MujocoPainter(model)
print(painter.draw(data, 32, 32).any())
"""
    assert run_python(code) == "True"


def test_a_backend_that_nobody_knows_is_not_kept(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "banana")
    assert prepare_gl() != "banana"
