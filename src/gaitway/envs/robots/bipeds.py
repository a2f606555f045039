"""The planar Walker and the Humanoid with controllers of joint positions, for tasks of `envs/legged`.

The Walker has gains of its own. The Humanoid is a proportional servo with the damping of its file: a joint of gear g
pulls towards the target with clip(g (target - q), +-g); its action 0 is to stand with straight legs.
"""

from __future__ import annotations

from gaitway.envs.robots.legged import LeggedRobot, Mirror

WALKER_LEGS = LeggedRobot(
    name="walker",
    mjcf="walker.xml",
    base_body="torso",
    joints=tuple(f"{side}_{part}" for side in ("right", "left") for part in ("hip", "knee", "ankle")),
    feet=("right_foot", "left_foot"),
    default_pose={".*_hip": 0.25, ".*_knee": -0.5, ".*_ankle": 0.25},
    kp={".*_hip": 200.0, ".*_knee": 100.0, ".*_ankle": 40.0},
    kd={".*_hip": 10.0, ".*_knee": 5.0, ".*_ankle": 2.0},
    effort={".*_hip": 100.0, ".*_knee": 50.0, ".*_ankle": 20.0},
    action_scale={".*": 0.5},
    timestep=0.0025,
    substeps=10,
    fall_height=0.8,
    fall_tilt=1.0,
)

_LEG_JOINTS = ("hip_x", "hip_z", "hip_y", "knee", "ankle_y", "ankle_x")
_ARM_JOINTS = ("shoulder1", "shoulder2", "elbow")
_GEARS = {
    "abdomen_.": 40.0,
    ".*_hip_[xz]": 40.0,
    ".*_hip_y": 120.0,
    ".*_knee": 80.0,
    ".*_ankle_.": 20.0,
    ".*_shoulder.": 20.0,
    ".*_elbow": 40.0,
}

HUMANOID_LEGS = LeggedRobot(
    name="humanoid",
    mjcf="humanoid.xml",
    base_body="torso",
    joints=(
        *(f"abdomen_{axis}" for axis in "zyx"),
        *(f"{side}_{part}" for side in ("right", "left") for part in (*_LEG_JOINTS, *_ARM_JOINTS)),
    ),
    feet=("(right_right|left_right)_foot", "(right_left|left_left)_foot"),
    default_pose={".*": 0.0},
    kp=_GEARS,
    kd={".*": 0.0},
    effort=_GEARS,
    action_scale={".*_knee": 1.2, ".*_hip_y": 1.0, "(?!.*_(knee|hip_y)).*": 0.5},
    timestep=0.005,
    substeps=5,
    fall_height=0.8,
    fall_tilt=1.0,
    self_collision=True,
    mirror=Mirror(swap=(("right", "left"),)),
)
