"""Workers on a Ray cluster: the same requests and answers as between processes, so that results are the same.

Machines of a cluster share no memory. Workspaces and changed parameters travel with every call, and what a remote agent
wrote is copied into the shared workspace when the call ends. Needs the extra `gaitway[ray]`, and gaitway and the
modules of the agents installed on every machine. A cluster that `ray.init` has joined is used, or one is started here.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import weakref
from typing import Any

import torch

from gaitway.core.agent import Agent
from gaitway.core.workspace import Workspace
from gaitway.processes.mirror import ParameterMirror
from gaitway.processes.packing import pack, unpack
from gaitway.processes.worker_host import Failure, Host, Reply, answer, where_is
from gaitway.processes.workers import UNKNOWN_PLACE, Worker, WorkerConfig

try:
    import ray
    from ray.exceptions import RayError
except ImportError as error:
    raise ImportError('workers="ray" needs Ray, which is not installed; pip install "gaitway[ray]"') from error

PATIENCE_S = 2.0
"""How long a worker that hangs may take to say where it is."""


class RayWorker(Worker):
    """An agent in an actor of a Ray cluster."""

    shares_memory = False

    def __init__(self, index: int, agent: Agent | None, config: WorkerConfig, mirror: ParameterMirror | None) -> None:
        super().__init__(index, agent, config, mirror)
        body = None if agent is None else pack(agent, "agent", compact=False)
        ensure_cluster()
        remote: Any = ray.remote  # whose type knows only some of its options
        kind = remote(concurrency_groups={"questions": 1}, max_restarts=0)(_Actor)
        self._actor: Any = kind.options(**config.ray_options).remote(body, config.threads, torch.get_default_dtype())
        self._ready: Any = self._actor.ready.remote()
        self._reply: Any = None
        self._finalizer = weakref.finalize(self, _end, self._actor)

    @classmethod
    def _wait_for_news(cls, signs: list[Any], timeout_s: float | None) -> None:
        ray.wait(signs, num_returns=1, timeout=None if timeout_s is None else max(timeout_s, 0))

    def _signs(self) -> list[Any]:
        return [self._awaited]

    def close(self, reason: str | None = None) -> None:
        super().close(reason)
        self._finalizer()

    def _send(self, request: str, arguments: tuple[Any, ...], workspaces: dict[int, Workspace]) -> None:
        if workspaces:
            raise RuntimeError("no memory is shared with a Ray worker; workspaces are sent by value")
        self._reply = self._actor.handle.remote(request, pack(arguments, "the arguments"))

    @property
    def _awaited(self) -> Any:
        """What comes next: that it is ready, or its reply."""
        return self._reply if self._is_ready else self._ready

    def _look(self) -> None:
        while self._outcome is None:
            if ray.wait([self._awaited], timeout=0)[0]:
                try:
                    reply: Reply = unpack(ray.get(self._awaited))
                except RayError as error:
                    self._died(error)
                else:
                    self._take(reply)
            elif (remaining := self._remaining()) is not None and remaining <= 0:
                self._hung()
            else:
                return

    def _take(self, reply: Reply) -> None:
        if self._is_ready:
            self._finish(reply)
        elif reply.failure is not None:  # the agent could not be made over there
            self._outcome = self.error_of(reply.failure)
            self._give_up()
        else:
            self.pid = reply.value
            self._note_ready()

    def _died(self, reason: RayError) -> None:
        sentence = (
            f"{self.label()} died {self.doing()}: its process crashed or was killed, perhaps because memory ran out"
        )
        self._outcome = self.error(f"{sentence} (Ray reports {type(reason).__name__})", "died")
        self._outcome.add_note(str(reason))
        self._give_up()

    def _hung(self) -> None:
        if self._is_ready:
            self._outcome = self.error_of_hanging(*self._where())
        else:
            sentence = f"{self.label()} did not start within {self.config.start_timeout_s:g} s and was ended"
            needs = f"; the cluster may have no room for {dict(self.config.ray_options)}"
            self._outcome = self.error(sentence + needs, "hung")
        self._give_up()

    def _where(self) -> tuple[str, str]:
        try:
            return ray.get(self._actor.where.remote(), timeout=PATIENCE_S)
        except RayError:
            return UNKNOWN_PLACE, ""

    def _give_up(self) -> None:
        self.ended = str(self._outcome)
        self._finalizer()


def ensure_cluster() -> None:
    """Join or start a cluster, unless that was done. `ray.init` replaces the SIGTERM handler, with which a run saves
    itself, by an exit: put it back."""
    if ray.is_initialized():
        return
    handler = signal.getsignal(signal.SIGTERM)
    ray.init(include_dashboard=False, logging_level=logging.WARNING)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def _end(actor: Any) -> None:
    if ray.is_initialized():
        ray.kill(actor)


class _Actor:
    """The other side: a host in a process of the cluster. Questions are answered while it works."""

    def __init__(self, body: bytes | None, threads: int, default_dtype: torch.dtype) -> None:
        self._body, self._threads, self._default_dtype = body, threads, default_dtype
        self._host: Host | None = None
        self._thread = 0

    def ready(self) -> bytes:
        """The id of the process once the agent is made, or why it could not be made."""
        torch.set_default_dtype(self._default_dtype)
        try:
            self._host = Host(None if self._body is None else unpack(self._body))
        except Exception as error:
            return pack(Reply(failure=Failure.of(error)))
        return pack(Reply(os.getpid()))

    def handle(self, request: str, body: bytes) -> bytes:
        if self._host is None:
            raise RuntimeError("ready() comes first")
        torch.set_num_threads(self._threads)  # counts for the thread that calls it
        self._thread = threading.get_ident()
        return answer(self._host, request, body, {})

    @ray.method(concurrency_group="questions")
    def where(self) -> tuple[str, str]:
        return where_is(self._thread)
