# ruff: noqa: RUF012  class attributes as people write them
"""Mistakes that people make in environments of their own, one class each, for `behaviour/test_user_mistakes.py`."""

import gymnasium
import mujoco
import numpy as np
import torch

from gaitway.envs.batch_task import BatchTask
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup
from gaitway.envs.vec_env import Step, VecEnv

XML = """<mujoco><worldbody><body><joint name="x" type="slide" axis="1 0 0"/><geom size="0.1" mass="1"/></body>
</worldbody><actuator><motor joint="x" ctrlrange="-1 1" ctrllimited="true"/></actuator></mujoco>"""
PARTS = (Component("x"), Component("v"))


class Cart(BatchTask):
    """A cart on a rail without a mistake."""

    id, max_episode_steps, frame_skip = "own/cart", 20, 2
    groups = (ObservationGroup("policy", PARTS, (2,)),)
    metrics = ("speed",)
    layout_shapes = {"goal": ()}

    @property
    def model(self):
        if "_model" not in self.__dict__:
            self._model = mujoco.MjModel.from_xml_string(XML)
        return self._model

    def draw(self, generator):
        return {"qpos": np.zeros(1), "qvel": generator.normal(size=1), "goal": 1.0}

    def outcome(self, action, reward, terminated, metrics):
        metrics["speed"][:] = self.qvel[:, 0]
        reward[:] = -np.abs(self.qpos[:, 0] - self.layout["goal"])

    def observe(self, rows, out):
        out["policy"][:, 0] = self.qpos[rows, 0]
        out["policy"][:, 1] = self.qvel[rows, 0]


class AssignsWholeArrays(Cart):
    """Not a mistake: what is assigned is written into the array."""

    def outcome(self, action, reward, terminated, metrics):
        metrics["speed"] = self.qvel[:, 0]
        reward[:] = 1.0

    def observe(self, rows, out):
        out["policy"] = np.concatenate([self.qpos[rows], self.qvel[rows]], 1)


class NoDraw(Cart):
    draw = BatchTask.draw


class NoOutcome(Cart):
    outcome = BatchTask.outcome


class NoObserve(Cart):
    observe = BatchTask.observe


class NoGroups(BatchTask):
    id, max_episode_steps, frame_skip = "own/none", 20, 2
    draw, outcome, observe, model = Cart.draw, Cart.outcome, Cart.observe, Cart.model


class NoModel(BatchTask):
    id, max_episode_steps, groups = "own/none", 20, Cart.groups
    draw, outcome, observe = Cart.draw, Cart.outcome, Cart.observe


class GroupsIsOne(Cart):
    groups = Cart.groups[0]


class MetricsIsText(Cart):
    metrics = "speed"


class MetricTwice(Cart):
    metrics = ("speed", "speed")


class FlagNoMetric(Cart):
    flags = ("fell_over",)


class NegativeLimit(Cart):
    max_episode_steps = -1


class LimitIsText(Cart):
    max_episode_steps = "20"


class ZeroFrameSkip(Cart):
    frame_skip = 0


class UnknownField(Cart):
    fields = ("xpso",)


class LayoutIsList(Cart):
    layout_shapes = ["goal"]


class LayoutShapeIsNumber(Cart):
    layout_shapes = {"goal": 2}


class AttachForgetsSuper(Cart):
    def attach(self, batch):
        self.batch = batch


class ModelRaises(Cart):
    @property
    def model(self):
        return mujoco.MjModel.from_xml_path("nowhere.xml")


class DrawReturnsNothing(Cart):
    def draw(self, generator):
        super().draw(generator)


class DrawReturnsTuple(Cart):
    def draw(self, generator):
        return np.zeros(1), np.zeros(1)


class DrawForgetsGoal(Cart):
    def draw(self, generator):
        return {"qpos": np.zeros(1), "qvel": np.zeros(1)}


class DrawForgetsQpos(Cart):
    def draw(self, generator):
        return {"qvel": np.zeros(1), "goal": 1.0}


class DrawGivesMore(Cart):
    def draw(self, generator):
        return super().draw(generator) | {"load": 1.0}


class DrawWrongShape(Cart):
    def draw(self, generator):
        return super().draw(generator) | {"qpos": np.zeros(3)}


class DrawNaN(Cart):
    def draw(self, generator):
        return super().draw(generator) | {"qvel": np.array([np.nan])}


class DrawText(Cart):
    def draw(self, generator):
        return super().draw(generator) | {"goal": "far"}


class DrawRaises(Cart):
    def draw(self, generator):
        return {"qpos": self.gait["phase"]}


class DrawKeyError(Cart):
    def draw(self, generator):
        return {"qpos": self.layout["gait"]}


class DrawExits(Cart):
    def draw(self, generator):
        raise SystemExit(3)


class OutcomeReturns(Cart):
    def outcome(self, action, reward, terminated, metrics):
        metrics["speed"][:] = 0.0
        return self.qpos[:, 0]


class OutcomeKeyError(Cart):
    def outcome(self, action, reward, terminated, metrics):
        metrics["sped"][:] = 0.0


class OutcomeNewMetric(Cart):
    def outcome(self, action, reward, terminated, metrics):
        metrics["height"] = self.qpos[:, 0]


class OutcomeShape(Cart):
    def outcome(self, action, reward, terminated, metrics):
        reward[:] = np.zeros(7)


class OutcomeDividesByZero(Cart):
    def outcome(self, action, reward, terminated, metrics):
        reward[:] = 1 / 0


class OutcomeDeep(Cart):
    def outcome(self, action, reward, terminated, metrics):
        reward[:] = self.bonus()

    def bonus(self):
        return [1, 2, 3][7]


class OutcomeArguments(Cart):
    def outcome(self, action, reward):
        reward[:] = 0.0


class ObserveReturns(Cart):
    def observe(self, rows, out):
        return {"policy": np.zeros((2, 2))}


class ObserveUnknownGroup(Cart):
    def observe(self, rows, out):
        out["plicy"][:] = 0.0


class ObserveShape(Cart):
    def observe(self, rows, out):
        out["policy"][:] = np.zeros((3, 9))


class StartRaises(Cart):
    def start(self, rows):
        raise RuntimeError("no start today")


class RewardNeverWritten(Cart):
    def outcome(self, action, reward, terminated, metrics):
        metrics["speed"][:] = self.qvel[:, 0]
        reward = -np.abs(self.qpos[:, 0])  # noqa: F841  a new name, not the array


class MetricNeverWritten(Cart):
    def outcome(self, action, reward, terminated, metrics):
        reward[:] = 0.0


class ComponentNeverWritten(Cart):
    def observe(self, rows, out):
        out["policy"][:, 0] = self.qpos[rows, 0]


class ObservationNeverWritten(Cart):
    def observe(self, rows, out):
        policy = self.qpos[rows]  # noqa: F841


class CartEnv(MujocoBatchEnv):
    task_class = Cart

    def __init__(self, num_envs=1, seed=0, **common):
        super().__init__(self.task_class(), num_envs, seed, **common)


class BrokenCartEnv(CartEnv):
    task_class = OutcomeKeyError


class ExitingEnv(CartEnv):
    def __init__(self, num_envs=1, seed=0, **common):
        raise SystemExit("bye")


class FewArguments(MujocoBatchEnv):
    def __init__(self, num_envs, seed):
        super().__init__(Cart(), num_envs, seed)


class WrongNumber(CartEnv):
    def __init__(self, num_envs=1, seed=0, **common):
        super().__init__(3, seed, **common)


def not_an_env(**common):
    return {"num_envs": common["num_envs"]}


class NoSpec(VecEnv):
    def __init__(self, num_envs=1, **common):
        self.num_envs, self.device = num_envs, torch.device("cpu")


NUMBER = 3
SPEC = EnvSpec(
    "own/plain", (ObservationGroup("policy", PARTS, (2,)),), ActionSpec("continuous", ("a",), (-1.0,), (1.0,)), 0.0, 5
)


class Plain(VecEnv):
    """A VecEnv on tensors; leaves say what `step` returns."""

    def __init__(self, num_envs=1, device="cpu", **common):
        self.spec, self.num_envs, self.device = SPEC, num_envs, torch.device(device)

    def reset(self, seed=None):
        return {"policy": torch.zeros(self.num_envs, 2)}

    def step(self, action):
        none = torch.zeros(self.num_envs, dtype=torch.bool)
        obs = self.reset()
        return Step(obs, torch.zeros(self.num_envs), none, none, obs, {})


class StepReturnsTuple(Plain):
    def step(self, action):
        return self.reset(), 0.0, False, False, {}


class RewardHasColumn(Plain):
    def step(self, action):
        step = super().step(action)
        step.reward = torch.zeros(self.num_envs, 1)
        return step


class ResetReturnsTensor(Plain):
    def reset(self, seed=None):
        return torch.zeros(self.num_envs, 2)


class StepRaises(Plain):
    def step(self, action):
        return self.nothing


class Rail(gymnasium.Env):
    """A gymnasium environment without a mistake, and without pictures: its constructor takes nothing."""

    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (2,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.count += 1
        return np.zeros(2, np.float32), 1.0, self.count >= 5, False, {"is_success": self.count == 2}


class AnsiRail(Rail):
    metadata = {"render_modes": ["ansi"]}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def render(self):
        return "a cart"


class OldStep(Rail):
    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, {}


class OldReset(Rail):
    def reset(self):
        return np.zeros(2, np.float32)


class ResetWithoutInfo(Rail):
    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32)


class NoSpaces(Rail):
    observation_space = None


class GymStepRaises(Rail):
    def step(self, action):
        return self.undefined


class RewardIsText(Rail):
    def step(self, action):
        return np.zeros(2, np.float32), "good", False, False, {}


class StepReturnsNothing(Rail):
    def step(self, action):
        super().step(action)


class WrongObservation(Rail):
    def step(self, action):
        return np.zeros(5, np.float32), 1.0, False, False, {}


class GymExits(Rail):
    def step(self, action):
        exit(1)


class GymConstructorRaises(Rail):
    def __init__(self):
        self.model = open("no_such_file.xml")  # noqa: SIM115


for _cls in (
    Rail,
    AnsiRail,
    OldStep,
    OldReset,
    ResetWithoutInfo,
    NoSpaces,
    GymStepRaises,
    RewardIsText,
    StepReturnsNothing,
    WrongObservation,
    GymExits,
    GymConstructorRaises,
):
    if f"Broken{_cls.__name__}-v0" not in gymnasium.registry:
        gymnasium.register(f"Broken{_cls.__name__}-v0", _cls, max_episode_steps=10)
