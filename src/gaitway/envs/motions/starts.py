"""A wrapper that lets episodes of a native task begin within a motion.

`{name: starts, motion: clips/run, probability: 0.5}` is reference-state initialisation (Peng et al. 2018): states
that a policy would meet only once it has learnt to get there are visited from the first step on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaitway.core.ranges import Share
from gaitway.envs.batch_task import BatchTask
from gaitway.envs.legged.commands import CLIP_VELOCITY
from gaitway.envs.motions.features import GROUP as AMP
from gaitway.envs.motions.features import MotionFeatures
from gaitway.envs.motions.frames import MotionError
from gaitway.envs.motions.generate import velocity_of
from gaitway.envs.motions.library import MotionLibrary
from gaitway.envs.motions.lowest import LowestPoints
from gaitway.envs.motions.reference import GROUP as REFERENCE
from gaitway.envs.motions.reference import ReferenceClock
from gaitway.envs.motions.skeleton import Skeleton, robot_name
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.observation_wrappers import with_group
from gaitway.envs.vec_env import Observation, Step, VecEnv
from gaitway.envs.wrappers import Wrapper, innermost

STREAM = 1
"""Apart from the stream that the task draws from, so that the other episodes begin as they would without clips."""
CLEARANCE = 5e-4
"""A robot whose lowest foot were lower (m) is raised until it is so far above the ground."""
CLOCK = ("clips", "times")
"""What a stored state holds of the clock."""
SCENARIO = "reference_clock"
"""What scenarios call it [B, 2]: number of the clip, and the time in it (s)."""


class ClipStarts(Wrapper):
    """With `probability` an episode begins at a random time of a clip of `motion` (a clip, or folders of clips).

    Joints, roll, pitch and velocities are the clip's; where on the floor the robot stands, which way it heads, and
    what is around it, is as the task drew it. Height above the ground is the clip's too, but no foot begins within the
    ground, into which simulated feet sink a little. A settling step is left out. Legged tasks learn how fast the clip
    is, and may command that (`commands.from_clip`). Evaluations begin as the task says unless `in_evaluation`.
    Which episodes these are, and where in the clip, depends on the seed, the instance and the episode alone.

    With `reference` every instance has a clock that runs along its clip from there, wherever its episode began, and
    the group `reference` shows what the clip does now, as the group `amp` shows it of the robot.
    """

    def __init__(
        self,
        env: VecEnv,
        motion: str | Sequence[str],
        probability: Share = 0.5,
        in_evaluation: bool = False,
        reference: bool = False,
    ) -> None:
        super().__init__(env)
        if not 0.0 <= probability <= 1.0:
            raise ValueError(f"probability of starts is {probability}; use a number from 0 to 1")
        base = innermost(env)
        if not isinstance(base, MujocoBatchEnv):
            if isinstance(getattr(base, "task", None), BatchTask):
                raise MotionError(
                    f"clips set states on MuJoCo alone, and Warp moves {env.spec.id}; use env.simulator=mujoco"
                )
            raise MotionError(
                f"{env.spec.id} is no native task, so no clip can set its state; use one such as walker/run"
            )
        self._base, self._fingerprint = base, ""
        self._clock: ReferenceClock | None = None
        self.probability = probability if in_evaluation or base.purpose != "evaluation" else 0.0
        if self.probability == 0.0 and not reference:
            return  # a run can be judged where its clips are not
        self.library = MotionLibrary.load(motion)
        self._skeleton = Skeleton.of_task(base.task)
        library = self.library
        library.need_fit(robot_name(base.task), base.spec.control_dt, base.spec.id)
        self._fit = self._skeleton.fit(library.joints, library.bodies, library.balls, library.clips[0].name)
        for clip in library.clips:
            self._fit.states(clip.frames)  # now, rather than in the midst of a run
        standing = base.task.standing_geoms
        geoms = self._skeleton.geoms if standing is None else standing
        raised = geoms and self._skeleton.height is not None
        self._lowest = LowestPoints(self._skeleton.model, geoms) if raised else None
        self._fingerprint = library.fingerprint
        tells = CLIP_VELOCITY in base.task.layout_shapes
        self._told = np.array([(1.0, *velocity_of(clip)) for clip in library.clips]) if tells else None
        base.change_starts(self._changed)
        if reference:
            features = MotionFeatures.of_spec(env.spec)
            self._clock = ReferenceClock(library, features, env.num_envs, env.spec.control_dt)
            self.spec = with_group(env, dataclasses.replace(env.spec.group(AMP), name=REFERENCE))
        self.load_scenario({})  # the first episodes began without this wrapper

    def step(self, action: Tensor) -> Step:
        step = self.env.step(action)
        if self._clock is None:
            return step
        self._clock.tick()
        final = self._with_reference(step.final_obs)
        ended = torch.nonzero(step.terminated | step.truncated)[:, 0].cpu().numpy()
        if len(ended):
            self._wind(ended)
        return dataclasses.replace(step, obs=self._with_reference(step.obs), final_obs=final)

    def shown(self, obs: Observation) -> Observation:
        if self._clock is None:
            return obs
        self._wind(np.arange(self.num_envs))
        return self._with_reference(obs)

    def scenario(self) -> dict[str, Tensor]:
        if self._clock is None:
            return self.env.scenario()
        clock = np.stack((self._clock.clips, self._clock.times), 1)
        return {**self.env.scenario(), SCENARIO: torch.from_numpy(clock)}

    def load_scenario(self, scenario: Mapping[str, Any]) -> Observation:
        if self._clock is None or SCENARIO not in scenario:
            return super().load_scenario(scenario)
        given = np.asarray(scenario[SCENARIO], dtype=np.float64)
        self._clock.check(given)
        obs = self.env.load_scenario({name: value for name, value in scenario.items() if name != SCENARIO})
        self._clock.clips[:], self._clock.times[:] = given.T
        return self._with_reference(obs)

    def state_dict(self) -> dict[str, Any]:
        state = {"env": self.env.state_dict(), "motions": self._fingerprint}
        if self._clock is not None:
            state["clock"] = {name: torch.from_numpy(getattr(self._clock, name).copy()) for name in CLOCK}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> Observation:
        if state["motions"] != self._fingerprint:
            raise MotionError(
                "the clips that starts draws from are not those of the stored state; put the former ones back"
            )
        obs = self.env.load_state_dict(state["env"])
        if self._clock is None:
            return obs
        for name in CLOCK:
            getattr(self._clock, name)[:] = state["clock"][name].numpy()
        return self._with_reference(obs)

    def _wind(self, rows: np.ndarray) -> None:
        assert self._clock is not None
        numbers = self._numbers(rows)
        self._clock.wind(rows, numbers[:, 1], numbers[:, 2])

    def _with_reference(self, obs: Observation) -> Observation:
        assert self._clock is not None
        like = obs[AMP]
        return {**obs, REFERENCE: torch.from_numpy(self._clock.frame()).to(like)}

    def _numbers(self, rows: np.ndarray) -> np.ndarray:
        """Of the present episodes of `rows`: whether, where and when they begin in a clip [n, 3]."""
        return np.stack([self._base.episode_generator(row, STREAM).random(3) for row in rows])

    def _changed(self, rows: np.ndarray, drawn: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """The starts of `rows` that the task has drawn, some of them replaced."""
        numbers = self._numbers(rows)
        chosen = np.flatnonzero(numbers[:, 0] < self.probability)
        if not len(chosen):
            return drawn
        clips, times = self.library.place(numbers[chosen, 1], numbers[chosen, 2])
        frames = self.library.at(clips, times)
        starts = {name: np.array(array) for name, array in drawn.items()}
        qpos, qvel = starts["qpos"][chosen], starts["qvel"][chosen]
        place, heading = self._skeleton.place, self._skeleton.heading(qpos)
        spots = qpos[:, place].copy()
        self._fit.write(frames, qpos, qvel)
        qpos[:, place] = spots
        if heading is not None:
            self._skeleton.turn_to(heading, qpos, qvel)
        self._raise(rows[chosen], qpos)
        starts["qpos"][chosen], starts["qvel"][chosen] = qpos, qvel
        if "settle" in starts:
            starts["settle"][chosen] = 0.0
        if self._told is not None:
            starts[CLIP_VELOCITY][chosen] = self._told[clips]
        return starts

    def _raise(self, rows: np.ndarray, qpos: np.ndarray) -> None:
        """Lift states [n, nq] with which episodes of `rows` begin out of the ground; who is in the air stays there."""
        if self._lowest is None:
            return
        points = self._lowest(qpos)
        ground = self._base.task.ground(rows, points[..., :2])
        wanted = np.maximum(points[..., 2].min(1), CLEARANCE)  # above z = 0, the floor of the clip
        qpos[:, self._skeleton.height] += wanted - (points[..., 2] - ground).min(1)
