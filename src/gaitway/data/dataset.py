"""A dataset as a run refers to it: where it lies, what it holds, and whether that is still so.

A run that learns from a dataset does not copy it. It writes down the path and a fingerprint of every number in it, and
refuses to go on with another one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gaitway.data.episodes import REWARD, DatasetError, Episodes, EpisodeSource
from gaitway.data.minari_datasets import MinariEpisodes
from gaitway.data.trajectories import Trajectories
from gaitway.envs.vec_env import ActionSpec, EnvSpec

MINARI_ID = re.compile(r"[\w-]+(/[\w-]+)*-v\d+")


@dataclass(frozen=True)
class DataConfig:
    """Which recorded episodes a run learns from, and how."""

    path: str | None = None
    """A folder that `gaitway collect` wrote, or the folder or id of a Minari dataset; null for none."""
    sha256: str | None = None
    """Fingerprint of what it holds; null: written down when the run begins. Another dataset is refused."""
    prefill: bool = False
    """Off-policy runs: put it into the replay before the first step."""
    share: float = 0.0
    """Off-policy runs: the part of every batch that is drawn from it, 0 to 1."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0:
            raise ValueError(f"share is {self.share}; use a part of the batch, from 0 to 1")


class Dataset:
    """Episodes of any source, read through once: counted, checked to be finite, and fingerprinted.

    It is a source of episodes itself. `spec` is the contract of the environment they were recorded in, None where the
    source does not say.
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
        """Mean sum of rewards over the episodes, those that were cut off included."""
        self.sha256 = fingerprint.hexdigest()
        """Fingerprint of all variables of all episodes, whatever files or chunks they lie in."""

    @classmethod
    def open(cls, path: str | Path, sha256: str | None = None) -> Dataset:
        """The dataset at a path (see `open_source`); refused if its fingerprint is not `sha256`."""
        found = cls(open_source(path), f"the dataset {path}")
        found.check_unchanged(sha256)
        return found

    @classmethod
    def of(cls, source: EpisodeSource) -> Dataset:
        """The source as a dataset; one that is a dataset already is not read again."""
        return (
            source if isinstance(source, cls) else cls(source, f"the dataset {getattr(source, 'folder', '')}".strip())
        )

    def chunks(self) -> Iterator[Episodes]:
        return self.source.chunks()

    def check_unchanged(self, sha256: str | None) -> None:
        """Refuse another dataset than the one with this fingerprint."""
        if sha256 is not None and sha256 != self.sha256:
            raise DatasetError(
                f"{self.name} has changed: its fingerprint is {self.sha256[:12]} and this run learns from "
                f"{sha256[:12]}; restore it, or begin a new run"
            )

    def check_fits(self, spec: EnvSpec, groups: Iterable[str]) -> None:
        """Refuse other observations (of the groups that are read) or actions than those of an environment."""
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

    def _refuse(self, spec: EnvSpec, difference: str) -> None:
        recorded = "" if self.spec is None else f" (recorded in {self.spec.id})"
        raise DatasetError(f"{self.name}{recorded} does not fit {spec.id}: {difference}; name one of this environment")

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.num_steps:,} steps in {self.num_episodes:,} episodes, mean return "
            f"{self.mean_return:.4g}, sha256 {self.sha256[:12]}"
        )


def open_source(path: str | Path) -> Trajectories | MinariEpisodes:
    """What lies at a path: a folder of trajectories, a folder of Minari's, or a Minari dataset by its id."""
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
    """What two actions must have in common, in words; what their dimensions are called is not part of it."""
    if action.kind == "continuous":
        return f"{len(action.names)} numbers from {list(action.low)} to {list(action.high)}"
    start = list(action.start) or [0] * len(action.choices)
    return f"{action.kind} of {list(action.choices)} choices from {start}"
