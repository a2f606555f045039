"""A cast agent that says what was done in a recording: the label of each step, where a teacher would stand."""

from __future__ import annotations

from gaitway.core.agent import Agent
from gaitway.core.workspace import Variable, Workspace
from gaitway.data.recorded_env import RecordedEnv

LABEL = "teacher/action"


class RecordedLabels(Agent):
    """Writes `teacher/action` of row t: the labels of the dataset that `world` plays, or its actions if it has none."""

    plays = False

    def __init__(self, world: RecordedEnv) -> None:
        super().__init__()
        self._world = (world,)  # within a tuple, because it is no part of this module
        self.reads: tuple[str, ...] = ()
        self.writes = (LABEL,)

    def variables(self, num_envs: int, rows: int) -> dict[str, Variable]:
        action = self._world[0].spec.action
        return {LABEL: Variable(rows, num_envs, action.shape, action.dtype)}

    def step(self, ws: Workspace, t: int) -> None:
        ws.put(LABEL, t, self._world[0].label(LABEL))
