"""Whole `gaitway` commands and scripts for tests of what happens to them, without waiting for torch each time: one
process imports everything once and forks a process, in a session of its own, for every command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SERVER = """
import json, os, runpy, sys
from gaitway.cli import commands
from gaitway.cli.main import main
print("ready", flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if "wait" in request:
        print(os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1]), flush=True)
        continue
    pid = os.fork()
    if pid:
        print(pid, flush=True)
        continue
    os.setsid()
    os.chdir(request["folder"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream in (1, 2):
        os.dup2(os.open(request["said"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666), stream)
    os.environ.update(request["environment"])
    exec(request["before"])
    if request["script"]:
        sys.argv = [request["script"], *request["arguments"]]
        sys.path[0] = os.path.dirname(request["script"])
        runpy.run_path(request["script"], run_name="__main__")
        sys.exit(0)
    sys.exit(main(request["arguments"]))
"""


class Commands:
    """The process that forks; use it as a context manager."""

    def __enter__(self) -> Commands:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.stdin.close()
        self.process.wait(10)

    def start(
        self,
        folder: Path,
        *arguments: str,
        before: str = "",
        environment: dict[str, str] | None = None,
        script: Path | None = None,
        said: Path | None = None,
    ) -> Job:
        """Begin `gaitway ARGUMENTS`, or `python SCRIPT ARGUMENTS`, in `folder`; the code `before` runs first. What it
        says goes to the file `said`."""
        said = said or folder / f"said-{time.monotonic_ns()}"
        request = {"folder": str(folder), "arguments": arguments, "said": str(said), "before": before}
        request |= {"script": None if script is None else str(script), "environment": environment or {}}
        return Job(self, self._ask(request), said)

    def _ask(self, request: dict[str, Any]) -> int:
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


class Job:
    """A command under way."""

    def __init__(self, commands: Commands, pid: int, said: Path) -> None:
        self.commands, self.pid, self._said = commands, pid, said

    @property
    def said(self) -> str:
        return self._said.read_text(errors="replace") if self._said.exists() else ""

    @property
    def is_running(self) -> bool:
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except FileNotFoundError:
            return False

    def workers(self) -> list[int]:
        """Its children that are forks of it; other programs, such as git, have another command line."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        own = Path(f"/proc/{self.pid}/cmdline").read_bytes()
        return [int(pid) for pid in children if _command_line(int(pid)) == own]

    def signal_all(self, number: int) -> None:
        """To the command and its workers, as a terminal or a cluster does."""
        os.killpg(self.pid, number)

    def wait(self, limit_s: float = 30.0) -> int:
        """The exit code; a command that takes longer is killed, and the test has failed."""
        ended = until(lambda: not self.is_running, limit_s)
        if not ended:
            self.signal_all(signal.SIGKILL)
        code = self.commands._ask({"wait": self.pid})
        assert ended, f"it took longer than {limit_s} s and said: {self.said}"
        return code


def until(condition: Callable[[], Any], limit_s: float = 30.0) -> bool:
    """Wait for it; False if it does not come."""
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def is_alive(pid: int) -> bool:
    return _command_line(pid) != b""


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
