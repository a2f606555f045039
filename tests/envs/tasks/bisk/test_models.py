"""Every compiled field of every robot in every task against a model written down independently (`bisk_models.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
import pytest
from bisk_models import difference, differences, model_fields, written_model

from gaitway.envs.robots import world
from gaitway.envs.tasks import NATIVE_TASKS

IDS = tuple(id for id, task in NATIVE_TASKS.items() if "/" in id and not task.module.startswith("legged"))
POLES = tuple(id for id in IDS if id.endswith("/polebalance"))
OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    *((id, {"n_poles": 3, "pole_length": 0.7, "pole_mass": 0.2}) for id in POLES),
    *((f"{robot}/{task}", {"notouch": True}) for robot in ("walker", "humanoid") for task in ("limbo", "hurdleslimbo")),
    *((f"{robot}/goalwall", {"touch_ball_reward": 0.5}) for robot in ("walker", "humanoidpc", "cube", "cube2d")),
)


def written(id: str, **options: Any) -> mujoco.MjModel:
    robot, task = id.removesuffix("-fixed").split("/")
    return written_model(robot, task, **options)


def built(id: str, change: Callable[[mujoco.MjSpec], None]) -> mujoco.MjModel:
    """The task's own model with a slip in it."""
    task = NATIVE_TASKS[id]()
    spec = task.robot.spec()
    task.add_course(spec, False)
    world.add_accelerometer(spec, task.robot.torso)
    change(spec)
    return world.compile_course(spec) if task.is_static else world.compile_model(spec)


@pytest.mark.parametrize("id", IDS)
def test_every_field_is_as_written(id: str) -> None:
    assert differences(NATIVE_TASKS[id]().model, written(id)) == {}


@pytest.mark.parametrize(("id", "options"), OPTIONS)
def test_options_change_the_model_as_written(id: str, options: dict[str, Any]) -> None:
    model = NATIVE_TASKS[id](**options).model
    assert differences(model, written(id, **options)) == {}
    assert differences(model, written(id)) != {}


def test_nothing_of_a_model_is_left_out() -> None:
    model = written("walker/polebalance")
    fields = model_fields(model)
    left = {name for name in dir(model) if not name.startswith("_") and name not in fields}
    parts = {name for name in left if not callable(getattr(model, name)) and not isinstance(getattr(model, name), type)}
    assert parts == {"opt", "stat", "vis"}  # which `model_fields` opens
    assert {"opt.timestep", "stat.meaninertia", "vis.map.znear", "dof_dampingpoly", "names"} <= fields.keys()
    assert len(fields) > 500


def test_a_change_of_any_number_is_seen() -> None:
    written_down, model = written("humanoid/polebalance"), NATIVE_TASKS["humanoid/polebalance"]().model
    changed, expected = 0, model_fields(written_down)
    for name, value in model_fields(model).items():
        if not (isinstance(value, np.ndarray) and value.size and value.flags.writeable):
            continue
        if not np.issubdtype(value.dtype, np.number):
            continue
        last = value.reshape(-1)[-1:]  # a view
        kept = last.copy()
        last += 1 if np.issubdtype(value.dtype, np.integer) else 1e-6
        assert difference(value, expected[name]) is not None, name
        last[:] = kept
        changed += 1
    assert changed > 150
    assert differences(model, written_down) == {}


def joint(name: str, **changes: Any) -> Callable[[mujoco.MjSpec], None]:
    return lambda spec: assign(spec.joint(name), changes)


def geom(name: str, **changes: Any) -> Callable[[mujoco.MjSpec], None]:
    return lambda spec: assign(spec.geom(name), changes)


def assign(part: Any, changes: dict[str, Any]) -> None:
    for key, value in changes.items():
        setattr(part, key, value)


SLIPS: tuple[tuple[str, Callable[[mujoco.MjSpec], None], str], ...] = (
    *((id, joint("pole_0", damping=[0.1] * 3), "dof_dampingpoly") for id in POLES),
    *((id, joint("pole_0", damping=[0.1, 1e-3, 0.0]), "dof_dampingpoly") for id in POLES),
    ("humanoid/polebalance", joint("pole_0", stiffness=[0.0] * 3), "jnt_stiffness"),
    ("humanoid/polebalance", joint("pole_0", stiffness=[1.0] * 3), "jnt_stiffnesspoly"),
    ("walker/polebalance", joint("pole_0", armature=0.0), "dof_armature"),
    ("walker/polebalance", joint("pole_0", frictionloss=0.01), "dof_frictionloss"),
    ("walker/polebalance", geom("pole_0", conaffinity=1), "geom_conaffinity"),
    ("walker/polebalance", geom("pole_0", mass=0.51), "body_mass"),
    ("walker/goalwall", joint("ball_x", damping=[0.0, 0.0, 0.1]), "dof_dampingpoly"),
    ("walker/goalwall", geom("ball", priority=0), "geom_priority"),
    ("walker/hurdles", geom("hurdle_2", solref=[0.015, 1.0]), "geom_solref"),
    ("walker/limbo", geom("bar_1", size=[0.1, 7.9, 0.0]), "geom_size"),
    ("humanoid/stairs", geom("step_19", pos=[0.0, 0.0, 0.1001]), "geom_pos"),
    ("humanoid/gaps", geom("lava_15", condim=1), "geom_condim"),
    ("halfcheetah/rundir", joint("ffoot", stiffness=[60.0, 1.0, 0.0]), "jnt_stiffnesspoly"),
    ("cube/butterflies", geom("torso", margin=0.0), "geom_margin"),
)


@pytest.mark.parametrize(("id", "slip", "field"), SLIPS)
def test_a_slip_is_found(id: str, slip: Callable[[mujoco.MjSpec], None], field: str) -> None:
    assert differences(built(id, lambda spec: None), written(id)) == {}
    assert field in differences(built(id, slip), written(id))


@pytest.mark.parametrize("robot", ["walker", "humanoid", "halfcheetah", "cube"])
def test_the_pole_is_damped_in_proportion_to_its_speed(robot: str) -> None:
    # the moment of damping at rates 1 and 10 rad/s is -0.1 and -1; cubic terms would make the latter -111
    model = NATIVE_TASKS[f"{robot}/polebalance"]().model
    data, address = mujoco.MjData(model), model.joint("pole_0").dofadr[0]
    for rate in (1.0, 10.0):
        data.qvel[address] = rate
        mujoco.mj_forward(model, data)
        assert data.qfrc_damper[address] == pytest.approx(-0.1 * rate, rel=1e-12)


VISUAL = (
    "tex",
    "mat",
    "light",
    "cam",
    "site",
    "name",
    "vis.",
    "stat.",
    "nlight",
    "ncam",
    "nmat",
    "ntex",
    "nsite",
    "nnam",
)
"""Beginnings of the fields that decoration may change, besides those below."""


@pytest.mark.parametrize("id", [id for id in IDS if not id.endswith("-fixed")])
def test_decoration_changes_nothing_but_pictures(id: str) -> None:
    task = NATIVE_TASKS[id]()
    found = {name for name in differences(task.render_model(), task.model) if not name.startswith(VISUAL)}
    assert found <= {"geom_rgba", "geom_matid", "nbuffer", "signature", "sensor_objid"}
