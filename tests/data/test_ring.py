"""Packed rows: where variables lie, the ring and its repeated rows, memory."""

import pytest
import torch

from gaitway.core.free_memory import free_memory
from gaitway.data import ring
from gaitway.data.ring import PackedRing, RowLayout, check_memory, lazy_zeros

FIELDS = {"flag": ((), torch.bool), "x": ((3,), torch.float32), "y": ((2, 2), torch.float64), "n": ((), torch.int64)}


class TestLayout:
    def test_places(self):
        # y 32 bytes, n 8, x 12, flag 1 = 53 -> 7 words
        layout = RowLayout(FIELDS)
        assert layout.words == 7
        assert list(layout.fields) == list(FIELDS)
        bytes_at = {name: field.offset * field.dtype.itemsize for name, field in layout.fields.items()}
        assert bytes_at == {"y": 0, "n": 32, "x": 40, "flag": 52}

    def test_what_comes_first(self):
        # x fills bytes 0..12 and its words end at 16; a flag fits behind it without a gap, then y from 16 on
        layout = RowLayout(FIELDS, front=["x"])
        bytes_at = {name: field.offset * field.dtype.itemsize for name, field in layout.fields.items()}
        assert bytes_at == {"x": 0, "flag": 12, "y": 16, "n": 48}
        assert (layout.front_words, layout.words) == (2, 7)
        alone = RowLayout({"x": FIELDS["x"]})
        assert (alone.fields["x"], alone.words) == (layout.fields["x"], layout.front_words)

    def test_a_gap_is_filled(self):
        fields = {"obs": ((17,), torch.float32), "entry": ((), torch.int64), "reward": ((), torch.float32)}
        layout = RowLayout(fields, front=["obs"])
        assert layout.fields["reward"].offset == 17
        assert layout.fields["entry"].offset == 9
        assert layout.words == 10

    def test_views_share_no_byte(self):
        layout = RowLayout(FIELDS)
        memory = torch.zeros(4, 5, layout.words, dtype=torch.int64)
        views = layout.views(memory)
        assert {name: tuple(view.shape) for name, view in views.items()} == {
            "flag": (4, 5),
            "x": (4, 5, 3),
            "y": (4, 5, 2, 2),
            "n": (4, 5),
        }
        generator = torch.Generator().manual_seed(0)
        written = {
            name: torch.randn(view.shape, generator=generator).mul(9).to(view.dtype) for name, view in views.items()
        }
        for name, view in views.items():
            view.copy_(written[name])
        for name, view in layout.views(memory[2:, 1:]).items():
            assert torch.equal(view, written[name][2:, 1:])

    def test_nothing_to_store(self):
        layout = RowLayout({"empty": ((0,), torch.float32)})
        assert PackedRing(layout, 3).take(torch.tensor([0, 2]))["empty"].shape == (2, 0)


class TestRing:
    def numbered(self, streams, rows, mirror):
        return PackedRing(RowLayout({"x": ((), torch.int64)}), rows, streams, mirror)

    @pytest.mark.parametrize("mirror", [0, 1, 3])
    def test_rows_close_and_are_repeated(self, mirror):
        packed, held, value = self.numbered(2, 5, mirror), {}, 0
        for count in (1, 3, 5, 2, 4, 5, 5):
            numbers = torch.arange(value, value + count)
            packed.put(packed.columns["x"], value % 5, torch.stack((numbers, 100 + numbers)))
            held.update({number % 5: number for number in numbers.tolist()})
            value += count
            column = packed.columns["x"]
            for position, number in held.items():
                assert column[:, position].tolist() == [number, 100 + number]
                if position < mirror:
                    assert column[:, 5 + position].tolist() == [number, 100 + number]

    def test_whole_rows_or_one_column(self):
        packed = PackedRing(RowLayout(FIELDS), 4, streams=1, mirror=2)
        block = torch.arange(3 * packed.layout.words).view(1, 3, -1)
        packed.put(packed.memory, 3, block)
        assert torch.equal(packed.memory[0, [3, 0, 1]], block[0])
        assert torch.equal(packed.memory[0, [4, 5]], block[0, 1:])
        packed.put(packed.columns["n"], 0, torch.tensor([[-1]]))
        assert packed.columns["n"][0, [0, 4]].tolist() == [-1, -1]

    def test_taken_rows_are_a_copy(self):
        packed = self.numbered(1, 6, 0)
        packed.put(packed.columns["x"], 0, torch.arange(6)[None])
        taken = packed.take(torch.tensor([[5, 0], [2, 2]]))["x"]
        assert taken.tolist() == [[5, 0], [2, 2]]
        taken.zero_()
        assert packed.columns["x"][0].tolist() == [0, 1, 2, 3, 4, 5]

    def test_moving(self):
        packed = self.numbered(1, 3, 0)
        packed.put(packed.columns["x"], 0, torch.arange(3)[None])
        packed.to("cpu")
        packed.put(packed.columns["x"], 1, torch.tensor([[9]]))
        assert packed.take(torch.arange(3))["x"].tolist() == [0, 9, 2]


class TestMemory:
    def test_zeros_of_any_kind(self):
        for dtype in (torch.bool, torch.float32, torch.int64, torch.complex128):
            zeros = lazy_zeros((3, 4), dtype, "cpu")
            assert zeros.dtype is dtype
            assert torch.equal(zeros, torch.zeros(3, 4, dtype=dtype))
        with torch.inference_mode():
            assert not lazy_zeros((2,), torch.float32, "cpu").is_inference()

    def test_half_of_all_memory_is_not_touched(self):
        zeros = lazy_zeros((free_memory("cpu") // 2,), torch.uint8, "cpu")
        zeros[-1] = 1
        assert zeros[:10].sum() == 0

    def test_the_sentence(self, monkeypatch):
        monkeypatch.setattr(ring, "free_memory", lambda device: 3 * 2**30)
        check_memory(3 * 2**30, "cpu", "a replay of 10 steps", 100)
        with pytest.raises(ValueError) as caught:
            check_memory(4 * 2**30, "cpu", "a replay of 40000000 transitions", 2**32 / 4e7)
        assert str(caught.value) == (
            "a replay of 40000000 transitions needs 4.00 GiB on cpu and 3.00 GiB are free; a capacity of 30000000 fits "
            "(107 bytes each)"
        )

    def test_a_system_that_does_not_say(self, monkeypatch):
        monkeypatch.setattr(ring, "free_memory", lambda device: None)
        check_memory(2**60, "cpu", "a replay", 1)
