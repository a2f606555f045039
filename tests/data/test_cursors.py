"""T-FILES: a set is written, its writer killed, reopened and read by cursors; what every pass gives, in which order."""

import collections
import dataclasses
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

from gaitway.core.files import load_state, save_state
from gaitway.data import trajectories
from gaitway.data.cursors import Cursors
from gaitway.data.episodes import DatasetError, Episodes
from gaitway.data.recorded_env import RecordedEnv
from gaitway.data.trajectories import Trajectories, TrajectoryWriter
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup

GROUP = ObservationGroup("policy", (Component("x", 2),), (2,))
SPEC = EnvSpec("test/world", (GROUP,), ActionSpec("continuous", ("push",), (-2.0,), (2.0,)), 0.02, 0)


def episodes(*lengths, first=0, terminated=()):
    """Episodes whose observation rows and steps carry their number: step s has action s, x = (episode, frame)."""
    steps, ends = sum(lengths), np.cumsum(lengths) - 1
    rows = [(first + number, frame) for number, length in enumerate(lengths) for frame in range(length + 1)]
    flags = torch.zeros(steps, dtype=torch.bool)
    flags[[int(ends[number]) for number in terminated]] = True
    return Episodes(
        {
            "env/obs/policy": torch.tensor(rows, dtype=torch.float32),
            "action": torch.arange(steps, dtype=torch.float32)[:, None],
            "env/reward": torch.ones(steps),
            "env/terminated": flags,
            "env/truncated": torch.zeros(steps, dtype=torch.bool),
        },
        lengths,
    )


def written(folder, *parts, **options):
    with TrajectoryWriter(folder, SPEC, **options) as writer:
        for part in parts:
            writer.add_episodes(part)
            writer.flush()
    return Trajectories(folder)


def seen(ws):
    """How often each (episode, frame) is in the valid rows."""
    valid = ws["env/valid"]
    return collections.Counter(map(tuple, ws["env/obs/policy"][: ws.T][valid].int().tolist()))


def every_frame(lengths, times):
    return collections.Counter({(e, f): times for e, length in enumerate(lengths) for f in range(length)})


class TestPasses:
    def test_every_step_comes_once_per_loop(self, tmp_path):
        data = written(tmp_path, episodes(3, 5, terminated=[1]), episodes(2, 4, first=2))
        for loops, shuffle in ((1, False), (2, False), (2, True), (3, True)):
            cursors = Cursors(data, 3, loops=loops, shuffle=shuffle)
            ws = cursors.rows(40)
            assert cursors.exhausted
            assert seen(ws) == every_frame((3, 5, 2, 4), loops)
            assert cursors.passes == loops

    def test_ends_are_marked_at_the_end_of_the_episode_before(self):
        ws = Cursors(episodes(2, 3, terminated=[0]), 1, loops=1).rows(6)
        assert ws["env/terminated"][:, 0].tolist() == [False, True, False, False, False, False]
        assert ws["env/truncated"][:, 0].tolist() == [False, False, False, False, True, False]  # a recording that ends
        assert ws["env/valid"][:, 0].tolist() == [True] * 5 + [False]
        # row 2 begins episode 1; what episode 0 reached is its final observation
        assert ws["env/obs/policy"][:, 0].int().tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [1, 2], [1, 3], [1, 3]]
        following = ws.following("env/obs/policy")[:5, 0].int().tolist()
        assert following == [[0, 1], [0, 2], [1, 1], [1, 2], [1, 3]]
        assert ws["env/reward"][:, 0].tolist() == [1.0] * 5 + [0.0]
        assert ws["action"][:5, 0, 0].tolist() == [0, 1, 2, 3, 4]

    def test_a_loop_leaves_the_other_cursors_where_they_are(self):
        ws = Cursors(episodes(6, 2), 2, loops=None).rows(6)
        assert ws["env/obs/policy"][:6, 0].int().tolist() == [[0, frame] for frame in range(6)]
        assert ws["env/obs/policy"][:6, 1].int().tolist() == [[1, 0], [1, 1], [0, 0], [0, 1], [0, 2], [0, 3]]

    def test_more_cursors_than_episodes(self):
        ws = Cursors(episodes(2, 3), 5, loops=1).rows(3)
        assert ws["env/valid"][0].all()
        assert set(ws["env/obs/policy"][0, :, 0].int().tolist()) == {0, 1}

    def test_first_frames(self):
        cursors = Cursors(episodes(2, *(10,) * 50), 400, loops=None, start_frames=(3, 6))
        first = cursors.observation()["policy"].int().tolist()
        frames = collections.Counter(frame for episode, frame in first if episode)
        assert set(frames) == {3, 4, 5}
        assert min(frames.values()) > 90  # of 392 each a third; the standard deviation is 9.3
        assert {frame for episode, frame in first if not episode} == {1}  # an episode of two steps

    def test_the_latest_alone(self, tmp_path):
        data = written(tmp_path, episodes(3, 5), episodes(2, 4, first=2))
        assert seen(Cursors(data, 2, loops=1, keep_latest=3).rows(30)) == {
            key: n for key, n in every_frame((3, 5, 2, 4), 1).items() if key[0] >= 1
        }

    def test_what_is_refused(self, tmp_path):
        with pytest.raises(ValueError, match="0 <= a < b"):
            Cursors(episodes(2), 1, start_frames=(2, 2))
        with pytest.raises(ValueError, match="at least 1"):
            Cursors(episodes(2), 1, loops=0)
        with pytest.raises(ValueError, match="can be followed"):
            Cursors(episodes(2), 1, follow=True)
        TrajectoryWriter(tmp_path, SPEC).close()
        with pytest.raises(DatasetError, match="holds no episodes after 0 seconds; is its recorder running"):
            Cursors(Trajectories(tmp_path), 1, follow=True, patience_s=0.0)


class TestFollowing:
    def test_new_episodes_come_with_the_next_pass(self, tmp_path):
        data = written(tmp_path, episodes(3))
        cursors = Cursors(data, 1, loops=None, follow=True)
        assert set(seen(cursors.rows(2))) == {(0, 0), (0, 1)}
        written(tmp_path, episodes(2, first=1))
        assert cursors.rows(5)["env/obs/policy"][:5, 0, 0].int().tolist() == [0, 0, 0, 0, 1]  # the end, a pass, the new
        assert cursors.num_episodes == 2

    def test_groups_that_nobody_reads_are_left_out_of_what_comes_later_too(self, tmp_path):
        spec = dataclasses.replace(SPEC, groups=(GROUP, dataclasses.replace(GROUP, name="more")))

        def both(*lengths, first=0):
            made = episodes(*lengths, first=first)
            more = {"env/obs/more": made.variables["env/obs/policy"] + 0.5}
            return Episodes(made.variables | more, made.lengths)

        with TrajectoryWriter(tmp_path, spec) as writer:
            writer.add_episodes(both(2, 3))
        cursors = Cursors(Trajectories(tmp_path), 2, loops=2, follow=True, groups=("policy",))
        with TrajectoryWriter(tmp_path, spec) as writer:
            writer.add_episodes(both(4, first=2))
        assert seen(cursors.rows(12)) == every_frame((2, 3), 1) + every_frame((2, 3, 4), 1)
        assert cursors.groups == ("policy",)
        assert not cursors.has("env/obs/more")

    def test_an_episode_that_is_dropped_meanwhile_is_read_to_its_end(self, tmp_path):
        data = written(tmp_path, episodes(4), keep_latest=1)
        cursors = Cursors(data, 2, loops=None, follow=True, keep_latest=1)
        cursors.rows(1)
        written(tmp_path, episodes(3, first=1), keep_latest=1)
        assert [chunk.name for chunk in Trajectories(tmp_path).listed] == ["000001"]
        ws = cursors.rows(4)
        assert ws["env/obs/policy"][:, 0].int().tolist() == [[0, 1], [0, 2], [0, 3], [1, 0], [1, 1]]
        assert cursors.num_episodes == 1

    def test_resuming_is_exact(self, tmp_path):
        data = written(tmp_path, *(episodes(3, 2, 4, first=3 * n) for n in range(3)))
        for options in ({}, {"follow": True, "keep_latest": 5}, {"start_frames": (0, 3)}):
            one = Cursors(data, 4, loops=None, shuffle=True, seed=3, **options)
            one.rows(7)
            state = one.state_dict()
            other = Cursors(Trajectories(tmp_path), 4, loops=None, shuffle=True, seed=9, **options)
            other.load_state_dict(state)
            expected, found = one.rows(30), other.rows(30)
            for name in expected:
                assert torch.equal(expected[name], found[name]), name

    def test_resuming_after_the_set_went_on(self, tmp_path):
        data = written(tmp_path, episodes(6, 6), keep_latest=2)
        cursors = Cursors(data, 2, loops=None, follow=True)
        cursors.rows(2)
        state = cursors.state_dict()
        for number in range(2, 6):
            written(tmp_path, episodes(3, first=number), keep_latest=2)
        again = Cursors(Trajectories(tmp_path), 2, loops=None, follow=True)
        again.load_state_dict(state)
        assert set(again.rows(6)["env/obs/policy"][:6, :, 0].int().flatten().tolist()) == {4, 5}
        plain = Cursors(data := written(tmp_path / "plain", episodes(4)), 1)
        state = plain.state_dict() | {"order": torch.tensor([0, 1]), "chunks": {}}
        with pytest.raises(DatasetError, match="has lost episodes"):
            Cursors(data, 1).load_state_dict(state)

    def test_a_chunk_that_changed_is_named(self, tmp_path):
        cursors = Cursors(written(tmp_path, episodes(4)), 1, follow=True, loops=None)
        state = cursors.state_dict() | {"chunks": {"000000": "f" * 64}}
        with pytest.raises(DatasetError, match=r"chunk 000000 of the dataset .* has changed since this run read it"):
            cursors.load_state_dict(state)


class TestKeeping:
    def test_the_oldest_chunks_go(self, tmp_path):
        with TrajectoryWriter(tmp_path, SPEC, keep_latest=4) as writer:
            for number in range(5):
                writer.add_episodes(episodes(2, 2, first=2 * number))
                writer.flush()
                assert writer.num_episodes <= 4
        data = Trajectories(tmp_path)
        assert [(chunk.name, chunk.first) for chunk in data.listed] == [("000003", 6), ("000004", 8)]
        assert {path.name for path in tmp_path.iterdir()} == {"index", "000003", "000004"}
        assert data.transitions()["obs/policy"][:, 0].unique().tolist() == [6, 7, 8, 9]
        with TrajectoryWriter(tmp_path, SPEC) as writer:  # numbers go on
            writer.add_episodes(episodes(1, first=10))
        assert [(chunk.name, chunk.first) for chunk in Trajectories(tmp_path).listed][-1] == ("000005", 10)
        with pytest.raises(ValueError, match="keep_latest is 0"):
            TrajectoryWriter(tmp_path, SPEC, keep_latest=0)

    def test_what_is_taken_back(self, tmp_path):
        writer = TrajectoryWriter(tmp_path, SPEC, keep_latest=3)
        writer.add_episodes(episodes(2))
        state = writer.state_dict()
        for number in range(1, 6):
            writer.add_episodes(episodes(1, first=number))
            writer.flush()
        writer.load_state_dict(state)  # the first episode was dropped meanwhile: it does not come back
        assert Trajectories(tmp_path).num_episodes == 0
        writer.add_episodes(episodes(2, first=7))
        writer.flush()
        assert [(chunk.name, chunk.first) for chunk in Trajectories(tmp_path).listed] == [("000001", 3)]


class TestCodecs:
    def test_stored_small_and_read_within_the_bound(self, tmp_path):
        part = episodes(3, 4)
        part.variables["env/obs/policy"].uniform_(0, 1)
        data = written(tmp_path, part, codecs={"policy": "u8_unit", "action": {"name": "u16_range", "high": 10}})
        stored, _ = load_state(tmp_path / "000000", kind=trajectories.CHUNK)
        assert stored["variables"]["env/obs/policy"].dtype is torch.uint8
        assert stored["variables"]["action"].dtype is torch.uint16
        found = next(data.chunks()).variables
        assert (found["env/obs/policy"] - part.variables["env/obs/policy"]).abs().max() <= 1 / 510 + 1e-7
        assert (found["action"] - part.variables["action"]).abs().max() <= 10 / 131070 + 1e-6
        assert found["env/obs/policy"].dtype is torch.float32
        written(tmp_path, episodes(1))  # a writer that names none goes on with those of the dataset
        assert Trajectories(tmp_path).codecs == data.codecs

    def test_what_is_refused(self, tmp_path):
        with pytest.raises(ValueError, match="a codec for 'depth', which is not recorded"):
            TrajectoryWriter(tmp_path / "a", SPEC, codecs={"depth": "f16"})
        with pytest.raises(ValueError, match="codecs are for float32"):
            TrajectoryWriter(tmp_path / "b", SPEC, codecs={"env/terminated": "f16"})
        written(tmp_path / "c", episodes(1), codecs={"policy": "f16"})
        with pytest.raises(DatasetError, match=r"stores env/obs/policy as f16 and env/obs/policy as u8_unit is asked"):
            TrajectoryWriter(tmp_path / "c", SPEC, codecs={"policy": "u8_unit"})


class TestFiles:
    def test_a_dataset_of_format_1_is_read_and_appended_to(self, tmp_path):
        data = written(tmp_path, episodes(3, 2))
        index, _ = load_state(tmp_path / "index", kind=trajectories.INDEX)
        chunks = [{name: chunk[name] for name in ("name", "steps", "episodes")} for chunk in index["chunks"]]
        old = {name: index[name] for name in ("spec", "extras", "description")} | {"format": 1, "chunks": chunks}
        save_state(tmp_path / "index", old, kind=trajectories.INDEX)
        again = Trajectories(tmp_path)
        assert torch.equal(again.transitions()["action"], data.transitions()["action"])
        assert again.listed[0].sha256 is None
        data = written(tmp_path, episodes(1, first=2))
        assert [chunk.first for chunk in data.listed] == [0, 2]
        assert data.num_steps == 6

    def test_a_chunk_of_equal_size_in_the_place_of_another_is_found(self, tmp_path):
        written(tmp_path / "one", episodes(3, 2))
        written(tmp_path / "two", episodes(3, 2, first=7))
        (tmp_path / "one" / "000000").rename(tmp_path / "away")
        (tmp_path / "two" / "000000").rename(tmp_path / "one" / "000000")
        with pytest.raises(DatasetError, match="holds other episodes than the index says"):
            list(Trajectories(tmp_path / "one").chunks())

    def test_a_recorder_that_is_killed_loses_the_open_chunk_alone(self, tmp_path):
        """`kill -9` while it writes; a torn chunk is ignored, and the next writer removes it."""
        program = textwrap.dedent(f"""
            import sys
            sys.path.insert(0, {os.path.dirname(__file__)!r})
            from test_cursors import SPEC, TrajectoryWriter, episodes
            writer = TrajectoryWriter({str(tmp_path / "data")!r}, SPEC, chunk_steps=1)
            for number in range(10_000):
                writer.add_episodes(episodes(1 + number % 3, first=number))
                print(number, flush=True)
        """)
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        told = next(int(line) for line in process.stdout if int(line) == 13)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert Trajectories(tmp_path / "data").num_episodes >= told + 1  # what was told to be written, perhaps more
        data = Trajectories(tmp_path / "data")
        lengths = tuple(1 + number % 3 for number in range(data.num_episodes))
        assert seen(Cursors(data, 3, loops=2).rows(2 * sum(lengths))) == every_frame(lengths, 2)
        (tmp_path / "data" / "000900").mkdir()  # a chunk that no index names
        TrajectoryWriter(tmp_path / "data", SPEC).close()
        assert not (tmp_path / "data" / "000900").exists()


def test_a_recording_as_an_environment(tmp_path):
    env = RecordedEnv(Cursors(written(tmp_path, episodes(2, 3, terminated=[0])), 2, loops=1), SPEC)
    assert env.spec.reset_rows
    assert env.label("teacher/action")[:, 0].tolist() == [0, 2]  # without labels the actions are the labels
    step = env.step(torch.full((2, 1), 99.0))
    assert step.obs["policy"].tolist() == [[0, 1], [1, 1]]
    state = env.state_dict()
    expected = [env.step(torch.zeros(2, 1)).obs["policy"] for _ in range(3)]
    assert env.exhausted
    env.load_state_dict(state)
    assert not env.exhausted
    for value in expected:
        assert torch.equal(env.step(torch.zeros(2, 1)).obs["policy"], value)
    assert env.reset()["policy"].tolist() == [[0, 0], [1, 0]]
    assert dataclasses.replace(env.spec, reset_rows=False) == SPEC
