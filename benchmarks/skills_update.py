"""Updates of multi-task SAC with reachability on a GPU, drawing and targets included, at the Walker's sizes.

    python benchmarks/skills_update.py --out benchmarks/results/skills_update.json

Milliseconds of one update with batches of 256, networks of four D2RL layers of 512 and 1024: recorded in calls of 16,
with and without the compiler, and eager, in turns, medians over rounds; beside them `products`, the matrix products
alone as a CUDA graph. Gates: the recorded update ends at the parameters of the eager one (fp32), and a recorded call
never waits for the device. The file is written after every round. `--cpu` runs the same code in small on the CPU,
eager, to see that it works; its times say nothing.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from _rounds import keep, machine, revision

from gaitway import make_env
from gaitway.agents.skill_policy import SkillPolicy, SkillPolicyConfig
from gaitway.algorithms.algorithm import Now
from gaitway.core.execution import Execution, ExecutionConfig
from gaitway.core.workspace import Variable, Workspace
from gaitway.envs.env_agent import EnvAgent
from gaitway.rewards.source import Rewards
from gaitway.skills.multitask_sac import MultitaskSAC, MultitaskSACConfig

NUM_ENVS, STEPS, TOGETHER = 320, 64, 16
MODES = (("captured", "tf32"), ("compiled_captured", "tf32"), ("eager", "tf32"), ("captured", "fp32"))


def recorded_play(device: str) -> tuple[Workspace, dict[str, Variable], Any]:
    """Random play of the Walker on all its tasks."""
    with make_env("walker/skills", num_envs=NUM_ENVS, rank_max=5, device=device) as env:
        world = EnvAgent(env)
        variables = world.variables(STEPS) | {"action": Variable(STEPS, NUM_ENVS, env.spec.action.shape, torch.float32)}
        world.restore(env.reset())
        ws = Workspace.dense(variables, device)
        for t in range(STEPS):
            world.observe.step(ws, t)
            ws.put("action", t, torch.rand(NUM_ENVS, 6, device=device) * 2 - 1)
            world.advance.step(ws, t)
        return ws, variables, env.spec


def learner(
    play: tuple[Workspace, dict[str, Variable], Any], width: int, mode: str, precision: str, device: str
) -> Any:
    ws, variables, spec = play
    hidden = (width,) * 4
    generator = torch.Generator().manual_seed(0)
    policy = SkillPolicy(spec, SkillPolicyConfig(actor_hidden=hidden, critic_hidden=hidden), generator).to(device)
    config = MultitaskSACConfig(replay_size=NUM_ENVS * STEPS, updates_per_program=TOGETHER)
    execution = Execution(ExecutionConfig(mode, precision), device)
    algorithm = MultitaskSAC(policy, config, num_envs=NUM_ENVS, seed=0, execution=execution)
    algorithm.keep(variables, spec.group_names, Rewards())
    replay = algorithm.make_replay()
    replay.add(ws)
    return algorithm, replay


def products(width: int, device: str, batch: int = 256, inputs: int = 73, actions: int = 6) -> Callable[[], None]:
    """The matrix products of one update as a recorded graph: what no implementation can leave out."""
    shapes = []
    for members, columns, outputs in ((1, inputs, 2 * actions), (3, inputs + actions, 1)):
        layers = [(columns, 4 * width), (width, width), (width, width), (width, width), (width, outputs)]
        # forward with the target or the next observation; forward, and both products backward, for what learns
        passes = {1: 4, 3: 4}[members]
        shapes += [(members, batch, rows, out) for rows, out in layers for _ in range(passes)]
        # the critics as the actor sees them: forward and the gradient of their input
        if members == 3:
            shapes += [(members, batch, rows, out) for rows, out in layers for _ in range(2)]
    pairs = [
        (torch.randn(n, rows, columns, device=device), torch.randn(n, columns, out, device=device))
        for n, rows, columns, out in shapes
    ]

    def run() -> None:
        for one, other in pairs:
            torch.bmm(one, other)

    execution = Execution(ExecutionConfig("captured", "tf32"), device)
    program = execution.program(run, "products")
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


def measure(width: int, rounds: int, play: Any, device: str) -> Iterator[dict[str, Any]]:
    """What is known after each round."""
    found: dict[str, list[float]] = {}
    calls: dict[str, tuple[Callable[[], Any], int, int]] = {}
    for mode, precision in MODES if device == "cuda" else (("eager", "fp32"),):
        algorithm, replay = learner(play, width, mode, precision, device)
        updates = 1 if mode == "eager" else TOGETHER
        call = lambda a=algorithm, r=replay, n=updates: a.update(r, n, Now())  # noqa: E731
        for _ in range(4):
            call()
        calls[f"{mode} {precision}"] = (call, updates, 16 if mode == "eager" else 6)
        print(f"width {width}, {mode} {precision}: ready", flush=True)
    if device == "cuda":
        calls["products tf32"] = (products(width, device), 1, 100)
    for _ in range(rounds):
        for name, (call, updates, repeats) in calls.items():
            found.setdefault(name, []).append(timed(call, repeats, device) / updates)
        medians = {name: statistics.median(values) for name, values in found.items()}
        modes = [mode for mode in ("captured", "compiled_captured") if f"{mode} tf32" in medians]
        ratios = {mode: medians["eager tf32"] / medians[f"{mode} tf32"] for mode in modes}
        yield {"width": width, "ms": found, "median_ms": medians, "eager_over": ratios}


def gates(play: Any, device: str) -> dict[str, Any]:
    """Captured against eager in fp32, and what a recorded call waits for: "" is nothing."""
    ends, waits = {}, ""
    for mode in ("captured", "eager"):
        algorithm, replay = learner(play, 64, mode, "fp32", device)
        for _ in range(6):
            algorithm.update(replay, TOGETHER, Now())
        ends[mode] = torch.cat([value.flatten() for value in algorithm.flat_parameters()]).clone()
        if mode == "captured":
            torch.cuda.synchronize()
            torch.cuda.set_sync_debug_mode("error")
            try:
                algorithm.update(replay, TOGETHER, Now())
            except RuntimeError as error:
                waits = str(error)
            finally:
                torch.cuda.set_sync_debug_mode("default")
    return {"largest_difference": float((ends["captured"] - ends["eager"]).abs().max()), "waits": waits}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cpu", action="store_true", help="small and eager, to see that it works")
    given = parser.parse_args()
    device, widths = ("cpu", (16, 32)) if given.cpu else ("cuda", (512, 1024))
    result: dict[str, Any] = {"benchmark": "skills_update", "commit": revision(), "machine": machine()}
    play = recorded_play(device)
    if device == "cuda":
        result["gates"] = gates(play, device)
        print("gates", result["gates"], flush=True)
    cases: dict[int, dict[str, Any]] = {}
    for width in widths:
        for case in measure(width, given.rounds, play, device):
            cases[width] = case
            if given.out is not None:
                keep(given.out, result | {"cases": list(cases.values())})
        listed = "  ".join(f"{name} {value:.3f}" for name, value in cases[width]["median_ms"].items())
        ratios = "  ".join(f"eager / {mode} {ratio:.1f}" for mode, ratio in cases[width]["eager_over"].items())
        print(f"width {width}: {listed} ms; {ratios}", flush=True)


if __name__ == "__main__":
    main()
