"""Small fully connected networks on the CPU, where starting an operation costs more than its arithmetic.

`Tanh` is the activation with NumPy's hyperbolic tangent, which uses the processor's wide vector units: six times as
fast as PyTorch's and as exact (an error below 1e-7). `DenseStack` computes the forward and the backward pass of a
multilayer perceptron without autograd, in preallocated memory: for rollouts, and for losses with hand-written
gradients. The reference implementation is the `nn.Sequential` itself under autograd.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gaitway.nn.altered import is_altered

_aten = torch.ops.aten


class Tanh(nn.Tanh):
    """`nn.Tanh`, faster for float32 on the CPU."""

    def forward(self, x: Tensor) -> Tensor:
        if x.__class__ is not Tensor or not x.is_cpu or x.dtype is not torch.float32 or _is_transformed():
            return torch.tanh(x)
        return _FastTanh.apply(x) if x.requires_grad and torch.is_grad_enabled() else _fast_tanh(x)


def _fast_tanh(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    np.tanh(x.numpy(), out=y.numpy())
    return y


class _FastTanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = _fast_tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _aten.tanh_backward(gradients[0], *ctx.saved_tensors)


def _is_transformed() -> bool:
    """Whether torch.compile, torch.jit or torch.func traces this call: NumPy is invisible to them."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing() or torch._C._are_functorch_transforms_active()


class Activation(NamedTuple):
    """An elementwise function whose derivative can be computed from its output; both directions work in place."""

    forward: Callable[[Tensor], object]
    backward: Callable[[Tensor, Tensor], object]
    """(gradient, output): turns the gradient with respect to the output into that with respect to the input."""


def _tanh(x: Tensor) -> None:
    array = x.numpy()
    np.tanh(array, out=array)


_TANH = Activation(_tanh, lambda g, y: _aten.tanh_backward.grad_input(g, y, grad_input=g))
ACTIVATIONS: dict[type[nn.Module], Activation] = {
    Tanh: _TANH,
    nn.Tanh: _TANH,
    nn.ReLU: Activation(torch.relu_, lambda g, y: _aten.threshold_backward.grad_input(g, y, 0, grad_input=g)),
    nn.ELU: Activation(F.elu_, lambda g, y: _aten.elu_backward.grad_input(g, 1, 1, 1, True, y, grad_input=g)),
}


class DenseStack:
    """Linear layers with activations between them: `forward` [N, inputs] -> [N, outputs], then `backward`.

    The stack holds views of the layers' parameters and of their `.grad`; make a new stack when these tensors were
    replaced. The output of `forward` is reused by the next call; clone it to keep it. Float32 on the CPU only; use
    `DenseStack.of`, which checks.
    """

    def __init__(self, linears: list[nn.Linear], activations: list[Activation | None]) -> None:
        self.activations = activations
        self.weights = [linear.weight.detach() for linear in linears]
        self.biases = [linear.bias.detach() for linear in linears]
        self.gradients = [(linear.weight.grad, linear.bias.grad) for linear in linears]
        self._transposed = [weight.t() for weight in self.weights]
        self._values: list[Tensor] = []
        self._slopes: list[Tensor] = []
        self._x = torch.empty(0)

    @classmethod
    def of(cls, layers: nn.Sequential) -> DenseStack | None:
        """The stack that computes what `layers` do, or None if a layer, its device or its dtype is not supported."""
        linears: list[nn.Linear] = []
        activations: list[Activation | None] = []
        if type(layers) is not nn.Sequential or is_altered(layers):
            return None  # a hook must see its layer run
        for layer in layers:
            if type(layer) is nn.Linear and layer.bias is not None:
                if not layer.weight.is_cpu or layer.weight.dtype is not torch.float32:
                    return None
                linears.append(layer)
                activations.append(None)
            elif type(layer) in ACTIVATIONS and activations and activations[-1] is None:
                if getattr(layer, "alpha", 1.0) != 1.0:
                    return None  # ACTIVATIONS has the derivative for alpha 1
                activations[-1] = ACTIVATIONS[type(layer)]
            else:
                return None
        return cls(linears, activations) if linears else None

    def forward(self, x: Tensor) -> Tensor:
        if not self._values or len(self._values[0]) != len(x):
            self._allocate(len(x))
        self._x = x
        for bias, weight, activation, y in zip(
            self.biases, self._transposed, self.activations, self._values, strict=True
        ):
            torch.addmm(bias, x, weight, out=y)
            if activation is not None:
                activation.forward(y)
            x = y
        return x

    def backward(self, gradient: Tensor, inputs: bool = False) -> Tensor | None:
        """Overwrite the layers' `.grad`, given the gradient by the output `[N, outputs]`, which is overwritten too.

        With `inputs` the gradient by the input `[N, inputs]` is returned.
        """
        for layer in range(len(self.weights) - 1, -1, -1):
            activation, (by_weight, by_bias) = self.activations[layer], self.gradients[layer]
            if activation is not None:
                activation.backward(gradient, self._values[layer])
            torch.mm(gradient.t(), self._values[layer - 1] if layer else self._x, out=by_weight)
            torch.sum(gradient, 0, out=by_bias)
            if layer:
                gradient = torch.mm(gradient, self.weights[layer], out=self._slopes[layer - 1])
        return gradient @ self.weights[0] if inputs else None

    def _allocate(self, rows: int) -> None:
        with torch.inference_mode(False):  # tensors made in inference mode cannot be written outside it
            self._values = [torch.empty(rows, len(bias)) for bias in self.biases]
            self._slopes = [torch.empty(rows, len(bias)) for bias in self.biases[:-1]]
