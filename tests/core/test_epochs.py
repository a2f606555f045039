"""Epochs: windows put side by side are one long run, and steps are counted once."""

import pytest
import torch
from torch.testing import assert_close

from gaitway.core.agent import Agent, Agents, TemporalAgent
from gaitway.core.checks import check_transitions
from gaitway.core.epochs import frame_episodes, frame_windows, step_episodes, step_windows
from gaitway.core.workspace import Variable, Workspace

LENGTHS = torch.tensor([2, 3, 5])
"""Episodes of column b take this many steps."""


class World:
    """Observation 100 * episode + 10 * step + action sum so far; the reward is the action plus the step."""

    def __init__(self):
        self.restart()

    def restart(self):
        self.episode, self.time, self.total = (torch.zeros(3) for _ in range(3))

    @property
    def obs(self):
        return 100 * self.episode + 10 * self.time + self.total

    def step(self, action):
        self.time, self.total = self.time + 1, self.total + action
        return self.obs, action + self.time, self.time >= LENGTHS

    def reset(self, done):
        self.episode = self.episode + done
        self.time, self.total = self.time * ~done, self.total * ~done


class Observe(Agent):
    writes = ("env/obs/policy",)

    def __init__(self, world):
        super().__init__()
        self.world = [world]

    def step(self, ws, t, *, reset=False):
        if reset:
            self.world[0].restart()
        ws.put("env/obs/policy", t, self.world[0].obs)


class Act(Agent):
    reads, writes = ("env/obs/policy",), ("action",)

    def step(self, ws, t, *, scale=1.0):
        ws.put("action", t, scale * (ws.at("env/obs/policy", t) % 7))


class Remember(Agent):
    """memory[t]: rows since the episode began, stored as it was before row t."""

    writes = ("memory",)

    def step(self, ws, t):
        if "memory" not in ws:
            ws.put("memory", t, torch.zeros(3))
        ws.put("memory", t + 1, ws.at("memory", t) + 1)

    def reset(self, ws, t, mask):
        if "memory" in ws:
            ws.put("memory", t, ws.at("memory", t) * ~mask)


class Advance(Agent):
    reads = ("action",)

    def __init__(self, world, reset_rows=False):
        super().__init__()
        self.world, self.reset_rows = [world], reset_rows
        self.resetting = torch.zeros(3, dtype=torch.bool)

    def step(self, ws, t):
        world, action = self.world[0], ws.at("action", t)
        if self.reset_rows:
            valid, before = ~self.resetting, (world.time, world.total)
            obs, reward, done = world.step(action)
            world.time, world.total = (
                torch.where(valid, n, o) for n, o in zip((world.time, world.total), before, strict=True)
            )
            world.reset(self.resetting)
            self.resetting = done = done & valid
            ws.put("env/valid", t, valid)
            reward = reward * valid
        else:
            obs, reward, done = world.step(action)
            world.reset(done)
            ws.put("env/final_obs/policy", t, obs)
        ws.put("env/reward", t, reward)
        ws.put("env/terminated", t, done)
        ws.put("env/truncated", t, torch.zeros_like(done))
        ws.put("env/obs/policy", t + 1, world.obs)


class Frames(Agent):
    """The same world as a framed stream, the reward on arrival or on departure; frozen without `restarts`."""

    def __init__(self, departure=False, restarts=True):
        super().__init__()
        self.world, self.departure, self.restarts = World(), departure, restarts

    def step(self, ws, t):
        world, no = self.world, torch.zeros(3, dtype=torch.bool)
        if t == 0:
            world.restart()
            ended, reward, done = no, torch.zeros(3), no
        else:
            ended = ws.at("env/terminated", t - 1)
            before = (world.time, world.total)
            _, reward, done = world.step(ws.at("action", t - 1))
            world.time, world.total = (
                torch.where(ended, o, n) for n, o in zip((world.time, world.total), before, strict=True)
            )
            if self.restarts:
                world.reset(ended)
                done = done & ~ended
            else:
                done = done | ended
            reward = reward * ~ended
        if self.departure and t > 0:
            ws.put("env/reward", t - 1, reward)
        ws.put("env/reward", t, torch.zeros(3) if self.departure else reward)
        ws.put("env/obs/policy", t, world.obs)
        ws.put("env/terminated", t, done)
        ws.put("env/truncated", t, no)


def step_cast(**options):
    world = World()
    return Agents(Observe(world), Act(), Remember(), Advance(world, **options))


def one_run(n_steps, **options):
    ws = Workspace(extra_row=["memory"])
    TemporalAgent(step_cast(**options))(ws, n_steps=n_steps)
    return ws


class TestStepWindows:
    def test_windows_side_by_side_are_one_long_run(self):
        whole = one_run(12)
        windows = list(step_windows(step_cast(), 4, epochs=3))
        assert [window.number for window in windows] == [0, 1, 2]
        for name in whole:
            rows = [window.workspace[name][:4] for window in windows]
            last = windows[-1].workspace[name][4:]  # the row after the last step, where there is one
            assert_close(torch.cat((*rows, last)), whole[name])
        for window in windows:
            assert window.workspace.T == 4  # memory counts as a variable with an extra row
            assert check_transitions(window.workspace) == window.steps == 12
        assert [window.total_env_steps for window in windows] == [12, 24, 36]

    def test_one_dense_workspace_serves_all_windows(self):
        whole = one_run(9)
        names = {name: Variable(4 if whole.rows(name) == 10 else 3, 3, (), whole[name].dtype) for name in whole}
        dense, seen = Workspace.dense(names, extra_row=["memory"]), []
        for window in step_windows(step_cast(), 3, epochs=3, workspace=dense):
            assert window.workspace is dense
            seen.append({name: dense[name][:3].clone() for name in dense})
        for name in whole:
            assert_close(torch.cat([rows[name] for rows in seen]), whole[name][:9])
        with pytest.raises(ValueError, match="3 rows where a window has 4"):
            step_windows(step_cast(), 4, workspace=dense)

    def test_rows_that_only_reset_are_not_counted(self):
        windows = list(step_windows(step_cast(reset_rows=True), 5, epochs=2))
        # column 0: 2 steps and a reset row, again and again; rows 0..4 hold 4 steps, rows 5..9 3; columns 1 and 2 alike
        whole = one_run(10, reset_rows=True)
        assert sum(window.steps for window in windows) == int(whole["env/valid"].sum()) == windows[-1].total_env_steps
        assert [window.steps for window in windows] == [int(whole["env/valid"][t : t + 5].sum()) for t in (0, 5)]
        assert sum(window.steps for window in windows) < 30

    def test_it_stops_at_the_steps_asked_for_and_passes_options(self):
        windows = list(step_windows(TemporalAgent(step_cast()), 4, total_steps=13, scale=0.0))
        assert [window.env_steps for window in windows] == [12, 12]
        assert not windows[0].workspace["action"].any()
        assert list(step_windows(step_cast(), 4, total_steps=0)) == []
        endless = step_windows(step_cast(), 1)
        assert [next(endless).number for _ in range(3)] == [0, 1, 2]
        with pytest.raises(ValueError, match="n_steps is 0"):
            step_windows(step_cast(), 0)

    def test_no_graph_crosses_the_seam(self):
        class Learnt(Agent):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.ones(3))

            def step(self, ws, t):
                if "state" not in ws:
                    ws.put("state", t, torch.ones(3))
                ws.put("state", t + 1, ws.at("state", t) * self.weight)

        for window in step_windows(Learnt(), 2, epochs=2):
            window.workspace["state"][2].sum().backward()  # a graph of the first window would be gone in the second
            assert not window.workspace.at("state", 0).requires_grad


class TestStepEpisodes:
    def test_first_episodes_from_a_reset_with_their_mask(self):
        first, second = step_episodes(step_cast(), epochs=2)
        mask = torch.arange(5)[:, None] < LENGTHS
        for epoch in (first, second):
            assert epoch.workspace["episode/mask"].tolist() == mask.tolist()
            assert (epoch.steps, epoch.env_steps) == (2 + 3 + 5, 15)  # columns that ended early ran on
            assert_close(epoch.workspace["env/obs/policy"][0], torch.zeros(3))
        assert second.total_env_steps == 30

    def test_a_column_that_does_not_end_is_named(self):
        with pytest.raises(RuntimeError, match="column 2 has no end after 3 rows"):
            next(step_episodes(step_cast(), max_rows=3))


def frame_cast(**options):
    return Agents(Frames(**options), Act(), Remember())


class TestFrameWindows:
    @pytest.mark.parametrize("departure", [False, True])
    def test_no_pair_is_lost_repeated_or_changed_at_the_seam(self, departure):
        whole = Workspace(extra_row=["memory"])
        TemporalAgent(frame_cast(departure=departure))(whole, n_steps=13)
        windows = list(frame_windows(frame_cast(departure=departure), 4, epochs=3))
        for name in whole:
            rows = [window.workspace[name][:4] for window in windows]
            assert_close(torch.cat((*rows, windows[-1].workspace[name][4:])), whole[name], msg=name)
        done = whole["env/done"]
        assert [window.steps for window in windows] == [int((~done[t : t + 4]).sum()) for t in (0, 4, 8)]
        assert windows[-1].total_env_steps == int((~done[:12]).sum()) < 36

    def test_every_window_has_the_same_rows_and_counts_its_pairs(self):
        for window in frame_windows(Agents(Frames(), Act()), 3, epochs=4):
            assert window.workspace.T == 4
            assert window.steps == window.workspace.transitions(pairs=True).B
            assert check_transitions(window.workspace) == window.steps

    def test_a_frozen_stream_does_not_run_for_ever(self):
        windows = frame_windows(Agents(Frames(restarts=False), Act()), 5, total_steps=1000)
        assert [next(windows).steps for _ in range(2)] == [10, 0]
        with pytest.raises(RuntimeError, match="frozen; use frame_episodes"):
            next(windows)
        assert sum(w.steps for w in frame_windows(Agents(Frames(), Act()), 1, epochs=20)) > 20  # resets alone are fine

    def test_a_stream_without_final_rows_counts_every_row(self):
        class Compact(Frames):
            def step(self, ws, t):
                super().step(ws, t)
                ws.put("env/final_obs/policy", t, ws.at("env/obs/policy", t))

        assert [window.steps for window in frame_windows(Agents(Compact(), Act()), 4, epochs=2)] == [12, 12]


class TestFrameEpisodes:
    @pytest.mark.parametrize(("restarts", "env_steps"), [(False, 2 + 3 + 5), (True, 4 + 4 + 5)])
    def test_frozen_and_framed_streams_give_the_same_first_episodes(self, restarts, env_steps):
        # rows 0..5; framed column 0 is done at rows 2 and 5, so it takes 2 + 2 steps; column 1 at row 3, 3 + 1 steps
        for epoch in frame_episodes(Agents(Frames(restarts=restarts), Act()), epochs=2):
            ws = epoch.workspace
            assert ws.T == 6
            assert (epoch.steps, epoch.env_steps) == (10, env_steps)
            pairs = ws.transitions(pairs=True, filter_name="episode/done")
            assert epoch.steps == pairs.B
            assert_close(pairs.at("env/obs/policy", 0), ws["env/obs/policy"][:-1][~ws["episode/done"][:-1]])
            assert ws["episode/mask"].sum(0).tolist() == [3, 4, 6]  # an episode of n steps has n + 1 frames
        with pytest.raises(RuntimeError, match="column 2"):
            next(frame_episodes(Agents(Frames(), Act()), max_rows=4))
