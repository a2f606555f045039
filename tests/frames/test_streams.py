"""Conversions between frame streams and step rows: transitions stay the same, round trips are the identity."""

import functools

import pytest
import torch
from frame_cases import Episodes, Plan, Walk, assert_same, collect, noise
from torch.testing import assert_close

from gaitway.core.agent import Agents, TemporalAgent
from gaitway.core.n_step import n_step_transitions
from gaitway.core.workspace import Workspace
from gaitway.envs.env_agent import EnvAgent
from gaitway.envs.gym.env import GymnasiumEnv
from gaitway.frames.agent import FrameAgent, frame_seeds
from gaitway.frames.pairs import n_step_pairs, pair_fields
from gaitway.frames.streams import (
    borders,
    framed_columns,
    step_columns,
    to_arrival,
    to_departure,
    to_frames,
    to_steps,
)

STREAMS = [(steps, batch, seed) for seed, (steps, batch) in enumerate([(1, 3), (2, 4), (12, 3), (40, 5)])]
FIELDS = ("obs/policy", "next_obs/policy", "action", "reward", "terminated", "truncated")


def random_steps(steps, batch, seed):
    """Step rows of a same-step environment: every observation is a number of its own; one end in three, both kinds."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    kind = torch.randint(6, (steps, batch), generator=generator)
    terminated, truncated = kind == 0, kind == 1
    obs = draw(steps + 1, batch, 2)
    final = torch.where((terminated | truncated)[..., None], draw(steps, batch, 2), obs[1:])
    return Workspace.packed(
        {
            "env/obs/policy": obs,
            "action": draw(steps, batch, 1),
            "action/log_prob": draw(steps, batch),
            "env/reward": draw(steps, batch),
            "env/terminated": terminated,
            "env/truncated": truncated,
            "env/final_obs/policy": final,
        }
    )


def same_fields(one, two):
    for name in FIELDS:
        assert torch.equal(one[name], two[name]), name


def framed_of(steps):
    """The framed stream of random step rows, cut to the shortest column so that it is one workspace."""
    columns = framed_columns(steps)
    rows = min(column.rows("action") for column in columns)
    return Workspace.cat([column.slice(0, rows) for column in columns])


@pytest.mark.parametrize(("steps", "batch", "seed"), STREAMS)
class TestRandomStreams:
    def test_compact_both_ways(self, steps, batch, seed):
        rows = random_steps(steps, batch, seed)
        frames = to_frames(rows, "compact")
        assert frames["env/reward"].shape == (steps + 1, batch)
        pairs = frames.transitions(pairs=True, keep_all=True)
        same_fields(pair_fields(pairs), rows.transitions())
        back = to_steps(frames, "compact")
        assert_same(back, rows, rows.keys())

    def test_compact_departure(self, steps, batch, seed):
        rows = random_steps(steps, batch, seed)
        frames = to_frames(rows, "compact", reward="departure")
        assert torch.equal(frames["env/reward"][:-1], rows["env/reward"])
        pairs = frames.transitions(pairs=True, keep_all=True)
        same_fields(pair_fields(pairs, reward_at_departure=True), rows.transitions())
        assert_same(to_steps(frames, "compact", reward="departure"), rows, rows.keys())
        assert_same(to_arrival(frames), to_frames(rows, "compact"))
        assert_same(to_departure(to_arrival(frames)), frames)

    def test_framed_columns_and_back(self, steps, batch, seed):
        rows = random_steps(steps, batch, seed)
        for reward in ("arrival", "departure"):
            for b, column in enumerate(framed_columns(rows, reward=reward)):
                one = rows.select([b])
                ends = int(one["env/done"].sum())
                assert column.rows("env/reward") == 1 + steps + ends
                pairs = column.transitions(pairs=True)
                same_fields(pair_fields(pairs, reward_at_departure=reward == "departure"), one.transitions())
                (back,) = step_columns(column, reward=reward)
                assert_same(back, one, one.keys())

    def test_framed_rows_are_step_rows_with_reset_rows(self, steps, batch, seed):
        frames = framed_of(random_steps(steps, batch, seed))
        rows = to_steps(frames, "framed")
        pairs = pair_fields(frames.transitions(pairs=True))
        same_fields(pairs, rows.transitions())
        assert int(rows["env/valid"].sum()) == len(pairs["reward"])
        assert not bool((rows["env/done"] & ~rows["env/valid"]).any())
        start, last = borders(frames)
        assert_same(to_frames(rows, "framed", start=start, last=last), frames, frames.keys())
        departing = to_departure(frames)
        again = to_steps(departing, "framed", reward="departure")
        assert_same(again, rows, rows.keys())
        start, last = borders(departing, "departure")
        assert_same(to_frames(again, "framed", "departure", start, last), departing, departing.keys())

    def test_frozen_is_the_first_episode(self, steps, batch, seed):
        rows = random_steps(steps, batch, seed)
        frames = to_frames(rows, "frozen")
        fields = rows.transitions()
        first = (rows["env/done"].long().cumsum(0) - rows["env/done"].long() == 0).flatten()  # the end itself belongs
        pairs = pair_fields(frames.transitions(pairs=True))
        same_fields(pairs, {name: values[first] for name, values in fields.items()})
        for b in range(batch):
            done = frames["env/done"][:, b]
            if done.any():
                end = int(done.long().argmax())
                assert done[end:].all()
                assert torch.equal(
                    frames["env/obs/policy"][end:, b],
                    frames["env/obs/policy"][end, b].expand(len(done) - end, 2),
                )
                assert (frames["env/reward"][end + 1 :, b] == 0).all()
                assert (frames["env/timestep"][end:, b] == end).all()
        back = to_steps(frames, "frozen")
        assert not bool((back["env/done"] & ~back["env/valid"]).any())  # a repeated end ends nothing
        same_fields(back.transitions(), pairs)
        start, last = borders(frames)
        assert_same(to_frames(back, "frozen", start=start, last=last), frames, frames.keys())

    def test_n_steps_ahead_agree(self, steps, batch, seed):
        frames = framed_of(random_steps(steps, batch, seed))
        pairs = pair_fields(n_step_pairs(frames, 3, 0.9, partial=True))
        fields = n_step_transitions(to_steps(frames, "framed"), 3, 0.9, partial=True)
        for name in (*FIELDS[:3], "terminated", "truncated", "n_step/steps"):
            assert torch.equal(pairs[name], fields[name]), name
        for name in ("n_step/return", "n_step/discount"):
            assert_close(pairs[name], fields[name])

    def test_counters_are_those_of_an_independent_count(self, steps, batch, seed):
        rows = random_steps(steps, batch, seed)
        frames = to_frames(rows, "compact")
        for b in range(batch):
            total, count = torch.zeros(()), 0
            for t in range(steps):
                total, count = total + rows["env/reward"][t, b], count + 1
                assert torch.equal(frames["env/cumulated_reward"][t + 1, b], total)
                assert int(frames["env/timestep"][t + 1, b]) == count
                if rows["env/done"][t, b]:
                    total, count = torch.zeros(()), 0


class TestAgainstTheAgents:
    """Streams of the agents themselves, over the same environments and actions."""

    def streams(self, rows):
        actions = noise(rows, 3)
        return {
            mode: collect(FrameAgent(Walk, 3, mode=mode), rows, actions) for mode in ("framed", "compact", "frozen")
        }

    @pytest.mark.parametrize("mode", ["framed", "compact", "frozen"])
    def test_a_round_trip_is_the_identity(self, mode):
        frames = self.streams(20)[mode]
        steps = to_steps(frames, mode)
        start, last = borders(frames)
        assert_same(to_frames(steps, mode, start=start, last=last), frames, frames.keys())
        # a start at t=0 is known without being told; only the last decision is not
        plain = to_frames(steps, mode)
        for name in frames:
            rows = slice(None) if name.startswith("env/") else slice(0, -1)
            assert torch.equal(plain[name][rows], frames[name][rows]), name

    @pytest.mark.parametrize("mode", ["framed", "compact", "frozen"])
    def test_counters_are_computed_to_the_last_bit(self, mode):
        frames = self.streams(20)[mode]
        steps = to_steps(frames, mode)
        steps.remove("env/timestep")
        steps.remove("env/cumulated_reward")
        again = to_frames(steps, mode)
        assert torch.equal(again["env/timestep"], frames["env/timestep"])
        assert torch.equal(again["env/cumulated_reward"], frames["env/cumulated_reward"])

    def test_frozen_from_the_framed_stream(self):
        streams = self.streams(20)
        frozen, made = streams["frozen"], to_frames(to_steps(streams["framed"], "framed"), "frozen")
        for name in ("env/obs/policy", "env/reward", "env/terminated", "env/truncated", "env/timestep"):
            assert torch.equal(made[name], frozen[name]), name

    def test_an_epoch_that_goes_on_keeps_its_counters(self):
        world = FrameAgent(Walk, 3, mode="compact")
        whole = collect(world, 20, noise(20, 3))
        second = whole.slice(7, 20, equal=False)  # starts in the middle of episodes
        start, last = borders(second)
        steps = to_steps(second, "compact")
        for name in ("env/timestep", "env/cumulated_reward"):
            steps.remove(name)
        assert_same(to_frames(steps, "compact", start=start, last=last), second, second.keys())

    def test_a_piece_of_a_departure_stream_keeps_its_last_reward(self):
        for mode in ("framed", "compact"):
            piece = to_departure(self.streams(20)[mode]).slice(3, 11, equal=False)
            start, last = borders(piece, "departure")
            assert bool(last["env/reward"].any())
            steps = to_steps(piece, mode, "departure")
            assert_same(to_frames(steps, mode, "departure", start, last), piece, piece.keys())

    def test_step_rows_of_the_house_are_the_compact_stream(self):
        env, actions = GymnasiumEnv(Walk, 2), noise(13, 2)
        world, rows = EnvAgent(env), Workspace()
        world.restore(env.reset(frame_seeds(0, 0, 2)))
        TemporalAgent(Agents(world.observe, Plan(actions), world.advance)).run(rows, n_steps=12)
        frames = collect(FrameAgent(GymnasiumEnv(Walk, 2)), 13, actions)
        assert bool(rows["env/done"].any())
        assert_same(to_steps(frames, "compact"), rows, rows.keys())
        last = {"action": actions[12]}
        assert_same(to_frames(rows, "compact", last=last), frames, frames.keys())

    def test_bug_33_a_truncated_step_bootstraps_from_the_state_it_reached(self):
        cut = functools.partial(Episodes, truncate=True)
        frames = collect(FrameAgent(cut, 1, mode="compact"), 6)
        pairs = pair_fields(frames.transitions(pairs=True, keep_all=True))
        assert_close(pairs["obs/policy"].flatten(), torch.tensor([0.0, 0.1, 1.0, 1.1, 2.0]))
        assert_close(pairs["next_obs/policy"].flatten(), torch.tensor([0.1, 0.2, 1.1, 1.2, 2.1]))
        assert pairs["truncated"].tolist() == [False, True, False, True, False]
        # filtered by done, as other streams are, the first steps of episodes would be gone
        assert frames.transitions(pairs=True)["env/reward"].shape[1] == 3
        with pytest.raises(ValueError, match="is compact"):
            n_step_pairs(frames, 2, 0.9)


class TestBorders:
    def test_a_column_that_stops_on_a_final_row_gains_a_row(self):
        frames = collect(FrameAgent(Episodes, 1, mode="framed"), 6)  # the last row is the end of episode 1
        (steps,) = step_columns(frames)
        assert_close(steps["env/obs/policy"].flatten(), torch.tensor([0.0, 0.1, 1.0, 1.1, 1.2]))
        assert_close(steps["env/final_obs/policy"].flatten(), torch.tensor([0.1, 0.2, 1.1, 1.2]))
        assert steps["env/timestep"].flatten().tolist() == [1, 2, 1, 2]
        (back,) = framed_columns(steps)
        assert back.rows("env/reward") == 7
        for name in frames:
            assert torch.equal(back[name][:6], frames[name]), name

    def test_pictures_and_memories_keep_their_extra_row(self):
        rows = random_steps(4, 2, 1)
        rows = Workspace.packed(
            {
                **{name: rows[name] for name in rows},
                "env/rendering": torch.zeros(5, 2, 3),
                "memory": torch.ones(5, 2, 1),
            },
            extra_row=("env/rendering", "memory"),
        )
        frames = to_frames(rows, "compact")
        assert frames["memory"].shape == (5, 2, 1)
        back = to_steps(frames, "compact")
        assert (back.T, back.rows("memory"), back.rows("env/rendering")) == (4, 5, 5)
        with pytest.raises(ValueError, match="env/final_obs"):
            framed_columns(rows)
        with pytest.raises(ValueError, match="env/final_obs"):
            to_frames(rows, "frozen")

    def test_gradients_flow_through_a_conversion(self):
        rows = random_steps(3, 2, 0)
        log_prob = torch.zeros(3, 2, requires_grad=True)
        rows["action/log_prob"] = log_prob * 1.0
        to_frames(rows, "compact")["action/log_prob"].sum().backward()
        assert torch.equal(log_prob.grad, torch.ones(3, 2))

    def test_refusals_name_the_remedy(self):
        rows = random_steps(6, 2, 3)
        with pytest.raises(ValueError, match="framed_columns"):
            to_frames(rows, "framed")
        with_resets = to_steps(framed_of(rows), "framed")
        with pytest.raises(ValueError, match="mode='framed'"):
            to_frames(with_resets, "compact")
        with pytest.raises(ValueError, match="to_frames"):
            framed_columns(with_resets)
        with pytest.raises(ValueError, match="'framed', 'compact', 'frozen'"):
            to_steps(rows, "steps")
        with pytest.raises(ValueError, match="'departure'"):
            to_frames(rows, "compact", reward="late")
        with pytest.raises(ValueError, match="env/obs"):
            to_steps(Workspace.packed({"x": torch.zeros(2, 2)}), "compact")
        rows.remove("env/final_obs/policy")
        with pytest.raises(ValueError, match="env/final_obs/policy"):
            to_frames(rows, "compact")
