"""Options of native tasks and how they move; the tasks themselves are tested beside them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from mujoco.batch import Batch, SimulationError

from gaitway.envs.batch_task import NO_SENSORS, STAGE_POSITION, BatchTask
from gaitway.envs.robots import world
from gaitway.envs.robots.robot import Robot
from gaitway.envs.task_options import resolve_options

SUBSTEPS = 7
BALL = """
<mujoco>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body name="ball" pos="0 0 0.12"><freejoint/><geom size="0.1"/><site name="middle"/></body>
  </worldbody>
  <sensor><accelerometer site="middle"/><framepos objtype="body" objname="ball"/></sensor>
</mujoco>
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    speed: float = 1.0
    steps: int = 5


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("foo", "robot/run has no option 'foo'; it has ['speed', 'steps']"),
        ("sped", "robot/run has no option 'sped' (did you mean 'speed'?); it has ['speed', 'steps']"),
    ],
)
def test_an_unknown_option_is_answered_in_one_sentence(name: str, sentence: str) -> None:
    with pytest.raises(TypeError) as error:
        resolve_options(Options, "robot/run", {name: 1})
    assert str(error.value) == sentence


def test_only_changed_options_are_reported() -> None:
    assert resolve_options(Options, "robot/run", {"speed": 2, "steps": 5}) == (Options(speed=2.0), {"speed": 2.0})


class BallTask(BatchTask):
    """A ball that falls on the floor; its accelerometer makes MuJoCo compute the contact forces `cfrc_ext`."""

    id = "ball"
    frame_skip = SUBSTEPS
    fields = ("cfrc_ext", "sensordata")
    stage = STAGE_POSITION

    def __init__(self, senses_last: bool, persistent: bool = False) -> None:
        self.model = mujoco.MjModel.from_xml_string(BALL)
        self.senses_last, self.persistent = senses_last, persistent
        self.attach(Batch(self.model, 3, 2, persistent))
        self.qpos[:, 2] += [0.0, 0.005, 0.01]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("numbers", [None, np.array([0, 2], dtype=np.int32)])
def test_sensors_in_the_last_substep_alone_change_nothing(numbers: np.ndarray | None, persistent: bool) -> None:
    always, last = BallTask(False, persistent), BallTask(True, persistent)
    for _ in range(20):
        always.batch.step(numbers, nstep=SUBSTEPS, stage=STAGE_POSITION)
        last.move(numbers, SUBSTEPS)
        assert np.array_equal(always.batch.state, last.batch.state)
        for name in BallTask.fields:
            assert np.array_equal(always.field[name], last.field[name])
    assert always.field["cfrc_ext"][0, 1].any()  # it lies on the floor by now


def test_sensors_are_off_before_the_last_substep(monkeypatch: pytest.MonkeyPatch) -> None:
    task, seen = BallTask(True), []
    step = task.batch.step

    def watched(numbers: np.ndarray | None, nstep: int, stage: int = 0) -> None:
        assert task._flags is not None
        seen.append((nstep, [bool(flags & NO_SENSORS) for flags in task._flags]))
        step(numbers, nstep=nstep, stage=stage)

    monkeypatch.setattr(task.batch, "step", watched)
    task.advance()
    assert seen == [(SUBSTEPS - 1, 3 * [True]), (1, 3 * [False])]
    task.move(None, 1)
    assert seen[2:] == [(1, 3 * [False])]


def test_a_failure_before_the_last_substep_is_told_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """MuJoCo lets the other instances run to the end of a call, so they must get their last substep too."""
    task, other = BallTask(True), BallTask(True)
    step = task.batch.step

    def refuse(numbers: np.ndarray | None, nstep: int, **named: Any) -> None:
        step(numbers, nstep=nstep, **named)
        if nstep > 1:
            raise SimulationError(np.array([1]), "the arena is full")

    monkeypatch.setattr(task.batch, "step", refuse)
    with pytest.raises(SimulationError, match="arena") as error:
        task.advance()
    other.advance()
    assert error.value.ids.tolist() == [1]
    assert np.array_equal(task.batch.state, other.batch.state)
    assert np.array_equal(task.field["sensordata"], other.field["sensordata"])


CART = """
<mujoco>
  <option timestep="0.004"/>
  <worldbody>
    {more}
    <body name="cart" pos="0 0 0.1"><joint name="x" type="slide" axis="1 0 0"/><geom size="0.1"/></body>
  </worldbody>
  <actuator><motor joint="x"/></actuator>
</mujoco>
"""


class CartTask(BatchTask):
    id = "cart"

    def __init__(self, tmp_path: Path, more: str = "") -> None:
        path = tmp_path / "cart.xml"
        path.write_text(CART.format(more=more))
        self.robot = Robot("cart", path, frame_skip=5)


class WalledCartTask(CartTask):
    def add_surroundings(self, spec: mujoco.MjSpec) -> None:
        super().add_surroundings(spec)
        world.add_static(spec, "wall", "box", [0.1, 1.0, 0.5], [2.0, 0.0, 0.5])


def test_a_task_that_names_its_robot_has_a_model_on_a_floor(tmp_path: Path) -> None:
    task = CartTask(tmp_path)
    assert task.model is task.model  # built once
    assert [task.model.geom(index).name for index in range(task.model.ngeom)] == ["floor", ""]
    assert (task.frame_skip, task.control_dt) == (5, pytest.approx(0.02))
    assert (task.metrics, dict(task.options)) == ((), {})


@pytest.mark.parametrize("kind", [CartTask, WalledCartTask])
def test_its_pictures_are_decorated_as_ours_are(kind: type[CartTask], tmp_path: Path) -> None:
    task = kind(tmp_path)
    plain, drawn = task.model, task.render_model()
    assert (plain.ntex, plain.nlight, plain.ncam) == (0, 0, 0)
    assert drawn.tex_type.tolist().count(int(mujoco.mjtTexture.mjTEXTURE_SKYBOX)) == 1
    assert drawn.nlight == 1
    assert drawn.camera(0).name == world.WIDE
    assert drawn.mat(int(drawn.geom("floor").matid[0])).name == "floor"
    assert drawn.ngeom == plain.ngeom == (3 if kind is WalledCartTask else 2)


def test_a_floor_of_the_robots_file_is_the_floor(tmp_path: Path) -> None:
    task = CartTask(tmp_path, '<geom name="ice" type="plane" size="5 5 1"/>')
    for model in (task.model, task.render_model()):
        assert [model.geom(index).name for index in range(model.ngeom)] == ["ice", ""]


def test_without_a_robot_the_model_is_drawn_as_it_is() -> None:
    task = BallTask(senses_last=False)
    assert task.render_model() is task.model
