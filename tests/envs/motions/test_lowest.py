"""The lowest points of geoms by kinematics on arrays, beside MuJoCo's own."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from gaitway.envs.motions.lowest import LowestPoints, touching_geoms
from gaitway.envs.robots.pup import PUP12
from gaitway.envs.robots.registry import get_robot

ALL_KINDS = """
<mujoco>
  <asset><mesh name="wedge" vertex="0 0 0  0.2 0 0  0 0.3 0  0 0 0.4"/></asset>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body name="base" pos="0.1 0.2 1"><freejoint/>
      <geom type="box" size="0.1 0.2 0.3" quat="0.9 0.1 0.3 -0.2"/>
      <body pos="0.2 0 0.1" quat="0.8 0.2 0.1 0.4">
        <joint type="ball" pos="0.1 0 0.05"/><geom type="ellipsoid" size="0.1 0.2 0.3"/>
        <body pos="0 0.3 0">
          <joint type="hinge" axis="1 2 0.5" pos="0 0.1 0" ref="20"/><joint type="slide" axis="0 1 1" ref="0.1"/>
          <geom type="capsule" size="0.05 0.2" euler="20 30 0"/><geom type="cylinder" size="0.1 0.2" pos="0 0.1 0.2"/>
          <geom type="mesh" mesh="wedge"/><geom type="sphere" size="0.07" contype="0" conaffinity="0"/>
        </body>
      </body>
    </body>
    <body name="other" pos="3 0 0"><joint type="hinge"/><geom type="sphere" size="0.1"/></body>
  </worldbody>
</mujoco>"""


def states(model: mujoco.MjModel, count: int) -> np.ndarray:
    generator = np.random.default_rng(0)
    qpos = model.qpos0 + generator.normal(0.0, 0.7, (count, model.nq))
    for each in qpos:  # MuJoCo's kinematics takes quaternions of any length, too
        mujoco.mj_normalizeQuat(model, each)
    return qpos


def sampled(model: mujoco.MjModel, data: mujoco.MjData, geom: int) -> float:
    """Height of the lowest of many points on a geom, by MuJoCo's poses."""
    size, kind = model.geom_size[geom], mujoco.mjtGeom(model.geom_type[geom])
    ball = np.random.default_rng(1).normal(size=(20_000, 3))
    ball /= np.linalg.norm(ball, axis=1, keepdims=True)
    axis = np.array([0.0, 0.0, 1.0])
    if kind == mujoco.mjtGeom.mjGEOM_MESH:
        mesh = int(model.geom_dataid[geom])
        first = int(model.mesh_vertadr[mesh])
        points = model.mesh_vert[first : first + int(model.mesh_vertnum[mesh])]
    elif kind == mujoco.mjtGeom.mjGEOM_BOX:
        points = np.sign(ball) * size
    elif kind == mujoco.mjtGeom.mjGEOM_CYLINDER:
        rim = ball[:, :2] / np.linalg.norm(ball[:, :2], axis=1, keepdims=True) * size[0]
        points = np.concatenate([rim, np.sign(ball[:, 2:]) * size[1]], 1)
    elif kind == mujoco.mjtGeom.mjGEOM_CAPSULE:
        points = size[0] * ball + np.sign(ball[:, 2:]) * size[1] * axis
    else:
        points = ball * (size if kind == mujoco.mjtGeom.mjGEOM_ELLIPSOID else size[0])
    return float((data.geom_xpos[geom] + points @ data.geom_xmat[geom].reshape(3, 3).T)[:, 2].min())


def test_every_kind_of_geom_below_every_kind_of_joint() -> None:
    model = mujoco.MjModel.from_xml_string(ALL_KINDS)
    geoms = touching_geoms(model, model.body("base").id)
    assert len(geoms) == 5  # neither the floor, nor what touches nothing, nor another tree
    assert len(touching_geoms(model)) == 6
    qpos, data = states(model, 20), mujoco.MjData(model)
    found = LowestPoints(model, geoms)(qpos)
    assert found.shape == (20, 5, 3)
    for row in range(20):
        data.qpos[:] = qpos[row]
        mujoco.mj_kinematics(model, data)
        for column, geom in enumerate(geoms):
            # 20,000 random points miss the lowest one of a round geom by less than a millimetre
            assert found[row, column, 2] == pytest.approx(sampled(model, data, geom), abs=1e-3)


def test_feet_of_robots_are_where_mujoco_has_them() -> None:
    """Spheres: the lowest point is the middle less the radius, to rounding."""
    for name in ("humanoid", "pup12"):
        model = (PUP12.robot if name == "pup12" else get_robot(name)).model
        geoms = [g for g in touching_geoms(model) if model.geom_type[g] == mujoco.mjtGeom.mjGEOM_SPHERE]
        qpos, data = states(model, 5), mujoco.MjData(model)
        found = LowestPoints(model, geoms)(qpos)
        for row in range(5):
            data.qpos[:] = qpos[row]
            mujoco.mj_kinematics(model, data)
            expected = data.geom_xpos[geoms] - np.outer(model.geom_size[geoms, 0], [0.0, 0.0, 1.0])
            np.testing.assert_allclose(found[row], expected.reshape(-1, 3), atol=1e-12)
