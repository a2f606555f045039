"""Text in pictures: where it stands, how large it is, which colour it has, and that it can be read anywhere."""

from __future__ import annotations

import numpy as np
import pytest

from gaitway.envs.pictures.overlay import annotate, draw_text, rgb


def canvas(height: int = 240, width: int = 320, level: int = 90) -> np.ndarray:
    return np.full((height, width, 3), level, np.uint8)


def changed(frame: np.ndarray, level: int = 90) -> np.ndarray:
    return (frame != level).any(axis=-1)


def extent(mask: np.ndarray, axis: int) -> tuple[int, int]:
    """First and last index along `axis` where something is set."""
    places = np.flatnonzero(mask.any(axis=1 - axis))
    return int(places[0]), int(places[-1])


def test_annotate_leaves_the_picture_alone_and_draw_text_does_not():
    frame = canvas()
    marked = annotate(frame, ["time 1.00 s"])
    assert (frame == 90).all()
    assert changed(marked).sum() > 100
    assert draw_text(frame, ["time 1.00 s"]) is None
    assert (frame == marked).all()


def test_lines_at_the_left_and_right_aligned_ones_at_the_right():
    left = changed(annotate(canvas(), ["one", "one and two"]))
    right = changed(annotate(canvas(), [], ["one", "one and two"]))
    both = changed(annotate(canvas(), ["one", "one and two"], ["one", "one and two"]))
    assert (both == (left | right)).all()
    assert extent(left, 1)[0] < 10
    assert extent(left, 1)[1] < 160
    assert extent(right, 1)[0] > 160
    assert extent(right, 1)[1] > 310
    rows = slice(5, 16), slice(18, 28)  # the first and the second line of a picture of 240 rows
    ends = [extent(right[part], 1)[1] for part in rows]
    starts = [extent(left[part], 1)[0] for part in rows]
    assert abs(ends[0] - ends[1]) <= 1  # aligned at the right although the lines differ in length
    assert abs(starts[0] - starts[1]) <= 1
    assert not both[40:].any()


@pytest.mark.parametrize(("height", "letters"), [(480, 22), (240, 11), (1080, 50)])
def test_size_and_pitch_follow_the_height(height, letters):
    single = changed(annotate(canvas(height, 2 * height), ["H"]))
    top, bottom = extent(single, 0)
    assert bottom - top + 1 == pytest.approx(0.7 * letters + 2 * max(1, letters // 10), abs=2)  # a capital letter
    second = extent(changed(annotate(canvas(height, 2 * height), ["", "H"])), 0)
    assert second[0] - top == round(0.05 * height)


def test_letters_stay_legible_in_small_pictures():
    small = changed(annotate(canvas(64, 64), ["HHH", "HHH"]))
    top, bottom = extent(small, 0)
    assert bottom < 28
    assert bottom - top > 12


@pytest.mark.parametrize("colour", ["lime", "white", "black", "#0000ff", (200, 0, 0)])
@pytest.mark.parametrize("background", [0, 128, 255, "same"])
def test_any_colour_can_be_read_on_any_background(colour, background):
    frame = canvas(480, 200, 0)
    frame[:] = rgb(colour) if background == "same" else background
    marked = annotate(frame, ["HHH"], colour=colour).astype(int)
    letters = (marked == rgb(colour)).all(axis=-1)
    wanted = 0 if np.dot(rgb(colour), (0.299, 0.587, 0.114)) > 102 else 255
    edge = (marked == wanted).all(axis=-1)
    box = np.s_[14:30, 11:50]
    assert letters[box].sum() > 40
    assert edge[box].sum() > 40


def test_a_line_may_have_its_own_colour():
    marked = annotate(canvas(480, 400), [("red", "red"), "plain"], [("blue", (0, 0, 255))], colour="white")
    first, second = marked[:35, :200].reshape(-1, 3), marked[37:60, :200].reshape(-1, 3)
    assert (first == (255, 0, 0)).all(axis=1).any()
    assert (second == (255, 255, 255)).all(axis=1).any()
    assert not (second == (255, 0, 0)).all(axis=1).any()
    assert (marked[:34, 200:].reshape(-1, 3) == (0, 0, 255)).all(axis=1).any()
    default = annotate(canvas(480, 400), ["text"]).reshape(-1, 3)
    assert (default == (0, 255, 0)).all(axis=1).any()


def test_long_lines_end_in_dots_and_never_outside():
    for left, right in ((["W" * 200], []), ([], ["W" * 200])):
        mask = changed(annotate(canvas(), left, right))
        assert 0 < extent(mask, 1)[0] < 25
        assert 295 < extent(mask, 1)[1] < 320
    cut, short = (changed(annotate(canvas(), [text])) for text in ("W" * 200, "W" * 5 + "..."))
    assert (cut[:, :40] == short[:, :40]).all()
    annotate(canvas(20, 10), ["W" * 9] * 9, ["W" * 9] * 9)  # nothing fits, nothing fails


def test_different_texts_look_different_and_control_characters_are_left_out():
    assert (annotate(canvas(), ["step 1"]) != annotate(canvas(), ["step 2"])).any()
    assert (annotate(canvas(), ["a\x00b"]) == annotate(canvas(), ["ab"])).all()
    assert (annotate(canvas(), "one\ntwo") == annotate(canvas(), ["one", "two"])).all()


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"uint8 \[H, W, 3\]"):
        draw_text(np.zeros((4, 4, 3)), ["x"])
    with pytest.raises(ValueError, match="'limme' is no colour"):
        draw_text(canvas(), ["x"], colour="limme")
    with pytest.raises(ValueError, match="from 0 to 255"):
        draw_text(canvas(), [("x", (1, 2, 300))])
