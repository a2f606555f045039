"""Layers of a perceptron with their activations on a GPU: cuBLAS and what stands behind it, and `nn/fused_dense.py`.

    python benchmarks/gpu_dense.py --out benchmarks/results/gpu_dense.json

24,576 rows, layers 48-512-256-128-12 with ELU, TF32: a minibatch of PPO. Milliseconds of each layer forward and
backward, by the plain operations that a compiler would leave (product; bias and activation in one pass, its slope and
the sums of the bias in two), and by the kernels in several tilings, the present one first; of the gradient of each
weight as one product and cut into pieces. Then a network forward and backward, plain and fused, and the kernels of an
update of PPO by their time. Gates: what is timed equals float64 to TF32.
"""

from __future__ import annotations

import itertools
import json
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from _gpu import Phases, Session, Stopwatch, options, precision
from _rounds import Case
from torch import Tensor

from gaitway.core import execution
from gaitway.nn import fused_dense
from gaitway.nn.fused_dense import FusedDense
from gaitway.nn.mlp import MLP

ROWS, SIZES = 24_576, (48, 512, 256, 128, 12)
REPEAT = 20


class Timed:
    """A function as a CUDA graph of `REPEAT` calls; what a call takes."""

    def __init__(self, function: Any) -> None:
        self.watch = Stopwatch("cuda")
        with precision("tf32"):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                function(), function()
            torch.cuda.current_stream().wait_stream(side)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                for _ in range(REPEAT):
                    function()

    def __call__(self) -> Phases:
        self.watch.start()
        self.graph.replay()
        return {"total": self.watch.lap() / REPEAT}


def cut(tile: Any, function: Any) -> Timed:
    """`function` with its products cut as `tile` says (None: as they are)."""
    from gaitway.nn import dense_kernels as kernels

    before = kernels.tiles
    try:
        if tile is not None:
            kernels.tiles = lambda outputs, depth, backward: tile  # type: ignore[assignment]
        return Timed(function)
    finally:
        kernels.tiles = before


def tilings(backward: bool, deep: int) -> dict[str, Any]:
    from gaitway.nn.dense_kernels import BACKWARD_ROWS, Tiles

    forward: tuple[tuple[int, int, int, int | None, int], ...]
    forward = ((128, 128, 8, 128, 3), (128, 128, 8, None, 4), (64, 128, 4, None, 3), (128, 64, 4, None, 3))
    forward += ((64, 256, 8, None, 3), (128, 256, 8, None, 3))
    behind = ((64, 4, 168, 3), (64, 4, None, 3), (128, 8, 128, 3), (128, 8, None, 3), (64, 8, None, 3))
    asked = [(BACKWARD_ROWS, *each) for each in behind] if backward else forward
    return {
        f"{rows}x{outputs} {warps}w {registers or '-'} {stages}s": Tiles(rows, outputs, deep, warps, registers, stages)
        for rows, outputs, warps, registers, stages in asked
    }


def layers(session: Session) -> None:
    from gaitway.nn import dense_kernels as kernels

    draw = partial(torch.randn, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    for inputs, outputs in itertools.pairwise(SIZES):
        last, first = outputs == SIZES[-1], inputs == SIZES[0]
        x, weight, bias = draw(ROWS, inputs), draw(outputs, inputs) / inputs**0.5, draw(outputs)
        prepared = kernels.prepare([weight])
        rounded = prepared[: weight.numel()].view_as(weight)
        back = prepared[weight.numel() : 2 * weight.numel()].view(inputs, outputs)
        gradient = draw(ROWS, outputs)
        sums = x.new_empty(kernels.row_tiles(ROWS), inputs)
        forward = partial(kernels.forward, x, rounded, bias, kernels.ELU, first, last)
        backward = partial(kernels.backward, gradient, back, x, kernels.ELU, sums, last)
        exact = x.double() @ weight.double().t() + bias
        exact = exact if last else F.elu(exact)
        name = f"{inputs}-{outputs}"
        session.gate(f"{name} forward", forward().double().flatten(), exact.flatten(), 2e-3)
        exact = (gradient.double() @ weight.double()) * torch.where(x > 0, 1.0, x.double() + 1.0)
        session.gate(f"{name} backward", backward().double().flatten(), exact.flatten(), 2e-3)

        def plain(x: Tensor = x, weight: Tensor = weight, bias: Tensor = bias, last: bool = last) -> Tensor:
            found = torch.addmm(bias, x, weight.t())
            return found if last else F.elu_(found)

        def plain_back(x: Tensor = x, weight: Tensor = weight, gradient: Tensor = gradient) -> tuple[Tensor, Tensor]:
            found = torch.ops.aten.elu_backward(gradient @ weight, 1, 1, 1, True, x)
            return found, found.sum(0)

        deep = 32 if inputs % 32 == 0 else 16
        makers: dict[str, Any] = {"plain": partial(Timed, plain), "present": partial(cut, None, forward)}
        if not last:
            makers |= {key: partial(cut, tile, forward) for key, tile in tilings(False, deep).items()}
        race(session, f"{name} forward", makers)
        if not first:
            deep = 32 if outputs % 32 == 0 else 16
            makers = {"plain": partial(Timed, plain_back), "present": partial(cut, None, backward)}
            makers |= {key: partial(cut, tile, backward) for key, tile in tilings(True, deep).items()}
            race(session, f"{name} backward", makers)
        race(session, f"{name} weight", {f"{n} pieces": partial(pieces, n, gradient, x) for n in (1, 4, 8, 16, 32)})


def pieces(count: int, gradient: Tensor, x: Tensor) -> Timed:
    before, fused_dense.WEIGHT_PIECES = fused_dense.WEIGHT_PIECES, count
    try:
        return Timed(partial(fused_dense._by_weight, gradient, x))
    finally:
        fused_dense.WEIGHT_PIECES = before


def network(session: Session) -> None:
    made = MLP(SIZES[0], SIZES[1:-1], SIZES[-1], "elu", generator=torch.Generator().manual_seed(0)).cuda()
    fused = FusedDense.of(made)
    x = torch.randn(ROWS, SIZES[0], device="cuda")
    weights = torch.randn(ROWS, SIZES[-1], device="cuda")
    wanted = list(made.parameters())

    def work(function: Any) -> list[Tensor]:
        return list(torch.autograd.grad((function(x) * weights).sum(), wanted))

    def plain() -> list[Tensor]:
        return work(made)

    def whole() -> list[Tensor]:
        execution._fused = True
        try:
            return work(fused)
        finally:
            execution._fused = False

    with precision("fp32"):
        expected = torch.cat([each.flatten() for each in plain()])
    with precision("tf32"):
        for name, function in (("plain", plain), ("fused", whole)):
            found = torch.cat([each.flatten() for each in function()])
            session.gate(f"gradient of the network, {name}", found, expected, 2e-3)
    race(session, "network, forward and backward", {"plain": partial(Timed, plain), "fused": partial(Timed, whole)})


def race(session: Session, name: str, makers: dict[str, Any]) -> None:
    entrants = session.enter(makers, f"{name}: ")
    raw = session.race(entrants, 1, f"{name}: ").get("total", {})
    if not raw:
        return
    case = Case(name, "ms", raw)
    session.add(case)
    order = sorted(raw, key=lambda key: sorted(raw[key])[len(raw[key]) // 2])
    medians = {key: round(1e3 * sorted(raw[key])[len(raw[key]) // 2], 1) for key in order}
    best = [key for key in order if key not in ("plain", "present")][:3]
    print(
        name, json.dumps({key: medians[key] for key in ("plain", "present", *best) if key in medians}), "us", flush=True
    )


def kernels_of_an_update(session: Session) -> None:
    """Where the time of an update goes, by kernel, in microseconds."""
    from _ppo_iteration import Ours, Sizes
    from torch.profiler import ProfilerActivity, profile

    for mode in ("compiled_captured", "captured"):
        entrant = Ours(Sizes(), "cuda", mode, "tf32")
        for _ in range(5):
            entrant()
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            entrant.update()
            torch.cuda.synchronize()
        rows = sorted(found.key_averages(), key=lambda row: -row.self_device_time_total)
        table = [[row.key[:90], row.count, round(row.self_device_time_total, 1)] for row in rows]
        total, count = sum(row[2] for row in table), sum(row[1] for row in table)
        session.found[f"kernels of an update, {mode} tf32"] = {"total": total, "count": count, "kernels": table[:60]}
        session.save()
        print(f"{mode}: {count} kernels, {total / 1e3:.2f} ms busy")
        for row in table[:25]:
            print("   ", row)


def main() -> None:
    found = options(__doc__)
    if found.device == "cpu":
        raise SystemExit("kernels need a GPU; on the CPU tests/nn/test_fused_dense.py shows what they compute")
    session = Session("gpu_dense", found, rows=ROWS, sizes=SIZES)
    for stage in (network, kernels_of_an_update, layers):
        with session.errors(stage.__name__):
            stage(session)
    session.finish()


if __name__ == "__main__":
    main()
