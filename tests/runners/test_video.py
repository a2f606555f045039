"""Films: right frames, right speed, right text, and never an exception in the middle of a run."""

from __future__ import annotations

import logging
import subprocess
import sys

import imageio.v3 as iio
import numpy as np
import pytest
import torch

from gaitway.envs.render import MujocoPainter, rendering_problem
from gaitway.envs.vec_env import ActionSpec, Component, EnvSpec, ObservationGroup, Step, VecEnv
from gaitway.runners import video
from gaitway.runners.video import VideoConfig, VideoWriter, record_episode

SIZE = (64, 48)


class Slider(VecEnv):
    """A point that moves by its action; grey level of the picture = 10 * position. Ends at `fall` or after `limit`."""

    def __init__(self, num_envs: int = 1, control_dt: float = 0.04, fall: float = np.inf, limit: int = 1000) -> None:
        self.num_envs, self.device = num_envs, torch.device("cpu")
        group = ObservationGroup("policy", (Component("x", 1, "m"),), (1,))
        action = ActionSpec("continuous", ("push",), (-1.0,), (1.0,))
        self.spec = EnvSpec("toy/Slider", (group,), action, control_dt, limit, metrics=("speed",))
        self.fall, self.limit = fall, limit
        self.reset()

    def reset(self, seed=None):
        self.seed = seed
        self.x, self.age = torch.zeros(1, 1), 0
        return {"policy": self.x.clone()}

    def step(self, action):
        self.x, self.age = self.x + action, self.age + 1
        final = {"policy": self.x.clone()}
        reached = self.x[:, 0].clone()
        terminated = reached >= self.fall
        truncated = torch.tensor([self.age >= self.limit]) & ~terminated
        if terminated | truncated:
            self.reset()
        return Step({"policy": self.x.clone()}, reached, terminated, truncated, final, {"speed": action[:, 0]})

    def render(self, index=0, width=640, height=480):
        return np.full((height, width, 3), int(10 * self.x), np.uint8)


class Push:
    """Constant action 1; remembers what it was told."""

    def __init__(self) -> None:
        self.masks: list[list[bool]] = []

    def reset(self, mask):
        self.masks.append(mask.tolist())

    def __call__(self, obs):
        return torch.ones_like(obs["policy"])


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


def test_writer_drops_frames_rather_than_wait_for_long(tmp_path, monkeypatch, caplog):
    gate = video.threading.Event()
    encode = VideoWriter._write_file
    monkeypatch.setattr(VideoWriter, "_write_file", lambda self: (gate.wait(), encode(self)))
    writer = VideoWriter(tmp_path / "film.mp4", 25, SIZE, queue_size=2, patience_s=0.01)
    for level in (10, 60, 110, 160):
        writer.add(np.full((48, 64, 3), level, np.uint8))
    gate.set()
    assert writer.close() is not None
    assert writer.frames == 2
    assert levels(tmp_path / "film.mp4") == pytest.approx([10, 60], abs=4)
    assert sum("dropped" in record.message for record in caplog.records) == 2


def test_writer_refuses_frames_that_do_not_fit(tmp_path):
    with VideoWriter(tmp_path / "film.mp4", 25, SIZE) as writer:
        with pytest.raises(ValueError, match=r"uint8 \(48, 64, 3\)"):
            writer.add(np.zeros((64, 48, 3), np.uint8))
        writer.add(np.zeros((48, 64, 3), np.uint8))
    with pytest.raises(ValueError, match="closed"):
        writer.add(np.zeros((48, 64, 3), np.uint8))


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


@pytest.mark.parametrize(
    ("control_dt", "fps", "stride"),
    [(0.04, 25.0, 1), (0.02, 50.0, 1), (0.025, 40.0, 1), (0.01, 50.0, 2), (0.008, 1 / 0.024, 3), (0.0, 30.0, 1)],
)
def test_playback_is_in_real_time(control_dt, fps, stride):
    assert video._frame_rate(control_dt) == (pytest.approx(fps), stride)


def test_record_episode_of_limited_length(tmp_path):
    env, act = Slider(), Push()
    film = record_episode(env, act, tmp_path / "film.mp4", length=6, size=SIZE, annotations=False, seed=7)
    # rewards 1 + 2 + ... + 6; frames show the positions 0, ..., 5 from which the actions were chosen
    assert film == {"frames": 6, "steps": 6, "return": 21.0, "path": str(tmp_path / "film.mp4")}
    assert levels(film["path"]) == pytest.approx([0, 10, 20, 30, 40, 50], abs=4)
    assert iio.immeta(film["path"])["fps"] == 25
    assert env.seed == 7
    assert act.masks == [[True]]


@pytest.mark.parametrize("options", [{"fall": 4.0}, {"limit": 4}])
def test_record_episode_stops_at_the_end_and_never_shows_the_next_one(tmp_path, options):
    film = record_episode(Slider(**options), Push(), tmp_path / "film.mp4", length=50, size=SIZE, annotations=False)
    assert film is not None
    assert (film["frames"], film["steps"], film["return"]) == (4, 4, 10.0)
    assert levels(film["path"]) == pytest.approx([0, 10, 20, 30], abs=4)


def test_record_episode_skips_frames_of_fast_control(tmp_path):
    env = Slider(control_dt=0.01)
    film = record_episode(env, Push(), tmp_path / "film.mp4", length=7, size=SIZE, annotations=False)
    assert film is not None
    assert (film["frames"], film["steps"]) == (4, 7)
    assert levels(film["path"]) == pytest.approx([0, 20, 40, 60], abs=4)


def test_overlay_text_tells_time_return_and_speed():
    env = Slider(control_dt=0.04)
    step = env.step(torch.tensor([[1.5]]))
    assert video._overlay(env, 25, 12.34, step) == ["time 1.00 s", "return 12.3", "speed 1.50 m/s"]
    assert video._overlay(env, 0, 0.0, None) == ["time 0.00 s", "return 0.0"]
    assert video._overlay(Slider(control_dt=0.0), 3, 0.0, None)[0] == "step 3"


def test_annotations_are_visible(tmp_path):
    paths = [tmp_path / "plain.mp4", tmp_path / "text.mp4"]
    for path, shown in zip(paths, (False, True), strict=True):
        record_episode(Slider(), Push(), path, length=3, size=(320, 240), annotations=shown)
    plain, text = (iio.imread(path).astype(int) for path in paths)
    assert (text - plain)[:, :80, :160].max() > 150
    assert abs(text - plain)[:, 120:].max() < 30


@pytest.mark.parametrize("broken", ["render", "ffmpeg"])
def test_what_cannot_be_filmed_is_explained_in_one_line(tmp_path, monkeypatch, caplog, broken):
    if broken == "render":
        monkeypatch.setattr(Slider, "render", VecEnv.render)
        expected = "cannot be drawn"
    else:

        def no_ffmpeg():
            raise RuntimeError("No ffmpeg exe could be found.")

        monkeypatch.setattr("imageio_ffmpeg.get_ffmpeg_exe", no_ffmpeg)
        expected = "pip install 'imageio[ffmpeg]'"
    with caplog.at_level(logging.WARNING):
        assert record_episode(Slider(), Push(), tmp_path / "film.mp4", length=3, size=SIZE) is None
    assert len(caplog.records) == 1
    assert expected in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_errors_of_the_policy_are_not_swallowed(tmp_path):
    def act(obs):
        raise KeyError("policy")

    with pytest.raises(KeyError, match="policy"):
        record_episode(Slider(), act, tmp_path / "film.mp4", length=3, size=SIZE)
    with pytest.raises(ValueError, match="num_envs=1"):
        record_episode(Slider(num_envs=2), Push(), tmp_path / "film.mp4")


def test_config_refuses_what_cannot_be_filmed():
    assert VideoConfig(size=(320, 240)).size == (320, 240)
    with pytest.raises(ValueError, match="even"):
        VideoConfig(size=(321, 240))
    with pytest.raises(ValueError, match="length"):
        VideoConfig(length=0)
    with pytest.raises(ValueError, match="interval"):
        VideoConfig(interval=-1)


@pytest.mark.skipif(rendering_problem() is not None, reason=str(rendering_problem()))
def test_film_of_a_mujoco_scene(tmp_path):
    import mujoco

    model = mujoco.MjModel.from_xml_string("""
        <mujoco><worldbody><geom type="plane" size="9 9 1" rgba="0.2 0.4 0.2 1"/>
          <body pos="0 0 1"><joint type="slide" axis="0 0 1"/><geom size="0.3" rgba="1 0 0 1"/></body>
        </worldbody></mujoco>""")
    data, painter = mujoco.MjData(model), MujocoPainter(model)

    class Ball(Slider):
        def render(self, index=0, width=640, height=480):
            data.qpos[0] = 0.1 * float(self.x)
            mujoco.mj_forward(model, data)
            return painter.draw(data, width, height)

    film = record_episode(Ball(), Push(), tmp_path / "film.mp4", length=5, size=(160, 120))
    painter.close()
    assert film is not None
    frames = iio.imread(film["path"])
    assert frames.shape == (5, 120, 160, 3)
    assert all((frame[..., 0] > 80).any() for frame in frames)
    assert frames.mean() > 10
