"""Gymnasium's MuJoCo v5 pendulums and arms: InvertedPendulum, InvertedDoublePendulum, Reacher and Pusher.

Positions of bodies and sites and constraint forces are read as gymnasium reads them: after the step, so that they
describe the last stage of the last physics substep, not the state after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gaitway.core.config import configuration
from gaitway.core.ranges import Count, NotNegative, Number, WholeNumber
from gaitway.envs.batch_task import STAGE_ACCELERATION, Arrays, Rows, record
from gaitway.envs.robots.robot import position_components, velocity_components
from gaitway.envs.spec import Component
from gaitway.envs.task_options import resolve_options
from gaitway.envs.tasks.gym_v5.runners import GymConfig, GymTask, noisy_state, sum_of_squares


@configuration(kw_only=True)
class InvertedPendulumConfig(GymConfig):
    """Options of InvertedPendulum-v5, with gymnasium's names and defaults."""

    frame_skip: Count = 2
    reset_noise_scale: NotNegative = 0.01


@configuration(kw_only=True)
class InvertedDoublePendulumConfig(GymConfig):
    """Options of InvertedDoublePendulum-v5."""

    healthy_reward: Number = 10.0
    reset_noise_scale: NotNegative = 0.1


@configuration(kw_only=True)
class ReacherConfig(GymConfig):
    """Options of Reacher-v5."""

    frame_skip: Count = 2
    reward_dist_weight: Number = 1.0
    reward_control_weight: Number = 1.0
    max_episode_steps: WholeNumber = 50


@configuration(kw_only=True)
class PusherConfig(GymConfig):
    """Options of Pusher-v5."""

    reward_near_weight: Number = 0.5
    reward_dist_weight: Number = 1.0
    reward_control_weight: Number = 0.1
    max_episode_steps: WholeNumber = 100


class InvertedPendulumTask(GymTask):
    """1 per step while the pole leans less than 0.2 rad. Metric `reward_survive`."""

    config: InvertedPendulumConfig
    metrics = ("reward_survive",)
    MAX_LEAN = 0.2

    def __init__(self, options: Mapping[str, Any]) -> None:
        resolved = resolve_options(InvertedPendulumConfig, "InvertedPendulum-v5", options)
        super().__init__("InvertedPendulum-v5", "inverted_pendulum.xml", *resolved)

    def draw(self, generator: np.random.Generator) -> Arrays:
        return noisy_state(self.model, generator, self.config.reset_noise_scale, normal_velocity=False)

    def outcome(self, action: np.ndarray, reward: np.ndarray, terminated: np.ndarray, metrics: Arrays) -> None:
        np.greater(np.abs(self.qpos[:, 1]), self.MAX_LEAN, out=terminated)
        reward[:] = ~terminated
        metrics["reward_survive"][:] = reward

    def observe(self, rows: Rows, out: Arrays) -> None:
        out["policy"][:] = self.motion[rows]


class InvertedDoublePendulumTask(GymTask):
    """`healthy_reward` while the tip is above 1 m, less its distance from the top and the speed of the joints.

    Group `policy`: cart position, sines and cosines of the two angles, velocities clipped to 10, and the constraint
    force on the cart clipped to 10 N. Metrics: gymnasium's reward parts.
    """

    config: InvertedDoublePendulumConfig
    fields = ("site_xpos", "qfrc_constraint")
    start_stage = STAGE_ACCELERATION
    metrics = ("reward_survive", "distance_penalty", "velocity_penalty")
    LIMIT = 10.0

    def __init__(self, options: Mapping[str, Any]) -> None:
        resolved = resolve_options(InvertedDoublePendulumConfig, "InvertedDoublePendulum-v5", options)
        super().__init__("InvertedDoublePendulum-v5", "inverted_double_pendulum.xml", *resolved)

    def components(self) -> tuple[Component, ...]:
        angles = [model_joint.name for model_joint in map(self.model.joint, range(1, self.model.njnt))]
        return (
            *position_components(self.model)[:1],
            *(Component(f"sin_{name}", 1) for name in angles),
            *(Component(f"cos_{name}", 1) for name in angles),
            *velocity_components(self.model),
            Component("slider_constraint_force", 1, "N"),
        )

    def draw(self, generator: np.random.Generator) -> Arrays:
        return noisy_state(self.model, generator, self.config.reset_noise_scale, normal_velocity=True)

    def outcome(self, action: np.ndarray, reward: np.ndarray, terminated: np.ndarray, metrics: Arrays) -> None:
        tip = self.field["site_xpos"][:, 0]
        x, height = tip[:, 0], tip[:, 2]
        np.less_equal(height, 1.0, out=terminated)
        survive = self.config.healthy_reward * ~terminated
        distance = 0.01 * x**2 + (height - 2.0) ** 2
        velocity = 1e-3 * self.qvel[:, 1] ** 2 + 5e-3 * self.qvel[:, 2] ** 2
        reward[:] = survive - distance - velocity
        record(metrics, reward_survive=survive, distance_penalty=-distance, velocity_penalty=-velocity)

    def observe(self, rows: Rows, out: Arrays) -> None:
        policy = out["policy"]
        angles = self.qpos[rows, 1:]
        policy[:, :1] = self.qpos[rows, :1]
        np.sin(angles, out=policy[:, 1:3], casting="same_kind")
        np.cos(angles, out=policy[:, 3:5], casting="same_kind")
        np.clip(self.qvel[rows], -self.LIMIT, self.LIMIT, out=policy[:, 5:8])
        np.clip(self.field["qfrc_constraint"][rows, :1], -self.LIMIT, self.LIMIT, out=policy[:, 8:])


class ReacherTask(GymTask):
    """Bring the fingertip to the target: minus its distance and the action's squares. Metrics: `distance` and parts.

    Group `policy`: cosines and sines of the two joints, target x and y, joint velocities, fingertip minus target.
    """

    config: ReacherConfig
    fields = ("xpos",)
    start_stage = STAGE_ACCELERATION
    metrics = ("distance", "reward_dist", "reward_ctrl")

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__("Reacher-v5", "reacher.xml", *resolve_options(ReacherConfig, "Reacher-v5", options))
        self._finger, self._target = self.model.body("fingertip").id, self.model.body("target").id

    def components(self) -> tuple[Component, ...]:
        joints = [self.model.joint(index).name for index in range(2)]
        return (
            *(Component(f"cos_{name}", 1) for name in joints),
            *(Component(f"sin_{name}", 1) for name in joints),
            *position_components(self.model)[2:],
            *velocity_components(self.model)[:2],
            Component("fingertip_from_target", 2, "m"),
        )

    def draw(self, generator: np.random.Generator) -> Arrays:
        """Joints U(-0.1, 0.1), target uniform in a disc of 0.2 m, joint velocities U(-0.005, 0.005); in this order."""
        qpos = self.model.qpos0 + generator.uniform(-0.1, 0.1, self.model.nq)
        target = generator.uniform(-0.2, 0.2, 2)
        while np.linalg.norm(target) >= 0.2:
            target = generator.uniform(-0.2, 0.2, 2)
        qpos[2:] = target
        qvel = generator.uniform(-0.005, 0.005, self.model.nv)
        qvel[2:] = 0.0
        return {"qpos": qpos, "qvel": qvel}

    def outcome(self, action: np.ndarray, reward: np.ndarray, terminated: np.ndarray, metrics: Arrays) -> None:
        distance = np.linalg.norm(self._offset(slice(None)), axis=1)
        control_cost = self.config.reward_control_weight * sum_of_squares(action)
        distance_cost = self.config.reward_dist_weight * distance
        reward[:] = -distance_cost - control_cost
        record(metrics, distance=distance, reward_dist=-distance_cost, reward_ctrl=-control_cost)

    def observe(self, rows: Rows, out: Arrays) -> None:
        policy = out["policy"]
        angles = self.qpos[rows, :2]
        np.cos(angles, out=policy[:, :2], casting="same_kind")
        np.sin(angles, out=policy[:, 2:4], casting="same_kind")
        policy[:, 4:6] = self.qpos[rows, 2:]
        policy[:, 6:8] = self.qvel[rows, :2]
        policy[:, 8:] = self._offset(rows)[:, :2]

    def _offset(self, rows: Rows) -> np.ndarray:
        """Fingertip minus target, [B, 3] (m)."""
        xpos = self.field["xpos"]
        return xpos[rows, self._finger] - xpos[rows, self._target]


class PusherTask(GymTask):
    """Push the cylinder to the goal: minus its distance from the goal, from the hand, and the action's squares.

    Group `policy`: arm angles and velocities, then positions of the hand, the object and the goal. Metrics: `distance`
    (object to goal, m) and the reward parts.
    """

    config: PusherConfig
    fields = ("xpos",)
    start_stage = STAGE_ACCELERATION
    metrics = ("distance", "reward_dist", "reward_ctrl", "reward_near")
    ARM_JOINTS = 7
    BODIES = ("tips_arm", "object", "goal")

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__("Pusher-v5", "pusher_v5.xml", *resolve_options(PusherConfig, "Pusher-v5", options))
        self._bodies = np.array([self.model.body(name).id for name in self.BODIES])

    def components(self) -> tuple[Component, ...]:
        return (
            *position_components(self.model)[: self.ARM_JOINTS],
            *velocity_components(self.model)[: self.ARM_JOINTS],
            *(Component(f"{name}_position", 3, "m") for name in self.BODIES),
        )

    def draw(self, generator: np.random.Generator) -> Arrays:
        """Object more than 0.17 m from the goal, in U(-0.3, 0) x U(-0.2, 0.2); arm velocities U(-0.005, 0.005)."""
        cylinder = generator.uniform((-0.3, -0.2), (0.0, 0.2))
        while np.linalg.norm(cylinder) <= 0.17:
            cylinder = generator.uniform((-0.3, -0.2), (0.0, 0.2))
        qpos = self.model.qpos0.copy()
        qpos[-4:-2] = cylinder
        qpos[-2:] = 0.0
        qvel = generator.uniform(-0.005, 0.005, self.model.nv)
        qvel[-4:] = 0.0
        return {"qpos": qpos, "qvel": qvel}

    def outcome(self, action: np.ndarray, reward: np.ndarray, terminated: np.ndarray, metrics: Arrays) -> None:
        hand, cylinder, goal = (self.field["xpos"][:, body] for body in self._bodies)
        distance = np.linalg.norm(cylinder - goal, axis=1)
        near_cost = self.config.reward_near_weight * np.linalg.norm(cylinder - hand, axis=1)
        distance_cost = self.config.reward_dist_weight * distance
        control_cost = self.config.reward_control_weight * sum_of_squares(action)
        reward[:] = -distance_cost - control_cost - near_cost
        record(
            metrics, distance=distance, reward_dist=-distance_cost, reward_ctrl=-control_cost, reward_near=-near_cost
        )

    def observe(self, rows: Rows, out: Arrays) -> None:
        policy, arm = out["policy"], self.ARM_JOINTS
        policy[:, :arm] = self.qpos[rows, :arm]
        policy[:, arm : 2 * arm] = self.qvel[rows, :arm]
        positions = self.field["xpos"][rows][:, self._bodies]
        policy[:, 2 * arm :] = positions.reshape(len(policy), -1)
