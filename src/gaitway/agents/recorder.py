"""A cast agent that keeps what is played: whole episodes, as a dataset that `bc`, `td3_bc` and `data.path` read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gaitway.core.agent import Agent
from gaitway.core.ranges import WholeNumber
from gaitway.core.transitions import final_observations
from gaitway.core.workspace import Workspace
from gaitway.data.trajectories import TrajectoryWriter
from gaitway.envs.spec import EnvSpec


class Recorder(Agent):
    """Records the episodes of training that begin after `start` environment steps into the dataset at `path`, which
    must be new unless it is to `append`.

    Whole episodes are on disk with every checkpoint. A resumed run takes back what was written after its checkpoint and
    goes on, so that the dataset is the one of a run that was never interrupted.
    """

    plays = False

    def __init__(
        self, spec: EnvSpec, path: str | Path, start: WholeNumber = 0, append: bool = False, description: str = ""
    ) -> None:
        super().__init__()
        if start < 0:
            raise ValueError(f"start is {start}; use a number of environment steps, 0 for the first")
        self.start, self.append, self.steps = start, append, 0
        self.writer = TrajectoryWriter(path, spec, description=description)
        self.reads = ("action", *(f"env/obs/{name}" for name in spec.group_names))
        self.reads_after = final_observations(spec.group_names)
        self._recording: Tensor | None = None
        self._ended: Tensor | None = None

    def step(self, ws: Workspace, t: int) -> None:
        """Rows are recorded when they are complete."""

    def reset(self, ws: Workspace, t: int, mask: Tensor) -> None:
        """Drop episodes that were broken off without an end, by an environment that could not go on from a
        checkpoint."""
        if self._ended is not None and t == 0:
            self.writer.drop(mask.cpu() & ~self._ended)
            self._ended = self._ended | mask.cpu()

    def collected(self, ws: Workspace, start: int, stop: int) -> None:
        rows = ws.slice(start, stop)
        done = rows["env/done"].cpu()
        valid = rows["env/valid"].cpu() if "env/valid" in rows else torch.ones_like(done)
        if self._ended is None or self._recording is None:  # the very first row begins an episode everywhere
            if self.writer.num_chunks and not self.append:
                raise ValueError(
                    f"{self.writer.folder} holds a dataset already; name another path, or set append: true"
                )
            self._ended, self._recording = torch.ones_like(done[0]), torch.zeros_like(done[0])
        first = torch.cat((self._ended[None], done[:-1]))
        before = self.steps + valid.sum(1).cumsum(0) - valid.sum(1)  # environment steps before each row
        recording = self._recording | ((first & (before >= self.start)[:, None]).cumsum(0) > 0)
        self.steps += int(valid.sum())
        self._recording, self._ended = recording[-1].clone(), done[-1].clone()
        if bool(recording.any()):
            self._record(rows, valid & recording)

    def _record(self, rows: Workspace, valid: Tensor) -> None:
        """Add the rows of episodes that began after `start`; those of others stand there as not valid."""
        kept = {name: rows[name] for name in rows if name != "env/valid"}
        if not bool(valid.all()):
            kept["env/valid"] = valid.to(rows["env/reward"].device)
        self.writer.add(Workspace.packed(kept, extra_row=rows.extra_row))

    def close(self) -> None:
        """Write the whole episodes that are still in memory."""
        self.writer.flush()

    def get_extra_state(self) -> dict[str, Any]:
        state: dict[str, Any] = {"steps": self.steps, "writer": self.writer.state_dict()}
        return state | {"recording": self._recording, "ended": self._ended}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.steps, self._recording, self._ended = state["steps"], state["recording"], state["ended"]
        self.writer.load_state_dict(state["writer"])
