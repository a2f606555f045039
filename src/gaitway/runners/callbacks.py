"""What happens between iterations by the user's will: schedules of the environment, curricula.

A callback is called at the beginning, after every iteration, evaluation and checkpoint, and at the end. It is handed a
`Moment`, through which it may call methods of the environments and log; nothing else of the run is within its reach.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gaitway.algorithms.algorithm import Coefficient, Now, value_at
from gaitway.core.ranges import Count
from gaitway.envs.vec_env import VecEnv


@dataclass(frozen=True)
class Moment:
    """Where a run stands when a callback is called, and what it may do."""

    now: Now
    env: VecEnv
    """The training environment; `env.call(method, ...)` reaches its task."""
    numbers: Mapping[str, float]
    """The metrics of the iteration, or the results of the evaluation; empty at the beginning and the end."""
    log: Callable[[Mapping[str, float]], None]
    """Adds a line of metrics at this step."""
    evaluation_env: VecEnv | None = None
    """The environment of evaluations, once there is one: from the iteration before the first of them on. Of several
    processes that train together the first one has it alone."""
    folder: Path | None = None
    """The run folder, if there is one."""


class Callback(Protocol):
    """Each method is optional but `name`; `state_dict` and `load_state_dict` go together."""

    name: str

    def begin(self, moment: Moment) -> None: ...
    def after_iteration(self, moment: Moment) -> None: ...
    def after_evaluation(self, moment: Moment) -> None: ...
    def after_checkpoint(self, moment: Moment) -> None: ...
    def end(self, moment: Moment) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class Callbacks:
    """The callbacks of a run, in order."""

    def __init__(self, callbacks: Sequence[Any] = ()) -> None:
        self.named: dict[str, Any] = {}
        for callback in callbacks:
            plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(callback).__name__).lower()
            name = getattr(callback, "name", plain)
            if name in self.named:
                raise ValueError(f"two callbacks are called {name!r}; leave one out, or write a `name` into your own")
            self.named[name] = callback

    def __len__(self) -> int:
        return len(self.named)

    def call(self, event: str, moment: Moment) -> None:
        for callback in self.named.values():
            method = getattr(callback, event, None)
            if method is not None:
                method(moment)

    def state_dict(self) -> dict[str, Any]:
        return {name: each.state_dict() for name, each in self.named.items() if hasattr(each, "state_dict")}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, callback in self.named.items():
            if name in state:
                callback.load_state_dict(state[name])


class EnvSchedule:
    """Calls a method of the task with a number that moves with training: `{name: env_schedule, method: set_push, value:
    {start: 0, end: 50, over: 1, unit: fraction}}`."""

    def __init__(self, method: str, value: Coefficient, of: str | None = None, evaluation: bool = False) -> None:
        """The method is called with `of` first, if there is one: what the number belongs to. `evaluation` lets the
        evaluations follow too."""
        self.method, self.value, self.evaluation = method, value, evaluation
        self._of = () if of is None else (of,)
        self.scheduled = "/".join((method, *self._of))
        self.name = f"env_schedule/{self.scheduled}"

    def begin(self, moment: Moment) -> None:
        self._set(moment)  # without a line in the log, which a resumed run has already

    def after_iteration(self, moment: Moment) -> None:
        moment.log({f"schedule/{self.scheduled}": self._set(moment)})

    def _set(self, moment: Moment) -> float:
        number = value_at(self.value, moment.now)
        try:
            moment.env.call(self.method, *self._of, number)
            if self.evaluation and moment.evaluation_env is not None:
                moment.evaluation_env.call(self.method, *self._of, number)
        except AttributeError as error:
            raise ValueError(f"the callback {self.name} cannot call {self.method!r}: {error}") from error
        return number


class TerrainLevels:
    """Logs how hard the terrain is on which robots train: the mean, lowest and highest level of each kind."""

    name = "terrain_levels"

    def __init__(self, interval: Count = 1) -> None:
        self.interval = interval

    def after_iteration(self, moment: Moment) -> None:
        if moment.now.iteration % self.interval:
            return
        try:
            found = moment.env.call("levels")
        except AttributeError as error:
            raise ValueError(f"terrain_levels needs a task with levels; use one with terrain: {error}") from error
        moment.log({f"levels/{name}": number for name, number in found.items()})


CALLBACKS: dict[str, Any] = {
    "env_schedule": EnvSchedule,
    "terrain_levels": TerrainLevels,
    "curriculum": "gaitway.skills.callbacks:TaskCurriculum",
    "skill_file": "gaitway.skills.callbacks:SkillFileWriter",
    "diayn_skills": "gaitway.skills.diayn_skills:DiaynSkills",
}
"""Callbacks by the names that `callbacks` in a configuration uses."""
