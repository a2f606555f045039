"""Where commands print to."""

from __future__ import annotations

import sys

from gaitway.core.terminal import Terminal

console = Terminal(highlight=False, width=None if sys.stdout.isatty() else 160)
