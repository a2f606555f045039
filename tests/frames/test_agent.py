"""Environments as one agent that writes frames: three stream modes, two reward conventions, epochs, state."""

import functools
import warnings

import gymnasium
import pytest
import torch
from frame_cases import RESETS, Episodes, Plan, Walk, assert_same, collect, noise
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch.testing import assert_close

from gaitway.core.agent import Agents, TemporalAgent
from gaitway.core.files import load_state, save_state
from gaitway.core.workspace import Variable, Workspace
from gaitway.envs.gym.env import GymnasiumEnv
from gaitway.envs.registry import make_env
from gaitway.frames.agent import FrameAgent
from gaitway.frames.gymnasium_sources import make_single
from gaitway.frames.pairs import copy_last, pair_fields

EXAMPLE = {
    "frozen": {
        "obs": [0.0, 0.1, 0.2, 0.2, 0.2, 0.2],
        "done": [0, 0, 1, 1, 1, 1],
        "reward": [0, 1, 5, 0, 0, 0],
        "cumulated_reward": [0, 1, 6, 6, 6, 6],
        "timestep": [0, 1, 2, 2, 2, 2],
    },
    "framed": {
        "obs": [0.0, 0.1, 0.2, 1.0, 1.1, 1.2],
        "done": [0, 0, 1, 0, 0, 1],
        "reward": [0, 1, 5, 0, 1, 5],
        "cumulated_reward": [0, 1, 6, 0, 1, 6],
        "timestep": [0, 1, 2, 0, 1, 2],
    },
    "compact": {
        "obs": [0.0, 0.1, 1.0, 1.1, 2.0, 2.1],
        "done": [0, 0, 1, 0, 1, 0],
        "reward": [0, 1, 5, 1, 5, 1],
        "cumulated_reward": [0, 1, 6, 1, 6, 1],
        "timestep": [0, 1, 2, 1, 2, 1],
    },
}
FINAL = [0.0, 0.1, 0.2, 1.1, 1.2, 2.1]


def assert_example(ws, mode, columns):
    rows = EXAMPLE[mode]
    for b in range(columns):
        assert_close(ws["env/obs/policy"][:, b, 0], torch.tensor(rows["obs"]))
        for name in ("done", "reward", "cumulated_reward", "timestep"):
            assert ws[f"env/{name}"][:, b].tolist() == rows[name], name
        if mode == "compact":
            assert_close(ws["env/final_obs/policy"][:, b, 0], torch.tensor(FINAL))
    assert ("env/final_obs/policy" in ws) == (mode == "compact")


class TestTheWorkedExample:
    @pytest.mark.parametrize("mode", EXAMPLE)
    def test_over_environments_of_this_process(self, mode):
        ws = collect(FrameAgent(Episodes, 3, mode=mode), 6)
        assert_example(ws, mode, 3)
        kinds = {name: ws[name].dtype for name in ws}
        assert kinds["env/reward"] == kinds["env/cumulated_reward"] == kinds["env/obs/policy"] == torch.float32
        assert kinds["env/terminated"] == kinds["env/truncated"] == ws["env/done"].dtype == torch.bool
        assert kinds["env/timestep"] == torch.int64

    @pytest.mark.parametrize("mode", RESETS)
    def test_over_vector_environments(self, mode):
        vector = SyncVectorEnv([Episodes] * 2, autoreset_mode=RESETS[mode])
        assert_example(collect(FrameAgent(vector), 6), mode, 2)
        assert_example(collect(FrameAgent(vector, mode="frozen"), 6), "frozen", 2)

    def test_over_any_vec_env(self):
        assert_example(collect(FrameAgent(GymnasiumEnv(Episodes, 2)), 6), "compact", 2)
        assert_example(collect(FrameAgent(GymnasiumEnv(Episodes, 2), mode="frozen"), 6), "frozen", 2)
        vector = SyncVectorEnv([Episodes] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
        world = FrameAgent(GymnasiumEnv(vector))
        assert world.mode == "framed"
        assert_example(collect(world, 6), "framed", 2)

    def test_dense_storage_holds_the_same(self):
        for mode in EXAMPLE:
            world = FrameAgent(Episodes, 2, mode=mode)
            ws = Workspace.dense(world.variables(6) | {"action": Variable(6, 2, (), torch.int64)})
            assert_example(collect(world, 6, ws=ws), mode, 2)

    def test_environments_that_end_at_different_times(self):
        # column 0: two steps an episode; column 1: one step an episode, then three
        world = FrameAgent([Episodes, functools.partial(Episodes, lengths=(1, 3), truncate=True)], mode="framed")
        ws = collect(world, 7)
        assert_close(ws["env/obs/policy"][:, 0, 0], torch.tensor([0.0, 0.1, 0.2, 1.0, 1.1, 1.2, 2.0]))
        assert_close(ws["env/obs/policy"][:, 1, 0], torch.tensor([0.0, 0.1, 1.0, 1.1, 1.2, 1.3, 2.0]))
        assert ws["env/truncated"][:, 1].tolist() == [0, 1, 0, 0, 0, 1, 0]
        assert ws["env/terminated"][:, 0].tolist() == [0, 0, 1, 0, 0, 1, 0]
        assert ws["env/timestep"].T.tolist() == [[0, 1, 2, 0, 1, 2, 0], [0, 1, 0, 1, 2, 3, 0]]
        assert ws["env/cumulated_reward"].T.tolist() == [[0, 1, 6, 0, 1, 6, 0], [0, 1, 0, 1, 6, 7, 0]]


class TestReward:
    def test_departure_is_arrival_one_row_earlier(self):
        for mode in EXAMPLE:
            here = collect(FrameAgent(Episodes, 2, mode=mode, reward="departure"), 6)
            there = collect(FrameAgent(Episodes, 2, mode=mode), 6)
            assert here["env/reward"][:, 0].tolist() == [*EXAMPLE[mode]["reward"][1:], 0]
            assert_same(here, there, [name for name in there if name != "env/reward"])
            pairs = [ws.transitions(pairs=True, keep_all=mode == "compact") for ws in (here, there)]
            one, two = pair_fields(pairs[0], reward_at_departure=True), pair_fields(pairs[1])
            assert all(torch.equal(one[name], two[name]) for name in one)

    def test_bug_44_sums_do_not_move_with_the_reward(self):
        ws = collect(FrameAgent(Episodes, 1, mode="framed", reward="departure"), 6)
        assert ws["env/cumulated_reward"][:, 0].tolist() == [0, 1, 6, 0, 1, 6]  # moved, the final row would show 0
        assert ws["env/reward"][:, 0].tolist() == [1, 5, 0, 1, 5, 0]

    def test_the_next_epoch_fills_in_the_reward_of_the_last_row(self):
        for mode, expected in (("framed", [1, 5, 0, 0]), ("compact", [5, 1, 5, 0])):
            world = FrameAgent(Episodes, 1, mode=mode, reward="departure")
            ws = collect(world, 4)
            copy_last(ws, 1)
            assert ws.at("env/reward", 0).tolist() == [0]
            collect(world, 3, ws=ws, t=1)
            assert ws["env/reward"][:, 0].tolist() == expected

    def test_unknown_words_are_refused(self):
        with pytest.raises(ValueError, match="'arrival', 'departure'"):
            FrameAgent(Episodes, reward="later")
        with pytest.raises(ValueError, match="'framed', 'compact', 'frozen'"):
            FrameAgent(Episodes, mode="running")


class TestEpochs:
    def test_row_1_goes_on_from_a_copied_row_0(self):
        for mode in ("framed", "compact"):
            world, twin = FrameAgent(Episodes, 2, mode=mode), FrameAgent(Episodes, 2, mode=mode)
            whole = collect(twin, 7)
            first = collect(world, 4)
            copy_last(first, 1)
            second = collect(world, 3, ws=first, t=1)
            for name in whole:
                assert torch.equal(second[name][:4], whole[name][3:]), name

    def test_bug_45_timestep_is_0_on_reset_rows_and_1_after_the_first_step(self):
        framed = collect(FrameAgent(Episodes, 1, mode="framed"), 5)
        assert framed["env/timestep"][:, 0].tolist() == [0, 1, 2, 0, 1]
        compact = collect(FrameAgent(Episodes, 1, mode="compact"), 5)
        assert compact["env/timestep"][:, 0].tolist() == [0, 1, 2, 1, 2]

    def test_bug_46_every_start_at_row_0_is_a_fresh_episode(self):
        world = FrameAgent(Episodes, 2, mode="frozen")
        loop = TemporalAgent(Agents(world, Plan(torch.zeros(9, 2, dtype=torch.int64))))
        for _ in range(3):
            ws = Workspace()
            assert loop.run(ws, stop_variable="env/done", n_steps=9) == 3
            assert ws["env/obs/policy"][:, 0, 0].tolist() == pytest.approx([0.0, 0.1, 0.2])
            assert ws["env/cumulated_reward"][-1].tolist() == [6, 6]
            assert ws["env/timestep"][-1].tolist() == [2, 2]

    def test_a_finished_environment_is_not_stepped_again(self):
        world = FrameAgent([Episodes, functools.partial(Episodes, lengths=(4,))], mode="frozen")
        ws = collect(world, 8)
        assert [env.taken for env in world.source.envs] == [2, 4]
        assert [len(env.seeds) for env in world.source.envs] == [1, 1]
        assert ws["env/timestep"][-1].tolist() == [2, 4]
        assert ws["env/cumulated_reward"][-1].tolist() == [6, 8]

    def test_a_start_in_a_later_row_when_asked(self):
        world = FrameAgent(Episodes, 1, mode="framed")
        ws = collect(world, 2)
        world(ws, 2, reset=True)
        assert ws["env/obs/policy"][:, 0, 0].tolist() == pytest.approx([0.0, 0.1, 0.0])
        assert ws["env/timestep"][:, 0].tolist() == [0, 1, 0]

    def test_no_row_without_a_start(self):
        with pytest.raises(RuntimeError, match="t=0"):
            FrameAgent(Episodes)(Workspace.packed({"action": torch.zeros(1, 1, dtype=torch.int64)}), 1)

    def test_memories_hear_of_the_end_before_the_reset_row(self):
        heard = []

        class Memory(Plan):
            def reset(self, ws, t, mask):
                heard.append((t, mask.tolist()))

        world = FrameAgent(Episodes, 1, mode="framed")
        TemporalAgent(Agents(world, Memory(torch.zeros(5, 1, dtype=torch.int64)))).run(Workspace(), n_steps=5)
        assert [entry for entry in heard if entry[1] == [True]] == [(3, [True])]  # row 3 is the reset row


class TestAsAnAgent:
    def test_bug_24_is_running_stays_a_method(self):
        assert FrameAgent(Episodes, 2).is_running() is False

    def test_bug_36_nothing_to_learn_is_inside(self):
        world = FrameAgent("CartPole-v1", 2, normalise=True)
        assert list(world.parameters()) == []
        assert world.device == torch.device("cpu")
        assert "_place" not in world.state_dict()
        world.to("meta")  # where the agent is moved its rows are written
        assert world.device == torch.device("meta")

    def test_a_prefix_keeps_two_worlds_apart(self):
        one, two = FrameAgent(Episodes, 1, mode="framed"), FrameAgent(Episodes, 1, mode="compact").with_prefix("b/")
        ws = Workspace()
        TemporalAgent(Agents(one, two, Plan(torch.zeros(6, 1, dtype=torch.int64)))).run(ws, n_steps=6)
        assert ws["env/timestep"][:, 0].tolist() == EXAMPLE["framed"]["timestep"]
        assert ws["b/env/timestep"][:, 0].tolist() == EXAMPLE["compact"]["timestep"]
        assert ws["b/env/done"][:, 0].tolist() == EXAMPLE["compact"]["done"]

    def test_sources(self):
        assert FrameAgent("CartPole-v1", 3).num_envs == 3
        assert FrameAgent(Episodes()).num_envs == 1
        assert FrameAgent(lambda: SyncVectorEnv([Walk] * 2)).num_envs == 2
        assert FrameAgent(lambda: make_env("toy/cue", num_envs=2)).mode == "compact"
        assert FrameAgent("CartPole-v1").spec.action.choices == (2,)
        assert FrameAgent("CartPole-v1").observation_space.shape == (4,)
        with pytest.raises(ValueError, match="CartPole-v1"):
            FrameAgent("CartPol-v1")
        with pytest.raises(TypeError, match="VecEnv"):
            FrameAgent(3)
        with pytest.raises(ValueError, match="at least 1"):
            FrameAgent(Episodes, 0)
        with pytest.raises(ValueError, match="one kind"):
            FrameAgent([Episodes, Walk])
        with pytest.raises(TypeError, match="no gymnasium environment"):
            _ = FrameAgent(make_env("toy/cue")).action_space

    def test_wrappers_from_the_inside_out(self):
        order = []

        def wrapper(name):
            def wrap(env):
                order.append((name, type(env).__name__))
                return gymnasium.wrappers.TransformReward(env, lambda reward: reward)

            return wrap

        env = make_single("CartPole-v1", wrappers=[wrapper("first"), wrapper("second")], autoreset=True)
        assert [name for name, _ in order] == ["first", "second"]
        assert order[1][1] == "TransformReward"
        assert isinstance(env, gymnasium.wrappers.Autoreset)
        env.close()


class TestSaveAndRestore:
    @pytest.mark.parametrize("mode", EXAMPLE)
    def test_the_stream_goes_on_bit_for_bit(self, mode, tmp_path):
        actions = noise(20, 3)
        world = FrameAgent(Walk, 3, mode=mode, normalise=True)
        whole = collect(world, 8, actions)
        state = {"env": world.env_state_dict(), "agent": dict(world.state_dict())}
        save_state(tmp_path / "state", state, kind="frames")
        collect(world, 12, actions, ws=whole, t=8)
        stored, _ = load_state(tmp_path / "state", kind="frames")
        other = FrameAgent(Walk, 3, mode=mode, normalise=True, seed=9)
        other.load_state_dict(stored["agent"])
        other.load_env_state_dict(stored["env"])
        ws = whole.slice(0, 8, equal=False)
        collect(other, 12, actions, ws=ws, t=8)
        assert_same(ws, whole)
        assert_same(collect(other, 6, actions), collect(world, 6, actions))  # seeds of the next start too

    @pytest.mark.parametrize("mode", RESETS)
    def test_vector_environments_and_vec_envs(self, mode):
        actions = noise(20, 2)
        makers = [lambda: SyncVectorEnv([Walk] * 2, autoreset_mode=RESETS[mode])]
        if mode == "compact":
            makers.append(lambda: GymnasiumEnv(Walk, 2))
        for make in makers:
            world = FrameAgent(make())
            whole = collect(world, 20, actions)
            # saved where an episode has just ended, and somewhere else
            rows = int(whole["env/done"].any(1).long().argmax()) + 1
            for stop in (rows, rows + 1):
                world, other = FrameAgent(make()), FrameAgent(make())
                collect(world, stop, actions)
                other.load_env_state_dict(world.env_state_dict())
                ws = whole.slice(0, stop, equal=False)
                collect(other, 20 - stop, actions, ws=ws, t=stop)
                assert_same(ws, whole)

    def test_what_cannot_be_stored_says_so(self):
        class Odd(Walk):
            def __init__(self):
                super().__init__()
                self.thing = object()

        world = FrameAgent(Odd, 1, mode="framed")
        collect(world, 3, noise(3, 1))
        state = world.env_state_dict()
        other = FrameAgent(Odd, 1, mode="framed")
        with pytest.warns(UserWarning, match="start again at t=0"):
            other.load_env_state_dict(state)
        with pytest.raises(RuntimeError, match="t=0"):
            other(Workspace(), 1)
        with pytest.raises(ValueError, match="holds 1 environments, this agent has 2"):
            FrameAgent(Odd, 2, mode="framed").load_env_state_dict(state)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fresh = FrameAgent(Odd, 1)
            fresh.load_env_state_dict(FrameAgent(Odd, 1, seed=3).env_state_dict())  # never ran: nothing is lost
        assert fresh._seed == 3
