"""How tensor work is run: eagerly, compiled, or recorded once as a CUDA graph and replayed; and in which precision.

A `Program` is a function without arguments that reads and writes tensors which stay where they are. That one condition
is what lets the same function run in every mode with the same numbers. In captured mode the first calls run eagerly on
a side stream: they are real work and warm up libraries and allocator at the same time; then the function is recorded
once, and from then on a call is a single launch.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Self, TypeVar

import torch

from gaitway.core.config import configuration
from gaitway.core.workspace import Workspace

log = logging.getLogger("gaitway")

Mode = Literal["auto", "eager", "compiled", "captured", "compiled_captured"]
Precision = Literal["auto", "fp32", "tf32", "bf16"]
Function = TypeVar("Function", bound=Callable[..., Any])

WARM_UP_CALLS = 2
"""Eager calls before a recording: the first makes what is made lazily, the second finds everything in place."""

SMALLER_KERNELS = 24
"""Operations that a kernel may hold where the compiler failed with as many as it likes (64): Triton 3.6 cannot make the
largest one of a step of legged robots on Warp."""

_making = threading.Lock()  # recordings and compilations: one at a time in a process
FUSES_PRODUCTS = False
"""Whether `nn/fused_dense.py` takes the place of plain layers in compiled programs in TF32. Off until its kernels
are timed (`benchmarks/plans/speed_gpu.yaml`); `tests/gpu/test_cuda_dense.py` has seen them to be right on an H200."""
_fused = False


def products_are_fused() -> bool:
    """Whether a product and what stands behind it may be one kernel here: in compiled programs in TF32 on a GPU."""
    return _fused


@configuration
class ExecutionConfig:
    """How updates are run."""

    mode: Mode = "auto"
    """`auto`: captured on a GPU, eager on the CPU. `compiled` fuses the losses with torch.compile (needs a compiler on
    this machine), `captured` records updates as CUDA graphs, `compiled_captured` does both."""
    precision: Precision = "auto"
    """`auto`: tf32 on a GPU, fp32 on the CPU. tf32 and bf16 concern matrix products; losses, log-probabilities,
    normalisers and parameters are fp32 always."""


def check_device(name: torch.device | str) -> torch.device:
    """The device that a name stands for, cpu or a GPU that is there; torch knows more kinds, and we compute on two."""
    try:
        found = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device is {name!r}; use cpu, cuda or cuda:0") from error
    if found.type not in ("cpu", "cuda"):
        raise ValueError(f"device is {str(name)!r}, on which nothing is computed here; use cpu, cuda or cuda:0")
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        there = f"torch sees {count} CUDA GPUs here" if count else "torch finds no GPU"
        raise ValueError(
            f"device is {str(name)!r}, but {there}; use device=cpu{' or one that exists' if count else ''}"
        )
    return found


class Execution:
    """An `ExecutionConfig` on one device, with every automatic choice made."""

    def __init__(self, config: ExecutionConfig | None = None, device: torch.device | str = "cpu") -> None:
        config = config or ExecutionConfig()
        self.device = torch.device(device)
        on_gpu = self.device.type == "cuda"
        if on_gpu and not torch.cuda.is_available():
            raise ValueError(f"the device is {device} but torch finds no GPU; use device=cpu")
        self.mode = ("captured" if on_gpu else "eager") if config.mode == "auto" else config.mode
        self.precision = ("tf32" if on_gpu else "fp32") if config.precision == "auto" else config.precision
        self.compiles = self.mode in ("compiled", "compiled_captured")
        self.captures = self.mode in ("captured", "compiled_captured")
        if self.captures and not on_gpu:
            raise ValueError(f"execution.mode is {self.mode}, but CUDA graphs need a GPU; use eager or compiled")
        if self.precision == "tf32" and not on_gpu:
            raise ValueError("execution.precision is tf32, which only a GPU has; use fp32 or bf16")
        self.fuses = FUSES_PRODUCTS and self.compiles and on_gpu and self.precision == "tf32"
        """Whether `nn/fused_dense.py` takes the place of plain layers."""
        self._stream = torch.cuda.Stream(self.device) if self.captures else None

    def program(self, function: Callable[[], None], name: str, generators: Sequence[torch.Generator] = ()) -> Program:
        """`function` as something to call again and again; `name` is for messages.

        `generators` are those it draws from; their state goes on through replays as it would eagerly.
        """
        return Program(self, function, name, tuple(generators))

    def compiled(self, function: Function) -> Function:
        """`function` compiled for fixed shapes if this execution compiles, else itself."""
        return _Compiled(function) if self.compiles else function  # type: ignore[return-value]

    @contextlib.contextmanager
    def numerics(self) -> Iterator[None]:
        """The precision of matrix products inside the block; what it was before is put back."""
        if self.device.type != "cuda" and self.precision == "fp32":
            yield
            return
        before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32, _fused
        _set_products("highest" if self.precision == "fp32" else "high", self.precision != "fp32", self.fuses)
        try:
            if self.precision == "bf16":
                with torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False):
                    yield
            else:
                yield
        finally:
            _set_products(*before)


class Program:
    """Made by `Execution.program`."""

    def __init__(
        self,
        execution: Execution,
        function: Callable[[], None],
        name: str,
        generators: tuple[torch.Generator, ...],
    ) -> None:
        self.execution, self.function, self.name, self.generators = execution, function, name, generators
        self.refused: str | None = None
        """Why it cannot be recorded, if so; it then runs eagerly."""
        self._calls = 0
        self._conditions: tuple[Any, ...] = ()
        self._parts: list[Callable[[], None]] = []
        """The recording: replays of graphs, with what stands `outside` of them in between."""

    @property
    def is_recorded(self) -> bool:
        return bool(self._parts)

    def __call__(self) -> None:
        if self._parts:
            for part in self._parts:
                part()
        elif not self.execution.captures or self.refused is not None:
            with self.execution.numerics():
                self.function()
        elif self._calls < WARM_UP_CALLS:
            self._calls += 1
            self._warm_up()
        else:
            self._record()
            self()

    def on(self, *conditions: Any) -> Self:
        """This program, for `conditions`: workspaces whose memory it reads, and values that become part of a recording.

        A recording made on others is dropped. `self.learn.on(rollout, coefficients)()`
        """
        if self.execution.captures:
            found = tuple(c.addresses() if isinstance(c, Workspace) else c for c in conditions)
            if found != self._conditions:
                self._conditions = found
                self.forget()
        return self

    def forget(self) -> None:
        """Drop the recording: tensors it used have moved. The next calls warm up and record again."""
        self._parts, self._calls, self.refused = [], 0, None

    def _warm_up(self) -> None:
        stream, current = self.execution._stream, torch.cuda.current_stream(self.execution.device)
        assert stream is not None
        stream.wait_stream(current)
        with torch.cuda.stream(stream), self.execution.numerics():
            self.function()
        current.wait_stream(stream)

    def _record(self) -> None:
        execution, stream = self.execution, self.execution._stream
        assert stream is not None
        # a failed recording leaves generators in the midst of it; the global one takes part in every recording
        index = torch.cuda.current_device() if execution.device.index is None else execution.device.index
        touched = (*self.generators, torch.cuda.default_generators[index])
        states = [generator.clone_state() for generator in touched]
        with _making, execution.numerics():
            torch.cuda.synchronize(execution.device)
            try:
                self._parts = _Recording(self.generators).of(self.function, stream)
                # a recording begins by writing the generators' state on its stream, a replay by writing it on this one
                torch.cuda.current_stream(execution.device).wait_stream(stream)
            except Exception as error:  # whatever the function does that a graph cannot hold
                for generator, state in zip(touched, states, strict=True):
                    generator.graphsafe_set_state(state)
                self.refused = _first_line(error)
                log.warning("%s cannot be recorded as a CUDA graph and runs eagerly: %s", self.name, self.refused)


class _Recording:
    """A function as CUDA graphs, one behind the other, cut where something stands `outside` of them.

    They share a memory pool of their own, because they run in this order always; results of one recording must survive
    the replay of another.
    """

    present: _Recording | None = None
    """The one under way; there is one at a time in a process."""

    def __init__(self, generators: Sequence[torch.Generator]) -> None:
        self.generators = generators
        self.parts: list[Callable[[], None]] = []
        self.pool = torch.cuda.graph_pool_handle()
        self._context: Any = None

    def of(self, function: Callable[[], None], stream: torch.cuda.Stream | None) -> list[Callable[[], None]]:
        self._stream = stream
        _Recording.present = self
        try:
            self._begin()
            function()
        except BaseException as error:
            self._end(type(error), error, error.__traceback__)
            raise
        else:
            self._end(None, None, None)
        finally:
            _Recording.present = None
        return self.parts

    def cut(self, function: Callable[[], None]) -> None:
        """Let `function` run between what was recorded so far and what follows; it does not run now, when nothing has
        been computed."""
        self._end(None, None, None)
        self.parts.append(function)
        self._begin()

    def _begin(self) -> None:
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            # graphs take nothing derived from a Generator, but a plain one that points to the same state
            is_plain = type(generator) is torch.Generator
            graph.register_generator_state(generator if is_plain else generator.graphsafe_get_state())
        context = torch.cuda.graph(graph, pool=self.pool, stream=self._stream)
        context.__enter__()
        self._context = context
        self.parts.append(graph.replay)

    def _end(self, *error: Any) -> None:
        """Close the part under way, if there is one."""
        context, self._context = self._context, None
        if context is not None:
            context.__exit__(*error)


def outside(function: Callable[[], None]) -> None:
    """Call `function`, which no graph can hold: now or, within a recording, each time between its two parts."""
    if _Recording.present is None:
        function()
    else:
        _Recording.present.cut(function)


class _Compiled:
    """A compiled function that goes on uncompiled, and says why, where the compiler fails."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._fast: Callable[..., Any] | None = None
        self._failed = False

    def __call__(self, *arguments: Any) -> Any:
        if self._fast is not None:
            return self._fast(*arguments)
        if not self._failed:
            with _making:
                for options in (None, {"max_fusion_size": SMALLER_KERNELS}):
                    fast = _compile(self.function, options)
                    try:
                        result = fast(*arguments)
                    except Exception as error:
                        reason = _first_line(error)
                    else:
                        self._fast = fast
                        return result
            log.warning("%s cannot be compiled and runs as it is: %s", _name(self.function), reason)
            self._failed = True
        return self.function(*arguments)  # an error of the function itself shows here, in its own words


def _compile(function: Callable[..., Any], options: dict[str, Any] | None) -> Callable[..., Any]:
    return torch.compile(_with_own_code(function), dynamic=False, fullgraph=True, options=options)


def _with_own_code(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function on a copy of its code. torch keeps what it compiled with the code, for each object whose method it
    is, and gives up at the ninth; a copy is compiled for one, and goes with it."""
    plain = getattr(function, "__func__", function)
    if not isinstance(plain, types.FunctionType):
        return function
    copy = types.FunctionType(
        plain.__code__.replace(), plain.__globals__, plain.__name__, plain.__defaults__, plain.__closure__
    )
    copy.__kwdefaults__ = plain.__kwdefaults__
    copy.__dict__.update(plain.__dict__)
    return copy if plain is function else types.MethodType(copy, function.__self__)  # type: ignore[attr-defined]


def _set_products(matmul: str, cudnn: bool, fused: bool) -> None:
    global _fused
    torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.allow_tf32 = cudnn
    _fused = fused


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


def _first_line(error: BaseException) -> str:
    """The first line, and the cause that it announces: torch tells of its compiler's processes in many."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines[1:] if re.match(r"\w*(Error|Exception): ", line)]
    if causes and lines[0].endswith(":"):
        return f"{lines[0]} {causes[-1]}"
    return lines[0] if lines else type(error).__name__
