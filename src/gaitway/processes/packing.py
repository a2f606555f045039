"""Objects as bytes between processes of one program, by value: whoever unpacks owns what it gets.

Sending a tensor over a pipe of `torch.multiprocessing` moves the *sender's* memory into shared memory, so that both
sides write the same numbers, and leaves NumPy views of it dangling. Here values are copied. Tensors that overlap still
overlap afterwards, and memory they share travels once. This is for our own processes; files are written by `files.py`.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gaitway.core.trust import present_folder
from gaitway.core.workspace import Workspace

_PLAIN = (Tensor, nn.Parameter)


def pack(value: Any, label: str = "value", compact: bool = True) -> bytes:
    """`value` as bytes. TypeError that names the attribute at fault, starting from `label`, if something cannot travel.

    `compact` leaves behind what a view does not show of its memory: right for data, wrong for an agent whose
    parameters are views of one flat tensor.
    """
    stream = io.BytesIO()
    try:
        _Packer(stream, compact).dump(value)
    except Exception as error:
        path, culprit, reason = _find_culprit(value, label, error)
        raise TypeError(
            f"{path} is {_describe(culprit)} and cannot be sent to another process ({reason}); use module-level "
            "functions and classes or functools.partial, and make what cannot travel (windows, locks, open files) "
            "inside the worker"
        ) from error
    return stream.getvalue()


def unpack(body: bytes | memoryview) -> Any:
    """Undo `pack`."""
    try:
        return pickle.loads(body)
    except ModuleNotFoundError:  # a class of the present folder, which whoever sent it has found there by its name
        with present_folder():
            return pickle.loads(body)


class Sheet:
    """A workspace by value: packed, on the CPU, without a graph."""

    def __init__(self, ws: Workspace) -> None:
        self.tensors = {name: ws[name].detach().cpu() for name in ws}
        self.strict, self.extra_row = ws.strict, ws.extra_row

    def workspace(self) -> Workspace:
        return Workspace.packed(self.tensors, strict=self.strict, extra_row=self.extra_row)


class _Memory:
    """The bytes behind one or several tensors; pickle keeps it single, so tensors that share it go on sharing it."""

    def __init__(self, tensor: Tensor) -> None:
        self.device = tensor.device
        flat = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
        self.content = flat.cpu().numpy()

    def __getstate__(self) -> tuple[torch.device, np.ndarray]:
        return self.device, self.content

    def __setstate__(self, state: tuple[torch.device, np.ndarray]) -> None:
        self.device, content = state
        self.storage = torch.from_numpy(content.copy()).to(self.device).untyped_storage()


class _Packer(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, compact: bool) -> None:
        super().__init__(stream, protocol=pickle.HIGHEST_PROTOCOL)
        self._compact = compact
        self._memories: dict[tuple[torch.device, int], _Memory] = {}

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) not in _PLAIN or obj.layout is not torch.strided or obj.is_quantized or obj.is_conj():
            return NotImplemented
        tensor = obj.detach()
        if self._compact and tensor.untyped_storage().nbytes() != tensor.numel() * tensor.itemsize:
            memory = _Memory(tensor := tensor.clone(memory_format=torch.contiguous_format))
        else:
            key = (tensor.device, tensor.untyped_storage().data_ptr())
            memory = self._memories.get(key) or _Memory(tensor)
            self._memories[key] = memory
        place = (tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        arguments = (type(obj) is nn.Parameter, memory, *place, obj.requires_grad and obj.is_leaf)
        return _rebuild, arguments, obj.__dict__, None, None, _set_attributes


def _rebuild(
    is_parameter: bool,
    memory: _Memory,
    dtype: torch.dtype,
    offset: int,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool,
) -> Tensor:
    tensor = torch.empty(0, dtype=dtype, device=memory.device).set_(memory.storage, offset, shape, stride)
    return nn.Parameter(tensor, requires_grad) if is_parameter else tensor.requires_grad_(requires_grad)


def _set_attributes(tensor: Tensor, attributes: dict[str, Any]) -> None:
    tensor.__dict__.update(attributes)  # Tensor.__setstate__ means something else


def _find_culprit(value: Any, path: str, error: Exception) -> tuple[str, Any, str]:
    """The deepest part of `value` that cannot be pickled: where it is, what it is, and why."""
    seen: set[int] = set()
    while id(value) not in seen:
        seen.add(id(value))
        for name, part in _parts(value, path):
            reason = _refusal(part)
            if reason is not None:
                path, value, error = name, part, reason
                break
        else:
            break
    return path, value, f"{type(error).__name__}: {error}"


def _refusal(value: Any) -> Exception | None:
    try:
        _Packer(io.BytesIO(), compact=False).dump(value)
    except Exception as error:
        return error
    return None


def _parts(value: Any, path: str) -> Iterable[tuple[str, Any]]:
    """What an object holds, each with the expression that reaches it; modules show their children by plain names."""
    if isinstance(value, Mapping):
        return [(f"{path}[{key!r}]", part) for key, part in value.items()]
    if hasattr(value, "_fields"):  # a tuple with names
        return [(f"{path}.{name}", getattr(value, name)) for name in value._fields]
    if isinstance(value, list | tuple | set | frozenset):
        return [(f"{path}[{index}]", part) for index, part in enumerate(value)]
    found: list[tuple[str, Any]] = []
    if isinstance(value, nn.ModuleList):
        found = [(f"{path}[{index}]", part) for index, part in enumerate(value)]
    elif isinstance(value, nn.Module):
        found = [(f"{path}.{name}", part) for name, part in value.named_children()]
    held = getattr(value, "__dict__", {})
    return found + [(f"{path}.{name}", part) for name, part in held.items() if name != "_modules"]


def _describe(value: Any) -> str:
    name = getattr(value, "__qualname__", None)
    kind = type(value).__name__
    return f"a {kind}" if name is None else f"the {kind} {name}"
