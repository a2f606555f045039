"""Where commands print tables and lines."""

from __future__ import annotations

from rich.console import Console


class Terminal(Console):
    """A console that reports a reader who has left; rich would end the program."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError("the reader has left")
