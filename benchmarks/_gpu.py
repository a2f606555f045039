"""What the scripts for a GPU machine share: options, precision, timing, floors, results kept after every stage.

A contestant that fails is reported with its error and left out; the others go on. On the CPU (`--device cpu --quick`)
the same scripts run with tiny sizes, to see that they work.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import logging
import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from _provenance import provenance
from _rounds import Case, keep, machine, show, versions
from torch import Tensor

os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")  # rsl_rl imports GitPython, which else insists on git
TOLERANCE = {"fp32": 1e-5, "tf32": 2e-3, "bf16": 2e-2}
"""How far parameters may be from those of the eager program after the same work, by precision."""
Phases = dict[str, float]


class Entrant(Protocol):
    """A contestant: one call is one unit of work; it returns the milliseconds of its phases."""

    def __call__(self) -> Phases: ...


def options(doc: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None, help="JSON file, written again after every stage")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="tiny sizes and few rounds")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", nargs="*", default=[], help="enter only contestants whose name contains one of these")
    parser.add_argument("--skip", nargs="*", default=[], help="leave out contestants whose name contains one of these")
    parser.add_argument(
        "--enter-seconds", type=float, default=240.0, help="after this long make no more contestants, time those there"
    )
    parser.add_argument("--ungated", action="store_true", help="time also what failed its equality gate")
    found = parser.parse_args()
    if found.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no GPU; use --device cpu --quick to try the script")
    if found.quick:
        found.rounds = min(found.rounds, 3)
    if found.rounds < 9 and not found.quick:
        parser.error("use at least 9 rounds, or the medians mean little")
    return found


def modes(device: str, quick: bool = False) -> list[tuple[str, str]]:
    """(mode, precision) of ours: everything the device can do, what takes longest to make last."""
    if device == "cpu":
        return [("eager", "fp32"), ("compiled", "fp32"), ("eager", "bf16")][: 2 if quick else 3]
    captured = [(mode, p) for mode in ("captured", "compiled_captured") for p in ("tf32", "fp32", "bf16")]
    return [*captured, ("eager", "fp32")]


def precisions(device: str) -> list[str]:
    return ["fp32"] if device == "cpu" else ["fp32", "tf32"]


@contextlib.contextmanager
def precision(name: str | None) -> Iterator[None]:
    """Matrix products of a peer in `name`: fp32 throughout, tf32 wherever torch knows it, None for torch's defaults."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    if name is not None:
        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        torch.backends.cudnn.allow_tf32 = name == "tf32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


class Stopwatch:
    """Milliseconds between calls, with the device idle at each of them."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._last = 0.0

    def start(self) -> None:
        self._wait()
        self._last = time.perf_counter()

    def lap(self) -> float:
        self._wait()
        now = time.perf_counter()
        milliseconds = 1e3 * (now - self._last)
        self._last = now
        return milliseconds

    def _wait(self) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize()


class Session:
    """The contestants of one script, its cases, and everything that went wrong on the way."""

    def __init__(self, benchmark: str, options: argparse.Namespace, **facts: object) -> None:
        self.options, self.device = options, options.device
        self.found: dict[str, Any] = {
            "benchmark": benchmark,
            **provenance(benchmark, None),
            "versions": versions("torch", "rsl-rl-lib", "skrl", "stable-baselines3", "tensordict", "triton"),
            **facts,
            "setup_seconds": {},
            "gates": {},
            "warnings": {},
            "errors": {},
            "cases": {},
        }
        self.cases: list[Case] = []
        self.stages = 1
        """How many times contestants are entered; they share the time for that."""
        self.name = ""
        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: self._warn(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("gaitway").addHandler(handler)

    def enter(self, makers: Mapping[str, Callable[[], Entrant]], prefix: str = "") -> dict[str, Entrant]:
        """Build the contestants and let each work twice: compiling and capturing happens here and is timed apart."""
        entrants = {}
        deadline = time.perf_counter() + self.options.enter_seconds / self.stages
        for name, make in makers.items():
            if self.options.only and not any(text in name for text in self.options.only):
                continue
            if any(text in name for text in self.options.skip):
                continue
            with self.errors(prefix + name):
                started = time.perf_counter()
                if started > deadline:
                    raise RuntimeError("not entered: the time for that was over, see --enter-seconds")
                entrant = make()
                for _ in range(2):
                    entrant()
                self.found["setup_seconds"][prefix + name] = round(time.perf_counter() - started, 3)
                entrants[name] = entrant
            self.save()
        return entrants

    def race(self, entrants: Mapping[str, Entrant], repeat: int, prefix: str = "") -> dict[str, dict[str, list[float]]]:
        """Phases -> contestants -> milliseconds of each round (means over `repeat`), in rotated order."""
        left = dict(entrants)
        rounds: dict[str, list[Phases]] = {name: [] for name in entrants}
        for number in range(self.options.rounds):
            names = list(left)
            shift = number % max(len(names), 1)
            for name in names[shift:] + names[:shift]:
                with self.errors(prefix + name):
                    laps = [left[name]() for _ in range(repeat)]
                    rounds[name].append({phase: sum(lap[phase] for lap in laps) / repeat for phase in laps[0]})
                    continue
                del left[name]
                del rounds[name]
        phases = list(dict.fromkeys(phase for laps in rounds.values() for lap in laps for phase in lap))
        return {
            phase: {name: [lap[phase] for lap in laps] for name, laps in rounds.items() if laps and phase in laps[0]}
            for phase in phases
        }

    def gate(self, name: str, found: Tensor, expected: Tensor, tolerance: float) -> None:
        """Record how far two flat tensors are apart, relative to their size; too far is an error."""
        difference = (found - expected).double()
        error = float(difference.norm() / expected.double().norm())
        largest = float(difference.abs().max() / expected.abs().max())
        passed = error <= tolerance
        self.found["gates"][name] = {
            "relative_error": error,
            "largest_relative_to_largest": largest,
            "tolerance": tolerance,
            "passed": passed,
        }
        self.save()
        if not passed and not self.options.ungated:
            raise RuntimeError(f"{name}: relative error {error:.2e}, allowed {tolerance:.0e}; not timed")

    def check_no_waiting(self, name: str, work: Callable[[], object]) -> None:
        """Whether `work`, already warm, ever makes the host wait for the device."""
        if self.device == "cpu":
            return
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            work()
            found = "none"
        except RuntimeError as error:
            found = str(error).splitlines()[0] + " | " + _where(error)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        self.found["gates"][f"{name}: host synchronisation"] = {"passed": found == "none", "found": found}
        self.save()

    def _warn(self, message: str) -> None:
        """Keep what the library says, above all that something could not be compiled or captured."""
        kept = self.found["warnings"].setdefault(self.name, [])
        if message not in kept:
            kept.append(message)

    @contextlib.contextmanager
    def errors(self, name: str) -> Iterator[None]:
        """Report what goes wrong inside and go on."""
        self.name = name
        try:
            yield
        except Exception as error:
            self.found["errors"][name] = f"{type(error).__name__}: {error} | {_where(error)}"[:2000]
            print(f"{name}: {self.found['errors'][name]}", flush=True)
            self.save()
        finally:
            gc.collect()

    def add(self, case: Case) -> None:
        self.cases.append(case)
        self.found["cases"][case.name] = case.result()
        self.save()

    def save(self) -> None:
        if self.options.out:
            keep(self.options.out, self.found)

    def finish(self) -> None:
        self.found["machine"] |= machine()
        self.save()
        show(self.cases)
        for name, result in self.found["gates"].items():
            detail = f"{result['relative_error']:.1e}" if "relative_error" in result else result["found"]
            print(f"gate {name}: {'passed' if result['passed'] else 'FAILED'} ({detail})")
        for name, seconds in self.found["setup_seconds"].items():
            print(f"making {name} and two units of work: {seconds} s")
        for name, texts in self.found["warnings"].items():
            for text in texts:
                print(f"WARNING {name}: {text}")
        for name, text in self.found["errors"].items():
            print(f"ERROR {name}: {text}")


def standard_pairs(case: Case, default_peer: str, recommended: str) -> list[tuple[str, str]]:
    """The ratios to print: same precision, both at their best, ours as recommended against the peer's default."""
    ours = [name for name in case.raw if name.startswith("gaitway")]
    peers = [name for name in case.raw if not name.startswith(("gaitway", "products"))]
    pairs: list[tuple[str, str]] = []
    for kind in ("fp32", "tf32", "bf16"):
        same = [name for name in ours if name.endswith(kind)], [name for name in peers if name.endswith(kind)]
        if same[0] and same[1]:
            pairs += [(case.best(same[0]), case.best(same[1]))]
            pairs += [(name, peer) for name in same[0] if "captured" in name for peer in same[1]]
    if ours and peers:
        pairs.append((case.best(ours), case.best(peers)))
    if recommended in case.raw and default_peer in case.raw:
        pairs.append((recommended, default_peer))
    return list(dict.fromkeys(pairs))


Product = tuple[int, int, int]
"""[m, k] times [k, n]."""


class Products:
    """Nothing but matrix products: the arithmetic that no implementation can leave out, at the shapes in use."""

    def __init__(self, products: Sequence[tuple[Product, int]], kind: str, device: str, threads: int = 1) -> None:
        """`products` with how often each is needed; `threads` are torch's on the CPU."""
        self.kind, self.device, self.products, self.threads = kind, device, products, threads
        dtype = torch.bfloat16 if kind == "bf16" else torch.float32
        self._operands = {}
        for (m, k, n), _ in products:
            a, b = torch.randn(m, k, device=device, dtype=dtype), torch.randn(k, n, device=device, dtype=dtype)
            self._operands[m, k, n] = (a, b, torch.empty(m, n, device=device, dtype=dtype))
        self._watch = Stopwatch(device)
        self._graph: torch.cuda.CUDAGraph | None = None
        if device != "cpu":
            with precision(self.kind):
                self._multiply()
                torch.cuda.synchronize()
                self._graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self._graph):
                    self._multiply()

    def __call__(self) -> Phases:
        torch.set_num_threads(self.threads)
        with precision(self.kind):
            self._watch.start()
            if self._graph is None:
                self._multiply()
            else:
                self._graph.replay()
            return {"total": self._watch.lap()}

    def _multiply(self) -> None:
        for product, times in self.products:
            a, b, out = self._operands[product]
            for _ in range(times):
                torch.mm(a, b, out=out)


def layer_products(rows: int, sizes: Sequence[int], times: int, learning: bool) -> list[tuple[Product, int]]:
    """The products of a chain of layers `sizes` on `rows` rows: forward, and with `learning` those of the gradients
    (the first layer needs none for its input)."""
    found: list[tuple[Product, int]] = []
    for index, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        found.append(((rows, inputs, outputs), times))
        if learning:
            found.append(((outputs, rows, inputs), times))
            if index:
                found.append(((rows, outputs, inputs), times))
    return found


def _where(error: BaseException) -> str:
    """The innermost lines of the traceback, short."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames))
