"""How far a run is, for whoever watches: a panel on a terminal, a dated line every few seconds elsewhere.

The display is a guest in the training loop: whatever goes wrong with it switches it off and nothing else.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TextIO

from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gaitway.core.terminal import Terminal

RETURN, LENGTH, BEST, LOSS = "train/return", "train/length", "best/return", "loss/"
"""The metrics that are shown: three names and a prefix."""
SHADES = "█▓▒░"
"""One per share of the time, so that the bar needs no colours."""
REFRESH_S = 0.25
WINDOW = 50
"""Updates over which the speed is measured."""

log = logging.getLogger("gaitway")


class Progress:
    """A context manager around training; `update` is called once per iteration.

    `interval_s` is the time between two lines where there is no terminal. `stream` is stdout unless given.
    """

    def __init__(
        self,
        total_steps: int,
        *,
        title: str = "",
        quiet: bool = False,
        interval_s: float = 5.0,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total_steps, self.title, self.quiet = total_steps, title, quiet
        self.interval_s, self.stream, self.clock = interval_s, stream, clock
        self.step = 0
        self._metrics: dict[str, float] = {}
        self._shares: dict[str, float] = {}
        self._best = -math.inf
        self._recent: deque[tuple[float, int]] = deque(maxlen=WINDOW)
        self._shown_at = -math.inf
        self._printed_step = -1
        self._live: Live | None = None

    def __enter__(self) -> Progress:
        self._recent.clear()
        self._shown_at = -math.inf
        self._guard(self._open)
        return self

    def __exit__(self, *_: object) -> None:
        self._guard(self._close)

    def update(self, step: int, metrics: Mapping[str, float], shares: Mapping[str, float]) -> None:
        """The state after an iteration. A metric keeps its last value while it is not reported again."""
        self._guard(lambda: self._update(step, metrics, shares))

    def _update(self, step: int, metrics: Mapping[str, float], shares: Mapping[str, float]) -> None:
        self.step = step
        self._metrics.update(metrics)
        self._shares = dict(shares)
        if metrics.get(RETURN, -math.inf) > self._best:
            self._best = metrics[RETURN]
        now = self.clock()
        self._recent.append((now, step))
        is_due = now - self._shown_at >= (self.interval_s if self._live is None else REFRESH_S)
        if is_due or (self._live is not None and step >= self.total_steps):  # the bar does not end at 97 %
            self._shown_at = now
            self._show()

    def _open(self) -> None:
        stream = self.stream or sys.stdout
        if not self.quiet and stream.isatty():
            self._live = Live(console=Terminal(file=stream, highlight=False), auto_refresh=False, transient=True)
            self._live.start()

    def _close(self) -> None:
        if self._live is None:
            if self.step != self._printed_step and self._recent:
                self._show()
            return
        live, self._live = self._live, None
        live.stop()

    def _show(self) -> None:
        if self.quiet:
            return
        if self._live is not None:
            self._live.update(self.panel(), refresh=True)
        else:
            stream = self.stream or sys.stdout
            stream.write(f"{datetime.now():%Y-%m-%d %H:%M:%S} {self.line()}\n")
            stream.flush()
            self._printed_step = self.step

    def line(self) -> str:
        """The state in one line, without the date."""
        parts = [f"{self.fraction:6.1%}  step {self.step:,} of {self.total_steps:,}", self._speed()]
        parts += [f"{label} {value:.4g}" for label, value in self._figures().items()]
        parts += [" ".join(f"{name} {share:.0%}" for name, share in self._shares.items())]
        return "  ".join(part for part in parts if part)

    def panel(self) -> Panel:
        """The state as a picture for a terminal."""
        bar = Table.grid(padding=(0, 1), expand=True)
        bar.add_column(ratio=1)
        bar.add_column(justify="right")
        bar.add_row(ProgressBar(total=1.0, completed=self.fraction), f"{self.fraction:.1%}")
        figures = "   ".join(f"{label} {value:.4g}" for label, value in self._figures().items())
        losses = "   ".join(
            f"{name.removeprefix(LOSS)} {value:.3g}"
            for name, value in sorted(self._metrics.items())
            if name.startswith(LOSS)
        )
        rows: list[RenderableType] = [bar, Text(f"step {self.step:,} of {self.total_steps:,}   {self._speed()}")]
        rows += [Text(figures, style="bold")] if figures else []
        rows += [Text(f"losses   {losses}", style="dim")] if losses else []
        rows += [Text(shares_bar(self._shares))] if self._shares else []
        return Panel(Group(*rows), title=self.title or None, title_align="left")

    @property
    def fraction(self) -> float:
        return min(max(self.step / self.total_steps, 0.0), 1.0) if self.total_steps > 0 else 1.0

    def _speed(self) -> str:
        if len(self._recent) < 2 or self._recent[-1][0] <= self._recent[0][0]:
            return ""
        (first_time, first_step), (last_time, last_step) = self._recent[0], self._recent[-1]
        speed = (last_step - first_step) / (last_time - first_time)
        if speed <= 0:
            return ""
        left = timedelta(seconds=round(max(self.total_steps - self.step, 0) / speed))
        return f"{speed:,.0f} steps/s  {left} left"

    def _figures(self) -> dict[str, float]:
        figures = {
            label: self._metrics[name]
            for label, name in (("return", RETURN), ("length", LENGTH))
            if name in self._metrics
        }
        best = self._metrics.get(BEST, self._best)  # the evaluation's, or the best while training
        return figures | ({"best": best} if math.isfinite(best) else {})

    def _guard(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # a closed pipe, a strange terminal: not worth a training run
            if not self.quiet:
                log.warning("no more progress display: %s", error)
            live, self.quiet, self._live = self._live, True, None
            if live is not None:
                with contextlib.suppress(Exception):
                    live.stop()  # gives the cursor back


def shares_bar(shares: Mapping[str, float], width: int = 40) -> str:
    """The shares of the time as one bar of `width` characters, with its legend."""
    ends = [round(width * sum(list(shares.values())[: index + 1])) for index in range(len(shares))]
    starts = [0, *ends[:-1]]
    marks = [SHADES[index % len(SHADES)] for index in range(len(shares))]
    bar = "".join(mark * (end - start) for mark, start, end in zip(marks, starts, ends, strict=True))
    legend = "  ".join(f"{mark} {name} {share:.0%}" for mark, (name, share) in zip(marks, shares.items(), strict=True))
    return f"{bar}  {legend}"
