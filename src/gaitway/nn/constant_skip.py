"""D2RL networks that are constant and see thousands of rows: layers that overwrite their own input's part.

At such sizes a layer of a few hundred numbers costs its passes over memory rather than its product. With autograd each
layer copies the input's part of it, adds its product to the copy and writes the rectified values elsewhere; the way
back gathers the gradients of all layers into one tensor again. Here layer i is computed where its part of the one
product of the input lies, and so is its gradient: nothing is copied, and no layer needs memory of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gaitway.nn.altered import is_altered
from gaitway.nn.trunks import Network, SkipTrunk


def runs_in_place(network: Network) -> bool:
    """Whether `in_place_values` stands for this network as it is: D2RL layers with rectifiers, nothing in it learnt and
    nothing put over its methods. A compiler fuses the plain layers itself, and under autocast they differ in dtype."""
    trunk = network.trunk
    return (
        isinstance(trunk, SkipTrunk)
        and trunk.norms is None
        and isinstance(trunk.activation, nn.ReLU)
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled(trunk.bias.device.type)
        and not any(parameter.requires_grad for parameter in network.parameters())
        and not is_altered(network)
    )


def in_place_values(network: Network, rows: Tensor, weight: Tensor) -> Tensor:
    """The values [N, R, outputs] of N networks behind `rows @ weight`, the input's part of all layers: `rows` [M, r, I]
    and `weight` [M, I, sum of widths] with M r = N R, biases included. Gradients flow to `rows` alone."""
    trunk, last = network.trunk, network.last
    assert isinstance(trunk, SkipTrunk)
    hidden = [product.get_parameter("weight") for product in trunk.hidden]
    ends = last.get_parameter("weight"), last.get_parameter("bias")
    values: Tensor = _InPlace.apply(rows, weight, trunk.widths, *ends, *hidden)
    return values


class _InPlace(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, weight: Tensor, widths: Sequence[int], last: Tensor, bias: Tensor, *hidden: Tensor
    ) -> Tensor:
        whole = torch.bmm(rows, weight)
        layers = whole.view(len(last), -1, whole.shape[-1]).split(widths, -1)
        layers[0].relu_()
        for before, layer, product in zip(layers, layers[1:], hidden, strict=False):
            layer.baddbmm_(before, product).relu_()
        ctx.widths = widths
        ctx.save_for_backward(whole, weight, last, *hidden)
        return torch.baddbmm(bias, layers[-1], last)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        whole, weight, last, *hidden = ctx.saved_tensors
        found = torch.empty_like(whole)
        layers, gradients = (
            tensor.view(len(last), -1, whole.shape[-1]).split(ctx.widths, -1) for tensor in (whole, found)
        )
        behind = [*hidden, last]
        for number in reversed(range(len(layers))):
            after = gradient if number == len(layers) - 1 else gradients[number + 1]
            torch.bmm(after, behind[number].mT, out=gradients[number])
            _rectified(gradients[number], layers[number])
        return torch.bmm(found, weight.mT), *[None] * (4 + len(hidden))


def _rectified(gradient: Tensor, value: Tensor) -> None:
    """Set the gradient to 0 where a rectifier's value is."""
    torch.ops.aten.threshold_backward.grad_input(gradient, value, 0.0, grad_input=gradient)
