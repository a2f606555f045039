"""Pickles of others, run by a machine that knows plain containers, numbers, texts and, if asked, arrays of numbers.

A pickle is a program. The machine here imports nothing and calls nothing from outside this file: anything else in a
pickle is refused by name, or with `strict=False` left out without being built. Arrays are put together from their bytes
in this file too; arrays of objects are refused.
"""

from __future__ import annotations

import io
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np

NUMBERS = frozenset({"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"})
"""NumPy types whose values become numbers."""


class PlainPickleError(ValueError):
    """A pickle that cannot be read safely; the message is one sentence."""


def load_plain(stream: io.BytesIO, path: Path, *, strict: bool = True, arrays: bool = False) -> Any:
    """The next object of the stream, or None if it is cut off; `path` is what messages name."""
    try:
        return _with_arrays(_Machine(stream, path, strict, arrays).load())
    except PlainPickleError:
        raise
    except EOFError:
        return None
    except pickle.UnpicklingError as error:
        if "truncated" in str(error):
            return None
        raise PlainPickleError(f"{path} is damaged ({error}); copy it again from where it was made") from error
    except Exception as error:  # a damaged or malicious program fails in any way; it could not reach anything
        raise PlainPickleError(f"{path} cannot be read ({type(error).__name__}: {error})") from error


class _Machine(pickle.Unpickler):
    """Python's unpickler with a world that ends at this file."""

    def __init__(self, stream: io.BytesIO, path: Path, strict: bool, arrays: bool) -> None:
        super().__init__(stream)
        self.path, self.strict, self.arrays = path, strict, arrays
        # a class of this machine alone: whatever a program does to it ends with the machine
        self._left_out = type("LeftOut", (_LeftOut,), {})

    def find_class(self, module: str, name: str) -> Any:
        known = _WORLD.get((module, name)) or (_ARRAYS.get((module, name)) if self.arrays else None)
        if known is _NUMBER and not self.strict:
            return _Maker(self._number_or_nothing)
        if known is not None:
            return known
        if not self.strict:
            return self._left_out
        raise PlainPickleError(
            f"{self.path} holds a {module}.{name}, and only numbers, texts and plain containers are read"
            + ("" if self.arrays else "; pass strict=False to leave such values out")
        )

    def persistent_load(self, pid: Any) -> Any:
        if self.strict:
            raise PlainPickleError(f"{self.path} refers to something outside of it ({pid!r}); such a file is not read")
        return self._left_out()

    def _number_or_nothing(self, *arguments: Any) -> Any:
        try:
            return _number(*arguments)
        except PlainPickleError:
            return self._left_out()


class _LeftOut:
    """Stands for a value that is not built: takes whatever the program gives it and keeps nothing."""

    def __new__(cls, *_: Any, **__: Any) -> _LeftOut:
        return super().__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass

    def __call__(self, *_: Any, **__: Any) -> _LeftOut:
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        pass

    def extend(self, values: Any) -> None:
        pass

    def __hash__(self) -> int:
        return id(self)


class _NumberType:
    """What a pickle says of a NumPy type: its short name, and in its state the order of the bytes."""

    __slots__ = ("code", "order")

    def __init__(self, code: Any = None, *_: Any) -> None:
        self.code, self.order = code, "="

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, tuple) and len(state) > 1 and state[1] in ("<", ">", "=", "|"):
            self.order = state[1]


class _Maker:
    """A function of the pickle machine; it has no attributes that a program could change."""

    __slots__ = ("_make",)
    _make: Any

    def __init__(self, make: Any) -> None:
        object.__setattr__(self, "_make", make)

    def __call__(self, *arguments: Any) -> Any:
        return self._make(*arguments)

    def __setattr__(self, name: str, value: Any) -> None:
        raise PlainPickleError("the file tries to change the program that reads it; it is not read")


def _number(kind: Any = None, content: Any = None) -> int | float | bool:
    """One NumPy number from its type and its bytes."""
    code = kind.code if isinstance(kind, _NumberType) else None
    if not isinstance(code, str) or code not in NUMBERS or not isinstance(content, bytes):
        raise PlainPickleError(f"the file holds a NumPy value of type {code!r}; only {sorted(NUMBERS)} are read")
    dtype = np.dtype(kind.order + code)
    if len(content) != dtype.itemsize:
        raise PlainPickleError(f"the file holds a NumPy {dtype} of {len(content)} bytes; it is damaged")
    return np.frombuffer(content, dtype)[0].item()


_NUMBER = _Maker(_number)
_WORLD = {
    ("numpy", "dtype"): _Maker(_NumberType),
    ("numpy.core.multiarray", "scalar"): _NUMBER,
    ("numpy._core.multiarray", "scalar"): _NUMBER,
    ("collections", "OrderedDict"): _Maker(dict),
    ("builtins", "set"): _Maker(set),
    ("builtins", "frozenset"): _Maker(frozenset),
}


# Arrays


class _ArrayInTheMaking:
    """What a pickle says of an array: it is made of the state that follows, and taken out at the end."""

    __slots__ = ("value",)

    def __init__(self, value: np.ndarray | None = None) -> None:
        self.value = value

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise PlainPickleError("the file holds an array without its five parts; it is damaged")
        _, shape, kind, is_fortran, content = state
        self.value = _array(content, kind, shape, "F" if is_fortran is True else "C").value


def _array(content: Any, kind: Any, shape: Any, order: Any = "C") -> _ArrayInTheMaking:
    """An array of numbers from its bytes."""
    code = kind.code if isinstance(kind, _NumberType) else None
    if not isinstance(code, str) or code not in NUMBERS or not isinstance(content, bytes | bytearray):
        raise PlainPickleError(f"the file holds an array of type {code!r}; only {sorted(NUMBERS)} are read")
    if not isinstance(shape, tuple) or not all(type(size) is int and size >= 0 for size in shape) or len(shape) > 8:
        raise PlainPickleError(f"the file holds an array of shape {shape!r}; it is damaged")
    dtype = np.dtype(kind.order + code)
    if len(content) != math.prod(shape) * dtype.itemsize:
        raise PlainPickleError(f"the file holds an array {list(shape)} of {len(content)} bytes; it is damaged")
    order = "F" if order == "F" else "C"
    native = np.frombuffer(content, dtype).astype(dtype.newbyteorder("="))  # a copy, which can be written to
    return _ArrayInTheMaking(native.reshape(shape, order=order))


def _begun(*_: Any) -> _ArrayInTheMaking:
    return _ArrayInTheMaking()


def _bytes(text: Any, encoding: Any) -> bytes:
    """How old protocols write bytes."""
    if not isinstance(text, str) or encoding != "latin1":
        raise PlainPickleError(f"the file holds bytes in the encoding {encoding!r}; only latin1 is read")
    return text.encode("latin1")


def _with_arrays(value: Any) -> Any:
    """The containers of a pickle with finished arrays in them."""
    if isinstance(value, _ArrayInTheMaking):
        if value.value is None:
            raise PlainPickleError("the file holds an array without content; it is damaged")
        return value.value
    if type(value) is dict:
        return {key: _with_arrays(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_with_arrays(each) for each in value)
    return value


_ARRAYS = {
    ("numpy", "ndarray"): _Maker(_begun),
    ("numpy.core.multiarray", "_reconstruct"): _Maker(_begun),
    ("numpy._core.multiarray", "_reconstruct"): _Maker(_begun),
    ("numpy.core.numeric", "_frombuffer"): _Maker(_array),
    ("numpy._core.numeric", "_frombuffer"): _Maker(_array),
    ("_codecs", "encode"): _Maker(_bytes),
}
