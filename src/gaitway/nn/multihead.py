"""Layers for many tasks at once: groups, bilinear layers, several heads, and ways to feed a task to a network.

They are the parts of the networks of Gehring et al. 2021, "Hierarchical skills for efficient exploration"; whole
networks by name are in `nn.presets`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gaitway.nn.mlp import activation as make_activation
from gaitway.nn.trunks import LastInit, start_last


class GroupedLinear(nn.Module):
    """A linear layer in `groups` blocks that know nothing of each other: `[..., inputs] -> [..., outputs]`.

    Group g maps its share of the inputs to its share of the outputs by `weight[g]` [inputs / groups, outputs / groups].
    Each starts like a linear layer of its own; with `published_scale` smaller by 1 / sqrt(groups), like a block of one
    masked matrix, whose bound counts the inputs of all groups.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        groups: int,
        published_scale: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if groups < 1 or inputs < 1 or outputs < 1 or inputs % groups or outputs % groups:
            raise ValueError(
                f"{inputs} inputs and {outputs} outputs do not divide into {groups} groups; use multiples of the groups"
            )
        self.weight = nn.Parameter(torch.empty(groups, inputs // groups, outputs // groups))
        self.bias = nn.Parameter(torch.empty(outputs))
        bound = 1.0 / math.sqrt(inputs if published_scale else inputs // groups)
        with torch.no_grad():
            self.weight.uniform_(-bound, bound, generator=generator)
            self.bias.uniform_(-bound, bound, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        grouped = x.unflatten(-1, self.weight.shape[:2])
        return torch.einsum("...gi,gio->...go", grouped, self.weight).flatten(-2) + self.bias

    def extra_repr(self) -> str:
        return "groups={}, inputs={}, outputs={} each".format(*self.weight.shape)


class Bilinear(nn.Module):
    """`y_i = sum_jk x_j W_ijk c_k + b_i`: a linear layer of `x` [..., J] whose weights are linear in the condition `c`
    [..., K]. Starts uniformly within 1 / sqrt(J), like `nn.Bilinear`."""

    def __init__(self, inputs: int, condition: int, outputs: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, condition))
        self.bias = nn.Parameter(torch.empty(outputs))
        bound = 1.0 / math.sqrt(inputs)
        with torch.no_grad():
            self.weight.uniform_(-bound, bound, generator=generator)
            self.bias.uniform_(-bound, bound, generator=generator)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        products = x.unsqueeze(-1) * condition.unsqueeze(-2)  # [..., J, K]: the rest is one matrix product
        return F.linear(products.flatten(-2), self.weight.flatten(1), self.bias)

    def extra_repr(self) -> str:
        outputs, inputs, condition = self.weight.shape
        return f"inputs={inputs}, condition={condition}, outputs={outputs}"


class BilinearNetwork(nn.Module):
    """A D2RL network of bilinear layers: `(x [..., inputs], condition [..., K]) -> [..., outputs]`.

    Layers after the first read `[hidden, x]`, the last one the hidden values alone. The condition is divided by its
    Euclidean norm; where that is zero it stays zero, and the network answers the bias of its last layer.
    """

    def __init__(
        self,
        inputs: int,
        condition: int,
        hidden: Sequence[int],
        outputs: int,
        last_init: LastInit = "default",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        sizes = [inputs, *(width + inputs for width in hidden[:-1])]
        self.layers = nn.ModuleList(
            Bilinear(size, condition, width, generator) for size, width in zip(sizes, hidden, strict=True)
        )
        self.last = Bilinear(hidden[-1], condition, outputs, generator)
        start_last(self.last, last_init, generator)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        direction = F.normalize(condition, dim=-1)
        first, *rest = self.layers
        h = torch.relu(first(x, direction))
        for layer in rest:
            h = torch.relu(layer(torch.cat((h, x), -1), direction))
        return self.last(h, direction)


class SkillEmbedding(nn.Module):
    """Replaces the last `n_skills` columns, a one-hot skill, by `n_embed` numbers: a linear map without bias and an
    activation. `[..., D] -> [..., D - n_skills + n_embed]`."""

    def __init__(
        self, n_skills: int, n_embed: int, activation: str = "tanh", generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        if n_skills < 1 or n_embed < 1:
            raise ValueError(f"n_skills is {n_skills} and n_embed {n_embed}; both are at least 1")
        self.linear: nn.Linear = nn.utils.skip_init(nn.Linear, n_skills, n_embed, bias=False)
        self.activation = make_activation("identity" if activation == "none" else activation)
        self.n_skills = n_skills
        bound = 1.0 / math.sqrt(n_skills)
        with torch.no_grad():
            self.linear.weight.uniform_(-bound, bound, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        rest, skill = x[..., : -self.n_skills], x[..., -self.n_skills :]
        return torch.cat((rest, self.activation(self.linear(skill))), -1)


def gaussian_heads(
    outputs: Tensor, log_std_range: tuple[float, float], heads: int | None = None
) -> tuple[Tensor, Tensor]:
    """Means and standard deviations of Gaussians, from means `[..., n]` and logarithms of deviations `[..., n]` side by
    side. With `heads` they are several Gaussians, one after the other: `[..., heads, n / heads]`."""
    mean, log_std = outputs.chunk(2, -1)
    std = log_std.clamp(*log_std_range).exp()
    return (mean, std) if heads is None else (mean.unflatten(-1, (heads, -1)), std.unflatten(-1, (heads, -1)))


def split_task_input(inputs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """All entries but `task` side by side in their order, and `task`."""
    return torch.cat([value for name, value in inputs.items() if name != "task"], -1), inputs["task"]


def expand_task_subgoal(task: Tensor, subgoal: Tensor) -> Tensor:
    """`vec(task outer subgoal)`, [..., D] and [..., G] -> [..., D * G]: G numbers for each task; if `task` is one-hot,
    those of the active one are the subgoal and all others 0."""
    return (task.unsqueeze(-1) * subgoal.unsqueeze(-2)).flatten(-2)
