"""What a reward source is, the environment's own reward as one, and a run's sources together.

    reward/total = sum over sources of weight * reward/<name>

The algorithm learns from `reward/total`; logs and evaluations show the environment's own reward.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from gaitway.algorithms.algorithm import Coefficient, Now, Schedule, value_at
from gaitway.algorithms.engine import copied_state
from gaitway.core.config import did_you_mean
from gaitway.core.workspace import Variable, Workspace

When = Literal["collected", "drawn"]


class RewardSource(Protocol):
    """Writes `reward/<name>` [T, B] into step rows and may learn from them. What it learns are parameters of a module
    (`named_parameters`), if it has any.

    `when` says when it annotates off-policy: as rows are `collected`, once (counts), or as they are `drawn` from the
    replay, with its newest parameters (whatever learns). On-policy both mean the rollout. A replay does not keep what
    was reached by a step that terminated: there `ws.following` gives drawn sources the first observation after it.
    """

    name: str
    weight: Coefficient
    reads: tuple[str, ...]
    when: When

    def annotate(self, ws: Workspace) -> None:
        """Write `ws["reward/<name>"] = ...`, [T, B]. Without gradient; looks at no value, it may be recorded."""
        ...

    def update(self, ws: Workspace, now: Now) -> dict[str, Tensor]:
        """Learn from the rows collected last; returns metrics."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> Any: ...


class TaskReward:
    """The environment's own reward."""

    name = "task"
    reads: tuple[str, ...] = ("env/reward",)
    when: When = "drawn"  # it is stored anyway

    def __init__(self, weight: Coefficient = 1.0) -> None:
        self.weight = weight

    def annotate(self, ws: Workspace) -> None:
        ws["reward/task"] = ws["env/reward"][: ws.T]

    def update(self, ws: Workspace, now: Now) -> dict[str, Tensor]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """There is nothing to restore."""


class Rewards:
    """The reward sources of a run. The task's reward counts with weight 1 unless `sources` names it themselves."""

    def __init__(
        self,
        sources: Sequence[RewardSource] = (),
        device: torch.device | str = "cpu",
        groups: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        """`groups` are sums that are written apart, `reward/total/<group>`, and `main` of the sources of no group."""
        named = [source.name for source in sources]
        self.sources: list[RewardSource] = [*sources] if "task" in named else [TaskReward(), *sources]
        names = [source.name for source in self.sources]
        if "total" in names:
            raise ValueError("a reward source cannot be called 'total', the name of the sum; give it another name")
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two reward sources are called {name!r}; give each a name of its own")
        for source in self.sources:
            weight = source.weight
            ends = (weight.start, weight.end) if isinstance(weight, Schedule) else (weight,)
            if not all(map(math.isfinite, ends)):
                raise ValueError(f"the weight of the reward source {source.name!r} is {weight}; use a finite number")
        self.weights = torch.zeros(len(self.sources), device=device)
        """One number per source on the device: a recorded update reads what stands there."""
        self._sums = _sums(names, groups)
        only = self.sources[0]
        self.is_plain = len(self.sources) == 1 and isinstance(only, TaskReward) and only.weight == 1.0
        """Whether `reward/total` is the environment's reward, so that nothing need be written."""

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for source in self.sources for name in source.reads))

    @property
    def writes(self) -> tuple[str, ...]:
        if self.is_plain:
            return ()
        sums = (f"reward/total/{name}" for name in self._sums)
        return (*(f"reward/{source.name}" for source in self.sources), "reward/total", *sums)

    def stored(self) -> tuple[str, ...]:
        """The variables of sources that annotate rows once, as they are collected: a replay keeps them."""
        return tuple(f"reward/{source.name}" for source in self.sources if when_of(source) == "collected")

    def variables(self, num_envs: int, rows: int) -> dict[str, Variable]:
        """The rollout's own memory: what lies elsewhere in every iteration would make a GPU record anew."""
        return {name: Variable(rows, num_envs, (), torch.float32) for name in self.writes}

    def begin(self, now: Now) -> None:
        """Bring the weights to where training stands."""
        for weight, source in zip(self.weights, self.sources, strict=True):
            weight.fill_(value_at(source.weight, now))

    @torch.no_grad()
    def annotate(self, ws: Workspace, when: Sequence[When] = ("collected", "drawn")) -> None:
        """Let the sources of `when` speak; those of the others have spoken. With all of them write `reward/total`."""
        for source in self.sources:
            if when_of(source) in when:
                source.annotate(ws)
        if "drawn" in when:
            parts = [weight * ws[f"reward/{s.name}"] for weight, s in zip(self.weights, self.sources, strict=True)]
            ws["reward/total"] = torch.stack(parts).sum(0)
            for name, members in self._sums.items():
                ws[f"reward/total/{name}"] = torch.stack([parts[index] for index in members]).sum(0)

    def update(self, ws: Workspace, now: Now) -> dict[str, Tensor]:
        """Let the sources learn; metrics, with the mean reward of each and, of several, its share in the total."""
        metrics: dict[str, Tensor] = {}
        for source in self.sources:
            for name, value in source.update(ws, now).items():
                if name in metrics:
                    raise ValueError(f"two reward sources log {name!r}; let {source.name!r} use another name")
                metrics[name] = value
        metrics |= {name: ws[name].mean() for name in self.writes if name in ws}
        if len(self.sources) > 1 and "reward/total" in ws:
            sizes = torch.stack([ws[f"reward/{source.name}"].abs().mean() for source in self.sources])
            shares = sizes * self.weights.abs()
            shares = shares / shares.sum().clamp(min=1e-12)
            metrics |= {f"reward_share/{s.name}": share for s, share in zip(self.sources, shares, strict=True)}
        return metrics

    def modules(self) -> dict[str, Any]:
        """The sources with parameters that are learnt, by `rewards.<name>`: fingerprints and finite checks see them."""
        found = {f"rewards.{source.name}": source for source in self.sources if hasattr(source, "named_parameters")}
        return {name: s for name, s in found.items() if any(p.requires_grad for _, p in s.named_parameters())}

    def state_dict(self) -> dict[str, Any]:
        return {s.name: copied_state(s) if isinstance(s, nn.Module) else s.state_dict() for s in self.sources}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for source in self.sources:
            if source.name in state:
                source.load_state_dict(state[source.name])


def _sums(names: Sequence[str], groups: Mapping[str, Sequence[str]]) -> dict[str, list[int]]:
    """Which sources each group sums up, by their numbers; nothing without groups."""
    if not groups:
        return {}
    for group, members in groups.items():
        for name in members:
            if name not in names:
                raise ValueError(
                    f"the reward group {group!r} names the source {name!r}{did_you_mean(name, names)}, which `rewards` "
                    f"lacks; there are {list(names)}"
                )
    grouped = {name for members in groups.values() for name in members}
    rest = [index for index, name in enumerate(names) if name not in grouped]
    if not rest:
        raise ValueError(f"all of {list(names)} are in reward groups; leave one out, it is valued by the main critic")
    return {"main": rest} | {group: [names.index(name) for name in members] for group, members in groups.items()}


def when_of(source: RewardSource) -> When:
    """When a source annotates off-policy; one that does not say annotates rows once."""
    return getattr(source, "when", "collected")


def merged(metrics: dict[str, Tensor], more: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Metrics of an algorithm and of its reward sources; a name that both log is refused."""
    both = sorted(metrics.keys() & more.keys())
    if both:
        raise ValueError(f"a reward source and the algorithm both log {both[0]!r}; let the source use another name")
    return metrics | dict(more)
