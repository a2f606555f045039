"""Courses that are walked along +x: how far a robot came, counted in items passed.

Items (hurdles, bars, steps, platforms) have sorted places. The next item is the number of places strictly below the
torso's x. A step scores 1 if that number reached a new maximum in it, however many items were passed at once.
"""

from __future__ import annotations

import numpy as np
from mujoco.batch import Batch

from gaitway.core.config import configuration
from gaitway.envs.batch_task import Rows
from gaitway.envs.tasks.bisk.base import ALL, SHAPED, BiskConfig, BiskTask


@configuration(kw_only=True)
class CorridorConfig(BiskConfig):
    """Options of all courses that are walked along +x."""

    shaped: bool = False
    """Pays the way made in x (m) in each step instead of the score; a fall still costs 1."""


class Progress:
    """Next and best item of every instance, found by moving on from the last ones.

    `padded` [B, count + 2] holds the places between -inf and inf, so that entry `next` lies below x and entry
    `next + 1` does not. That costs four gathers however many items there are.
    """

    def __init__(self, num_envs: int, count: int) -> None:
        self.count = count
        self.padded = np.full((num_envs, count + 2), np.inf)
        self.padded[:, 0] = -np.inf
        self.positions = self.padded[:, 1:-1]
        self.next = np.zeros(num_envs, dtype=np.int64)
        self.best = np.zeros(num_envs, dtype=np.int64)
        self._flat = self.padded.reshape(-1)
        self._first = np.arange(num_envs) * (count + 2)

    def begin(self, rows: Rows, x: np.ndarray) -> None:
        """Robots stand at x [n], and what they did before does not count."""
        self._move(rows, x)
        self.best[rows] = self.next[rows]

    def update(self, x: np.ndarray) -> np.ndarray:
        """Move on to x [B]; returns where the best became better [B]."""
        self._move(ALL, x)
        improved = self.next > self.best
        np.maximum(self.best, self.next, out=self.best)
        return improved

    def entries(self, rows: Rows, padded: np.ndarray, offset: int = 0) -> np.ndarray:
        """Of `padded` [B, count + 2] the entries of the next item (or `offset` items further) [n]."""
        return self.entries_of(rows, padded, self.next[rows] + offset)

    def entries_of(self, rows: Rows, padded: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Of `padded` [B, count + 2] those of `items` [n] or [n, k]; -1 and all above the last are padding."""
        first = self._first[rows].reshape(-1, *[1] * (items.ndim - 1))
        return padded.reshape(-1)[first + np.minimum(items, self.count) + 1]

    def _move(self, rows: Rows, x: np.ndarray) -> None:
        """Count the items strictly below x [n], beginning at the last count."""
        first, count = self._first[rows], self.next[rows]
        while True:
            at = first + count
            ahead = self._flat[at + 1] < x
            behind = self._flat[at] >= x
            if not (np.count_nonzero(ahead) or np.count_nonzero(behind)):
                break
            count = count + ahead - behind
        self.next[rows] = count

    def is_over(self, rows: Rows) -> np.ndarray:
        """Where there is no next item [n]."""
        return self.next[rows] >= self.count

    def fresh(self, rows: Rows) -> np.ndarray:
        """Where the next item has not been passed before [n]."""
        return self.next[rows] >= self.best[rows]


class CorridorTask(BiskTask):
    """Pass items along +x. Subclasses say where they are (`derive`). The shaped form pays the way made in x."""

    metrics = ("score", "fell", SHAPED)
    num_items: int
    config: CorridorConfig

    def derive(self, rows: Rows) -> None:
        """Compute from the layout of `rows` where items are (`progress.positions`), and whatever else follows from it.

        Runs when episodes begin and when a state is restored.
        """
        raise TypeError(f"{type(self).__name__} does not implement derive")

    def attach(self, batch: Batch) -> None:
        super().attach(batch)
        self.progress = Progress(batch.nsim, self.num_items)
        self.memory["next"], self.memory["best"] = self.progress.next, self.progress.best
        self._x_before = np.zeros(batch.nsim)
        self._improved = np.zeros(batch.nsim, dtype=bool)

    def x(self, rows: Rows = ALL) -> np.ndarray:
        """Where the torso is in x (m) [n]."""
        return self.qpos[rows, self.view.forward]

    def place(self, rows: Rows) -> None:
        self.derive(rows)
        self.progress.next[rows] = 0
        self.progress.begin(rows, self.x(rows))

    def begin(self, rows: Rows) -> None:
        self.progress.begin(rows, self.x(rows))

    def restore(self) -> None:
        self.derive(ALL)

    def before_step(self) -> None:
        np.copyto(self._x_before, self.x())

    def judge(self, fell: np.ndarray, score: np.ndarray, reward: np.ndarray, terminated: np.ndarray) -> None:
        score[:] = self.progress.update(self.x())
        np.subtract(self.x(), self._x_before, out=self.shaped_reward)
        reward[:] = self.shaped_reward if self.config.shaped else score
