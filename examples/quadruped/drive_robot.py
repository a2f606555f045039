"""A policy on a robot, here a robot in plain MuJoCo: nothing of gaitway is imported.

    gaitway export runs/residual
    python examples/quadruped/drive_robot.py runs/residual/export robot.xml --command 0.5,0,0 --seconds 5

What a robot's own program does: read sensors, show them to the policy as the contract says (order, unit, scale, frame),
turn the action into targets of joints, and hold them at the contract's gains until the next step. Joints are found by
name, so their order in the file does not matter. Speaks `joint_offset` and `gait_residual`; a policy that reads
`height_scan` gets it from rays onto geoms of group 0, in which the robot must not be.
"""

import argparse
import importlib.util
import json
import math
from pathlib import Path

import mujoco
import numpy as np


def gait_pose(gait, phase, command):
    """The joint angles [12] of a gait at a phase (cycles), for a command: a trot of four legs, FL FR RL RR."""
    front, side = np.array([1, 1, -1, -1]), np.array([1, -1, 1, -1])
    x, y = front * gait["hip_x"] + gait["x_offset"], side * (gait["hip_y"] + gait["hip_offset"])
    velocity = np.stack((command[0] - command[2] * y, command[1] + command[2] * x), 1)
    place, duty, period = np.mod(phase + np.array(gait["offsets"]), 1.0), gait["duty"], 1.0 / gait["frequency"]
    length = velocity * duty * period
    stance = length / 2 - velocity * (place * period)[:, None]
    u = np.clip((place - duty) / (1 - duty), 0, None)[:, None]
    back = -velocity * (1 - duty) * period
    swing = length * (-0.5 - (2 * u**3 - 3 * u**2)) + back * (u - 3 * u**2 + 2 * u**3)
    on_ground = (place < duty)[:, None]
    along = np.where(on_ground, stance, swing)
    lift = np.where(on_ground, 0.0, gait["lift"] / 2 * (1 - np.cos(2 * np.pi * u)))[:, 0]
    foot = np.stack((gait["x_offset"] + along[:, 0], side * gait["hip_offset"] + along[:, 1],
                     lift - gait["height"] + gait["foot_radius"]), 1)  # fmt: skip
    zeros = np.array([0.0, gait.get("thigh_zero", 0.0), gait.get("calf_zero", 0.0)])  # where legs hang straight
    return (leg_angles(foot, side * gait["hip_offset"], gait["thigh"], gait["calf"]) + zeros).ravel()


def leg_angles(foot, offset, thigh, calf):
    """Hip, thigh and calf angles [4, 3] that put feet [4, 3] there, in the frames of their hips."""
    x, y, z = foot.T
    down = np.sqrt(np.maximum(y * y + z * z - offset * offset, 0))
    hip = np.mod(np.arctan2(z, y) - np.arctan2(-down, offset) + np.pi, 2 * np.pi) - np.pi
    knee = -np.arccos(np.clip((x * x + down * down - thigh**2 - calf**2) / (2 * thigh * calf), -1, 1))
    return np.stack((hip, np.arctan2(-x, down) - np.arctan2(calf * np.sin(knee), thigh + calf * np.cos(knee)), knee), 1)


def measured(imu, vector):
    """A vector of the base's frame in that of the IMU, where the contract says that there is one."""
    if imu is None:
        return vector
    twice = 2 * np.cross(vector, imu["rotation"][1:])
    return vector + imu["rotation"][0] * twice + np.cross(twice, imu["rotation"][1:])


class Robot:
    """The robot: here MuJoCo, with motors that hold targets as the contract's drive says."""

    def __init__(self, file, drive):
        spec = mujoco.MjSpec.from_file(str(file))
        for actuator in list(spec.actuators):
            spec.delete(actuator)
        for joint, kp, kd, effort in zip(*(drive[key] for key in ("joints", "kp", "kd", "effort")), strict=True):
            motor = spec.add_actuator(name=joint, target=joint, trntype=mujoco.mjtTrn.mjTRN_JOINT)
            motor.set_to_position(kp=kp, kv=kd)
            motor.forcelimited, motor.forcerange = True, [-effort, effort]
        spec.option.timestep = drive["physics_dt"]
        self.model, self.imu = spec.compile(), drive.get("imu")
        self.data = mujoco.MjData(self.model)
        joints = [self.model.joint(name) for name in drive["joints"]]
        self.at, self.to = (np.array([getattr(j, key)[0] for j in joints]) for key in ("qposadr", "dofadr"))
        self.low, self.high = np.array([joint.range for joint in joints]).T

    def begin(self, base, q, velocity=(0, 0, 0, 0, 0, 0)):
        """At rest in the pose `q`, the base [7] at a place and turned, or moving at `velocity` [6]."""
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:7], self.data.qvel[:6] = base, velocity
        self.data.qpos[self.at] = q
        self.data.ctrl[:] = np.clip(q, self.low, self.high)
        mujoco.mj_forward(self.model, self.data)

    def sensors(self):
        """What a robot measures: angular velocity, direction of gravity, positions and velocities of joints."""
        (w, i, j, k), turning = self.data.qpos[3:7], self.data.qvel[3:6].copy()
        gravity = -np.array([2 * (i * k - w * j), 2 * (j * k + w * i), 1 - 2 * (i * i + j * j)])
        found = (measured(self.imu, vector) for vector in (turning, gravity))
        return *found, self.data.qpos[self.at], self.data.qvel[self.to]

    def hold(self, target, substeps):
        self.data.ctrl[:] = np.clip(target, self.low, self.high)
        for _ in range(substeps):
            mujoco.mj_step(self.model, self.data)

    def yaw(self):
        w, i, j, k = self.data.qpos[3:7]
        return math.atan2(2 * (w * k + i * j), 1 - 2 * (j * j + k * k))

    def scan(self, grid):
        """How far below the base the ground is at points around it, x by x, as the contract's scan says."""
        (x, y, z), yaw = self.data.qpos[:3], self.yaw()
        ahead, left = (first + step * np.arange(count) for first, step, count in (grid["x"], grid["y"]))
        groups, down, hit = np.array([1, 0, 0, 0, 0, 0], np.uint8), np.array([0.0, 0.0, -1.0]), np.zeros(1, np.int32)
        found = []
        for a, b in ((a, b) for a in ahead for b in left):
            over = np.array([x + math.cos(yaw) * a - math.sin(yaw) * b, y + math.sin(yaw) * a + math.cos(yaw) * b, 5.0])
            found.append(5.0 - mujoco.mj_ray(self.model, self.data, over, down, groups, 1, -1, hit))
        return np.clip(z - np.array(found) - grid["usual"], -grid["limit"], grid["limit"])

    def velocity(self):
        """Ahead and to the left (m/s): to judge it, not for the policy."""
        yaw = self.yaw()
        x, y = self.data.qvel[:2]
        return np.array([math.cos(yaw) * x + math.sin(yaw) * y, math.cos(yaw) * y - math.sin(yaw) * x])


def observation(components, known):
    """What the policy is shown, in the contract's order: (quantity - offset) * scale within +-clip."""
    shown = {}
    for part in components:
        name, _, number = part["name"].rpartition("_")
        value = known[part["name"]] if part["name"] in known else known[name][int(number)]
        value = (np.asarray(value) - part["offset"]) * part["scale"]
        shown[part["name"]] = value if part["clip"] is None else np.clip(value, -part["clip"], part["clip"])
    return shown


def drive(folder, file, command, seconds, phase=0.0, start=None, heading=False):
    """Velocities ahead and to the left [T, 2] under a command, and where the base comes to [T, 3].

    `start` may hold the first `base` [7], `velocity` [6] and `joints` by name; with `heading` the turn of the command
    leads back to the direction of x, by half a radian a second for a radian.
    """
    found = importlib.util.spec_from_file_location("robot_runner", Path(folder) / "robot_runner.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    runner = module.RobotRunner(folder)
    contract = json.loads((Path(folder) / "policy_contract.json").read_text())
    motors, action_spec, gait, dt = contract["drive"], contract["action"], contract["gait"], contract["control_dt"]
    if gait is None and action_spec["meaning"] != "joint_offset":
        raise SystemExit(f"the contract says {action_spec['meaning']} and holds no gait; export with a newer gaitway")
    robot, pose, scale = Robot(file, motors), np.array(motors["default_pose"]), np.array(action_spec["scale"])
    command, action = np.asarray(command, float), np.zeros(len(scale))
    if start is None:
        height = 0.285 if gait is None else gait["height"] + 0.005
        robot.begin([0, 0, height, 1, 0, 0, 0], pose if gait is None else gait_pose(gait, phase, command))
    else:
        robot.begin(start["base"], [start["joints"][name] for name in motors["joints"]], start["velocity"])
    (entry,) = contract["inputs"]
    velocities, places = [], []
    for _ in range(round(seconds / dt)):
        if heading:
            command[2] = np.clip(-0.5 * robot.yaw(), -1, 1)
        turning, gravity, q, qd = robot.sensors()
        clock = [math.sin(2 * math.pi * phase), math.cos(2 * math.pi * phase)]
        known = {"ang_vel": turning, "projected_gravity": gravity, "commands": command, "dof_pos": q - pose,
                 "dof_vel": qd, "last_actions": action, "phase": clock}  # fmt: skip
        if contract.get("scan"):
            known["height_scan"] = robot.scan(contract["scan"])
        action = runner({entry["group"]: observation(entry["components"], known)})
        base = pose
        if action_spec["meaning"] != "joint_offset":  # a gait that has faded is part of the pose
            base = pose + gait.get("authority", 1.0) * (gait_pose(gait, phase, command) - pose)
        robot.hold(base + scale * action, round(dt / motors["physics_dt"]))
        phase = 0.0 if gait is None else (phase + gait["frequency"] * dt) % 1.0
        velocities.append(robot.velocity())
        places.append(robot.data.qpos[:3].copy())
    return np.array(velocities), np.array(places)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("export")
    parser.add_argument("robot", help="an MJCF file with a floor")
    parser.add_argument("--command", default="0.5,0,0")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--phase", type=float, default=0.0)
    options = parser.parse_args()
    asked = [float(each) for each in options.command.split(",")]
    reached = drive(options.export, options.robot, asked, options.seconds, options.phase)[0][50:]
    rmsd = math.sqrt(((reached - asked[:2]) ** 2).sum(1).mean())
    print(json.dumps({"velocity": reached.mean(0).round(4).tolist(), "velocity_rmsd": round(rmsd, 4)}))
