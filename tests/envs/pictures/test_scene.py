"""One instance as a decorated scene: its state, its own geometry, its cameras."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch

from gaitway import make_env
from gaitway.envs.batch_task import STAGE_POSITION, BatchTask
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.pictures.render import rendering_problem
from gaitway.envs.pictures.scene import Camera, CameraError, Scene, cameras, native_task
from gaitway.envs.robots.robot import Robot
from gaitway.envs.spec import Component, ObservationGroup
from gaitway.envs.wrappers import make_wrapper

needs_gl = pytest.mark.skipif(rendering_problem() is not None, reason=str(rendering_problem()))

MODEL = """
<mujoco>
  <worldbody>
    {decoration}
    <geom name="floor" type="plane" size="0 0 1" rgba=".2 .2 .2 1"/>
    <geom name="wall" type="box" pos="2 0 .5" size=".1 1 .5" rgba="0 1 0 1"/>
    <body name="flag" mocap="true" pos="0 2 .5">
      <geom name="flag" type="sphere" size=".3" rgba="0 0 1 1" mass="0"/>
    </body>
    <body name="cart" pos="0 0 .3">
      <joint name="x" type="slide" axis="1 0 0"/>
      <geom name="cart" type="box" size=".2 .2 .2" rgba="1 0 0 1"/>
    </body>
    {camera}
  </worldbody>
  <actuator><motor joint="x" ctrlrange="-1 1"/></actuator>
</mujoco>
"""


class Carts(BatchTask):
    """A cart before a wall that stands elsewhere in every instance, and a flag that hangs elsewhere."""

    id, frame_skip, max_episode_steps = "test/carts", 1, 0
    metrics, options = (), {}
    layout_shapes = {"wall": (1,)}  # noqa: RUF012
    start_stage = STAGE_POSITION
    groups = (ObservationGroup("policy", (Component("x", 1, "m"),), (1,)),)

    def __init__(self, camera: str | None = "above") -> None:
        self.model = mujoco.MjModel.from_xml_string(MODEL.format(decoration="", camera=""))
        self.camera = camera

    def attach(self, batch) -> None:
        super().attach(batch)
        self.walls = batch.expand("geom_pos")

    def draw(self, generator):
        where = generator.uniform(1.0, 3.0, 1)
        return {"qpos": generator.uniform(-1.0, 1.0, 1), "qvel": np.zeros(1), "wall": where}

    def start(self, rows) -> None:
        self.walls[rows, 1, 0] = self.layout["wall"][rows, 0]
        self.batch.set_const(rows)
        self.batch.bind("mocap_pos")[rows, 0, 0] = -self.layout["wall"][rows, 0]
        super().start(rows)

    def outcome(self, action, reward, terminated, metrics) -> None:
        reward[:] = 0.0

    def observe(self, rows, out) -> None:
        out["policy"][:] = self.qpos[rows]

    def render_model(self):
        # one geom more, before the others: numbers differ, names do not
        decoration = '<geom type="sphere" pos="0 0 -9" size=".1"/>'
        camera = '<camera name="above" pos="0 0 12"/><camera name="low" pos="0 -9 1" xyaxes="1 0 0 0 0 1"/>'
        return mujoco.MjModel.from_xml_string(MODEL.format(decoration=decoration, camera=camera))


class OwnCart(BatchTask):
    """A task that says no more than who moves, where it starts and what it sees."""

    id, max_episode_steps, groups = "test/own_cart", 0, Carts.groups
    outcome, observe = Carts.outcome, Carts.observe

    def __init__(self, path) -> None:
        self.robot = Robot("cart", path)

    def draw(self, generator):
        return {"qpos": np.zeros(1), "qvel": np.zeros(1)}


@pytest.fixture
def env():
    with MujocoBatchEnv(Carts(), 3, seed=5) as made:
        yield made


def column(frame: np.ndarray, channel: int) -> float:
    """Middle column of what is mostly of one colour."""
    level = frame.astype(int)
    others = [other for other in range(3) if other != channel]
    mask = (level[..., channel] > 80) & (level[..., others].max(axis=-1) < level[..., channel] * 0.5)
    assert mask.any()
    return float(np.flatnonzero(mask.any(axis=0)).mean())


def test_state_and_geometry_are_those_of_the_instance(env):
    scene = Scene(env.task)
    for index in (2, 0, 1, 2):
        scene.update(index)
        wall = float(env.task.layout["wall"][index, 0])
        assert scene.data.qpos[0] == env.task.qpos[index, 0]
        assert scene.data.geom("wall").xpos[0] == pytest.approx(wall)
        assert scene.data.geom("flag").xpos[0] == pytest.approx(-wall)
        assert scene.data.geom("cart").xpos[0] == pytest.approx(float(env.task.qpos[index, 0]))
        assert scene.model.geom("floor").pos.tolist() == [0, 0, 0]
    with pytest.raises(IndexError, match="instance 3 does not exist; there are 3"):
        scene.update(3)


def test_what_stands_as_in_the_model_is_put_back_there(env):
    scene = Scene(env.task)
    env.load_scenario({"wall": torch.tensor([[1.2], [2.0], [2.9]])})  # 2.0 is where the model has it
    for index, where in ((0, 1.2), (1, 2.0), (2, 2.9), (1, 2.0)):
        scene.update(index)
        assert scene.data.geom("wall").xpos[0] == pytest.approx(where)


def test_geometry_follows_into_the_next_episode(env):
    scene = Scene(env.task)
    scene.update(0)
    before = scene.data.geom("wall").xpos[0]
    env.reset(seed=77)
    scene.update(0)
    assert scene.data.geom("wall").xpos[0] == pytest.approx(float(env.task.layout["wall"][0, 0]))
    assert scene.data.geom("wall").xpos[0] != before
    env.step(torch.ones(3, 1))
    scene.update(0)
    assert scene.data.qpos[0] == env.task.qpos[0, 0]


@needs_gl
def test_pictures_show_things_where_they_are(env):
    with Camera(env, 1) as camera:
        frame = camera(320, 240)
        # from 12 m above with a field of 45 degrees the 240 rows show 2 * 12 * tan(22.5 deg) m of the floor
        scale = 240 / (2 * 12 * np.tan(np.pi / 8))
        wall = float(env.task.layout["wall"][1, 0])
        assert column(frame, 1) == pytest.approx(160 + wall * scale, abs=4)
        assert column(frame, 2) == pytest.approx(160 - wall * scale, abs=4)
        assert column(frame, 0) == pytest.approx(160 + float(env.task.qpos[1, 0]) * scale, abs=4)
        camera.index = 2
        assert (camera(320, 240) != frame).any()


@needs_gl
def test_render_of_the_environment_is_the_same_picture(env):
    with Camera(env, 1) as camera:
        assert (env.render(1, 96, 64) == camera(96, 64)).all()
    assert (env.render(1, 96, 64) != env.render(2, 96, 64)).any()
    with pytest.raises(IndexError, match="instance 3 does not exist; there are 3"):
        env.render(3)


@needs_gl
def test_the_camera_is_the_tasks_or_the_one_that_is_asked_for(env):
    frames = {}
    for name in (None, "above", "low", "follow"):
        with Camera(env, 0, name) as camera:
            frames[name] = camera(64, 48)
    assert (frames[None] == frames["above"]).all()
    assert len({frame.tobytes() for frame in frames.values()}) == 3
    assert cameras(Scene(env.task).model) == ["follow", "above", "low"]
    with pytest.raises(CameraError, match="no camera 'lwo'; it has follow, above, low"):
        Camera(env, 0, "lwo")


@needs_gl
@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "Swimmer-v5", "Reacher-v5"])
def test_every_kind_of_native_environment_gives_a_picture(env_id):
    with make_env(env_id, seed=1) as env, Camera(env, quality="shadows") as camera:
        frame = camera(96, 64)
        assert frame.std() > 5
        assert frame.mean() > 20


@needs_gl
def test_a_robot_of_ones_own_is_filmed_under_the_sky_on_the_floor(tmp_path):
    path = tmp_path / "cart.xml"
    path.write_text(
        """<mujoco><worldbody><body pos="0 0 .1"><joint name="x" type="slide" axis="1 0 0"/>
        <geom size=".1" rgba="1 0 0 1"/></body></worldbody><actuator><motor joint="x"/></actuator></mujoco>"""
    )
    with MujocoBatchEnv(OwnCart(path), 1) as env:
        assert Scene(env.task).camera == "follow"  # the wide one would show a dot
        with Camera(env) as near, Camera(env, camera="wide") as far:
            close, wide = near(160, 120).astype(int), far(160, 120).astype(int)
    red, blue = close[..., 0], close[..., 2]
    assert ((red > 80) & (red > 2 * blue))[40:80, 60:100].all()
    assert (blue > 1.5 * red)[:20, :20].all()  # the sky
    floor = wide[..., 2] > 50
    assert floor.any()  # light and dark fields
    assert not floor.all()


@needs_gl
def test_the_camera_goes_along_with_a_robot_that_runs():
    with make_env("HalfCheetah-v5", seed=1) as env, Camera(env) as camera:

        def robot(x: float) -> np.ndarray:
            scenario = env.scenario()
            scenario["qpos"][0, 0] = x
            env.load_scenario(scenario)
            level = camera(160, 120).astype(int)
            return (level[..., 0] > 100) & (level[..., 0] > 1.25 * level[..., 2])  # its skin is brown

        here, there = robot(0.0), robot(20.0)
        assert here.sum() > 100
        assert (here & there).sum() > 0.9 * here.sum()


def test_wrapped_environments_are_native_too_and_others_are_not(env):
    wrapped = make_wrapper(env, {"name": "scale_reward", "scale": 2.0})
    assert native_task(wrapped) is env.task
    with make_env("toy/cartpole") as toy:
        assert native_task(toy) is None
        with pytest.raises(CameraError, match="native tasks alone"):
            Camera(toy, quality="full")
        with pytest.raises(ValueError, match="cannot be drawn"):
            Camera(toy)(64, 48)


def test_a_decoration_that_changes_the_state_is_refused(env, monkeypatch):
    monkeypatch.setattr(Carts, "render_model", lambda self: mujoco.MjModel.from_xml_string("<mujoco/>"))
    with pytest.raises(ValueError, match="another state"):
        Scene(env.task)
