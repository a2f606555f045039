"""Replay: a ring of samples in preallocated memory, drawn uniformly.

A sample is a column of a Workspace (a window of rows, `add` and `sample`) or one transition (`add_transitions` and
`sample_transitions`). The first addition decides which, and fixes the variables, their shapes and dtypes.

All variables of a sample lie in one row of one matrix, so that drawing n samples is a single `index_select`, however
many variables there are. What `sample` returns are views of that fresh copy: never of the ring, and not contiguous.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gaitway.core.seeding import stream
from gaitway.core.workspace import Workspace

WORD = torch.int64
FORMAT = 1


@dataclass(frozen=True)
class _Field:
    """Where one variable lies in a sample, in elements of its own dtype."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    offset: int
    stride: tuple[int, ...]
    """From one sample to the next, then within the sample."""


class Replay:
    """The last `max_size` samples. Its draws come from its own generator: seeded, or passed in, or fresh entropy."""

    def __init__(
        self,
        max_size: int,
        device: torch.device | str = "cpu",
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        if max_size < 1:
            raise ValueError(f"max_size is {max_size}; a buffer holds at least one sample")
        if seed is not None and generator is not None:
            raise ValueError("pass a seed or a generator, not both")
        self.max_size = max_size
        self.device = torch.device(device)
        self.generator = generator if generator is not None else _generator(seed, self.device)
        self.clear()

    def clear(self) -> None:
        """Forget all samples, and what they looked like; the random stream goes on."""
        self.size = 0
        self.position = 0
        self._windows = True
        self._extra_row: frozenset[str] = frozenset()
        self._fields: dict[str, _Field] = {}
        self._memory = torch.empty(0, 0, dtype=WORD)
        self._columns: dict[str, Tensor] = {}

    def __len__(self) -> int:
        return self.size

    @property
    def is_full(self) -> bool:
        return self.size == self.max_size

    @property
    def names(self) -> list[str]:
        """Variables of a sample, in the order of the first addition."""
        return list(self._fields)

    def add(self, ws: Workspace, window: int | None = None, stride: int = 1) -> None:
        """Append every column of `ws`, all its rows as one sample. Values are detached copies.

        `window` cuts a longer workspace into windows of that many steps, starting every `stride` steps; observations
        keep their extra row. Samples that contain a row with `env/valid` false are left out.
        """
        values = {name: ws[name].detach() for name in ws}
        if window is None:
            samples = {name: value.transpose(0, 1) for name, value in values.items()}
        else:
            samples = _cut_windows(values, ws.T, window, stride)
        if "env/valid" in samples:  # a row that only reset is no experience
            whole = samples["env/valid"].all(1).nonzero().squeeze(-1)
            samples = {name: value[whole] for name, value in samples.items()}
        self._append(samples, windows=True, extra_row=ws.extra_row)

    def add_transitions(self, fields: Mapping[str, Tensor]) -> None:
        """Append N transitions, fields `[N, *e]` as `Workspace.transitions()` gives them, as detached copies."""
        self._append({name: value.detach() for name, value in fields.items()}, windows=False)

    def sample(self, n: int) -> Workspace:
        """n uniform draws with replacement, `[T, n, *e]`."""
        self._check_kind(windows=True)
        drawn = self._draw(n)
        return Workspace.packed({name: v.transpose(0, 1) for name, v in drawn.items()}, extra_row=self._extra_row)

    def sample_transitions(self, n: int) -> dict[str, Tensor]:
        """n uniform draws with replacement, fields `[n, *e]`."""
        self._check_kind(windows=False)
        return self._draw(n)

    def to(self, device: torch.device | str) -> Replay:
        """Move the samples, and all future additions and draws, to `device`."""
        target = torch.zeros(0, device=device).device
        if target.type != self.generator.device.type:
            # States do not travel between kinds of device: the old stream seeds the new one, reproducibly.
            word = torch.randint(2**62, (), generator=self.generator, device=self.generator.device)
            self.generator = torch.Generator(device=target)
            self.generator.manual_seed(int(word))
        self.device = target
        if self._fields:
            self._memory = self._memory.to(target)
            self._columns = self._views(self._memory)
        return self

    def state_dict(self) -> dict[str, Any]:
        """Samples, position and random state, as tensors, numbers, strings and lists."""
        return {
            "format": FORMAT,
            "max_size": self.max_size,
            "size": self.size,
            "position": self.position,
            "windows": int(self._windows),
            "names": self.names,
            "extra_row": sorted(self._extra_row),
            "variables": {name: column[: self.size].clone() for name, column in self._columns.items()},
            "generator_device": self.generator.device.type,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on as the buffer that made `state`; the next draws are the ones it would have made."""
        if state["format"] != FORMAT:
            raise ValueError(f"the replay has format {state['format']}, this version reads {FORMAT}")
        if state["max_size"] != self.max_size:
            raise ValueError(
                f"the stored replay holds {state['max_size']} samples, this one {self.max_size}; make them equal"
            )
        if state["generator_device"] != self.generator.device.type:
            raise ValueError(
                f"the stored draws were made on {state['generator_device']}, this buffer draws on "
                f"{self.generator.device.type}; make it with device={state['generator_device']!r}, load, then call to()"
            )
        self.clear()
        samples = {name: state["variables"][name] for name in state["names"]}
        if samples:
            self._append(samples, windows=bool(state["windows"]), extra_row=frozenset(state["extra_row"]))
        self.position = state["position"]
        self.generator.set_state(state["generator"].cpu())

    def _append(self, samples: Mapping[str, Tensor], windows: bool, extra_row: frozenset[str] = frozenset()) -> None:
        """Write `samples` `[N, *shape]` to slots `position, position + 1, ...`; the last `max_size` of them stay."""
        counts = {value.shape[0] for value in samples.values()}
        if len(counts) > 1:
            raise ValueError(f"variables have different numbers of samples {sorted(counts)}; they must agree")
        count = counts.pop() if counts else 0
        if count == 0:
            return
        if not self._fields:
            self._allocate(samples, windows, extra_row)
        self._check_kind(windows)
        self._check_samples(samples)
        skipped = max(count - self.max_size, 0)
        start = (self.position + skipped) % self.max_size
        head = min(count - skipped, self.max_size - start)
        for name, value in samples.items():
            column = self._columns[name]
            if head == count:
                column[start : start + head] = value
            else:
                column[start : start + head] = value[skipped : skipped + head]
                column[: count - skipped - head] = value[skipped + head :]
        self.position = (self.position + count) % self.max_size
        self.size = min(self.size + count, self.max_size)

    def _allocate(self, samples: Mapping[str, Tensor], windows: bool, extra_row: frozenset[str]) -> None:
        # Wide dtypes first: then every variable starts at a multiple of its own element size.
        widest_first = sorted(samples, key=lambda name: -samples[name].element_size())
        ends = list(itertools.accumulate(samples[name][0].nbytes for name in widest_first))
        starts = dict(zip(widest_first, [0, *ends], strict=False))
        alignment = max(WORD.itemsize, samples[widest_first[0]].element_size())
        words = math.ceil(ends[-1] / alignment) * alignment // WORD.itemsize
        for name, value in samples.items():
            shape, width = tuple(value.shape[1:]), value.element_size()
            inner = (math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
            stride = (words * WORD.itemsize // width, *inner)
            self._fields[name] = _Field(shape, value.dtype, starts[name] // width, stride)
        self._windows, self._extra_row = windows, extra_row
        with torch.inference_mode(False):
            self._memory = torch.zeros(self.max_size, words, dtype=WORD, device=self.device)
            self._columns = self._views(self._memory)

    def _views(self, memory: Tensor) -> dict[str, Tensor]:
        """The variables `[rows, *shape]` inside `memory` `[rows, words]`."""
        typed = {dtype: memory.view(dtype) for dtype in {field.dtype for field in self._fields.values()}}
        rows = len(memory)
        return {
            name: typed[field.dtype].as_strided((rows, *field.shape), field.stride, field.offset)
            for name, field in self._fields.items()
        }

    def _draw(self, n: int) -> dict[str, Tensor]:
        if self.size == 0:
            raise ValueError("the replay buffer is empty; add samples before drawing from it")
        index = torch.randint(self.size, (n,), generator=self.generator, device=self.generator.device)
        return self._views(self._memory.index_select(0, index.to(self.device)))

    def _check_kind(self, windows: bool) -> None:
        if self._fields and windows != self._windows:
            kind, suffix = ("windows", "") if self._windows else ("transitions", "_transitions")
            raise ValueError(f"this buffer holds {kind}; use add{suffix} and sample{suffix}, or clear() it first")

    def _check_samples(self, samples: Mapping[str, Tensor]) -> None:
        """Refuse what differs from the first addition, before anything is written."""
        if samples.keys() != self._fields.keys():
            difference = samples.keys() ^ self._fields.keys()
            raise ValueError(f"the buffer holds {self.names}; {sorted(difference)} are missing or new in this addition")
        for name, field in self._fields.items():
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


def _generator(seed: int | None, device: torch.device) -> torch.Generator:
    if seed is not None:
        return stream(seed, "replay", device)
    generator = torch.Generator(device=device)
    generator.seed()
    return generator
