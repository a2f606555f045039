"""The asynchronous writer: every frame, no waiting, no half files, no exception in the middle of a run."""

from __future__ import annotations

import math
import subprocess
import sys
import threading

import imageio.v3 as iio
import numpy as np
import pytest

from gaitway.runners import video
from gaitway.runners.video import VideoConfig, VideoWriter

SIZE = (64, 48)


def levels(path) -> list[int]:
    """Mean grey level of every frame."""
    return [round(float(frame.mean())) for frame in iio.imread(path)]


def test_writer_writes_h264_with_every_frame(tmp_path):
    path = tmp_path / "new" / "film.mp4"
    with VideoWriter(path, fps=25, size=SIZE) as writer:
        for level in range(0, 200, 20):
            writer.add(np.full((48, 64, 3), level, np.uint8))
        assert not path.exists()  # the name appears with the whole film
    assert writer.close() == path
    assert levels(path) == pytest.approx(list(range(0, 200, 20)), abs=4)
    about = iio.immeta(path)
    assert about["fps"] == 25
    assert about["codec"] == "h264"
    assert tuple(about["size"]) == SIZE
    assert [file.name for file in path.parent.iterdir()] == ["film.mp4"]


def test_writer_keeps_its_own_copy_of_a_frame(tmp_path):
    frame = np.zeros((48, 64, 3), np.uint8)
    with VideoWriter(tmp_path / "film.mp4", 25, SIZE) as writer:
        for level in (50, 100, 150):
            frame[:] = level
            writer.add(frame)
    assert levels(tmp_path / "film.mp4") == pytest.approx([50, 100, 150], abs=4)


def test_writer_logs_a_broken_encoder_and_goes_on(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", "/does/not/exist/ffmpeg")
    writer = VideoWriter(tmp_path / "film.mp4", 25, SIZE, queue_size=1)
    for _ in range(20):
        writer.add(np.zeros((48, 64, 3), np.uint8))
    assert writer.close() is None
    assert list(tmp_path.iterdir()) == []
    assert sum("no video" in record.message for record in caplog.records) == 1


@pytest.fixture
def stuck_encoder(tmp_path, monkeypatch):
    """An ffmpeg that takes nothing and never ends."""
    script = tmp_path / "ffmpeg"
    script.write_text("#!/bin/sh\nexec sleep 1000\n")
    script.chmod(0o755)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(script))


def finishes(action) -> bool:
    """Whether `action` comes back at all."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    thread.join(20.0)
    return not thread.is_alive()


def test_a_full_queue_costs_frames_but_no_time_beyond_the_patience(tmp_path, stuck_encoder, caplog, monkeypatch):
    monkeypatch.setattr(video, "FFMPEG_TIMEOUT_S", 0.5)
    large = (1280, 720)  # larger than a pipe, so that the encoder is stuck with the first one
    writer = VideoWriter(tmp_path / "film.mp4", 25, large, queue_size=2, patience_s=0.3)
    frame = np.zeros((720, 1280, 3), np.uint8)
    assert finishes(lambda: [writer.add(frame) for _ in range(200)])
    assert writer.frames + writer.dropped <= 200
    assert writer.frames < 10
    assert finishes(writer.close)  # the stuck process is killed
    assert writer.close() is None
    assert writer._encoder.process.poll() is not None
    assert writer.is_done
    assert sum("no video" in record.message for record in caplog.records) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["ffmpeg"]


def test_frames_that_find_no_place_are_counted_and_mentioned_once(tmp_path, monkeypatch, caplog):
    gate = threading.Event()
    encode = VideoWriter._write_file
    monkeypatch.setattr(VideoWriter, "_write_file", lambda self: (gate.wait(), encode(self)))
    writer = VideoWriter(tmp_path / "film.mp4", 25, SIZE, queue_size=2, patience_s=0.0)
    for level in (10, 60, 110, 160):
        writer.add(np.full((48, 64, 3), level, np.uint8))
    assert (writer.frames, writer.dropped) == (2, 2)
    gate.set()
    assert writer.close() is not None
    assert levels(tmp_path / "film.mp4") == pytest.approx([10, 60], abs=4)
    assert [record.message for record in caplog.records] == [
        f"{tmp_path / 'film.mp4'} lacks 2 frames: the encoder did not keep up"
    ]


def test_with_endless_patience_no_frame_is_left_out(tmp_path, monkeypatch):
    gate, full, encode = threading.Event(), threading.Event(), VideoWriter._write_file
    monkeypatch.setattr(VideoWriter, "_write_file", lambda self: (gate.wait(), encode(self)))
    writer = VideoWriter(tmp_path / "film.mp4", 25, SIZE, queue_size=2, patience_s=math.inf)

    def push():
        for number in range(20):
            if number == 2:
                full.set()
            writer.add(np.full((48, 64, 3), 10 * number, np.uint8))

    thread = threading.Thread(target=push)
    thread.start()
    full.wait()
    assert writer.frames == 2
    gate.set()
    thread.join()
    assert writer.close() is not None
    assert levels(tmp_path / "film.mp4") == pytest.approx(range(0, 200, 10), abs=4)


def test_end_returns_at_once_and_close_waits_for_the_last_frame(tmp_path, monkeypatch):
    gate, encode = threading.Event(), VideoWriter._write_file
    monkeypatch.setattr(VideoWriter, "_write_file", lambda self: (gate.wait(), encode(self)))
    writer = VideoWriter(tmp_path / "film.mp4", 25, SIZE, queue_size=3)
    for level in (50, 100, 150):
        writer.add(np.full((48, 64, 3), level, np.uint8))
    assert finishes(writer.end)  # although the queue is full
    assert not writer.is_done
    assert list(tmp_path.iterdir()) == []
    gate.set()
    assert writer.close() == tmp_path / "film.mp4"
    assert writer.is_done
    assert levels(tmp_path / "film.mp4") == pytest.approx([50, 100, 150], abs=4)


def test_text_is_put_into_the_frames_by_the_writer(tmp_path):
    frame = np.full((240, 320, 3), 90, np.uint8)
    with VideoWriter(tmp_path / "film.gif", 25, (320, 240)) as writer:
        writer.add(frame, ["left"], [("right", "red")], "white")
        writer.add(frame)
    assert (frame == 90).all()
    film = iio.imread(tmp_path / "film.gif", index=None).astype(int)
    changed = (abs(film[0] - 90) > 60).any(axis=-1)
    assert changed[:40, :80].any()
    assert changed[:40, 240:].any()
    assert not changed[40:].any()
    assert (film[0, :40, 240:, 0] - film[0, :40, 240:, 1]).max() > 150  # red letters
    assert film[0, :40, :80].min(axis=-1).max() > 200  # white letters
    assert (abs(film[1] - 90) < 8).all()


def test_an_error_in_the_text_is_logged_and_ends_the_film_alone(tmp_path, caplog):
    with VideoWriter(tmp_path / "film.mp4", 25, SIZE) as writer:
        for _ in range(3):
            writer.add(np.zeros((48, 64, 3), np.uint8), ["x"], colour="no colour")
    assert writer.close() is None
    assert caplog.text.count("no video") == 1
    assert "'no colour' is no colour" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_costs_the_film_alone(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with VideoWriter(tmp_path / "file" / "film.mp4", 25, SIZE) as writer:
        writer.add(np.zeros((48, 64, 3), np.uint8))
    assert writer.close() is None
    assert caplog.text.count("no video") == 1


def test_what_a_killed_program_left_is_replaced(tmp_path):
    (tmp_path / ".film.partial.mp4").write_bytes(b"half a film")
    with VideoWriter(tmp_path / "film.mp4", 25, SIZE) as writer:
        writer.add(np.zeros((48, 64, 3), np.uint8))
    assert [file.name for file in tmp_path.iterdir()] == ["film.mp4"]


def test_writer_refuses_frames_that_do_not_fit(tmp_path):
    with VideoWriter(tmp_path / "film.mp4", 25, SIZE) as writer:
        with pytest.raises(ValueError, match=r"uint8 \(48, 64, 3\)"):
            writer.add(np.zeros((64, 48, 3), np.uint8))
        writer.add(np.zeros((48, 64, 3), np.uint8))
    with pytest.raises(ValueError, match="closed"):
        writer.add(np.zeros((48, 64, 3), np.uint8))
    with pytest.raises(ValueError, match=r"\.mp4 or \.gif"):
        VideoWriter(tmp_path / "film.avi", 25, SIZE)
    with pytest.raises(ValueError, match="fps is 0"):
        VideoWriter(tmp_path / "film.mp4", 0, SIZE)
    with pytest.raises(ValueError, match="64 x 48"):
        VideoWriter(tmp_path / "film.mp4", 25, (65, 48))


def test_a_film_that_nobody_closed_is_finished_when_the_program_ends(tmp_path):
    code = f"""
import numpy as np
from gaitway.runners.video import VideoWriter
writer = VideoWriter({str(tmp_path / "film.mp4")!r}, 25, (64, 48))
for level in (50, 100, 150):
    writer.add(np.full((48, 64, 3), level, np.uint8))
raise KeyboardInterrupt
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "KeyboardInterrupt" in done.stderr
    assert levels(tmp_path / "film.mp4") == pytest.approx([50, 100, 150], abs=4)


def test_config_refuses_what_cannot_be_filmed():
    assert VideoConfig(size=(320, 240)).size == (320, 240)
    with pytest.raises(ValueError, match="even"):
        VideoConfig(size=(321, 240))
    with pytest.raises(ValueError, match="an integer from 2 to 8192"):
        VideoConfig(size=(0, 240))
    with pytest.raises(ValueError, match="length"):
        VideoConfig(length=0)
    with pytest.raises(ValueError, match="interval"):
        VideoConfig(interval=-1)
