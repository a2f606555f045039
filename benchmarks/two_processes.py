"""DAgger in two processes: a trainer learns from a dataset that a recorder writes beside it, with the trainer's newest
checkpoint and the labels of a teacher. Each is killed once by SIGKILL and goes on; the student must come near its
teacher.

gaitway bench two_processes --out benchmarks/results/robot_learning/two_processes.json

The teacher is a run that has learnt from a controller; the student has the same view. The dataset keeps the latest
episodes only. Returns are those of `gaitway eval`, 50 episodes on fixed seeds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _rounds import machine, revision

from gaitway.data.trajectories import Trajectories

NEAR = 0.10
"""How far below the teacher's return the student's may be, in units of its size."""
KEPT, CHUNK, ENVS = 128, 3200, 16
TEACHER = ["experiment=distill_pendulum", "agent.memory.kind=none", "agent.observations.actor=[pos, vel]",
           "total_steps=100_000", "evaluation.interval=0", "torch_threads=1"]  # fmt: skip
STUDENT = ["algorithm.name=distillation", "env.id=toy/pendulum", "env.num_envs=32", "torch_threads=1",
           "algorithm.rollout_steps=64", "algorithm.epochs=6", "algorithm.gradient_length=8",
           "algorithm.learning_rate=3e-3", "algorithm.schedule=linear", "agent.distribution.init_std=0.3",
           "pretrain.iterations=-1", "pretrain.follow=true", f"pretrain.keep_latest={KEPT}",
           "checkpoints.interval=8000", "evaluation.interval=0"]  # fmt: skip


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "gaitway.cli.main", *arguments]


def run(*arguments: str) -> str:
    done = subprocess.run(command(*arguments), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"gaitway {' '.join(arguments)}: {done.stderr[-2000:]}")
    return done.stdout


class Process:
    """A command in the background, killed and started again."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self.log = log
        self.begin(*arguments)

    def begin(self, *arguments: str) -> None:
        with open(self.log, "a") as said:
            self.process = subprocess.Popen(command(*arguments), stdout=said, stderr=said)

    def kill(self) -> None:
        """By SIGKILL, while it runs."""
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.log.name} had ended before it was killed: {self.log.read_text()[-2000:]}")
        self.process.kill()
        self.process.wait()

    def wait(self) -> None:
        if self.process.wait():
            raise RuntimeError(f"{self.log.name} ended with {self.process.returncode}: {self.log.read_text()[-2000:]}")

    def check(self) -> None:
        if self.process.poll():
            self.wait()


def steps_of(student: Path) -> int:
    """Steps that the trainer has logged."""
    path = student / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return max((json.loads(line)["step"] for line in lines if line.endswith("}")), default=0)


def dagger(seed: int, steps: int, place: Path) -> dict[str, Any]:
    teacher, student, data = place / "teacher", place / "student", place / "data"
    run("train", *TEACHER, f"seed={seed}", f"run_dir={teacher}", "--quiet")
    record = ("collect", str(teacher), f"--follow={student}", f"--out={data}", f"--keep-latest={KEPT}",
              f"--chunk-steps={CHUNK}", f"--num-envs={ENVS}", f"--seed={seed}", "--quiet",
              "--teacher-share={start: 1, end: 0, over: 40}")  # fmt: skip
    recorder = Process(place / "recorder.log", *record)
    settings = (f"seed={seed}", f"total_steps={steps}", f"data.path={data}", f"run_dir={student}")
    trainer = Process(place / "trainer.log", "train", *STUDENT, *settings, "--quiet")
    row: dict[str, Any] = {"seed": seed}

    def until(share: float) -> int:
        while (now := steps_of(student)) < share * steps:
            trainer.check()
            recorder.check()
            time.sleep(0.2)
        return now

    row["trainer_killed_at"] = until(0.35)
    trainer.kill()
    row["trainer_resumed_from"] = json.loads(run("info", str(student), "--json"))["steps"]
    trainer.begin("resume", str(student), "--quiet")
    row["recorder_killed_at"] = until(0.65)
    before = Trajectories(data).num_episodes
    recorder.kill()
    row["episodes_lost_of_the_index"] = max(0, before - Trajectories(data).num_episodes)
    recorder.begin(*record, "--append")
    trainer.wait()
    recorder.wait()
    kept = Trajectories(data)
    row |= {"chunks_written": kept.written, "episodes_kept": kept.num_episodes}
    for name, folder in (("teacher", teacher), ("student", student)):
        row[name] = json.loads(run("eval", str(folder), "--checkpoint=last", "--episodes=50", "--json"))["return"]
    return row | {"loss": (row["teacher"] - row["student"]) / abs(row["teacher"])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=200_000, help="recorded steps that the trainer learns from")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    rows = []
    for seed in options.seeds:
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            row = dagger(seed, options.steps, Path(folder))
        rows.append(row | {"holds": row["loss"] <= NEAR, "seconds": round(time.perf_counter() - started, 1)})
        print(json.dumps(rows[-1]), flush=True)
    result = {"benchmark": "two_processes", "near": NEAR, "steps": options.steps, "commit": revision(),
              "machine": machine(), "rows": rows}  # fmt: skip
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(0 if all(row["holds"] for row in rows) else 1)


if __name__ == "__main__":
    main()
