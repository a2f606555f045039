"""What a run is to survive: killed workers, two commands in one folder, a full disk. None silent, none lost.

gaitway bench rough_handling --out benchmarks/results/rough_handling.json
gaitway bench rough_handling --only disk       (needs the right to mount a tmpfs)

- kills: one worker of `vectorization: async` gets SIGKILL at a random moment, one in three while the command starts.
  The run ends within 10 s with a sentence that names the worker, a non-zero exit code, no process left and, if
  training had begun, a whole last checkpoint.
- pairs: two `train` in one folder, 0 to 25 ms apart. One trains to its end, the other is refused and changes nothing.
- names: the same without `run_dir`. Both train to their end, in two folders.
- resumes: `resume` in the folder of a running training, again and again. Each is refused, and the training is whole.
- disk: a tmpfs fills during training. Freed again: every step is trained, every line and the last checkpoint are there.
  Full to the end: an earlier whole checkpoint, one sentence that says what is missing, and a non-zero exit code.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gaitway.cli import commands  # noqa: F401  once for all the processes that are forked from here
from gaitway.cli.main import main as gaitway
from gaitway.core.files import load_state

LIMIT_S = 10.0
"""By then a death must have been told."""
SMALL = ["env.id=gymnasium:CartPole-v1", "algorithm.rollout_steps=16", "evaluation.episodes=2", "--quiet"]
ASYNC = ["env.options={vectorization: async}", "env.num_envs=3"]
Row = dict[str, Any]


class Command:
    """`gaitway ARGUMENTS` in a forked process and a session of its own; what it says goes to a file."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.said_file = folder / f"said-{random.getrandbits(48):x}"
        self.process = multiprocessing.get_context("fork").Process(target=self._run, args=(folder, arguments))
        self.process.start()

    def _run(self, folder: Path, arguments: tuple[str, ...]) -> None:
        os.setsid()
        os.chdir(folder)
        said = os.open(self.said_file, os.O_WRONLY | os.O_CREAT, 0o666)
        os.dup2(said, 1)
        os.dup2(said, 2)
        multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
        sys.exit(gaitway(list(arguments)))

    def wait(self, timeout_s: float = 120.0) -> int | None:
        """The exit code; None if it had to be killed."""
        self.process.join(timeout_s)
        if self.process.is_alive():
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.join()
            return None
        return self.process.exitcode

    @property
    def said(self) -> str:
        return self.said_file.read_text(errors="replace")

    def sentence(self) -> str:
        """The last line that `gaitway` says about an error, without the name of the folder for this once."""
        lines = [line for line in self.said.splitlines() if line.startswith("gaitway: ")]
        return lines[-1].replace(f"{self.said_file.parent}/", "") if lines else ""

    def workers(self) -> list[int]:
        """Process ids of the children that were forked; other programs, such as git, have another command line."""
        own = Path(f"/proc/{self.process.pid}")
        children = (own / "task" / own.name / "children").read_text().split()
        return [int(pid) for pid in children if _command_line(Path("/proc") / pid) == _command_line(own)]


def _command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:  # it has just ended
        return b""


def is_whole(run: Path) -> bool:
    """Whether the last checkpoint, and every other one, can be read to its last byte."""
    steps = [path for path in (run / "checkpoints").iterdir() if path.name.isdigit()]
    for path in (run / "checkpoints" / "last", *steps):
        load_state(path, kind="checkpoint")
    return bool(steps) and not list((run / "checkpoints").glob(".*"))


def last_step(run: Path) -> int:
    return int((run / "checkpoints" / "last").resolve().name)


def logged_steps(run: Path) -> list[int]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [record["step"] for record in records if "time/seconds" in record]


def until(condition: Callable[[], Any], seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def kill_a_worker(folder: Path, draw: random.Random) -> Row:
    run = folder / "run"
    command = Command(folder, "train", *SMALL, *ASYNC, "total_steps=2000000", "checkpoints.interval=200",
                      "evaluation.interval=1000", "run_dir=run")  # fmt: skip
    starting = draw.random() < 1 / 3
    until(lambda: command.workers() if starting else (run / "checkpoints" / "last").exists())
    time.sleep(draw.uniform(0.0, 0.3 if starting else 1.5))
    workers = command.workers()
    victim = draw.choice(workers)
    os.kill(victim, signal.SIGKILL)
    killed = time.monotonic()
    code = command.wait(LIMIT_S * 3)
    seconds = time.monotonic() - killed
    begun = (run / "checkpoints").exists()
    row = {
        "starting": starting,
        "exit_code": code,
        "seconds": round(seconds, 2),
        "sentence": command.sentence(),
        "traceback": "Traceback" in command.said,
        "workers_left": sum(_command_line(Path(f"/proc/{pid}")) != b"" for pid in workers),
        "checkpoint": last_step(run) if begun else None,
    }
    told = (
        "worker" in row["sentence"]
        and f"(pid {victim})" in row["sentence"]
        and seconds < LIMIT_S
        and not row["traceback"]
    )
    whole = is_whole(run) if begun else not run.exists()
    return row | {"ok": bool(code) and told and whole and not row["workers_left"]}


def two_at_once(folder: Path, draw: random.Random, named: bool) -> Row:
    place = ["run_dir=run"] if named else []
    apart = draw.uniform(0.0, 0.025)
    first = Command(folder, "train", *SMALL, "env.num_envs=2", "total_steps=640", *place)
    time.sleep(apart)
    second = Command(folder, "train", *SMALL, "env.num_envs=2", "total_steps=640", *place)
    codes = [first.wait(), second.wait()]
    runs = sorted(path.parent for path in folder.glob("**/code.json"))
    whole = [is_whole(run) and last_step(run) == 640 and logged_steps(run)[-1] == 640 for run in runs]
    refused = [command.sentence() for command, code in zip((first, second), codes, strict=True) if code]
    row = {"apart_ms": round(apart * 1000, 1), "exit_codes": codes, "refused": refused, "runs": len(runs)}
    if named:
        reasons = ("is being trained by another process", "holds a run already")
        fine = sorted(codes, key=str) == [0, 1] and any(reason in refused[0] for reason in reasons)
    else:
        fine = codes == [0, 0]
    return row | {"ok": fine and whole == [True] * (1 if named else 2)}


def resume_beside(folder: Path, draw: random.Random) -> Row:
    run = folder / "run"
    command = Command(folder, "train", *SMALL, "env.num_envs=2", "total_steps=6400", "checkpoints.interval=32",
                      "run_dir=run")  # fmt: skip
    until(lambda: (run / "checkpoints" / "last").exists())
    answers = []
    while command.process.is_alive() and len(answers) < 8:
        beside = Command(folder, "resume", "run", "more=64", "--quiet")
        code = beside.wait()
        if command.process.is_alive():
            answers.append((code, beside.sentence()))
        time.sleep(draw.uniform(0.0, 0.1))
    code = command.wait()
    lost = "no checkpoint" in (run / "run.log").read_text()
    refused = all(code == 1 and "is being trained by another process" in sentence for code, sentence in answers)
    row = {"exit_code": code, "resumes": len(answers), "lost_checkpoint": lost}
    return row | {"ok": code == 0 and refused and bool(answers) and not lost and is_whole(run)}


def fill_the_disk(folder: Path, draw: random.Random, free: bool) -> Row:
    disk, filler, run = folder / "disk", folder / "disk" / "filler", folder / "disk" / "run"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], check=True, capture_output=True)
    try:
        command = Command(folder, "train", *SMALL, "env.num_envs=2", "total_steps=12800", "checkpoints.interval=320",
                          "evaluation.interval=1600", "logging.tensorboard=true", f"run_dir={run}")  # fmt: skip
        until(lambda: (run / "checkpoints" / "640").exists())
        with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
            while True:
                file.write(bytes(1024))
        filled_at = last_step(run)
        until(lambda: command.said.count("no checkpoint at step") >= 3)
        if free:
            filler.unlink()
        code = command.wait()
        filler.unlink(missing_ok=True)
        whole, said = is_whole(run), command.said
        row = {"freed": free, "filled_at": filled_at, "exit_code": code, "checkpoints_not_written":
               said.count("no checkpoint at step"), "last_checkpoint": last_step(run), "sentence": command.sentence(),
               "traceback": "Traceback" in said}  # fmt: skip
        fine = whole and row["checkpoints_not_written"] >= 3 and not row["traceback"]
        if free:
            lines = logged_steps(run) == list(range(32, 12801, 32))
            return row | {"every_line": lines, "ok": fine and code == 0 and lines and last_step(run) == 12800}
        told = "the checkpoint of step 12800" in row["sentence"] and "make room" in row["sentence"]
        return row | {"ok": fine and code == 1 and told and 0 < last_step(run) < 12800}
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def disk_can_be_mounted() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        try:
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            return False
        subprocess.run(["umount", folder], check=True)
        return True


SERIES: dict[str, tuple[int, Callable[[Path, random.Random], Row]]] = {
    "kills": (50, kill_a_worker),
    "pairs": (20, lambda folder, draw: two_at_once(folder, draw, named=True)),
    "names": (5, lambda folder, draw: two_at_once(folder, draw, named=False)),
    "resumes": (5, resume_beside),
    "disk freed again": (3, lambda folder, draw: fill_the_disk(folder, draw, free=True)),
    "disk full to the end": (3, lambda folder, draw: fill_the_disk(folder, draw, free=False)),
}
"""How often each is done, and how."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=sorted({name.split()[0] for name in SERIES}), default=None)
    parser.add_argument("--times", type=int, default=None, help="how often, instead of as often as it should be")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default=None)
    options = parser.parse_args()
    draw, results = random.Random(options.seed), {}
    for name, (times, once) in SERIES.items():
        if options.only not in (None, name.split()[0]):
            continue
        if name.startswith("disk") and not disk_can_be_mounted():
            results[name] = {"skipped": os.strerror(errno.EPERM)}
            continue
        rows = []
        for _ in range(options.times or times):
            folder = Path(tempfile.mkdtemp(prefix="gaitway-rough-"))
            try:
                row = once(folder, draw)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            rows.append(row)
            print(name, row, flush=True)
        results[name] = {"times": len(rows), "ok": sum(row["ok"] for row in rows), "rows": rows}
    done = [result for result in results.values() if "rows" in result]
    summary = {"benchmark": "rough_handling", "seed": options.seed, "all_ok": all(r["ok"] == r["times"] for r in done)}
    print(json.dumps(summary | {name: {k: v for k, v in r.items() if k != "rows"} for name, r in results.items()}))
    if options.out:
        Path(options.out).write_text(json.dumps(summary | {"series": results}, indent=1) + "\n")
    sys.exit(0 if summary["all_ok"] else 1)


if __name__ == "__main__":
    main()
