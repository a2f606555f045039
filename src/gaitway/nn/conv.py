"""Convolutions over signals and pictures, with sizes that are computed and not tried out.

[..., C, L] or [..., C, H, W] -> (convolution -> norm -> activation -> max pool)* -> flattened [..., F]
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gaitway.nn.mlp import activation as make_activation

NORMS = ("none", "layer")
POOLS = ("none", "max", "mean")


def conv_output_size(size: int, kernel: int, stride: int = 1, padding: int = 0, dilation: int = 1) -> int:
    """How many places a kernel takes along an axis: floor((size + 2 padding - dilation (kernel - 1) - 1) / stride) + 1,
    0 where it does not fit."""
    return max(0, (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1)


class Conv(nn.Module):
    """Convolutions over `shape`, `(C, L)` or `(C, H, W)`, one for each entry of `channels`; the result is flat.

    `kernels`, `strides`, `paddings` and `dilations` hold a number per layer, or one for all. With `max_pool` the
    convolutions move by 1 and a max pool of the stride's size follows wherever the stride is above 1. `norm="layer"`
    standardises each layer's output over channels and places; there is no batch norm, because a policy that saw other
    numbers while playing than while learning is another policy. `pool` takes the greatest or the mean value of each
    channel over all places at the end. Weights are drawn from `generator` (None: the global one) as torch draws them.
    """

    def __init__(
        self,
        shape: Sequence[int],
        channels: Sequence[int],
        kernels: Sequence[int] = (3,),
        strides: Sequence[int] = (1,),
        paddings: Sequence[int] = (0,),
        dilations: Sequence[int] = (1,),
        activation: str = "elu",
        norm: str = "none",
        max_pool: bool = False,
        pool: str = "none",
        padding_mode: str = "zeros",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.shape = tuple(shape)
        if len(self.shape) not in (2, 3) or min(self.shape) < 1:
            raise ValueError(f"the shape is {self.shape}; convolutions read (channels, length) or (channels, h, w)")
        if norm not in NORMS or pool not in POOLS:
            raise ValueError(f"norm is {norm!r} and pool {pool!r}; use one of {NORMS} and one of {POOLS}")
        layers: list[nn.Module] = []
        self.shapes = [self.shape]
        """The shape before the first layer and behind each of them."""
        options = zip(
            channels,
            *(_per_layer(name, values, len(channels)) for name, values in
              (("kernels", kernels), ("strides", strides), ("paddings", paddings), ("dilations", dilations))),
            strict=True,
        )  # fmt: skip
        for number, (width, kernel, stride, padding, dilation) in enumerate(options):
            inputs, *space = self.shapes[-1]
            step = 1 if max_pool else stride
            layers.append(self._convolution(inputs, width, kernel, step, padding, dilation, padding_mode, generator))
            if norm == "layer":
                layers.append(nn.GroupNorm(1, width))
            layers.append(make_activation(activation))
            space = [conv_output_size(size, kernel, step, padding, dilation) for size in space]
            if max_pool and stride > 1:
                layers.append((nn.MaxPool1d if len(space) == 1 else nn.MaxPool2d)(stride))
                space = [conv_output_size(size, stride, stride) for size in space]
            if min(space) < 1:
                raise ValueError(
                    f"layer {number} does not fit: a kernel of {kernel} (dilation {dilation}, stride {stride}, padding "
                    f"{padding}) over {self.shapes[-1]}, which is (channels, places...); use smaller kernels or "
                    "strides, more padding, or channels_last if the channels are the last axis"
                )
            self.shapes.append((width, *space))
        self.layers = nn.Sequential(*layers)
        self.pool = pool

    @property
    def outputs(self) -> int:
        """Size of the last axis of the result."""
        return self.shapes[-1][0] if self.pool != "none" else math.prod(self.shapes[-1])

    def forward(self, x: Tensor) -> Tensor:
        """`[..., *shape]` -> `[..., outputs]`."""
        leading = x.shape[: x.ndim - len(self.shape)]
        y = self.layers(x.reshape(-1, *self.shape)).flatten(2)
        if self.pool != "none":
            y = y.amax(-1) if self.pool == "max" else y.mean(-1)
        return y.reshape(*leading, self.outputs)

    def _convolution(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        stride: int,
        padding: int,
        dilation: int,
        mode: str,
        generator: torch.Generator | None,
    ) -> nn.Module:
        make = nn.Conv1d if len(self.shape) == 2 else nn.Conv2d
        layer = nn.utils.skip_init(
            make, inputs, outputs, kernel, stride=stride, padding=padding, dilation=dilation, padding_mode=mode
        )
        bound = 1.0 / math.sqrt(inputs * kernel ** (len(self.shape) - 1))
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.uniform_(-bound, bound, generator=generator)
        return layer


def _per_layer(name: str, values: Sequence[int], layers: int) -> Sequence[int]:
    """A number for each layer; one stands for all."""
    if len(values) == 1:
        return list(values) * layers
    if len(values) != layers:
        raise ValueError(f"{name} has {len(values)} numbers for {layers} layers; give one for each, or one for all")
    return values
