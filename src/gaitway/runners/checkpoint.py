"""Checkpoints of a run: `checkpoints/<env steps>/`, with `last` and `best` as links.

A checkpoint is complete and synced before a link moves to it, and nothing is deleted before both links are right, so
a run that is killed at any moment, or meets a full disk, still has a whole checkpoint to go on from.

What is too large to be written whole every time (a replay) lies beside the checkpoints as *attachments*: each
checkpoint lists the names of those it needs, and what no checkpoint lists any more is removed.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gaitway.core.config import configuration
from gaitway.core.files import (
    STRUCTURE_FILE,
    StateFileError,
    load_meta,
    load_state,
    save_state,
    swap_link,
    tensors_sha256,
)
from gaitway.core.ranges import Count, WholeNumber

if TYPE_CHECKING:
    from torch import Tensor

KIND = "checkpoint"
LINKS = ("last", "best")
log = logging.getLogger("gaitway")


@configuration
class CheckpointConfig:
    """When checkpoints are written and which are kept."""

    interval: Count = 100_000
    """Environment steps between checkpoints; there is always one at the start and one at the end."""
    keep: Count = 2
    """How many of the newest stay, beside the best."""
    every: WholeNumber = 0
    """Also keep the first checkpoint of each stretch of this many environment steps; 0 for none."""
    keep_all: bool = False


class Attachments(Protocol):
    """Files beside the checkpoints, such as the chunks of a replay."""

    def tidy(self, keep: Iterable[str]) -> None:
        """Remove those that `keep` does not name."""
        ...


class Checkpoints:
    """The checkpoints of one run folder, and what they need beside themselves."""

    def __init__(
        self,
        folder: Path,
        run_id: str,
        config: CheckpointConfig | None = None,
        attachments: Attachments | None = None,
    ) -> None:
        self.folder, self.run_id, self.attachments = Path(folder), run_id, attachments
        self.config = config or CheckpointConfig()

    def steps(self) -> list[int]:
        """Environment steps of the complete checkpoints, ascending."""
        if not self.folder.is_dir():
            return []
        names = [p.name for p in self.folder.iterdir() if p.is_dir() and not p.is_symlink() and p.name.isdigit()]
        return sorted(int(name) for name in names)

    def save(
        self,
        steps: int,
        state: Mapping[str, Any],
        best_steps: int | None,
        attached: Iterable[str] = (),
        facts: Mapping[str, Any] | None = None,
    ) -> bool:
        """Write the checkpoint of `steps`, point `last` (and `best`) to what they should be, then tidy up.

        `attached` names the attachments it needs, which are on disk already; `facts` is what `facts` tells about it
        without reading the state. Returns False, with everything older
        untouched, if it could not be written.
        """
        target = self.folder / str(steps)
        meta: dict[str, Any] = {"run_id": self.run_id, "steps": steps, "facts": dict(facts or {})}
        if self.attachments is not None:
            meta["attachments"] = list(attached)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._links_again()
            save_state(target, dict(state), kind=KIND, meta=meta)
            swap_link(self.folder / "last", str(steps))
            if best_steps is not None and (self.folder / str(best_steps)).is_dir():
                swap_link(self.folder / "best", str(best_steps))
        except (OSError, StateFileError) as error:
            log.error("no checkpoint at step %d, the older ones are kept: %s", steps, error)
            return False
        self._tidy(steps, best_steps)
        self.tidy_attachments()
        return True

    def steps_of(self, which: str) -> int:
        """The environment steps of `last`, `best` or a number of steps; an error that names what there is."""
        named = which in LINKS or (which.isascii() and which.isdecimal())  # never a path
        name = self._name_of(which) if named else ""
        if not name.isdecimal() or not ((self.folder / name).exists() or (self.folder / which).is_dir()):
            known = [each for each in LINKS if (self.folder / each).exists()] + [str(step) for step in self.steps()]
            if not known:
                raise StateFileError(f"{self.folder.parent} has no checkpoints; put them back, or train it first")
            raise StateFileError(
                f"{self.folder.parent} has no checkpoint {which!r}; it has {known}; use last, best or a number of steps"
            )
        return int(name)

    def _name_of(self, which: str) -> str:
        """The folder that `last`, `best` or a number of steps stands for. Where a run was copied by what follows links
        (`scp -r`), `last` and `best` are copies of it."""
        folder = self.folder / which
        if which in LINKS and folder.is_dir() and not folder.is_symlink():
            return str(load_meta(folder, kind=KIND).get("steps"))
        return folder.resolve().name

    def _place_of(self, which: str) -> Path:
        """Where that checkpoint lies; a copy named `last` or `best` does where the checkpoint itself was left out."""
        numbered = self.folder / str(self.steps_of(which))
        return numbered if numbered.is_dir() else self.folder / which

    def _links_again(self) -> None:
        """Turn copies back into links, where the checkpoint itself is there."""
        for link in LINKS:
            folder = self.folder / link
            name = self._name_of(link) if folder.is_dir() and not folder.is_symlink() else ""
            if name.isdecimal() and (self.folder / name).is_dir():
                shutil.rmtree(folder)
                swap_link(folder, name)

    def load(self, which: str = "last") -> tuple[dict[str, Any], int]:
        """The state and its environment steps; `which` is last, best or a number of steps."""
        folder = self._place_of(which)
        state, meta = load_state(folder, kind=KIND)
        self._check_owner(folder, meta)
        return state, int(meta["steps"])

    def facts(self, which: str = "last") -> dict[str, Any]:
        """What a checkpoint says about itself, in a moment; empty where it was written before there were facts."""
        folder = self._place_of(which)
        meta = load_meta(folder, kind=KIND)
        self._check_owner(folder, meta)
        return dict(meta.get("facts", {}))

    def _check_owner(self, folder: Path, meta: Mapping[str, Any]) -> None:
        if meta.get("run_id") != self.run_id:
            raise StateFileError(
                f"{folder} belongs to another run ({meta.get('run_id')}, this one is {self.run_id}); "
                "put the run's own checkpoint back"
            )

    def _tidy(self, now: int, best_steps: int | None) -> None:
        """Remove what is not kept, and what a run that went back to an older checkpoint has left in its future."""
        past = [step for step in self.steps() if step <= now]
        # the link stays with an older checkpoint where that of the best could not be written
        linked = (self.folder / "best").resolve().name
        keep = {
            best_steps,
            int(linked) if linked.isdigit() else None,
            *(past if self.config.keep_all else past[-self.config.keep :]),
        }
        if self.config.every:
            stretches: dict[int, int] = {}
            for step in past:
                stretches.setdefault(step // self.config.every, step)
            keep |= set(stretches.values())
        for step in self.steps():
            if step > now or step not in keep:
                shutil.rmtree(self.folder / str(step), ignore_errors=True)

    def tidy_attachments(self) -> None:
        """Remove what no checkpoint here, and no copy of one beside a failure, needs."""
        if self.attachments is None:
            return
        copies = self.folder.parent.glob("failures/*/checkpoint")
        try:
            needed = {name for folder in (*self._folders(), *copies) for name in _attached(folder)}
        except (OSError, ValueError, KeyError, TypeError) as error:  # better too many than one too few
            log.warning("unneeded files beside the checkpoints stay, because a checkpoint cannot be read: %s", error)
            return
        self.attachments.tidy(needed)

    def _folders(self) -> list[Path]:
        return [self.folder / str(step) for step in self.steps()]


def _attached(folder: Path) -> list[str]:
    """The attachments a checkpoint names."""
    return list(json.loads((folder / STRUCTURE_FILE).read_bytes())["meta"].get("attachments", ()))


def parameters_sha256(parameters: Mapping[str, Tensor]) -> str:
    """A fingerprint of all learnt parameters: names, shapes and bytes, in name order."""
    return tensors_sha256({name: value.detach().cpu() for name, value in parameters.items()})
