"""The dataset of a run: opened by its path, checked, and identified by a fingerprint.

A run does not copy the dataset that it learns from. Its configuration stores the path and a fingerprint of all numbers
in the dataset; a resumed run refuses a dataset with another fingerprint. A dataset that was appended to is not another
one: the run goes on with the chunks that it began with.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gaitway.core.config import configuration
from gaitway.core.ranges import Share
from gaitway.data.episodes import REWARD, DatasetError, Episodes, EpisodeSource
from gaitway.data.minari_datasets import MinariEpisodes
from gaitway.data.parkour_datasets import ParkourEpisodes
from gaitway.data.trajectories import Trajectories
from gaitway.envs.spec import ActionSpec, EnvSpec

log = logging.getLogger("gaitway")

MINARI_ID = re.compile(r"[\w-]+(/[\w-]+)*-v\d+")


@configuration
class DataConfig:
    """Which recorded episodes a run learns from, and how."""

    path: str | None = None
    """A folder that `gaitway collect` wrote, or the folder or id of a Minari dataset; null for none."""
    sha256: str | None = None
    """Fingerprint of the dataset; null: filled in when the run begins. A dataset with another one is refused."""
    prefill: bool = False
    """Off-policy runs: put the dataset into the replay before the first step."""
    share: Share = 0.0
    """Off-policy runs: the fraction of every batch that is drawn from the dataset, 0 to 1."""


class Dataset:
    """Episodes of any source. The constructor reads them once: it counts, fingerprints and refuses NaN and infinities.

    A Dataset is an EpisodeSource itself. `spec` is the EnvSpec of the environment in which the episodes were recorded,
    or None if the source has none. With `sha256` it ends at the chunk up to which the fingerprint is that one, and is
    refused if there is none.
    """

    def __init__(self, source: EpisodeSource, name: str = "the dataset", sha256: str | None = None) -> None:
        self.source, self.name = source, name
        self.spec: EnvSpec | None = getattr(source, "spec", None)
        self.num_steps, self.num_episodes, self._num_chunks = 0, 0, 0
        total = 0.0
        fingerprint = _Fingerprint()
        for chunk in source.chunks():
            check_finite(chunk, name)
            fingerprint.add(chunk)
            self.num_steps += chunk.num_steps
            self.num_episodes += chunk.num_episodes
            self._num_chunks += 1
            total += float(chunk.variables[REWARD].double().sum())
            if sha256 is not None and fingerprint.hexdigest() == sha256:
                break
        if not self.num_steps:
            raise DatasetError(f"{name} holds no episodes; record some first, by `gaitway collect` for instance")
        self.mean_return = total / self.num_episodes
        """Mean undiscounted return of the episodes, unfinished ones included."""
        self.sha256 = fingerprint.hexdigest()
        """Fingerprint of all variables of all episodes; it does not depend on files and chunks."""
        self.check_unchanged(sha256)
        if self.num_steps < source.num_steps:
            log.info("%s has grown; this run goes on with the %d steps it began with", name, self.num_steps)

    @classmethod
    def open(cls, path: str | Path, sha256: str | None = None) -> Dataset:
        """The dataset at `path` (see `open_source`), up to the chunk that `sha256` is the fingerprint of."""
        return cls(open_source(path), f"the dataset {path}", sha256)

    @classmethod
    def of(cls, source: EpisodeSource) -> Dataset:
        """`source` as a Dataset; a source that is a Dataset already is returned without reading it again."""
        return (
            source if isinstance(source, cls) else cls(source, f"the dataset {getattr(source, 'folder', '')}".strip())
        )

    def chunks(self) -> Iterator[Episodes]:
        return itertools.islice(self.source.chunks(), self._num_chunks)

    def check_unchanged(self, sha256: str | None) -> None:
        """Raise a DatasetError if the fingerprint is not `sha256`; None is not checked."""
        if sha256 is not None and sha256 != self.sha256:
            raise DatasetError(
                f"{self.name} has changed: its fingerprint is {self.sha256[:12]} and this run learns from "
                f"{sha256[:12]}; restore it, or begin a new run"
            )

    def check_fits(self, spec: EnvSpec, groups: Iterable[str]) -> None:
        """Raise a DatasetError if the observations of `groups` or the actions are not those of `spec`."""
        check_fits(self.spec, self.name, spec, groups)

    def check_without_memory(self, memories: Iterable[str]) -> None:
        """Raise a DatasetError if the policy that is to learn from it remembers anything: single steps hold no past."""
        names = list(memories)
        if names:
            raise DatasetError(
                f"the policy remembers {names[0]!r}, which {self.name} does not hold; leave memories and blocks that "
                "remember out, or put the past into the observation (the wrapper `history`)"
            )

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.num_steps:,} steps in {self.num_episodes:,} episodes, mean return "
            f"{self.mean_return:.4g}, sha256 {self.sha256[:12]}"
        )


def open_source(path: str | Path) -> Trajectories | MinariEpisodes | ParkourEpisodes:
    """The source at `path`: a folder of `Trajectories`, of the parkour fork of rsl_rl or of Minari, or the id of a
    Minari dataset."""
    folder = Path(path)
    if (folder / "index").exists() or (folder / ".index.previous").exists():
        return Trajectories(folder)
    if (folder / "metadata.json").is_file() and any(folder.glob("trajectory_*")):
        return ParkourEpisodes(folder)
    if folder.exists() or MINARI_ID.fullmatch(str(path)):
        if folder.exists() and not any((folder / place).is_file() for place in ("metadata.json", "data/metadata.json")):
            raise DatasetError(f"{path} holds no dataset; name a folder that `gaitway collect` or minari wrote")
        return MinariEpisodes(path)
    raise DatasetError(
        f"the dataset {path} is missing; put it back, or record one by `gaitway collect RUN --steps N --out {path}`"
    )


def check_fits(there: EnvSpec | None, name: str, spec: EnvSpec, groups: Iterable[str]) -> None:
    """Raise a DatasetError if the observations of `groups` or the actions of dataset `name`, recorded in `there`, are
    not those of `spec`; one that does not say where it was recorded is not checked."""
    if there is None:
        return
    difference = None
    for group in groups:
        here, other = spec.group(group), next((each for each in there.groups if each.name == group), None)
        if other is None or (other.shape, other.dtype) != (here.shape, here.dtype):
            found = "is not" if other is None else f"is {list(other.shape)} {other.dtype}"
            difference = f"the observation {group!r} {found} there and {list(here.shape)} {here.dtype} here"
            break
    mine, theirs = _action(spec.action), _action(there.action)
    if difference is None and mine != theirs:
        difference = f"actions are {theirs} there and {mine} here"
    if difference is not None:
        raise DatasetError(
            f"{name} (recorded in {there.id}) does not fit {spec.id}: {difference}; name one of this environment"
        )


def check_finite(episodes: Episodes, name: str) -> None:
    """Raise a DatasetError that names the variable of `episodes` with NaN or infinities, if there is one."""
    for variable, value in episodes.variables.items():
        if value.is_floating_point() and not torch.isfinite(value).all():
            raise DatasetError(f"{name} holds numbers that are not finite in {variable!r}; record it anew")


class _Fingerprint:
    """A digest of episodes that does not depend on how they are cut into chunks."""

    def __init__(self) -> None:
        self._digests: dict[str, Any] = {}
        self._kinds: dict[str, list[object]] = {}

    def add(self, episodes: Episodes) -> None:
        parts = dict(episodes.variables) | {"lengths": torch.tensor(episodes.lengths, dtype=torch.int64)}
        for name, value in parts.items():
            self._digests.setdefault(name, hashlib.sha256()).update(_bytes(value))
            self._kinds[name] = [str(value.dtype), list(value.shape[1:])]

    def hexdigest(self) -> str:
        parts = {name: [*self._kinds[name], digest.hexdigest()] for name, digest in self._digests.items()}
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _bytes(value: Tensor) -> memoryview:
    return value.contiguous().flatten().view(torch.uint8).numpy().data


def _action(action: ActionSpec) -> str:
    """Kind, size and limits of an action in words, for comparison; names of dimensions are left out."""
    if action.kind == "continuous":
        return f"{len(action.names)} numbers from {list(action.low)} to {list(action.high)}"
    start = list(action.start) or [0] * len(action.choices)
    return f"{action.kind} of {list(action.choices)} choices from {start}"
