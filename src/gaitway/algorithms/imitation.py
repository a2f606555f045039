"""Losses that bring a policy near another one: to the actions of a teacher, to its latents, to a frozen run.

With the mean action m of the policy that learns and the label y, both in units of half the action's range:

    l2  |m - y|     squared  |m - y|^2     l1  sum |m - y|     huber     tanh, scaled_tanh: see functional/imitation.py
    log_prob  - log pi(y|s)                kl  KL(teacher || policy)

Labels are what the cast's teacher (`agents/teacher.py`) wrote in the rollout, or what a frozen run says of all of it at
once. All rows are learnt from, whoever acted in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from gaitway.agents.policy import Policy
from gaitway.agents.teacher import same_distribution
from gaitway.algorithms.algorithm import Batch, Coefficient, DeviceNow
from gaitway.core.config import did_you_mean
from gaitway.core.workspace import Workspace
from gaitway.functional.imitation import DISTANCES, WITHIN_LIMITS
from gaitway.functional.policy_losses import weighted_mean

FORMS = (*DISTANCES, "log_prob", "kl")
Form = Literal["l2", "squared", "l1", "huber", "tanh", "scaled_tanh", "log_prob", "kl"]
TARGET = "action_distance/target"


class ActionForm:
    """One of the forms above as a function of a minibatch over which the policy has run, and of labels.

    `form` None is `squared`, or `log_prob` where actions are choices, which know no distance.
    """

    def __init__(self, policy: Any, form: str | None) -> None:
        action = policy.spec.action
        self.is_choice, self.is_several = action.kind != "continuous", bool(action.shape)
        self.form = form or ("log_prob" if self.is_choice else "squared")
        if self.form not in FORMS:
            raise ValueError(
                f"there is no form {form!r}{did_you_mean(str(form), FORMS)}; use one of {', '.join(FORMS)}"
            )
        if self.is_choice and self.form in DISTANCES:
            raise ValueError(f"the form {form!r} measures distances, which choices have none of; use log_prob or kl")
        self.head, self.names = policy.head, action.names
        if self.form in WITHIN_LIMITS and not _stays_within(policy.head):
            raise ValueError(
                f"the form {form!r} needs mean actions within the limits; set agent.distribution.kind to "
                "squashed_gaussian or beta, or use another form"
            )
        device = next(policy.parameters()).device
        low, high = (torch.tensor(limit or (0.0,)) for limit in (action.low, action.high))
        bounded = low.isfinite() & high.isfinite() & (not self.is_choice)
        self.centre = torch.where(bounded, (low + high) / 2, 0.0).to(device)
        self.half_range = torch.where(bounded, (high - low) / 2, 1.0).to(device)

    @property
    def reads_params(self) -> bool:
        """Whether labels are parameters of the teacher's distribution instead of actions."""
        return self.form == "kl"

    def __call__(self, batch: Batch, label: Tensor) -> Tensor:
        """The distance of each sample, `[...]`."""
        if self.form == "kl":
            return self.head.kl(label, batch["new/params"])
        if self.form == "log_prob":
            return -self.head.log_prob(batch["new/params"], self.head.raw(label))
        mean = batch["new/mean"]
        if self.form in WITHIN_LIMITS:
            mean, label = mean - self.centre, label - self.centre
        return DISTANCES[self.form](mean / self.half_range, label / self.half_range)


class Imitation:
    """Distance to the actions of the teacher in the cast."""

    name = "imitation"

    def __init__(self, policy: Policy, form: Form | None = None, coef: Coefficient = 1.0) -> None:
        self.coef, self.form = coef, ActionForm(policy, form)
        self.reads: tuple[str, ...] = ("teacher/action", *(("teacher/params",) if self.form.reads_params else ()))

    def __call__(self, batch: Batch, now: DeviceNow) -> tuple[Tensor, dict[str, Tensor]]:
        weight = batch.get("weight")
        distance = self.form(batch, batch[self.reads[-1]])
        return weighted_mean(distance, weight), self._errors(batch, weight)

    @torch.no_grad()
    def _errors(self, batch: Batch, weight: Tensor | None) -> dict[str, Tensor]:
        """The mean error of each action in its own unit, or how often the same is chosen."""
        mean, label = batch["new/mean"], batch["teacher/action"]
        if self.form.is_choice:
            same = (mean == label).float()
            return {"imitation/agreement": weighted_mean(same.mean(-1) if self.form.is_several else same, weight)}
        error = (mean - label).abs()
        found = {
            f"imitation/error/{name}": weighted_mean(error[..., i], weight) for i, name in enumerate(self.form.names)
        }
        if self.form.form in WITHIN_LIMITS:
            form, limit = self.form, 1.0 - 1e-6
            inner = [((x - form.centre) / form.half_range).clamp(-limit, limit).atanh() for x in (mean, label)]
            found["imitation/error_before_tanh"] = weighted_mean((inner[0] - inner[1]).abs().sum(-1), weight)
        return found


class ActionDistance:
    """Distance to the actions of `frozen`, in a configuration the folder of its run; asked once per rollout."""

    name = "action_distance"

    def __init__(self, frozen: Policy, policy: Policy, coef: Coefficient = 1.0, form: Form | None = None) -> None:
        action = policy.spec.action
        if frozen.spec.action != action:
            raise ValueError(
                f"the frozen policy acts by {list(frozen.spec.action.names)}, this one by {list(action.names)} or "
                "within other limits; name a run of the same robot"
            )
        if frozen.memories:
            raise ValueError(
                "the frozen policy remembers, which a loss cannot let it do; name a run without memory, or let it be a "
                "teacher in the cast"
            )
        self.coef, self.frozen, self.form = coef, frozen, ActionForm(policy, form)
        if self.form.reads_params and not same_distribution(frozen, policy):
            raise ValueError(
                f"the frozen policy has no distribution of the kind {type(self.form.head).__name__} over the same "
                "actions, which the form kl compares; set agent.distribution.kind as it is there, or use another form"
            )
        self.reads = tuple(f"env/obs/{name}" for name in frozen.actor_groups)

    def prepare(self, ws: Workspace) -> Batch:
        obs = {name: ws[f"env/obs/{name}"][: ws.T].flatten(0, 1) for name in self.frozen.actor_groups}
        if self.form.reads_params:
            label = self.frozen.answer(obs, None).params  # type: ignore[attr-defined]
        else:
            label, _ = self.frozen.act(obs, None, stochastic=False)
        return {TARGET: label.unflatten(0, (ws.T, -1))}

    def __call__(self, batch: Batch, now: DeviceNow) -> tuple[Tensor, dict[str, Tensor]]:
        return weighted_mean(self.form(batch, batch[TARGET]), batch.get("weight")), {}


class LatentImitation:
    """Distance of latents, features that blocks write, to those of the teacher in the cast: `latents: {mine: its}`."""

    name = "latent_imitation"

    def __init__(
        self,
        policy: Policy,
        latents: Mapping[str, str],
        form: Literal["l2", "squared", "l1", "huber", "tanh", "scaled_tanh"] = "l2",
        coef: Coefficient = 1.0,
    ) -> None:
        if not latents:
            raise ValueError("latents is empty; write {feature of this policy: feature of the teacher}")
        if form not in DISTANCES:
            raise ValueError(f"there is no form {form!r} of latents; use one of {', '.join(DISTANCES)}")
        self.coef, self.distance, self.pairs = coef, DISTANCES[form], dict(latents)
        self.reads = tuple(
            name for mine, its in self.pairs.items() for name in (f"new/{mine}", f"teacher/latent/{its}")
        )

    def __call__(self, batch: Batch, now: DeviceNow) -> tuple[Tensor, dict[str, Tensor]]:
        found = {}
        for mine, its in self.pairs.items():
            student, teacher = batch[f"new/{mine}"], batch[f"teacher/latent/{its}"]
            if student.shape != teacher.shape:
                raise ValueError(
                    f"the latent {mine!r} has {student.shape[-1]} numbers and {its!r} of the teacher has "
                    f"{teacher.shape[-1]}; give the block that writes it the teacher's size"
                )
            found[f"loss/latent/{mine}"] = weighted_mean(self.distance(student, teacher), batch.get("weight"))
        return torch.stack(list(found.values())).sum(), {name: loss.detach() for name, loss in found.items()}


def _stays_within(head: Any) -> bool:
    """Whether mean actions never leave the limits."""
    return not head.raw_is_action or getattr(head, "mean_activation", None) == "tanh"
