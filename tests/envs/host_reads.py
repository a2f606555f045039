"""A guard for code that will be recorded: nothing in it may look at a value, or make a tensor of Python's numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

LOOKS = (
    *("_local_scalar_dense", "nonzero", "item", "is_nonzero", "equal", "masked_select", "_unique2", "unique_dim"),
    *("unique_consecutive", "repeat_interleave", "bincount", "_linalg_check_errors", "argwhere"),
)
MAKES = ("tensor", "as_tensor", "new_tensor", "from_numpy", "tolist", "numpy", "cpu")


class HostReadError(AssertionError):
    """Something looked at a value."""


class _Looks(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        if name in LOOKS:
            raise HostReadError(f"{name} looks at a value")
        if name in ("index", "index_put", "index_put_", "_index_put_impl_") and any(
            _is_mask(each) for each in args[1] if each is not None
        ):
            raise HostReadError("an index that is a mask looks at its values")
        return func(*args, **(kwargs or {}))


class _Makes(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in MAKES:
            raise HostReadError(f"{name} makes a tensor of numbers of the host, or the other way round")
        if name in ("__getitem__", "__setitem__") and _has_list(args[1]):
            raise HostReadError("an index that is a list becomes a tensor of the host")
        return func(*args, **(kwargs or {}))


def _is_mask(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)


def _has_list(index: Any) -> bool:
    return isinstance(index, list) or (isinstance(index, tuple) and any(isinstance(each, list) for each in index))


class NoHostReads:
    """`with NoHostReads(): step()`"""

    def __enter__(self) -> None:
        self._modes = (_Makes(), _Looks())
        for mode in self._modes:
            mode.__enter__()

    def __exit__(self, *exc: Any) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*exc)


def probe(name: str) -> torch.Tensor:
    """What must be found: one way of looking at a value each."""
    values = torch.arange(3.0)
    with NoHostReads():
        return {
            "item": lambda: values.sum().item(),
            "branch": lambda: values if values.sum() > 0 else None,
            "nonzero": lambda: values.nonzero(),
            "mask": lambda: values[values > 1],
            "constant": lambda: values + values.new_tensor((1.0, 2.0, 3.0)),
            "list": lambda: values[[0, 1]],
            "equal": lambda: torch.equal(values, values),
            "repeats": lambda: torch.repeat_interleave(values, values.long()),
            "inverse": lambda: torch.linalg.inv(torch.diag(values + 1.0)),
        }[name]()
