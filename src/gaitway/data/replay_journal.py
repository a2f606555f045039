"""ReplayJournal: a replay on disk that is written as it grows, not whole at every checkpoint.

Time rows that are complete never change, so each `write` adds one chunk (or a few, if there is much) with the rows that
are new, and returns a manifest: the names of the chunks that hold what the replay holds now, and its bookkeeping. The
manifest goes into the checkpoint. A chunk is named `<first row>-<row after the last>-<digest of its contents>`, so a
run that goes back to an older checkpoint and takes another course writes chunks of other names; those of the abandoned
course are no longer listed by anybody and `tidy` removes them.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from gaitway.core.files import StateFileError, load_state, remove_leftovers, save_state, tensors_sha256
from gaitway.data.step_replay import StepReplay

KIND = "replay chunk"
CHUNK_BYTES = 2**26
_NAME = re.compile(r"(\d+)-(\d+)-([0-9a-f]{12})")


class ReplayFileError(StateFileError):
    """The replay on disk is incomplete or damaged; the message is one sentence that names the file and the fix."""


class ReplayJournal:
    """The chunks of one replay, in `folder`, which belongs to this journal alone."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._chunks: list[str] = []
        self._history: object = None

    def write(self, replay: StepReplay) -> dict[str, Any]:
        """Write the rows that are not on disk yet; returns the manifest, whose `chunks` are names in the folder.

        The newest row is not among them: it is in the bookkeeping, because a `cut` can still change it.
        """
        first, stop = replay.first_row, max(replay.rows_added - 1, replay.first_row)
        chunks = [name for name in self._chunks if _span(name)[1] > first] if self._history is replay.history else []
        if not all((self.folder / name).is_dir() for name in chunks):
            chunks = []  # somebody removed one; what it held may still be here
        start = _span(chunks[-1])[1] if chunks else first
        rows_at_once = max(1, CHUNK_BYTES // replay.row_bytes)
        self._chunks, self._history = chunks, replay.history
        for begin in range(start, stop, rows_at_once):
            self._chunks.append(self._save(replay, begin, min(begin + rows_at_once, stop)))
        return {"chunks": list(self._chunks), "replay": replay.bookkeeping()}

    def read(self, replay: StepReplay, manifest: Mapping[str, Any]) -> None:
        """Make `replay` what it was when `manifest` was written; its next draws are the same ones too.

        Raises ReplayFileError, with the replay empty, if the files are not what they were.
        """
        state = manifest["replay"]
        replay.check_bookkeeping(state)
        replay.clear(state["first_row"])
        try:
            for name in manifest["chunks"]:
                rows = self._load(name)
                start, stop = _span(name)
                if not start <= replay.rows_added < stop:
                    raise ReplayFileError(
                        f"the replay of this checkpoint goes on with row {replay.rows_added} and its chunk {name} does "
                        "not hold it; use another checkpoint"
                    )
                replay.restore_rows(_from_row(rows, replay.rows_added - start))
            replay.load_bookkeeping(state)
        except (ReplayFileError, ValueError):
            replay.clear()
            raise
        self._chunks, self._history = list(manifest["chunks"]), replay.history

    def tidy(self, keep: Iterable[str]) -> None:
        """Remove the chunks that `keep` does not name, and what a killed writer left."""
        if not self.folder.is_dir():
            return
        remove_leftovers(self.folder)
        keep = set(keep)
        for path in self.folder.iterdir():
            if _NAME.fullmatch(path.name) and path.name not in keep:
                shutil.rmtree(path, ignore_errors=True)

    def _save(self, replay: StepReplay, start: int, stop: int) -> str:
        rows = {name: value.cpu() for name, value in replay.rows(start, stop).items()}
        name = f"{start}-{stop}-{_digest(rows)}"
        save_state(self.folder / name, rows, kind=KIND)
        return name

    def _load(self, name: str) -> dict[str, Tensor]:
        found = _NAME.fullmatch(name)
        if found is None:
            raise ReplayFileError(f"{name!r} is not the name of a replay chunk; use another checkpoint")
        path = self.folder / name
        if not path.is_dir():
            raise ReplayFileError(f"the replay chunk {path} is missing; put it back or use another checkpoint")
        try:
            rows, _ = load_state(path, kind=KIND)
        except StateFileError as error:
            raise ReplayFileError(f"the replay cannot be restored: {error}") from error
        if _digest(rows) != found[3]:
            raise ReplayFileError(
                f"the replay chunk {path} holds other rows than its name says; use another checkpoint"
            )
        return rows


def _span(name: str) -> tuple[int, int]:
    start, stop, _ = name.split("-")
    return int(start), int(stop)


def _from_row(rows: dict[str, Tensor], skipped: int) -> dict[str, Tensor]:
    """What `StepReplay.rows` gives for all but the first `skipped` rows, which the ring had overwritten."""
    if skipped == 0:
        return rows
    finals = int(rows["env/truncated"][:skipped].sum())
    return {name: value[finals if name.startswith("env/final_obs/") else skipped :] for name, value in rows.items()}


def _digest(rows: Mapping[str, Tensor]) -> str:
    """12 hexadecimal digits that stand for names, shapes, dtypes and every byte."""
    return tensors_sha256(rows)[:12]
