"""One call of an exported actor at batch 1: eager torch, torch.compile, torch.export, ONNX Runtime, the robot's runner.

    gaitway bench export_latency --out benchmarks/results/export_latency.json

The actor is 48-512-256-128-12 with ELU and a running normaliser; `gru` has a GRU of 256 before it. One thread; calls of
the contestants are interleaved in blocks. Before that all of them are compared with the policy. rsl_rl takes part where
it is installed, torch.compile where there is a compiler. `--busy` loads another core meanwhile.
"""

from __future__ import annotations

import argparse
import copy
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _rounds import machine, revision, write

from gaitway.agents.actor_critic import ActorCritic, ActorCriticConfig, MemoryConfig
from gaitway.core.files import atomic_write_json
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup
from gaitway.export.acting_step import PolicyStep
from gaitway.export.contract import CONTRACT
from gaitway.export.folder import ONNX, TORCH, Subject, _contract
from gaitway.export.programs import load_torch, trace, write_onnx, write_torch
from gaitway.export.robot_runner import RobotRunner

OBSERVATION, ACTIONS, HIDDEN, GRU = 48, 12, (512, 256, 128), 256
BLOCK = 200
Call = Callable[[], Any]


def make_policy(memory: bool) -> ActorCritic:
    group = ObservationGroup("policy", (Component("proprioception", OBSERVATION),), (OBSERVATION,))
    names = tuple(f"joint_{index}" for index in range(ACTIONS))
    unlimited = (float("inf"),) * ACTIONS
    spec = EnvSpec(
        "quadruped", (group,), ActionSpec("continuous", names, tuple(-x for x in unlimited), unlimited), 0.02, 0
    )
    config = ActorCriticConfig(
        actor_hidden=HIDDEN, activation="elu", memory=MemoryConfig("gru", GRU) if memory else MemoryConfig()
    )
    policy = ActorCritic(spec, config, torch.Generator().manual_seed(0)).eval()
    norm = policy.normalisers.of("policy")
    assert norm is not None
    norm.train().update(1.0 + 2.0 * torch.randn(1000, OBSERVATION, generator=torch.Generator().manual_seed(1)))
    return policy


def contestants(memory: bool, folder: Path) -> dict[str, Call]:
    """Every way to make an action of one observation, by name; each keeps its own memory."""
    policy = make_policy(memory)
    step = PolicyStep(policy).eval()
    program = trace(step)
    write_torch(program, folder / TORCH)
    write_onnx(program, step, folder / ONNX)
    subject = Subject(step, None, None, {"run": "benchmark"}, "benchmark")  # type: ignore[arg-type]
    atomic_write_json(folder / CONTRACT, _contract(step, subject, folder, [TORCH, ONNX]))
    observation = torch.randn(1, OBSERVATION, generator=torch.Generator().manual_seed(2))
    array = observation.numpy()
    runner = RobotRunner(folder, batch=1)
    session, names = runner.session, [port.input for port in step.memories]

    def of_torch(module: Any) -> Call:
        states = [torch.zeros(1, port.size) for port in step.memories]

        def call() -> np.ndarray:
            nonlocal states
            with torch.inference_mode():
                action, *states = module(observation, *states)
            return action.numpy()

        return call

    feed = {"obs/policy": array} | {name: np.zeros((1, GRU), np.float32) for name in names}

    def of_session() -> np.ndarray:
        action, *states = session.run(None, feed)
        feed.update(zip(names, states, strict=True))
        return action

    found: dict[str, Call] = {
        "eager": of_torch(step),
        "torch.export": of_torch(load_torch(folder / TORCH)),
        "onnxruntime": of_session,
        "robot_runner": lambda: runner({"policy": array}),
    }
    if shutil.which(os.environ.get("CXX", "g++")):
        found["torch.compile"] = of_torch(torch.compile(copy.deepcopy(step)))
    theirs = rsl_rl_module() if not memory else None
    if theirs is not None:
        found["rsl_rl"] = of_torch(theirs)
    return found


def rsl_rl_module() -> Any:
    """rsl_rl's own actor of the same sizes as it exports it, None where rsl_rl is not installed. It normalises with
    statistics of its own, so that it is timed and not compared."""
    try:
        from rsl_rl.models import MLPModel
        from tensordict import TensorDict
    except ImportError:
        return None
    obs = TensorDict({"policy": torch.zeros(1, OBSERVATION)}, batch_size=[1])
    model = MLPModel(obs, {"actor": ["policy"]}, "actor", ACTIONS, hidden_dims=list(HIDDEN), activation="elu",
                     obs_normalization=True)  # fmt: skip
    exported = torch.jit.script(model.as_jit().eval())
    return lambda observation: (exported(observation),)


def measure(calls: dict[str, Call], count: int) -> dict[str, dict[str, float]]:
    """Microseconds of `count` calls of each, in blocks that take turns."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(BLOCK):
            call()
    while len(taken[next(iter(calls))]) < count:
        for name, call in calls.items():
            for _ in range(BLOCK):
                started = time.perf_counter_ns()
                call()
                taken[name].append(1e-3 * (time.perf_counter_ns() - started))
    quantiles = {"p50": 50.0, "p99": 99.0, "p99.9": 99.9}
    return {
        name: {key: round(float(np.percentile(values, at)), 2) for key, at in quantiles.items()}
        for name, values in taken.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--busy", action="store_true", help="load another core meanwhile")
    options = parser.parse_args()
    torch.set_num_threads(1)
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if options.busy else None
    cases: dict[str, Any] = {}
    try:
        for name in ("mlp", "gru"):
            with tempfile.TemporaryDirectory() as place:
                calls = contestants(name == "gru", Path(place))
                wanted = [calls["eager"]() for _ in range(50)]
                differences = {
                    other: max(float(np.abs(call() - want).max()) for want in wanted)
                    for other, call in calls.items()
                    if other not in ("eager", "rsl_rl")
                }
                if max(differences.values()) > 1e-5:
                    raise RuntimeError(f"{name}: not the same actions: {differences}")
                figures = measure(calls, options.calls)
            cases[name] = {"microseconds": figures, "largest_difference": differences}
            for other, values in figures.items():
                times = figures["eager"]["p50"] / values["p50"]
                print(f"{name:4s} {other:14s} p50 {values['p50']:8.1f} us  p99 {values['p99']:8.1f}  "
                      f"p99.9 {values['p99.9']:8.1f}  {times:.2f} x eager", flush=True)  # fmt: skip
    finally:
        if busy is not None:
            busy.kill()
            busy.wait()
    result = {
        "benchmark": "export_latency",
        "calls": options.calls,
        "other_core_busy": options.busy,
        "rsl_rl": "timed" if "rsl_rl" in cases["mlp"]["microseconds"] else "not installed",
        "load_average": os.getloadavg()[0],
        "commit": revision(),
        "machine": machine(),
        "cases": cases,
    }
    write(options.out, result)


if __name__ == "__main__":
    main()
