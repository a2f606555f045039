"""Films of episodes: right frames, right speed, right text, and never an exception in the middle of a run."""

from __future__ import annotations

import dataclasses
import logging
import threading

import imageio.v3 as iio
import numpy as np
import pytest
import torch

from gaitway.envs.pictures.render import MujocoPainter, rendering_problem
from gaitway.envs.registry import make_env
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup
from gaitway.envs.vec_env import Step, VecEnv
from gaitway.runners.film import Episode, frame_rate, record_episode, start_film
from gaitway.runners.video import VideoWriter

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
            if self.at_end is not None:
                self.at_end()
            self.reset()
        return Step({"policy": self.x.clone()}, reached, terminated, truncated, final, {"speed": action[:, 0]})

    at_end = None

    def on_end(self, callback):
        self.at_end = callback
        return True

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


@pytest.mark.parametrize(
    ("control_dt", "fps", "stride"),
    [(0.04, 25.0, 1), (0.02, 50.0, 1), (0.025, 40.0, 1), (0.01, 50.0, 2), (0.008, 1 / 0.024, 3), (0.0, 30.0, 1)],
)
def test_playback_is_in_real_time(control_dt, fps, stride):
    assert frame_rate(control_dt) == (pytest.approx(fps), stride)


def test_record_episode_of_limited_length(tmp_path):
    env, act = Slider(), Push()
    film = record_episode(env, act, tmp_path / "film.mp4", length=6, size=SIZE, annotations=False, seed=7)
    # rewards 1 + 2 + ... + 6; frames show the positions 0, ..., 5 from which the actions were chosen, and the last one
    assert film == {"frames": 7, "steps": 6, "return": 21.0, "path": str(tmp_path / "film.mp4")}
    assert levels(film["path"]) == pytest.approx([0, 10, 20, 30, 40, 50, 60], abs=4)
    assert iio.immeta(film["path"])["fps"] == 25
    assert env.seed == 7
    assert act.masks == [[True]]


@pytest.mark.parametrize("options", [{"fall": 4.0}, {"limit": 4}])
def test_record_episode_stops_at_the_end_and_never_shows_the_next_one(tmp_path, options):
    film = record_episode(Slider(**options), Push(), tmp_path / "film.mp4", length=50, size=SIZE, annotations=False)
    assert film is not None
    assert (film["frames"], film["steps"], film["return"]) == (5, 4, 10.0)
    assert levels(film["path"]) == pytest.approx([0, 10, 20, 30, 40], abs=4)


def test_the_last_frame_tells_the_last_reward(tmp_path, monkeypatch):
    written: list[tuple[int, tuple[str, ...]]] = []
    monkeypatch.setattr(
        VideoWriter, "add", lambda self, frame, left=(), right=(): written.append((int(frame.max()), tuple(left)))
    )
    start_film(Slider(fall=2.0), Push(), tmp_path / "film.mp4", length=50, size=SIZE)
    # rewards 1 and 2, the second of which ends the episode at position 2
    assert [level for level, _ in written] == [0, 10, 20]
    assert [lines[1] for _, lines in written] == ["return 0.0", "return 1.0", "return 3.0"]
    assert written[-1][1][0] == "time 0.08 s"


def test_an_environment_that_cannot_tell_its_end_is_shown_up_to_the_frame_before(tmp_path, monkeypatch):
    monkeypatch.setattr(Slider, "on_end", VecEnv.on_end)
    film = record_episode(Slider(fall=4.0), Push(), tmp_path / "film.mp4", length=50, size=SIZE, annotations=False)
    assert film is not None
    assert levels(film["path"]) == pytest.approx([0, 10, 20, 30], abs=4)


@pytest.mark.parametrize("id", ["walker/hurdles", "Hopper-v5", "gymnasium:CartPole-v1"])
def test_final_states_are_drawn_before_the_restart(id):
    """What `on_end` sees is the final observation; afterwards it is not called any more."""
    options = {} if id.startswith("gymnasium:") else {"max_episode_steps": 3}
    with make_env(id, num_envs=1, seed=0, purpose="evaluation", **options) as env:
        seen: list[np.ndarray] = []
        assert env.on_end(lambda: seen.append(env.render(0, 64, 48)))
        ends = 0
        for _ in range(60):
            before = env.render(0, 64, 48)
            action = torch.zeros(1, *env.spec.action.shape, dtype=env.spec.action.dtype)
            step = env.step(action)
            if step.terminated[0] | step.truncated[0]:
                ends += 1
                assert len(seen) == ends
                assert (seen[-1] != env.render(0, 64, 48)).any()
                assert (seen[-1] != before).any()
        assert ends >= 2
        assert env.on_end(None)
        for _ in range(60):
            env.step(action)
        assert len(seen) == ends


def test_record_episode_skips_frames_of_fast_control(tmp_path):
    env = Slider(control_dt=0.01)
    film = record_episode(env, Push(), tmp_path / "film.mp4", length=7, size=SIZE, annotations=False)
    assert film is not None
    assert (film["frames"], film["steps"]) == (5, 7)
    assert levels(film["path"]) == pytest.approx([0, 20, 40, 60, 70], abs=4)


def test_overlay_text_tells_time_return_speed_and_score():
    env = Slider(control_dt=0.04)
    text = Episode(env)
    assert text.lines() == ["time 0.00 s", "return 0.0"]
    for push in (1.0, 1.5):
        text.add(env.step(torch.tensor([[push]])))  # rewards 1 and 2.5
    assert text.lines() == ["time 0.08 s", "return 3.5", "speed 1.50 m/s"]
    assert Episode(Slider(control_dt=0.0)).lines()[0] == "step 0"
    env.spec = dataclasses.replace(env.spec, metrics=("score",))
    text = Episode(env)
    for score in (1.0, 0.0, 1.0):
        step = env.step(torch.zeros(1, 1))
        step.metrics["score"] = torch.tensor([score])
        text.add(step)
    assert text.lines()[-1] == "score 2"
    text.restart()
    assert text.lines() == ["time 0.00 s", "return 0.0", "score 0"]


def test_a_film_may_go_on_through_the_ends_of_episodes(tmp_path):
    act = Push()
    film = record_episode(
        Slider(fall=3.0), act, tmp_path / "film.mp4", length=7, size=SIZE, annotations=False, through_ends=True
    )
    assert film is not None
    # rewards 1 2 3 | 1 2 3 | 1; the film shows the start and the end of each episode
    assert (film["frames"], film["steps"], film["return"]) == (10, 7, 13.0)
    assert levels(film["path"]) == pytest.approx([0, 10, 20, 30, 0, 10, 20, 30, 0, 10], abs=4)
    assert act.masks == [[True]] * 3


def test_rows_that_only_reset_are_no_steps(tmp_path):
    class Late(Slider):
        """Resets in a step of its own."""

        def step(self, action):
            if self.x[0, 0] >= 2.0:
                self.reset()
                zero = torch.zeros(1, dtype=torch.bool)
                obs = {"policy": self.x.clone()}
                return Step(obs, torch.ones(1), zero, zero, obs, {"speed": torch.zeros(1)}, valid=zero)
            self.x = self.x + action
            obs, done = {"policy": self.x.clone()}, self.x[:, 0] >= 2.0
            return Step(
                obs, self.x[:, 0].clone(), done, ~done & False, obs, {"speed": torch.zeros(1)}, valid=~done | done
            )

    film = record_episode(Late(), Push(), tmp_path / "f.mp4", length=5, size=SIZE, annotations=False, through_ends=True)
    assert film is not None
    assert (film["steps"], film["return"]) == (5, 1 + 2 + 1 + 2 + 1)


def test_start_film_does_not_wait_for_the_file(tmp_path, monkeypatch):
    gate, write = threading.Event(), VideoWriter._write_file
    monkeypatch.setattr(VideoWriter, "_write_file", lambda self: (gate.wait(), write(self)))
    film = start_film(Slider(), Push(), tmp_path / "film.mp4", length=6, size=SIZE, annotations=False)
    assert film is not None
    assert not film.is_done
    assert list(tmp_path.iterdir()) == []
    gate.set()
    assert film.result() == {"frames": 7, "steps": 6, "return": 21.0, "path": str(tmp_path / "film.mp4")}
    assert film.is_done


def test_a_picture_that_fails_in_the_midst_ends_the_film(tmp_path, monkeypatch, caplog):
    env, draw = Slider(), Slider.render

    def render(self, *size):
        if self.x >= 3.0:
            raise RuntimeError("the screen burns")
        return draw(self, *size)

    monkeypatch.setattr(Slider, "render", render)
    film = record_episode(env, Push(), tmp_path / "film.mp4", length=9, size=SIZE)
    assert film is not None
    assert film["frames"] == 3
    assert caplog.text.count("ends early: the screen burns") == 1


def test_annotations_are_visible(tmp_path):
    paths = [tmp_path / "plain.mp4", tmp_path / "text.mp4"]
    for path, shown in zip(paths, (False, True), strict=True):
        record_episode(Slider(), Push(), path, length=3, size=(320, 240), annotations=shown)
    record_episode(Slider(), Push(), tmp_path / "both.mp4", length=3, size=(320, 240), caption=["right"])
    plain, text, both = (iio.imread(path).astype(int) for path in (*paths, tmp_path / "both.mp4"))
    assert (text - plain)[:, :80, :160].max() > 150
    assert abs(text - plain)[:, 120:].max() < 30
    assert abs(text - plain)[:, :, 160:].max() < 30
    assert (both - plain)[:, :80, 160:].max() > 150


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
    assert frames.shape == (6, 120, 160, 3)
    assert all((frame[..., 0] > 80).any() for frame in frames)
    assert frames.mean() > 10
