"""Adam for flat tensors: PyTorch's fused kernel without the forty Python calls around it.

On the CPU those calls take as long as the kernel does for a hundred thousand parameters. State, options and numbers are
those of `torch.optim.Adam` with `fused=True`.

`EntryAdam` is for a short vector of which a batch concerns some entries alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class FlatAdam(torch.optim.Adam):
    """`torch.optim.Adam` for parameters whose gradients are there and stay in their place.

    They are pieces of one thing: one count of steps serves all. `decoupled_weight_decay=True` makes it AdamW.
    """

    def __init__(self, parameters: Sequence[Tensor], **options: Any) -> None:
        super().__init__(list(parameters), **options, fused=True)
        if any(parameter.grad is None for parameter in parameters):
            raise ValueError("a parameter has no gradient; give the optimiser only what is learnt, gradients allocated")
        count = torch.zeros((), device=parameters[0].device)
        for parameter in parameters:
            moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
            self.state[parameter] = {"step": count} | moments
        self._collected: list[list[Tensor]] = []

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        (group,) = self.param_groups
        if not self._is_current(group["params"]):
            self._collect(group["params"])
        parameters, gradients, means, squares, counts = self._collected
        counts[0].add_(1)
        kernel = torch._fused_adamw_ if group["decoupled_weight_decay"] else torch._fused_adam_
        kernel(
            parameters, gradients, means, squares, [], counts,
            lr=group["lr"], beta1=group["betas"][0], beta2=group["betas"][1], weight_decay=group["weight_decay"],
            eps=group["eps"], amsgrad=False, maximize=False, grad_scale=None, found_inf=None,
        )  # fmt: skip

    step.hooked = True  # type: ignore[attr-defined]  # or PyTorch wraps it for its profiler, which is half of the cost

    def _is_current(self, parameters: list[Tensor]) -> bool:
        """Whether what was collected is still the optimiser's state: loading may put other tensors there."""
        return bool(self._collected) and self.state[parameters[0]]["exp_avg"] is self._collected[2][0]

    def _collect(self, parameters: list[Tensor]) -> None:
        count = self.state[parameters[0]]["step"]
        for parameter in parameters:  # loading makes a count for each
            self.state[parameter]["step"] = count
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        means, squares = ([self.state[p][name] for p in parameters] for name in ("exp_avg", "exp_avg_sq"))
        detached = [parameter.detach() for parameter in parameters]
        self._collected = [detached, gradients, means, squares, [count] * len(detached)]


class EntryAdam(torch.optim.Adam):
    """Adam that moves only the entries whose gradient is not 0: each has its own count of steps, and neither it nor its
    moments change while nothing concerns it. Every step is the same few operations, so it can be recorded."""

    def __init__(self, parameters: Sequence[Tensor], lr: Tensor, eps: float = 1e-8) -> None:
        super().__init__(list(parameters), lr=lr, eps=eps, foreach=False)
        for parameter in parameters:
            self.state[parameter] = {
                name: torch.zeros_like(parameter, requires_grad=False) for name in ("steps", "exp_avg", "exp_avg_sq")
            }

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        (group,) = self.param_groups
        (first, second), rate, eps = group["betas"], group["lr"], group["eps"]
        for parameter in group["params"]:
            state, gradient = self.state[parameter], parameter.grad
            met = gradient != 0
            state["steps"].add_(met)
            mean, square = state["exp_avg"], state["exp_avg_sq"]
            mean.copy_(torch.where(met, mean.lerp(gradient, 1.0 - first), mean))
            square.copy_(torch.where(met, square * second + gradient * gradient * (1.0 - second), square))
            count = state["steps"].clamp(min=1.0)
            step = (mean / (1.0 - first**count)) / ((square / (1.0 - second**count)).sqrt() + eps)
            parameter.sub_(rate * step * met)

    step.hooked = True  # type: ignore[attr-defined]
