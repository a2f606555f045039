"""The loss of an estimator: what it says of a step beside what the critic's groups know of the same step.

    L = mean over rows of the sum over features of loss(estimate, target), both in units of the target's running std

Every row counts, whoever acted. On-policy algorithms add one such term for each estimator of their policy; a term that
a configuration lists for the same estimator takes its place.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gaitway.agents.policy import Policy
from gaitway.algorithms.algorithm import Batch, Coefficient, DeviceNow, LossTerm
from gaitway.core.config import did_you_mean
from gaitway.core.workspace import Workspace
from gaitway.functional.policy_losses import weighted_mean


class Estimation:
    """Trains the estimator that writes `estimate/<of>`.

    `loss` is a function of `torch.nn.functional` that gives a number for each number, such as mse_loss, l1_loss or
    smooth_l1_loss; `loss_options` are further arguments of it, such as {beta: 0.1}.
    """

    def __init__(
        self,
        policy: Policy,
        of: str,
        loss: str = "mse_loss",
        loss_options: Mapping[str, Any] | None = None,
        coef: Coefficient = 1.0,
    ) -> None:
        known = getattr(policy, "estimators", {})
        self.name, self.coef = f"estimate/{of}", coef
        if self.name not in known:
            names = [name.removeprefix("estimate/") for name in known]
            raise ValueError(f"of is {of!r}{did_you_mean(of, names)}; agent.blocks has the estimators {names}")
        self.estimator = known[self.name]
        self.loss, self.options = elementwise_loss(loss, dict(loss_options or {})), dict(loss_options or {})
        self._groups = tuple(dict.fromkeys(columns.feature for columns in self.estimator.targets))
        self._target, self._estimate = f"{self.name}/target", f"new/{self.name}"
        self.reads = (*(f"env/obs/{name}" for name in self._groups), self._estimate)

    def prepare(self, ws: Workspace) -> Batch:
        """The targets of all rows, in units of their running standard deviation."""
        raw = self.estimator.target_of({name: ws[f"env/obs/{name}"][: ws.T] for name in self._groups})
        return {self._target: self.estimator.scale(raw)}

    def __call__(self, batch: Batch, now: DeviceNow) -> tuple[Tensor, dict[str, Tensor]]:
        estimate, target, weight = batch[self._estimate], batch[self._target], batch.get("weight")
        error = self.loss(estimate, target, reduction="none", **self.options).sum(-1)
        return weighted_mean(error, weight), {f"{self.name}/r2": _explained(estimate.detach(), target, weight)}


def estimation_terms(policy: Any) -> list[LossTerm]:
    """The squared error of each estimator of a policy."""
    names = [name.removeprefix("estimate/") for name in getattr(policy, "estimators", {})]
    return [Estimation(policy, name) for name in names]


def elementwise_loss(name: str, options: Mapping[str, Any]) -> Any:
    """The function of `torch.nn.functional` called `name`; refuses one that gives no number for each number."""
    found: Any = getattr(F, name, None)
    try:
        takes = inspect.signature(found).parameters if callable(found) else {}
        example = torch.full((2, 3), 0.5)
        fits = "reduction" in takes and found(example, example, reduction="none", **options).shape == (2, 3)
    except (TypeError, ValueError, RuntimeError, AttributeError):
        fits = False
    if not fits:
        losses = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits")
        said = f" with {dict(options)}" if options else ""
        raise ValueError(
            f"loss is {name!r}{said}{did_you_mean(name, losses)}; use an elementwise loss of torch.nn.functional, such "
            f"as {', '.join(losses)}"
        )
    return found


def _explained(estimate: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """R^2: 1 - squared error / variance, both summed over features; 1 is perfect, 0 what the mean would give."""
    rows = target.flatten(0, -2)
    flat = None if weight is None else weight.flatten()
    centred = rows - (rows.mean(0) if flat is None else (rows * flat[:, None]).sum(0) / flat.sum().clamp(min=1.0))
    error = weighted_mean((estimate.flatten(0, -2) - rows).square().sum(-1), flat)
    return 1.0 - error / weighted_mean(centred.square().sum(-1), flat).clamp(min=1e-12)
