"""Datasets as agents: supervised learning with the same casts.

    cast = Agents(ShuffledDatasetAgent(dataset, 64, ("image", "label"), seed=0), classifier)
    cast(ws)                                    # a batch of 64, drawn with replacement

    batches = DataLoaderAgent(DataLoader(dataset, 64, shuffle=True), ("image", "label"))
    batches(ws)
    while not batches.finished():               # every batch of one pass
        classifier(ws)
        batches(ws)

Items and batches may be tuples (named in order), dicts (taken by key) or single values. Numbers become tensors: int64,
float32 or bool. Results lie on the device of the agent, `agent.to(device)`; it has no parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from gaitway.core.agent import Agent
from gaitway.core.small_agents import SeedableAgent
from gaitway.core.workspace import Workspace

Names = Sequence[str] | Mapping[str, str]
"""Variables in the order of a tuple, or keys of a dict; a mapping says which key goes to which variable."""


class MapDataset(Protocol):
    """A dataset with numbered items, like `torch.utils.data.Dataset`."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any) -> Any: ...


class ShuffledDatasetAgent(SeedableAgent):
    """Writes row t of its variables: `batch_size` items drawn uniformly with replacement, `[batch_size, *item]`."""

    _device: Tensor

    def __init__(
        self,
        dataset: MapDataset,
        batch_size: int,
        output_names: Names = ("x", "y"),
        seed: int | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name, seed)
        if batch_size < 1 or len(dataset) < 1:
            raise ValueError(f"cannot draw {batch_size} of {len(dataset)} items; both must be positive")
        self.dataset, self.batch_size = dataset, batch_size
        self.output_names = _checked_names(output_names)
        self.writes = _variables(self.output_names)
        self.register_buffer("_device", torch.empty(0), persistent=False)

    def step(self, ws: Workspace, t: int) -> None:
        index = torch.randint(len(self.dataset), (self.batch_size,), generator=self.generator("cpu"))
        for name, values in _named(self._batch(index), self.output_names).items():
            ws.put(self.out(name), t, values.to(self._device.device))

    def _batch(self, index: Tensor) -> Any:
        """The items at `index`, stacked."""
        if isinstance(self.dataset, TensorDataset):
            return self.dataset[index]
        numbers = index.tolist()
        several = getattr(self.dataset, "__getitems__", None)  # torch's way to fetch many items at once
        items = several(numbers) if several is not None else [self.dataset[number] for number in numbers]
        first = items[0]
        if isinstance(first, Mapping):
            return {key: torch.stack([as_tensor(item[key]) for item in items]) for key in first}
        if isinstance(first, tuple | list):
            return tuple(torch.stack([as_tensor(value) for value in part]) for part in zip(*items, strict=True))
        return torch.stack([as_tensor(item) for item in items])


class DataLoaderAgent(Agent):
    """One pass over an iterable of batches: each call replaces its variables by the next batch, one row `[1, N, *e]`.

    The last batch may be smaller. Once there is none left, a call writes nothing and `finished()` is true, until
    `restart` begins a new pass.
    """

    _device: Tensor

    def __init__(self, loader: Iterable[Any], output_names: Names = ("x", "y"), name: str | None = None) -> None:
        super().__init__(name)
        self.loader = loader
        self.output_names = _checked_names(output_names)
        self.writes = _variables(self.output_names)
        self.register_buffer("_device", torch.empty(0), persistent=False)
        self.restart()

    def restart(self) -> None:
        """Begin a new pass at the next call."""
        self._batches: Iterator[Any] | None = None
        self._is_finished = False

    def finished(self) -> bool:
        """Whether a call found no batch."""
        return self._is_finished

    def step(self, ws: Workspace, t: int) -> None:
        if self._is_finished:
            return
        if self._batches is None:
            self._batches = iter(self.loader)
        try:
            batch = next(self._batches)
        except StopIteration:
            self._is_finished, self._batches = True, None
            return
        for name, values in _named(batch, self.output_names).items():
            if values.dim() < 1:
                raise ValueError(f"the batch of {name!r} is a single number; batches are [N, ...]")
            ws[self.out(name)] = values.to(self._device.device).unsqueeze(0)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_batches": None}  # an iterator cannot be copied; a copy begins its own pass


def as_tensor(value: Any) -> Tensor:
    """A tensor as it is, an array or a number as int64, float32 or bool (uint8 images stay uint8)."""
    if isinstance(value, Tensor):
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"a dataset holds tensors, arrays and numbers, found {type(value).__name__}; convert it first")
    if array.dtype.kind == "f":
        return torch.from_numpy(array.astype(np.float32))
    return torch.from_numpy(array if array.dtype in (np.uint8, np.bool_) else array.astype(np.int64))


def _checked_names(names: Names) -> Names:
    if isinstance(names, str) or not names or len(set(_variables(names))) != len(names):
        raise ValueError(f"output_names is {names!r}; use a tuple of different names, one per part of an item")
    return dict(names) if isinstance(names, Mapping) else tuple(names)


def _variables(names: Names) -> tuple[str, ...]:
    return tuple(names.values() if isinstance(names, Mapping) else names)


def _named(batch: Any, names: Names) -> dict[str, Tensor]:
    """The parts of a batch by variable."""
    if isinstance(batch, Mapping):
        keys = names if isinstance(names, Mapping) else {name: name for name in names}
        missing = [key for key in keys if key not in batch]
        if missing:
            raise KeyError(f"the dataset has {list(batch)} but not {missing}; output_names may map keys to variables")
        return {variable: as_tensor(batch[key]) for key, variable in keys.items()}
    parts = batch if isinstance(batch, tuple | list) else (batch,)
    if isinstance(names, Mapping) or len(parts) != len(names):
        raise ValueError(f"an item has {len(parts)} unnamed parts for output_names {names!r}; name them in order")
    return {name: as_tensor(part) for name, part in zip(names, parts, strict=True)}
