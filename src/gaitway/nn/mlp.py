"""Fully connected networks and the names of activations."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from gaitway.nn.dense import Tanh

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "elu": nn.ELU,
    "selu": nn.SELU,
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "tanh": Tanh,
    "sigmoid": nn.Sigmoid,
    "softplus": nn.Softplus,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "swish": nn.SiLU,
    "mish": nn.Mish,
    "identity": nn.Identity,
}


def activation(name: str) -> nn.Module:
    """A fresh instance of the activation called `name`, in any case of letters."""
    make = ACTIVATIONS.get(name.lower())
    if make is None:
        nearest = difflib.get_close_matches(name.lower(), ACTIVATIONS, n=1)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise ValueError(f"no activation {name!r}; {hint}known: {', '.join(ACTIVATIONS)}")
    return make()


def linear(
    inputs: int, outputs: int, generator: torch.Generator | None = None, orthogonal_gain: float | None = None
) -> nn.Linear:
    """`nn.Linear` whose start is drawn from `generator` (None: the global one).

    PyTorch's usual uniform start, or with a gain orthogonal weights and zero biases.
    """
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs)
    with torch.no_grad():
        if orthogonal_gain is not None:
            nn.init.orthogonal_(layer.weight, orthogonal_gain, generator=generator)
            layer.bias.zero_()
        else:
            bound = 1.0 / math.sqrt(inputs)
            layer.weight.uniform_(-bound, bound, generator=generator)
            layer.bias.uniform_(-bound, bound, generator=generator)
    return layer


class MLP(nn.Module):
    """Linear layers with an activation between them: `[..., inputs] -> [..., outputs]`, any leading shape.

    `hidden` lists widths (an integer for one layer, None for none); -1 means as wide as the input. With
    `outputs=None` the result is the last hidden layer *after* its activation; with no hidden layers it is a linear
    map, and with neither the input itself. `init="orthogonal"` starts hidden layers with gain sqrt(2), the last linear
    map with `last_gain`, and all biases at 0; "default" leaves PyTorch's uniform start.
    """

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int] | int | None,
        outputs: int | None = None,
        activation: str = "elu",
        last_activation: str | None = None,
        init: str = "default",
        last_gain: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        widths = _widths(inputs, hidden, outputs)
        if init not in ("default", "orthogonal"):
            raise ValueError(f"init is {init!r}; use 'default' or 'orthogonal'")
        if last_activation is not None and outputs is None:
            raise ValueError("last_activation needs outputs; without them the last hidden layer has `activation`")
        orthogonal = init == "orthogonal"
        sizes = [inputs, *widths]
        layers: list[nn.Module] = []
        for size, width in zip(sizes, widths, strict=False):
            layers += [linear(size, width, generator, math.sqrt(2.0) if orthogonal else None), _activation(activation)]
        if outputs is not None:
            layers.append(linear(sizes[-1], outputs, generator, last_gain if orthogonal else None))
            if last_activation is not None:
                layers.append(_activation(last_activation))
        self.layers = nn.Sequential(*layers)
        self.inputs = inputs
        self._outputs = sizes[-1] if outputs is None else outputs

    @property
    def outputs(self) -> int:
        """Size of the last axis of the result."""
        return self._outputs

    @property
    def last(self) -> nn.Linear:
        """The last layer, of a network that ends without activation."""
        layer = self.layers[-1]
        if not isinstance(layer, nn.Linear):
            raise TypeError(
                f"the network ends with {type(layer).__name__}; only one without last_activation has a `last`"
            )
        return layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


_activation = activation  # the constructor's argument of the same name hides the function


def _widths(inputs: int, hidden: Sequence[int] | int | None, outputs: int | None) -> list[int]:
    """Hidden widths with -1 resolved; refuses sizes that no layer can have."""
    listed = [] if hidden is None else [hidden] if isinstance(hidden, int) else list(hidden)
    widths = [inputs if width == -1 else width for width in listed]
    for name, size in [("inputs", inputs), *(("hidden", width) for width in widths), ("outputs", outputs)]:
        if size is not None and size < 1:
            raise ValueError(f"{name} has a size of {size}; sizes are at least 1 (-1 in hidden: as wide as the input)")
    return widths
