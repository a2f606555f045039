"""The kinds of workers by name."""

from __future__ import annotations

from gaitway.processes.workers import LocalWorker, Worker

KINDS = ("processes", "ray", "local")


def worker_class(kind: str) -> type[Worker]:
    """The class of workers called "processes", "ray" or "local"."""
    if kind == "processes":
        from gaitway.processes.process_workers import ProcessWorker

        return ProcessWorker
    if kind == "ray":
        from gaitway.processes.ray_workers import RayWorker

        return RayWorker
    if kind == "local":
        return LocalWorker
    raise ValueError(f"workers is {kind!r}; use one of {KINDS}")
