"""Ensembles of critics on the CPU: forward and backward pass without autograd, in preallocated memory.

`EnsembleStack` does for an `Ensemble` what `DenseStack` does for one network: N critics, one value each. The backward
pass computes either the gradients of the parameters or those of the actions, never both, and every matrix product has
the layout that is fastest for its shape. The reference implementation is `Ensemble` under autograd.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gaitway.nn.altered import is_altered
from gaitway.nn.dense import ACTIVATIONS, Activation
from gaitway.nn.ensemble import Ensemble, EnsembleLinear
from gaitway.nn.trunks import Network


class EnsembleStack:
    """N networks with one output: `forward` [B, D] and [B, E] -> [N, B], then `backward` or `backward_actions`.

    The stack holds views of the parameters and of their `.grad`; make a new stack when these tensors were replaced.
    `like` is a stack of the same shape, for example that of the target network, whose memory this one shares: a
    `forward` of either overwrites the hidden layers of both. Float32 on the CPU only; use `EnsembleStack.of`, which
    checks.
    """

    def __init__(self, linears: list[EnsembleLinear], activation: Activation, like: EnsembleStack | None) -> None:
        self.activation = activation
        self.weights = [linear.weight.detach() for linear in linears]
        self.biases = [linear.bias.detach() for linear in linears]
        self.gradients = [(_gradient(linear.weight), _gradient(linear.bias)) for linear in linears]
        self._last_row, self._last_bias = self.weights[-1].mT, self.biases[-1]
        self._memory: _Memory = _Memory(self.weights) if like is None else like._memory

    @classmethod
    def of(cls, ensemble: Ensemble, like: EnsembleStack | None = None) -> EnsembleStack | None:
        """The stack that computes what `ensemble` does, or None if its layers, device or dtype are not supported."""
        if type(ensemble.network) is not Network or is_altered(ensemble):
            return None
        layers = ensemble.network.sequence()
        if layers is None or len(layers) < 3 or any(type(layer) is not EnsembleLinear for layer in layers[::2]):
            return None
        linears = [layer for layer in layers if isinstance(layer, EnsembleLinear)]
        activation = ACTIVATIONS.get(type(layers[1]))
        first = linears[0].weight
        if activation is None or not first.is_cpu or first.dtype is not torch.float32:
            return None
        return cls(linears, activation, like) if linears[-1].weight.shape[-1] == 1 else None

    def forward(self, x: Tensor, more: Tensor) -> Tensor:
        """Values [N, B] of the input `x` | `more`, observations [B, D] and actions [B, E] concatenated."""
        memory = self._memory
        memory.fit(len(x))
        torch.cat((x, more), -1, out=memory.inputs)
        h = memory.shared
        for weight, bias, y in zip(self.weights, self.biases, memory.values, strict=False):
            torch.baddbmm(bias, h, weight, out=y)
            self.activation.forward(y)
            h = y
        # the output layer has one unit: a product with a row is many times faster than one with a column
        return torch.baddbmm(self._last_bias, self._last_row, h.mT).squeeze(1)

    def backward(self, gradient: Tensor) -> None:
        """Overwrite `.grad` of weights and biases, given the gradient with respect to the values [N, B]."""
        memory, values = self._memory, self._memory.values
        by_weight, by_bias = self.gradients[-1]
        torch.bmm(gradient.unsqueeze(1), values[-1], out=by_weight.mT)
        torch.sum(gradient.unsqueeze(-1), 1, keepdim=True, out=by_bias)
        slope = torch.mul(gradient.unsqueeze(-1), self._last_row, out=memory.slopes[-1])
        for layer in range(len(values) - 1, -1, -1):
            self.activation.backward(slope, values[layer])
            by_weight, by_bias = self.gradients[layer]
            torch.bmm((values[layer - 1] if layer else memory.shared).mT, slope, out=by_weight)
            torch.sum(slope, 1, keepdim=True, out=by_bias)
            if layer:
                slope = torch.bmm(slope, self.weights[layer].mT, out=memory.slopes[layer - 1])

    def backward_actions(self, gradient: Tensor, columns: int) -> Tensor:
        """The gradient with respect to the last `columns` of the input (the actions), [columns, B], given that with
        respect to the values [N, B]. Gradients of the parameters are not computed.

        With more than two members each member is differentiated only in the rows where its gradient is not zero: if
        the loss takes the minimum over the critics, that is one row in N.
        """
        memory = self._memory
        if len(gradient) <= 2:
            slope = torch.mul(gradient.unsqueeze(-1), self._last_row, out=memory.slopes[-1])
            for layer in range(len(memory.values) - 1, -1, -1):
                self.activation.backward(slope, memory.values[layer])
                if layer:
                    slope = torch.bmm(slope, self.weights[layer].mT, out=memory.slopes[layer - 1])
            return torch.bmm(self.weights[0][:, -columns:], slope.mT).sum(0)
        found = torch.zeros(columns, len(memory.inputs))
        for member, part in enumerate(gradient):
            rows = part.nonzero().squeeze(-1)
            count = len(rows)
            if count == 0:
                continue
            slope = memory.slopes[-1][member, :count]
            torch.mul(part[rows, None], self._last_row[member], out=slope)
            for layer in range(len(memory.values) - 1, -1, -1):
                value = torch.index_select(memory.values[layer][member], 0, rows, out=memory.chosen[layer][:count])
                self.activation.backward(slope, value)
                if layer:
                    slope = torch.mm(
                        slope, self.weights[layer][member].t(), out=memory.slopes[layer - 1][member, :count]
                    )
            found.index_add_(1, rows, torch.mm(self.weights[0][member, -columns:], slope.t()))
        return found


class _Memory:
    """Inputs, hidden activations and their gradients for one batch; `chosen` holds selected rows of one member."""

    def __init__(self, weights: list[Tensor]) -> None:
        self._members, self._inputs = weights[0].shape[:2]
        self._widths = [weight.shape[-1] for weight in weights[:-1]]
        self.inputs = torch.empty(0)

    def fit(self, rows: int) -> None:
        if len(self.inputs) == rows:
            return
        with torch.inference_mode(False):  # tensors made in inference mode cannot be written outside it
            self.inputs = torch.empty(rows, self._inputs)
            self.shared = self.inputs.expand(self._members, rows, self._inputs)
            self.values = [torch.empty(self._members, rows, width) for width in self._widths]
            self.slopes = [torch.empty(self._members, rows, width) for width in self._widths]
            self.chosen = [torch.empty(rows, width) for width in self._widths]


def _gradient(parameter: Tensor) -> Tensor:
    """The `.grad` that `backward` overwrites; empty for a network without gradients, such as a target network."""
    return torch.empty(0) if parameter.grad is None else parameter.grad
