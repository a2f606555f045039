"""Returns and lengths of the episodes that end while training, and means of the environment's metrics."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from gaitway.core.workspace import Workspace
from gaitway.envs.trials import Trials, TrialStatistics
from gaitway.envs.vec_env import EVENTS
from gaitway.functional.policy_losses import weighted_mean

EPISODES = "train/episodes"
"""The metric that says how many have ended."""


class EpisodeStatistics:
    """Follows every instance through rollouts; reports the last `window` finished episodes.

    `events` are metrics that tell whether something happened: an episode has one if it did at any of its steps.
    """

    def __init__(
        self, num_envs: int, window: int = 100, events: Iterable[str] = EVENTS, trials: Trials | None = None
    ) -> None:
        self.running_return = np.zeros(num_envs)
        self.running_length = np.zeros(num_envs, dtype=np.int64)
        self.returns: deque[float] = deque(maxlen=window)
        self.lengths: deque[int] = deque(maxlen=window)
        self.finished = 0
        self.events = frozenset(events)
        self.trials = None if trials is None else TrialStatistics(trials)
        self.running_events: dict[str, np.ndarray] = {}
        self._happened: dict[str, list[float]] = {}
        """By event, one number for each episode that ended in the rollout counted last."""

    def add(self, ws: Workspace) -> None:
        """Count a rollout's raw rewards; Python work only for episodes that ended."""
        reward = ws["env/reward"].cpu().numpy().astype(np.float64)
        counted = np.ones(reward.shape, dtype=np.int64)
        if "env/valid" in ws:
            counted = ws["env/valid"].cpu().numpy().astype(np.int64)
        total = self.running_return + np.cumsum(reward * counted, axis=0)
        length = self.running_length + np.cumsum(counted, axis=0)
        self.running_return, self.running_length = total[-1].copy(), length[-1].copy()
        rows, columns = np.nonzero(ws["env/done"].cpu().numpy())
        base_return = np.zeros(len(self.running_return))
        base_length = np.zeros(len(self.running_length), dtype=np.int64)
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            self.returns.append(float(total[row, column] - base_return[column]))
            self.lengths.append(int(length[row, column] - base_length[column]))
            base_return[column], base_length[column] = total[row, column], length[row, column]
            self.finished += 1
        self.running_return -= base_return
        self.running_length -= base_length
        if self.trials is not None:
            self.trials.add(ws)
        for name in [name for name in _metrics_of(ws) if name in self.events]:
            value = ws[f"env/metric/{name}"].cpu().numpy() * counted
            self._add_event(name, value, rows, columns)

    def _add_event(self, name: str, value: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> None:
        """Follow an event [T, B] through the episodes that end at `rows`, `columns`, in the order of rows."""
        before = self.running_events.setdefault(name, np.zeros(value.shape[1]))
        first = np.zeros(value.shape[1], dtype=np.int64)  # the row in which the present episode of a column begins
        self._happened[name] = []
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            happened = value[first[column] : row + 1, column].max()
            self._happened[name].append(float(max(before[column], happened)))
            before[column], first[column] = 0.0, row + 1
        present = np.arange(len(value))[:, None] >= first
        np.maximum(before, (value * present).max(0), out=before)

    def reset_running_returns(self) -> None:
        """Every instance begins a new episode: drop what was counted of the unfinished ones."""
        self.running_return[:] = 0.0
        self.running_length[:] = 0
        self.running_events.clear()

    def metrics(self, ws: Workspace) -> dict[str, float]:
        """`train/*` of the finished episodes and `env/*`, means over this rollout (events: per finished episode)."""
        found: dict[str, float] = {EPISODES: float(self.finished)}
        if self.returns:
            found["train/return"] = float(np.mean(self.returns))
            found["train/length"] = float(np.mean(self.lengths))
        done = ws["env/done"]
        weight = ws["env/valid"].float() if "env/valid" in ws else None
        ends = float(done.sum())
        for name in _metrics_of(ws):
            value = ws[f"env/metric/{name}"]
            if name in self.events:
                if self._happened.get(name):
                    found[f"env/{name}"] = float(np.mean(self._happened[name]))
            elif name.endswith("_episode"):
                if ends:
                    found[f"env/{name}"] = float((value * done).sum()) / ends
            else:
                found[f"env/{name}"] = float(weighted_mean(value, weight))
        return found if self.trials is None else found | self.trials.metrics()

    def state_dict(self) -> dict[str, Any]:
        return {
            "running_return": torch.from_numpy(self.running_return.copy()),
            "running_length": torch.from_numpy(self.running_length.copy()),
            "returns": list(self.returns),
            "lengths": list(self.lengths),
            "finished": self.finished,
            "events": {name: torch.from_numpy(value.copy()) for name, value in self.running_events.items()},
            **({} if self.trials is None else {"trials": self.trials.state_dict()}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.running_return = state["running_return"].numpy().copy()
        self.running_length = state["running_length"].numpy().copy()
        self.returns = deque(state["returns"], maxlen=self.returns.maxlen)
        self.lengths = deque(state["lengths"], maxlen=self.lengths.maxlen)
        self.finished = state["finished"]
        self.running_events = {name: value.numpy().copy() for name, value in state.get("events", {}).items()}
        if self.trials is not None:
            self.trials.load_state_dict(state.get("trials", {}))


def _metrics_of(ws: Workspace) -> list[str]:
    return [name.removeprefix("env/metric/") for name in ws.keys() if name.startswith("env/metric/")]
