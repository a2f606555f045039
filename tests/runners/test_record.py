"""One episode as a film: exactly the path, any observation, options for the policy, the environment left open."""

import gymnasium
import imageio.v3 as iio
import numpy as np
import pytest
import torch
from gymnasium import spaces

from gaitway.core.agent import Agent
from gaitway.core.workspace import Workspace
from gaitway.envs.gym.env import GymnasiumEnv
from gaitway.frames.agent import FrameAgent
from gaitway.runners.encoders import video_problem
from gaitway.runners.record import record_video

needs_ffmpeg = pytest.mark.skipif(video_problem() is not None, reason="there is no ffmpeg here")


class Corridor(gymnasium.Env):
    """Walk right to cell 5; the observation is the cell (Discrete), or a dictionary with it. Reward -1 a step, 10 at
    the end. The picture is a bar of the cells behind."""

    action_space = spaces.Discrete(2)
    render_mode = "rgb_array"
    metadata = {"render_fps": 10}  # noqa: RUF012

    def __init__(self, nested=False):
        cell = spaces.Discrete(6)
        self.nested, self.closed = nested, False
        self.observation_space = spaces.Dict({"cell": cell}) if nested else cell

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = 0
        return self._obs(), {}

    def step(self, action):
        self.cell += int(action)
        return self._obs(), 10.0 if self.cell == 5 else -1.0, self.cell == 5, False, {}

    def render(self):
        frame = np.zeros((33, 60, 3), dtype=np.uint8)
        frame[:, : 10 * self.cell] = 255
        return frame

    def close(self):
        self.closed = True

    def _obs(self):
        return {"cell": self.cell} if self.nested else self.cell


class Right(Agent):
    """Goes right; with `stubborn` it stays where it is. Looks up a table by the cell, as tabular policies do."""

    writes = ("action",)

    def __init__(self, group="policy"):
        super().__init__()
        self.group, self.seen = group, []
        self.table = torch.ones(6, dtype=torch.int64)

    def step(self, ws: Workspace, t: int, *, stubborn: bool = False):
        cell = ws.at(f"env/obs/{self.group}", t)
        self.seen.append(cell.tolist())
        ws.put("action", t, self.table[cell] * (not stubborn))


def bar(frame):
    """Cells that a picture shows."""
    return round(float((frame[16, :, 0] > 128).mean()) * 6)


@needs_ffmpeg
@pytest.mark.parametrize("nested", [False, True])
def test_bug_52_one_episode_to_exactly_the_path(tmp_path, nested):
    env, path = Corridor(nested), tmp_path / "deep" / "film.mp4"
    policy = Right("cell" if nested else "policy")
    assert record_video(env, policy, path) == (6.0, 5)
    assert [entry.name for entry in path.parent.iterdir()] == ["film.mp4"]
    frames = iio.imread(path, plugin="FFMPEG")
    assert frames.shape == (6, 32, 60, 3)  # rows 0..5, the final state included; the odd row is gone
    assert [bar(frame) for frame in frames] == [0, 1, 2, 3, 4, 5]
    assert iio.immeta(path, plugin="FFMPEG")["fps"] == 10
    assert policy.seen[2] == [2]
    assert not env.closed


def test_a_gif_needs_no_ffmpeg_and_options_reach_the_policy(tmp_path):
    path = tmp_path / "film.gif"
    returned, length = record_video(Corridor(), Right(), path, max_steps=3, stubborn=True, size=(12, 8))
    assert (returned, length) == (-3.0, 3)
    frames = iio.imread(path, index=None)
    assert frames.shape[1:] == (8, 12, 3)
    assert not frames.any()
    assert [entry.name for entry in tmp_path.iterdir()] == ["film.gif"]
    with pytest.raises(TypeError, match="stubbron"):
        record_video(Corridor(), Right(), path, stubbron=True)


def test_environments_that_reset_at_once_end_with_their_final_state(tmp_path):
    path = tmp_path / "film.gif"
    env = GymnasiumEnv(Corridor, 1)

    class OneHot(Agent):
        def step(self, ws, t):
            ws.put("action", t, torch.ones(1, dtype=torch.int64))

    assert record_video(env, OneHot(), path, size=(60, 32)) == (6.0, 5)
    assert [bar(frame) for frame in iio.imread(path, index=None)] == [0, 1, 2, 3, 4, 5]
    env.reset()  # still open


def test_the_same_seed_films_the_same_episode(tmp_path):
    results = []
    for seed in (1, 1, 2):
        env = gymnasium.make("CartPole-v1", render_mode="rgb_array")

        class Push(Agent):
            def step(self, ws, t):
                ws.put("action", t, (ws.at("env/obs/policy", t)[:, 2] > 0).long())

        path = tmp_path / f"{len(results)}.gif"
        results.append((record_video(env, Push(), path, seed=seed, size=(60, 40)), path.read_bytes()))
        env.reset()
        env.close()
    assert results[0] == results[1]
    assert results[0] != results[2]


def test_mistakes_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"\.mp4 or \.gif"):
        record_video(Corridor(), Right(), tmp_path / "film.avi")
    with pytest.raises(ValueError, match="num_envs=1"):
        record_video(FrameAgent(Corridor, 2, mode="frozen"), Right(), tmp_path / "film.gif")
    with pytest.raises(ValueError, match="mode='frozen'"):
        record_video(FrameAgent(Corridor, 1, mode="framed"), Right(), tmp_path / "film.gif")
    with pytest.raises(ValueError, match="max_steps"):
        record_video(Corridor(), Right(), tmp_path / "film.gif", max_steps=-1)
    with pytest.raises(ValueError, match="render_mode='rgb_array'"):
        record_video(gymnasium.make("CartPole-v1"), Right(), tmp_path / "film.gif")
    assert list(tmp_path.iterdir()) == []
