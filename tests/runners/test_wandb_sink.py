"""Weights & Biases through a module that only writes down what it is told."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from gaitway.core.config import ConfigError
from gaitway.runners.logger import Logger
from gaitway.runners.wandb_sink import WandbSink


class Media:
    """What `wandb.Image`, `wandb.Video` and `wandb.Html` were made of."""

    def __init__(self, kind: str, *arguments: Any, **options: Any) -> None:
        self.kind, self.arguments, self.options = kind, arguments, options


class FakeWandb(types.ModuleType):
    """Records what it is told; `broken` makes one call fail."""

    def __init__(self, broken: str = "") -> None:
        super().__init__("wandb")
        self.__spec__ = importlib.util.spec_from_loader("wandb", None)
        self.told: list[Any] = []
        self.broken = broken

    def init(self, **settings: Any) -> FakeWandb:
        return self._do("init", settings)

    def log(self, data: dict[str, Any], step: int | None = None, commit: bool | None = None) -> None:
        self._do("log", (step, data, commit))

    def finish(self, exit_code: int | None = None) -> None:
        self._do("finish", exit_code)

    def login(self, **_: Any) -> None:
        self._do("login", None)

    def Image(self, *arguments: Any, **options: Any) -> Media:  # noqa: N802
        return Media("image", *arguments, **options)

    def Video(self, *arguments: Any, **options: Any) -> Media:  # noqa: N802
        return Media("video", *arguments, **options)

    def Html(self, *arguments: Any, **options: Any) -> Media:  # noqa: N802
        return Media("html", *arguments, **options)

    def _do(self, name: str, what: Any) -> FakeWandb:
        if name == self.broken:
            raise OSError("no network")
        self.told.append((name, what))
        return self

    def logged(self) -> list[Any]:
        return [what for name, what in self.told if name == "log"]


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


def test_it_is_offline_by_default_and_gets_the_config(tmp_path: Path, wandb: FakeWandb) -> None:
    (tmp_path / "config.yaml").write_text("seed: 3\n")
    with Logger(tmp_path, wandb={"project": "gait"}) as logger:
        assert wandb.told == []  # nothing happens before there is something to say
        logger.log(5, {"a": 1.5}, {"seconds": 2})
    (_, settings), said, ended = wandb.told
    expected = {
        "mode": "offline",
        "project": "gait",
        "config": {"seed": 3},
        "dir": str(tmp_path),
        "name": tmp_path.name,
        "id": json.loads((tmp_path / "wandb.json").read_text())["id"],
        "resume": "allow",
    }
    assert settings == expected
    assert said == ("log", (5, {"a": 1.5, "time/seconds": 2}, True))
    assert ended == ("finish", 0)


def test_whoever_logs_into_the_folder_again_goes_on_with_its_run(tmp_path: Path, wandb: FakeWandb) -> None:
    for folder, options in (
        (tmp_path / "a", {}),
        (tmp_path / "a", {}),
        (tmp_path / "b", {}),
        (tmp_path / "a", {"id": "mine"}),
    ):
        with Logger(folder, wandb=options) as logger:
            logger.log(1, {"a": 1.0})
            logger.log(len(wandb.told) + 2, {"a": 2.0})
    first, second, other, named = (what["id"] for name, what in wandb.told if name == "init")
    assert first == second
    assert first != other
    assert named == "mine"
    (tmp_path / "a" / "wandb.json").write_text("{torn")
    with Logger(tmp_path / "a", wandb={}) as logger:
        logger.log(100, {"a": 1.0})
    assert wandb.told[-3][1]["id"] not in (first, "mine")


@pytest.mark.parametrize(
    ("tags", "expected"), [("one, two", ["one", "two"]), (["one", "two"], ["one", "two"]), ("", [])]
)
def test_options_of_a_run_go_to_wandb(tmp_path: Path, wandb: FakeWandb, tags: Any, expected: list[str]) -> None:
    options = {"group": "seeds", "job_type": "train", "tags": tags, "name": "first", "mode": "online", "notes": "n"}
    with Logger(tmp_path, wandb=options | {"interval_s": 30}) as logger:
        logger.log(1, {"a": 1})
    settings = wandb.told[0][1]
    assert {key: settings[key] for key in options} == options | {"tags": expected}
    assert settings["project"] == "gaitway"
    assert "interval_s" not in settings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"interval_s": -1}, "logging.wandb.interval_s is -1; use seconds"),
        ({"interval_s": "often"}, "logging.wandb.interval_s is 'often'"),
        ({"group": 3}, "logging.wandb.group is 3; use a text"),
    ],
)
def test_wrong_options_are_said_before_training(tmp_path: Path, wandb: FakeWandb, options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Logger(tmp_path, wandb=options)
    assert wandb.told == []


def test_one_commit_per_step_with_all_that_was_said_about_it(tmp_path: Path, wandb: FakeWandb) -> None:
    with Logger(tmp_path, wandb={}) as logger:
        logger.log(1, {"train/return": 1.0})
        logger.log(1, {"eval/return": 2.0})
        assert wandb.logged() == []  # there may be more about step 1
        logger.log(2, {"train/return": 3.0})
        assert wandb.logged() == [(1, {"train/return": 1.0, "eval/return": 2.0}, True)]
    assert wandb.logged() == [(1, {"train/return": 1.0, "eval/return": 2.0}, True), (2, {"train/return": 3.0}, True)]


def test_with_an_interval_deliveries_wait_and_nothing_is_left_out(tmp_path: Path, wandb: FakeWandb) -> None:
    now = 100.0
    sink = WandbSink(tmp_path, {"interval_s": 10}, clock=lambda: now)
    for step in range(3):
        now += 4.0  # 104, 108, 112: the third is due, but it may still grow
        sink.write(step, {"a": step})
    assert [step for step, _, _ in wandb.logged()] == [0, 1]
    now += 4.0
    sink.write(3, {"a": 3})  # 4 s after a delivery
    assert len(wandb.logged()) == 2
    now += 6.0
    sink.write(4, {"a": 4})
    assert [step for step, _, _ in wandb.logged()] == [0, 1, 2, 3]
    sink.close()
    assert wandb.logged() == [(step, {"a": step}, True) for step in range(5)]


def test_bug_70_prefixes_pictures_and_periods_count_and_nobody_logs_in(tmp_path: Path, wandb: FakeWandb) -> None:
    green = np.zeros((4, 6, 3), np.uint8)
    green[..., 1] = 255
    film = tmp_path / "play.mp4"
    film.write_bytes(b"")
    figure = Figure(figsize=(1.0, 0.5), facecolor="red")
    with Logger(tmp_path, wandb={}) as logger:
        part = logger.prefixed("eval/")
        part.log(1, {"return": 2.0})
        part.add_images("pictures", np.stack([green, green]), 1)
        part.add_figure("map", figure, 1)
        part.add_video("film", np.stack([green, ~green]), 1, fps=10)
        part.add_video("file", film, 1)
        part.add_text("note", "a < b", 1)
        part.add_html("report", "<p>fine</p>", 1)
    ((step, said, commit),) = wandb.logged()
    assert (step, commit) == (1, True)
    assert said.pop("eval/return") == 2.0
    assert all(name.startswith("eval/") for name in said)
    assert [media.kind for media in said["eval/pictures"]] == ["image", "image"]
    assert np.array_equal(said["eval/pictures"][0].arguments[0], green)
    assert said["eval/map"].arguments[0][5, 5].tolist() == [255, 0, 0]
    animation = said["eval/film"]
    assert animation.options == {"format": "gif"}
    assert Image.open(io.BytesIO(animation.arguments[0].getvalue())).n_frames == 2
    assert (said["eval/file"].arguments, said["eval/file"].options) == ((str(film),), {"format": "mp4"})
    assert said["eval/note"].arguments == ("<pre>a &lt; b</pre>",)
    assert said["eval/report"].arguments == ("<p>fine</p>",)
    assert "login" not in [name for name, _ in wandb.told]


def test_the_exit_code_says_how_the_program_ended(tmp_path: Path, wandb: FakeWandb) -> None:
    def fail() -> None:
        with Logger(tmp_path / "a", wandb={}) as logger:
            logger.log(1, {"a": 1})
            raise KeyError("x")

    with pytest.raises(KeyError):
        fail()
    assert wandb.told[-2:] == [("log", (1, {"a": 1}, True)), ("finish", 1)]
    logger = Logger(tmp_path / "b", wandb={})
    logger.log(1, {"a": 1})
    logger.close(exit_code=75)
    logger.close()
    assert wandb.told[-1] == ("finish", 75)


@pytest.mark.parametrize("broken", ["init", "log", "finish"])
def test_without_a_network_training_goes_on(tmp_path: Path, monkeypatch: Any, broken: str, caplog: Any) -> None:
    monkeypatch.setitem(sys.modules, "wandb", FakeWandb(broken))
    with Logger(tmp_path, wandb={}) as logger:
        for step in range(3):
            logger.log(step, {"a": 1})
    assert caplog.text.count("no network") == 1
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3
