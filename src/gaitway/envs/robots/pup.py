"""The quadruped `pup12` (12.76 kg, twelve joints) and `pup4`, the same in the x-z plane with two legs for four."""

from __future__ import annotations

from gaitway.envs.robots.legged import LeggedRobot, LegGeometry, Mirror

GEOMETRY = LegGeometry(hip_x=0.19, hip_y=0.05, hip_offset=0.08, thigh=0.21, calf=0.21, foot_radius=0.022)
LEGS = ("FL", "FR", "RL", "RR")

PUP12 = LeggedRobot(
    name="pup12",
    mjcf="pup12.xml",
    base_body="trunk",
    joints=tuple(f"{leg}_{part}_joint" for leg in LEGS for part in ("hip", "thigh", "calf")),
    feet=tuple(f"{leg}_foot" for leg in LEGS),
    default_pose={".*_hip_joint": 0.0, ".*_thigh_joint": 0.9, ".*_calf_joint": -1.8},
    kp={".*": 60.0},
    kd={".*": 1.5},
    effort={".*_(hip|thigh)_joint": 23.7, ".*_calf_joint": 35.5},
    stand_height=0.27,
    leg=GEOMETRY,
    mirror=Mirror(swap=(("FL", "FR"), ("RL", "RR")), flip=(".*_hip_joint",)),
)

PUP4 = LeggedRobot(
    name="pup4",
    mjcf="pup4.xml",
    base_body="trunk",
    joints=tuple(f"{leg}_{part}_joint" for leg in "FR" for part in ("thigh", "calf")),
    feet=("F_foot", "R_foot"),
    default_pose={".*_thigh_joint": 0.9, ".*_calf_joint": -1.8},
    kp={".*": 120.0},
    kd={".*": 3.0},
    effort={".*_thigh_joint": 47.0, ".*_calf_joint": 71.0},
    stand_height=0.27,
)
