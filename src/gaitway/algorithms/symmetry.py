"""Symmetry: what a robot does in a mirror is as good as what it did (Mittal et al. 2024, "Symmetry considerations for
learning task symmetric robot policies").

A mirror M exchanges components of observations and actions and turns signs, by name. Two uses, together or apart:

    augment       surrogate and value loss are means over each row and its mirror image; the image has the old
                  log-probability, advantage and return of its original
    mirror loss   mean (mu(M o) - M mu(o))^2, without gradient through M mu(o)

Statistics of the normalisers are those of rows and images together, so that M and the normaliser commute.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from gaitway.agents.actor_critic import ActorCritic
from gaitway.algorithms.algorithm import Batch, DeviceNow, NotNegativeCoefficient
from gaitway.core.config import did_you_mean
from gaitway.envs.spec import ActionSpec, Component, EnvSpec
from gaitway.functional.policy_losses import weighted_mean
from gaitway.nn.continuous import Gaussian, SquashedGaussian

ACTION = "action"
"""The key of `mirror` for actions."""


class Mirror:
    """`[..., D] -> [..., D]`: entry i becomes `sign[i] * x[order[i]]`, of an image column i. Its own inverse."""

    def __init__(self, order: Sequence[int], sign: Sequence[float], what: str) -> None:
        twice = [(order[order[i]], sign[i] * sign[order[i]]) for i in range(len(order))]
        wrong = [i for i, found in enumerate(twice) if found != (i, 1.0)]
        if wrong:
            raise ValueError(
                f"the mirror image of the mirror image of {what} differs in entry {wrong[0]}; pair them up"
            )
        self.order, self.sign = torch.tensor(order), torch.tensor(sign)

    @property
    def changes(self) -> bool:
        return bool((self.order != torch.arange(len(self.order))).any() or (self.sign < 0).any())

    def to(self, device: torch.device | str) -> Mirror:
        self.order, self.sign = self.order.to(device), self.sign.to(device)
        return self

    def __call__(self, x: Tensor) -> Tensor:
        image = x.index_select(-1, self.order)
        return image * self.sign if image.is_floating_point() else image


class Symmetry:
    """The mirror loss, and mirror images among the rows that the policy learns from.

    `mirror` says for a group, or for `action`, which component each one is the image of: `{pos: {sin: -sin}, action:
    {left: right, right: left}}`; a component of several numbers may have a sign for each, `{gravity: [gravity, 1, -1,
    1]}`. Components that are not named stay, unless `swap: [left, right]` finds a partner by its name. `mirror: robot`
    takes what the environment knows of its robot (`EnvSpec.facts["mirror"]`).
    """

    name = "symmetry"
    reads = ("new/mirrored/mean",)

    def __init__(
        self,
        spec: EnvSpec,
        policy: ActorCritic,
        mirror: dict[str, dict[str, Any]] | Literal["robot"],
        coef: NotNegativeCoefficient = 0.0,
        augment: bool = True,
        swap: tuple[str, ...] = (),
        device: torch.device | str = "cpu",
    ) -> None:
        self.coef, self.augment = coef, augment
        if mirror == "robot":
            _check_policy(spec, policy, {}, swap)
            self.groups = {name: _known_mirror(spec, name).to(device) for name in policy.all_groups}
            self.action = _known_mirror(spec, ACTION).to(device)
        else:
            _check_policy(spec, policy, mirror, swap)
            _check_vectors(spec, policy)
            self.groups = {
                name: mirror_of(spec.group(name).components, mirror.get(name, {}), swap, f"the group {name!r}").to(
                    device
                )
                for name in policy.all_groups
            }
            parts = tuple(Component(name) for name in spec.action.names)
            self.action = mirror_of(parts, mirror.get(ACTION, {}), swap, "the action").to(device)
        _check_limits(spec.action, self.action)
        if not any(each.changes for each in (*self.groups.values(), self.action)):
            raise ValueError("the mirror changes nothing; say in `mirror` or `swap` what left and right, or signs, are")
        policy.normalisers.mirrors = {name: (each.order, each.sign) for name, each in self.groups.items()}

    def doubled(self, batch: Batch) -> Batch:
        """A minibatch [N, ...] and behind it its mirror image, [2 N, ...]: other fields than observations and actions
        are repeated."""
        found = {name: torch.cat((value, value)) for name, value in batch.items()}
        for name, mirror in self.groups.items():
            value = batch[f"obs/{name}"]
            found[f"obs/{name}"] = torch.cat((value, mirror(value)))
        found["raw"] = torch.cat((batch["raw"], self.action(batch["raw"])))
        return found

    def __call__(self, batch: Batch, now: DeviceNow) -> tuple[Tensor, dict[str, Tensor]]:
        apart = batch["new/mirrored/mean"] - self.action(batch["new/mean"].detach())
        weight = batch.get("weight")
        loss = weighted_mean(apart.square().mean(-1), weight)
        return loss, {"asymmetry": weighted_mean(apart.detach().abs().mean(-1), weight)}


def _known_mirror(spec: EnvSpec, name: str) -> Mirror:
    """The mirror image of a group, or of the action, as the environment states it."""
    facts = spec.facts.get("mirror")
    if not isinstance(facts, Mapping) or name not in facts:
        raise ValueError(
            f"{spec.id} states no mirror image of {name!r}; write `mirror` out, or give its robot a mirror "
            "(`mirror: {swap: ..., flip: ...}` of a robot file)"
        )
    return Mirror(list(facts[name]["order"]), list(facts[name]["sign"]), name)


def mirror_of(components: Sequence[Component], entries: Mapping[str, Any], swap: Sequence[str], what: str) -> Mirror:
    """The mirror of a vector of `components`."""
    names = [component.name for component in components]
    places: dict[str, range] = {}
    start = 0
    for component in components:
        places[component.name] = range(start, start + component.size)
        start += component.size
    unknown = [name for name in entries if name not in names]
    if unknown:
        raise ValueError(
            f"mirror names {unknown[0]!r}{did_you_mean(unknown[0], names)}, which {what} lacks; it has {names}"
        )
    order, sign = list(range(start)), [1.0] * start
    for name in names:
        source, signs = _entry(name, entries.get(name, _partner(name, names, swap)), len(places[name]), what)
        if source not in names:
            raise ValueError(
                f"the mirror image of {name!r} is {source!r}{did_you_mean(source, names)}, which {what} lacks; it has "
                f"{names}"
            )
        if len(places[source]) != len(places[name]):
            raise ValueError(
                f"{name!r} and its mirror image {source!r} have different sizes in {what}; pair equal ones"
            )
        for here, there, turn in zip(places[name], places[source], signs, strict=True):
            order[here], sign[here] = there, turn
    return Mirror(order, sign, what)


def _entry(name: str, value: Any, size: int, what: str) -> tuple[str, list[float]]:
    """`other`, `-other` or `[other, 1, -1, ...]` -> the component and a sign for each of its numbers."""
    source, signs = (value[0], list(value[1:])) if isinstance(value, list | tuple) and value else (value, [])
    if not isinstance(source, str) or any(each not in (1, -1) for each in signs) or len(signs) not in (0, size):
        raise ValueError(
            f"the mirror image of {name!r} in {what} is {value!r}; write other, -other, or [other, 1, -1, ...] with a "
            f"sign for each of its {size} numbers"
        )
    turn = -1.0 if source.startswith("-") else 1.0
    return source.removeprefix("-"), [turn * each for each in signs or [1.0] * size]


def _partner(name: str, names: Sequence[str], swap: Sequence[str]) -> str:
    """The component whose name has the words of `swap` exchanged, if there is one; else itself."""
    if not swap:
        return name
    words = {swap[0]: swap[1], swap[1]: swap[0]}
    other = re.sub("|".join(map(re.escape, words)), lambda found: words[found.group()], name)
    return other if other in names else name


def _check_policy(spec: EnvSpec, policy: ActorCritic, mirror: Mapping[str, Any], swap: Sequence[str]) -> None:
    if policy.memories:
        raise ValueError(
            f"symmetry is for policies without memory, and this one remembers {sorted(policy.memories)}: nobody knows "
            "what a mirror makes of a state; leave one of them out"
        )
    if spec.action.kind != "continuous" or not isinstance(policy.head, Gaussian | SquashedGaussian):
        raise ValueError("symmetry mirrors continuous actions of a Gaussian; use agent.distribution.kind=gaussian")
    if len(swap) not in (0, 2):
        raise ValueError(f"swap is {list(swap)}; write two words, such as [left, right]")
    known = [*policy.all_groups, ACTION]
    unknown = [name for name in mirror if name not in known]
    if unknown:
        raise ValueError(
            f"mirror names {unknown[0]!r}{did_you_mean(unknown[0], known)}, which the policy does not read; it reads "
            f"and does {known}"
        )


def _check_vectors(spec: EnvSpec, policy: ActorCritic) -> None:
    pictures = [name for name in policy.all_groups if not spec.group(name).is_vector]
    if pictures:
        raise ValueError(
            f"a mirror that is written out is one of vectors, and the policy reads {pictures[0]!r}, which is none; use "
            "mirror: robot where the task knows it"
        )


def _check_limits(action: ActionSpec, mirror: Mirror) -> None:
    """Limits must be those of the mirror image: else an image may be no action at all."""
    low, high = torch.tensor(action.low), torch.tensor(action.high)
    order, sign = mirror.order.cpu(), mirror.sign.cpu()
    expected = torch.where(sign > 0, low[order], -high[order])
    wrong = (low != expected).nonzero().flatten().tolist()
    if wrong:
        raise ValueError(
            f"the limits of {action.names[wrong[0]]!r} are not those of its mirror image "
            f"{action.names[int(order[wrong[0]])]!r}; shift the action so that they are"
        )
