"""A folder of runs, looked at again and again by one thread: what is published is whole and never changes."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gaitway.analysis.report.board import Board
from gaitway.analysis.report.curves import curves_of
from gaitway.analysis.report.facts import RunFacts, text
from gaitway.analysis.report.folders import runs_inside
from gaitway.analysis.report.groups import ScoredGroup
from gaitway.analysis.report.media import Medium

PAUSE_S = 1.2
"""Between two looks."""
FIRST_S = 0.6
"""For how long runs are read before the first view; those that are left come with the next ones."""
AT_ONCE = 1 << 23
"""Bytes of the metrics of one run that are taken in by one look."""
AGAIN_S = 10.0
"""After this time states are told anew even if no file has changed: a run may have fallen silent."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Snapshot:
    """What a page is told."""

    version: str
    state: bytes
    runs: Sequence[RunFacts] = field(repr=False)
    groups: Sequence[ScoredGroup] = field(repr=False)
    metrics: frozenset[str] = field(repr=False)
    media: dict[tuple[str, tuple[str, ...]], tuple[Path, Medium]] = field(repr=False)
    """Run id and place below it -> run folder and file: all that is ever served of runs."""
    _curves: dict[str, bytes] = field(default_factory=dict, repr=False)

    def curves(self, metric: str) -> bytes | None:
        """One metric as JSON; None if no run has it."""
        if metric not in self.metrics:
            return None
        if metric not in self._curves:
            found = curves_of(self.runs, self.groups, metric)
            self._curves[metric] = json.dumps(found, allow_nan=False, separators=(",", ":")).encode()
        return self._curves[metric]


class LiveBoard:
    """Looks at a folder while somebody asks."""

    def __init__(self, root: Path, metric: str | None = None) -> None:
        self.root = root
        self._board = Board(text(root.resolve().name or root), root, metric, AT_ONCE)
        self._snapshot: Snapshot | None = None
        self._published, self._asked = threading.Condition(), threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gaitway-dash", daemon=True)

    @property
    def title(self) -> str:
        return self._board.title

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._asked.set()
        self._thread.join(timeout=10.0)

    def snapshot(self, timeout_s: float = 20.0) -> Snapshot | None:
        """The last one; the first one may have to be waited for."""
        self._asked.set()
        with self._published:
            self._published.wait_for(lambda: self._snapshot is not None, timeout_s)
            return self._snapshot

    def _run(self) -> None:
        budget, told = FIRST_S, 0.0
        while not self._closed.is_set():
            try:
                folders = list(runs_inside(self.root))
                changed = self._board.look(folders, inside=True, budget_s=budget)
                if changed or self._snapshot is None or time.monotonic() - told > AGAIN_S:
                    self._publish()
                    told = time.monotonic()
            except Exception:  # a page that stays as it is beats one that is gone
                log.exception("%s could not be looked at", self.root)
            budget = min(4.0, 2 * budget)
            if self._board.to_read:
                continue
            self._asked.clear()
            if self._closed.wait(PAUSE_S):
                return
            self._asked.wait()  # while nobody asks, nothing is read

    def _publish(self) -> None:
        board = self._board
        state = board.state()
        version = hashlib.sha256(json.dumps(state).encode()).hexdigest()[:16]
        if self._snapshot is not None and self._snapshot.version == version:
            return
        content = json.dumps(state | {"version": version}, allow_nan=False, separators=(",", ":")).encode()
        media = {(board.runs[one.run].id, one.parts): (board.runs[one.run].run.folder, one) for one in board.media}
        found = Snapshot(version, content, board.runs, board.groups, frozenset(state["metrics"]), media)
        with self._published:
            self._snapshot = found
            self._published.notify_all()
