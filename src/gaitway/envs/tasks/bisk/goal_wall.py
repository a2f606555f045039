"""Kick a ball at goals on a wall: `goalwall`.

The ball drops 10 cm in front of the robot. The wall stands 4 m behind it, with a goal at a height of 1 m for planar
robots (1 point) and two for the others (1 and 2 points). Whatever the ball hits there ends the episode. A robot beyond
the line 1.5 m behind the ball's first place gets no reward for what happens; the score stands.

The shaped form pays a miss as well, the more the nearer it is: where the ball hits the wall at distance d from the
centre of a goal of radius r, that goal gives its points times 0.1^((d - r)^2 / r^2), all of them within the goal, a
tenth at twice its radius; the goal that gives most counts. That is the second edition of the benchmark, in which the
factor was the number of the goal (0 for the first) instead of its points.

Observed (planar, 6): the ball's distance in x, its height, its angle in (-pi, pi], and the three velocities; otherwise
(9): its offset in x and y, its height, its velocity, and its angular velocity in its own frame.
"""

from __future__ import annotations

import math

import mujoco
import numpy as np
from mujoco.batch import Batch

from gaitway.core.config import configuration
from gaitway.core.ranges import NotNegative, Positive, WholeNumber
from gaitway.envs.batch_task import STAGE_POSITION, Rows
from gaitway.envs.robots import world
from gaitway.envs.spec import Component
from gaitway.envs.tasks.bisk.base import SHAPED, BiskConfig, BiskTask, between

BALL_RADIUS, BALL_MASS = 0.15, 0.1
BALL_DROP = 0.1
BALL_NOISE, BALL_TURN_NOISE = 0.01, 0.1
"""Noise of the ball's position (m) and velocity, and of the entries of its first quaternion."""
WALL_DISTANCE, LINE_DISTANCE = 4.0, 1.5
"""How far the wall and the line are behind the ball's first place (m)."""
GOAL_RADIUS = 0.4
PLANAR_GOALS = ((0.0, 1.0, 1.0),)
GOALS = ((-1.0, 0.65, 1.0), (1.0, 1.35, 2.0))
"""y, z (m) and points; where goals overlap the first counts."""
BALL_CONTACT = {"condim": 6, "friction": [0.7, 0.005, 0.005], "solref": [-10000.0, -30.0], "priority": 1}
FREE = {
    **{"damping": [0.0] * 3, "stiffness": [0.0] * 3, "armature": 0.0, "frictionloss": 0.0},
    **{"range": [0.0, 0.0], "solref_limit": [0.02, 1.0], "solimp_limit": [0.9, 0.95, 0.001, 0.5, 2.0]},
}
"""MuJoCo's own defaults: joints of the ball have nothing of the robot's."""


@configuration(kw_only=True)
class GoalWallConfig(BiskConfig):
    init_distance: Positive = 2.5
    """First x of the ball (m); wall and line stand as far behind it as ever."""
    touch_ball_reward: NotNegative = 0.0
    """If positive, paid once for the robot's first touch of the ball, and `touched_ball` is observed."""
    shaped: bool = False
    """Pays hits beside the goals too."""
    max_episode_steps: WholeNumber = 250


class GoalWallTask(BiskTask):
    task = "goalwall"
    metrics = ("score", "fell", SHAPED)
    config_class = GoalWallConfig
    config: GoalWallConfig

    def prepare(self) -> None:
        config = self.config
        self.wall_x = config.init_distance + WALL_DISTANCE
        self.line_x = config.init_distance + LINE_DISTANCE
        self._goals = PLANAR_GOALS if self.robot.is_planar else GOALS
        self._pays_touch = config.touch_ball_reward > 0.0
        if self._pays_touch:
            self.persistent = True  # the state after the last substep is looked at in a call of its own
            self.stage = STAGE_POSITION

    def add_course(self, spec: mujoco.MjSpec, decorated: bool) -> None:
        world.add_floor(spec)
        size, pos, normal = [1.0, 3.0, 0.05], [self.wall_x, 0.0, 1.0], [-1.0, 0.0, 0.0]
        world.add_static(spec, "wall", "plane", size, pos, normal, (0.0, 0.5, 0.1, 1.0))
        world.add_camera(spec, "sideline", [self.wall_x / 3, -9.0, 2.0], [80.0, -5.0, 0.0])
        ball = spec.worldbody.add_body(name="ball")
        kinds = mujoco.mjtJoint
        if self.robot.is_planar:
            for name, kind, axis in (
                ("ball_x", kinds.mjJNT_SLIDE, [1, 0, 0]),
                ("ball_z", kinds.mjJNT_SLIDE, [0, 0, 1]),
                ("ball_y_rotation", kinds.mjJNT_HINGE, [0, 1, 0]),
            ):
                ball.add_joint(name=name, type=kind, axis=axis, limited=mujoco.mjtLimited.mjLIMITED_FALSE, **FREE)
        else:
            ball.add_joint(name="ball", type=kinds.mjJNT_FREE, limited=mujoco.mjtLimited.mjLIMITED_FALSE, **FREE)
        contact = {**world.WORLD_CONTACT, **BALL_CONTACT}
        colour = [0.9, 0.9, 0.9, 1.0]
        sphere = mujoco.mjtGeom.mjGEOM_SPHERE
        ball.add_geom(name="ball", type=sphere, size=[BALL_RADIUS, 0, 0], mass=BALL_MASS, rgba=colour, **contact)
        if self._pays_touch:
            world.add_contact_sensor(spec, "touch", "ball", self.robot.torso, distance=True)
        if decorated:
            self._add_marks(spec)

    def task_components(self) -> tuple[Component, ...]:
        if self.robot.is_planar:
            ball: tuple[Component, ...] = (
                Component("ball_x_distance", 1, "m"),
                Component("ball_height", 1, "m"),
                Component("ball_angle", 1, "rad"),
                Component("ball_x_velocity", 1, "m/s"),
                Component("ball_z_velocity", 1, "m/s"),
                Component("ball_angular_velocity", 1, "rad/s"),
            )
        else:
            ball = (
                Component("ball_x_distance", 1, "m"),
                Component("ball_y_distance", 1, "m"),
                Component("ball_height", 1, "m"),
                Component("ball_velocity", 3, "m/s"),
                Component("ball_angular_velocity", 3, "rad/s"),
            )
        return (*ball, Component("touched_ball")) if self._pays_touch else ball

    def task_keys(self) -> dict[str, int]:
        ball = {"ball": 6 if self.robot.is_planar else 9}
        return {**ball, "touched_ball": 1} if self._pays_touch else ball

    def object_draws(self) -> tuple[int, int]:
        return (3, 3) if self.robot.is_planar else (7, 6)

    def sample_objects(self, uniform: np.ndarray, normal: np.ndarray, qpos: np.ndarray, qvel: np.ndarray) -> None:
        ball = qpos[:, self.robot.nq :]  # comes after the robot
        x, z = self.config.init_distance, BALL_RADIUS + BALL_DROP
        place = [x, z, 0.0] if self.robot.is_planar else [x, 0.0, z]
        ball[:, :3] = place + between(-BALL_NOISE, BALL_NOISE, uniform[:, :3])
        if not self.robot.is_planar:
            turn = between(-BALL_TURN_NOISE, BALL_TURN_NOISE, uniform[:, 3:])
            turn[:, 0] += 1.0
            ball[:, 3:] = turn / np.linalg.norm(turn, axis=1, keepdims=True)
        qvel[:, self.robot.nv :] = BALL_NOISE * normal

    def attach(self, batch: Batch) -> None:
        super().attach(batch)
        self._ball = self.robot.nq
        self._ball_velocity = self.robot.nv
        self._records = {"qpos": np.zeros((batch.nsim, self.frame_skip, self.model.nq))}
        self._points = np.zeros(batch.nsim)
        self._at_wall = np.zeros(batch.nsim, dtype=bool)
        self._new_touch = np.zeros(batch.nsim, dtype=bool)
        if self._pays_touch:
            self._records["sensordata"] = np.zeros((batch.nsim, self.frame_skip, self.model.nsensordata))
            self._touch = world.sensor_columns(self.model, "touch").start
            self._sensors = batch.bind("sensordata")
            self.memory["touched"] = np.zeros(batch.nsim, dtype=bool)

    def settle(self, numbers: np.ndarray) -> None:
        """A touch during the settling step is noted and never paid."""
        if not self._pays_touch:
            super().settle(numbers)
            return
        self.memory["touched"][numbers] = False
        records = self.batch.rollout(self.frame_skip, record=("sensordata",), ids=numbers)["sensordata"]
        self.batch.forward(numbers, stage=self.stage)
        self.memory["touched"][numbers] = self._touches(records[:, 1:]).any(axis=1) | self._touches(
            self._sensors[numbers]
        )

    def skip_settling(self, numbers: np.ndarray) -> None:
        super().skip_settling(numbers)
        if self._pays_touch:
            self.memory["touched"][numbers] = False

    def advance(self) -> None:
        # should a simulation fail below, what came of the last step is not what comes of this one
        for flags in (self._at_wall, self._points, self.shaped_reward, self._new_touch):
            flags.fill(0)
        self.batch.rollout(self.frame_skip, record=tuple(self._records), out=self._records)
        self._look_at_wall(self._records["qpos"][:, :, self._ball :])
        if self._pays_touch:
            # record k shows the state before substep k; the one after the last is computed on top
            self.batch.forward(stage=self.stage)
            touching = self._touches(self._records["sensordata"][:, 1:]).any(axis=1) | self._touches(self._sensors)
            np.greater(touching, self.memory["touched"], out=self._new_touch)
            self.memory["touched"] |= touching

    def judge(self, fell: np.ndarray, score: np.ndarray, reward: np.ndarray, terminated: np.ndarray) -> None:
        score[:] = self._points
        reward[:] = self.shaped_reward if self.config.shaped else score
        if self._pays_touch:
            reward += self.config.touch_ball_reward * self._new_touch
        np.putmask(reward, self.qpos[:, self.view.forward] > self.line_x, 0.0)
        np.logical_or(terminated, self._at_wall, out=terminated)

    def observe_task(self, rows: Rows, out: np.ndarray) -> None:
        ball = self.qpos[rows, self._ball :]
        velocity = self.qvel[rows, self._ball_velocity :]
        out[:, 0] = ball[:, 0] - self.qpos[rows, self.view.forward]
        if self.robot.is_planar:
            out[:, 1] = ball[:, 1]
            out[:, 2] = math.pi - np.mod(math.pi - ball[:, 2], 2 * math.pi)
            out[:, 3:6] = velocity
        else:
            out[:, 1] = ball[:, 1] - self.qpos[rows, self.view.forward + 1]
            out[:, 2] = ball[:, 2]
            out[:, 3:9] = velocity
        if self._pays_touch:
            out[:, -1] = self.memory["touched"][rows]

    def _look_at_wall(self, ball: np.ndarray) -> None:
        """Positions of the ball after each substep [B, substeps, ...] -> who is at the wall, and for how many points.

        The last place at which the ball touched the wall counts.
        """
        touching = ball[:, :, 0] >= self.wall_x - BALL_RADIUS
        touching.any(axis=1, out=self._at_wall)
        self._points[:] = self.shaped_reward[:] = 0.0
        if not np.count_nonzero(self._at_wall):
            return
        rows = np.flatnonzero(self._at_wall)
        last = touching.shape[1] - 1 - touching[rows, ::-1].argmax(axis=1)
        place = ball[rows, last]
        y, z = (np.zeros(len(rows)), place[:, 1]) if self.robot.is_planar else (place[:, 1], place[:, 2])
        for goal_y, goal_z, points in reversed(self._goals):
            distance = np.hypot(y - goal_y, z - goal_z)
            self._points[rows[distance <= GOAL_RADIUS]] = points
            self.shaped_reward[rows] = np.maximum(self.shaped_reward[rows], points * nearness(distance))

    def _touches(self, sensors: np.ndarray) -> np.ndarray:
        """[..., nsensordata] -> whether robot and ball are in each other [...]."""
        return (sensors[..., self._touch] > 0) & (sensors[..., self._touch + 1] < 0.0)

    def _add_marks(self, spec: mujoco.MjSpec) -> None:
        """Goals, white with a red rim, and the line."""
        ellipsoid, box = mujoco.mjtGeom.mjGEOM_ELLIPSOID, mujoco.mjtGeom.mjGEOM_BOX
        for number, (y, z, _) in enumerate(self._goals):
            for name, depth, radius, colour in (
                ("goal", 0.01, GOAL_RADIUS, [1.0, 1.0, 1.0, 1.0]),
                ("rim", 0.005, GOAL_RADIUS + 0.05, [1.0, 0.0, 0.0, 1.0]),
            ):
                spec.worldbody.add_site(
                    name=f"{name}_{number}",
                    type=ellipsoid,
                    size=[depth, radius, radius],
                    pos=[self.wall_x, y, z],
                    rgba=colour,
                )
        world.add_checker(spec, "line", (0.0, 0.0, 0.0), (1.0, 0.8, 0.0), fields_per_metre=5.0)
        line = spec.worldbody.add_site(name="line", type=box, size=[0.1, 3.0, 0.01], pos=[self.line_x, 0.0, 0.02])
        line.material, line.rgba = "line", [1.0, 1.0, 1.0, 1.0]


def nearness(distance: np.ndarray) -> np.ndarray:
    """1 within a goal, 0.1 at twice its radius and little beyond, for distances (m) from its centre."""
    return 0.1 ** np.square(np.maximum(distance / GOAL_RADIUS - 1.0, 0.0))
