"""Hidden layers of a network in three shapes: plain, with the input fed to every layer, or residual.

A trunk is written once for single networks and for ensembles: what differs is the `Layers` it is built of, which make
linear layers and normalisations. All trunks work on the last axis, `[..., inputs] -> [..., outputs]`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from gaitway.nn.mlp import activation as make_activation
from gaitway.nn.mlp import linear

TrunkKind = Literal["mlp", "d2rl", "residual"]
Init = Literal["default", "orthogonal"]

HIDDEN_GAIN = math.sqrt(2.0)  # of orthogonal starts: a rectifier passes half of the variance
EXPANSION = 4  # how much wider a residual block is inside (SimBa)


class Layers(Protocol):
    """Makes the parts of a trunk."""

    def linear(self, inputs: int, outputs: int, gain: float) -> nn.Module:
        """`[..., inputs] -> [..., outputs]`; `gain` is that of orthogonal starts."""
        ...

    def norm(self, width: int) -> nn.Module:
        """Layer normalisation with a learnt scale and shift."""
        ...


class SingleLayers:
    """Layers of one network, drawn from `generator` (None: the global one)."""

    def __init__(self, init: Init = "default", generator: torch.Generator | None = None) -> None:
        self.is_orthogonal, self.generator = is_orthogonal(init), generator

    def linear(self, inputs: int, outputs: int, gain: float) -> nn.Module:
        return linear(inputs, outputs, self.generator, gain if self.is_orthogonal else None)

    def norm(self, width: int) -> nn.Module:
        return nn.LayerNorm(width)


class StackedTrunk(nn.Module):
    """Linear layers, each followed by its normalisation (with `layer_norm`) and the activation.

    With `skip` every layer after the first reads the hidden values and the input side by side, so that the input is not
    lost on the way through a deep network (Sinha et al. 2020, "D2RL: Deep dense architectures in reinforcement
    learning").
    """

    def __init__(
        self, inputs: int, hidden: Sequence[int], layers: Layers, activation: str, layer_norm: bool, skip: bool
    ) -> None:
        super().__init__()
        sizes = [inputs, *hidden]
        extra = [inputs if skip and index else 0 for index in range(len(hidden))]
        self.linears = nn.ModuleList(
            layers.linear(size + more, width, HIDDEN_GAIN)
            for size, more, width in zip(sizes, extra, hidden, strict=False)
        )
        self.norms = nn.ModuleList(layers.norm(width) for width in hidden) if layer_norm else None
        self.activation = in_place(make_activation(activation))
        self.skip, self.outputs = skip, sizes[-1]

    def forward(self, x: Tensor) -> Tensor:
        h = x
        for index, layer in enumerate(self.linears):
            h = layer(torch.cat((h, x), -1) if self.skip and index else h)
            if self.norms is not None:
                h = self.norms[index](h)
            h = self.activation(h)
        return h


class ResidualTrunk(nn.Module):
    """A linear embedding, one block per entry of `hidden`, a normalisation: pre-normalised residual blocks.

    Each block adds `linear(activation(linear(norm(h))))`, four times wider inside (Lee et al. 2024, "SimBa: Simplicity
    bias for scaling up parameters in deep reinforcement learning"). All entries of `hidden` are the one width.
    """

    def __init__(self, inputs: int, hidden: Sequence[int], layers: Layers, activation: str) -> None:
        super().__init__()
        if not hidden or len(set(hidden)) > 1:
            raise ValueError(
                f"hidden is {tuple(hidden)}; a residual trunk needs one equal width per block, such as (256, 256)"
            )
        width = hidden[0]
        self.embedding = layers.linear(inputs, width, 1.0)
        self.norms = nn.ModuleList(layers.norm(width) for _ in hidden)
        self.widen = nn.ModuleList(layers.linear(width, EXPANSION * width, HIDDEN_GAIN) for _ in hidden)
        self.narrow = nn.ModuleList(layers.linear(EXPANSION * width, width, 1.0) for _ in hidden)
        self.last_norm = layers.norm(width)
        self.activation = in_place(make_activation(activation))
        self.outputs = width

    def forward(self, x: Tensor) -> Tensor:
        h = self.embedding(x)
        for norm, widen, narrow in zip(self.norms, self.widen, self.narrow, strict=True):
            h = h + narrow(self.activation(widen(norm(h))))
        return self.last_norm(h)


def make_trunk(
    kind: TrunkKind,
    inputs: int,
    hidden: Sequence[int],
    layers: Layers,
    activation: str = "relu",
    layer_norm: bool = False,
) -> StackedTrunk | ResidualTrunk:
    """The trunk called `kind`. `layer_norm` puts a normalisation behind each linear layer of `mlp` and `d2rl`; the
    blocks of `residual` have theirs always."""
    for size in (inputs, *hidden):
        if size < 1:
            raise ValueError(f"inputs is {inputs} and hidden {tuple(hidden)}; sizes are at least 1")
    if kind == "residual":
        return ResidualTrunk(inputs, hidden, layers, activation)
    if kind not in ("mlp", "d2rl"):
        raise ValueError(f"no trunk {kind!r}; known: mlp, d2rl, residual")
    return StackedTrunk(inputs, hidden, layers, activation, layer_norm, skip=kind == "d2rl")


class Network(nn.Module):
    """A trunk and a linear layer: `[..., inputs] -> [..., outputs]`."""

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        *,
        layers: Layers | None = None,
        trunk: TrunkKind = "mlp",
        activation: str = "relu",
        layer_norm: bool = False,
        last_gain: float = 1.0,
    ) -> None:
        super().__init__()
        layers = layers or SingleLayers()
        self.trunk = make_trunk(trunk, inputs, hidden, layers, activation, layer_norm)
        self.last = layers.linear(self.trunk.outputs, outputs, last_gain)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.trunk(x))

    def sequence(self) -> list[nn.Module] | None:
        """Linear layers and activations in turn, if that is all the network consists of."""
        if type(self.trunk) is not StackedTrunk or self.trunk.skip or self.trunk.norms is not None:
            return None
        layers = [layer for linear in self.trunk.linears for layer in (linear, self.trunk.activation)]
        return [*layers, self.last]


def is_orthogonal(init: str) -> bool:
    if init not in ("default", "orthogonal"):
        raise ValueError(f"init is {init!r}; use 'default' or 'orthogonal'")
    return init == "orthogonal"


def in_place(activation: nn.Module) -> nn.Module:
    """A rectifier needs only its result for the gradient, so it may overwrite what a linear layer has just made."""
    if isinstance(activation, nn.ReLU):
        activation.inplace = True
    return activation
