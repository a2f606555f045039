"""Some rows of tensors that all instances share: read when they are asked for, written where a mask says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from gaitway.envs.episode_numbers import Index


class RowsOf(Mapping[str, Tensor]):
    """Tensors [n, ...] of some rows, taken when somebody asks for them."""

    def __init__(self, whole: Mapping[str, Tensor], rows: Index) -> None:
        self._whole, self._rows = whole, rows

    def __getitem__(self, name: str) -> Tensor:
        return self._whole[name][self._rows]

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole)

    def __len__(self) -> int:
        return len(self._whole)


def write(target: Tensor, rows: Index, value: Tensor | float, where: Tensor | None) -> None:
    """Write `value` [n, ...] into `rows`, or into those of all rows for which `where` [B] holds."""
    if where is None:
        target[rows] = value
    else:
        put(target, where, value)


def put(target: Tensor, where: Tensor, value: Tensor | float) -> None:
    """Write `value` [B, ...] where `where` [B] holds."""
    mask = where.view(-1, *(1,) * (target.dim() - 1))
    target.copy_(torch.where(mask, value, target))
