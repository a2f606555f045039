"""Agents and helpers for the tests of workers: module-level, so that other processes can import them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gaitway.core.agent import Agent, TemporalAgent
from gaitway.core.small_agents import SeedableAgent
from gaitway.core.workspace import Workspace
from gaitway.processes.remote import RemoteAgent
from gaitway.processes.workers import WorkerConfig

multiprocessing.set_forkserver_preload(["gaitway.processes.process_workers", "worker_cast"])
FAST = WorkerConfig(start_method="forkserver")
"""Workers forked from a server that has imported PyTorch already: a tenth of a second instead of several."""

BATCH = 2


class Walker(SeedableAgent):
    """A random walk `position` `[B, 3]` whose steps `action` are scaled by a parameter and counted in a buffer."""

    writes = ("action", "position")

    def __init__(self, seed: int | None = None, rule: str = "last", name: str | None = None) -> None:
        super().__init__(name, seed, rule)
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.count: Tensor

    def step(self, ws: Workspace, t: int, *, trouble: str = "", at: int = 2, gate: str = "") -> None:
        self.count += 1
        ws.put("action", t, self.scale * torch.randn(BATCH, 3, generator=self.generator()))
        if t == at:
            make_trouble(trouble, gate)
        before = ws.at("position", t - 1) if t > 0 else torch.zeros(BATCH, 3)
        ws.put("position", t, before + ws.at("action", t) * (1.0 if self.training else -1.0))
        ws.put("process", t, torch.full((BATCH,), os.getpid()))


def make_trouble(kind: str, gate: str = "") -> None:
    """Do what workers should not."""
    if kind == "raise":
        raise ValueError("the floor is lava\n(second line)")
    if kind == "exit":
        raise SystemExit("out of here")
    if kind == "leave":
        os._exit(3)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "fault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "interrupt":
        os.kill(multiprocessing.parent_process().pid, signal.SIGINT)
    if kind in ("hang", "interrupt"):
        signal.pause()
    if kind == "gate":
        with open(gate, "rb", buffering=0) as fifo:
            fifo.read(1)  # returns when somebody has written a byte for this worker


def walker(seed: int | None = None, **keywords: Any) -> TemporalAgent:
    return TemporalAgent(Walker(seed, **keywords))


def walk(agent: Agent, **options: Any) -> Workspace:
    """Run an agent here, without gradients, as workers do."""
    ws = Workspace()
    with torch.no_grad():
        agent(ws, 0, **options)
    return ws


def shared(rows: int = 5) -> Workspace:
    """A shared workspace with the variables of one Walker."""
    return walk(walker(), n_steps=1).share_memory(rows=rows)


def assert_equal(found: Workspace, expected: Workspace) -> None:
    """Bit for bit, every variable but the id of the process."""
    assert list(found) == list(expected)
    for name in expected:
        if name != "process":
            assert torch.equal(found[name], expected[name]), name


class Unpicklable(Agent):
    """Holds a function that has no name in its module."""

    def __init__(self) -> None:
        super().__init__()
        self.callbacks = {"reward": [abs, lambda reward: reward]}


class FailsOnArrival(Agent):
    """Can be packed but not unpacked."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        raise FileNotFoundError("the model is not on this machine")


class ReturnsFunction(Agent):
    def step(self, ws: Workspace, t: int) -> Any:
        return lambda: t


class Slow(Agent):
    """Takes a while before it writes, so that a call which returns too early is seen."""

    def step(self, ws: Workspace, t: int) -> None:
        time.sleep(0.3)
        ws.put("action", t, torch.ones(BATCH, 3))


class Globals(Agent):
    """Draws from the process-wide generators, as user code may."""

    def step(self, ws: Workspace, t: int) -> None:
        ws.put("torch", t, torch.rand(BATCH))
        ws.put("numpy", t, torch.from_numpy(np.random.rand(BATCH)))  # noqa: NPY002


# Changes of individuals


def set_scale(agent: Any, scale: Any) -> None:
    with torch.no_grad():
        agent.agent.scale.copy_(torch.as_tensor(scale))


def fail_at_three(agent: Any, scale: float) -> None:
    if scale == 3:
        raise KeyError("no such individual")
    set_scale(agent, scale)


def kill_at_three(agent: Any, scale: float) -> None:
    if scale == 3:
        make_trouble("kill")
    set_scale(agent, scale)


def hang_at_three(agent: Any, scale: float) -> None:
    if scale == 3:
        make_trouble("hang")
    set_scale(agent, scale)


def replace_agent(agent: Any, scale: float) -> Any:
    other = walker()
    set_scale(other, scale)
    return other


def log_run(agent: Any, what: tuple[str, int]) -> None:
    """Append the number of the individual to a file."""
    path, number = what
    with open(path, "a", encoding="ascii") as file:
        file.write(f"{number}\n")


def meet(agent: Any, what: tuple[str, int]) -> None:
    """Individual 0 waits until individuals 4 and 5 have run."""
    folder, number = what
    if number == 0:
        for gate in ("four", "five"):
            Path(folder, gate).read_text()
    if number in (4, 5):
        Path(folder, "four" if number == 4 else "five").write_text("done")


# Processes


class Gate:
    """Holds up workers that were told to wait at it, until `open` lets a number of them through."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "gate")
        os.mkfifo(self.path)
        self._file = os.open(self.path, os.O_RDWR)  # both ends, so that nobody waits for the other one to open it

    def open(self, workers: int = 1) -> None:
        os.write(self._file, b"." * workers)

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._file)


def descendants() -> set[int]:
    """Processes below this one that run, without the two helpers that Python keeps for itself."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = entry.joinpath("stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:  # it has just ended
                continue
            if state != "Z":
                parents.setdefault(int(parent), []).append(int(entry.name))
    found: set[int] = set()
    open_ends = [os.getpid()]
    while open_ends:
        below = parents.get(open_ends.pop(), [])
        found.update(below)
        open_ends.extend(below)
    helpers = {resource_tracker._resource_tracker._pid, forkserver._forkserver._forkserver_pid}
    return found - helpers


def hang_with_a_worker(connection: Any, method: str) -> None:
    """A parent whose worker never answers; it sends the id of the worker and crashes when told to."""
    ws = shared()
    remote = RemoteAgent(walker(), config=WorkerConfig(start_method=method))
    remote(ws, 0, n_steps=1)
    remote.call_async(ws, 0, n_steps=5, trouble="hang")
    connection.send(remote.worker.pid)
    threading.Thread(target=lambda: os._exit(7) if connection.recv() else None, daemon=True).start()
    remote.wait()
