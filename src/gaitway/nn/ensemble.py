"""Several networks of one shape as one: their weights are stacked, and a layer is one batched matrix product."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gaitway.nn.trunks import Init, LastInit, Network, SkipTrunk, StackedTrunk, TrunkKind, is_orthogonal, start_last

Module = TypeVar("Module", bound=nn.Module)


class EnsembleLinear(nn.Module):
    """N linear layers: `[N, B, inputs] -> [N, B, outputs]`, with `weight` [N, inputs, outputs] and `bias`
    [N, 1, outputs].

    Starts like `nn.Linear`, uniformly, or with a gain orthogonally and with zero biases; each member for itself.
    """

    def __init__(
        self,
        members: int,
        inputs: int,
        outputs: int,
        generator: torch.Generator | None = None,
        orthogonal_gain: float | None = None,
    ) -> None:
        super().__init__()
        if members < 1:
            raise ValueError(f"members is {members}; an ensemble has at least one")
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(members, 1, outputs))
        with torch.no_grad():
            if orthogonal_gain is not None:
                for member in self.weight:
                    nn.init.orthogonal_(member, orthogonal_gain, generator=generator)
            else:
                bound = 1.0 / math.sqrt(inputs)
                self.weight.uniform_(-bound, bound, generator=generator)
                self.bias.uniform_(-bound, bound, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        if x.is_cpu and self.weight.shape[-1] == 1:  # a batched product of one column is far slower than this
            return (x * self.weight.mT).sum(-1, keepdim=True) + self.bias
        return torch.baddbmm(self.bias, x, self.weight)

    def extra_repr(self) -> str:
        return "members={}, inputs={}, outputs={}".format(*self.weight.shape)


class EnsembleLayerNorm(nn.Module):
    """Layer normalisation of `[N, B, width]` whose scale and shift [N, 1, width] each member learns for itself."""

    def __init__(self, members: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.weight = nn.Parameter(torch.ones(members, 1, width))
        self.bias = nn.Parameter(torch.zeros(members, 1, width))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addcmul(self.bias, F.layer_norm(x, (self.width,)), self.weight)


class EnsembleLayers:
    """Makes the layers of `members` networks, drawn from `generator` (None: the global one)."""

    def __init__(self, members: int, init: Init = "default", generator: torch.Generator | None = None) -> None:
        self.members, self.is_orthogonal, self.generator = members, is_orthogonal(init), generator

    def linear(self, inputs: int, outputs: int, gain: float) -> nn.Module:
        return EnsembleLinear(self.members, inputs, outputs, self.generator, gain if self.is_orthogonal else None)

    def norm(self, width: int) -> nn.Module:
        return EnsembleLayerNorm(self.members, width)


class Ensemble(nn.Module):
    """N networks: `[B, inputs]`, which all of them read, -> `[N, B, outputs]`.

    Trunks are those of `nn.trunks`. Members differ by their start alone; no number of one depends on another. How last
    layers start (`last_init`) is said for all or for each.

    `published_scale` (for all or for each) starts layers after the first smaller by 1 / sqrt(2), as those of the double
    critic of Gehring et al. 2021 do: two networks in the blocks of one matrix, whose bound counts the inputs of both.
    """

    def __init__(
        self,
        members: int,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        *,
        trunk: TrunkKind = "mlp",
        activation: str = "relu",
        layer_norm: bool = False,
        init: Init = "default",
        last_gain: float = 1.0,
        last_init: LastInit | Sequence[LastInit] = "default",
        published_scale: bool | Sequence[bool] = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.members = members
        scaled = list(published_scale) if isinstance(published_scale, Sequence) else [published_scale] * members
        if len(scaled) != members:
            raise ValueError(
                f"published_scale has {len(scaled)} entries for {members} networks; give one for all or one for each"
            )
        if any(scaled) and (is_orthogonal(init) or trunk == "residual"):
            raise ValueError(
                f"published_scale is for uniform starts of mlp and d2rl, here trunk is {trunk!r} and init {init!r}; "
                "leave it out"
            )
        self.network = Network(
            inputs,
            hidden,
            outputs,
            layers=EnsembleLayers(members, init, generator),
            trunk=trunk,
            activation=activation,
            layer_norm=layer_norm,
            last_gain=last_gain,
        )
        if any(scaled) and hidden:
            _shrink_later_layers(self.network, [member for member, is_scaled in enumerate(scaled) if is_scaled])
        start_last(self.network.last, last_init, generator)

    def forward(self, x: Tensor, more: Tensor | None = None) -> Tensor:
        """`more` [B, E] are the last columns of the input, where they come apart, e.g. actions."""
        joined = x if more is None else torch.cat((x, more), -1)
        return self.network(joined.expand(self.members, *joined.shape))


@torch.no_grad()
def _shrink_later_layers(network: Network, members: list[int]) -> None:
    """Scale weights and biases of all layers but the first by 1 / sqrt(2) in these members."""
    trunk = network.trunk
    later: list[Tensor] = list(network.last.parameters())
    if isinstance(trunk, SkipTrunk):
        first = trunk.widths[0]
        later += [trunk.input.weight[..., first:], trunk.bias[..., first:], *trunk.hidden.parameters()]
    elif isinstance(trunk, StackedTrunk):
        later += list(trunk.linears[1:].parameters())
    for part in later:
        part[members] *= math.sqrt(0.5)


class ModuleEnsemble(nn.Module):
    """The interface of `Ensemble` for networks of any kind, which run one after the other."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.members = len(networks)

    def forward(self, x: Tensor, more: Tensor | None = None) -> Tensor:
        joined = x if more is None else torch.cat((x, more), -1)
        return torch.stack([network(joined) for network in self.networks])


def constant_twin(module: Module) -> Module:
    """The same module with the same memory, but nothing in it is learnt: gradients flow through it, not into it.

    Whatever changes the parameters of `module` in place changes the twin. Make it after they have found their place
    (`.to()`, flat buffers).
    """
    twin = copy.deepcopy(module)
    for own, shared in zip(_tensors(twin), _tensors(module), strict=True):
        own.requires_grad_(False)
        own.data = shared.data
    return twin


def _tensors(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]
