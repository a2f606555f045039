"""Blocks that look: convolutions over a picture or a signal, then a multilayer perceptron."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor

from gaitway.agents.blocks import Block
from gaitway.agents.features import Shapes
from gaitway.core.config import did_you_mean
from gaitway.core.ranges import Count, WholeNumber
from gaitway.nn.conv import Conv
from gaitway.nn.mlp import MLP


class ConvEncoder(Block):
    """Convolutions over one feature, then a multilayer perceptron of `hidden` and `size`.

    A picture stays as it is stored up to here: bytes are divided by 255 in the block, other numbers are taken as they
    are. A vector is given the `shape` that it stands for, such as (1, 11, 17) for a height map.
    """

    axes: ClassVar[int]
    """Of the places: 1 or 2."""

    def __init__(
        self,
        shapes: Shapes,
        reads: tuple[str, ...],
        writes: str,
        size: Count = 32,
        channels: tuple[Count, ...] = (16, 32),
        kernels: tuple[Count, ...] = (3,),
        strides: tuple[Count, ...] = (2,),
        paddings: tuple[WholeNumber, ...] = (1,),
        dilations: tuple[Count, ...] = (1,),
        hidden: tuple[Count, ...] = (64,),
        activation: str = "elu",
        norm: Literal["none", "layer"] = "none",
        max_pool: bool = False,
        pool: Literal["none", "max", "mean"] = "none",
        padding_mode: Literal["zeros", "reflect", "replicate", "circular"] = "zeros",
        shape: tuple[Count, ...] = (),
        channels_last: bool = False,
        detach: bool | Literal["critic"] = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(reads, writes, size, detach)
        if len(self.reads) != 1:
            raise ValueError(f"reads is {list(self.reads)}; convolutions read one feature, so write a block for each")
        self.shape, self.channels_last = self._read_shape(shapes, shape), channels_last
        ordered = (self.shape[-1], *self.shape[:-1]) if channels_last else self.shape
        self.convolutions = Conv(
            ordered, channels, kernels, strides, paddings, dilations, activation, norm, max_pool, pool, padding_mode,
            generator,
        )  # fmt: skip
        self.network = MLP(self.convolutions.outputs, hidden, size, activation, generator=generator)

    def forward(self, *features: Tensor) -> Tensor:
        (seen,) = features
        x = seen.float() / 255.0 if seen.dtype is torch.uint8 else seen.float()
        x = x.reshape(*x.shape[: x.ndim - self._axes_read], *self.shape)
        return self.network(self.convolutions(x.movedim(-1, -1 - self.axes) if self.channels_last else x))

    def _read_shape(self, shapes: Shapes, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that convolutions see, with an axis of channels; `shape` is what the user says of a vector."""
        (name,) = self.reads
        if name not in shapes:
            raise ValueError(f"no feature {name!r}{did_you_mean(name, shapes)}; there are {sorted(shapes)}")
        found = shapes[name]
        self._axes_read = len(found)
        if shape and math.prod(shape) != math.prod(found):
            raise ValueError(f"shape is {list(shape)}, {math.prod(shape)} numbers, but {name!r} has {list(found)}")
        found = tuple(shape or found)
        if len(found) == self.axes:
            found = (1, *found)
        if len(found) != self.axes + 1:
            places = "[channels, length]" if self.axes == 1 else "[channels, height, width]"
            raise ValueError(f"{name!r} is {list(found)}; this block reads {places}, so say which by `shape`")
        return found


class Conv1dEncoder(ConvEncoder):
    """Convolutions along one axis: the steps of a history, the rays of a lidar."""

    axes = 1


class Conv2dEncoder(ConvEncoder):
    """Convolutions over a picture, a depth image or a height map."""

    axes = 2
