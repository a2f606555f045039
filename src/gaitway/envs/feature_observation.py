"""A wrapper that adds features of the robot to what a native task shows: `{name: features, features: bodyfeet}`.

`{name: features, features: amp}` adds those that a motion prior compares with clips (`gaitway.envs.motions.features`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from gaitway.core.config import did_you_mean
from gaitway.envs.batch_task import STAGE_POSITION, BatchTask, Rows
from gaitway.envs.motions.features import GROUP as MOTION
from gaitway.envs.motions.features import ObservedMotion
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.observation_wrappers import with_group
from gaitway.envs.robots.robot import Robot, RobotView
from gaitway.envs.robots.world import ACCELEROMETER
from gaitway.envs.spec import ObservationGroup
from gaitway.envs.step_buffers import FAULT_METRIC
from gaitway.envs.tasks.bisk.features import FEATURES, Features, make_features
from gaitway.envs.vec_env import Observation, Step, VecEnv
from gaitway.envs.wrappers import Wrapper, innermost

FORCE_FIELD = "cfrc_ext"


class FeatureObservation(Wrapper):
    """Adds features of the robot (`gaitway.envs.tasks.bisk.features`, or `amp`) to a native task, as the group `into`.

    The simulator restarts finished instances within a step, so that the state they reached can be read only while the
    task observes it: this wrapper listens there. It makes the task compute positions of bodies after every step. In
    `-relz` features the height is the one that the task measures, else the height above z = 0. A faulty instance shows
    the last features before the fault. `amp` takes `bodies`, whose places it then tells too; its group is called `amp`
    and the others `goal_space`, unless `into` says otherwise.
    """

    def __init__(
        self,
        env: VecEnv,
        features: str = "bodyfeet",
        into: str | None = None,
        heading: str = "original",
        bodies: tuple[str, ...] = (),
    ) -> None:
        super().__init__(env)
        if features not in (*FEATURES, MOTION):
            known = [*FEATURES, MOTION]
            raise ValueError(f"no features {features!r}{did_you_mean(features, known)}; there are {known}")
        is_motion = features == MOTION
        self.into = into or (MOTION if is_motion else "goal_space")
        base = _native(env)
        self._task = task = base.task
        self.features: Features | ObservedMotion
        if is_motion:
            self.features = motion = ObservedMotion(task, bodies)
            facts: dict[str, Any] = {self.into: motion.motion.facts}
        else:
            if bodies:
                raise ValueError(f"{features} takes no bodies; {MOTION} does")
            self._view = RobotView(_robot(task), task.model)
            self.features = make_features(features, self._view, heading)
            facts = {"robot": self._view.robot.name}
        self._check_forces()
        group = env.spec.groups[0]
        size, heading = self.features.size, self.features.heading
        added = ObservationGroup(self.into, self.features.components, (size,), group.dtype, heading)
        spec = with_group(env, added)
        self.spec = dataclasses.replace(spec, facts={**spec.facts, **facts})
        self._dtype = group.torch_dtype
        self._reached = np.zeros((env.num_envs, self.features.size))
        self._started = np.zeros_like(self._reached)
        self._listen()
        self._seen = self._tensor(self._write(slice(None), self._reached))

    def step(self, action: Tensor) -> Step:
        step = self.env.step(action)
        final = self._tensor(self._reached)
        faulty = step.metrics.get(FAULT_METRIC)
        if faulty is not None:
            final = torch.where(faulty[:, None] != 0, self._seen, final)
        ended = step.terminated | step.truncated
        self._seen = torch.where(ended[:, None], self._tensor(self._started), final)
        return dataclasses.replace(
            step, obs=self._with(step.obs, self._seen), final_obs=self._with(step.final_obs, final)
        )

    def state_dict(self) -> dict[str, Any]:
        return {"env": self.env.state_dict(), "features": self._seen.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> Observation:
        obs = self.env.load_state_dict(state["env"])
        self._seen = state["features"].clone().to(self.device)
        return self._with(obs, self._seen)

    def _listen(self) -> None:
        """Write the features whenever the task observes: all rows after a step, some after a restart."""
        task, observe = self._task, self._task.observe

        def observe_too(rows: Rows, out: dict[str, np.ndarray]) -> None:
            observe(rows, out)
            if isinstance(rows, slice):
                self._write(rows, self._reached)
            else:
                self._started[rows] = self._write(rows, np.empty((len(rows), self.features.size)))

        task.observe = observe_too  # type: ignore[method-assign]
        is_new = [field for field in self.features.fields if field not in task.field]
        task.field.update({field: task.batch.bind(field) for field in is_new})
        if set(self.features.fields) - {FORCE_FIELD}:
            task.stage = max(task.stage, STAGE_POSITION)
            task.start_stage = max(task.start_stage, STAGE_POSITION)
            if is_new:
                task.batch.forward(stage=STAGE_POSITION)

    def _write(self, rows: Rows, out: np.ndarray) -> np.ndarray:
        height = None
        if self.features.relative_height:
            measured = getattr(self._task, "height", None)
            height = measured(rows) if measured is not None else None
            height = self._task.qpos[rows][:, self._view.height] if height is None else height
        return self.features.write(self._task, rows, out, height)

    def _check_forces(self) -> None:
        has_sensor = mujoco.mj_name2id(self._task.model, int(mujoco.mjtObj.mjOBJ_SENSOR), ACCELEROMETER) >= 0
        if FORCE_FIELD in self.features.fields and not has_sensor:
            raise ValueError(
                f"{self.spec.id} does not compute contact forces, which {self.features.name} holds; use bodyfeet"
            )

    def shown(self, obs: Observation) -> Observation:
        self._seen = self._tensor(self._started)
        return self._with(obs, self._seen)

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(device=self.device, dtype=self._dtype, copy=True)

    def _with(self, obs: Observation, features: Tensor) -> Observation:
        return {**obs, self.into: features}


def _native(env: VecEnv) -> MujocoBatchEnv:
    inner = innermost(env)
    if not isinstance(inner, MujocoBatchEnv):
        if isinstance(getattr(inner, "task", None), BatchTask):
            raise ValueError(f"features are of MuJoCo alone, and Warp moves {env.spec.id}; use env.simulator=mujoco")
        raise ValueError(f"{env.spec.id} is no native task, so its robot cannot be read; use one such as walker/run")
    return inner


def _robot(task: BatchTask) -> Robot:
    robot = getattr(task, "robot", None)
    if not isinstance(robot, Robot):
        raise ValueError(f"{task.id} has no robot of gaitway.envs.robots; use a task such as walker/run")
    return robot
