"""Gradient descent and RMSprop for flat tensors, with the numbers of PyTorch's: state is there from the start and stays
in its place, so that a step can be recorded and a checkpoint restored into it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class FlatSGD(torch.optim.SGD):
    """`torch.optim.SGD` with a tensor as learning rate."""

    def __init__(
        self, parameters: Sequence[Tensor], lr: Tensor, momentum: float = 0.0, weight_decay: float = 0.0
    ) -> None:
        super().__init__(list(parameters), lr=lr, momentum=momentum, weight_decay=weight_decay, foreach=False)
        for parameter in parameters:
            self.state[parameter] = {"momentum_buffer": torch.zeros_like(parameter, requires_grad=False)}

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        (group,) = self.param_groups
        for parameter in group["params"]:
            direction = _decayed(parameter, group["weight_decay"])
            if group["momentum"]:
                direction = self.state[parameter]["momentum_buffer"].mul_(group["momentum"]).add_(direction)
            parameter.sub_(direction * group["lr"])

    step.hooked = True  # type: ignore[attr-defined]


class FlatRMSprop(torch.optim.RMSprop):
    """`torch.optim.RMSprop` with a tensor as learning rate."""

    def __init__(
        self,
        parameters: Sequence[Tensor],
        lr: Tensor,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        # the rate is set behind PyTorch's back: it takes tensors as rates of RMSprop on a GPU alone
        super().__init__(list(parameters), lr=0.0, alpha=alpha, eps=eps, weight_decay=weight_decay, foreach=False)
        self.param_groups[0]["lr"] = lr
        for parameter in parameters:
            self.state[parameter] = {"square_avg": torch.zeros_like(parameter, requires_grad=False)}

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        (group,) = self.param_groups
        for parameter in group["params"]:
            gradient = _decayed(parameter, group["weight_decay"])
            square = self.state[parameter]["square_avg"]
            square.mul_(group["alpha"]).addcmul_(gradient, gradient, value=1.0 - group["alpha"])
            parameter.sub_(gradient / square.sqrt().add_(group["eps"]) * group["lr"])

    step.hooked = True  # type: ignore[attr-defined]


def _decayed(parameter: Tensor, weight_decay: float) -> Tensor:
    """The gradient of a parameter, with that of its decay."""
    gradient = parameter.grad
    assert gradient is not None
    return gradient.add(parameter, alpha=weight_decay) if weight_decay else gradient
