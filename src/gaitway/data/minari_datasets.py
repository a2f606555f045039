"""Episodes of a local Minari dataset (https://minari.farama.org), `pip install "gaitway[minari]"`.

Minari stores one observation more than steps per episode, the one it reached, and both flags of gymnasium. Spaces
become groups and actions as in the gymnasium adapter, so a policy trained here plays in `make_env("gymnasium:ID")`:
floats are float32, discrete observations one-hot, dict observations one group per key. Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gaitway.core.transitions import OBSERVATION
from gaitway.data.episodes import REWARD, TERMINATED, TRUNCATED, DatasetError, Episodes
from gaitway.envs.gym.spaces import ActionCodec, ObservationCodec
from gaitway.envs.spec import EnvSpec

DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, AssertionError)
"""What minari and h5py raise on files that are not what they should be."""


class MinariEpisodes:
    """A Minari dataset as a source of episodes.

    `dataset` is a folder, the id of a dataset on this machine (`"pen/human-v2"`), or a `minari.MinariDataset`, filtered
    for instance. Episodes are read `chunk_steps` steps at a time.
    """

    def __init__(self, dataset: Any, *, chunk_steps: int = 50_000) -> None:
        self._dataset = _open(dataset) if isinstance(dataset, str | Path) else dataset
        self._name = str(dataset) if isinstance(dataset, str | Path) else self._dataset.id
        self._observations = ObservationCodec(self._dataset.observation_space)
        self.chunk_steps = chunk_steps
        made_by = self._dataset.env_spec
        self.spec = EnvSpec(
            id=f"gymnasium:{self._dataset.id if made_by is None else made_by.id}",
            groups=self._observations.groups,
            action=ActionCodec(self._dataset.action_space).spec,
            control_dt=0.0,
            max_episode_steps=(0 if made_by is None else made_by.max_episode_steps) or 0,
        )
        """The contract of a gymnasium environment with these spaces."""

    @property
    def num_steps(self) -> int:
        return int(self._dataset.total_steps)

    @property
    def num_episodes(self) -> int:
        return int(self._dataset.total_episodes)

    def __len__(self) -> int:
        return self.num_episodes

    def chunks(self) -> Iterator[Episodes]:
        """All episodes in order, about `chunk_steps` steps at a time; those without a step are left out."""
        waiting: list[Episodes] = []
        try:
            for raw in self._dataset.iterate_episodes():
                if len(raw.rewards):
                    waiting.append(self._episode(raw))
                if sum(part.num_steps for part in waiting) >= self.chunk_steps:
                    yield Episodes.cat(waiting)
                    waiting = []
        except DAMAGE as error:
            raise _unreadable(self._name, error) from error
        if waiting:
            yield Episodes.cat(waiting)

    def _episode(self, raw: Any) -> Episodes:
        steps, action = len(raw.rewards), self.spec.action
        observations = self._observations.allocate(steps + 1)
        self._observations.write(raw.observations, observations)
        actions = np.ascontiguousarray(raw.actions).reshape(steps, *action.shape)
        variables = {OBSERVATION + name: value for name, value in observations.items()}
        variables["action"] = torch.from_numpy(actions).to(action.dtype)
        variables[REWARD] = torch.from_numpy(np.asarray(raw.rewards, dtype=np.float32).reshape(steps))
        for name, flags in ((TERMINATED, raw.terminations), (TRUNCATED, raw.truncations)):
            variables[name] = torch.from_numpy(np.array(flags, dtype=bool).reshape(steps))
        return Episodes(variables, (steps,))


def _open(dataset: str | Path) -> Any:
    """A `MinariDataset` of a folder or of an id."""
    try:
        import minari
    except ImportError as error:
        raise ImportError(f'reading {dataset} needs minari; pip install "gaitway[minari]"') from error
    folder = Path(dataset)
    for place in (folder / "data", folder):
        if (place / "metadata.json").is_file():
            break
    else:
        if folder.exists() or isinstance(dataset, Path):
            raise DatasetError(f"{dataset} holds no Minari dataset (there is no metadata.json in it); check the path")
        try:
            return minari.load_dataset(dataset)
        except FileNotFoundError as error:
            raise DatasetError(
                f"there is no Minari dataset {dataset!r} on this machine; get it with `minari download {dataset}`"
            ) from error
    try:
        return minari.MinariDataset(place)
    except (*DAMAGE, ImportError) as error:
        raise _unreadable(dataset, error) from error


def _unreadable(name: str | Path, error: BaseException) -> DatasetError:
    cause = f"{type(error).__name__}: {error}"
    return DatasetError(f"the Minari dataset {name} cannot be read ({cause}); copy or download it again")
