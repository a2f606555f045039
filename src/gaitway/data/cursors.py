"""Cursors: recorded episodes read step by step, one cursor per instance, as if they were being played.

    cursors = Cursors(Trajectories("data/teacher"), num_envs=64, loops=None, shuffle=True)
    ws = cursors.rows(32)                       # env/obs/*, action, env/reward, ...: [32, 64, ...]

A cursor goes through an episode and takes the next one from a common list, so that every pass over the dataset gives
each step once. The last step of an episode is marked as its end; the row behind it is the first one of another episode.
A set that grows is followed: every pass begins with a look at the index. Positions are kept on the CPU, episodes on the
device; no step is a loop over instances.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaitway.core.ranks import own_stream
from gaitway.core.seeding import restore_stream
from gaitway.core.transitions import FINAL, OBSERVATION
from gaitway.core.workspace import Workspace
from gaitway.data.dataset import check_finite
from gaitway.data.episodes import REWARD, TERMINATED, TRUNCATED, VALID, DatasetError, Episodes, EpisodeSource
from gaitway.data.trajectories import Chunk, Trajectories
from gaitway.envs.vec_env import Step

PATIENCE_S = 60.0
"""How long a set that is followed may stay empty."""
PAUSE_S = 0.2


def open_followed(path: str | Path, patience_s: float = PATIENCE_S) -> Trajectories:
    """The dataset at `path`, which somebody has begun to record or is about to: a minute is waited for it."""
    until = time.monotonic() + patience_s
    while True:
        try:
            return Trajectories(path)
        except DatasetError:
            if time.monotonic() >= until:
                raise
        time.sleep(PAUSE_S)


class Cursors:
    """`num_envs` readers of the episodes of `source`.

    `loops` is the number of passes, None for no end; then cursors without an episode rest, and their rows are not
    valid. More cursors than there are episodes to give begin with episodes drawn with replacement. `shuffle` draws the
    order of every pass. An episode begins at a frame drawn from `start_frames`, low <= frame < high, at its last step
    if it is shorter. `keep_latest` reads so many of the newest episodes alone. `follow` looks for new episodes before
    every pass, and waits `patience_s` seconds for the first.
    """

    def __init__(
        self,
        source: EpisodeSource,
        num_envs: int,
        *,
        loops: int | None = 1,
        shuffle: bool = False,
        start_frames: tuple[int, int] = (0, 1),
        keep_latest: int | None = None,
        follow: bool = False,
        groups: Iterable[str] | None = None,
        device: torch.device | str = "cpu",
        seed: int = 0,
        patience_s: float = PATIENCE_S,
    ) -> None:
        low, high = start_frames
        if num_envs < 1 or (loops is not None and loops < 1) or (keep_latest is not None and keep_latest < 1):
            raise ValueError(
                f"num_envs {num_envs}, loops {loops}, keep_latest {keep_latest}: use numbers of at least 1"
            )
        if not 0 <= low < high:
            raise ValueError(
                f"start_frames is {low}, {high}; use the first frame and the one behind the last, 0 <= a < b"
            )
        if follow and not isinstance(source, Trajectories):
            raise ValueError("only a folder that `gaitway collect` writes can be followed; set follow to false")
        self.source, self.num_envs, self.loops, self.shuffle = source, num_envs, loops, shuffle
        self.start_frames, self.keep_latest, self.follow = (low, high), keep_latest, follow
        self.device, self.patience_s = torch.device(device), patience_s
        self._groups = None if groups is None else tuple(groups)
        self._generator = own_stream(seed, "dataset")
        self._variables: dict[str, Tensor] = {}
        self._numbers = np.zeros(0, np.int64)
        """Number of every episode in memory, counted from the beginning of the dataset; increasing."""
        self._lengths, self._starts = self._numbers, self._numbers
        self._wait()
        self.restart()

    def restart(self) -> None:
        """Begin the first pass again."""
        self.passes, self._order, self._next = 0, np.zeros(0, np.int64), 0
        self._episode = np.full(self.num_envs, -1)
        self._frame = np.zeros(self.num_envs, np.int64)
        self._active = np.zeros(self.num_envs, bool)
        self._take(np.ones(self.num_envs, bool))
        missing = ~self._active
        if missing.any():
            drawn = torch.randint(len(self._numbers), (int(missing.sum()),), generator=self._generator)
            self._place(missing, self._numbers[drawn.numpy()])

    @property
    def exhausted(self) -> bool:
        """Whether every pass is over."""
        return not self._active.any()

    @property
    def num_episodes(self) -> int:
        """Episodes in memory."""
        return len(self._numbers)

    def observation(self) -> dict[str, Tensor]:
        """What is seen at the present frames, `{group: [B, ...]}`."""
        row = self._row(self._observation_row())
        return {name: self._variables[OBSERVATION + name].index_select(0, row) for name in self.groups}

    def recorded(self, name: str) -> Tensor:
        """Step variable `name` (`action`, an extra one) of the present frames, [B, ...]."""
        return self._variables[name].index_select(0, self._row(self._step_row()))

    def has(self, name: str) -> bool:
        """Whether the dataset holds variable `name`."""
        return name in self._variables

    def advance(self) -> Step:
        """What came of the present step, as an environment tells it; every cursor moves on."""
        active = torch.from_numpy(self._active.copy()).to(self.device)
        reward, terminated, truncated = (self.recorded(name) for name in (REWARD, TERMINATED, TRUNCATED))
        self._frame += self._active
        final = self.observation()
        self._take(self._active & (self._frame >= self._lengths[self._slot()]))
        zero = torch.zeros((), dtype=reward.dtype, device=self.device)
        flags = terminated & active, truncated & active
        return Step(self.observation(), torch.where(active, reward, zero), *flags, final, {}, valid=active)

    def rows(self, count: int) -> Workspace:
        """The next `count` steps of every cursor as step rows [count, B, ...], with `env/valid`."""
        extras = [name for name in self._variables if not name.startswith((OBSERVATION, "env/"))]
        columns: dict[str, list[Tensor]] = {}

        def put(name: str, value: Tensor) -> None:
            columns.setdefault(name, []).append(value)

        for name, value in self.observation().items():
            put(OBSERVATION + name, value)
        for _ in range(count):
            for name in extras:
                put(name, self.recorded(name))
            step = self.advance()
            for name, value in step.obs.items():
                put(OBSERVATION + name, value)
                put(FINAL + name, step.final_obs[name])
            assert step.valid is not None
            for name, value in ((REWARD, step.reward), (TERMINATED, step.terminated), (TRUNCATED, step.truncated)):
                put(name, value)
            put(VALID, step.valid)
        return Workspace.packed({name: torch.stack(values) for name, values in columns.items()})

    @property
    def elapsed(self) -> Tensor:
        """Frame of every cursor in its episode, int64 [B]."""
        return torch.from_numpy(self._frame.copy())

    def state_dict(self) -> dict[str, Any]:
        positions = {"episode": self._episode, "frame": self._frame, "active": self._active, "order": self._order}
        chunks = {chunk.name: chunk.sha256 for chunk in self._listed()}
        counts = {"next": self._next, "passes": self.passes, "chunks": chunks}
        found = {name: torch.from_numpy(value.copy()) for name, value in positions.items()}
        return found | counts | {"stream": self._generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the cursors stood that gave `state`. Episodes that a followed set has dropped since are skipped;
        others must be there, unchanged."""
        if isinstance(self.source, Trajectories) and self.follow:
            self.source.refresh()
        for chunk in self._listed():
            before = state["chunks"].get(chunk.name)
            if before is not None and chunk.sha256 is not None and before != chunk.sha256:
                raise DatasetError(
                    f"chunk {chunk.name} of the dataset {getattr(self.source, 'folder', '')} has changed since this "
                    "run read it; restore it, or begin a new run"
                )
        self._episode, self._frame, self._active = (
            state[name].numpy().copy() for name in ("episode", "frame", "active")
        )
        self._order, self._next, self.passes = state["order"].numpy().copy(), state["next"], state["passes"]
        restore_stream(self._generator, state["stream"])
        self._load(np.concatenate((self._episode, self._order[self._next :])))
        here = np.isin(self._order, self._numbers)
        if not self.follow and not (here.all() and np.isin(self._episode, self._numbers).all()):
            raise DatasetError("the dataset has lost episodes that this run reads; restore it, or begin a new run")
        self._next = int(here[: self._next].sum())
        self._order = self._order[here]
        self._take(self._active & ~np.isin(self._episode, self._numbers))

    # Which episodes are in memory

    def _wait(self) -> None:
        """Read the dataset; a set that is followed may still be empty for a while."""
        until = time.monotonic() + self.patience_s
        while True:
            if isinstance(self.source, Trajectories) and self.follow:
                self.source.refresh()
            if self.source.num_steps:
                return self._load(self._numbers)
            if not self.follow or time.monotonic() >= until:
                waited = (
                    f" after {self.patience_s:.0f} seconds; is its recorder running?"
                    if self.follow
                    else "; record some"
                )
                raise DatasetError(f"the dataset {getattr(self.source, 'folder', '')} holds no episodes{waited}")
            time.sleep(PAUSE_S)

    def _listed(self) -> list[Chunk]:
        return self.source.listed if isinstance(self.source, Trajectories) else []

    def _load(self, in_use: np.ndarray) -> None:
        """Have the kept episodes in memory, and those `in_use` as long as they can be found; read what is new."""
        for _ in range(10):
            try:
                return self._load_listed(in_use)
            except DatasetError:
                if not (self.follow and isinstance(self.source, Trajectories) and self.source.refresh()):
                    raise  # else the writer dropped a chunk meanwhile
        raise DatasetError(
            f"chunks of {getattr(self.source, 'folder', '')} vanish faster than they are read; keep more"
        )

    def _load_listed(self, in_use: np.ndarray) -> None:
        total, parts = 0, []
        chunks: list[tuple[int, int, Any]] = []
        if isinstance(self.source, Trajectories):
            chunks = [(chunk.first, chunk.episodes, chunk) for chunk in self.source.listed]
        else:
            for episodes in self.source.chunks():
                chunks.append((total, len(episodes), episodes))
                total += len(episodes)
        end = chunks[-1][0] + chunks[-1][1]
        first_kept = chunks[0][0] if self.keep_latest is None else max(chunks[0][0], end - self.keep_latest)
        wanted = np.union1d(np.arange(first_kept, end), in_use[in_use >= 0])
        known = np.isin(wanted, self._numbers)
        numbers = []
        if known.any():
            parts.append(self._held(wanted[known]))
            numbers.append(wanted[known])
        new = wanted[~known]
        for first, count, content in chunks:
            here = new[(new >= first) & (new < first + count)]
            if len(here):
                episodes = self.source.read(content) if isinstance(content, Chunk) else content  # type: ignore[attr-defined]
                check_finite(episodes, f"the dataset {getattr(self.source, 'folder', '')}".strip())
                episodes = self._read_alone(episodes)
                parts.append(episodes.select((here - first).tolist()) if len(here) < count else episodes)
                numbers.append(here)
        if len(parts) == 1 and len(numbers[0]) == len(self._numbers) and known.all():
            return  # nothing has come or gone
        order = np.argsort(np.concatenate(numbers), kind="stable")
        held = Episodes.cat(parts)
        held = held if (np.diff(order) == 1).all() else held.select(order.tolist())
        self._numbers = np.concatenate(numbers)[order]
        self._first_kept = first_kept
        self._lengths = np.array(held.lengths, np.int64)
        self._starts = self._lengths.cumsum() - self._lengths
        names = [name.removeprefix(OBSERVATION) for name in held.variables if name.startswith(OBSERVATION)]
        self.groups = tuple(names if self._groups is None else self._groups)
        self._variables = {name: value.to(self.device) for name, value in held.variables.items()}

    def _read_alone(self, episodes: Episodes) -> Episodes:
        """The episodes without observation groups that nobody reads."""
        if self._groups is None:
            return episodes
        read = {OBSERVATION + name for name in self._groups}
        kept = {n: value for n, value in episodes.variables.items() if not n.startswith(OBSERVATION) or n in read}
        return Episodes(kept, episodes.lengths)

    def _held(self, numbers: np.ndarray) -> Episodes:
        """These episodes from memory."""
        variables = {name: value.cpu() for name, value in self._variables.items()}
        held = Episodes(variables, tuple(self._lengths.tolist()))
        return held.select(np.searchsorted(self._numbers, numbers).tolist())

    # Where the cursors are

    def _take(self, needy: np.ndarray) -> None:
        """Give the cursors where `needy` [B] the next episodes; those without one rest."""
        count, found = int(needy.sum()), np.zeros(0, np.int64)
        while len(found) < count:
            if self._next == len(self._order) and not self._new_pass(np.append(self._episode[~needy], found)):
                break
            more = self._order[self._next : self._next + count - len(found)]
            self._next += len(more)
            found = np.concatenate((found, more))
        places = needy.nonzero()[0]
        resting = places[len(found) :]
        self._active[resting] = False
        gone = resting[~np.isin(self._episode[resting], self._numbers)]
        self._episode[gone], self._frame[gone] = self._numbers[0], 0  # rows that are not valid hold any observation
        chosen = np.zeros(self.num_envs, bool)
        chosen[places[: len(found)]] = True
        self._place(chosen, found)

    def _place(self, chosen: np.ndarray, episodes: np.ndarray) -> None:
        """Put the cursors where `chosen` at the beginning of `episodes`."""
        if not len(episodes):
            return
        low, high = self.start_frames
        frames = np.full(len(episodes), low)
        if high - low > 1:
            frames += torch.randint(high - low, (len(episodes),), generator=self._generator).numpy()
        self._episode[chosen], self._active[chosen] = episodes, True
        self._frame[chosen] = np.minimum(frames, self._lengths[np.searchsorted(self._numbers, episodes)] - 1)

    def _new_pass(self, in_use: np.ndarray) -> bool:
        """List the episodes of another pass; False after the last."""
        if self.loops is not None and self.passes >= self.loops:
            return False
        if self.follow and self.passes and isinstance(self.source, Trajectories):
            self.source.refresh()
            self._load(in_use)
        self._order, self._next = self._numbers[self._numbers >= self._first_kept], 0
        if self.shuffle:
            self._order = self._order[torch.randperm(len(self._order), generator=self._generator).numpy()]
        self.passes += 1
        return True

    def _slot(self) -> np.ndarray:
        """Place of every cursor's episode in memory, [B]."""
        return np.searchsorted(self._numbers, self._episode)

    def _step_row(self) -> np.ndarray:
        slot = self._slot()
        return self._starts[slot] + np.minimum(self._frame, self._lengths[slot] - 1)

    def _observation_row(self) -> np.ndarray:
        slot = self._slot()
        return self._starts[slot] + slot + self._frame

    def _row(self, row: np.ndarray) -> Tensor:
        return torch.from_numpy(row).to(self.device)
