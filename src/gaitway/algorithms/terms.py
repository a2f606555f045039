"""The losses on-policy algorithms are made of. A variant of PPO is another list of these, not a subclass.

Fields a term may read from a minibatch: `log_prob`, `params`, `raw`, `advantage`, `return`, `value` (as they were in
the rollout), `obs/<group>` (as networks read them), any workspace variable or `new/*` it declares in `reads`, what its
own `prepare` adds, and what the policy says now: `new/log_prob`, `new/params`, `new/entropy`, `new/mean`, `new/value`,
`new/output` (the head's input) and `new/<name>` of every block. `weight` is there where some rows do not count, and
`weight/policy` where the policy did not act in all of them: losses of the policy heed `policy_weight`, others `weight`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gaitway.algorithms.algorithm import Batch, Coefficient, DeviceNow, LossTerm, Now, Schedule, value_at
from gaitway.core.config import did_you_mean
from gaitway.core.ranges import Positive
from gaitway.core.ranks import here
from gaitway.core.workspace import Workspace
from gaitway.envs.spec import ActionSpec
from gaitway.functional.policy_losses import clipped_surrogate, standardise, value_error, weighted_mean

Transform = Callable[[Batch, DeviceNow], Batch]
"""Changes a minibatch before the policy runs over it."""
Mean = Callable[[Tensor, Tensor | None], Tensor]
"""(a number per sample, weights or None) -> its mean."""
SCORES = ("params", "log_prob", "entropy", "mean")
"""What an algorithm adds, as `new/*`, to the outputs of the policy."""


class Terms:
    """A list of terms as one loss: the policy runs once per minibatch, then every term is asked and weighed.

    A term may have `prepare(ws)`, fields [T, B, ...] that it makes once of the rollout variables it reads, in place of
    these, before minibatches are cut; and `transform(batch, now)`, which changes a minibatch before the policy runs.
    """

    def __init__(
        self,
        terms: Sequence[LossTerm],
        policy: Any,
        device: torch.device,
        transforms: Sequence[Transform] = (),
        critic: bool = True,
    ) -> None:
        """`critic` False leaves the policy's value out."""
        self.policy, self.terms, self.critic = policy, list(terms), critic
        _check_names(self.terms)
        _check_noise(self.terms, policy)
        self._check_outputs()
        read = [(term, name) for term in self.terms for name in term.reads if not name.startswith("new/")]
        self.reads = tuple(dict.fromkeys(name for _, name in read))
        """Variables of the workspace that the terms read."""
        self._cut = tuple(dict.fromkeys(name for term, name in read if not hasattr(term, "prepare")))
        self.mirror = next((term for term in self.terms if hasattr(term, "doubled")), None)
        """The term that has the policy run over mirror images too, if there is one."""
        self.transforms = [*transforms, *(term.transform for term in self.terms if hasattr(term, "transform"))]
        self.now = DeviceNow(device)
        self.coefficients = torch.zeros(len(self.terms), device=device)
        self.weights: list[float] = []
        """The coefficients as numbers."""

    @property
    def constants(self) -> tuple[Coefficient, ...]:
        """What a recording of the loss holds by value."""
        return tuple(term.coef for term in self.terms)

    def begin(self, now: Now) -> None:
        """Bring coefficients to where training stands."""
        self.now.set(now)
        self.weights = [value_at(term.coef, now) for term in self.terms]
        for coefficient, weight in zip(self.coefficients, self.weights, strict=True):
            coefficient.fill_(weight)

    def fields(self, ws: Workspace) -> Batch:
        """What minibatches are cut from for the terms' sake: the variables they read, and what they prepare."""
        found = {name: ws[name][: ws.T] for name in self._cut} | row_weights(ws)
        for term in self.terms:
            if hasattr(term, "prepare"):
                found |= term.prepare(ws)
        return found

    def transformed(self, batch: Batch) -> Batch:
        for transform in self.transforms:
            batch = transform(batch, self.now)
        return batch

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The weighted sum of the terms on one minibatch, and statistics; runs the policy once."""
        batch = self.transformed(batch)
        if self.mirror is None:
            batch = both = batch | self._scored(batch)
        else:
            both = self.mirror.doubled(batch)
            scores = self._scored(both)
            batch, both = batch | halves(scores), both | scores
        total, statistics = self.weighed(batch, range(len(self.terms)), both)
        statistics["loss/total"] = total.detach()
        if "params" in batch:
            with torch.no_grad():
                divergence = self.policy.head.kl(batch["params"], batch["new/params"])
                statistics["kl"] = weighted_mean(divergence, policy_weight(batch))
        if "weight" in batch and not here().is_alone:
            share = _share_of_rank(batch["weight"])
            total, statistics = total * share, {name: value * share for name, value in statistics.items()}
        return total, statistics

    def weighed(
        self, batch: Batch, which: Sequence[int], both: Batch | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The weighted sum of some of the terms on a minibatch over which the policy has run; `both` is the minibatch
        with its mirror image behind it, for terms that say `augmented`."""
        augment = both is not None and getattr(self.mirror, "augment", False)
        total: Tensor | None = None  # not 0: what a compiler makes of 0 + loss has no gradient (torch 2.13)
        statistics: dict[str, Tensor] = {}
        for index in which:
            term = self.terms[index]
            loss, more = term(both if augment and getattr(term, "augmented", False) else batch, self.now)  # type: ignore[arg-type]
            if isinstance(term.coef, Schedule):
                weighed = self.coefficients[index] * loss
                total = weighed if total is None else total + weighed
            elif term.coef:  # a term without weight is only looked at
                total = term.coef * loss if total is None else torch.add(total, loss, alpha=term.coef)
            statistics[f"loss/{term.name}"] = loss.detach()
            statistics |= more
        return torch.zeros((), device=self.coefficients.device) if total is None else total, statistics

    def _scored(self, batch: Batch) -> Batch:
        outputs = self.policy.outputs(batch) if self.critic else self.policy.outputs(batch, critic=False)
        return scored(self.policy.head, outputs, batch["raw"])

    def _check_outputs(self) -> None:
        names = [name for name in self.policy.output_names if self.critic or name != "value"]
        known = [f"new/{name}" for name in (*names, *SCORES)]
        if any(hasattr(term, "doubled") for term in self.terms):
            known += [name.replace("new/", "new/mirrored/") for name in known]
        for term in self.terms:
            for name in term.reads:
                if name.startswith("new/") and name not in known:
                    raise ValueError(
                        f"the term {term.name!r} reads {name!r}, which neither the policy nor a block of it writes"
                        f"{did_you_mean(name, known)}; there are {known}"
                    )


def scored(head: Any, outputs: Batch, raw: Tensor) -> Batch:
    """The policy's outputs and what its distribution says of the actions `raw`, as `new/*`."""
    params, log_prob, entropy = head.score(outputs["output"], raw)
    scores = (params, log_prob, entropy, head.action(head.mode(params)))
    found = {f"new/{name}": value for name, value in outputs.items()}
    return found | {f"new/{name}": value for name, value in zip(SCORES, scores, strict=True)}


def halves(scores: Batch) -> Batch:
    """What the policy says of a minibatch and of its mirror image behind it: `new/*` and `new/mirrored/*`."""
    found: Batch = {}
    for name, value in scores.items():
        found[name], found[name.replace("new/", "new/mirrored/", 1)] = value.chunk(2)
    return found


def row_weights(ws: Workspace) -> Batch:
    """What rows of a rollout weigh, [T, B]: `weight` where some only reset, `weight/policy` where others acted too."""
    found = {"weight": ws["env/valid"].float()} if "env/valid" in ws else {}
    if "weight/policy" in ws:
        acted = ws["weight/policy"].float()
        found["weight/policy"] = acted * found["weight"] if found else acted
    return found


def policy_weight(batch: Batch) -> Tensor | None:
    """What each sample weighs in losses of the policy: 0 where the row does not count, or where another acted."""
    return batch.get("weight/policy", batch.get("weight"))


def standardised_advantage(batch: Batch, now: DeviceNow) -> Batch:
    """A transform: the advantages of the minibatch with mean 0 and standard deviation 1."""
    return batch | {"advantage": standardised(batch["advantage"], policy_weight(batch))}


def standardised(advantage: Tensor, weight: Tensor | None) -> Tensor:
    """Advantages with mean 0 and standard deviation 1 over all entries that count, those of all processes where several
    train together."""
    ranks = here()
    if ranks.is_alone:
        return standardise(advantage, weight)
    x, rows = advantage.double(), torch.ones_like(advantage).double() if weight is None else weight.double()
    count = rows.sum()
    mean = (x * rows).sum() / count.clamp(min=1.0)
    variance = ((x - mean).square() * rows).sum() / count.clamp(min=1.0)
    total, mean, variance = ranks.pooled(count, mean, variance)
    std = (variance * total / (total - 1).clamp(min=1)).sqrt()
    return ((x - mean) / (std + 1e-8)).to(advantage.dtype)


def _share_of_rank(weight: Tensor) -> Tensor:
    """What the mean over this process's rows weighs in the mean over those of all, which count differently many."""
    rows = weight.detach().sum()
    return rows / here().mean_(rows.clone()).clamp(min=1e-8)


def with_further(standard: Sequence[LossTerm], further: Sequence[LossTerm]) -> list[LossTerm]:
    """The standard terms and further ones; one that has the name of a standard term takes its place."""
    _check_names(further)
    replaced = {term.name: term for term in further}
    kept = [replaced.pop(term.name, term) for term in standard]
    return [*kept, *replaced.values()]


def _check_names(terms: Sequence[LossTerm]) -> None:
    names = [term.name for term in terms]
    if len(set(names)) != len(names):
        raise ValueError(f"two terms share a name: {names}; give each its own")


def _check_noise(terms: Sequence[LossTerm], policy: Any) -> None:
    """Refuse losses that compare probabilities of actions (`needs_noise`) where the policy draws none."""
    if not getattr(getattr(policy, "config", None), "deterministic", False):
        return
    wrong = [term.name for term in terms if term.coef and getattr(term, "needs_noise", False)]
    if wrong:
        raise ValueError(
            f"agent.deterministic is true, but the term {wrong[0]!r} compares probabilities of drawn actions; set it "
            "to false, or give that term the coefficient 0"
        )


class Surrogate:
    """PPO's clipped policy loss."""

    name = "surrogate"
    augmented = True
    needs_noise = True
    reads: tuple[str, ...] = ()

    def __init__(self, clip: Positive = 0.2, coef: Coefficient = 1.0) -> None:
        self.clip, self.coef = clip, coef

    def __call__(self, batch: Batch, now: DeviceNow) -> tuple[Tensor, dict[str, Tensor]]:
        weight = policy_weight(batch)
        loss, ratio = clipped_surrogate(batch["new/log_prob"], batch["log_prob"], batch["advantage"], self.clip)
        clipped = ((ratio.detach() - 1.0).abs() > self.clip).float()
        return weighted_mean(loss, weight), {"clip_fraction": weighted_mean(clipped, weight)}


class ValueLoss:
    """Squared error of the critic in its own units, of several critics the sum; `clip` limits how far one update moves
    it (None: no limit)."""

    name = "value"
    augmented = True
    reads: tuple[str, ...] = ()

    def __init__(self, clip: Positive | None = None, coef: Coefficient = 1.0) -> None:
        self.clip, self.coef = clip, coef

    def __call__(self, batch: Batch, now: DeviceNow) -> tuple[Tensor, dict[str, Tensor]]:
        value = batch["new/value"]
        error = value_error(value, value if self.clip is None else batch["value"], batch["return"], self.clip)
        if error.ndim > batch["log_prob"].ndim:  # several critics
            error = error.sum(-1)
        return weighted_mean(error, batch.get("weight")), {}


class Entropy:
    """Minus the policy's entropy: a positive coefficient keeps it exploring."""

    name = "entropy"
    reads: tuple[str, ...] = ()

    def __init__(self, coef: Coefficient = 0.0, mean: Mean = weighted_mean) -> None:
        self.coef, self.mean = coef, mean

    def __call__(self, batch: Batch, now: DeviceNow) -> tuple[Tensor, dict[str, Tensor]]:
        return -self.mean(batch["new/entropy"], policy_weight(batch)), {}


class ActionBound:
    """Squared distance of the mean action beyond `margin` times the limits, in units of half the action range.

    Limits clip inside the simulator, so beyond them the task's reward has no slope; this term brings the mean back.
    """

    name = "action_bound"
    reads: tuple[str, ...] = ()

    def __init__(self, action: ActionSpec, coef: Coefficient = 0.0, margin: Positive = 1.1) -> None:
        low, high = torch.tensor(action.low), torch.tensor(action.high)
        if action.kind != "continuous" or not bool(torch.isfinite(low).all() and torch.isfinite(high).all()):
            raise ValueError("the action_bound term needs a continuous action with finite limits; leave it out")
        self.coef, self.margin = coef, margin
        self.centre, self.half_range = (low + high) / 2, (high - low) / 2

    def __call__(self, batch: Batch, now: DeviceNow) -> tuple[Tensor, dict[str, Tensor]]:
        mean = batch["new/mean"]
        if self.centre.device != mean.device:
            self.centre, self.half_range = self.centre.to(mean.device), self.half_range.to(mean.device)
        excess = (((mean - self.centre) / self.half_range).abs() - self.margin).clamp(min=0.0)
        return weighted_mean(excess.square().sum(-1), policy_weight(batch)), {}


TERMS: dict[str, type | str] = {
    "surrogate": Surrogate,
    "value": ValueLoss,
    "entropy": Entropy,
    "symmetry": "gaitway.algorithms.symmetry:Symmetry",
    "action_bound": ActionBound,
    "action_distance": "gaitway.algorithms.imitation:ActionDistance",
    "estimation": "gaitway.algorithms.estimation:Estimation",
    "imitation": "gaitway.algorithms.imitation:Imitation",
    "latent_imitation": "gaitway.algorithms.imitation:LatentImitation",
}
"""Terms by the names that `algorithm.terms` uses."""
