"""Environments that are wrong in one way each, and the words in which `check_env` has to say so."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from gaitway.envs.spec import Component
from gaitway.envs.toys.toy_env import ToyEnv
from gaitway.envs.toys.toys import CartPole, Pendulum
from gaitway.envs.vec_env import VecEnv
from gaitway.envs.wrappers import Wrapper

LIMIT = 12


def pendulum(num_envs: int, seed: int) -> ToyEnv:
    return ToyEnv(Pendulum(max_episode_steps=LIMIT), num_envs, seed, id="toy/pendulum")


def cartpole(num_envs: int, seed: int) -> ToyEnv:
    return ToyEnv(CartPole(max_episode_steps=LIMIT), num_envs, seed, id="toy/cartpole")


class FinalIsReset(Wrapper):
    def step(self, action):
        step = self.env.step(action)
        return dataclasses.replace(step, final_obs={name: value.clone() for name, value in step.obs.items()})


class FinalIsMissing(Wrapper):
    def step(self, action):
        return dataclasses.replace(self.env.step(action), final_obs={})


class FinalIsOld(Wrapper):
    def __init__(self, env):
        super().__init__(env)
        self.seen = env.load_state_dict(env.state_dict())

    def reset(self, seed=None):
        self.seen = self.env.reset(seed)
        return self.seen

    def load_state_dict(self, state):
        self.seen = self.env.load_state_dict(state)
        return self.seen

    def step(self, action):
        step = self.env.step(action)
        done = (step.terminated | step.truncated)[:, None]
        final = {name: torch.where(done, self.seen[name], value) for name, value in step.final_obs.items()}
        self.seen = step.obs
        return dataclasses.replace(step, final_obs=final)


class SharedMemory(Wrapper):
    def step(self, action):
        step = self.env.step(action)
        return dataclasses.replace(step, final_obs=step.obs)


class WrongType(Wrapper):
    def step(self, action):
        step = self.env.step(action)
        return dataclasses.replace(step, obs={name: value.double() for name, value in step.obs.items()})


class RewardColumn(Wrapper):
    def step(self, action):
        step = self.env.step(action)
        return dataclasses.replace(step, reward=step.reward[:, None])


class FlagsAsNumbers(Wrapper):
    def step(self, action):
        step = self.env.step(action)
        return dataclasses.replace(step, terminated=step.terminated.float())


class GroupMissing(Wrapper):
    def step(self, action):
        step = self.env.step(action)
        return dataclasses.replace(step, obs={"pos": step.obs["pos"]})


class GroupUnannounced(Wrapper):
    def reset(self, seed=None):
        obs = self.env.reset(seed)
        return {**obs, "secret": obs["pos"]}


class TwinComponents(Wrapper):
    def __init__(self, env):
        super().__init__(env)
        pos, vel = env.spec.groups
        twins = dataclasses.replace(pos, components=(Component("cos"), Component("cos")))
        self.spec = dataclasses.replace(env.spec, groups=(twins, vel))


class TooFewComponents(Wrapper):
    def __init__(self, env):
        super().__init__(env)
        pos, vel = (dataclasses.replace(group) for group in env.spec.groups)
        object.__setattr__(pos, "components", (Component("cos"),))  # past the check of the constructor
        self.spec = dataclasses.replace(env.spec, groups=(pos, vel))


class InfiniteObservation(Wrapper):
    def step(self, action):
        step = self.env.step(action)
        step.obs["vel"][1] = float("inf")
        return step


class NanReward(Wrapper):
    def step(self, action):
        step = self.env.step(action)
        step.reward[2:] = float("nan")
        return step


class BothFlags(Wrapper):
    def step(self, action):
        step = self.env.step(action)
        return dataclasses.replace(step, terminated=step.terminated | step.truncated)


class TimeoutIsFall(Wrapper):
    def step(self, action):
        step = self.env.step(action)
        none = torch.zeros_like(step.truncated)
        return dataclasses.replace(step, terminated=step.terminated | step.truncated, truncated=none)


class LimitForgotten(Wrapper):
    def __init__(self, env):
        super().__init__(env)
        self.spec = dataclasses.replace(env.spec, max_episode_steps=LIMIT - 5)


class Noisy(Wrapper):
    def __init__(self, env):
        super().__init__(env)
        self.generator = np.random.default_rng()

    def step(self, action):
        step = self.env.step(action)
        return dataclasses.replace(step, reward=step.reward + self.generator.random())


class BatchDependent(Wrapper):
    def step(self, action):
        step = self.env.step(action)
        return dataclasses.replace(step, reward=step.reward + self.num_envs)


class StateWithoutEpisode(Wrapper):
    def state_dict(self):
        state = self.env.state_dict()
        return {**state, "episode": torch.zeros_like(state["episode"])}


class StateOfObjects(Wrapper):
    def state_dict(self):
        return {**self.env.state_dict(), "generator": np.random.default_rng(0)}


class LiveState(Wrapper):
    """Counts steps in a tensor and hands out that tensor instead of a copy."""

    def __init__(self, env):
        super().__init__(env)
        self.count = torch.zeros(())

    def step(self, action):
        self.count += 1
        return self.env.step(action)

    def state_dict(self):
        return {**self.env.state_dict(), "count": self.count}


class ScenarioForgets(Wrapper):
    def load_scenario(self, scenario):
        return self.env.load_scenario({"state": scenario["state"] * torch.tensor([1.0, 0.0])})


class ScenarioKeepsAge(Wrapper):
    def load_scenario(self, scenario):
        obs = self.env.load_scenario(scenario)
        self.env.set_elapsed(torch.full((self.num_envs,), 3))
        return obs


class ReusedBuffer(Wrapper):
    def __init__(self, env):
        super().__init__(env)
        self.buffer = torch.zeros(env.num_envs)

    def step(self, action):
        step = self.env.step(action)
        self.buffer.copy_(step.reward)
        return dataclasses.replace(step, reward=self.buffer)


class ChangesAction(Wrapper):
    def step(self, action):
        return self.env.step(action.clamp_(-0.5, 0.5))


class AcceptsNan(Wrapper):
    def step(self, action):
        return self.env.step(torch.nan_to_num(action))


class AcceptsAnyShape(Wrapper):
    def step(self, action):
        return self.env.step(action[: self.num_envs])


class RefusesOutliers(Wrapper):
    def step(self, action):
        if (action.abs() > 2).any():
            raise ValueError("outside the box")
        return self.env.step(action)


class MetricMissing(Wrapper):
    def step(self, action):
        step = self.env.step(action)
        return dataclasses.replace(step, metrics={"angle": step.metrics["angle"]})


class MetricScalar(Wrapper):
    def step(self, action):
        step = self.env.step(action)
        return dataclasses.replace(step, metrics={name: value.mean() for name, value in step.metrics.items()})


class IgnoresSeed(Wrapper):
    def reset(self, seed=None):
        return self.env.reset(None if seed is None else 0 if isinstance(seed, int) else [0] * len(seed))


class SeedsBySum(Wrapper):
    def reset(self, seed=None):
        return self.env.reset(seed if seed is None or isinstance(seed, int) else [s + i for i, s in enumerate(seed)])


class UnseededStart(Wrapper):
    def __init__(self, env):
        super().__init__(env)
        env.reset(99)


class AgeAfterEnd(Wrapper):
    """An ended episode keeps its age until the next step."""

    extra = 0

    def step(self, action):
        before = self.env.elapsed
        step = self.env.step(action)
        self.extra = torch.where(step.terminated | step.truncated, before + 1, 0)
        return step

    def reset(self, seed=None):
        self.extra = 0
        return self.env.reset(seed)

    def load_scenario(self, scenario):
        self.extra = 0
        return self.env.load_scenario(scenario)

    @property
    def elapsed(self):
        return self.env.elapsed + self.extra


class AgesIgnored(Wrapper):
    def set_elapsed(self, steps):
        pass


class ValidUnannounced(Wrapper):
    def step(self, action):
        step = self.env.step(action)
        return dataclasses.replace(step, valid=~(step.terminated | step.truncated))


class ResetRowsUnmarked(Wrapper):
    def __init__(self, env):
        super().__init__(env)
        self.spec = dataclasses.replace(env.spec, reset_rows=True)


class Explodes(Wrapper):
    def state_dict(self) -> dict[str, Any]:
        raise RuntimeError("no state today")


def _around(good: Callable[[int, int], VecEnv], wrapper: Callable[[VecEnv], VecEnv]) -> Callable[[int, int], VecEnv]:
    return lambda num_envs, seed: wrapper(good(num_envs, seed))


BROKEN: dict[str, tuple[Callable[[int, int], VecEnv], str]] = {
    wrapper.__name__: (_around(good, wrapper), sentence)
    for wrapper, good, sentence in [
        (FinalIsReset, pendulum, "final_obs equals obs at every episode end"),
        (FinalIsMissing, pendulum, "final_obs lacks the groups ['pos', 'vel']"),
        (FinalIsOld, pendulum, "final_obs repeats the observation before the last step"),
        (SharedMemory, pendulum, "obs and final_obs share the memory of group 'pos'"),
        (WrongType, pendulum, "group 'pos' of the observation is torch.float64; it must be torch.float32"),
        (RewardColumn, pendulum, "the reward has shape [4, 1]; it must be [4]"),
        (FlagsAsNumbers, pendulum, "terminated is torch.float32; it must be torch.bool"),
        (GroupMissing, pendulum, "the observation lacks the groups ['vel']"),
        (GroupUnannounced, pendulum, "the observation of reset has groups ['secret']"),
        (TwinComponents, pendulum, "component names of group 'pos' are not unique"),
        (TooFewComponents, pendulum, "group 'pos' has 2 numbers but components for 1"),
        (InfiniteObservation, pendulum, "group 'vel' of the observation of instance 1 is not finite"),
        (NanReward, pendulum, "the reward of instance 2 is not finite"),
        (BothFlags, pendulum, "terminated and truncated are both true"),
        (TimeoutIsFall, pendulum, "time-outs count as falls: every episode of 12 steps"),
        (LimitForgotten, pendulum, "an episode is longer than max_episode_steps = 7"),
        (Noisy, pendulum, "not deterministic: with the same seed and actions reward of instance 0 in step 0 differs"),
        (BatchDependent, pendulum, "results depend on the batch size"),
        (StateWithoutEpisode, pendulum, "the state is not restorable"),
        (
            StateOfObjects,
            pendulum,
            "state_dict holds more than tensors, numbers, strings and lists: state/generator is a",
        ),
        (LiveState, pendulum, "state_dict changed while the environment went on"),
        (ScenarioForgets, pendulum, "load_scenario(scenario()) does not start the same episode"),
        (ScenarioKeepsAge, pendulum, "load_scenario must start episodes at elapsed step 0"),
        (ReusedBuffer, pendulum, "reward changed during the next call"),
        (ChangesAction, pendulum, "step changed the action in place"),
        (AcceptsNan, pendulum, "step accepted an action with NaN"),
        (AcceptsAnyShape, pendulum, "step accepted an action with one row too many"),
        (RefusesOutliers, pendulum, "raised ValueError: outside the box"),
        (MetricMissing, cartpole, "metrics are ['angle']; the spec promises ['angle', 'angle_episode']"),
        (MetricScalar, cartpole, "metric 'angle' has shape []; it must be [4]"),
        (IgnoresSeed, pendulum, "reset(seed) ignores the seed"),
        (SeedsBySum, pendulum, "a list of equal seeds must start every instance"),
        (UnseededStart, pendulum, "a new environment with seed 0 and reset(0) differ"),
        (AgeAfterEnd, pendulum, "elapsed is [12, 12, 12, 12] after step 11; it must be [0, 0, 0, 0]"),
        (AgesIgnored, pendulum, "after set_elapsed([11, 0, 1, 2]) elapsed is [0, 0, 0, 0]"),
        (ValidUnannounced, pendulum, "valid is wrong: the spec has no reset rows"),
        (ResetRowsUnmarked, pendulum, "valid is None although the spec says reset_rows"),
        (Explodes, pendulum, "raised RuntimeError: no state today"),
    ]
}
