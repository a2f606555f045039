"""ReplayJournal: what is new is written, what was written comes back, what is damaged is refused."""

import json
import shutil

import pytest
import torch
from step_model import World, check_transitions, make, make_with_decisions

from gaitway.core.files import STRUCTURE_FILE, TENSOR_FILE, StateFileError, load_state, save_state
from gaitway.data import replay_journal
from gaitway.data.replay_journal import KIND, ReplayFileError, ReplayJournal


def spans(names):
    return [tuple(int(part) for part in name.split("-")[:2]) for name in names]


def on_disk(folder):
    return sorted(path.name for path in folder.iterdir())


def through_disk(folder, manifest):
    """The manifest as a checkpoint stores it."""
    save_state(folder / "manifest", manifest, kind="test")
    return load_state(folder / "manifest", kind="test")[0]


def alike(first, second, world=None, **model):
    assert (first.size, first.rows_added, first.first_row) == (second.size, second.rows_added, second.first_row)
    index = first.draw((60,))
    assert torch.equal(index, second.draw((60,)))
    drawn = second.gather(index)
    for name, value in first.gather(index).items():
        if first.n_step == 1 or not name.startswith("next_obs/"):  # those of windows that terminated mean nothing
            assert torch.equal(value, drawn[name]), name
    if world is not None:
        check_transitions(drawn, world.transitions(**model))


class TestWriting:
    def test_only_what_is_new(self, tmp_path, monkeypatch):
        written = []
        save = replay_journal.save_state

        def counted(folder, state, **options):
            written.append(len(state["env/reward"]))
            save(folder, state, **options)

        monkeypatch.setattr(replay_journal, "save_state", counted)
        world, replay, journal = World(2, 0), make(200, 2), ReplayJournal(tmp_path)
        replay.add(world.advance(30))
        first = journal.write(replay)
        assert written == [29]  # the newest row is in the bookkeeping
        replay.add(world.advance(7))
        second = journal.write(replay)
        assert written == [29, 7]
        assert spans(second["chunks"]) == [(0, 29), (29, 36)]
        assert second["chunks"][:1] == first["chunks"]
        third = journal.write(replay)
        assert written == [29, 7]
        assert third["chunks"] == second["chunks"] == on_disk(tmp_path)

    def test_large_additions_make_several_chunks(self, tmp_path, monkeypatch):
        world, replay = World(2, 0), make(200, 2)
        monkeypatch.setattr(replay_journal, "CHUNK_BYTES", 10 * replay.row_bytes)
        replay.add(world.advance(36))
        manifest = ReplayJournal(tmp_path).write(replay)
        assert spans(manifest["chunks"]) == [(0, 10), (10, 20), (20, 30), (30, 35)]
        restored = make(200, 2)
        ReplayJournal(tmp_path).read(restored, manifest)
        alike(replay, restored)

    def test_chunks_that_the_ring_overwrote_are_not_listed(self, tmp_path):
        world, replay, journal = World(1, 0), make(10, 1), ReplayJournal(tmp_path)
        for count, listed in ((8, [(0, 7)]), (5, [(0, 7), (7, 12)]), (6, [(7, 12), (12, 18)]), (40, [(49, 58)])):
            replay.add(world.advance(count))
            assert spans(journal.write(replay)["chunks"]) == listed

    def test_a_chunk_that_was_removed_is_written_again(self, tmp_path):
        world, replay, journal = World(1, 0), make(50, 1), ReplayJournal(tmp_path)
        replay.add(world.advance(8))
        shutil.rmtree(tmp_path / journal.write(replay)["chunks"][0])
        replay.add(world.advance(8))
        assert spans(journal.write(replay)["chunks"]) == [(0, 15)]

    def test_a_cleared_replay_begins_anew(self, tmp_path):
        replay, journal = make(50, 1), ReplayJournal(tmp_path)
        replay.add(World(1, 0).advance(8))
        journal.write(replay)
        replay.clear()
        replay.add(World(1, 1).advance(20))
        manifest = journal.write(replay)
        assert spans(manifest["chunks"]) == [(0, 19)]
        restored = make(50, 1)
        journal.read(restored, manifest)
        alike(replay, restored)

    def test_nothing_yet(self, tmp_path):
        for rows in (0, 1):
            replay, restored = make(10, 2), make(10, 2)
            replay.add(World(2, 0).advance(1), 0, rows)
            manifest = through_disk(tmp_path, ReplayJournal(tmp_path / "chunks").write(replay))
            assert manifest["chunks"] == []
            ReplayJournal(tmp_path / "chunks").read(restored, manifest)
            assert restored.rows_added == rows


class TestReading:
    @pytest.mark.parametrize("n_step", [1, 3])
    @pytest.mark.parametrize("reset_rows", [False, True])
    def test_goes_on_alike_at_any_time(self, tmp_path, n_step, reset_rows):
        world = World(2, 3, reset_rows)
        options = {"n_step": n_step, "gamma": 0.9, "reset_rows": reset_rows}
        replay, journal = make(24, 2, **options), ReplayJournal(tmp_path / "chunks")
        for count in (5, 1, 9, 2, 30, 3):
            replay.add(world.advance(count))
            if count == 2:
                replay.cut()
                world.restart()
            manifest = through_disk(tmp_path, journal.write(replay))
            restored = make(24, 2, **options)
            ReplayJournal(tmp_path / "chunks").read(restored, manifest)
            alike(replay, restored, world, capacity_rows=12, n_step=n_step, gamma=0.9)
            ws = world.advance(1)
            replay.add(ws)
            restored.add(ws)
            alike(replay, restored, world, capacity_rows=12, n_step=n_step, gamma=0.9)

    @pytest.mark.parametrize("only", [False, True])
    @pytest.mark.parametrize("reset_rows", [False, True])
    def test_windows_of_decisions_go_on_alike(self, tmp_path, only, reset_rows):
        """Written, killed and read at any time: lengths of windows, and which of them can be drawn, come back."""
        world = World(2, 3, reset_rows, interval=4)
        replay, journal = make_with_decisions(24, world, only, gamma=0.9), ReplayJournal(tmp_path / "chunks")
        lengths: set[int] = set()
        for count in (9, 1, 2, 30, 3):
            replay.add(world.advance(count))
            if count == 2:
                replay.cut()
                world.restart()
            manifest = through_disk(tmp_path, journal.write(replay))
            restored = make_with_decisions(24, world, only, gamma=0.9)
            ReplayJournal(tmp_path / "chunks").read(restored, manifest)
            for steps in (0, 1):
                if steps:
                    ws = world.advance(steps)
                    replay.add(ws)
                    restored.add(ws)
                alike(replay, restored)
                every = restored.slots(restored.first_row, restored.stop_row)
                fields, expected = restored.gather(every), world.decision_windows(12, 0.9, only)
                assert check_transitions(fields, expected) == set(expected)
                lengths |= set(fields["steps"].tolist())
        assert lengths == {1, 2, 3, 4}

    def test_an_interruption_after_the_last_write_is_kept(self, tmp_path):
        world, replay, journal = World(2, 0, ends=0), make(40, 2), ReplayJournal(tmp_path)
        replay.add(world.advance(6))
        journal.write(replay)
        replay.cut()
        world.restart()
        replay.add(world.advance(4))
        restored = make(40, 2)
        journal.read(restored, journal.write(replay))
        alike(replay, restored, world, capacity_rows=20, n_step=1, gamma=0.99)

    def test_nothing_is_written_twice_after_reading(self, tmp_path):
        world, replay, journal = World(2, 0), make(100, 2), ReplayJournal(tmp_path)
        replay.add(world.advance(20))
        manifest = journal.write(replay)
        restored, resumed = make(100, 2), ReplayJournal(tmp_path)
        resumed.read(restored, manifest)
        restored.add(world.advance(5))
        assert spans(resumed.write(restored)["chunks"]) == [(0, 19), (19, 24)]

    def test_going_back_to_an_older_checkpoint(self, tmp_path):
        world, replay, journal = World(2, 0), make(100, 2), ReplayJournal(tmp_path)
        replay.add(world.advance(10))
        older = journal.write(replay)
        replay.add(world.advance(10))
        abandoned = journal.write(replay)
        journal.read(replay, older)
        assert replay.rows_added == 10
        replay.cut()
        replay.add(World(2, 9).advance(10))
        taken = journal.write(replay)
        assert taken["chunks"][0] == older["chunks"][0]
        assert spans(taken["chunks"]) == spans(abandoned["chunks"])
        assert taken["chunks"][1] != abandoned["chunks"][1]
        for manifest in (abandoned, taken):  # both are whole until somebody tidies
            journal.read(make(100, 2), manifest)
        journal.tidy(older["chunks"] + taken["chunks"])
        assert on_disk(tmp_path) == sorted(taken["chunks"])

    def test_tidying(self, tmp_path):
        ReplayJournal(tmp_path / "nowhere").tidy([])
        replay, journal = make(100, 1), ReplayJournal(tmp_path)
        replay.add(World(1, 0).advance(10))
        kept = journal.write(replay)["chunks"]
        shutil.copytree(tmp_path / kept[0], tmp_path / "0-9-0123456789ab")
        shutil.copytree(tmp_path / kept[0], tmp_path / ".9-12-0123456789ab.partial-0123456789ab")
        (tmp_path / "notes.txt").write_text("mine")
        journal.tidy(kept)
        assert on_disk(tmp_path) == [*kept, "notes.txt"]

    def test_another_replay_is_refused_and_left_as_it_was(self, tmp_path):
        replay, other, journal = make(100, 1), make(90, 1), ReplayJournal(tmp_path)
        replay.add(World(1, 0).advance(10))
        other.add(World(1, 0).advance(3))
        with pytest.raises(ValueError, match="capacity"):
            journal.read(other, journal.write(replay))
        assert other.size == 3


class TestDamage:
    @pytest.fixture
    def written(self, tmp_path):
        world, replay, journal = World(1, 0), make(100, 1), ReplayJournal(tmp_path)
        for _ in range(2):
            replay.add(world.advance(10))
            manifest = journal.write(replay)
        return tmp_path, manifest

    def refused(self, written, words, advice="another checkpoint"):
        folder, manifest = written
        replay = make(100, 1)
        replay.add(World(1, 5).advance(3))
        with pytest.raises(ReplayFileError, match=words) as caught:
            ReplayJournal(folder).read(replay, manifest)
        assert isinstance(caught.value, StateFileError)
        assert "\n" not in str(caught.value)
        assert advice in str(caught.value)
        assert replay.size == 0

    def test_missing(self, written):
        shutil.rmtree(written[0] / written[1]["chunks"][0])
        self.refused(written, rf"{written[1]['chunks'][0]} is missing; put it back")

    def test_truncated(self, written):
        path = written[0] / written[1]["chunks"][1] / TENSOR_FILE
        path.write_bytes(path.read_bytes()[:-5])
        self.refused(written, rf"{written[1]['chunks'][1]} is damaged .* bytes instead of")

    def test_one_bit(self, written):
        path = written[0] / written[1]["chunks"][0] / TENSOR_FILE
        content = bytearray(path.read_bytes())
        content[-3] ^= 1
        path.write_bytes(content)
        self.refused(written, "was changed")

    def test_structure(self, written):
        path = written[0] / written[1]["chunks"][0] / STRUCTURE_FILE
        path.write_text(json.dumps(json.loads(path.read_text()) | {"kind": "other"}))
        self.refused(written, "cannot be restored", advice="check the path")

    def test_a_whole_chunk_exchanged_for_another(self, written):
        folder, manifest = written
        rows, _ = load_state(folder / manifest["chunks"][0], kind=KIND)
        rows["env/reward"] = rows["env/reward"] + 1
        save_state(folder / manifest["chunks"][0], rows, kind=KIND)
        self.refused(written, "holds other rows than its name says")

    def test_a_gap(self, written):
        folder, manifest = written
        self.refused((folder, manifest | {"chunks": manifest["chunks"][1:]}), "goes on with row 0")

    def test_a_name_that_leads_elsewhere(self, written):
        folder, manifest = written
        self.refused((folder, manifest | {"chunks": ["../elsewhere"]}), "not the name of a replay chunk")

    def test_a_chunk_too_few_at_the_end(self, written):
        folder, manifest = written
        with pytest.raises(ValueError, match="restore those first"):
            ReplayJournal(folder).read(make(100, 1), manifest | {"chunks": manifest["chunks"][:1]})
