"""A nested state as plain JSON beside a flat dict of tensors, and back.

A state may hold dicts (string or integer keys), lists, tuples (they come back as lists), tensors, integers of any size,
floats (also nan and inf), strings, booleans and None. NumPy scalars come back as Python numbers. What JSON cannot say
is an object whose one key starts with a dollar sign: `$tensor` (a name), `$float` (nan, inf), `$dict` (other keys).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


def encode(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """The JSON form of a value; tensors go into `tensors` and leave their name, marked by a key with a dollar sign."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
    if _is_tensor(value):
        return {"$tensor": _add_tensor(value, path, tensors)}
    if isinstance(value, list | tuple):
        return [encode(item, f"{path}/{index}", tensors) for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        for key in value:
            if type(key) not in (str, int):
                raise TypeError(f"{path} has the key {key!r}; the keys of a state are strings or integers")
        items = {key: encode(item, f"{path}/{key}", tensors) for key, item in value.items()}
        plain = all(isinstance(key, str) and not key.startswith("$") for key in items)
        return items if plain else {"$dict": [[key, item] for key, item in items.items()]}
    raise TypeError(
        f"{path} is a {type(value).__module__}.{type(value).__qualname__}; a state holds tensors, numbers, strings, "
        "booleans, None, lists and dicts of these: convert it in state_dict() (arrays with torch.from_numpy)"
    )


def decode(value: Any, tensors: dict[str, Tensor], used: set[str]) -> Any:
    """The inverse of `encode`; the names of the tensors it meets are added to `used`."""
    if isinstance(value, list):
        return [decode(item, tensors, used) for item in value]
    if not isinstance(value, dict):
        return value
    if "$tensor" in value:
        used.add(value["$tensor"])
        return tensors[value["$tensor"]]
    if "$float" in value:
        return float(value["$float"])
    if "$dict" in value:
        return {key: decode(item, tensors, used) for key, item in value["$dict"]}
    return {key: decode(item, tensors, used) for key, item in value.items()}


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")  # whoever has a tensor has imported it
    return torch is not None and isinstance(value, torch.Tensor)


def _add_tensor(value: Tensor, path: str, tensors: dict[str, Tensor]) -> str:
    import torch

    if value.layout != torch.strided or value.is_quantized or value.is_meta or value.dtype == torch.complex128:
        raise TypeError(
            f"{path} is a tensor that cannot be stored ({value.layout}, {value.dtype}); make it dense first"
        )
    name = path
    while name in tensors:
        name += "+"
    tensors[name] = value.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return name
