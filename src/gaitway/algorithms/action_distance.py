"""A loss that keeps a policy near the actions of a frozen one: fine-tuning that forgets less, imitation beside reward.

With the frozen policy's deterministic action a' at the observations of the rollout, and h half the action's range:

    continuous    mean | (mean action - a') / h |^2
    discrete      - mean log pi(a'|s)
"""

from __future__ import annotations

import torch
from torch import Tensor

from gaitway.agents.policy import Policy
from gaitway.algorithms.algorithm import Batch, Coefficient, DeviceNow
from gaitway.algorithms.terms import policy_weight
from gaitway.core.workspace import Workspace
from gaitway.functional.policy_losses import weighted_mean

TARGET = "action_distance/target"


class ActionDistance:
    """Distance to the actions of `frozen`, in a configuration the folder of its run; asked once per rollout."""

    name = "action_distance"

    def __init__(self, frozen: Policy, policy: Policy, coef: Coefficient = 1.0) -> None:
        action = policy.spec.action
        if frozen.spec.action != action:
            raise ValueError(
                f"the frozen policy acts by {list(frozen.spec.action.names)}, this one by {list(action.names)} or "
                "within other limits; name a run of the same robot"
            )
        if frozen.memories:
            raise ValueError("the frozen policy remembers, which a loss cannot let it do; name a run without memory")
        self.coef, self.frozen, self.policy = coef, frozen, policy
        self.reads = tuple(f"env/obs/{name}" for name in frozen.actor_groups)
        device = next(policy.parameters()).device
        half = (
            (torch.tensor(action.high) - torch.tensor(action.low)) / 2 if action.kind == "continuous" else torch.ones(1)
        )
        self.scale = torch.where(half.isfinite(), half, 1.0).to(device)

    def prepare(self, ws: Workspace) -> Batch:
        obs = {name: ws[f"env/obs/{name}"][: ws.T].flatten(0, 1) for name in self.frozen.actor_groups}
        action, _ = self.frozen.act(obs, None, stochastic=False)
        return {TARGET: action.unflatten(0, (ws.T, -1))}

    def __call__(self, batch: Batch, now: DeviceNow) -> tuple[Tensor, dict[str, Tensor]]:
        target = batch[TARGET]
        if target.is_floating_point():
            distance = ((batch["new/mean"] - target) / self.scale).square().sum(-1)
        else:
            head = self.policy.head  # type: ignore[attr-defined]
            distance = -head.log_prob(batch["new/params"], head.raw(target))
        return weighted_mean(distance, policy_weight(batch)), {}
