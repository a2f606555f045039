"""The dataset of a run: opened by its path, checked, and identified by a fingerprint.

A run does not copy the dataset that it learns from. Its configuration stores the path and a fingerprint of all numbers
in the dataset; a resumed run refuses a dataset with another fingerprint.
"""

from __future__ import annotations

import hashlib
import json
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
from gaitway.data.trajectories import Trajectories
from gaitway.envs.vec_env import ActionSpec, EnvSpec

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
    or None if the source has none.
    """

    def __init__(self, source: EpisodeSource, name: str = "the dataset") -> None:
        self.source, self.name = source, name
        self.spec: EnvSpec | None = getattr(source, "spec", None)
        self.num_steps, self.num_episodes = 0, 0
        total = 0.0
        fingerprint = _Fingerprint()
        for chunk in source.chunks():
            for variable, value in chunk.variables.items():
                if value.is_floating_point() and not torch.isfinite(value).all():
                    raise DatasetError(f"{name} holds numbers that are not finite in {variable!r}; record it anew")
            fingerprint.add(chunk)
            self.num_steps += chunk.num_steps
            self.num_episodes += chunk.num_episodes
            total += float(chunk.variables[REWARD].double().sum())
        if not self.num_steps:
            raise DatasetError(f"{name} holds no episodes; record some first, by `gaitway collect` for instance")
        self.mean_return = total / self.num_episodes
        """Mean undiscounted return of the episodes, unfinished ones included."""
        self.sha256 = fingerprint.hexdigest()
        """Fingerprint of all variables of all episodes; it does not depend on files and chunks."""

    @classmethod
    def open(cls, path: str | Path, sha256: str | None = None) -> Dataset:
        """The dataset at `path` (see `open_source`); one whose fingerprint is not `sha256` is refused."""
        found = cls(open_source(path), f"the dataset {path}")
        found.check_unchanged(sha256)
        return found

    @classmethod
    def of(cls, source: EpisodeSource) -> Dataset:
        """`source` as a Dataset; a source that is a Dataset already is returned without reading it again."""
        return (
            source if isinstance(source, cls) else cls(source, f"the dataset {getattr(source, 'folder', '')}".strip())
        )

    def chunks(self) -> Iterator[Episodes]:
        return self.source.chunks()

    def check_unchanged(self, sha256: str | None) -> None:
        """Raise a DatasetError if the fingerprint is not `sha256`; None is not checked."""
        if sha256 is not None and sha256 != self.sha256:
            raise DatasetError(
                f"{self.name} has changed: its fingerprint is {self.sha256[:12]} and this run learns from "
                f"{sha256[:12]}; restore it, or begin a new run"
            )

    def check_fits(self, spec: EnvSpec, groups: Iterable[str]) -> None:
        """Raise a DatasetError if the observations of `groups` or the actions are not those of `spec`."""
        if self.spec is None:
            return
        for name in groups:
            here = spec.group(name)
            there = next((group for group in self.spec.groups if group.name == name), None)
            found = "is not" if there is None else f"is {list(there.shape)} {there.dtype}"
            if there is None or (there.shape, there.dtype) != (here.shape, here.dtype):
                self._refuse(spec, f"the observation {name!r} {found} there and {list(here.shape)} {here.dtype} here")
        mine, theirs = _action(spec.action), _action(self.spec.action)
        if mine != theirs:
            self._refuse(spec, f"actions are {theirs} there and {mine} here")

    def check_without_memory(self, memories: Iterable[str]) -> None:
        """Raise a DatasetError if the policy that is to learn from it remembers anything: single steps hold no past."""
        names = list(memories)
        if names:
            raise DatasetError(
                f"the policy remembers {names[0]!r}, which {self.name} does not hold; leave memories and blocks that "
                "remember out, or put the past into the observation (the wrapper `history`)"
            )

    def _refuse(self, spec: EnvSpec, difference: str) -> None:
        recorded = "" if self.spec is None else f" (recorded in {self.spec.id})"
        raise DatasetError(f"{self.name}{recorded} does not fit {spec.id}: {difference}; name one of this environment")

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.num_steps:,} steps in {self.num_episodes:,} episodes, mean return "
            f"{self.mean_return:.4g}, sha256 {self.sha256[:12]}"
        )


def open_source(path: str | Path) -> Trajectories | MinariEpisodes:
    """The source at `path`: a folder of `Trajectories`, a Minari folder, or the id of a Minari dataset."""
    folder = Path(path)
    if (folder / "index").exists() or (folder / ".index.previous").exists():
        return Trajectories(folder)
    if folder.exists() or MINARI_ID.fullmatch(str(path)):
        if folder.exists() and not any((folder / place).is_file() for place in ("metadata.json", "data/metadata.json")):
            raise DatasetError(f"{path} holds no dataset; name a folder that `gaitway collect` or minari wrote")
        return MinariEpisodes(path)
    raise DatasetError(
        f"the dataset {path} is missing; put it back, or record one by `gaitway collect RUN --steps N --out {path}`"
    )


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
