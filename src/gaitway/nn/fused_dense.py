"""A multilayer perceptron whose products and activations are one kernel each: for compiled programs in TF32 on a GPU.

On tens of thousands of rows a layer is bound by memory: between two products of cuBLAS an activation reads and writes
as many bytes as the products do, its gradient and that of the bias half as many again. Here bias and activation stand
at the end of the product's kernel, and so do the slope of the activation and the sums for the bias on the way back.
Gradients of the weights are products of cuBLAS. `dense` is an operation of PyTorch, so that compiled losses may
contain it; on the CPU it is computed with PyTorch's own operations, which is the reference of the kernels.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gaitway.core.execution import products_are_fused
from gaitway.nn.altered import is_altered
from gaitway.nn.mlp import MLP

MAX_LAYERS = 6
KINDS: dict[type[nn.Module], str] = {nn.ELU: "elu", nn.ReLU: "relu"}
WEIGHT_PIECES = 1
"""Into how many pieces of the rows the gradient of a weight is cut, which are products of their own and then added."""


@functools.cache
def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


class FusedDense:
    """`network` [N, inputs] -> [N, outputs] with fused layers wherever products are fused, else `network` itself."""

    def __init__(self, network: MLP, linears: Sequence[nn.Linear], kind: str) -> None:
        self.network, self.linears, self.kind = network, list(linears), kind

    @classmethod
    def of(cls, network: nn.Module) -> FusedDense | None:
        """None where a layer, its type or something put over it is not supported."""
        if type(network) is not MLP or type(network.layers) is not nn.Sequential or is_altered(network):
            return None
        *pairs, last = network.layers
        linears, activations = [*pairs[::2], last], pairs[1::2]
        if not 1 < len(linears) <= MAX_LAYERS or len(pairs) % 2:
            return None
        kinds = {type(each) for each in activations}
        if len(kinds) != 1 or not kinds <= KINDS.keys() or any(getattr(e, "alpha", 1.0) != 1.0 for e in activations):
            return None
        plain = [each for each in linears if isinstance(each, nn.Linear)]
        if any(type(each) is not nn.Linear for each in linears) or any(each.bias is None for each in plain):
            return None
        if any(each.weight.dtype is not torch.float32 for each in plain):
            return None
        return cls(network, plain, KINDS[kinds.pop()])

    def __call__(self, x: Tensor) -> Tensor:
        if not products_are_fused() or x.ndim != 2:
            return self.network(x)
        weights, biases = [each.weight for each in self.linears], [each.bias for each in self.linears]
        return dense(x, weights, biases, self.kind)[-2]


@torch.library.custom_op(
    "gaitway::dense",
    mutates_args=(),
    schema="(Tensor x, Tensor[] weights, Tensor[] biases, str kind) -> Tensor[]",
)
def dense(x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], kind: str) -> list[Tensor]:
    """Linear layers with activations of the `kind` between them on `x` [N, inputs]: what each of them gives, and
    behind it weights as the way back reads them."""
    values: list[Tensor] = []
    x = x if x.stride(-1) == 1 else x.contiguous()
    if not _has_kernels(x):
        for number, (weight, bias) in enumerate(zip(weights, biases, strict=True), start=1):
            found = torch.addmm(bias, values[-1] if values else x, weight.t())
            values.append(found if number == len(weights) else F.relu(found) if kind == "relu" else F.elu(found))
        return [*values, x.new_empty(0)]
    from gaitway.nn import dense_kernels as kernels

    prepared = kernels.prepare(weights)
    for number, (weight, bias, start) in enumerate(zip(weights, biases, kernels.offsets(weights)[0], strict=True)):
        rounded = prepared[start : start + weight.numel()].view_as(weight)
        is_last = number == len(weights) - 1
        before = values[-1] if values else x
        values.append(kernels.forward(before, rounded, bias, kernels.ACTIVATIONS[kind], number == 0, is_last))
    return [*values, prepared]


@torch.library.custom_op(
    "gaitway::dense_backward",
    mutates_args=(),
    schema="(Tensor gradient, Tensor x, Tensor[] weights, Tensor[] values, Tensor prepared, str kind) -> Tensor[]",
)
def dense_backward(
    gradient: Tensor, x: Tensor, weights: Sequence[Tensor], values: Sequence[Tensor], prepared: Tensor, kind: str
) -> list[Tensor]:
    """From the `gradient` by the result [N, outputs] and the hidden `values`: that of each weight, of all hidden biases
    side by side, and that behind the first product [N, hidden]."""
    gradient = gradient.contiguous()
    by_weight: list[Tensor] = []
    sizes = [value.shape[1] for value in values]
    if not _has_kernels(x):
        by_bias: list[Tensor] = []
        for layer in range(len(weights) - 1, 0, -1):
            value = values[layer - 1]
            by_weight.append(_by_weight(gradient, value))
            slope = torch.where(value > 0, 1.0, value + 1.0 if kind == "elu" else torch.zeros_like(value))
            gradient = (gradient @ weights[layer]) * slope
            by_bias.append(gradient.sum(0))
        by_weight.append(_by_weight(gradient, x))
        return [*by_weight[::-1], torch.cat(by_bias[::-1]), gradient]
    from gaitway.nn import dense_kernels as kernels

    sums = x.new_empty(kernels.row_tiles(len(x)), sum(sizes))
    parts, starts = sums.split(sizes, 1), kernels.offsets(weights)[0]
    for layer in range(len(weights) - 1, 0, -1):
        weight, value = weights[layer], values[layer - 1]
        start = starts[layer] + weight.numel()
        transposed = prepared[start : start + weight.numel()].view(weight.shape[1], weight.shape[0])
        by_weight.append(_by_weight(gradient, value))
        is_last = layer == len(weights) - 1
        gradient = kernels.backward(gradient, transposed, value, kernels.ACTIVATIONS[kind], parts[layer - 1], is_last)
    by_weight.append(_by_weight(gradient, x))
    return [*by_weight[::-1], sums.sum(0), gradient]


def _by_weight(gradient: Tensor, x: Tensor) -> Tensor:
    """[outputs, inputs]: a product whose sum is over all rows."""
    pieces = WEIGHT_PIECES
    if pieces == 1 or len(x) % pieces:
        return gradient.t() @ x
    parts = torch.bmm(gradient.unflatten(0, (pieces, -1)).mT, x.unflatten(0, (pieces, -1)))
    return parts.sum(0)


def _has_kernels(x: Tensor) -> bool:
    return x.is_cuda and x.dtype is torch.float32


@dense.register_fake
def _(x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], kind: str) -> list[Tensor]:
    prepared = sum(-(-2 * w.numel() // 32) * 32 for w in weights) if _has_kernels(x) else 0
    return [*(x.new_empty(x.shape[0], weight.shape[0]) for weight in weights), x.new_empty(prepared)]


@dense_backward.register_fake
def _(
    gradient: Tensor, x: Tensor, weights: Sequence[Tensor], values: Sequence[Tensor], prepared: Tensor, kind: str
) -> list[Tensor]:
    sizes = [value.shape[1] for value in values]
    return [*(w.new_empty(w.shape) for w in weights), x.new_empty(sum(sizes)), x.new_empty(x.shape[0], sizes[0])]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    x, weights, _, kind = inputs
    *hidden, _, prepared = output
    ctx.save_for_backward(x, prepared, *weights, *hidden)
    ctx.layers, ctx.kind, ctx.by_input = len(weights), kind, x.requires_grad


def _differentiate(ctx: Any, gradients: list[Tensor]) -> tuple[Any, ...]:
    """Of the results the last layer's alone is given out, so that the others have no gradient of their own."""
    x, prepared, *rest = ctx.saved_tensors
    weights, hidden = rest[: ctx.layers], rest[ctx.layers :]
    gradient = gradients[-2]
    *by_weight, by_hidden_bias, first = dense_backward(gradient, x, weights, hidden, prepared, ctx.kind)
    by_bias = [*by_hidden_bias.split([value.shape[1] for value in hidden]), gradient.sum(0)]
    return first @ weights[0] if ctx.by_input else None, by_weight, by_bias, None


dense.register_autograd(_differentiate, setup_context=_keep)
