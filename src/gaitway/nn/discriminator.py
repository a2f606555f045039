"""A network that gives one score per row, and the gradient of that score by the row, written out.

The gradient is itself a chain of matrix products, so a penalty on it needs no second pass of autograd through the first
one: it costs as much as another forward pass, and can be compiled and recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from gaitway.nn.mlp import linear

Activation = Literal["relu", "leaky_relu", "elu", "tanh"]
_FORWARD: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "leaky_relu": nn.functional.leaky_relu,
    "elu": nn.functional.elu,
    "tanh": torch.tanh,
}
_SLOPE: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda h: (h > 0).to(h.dtype),
    "leaky_relu": lambda h: torch.where(h > 0, 1.0, 0.01),
    "elu": lambda h: torch.where(h > 0, 1.0, h + 1.0),
    "tanh": lambda h: 1.0 - h.square(),
}
"""The derivative of each activation, as a function of what it gave."""


class Discriminator(nn.Module):
    """`[..., inputs] -> [...]`: hidden layers with an activation, then one number without."""

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int] = (1024, 512),
        activation: Activation = "relu",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if activation not in _SLOPE:
            raise ValueError(f"activation is {activation!r}; a discriminator takes one of {', '.join(_SLOPE)}")
        sizes = [inputs, *hidden]
        self.activation = activation
        self.trunk = nn.ModuleList(linear(size, width, generator) for size, width in pairwise(sizes))
        self.head = linear(sizes[-1], 1, generator)

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(x)[0]

    def scores(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Scores [...] and what each hidden layer gave, for `gradient`."""
        act, hidden = _FORWARD[self.activation], []
        for layer in self.trunk:
            x = act(layer(x))
            hidden.append(x)
        return self.head(x).squeeze(-1), hidden

    def gradient(self, hidden: Sequence[Tensor]) -> Tensor:
        """The gradient of the score by the input, [..., inputs], of rows whose hidden layers gave `hidden`."""
        slope, found = _SLOPE[self.activation], self.head.weight[0]
        if not hidden:
            return found
        for layer, given in zip(reversed(self.trunk), reversed(hidden), strict=True):
            found = (found * slope(given)) @ layer.weight  # type: ignore[operator]
        return found

    def decay(self, trunk: float, head: float) -> Tensor:
        """Half the squared weights of trunk and head, weighed: the loss that weight decay is the gradient of."""
        total = 0.5 * head * self.head.weight.square().sum()
        for layer in self.trunk:
            total = total + 0.5 * trunk * layer.weight.square().sum()  # type: ignore[operator]
        return total
