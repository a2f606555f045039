"""Gymnasium's worker processes, watched: one that dies is told at once and by name, whatever the others do.

Gymnasium waits for its workers one after the other and for ever, and asks nobody whether they live. All it says to them
goes through `parent_pipes`, so pipes that look after their processes (`WatchedPipe`) are enough to change that. The
workers leave signals to their parent and end with it (see `processes/lifeline.py`).
"""

from __future__ import annotations

import contextlib
import pickle
import sys
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from gymnasium.vector import AsyncVectorEnv
from gymnasium.vector.async_vector_env import AsyncState, _async_worker

from gaitway.processes.lifeline import KILLED, end_with_parent, how_it_ended, leave_signals_to_parent
from gaitway.processes.workers import RemoteError

GLANCE_S = 0.2
"""How often whoever waits for one worker looks after the others."""
PATIENCE_S = 5.0
"""How long workers that are told to close may take before they are killed."""
REQUESTS = {"step": "in step", "reset": "in reset", "close": "in close"}
"""What a worker is at, by the request it has not answered."""


class WatchedPipe:
    """The parent's end of the pipe to one worker. Waiting ends when any of the workers does, with a `RemoteError`."""

    def __init__(self, connection: Any, index: int, team: Team) -> None:
        self.connection, self.index, self.team = connection, index, team
        self.request: str | None = None
        """What the worker was asked and has not answered."""
        self.has_answered = False

    @property
    def closed(self) -> bool:
        return self.connection.closed

    def close(self) -> None:
        with contextlib.suppress(OSError):  # collected together with this, it is closed already and does not know it
            self.connection.close()

    def send(self, message: tuple[str, Any]) -> None:
        try:
            self.connection.send(message)
        except OSError as error:  # nobody reads any more
            raise self.team.death_of(self.index) from error
        self.request = message[0]

    def poll(self, timeout: float = 0.0) -> bool:
        end = time.monotonic() + timeout
        while not self.connection.poll(min(max(end - time.monotonic(), 0.0), GLANCE_S)):
            self.team.check()
            if time.monotonic() >= end:
                return False
        return True

    def recv(self) -> Any:
        while not self.connection.poll(GLANCE_S):
            self.team.check()
        try:
            answer = self.connection.recv()
        except (EOFError, OSError) as error:
            raise self.team.death_of(self.index) from error
        self.request, self.has_answered = None, True
        return answer

    def was_idle(self) -> bool:
        """Whether a worker that has ended owed no answer: it had none to give, or has given it."""
        if self.request is None:
            return True
        try:
            if self.connection.poll():
                self.connection.recv()
                return True
        except (EOFError, OSError):
            pass  # it left the pipe empty
        return False


class Team:
    """The workers of a vector environment, by number, and what is said about them; `name` is the environment's."""

    def __init__(self, vector: AsyncVectorEnv, name: str) -> None:
        self.name, self.processes = name, vector.processes
        self.ended: str | None = None
        """Which death ended all workers, in one sentence."""
        self._vector = weakref.ref(vector)
        self.pipes = [WatchedPipe(pipe, index, self) for index, pipe in enumerate(vector.parent_pipes)]
        vector.parent_pipes = list(self.pipes)  # type: ignore[arg-type]  # gymnasium puts None where one has failed

    def check(self) -> None:
        """Raise if a worker has ended."""
        for index, process in enumerate(self.processes):
            if not process.is_alive():
                raise self.death_of(index)

    def assert_is_running(self) -> None:
        if self.ended is not None:
            raise RemoteError(f"no worker runs any more, because {self.ended}; make the environment anew")

    def death_of(self, index: int) -> RemoteError:
        """The error that stands for a worker that has ended; the others are ended too."""
        error = self._describe_death(index)
        self.ended = str(error)
        self.end(0.0)
        vector = self._vector()
        if vector is not None:
            vector._state = AsyncState.DEFAULT  # nothing will be answered any more
        return error

    def _describe_death(self, index: int) -> RemoteError:
        process, pipe = self.processes[index], self.pipes[index]
        process.join(1.0)  # its pipe may be closed a moment before it is gone
        code = process.exitcode
        at = "while it was idle" if pipe.was_idle() else REQUESTS.get(str(pipe.request), "in a call")
        at = at if pipe.has_answered else "while it was made"
        sentence = f"{self.label(index)} {how_it_ended(code)} {at}"
        if code == KILLED:
            sentence += ", probably by the system because memory ran out (use fewer environments)"
        else:
            sentence += "; look at what the environment does there, or try vectorization=sync"
        return self._error(sentence, "died", index, code)

    def failure_of(self, index: int, kind: type[BaseException], value: Any, trace: str) -> RemoteError:
        """The error that stands for an exception of a worker."""
        text = str(value).strip()
        what = f"{kind.__name__}: {text.splitlines()[0]}" if text else kind.__name__
        error = self._error(f"{self.label(index)} failed: {what}", "failed", index, None)
        error.exception, error.traceback = kind.__name__, trace
        error.add_note(f"In worker {index}:\n{trace.rstrip()}")
        return error

    def end(self, patience_s: float) -> None:
        """End all processes: those that are idle kindly, within `patience_s`, the others at once."""
        for process, pipe in zip(self.processes, self.pipes, strict=True):
            if patience_s > 0 and pipe.request is None and not pipe.closed and process.is_alive():
                with contextlib.suppress(OSError):
                    pipe.connection.send(("close", None))
            else:
                process.kill()
        end = time.monotonic() + patience_s
        for process in self.processes:
            process.join(max(end - time.monotonic(), 0.0))
        end_processes(self.processes)
        for pipe in self.pipes:
            pipe.close()

    def label(self, index: int) -> str:
        return f"worker {index} (pid {self.processes[index].pid}) of {self.name}"

    def _error(self, sentence: str, kind: str, index: int, code: int | None) -> RemoteError:
        error = RemoteError(sentence)
        error.kind, error.worker, error.pid, error.exit_code = kind, index, self.processes[index].pid, code
        return error


def end_processes(processes: Sequence[Any]) -> None:
    """Make sure that they are gone. They heed no SIGTERM."""
    started = [process for process in processes if process.pid is not None]
    for process in started:
        process.kill()
    for process in started:
        process.join()


def serve(
    parent: int | None,
    loop: Callable[..., None] | None,
    index: int,
    make: Callable[[], Any],
    pipe: Any,
    parent_pipe: Any,
    shared_memory: Any,
    errors: Any,
    *others: Any,
) -> None:
    """A worker, in its process: gymnasium's loop, or the user's, with an environment that was made under its eyes."""
    leave_signals_to_parent()
    end_with_parent(parent)
    errors = _Errors(errors)
    try:
        env = make()
    except BaseException as error:  # SystemExit too: a module that is imported here may try to end the process
        parent_pipe.close()
        errors.put((index, type(error), error, traceback.format_exc()))
        with contextlib.suppress(EOFError, OSError):  # the parent does not wait for it any more
            pipe.recv()
            pipe.send((None, False))
        return
    try:
        (loop or _async_worker)(index, lambda: env, pipe, parent_pipe, shared_memory, errors, *others)
    except (BrokenPipeError, ConnectionResetError):
        sys.exit(1)  # the parent is gone, and so is whoever would read a traceback


class _Errors:
    """A queue of gymnasium's error reports, in which every exception can travel: as itself, or as its text."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue

    def put(self, report: tuple[int, type[BaseException], BaseException, str]) -> None:
        index, kind, value, trace = report
        try:
            pickle.loads(pickle.dumps((kind, value)))
        except Exception:  # whatever a class of the user does
            kind, value = RuntimeError, RuntimeError(f"{kind.__name__}: {value}")
        self._queue.put((index, kind, value, trace))
