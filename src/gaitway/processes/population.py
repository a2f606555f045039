"""Run many individuals on few workers: parameters for one agent, or agents that differ.

    with ParamPopulation(cast, num_processes=4) as population:
        workspaces = population(vectors, apply=load_vector, n_steps=200)  # workspaces[i] belongs to vectors[i]

Each individual runs once, on a workspace of its own, with seed `seed + i`; a free worker takes the next one; results
come in the order of the input, whoever computed them and whenever. Zero processes run everything here, with the same
results. Workers are kept between calls and get the agent as it is then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from torch import Tensor

from gaitway.core.agent import Agent
from gaitway.core.seeding import check_seed
from gaitway.core.workspace import Workspace
from gaitway.processes.kinds import worker_class
from gaitway.processes.packing import Sheet
from gaitway.processes.worker_host import Job
from gaitway.processes.workers import (
    Call,
    LocalWorker,
    RemoteError,
    Worker,
    WorkerConfig,
    close_all,
    describe_call,
)

log = logging.getLogger("gaitway")

ON_ERROR = ("raise", "keep")


class _Population:
    """What populations of both kinds do: hand out individuals, collect results, keep workers."""

    def __init__(
        self,
        num_processes: int = 0,
        *,
        seed: int | None = 0,
        on_error: str = "raise",
        workers: str = "processes",
        timeout_s: float | None = None,
        config: WorkerConfig | None = None,
    ) -> None:
        """Individual i gets seed `seed + i`, or with None keeps its own. An individual that fails does not stop the
        others: then the error of the first is raised, or with `on_error="keep"` its result is None. After `timeout_s`
        an individual counts as hung and its worker is replaced. `workers` is "processes", "ray" or "local"."""
        if num_processes < 0:
            raise ValueError(f"num_processes is {num_processes}; use 0 to run in this process, or a positive number")
        if on_error not in ON_ERROR:
            raise ValueError(f"on_error is {on_error!r}; use one of {ON_ERROR}")
        self.num_processes, self.on_error, self.timeout_s = num_processes, on_error, timeout_s
        self.seed = None if seed is None else check_seed(seed)
        self.config = WorkerConfig() if config is None else config
        self._kind = worker_class(workers) if num_processes else LocalWorker
        self._workers: list[Worker] = []
        self._results: list[Workspace | None] | None = None
        self._agent: Any = None
        self._holders: set[Worker] = set()
        """Workers that have `_agent`."""

    def get_workspaces(self) -> list[Workspace | None]:
        """Results of the last call, in the order of its input; None where an individual failed."""
        if self._results is None:
            raise RuntimeError("no individual has run; call the population first")
        return self._results

    def close(self) -> None:
        """End the workers; a later call starts new ones. Calling it twice is fine."""
        close_all(self._workers)
        self._workers, self._holders = [], set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _run(self, agent: Agent | None, jobs: Sequence[Job], label: str) -> list[Workspace | None]:
        """Run all jobs; everything is packed first, so that what cannot travel is refused before anything starts."""
        if agent is not None:
            packed_agent = self._kind.pack(agent, "agent", compact=False)
            # Locally the agent is sent as it is and copied for each individual, so it is always up to date.
            if self._kind is LocalWorker or packed_agent != self._agent:
                self._agent, self._holders = packed_agent, set()
        parcels = [self._kind.pack(job, f"{label}[{index}]") for index, job in enumerate(jobs)]
        self._results = [None] * len(jobs)
        errors: dict[int, RemoteError] = {}
        try:
            self._hand_out(jobs, parcels, self._results, errors)
        except BaseException:  # Ctrl-C, or no worker could be started
            self.close()
            raise
        if errors and self.on_error == "raise":
            raise _first_of(errors)
        return self._results

    def _hand_out(
        self,
        jobs: Sequence[Job],
        parcels: Sequence[Any],
        results: list[Workspace | None],
        errors: dict[int, RemoteError],
    ) -> None:
        waiting = iter(range(len(jobs)))
        count = min(max(self.num_processes, 1), len(jobs))
        while len(self._workers) < count:
            self._workers.append(self._kind(len(self._workers), None, self.config, None))
        busy: dict[Worker, int] = {}
        for worker, index in zip(self._workers[:count], waiting, strict=False):
            self._give(worker, index, jobs[index], parcels[index])
            busy[worker] = index
        while busy:
            for worker in self._kind.wait_any(list(busy)):
                done = busy.pop(worker)
                try:
                    sheet: Sheet = worker.result()
                    results[done] = sheet.workspace()
                except RemoteError as error:
                    errors[done] = error
                    if error.kind == "died":  # told at once, because the others may take as long as they like
                        log.warning("%s; the other individuals go on", error)
                following = next(waiting, None)
                if following is not None:
                    free = worker if worker.ended is None else self._replace(worker)
                    self._give(free, following, jobs[following], parcels[following])
                    busy[free] = following
        self._workers = [worker for worker in self._workers if worker.ended is None]

    def _give(self, worker: Worker, index: int, job: Job, parcel: Any) -> None:
        agent = None if worker in self._holders else self._agent
        call = Call(describe_call("step", job.t, job.options), self.timeout_s, individual=index)
        worker.seed = job.seed
        worker.request("individual", (agent, parcel), call, {})
        self._holders.add(worker)

    def _replace(self, ended: Worker) -> Worker:
        self._holders.discard(ended)
        fresh = self._kind(ended.index, None, self.config, None)
        self._workers[self._workers.index(ended)] = fresh
        return fresh

    def _seed_of(self, index: int) -> int | None:
        return None if self.seed is None else self.seed + index


class ParamPopulation(_Population):
    """Individuals are parameters of one agent: for evolution strategies, CEM, evaluation of checkpoints.

    `apply(agent, parameters)` puts them into a copy of the agent, in the worker, or returns an agent to run instead.
    """

    def __init__(self, agent: Agent, num_processes: int = 0, **settings: Any) -> None:
        """`settings`: seed, on_error, workers, timeout_s, config; see `AgentPopulation`."""
        super().__init__(num_processes, **settings)
        self.agent = agent

    def __call__(
        self,
        parameters: Sequence[Any] | Tensor,
        apply: Callable[[Agent, Any], Agent | None],
        t: int = 0,
        **options: Any,
    ) -> list[Workspace | None]:
        """Run the agent once for each element of `parameters`, a list or a tensor `[N, ...]`; a workspace for each."""
        jobs = [Job(None, self._seed_of(i), apply, parameters[i], t, options) for i in range(len(parameters))]
        return self._run(self.agent, jobs, "individual")


class AgentPopulation(_Population):
    """Individuals are agents, sent whole to whichever worker is free; those passed in stay as they are."""

    def __call__(
        self,
        agents: Sequence[Agent],
        arguments: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        t: int = 0,
        **options: Any,
    ) -> list[Workspace | None]:
        """Run each agent once. `arguments`: options for all, or a list with those of each; they win over `options`."""
        if arguments is None or isinstance(arguments, Mapping):
            each: Sequence[Mapping[str, Any]] = [arguments or {}] * len(agents)
        else:
            each = arguments
        if len(each) != len(agents):
            raise ValueError(f"{len(each)} arguments for {len(agents)} agents; pass one mapping, or one per agent")
        jobs = []
        for index, (agent, own) in enumerate(zip(agents, each, strict=True)):
            merged = {"t": t, **options, **own}
            row = merged.pop("t")
            jobs.append(Job(agent, self._seed_of(index), None, None, row, merged))
        return self._run(None, jobs, "individual")


def _first_of(errors: Mapping[int, RemoteError]) -> RemoteError:
    first = errors[min(errors)]
    others = sorted(errors)[1:]
    if others:
        first.add_note(f"{len(others)} more individuals failed: {others[:20]}")
    return first
