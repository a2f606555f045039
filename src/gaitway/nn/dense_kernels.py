"""Triton kernels of `fused_dense`: a layer's product with what stands behind it, in one pass over memory.

A product in TF32 reads the first 10 of 23 bits of its operands. The units cut the others off, which makes every product
a little too small; so operands are rounded to the nearest number of 10 bits where they are made: weights by `prepare`,
hidden values and their gradients when a layer stores them. Import this module only where Triton is.
"""

# mypy: disallow-untyped-defs=False
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

ELU, RELU = 1, 2
ACTIVATIONS = {"elu": ELU, "relu": RELU}
MAX_LAYERS = 6

BACKWARD_ROWS = 128
"""Rows of a tile of all backward products: the sums over them stand side by side in one matrix."""


class Tiles(NamedTuple):
    """What a block of threads works on, and with what."""

    rows: int
    outputs: int
    depth: int
    warps: int
    registers: int | None = None
    """Of a thread at most: fewer let two or three blocks share a processor, one computing while another stores."""
    stages: int = 3
    """Pieces of the depth that are on their way from memory."""


def tiles(outputs: int, depth: int, backward: bool) -> Tiles:
    """How a product of `outputs` columns and `depth` summands is cut; a fixed rule, so that runs repeat."""
    deep = 32 if depth % 32 == 0 else 16
    if outputs <= 16:
        return Tiles(128, 16, deep, 4)
    if backward or outputs <= 64:
        return Tiles(BACKWARD_ROWS, 64, deep, 4, 168 if deep == 32 else None)
    return Tiles(64, 128, deep, 4) if deep == 16 else Tiles(128, 128, deep, 8, 128)


@triton.jit
def _rounded(x):
    """To 10 bits, halves away from zero; what is not a number stays so."""
    bits = x.to(tl.int32, bitcast=True)
    near = ((bits + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
    return tl.where(x == x, near, x)


@triton.jit
def _activated(x, kind: tl.constexpr):
    if kind == 1:
        # exp(x) - 1 has few digits near 0
        near = x * (1.0 + x * (0.5 + x * (1.0 / 6.0)))
        below = tl.where(x > -0.02, near, tl.exp(x) - 1.0)  # no minimum before it, which would lose NaN too
        x = tl.where(x > 0.0, x, below)
    if kind == 2:
        x = tl.where(x < 0.0, 0.0, x)  # not a maximum, which would make 0 of what is not a number
    return x


@triton.jit
def _slope(y, kind: tl.constexpr):
    """The derivative of the activation, from its result."""
    if kind == 1:
        return tl.where(y > 0.0, 1.0, y + 1.0)
    if kind == 2:
        return tl.where(y > 0.0, 1.0, 0.0)
    return tl.full(y.shape, 1.0, tl.float32)


@triton.jit
def _layer(
    x, weight, bias, values, out, sums,
    rows, x_stride, outputs, sums_stride,
    depth: tl.constexpr, kind: tl.constexpr, backward: tl.constexpr,
    round_input: tl.constexpr, round_output: tl.constexpr,
    even_rows: tl.constexpr, even_outputs: tl.constexpr, aligned: tl.constexpr,
    tile_rows: tl.constexpr, tile_outputs: tl.constexpr, tile_depth: tl.constexpr,
):  # fmt: skip
    """`x` [rows, depth] times `weight` [outputs, depth] transposed.

    Forward: plus `bias`, through the activation, to `out` [rows, outputs]. Backward: times the slope of the activation
    whose results are `values` [rows, outputs], to `out`, and the sums over the rows of each tile to `sums`.
    """
    if aligned:
        x_stride = x_stride // 4 * 4  # the compiler sees that 16 bytes can be read at a time
    across = tl.cdiv(outputs, tile_outputs)
    tile = tl.program_id(0)
    tile_m, tile_n = tile // across, tile % across
    m = tile_m * tile_rows + tl.arange(0, tile_rows)
    n = tile_n * tile_outputs + tl.arange(0, tile_outputs)
    k = tl.arange(0, tile_depth)
    total = tl.zeros((tile_rows, tile_outputs), tl.float32)
    for start in range(0, tl.cdiv(depth, tile_depth)):
        at = start * tile_depth + k
        in_x, in_weight = (
            x + m[:, None].to(tl.int64) * x_stride + at[None, :],
            weight + n[None, :] * depth + at[:, None],
        )
        if depth % tile_depth == 0:
            if even_rows:
                a = tl.load(in_x)
            else:
                a = tl.load(in_x, mask=m[:, None] < rows, other=0.0)
            if even_outputs:
                b = tl.load(in_weight)
            else:
                b = tl.load(in_weight, mask=n[None, :] < outputs, other=0.0)
        else:
            a = tl.load(in_x, mask=(m[:, None] < rows) & (at[None, :] < depth), other=0.0)
            b = tl.load(in_weight, mask=(n[None, :] < outputs) & (at[:, None] < depth), other=0.0)
        if round_input:
            a = _rounded(a)
        total = tl.dot(a, b, total, input_precision="tf32")
    place = m[:, None].to(tl.int64) * outputs + n[None, :]
    inside = (m[:, None] < rows) & (n[None, :] < outputs)
    if backward:
        total *= _slope(tl.load(values + place, mask=inside, other=0.0), kind)
        if not even_rows:
            total = tl.where(inside, total, 0.0)
        tl.store(sums + tile_m * sums_stride + n, tl.sum(total, 0), mask=n < outputs)
    else:
        total = _activated(total + tl.load(bias + n, mask=n < outputs, other=0.0)[None, :], kind)
    if round_output:
        total = _rounded(total)
    tl.store(out + place, total, mask=inside)


@triton.jit
def _rounded_both_ways(weight, out, outputs, depth, tile: tl.constexpr):
    """`weight` [outputs, depth] rounded, and behind it its transpose."""
    across = tl.cdiv(depth, tile)
    block = tl.program_id(0)
    n = (block // across) * tile + tl.arange(0, tile)
    k = (block % across) * tile + tl.arange(0, tile)
    inside = (n[:, None] < outputs) & (k[None, :] < depth)
    found = _rounded(tl.load(weight + n[:, None] * depth + k[None, :], mask=inside, other=0.0))
    tl.store(out + n[:, None] * depth + k[None, :], found, mask=inside)
    inside = (n[None, :] < outputs) & (k[:, None] < depth)
    tl.store(out + outputs * depth + k[:, None] * outputs + n[None, :], tl.trans(found), mask=inside)


@triton.jit
def _prepare(
    w0, w1, w2, w3, w4, w5, out, n0, n1, n2, n3, n4, n5, k0, k1, k2, k3, k4, k5, o0, o1, o2, o3, o4, o5,
    layers: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    layer = tl.program_id(1)
    if layer == 0:
        _rounded_both_ways(w0, out + o0, n0, k0, tile)
    if layers > 1:  # noqa: SIM102
        if layer == 1:
            _rounded_both_ways(w1, out + o1, n1, k1, tile)
    if layers > 2:  # noqa: SIM102
        if layer == 2:
            _rounded_both_ways(w2, out + o2, n2, k2, tile)
    if layers > 3:  # noqa: SIM102
        if layer == 3:
            _rounded_both_ways(w3, out + o3, n3, k3, tile)
    if layers > 4:  # noqa: SIM102
        if layer == 4:
            _rounded_both_ways(w4, out + o4, n4, k4, tile)
    if layers > 5:  # noqa: SIM102
        if layer == 5:
            _rounded_both_ways(w5, out + o5, n5, k5, tile)


def prepare(weights: Sequence[Tensor]) -> Tensor:
    """All weights [outputs, inputs], rounded, each followed by its transpose: one flat tensor."""
    starts, end = offsets(weights)
    out = weights[0].new_empty(end)
    count, tile = len(weights), 32
    padded = [*weights, *[weights[-1]] * (MAX_LAYERS - count)]
    blocks = max(triton.cdiv(len(w), tile) * triton.cdiv(w.shape[1], tile) for w in weights)
    _prepare[blocks, count](
        *padded, out, *(len(w) for w in padded), *(w.shape[1] for w in padded),
        *starts, *([0] * (MAX_LAYERS - count)), layers=count, tile=tile, num_warps=4,
    )  # fmt: skip
    return out


def offsets(weights: Sequence[Tensor]) -> tuple[list[int], int]:
    """Where each weight and its transpose begin in what `prepare` makes, and its length; aligned for wide loads."""
    starts, end = [], 0
    for weight in weights:
        starts.append(end)
        end += -(-2 * weight.numel() // 32) * 32
    return starts, end


def forward(x: Tensor, weight: Tensor, bias: Tensor, activation: int, first: bool, last: bool) -> Tensor:
    """A layer [rows, outputs]; `weight` [outputs, inputs] is rounded, so is `x` unless it is the `first` input."""
    out = x.new_empty(len(x), len(weight))
    _launch(x, weight, bias, bias, out, bias, 0, activation if not last else 0, False, first, not last)
    return out


def backward(gradient: Tensor, transposed: Tensor, values: Tensor, activation: int, sums: Tensor, last: bool) -> Tensor:
    """The gradient in front of the layer before, [rows, inputs], from that behind it and that layer's `values`; `sums`
    [tiles, inputs], columns of a larger matrix, gets the sums over the rows of each tile."""
    out = torch.empty_like(values)
    _launch(gradient, transposed, sums, values, out, sums, sums.stride(0), activation, True, last, True)
    return out


def row_tiles(rows: int) -> int:
    """How many tiles of rows `backward` works in."""
    return triton.cdiv(rows, BACKWARD_ROWS)


def _launch(
    x: Tensor, weight: Tensor, bias: Tensor, values: Tensor, out: Tensor, sums: Tensor, sums_stride: int,
    kind: int, backward: bool, round_input: bool, round_output: bool,
) -> None:  # fmt: skip
    rows, (outputs, depth) = len(x), weight.shape
    cut = tiles(outputs, depth, backward)
    grid = (triton.cdiv(rows, cut.rows) * triton.cdiv(outputs, cut.outputs),)
    limit = {} if cut.registers is None else {"maxnreg": cut.registers}
    _layer[grid](
        x, weight, bias, values, out, sums, rows, x.stride(0), outputs, sums_stride,
        depth=depth, kind=kind, backward=backward, round_input=round_input, round_output=round_output,
        even_rows=rows % cut.rows == 0, even_outputs=outputs % cut.outputs == 0, aligned=x.stride(0) % 4 == 0,
        tile_rows=cut.rows, tile_outputs=cut.outputs, tile_depth=cut.depth,
        num_warps=cut.warps, num_stages=cut.stages, **limit,
    )  # fmt: skip
