"""Replay: a ring of samples in preallocated memory, drawn uniformly.

A sample is a column of a Workspace (a window of rows, `add` and `sample`) or one transition (`add_transitions` and
`sample_transitions`). The first addition decides which, and fixes the variables, their shapes and dtypes.

The samples lie in a `PackedRing`: drawing n of them is a single `index_select`. `sample` returns views of the copy that
it makes, never of the ring; they are not contiguous. Off-policy algorithms use `StepReplay`, which stores consecutive
steps in half the memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gaitway.core.seeding import restore_stream
from gaitway.core.workspace import Workspace
from gaitway.data.ring import (
    WORD,
    PackedRing,
    RowLayout,
    check_memory,
    moved_generator,
    replay_generator,
)

FORMAT = 1


class Replay:
    """The last `max_size` samples, drawn with `generator`, or with one of its own: seeded, or of fresh entropy."""

    def __init__(
        self,
        max_size: int,
        device: torch.device | str = "cpu",
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        if max_size < 1:
            raise ValueError(f"max_size is {max_size}; a buffer holds at least one sample")
        self.max_size = max_size
        self.device = torch.device(device)
        self.generator = replay_generator(seed, generator, self.device)
        self.clear()

    def clear(self) -> None:
        """Remove all samples, and their variables, shapes and dtypes; the random stream continues."""
        self.size = 0
        self.position = 0
        self._windows = True
        self._extra_row: frozenset[str] = frozenset()
        self._ring: PackedRing | None = None

    def __len__(self) -> int:
        return self.size

    @property
    def is_full(self) -> bool:
        return self.size == self.max_size

    @property
    def names(self) -> list[str]:
        """Variables of a sample, in the order of the first addition."""
        return [] if self._ring is None else list(self._ring.columns)

    def add(self, ws: Workspace, window: int | None = None, stride: int = 1) -> None:
        """Append every column of `ws` as one sample of all its rows. Values are detached copies.

        `window` cuts a longer workspace into windows of that many steps, starting every `stride` steps; observations
        keep their extra row. Samples that contain a row with `env/valid` false are left out.
        """
        values = {name: ws[name].detach() for name in ws}
        if window is None:
            samples = {name: value.transpose(0, 1) for name, value in values.items()}
        else:
            samples = _cut_windows(values, ws.T, window, stride)
        if "env/valid" in samples:  # a row that only reset an environment is no step
            whole = samples["env/valid"].all(1).nonzero().squeeze(-1)
            samples = {name: value[whole] for name, value in samples.items()}
        self._append(samples, windows=True, extra_row=ws.extra_row)

    def add_transitions(self, fields: Mapping[str, Tensor]) -> None:
        """Append N transitions, fields `[N, *e]` as `Workspace.transitions()` gives them, as detached copies."""
        self._append({name: value.detach() for name, value in fields.items()}, windows=False)

    def sample(self, n: int) -> Workspace:
        """n uniform draws with replacement, `[T, n, *e]`."""
        drawn = self._draw(n, windows=True)
        return Workspace.packed({name: v.transpose(0, 1) for name, v in drawn.items()}, extra_row=self._extra_row)

    def sample_transitions(self, n: int) -> dict[str, Tensor]:
        """n uniform draws with replacement, fields `[n, *e]`."""
        return self._draw(n, windows=False)

    def to(self, device: torch.device | str) -> Replay:
        """Move the samples, and all future additions and draws, to `device`."""
        self.device = torch.zeros(0, device=device).device
        self.generator = moved_generator(self.generator, self.device)
        if self._ring is not None:
            self._ring.to(self.device)
        return self

    def state_dict(self) -> dict[str, Any]:
        """Samples, position and random state, as tensors, numbers, strings and lists."""
        columns = {} if self._ring is None else self._ring.columns
        return {
            "format": FORMAT,
            "max_size": self.max_size,
            "size": self.size,
            "position": self.position,
            "windows": int(self._windows),
            "names": self.names,
            "extra_row": sorted(self._extra_row),
            "variables": {name: column[0, : self.size].clone() for name, column in columns.items()},
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict()`: the next draws equal those that the saved replay would have made."""
        if state["format"] != FORMAT:
            raise ValueError(f"the replay has format {state['format']}, this version reads {FORMAT}")
        if state["max_size"] != self.max_size:
            raise ValueError(
                f"the stored replay holds {state['max_size']} samples, this one {self.max_size}; make them equal"
            )
        self.clear()
        samples = {name: state["variables"][name] for name in state["names"]}
        if samples:
            self._append(samples, windows=bool(state["windows"]), extra_row=frozenset(state["extra_row"]))
        self.position = state["position"]
        restore_stream(self.generator, state["generator"])

    def _append(self, samples: Mapping[str, Tensor], windows: bool, extra_row: frozenset[str] = frozenset()) -> None:
        """Write `samples` `[N, *shape]` to slots `position, position + 1, ...`; the last `max_size` of them stay."""
        counts = {value.shape[0] for value in samples.values()}
        if len(counts) > 1:
            raise ValueError(f"variables have different numbers of samples {sorted(counts)}; they must agree")
        count = counts.pop() if counts else 0
        if count == 0:
            return
        ring = self._ring or self._allocate(samples, windows, extra_row)
        self._check_kind(windows)
        _check_samples(ring, samples)
        skipped = max(count - self.max_size, 0)
        for name, value in samples.items():
            ring.put(ring.columns[name], (self.position + skipped) % self.max_size, value[None, skipped:])
        self.position = (self.position + count) % self.max_size
        self.size = min(self.size + count, self.max_size)

    def _allocate(self, samples: Mapping[str, Tensor], windows: bool, extra_row: frozenset[str]) -> PackedRing:
        layout = RowLayout({name: (tuple(value.shape[1:]), value.dtype) for name, value in samples.items()})
        each = layout.words * WORD.itemsize
        check_memory(self.max_size * each, self.device, f"a replay of {self.max_size} samples", each)
        self._windows, self._extra_row = windows, extra_row
        self._ring = PackedRing(layout, self.max_size, device=self.device)
        return self._ring

    def _draw(self, n: int, windows: bool) -> dict[str, Tensor]:
        self._check_kind(windows)
        if self._ring is None:
            raise ValueError("the replay buffer is empty; add samples before drawing from it")
        index = torch.randint(self.size, (n,), generator=self.generator, device=self.generator.device)
        return self._ring.take(index.to(self.device))

    def _check_kind(self, windows: bool) -> None:
        if self._ring is not None and windows != self._windows:
            kind, suffix = ("windows", "") if self._windows else ("transitions", "_transitions")
            raise ValueError(f"this buffer holds {kind}; use add{suffix} and sample{suffix}, or clear() it first")


def _check_samples(ring: PackedRing, samples: Mapping[str, Tensor]) -> None:
    """Refuse samples whose variables, shapes or dtypes differ from the first addition, before anything is written."""
    fields = ring.layout.fields
    if samples.keys() != fields.keys():
        difference = samples.keys() ^ fields.keys()
        raise ValueError(f"the buffer holds {list(fields)}; {sorted(difference)} are missing or new in this addition")
    for name, field in fields.items():
        value = samples[name]
        if value.shape[1:] != field.shape or value.dtype is not field.dtype:
            raise ValueError(
                f"a sample of {name!r} is {list(field.shape)} {field.dtype}, found {list(value.shape[1:])} "
                f"{value.dtype}; the first addition fixed it"
            )


def _cut_windows(values: Mapping[str, Tensor], steps: int, window: int, stride: int) -> dict[str, Tensor]:
    """`[rows, B, *e]` as samples `[windows * B, window (+ 1), *e]`, earlier windows first."""
    if not 1 <= window <= steps or stride < 1:
        raise ValueError(
            f"cannot cut windows of {window} steps every {stride} steps from {steps}; use 1..{steps} and 1 or more"
        )
    samples = {}
    for name, value in values.items():
        pieces = value.unfold(0, window + len(value) - steps, stride)  # [windows, B, *e, rows of a window]
        samples[name] = pieces.movedim(-1, 2).flatten(0, 1)
    return samples
