"""Hidden layers of a network in three shapes: plain, with the input fed to every layer, or residual.

A trunk is written once for single networks and for ensembles: what differs is the `Layers` it is built of, which make
linear layers and normalisations. All trunks work on the last axis, `[..., inputs] -> [..., outputs]`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, Protocol, get_args

import torch
from torch import Tensor, nn

from gaitway.nn.mlp import activation as make_activation
from gaitway.nn.mlp import linear

TrunkKind = Literal["mlp", "d2rl", "residual"]
Init = Literal["default", "orthogonal"]
LastInit = Literal["default", "zero", "small", "small_bias"]
"""How the last layer starts: like any other; at zero, so that the network answers 0; with weights within +- 0.003, so
that it answers about what its bias says; with weights and bias within it."""

HIDDEN_GAIN = math.sqrt(2.0)  # of orthogonal starts: a rectifier passes half of the variance
SMALL = 0.003  # bound of small starts (Lillicrap et al. 2016)
EXPANSION = 4  # how much wider a residual block is inside (SimBa)


class Layers(Protocol):
    """Makes the parts of a trunk, drawn from `generator` (None: the global one)."""

    generator: torch.Generator | None

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
    """Linear layers, each followed by its normalisation (with `layer_norm`) and the activation."""

    def __init__(
        self, inputs: int, hidden: Sequence[int], layers: Layers, activation: str, layer_norm: bool = False
    ) -> None:
        super().__init__()
        sizes = [inputs, *hidden]
        self.linears = nn.ModuleList(
            layers.linear(size, width, HIDDEN_GAIN) for size, width in zip(sizes, hidden, strict=False)
        )
        self.norms = nn.ModuleList(layers.norm(width) for width in hidden) if layer_norm else None
        self.activation = in_place(make_activation(activation))
        self.outputs = sizes[-1]

    def forward(self, x: Tensor) -> Tensor:
        h = x
        for index, layer in enumerate(self.linears):
            h = layer(h)
            if self.norms is not None:
                h = self.norms[index](h)
            h = self.activation(h)
        return h


class Product(nn.Module):
    """`(added, x) -> added + x W` with `weight` [inputs, outputs], or [N, inputs, outputs] for N networks at once."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone(memory_format=torch.contiguous_format))

    def forward(self, added: Tensor, x: Tensor) -> Tensor:
        if x.ndim != self.weight.ndim:  # one network on inputs with further leading axes
            return added + x @ self.weight
        return (torch.baddbmm if x.ndim == 3 else torch.addmm)(added, x, self.weight)

    def extra_repr(self) -> str:
        return f"weight={list(self.weight.shape)}"


class SkipTrunk(nn.Module):
    """Layers that after the first one read the hidden values and the input side by side, so that the input is not lost
    on the way through a deep network (Sinha et al. 2020, "D2RL: Deep dense architectures in reinforcement learning").

    The input is the same for all layers, so its part of all of them is one product, `x W + b` [..., sum of widths];
    layer i takes its columns of it and adds its own product of the hidden values. The result is that of layers on
    `[hidden, input]`, and so is the start: each layer is drawn whole.
    """

    def __init__(
        self, inputs: int, hidden: Sequence[int], layers: Layers, activation: str, layer_norm: bool = False
    ) -> None:
        super().__init__()
        sizes = [inputs, *(width + inputs for width in hidden[:-1])]
        whole = [layers.linear(size, width, HIDDEN_GAIN) for size, width in zip(sizes, hidden, strict=True)]
        weight, between = _split_weights([layer.get_parameter("weight") for layer in whole])
        self.input = Product(weight)
        self.bias = nn.Parameter(torch.cat([layer.get_parameter("bias").detach() for layer in whole], -1))
        self.hidden = nn.ModuleList(Product(part) for part in between)
        self.norms = nn.ModuleList(layers.norm(width) for width in hidden) if layer_norm else None
        self.activation = make_activation(activation)  # not in place: it would overwrite a part of the one product
        self.widths, self.outputs = list(hidden), hidden[-1]

    def forward(self, x: Tensor) -> Tensor:
        return self.behind_input(self.input(self.bias, x))

    def behind_input(self, of_input: Tensor) -> Tensor:
        """What follows from the input's part of all layers, [..., sum of widths]."""
        h, *parts = of_input.split(self.widths, -1)
        h = self._activated(h, 0)
        for index, (product, part) in enumerate(zip(self.hidden, parts, strict=True), start=1):
            h = self._activated(product(part, h), index)
        return h

    def _activated(self, h: Tensor, layer: int) -> Tensor:
        return self.activation(h if self.norms is None else self.norms[layer](h))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        """Reads also the layout of whole layers on `[hidden, input]`: `linears.<i>.weight` and `linears.<i>.bias`."""
        names = [f"{prefix}linears.{index}" for index in range(len(self.widths))]
        if all(f"{name}.{kind}" in state_dict for name in names for kind in ("weight", "bias")):
            weights = [state_dict.pop(f"{name}.weight") for name in names]
            biases = [state_dict.pop(f"{name}.bias") for name in names]
            state_dict[f"{prefix}input.weight"], between = _split_weights(weights)
            state_dict[f"{prefix}bias"] = torch.cat(biases, -1)
            state_dict |= {f"{prefix}hidden.{index}.weight": part for index, part in enumerate(between)}
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def _split_weights(weights: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Of the weights of whole layers, the input's part of all of them [..., inputs, sum of widths], and the hidden
    values' part of each but the first [..., width, width]."""
    first, *rest = [weight.mT if weight.ndim == 2 else weight for weight in weights]  # nn.Linear keeps outputs first
    inputs = first.shape[-2]
    whole_input = torch.cat([first, *(weight[..., -inputs:, :] for weight in rest)], -1)
    return whole_input, [weight[..., :-inputs, :] for weight in rest]


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
) -> StackedTrunk | SkipTrunk | ResidualTrunk:
    """The trunk called `kind`. `layer_norm` puts a normalisation behind each linear layer of `mlp` and `d2rl`; the
    blocks of `residual` have theirs always."""
    for size in (inputs, *hidden):
        if size < 1:
            raise ValueError(f"inputs is {inputs} and hidden {tuple(hidden)}; sizes are at least 1")
    if kind == "residual":
        return ResidualTrunk(inputs, hidden, layers, activation)
    if kind not in ("mlp", "d2rl"):
        raise ValueError(f"no trunk {kind!r}; known: mlp, d2rl, residual")
    if kind == "d2rl" and hidden:
        return SkipTrunk(inputs, hidden, layers, activation, layer_norm)
    return StackedTrunk(inputs, hidden, layers, activation, layer_norm)


class Network(nn.Module):
    """A trunk and a linear layer: `[..., inputs] -> [..., outputs]`.

    `last_init` is how the last layer starts; of several networks at once, one for all or one for each.
    """

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
        last_init: LastInit | Sequence[LastInit] = "default",
    ) -> None:
        super().__init__()
        layers = layers or SingleLayers()
        self.trunk = make_trunk(trunk, inputs, hidden, layers, activation, layer_norm)
        self.last = layers.linear(self.trunk.outputs, outputs, last_gain)
        start_last(self.last, last_init, layers.generator)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.trunk(x))

    def sequence(self) -> list[nn.Module] | None:
        """Linear layers and activations in turn, if that is all the network consists of."""
        if type(self.trunk) is not StackedTrunk or self.trunk.norms is not None:
            return None
        layers = [layer for linear in self.trunk.linears for layer in (linear, self.trunk.activation)]
        return [*layers, self.last]


@torch.no_grad()
def start_last(
    layer: nn.Module, last_init: LastInit | Sequence[LastInit], generator: torch.Generator | None = None
) -> None:
    """Start the linear layer of one network, or of several ([N, inputs, outputs]), anew as `last_init` says."""
    weight, bias = layer.get_parameter("weight"), layer.get_parameter("bias")
    members = list(zip(weight, bias, strict=True)) if bias.ndim == 3 else [(weight, bias)]
    kinds = [last_init] * len(members) if isinstance(last_init, str) else list(last_init)
    if len(kinds) != len(members):
        raise ValueError(
            f"last_init has {len(kinds)} entries for {len(members)} networks; give one for all or one each"
        )
    for kind in kinds:
        if kind not in get_args(LastInit):
            raise ValueError(f"last_init is {kind!r}; use one of {', '.join(get_args(LastInit))}")
    for kind, (own_weight, own_bias) in zip(kinds, members, strict=True):
        if kind == "zero":
            own_weight.zero_(), own_bias.zero_()
        if kind in ("small", "small_bias"):
            own_weight.uniform_(-SMALL, SMALL, generator=generator)
        if kind == "small_bias":
            own_bias.uniform_(-SMALL, SMALL, generator=generator)


def is_orthogonal(init: str) -> bool:
    if init not in ("default", "orthogonal"):
        raise ValueError(f"init is {init!r}; use 'default' or 'orthogonal'")
    return init == "orthogonal"


def in_place(activation: nn.Module) -> nn.Module:
    """A rectifier needs only its result for the gradient, so it may overwrite what a linear layer has just made."""
    if isinstance(activation, nn.ReLU):
        activation.inplace = True
    return activation
