"""Pictures aligned with observation rows, the final row included, and a window that is never worth a run."""

import functools
import logging

import pytest
import torch
from frame_cases import Episodes, Plan
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from gaitway.core.agent import Agents, TemporalAgent
from gaitway.core.wiring import check_wiring
from gaitway.core.workspace import Variable, Workspace
from gaitway.envs.env_agent import EnvAgent
from gaitway.envs.gym.env import GymnasiumEnv
from gaitway.envs.pictures import window as plain_window
from gaitway.envs.registry import make_env
from gaitway.frames.agent import FrameAgent
from gaitway.frames.rendering import Rendering, Window

NONE = torch.zeros(9, 2, dtype=torch.int64)


def shades(ws):
    """`Episodes` paints `10 * episode + step` everywhere; one number per row and column."""
    pictures = ws["env/rendering"]
    assert pictures.dtype is torch.uint8
    assert (pictures == pictures[:, :, :1, :1, :1]).all()
    return pictures[:, :, 0, 0, 0].T.tolist()


def expected(ws):
    seen = ws["env/obs/policy"][:, :, 0]
    return (seen.floor() * 10 + (seen - seen.floor()) * 10).round().int().T.tolist()


class TestStepRows:
    def cast(self, **options):
        world = EnvAgent(GymnasiumEnv(functools.partial(Episodes, lengths=(3,)), 2))
        film = Rendering(world, **options)
        return world, film, Agents(world.observe, film, Plan(NONE), world.advance, film.last)

    def test_one_picture_per_observation_row(self):
        _world, _film, cast = self.cast(size=(6, 4))
        check_wiring(cast)
        ws = Workspace(extra_row=["env/rendering"])
        loop = TemporalAgent(cast)
        loop.run(ws, n_steps=5)
        assert ws.T == 5
        assert ws["env/rendering"].shape == (6, 2, 4, 6, 3)
        assert shades(ws) == expected(ws)
        assert shades(ws)[0] == [10, 11, 12, 20, 21, 22]  # the first observe begins a new episode
        # the next rollout begins with the last picture of this one
        again = Workspace(extra_row=["env/rendering"])
        loop.run(again, n_steps=2)
        assert shades(again) == expected(again)

    def test_every_state_is_drawn_once(self, monkeypatch):
        world, _film, cast = self.cast()
        drawn = []
        render = world.env.render
        monkeypatch.setattr(world.env, "render", lambda *args: (drawn.append(args[0]), render(*args))[1])
        TemporalAgent(cast).run(Workspace(extra_row=["env/rendering"]), n_steps=4)
        assert drawn == [0, 1] * 5

    def test_dense_storage(self):
        world, _film, cast = self.cast(size=(2, 2))
        pictures = {"env/rendering": Variable(5, 2, (2, 2, 3), torch.uint8), "action": Variable(4, 2, (), torch.int64)}
        ws = Workspace.dense(world.variables(4) | pictures, extra_row=["env/rendering"])
        TemporalAgent(cast).run(ws, n_steps=4)
        assert shades(ws) == expected(ws)

    def test_misplacements_name_the_remedy(self):
        world, film, cast = self.cast()
        with pytest.raises(RuntimeError, match=r"after world\.observe"):
            film(Workspace(), 0)
        with pytest.raises(ValueError, match=r"extra_row=\['env/rendering'\]"):
            TemporalAgent(cast).run(Workspace(), n_steps=1)
        with pytest.raises(TypeError, match="EnvAgent or a FrameAgent"):
            Rendering(make_env("toy/cue"))
        with pytest.raises(ValueError, match="at least one pixel"):
            Rendering(world, size=(0, 3))
        frames = FrameAgent(Episodes, 2)
        with pytest.raises(TypeError, match="leave out `last`"):
            Rendering(frames).last(Workspace(), 0)


class TestFrames:
    def run(self, world, rows=7):
        ws = Workspace()
        TemporalAgent(Agents(world, Rendering(world, (3, 2)), Plan(NONE))).run(ws, n_steps=rows)
        return ws

    @pytest.mark.parametrize("mode", ["framed", "compact", "frozen"])
    def test_final_states_are_shown(self, mode):
        ws = self.run(FrameAgent([Episodes, functools.partial(Episodes, lengths=(4,))], mode=mode))
        assert shades(ws) == expected(ws)

    def test_next_step_vectors_are_frozen_with_the_final_state(self):
        vector = SyncVectorEnv([Episodes] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
        assert shades(self.run(FrameAgent(vector, mode="frozen")))[0] == [0, 1, 2, 2, 2, 2, 2]
        assert shades(self.run(FrameAgent(vector)))[0] == [0, 1, 2, 10, 11, 12, 20]

    def test_same_step_environments_are_frozen_with_the_picture_before(self):
        assert shades(self.run(FrameAgent(GymnasiumEnv(Episodes, 2), mode="frozen")))[0] == [0, 1, 1, 1, 1, 1, 1]

    def test_environments_without_pictures_say_what_to_do(self):
        world = FrameAgent("CartPole-v1", 2, mode="framed")
        with pytest.raises(ValueError, match="render_mode='rgb_array'"):
            self.run(world)
        toy = FrameAgent(make_env("toy/cue", num_envs=2))
        toy(ws := Workspace(), 0)
        with pytest.raises(ValueError, match="cannot be drawn"):
            Rendering(toy)(ws, 0)


class TestWindow:
    def test_without_a_screen_one_sentence_and_the_run_goes_on(self, monkeypatch, caplog):
        for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(plain_window.sys, "platform", "linux")
        world = FrameAgent(Episodes, 2, mode="framed")
        window = Window(world)
        with caplog.at_level(logging.WARNING):
            ws = Workspace()
            TemporalAgent(Agents(world, window, Plan(NONE))).run(ws, n_steps=6)
        assert len(caplog.records) == 1
        assert "no screen" in caplog.text
        assert "record_video" in caplog.text
        assert ws.rows("env/reward") == 6
        assert "env/rendering" not in ws

    def test_it_shows_the_present_state_and_can_be_closed(self, monkeypatch):
        import pygame

        monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
        world = FrameAgent(Episodes, 2, mode="framed")
        window = Window(world, size=(8, 6), fps=0)
        TemporalAgent(Agents(world, window, Plan(NONE))).run(Workspace(), n_steps=3)
        assert pygame.display.get_surface().get_size() == (8, 6)
        assert tuple(pygame.display.get_surface().get_at((4, 3)))[:3] == (2, 2, 2)
        pygame.event.post(pygame.event.Event(pygame.QUIT))
        window(Workspace(), 0)
        assert not window.is_open
        assert pygame.display.get_surface() is None
        window(Workspace(), 0)  # does nothing
        window.close()

    def test_real_time(self):
        walker = EnvAgent(make_env("walker/run"))
        assert Window(walker)._window._fps == pytest.approx(1 / walker.env.spec.control_dt)
        assert Window(FrameAgent(Episodes))._window._fps == 30
