"""Many commands side by side on one machine, stopped in time and gone on with by the next call: figures of a GPU box.

    gaitway bench plan benchmarks/plans/skills_gpu.yaml --work runs/plan --seconds 1700
    gaitway bench plan benchmarks/plans/*.yaml --list

A plan is a YAML file: `about`, `environment` (variables of every job), `words` (names of what many commands repeat) and
`jobs`, in the order in which they should begin. A job is a name and

- `command`: one line of shell. `{work}` is the folder of `--work`, `{WORD}` one of the plan's words.
- `cores` (1): a job begins when as many are free. Jobs behind one that waits for cores may begin before it.
- `alone` (false): nothing runs beside it, and whatever comes behind it waits.
- `after`: names of jobs that must have ended well.
- `seconds` (0): what it needs at least; it does not begin in a call that has less left.

When `--seconds` are over, or at Ctrl-C or SIGTERM, jobs get SIGTERM and `GRACE` seconds to write what they know.
`WORK/plan.json` holds the state of every job, `WORK/NAME.log` what it printed. The next call with the same `--work`
begins with what was stopped, by the same command: `gaitway train --or-resume` goes on where it was, others begin anew.
What failed stays as it is, unless `--again`. Exit code: 0 when all jobs have ended well, 3 when a further call is
needed, 1 when none is and one has failed.

On a GPU several learners share the device by NVIDIA's MPS if its control program is installed; `--no-mps` leaves it.
Jobs that run alone do without it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml
from _provenance import let_children_import
from _rounds import ROOT, revision

from gaitway.core.files import atomic_write_json

GRACE = 30.0
"""Seconds between SIGTERM and SIGKILL."""
LOOK = 0.2
"""Seconds between two looks at the jobs."""
MPS = "nvidia-cuda-mps-control"


@dataclass(frozen=True)
class Job:
    name: str
    command: str
    cores: int = 1
    alone: bool = False
    after: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass
class Plan:
    jobs: list[Job] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Running:
    job: Job
    process: subprocess.Popen[bytes]
    began: float


def read_plans(paths: Sequence[Path]) -> Plan:
    """The jobs of all files, one file after the other."""
    plan = Plan()
    for path in paths:
        document = yaml.safe_load(path.read_text()) or {}
        if unknown := set(document) - {"about", "environment", "words", "jobs"}:
            raise SystemExit(f"{path}: a plan holds about, environment, words and jobs, not {sorted(unknown)}")
        plan.environment |= {str(key): str(value) for key, value in (document.get("environment") or {}).items()}
        words = {str(key): str(value) for key, value in (document.get("words") or {}).items()}
        for name, entry in (document.get("jobs") or {}).items():
            plan.jobs.append(_job(path, str(name), entry, words))
    names = [job.name for job in plan.jobs]
    for number, job in enumerate(plan.jobs):
        if job.name in names[:number]:
            raise SystemExit(f"two jobs are named {job.name!r}; rename one")
        if missing := [name for name in job.after if name not in names[:number]]:
            raise SystemExit(f"job {job.name!r} comes after {missing}, which must stand before it in the plan")
    return plan


def _job(path: Path, name: str, entry: Any, words: Mapping[str, str]) -> Job:
    known = {one.name for one in fields(Job)} - {"name"}
    if not isinstance(entry, Mapping) or "command" not in entry or set(entry) - known:
        raise SystemExit(f"{path}: job {name!r} needs a command and may have {sorted(known - {'command'})}")
    after = entry.get("after") or []
    after = [after] if isinstance(after, str) else after
    command = str(entry["command"])
    for word, meaning in words.items():
        command = command.replace(f"{{{word}}}", meaning)
    return Job(name, **{**entry, "command": " ".join(command.split()), "after": tuple(after)})


class Board:
    """What is known of every job: `waiting`, `stopped`, `done` or `failed`, and the seconds that it ran."""

    def __init__(self, work: Path, again: bool) -> None:
        self.path = work / "plan.json"
        self.known: dict[str, dict[str, Any]] = json.loads(self.path.read_text()) if self.path.exists() else {}
        for row in self.known.values():
            if row["state"] == "running" or (again and row["state"] == "failed"):  # the call before was killed
                row["state"] = "stopped"

    def state(self, job: Job) -> str:
        return self.known.get(job.name, {}).get("state", "waiting")

    def put(self, job: Job, state: str, seconds: float = 0.0, code: int | None = None) -> None:
        before = self.known.get(job.name, {}).get("seconds", 0.0)
        self.known[job.name] = {"state": state, "seconds": round(before + seconds, 1), "code": code}
        atomic_write_json(self.path, self.known)

    def table(self, jobs: Sequence[Job]) -> str:
        width = max((len(job.name) for job in jobs), default=0)
        rows = ((job, self.known.get(job.name, {"state": "waiting", "seconds": 0.0, "code": None})) for job in jobs)
        return "\n".join(f"{job.name:{width}}  {row['state']:8} {row['seconds']:8.1f} s" for job, row in rows)


def run(plan: Plan, work: Path, cores: int, seconds: float, board: Board, sharing: Mapping[str, str]) -> None:
    """Begins jobs as they fit until all have ended or `seconds` are over; `sharing` are variables of those that run
    beside others."""
    began = time.monotonic()
    environment = os.environ | plan.environment | {"PYTHONUNBUFFERED": "1", "GAITWAY_COMMIT": revision()}
    running: list[Running] = []
    try:
        while (now := time.monotonic() - began) < seconds:
            running = [one for one in running if not _ended(one, board, work)]
            left = [job for job in plan.jobs if board.state(job) in ("waiting", "stopped")]
            while job := next_job(left, [one.job for one in running], board, cores, seconds - now):
                with (work / f"{job.name}.log").open("ab") as log:
                    process = subprocess.Popen(
                        ["bash", "-c", job.command.replace("{work}", str(work))],
                        cwd=ROOT,
                        env=environment if job.alone else environment | sharing,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                running.append(Running(job, process, time.monotonic()))
                board.put(job, "running")
                left.remove(job)
                print(f"{now:6.0f} s  {job.name} begins", flush=True)
            if not running:
                return
            time.sleep(LOOK)
    finally:
        _stop(running, board, work)


def next_job(left: Sequence[Job], running: Sequence[Job], board: Board, cores: int, seconds: float) -> Job | None:
    """The first that may begin now; what was stopped goes before what has not begun."""
    if any(job.alone for job in running):
        return None
    free = cores - sum(job.cores for job in running)
    for job in sorted(left, key=lambda job: board.state(job) != "stopped"):
        if any(_not_done(name, board) for name in job.after) or job.seconds > seconds:
            continue
        if job.alone:
            return None if running else job
        if job.cores <= free or not running:
            return job
    return None


def call_again(jobs: Sequence[Job], board: Board) -> bool:
    """Whether a further call would run something: not what comes after a job that failed."""
    out = {job.name for job in jobs if board.state(job) == "failed"}
    for job in jobs:  # what one waits for stands before it
        if out.intersection(job.after):
            out.add(job.name)
    return any(board.state(job) != "done" and job.name not in out for job in jobs)


def _not_done(name: str, board: Board) -> bool:
    return board.known.get(name, {}).get("state") != "done"


def _ended(one: Running, board: Board, work: Path, stopped: bool = False) -> bool:
    code = one.process.poll()
    if code is None:
        return False
    seconds = time.monotonic() - one.began
    state = "done" if code == 0 else "stopped" if stopped else "failed"
    board.put(one.job, state, seconds, code)
    print(f"        {one.job.name} {state} after {seconds:.0f} s", flush=True)
    if state == "failed":
        lines = (work / f"{one.job.name}.log").read_text(errors="replace").splitlines()[-5:]
        print("\n".join(f"            {line[:200]}" for line in lines), flush=True)
    return True


def _stop(running: list[Running], board: Board, work: Path) -> None:
    for one in running:
        _signal(one, signal.SIGTERM)
    end = time.monotonic() + GRACE
    while running and time.monotonic() < end:
        running = [one for one in running if not _ended(one, board, work, stopped=True)]
        time.sleep(LOOK)
    for one in running:
        _signal(one, signal.SIGKILL)
        one.process.wait()
        _ended(one, board, work, stopped=True)


def _signal(one: Running, number: int) -> None:
    try:
        os.killpg(one.process.pid, number)
    except ProcessLookupError:
        return  # it ended just now


@contextmanager
def shared_device(work: Path, wanted: bool) -> Iterator[dict[str, str]]:
    """NVIDIA's multi-process service, so that kernels of several processes run at the same time: the variables of those
    who want it."""
    if not wanted or shutil.which(MPS) is None:
        yield {}
        return
    folder = work.resolve() / "mps"
    folder.mkdir(exist_ok=True)
    found = {"CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}
    subprocess.run([MPS, "-d"], check=False, env=os.environ | found, stdin=subprocess.DEVNULL)
    try:
        yield found
    finally:
        with suppress(subprocess.TimeoutExpired):  # it waits for its last client
            subprocess.run([MPS], input=b"quit\n", check=False, env=os.environ | found, timeout=GRACE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plans", type=Path, nargs="+")
    parser.add_argument("--work", type=Path, default=Path("runs/plan"), help="folder of logs, states and results")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of this call")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", nargs="+", default=None, metavar="JOB", help="these jobs alone")
    parser.add_argument("--again", action="store_true", help="what failed begins again")
    parser.add_argument("--no-mps", action="store_true")
    parser.add_argument("--list", action="store_true", help="the jobs and how they stand; nothing runs")
    options = parser.parse_args()
    plan = read_plans(options.plans)
    if strangers := set(options.only or ()) - {job.name for job in plan.jobs}:
        parser.error(f"no plan has {sorted(strangers)}; there are {[job.name for job in plan.jobs]}")
    plan.jobs = [job for job in plan.jobs if options.only is None or job.name in options.only]
    work = options.work.resolve()
    if not options.list:
        work.mkdir(parents=True, exist_ok=True)
    board = Board(work, options.again)
    if not options.list:
        let_children_import()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # stops the jobs on the way out
        with shared_device(work, not options.no_mps) as sharing:
            run(plan, work, options.cores, options.seconds, board, sharing)
    print(board.table(plan.jobs))
    if not options.list:
        failed = any(board.state(job) == "failed" for job in plan.jobs)
        sys.exit(3 if call_again(plan.jobs, board) else 1 if failed else 0)


if __name__ == "__main__":
    main()
