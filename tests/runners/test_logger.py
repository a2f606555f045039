from __future__ import annotations

import errno
import importlib.util
import io
import json
import logging
import math
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gaitway.core.config import ConfigError
from gaitway.runners.logger import Logger, Recorder, setup_log
from gaitway.runners.tensorboard_sink import TensorBoardSink
from gaitway.runners.video import VideoWriter


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_has_step_first_then_names_then_times(tmp_path: Path) -> None:
    with Logger(tmp_path) as logger:
        logger.log(32, {"train/return": 1.5, "loss/value": 1}, {"seconds": 0.25})
    assert (tmp_path / "metrics.jsonl").read_bytes() == (
        b'{"step": 32, "loss/value": 1, "train/return": 1.5, "time/seconds": 0.25}\n'
    )


def test_equal_values_in_any_order_give_equal_bytes(tmp_path: Path) -> None:
    values = {"c": 0.1 + 0.2, "a": 1e-320, "b": np.float32(0.1)}
    for name, metrics in (("x", values), ("y", dict(reversed(values.items())))):
        with Logger(tmp_path / name) as logger:
            logger.log(1, metrics)
    assert (tmp_path / "x" / "metrics.jsonl").read_bytes() == (tmp_path / "y" / "metrics.jsonl").read_bytes()
    (line,) = lines(tmp_path / "x")
    assert line == {"step": 1, "a": 1e-320, "b": float(np.float32(0.1)), "c": 0.1 + 0.2}


def test_numbers_of_all_kinds_and_nothing_else(tmp_path: Path) -> None:
    with Logger(tmp_path) as logger:
        python = {"b": True, "nan": math.nan}
        arrays = {"n": np.int32(3), "a": np.array(4.0)}
        logger.log(np.int64(1), python | arrays | {"t": torch.tensor(2.5), "inf": torch.tensor(-math.inf)})
        for wrong in ("text", torch.zeros(2), None, [1.0]):
            with pytest.raises(TypeError, match="the metric 'x' is"):
                logger.log(2, {"x": wrong})
        for name in ("step", "time/x"):
            with pytest.raises(ValueError, match="pass what depends on the clock in `times`"):
                logger.log(2, {name: 1.0})
    assert lines(tmp_path) == [{"step": 1, "a": 4.0, "b": 1, "inf": None, "n": 3, "nan": None, "t": 2.5}]


def test_going_on_from_a_checkpoint_forgets_what_came_after(tmp_path: Path) -> None:
    with Logger(tmp_path) as logger:
        logger.log(1, {"a": 1.0})
        position = logger.position()
        logger.log(2, {"a": 2.0})
    with open(tmp_path / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 3, "a"')  # killed while writing
    with Logger(tmp_path) as logger:
        logger.truncate(position)
        assert logger.position() == position
        logger.log(2, {"a": 2.5})
    assert lines(tmp_path) == [{"step": 1, "a": 1.0}, {"step": 2, "a": 2.5}]


def test_a_torn_line_goes_and_a_position_inside_a_line_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "metrics.jsonl"
    long = '{"step": 1, "' + "n" * 200_000 + '": 1}\n'
    path.write_text(long + '{"step": 2, "' + "m" * 150_000)
    with Logger(tmp_path) as logger:
        assert logger.position() == len(long)
        logger.log(2, {"a": 1})
        logger.truncate(len(long) + 5)
        assert logger.position() == len(long)
        logger.truncate(10**9)
    assert path.read_text() == long
    assert "is shorter than the checkpoint says" in caplog.text
    path.write_text("torn")
    with Logger(tmp_path) as logger:
        assert logger.position() == 0


def test_a_full_disk_warns_once_and_is_caught_up_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write = os.write
    logger = Logger(tmp_path)
    logger.log(1, {"a": 1})
    monkeypatch.setattr(os, "write", lambda descriptor, line: write(descriptor, line[:5]))  # half a line fits
    logger.log(2, {"a": 2})

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    logger.log(3, {"a": 3})
    assert logger.missing() == ["2 lines of metrics.jsonl"]
    assert caplog.text.count("training goes on") == 1
    assert "the disk is full" in caplog.text
    monkeypatch.undo()
    logger.log(4, {"a": 4})
    logger.close()
    assert lines(tmp_path) == [{"step": step, "a": step} for step in (1, 2, 3, 4)]
    assert logger.missing() == []


def test_a_device_without_space_and_a_folder_that_vanished(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    (tmp_path / "file").write_text("")
    for folder in (tmp_path, tmp_path / "file"):
        logger = Logger(folder)
        logger.log(1, {"a": 1})
        assert logger.missing() == ["1 lines of metrics.jsonl"]
        logger.position()
        logger.close()
        assert logger.lost == 1
    assert caplog.text.count("training goes on") == 2
    assert caplog.text.count("1 lines of metrics are missing") == 2


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Logger(None, tensorboard=True) as logger:
        logger.log(1, {"a": 1})
        assert logger.position() == 0
        logger.truncate(0)
    assert not list(tmp_path.iterdir())


def test_closing_twice_and_logging_again(tmp_path: Path) -> None:
    logger = Logger(tmp_path)
    for step in (1, 2):
        logger.log(step, {"a": 1})
        logger.close()
        logger.close()
    assert [line["step"] for line in lines(tmp_path)] == [1, 2]


def test_tensorboard_gets_the_same_numbers_and_hides_what_a_resumed_run_repeats(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Logger(tmp_path, tensorboard=True) as logger:
        logger.log(1, {"loss/a": torch.tensor(0.5)}, {"seconds": 1.0})
        position = logger.position()
        for step in (2, 3):
            logger.log(step, {"loss/a": torch.tensor(0.5 * step)}, {"seconds": 1.0})
    with Logger(tmp_path, tensorboard=True) as logger:
        logger.truncate(position)
        logger.log(2, {"loss/a": 7.0})
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss/a")] == [(1, 0.5), (2, 7.0)]
    assert "time/seconds" in events.Tags()["scalars"]


def test_a_sink_that_fails_is_dropped_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("broken pipe to the cloud")

    monkeypatch.setattr(TensorBoardSink, "write", fail)
    with Logger(tmp_path, tensorboard=True) as logger:
        for step in range(3):
            logger.log(step, {"a": 1})
    assert caplog.text.count("tensorboard is switched off, it failed: broken pipe to the cloud") == 1
    assert len(lines(tmp_path)) == 3


def test_a_missing_package_is_said_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r'not installed; install it by `pip install "gaitway\[wandb\]"`$'):
        Logger(tmp_path, wandb={})
    Logger(tmp_path).close()


def events_of(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return events


@pytest.mark.parametrize("value", [np.float32(0.5), np.int64(3), torch.tensor(0.5), torch.tensor(3), np.array(0.5)])
def test_bug_68_every_kind_of_number_reaches_tensorboard_and_the_file(tmp_path: Path, value: Any) -> None:
    with Logger(tmp_path, tensorboard=True) as logger:
        logger.log(7, {"a": value})
    assert lines(tmp_path) == [{"step": 7, "a": value.item()}]
    assert type(lines(tmp_path)[0]["a"]) is type(value.item())
    assert [(event.step, event.value) for event in events_of(tmp_path).Scalars("a")] == [(7, value.item())]


def test_bug_68_repeated_values_are_dropped_counted_and_named_once(tmp_path: Path, caplog: Any) -> None:
    with Logger(tmp_path, tensorboard=True) as logger:
        logger.log(1, {"a": 1.0, "b": 1.0})
        logger.log(1, {"a": 2.0, "c": 2.0}, {"seconds": 1})
        logger.log(1, {"a": 3.0}, {"seconds": 2})  # nothing is left of this line
        logger.log(2, {"a": 4.0})
        logger.log(2, {"a": 5.0})
        assert logger.repeated == {"a": 3, "time/seconds": 1}
    assert lines(tmp_path) == [
        {"step": 1, "a": 1.0, "b": 1.0},
        {"step": 1, "c": 2.0, "time/seconds": 1},
        {"step": 2, "a": 4.0},
    ]
    assert [(event.step, event.value) for event in events_of(tmp_path).Scalars("a")] == [(1, 1.0), (2, 4.0)]
    assert caplog.text.count("a was logged twice at step 1; the first value is kept") == 1
    assert caplog.text.count("was logged twice") == 2


def test_what_a_resumed_run_says_again_is_not_a_repetition(tmp_path: Path) -> None:
    with Logger(tmp_path) as logger:
        logger.log(1, {"a": 1.0})
        position = logger.position()
        logger.log(2, {"a": 2.0})
        logger.truncate(position)
        logger.log(2, {"a": 2.5})
    assert lines(tmp_path) == [{"step": 1, "a": 1.0}, {"step": 2, "a": 2.5}]
    assert not logger.repeated


def test_bug_69_folders_are_made_and_nothing_is_opened_that_was_not_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "down"
    with Logger(folder) as logger:
        assert not folder.exists()
        for step in range(1000):
            logger.log(step, {"a": step})
        assert len(logger._last_step) == 1  # memory grows with the names, not with the steps
    assert [path.name for path in folder.iterdir()] == ["metrics.jsonl"]
    assert [line["a"] for line in lines(folder)] == list(range(1000))


def test_a_prefix_goes_before_every_name_and_nests(tmp_path: Path) -> None:
    with Logger(tmp_path, tensorboard=True) as logger:
        actor = logger.prefixed("agent/").prefixed("actor/")
        with actor:
            actor.log(1, {"loss": 0.5}, {"seconds": 2})
            actor.add_text("note", "hello", 1)
        actor.log(2, {"loss": 0.25})  # leaving it closed nothing
    assert lines(tmp_path) == [
        {"step": 1, "agent/actor/loss": 0.5, "time/agent/actor/seconds": 2},
        {"step": 2, "agent/actor/loss": 0.25},
    ]
    assert events_of(tmp_path).Tags()["tensors"] == ["agent/actor/note/text_summary"]
    assert isinstance(actor, Recorder)


def test_pictures_and_texts_reach_tensorboard(tmp_path: Path) -> None:
    from matplotlib.figure import Figure
    from PIL import Image

    figure = Figure(figsize=(1.0, 0.5), facecolor="red")
    canvas = figure.canvas
    pictures = np.zeros((2, 8, 6, 3), np.uint8)
    pictures[0, ..., 1] = 255  # all green
    with Logger(tmp_path, tensorboard=True) as logger:
        logger.add_figure("figure", figure, 3)
        logger.add_images("pictures", torch.from_numpy(pictures), 4)
        logger.add_images("picture", pictures[0], 4)
        logger.add_video("film", pictures.repeat(2, axis=0), 5, fps=20)
        logger.add_text("text", "hello", np.int64(6))
    assert figure.canvas is canvas
    assert figure.dpi == 100
    events = events_of(tmp_path)
    assert set(events.Tags()["images"]) == {"figure", "pictures", "picture", "film"}

    def shown(name: str) -> tuple[int, Image.Image]:
        (event,) = events.Images(name)
        return event.step, Image.open(io.BytesIO(event.encoded_image_string))

    step, image = shown("figure")
    assert (step, image.size, image.getpixel((5, 5))) == (3, (100, 50), (255, 0, 0))
    step, image = shown("pictures")
    assert (step, image.size) == (4, (12, 8))  # two side by side
    assert (image.getpixel((0, 0)), image.getpixel((6, 0))) == ((0, 255, 0), (0, 0, 0))
    step, film = shown("film")
    assert (step, film.format, film.size, film.n_frames) == (5, "GIF", (6, 8), 2)  # PIL joins frames that are equal
    assert film.convert("RGB").getpixel((3, 3)) == (0, 255, 0)
    (text,) = events.Tensors("text/text_summary")
    assert (text.step, text.tensor_proto.string_val[0]) == (6, b"hello")


def test_pictures_and_texts_are_kept_in_the_run_folder(tmp_path: Path, caplog: Any) -> None:
    from matplotlib.figure import Figure
    from PIL import Image

    green = np.zeros((2, 8, 6, 3), np.uint8)
    green[0, ..., 1] = 255
    with Logger(tmp_path) as logger:
        logger.add_images("eval/pictures", green, 4)
        logger.prefixed("eval/").add_images("one", green[0], 4)
        logger.add_video("film", green, 5, fps=10)
        logger.add_text("note", "hello <b>", 6)
        logger.add_text("note", "again", 7)
        logger.add_html("..", "<p>", 8)
        logger.add_figure("x" * 300, Figure(figsize=(1, 0.5)), 9)
    media = tmp_path / "media"
    files = sorted(str(path.relative_to(media)) for path in media.rglob("*") if path.is_file())
    long = next(path for path in files if path.startswith("xx"))
    assert files == [
        "%2E%2E/8.html", "eval%2Fone/4.png", "eval%2Fpictures/4_0.png", "eval%2Fpictures/4_1.png", "film/5.gif",
        "note/6.txt", "note/7.txt", long,
    ]  # fmt: skip
    assert long.endswith("/9.png")
    assert len(long) < 255
    assert Image.open(media / "eval%2Fpictures/4_0.png").getpixel((3, 3)) == (0, 255, 0)
    assert Image.open(media / "film/5.gif").n_frames == 2
    assert (media / "note/6.txt").read_text() == "hello <b>"
    assert caplog.text == ""


def test_what_cannot_be_kept_is_said_once_and_ends_nothing(tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "media").write_text("in the way")
    with Logger(tmp_path) as logger:
        for step in range(2):
            logger.add_text("note", "hello", step)
            logger.log(step, {"a": 1.0})
    assert caplog.text.count("note is not kept in") == 1
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


def test_a_picture_that_nobody_takes_is_mentioned_once(tmp_path: Path, caplog: Any) -> None:
    with Logger(tmp_path, media=False) as logger, Logger(None) as silent:
        for step in range(2):
            logger.add_text("note", "hello", step)
            silent.add_text("note", "hello", step)
        logger.add_html("report", "<p>", 1)
        logger.add_video("film", tmp_path / "absent.mp4", 1)
    assert caplog.text.count("note goes nowhere: nobody takes a text; set logging.media=true") == 1
    assert caplog.text.count("report goes nowhere: nobody takes a html; set logging.media=true") == 1
    assert caplog.text.count("film is not shown: there is no file") == 1
    assert caplog.text.count("goes nowhere") == 2


def test_films_reach_tensorboard_as_small_animations(tmp_path: Path, caplog: Any) -> None:
    from PIL import Image

    path = tmp_path / "videos" / "play.mp4"
    with VideoWriter(path, 30, (640, 480)) as writer:
        for number in range(6):
            writer.add(np.full((480, 640, 3), 40 * number, np.uint8))
    with Logger(tmp_path, tensorboard=True) as logger:
        logger.add_video("film", path, 5)
        (tmp_path / "bad.mp4").write_bytes(b"no film")
        logger.add_video("bad", tmp_path / "bad.mp4", 6)
    events = events_of(tmp_path)
    assert events.Tags()["images"] == ["film"]
    (event,) = events.Images("film")
    film = Image.open(io.BytesIO(event.encoded_image_string))
    assert (event.step, film.size, film.n_frames) == (5, (320, 240), 3)  # half the size, every second frame
    film.seek(2)
    assert film.convert("L").getpixel((5, 5)) == pytest.approx(160, abs=6)
    assert caplog.text.count("tensorboard does not show") == 1


def test_films_that_nobody_takes_are_mentioned_once(tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "play.mp4").write_bytes(b"film")
    with caplog.at_level(logging.INFO), Logger(tmp_path) as logger:
        for step in range(2):
            logger.add_video("film", tmp_path / "play.mp4", step)
    assert caplog.text.count(f"films are kept in {tmp_path} alone; set logging.tensorboard or logging.wandb") == 1
    assert "goes nowhere" not in caplog.text


@pytest.mark.parametrize(
    ("method", "value", "error", "message"),
    [
        (
            "add_images",
            np.zeros((4, 4, 3)),
            ValueError,
            r"images are float64 \[4, 4, 3\]; they must be uint8 \[H, W, 3\]",
        ),
        ("add_images", np.zeros((4, 4), np.uint8), ValueError, r"uint8 \[4, 4\]"),
        ("add_video", np.zeros((2, 1, 4, 4, 3), np.uint8), ValueError, r"choose one instance, e.g. frames\[:, 0\]"),
        ("add_video", np.zeros((0, 4, 4, 3), np.uint8), ValueError, "at least one frame"),
        ("add_figure", "figure.png", TypeError, "is a str; pass a matplotlib Figure"),
        ("add_text", 3.0, TypeError, "is a float; pass a text"),
        ("add_html", Path("report.html"), TypeError, "pass a text"),
    ],
)
def test_a_wrong_picture_is_the_callers_mistake_and_switches_nothing_off(
    tmp_path: Path, method: str, value: Any, error: type[Exception], message: str
) -> None:
    with Logger(tmp_path, tensorboard=True) as logger:
        with pytest.raises(error, match=message):
            getattr(logger, method)("x", value, 1)
        with pytest.raises(ValueError, match="fps is 0"):
            logger.add_video("x", np.zeros((1, 4, 4, 3), np.uint8), 1, fps=0)
        logger.log(1, {"a": 1.0})
    assert events_of(tmp_path).Tags()["scalars"] == ["a"]


@pytest.fixture
def quiet_log() -> Any:
    yield
    logger = logging.getLogger("gaitway")
    for handler in list(logger.handlers):
        if getattr(handler, "is_gaitway", False):
            logger.removeHandler(handler)
            handler.close()
    logger.setLevel(logging.NOTSET)


@pytest.mark.parametrize(("stream", "shown"), [(io.StringIO(), ["info", "warn"]), (Terminal(), ["warn"])])
def test_messages_go_to_the_file_and_dated_to_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet_log: None, stream: io.StringIO, shown: list[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    for _ in range(2):  # the second replaces the first
        log = setup_log(tmp_path / "run.log", "info")
    log.debug("a traceback")
    logging.getLogger("gaitway.runners.video").info("info")
    log.warning("warn")
    assert [line.split()[-1] for line in stream.getvalue().splitlines()] == shown
    assert stream.getvalue()[:4].isdigit()
    text = (tmp_path / "run.log").read_text()
    assert [line.split(" ", 3)[3].strip() for line in text.splitlines()] == ["a traceback", "info", "warn"]


def test_a_log_file_that_cannot_be_written_says_so_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], quiet_log: None
) -> None:
    log = setup_log(tmp_path / "absent" / "run.log", "error")
    log.info("lost")
    assert capsys.readouterr().err.count("no log file") == 1
    (tmp_path / "run.log").symlink_to("/dev/full")
    log = setup_log(tmp_path / "run.log", "error")
    log.info("lost")
    log.info("lost")
    assert capsys.readouterr().err.count("messages are lost") == 1
