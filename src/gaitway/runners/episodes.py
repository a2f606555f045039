"""Returns and lengths of the episodes that end while training, and means of the environment's metrics.

Episodes are followed on the device of the rollout, all of them at once. What the host must know of a rollout comes in
two steps, so that it can be read together with other numbers: `count` and `means` say it in tensors, `take` and
`metrics` get what those held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaitway.core.workspace import Workspace
from gaitway.envs.spec import EVENTS
from gaitway.envs.step_buffers import FAULT_METRIC
from gaitway.envs.trials import Trials, TrialStatistics
from gaitway.functional.policy_losses import weighted_mean
from gaitway.runners.readout import read_at_once

EPISODES = "train/episodes"
"""The metric that says how many have ended."""

Told = Mapping[str, Sequence[float]]


class EpisodeStatistics:
    """Follows every instance through rollouts; reports the last `window` finished episodes.

    `events` are metrics that tell whether something happened: an episode has one if it did at any of its steps.
    """

    def __init__(
        self, num_envs: int, window: int = 100, events: Iterable[str] = EVENTS, trials: Trials | None = None
    ) -> None:
        self.running = torch.zeros(2, num_envs, dtype=torch.float64)
        """Return and length of the present episodes [2, B]."""
        self._window = window
        self.returns: deque[float] = deque(maxlen=window)
        self.lengths: deque[int] = deque(maxlen=window)
        self.finished = 0
        self.faults = self.steps = 0
        """Steps in which physics failed, and all steps."""
        self.events = frozenset(events)
        self.trials = None if trials is None else TrialStatistics(trials)
        self.running_events: dict[str, Tensor] = {}
        self._happened: dict[str, float] = {}
        """By event, in how many of the episodes it happened that ended in the rollout counted last."""
        self._ended = 0
        """How many those were."""

    @property
    def running_return(self) -> Tensor:
        return self.running[0]

    @property
    def running_length(self) -> Tensor:
        return self.running[1].long()

    def add(self, ws: Workspace) -> None:
        """Count a rollout's raw rewards."""
        self.take(ws, read_at_once(self.count(ws)))

    @torch.no_grad()
    def count(self, ws: Workspace) -> dict[str, Tensor]:
        """Follow the episodes through a rollout; returns what `take` is to be told of it."""
        reward, done = ws["env/reward"], ws["env/done"]
        valid = ws["env/valid"] if "env/valid" in ws else None
        earned = (reward if valid is None else reward * valid).cumsum(0, dtype=torch.float64)
        steps = torch.arange(1, len(done) + 1, device=done.device)[:, None] if valid is None else valid.cumsum(0)
        sums = earned, steps.expand_as(earned)
        before = self.running.to(done.device)
        self.running = before + torch.stack([each[-1] for each in sums])
        told = {"episodes": done.sum()}
        if valid is None:
            self.steps += done.numel()
        else:
            told["steps"] = valid.sum()
        columns = _columns_with_ends(done)
        ended = done.index_select(1, columns)
        if len(columns):
            totals = torch.stack([each.index_select(1, columns) for each in sums])  # [2, T, C]
            episodes, now = _cut(before.index_select(1, columns)[:, None] + totals, ended)
            self.running.index_copy_(1, columns, now)
            told["finished"] = episodes.flatten(1).index_select(1, _last(ended, self._window))
        names = self._events_of(ws)
        if names:
            values = torch.stack([ws[f"env/metric/{name}"] for name in names]).double()  # [E, T, B]
            values = values if valid is None else values * valid
            told["events"] = self._follow_events(names, values, ended, columns)
            if FAULT_METRIC in names:
                told["faults"] = values[names.index(FAULT_METRIC)].sum()
        return told

    def _follow_events(self, names: list[str], values: Tensor, ended: Tensor, columns: Tensor) -> Tensor:
        """Follow events [E, T, B] through the episodes that `ended` [T, C] in `columns`; returns their sums [E]."""
        never = values.new_zeros(values.shape[2])
        before = torch.stack([self.running_events.get(name, never).to(values.device) for name in names])
        running, found = torch.maximum(before, values.amax(1)), values.new_zeros(len(names))
        if len(columns):
            episodes, now = _most(values.index_select(2, columns), before.index_select(1, columns), ended)
            running.index_copy_(1, columns, now)
            found = episodes.sum((1, 2))
        self.running_events |= zip(names, running.unbind(), strict=True)
        return found

    def take(self, ws: Workspace, told: Told) -> None:
        """Keep what was read of `count(ws)`."""
        self._ended = int(told["episodes"][0])
        self.finished += self._ended
        if self._ended:
            returns, lengths = np.reshape(told["finished"], (2, -1))[:, -self._ended :]
            self.returns.extend(returns.tolist())
            self.lengths.extend(lengths.astype(np.int64).tolist())
        self.steps += int(sum(told.get("steps", ())))
        self.faults += int(sum(told.get("faults", ())))
        self._happened = dict(zip(self._events_of(ws), told.get("events", ()), strict=True))
        if self.trials is not None:
            self.trials.add(ws)

    def reset_running_returns(self) -> None:
        """Every instance begins a new episode: drop what was counted of the unfinished ones."""
        self.running = torch.zeros_like(self.running)
        self.running_events.clear()

    @torch.no_grad()
    def means(self, ws: Workspace) -> Tensor:
        """Of the metrics that are no events [n]: their means over a rollout; of totals the sums over ended episodes."""
        done = ws["env/done"]
        weight = ws["env/valid"].float() if "env/valid" in ws else None
        ends = done.float() if len(_columns_with_ends(done)) else None
        found, nothing = [], done.new_zeros((), dtype=torch.float32)
        for name in _metrics_of(ws):
            value = ws[f"env/metric/{name}"]
            if name in self.events:
                continue
            if not name.endswith("_episode"):
                found.append(weighted_mean(value, weight))
            else:
                found.append(nothing if ends is None else (value * ends).sum())
        return torch.stack(found) if found else done.new_zeros(0)

    def metrics(self, ws: Workspace, told: Told | None = None) -> dict[str, float]:
        """`train/*` of the finished episodes and `env/*`, means over this rollout (events: per finished episode).

        `told` holds what was read of `means(ws)`; None: read it now.
        """
        means = iter((told or read_at_once({"means": self.means(ws)}))["means"])
        found: dict[str, float] = {EPISODES: float(self.finished)}
        if self.returns:
            found["train/return"] = float(np.mean(self.returns))
            found["train/length"] = float(np.mean(self.lengths))
        for name in _metrics_of(ws):
            value = self._happened.get(name, 0.0) if name in self.events else next(means)
            if name not in self.events and not name.endswith("_episode"):
                found[f"env/{name}"] = value
            elif self._ended:
                found[f"env/{name}"] = value / self._ended
        return found if self.trials is None else found | self.trials.metrics()

    def state_dict(self) -> dict[str, Any]:
        return {
            "running_return": self.running_return.cpu().clone(),
            "running_length": self.running_length.cpu(),
            "returns": list(self.returns),
            "lengths": list(self.lengths),
            "finished": self.finished,
            "faults": [self.faults, self.steps],
            "events": {name: value.cpu().clone() for name, value in self.running_events.items()},
            **({} if self.trials is None else {"trials": self.trials.state_dict()}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.running = torch.stack((state["running_return"], state["running_length"]))
        self.returns = deque(state["returns"], maxlen=self._window)
        self.lengths = deque(state["lengths"], maxlen=self._window)
        self.finished = state["finished"]
        self.faults, self.steps = state.get("faults", (0, 0))
        self.running_events = {name: value.clone() for name, value in state.get("events", {}).items()}
        if self.trials is not None:
            self.trials.load_state_dict(state.get("trials", {}))

    def _events_of(self, ws: Workspace) -> list[str]:
        return [name for name in _metrics_of(ws) if name in self.events]


def _metrics_of(ws: Workspace) -> list[str]:
    return [name.removeprefix("env/metric/") for name in ws.keys() if name.startswith("env/metric/")]


def _tells_sizes(values: Tensor) -> bool:
    """Whether how many entries are true is known at once; a GPU would have to be waited for. Tests say no on the CPU,
    where either way gives the same numbers."""
    return not values.is_cuda


def _columns_with_ends(done: Tensor) -> Tensor:
    """The columns of `done` [T, B] in which an episode ended; all of them where that is not known at once."""
    return done.any(0).nonzero().flatten() if _tells_sizes(done) else torch.arange(done.shape[1], device=done.device)


def _last(ended: Tensor, window: int) -> Tensor:
    """Where the last `window` true entries of [T, C] lie when it is flat, in order; always as many, with 0 in front,
    where it is not known how many there are."""
    flat = ended.flatten()
    if _tells_sizes(flat):
        return flat.nonzero().flatten()[-window:]
    places = torch.where(flat, torch.arange(len(flat), device=flat.device), 0)
    return places.topk(min(window, len(flat))).values.flip(0)


def _cut(totals: Tensor, ended: Tensor) -> tuple[Tensor, Tensor]:
    """Cut sums over time [K, T, C] at the ends [T, C] of episodes: the sum of each row's episode up to it [K, T, C],
    and that of the episode that goes on behind the last row [K, C]."""
    rows = torch.arange(1, len(ended) + 1, device=ended.device)[:, None]
    begins = torch.where(ended, rows, 0).cummax(0).values  # in which row the episode behind each row began
    begins = torch.cat((torch.zeros_like(begins[:1]), begins)).expand(len(totals), -1, -1)
    base = torch.cat((torch.zeros_like(totals[:, :1]), totals), 1).gather(1, begins)
    return totals - base[:, :-1], totals[:, -1] - base[:, -1]


def _most(values: Tensor, before: Tensor, ended: Tensor) -> tuple[Tensor, Tensor]:
    """The largest of `values` [E, T, C] in each episode, `before` [E, C] among those of the first: of those that
    `ended` [T, C], by their number in their column and 0 behind them [E, T + 1, C], and of the present one [E, C]."""
    number = ended.cumsum(0)
    last = number[-1:]
    found = torch.cat((before[:, None], torch.zeros_like(values)), 1)
    found.scatter_reduce_(1, (number - ended.long()).expand_as(values), values, "amax")
    is_over = torch.arange(len(ended) + 1, device=ended.device)[:, None] < last
    return found * is_over, found.gather(1, last.expand(len(values), -1, -1))[:, 0]
