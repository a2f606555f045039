"""A plain window that shows pictures, drawn by pygame, in real time or as fast as they come."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from gaitway.envs.spec import EnvSpec

logger = logging.getLogger(__name__)

FPS_WITHOUT_CLOCK = 30.0


class PlainWindow:
    """Shows what `draw` returns, uint8 `[height, width, 3]`, at most `fps` times a second (0: as fast as it goes).

    `press` is told the names of keys. Where there is no screen, one logged sentence says so and `show` does nothing
    from then on.
    """

    def __init__(
        self,
        draw: Callable[[], np.ndarray],
        size: tuple[int, int],
        fps: float,
        press: Callable[[str], None] | None = None,
    ) -> None:
        self.draw, self.size, self._fps, self._press = draw, size, fps, press
        self._screen: Any = None
        self._clock: Any = None
        self.is_open = True

    def show(self) -> None:
        if not self.is_open:
            return
        problem = screen_problem() if self._screen is None else None
        if problem is not None:
            self._stop(problem)
            return
        frame = self.draw()
        import pygame

        try:
            self._show(pygame, frame)
        except pygame.error as error:
            self._stop(f"the window cannot be shown ({error}); the run goes on without it")

    def close(self) -> None:
        """Close the window; nothing is shown from now on."""
        if self._screen is not None:
            import pygame

            pygame.display.quit()
        self._screen, self.is_open = None, False

    def _show(self, pygame: Any, frame: np.ndarray) -> None:
        if self._screen is None:
            pygame.display.init()
            self._screen = pygame.display.set_mode(self.size)
            pygame.display.set_caption("gaitway")
            self._clock = pygame.time.Clock()
        self._screen.blit(pygame.surfarray.make_surface(frame.swapaxes(0, 1)), (0, 0))
        pygame.display.flip()
        events = pygame.event.get()
        for event in events:
            if event.type == pygame.KEYDOWN and self._press is not None:
                self._press(pygame.key.name(event.key))
        if any(event.type == pygame.QUIT for event in events):
            self.close()
        elif self._fps > 0:
            self._clock.tick(self._fps)

    def _stop(self, sentence: str) -> None:
        logger.warning(sentence)
        self.is_open = False


def real_time(spec: EnvSpec | None) -> float:
    """Pictures a second at which a task runs as fast as it would in the world."""
    return 1.0 / spec.control_dt if spec is not None and spec.control_dt > 0 else FPS_WITHOUT_CLOCK


def screen_problem() -> str | None:
    """None if a window can be opened here, else one sentence."""
    keep = "the run goes on without it; Rendering(world) or record_video keep the pictures"
    try:
        import pygame  # noqa: F401
    except ImportError as error:
        return f"a window needs pygame ({error}); run `pip install pygame-ce`, {keep}"
    chosen = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"))
    if sys.platform.startswith("linux") and not chosen:
        return f"there is no screen here to open a window on (DISPLAY is not set); {keep}"
    return None
