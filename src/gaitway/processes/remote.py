"""The same agent in another process, or on another machine.

    ws = Workspace.dense({...}).share_memory()
    with RemoteAgent(agent) as remote:
        remote(ws, 0, n_steps=100)  # the numbers of agent(ws, 0, n_steps=100), computed elsewhere

`RemoteAgent` works on a shared workspace; `AsynchronousAgent` on one of its own while the caller goes on, such as an
evaluation during training. `processes.n_remote` has several processes work on one workspace. `workers="ray"` sends the
same work to a Ray cluster.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from gaitway.core.workspace import Workspace
from gaitway.processes.elsewhere import Elsewhere
from gaitway.processes.packing import Sheet
from gaitway.processes.workers import Call, RemoteError, WorkerConfig, describe_call

__all__ = ["AsynchronousAgent", "RemoteAgent", "RemoteError", "WorkerConfig"]


class RemoteAgent(Elsewhere):
    """Runs an agent in another process on a shared workspace: `remote(ws, t, **options)`.

    The result is bit for bit that of the agent run here, with the same seed and as many threads. The process starts
    with the first call, or with `start()` or `with`.
    """

    _of_the_worker = (*Elsewhere._of_the_worker, "_numbers", "_target")
    _target: Workspace | None

    def __call__(self, ws: Workspace, t: int = 0, **options: Any) -> Any:
        """Run the agent on `ws` and return what it returns, when it is done."""
        try:
            self.call_async(ws, t, **options)
            return self.wait()
        except KeyboardInterrupt:
            self.close()
            raise

    def step(self, ws: Workspace, t: int, **options: Any) -> None:
        self(ws, t, **options)

    def reset(self, ws: Workspace, t: int, mask: Tensor) -> None:
        self._begin("reset", ws, t, {"mask": mask})
        self.wait()

    def call_async(self, ws: Workspace, t: int = 0, **options: Any) -> None:
        """Begin to run the agent on `ws`; `is_running` and `wait` follow."""
        self._begin("step", ws, t, options)

    def is_running(self) -> bool:
        """Whether a call is under way; what failed says so in `wait`."""
        return self._worker is not None and self._worker.is_busy and not self._worker.poll()

    def wait(self, timeout_s: float | None = None) -> Any:
        """What the agent returned, when it is done. RemoteError if it failed, if the worker died, or if this takes
        longer than `timeout_s` (not counting the start), in which case the worker is ended."""
        value, sheet = self._answer(timeout_s)
        if sheet is not None and self._target is not None:
            for name, tensor in sheet.tensors.items():
                self._target[name] = tensor
        self._target = None
        return value

    def _forget_worker(self) -> None:
        super()._forget_worker()
        # Workspaces the worker knows, by number: each is sent once.
        self._numbers: weakref.WeakKeyDictionary[Workspace, int] = weakref.WeakKeyDictionary()
        self._last_number = 0
        self._target = None

    def _begin(self, method: str, ws: Workspace, t: int, options: Mapping[str, Any]) -> None:
        if not ws.is_shared:
            raise ValueError(
                "a remote agent writes into shared memory; pass ws.share_memory(), made when all variables are there"
            )
        worker = self._free_worker()
        call = Call(describe_call(method, t, options), self.timeout_s, visible=ws)
        if not worker.shares_memory:
            self._request("by_value", (method, Sheet(ws), t, options), call)
        elif ws in self._numbers:
            known = set(self._numbers.values())
            self._request("run", (method, self._numbers[ws], known, t, options), call)
        else:
            self._last_number = number = self._last_number + 1
            # a plain workspace: one that is traced here is not so over there
            known = {*self._numbers.values(), number}
            self._request("run", (method, number, known, t, options), call, {number: Workspace.to(ws, "cpu")})
            self._numbers[ws] = number
        self._target = ws


class AsynchronousAgent(Elsewhere):
    """Runs an agent in another process on a new workspace while the caller goes on: `agent(n_steps=100)`.

    It uses the weights it has when the run begins, however they change meanwhile. What goes wrong in a run is raised by
    `is_running`, `wait` and `get_workspace`, until the next run begins.
    """

    _workspace: Workspace | None = None
    _error: RemoteError | None = None

    def __call__(self, t: int = 0, **options: Any) -> None:  # type: ignore[override]
        """Begin a run and return at once."""
        if self._error is None and self.is_running():  # an error nobody has seen yet is raised here
            raise RuntimeError("a run is under way; wait() for it before the next one")
        self._workspace = self._error = None
        self._request("fresh", (t, options), Call(describe_call("step", t, options), self.timeout_s))

    def step(self, ws: Workspace, t: int, **options: Any) -> None:
        raise TypeError("an asynchronous agent has a workspace of its own and no place in a cast; use RemoteAgent")

    def is_running(self) -> bool:
        """Whether a run is under way."""
        if self._error is not None:
            raise self._error
        if self._worker is None or not self._worker.is_busy:
            return False
        if self._worker.poll():
            self._collect(None)
            return False
        return True

    def wait(self, timeout_s: float | None = None) -> Workspace:
        """The workspace of the run, when it is done; after `timeout_s` the worker is ended and RemoteError raised."""
        if self.is_running():
            self._collect(timeout_s)
        if self._workspace is None:
            raise RuntimeError("no run was begun; call the agent first")
        return self._workspace

    def get_workspace(self) -> Workspace | None:
        """The workspace of the last run, packed, on the CPU, without a graph; None before and during the first one."""
        return None if self.is_running() else self._workspace

    def _collect(self, timeout_s: float | None) -> None:
        try:
            _, sheet = self._answer(timeout_s)
        except RemoteError as error:
            self._error = error
            raise
        self._workspace = None if sheet is None else sheet.workspace()
