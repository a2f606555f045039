"""Updates of HSD-3 on a GPU, drawing and targets included, at the Walker's sizes: batches of 256, 31 goal spaces.

    python benchmarks/hsd3_update.py --out benchmarks/results/hsd3_update.json

Milliseconds of one update with networks of four D2RL layers of 256: recorded in calls of 10, with and without the
compiler, and eager, in turns, medians over rounds; beside them `sd`, one goal space with all features, `drawn`, two
goal spaces drawn per transition, `plain layers`, critics whose layers are not computed in place (`nn/constant_skip`),
and `products`, the matrix products of the exact update alone as a CUDA graph. Gates: the recorded update ends at the
parameters of the eager one (fp32), and a recorded call never waits for the device.
Compiling takes most of the time: `--without compiled` leaves out every way whose name has that word in it. The file is
written after every round. `--cpu` runs the same code in small on the CPU, eager, to see that it works; its times say
nothing.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from _rounds import keep, machine, revision

from gaitway import OffPolicyRunner, RunnerConfig, make_env
from gaitway.algorithms.algorithm import Now
from gaitway.core.execution import Execution, ExecutionConfig
from gaitway.skills.hsd3 import HSD3, HSD3Config
from gaitway.skills.hsd3_policy import HSD3Policy, HSD3PolicyConfig

NUM_ENVS, STEPS, TOGETHER, WIDTH = 64, 64, 10, 256
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "exact": ({}, {}),
    "drawn": ({}, {"expectation_d": 2}),
    "sd": ({"subsets": "0-1-2-3+4-5+6"}, {}),
}
PLAIN = "plain layers"
MODES = (("captured", "tf32"), ("compiled_captured", "tf32"), ("eager", "tf32"), ("captured", "fp32"))


def learner(
    kind: str, mode: str, precision: str, device: str, width: int = WIDTH, plain: bool = False
) -> tuple[HSD3, Any]:
    """A learner and its replay of uniform decisions on Hurdles; `plain` without layers that are computed in place."""
    agent, options = KINDS[kind]
    env = make_env("walker/hurdles", num_envs=NUM_ENVS, seed=0, device=device, goal_space=True)
    config = HSD3PolicyConfig(skills="walker", actor_hidden=(width,) * 4, critic_hidden=(width,) * 4, **agent)
    policy = HSD3Policy(env.spec, config, torch.Generator().manual_seed(0)).to(device)
    execution = Execution(ExecutionConfig(mode, precision), device)
    rows = NUM_ENVS * STEPS
    own = HSD3Config(
        replay_size=rows, iteration_steps=rows, learning_starts=10**9, updates_per_program=TOGETHER, **options
    )
    algorithm = HSD3(policy, own, num_envs=NUM_ENVS, seed=0, execution=execution)
    if plain:  # whoever watches a network gets its own layers
        for critics in (policy.target, algorithm.constant_critic):
            critics.critics.network.register_forward_hook(lambda *_: None)
    runner = OffPolicyRunner(env, algorithm, RunnerConfig(total_steps=10**9))
    runner.learn(rows)
    env.close()
    return algorithm, runner.replay


def products(device: str, batch: int = 256, spaces: int = 31, inputs: int = 64, goal: int = 7) -> Callable[[], None]:
    """The matrix products of one exact update as a recorded graph: what no implementation can leave out."""
    width, shapes = WIDTH, []
    for outputs in (spaces, 2 * spaces * goal):  # both policies, now and next: forward, and two products backward
        layers = [(inputs, 4 * width), *[(width, width)] * 3, (width, outputs)]
        shapes += [(1, 2 * batch, rows, out) for rows, out in layers]
        shapes += [(1, batch, rows, out) for rows, out in layers for _ in range(2)]
    wide = inputs + spaces + spaces * goal
    for rows, out in [(wide, 4 * width), *[(width, width)] * 3, (width, 1)]:  # the critics' own step
        shapes += [(2, batch, rows, out)] * 3
    # target and policies ask about all goal spaces: forward twice, backward to the goals once
    shapes += [(2 * spaces, batch, inputs + goal + 1, 4 * width)] * 3
    shapes += [(2, spaces * batch, width, width)] * 9
    shapes += [(2, spaces * batch, width, 1)] * 3
    pairs = [
        (torch.randn(n, rows, columns, device=device), torch.randn(n, columns, out, device=device))
        for n, rows, columns, out in shapes
    ]

    def run() -> None:
        for one, other in pairs:
            torch.bmm(one, other)

    program = Execution(ExecutionConfig("captured", "tf32"), device).program(run, "products")
    for _ in range(4):
        program()
    return program


def timed(call: Callable[[], Any], repeats: int, device: str) -> float:
    synchronise = torch.cuda.synchronize if device == "cuda" else lambda: None
    synchronise()
    started = time.perf_counter()
    for _ in range(repeats):
        call()
    synchronise()
    return (time.perf_counter() - started) / repeats * 1e3


def ways(device: str, without: Sequence[str]) -> dict[str, tuple[Callable[[], Any], int, int]]:
    """By name: a call, how many updates it makes, and how often it is timed."""
    found: dict[str, tuple[Callable[[], Any], int, int]] = {}
    wanted = [("exact", *mode, False) for mode in MODES]
    wanted += [(kind, "captured", "tf32", False) for kind in ("drawn", "sd")] + [("exact", "captured", "tf32", True)]
    if device == "cpu":
        wanted = [(kind, "eager", "fp32", plain) for kind, plain in (("exact", False), ("sd", False), ("exact", True))]
    for kind, mode, precision, plain in wanted:
        name = f"{kind} {mode} {precision}{', ' + PLAIN if plain else ''}"
        if any(word in name for word in without):
            continue
        algorithm, replay = learner(kind, mode, precision, device, WIDTH if device == "cuda" else 32, plain)
        updates = 1 if mode == "eager" else TOGETHER
        call = lambda a=algorithm, r=replay, n=updates: a.update(r, n, Now())  # noqa: E731
        for _ in range(4):
            call()
        if algorithm._many.refused is not None:
            print(f"{name} is left out, it cannot be recorded: {algorithm._many.refused}", flush=True)
            continue
        found[name] = (call, updates, 16 if mode == "eager" else 6)
        print(f"{name}: ready", flush=True)
    if device == "cuda":
        found["products tf32"] = (products(device), 1, 100)
    return found


def summary(found: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    medians = {name: statistics.median(values) for name, values in found.items()}
    eager = medians.get("exact eager tf32", float("nan"))
    modes = [mode for mode in ("captured", "compiled_captured") if f"exact {mode} tf32" in medians]
    return {
        "ms": found,
        "median_ms": medians,
        "eager_over": {mode: eager / medians[f"exact {mode} tf32"] for mode in modes},
    }


def gates(device: str) -> dict[str, Any]:
    """Captured against eager in fp32, and what a recorded call waits for: "" is nothing."""
    ends, scale, waits = {}, torch.zeros(()), ""
    for mode in ("captured", "eager"):
        algorithm, replay = learner("exact", mode, "fp32", device, 64)
        for _ in range(4):
            algorithm.update(replay, TOGETHER, Now())
        ends[mode] = torch.cat([value.flatten() for value in algorithm.flat_parameters()]).clone()
        scale = ends[mode].norm()
        if mode == "captured":
            torch.cuda.synchronize()
            torch.cuda.set_sync_debug_mode("error")
            try:
                algorithm.update(replay, TOGETHER, Now())
            except RuntimeError as error:
                waits = str(error)
            finally:
                torch.cuda.set_sync_debug_mode("default")
    apart = ends["captured"] - ends["eager"]
    return {"relative_difference": float(apart.norm() / scale), "largest": float(apart.abs().max()), "waits": waits}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--without", nargs="+", default=[], help="words: ways with one of them are left out")
    parser.add_argument("--cpu", action="store_true", help="small and eager, to see that it works")
    given = parser.parse_args()
    device = "cpu" if given.cpu else "cuda"
    result: dict[str, Any] = {"benchmark": "hsd3_update", "commit": revision(), "machine": machine()}
    if device == "cuda":
        result["gates"] = gates(device)
        print("gates", result["gates"], flush=True)
    calls = ways(device, given.without)
    found: dict[str, list[float]] = {}
    for _ in range(given.rounds):
        for name, (call, updates, repeats) in calls.items():
            found.setdefault(name, []).append(timed(call, repeats, device) / updates)
        result |= summary(found)
        if given.out is not None:
            keep(given.out, result)
    print("  ".join(f"{name} {value:.3f}" for name, value in result["median_ms"].items()), "ms")
    print("  ".join(f"eager / {mode} {ratio:.1f}" for mode, ratio in result["eager_over"].items()))


if __name__ == "__main__":
    main()
