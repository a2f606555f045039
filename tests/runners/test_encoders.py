"""Encoders: right speed, no process left behind, what ffmpeg complained about; and what a film may be called."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from gaitway.runners.encoders import (
    Encoder,
    GifEncoder,
    Mp4Encoder,
    check_kind,
    check_size,
    make_encoder,
    video_problem,
)

needs_ffmpeg = pytest.mark.skipif(video_problem() is not None, reason="there is no ffmpeg here")


def frames(number: int, height: int = 24, width: int = 32) -> list[np.ndarray]:
    return [np.full((height, width, 3), 7 * index, np.uint8) for index in range(number)]


def write_all(encoder: Encoder, pictures: list[np.ndarray]) -> None:
    for picture in pictures:
        encoder.write(picture)


def durations(path) -> list[int]:
    """Milliseconds of every frame of a GIF."""
    with Image.open(path) as image:
        found = []
        for index in range(image.n_frames):
            image.seek(index)
            found.append(image.info["duration"])
        return found


@pytest.mark.parametrize(
    ("fps", "number", "expected"),
    [
        (25, 4, [40, 40, 40, 40]),
        (40, 6, [20, 30, 30, 20, 20, 30]),  # starts 0 2.5 5 7.5 ... hundredths, rounded to even: 0 2 5 8 10 12 | 15
        (50, 3, [20, 20, 20]),
        (100, 6, [20, 20, 20]),  # a GIF cannot be faster: every second frame
        (30, 3, [30, 40, 30]),
    ],
)
def test_a_gif_plays_in_real_time_at_any_rate(tmp_path, fps, number, expected):
    encoder = GifEncoder(tmp_path / "film.gif", fps, (32, 24))
    for frame in frames(number):
        encoder.write(frame)
    encoder.finish()
    assert durations(tmp_path / "film.gif") == expected
    assert sum(expected) == pytest.approx(1000 * number / fps, abs=10)


def test_a_gif_shows_the_frames_up_to_the_last(tmp_path):
    encoder = make_encoder(tmp_path / "film.GIF", 10, (32, 24))
    assert isinstance(encoder, GifEncoder)
    pictures = frames(5)
    pictures[4][:, :16] = (200, 10, 10)
    for frame in pictures:
        encoder.write(frame)
    encoder.finish()
    with Image.open(tmp_path / "film.GIF") as image:
        assert (image.n_frames, image.size, image.info["loop"]) == (5, (32, 24), 0)
        image.seek(4)
        assert image.convert("RGB").getpixel((3, 3)) == pytest.approx((200, 10, 10), abs=3)


def test_a_single_frame_is_a_film(tmp_path):
    encoder = GifEncoder(tmp_path / "film.gif", 10, (32, 24))
    encoder.write(frames(1)[0])
    encoder.finish()
    assert Image.open(tmp_path / "film.gif").n_frames == 1


def test_a_gif_that_was_stopped_is_not_written(tmp_path):
    encoder = GifEncoder(tmp_path / "film.gif", 10, (32, 24))
    encoder.write(frames(1)[0])
    encoder.kill()
    with pytest.raises(OSError, match="stopped"):
        encoder.finish()
    assert list(tmp_path.iterdir()) == []


@needs_ffmpeg
def test_killing_ffmpeg_ends_the_process_and_says_so_once(tmp_path):
    encoder = Mp4Encoder(tmp_path / "film.mp4", 25, (32, 24))
    encoder.write(frames(1)[0])
    encoder.kill()
    assert encoder.process.poll() is not None
    encoder.kill()
    with pytest.raises(OSError, match="ffmpeg ended with code -9"):
        write_all(encoder, frames(1, 720, 1280) * 9)


@needs_ffmpeg
def test_what_ffmpeg_complains_about_is_passed_on(tmp_path):
    encoder = Mp4Encoder(tmp_path / "no" / "folder.mp4", 25, (32, 24))
    with pytest.raises(OSError, match=r"ffmpeg ended with code \d+: .*No such file or directory"):
        write_all(encoder, frames(1) * 9999)
    encoder.kill()


@needs_ffmpeg
def test_an_encoder_that_finished_leaves_no_process(tmp_path):
    encoder = make_encoder(tmp_path / "film.mp4", 25, (32, 24))
    assert isinstance(encoder, Mp4Encoder)
    for frame in frames(3):
        encoder.write(frame)
    encoder.finish()
    assert encoder.process.poll() == 0
    encoder.kill()


@pytest.mark.parametrize("size", [(0, 48), (64, -2), (9000, 48), (63, 48)])
def test_sizes_that_no_film_can_have(size):
    with pytest.raises(ValueError, match="the video size is"):
        check_size(size)


def test_odd_sizes_are_for_gifs_and_others_name_the_nearest():
    assert check_size((63, 47), ".gif") == (63, 47)
    with pytest.raises(ValueError, match=r"even numbers of pixels, e\.g\. 62 x 46"):
        check_size((63, 47))


def test_kinds():
    assert check_kind("a/film.MP4").name == "film.MP4"
    for name in ("film", "film.avi", "mp4"):
        with pytest.raises(ValueError, match=r"let its name end in \.mp4 or \.gif"):
            check_kind(name)
