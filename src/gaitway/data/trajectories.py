"""Trajectories: episodes on disk, in a folder that grows.

    dataset/
      index/           the EnvSpec of the environment, the variables, and the list of chunks
      000000/ ...      whole episodes, some thousand steps each: safetensors and JSON, written by core/files.py

A chunk is complete on disk before the index names it, and the index is replaced by one rename: a writer that is killed
leaves the dataset as it was after its last chunk. One writer at a time. Reading a dataset never executes code from it.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gaitway.core.files import StateFileError, load_state, save_state
from gaitway.core.transitions import FINAL, OBSERVATION
from gaitway.core.workspace import Workspace
from gaitway.data.episodes import REWARD, TERMINATED, TRUNCATED, VALID, DatasetError, Episodes
from gaitway.data.ring import Fields, Variable
from gaitway.envs.vec_env import EnvSpec

INDEX, CHUNK = "trajectories", "trajectory chunk"
FORMAT = 1
NONE: Fields = {}


class Trajectories:
    """A dataset that `TrajectoryWriter` wrote, read chunk by chunk."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        index = _load(self.folder / "index", INDEX, self.folder)
        if index.get("format") != FORMAT:
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
        self.description: str = index["description"]
        self._chunks: list[dict[str, Any]] = index["chunks"]

    @property
    def num_steps(self) -> int:
        return sum(chunk["steps"] for chunk in self._chunks)

    @property
    def num_episodes(self) -> int:
        return sum(chunk["episodes"] for chunk in self._chunks)

    def __len__(self) -> int:
        return self.num_episodes

    def chunks(self) -> Iterator[Episodes]:
        """All episodes in order of their recording, a chunk at a time."""
        for number in range(len(self._chunks)):
            yield self._read(number)

    def episodes(self, index: Sequence[int] | None = None) -> Workspace:
        """Episodes with these numbers (default: all) side by side, as `Episodes.workspace` lays them."""
        wanted = range(self.num_episodes) if index is None else index
        places = [self._place(number) for number in wanted]
        if not places:
            raise ValueError(f"no episodes are asked for; {self.folder} has {self.num_episodes}")
        needed = sorted(set(places))
        parts = [
            self._read(chunk).select([number for _, number in group])
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
        for chunk, entry in enumerate(self._chunks):
            if 0 <= number < entry["episodes"]:
                return chunk, number
            number -= entry["episodes"]
        raise IndexError(f"there is no episode {episode}; {self.folder} has 0..{self.num_episodes - 1}")

    def _read(self, number: int) -> Episodes:
        entry = self._chunks[number]
        state = _load(self.folder / entry["name"], CHUNK, self.folder)
        try:
            episodes = Episodes(state["variables"], tuple(state["lengths"].tolist()))
            _check(episodes.variables, self.spec, self.extras)
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise _damaged(self.folder, f"{self.folder / entry['name']} does not fit its index ({error})") from error
        if (episodes.num_steps, episodes.num_episodes) != (entry["steps"], entry["episodes"]):
            raise _damaged(self.folder, f"{self.folder / entry['name']} holds other episodes than the index says")
        return episodes


class TrajectoryWriter:
    """Appends episodes to a dataset; creates the dataset if there is none.

    `spec` is the EnvSpec of the environment; a dataset with other observation groups or actions is refused. `extras`
    are further step variables to store. Complete episodes are written once they add up to `chunk_steps` steps, and
    when the writer is closed.
    """

    def __init__(
        self,
        folder: str | Path,
        spec: EnvSpec,
        *,
        extras: Fields = NONE,
        description: str = "",
        chunk_steps: int = 50_000,
    ) -> None:
        self.folder, self.spec = Path(folder), spec
        self.extras: dict[str, Variable] = {name: (tuple(shape), dtype) for name, (shape, dtype) in extras.items()}
        self.description, self.chunk_steps = description, chunk_steps
        self._chunks: list[dict[str, Any]] = []
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
        if len(episodes):
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
        name = f"{len(self._chunks):06d}"
        state = {"variables": dict(episodes.variables), "lengths": torch.tensor(episodes.lengths)}
        save_state(self.folder / name, state, kind=CHUNK)
        self._chunks.append({"name": name, "steps": episodes.num_steps, "episodes": len(episodes)})
        self._write_index()
        self._waiting = []

    def drop(self, columns: Tensor) -> None:
        """Forget the unfinished episodes of the environments where `columns` [B] is true."""
        keep = ~columns[self._columns]
        self._open = {name: value[keep] for name, value in self._open.items()}
        self._columns = self._columns[keep]

    def state_dict(self) -> dict[str, Any]:
        """Where the dataset stands; complete episodes are on disk when this returns."""
        self.flush()
        open_steps = {name: value.clone() for name, value in self._open.items()}
        return {"chunks": len(self._chunks), "open": open_steps, "columns": self._columns, "count": self._num_columns}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on as the writer that gave `state`: what it wrote to the folder later is taken back."""
        if state["chunks"] > len(self._chunks):
            raise DatasetError(
                f"{self.folder} holds {len(self._chunks)} parts and {state['chunks']} are needed to go on; put the "
                "dataset back where it was"
            )
        later, self._chunks = self._chunks[state["chunks"] :], self._chunks[: state["chunks"]]
        self._waiting, self._open = [], dict(state["open"])
        self._columns, self._num_columns = state["columns"], state["count"]
        self._write_index()
        for chunk in later:
            shutil.rmtree(self.folder / chunk["name"], ignore_errors=True)

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
        self.spec, self._chunks = found.spec, list(found._chunks)
        self.description = self.description or found.description

    def _write_index(self) -> None:
        extras = {
            name: [list(shape), str(dtype).removeprefix("torch.")] for name, (shape, dtype) in self.extras.items()
        }
        index = {"format": FORMAT, "spec": self.spec.to_dict(), "extras": extras, "description": self.description}
        save_state(self.folder / "index", index | {"chunks": self._chunks}, kind=INDEX)


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
