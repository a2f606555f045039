"""An agent here and the worker that runs its twin elsewhere: what all remote agents have in common."""

from __future__ import annotations

from typing import Any, Self

from torch import nn

from gaitway.core.agent import Agent, Around
from gaitway.core.seeding import check_seed
from gaitway.core.workspace import Workspace
from gaitway.processes.kinds import worker_class
from gaitway.processes.mirror import BufferRecord, ParameterMirror, Update, copy_state, training_flags
from gaitway.processes.packing import Sheet
from gaitway.processes.workers import Call, Worker, WorkerConfig


class Elsewhere(Around):
    """An agent whose work is done by a worker.

    The agent here is the original: its parameters, buffers and training flags, as they are when a call begins, are
    those the worker uses, and buffers the worker changes are changed here when the call ends.
    """

    _of_the_worker: tuple[str, ...] = ("_worker", "_mirror", "_record")

    def __init__(
        self,
        agent: Agent,
        name: str | None = None,
        *,
        workers: str = "processes",
        timeout_s: float | None = None,
        config: WorkerConfig | None = None,
        index: int = 0,
    ) -> None:
        """`workers` is "processes", "ray" or "local" (this process). After `timeout_s` a call counts as hung and its
        worker is ended; None waits as long as the worker lives. `index` is for messages."""
        super().__init__(agent, name)
        self.workers, self.timeout_s, self.index = workers, timeout_s, index
        self.config = WorkerConfig() if config is None else config
        worker_class(workers)  # refuses an unknown kind, or one that is not installed
        self._seed: int | None = None
        self._seed_is_due = False
        self._forget_worker()

    def _forget_worker(self) -> None:
        self._worker: Worker | None = None
        self._mirror: ParameterMirror | None = None
        self._record: BufferRecord | None = None
        self._owns_mirror = True

    def start(self, mirror: ParameterMirror | None = None) -> Self:
        """Start the worker, without waiting until it is ready; a first call does it too. After close() or a death, it
        starts anew from the agent as it is here. `mirror`: parameters that several workers read."""
        if self.is_started:
            return self
        kind = worker_class(self.workers)
        self._forget_worker()
        if not kind.is_local:
            self._owns_mirror = mirror is None
            self._mirror = mirror or ParameterMirror(self.agent, shared=kind.shares_memory)
            self._record = BufferRecord(self.agent)
        self._worker = kind(self.index, self.agent, self.config, self._mirror)
        seeds = (getattr(module, "current_seed", None) for module in self.agent.modules())
        own = next((seed for seed in seeds if seed is not None), None)
        self._worker.seed = own if self._seed is None else self._seed
        self._seed_is_due = True
        return self

    @property
    def was_started(self) -> bool:
        """Whether there is, or was, a worker."""
        return self._worker is not None

    @property
    def is_started(self) -> bool:
        """Whether there is a worker."""
        return self._worker is not None and self._worker.ended is None

    @property
    def worker(self) -> Worker:
        """The worker, which does or did the work."""
        if self._worker is None:
            raise RuntimeError("no worker was started; start() does it, or the first call")
        return self._worker

    def check_free(self) -> None:
        """Raise if a call is under way or the worker has ended."""
        self.worker.check_free()

    def seed(self, seed: int) -> Self:
        """Seed the agent, before or after the start, and the process-wide generators of its worker, if that is another
        process: they begin anew with the next call."""
        self._check_idle("seed")
        super().seed(seed)
        self._seed, self._seed_is_due = check_seed(seed), True
        if self.is_started:
            self.worker.seed = self._seed
            if not self.worker.is_local:
                self.worker.request("seed", (seed,), Call(f"seed({seed})", self.timeout_s), {})
                self.worker.result()
        return self

    def push_parameters(self, source: nn.Module, name: str | None = None) -> Self:
        """Take over parameters and buffers of `source`, an agent of the same structure on any device; the worker has
        them from its next call on. `name`: only for the agents inside that are called so."""
        targets = [self.agent] if name is None else self.agent.get_by_name(name)
        if not targets:
            raise KeyError(f"no agent inside is called {name!r}; give it that name, or push the whole agent")
        for target in targets:
            copy_state(target, source)
        return self

    def with_prefix(self, prefix: str) -> Self:
        if self._worker is not None:
            raise RuntimeError("the worker has started and keeps its names; call with_prefix before the first call")
        return super().with_prefix(prefix)

    def close(self) -> None:
        """End the worker, whatever it does. Calling it twice is fine."""
        if self._worker is not None:
            self._worker.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """A copy has no worker; it starts one of its own."""
        return {name: value for name, value in self.__dict__.items() if name not in self._of_the_worker}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._forget_worker()

    def _check_idle(self, action: str) -> None:
        if self._worker is not None and self._worker.is_busy:
            raise RuntimeError(f"cannot {action} while a call is under way; wait() for it first")

    def _free_worker(self) -> Worker:
        """The worker, started if it never was; raises if it is busy or has ended."""
        if not self.was_started:
            self.start()
        self.worker.check_free()
        return self.worker

    def _request(
        self, request: str, arguments: tuple[Any, ...], call: Call, workspaces: dict[int, Workspace] | None = None
    ) -> None:
        """Send a request with what changed here; the answer is (value, buffers that changed there, workspace)."""
        worker = self._free_worker()  # before the mirror is written, which a busy worker may be reading
        seed_is_due = self._seed_is_due
        try:
            worker.request(request, (*arguments, self._update(worker)), call, workspaces or {})
        except BaseException:
            worker.version = -1  # nothing was sent, so everything is due again
            self._seed_is_due = seed_is_due
            self._record = None if self._record is None else BufferRecord()
            raise

    def _update(self, worker: Worker) -> Update | None:
        if self._mirror is None or self._record is None:
            return None
        if self._owns_mirror:
            self._mirror.update(self.agent)
        by_value = not worker.shares_memory and worker.version != self._mirror.version
        worker.version = self._mirror.version
        memory = self._mirror.memory if by_value else None
        seed, self._seed_is_due = self._seed if self._seed_is_due else None, False
        return Update(self._mirror.version, memory, self._record.changes(self.agent), training_flags(self.agent), seed)

    def _answer(self, timeout_s: float | None) -> tuple[Any, Sheet | None]:
        if self._worker is None or not self._worker.is_busy:
            raise RuntimeError("no call is under way; begin one first")
        value, changed, sheet = self._worker.result(timeout_s)
        if self._record is not None:
            self._record.accept(self.agent, changed)
        return value, sheet
