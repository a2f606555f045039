"""Workers in other processes of this machine.

Every request has a number and every reply repeats it. A process that starts says so once, before its first reply. Its
end is seen at once, its exceptions come back as text, and a call may have a time limit, after which the process is
asked where it is, and ended. Processes are daemons that leave signals to the parent and end when it does, whatever it
died of and whatever they are doing (see `lifeline`). All waiting is blocking.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from multiprocessing import connection as pipes
from multiprocessing import current_process, parent_process
from typing import Any

import torch
from torch import Tensor, multiprocessing

from gaitway.core.agent import Agent
from gaitway.core.workspace import Workspace
from gaitway.processes.lifeline import (
    KILLED,
    end_before_exit,
    end_with_parent,
    how_it_ended,
    leave_signals_to_parent,
    tie,
    without_signals,
)
from gaitway.processes.mirror import ParameterMirror
from gaitway.processes.packing import pack, unpack
from gaitway.processes.worker_host import Cell, Failure, Host, Reply, answer, where_is
from gaitway.processes.workers import UNKNOWN_PLACE, Worker, WorkerConfig

READY = 0
"""Number of the one message that answers no request."""
PATIENCE_S = 2.0
"""How long a process that was told to stop may take before it is killed."""
PIPE_ROOM = 30_000
"""Bytes that a pipe surely takes while nobody reads it."""
WATCH_S = 2.0
"""How often a process looks whether its parent is still the same, besides being told at once by the system."""


class ProcessWorker(Worker):
    """An agent in a process of its own."""

    def __init__(self, index: int, agent: Agent | None, config: WorkerConfig, mirror: ParameterMirror | None) -> None:
        super().__init__(index, agent, config, mirror)
        if current_process().daemon:
            raise RuntimeError("a worker cannot start workers of its own; start all of them in the main process")
        # The agent lies in shared memory, so that starting writes little into pipes and never waits for the process.
        body = None if agent is None else _in_shared_memory(pack(agent, "agent", compact=False))
        context = multiprocessing.get_context(config.start_method)
        self._cell: Cell = context.RawValue("q", -1)
        self._connection, theirs = context.Pipe()
        self._questions, answers = context.Pipe()
        memory = None if mirror is None else mirror.memory
        parent = tie(config.start_method)
        arguments = (theirs, answers, body, memory, self._cell, config.threads, torch.get_default_dtype(), parent)
        name = f"gaitway worker {index}"
        self._process: Any = context.Process(target=_serve, args=arguments, name=name, daemon=True)  # type: ignore[attr-defined]
        self._number = READY  # of the last request
        self._is_idle = True
        # The server that forks must stay as it is, because others may use it too.
        with contextlib.nullcontext() if config.start_method == "forkserver" else without_signals():
            self._process.start()
        theirs.close()
        answers.close()
        self.pid = self._process.pid
        self._finalizer = weakref.finalize(self, _end, self._process, self._connection, self._questions, os.getpid())
        end_before_exit(self, self._finalizer)

    @classmethod
    def _wait_for_news(cls, signs: list[Any], timeout_s: float | None) -> None:
        pipes.wait(signs, timeout_s)

    def _signs(self) -> list[Any]:
        return [self._connection, self._process.sentinel]

    def dismiss(self) -> None:
        if not self._finalizer.alive:
            return
        if self.is_busy or not self._is_ready:
            self._process.kill()
        else:
            _tell_to_stop(self._connection)

    def close(self, reason: str | None = None) -> None:
        self.dismiss()
        super().close(reason)
        self._finalizer()

    def _send(self, request: str, arguments: tuple[Any, ...], workspaces: dict[int, Workspace]) -> None:
        body = pack(arguments, "the arguments")
        self._is_idle = True
        if not self._process.is_alive():
            self._look()  # says of what, and that it had nothing to do
            return
        if len(body) > PIPE_ROOM:
            self._await_ready()
        self._number += 1
        self._is_idle = False
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it is gone: `_look` says why
            self._connection.send((self._number, request, body, workspaces))

    def _await_ready(self) -> None:
        self._look()
        while not self._is_ready and self._outcome is None:
            pipes.wait(self._signs(), self._remaining())
            self._look()

    def _look(self) -> None:
        while self._outcome is None:
            if self._connection.poll():
                try:
                    number, body = self._connection.recv()
                except (EOFError, ConnectionResetError):
                    self._died()
                else:
                    self._take(number, unpack(body))
            elif not self._process.is_alive():
                if not self._connection.poll():  # nothing was written between the two looks
                    self._died()
            elif (remaining := self._remaining()) is not None and remaining <= 0:
                self._hung()
            else:
                return

    def _take(self, number: int, reply: Reply) -> None:
        if number == READY and reply.failure is not None:  # the agent could not be made in the process
            self._outcome = self.error_of(reply.failure)
            self._give_up()
        elif number == READY:
            self._note_ready()
        elif number == self._number:
            self._finish(reply)

    def doing(self) -> str:
        if self._is_ready and self._is_idle and self._call is not None:
            return f"while it was idle, before {self._call.text}"
        return super().doing()

    def _died(self) -> None:
        self._process.join(PATIENCE_S)
        code = self._process.exitcode
        sentence = f"{self.label()} {how_it_ended(code)} {self.doing()}"
        if code == KILLED:
            sentence += ", probably by the system because memory ran out (use fewer processes or environments)"
        elif not self._is_ready and code == 1:
            sentence += ' (a script that starts processes needs `if __name__ == "__main__":` around what it does)'
        error = self.error(sentence, "died", row=self._cell.value)
        error.exit_code = code
        self._outcome = error
        self._give_up()

    def _hung(self) -> None:
        if self._is_ready:
            self._outcome = self.error_of_hanging(*self._where(), self._cell.value)
        else:
            sentence = f"{self.label()} did not start within {self.config.start_timeout_s:g} s and was ended"
            self._outcome = self.error(sentence, "hung")
        self._give_up()

    def _where(self) -> tuple[str, str]:
        """The line of code where the agent is, and the calls that led there."""
        with contextlib.suppress(EOFError, OSError):
            self._questions.send(None)
            if self._questions.poll(PATIENCE_S / 2):
                return self._questions.recv()
        return UNKNOWN_PLACE, ""

    def _give_up(self) -> None:
        """No more requests; the process is ended, the outcome stays to be fetched."""
        self.ended = str(self._outcome)
        self._process.kill()
        self._finalizer()


def _end(process: Any, connection: Any, questions: Any, owner: int) -> None:
    """Make sure that the process is gone, gently first."""
    if os.getpid() != owner:
        return  # a fork of the parent must not end what the parent uses
    _tell_to_stop(connection)
    process.join(PATIENCE_S)
    if process.is_alive():
        process.kill()  # what ends a process in the middle of its work cannot be gentle
        process.join(PATIENCE_S)
    connection.close()
    questions.close()


def _tell_to_stop(connection: Any) -> None:
    with contextlib.suppress(OSError):  # it is gone already
        connection.send((READY, "stop", b"", {}))


def _in_shared_memory(body: bytes) -> Tensor:
    return torch.frombuffer(bytearray(body), dtype=torch.uint8).share_memory_()


# In the process


def _serve(
    connection: Any,
    questions: Any,
    body: Tensor | None,
    memory: Tensor | None,
    cell: Cell,
    threads: int,
    default_dtype: torch.dtype,
    parent: int | None,
) -> None:
    """Answer requests until told to stop, or until the parent is gone."""
    leave_signals_to_parent()
    end_with_parent(parent)
    threading.Thread(target=_watch, args=(questions, threading.get_ident()), daemon=True).start()
    torch.set_num_threads(threads)
    torch.set_default_dtype(default_dtype)
    try:
        try:
            host = Host(None if body is None else unpack(body.numpy().data), memory, cell)
        except Exception as error:
            connection.send((READY, pack(Reply(failure=Failure.of(error)))))
            return
        connection.send((READY, pack(Reply())))
        while True:
            number, request, content, workspaces = connection.recv()
            if request == "stop":
                return
            connection.send((number, answer(host, request, content, workspaces)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the parent is gone or has closed the pipe


def _watch(questions: Any, main_thread: int) -> None:
    """End the process with its parent, even if the agent never returns; say where the agent is when asked."""
    parent = parent_process()
    parent_pid = os.getppid()
    signs: list[Any] = [questions] if parent is None else [questions, parent.sentinel]
    while True:
        ready = pipes.wait(signs, WATCH_S)
        if os.getppid() != parent_pid or (parent is not None and parent.sentinel in ready):
            os._exit(1)
        if questions in ready:
            try:
                questions.recv()
                questions.send(where_is(main_thread))
            except (EOFError, OSError):
                signs.remove(questions)
