"""The planar Walker: model, names, first state and fall test.

The robot file derives from dm_control's suite (see NOTICE beside it). qpos and qvel are in the order of `JOINTS`, and
`rootz` is the absolute height of the torso. The training model has no textures or lights; `decorated=True` adds them
for pictures, with the same layout of the state.
"""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np

from gaitway.envs.batch_task import compile_model

JOINTS = (
    *("rootz", "rootx", "rooty"),
    *("right_hip", "right_knee", "right_ankle"),
    *("left_hip", "left_knee", "left_ankle"),
)
BODIES = ("torso", "right_thigh", "right_leg", "right_foot", "left_thigh", "left_leg", "left_foot")
HEIGHT, FORWARD, PITCH = 0, 1, 2
"""Where rootz, rootx and rooty stand in qpos and qvel."""

INITIAL_HEIGHT = 1.3
"""Torso height (m) at which the feet of the straight robot just touch the floor."""
INITIAL_NOISE = 0.1
FALLEN_HEIGHT = 0.9
FALLEN_PITCH = 1.4

TIMESTEP = 0.0025
FRAME_SKIP = 10


def initial_qpos() -> np.ndarray:
    """Standing straight at x = 0, [9]."""
    qpos = np.zeros(len(JOINTS))
    qpos[HEIGHT] = INITIAL_HEIGHT
    return qpos


def draw_state(generator: np.random.Generator, noise: float = INITIAL_NOISE) -> tuple[np.ndarray, np.ndarray]:
    """qpos [9] = standing + U(-noise, noise), qvel [9] = noise * N(0, 1); drawn in this order."""
    qpos = initial_qpos() + generator.uniform(-noise, noise, len(JOINTS))
    return qpos, noise * generator.standard_normal(len(JOINTS))


def fallen(height: np.ndarray, pitch: np.ndarray) -> np.ndarray:
    """[B] torso heights (m) and pitches (rad) -> which robots have fallen over [B]."""
    return (height < FALLEN_HEIGHT) | (np.abs(pitch) > FALLEN_PITCH)


def walker_spec() -> mujoco.MjSpec:
    """The robot alone, editable."""
    return mujoco.MjSpec.from_file(str(Path(__file__).with_name("walker.xml")))


def walker_model(decorated: bool = False) -> mujoco.MjModel:
    """The robot on an infinite floor at z = 0."""
    spec = walker_spec()
    floor = add_floor(spec)
    if decorated:
        decorate(spec)
        floor.material = "floor"
        floor.rgba = [1.0, 1.0, 1.0, 1.0]  # the colour multiplies the texture
    return compile_model(spec)


def add_floor(spec: mujoco.MjSpec) -> mujoco.MjsGeom:
    """An infinite plane with MuJoCo's default contact properties.

    They are written out because a geom added to this spec would inherit the robot's, whose conaffinity 0 lets robot
    geoms touch nothing but geoms that ask for it.
    """
    return spec.worldbody.add_geom(
        name="floor",
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        size=[0.0, 0.0, 0.05],
        contype=1,
        conaffinity=1,
        condim=3,
        friction=[1.0, 0.005, 0.0001],
        solref=[0.02, 1.0],
        solimp=[0.9, 0.95, 0.001, 0.5, 2.0],
        margin=0.0,
        rgba=[0.2, 0.3, 0.4, 1.0],
    )


def decorate(spec: mujoco.MjSpec) -> None:
    """Add a sky, lights and the material "floor", a checkerboard of one-metre fields."""
    spec.visual.headlight.ambient = [0.4, 0.4, 0.4]
    spec.visual.headlight.diffuse = [0.6, 0.6, 0.6]
    spec.visual.headlight.specular = [0.1, 0.1, 0.1]
    spec.add_texture(
        name="sky",
        type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
        rgb1=[0.3, 0.5, 0.7],
        rgb2=[0.0, 0.0, 0.0],
        width=256,
        height=256,
    )
    spec.add_texture(
        name="floor",
        type=mujoco.mjtTexture.mjTEXTURE_2D,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
        rgb1=[0.2, 0.3, 0.4],
        rgb2=[0.1, 0.15, 0.2],
        width=256,
        height=256,
    )
    textures = [""] * int(mujoco.mjtTextureRole.mjNTEXROLE)
    textures[int(mujoco.mjtTextureRole.mjTEXROLE_RGB)] = "floor"
    spec.add_material(name="floor", textures=textures, texrepeat=[0.5, 0.5], texuniform=True)
    spec.body("torso").add_light(
        name="above",
        type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
        pos=[0.0, 0.0, 3.0],
        dir=[0.0, 0.3, -1.0],
        diffuse=[0.5, 0.5, 0.5],
        mode=mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM,
    )
