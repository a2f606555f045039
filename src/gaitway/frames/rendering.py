"""Pictures as rows, or in a window while the cast runs.

    film = Rendering(world)
    Agents(world.observe, film, policy, world.advance, film.last)    # step rows: T + 1 pictures, as observations
    Agents(frames, Rendering(frames), policy)                        # a FrameAgent: one picture per row

Row t of `env/rendering`, uint8 `[B, H, W, 3]`, shows what `env/obs` of row t describes. The states in which episodes
end have rows of their own in framed and frozen streams and are shown there. Environments that reset within a step have
left that state before anyone could draw it: step rows and compact streams show the start of the next episode, like
their observations do, and a frozen stream over such an environment repeats the picture before the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaitway.core.agent import Agent
from gaitway.core.workspace import Workspace
from gaitway.envs.env_agent import EnvAgent
from gaitway.envs.pictures.window import PlainWindow, real_time
from gaitway.frames.agent import FrameAgent

NAME = "env/rendering"
World = EnvAgent | FrameAgent


class Rendering(Agent):
    """Writes `env/rendering` of row t; `size` is width and height in pixels.

    It stands after `world.observe`, or after the FrameAgent. For step rows `last` stands after `world.advance` and adds
    the picture of row t+1, so that the final row is there too; its workspace must know of that row:
    `Workspace(extra_row=["env/rendering"])`. Every state is drawn once.
    """

    def __init__(self, world: World, size: tuple[int, int] = (160, 120), name: str | None = None) -> None:
        super().__init__(name)
        if not isinstance(world, EnvAgent | FrameAgent):
            raise TypeError(f"Rendering draws an EnvAgent or a FrameAgent, found {type(world).__name__}")
        if min(size) < 1:
            raise ValueError(f"the size is {size}; use a width and a height of at least one pixel")
        self.size = size
        self.writes = (NAME,)
        self._world = [world]  # in a list, so that nn.Module does not register it a second time
        self._drawn: tuple[Any, Tensor] | None = None
        self.last = AfterAdvance(self)

    def step(self, ws: Workspace, t: int) -> None:
        self.write(ws, t, t)

    def write(self, ws: Workspace, t: int, row: int) -> None:
        """Draw the present state, which is that of row `row`, in step t."""
        world, name = self._world[0], self.out(NAME)
        if isinstance(world, FrameAgent):
            pictures = self._frames(world, ws, row)
        else:
            if world.current is None:
                raise RuntimeError("the environment has not been observed yet; place Rendering after world.observe")
            if self._drawn is None or self._drawn[0] is not world.current:
                self._drawn = (world.current, self._draw(world, torch.ones(world.env.num_envs, dtype=torch.bool)))
            pictures = self._drawn[1]
        ws.copier(name)(row, pictures)

    def _frames(self, world: FrameAgent, ws: Workspace, row: int) -> Tensor:
        """A frozen column is drawn until it rests; afterwards its picture is repeated like the rest of its row."""
        if world.mode != "frozen" or row == 0:
            return self._draw(world, torch.ones(world.num_envs, dtype=torch.bool))
        # where the environment has reset already, the last picture that can be had is the one before the end
        known = row if world.source.resets_at_once else row - 1
        resting = ws.at(world.out("env/terminated"), known) | ws.at(world.out("env/truncated"), known)
        pictures = self._draw(world, ~resting.cpu())
        repeated = resting.nonzero().squeeze(1)
        pictures[repeated] = ws.at(self.out(NAME), row - 1)[repeated]
        return pictures

    def _draw(self, world: World, wanted: Tensor) -> Tensor:
        width, height = self.size
        pictures = np.zeros((len(wanted), height, width, 3), dtype=np.uint8)
        for column in wanted.nonzero().flatten().tolist():
            pictures[column] = picture(world, column, self.size)
        return torch.from_numpy(pictures).to(world.device if isinstance(world, FrameAgent) else world.env.device)


class AfterAdvance(Agent):
    """The part of a `Rendering` that stands after `world.advance` and draws the row after this one."""

    def __init__(self, rendering: Rendering) -> None:
        super().__init__()
        self._rendering = [rendering]

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        return self._rendering[0].writes

    @property
    def writes(self) -> tuple[str, ...]:  # type: ignore[override]
        return self._rendering[0].writes

    def step(self, ws: Workspace, t: int) -> None:
        rendering = self._rendering[0]
        if isinstance(rendering._world[0], FrameAgent):
            raise TypeError("a FrameAgent writes final rows by itself; place Rendering after it and leave out `last`")
        if not ws.may_have_extra_row(rendering.out(NAME)):
            raise ValueError(
                f"pictures have one row more than steps; make the workspace with extra_row=[{rendering.out(NAME)!r}]"
            )
        rendering.write(ws, t, t + 1)


class Window(Agent):
    """Shows one column in a window while the cast runs; writes nothing. It stands where a `Rendering` does.

    `fps` slows the run down to that many rows per second: None is real time (30 where the task has no clock), 0 as fast
    as it goes. Where there is no screen, one logged sentence says so and the run goes on without; closing the window
    does the same.
    """

    def __init__(
        self,
        world: World,
        column: int = 0,
        size: tuple[int, int] = (640, 480),
        fps: float | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        fps = real_time(world.source.spec if isinstance(world, FrameAgent) else world.env.spec) if fps is None else fps
        self._window = PlainWindow(lambda: picture(world, column, size), size, fps)

    @property
    def is_open(self) -> bool:
        return self._window.is_open

    def step(self, ws: Workspace, t: int) -> None:
        self._window.show()

    def close(self) -> None:
        """Close the window; nothing is shown from now on."""
        self._window.close()


def picture(world: World, column: int, size: tuple[int, int]) -> np.ndarray:
    """One environment as it stands, uint8 `[height, width, 3]`."""
    return (world if isinstance(world, FrameAgent) else world.env).render(column, *size)
