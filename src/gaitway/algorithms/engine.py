"""The seam through which every gradient step runs.

An algorithm hands over its trainable modules and a function `loss(batch) -> (total, statistics)`. The engine owns
what makes a step fast and static: one flat buffer for all parameters and one for all gradients (views per layer), a
fused optimiser whose learning rate is a tensor, and a device vector in which statistics add up until somebody reads it.
Nothing here looks at a tensor's value, so the same step can run eagerly, compiled or captured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from gaitway.algorithms.algorithm import Batch

LossFunction = Callable[[Batch], tuple[Tensor, dict[str, Tensor]]]
BeforeStep = Callable[[dict[str, Tensor], Tensor], None]
"""Called with the statistics and the learning-rate tensor before the parameters move."""


class FlatParameters:
    """All parameters of `module` as views of one tensor, likewise their gradients; names keep `module`'s order."""

    def __init__(self, module: nn.Module) -> None:
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not named:
            raise ValueError("there is nothing to learn: no parameter of the module requires a gradient")
        first = named[0][1]
        if len({(p.dtype, p.device) for _, p in named}) > 1:
            raise ValueError("all parameters must have one dtype and one device; move the module with .to() first")
        self.names = [name for name, _ in named]
        self.shapes = [list(p.shape) for _, p in named]
        size = sum(p.numel() for _, p in named)
        self.value = nn.Parameter(torch.empty(size, dtype=first.dtype, device=first.device))
        self.value.grad = torch.zeros_like(self.value)
        start = 0
        for _, p in named:
            end = start + p.numel()
            with torch.no_grad():
                self.value[start:end].copy_(p.reshape(-1))
                p.data = self.value.data[start:end].view_as(p)
            p.grad = self.value.grad[start:end].view_as(p)
            start = end

    @property
    def gradient(self) -> Tensor:
        gradient = self.value.grad
        assert gradient is not None
        return gradient


class Engine:
    """Runs minibatch steps: zero gradients, forward, backward, clip, optimiser, statistics."""

    def __init__(
        self,
        module: nn.Module,
        loss: LossFunction,
        *,
        learning_rate: float,
        max_grad_norm: float | None,
        optimiser: str = "adam",
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        before_step: BeforeStep | None = None,
    ) -> None:
        self.parameters = FlatParameters(module)
        self.loss = loss
        self.before_step = before_step
        self.max_grad_norm = max_grad_norm
        device = self.parameters.value.device
        self.learning_rate = torch.tensor(learning_rate, dtype=torch.float32, device=device)
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[optimiser]
        self.optimiser = kind(
            [self.parameters.value], lr=self.learning_rate, eps=eps, weight_decay=weight_decay, fused=True
        )
        self.statistics: tuple[str, ...] = ()
        self.totals = torch.zeros(0, device=device)
        self.steps_since_read = 0

    def step(self, batch: Batch) -> None:
        """One gradient step on one minibatch."""
        gradient = self.parameters.gradient
        gradient.zero_()
        total, statistics = self.loss(batch)
        total.backward()
        with torch.no_grad():
            norm = torch.linalg.vector_norm(gradient)
            if self.max_grad_norm is not None:
                gradient.mul_((self.max_grad_norm / (norm + 1e-6)).clamp(max=1.0))
            if self.before_step is not None:
                self.before_step(statistics, self.learning_rate)
            self.optimiser.step()
            self._add(statistics | {"gradient_norm": norm})

    def read(self) -> dict[str, Tensor]:
        """Mean of every statistic since the last call, as tensors."""
        mean = self.totals / max(self.steps_since_read, 1)
        self.totals.zero_()
        self.steps_since_read = 0
        return dict(zip(self.statistics, mean.unbind(), strict=True))

    def set_learning_rate(self, value: float) -> None:
        self.learning_rate.fill_(value)

    def state_dict(self) -> dict[str, Any]:
        state = self.optimiser.state.get(self.parameters.value, {})
        return {
            "names": list(self.parameters.names),
            "shapes": [list(shape) for shape in self.parameters.shapes],
            "learning_rate": self.learning_rate.clone(),
            "optimiser": {name: value.clone() for name, value in state.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The parameters themselves are the module's business; this restores the optimiser and its rate."""
        if (
            list(state["names"]) != self.parameters.names
            or [list(s) for s in state["shapes"]] != self.parameters.shapes
        ):
            raise ValueError(
                "the optimiser state belongs to another network: its parameters are "
                f"{list(state['names'])}, here they are {self.parameters.names}"
            )
        self.learning_rate.copy_(state["learning_rate"])
        self.optimiser.state.clear()
        if state["optimiser"]:
            device = self.parameters.value.device
            moved = {name: value.to(device).clone() for name, value in state["optimiser"].items()}
            self.optimiser.state[self.parameters.value] = moved

    def _add(self, statistics: dict[str, Tensor]) -> None:
        if not self.statistics:
            self.statistics = tuple(statistics)
            self.totals = torch.zeros(len(statistics), device=self.learning_rate.device)
        self.totals += torch.stack([statistics[name].detach().float() for name in self.statistics])
        self.steps_since_read += 1
