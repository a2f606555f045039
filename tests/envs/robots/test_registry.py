"""All robots: the registry, and that stepping them in a batch is stepping them one by one."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from mujoco.batch import Batch

from gaitway.envs.batch_task import STAGE_VELOCITY
from gaitway.envs.robots import world
from gaitway.envs.robots.registry import ROBOTS, get_robot


def test_registry() -> None:
    assert list(ROBOTS) == ["walker", "humanoid", "humanoidpc", "halfcheetah", "cube", "cube2d"]
    assert all(get_robot(name).name == name for name in ROBOTS)
    with pytest.raises(KeyError, match="did you mean 'humanoidpc'"):
        get_robot("HumanoidPC")


@pytest.mark.parametrize("robot", [get_robot(name) for name in ROBOTS], ids=ROBOTS)
def test_model_holds_the_robot_alone(robot) -> None:
    model = robot.spec().compile()
    assert not (model.geom_bodyid == 0).any()
    assert model.ntex == model.nmat == model.nlight == model.nsensor == model.nsite == 0
    np.testing.assert_allclose(model.opt.gravity, [0, 0, -9.81])
    assert int(model.opt.solver) == int(mujoco.mjtSolver.mjSOL_NEWTON)
    assert int(model.opt.cone) == int(mujoco.mjtCone.mjCONE_PYRAMIDAL)
    assert model.opt.impratio == 1


@pytest.mark.parametrize(
    ("name", "sizes", "height", "forward", "horizontal", "pitch", "quaternion", "planar"),
    [
        ("walker", (9, 9, 6, 7), 0, 1, (1,), 2, None, True),
        ("humanoid", (28, 27, 21, 16), 2, 0, (0, 1), None, 3, False),
        ("humanoidpc", (28, 27, 21, 16), 2, 0, (0, 1), None, 3, False),
        ("halfcheetah", (9, 9, 6, 7), 1, 0, (0,), 2, None, True),
        ("cube", (3, 3, 3, 1), 2, 0, (0, 1), None, None, False),
        ("cube2d", (2, 2, 2, 1), 1, 0, (0,), None, None, True),
    ],
)
def test_what_is_read_from_the_file(name, sizes, height, forward, horizontal, pitch, quaternion, planar) -> None:
    robot = get_robot(name)
    assert (robot.nq, robot.nv, robot.nu, len(robot.bodies)) == sizes
    assert (robot.height_index, robot.forward_index, robot.horizontal_indices) == (height, forward, horizontal)
    assert (robot.pitch_index, robot.quaternion_index, robot.is_planar) == (pitch, quaternion, planar)
    assert robot.torso == "torso"


@pytest.mark.parametrize("robot", [get_robot(name) for name in ROBOTS], ids=ROBOTS)
def test_a_batch_is_a_loop(robot) -> None:
    """60 control steps of random actions; one MjData runs the instances one after the other."""
    steps, instances = 60, 3
    model = world.flat_model(robot, forces=True)
    generator = np.random.default_rng(7)
    starts = [robot.draw_state(generator) for _ in range(instances)]
    actions = generator.uniform(-1, 1, (steps, instances, robot.nu))
    qpos = np.zeros((steps, instances, model.nq))
    forces = np.zeros((steps, instances, model.nbody, 6))
    data = mujoco.MjData(model)
    for row, start in enumerate(starts):
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:] = start
        for step in range(steps):
            data.ctrl[:] = actions[step, row]
            mujoco.mj_step(model, data, robot.frame_skip)
            qpos[step, row], forces[step, row] = data.qpos, data.cfrc_ext
    assert np.abs(forces).max() > 1  # the floor was felt
    for num_threads, persistent in ((1, False), (2, False), (1, True), (2, True)):
        batch = Batch(model, instances, num_threads, persistent)
        state = {name: batch.bind(name) for name in ("qpos", "qvel", "ctrl", "cfrc_ext")}
        for row, start in enumerate(starts):
            state["qpos"][row], state["qvel"][row] = start
        for step in range(steps):
            state["ctrl"][:] = actions[step]
            batch.step(nstep=robot.frame_skip, stage=STAGE_VELOCITY)
            np.testing.assert_array_equal(state["qpos"], qpos[step])
            np.testing.assert_array_equal(state["cfrc_ext"], forces[step])
