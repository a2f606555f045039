"""Copies of an agent in several processes, each on its own columns of one shared workspace.

agents, ws = NRemoteAgent.create(cast, num_processes=4, n_steps=128)
with agents.seed(0):
    agents(ws, 0, n_steps=128)  # ws[name] is [128, 4 * b, ...]
"""

from __future__ import annotations

import contextlib
import copy
import time
import weakref
from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from gaitway.core.agent import Agent
from gaitway.core.seeding import check_seed, global_state, set_global_state
from gaitway.core.workspace import Workspace
from gaitway.processes.kinds import worker_class
from gaitway.processes.mirror import ParameterMirror
from gaitway.processes.remote import RemoteAgent
from gaitway.processes.workers import RemoteError, Worker, WorkerConfig, close_all

GRACE_S = 5.0
"""After one of several workers failed, how long the others may take to finish before they are ended."""
GRACE_AFTER_DEATH_S = 0.3
"""The same after one died, which is told within a second whatever the others do."""


class NRemoteAgent(Agent):
    """Runs copies of an agent in n processes, each on its own columns of one shared workspace.

    `NRemoteAgent.create` makes both. Process k owns columns `k*b .. (k+1)*b - 1`. The copies share the parameters of
    the agent they were made of, and have buffers and random streams of their own: give them seeds with `seed`.
    """

    def __init__(self, agents: list[RemoteAgent], name: str | None = None) -> None:
        super().__init__(name)
        if not agents:
            raise ValueError("no agents to run; NRemoteAgent.create(agent, num_processes) makes them")
        self.agents = nn.ModuleList(agents)
        self._forget()

    def _forget(self) -> None:
        self._mirror: ParameterMirror | None = None
        self._views: weakref.WeakKeyDictionary[Workspace, list[Workspace]] = weakref.WeakKeyDictionary()

    @classmethod
    def create(
        cls,
        agent: Agent,
        num_processes: int = 0,
        rows: int | None = None,
        *,
        t: int = 0,
        workers: str = "processes",
        timeout_s: float | None = None,
        config: WorkerConfig | None = None,
        **options: Any,
    ) -> tuple[Self, Workspace]:
        """The agents and their shared workspace of zeros, with `rows` steps, or as many as a trial run makes.

        A copy of the agent runs once, here, with `t` and `options`, to find the variables; the agent itself and the
        global random state stay as they are. `num_processes=0` runs everything in this process.
        """
        if num_processes < 0:
            raise ValueError(f"num_processes is {num_processes}; use 0 to run in this process, or a positive number")
        trial, state = Workspace(), global_state()
        with torch.no_grad():
            agent.clone()(trial, t, **options)
        set_global_state(state)
        ws = trial.share_memory(max(num_processes, 1), trial.T if rows is None else rows)
        parameters = {id(parameter): parameter for parameter in agent.parameters()}
        kind = workers if num_processes else "local"
        agents = [
            RemoteAgent(
                copy.deepcopy(agent, dict(parameters)), workers=kind, timeout_s=timeout_s, config=config, index=index
            )
            for index in range(max(num_processes, 1))
        ]
        return cls(agents), ws

    def __call__(self, ws: Workspace, t: int = 0, **options: Any) -> list[Any]:
        """Run all agents and return what they return, when all are done."""
        try:
            self.call_async(ws, t, **options)
            return self.wait()
        except KeyboardInterrupt:
            self.close()
            raise

    def step(self, ws: Workspace, t: int, **options: Any) -> None:
        self(ws, t, **options)

    def start(self) -> Self:
        """Start all workers, without waiting until they are ready; the first call does it too."""
        each = self._each
        if not worker_class(each[0].workers).is_local and not any(agent.is_started for agent in each):
            self._mirror = ParameterMirror(each[0].agent, shared=worker_class(each[0].workers).shares_memory)
        for agent in each:
            agent.start(self._mirror)
        return self

    def call_async(self, ws: Workspace, t: int = 0, **options: Any) -> None:
        """Begin to run all agents on `ws`; `is_running` and `wait` follow."""
        views = self._views_of(ws)
        if not any(agent.was_started for agent in self._each):
            self.start()
        for agent in self._each:
            agent.check_free()  # before the parameters are written, which a busy worker may be reading
        if self._mirror is not None:
            self._mirror.update(self._each[0].agent)
        for agent, view in zip(self._each, views, strict=True):
            agent.call_async(view, t, **options)

    def is_running(self) -> bool:
        """Whether any of the agents is still at work."""
        return any(agent.is_running() for agent in self._each)

    def wait(self, timeout_s: float | None = None) -> list[Any]:
        """What the agents returned, when all are done. The first RemoteError is raised, after the other workers had
        a few seconds to finish; those that did not are ended."""
        workers = {agent.worker: index for index, agent in enumerate(self._each)}
        if not all(worker.is_busy for worker in workers):
            raise RuntimeError("no call is under way; begin one first")
        results: list[Any] = [None] * len(workers)
        first: RemoteError | None = None
        try:
            if timeout_s is not None:
                for worker in workers:
                    worker.hurry(timeout_s)
            while workers:
                for worker in type(next(iter(workers))).wait_any(list(workers)):
                    index = workers.pop(worker)
                    try:
                        results[index] = self._each[index].wait()
                    except RemoteError as error:
                        first = first or error
                        for other in workers:
                            other.hurry(GRACE_S)
                        if error.kind == "died":
                            self._end_late(workers)
                            workers.clear()
        except BaseException:
            self.close()
            raise
        if first is not None:
            raise first
        return results

    def _end_late(self, workers: Mapping[Worker, int]) -> None:
        """Fetch what comes within a moment, and end the others without asking where they are."""
        end = time.monotonic() + GRACE_AFTER_DEATH_S
        while time.monotonic() < end and not all(worker.poll() for worker in workers):
            time.sleep(0.01)
        close_all([worker for worker in workers if not worker.poll()])
        for worker, index in workers.items():
            if worker.is_busy:
                with contextlib.suppress(RemoteError):  # it is the first one that is told
                    self._each[index].wait()

    def reset(self, ws: Workspace, t: int, mask: Tensor) -> None:
        share = len(mask) // len(self._each)
        for agent, view, part in zip(self._each, self._views_of(ws), mask.split(share), strict=True):
            agent.reset(view, t, part)

    def seed(self, seed: int, increment: int = 1) -> Self:
        """The agent of process k gets seed `seed + k * increment`."""
        check_seed(seed)
        for index, agent in enumerate(self._each):
            agent.seed(seed + index * increment)
        return self

    def push_parameters(self, source: nn.Module, name: str | None = None) -> Self:
        """Take over parameters and buffers of `source`; see `RemoteAgent.push_parameters`."""
        for agent in self._each:
            agent.push_parameters(source, name)
        return self

    def close(self) -> None:
        """End all workers, whatever they do. Calling it twice is fine."""
        close_all([agent.worker for agent in self._each if agent.was_started])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_mirror", "_views")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._forget()

    # What the agents are to a cast

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        return self._each[0].reads

    @property
    def writes(self) -> tuple[str, ...]:  # type: ignore[override]
        return self._each[0].writes

    def declared_options(self) -> frozenset[str] | None:
        return self._each[0].declared_options()

    @property
    def resets(self) -> bool:
        return self._each[0].resets

    def parts(self) -> tuple[Agent, ...]:
        return self._each[0].parts()

    @property
    def _each(self) -> list[RemoteAgent]:
        return list(self.agents)  # type: ignore[arg-type]

    def _views_of(self, ws: Workspace) -> list[Workspace]:
        """The columns of each process, made once per workspace, so that they are sent once."""
        views = self._views.get(ws)
        if views is None:
            share, rest = divmod(ws.B, len(self.agents))
            if rest or not share:
                raise ValueError(
                    f"{ws.B} columns cannot be shared by {len(self.agents)} processes; use a multiple, as "
                    "NRemoteAgent.create makes it"
                )
            views = [ws.batch_view(start, start + share) for start in range(0, ws.B, share)]
            self._views[ws] = views
        return views
