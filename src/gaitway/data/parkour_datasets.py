"""Reads the trajectories that the parkour fork of rsl_rl and st_rl recorded, as episodes.

    <folder>/metadata.json
    <folder>/trajectory_<k>/traj_<start>_<stop>.pickle      steps start <= t < stop: a dict of arrays of n rows

Its pickles are run by `core/plain_pickle.py`, which knows arrays of numbers and nothing else: a file with anything
else in it is refused by name, and nothing of it is executed.

`observations` become the group `policy`, put together of `obs_<component>` in the order of `obs_segments` where they
were stored apart (images as bytes), `privileged_observations` the group `critic`. What was seen after the last step of
a trajectory was not recorded: where it terminated the last observation stands in its place, which no value looks at;
where it did not, the last step is left out.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaitway.core.plain_pickle import PlainPickleError, load_plain
from gaitway.data.episodes import REWARD, TERMINATED, TRUNCATED, DatasetError, Episodes
from gaitway.envs.spec import EnvSpec

CHUNK = re.compile(r"traj_(\d+)_(\d+)\.pickle")
FOLDER = re.compile(r"trajectory_(\d+)")
MAX_BYTES = 1 << 30
"""A file that is larger is refused."""


class ParkourEpisodes:
    """The trajectories below `folder`, in the order of their numbers; one is read at a time."""

    spec: EnvSpec | None = None
    """Nobody wrote down names, units and limits."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.metadata = self._metadata()
        self._trajectories = sorted(
            (int(found[1]), path)
            for path in self.folder.iterdir()
            if (found := FOLDER.fullmatch(path.name)) and any(CHUNK.fullmatch(each.name) for each in path.iterdir())
        )
        if not self._trajectories:
            raise DatasetError(
                f"{self.folder} holds no trajectory_<k> with a traj_<start>_<stop>.pickle; check the path"
            )
        self._steps: int | None = None

    @property
    def num_steps(self) -> int:
        if self._steps is None:
            self._steps = sum(chunk.num_steps for chunk in self.chunks())
        return self._steps

    @property
    def num_episodes(self) -> int:
        return sum(1 for _ in self.chunks())

    def chunks(self) -> Iterator[Episodes]:
        """One trajectory at a time; those of which nothing is left are passed over."""
        for _, path in self._trajectories:
            episodes = self._episode(path)
            if episodes is not None:
                yield episodes

    def _metadata(self) -> dict[str, Any]:
        path = self.folder / "metadata.json"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))  # dicts keep their order, which segments need
        except (OSError, ValueError, RecursionError) as error:
            raise DatasetError(f"{path} cannot be read ({error}); copy it again") from error
        if not isinstance(found, dict):
            raise DatasetError(f"{path} is no mapping; is this a folder of recorded trajectories?")
        return found

    def _episode(self, folder: Path) -> Episodes | None:
        parts, expected = [], 0
        for start, stop, path in sorted(
            (int(found[1]), int(found[2]), path)
            for path in folder.iterdir()
            if (found := CHUNK.fullmatch(path.name)) is not None
        ):
            if start != expected:
                raise DatasetError(f"{folder} lacks the steps {expected} to {start}; copy it again")
            parts.append(self._rows(path, stop - start))
            expected = stop
        names = parts[0].keys()
        if any(part.keys() != names for part in parts):
            raise DatasetError(f"the files in {folder} hold different variables; copy it again")
        rows = {name: torch.cat([part[name] for part in parts]) for name in names}
        terminated = bool(rows[TERMINATED][-1])
        steps = expected if terminated else expected - 1
        if steps < 1:
            return None
        variables = {name: value if name.startswith("env/obs/") else value[:steps] for name, value in rows.items()}
        if terminated:
            observed = {
                name: torch.cat((value, value[-1:])) for name, value in rows.items() if name.startswith("env/obs/")
            }
            variables |= observed
        return Episodes(variables, (steps,))

    def _rows(self, path: Path, count: int) -> dict[str, Tensor]:
        """The variables of one file, `count` rows each."""
        found = self._load(path)

        def take(name: str, numbers: int | None = None) -> np.ndarray:
            value = found.get(name)
            if isinstance(value, tuple) and len(value) == 1:  # a stray comma of the recorder
                value = value[0]
            if not isinstance(value, np.ndarray) or len(value) != count:
                raise DatasetError(f"{path} has no array {name!r} of {count} rows; copy it again")
            if numbers is not None:
                value = value.reshape(count, -1)
                if value.shape[1] != numbers:
                    raise DatasetError(f"{path}: {name!r} has {value.shape[1]} numbers per row and not {numbers}")
            return value

        done = take("dones", 1)[:, 0] != 0
        cut = done & (take("timeouts", 1)[:, 0] != 0) if "timeouts" in found else np.zeros_like(done)
        rows = {
            "env/obs/policy": self._observations(found, take),
            "action": take("actions"),
            REWARD: take("rewards", 1)[:, 0],
            TERMINATED: done & ~cut,
            TRUNCATED: cut,
        }
        if "privileged_observations" in found:
            rows["env/obs/critic"] = take("privileged_observations")
        return {
            name: torch.from_numpy(value if value.dtype == np.bool_ else value.astype(np.float32))
            for name, value in rows.items()
        }

    def _observations(self, found: Mapping[str, Any], take: Any) -> np.ndarray:
        if "observations" in found:
            return take("observations")
        segments, packed = self.metadata.get("obs_segments"), self.metadata.get("obs_disassemble_mapping") or {}
        if not isinstance(segments, dict) or not segments:
            raise DatasetError(
                f"{self.folder} holds observations in parts, and metadata.json does not say in which order"
            )
        parts = []
        for name in segments:
            part = take(f"obs_{name}")
            if packed.get(name) == "normalized_image":
                part = part.astype(np.float32) / 255.0
            elif packed.get(name):
                raise DatasetError(f"{self.folder} packs {name!r} as {packed[name]!r}, which is not known here")
            parts.append(part.reshape(len(part), -1).astype(np.float32))
        return np.concatenate(parts, 1)

    def _load(self, path: Path) -> dict[str, Any]:
        if path.stat().st_size > MAX_BYTES:
            raise DatasetError(f"{path} has more than {MAX_BYTES:,} bytes; it is not read")
        try:
            found = load_plain(io.BytesIO(path.read_bytes()), path, arrays=True)
        except PlainPickleError as error:
            raise DatasetError(f"{error}; it is not read") from error
        if not isinstance(found, dict):
            raise DatasetError(f"{path} is cut off, or holds no dict of arrays; copy it again")
        return found
