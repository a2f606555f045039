"""Trajectories: episodes on disk, in a folder that grows, or that keeps the latest ones.

    dataset/
      index/           the EnvSpec of the environment, the variables, their codecs, and the list of chunks
      000000/ ...      whole episodes, some thousand steps each: safetensors and JSON, written by core/files.py

A chunk is complete on disk before the index names it, and the index is replaced by one rename: a writer that is killed
leaves the dataset as it was after its last chunk. One writer at a time, while others read: `Trajectories.refresh` looks
for what has come. The index holds a fingerprint of every chunk. Reading a dataset never executes code from it.
"""

from __future__ import annotations

import itertools
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gaitway.core.files import StateFileError, load_state, save_state, tensors_sha256
from gaitway.core.transitions import FINAL, OBSERVATION
from gaitway.core.workspace import Workspace
from gaitway.data.codecs import Codec
from gaitway.data.episodes import REWARD, TERMINATED, TRUNCATED, VALID, DatasetError, Episodes
from gaitway.data.ring import Fields, Variable
from gaitway.envs.spec import EnvSpec

INDEX, CHUNK = "trajectories", "trajectory chunk"
FORMAT = 2
"""Format 1 had no codecs and no fingerprints of chunks; it is still read, and appended to."""
NONE: Fields = {}
NO_CODECS: Mapping[str, Any] = {}
ATTEMPTS, PAUSE_S = 20, 0.05
"""How often an index that is being replaced is read again, and after how long."""


@dataclass(frozen=True)
class Chunk:
    """What the index says of one chunk."""

    name: str
    steps: int
    episodes: int
    first: int
    """Number of its first episode, counted from the beginning of the dataset, dropped ones included."""
    sha256: str | None = None
    """Fingerprint of what is stored; None in datasets of format 1."""


class Trajectories:
    """A dataset that `TrajectoryWriter` wrote, read chunk by chunk."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._read_index()

    def _read_index(self) -> None:
        index = _load(self.folder / "index", INDEX, self.folder)
        if index.get("format") not in range(1, FORMAT + 1):
            raise DatasetError(
                f"{self.folder} is a dataset of format {index.get('format')} and this version reads {FORMAT}; upgrade "
                "gaitway, or record it anew"
            )
        self.spec = EnvSpec.from_dict(index["spec"])
        """The EnvSpec of the environment in which the first episode was recorded."""
        self.extras: dict[str, Variable] = {
            name: (tuple(shape), getattr(torch, dtype)) for name, (shape, dtype) in index["extras"].items()
        }
        """Further step variables, by workspace name: shape and dtype."""
        self.codecs = {name: Codec.of(entry) for name, entry in index.get("codecs", {}).items()}
        """How variables are stored, by workspace name; those that are not listed are stored as they are."""
        self.description: str = index["description"]
        self.written = int(index.get("written", len(index["chunks"])))
        """Chunks that were ever written, dropped ones included."""
        self.listed = _chunks(index["chunks"])
        """The chunks of the dataset, oldest first."""

    def refresh(self) -> bool:
        """Look at the index again; whether chunks have come or gone."""
        before = self.listed
        for attempt in range(ATTEMPTS):
            try:
                self._read_index()
                break
            except DatasetError:  # its writer may be between two renames
                if attempt + 1 == ATTEMPTS:
                    raise
                time.sleep(PAUSE_S)
        return self.listed != before

    @property
    def num_steps(self) -> int:
        return sum(chunk.steps for chunk in self.listed)

    @property
    def num_episodes(self) -> int:
        return sum(chunk.episodes for chunk in self.listed)

    def __len__(self) -> int:
        return self.num_episodes

    def __str__(self) -> str:
        return f"the dataset {self.folder}: {self.num_steps:,} steps in {self.num_episodes:,} episodes so far"

    def chunks(self) -> Iterator[Episodes]:
        """All episodes in order of their recording, a chunk at a time."""
        for chunk in self.listed:
            yield self.read(chunk)

    def episodes(self, index: Sequence[int] | None = None) -> Workspace:
        """Episodes with these numbers (default: all) side by side, as `Episodes.workspace` lays them."""
        wanted = range(self.num_episodes) if index is None else index
        places = [self._place(number) for number in wanted]
        if not places:
            raise ValueError(f"no episodes are asked for; {self.folder} has {self.num_episodes}")
        needed = sorted(set(places))
        parts = [
            self.read(self.listed[chunk]).select([number for _, number in group])
            for chunk, group in itertools.groupby(needed, key=lambda place: place[0])
        ]
        order = {place: number for number, place in enumerate(needed)}
        return Episodes.cat(parts).select([order[place] for place in places]).workspace()

    def transitions(self) -> dict[str, Tensor]:
        """All steps as named fields `[N, *e]`, in order of time."""
        parts = [chunk.transitions() for chunk in self.chunks()]
        if not parts:
            raise ValueError(f"{self.folder} holds no episodes yet; record some first")
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def _place(self, episode: int) -> tuple[int, int]:
        """Chunk of an episode, and its number there."""
        number = episode
        for place, chunk in enumerate(self.listed):
            if 0 <= number < chunk.episodes:
                return place, number
            number -= chunk.episodes
        raise IndexError(f"there is no episode {episode}; {self.folder} has 0..{self.num_episodes - 1}")

    def read(self, chunk: Chunk) -> Episodes:
        """The episodes of one chunk, decoded."""
        place = self.folder / chunk.name
        state = _load(place, CHUNK, self.folder)
        try:
            stored, lengths = state["variables"], state["lengths"]
            decoded = {
                name: self.codecs[name].decode(value) if name in self.codecs else value
                for name, value in stored.items()
            }
            episodes = Episodes(decoded, tuple(lengths.tolist()))
            _check(episodes.variables, self.spec, self.extras)
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise _damaged(self.folder, f"{place} does not fit its index ({error})") from error
        is_listed = (episodes.num_steps, episodes.num_episodes) == (chunk.steps, chunk.episodes)
        if not is_listed or (chunk.sha256 is not None and _fingerprint(stored, lengths) != chunk.sha256):
            raise _damaged(self.folder, f"{place} holds other episodes than the index says")
        return episodes


class TrajectoryWriter:
    """Appends episodes to a dataset; creates the dataset if there is none.

    `spec` is the EnvSpec of the environment; a dataset with other observation groups or actions is refused. `extras`
    are further step variables to store. Complete episodes are written once they add up to `chunk_steps` steps, and
    when the writer is closed. `codecs` say which float32 variables are stored in fewer bytes (data/codecs.py), by
    observation group or by workspace name. With `keep_latest` the oldest chunks are dropped, as long as so many
    episodes are left. `choose` says which complete episodes are kept at all.
    """

    def __init__(
        self,
        folder: str | Path,
        spec: EnvSpec,
        *,
        extras: Fields = NONE,
        codecs: Mapping[str, Any] = NO_CODECS,
        description: str = "",
        chunk_steps: int = 50_000,
        keep_latest: int | None = None,
        choose: Callable[[Episodes], Sequence[bool]] | None = None,
    ) -> None:
        if keep_latest is not None and keep_latest < 1:
            raise ValueError(f"keep_latest is {keep_latest}; use a number of episodes, or None to keep all")
        self.folder, self.spec = Path(folder), spec
        self.extras: dict[str, Variable] = {name: (tuple(shape), dtype) for name, (shape, dtype) in extras.items()}
        self.codecs = _named_codecs(codecs, _contract(spec, self.extras))
        self.description, self.chunk_steps, self.keep_latest = description, chunk_steps, keep_latest
        self.choose = choose
        self.added_steps, self.added_episodes = 0, 0
        """What this writer has taken in, complete episodes alone."""
        self._chunks: list[Chunk] = []
        self._written, self._next_episode = 0, 0
        self._waiting: list[Episodes] = []
        self._open: dict[str, Tensor] = {}
        self._columns, self._num_columns = torch.zeros(0, dtype=torch.int64), 0
        if (self.folder / "index").exists() or (self.folder / ".index.previous").exists():
            self._continue(Trajectories(self.folder))
        elif self.folder.exists() and any(self.folder.iterdir()):
            raise DatasetError(f"{self.folder} holds other things than a dataset; choose an empty folder")
        else:
            self._write_index()

    @property
    def num_chunks(self) -> int:
        """Parts on disk."""
        return len(self._chunks)

    @property
    def num_episodes(self) -> int:
        """Complete episodes, those included that wait in memory for their chunk."""
        return sum(chunk.episodes for chunk in self._chunks) + sum(len(part) for part in self._waiting)

    def add(self, ws: Workspace) -> None:
        """Append the steps of step rows `[T, B]`; unfinished episodes continue in the next call, column by column."""
        kept = {name: ws[name].detach().cpu() for name in _contract(self.spec, self.extras)}
        _check({name: value.flatten(0, 1) for name, value in kept.items()}, self.spec, self.extras)
        finals = [FINAL + name for name in self.spec.group_names]
        kept |= {name: ws[name].detach().cpu() for name in (*finals, VALID) if name in ws}
        steps = Workspace.packed(kept)
        if len(self._columns) and self._num_columns != steps.B:
            raise ValueError(
                f"the last addition had {self._num_columns} environments, this one {steps.B}; call cut() in between"
            )
        self._num_columns = steps.B
        column = torch.arange(steps.B).expand(steps.T, steps.B)
        self._take(steps.transitions(), column[kept[VALID]] if VALID in kept else column.flatten())

    def add_episodes(self, episodes: Episodes) -> None:
        """Append whole episodes."""
        _check(episodes.variables, self.spec, self.extras)
        if len(episodes) and self.choose is not None:
            chosen = self.choose(episodes)
            episodes = episodes.select([number for number, is_kept in enumerate(chosen) if is_kept])
        if len(episodes):
            self.added_steps += episodes.num_steps
            self.added_episodes += len(episodes)
            self._waiting.append(episodes)
            if sum(part.num_steps for part in self._waiting) >= self.chunk_steps:
                self.flush()

    def cut(self) -> None:
        """Call after resetting the environments: unfinished episodes end here as if truncated."""
        if len(self._columns):
            lengths = torch.unique_consecutive(self._columns, return_counts=True)[1]
            unfinished = Episodes.from_transitions(self._open, lengths.tolist())
            self._open, self._columns = {}, self._columns[:0]
            self.add_episodes(unfinished)

    def flush(self) -> None:
        """Write the complete episodes that are still in memory."""
        if not self._waiting:
            return
        episodes = Episodes.cat(self._waiting)
        name, lengths = f"{self._written:06d}", torch.tensor(episodes.lengths)
        stored = {
            variable: self.codecs[variable].encode(value) if variable in self.codecs else value
            for variable, value in episodes.variables.items()
        }
        save_state(self.folder / name, {"variables": stored, "lengths": lengths}, kind=CHUNK)
        sha256 = _fingerprint(stored, lengths)
        self._chunks.append(Chunk(name, episodes.num_steps, len(episodes), self._next_episode, sha256))
        self._written, self._next_episode = self._written + 1, self._next_episode + len(episodes)
        self._waiting = []
        self._drop_chunks(self._superfluous())

    def _superfluous(self) -> int:
        """How many of the oldest chunks `keep_latest` can do without."""
        if self.keep_latest is None:
            return 0
        left, count = sum(chunk.episodes for chunk in self._chunks), 0
        while left - self._chunks[count].episodes >= self.keep_latest:
            left -= self._chunks[count].episodes
            count += 1
        return count

    def _drop_chunks(self, count: int) -> None:
        """Write the index without the `count` oldest chunks, then remove them."""
        dropped, self._chunks = self._chunks[:count], self._chunks[count:]
        self._write_index()
        for chunk in dropped:
            shutil.rmtree(self.folder / chunk.name, ignore_errors=True)

    def drop(self, columns: Tensor) -> None:
        """Forget the unfinished episodes of the environments where `columns` [B] is true."""
        keep = ~columns[self._columns]
        self._open = {name: value[keep] for name, value in self._open.items()}
        self._columns = self._columns[keep]

    def state_dict(self) -> dict[str, Any]:
        """Where the dataset stands; complete episodes are on disk when this returns."""
        self.flush()
        open_steps = {name: value.clone() for name, value in self._open.items()}
        return {"chunks": self._written, "open": open_steps, "columns": self._columns, "count": self._num_columns}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on as the writer that gave `state`: what it wrote to the folder later is taken back."""
        if state["chunks"] > self._written:
            raise DatasetError(
                f"{self.folder} holds {self._written} parts and {state['chunks']} are needed to go on; put the "
                "dataset back where it was"
            )
        kept = [chunk for chunk in self._chunks if int(chunk.name) < state["chunks"]]
        later, self._chunks, self._written = self._chunks[len(kept) :], kept, state["chunks"]
        self._next_episode = later[0].first if later else self._next_episode
        self._waiting, self._open = [], dict(state["open"])
        self._columns, self._num_columns = state["columns"], state["count"]
        self._write_index()
        for chunk in later:
            shutil.rmtree(self.folder / chunk.name, ignore_errors=True)

    def close(self) -> None:
        """Write all episodes; unfinished ones end here as if truncated."""
        self.cut()
        self.flush()

    def __enter__(self) -> TrajectoryWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _take(self, fields: Mapping[str, Tensor], column: Tensor) -> None:
        """Take transitions `[n]` in order of time, of the environments `column` `[n]`; complete episodes go to
        `add_episodes`, the others stay in `_open`."""
        if self._open:
            fields = {name: torch.cat((self._open[name], value)) for name, value in fields.items()}
            column = torch.cat((self._columns, column))
        column, order = column.sort(stable=True)  # by environment, then by time
        fields = {name: value[order] for name, value in fields.items()}
        ended = fields["terminated"] | fields["truncated"]
        # a step belongs to a complete episode if it, or a later step of its environment, is an end
        ends_before = ended.cumsum(0) - ended.long()
        of_environment = torch.zeros(self._num_columns, dtype=torch.int64)
        of_environment.scatter_reduce_(0, column, ended.cumsum(0), "amax")
        complete = ends_before < of_environment[column]
        self._columns = column[~complete]
        self._open = {name: value[~complete] for name, value in fields.items()}
        done = {name: value[complete] for name, value in fields.items()}
        stops = ended[complete].nonzero().flatten() + 1
        lengths = stops.diff(prepend=torch.zeros(1, dtype=torch.int64)).tolist()
        self.add_episodes(Episodes.from_transitions(done, lengths))

    def _continue(self, found: Trajectories) -> None:
        for what in ("groups", "action"):
            mine, stored = getattr(self.spec, what), getattr(found.spec, what)
            if mine != stored:
                raise DatasetError(
                    f"{self.folder} was recorded with other {what} ({found.spec.id}: {stored}; now {self.spec.id}: "
                    f"{mine}); choose another folder"
                )
        if self.extras != found.extras:
            raise DatasetError(
                f"{self.folder} keeps the extra variables {sorted(found.extras)} and {sorted(self.extras)} are asked "
                "for; choose the same ones or another folder"
            )
        if self.codecs and self.codecs != found.codecs:
            raise DatasetError(
                f"{self.folder} stores {_codecs_in_words(found.codecs)} and {_codecs_in_words(self.codecs)} is asked "
                "for; choose the same codecs or another folder"
            )
        self.spec, self.codecs = found.spec, found.codecs
        self._chunks, self._written = list(found.listed), found.written
        self._next_episode = self._chunks[-1].first + self._chunks[-1].episodes if self._chunks else 0
        self.description = self.description or found.description
        self._remove_unlisted()

    def _remove_unlisted(self) -> None:
        """Tidy up after a writer that was killed: a chunk that the index does not name was never read."""
        listed = {chunk.name for chunk in self._chunks}
        for path in self.folder.iterdir():
            if re.fullmatch(r"\d{6,}", path.name) and path.name not in listed:
                shutil.rmtree(path, ignore_errors=True)

    def _write_index(self) -> None:
        extras = {
            name: [list(shape), str(dtype).removeprefix("torch.")] for name, (shape, dtype) in self.extras.items()
        }
        index = {"format": FORMAT, "spec": self.spec.to_dict(), "extras": extras, "description": self.description}
        index["codecs"] = {name: codec.to_dict() for name, codec in self.codecs.items()}
        chunks = [asdict(chunk) for chunk in self._chunks]
        save_state(self.folder / "index", index | {"written": self._written, "chunks": chunks}, kind=INDEX)


def _chunks(entries: Sequence[Mapping[str, Any]]) -> list[Chunk]:
    """The chunks of an index, also of format 1."""
    found: list[Chunk] = []
    for entry in entries:
        first = found[-1].first + found[-1].episodes if found else 0
        found.append(Chunk(**{"first": first, **entry}))
    return found


def _fingerprint(stored: Mapping[str, Tensor], lengths: Tensor) -> str:
    return tensors_sha256({**stored, "lengths": lengths})


def _named_codecs(codecs: Mapping[str, Any], contract: Fields) -> dict[str, Codec]:
    """Codecs by workspace name, of variables that can have one."""
    found = {}
    for given, entry in codecs.items():
        name = given if given in contract else OBSERVATION + given
        if name not in contract:
            raise ValueError(f"there is a codec for {given!r}, which is not recorded; there are {sorted(contract)}")
        if contract[name][1] != torch.float32:
            raise ValueError(f"{name!r} is {contract[name][1]}, and codecs are for float32; leave its codec out")
        found[name] = Codec.of(entry)
    return found


def _codecs_in_words(codecs: Mapping[str, Codec]) -> str:
    return ", ".join(f"{name} as {codec.name}" for name, codec in codecs.items()) or "all variables as they are"


def _contract(spec: EnvSpec, extras: Fields) -> dict[str, Variable]:
    """Shape and dtype of every stored step variable."""
    groups: dict[str, Variable] = {OBSERVATION + group.name: (group.shape, group.torch_dtype) for group in spec.groups}
    step: dict[str, Variable] = {"action": (spec.action.shape, spec.action.dtype), REWARD: ((), torch.float32)}
    return {**groups, **step, TERMINATED: ((), torch.bool), TRUNCATED: ((), torch.bool), **extras}


def _check(variables: Mapping[str, Tensor], spec: EnvSpec, extras: Fields) -> None:
    """Refuse variables `[N, *e]` whose names, shapes or dtypes differ from those of `_contract`."""
    expected = _contract(spec, extras)
    difference = expected.keys() ^ variables.keys()
    if difference:
        raise ValueError(f"the episodes and the contract differ in {sorted(difference)}; both need the same variables")
    for name, (shape, dtype) in expected.items():
        value = variables[name]
        if tuple(value.shape[1:]) != tuple(shape) or value.dtype != dtype:
            raise ValueError(
                f"{name!r} is {list(value.shape[1:])} {value.dtype} per step; the contract says {list(shape)} {dtype}"
            )


def _load(folder: Path, kind: str, dataset: Path) -> dict[Any, Any]:
    if not folder.exists() and kind == INDEX and not folder.with_name(".index.previous").exists():
        raise DatasetError(f"{dataset} holds no dataset (there is no {folder.name} in it); check the path")
    try:
        return load_state(folder, kind=kind)[0]
    except StateFileError as error:
        raise _damaged(dataset, str(error).split("; ")[0]) from error


def _damaged(dataset: Path, cause: str) -> DatasetError:
    return DatasetError(f"the dataset {dataset} cannot be read: {cause}; copy it again or record it anew")
