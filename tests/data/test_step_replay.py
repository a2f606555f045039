"""StepReplay: draws, windows, arguments, memory and state."""

import pytest
import torch
from scipy.stats import chi2
from step_model import ACTION, EXTRAS, GROUPS, World, check_transitions, make, observation
from torch.testing import assert_close

from gaitway.core.workspace import Workspace
from gaitway.data.step_replay import StepReplay


class TestDraws:
    @pytest.mark.parametrize(
        ("rows", "num_envs", "n_step", "steps", "reset_rows"),
        [(30, 1, 1, 17, False), (30, 1, 1, 77, False), (9, 4, 3, 31, False), (12, 3, 1, 41, True), (9, 3, 3, 25, True)],
    )
    def test_every_transition_is_as_likely(self, rows, num_envs, n_step, steps, reset_rows):
        world = World(num_envs, 5, reset_rows)
        replay = make(rows * num_envs, num_envs, n_step=n_step, gamma=0.9, reset_rows=reset_rows)
        replay.add(world.advance(steps))
        expected = sorted(world.transitions(rows, n_step, 0.9))
        draws = 400 * len(expected)
        numbers = replay.gather(replay.draw((draws,)))["obs/policy"][:, 0].long()
        counts = torch.bincount(numbers, minlength=expected[-1] + 1)
        assert int(counts[expected].sum()) == draws
        statistic = ((counts[expected] - 400.0) ** 2 / 400).sum().item()
        assert statistic < chi2.ppf(1 - 1e-6, len(expected) - 1)

    def test_chi_square_sees_a_lean(self):
        # the first of 30 drawn twice as often and the last never, as when indices are clipped into too short a range:
        # counts 800, 400, ..., 400, 0 give (400^2 + 400^2) / 400
        assert chi2.ppf(1 - 1e-6, 29) < 800

    def test_nothing_to_draw(self):
        replay = make(10, 1, n_step=3)
        for _ in range(2):
            with pytest.raises(ValueError, match="add 3 steps"):
                replay.draw((4,))
            replay.add(World(1, 0, ends=0).advance(2))
        replay.cut()  # now the windows are over
        assert replay.size == 4
        assert replay.draw((4,)).shape == (4,)

    def test_whole_windows_wait_for_the_rows_behind_a_cut(self):
        world, replay = World(1, 0, ends=0), make(8, 1, n_step=3, whole_windows=True)
        replay.add(world.advance(12))
        for cut, drawable in ((True, (2, 10)), (False, (3, 11)), (True, (4, 12)), (False, (5, 13))):
            if cut:
                replay.cut()
                world.restart()
            assert (replay.first_row, replay.stop_row) == drawable
            slots = replay.slots(*drawable)
            seen = [step.obs for step in world.streams[0].steps]
            found = replay.window(slots, 3)["env/obs/policy"][:3, :, 0].mT.int().tolist()
            assert found == [seen[row : row + 3] for row in range(*drawable)], "nothing but rows that were added"
            restored = make(8, 1, n_step=3, whole_windows=True)
            restored.load_state_dict(replay.state_dict())
            assert torch.equal(restored.slots(restored.first_row, restored.stop_row), slots)
            assert torch.equal(restored.gather(slots)["reward"], replay.gather(slots)["reward"])
            replay.add(world.advance(1))

    def test_one_variable_of_some_rows(self):
        world, replay = World(2, 0), make(12, 2)
        for _ in range(5):  # 15 rows; the ring has 7
            replay.add(world.advance(3))
            first, stop = replay.first_row, replay.rows_added
            expected = [[stream.steps[row].skill for stream in world.streams] for row in range(first, stop)]
            assert replay.column("skill", first, stop).tolist() == expected
            assert replay.column("env/obs/policy", first, stop).shape == (stop - first, 2, 2)
            assert replay.column("skill", stop - 1, stop).tolist() == expected[-1:]
            assert replay.column("skill", stop, stop).shape == (0, 2)

    def test_shapes_and_out(self):
        replay = make(10, 2)
        replay.add(World(2, 0).advance(3))
        out = torch.empty(3, 5, dtype=torch.int64)
        assert replay.draw((3, 5), out=out) is out
        with pytest.raises(ValueError, match="out is"):
            replay.draw((5,), out=out)

    def test_draws_follow_the_seed(self):
        def drawn(**options):
            replay = StepReplay(50, 2, GROUPS, ACTION, extras=EXTRAS, **options)
            replay.add(World(2, 0).advance(20))
            return replay.draw((30,))

        before = torch.get_rng_state()
        assert torch.equal(drawn(seed=1), drawn(seed=1))
        assert not torch.equal(drawn(seed=1), drawn(seed=2))
        assert not torch.equal(drawn(), drawn())
        assert torch.equal(
            drawn(generator=torch.Generator().manual_seed(4)), drawn(generator=torch.Generator().manual_seed(4))
        )
        assert torch.equal(torch.get_rng_state(), before)


class TestWindows:
    @pytest.mark.parametrize("reset_rows", [False, True])
    def test_consecutive_steps_of_one_stream(self, reset_rows):
        world = World(3, 2, reset_rows)
        replay = make(24, 3, reset_rows=reset_rows)
        replay.add(world.advance(29))
        ws = replay.sample(200, length=4)
        assert (ws.T, ws.B, ws.rows("env/obs/policy")) == (4, 200, 5)
        first_rows = set()
        for column in range(200):
            numbers = ws["env/obs/policy"][:, column, 0].int().tolist()
            stream = next(s for s in world.streams if any(step.obs == numbers[0] for step in s.steps))
            matches = [
                row
                for row in range(21, 26)
                if [step.obs for step in stream.steps[row : row + 4]] == numbers[:4]
                and [step.skill for step in stream.steps[row : row + 4]] == ws["skill"][:, column].tolist()
            ]
            assert len(matches) == 1
            first_rows.add(matches[0])
            for t, step in enumerate(stream.steps[matches[0] : matches[0] + 4]):
                assert ws["env/terminated"][t, column].item() == step.terminated
                assert ws["env/truncated"][t, column].item() == step.truncated
                assert ws["env/reward"][t, column].item() == step.reward
                if reset_rows:
                    assert ws["env/valid"][t, column].item() == step.valid
                if step.truncated:
                    assert torch.equal(ws["env/final_obs/image"][t, column], observation(step.reached)["image"])
        assert first_rows == {21, 22, 23, 24, 25}

    def test_too_long(self):
        replay = make(10, 1)
        replay.add(World(1, 0).advance(4))
        assert replay.sample(3, length=4).T == 4
        for length in (0, 5):
            with pytest.raises(ValueError, match="no window"):
                replay.sample(3, length=length)


class TestArguments:
    def test_what_is_refused(self):
        for options, word in (
            ({"capacity": 2, "num_envs": 3}, "at least one step"),
            ({"n_step": 0}, "n_step"),
            ({"gamma": 1.5}, "gamma"),
            ({"seed": 0, "generator": torch.Generator()}, "not both"),
            ({"extras": {"reward": ((), torch.float32)}}, "rename"),
            ({"extras": {"env/obs/other": ((), torch.float32)}}, "rename"),
        ):
            arguments = {"capacity": 10, "num_envs": 2, "groups": GROUPS, "action": ACTION} | options
            with pytest.raises(ValueError, match=word):
                StepReplay(**arguments)

    def test_steps_that_do_not_fit(self):
        replay = make(10, 2)
        ws = World(2, 0).advance(3)
        replay.add(ws)
        for name, value in (
            ("action", torch.zeros(3, 2, 3)),
            ("action", torch.zeros(3, 2, 2, dtype=torch.float64)),
            ("env/obs/image", torch.zeros(4, 2, 3, dtype=torch.uint8)),
        ):
            wrong = Workspace(ws)
            wrong[name] = value
            with pytest.raises(ValueError, match=f"{name!r}"):
                replay.add(wrong)
        missing = Workspace(ws)
        missing.remove("skill")
        with pytest.raises(KeyError, match="skill"):
            replay.add(missing)
        with pytest.raises(IndexError, match="start <= stop"):
            replay.add(ws, 2, 1)
        with pytest.raises(ValueError, match="reset_rows=True"):
            replay.add(World(2, 0, reset_rows=True).advance(2))
        assert replay.rows_added == 3

    def test_copies_are_detached(self):
        replay = make(10, 1)
        ws = World(1, 0).advance(2)
        action = torch.ones(2, 1, 2, requires_grad=True)
        ws["action"] = action
        replay.add(ws)
        with torch.no_grad():
            action.zero_()
        fields = replay.gather(replay.draw((4,)))
        assert not fields["action"].requires_grad
        assert_close(fields["action"], torch.ones(4, 2))

    def test_steps_collected_in_inference_mode_can_be_learnt_from(self):
        replay = make(10, 1)
        with torch.inference_mode():
            replay.add(World(1, 0).advance(3))
            replay.cut()
            batch = replay.batch(4)
        layer = torch.nn.Linear(2, 1)
        for out in (None, batch):
            layer(replay.gather(replay.draw((4,)), out=out)["obs/policy"]).sum().backward()


class TestMemory:
    def test_bytes_needed(self):
        # a step: 2 * 4 + 3 bytes of observations, 2 flags, then from byte 16 on skill 8, entry 8, action 2 * 4,
        # reward 4, discount 4: 48 bytes; a final observation: 11 -> 16 bytes; one open row, one row repeated
        needed = StepReplay.bytes_needed(1000, 10, GROUPS, ACTION, extras=EXTRAS, max_episode_steps=50)
        assert needed == (100 + 2) * 10 * 48 + (1 + 10 * (2 + 2)) * 16
        replay = StepReplay(1000, 10, GROUPS, ACTION, extras=EXTRAS, max_episode_steps=50)
        rows = replay._rows
        assert needed == rows.ring.memory.nbytes + rows.finals.words.nbytes

    def test_larger_than_memory(self):
        with pytest.raises(ValueError, match=r"a replay of 1000000000000 transitions needs \d+\.\d+ GiB on cpu and "):
            make(10**12, 1)

    def test_halfcheetah_takes_two_thirds_of_what_two_observations_take(self):
        # 17 and 6 floats, reward, discount, entry 8, 2 flags = 110 -> 112 bytes; with a second observation 168 and more
        groups = {"policy": ((17,), torch.float32)}
        needed = StepReplay.bytes_needed(10**6, 1, groups, ((6,), torch.float32), max_episode_steps=1000)
        assert needed / 10**6 == pytest.approx(112, abs=0.5)


class TestState:
    @pytest.mark.parametrize("n_step", [1, 3])
    @pytest.mark.parametrize("reset_rows", [False, True])
    @pytest.mark.parametrize("count", [0, 1, 3, 40])
    def test_a_restored_replay_goes_on_alike(self, count, reset_rows, n_step):
        world = World(2, 4, reset_rows)
        first = make(12, 2, n_step=n_step, gamma=0.9, reset_rows=reset_rows)
        second = StepReplay(
            12, 2, GROUPS, ACTION, extras=EXTRAS, seed=9, n_step=n_step, gamma=0.9, reset_rows=reset_rows
        )
        second.add(World(2, 8, reset_rows).advance(11))
        if count:
            first.add(world.advance(count))
        if count == 3:
            first.cut()
            world.restart()
        if first.size:
            first.draw((3,))
        second.load_state_dict(first.state_dict())
        assert (first.size, first.rows_added, first.first_row) == (second.size, second.rows_added, second.first_row)
        for steps in (0, 1, 2, 9):
            if steps:
                ws = world.advance(steps)
                first.add(ws)
                second.add(ws)
            if first.size:
                index = first.draw((50,))
                assert torch.equal(index, second.draw((50,)))
                check_transitions(second.gather(index), world.transitions(6, n_step, 0.9))
                drawn = second.gather(index)
                for name, value in first.gather(index).items():
                    if n_step == 1 or not name.startswith("next_obs/"):
                        assert torch.equal(value, drawn[name])

    def test_the_state_is_plain(self):
        def check(value):
            assert isinstance(value, torch.Tensor | int | float | str | list | dict), type(value)
            for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
                check(inner)

        replay = make(10, 2)
        replay.add(World(2, 0).advance(4))
        check(replay.state_dict())

    def test_another_replay_is_refused(self):
        state = make(10, 2).state_dict()
        for other, word in (
            (make(12, 2), "capacity 10, this one 12"),
            (make(10, 2, n_step=2), "n_step"),
            (make(10, 2, gamma=0.5), "gamma"),
            (StepReplay(10, 2, GROUPS, ((), torch.int64), extras=EXTRAS), "action"),
            (StepReplay(10, 2, GROUPS, ACTION), "skill"),
        ):
            with pytest.raises(ValueError, match=word):
                other.load_state_dict(state)
        replay = make(10, 2)
        with pytest.raises(ValueError, match="format"):
            replay.load_state_dict({**state, "bookkeeping": state["bookkeeping"] | {"format": 0}})

    def test_rows_that_are_gone(self):
        replay = make(10, 1)
        replay.add(World(1, 0).advance(30))
        assert len(replay.rows(20, 30)["env/reward"]) == 10
        for span in ((19, 25), (25, 31)):
            with pytest.raises(IndexError, match=r"20\.\.30"):
                replay.rows(*span)
        state = replay.bookkeeping()
        with pytest.raises(ValueError, match="restore those first"):
            make(10, 1).load_bookkeeping(state)

    def test_moving_keeps_contents_and_stream(self):
        replay = make(10, 2)
        world = World(2, 0)
        replay.add(world.advance(4))
        kept, version = replay.generator.get_state(), replay.version
        assert replay.to("cpu") is replay
        assert torch.equal(replay.generator.get_state(), kept)
        assert replay.version == version + 1
        replay.add(world.advance(4))
        check_transitions(replay.gather(replay.draw((50,))), world.transitions(5, 1, 0.99))
