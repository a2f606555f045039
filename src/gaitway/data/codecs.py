"""Codecs: how float32 variables of a dataset lie on disk in fewer bytes, and by how much a number may change.

| name | stored as | numbers | largest error |
|---|---|---|---|
| `u8_unit` | uint8 | 0 to 1; others are clipped | 1/510 |
| `u16_range` | uint16 | `low` to `high`; others are clipped | (high - low) / 131070 |
| `f16` | float16 | up to 65504; others are clipped | 2^-11 of the number, 2^-25 near zero |

Numbers are rounded to the nearest one that can be stored. A variable without a codec is stored as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

LEVELS = {"u8_unit": 255, "u16_range": 65535}
"""Steps between the lowest and the highest number."""
STORED = {"u8_unit": torch.uint8, "u16_range": torch.uint16, "f16": torch.float16}


@dataclass(frozen=True)
class Codec:
    """How one variable is stored; `low` and `high` are those of `u16_range`."""

    name: str
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if self.name not in STORED:
            raise ValueError(f"there is no codec {self.name!r}; there are {', '.join(STORED)}")
        if self.name != "u16_range" and (self.low, self.high) != (0.0, 1.0):
            raise ValueError(f"the codec {self.name} has no range; leave low and high out, or use u16_range")
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"the range of a codec is {self.low} to {self.high}; use finite numbers, low below high")

    @classmethod
    def of(cls, entry: Codec | str | Mapping[str, Any]) -> Codec:
        """From a name, or from `{name: u16_range, low: 0.0, high: 5.0}`."""
        if isinstance(entry, cls):
            return entry
        options = {"name": entry} if isinstance(entry, str) else dict(entry)  # type: ignore[arg-type]
        unknown = options.keys() - {"name", "low", "high"}
        if unknown or not isinstance(options.get("name"), str):
            raise ValueError(f"a codec is a name, or {{name, low, high}}; found {entry!r}")
        return cls(options["name"], float(options.get("low", 0.0)), float(options.get("high", 1.0)))

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "low": self.low, "high": self.high}

    @property
    def bound(self) -> float:
        """The largest error of a number within the range; of `f16` for each unit of the number."""
        return 2.0**-11 if self.name == "f16" else (self.high - self.low) / (2 * LEVELS[self.name])

    def encode(self, value: Tensor) -> Tensor:
        """float32 of any shape as it is stored. NaN is refused: whole numbers have none."""
        if torch.isnan(value).any():
            raise ValueError(f"the codec {self.name} cannot store NaN; find out where it comes from")
        if self.name == "f16":
            limit = torch.finfo(torch.float16).max
            return value.clamp(-limit, limit).half()
        levels = LEVELS[self.name]
        unit = ((value.double() - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
        return (unit * levels).round().to(torch.int32).to(STORED[self.name])  # torch rounds into uint16 by way of int32

    def decode(self, stored: Tensor) -> Tensor:
        """float32 again."""
        if stored.dtype != STORED[self.name]:
            raise ValueError(f"{self.name} is stored as {STORED[self.name]}, found {stored.dtype}")
        if self.name == "f16":
            return stored.float()
        return (self.low + stored.double() * ((self.high - self.low) / LEVELS[self.name])).float()
