"""A dataset in the place of an environment: the world of a cast that sees what others saw.

`RecordedEnv` is a `VecEnv`. Its steps are those of the recording, whatever the action: a policy that stands in a cast
with it runs over recorded observations, with its memory, normaliser and value, and learns from labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from gaitway.data.cursors import Cursors
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Observation, Step, VecEnv


class RecordedEnv(VecEnv):
    """The episodes that `cursors` read, as an environment of `spec`, without its metrics.

    Rows behind the last pass of the cursors are not valid (`env/valid`).
    """

    def __init__(self, cursors: Cursors, spec: EnvSpec) -> None:
        groups = tuple(group for group in spec.groups if group.name in cursors.groups)
        plain: dict[str, Any] = {"metrics": (), "flags": (), "reductions": {}, "facts": {}}
        self.spec = replace(spec, groups=groups, reset_rows=True, exact_state=True, **plain)
        self.cursors, self.num_envs, self.device = cursors, cursors.num_envs, cursors.device

    def reset(self, seed: int | Sequence[int] | None = None) -> Observation:
        """Begin the first pass again; recordings have no other starts than their own."""
        self.cursors.restart()
        return self.cursors.observation()

    def step(self, action: Tensor) -> Step:
        return self.cursors.advance()

    @property
    def elapsed(self) -> Tensor:
        return self.cursors.elapsed.to(self.device)

    def state_dict(self) -> dict[str, Any]:
        return {"cursors": self.cursors.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> Observation:
        self.cursors.load_state_dict(state["cursors"])
        return self.cursors.observation()

    def label(self, name: str) -> Tensor:
        """Recorded labels `name` of the present step where the dataset has them, else the actions, [B, ...]."""
        return self.cursors.recorded(name if self.cursors.has(name) else "action")

    @property
    def exhausted(self) -> bool:
        """Whether every pass over the recording is behind."""
        return self.cursors.exhausted
