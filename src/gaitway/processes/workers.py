"""Workers: the agent of a parent, run elsewhere and asked by messages.

`Worker` is the interface and what is common to all: one request at a time, its time limit, and errors that say in one
sentence what happened to whom. `process_workers` runs workers in other processes, `ray_workers` on a Ray cluster;
`LocalWorker` runs them here, for debugging and where no second process is wanted.
"""

from __future__ import annotations

import contextlib
import copy
import os
import reprlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gaitway.core.agent import Agent
from gaitway.core.config import configuration
from gaitway.core.ranges import Count, Positive
from gaitway.core.user_code import SentenceError
from gaitway.core.workspace import Workspace
from gaitway.processes.mirror import ParameterMirror
from gaitway.processes.packing import pack
from gaitway.processes.worker_host import ACTION, Failure, Host, Reply

UNKNOWN_PLACE = "an unknown place (the process is stopped, or busy outside Python)"
START_METHODS = ("spawn", "forkserver", "fork")


@configuration
class WorkerConfig:
    """How workers are started."""

    start_method: str = "spawn"
    """spawn (correct everywhere), forkserver or fork; for processes only."""
    threads: Count = 1
    """Threads of PyTorch in each worker. Large products may differ in the last digit between thread counts."""
    start_timeout_s: Positive = 120.0
    """How long a worker may take until it is ready."""
    ray_options: Mapping[str, Any] = field(default_factory=lambda: {"num_cpus": 1})
    """Options of the Ray actors, such as {"num_cpus": 1, "num_gpus": 0.5}."""

    def __post_init__(self) -> None:
        if self.start_method not in START_METHODS:
            raise ValueError(f"start_method is {self.start_method!r}; use one of {START_METHODS}")


class RemoteError(SentenceError):
    """A worker failed, died or hung. The message is one sentence; the worker's traceback is in `traceback` and shown
    below the message."""

    kind: str = "ended"
    """failed (an exception), died (the process ended), hung (no answer in time) or ended (before this call)."""
    worker: int | None = None
    pid: int | None = None
    seed: int | None = None
    individual: int | None = None
    """Which one of a population."""
    exception: str | None = None
    """Class of the exception in the worker."""
    traceback: str | None = None
    exit_code: int | None = None
    last_action: Tensor | None = None
    """What was written into `action` last, `[B, ...]`, where it is known."""


@dataclass
class Call:
    """The request under way."""

    text: str
    timeout_s: float | None
    individual: int | None = None
    visible: Workspace | None = None
    """The shared workspace it runs on."""
    started: float = field(default_factory=time.monotonic)

    @property
    def deadline(self) -> float | None:
        return None if self.timeout_s is None else self.started + self.timeout_s


class Worker:
    """Runs an agent elsewhere: `request`, then `result`. One request at a time."""

    is_local = False
    """Whether its agent is the parent's own object, so that there is nothing to bring up to date."""
    shares_memory = True
    """Whether it writes into the very memory of a shared workspace."""

    def __init__(self, index: int, agent: Agent | None, config: WorkerConfig, mirror: ParameterMirror | None) -> None:
        """Begins to start; `agent` is sent along, with `mirror` as the memory its parameters are read from."""
        self.index = index
        self.config = config
        self.pid: int | None = None
        self.seed: int | None = None
        self.ended: str | None = None
        """Why it takes no more requests, in one sentence; None while it does."""
        self.version = -1
        """Of the parameters it was sent last, where they are sent."""
        self._launched, self._is_ready = time.monotonic(), False
        self._call: Call | None = None
        self._outcome: Reply | RemoteError | None = None

    @classmethod
    def pack(cls, value: Any, label: str, compact: bool = True) -> Any:
        """What will be sent for `value`; TypeError that names the attribute if it cannot be sent."""
        return pack(value, label, compact)

    @classmethod
    def wait_any(cls, workers: Sequence[Worker]) -> list[Worker]:
        """Wait until at least one has an answer, or has none to expect any more; returns those."""
        while True:
            settled = [worker for worker in workers if worker.poll()]
            if settled:
                return settled
            limits = [limit for worker in workers if (limit := worker._remaining()) is not None]
            cls._wait_for_news([sign for worker in workers for sign in worker._signs()], min(limits, default=None))

    @classmethod
    def _wait_for_news(cls, signs: list[Any], timeout_s: float | None) -> None:
        """Wait until there is something to see at one of the `signs`, or for `timeout_s`."""
        raise TypeError(f"{cls.__name__} does not say how to wait")

    def _signs(self) -> list[Any]:
        """Where one sees that something has come of this worker."""
        raise TypeError(f"{type(self).__name__} does not say what to wait for")

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way or its result was not fetched."""
        return self._call is not None

    def request(self, request: str, arguments: tuple[Any, ...], call: Call, workspaces: dict[int, Workspace]) -> None:
        """Send a request; raises at once if the worker has ended or is busy."""
        self.check_free()
        self._call = call
        try:
            self._send(request, arguments, workspaces)
        except Exception:
            self._call = None  # nothing was sent
            raise
        except BaseException as error:  # Ctrl-C: perhaps half of it was sent
            self.close(self._interrupted(error))
            raise
        call.started = time.monotonic()

    def check_free(self) -> None:
        """Refuse a further request to a worker that has ended or is busy."""
        if self.ended is not None:
            raise RemoteError(f"no worker runs any more, because {self.ended}; start() begins with a new one")
        if self._call is not None:
            raise RuntimeError(f"{self.label()} is still busy with {self._call.text}; wait() for it first")

    def hurry(self, seconds: float) -> None:
        """Shorten the time limit of the request under way."""
        if self._call is not None:
            limit_s = time.monotonic() + seconds - self._call.started
            self._call.timeout_s = limit_s if self._call.timeout_s is None else min(self._call.timeout_s, limit_s)

    def poll(self) -> bool:
        """Whether `result` would return, or raise, without waiting."""
        if self._outcome is None and self._call is not None:
            self._look()
        return self._outcome is not None

    def result(self, timeout_s: float | None = None) -> Any:
        """Wait for the answer and return it; RemoteError if there is none. `timeout_s` counts from now."""
        if self._call is None:
            raise RuntimeError(f"{self.label()} was asked nothing")
        if timeout_s is not None:
            self._call.timeout_s = time.monotonic() + timeout_s - self._call.started
        try:
            if not self.poll():
                self.wait_any([self])
        except BaseException as error:  # Ctrl-C while waiting: nobody will fetch this answer
            self.close(self._interrupted(error))
            raise
        outcome, self._call, self._outcome = self._outcome, None, None
        if isinstance(outcome, RemoteError):
            raise outcome
        return None if outcome is None else outcome.value

    def dismiss(self) -> None:
        """Tell it to end, without waiting; `close` follows."""

    def close(self, reason: str | None = None) -> None:
        """End the worker, whatever it does. Calling it twice is fine."""
        self.ended = self.ended or reason or f"{self.label()} was closed"
        self._call = self._outcome = None

    def _send(self, request: str, arguments: tuple[Any, ...], workspaces: dict[int, Workspace]) -> None:
        raise TypeError(f"{type(self).__name__} cannot send")

    def _look(self) -> None:
        """Set `_outcome` if there is one by now."""
        raise TypeError(f"{type(self).__name__} cannot look for answers")

    def _note_ready(self) -> None:
        self._is_ready = True
        if self._call is not None:
            self._call.started = time.monotonic()  # the time to start is not that of the call

    def _remaining(self) -> float | None:
        """Seconds until it takes too long: to start, or to answer."""
        if not self._is_ready:
            return self._launched + self.config.start_timeout_s - time.monotonic()
        deadline = None if self._call is None else self._call.deadline
        return None if deadline is None else deadline - time.monotonic()

    # Sentences

    def label(self) -> str:
        """Who this is, for messages."""
        known = [f"{key} {value}" for key, value in (("pid", self.pid), ("seed", self.seed)) if value is not None]
        who = f"worker {self.index}" + (f" ({', '.join(known)})" if known else "")
        individual = None if self._call is None else self._call.individual
        return who if individual is None else f"individual {individual} in {who}"

    def _interrupted(self, error: BaseException) -> str:
        return f"{self.label()} was ended because {type(error).__name__} interrupted its caller"

    def doing(self) -> str:
        """What it is at, for messages."""
        return f"in {self._call.text}" if self._is_ready and self._call is not None else "before it was ready"

    def _finish(self, reply: Reply) -> None:
        """The answer has come."""
        failure = reply.failure
        self._outcome = reply if failure is None else self.error_of(failure)

    def error_of(self, failure: Failure) -> RemoteError:
        """The error that stands for an exception of the worker."""
        first_line = failure.message.strip().splitlines()[0] if failure.message.strip() else ""
        what = f"{failure.exception}: {first_line}" if first_line else failure.exception
        error = self.error(f"{self.label()} failed {self.doing()}: {what}", "failed", failure.last_action, failure.row)
        error.exception, error.traceback, error.__cause__ = failure.exception, failure.traceback, failure.cause
        if failure.cause is None:
            error.add_note(f"In worker {self.index}:\n{failure.traceback.rstrip()}")
        return error

    def error_of_hanging(self, place: str, stack: str, row: int = -1) -> RemoteError:
        """The error that stands for a request that takes too long; where it is, and the calls that led there."""
        call = self._call
        assert call is not None
        seconds = time.monotonic() - call.started
        sentence = f"{self.label()} hung and was ended: {call.text} gave no answer for {seconds:.1f} s and stood at"
        error = self.error(f"{sentence} {place}", "hung", row=row)
        error.traceback = stack or None
        if stack:
            error.add_note(f"In worker {self.index}, innermost call last:\n{stack.rstrip()}")
        return error

    def error(self, sentence: str, kind: str, last_action: Tensor | None = None, row: int = -1) -> RemoteError:
        """A RemoteError about this worker and the request under way."""
        if last_action is None and row >= 0 and self._call is not None and self._call.visible is not None:
            ws = self._call.visible
            last_action = ws.at(ACTION, row).clone() if ACTION in ws and row < ws.rows(ACTION) else None
        if last_action is not None:
            sentence += f"; the last action, of row {row}, was {_short(last_action)}"
        elif row >= 0:
            sentence += f"; the last action was of row {row}"
        error = RemoteError(sentence)
        error.kind, error.worker, error.pid, error.seed = kind, self.index, self.pid, self.seed
        error.individual = None if self._call is None else self._call.individual
        error.last_action = last_action
        return error


class LocalWorker(Worker):
    """Does the work here, when it is asked to: no process, no copy of the agent, no time limit."""

    is_local = True

    def __init__(self, index: int, agent: Agent | None, config: WorkerConfig, mirror: ParameterMirror | None) -> None:
        super().__init__(index, agent, config, mirror)
        self.pid, self._is_ready = os.getpid(), True
        self._host = Host(agent, unwrap=copy.deepcopy)

    @classmethod
    def pack(cls, value: Any, label: str, compact: bool = True) -> Any:
        return value

    @classmethod
    def wait_any(cls, workers: Sequence[Worker]) -> list[Worker]:
        return list(workers)

    def request(self, request: str, arguments: tuple[Any, ...], call: Call, workspaces: dict[int, Workspace]) -> None:
        super().request(request, arguments, call, workspaces)
        with torch_threads(self.config.threads):
            self._finish(self._host.handle(request, arguments, workspaces))

    def _send(self, request: str, arguments: tuple[Any, ...], workspaces: dict[int, Workspace]) -> None:
        pass

    def _look(self) -> None:
        pass


def close_all(workers: Sequence[Worker | None]) -> None:
    """Close workers, which end at the same time."""
    present = [worker for worker in workers if worker is not None]
    for worker in present:
        worker.dismiss()
    for worker in present:
        worker.close()


def describe_call(name: str, t: int, options: Mapping[str, Any]) -> str:
    """A call as it is written, with long values cut short."""
    shown = {key: _short(value) if isinstance(value, Tensor) else reprlib.repr(value) for key, value in options.items()}
    words = [f"{key}={value}" for key, value in shown.items()]
    return f"{name}({', '.join([f't={t}', *words])})"


def _short(value: Tensor) -> str:
    """A tensor within a sentence: its first numbers."""
    if value.numel() <= 12:
        return str(_rounded(value.tolist()))
    first = ", ".join(str(_rounded(number)) for number in value.flatten()[:6].tolist())
    return f"[{first}, ...] of shape {list(value.shape)}"


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


@contextlib.contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """This many threads of PyTorch, so that numbers are those of a worker with as many."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
