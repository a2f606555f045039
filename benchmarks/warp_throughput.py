"""How many steps a second thousands of robots make on one GPU: bare Warp, the environment, PPO end to end.

    gaitway bench warp_throughput --preset ppo_go1_velocity_gpu --out benchmarks/results/warp_throughput_go1.json

`bare`: the substeps of a step of the same worlds (models, room for contacts, states and targets copied from the
environment), recorded as one CUDA graph: the same physics as in the environment, sensors of the last substep alone.
`environment`: `env.step` with actions of a fixed set. `ppo`: whole iterations of the preset, compilation and recording
apart. `threads`: the same task on MuJoCo's batch. Rounds take turns between `bare` and `environment`; medians. Memory
is what the device has less of than before. Sizes of `--compiled` run as training does, others are recorded without
torch's compiler, which takes minutes for each of them. `refused` says what could not be recorded, asked when everything
has been called often enough. Sizes that `--out` holds whole are not measured again.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
from typing import Any

import torch
from _warp import Clock, Results, config_of, learn, options, runner_of

from gaitway.cli.build import build_env
from gaitway.core.execution import WARM_UP_CALLS, Execution, ExecutionConfig
from gaitway.envs import mujoco_warp
from gaitway.envs.mujoco_warp import DERIVE_EVERY, WORTH_COMPILING, WarpEnv
from gaitway.envs.warp_worlds import Worlds

WANTED_ENVIRONMENT, WANTED_PPO = 0.9, 0.7
STEPS_UNTIL_RECORDED = {"cuda": (WARM_UP_CALLS + 1) * DERIVE_EVERY, "cpu": 2}
"""So that constants, which are computed every so many steps, are recorded as well before anything is timed."""


class Bare:
    """The substeps alone."""

    def __init__(self, env: WarpEnv) -> None:
        self.env, source = env, env._simulation()
        self.worlds = Worlds(env.task.model, env.num_envs, env.device, env.capacity, tuple(source.own))
        for name, value in source.own.items():
            self.worlds.own[name].copy_(value)
        mode: Any = "captured" if env.device.type == "cuda" else "eager"
        execution = Execution(ExecutionConfig(mode=mode, precision="fp32"), env.device)
        self.program = execution.program(self._substeps, "bare substeps")

    def _substeps(self) -> None:
        with self.worlds.on_stream():
            substeps = self.env.task.frame_skip
            for number in range(substeps):
                self.worlds.step(senses=number + 1 == substeps)

    def take_states(self) -> None:
        for name, value in self.env._simulation().state.items():
            self.worlds.state[name].copy_(value)

    def __call__(self) -> None:
        self.program()


def free(device: str) -> float:
    return torch.cuda.mem_get_info()[0] / 2**30 if device == "cuda" else 0.0


def made(config: Any, compiled: bool) -> tuple[WarpEnv, dict[str, Any]]:
    """The environment, compiled if asked for, and recorded; and what that took."""
    before, clock = free(config.device), Clock(torch.device(config.device))
    mujoco_warp.WORTH_COMPILING = WORTH_COMPILING if compiled else config.env.num_envs + 1
    env = build_env(config)
    assert isinstance(env, WarpEnv)
    began = clock.seconds()
    action = torch.zeros(env.num_envs, *env.spec.action.shape, device=env.device)
    for _ in range(STEPS_UNTIL_RECORDED[config.device]):
        env.step(action)
    seconds = {"made s": round(began, 1), "compiled and recorded s": round(clock.seconds() - began, 1)}
    return env, {**seconds, "memory GiB": round(before - free(config.device), 2)}


def physics(env: WarpEnv, rounds: int, steps: int) -> dict[str, Any]:
    generator = torch.Generator(env.device).manual_seed(0)
    actions = 0.2 * torch.randn(8, env.num_envs, *env.spec.action.shape, device=env.device, generator=generator)
    bare = Bare(env)
    figures: dict[str, list[float]] = {"bare": [], "environment": []}
    for number in range(-1, rounds):
        bare.take_states()
        for _ in range(4 if number < 0 else 0):
            bare()
        bare.take_states()
        clock = Clock(env.device)
        for _ in range(steps):
            bare()
        seconds = clock.seconds() / steps
        clock = Clock(env.device)
        for step in range(steps):
            env.step(actions[step % 8])
        other = clock.seconds() / steps
        if number >= 0:
            figures["bare"].append(1e3 * seconds)
            figures["environment"].append(1e3 * other)
    count, counts, capacity = env.num_envs, env.counts(), env.capacity
    medians = {name: statistics.median(values) for name, values in figures.items()}
    programs = (*env._programs, env._derive, bare.program)
    return {
        "instances": count,
        "refused": [program.refused for program in programs if program.refused],
        "recorded": sum(program.is_recorded for program in programs),
        "milliseconds": figures,
        **{f"{name} steps/s": round(1e3 * count / value) for name, value in medians.items()},
        "environment of bare": round(medians["bare"] / medians["environment"], 3),
        "counts": counts,
        "constraints": capacity.constraints,
        "contacts": capacity.contacts,
    }


def learning(config: Any, env: WarpEnv, rounds: int, iterations: int) -> dict[str, Any]:
    clock = Clock(env.device)
    runner = runner_of(config, env)
    rows = config.env.num_envs * config.algorithm.rollout_steps
    learn(runner, 3 * rows)
    preparing = clock.seconds()
    figures = []
    for _ in range(rounds):
        clock = Clock(runner.env.device)
        learn(runner, iterations * rows)
        figures.append(round(iterations * rows / clock.seconds()))
    memory = torch.cuda.max_memory_allocated() / 2**30 if config.device == "cuda" else 0.0
    return {
        "ppo steps/s": round(statistics.median(figures)),
        "ppo rounds": figures,
        "preparing s": round(preparing, 1),
        "torch memory GiB": round(memory, 2),
    }


def threads(config: Any, count: int, steps: int) -> dict[str, float]:
    """The same task on MuJoCo's batch."""
    from gaitway import make_env

    with make_env(config.env.id, num_envs=count, num_threads=os.cpu_count(), **config.env.options) as env:
        generator = torch.Generator().manual_seed(0)
        actions = 0.2 * torch.randn(8, count, *env.spec.action.shape, generator=generator)
        for number in range(4):
            env.step(actions[number % 8])
        clock = Clock(env.device)
        for number in range(steps):
            env.step(actions[number % 8])
        return {"instances": count, "threads": env.num_threads, "steps/s": round(count * steps / clock.seconds())}


def measured(config: Any, given: Any, compiled: bool, row: dict[str, Any], note: Any) -> None:
    """One size, into `row`; the environment is gone afterwards, whatever happened."""
    env = None
    if config.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    try:
        env, about = made(config, compiled)
        row |= about
        note()
        row |= physics(env, given.rounds, given.steps)
        note()
        row |= learning(config, env, min(given.rounds, 5), given.iterations)
        row["ppo of environment"] = round(row["ppo steps/s"] / row["environment steps/s"], 3)
    except Exception as error:  # the other sizes go on
        row["failed"] = (str(error).splitlines() or [type(error).__name__])[0]
    finally:
        if env is not None:
            env.close()
    note()


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--preset", default="ppo_go1_velocity_gpu")
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096, 1024, 16384, 65536])
    parser.add_argument("--compiled", type=int, nargs="*", default=[4096], help="those of the sizes that are compiled")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--mode", default="compiled_captured", help="execution.mode of the updates at --compiled sizes")
    given = parser.parse_args()
    results = Results("warp_throughput", given, ("sizes",))
    rows: dict[str, Any] = results.held("rows")
    for size in given.sizes:
        if "ppo of environment" in rows.get(str(size), {}):
            continue
        compiled = size in given.compiled
        mode = given.mode if compiled or given.device == "cpu" else "captured"
        changes = (f"env.num_envs={size}", f"execution.mode={mode}", "evaluation.interval=0")
        row = rows[str(size)] = {"mode": mode}
        config = config_of(given.preset, given.device, *changes)
        measured(config, given, compiled, row, lambda: results.note(rows=rows))
        gc.collect()  # the runner and its recordings
        if given.device == "cuda":
            torch.cuda.empty_cache()
    small = given.device == "cpu"
    if not results.held("batch"):
        config = config_of(given.preset, given.device)
        results.note(batch=threads(config, 8 if small else 4096, 3 if small else 20))
    row = rows.get("4096", {})
    good = (
        row.get("environment of bare", 0.0) >= WANTED_ENVIRONMENT and row.get("ppo of environment", 0.0) >= WANTED_PPO
    )
    return 0 if good or small else 1


if __name__ == "__main__":
    sys.exit(main())
