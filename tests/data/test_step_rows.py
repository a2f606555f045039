"""StepRows: a replay against a model in plain lists, and against the mistakes one could make."""

import pytest
import torch
from step_model import ACTION, EXTRAS, GROUPS, PHASE, World, check_transitions, make, make_with_decisions
from torch.testing import assert_close

from gaitway.core.workspace import Workspace
from gaitway.data import ring, step_gather, step_rows
from gaitway.data.step_replay import StepReplay

CASES = [(rows, envs, n) for n in (1, 3, 5) for rows, envs in ((1, 3), (4, 1), (7, 2))]


def compare(rows, num_envs, n_step, seed=0, reset_rows=False, cuts=0.15, additions=25):
    """Play a random stream into a replay: what can be drawn must be what the lists hold, and nothing else."""
    gamma = 0.9
    world = World(num_envs, seed, reset_rows)
    replay = make(rows * num_envs + (num_envs - 1), num_envs, n_step=n_step, gamma=gamma, reset_rows=reset_rows)
    for _ in range(additions):
        replay.add(world.advance(world.random.randint(1, 2 * rows + 1)))
        if world.random.random() < cuts:
            world.restart()
            replay.cut()
        expected = world.transitions(rows, n_step, gamma)
        assert replay.size == len(expected)
        assert replay.rows_added == len(world.streams[0].steps)
        if expected:
            # the chance to miss one of at most 14 in 400 draws is 14 * (13/14)^400 < 1e-11
            assert check_transitions(replay.gather(replay.draw((400,))), expected) == set(expected)


class TestAgainstLists:
    @pytest.mark.parametrize(("rows", "num_envs", "n_step"), CASES)
    def test_every_transition(self, rows, num_envs, n_step):
        compare(rows, num_envs, n_step, seed=rows)

    @pytest.mark.parametrize("n_step", [1, 3])
    def test_rows_that_only_reset_are_never_drawn(self, n_step):
        compare(6, 3, n_step, seed=1, reset_rows=True)

    def test_streams_without_truncations(self):
        compare(5, 2, 1, cuts=0)

    @pytest.mark.parametrize("n_step", [1, 2, 3, 5])
    def test_what_an_interruption_reached_stays_when_new_episodes_begin(self, n_step):
        # also for the window that had its n steps just then: what it reached was the open row, which is overwritten
        world = World(2, 0, ends=0)
        replay = make(40, 2, n_step=n_step, gamma=0.9)
        replay.add(world.advance(8))
        replay.cut()
        world.restart()
        replay.add(world.advance(6))
        expected = world.transitions(20, n_step, 0.9)
        assert check_transitions(replay.gather(replay.draw((800,))), expected) == set(expected)

    def test_t_replay(self):
        # size 5, additions of 3, 3, 12 rows: the cursor and the contents of a list of the last 5
        world, replay = World(1, 0, ends=0), make(5, 1)
        for count, held in ((3, [1, 2, 3]), (3, [2, 3, 4, 5, 6]), (12, [14, 15, 16, 17, 18])):
            replay.add(world.advance(count))
            drawn = replay.gather(replay.draw((300,)))
            assert sorted(set(drawn["obs/policy"][:, 0].int().tolist())) == held
            assert_close(drawn["next_obs/policy"][:, 0], drawn["obs/policy"][:, 0] + 1)
        assert replay.rows_added == 18

    def test_parts_of_a_workspace(self):
        world = World(2, 3)
        ws = world.advance(9)
        whole, parts = make(20, 2), make(20, 2)
        whole.add(ws)
        for start, stop in ((0, 1), (1, 1), (1, 4), (4, 9)):
            parts.add(ws, start, stop)
        index = whole.draw((200,))
        assert torch.equal(parts.draw((200,)), index)
        for name, value in whole.gather(index).items():
            assert torch.equal(value, parts.gather(index)[name])


class TestWindowsOfDecisions:
    """Against a staging ring of plain lists, on random episodes with terminations, time limits and cuts."""

    @pytest.mark.parametrize("ends", [0.05, 0.15, 0.7])  # the last has many episodes of one step
    @pytest.mark.parametrize("interval", [1, 2, 5])
    @pytest.mark.parametrize("only", [False, True])
    def test_every_window(self, interval, ends, only):
        self.compare(World(3, interval, ends=ends, interval=interval), rows=9, only=only)

    @pytest.mark.parametrize("interval", [1, 5])
    def test_rows_that_only_reset(self, interval):
        self.compare(World(2, 3, reset_rows=True, interval=interval), rows=7, only=False)
        self.compare(World(2, 4, reset_rows=True, interval=interval), rows=7, only=True)

    def test_a_ring_of_one_row(self):
        self.compare(World(3, 5, interval=5), rows=1, only=False)

    def compare(self, world, rows, only, gamma=0.9, additions=25):
        count = len(world.streams)
        replay = make_with_decisions(rows * count, world, only, gamma=gamma)
        twin = make_with_decisions(rows * count, world, only, gamma=gamma)
        met = 0
        for _ in range(additions):
            replay.add(world.advance(world.random.randint(1, 2 * rows + 1)))
            if world.random.random() < 0.15:
                world.restart()
                replay.cut()
            expected = world.decision_windows(rows, gamma, only)
            assert replay.size == len(expected)
            if expected:
                every = replay.slots(replay.first_row, replay.stop_row)
                assert len(every) == len(expected)
                assert set(replay.draw((50,)).tolist()) <= set(every.tolist())
                assert check_transitions(replay.gather(every), expected) == set(expected)
                met += len(expected)
        assert met > 50
        twin.load_state_dict(replay.state_dict())
        index = replay.draw((300,))
        assert torch.equal(twin.draw((300,)), index)
        for name, value in replay.gather(index).items():
            assert torch.equal(value, twin.gather(index)[name]), name

    def test_windows_differ_in_length(self):
        world = World(4, 0, ends=0.1, interval=5)
        replay = make_with_decisions(400, world)
        replay.add(world.advance(90))
        found = replay.gather(replay.slots(replay.first_row, replay.stop_row))["steps"]
        assert set(found.tolist()) == {1, 2, 3, 4, 5}

    def test_what_is_stored_need_not_be_an_action(self):
        world = World(2, 1, interval=3)
        ws, slots = world.advance(20), torch.arange(5)
        decisions = step_rows.Decisions(PHASE)
        extras = EXTRAS | {PHASE: ((), torch.int64)}
        replay = StepReplay(40, 2, GROUPS, None, extras=extras, n_step=3, decisions=decisions, seed=0)
        replay.add(ws)
        fields, whole = replay.gather(slots), make_with_decisions(40, world)
        whole.add(ws)
        assert "action" not in fields
        assert "action" not in replay.rows(0, 3)
        for name, value in fields.items():
            assert torch.equal(value, whole.gather(slots)[name]), name

    def test_other_decisions_are_another_replay(self):
        world = World(2, 1, interval=3)
        replay = make_with_decisions(40, world)
        replay.add(world.advance(9))
        with pytest.raises(ValueError, match="decisions"):
            make_with_decisions(40, world, only=True).load_state_dict(replay.state_dict())

    def test_a_phase_that_is_not_stored(self):
        with pytest.raises(ValueError, match=r"'decision/phase'.*int64 scalar"):
            StepReplay(10, 1, GROUPS, ACTION, n_step=2, decisions=step_rows.Decisions(PHASE))


class TestMistakesAreCaught:
    """The comparison above must fail for replays that are wrong in the usual ways."""

    def fails(self, n_step=1, cuts=0.15):
        with pytest.raises(AssertionError):
            compare(7, 2, n_step, cuts=cuts)

    @pytest.mark.parametrize("n_step", [1, 3])
    def test_next_observation_from_across_a_reset(self, monkeypatch, n_step):
        monkeypatch.setattr(step_gather.TransitionReader, "_look_and_replace", lambda self, batch: None)
        self.fails(n_step)

    @pytest.mark.parametrize("n_step", [1, 3])
    def test_truncated_taken_for_terminated(self, monkeypatch, n_step):
        add = StepReplay.add

        def wrong(self, ws, *span):
            add(
                self,
                Workspace.packed({name: ws["env/done" if name == "env/terminated" else name] for name in ws}),
                *span,
            )

        monkeypatch.setattr(StepReplay, "add", wrong)
        self.fails(n_step, cuts=0)

    @pytest.mark.parametrize("n_step", [1, 3])
    def test_the_ring_does_not_close(self, monkeypatch, n_step):
        build = ring.PackedRing.__init__

        def wrong(self, *args, **options):
            build(self, *args, **options)
            self.mirror = 0

        monkeypatch.setattr(ring.PackedRing, "__init__", wrong)
        self.fails(n_step)

    def test_wrapped_one_row_too_early(self, monkeypatch):
        put = ring.PackedRing.put
        monkeypatch.setattr(
            ring.PackedRing, "put", lambda self, target, at, source: put(self, target, at % (self.rows - 1), source)
        )
        self.fails()

    def test_windows_that_run_over_an_end(self, monkeypatch):
        finish = step_rows.StepRows._finish_piece

        def wrong(self, position, length):
            flags = [self.ring.columns[name] for name in (step_rows.TERMINATED, step_rows.TRUNCATED)]
            kept = [flag.clone() for flag in flags]
            for flag in flags:
                flag.zero_()
            finish(self, position, length)
            for flag, value in zip(flags, kept, strict=True):
                flag.copy_(value)

        monkeypatch.setattr(step_rows.StepRows, "_finish_piece", wrong)
        self.fails(n_step=3)

    @pytest.mark.parametrize("n_step", [1, 3])
    def test_windows_that_are_not_complete(self, monkeypatch, n_step):
        count = step_rows.StepRows._count

        def wrong(self):
            count(self)
            self.stop = min(self.stop + 1, self.rows_added + 1)

        monkeypatch.setattr(step_rows.StepRows, "_count", wrong)
        self.fails(n_step, cuts=0)

    def test_an_interruption_that_nobody_tells(self, monkeypatch):
        monkeypatch.setattr(StepReplay, "cut", lambda self: None)
        self.fails()

    def test_entries_given_back_too_early(self, monkeypatch):
        release = step_rows.FinalObservations.release
        monkeypatch.setattr(step_rows.FinalObservations, "release", lambda self, before: release(self, before + 3))
        self.fails()


class TestFinalObservations:
    def test_the_table_grows_and_says_so(self):
        replay = StepReplay(400, 2, GROUPS, ACTION, extras=EXTRAS, seed=0, max_episode_steps=100)
        world = World(2, 0, ends=0.5)
        version, index = replay.version, None
        replay.add(world.advance(2))
        for _ in range(20):
            index = replay.draw((64,))
            before = {name: value.clone() for name, value in replay.gather(index).items()}
            replay.add(world.advance(9))
            for name, value in replay.gather(index).items():
                assert torch.equal(value, before[name])
        assert replay.version > version
        check_transitions(replay.gather(replay.draw((300,))), world.transitions(200, 1, 0.99))

    def test_with_the_time_limit_it_never_grows(self):
        replay = StepReplay(40, 2, GROUPS, ACTION, extras=EXTRAS, seed=0, max_episode_steps=5)
        world = World(2, 0, ends=0)
        for _ in range(30):
            ws = world.advance(5)
            ws["env/truncated"] = torch.arange(1, 6)[:, None].expand(5, 2) == 5
            replay.add(ws)
        assert replay.version == 0

    def test_without_them_truncation_is_an_error(self):
        ws = World(1, 0, ends=0).advance(3)
        ws.remove("env/final_obs/image")
        replay = make(10, 1)
        replay.add(ws)
        ws["env/truncated"] = torch.ones(3, 1, dtype=torch.bool)
        with pytest.raises(ValueError, match="final_obs=True"):
            replay.add(ws)
