"""Observations and actions of every kind of space as variables of a frame stream."""

import functools

import numpy as np
import pytest
import torch
from frame_cases import Episodes, Shows, assert_same, collect
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from gaitway.core.workspace import Workspace
from gaitway.envs.gym.env import GymnasiumEnv
from gaitway.frames.agent import FrameAgent


class TestObservations:
    def test_bug_47_the_space_decides_the_type(self):
        cases = [
            (spaces.Box(-1, 1, (2,), np.float16), np.array([0.5, -0.25], np.float16), torch.float32, (2,)),
            (spaces.Box(-1, 1, (), np.float64), 0.5, torch.float32, ()),
            (spaces.Box(0, 255, (2, 2, 3), np.uint8), np.full((2, 2, 3), 7, np.uint8), torch.uint8, (2, 2, 3)),
            (spaces.Box(-5, 5, (2,), np.int32), np.array([-3, 4], np.int32), torch.int64, (2,)),
            (spaces.Box(0, 1, (2,), bool), np.array([True, False]), torch.bool, (2,)),
            (spaces.Discrete(5, start=3), np.int64(4), torch.int64, ()),
            (spaces.MultiDiscrete([3, 4]), np.array([2, 3]), torch.int64, (2,)),
            (spaces.MultiBinary(3), np.array([1, 0, 1], np.int8), torch.int64, (3,)),
        ]
        for space, value, kind, shape in cases:
            for source in (
                [functools.partial(Shows, space, value)] * 2,
                SyncVectorEnv([functools.partial(Shows, space, value)] * 2),
            ):
                ws = collect(FrameAgent(source), 3)
                seen = ws["env/obs/policy"]
                assert seen.dtype is kind, space
                assert seen.shape == (3, 2, *shape), space
                assert np.array_equal(seen[2, 1].numpy(), np.asarray(value)), space

    def test_dictionaries_and_tuples_nest_by_name(self):
        inner = spaces.Tuple((spaces.Discrete(4), spaces.Box(0, 9, (2,), np.float64)))
        space = spaces.Dict({"camera": spaces.Box(0, 255, (1, 1, 3), np.uint8), "body": inner})
        value = {"camera": np.full((1, 1, 3), 9, np.uint8), "body": (2, np.array([1.5, 2.5]))}
        make = functools.partial(Shows, space, value)
        single = collect(FrameAgent(make, 2, mode="compact"), 3)
        vector = collect(FrameAgent(SyncVectorEnv([make] * 2, autoreset_mode=AutoresetMode.SAME_STEP)), 3)
        assert_same(single, vector)
        assert single["env/obs/body/0"].tolist() == [[2, 2]] * 3
        assert single["env/obs/body/1"][0, 0].tolist() == [1.5, 2.5]
        assert single["env/final_obs/camera"].shape == (3, 2, 1, 1, 3)

    def test_one_hot_gives_the_groups_of_the_adapter(self):
        make = functools.partial(Shows, spaces.Discrete(4, start=1), 2)
        world = FrameAgent(make, 2, one_hot=True)
        assert collect(world, 2)["env/obs/policy"].tolist() == [[[0, 1, 0, 0]] * 2] * 2
        assert world.spec.groups == GymnasiumEnv(make, 2).spec.groups

    def test_rows_do_not_share_memory_with_the_environment(self):
        class Reuses(Shows):
            def step(self, action):
                self.value += 1  # in place
                return super().step(action)

        world = FrameAgent([Reuses(spaces.Box(-9, 9, (1,), np.float32), np.zeros(1, np.float32))])
        assert collect(world, 4)["env/obs/policy"].flatten().tolist() == [0, 1, 2, 3]


class TestActions:
    def taken(self, space, action, **options):
        """What an environment of this action space gets; `action` is a tensor or a mapping of them, two rows each."""
        envs = [Shows(spaces.Discrete(2), 0, space) for _ in range(2)]
        world = FrameAgent(envs, **options)
        ws = Workspace()
        world(ws, 0)
        for name, value in action.items() if isinstance(action, dict) else [("action", action)]:
            ws.put(name, 0, value)
        world(ws, 1)
        return [env.taken for env in envs]

    def test_bug_48_the_space_decides_what_the_environment_gets(self):
        for shape in ((2,), (2, 1)):
            got = self.taken(spaces.Discrete(3, start=3), torch.tensor([3, 5]).reshape(shape))
            assert got == [3, 5]
            assert all(type(value) is int for value in got)
        got = self.taken(spaces.Box(-1, 1, (2,), np.float32), torch.tensor([[0.5, 2.0], [0.1, -3.0]]))
        assert got[0].dtype == np.float32
        assert got[0].tolist() == [0.5, 2.0]
        got = self.taken(spaces.Box(-1, 1, (), np.float64), torch.tensor([0.5, -0.5]))
        assert isinstance(got[1], np.ndarray)
        assert got[1].shape == ()
        assert got[1] == -0.5
        assert got[1].dtype == np.float64
        got = self.taken(spaces.Box(0, 9, (1,), np.int64), torch.tensor([[4], [7]]))
        assert got[1].tolist() == [7]
        assert got[1].dtype == np.int64
        got = self.taken(spaces.MultiDiscrete([2, 3]), torch.tensor([[1, 2], [0, 0]]))
        assert got[0].tolist() == [1, 2]
        assert got[0].dtype == np.int64
        got = self.taken(spaces.MultiBinary(2), torch.tensor([[1, 0], [0, 1]]))
        assert got[1].tolist() == [0, 1]
        assert got[1].dtype == np.int8

    def test_clipping_leaves_the_workspace_alone(self):
        box = spaces.Box(np.array([-1.0, -2.0], np.float32), np.array([1.0, 2.0], np.float32))
        action = torch.tensor([[0.5, 3.0], [-4.0, -3.0]])
        got = self.taken(box, action, clip_actions=True)
        assert [value.tolist() for value in got] == [[0.5, 2.0], [-1.0, -2.0]]
        assert action.tolist() == [[0.5, 3.0], [-4.0, -3.0]]

    def test_dictionaries_take_the_keys_of_the_space_only(self):
        space = spaces.Dict(
            {"arm": spaces.Box(-1, 1, (2,), np.float32), "rest": spaces.Tuple((spaces.Discrete(3), spaces.Discrete(2)))}
        )
        action = {
            "action/arm": torch.tensor([[0.1, 0.2], [0.3, 0.4]]),
            "action/rest/0": torch.tensor([2, 1]),
            "action/rest/1": torch.tensor([0, 1]),
            "action/log_prob": torch.zeros(2),
        }
        got = self.taken(space, action)
        assert list(got[0]) == ["arm", "rest"]
        assert got[0]["rest"] == (2, 0)
        assert got[1]["rest"] == (1, 1)
        assert got[1]["arm"].tolist() == pytest.approx([0.3, 0.4])
        with pytest.raises(KeyError, match="action/arm"):
            self.taken(space, {name: value for name, value in action.items() if name != "action/arm"})
        with pytest.raises(ValueError, match="3 rows for 2 environments"):
            self.taken(space, action | {"action/rest/0": torch.zeros(3, dtype=torch.int64)})
        make = functools.partial(Shows, spaces.Discrete(2), 0, space)
        vector = FrameAgent(SyncVectorEnv([make] * 2))
        ws = Workspace()
        vector(ws, 0)
        for name, value in action.items():
            ws.put(name, 0, value)
        vector(ws, 1)
        assert vector.source.vector.envs[1].taken["rest"] == (1, 1)
        with pytest.raises(TypeError, match="action/<key>"):
            _ = vector.spec

    def test_mistakes_are_named(self):
        box = spaces.Box(-1, 1, (2,), np.float32)
        for space, action, message in (
            (box, torch.zeros(3, 2), "3 rows for 2 environments"),
            (box, torch.zeros(2, 3), r"takes \[2, 2\]"),
            (box, torch.zeros(2, 2, dtype=torch.int64), "floating point"),
            (box, torch.tensor([[0.0, 0.0], [0.0, float("nan")]]), "environment 1"),
            (spaces.Discrete(2), torch.zeros(2), "integers"),
            (spaces.Discrete(2), torch.tensor([0, 2]), "instance 1"),
        ):
            with pytest.raises(ValueError, match=message):
                self.taken(space, action)
        world = FrameAgent(Episodes, 1)
        world(ws := Workspace(), 0)
        with pytest.raises(KeyError, match="'action' is not in the workspace"):
            world(ws, 1)

    def test_another_variable_may_hold_the_action(self):
        world = FrameAgent(Episodes, 1, mode="framed", action="expert")
        world(ws := Workspace(), 0)
        ws.put("expert", 0, torch.zeros(1, dtype=torch.int64))
        world(ws, 1)
        assert ws["env/timestep"].flatten().tolist() == [0, 1]
