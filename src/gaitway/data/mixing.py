"""A dataset as replay: alone for offline learning, before the first step (prefill), or as a share of every batch.

`dataset_replay` makes a replay that holds a dataset, for offline learning or for a `MixedReplay`; `fill_replay` adds a
dataset to the replay of an off-policy run; `MixedReplay` draws every batch from both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gaitway.core.seeding import restore_stream
from gaitway.core.transitions import FINAL, OBSERVATION, SHORT_NAMES
from gaitway.core.workspace import Workspace
from gaitway.data.episodes import VALID, EpisodeSource
from gaitway.data.prioritised_replay import PrioritisedReplay
from gaitway.data.ring import Fields, Variable
from gaitway.data.step_gather import TransitionBatch
from gaitway.data.step_replay import NONE, StepReplay


@dataclass(slots=True)
class MixedBatch(TransitionBatch):
    """Memory for n transitions of a MixedReplay."""

    parts: tuple[TransitionBatch, ...] = ()
    """Views of the same memory: transitions of the dataset, then those of the online replay."""


def fill_replay(replay: StepReplay, source: EpisodeSource, limit: int | None = None) -> int:
    """Add the steps of a dataset, in order, or the first `limit` of them; returns how many were added.

    A replay of B environments takes the steps as B columns; up to B - 1 steps at the end are left out. The steps added
    next need not continue the dataset: training starts with an observation of its own.
    """
    wanted = source.num_steps if limit is None else min(limit, source.num_steps)
    if wanted > replay.capacity:
        raise ValueError(
            f"the dataset has {wanted} steps and the replay holds {replay.capacity}; make it larger, or pass "
            f"limit={replay.capacity} to take the first ones"
        )
    replay.cut()
    added = 0
    left: dict[str, Tensor] = {}
    for chunk in source.chunks():
        fields = _needed(chunk.transitions(), replay.variables)
        if left:
            fields = {name: torch.cat((left[name], value)) for name, value in fields.items()}
        rows = min(len(fields["reward"]), wanted - added) // replay.num_envs
        count = rows * replay.num_envs
        if count:
            replay.add(_streams(fields, rows, replay.num_envs, VALID in replay.variables))
            replay.cut()
        added += count
        left = {name: value[count:] for name, value in fields.items()}
        if wanted - added < replay.num_envs:
            break
    return added


def dataset_replay(
    source: EpisodeSource,
    *,
    like: StepReplay | None = None,
    groups: Fields = NONE,
    action: Variable | None = None,
    extras: Fields = NONE,
    n_step: int = 1,
    gamma: float = 0.99,
    device: torch.device | str = "cpu",
    seed: int | None = None,
    generator: torch.Generator | None = None,
) -> StepReplay:
    """A replay that holds a dataset and nothing else.

    `like` is the replay that a `MixedReplay` combines it with: variables, n_step, gamma and device are taken from
    there. Without it, pass `groups`, `action` and `extras` as for a `StepReplay`.
    """
    reset_rows = False
    if like is not None:
        variables = dict(like.variables)
        reset_rows = variables.pop(VALID, None) is not None
        groups = {
            name.removeprefix(OBSERVATION): variables.pop(name)
            for name in like.variables
            if name.startswith(OBSERVATION)
        }
        action, n_step, gamma, device = variables.pop("action"), like.n_step, like.gamma, like.device
        extras = {name: variable for name, variable in variables.items() if name not in SHORT_NAMES}
    if action is None or not groups:
        raise ValueError("say what the replay is to hold: pass like=, or groups= and action= as for a StepReplay")
    replay = StepReplay(
        max(source.num_steps, 1),
        1,
        groups,
        action,
        device=device,
        seed=seed,
        generator=generator,
        n_step=n_step,
        gamma=gamma,
        extras=extras,
        reset_rows=reset_rows,
    )
    fill_replay(replay, source)
    return replay


class MixedReplay:
    """`share` of every batch comes from a dataset, the rest from the replay that training fills.

    The interface is that of a StepReplay, so algorithms need not know the difference. A batch of n begins with
    `round(share * n)` transitions of the dataset. New steps go to `online`, which `size` and `rows` describe. If it is
    a PrioritisedReplay, priorities and importance weights apply to its part of the batch, and transitions of the
    dataset have the weight 1. A checkpoint holds `online` and the state of both generators, not the dataset.
    """

    def __init__(self, online: StepReplay, dataset: StepReplay, share: float) -> None:
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"share is {share}; use the part of a batch that the dataset gives, from 0 to 1")
        mine, theirs = _signature(online), _signature(dataset)
        for name in mine | theirs:
            if mine.get(name) != theirs.get(name):
                raise ValueError(
                    f"{name} is {mine.get(name)} online and {theirs.get(name)} in the dataset; make its replay with "
                    "dataset_replay(source, like=online)"
                )
        if dataset.size == 0 and share > 0:
            raise ValueError("the dataset's replay is empty; fill it before mixing it in")
        self.online, self.dataset, self.share = online, dataset, share

    def __getattr__(self, name: str) -> Any:
        """Everything that is not defined here, such as sizes and rows, is that of the online replay."""
        if name.startswith("_") or name in ("online", "dataset"):
            raise AttributeError(f"{type(self).__name__} has no {name!r}")
        return getattr(self.online, name)

    @property
    def version(self) -> int:
        return self.online.version + self.dataset.version

    def __len__(self) -> int:
        return len(self.online)

    def of_dataset(self, n: int) -> int:
        """How many of n transitions come from the dataset."""
        return round(self.share * n)

    def draw(self, shape: tuple[int, ...], out: Tensor | None = None) -> Tensor:
        """Uniform indices of both replays, int64, for `gather`; the last axis of `shape` is a batch. Index i of the
        dataset is stored as -1 - i."""
        return self._drawn(self.online.draw, shape, out)

    def tickets(self, shape: tuple[int, ...], out: Tensor | None = None) -> Tensor:
        """`PrioritisedReplay.tickets` for the online part; the dataset's part holds indices already."""
        return self._drawn(self._prioritised().tickets, shape, out)

    def locate(self, tickets: Tensor, out: Tensor | None = None) -> Tensor:
        """`PrioritisedReplay.locate` for the online part; indices of the dataset pass unchanged."""
        split = self.of_dataset(tickets.shape[-1])
        out = tickets.clone() if out is None else out.copy_(tickets)
        out[..., split:] = self._prioritised().locate(tickets[..., split:])
        return out

    def batch(self, n: int) -> MixedBatch:
        """Memory for n transitions, for `gather`."""
        whole, split = self.online.batch(n), self.of_dataset(n)
        parts = tuple(
            TransitionBatch(
                {name: field[part] for name, field in whole.fields.items()}, whole.words[part], whole.after[part]
            )
            for part in (slice(None, split), slice(split, None))
        )
        return MixedBatch(whole.fields, whole.words, whole.after, None, parts)

    def gather(self, index: Tensor, out: MixedBatch | None = None) -> dict[str, Tensor]:
        """The transitions `index` [n] of a draw of n, as fields [n, *shape]."""
        batch = self.batch(len(index)) if out is None else out
        split = self.of_dataset(len(index))
        if split:
            self.dataset.gather(~index[:split], batch.parts[0])
        if split < len(index):
            self.online.gather(index[split:], batch.parts[1])
        return batch.fields

    def update_priorities(self, index: Tensor, error: Tensor) -> None:
        """`PrioritisedReplay.update_priorities` for the online part."""
        split = self.of_dataset(len(index))
        if split < len(index):
            self._prioritised().update_priorities(index[split:], error[split:])

    def sample(self, n: int, length: int = 1) -> Workspace:
        """n windows of `length` steps, those of the dataset first, [length, n, *shape]."""
        split = self.of_dataset(n)
        parts = [self.dataset.sample(split, length)] if split else []
        return Workspace.cat([*parts, self.online.sample(n - split, length)] if split < n else parts)

    def to(self, device: torch.device | str) -> MixedReplay:
        """Move both parts."""
        self.online.to(device)
        self.dataset.to(device)
        return self

    # State

    def bookkeeping(self) -> dict[str, Any]:
        generator = self.dataset.generator
        drawn = {"generator": generator.get_state()}
        return self.online.bookkeeping() | {"dataset": {"share": self.share, "size": self.dataset.size} | drawn}

    def check_bookkeeping(self, state: Mapping[str, Any]) -> None:
        """Refuse the state of a replay with other contents or sizes."""
        self.online.check_bookkeeping(state)
        for name, mine in (("share", self.share), ("size", self.dataset.size)):
            stored = state["dataset"][name] if "dataset" in state else None
            if mine != stored:
                raise ValueError(
                    f"the stored replay has a dataset of {name} {stored}, this one {mine}; make them equal"
                )

    def load_bookkeeping(self, state: Mapping[str, Any]) -> None:
        self.check_bookkeeping(state)
        self.online.load_bookkeeping(state)
        restore_stream(self.dataset.generator, state["dataset"]["generator"])

    def state_dict(self) -> dict[str, Any]:
        """Everything but the dataset itself."""
        return self.online.state_dict() | {"bookkeeping": self.bookkeeping()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict()`: the next draws equal those that the saved replay would have made."""
        self.check_bookkeeping(state["bookkeeping"])
        self.online.load_state_dict(state)
        restore_stream(self.dataset.generator, state["bookkeeping"]["dataset"]["generator"])

    # Private

    def _prioritised(self) -> PrioritisedReplay:
        if not isinstance(self.online, PrioritisedReplay):
            raise TypeError("the online part has no priorities; make it a PrioritisedReplay")
        return self.online

    def _drawn(self, draw: Callable[..., Tensor], shape: tuple[int, ...], out: Tensor | None) -> Tensor:
        if out is None:
            out = torch.empty(shape, dtype=torch.int64, device=self.online.device)
        elif out.shape != shape:
            raise ValueError(f"out is {list(out.shape)} and {list(shape)} draws are asked for; both must agree")
        *lead, n = shape
        split = self.of_dataset(n)
        if split:
            self.dataset.draw((*lead, split), out=out[..., :split]).bitwise_not_()
        if split < n:
            draw((*lead, n - split), out=out[..., split:])
        return out


def _signature(replay: StepReplay) -> dict[str, Any]:
    """What two replays must share for their transitions to form one batch."""
    return {"device": replay.device, "n_step": replay.n_step, "gamma": replay.gamma, **replay.variables}


def _needed(fields: Mapping[str, Tensor], variables: Fields) -> dict[str, Tensor]:
    """Those fields of `Workspace.transitions()` that a replay of these variables stores."""
    names = []
    for name in variables:
        if name.startswith(OBSERVATION):
            group = name.removeprefix(OBSERVATION)
            names += [f"obs/{group}", f"next_obs/{group}"]
        elif name != VALID:
            names.append(SHORT_NAMES.get(name, name))
    missing = [name for name in names if name not in fields]
    if missing:
        raise ValueError(f"the dataset has no {missing}; it has {sorted(fields)}, and the replay stores the others too")
    return {name: fields[name] for name in names}


def _streams(fields: Mapping[str, Tensor], rows: int, streams: int, valid: bool) -> Workspace:
    """The first `rows * streams` transitions as step rows `[rows, streams]`: each run of `rows` is a column."""

    def columns(name: str) -> Tensor:
        return fields[name][: rows * streams].unflatten(0, (streams, rows)).transpose(0, 1)

    tensors = {}
    long_names = {short: name for name, short in SHORT_NAMES.items()}
    for name in fields:
        if name.startswith("obs/"):
            group, reached = name.removeprefix("obs/"), columns(f"next_{name}")
            tensors[OBSERVATION + group] = torch.cat((columns(name), reached[-1:]))
            tensors[FINAL + group] = reached
        elif not name.startswith("next_obs/"):
            tensors[long_names.get(name, name)] = columns(name)
    if valid:
        tensors[VALID] = torch.ones(rows, streams, dtype=torch.bool)
    return Workspace.packed(tensors)
