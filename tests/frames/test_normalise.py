"""Observations normalised row by row: what counts, when, and who may change the statistics."""

import functools

import numpy as np
import pytest
import torch
from frame_cases import Episodes, Shows, Walk, collect, noise
from gymnasium import spaces
from torch.testing import assert_close

from gaitway.core.workspace import Workspace
from gaitway.frames.agent import FrameAgent
from gaitway.nn.normalise import RunningNorm


class TestNormalised:
    def test_by_hand_one_update_per_row_before_it_is_shown(self):
        # observations 0.0 and 0.0, then 0.1 and 0.1, then 0.2 and 0.2 of two columns
        world = FrameAgent(Episodes, 2, mode="framed", normalise=True, raw=True)
        ws = collect(world, 3)
        seen = np.array([[0.0, 0.0], [0.1, 0.1], [0.2, 0.2]])
        for t in range(3):
            past = seen[: t + 1].reshape(-1)
            expected = (seen[t] - past.mean()) / (past.std() + 1e-2)
            assert_close(ws["env/obs/policy"][t, :, 0].double(), torch.tensor(expected), atol=1e-6, rtol=0)
        assert_close(ws["env/raw_obs/policy"][:, :, 0], torch.tensor(seen, dtype=torch.float32))
        assert int(world.normaliser.norms["policy"].count) == 6

    def test_bug_51_only_new_observations_count_and_frozen_rows_repeat(self):
        world = FrameAgent([Episodes, functools.partial(Episodes, lengths=(4,))], mode="frozen", normalise=True)
        ws = collect(world, 7)
        # column 0 shows 3 observations, column 1 shows 5
        norm = world.normaliser.norms["policy"]
        values = np.array([0.0, 0.1, 0.2, 0.0, 0.1, 0.2, 0.3, 0.4])
        assert int(norm.count) == 8  # at once, not five calls later
        assert float(norm.mean) == pytest.approx(values.mean(), abs=1e-7)
        assert float(norm.var) == pytest.approx(values.var(), abs=1e-7)  # of the population
        frozen = ws["env/obs/policy"][:, 0]
        assert torch.equal(frozen[2:], frozen[2:3].expand(5, 1))  # normalised, and with the moments of its own row
        copied = world.clone()
        assert int(copied.normaliser.norms["policy"].count) == 8
        assert isinstance(ws["env/obs/policy"], torch.Tensor)

    def test_a_final_observation_counts_and_is_normalised_too(self):
        world = FrameAgent(Episodes, 1, mode="compact", normalise=True)
        ws = collect(world, 3)  # obs 0.0 0.1 1.0, final 0.0 0.1 0.2
        values = np.array([0.0, 0.1, 1.0, 0.2])
        expected = (0.2 - values.mean()) / (values.std() + 1e-2)
        assert float(ws["env/final_obs/policy"][2, 0, 0]) == pytest.approx(expected, abs=1e-6)
        assert int(world.normaliser.norms["policy"].count) == 4

    def test_evaluation_reads_the_statistics_and_leaves_them(self):
        train = FrameAgent(Walk, 2, mode="framed", normalise=True)
        collect(train, 10, noise(10, 2))
        norm = train.normaliser.norms["policy"]
        test = FrameAgent(Walk, 2, mode="frozen", normalise=train.normaliser.norms, update_statistics=False)
        before = norm.mean.clone(), norm.var.clone(), int(norm.count)
        test.eval()
        ws = collect(test, 5, noise(5, 2))
        raw = collect(FrameAgent(Walk, 2, mode="frozen"), 5, noise(5, 2))
        assert_close(ws["env/obs/policy"], norm(raw["env/obs/policy"]))
        assert torch.equal(norm.mean, before[0])
        assert torch.equal(norm.var, before[1])
        assert int(norm.count) == before[2]
        assert norm.training  # eval() of the reader does not reach the owner
        assert test.state_dict() == {}
        train.eval()
        collect(train, 3, noise(3, 2))
        assert int(norm.count) == before[2]

    def test_evaluation_without_statistics_is_refused_at_once(self):
        world = FrameAgent(Walk, 2, mode="frozen", normalise=True)
        world.eval()
        with pytest.raises(RuntimeError, match="no statistics of \\['policy'\\]"):
            world(Workspace(), 0)
        trained = FrameAgent(Walk, 2, mode="framed", normalise=True)
        collect(trained, 5, noise(5, 2))
        world.load_state_dict(trained.state_dict())
        world(Workspace(), 0)

    def test_only_floats(self):
        space = spaces.Dict({"x": spaces.Box(-1, 1, (2,), np.float32), "n": spaces.Discrete(3)})
        value = {"x": np.ones(2, np.float32), "n": 2}
        world = FrameAgent(functools.partial(Shows, space, value), normalise=True)
        ws = collect(world, 2)
        assert ws["env/obs/n"].tolist() == [[2], [2]]
        assert (ws["env/obs/x"] == 0).all()
        with pytest.raises(ValueError, match="'n' cannot be normalised"):
            FrameAgent(functools.partial(Shows, space, value), normalise={"n": RunningNorm(())})
        with pytest.raises(ValueError, match="raw already"):
            FrameAgent(functools.partial(Shows, space, value), raw=True)
