"""A clock of every instance that runs along a clip, and what the clip shows there: the group `reference`."""

from __future__ import annotations

import numpy as np

from gaitway.envs.motions.features import MotionFeatures
from gaitway.envs.motions.library import MotionLibrary

GROUP = "reference"


class ReferenceClock:
    """Of B instances: number of the clip [B] and time in it [B] (s). An open clip is held at its end."""

    def __init__(self, library: MotionLibrary, features: MotionFeatures, count: int, dt: float) -> None:
        """`dt` is the time of a step."""
        self._library, self._features, self._dt = library, features, dt
        self.clips, self.times = np.zeros(count, dtype=np.int64), np.zeros(count)

    def wind(self, rows: np.ndarray, which: np.ndarray, when: np.ndarray) -> None:
        """Episodes of `rows` [n] begin at the clips and times that numbers in [0, 1) stand for [n]."""
        self.clips[rows], self.times[rows] = self._library.place(which, when)

    def check(self, given: np.ndarray) -> None:
        """Refuse what is no clip and no time: one row [clip, seconds] for each instance."""
        count = len(self._library)
        right = given.shape == (len(self.clips), 2) and np.isfinite(given).all()
        if not right or not np.isin(given[:, 0], np.arange(count)).all():
            raise ValueError(
                f"the clock along clips is {given.tolist()}; write [clip, seconds] for each of {len(self.clips)} "
                f"instances, clips counted from 0 to {count - 1}"
            )

    def tick(self) -> None:
        """A step is over."""
        self.times += self._dt

    def frame(self) -> np.ndarray:
        """Features of the clips [B, size], as the group `amp` tells those of the robots."""
        return self._features.at(self._library, self.clips, self.times)
