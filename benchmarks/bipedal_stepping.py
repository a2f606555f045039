"""How fast the bipedal benchmark steps: environments against nothing but their physics, restarts, memory.

    OMP_NUM_THREADS=1 gaitway bench bipedal_stepping --out benchmarks/results/bipedal_stepping.json

256 instances on two threads, random actions. `bare` steps a `mujoco.batch` of the same model through the very states
and controls that the environment went through, with the same substeps and stages, and copies the fields that the task
reads; the environment also judges, observes and restarts. `random play` restarts robots as they fall, some 6 in 100 at
every step; `falls allowed` restarts none. Restarts are timed apart: a tenth of the instances at once, settling step and
first observation included, as a share of one step. Gate: the bare loop ends every step where the environment did.
How it scales: `--threads 1 2 4 8 16`.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from _rounds import Case, race, report, versions
from mujoco.batch import Batch

from gaitway import make_env
from gaitway.envs.mujoco_batch import MujocoBatchEnv

STEPS = 24
CASES = {
    "walker/hurdles, random play": ("walker/hurdles", {}),
    "walker/hurdles, falls allowed": ("walker/hurdles", {"allow_falls": True}),
    "humanoid/hurdles, random play": ("humanoid/hurdles", {}),
    "humanoid/hurdles, falls allowed": ("humanoid/hurdles", {"allow_falls": True}),
    "walker/skills, random play": ("walker/skills", {}),
    "humanoidpc/skills, random play": ("humanoidpc/skills", {}),
}


class Pair:
    """An environment in the midst of play, and the bare physics of the same steps."""

    def __init__(self, id: str, options: dict[str, Any], instances: int, threads: int) -> None:
        env = make_env(id, num_envs=instances, seed=0, num_threads=threads, **options)
        assert isinstance(env, MujocoBatchEnv)
        self.env, self.task = env, env.task
        generator = torch.Generator().manual_seed(0)
        self.actions = 2 * torch.rand(2 * STEPS, instances, len(env.spec.action.names), generator=generator) - 1
        for action in self.actions[STEPS:]:
            env.step(action)
        self.beginning = env.state_dict()
        self.states, self.reached = [], []
        advance = self.task.advance

        def watched() -> None:
            self.states.append(self.task.batch.state.copy())
            advance()
            self.reached.append(self.task.motion.copy())

        self.task.advance = watched  # type: ignore[method-assign]
        self.play()
        del self.task.advance
        self.batch = Batch(self.task.model, instances, threads, self.task.persistent)
        self.fields = [self.batch.bind(name) for name in ("qpos", "qvel", *self.task.fields)]
        self.copies = [np.zeros(field.shape) for field in self.fields]

    def play(self) -> float:
        """Seconds per step of the environment."""
        self.env.load_state_dict(self.beginning)
        started = time.perf_counter()
        for action in self.actions[:STEPS]:
            self.env.step(action)
        return (time.perf_counter() - started) / STEPS

    def simulate(self) -> float:
        """Seconds per step of the physics alone."""
        seconds = 0.0
        for state in self.states:
            np.copyto(self.batch.state, state)
            started = time.perf_counter()
            self.batch.step(nstep=self.task.frame_skip, stage=self.task.stage)
            for copy, field in zip(self.copies, self.fields, strict=True):
                np.copyto(copy, field)
            seconds += time.perf_counter() - started
        return seconds / STEPS

    def restart(self) -> float:
        """Seconds for a tenth of the instances."""
        env, seconds = self.env, 0.0
        env.load_state_dict(self.beginning)
        env.reset()  # going back in time makes the environment draw its next seeds again, which play never does
        for number in range(10):
            rows = np.arange(number, env.num_envs, 10, dtype=np.int32)
            env._streams.episode[rows] += 1
            started = time.perf_counter()
            env._restart(rows, env._buffers.obs)
            seconds += time.perf_counter() - started
        return seconds / 10

    def check(self) -> None:
        for state, reached in zip(self.states, self.reached, strict=True):
            np.copyto(self.batch.state, state)
            self.batch.step(nstep=self.task.frame_skip, stage=self.task.stage)
            found = self.batch.state[:, 1 : 1 + reached.shape[1]]
            if not np.array_equal(found, reached):
                raise RuntimeError(
                    f"{self.env.spec.id}: the bare loop goes elsewhere, by {np.abs(found - reached).max()}"
                )


def milliseconds(work: Callable[[], float]) -> Callable[[], float]:
    return lambda: 1e3 * work()


def resident_bytes(instances: int) -> int:
    """What a process with so many Walkers occupies."""
    code = (
        "import torch; from pathlib import Path; from gaitway import make_env; "
        f"env = make_env('walker/hurdles', num_envs={instances}, num_threads=2); "
        f"[env.step(torch.zeros({instances}, 6)) for _ in range(5)]; "
        "print([line.split()[1] for line in Path('/proc/self/status').read_text().splitlines() if 'VmRSS' in line][0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return 1024 * int(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--envs", type=int, default=256)
    parser.add_argument("--threads", type=int, nargs="+", default=[2], help="one table for each number")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES), metavar="CASE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases = []
    for name, threads in itertools.product(options.cases, options.threads):
        pair = Pair(*CASES[name], options.envs, threads)
        pair.check()
        work = {"gaitway": pair.play, "bare": pair.simulate, "restart of a tenth": pair.restart}
        raw = race({who: milliseconds(function) for who, function in work.items()}, options.rounds)
        share = np.median(np.array(raw["restart of a tenth"]) / np.array(raw["gaitway"]))
        notes = [f"a restart of a tenth of the instances takes {share:.1%} of a step"]
        title = f"{name}, {options.envs} instances, threads: {threads}"
        cases.append(Case(title, "ms", raw, floor={"gaitway": "bare"}, notes=notes))
        pair.env.close()
    few, many = resident_bytes(10), resident_bytes(1010)
    memory = {"bytes_per_1000_walkers": many - few}
    report(options.out, "bipedal_stepping", cases, memory=memory, versions=versions("mujoco", "numpy", "torch"))
    print(f"1,000 Walkers take {memory['bytes_per_1000_walkers'] / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
