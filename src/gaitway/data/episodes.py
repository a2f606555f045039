"""Episodes: whole episodes in memory, one after the other, and the two shapes in which learning wants them.

This is what datasets are read as, whatever they lie in: `Trajectories` (our own files) and `MinariEpisodes` hand out
chunks of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from gaitway.core.files import StateFileError
from gaitway.core.transitions import FINAL, OBSERVATION, SHORT_NAMES, over_events
from gaitway.core.workspace import Workspace

REWARD, TERMINATED, TRUNCATED, VALID = "env/reward", "env/terminated", "env/truncated", "env/valid"


class DatasetError(StateFileError):
    """A dataset cannot be read or written; the message is one sentence that names the fix."""


class EpisodeSource(Protocol):
    """Anything that episodes are read from."""

    @property
    def num_steps(self) -> int: ...

    def chunks(self) -> Iterator[Episodes]:
        """All episodes in order, a part of them at a time."""
        ...


@dataclass(frozen=True)
class Episodes:
    """K episodes of N steps together.

    An episode that ended with neither flag was cut off: its last step counts as truncated, so that values bootstrap
    from the observation it reached and nothing leaks into the episode behind it.
    """

    variables: Mapping[str, Tensor]
    """By workspace name: step variables `[N, *e]`; `env/obs/<group>` `[N + K, *e]`, where the row after the last step
    of an episode is the observation it reached."""
    lengths: tuple[int, ...]
    """Steps of each episode, at least 1."""

    def __post_init__(self) -> None:
        if min(self.lengths, default=1) < 1:
            raise ValueError("an episode has no steps; leave it out")
        for name in (REWARD, TERMINATED, TRUNCATED, "action"):
            if name not in self.variables:
                raise ValueError(f"the episodes have no {name!r}; they hold {sorted(self.variables)}")
        for name, value in self.variables.items():
            rows = self.num_steps + (self.num_episodes if name.startswith(OBSERVATION) else 0)
            if len(value) != rows:
                raise ValueError(
                    f"{name!r} has {len(value)} rows; {len(self)} episodes of {self.num_steps} steps take {rows}"
                )
        last = self._starts() + torch.tensor(self.lengths, dtype=torch.int64) - 1
        terminated, truncated = self.variables[TERMINATED], self.variables[TRUNCATED]
        closed = truncated & ~terminated  # never both: termination wins
        closed[last] = ~terminated[last]
        if not torch.equal(closed, truncated):
            object.__setattr__(self, "variables", {**self.variables, TRUNCATED: closed})

    @property
    def num_steps(self) -> int:
        return sum(self.lengths)

    @property
    def num_episodes(self) -> int:
        return len(self.lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def chunks(self) -> Iterator[Episodes]:
        """Itself, as every source of episodes has it."""
        yield self

    @staticmethod
    def cat(parts: Sequence[Episodes]) -> Episodes:
        """All episodes of `parts`, in their order; the variables must agree."""
        if not parts:
            raise ValueError("no episodes to put together; pass at least one part")
        first = parts[0].variables
        for part in parts[1:]:
            difference = first.keys() ^ part.variables.keys()
            if difference:
                raise ValueError(f"the parts differ in variables {sorted(difference)}; all need them")
        variables = {name: torch.cat([part.variables[name] for part in parts]) for name in first}
        return Episodes(variables, tuple(length for part in parts for length in part.lengths))

    def select(self, index: Sequence[int]) -> Episodes:
        """The episodes with these numbers, in this order."""
        starts = self._starts().tolist()
        steps, rows = [], []
        for number in index:
            if not 0 <= number < self.num_episodes:
                raise IndexError(f"there is no episode {number}; they are 0..{self.num_episodes - 1}")
            start, length = starts[number], self.lengths[number]
            steps.append(torch.arange(start, start + length))
            rows.append(torch.arange(start + number, start + number + length + 1))
        empty = [torch.zeros(0, dtype=torch.int64)]
        picked = {True: torch.cat(rows or empty), False: torch.cat(steps or empty)}
        variables = {name: value[picked[name.startswith(OBSERVATION)]] for name, value in self.variables.items()}
        return Episodes(variables, tuple(self.lengths[number] for number in index))

    def transitions(self) -> dict[str, Tensor]:
        """Named fields `[N, *e]` in order of time, with the names of `Workspace.transitions`."""
        row = torch.arange(self.num_steps) + self._episode()
        fields: dict[str, Tensor] = {}
        for name, value in self.variables.items():
            if name.startswith(OBSERVATION):
                group = name.removeprefix(OBSERVATION)
                fields[f"obs/{group}"], fields[f"next_obs/{group}"] = value[row], value[row + 1]
            else:
                fields[SHORT_NAMES.get(name, name)] = value
        return fields

    def workspace(self) -> Workspace:
        """Step rows `[T, K, *e]`, one episode per column, T that of the longest.

        `env/valid` is false behind the end of an episode: such rows hold zeros and the observation it reached, and
        count neither as steps nor in any loss, return or replay.
        """
        if not self.lengths:
            raise ValueError("there are no episodes to lay side by side; select at least one")
        lengths, starts = torch.tensor(self.lengths), self._starts()
        time = torch.arange(int(lengths.max()) + 1).unsqueeze(1)  # [T + 1, 1]
        valid = time[:-1] < lengths
        step = starts + torch.minimum(time[:-1], lengths - 1)
        row = starts + torch.arange(self.num_episodes) + torch.minimum(time, lengths)
        tensors = {}
        for name, value in self.variables.items():
            if name.startswith(OBSERVATION):
                tensors[name] = value[row]
            else:
                steps = value[step]
                tensors[name] = torch.where(over_events(valid, steps), steps, torch.zeros((), dtype=value.dtype))
        return Workspace.packed({**tensors, VALID: valid})

    @staticmethod
    def from_transitions(fields: Mapping[str, Tensor], lengths: Sequence[int]) -> Episodes:
        """The inverse of `transitions`: fields `[N, *e]`, episode by episode."""
        ends = torch.tensor(lengths, dtype=torch.int64).cumsum(0)
        steps = int(ends[-1]) if len(ends) else 0
        # a step lies as many rows further down as episodes ended before it
        row = torch.arange(steps) + torch.bucketize(torch.arange(steps), ends, right=True)
        names = {short: name for name, short in SHORT_NAMES.items()}
        variables = {}
        for name, value in fields.items():
            if name.startswith("obs/"):
                observations = value.new_empty((steps + len(ends), *value.shape[1:]))
                observations[row] = value
                observations[ends + torch.arange(len(ends))] = fields[f"next_{name}"][ends - 1]
                variables[OBSERVATION + name.removeprefix("obs/")] = observations
            elif not name.startswith(("next_obs/", FINAL)):
                variables[names.get(name, name)] = value
        return Episodes(variables, tuple(lengths))

    def _starts(self) -> Tensor:
        """First step of each episode, int64 `[K]`."""
        lengths = torch.tensor(self.lengths, dtype=torch.int64)
        return lengths.cumsum(0) - lengths

    def _episode(self) -> Tensor:
        """Number of the episode of each step, int64 `[N]`."""
        return torch.repeat_interleave(torch.tensor(self.lengths, dtype=torch.int64))


def load_episodes(source: EpisodeSource) -> Episodes:
    """All episodes of a source in memory."""
    return Episodes.cat(list(source.chunks()))
