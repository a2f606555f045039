"""What a worker does with its agent, wherever it lives: in another process, in a Ray actor, or here for debugging.

A `Host` holds an agent and answers requests: run it on a workspace both sides see (`run`), on one of its own
(`fresh`), or run one individual of a population (`individual`). It never raises: a failure goes back as data, with the
traceback and the last action, and the worker is ready for the next request.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from gaitway.core.agent import Agent
from gaitway.core.seeding import global_state, seed_globals, set_global_state
from gaitway.core.workspace import Workspace
from gaitway.processes.mirror import BufferRecord, ParameterMirror, Update, set_training_flags
from gaitway.processes.packing import Sheet, pack, unpack

ACTION = "action"


class Cell(Protocol):
    """A number that both sides may see; the row of the last action, -1 before the first."""

    value: int


class PlainCell:
    """A cell that only this process sees."""

    def __init__(self) -> None:
        self.value = -1


class WatchedWorkspace(Workspace):
    """The workspace `behind` it, which also notes the row of the last action: what people ask for first when
    a simulation fails."""

    def __init__(self, cell: Cell, behind: Workspace) -> None:
        super().__init__(strict=behind.strict, extra_row=behind.extra_row)
        self._variables, self._is_view = behind._variables, behind._is_view
        self._cell = cell

    def put(self, name: str, t: int, value: Tensor) -> None:
        super().put(name, t, value)
        if name == ACTION:
            self._cell.value = t

    def copier(self, name: str) -> Callable[[int, Tensor], None]:
        put = super().copier(name)
        if name != ACTION:
            return put

        def put_action(t: int, value: Tensor) -> None:
            put(t, value)
            self._cell.value = t

        return put_action

    def __setitem__(self, name: str, value: Tensor) -> None:
        super().__setitem__(name, value)
        if name == ACTION:
            self._cell.value = len(value) - 1

    def last_action(self) -> Tensor | None:
        """The row of `action` written last, `[B, ...]`."""
        row = self._cell.value
        return None if row < 0 or ACTION not in self else self.at(ACTION, row).detach().cpu().clone()


@dataclass(frozen=True)
class Failure:
    """An exception of a worker, as data."""

    exception: str
    message: str
    traceback: str
    last_action: Tensor | None = None
    row: int = -1
    cause: BaseException | None = None
    """The exception itself, where it never left this process."""

    @classmethod
    def of(cls, error: BaseException, ws: WatchedWorkspace | None = None, row: int = -1) -> Failure:
        text = "".join(traceback.format_exception(error))
        return cls(type(error).__name__, str(error), text, None if ws is None else ws.last_action(), row, error)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "cause": None}  # exceptions of other libraries need not be picklable


class Reply(NamedTuple):
    """What a host answers: a value, or the failure that came instead of one."""

    value: Any = None
    failure: Failure | None = None


class Job(NamedTuple):
    """One individual of a population."""

    agent: Agent | None
    """None: the population's own."""
    seed: int | None
    apply: Callable[[Agent, Any], Agent | None] | None
    parameters: Any
    t: int
    options: dict[str, Any]


class Host:
    """The agent of a worker and the requests it answers; `unwrap` makes a private object of what was sent."""

    def __init__(
        self,
        agent: Agent | None = None,
        memory: Tensor | None = None,
        cell: Cell | None = None,
        unwrap: Callable[[Any], Any] = unpack,
    ) -> None:
        self.agent = agent
        self.cell = cell or PlainCell()
        self._unwrap = unwrap
        self._mirror = None if agent is None else ParameterMirror(agent, memory, shared=False)
        self._buffers = None if agent is None else BufferRecord(agent)
        self._version = -1
        self._workspaces: dict[int, Workspace] = {}
        self._watched: WatchedWorkspace | None = None
        self._pristine: Any = None
        self._requests: dict[str, Callable[..., Any]] = {
            "run": self._run,
            "by_value": self._by_value,
            "fresh": self._fresh,
            "seed": self._seed,
            "individual": self._individual,
        }

    def handle(self, request: str, arguments: tuple[Any, ...], workspaces: dict[int, Workspace]) -> Reply:
        """Answer one request; `workspaces` are the shared ones it brings along, by number."""
        self._workspaces.update(workspaces)
        self._watched, self.cell.value = None, -1
        try:
            with torch.no_grad():
                return Reply(self._requests[request](*arguments))
        except (Exception, SystemExit) as error:  # an agent that calls sys.exit must not take the worker along
            return Reply(failure=Failure.of(error, self._watched, self.cell.value))
        finally:
            self._watched = None

    # Requests

    def _run(
        self, method: str, number: int, known: set[int], t: int, options: dict[str, Any], update: Update | None
    ) -> Any:
        """On shared workspace `number`, in place; those not `known` any more are forgotten."""
        self._workspaces = {each: ws for each, ws in self._workspaces.items() if each in known}
        return *self._call(method, self._workspaces[number], t, options, update), None

    def _by_value(self, method: str, sheet: Sheet, t: int, options: dict[str, Any], update: Update | None) -> Any:
        """As `run`, on a copy of the workspace that travels both ways."""
        ws = sheet.workspace().share_memory()  # so that it takes no new variable, as the original would not
        return *self._call(method, ws, t, options, update), Sheet(ws)

    def _fresh(self, t: int, options: dict[str, Any], update: Update | None) -> Any:
        """On a new workspace, which goes back packed."""
        ws = Workspace()
        return *self._call("step", ws, t, options, update), Sheet(ws)

    def _seed(self, seed: int) -> None:
        self._required().seed(seed)

    def _individual(self, pristine: Any, job: Any) -> Sheet:
        """Run one `Job`; `pristine` is the population's agent as it was sent, None for that of the last request."""
        if pristine is not None:
            self._pristine = pristine
        given: Job = self._unwrap(job)
        agent: Agent = self._unwrap(self._pristine) if given.agent is None else given.agent
        with _private_randomness(given.seed):
            if given.apply is not None:
                replacement = given.apply(agent, given.parameters)
                agent = agent if replacement is None else replacement
            if given.seed is not None:
                _seed_individual(agent, given.seed)
            ws = self._watch(Workspace())
            agent(ws, given.t, **given.options)
        return Sheet(ws)

    # Parts of them

    def _call(
        self, method: str, ws: Workspace, t: int, options: dict[str, Any], update: Update | None
    ) -> tuple[Any, dict[str, Tensor]]:
        """What the agent returned, and the buffers that changed."""
        agent, watched = self._required(), self._watch(ws)
        with self._brought_up_to_date(update) as changed:
            if method == "step":
                return agent(watched, t, **options), changed
            agent.reset(watched, t, **options)
        return None, changed

    def _watch(self, ws: Workspace) -> WatchedWorkspace:
        self._watched = WatchedWorkspace(self.cell, ws)
        return self._watched

    def _required(self) -> Agent:
        if self.agent is None:
            raise RuntimeError("this worker was started without an agent")
        return self.agent

    @contextlib.contextmanager
    def _brought_up_to_date(self, update: Update | None) -> Iterator[dict[str, Tensor]]:
        """Take over what changed in the parent; afterwards the yielded dict holds the buffers that changed here."""
        changed: dict[str, Tensor] = {}
        if update is None or self.agent is None or self._mirror is None or self._buffers is None:
            yield changed
            return
        if update.memory is not None:
            self._mirror.memory = update.memory
        if update.version != self._version:
            self._mirror.read_into(self.agent)
            self._version = update.version
        if update.seed is not None:
            seed_globals(update.seed)
        self._buffers.accept(self.agent, update.buffers)
        set_training_flags(self.agent, update.training)
        yield changed
        changed.update(self._buffers.changes(self.agent))


def answer(host: Host, request: str, content: bytes, workspaces: dict[int, Workspace]) -> bytes:
    """The packed reply to a packed request."""
    try:
        return pack(host.handle(request, unpack(content), workspaces), "what the agent returned")
    except Exception as error:  # arguments that cannot be made here, results that cannot travel
        return pack(Reply(failure=Failure.of(error)))


def where_is(thread: int) -> tuple[str, str]:
    """The line of code where a thread is, and the calls that led there, innermost last."""
    calls = traceback.extract_stack(sys._current_frames()[thread])
    here = calls[-1]
    place = f"line {here.lineno} of {os.path.basename(here.filename)}, in {here.name}: {here.line}"
    return place, "".join(traceback.format_list(calls))


def _seed_individual(agent: Agent, seed: int) -> None:
    try:
        agent.seed(seed)
    except RuntimeError as error:
        raise RuntimeError(f"{error}; or give the population seed=None, and its agents keep their own seeds") from error


@contextlib.contextmanager
def _private_randomness(seed: int | None) -> Iterator[None]:
    """The process-wide generators start from `seed` and are put back: user code that draws from them gives the same
    numbers in every worker and disturbs nobody."""
    if seed is None:
        yield
        return
    state = global_state()
    seed_globals(seed)
    try:
        yield
    finally:
        set_global_state(state)
