"""Where the time of one step on Warp goes, and which of torch's compiler options make what is around physics quicker.

    gaitway bench warp_step --preset ppo_pup12_velocity_gpu --out benchmarks/results/warp_step.json

`ways` are the environment of the preset with other options of the compiler (`WAYS`), each in a process of its own.
They are made side by side, `--jobs` at a time, and then timed alone in rounds that take turns; milliseconds a step,
medians, beside the substeps alone (`bare`). `kernels` counts what the compiler made, from `torch._inductor.metrics`.
`profile` lists what one step as it comes launches on the GPU: how often, and how long it takes there, kernels of Warp
and of the compiler by name, the longest first; what they leave of a step are gaps between launches.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections import defaultdict
from contextlib import ExitStack
from typing import Any

import torch
import torch._inductor.metrics as made
from _provenance import let_children_import
from _warp import Clock, Results, config_of, options
from warp_throughput import Bare

from gaitway.cli.build import build_env
from gaitway.envs.mujoco_warp import WarpEnv

WAYS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "smaller kernels": {"max_fusion_size": 24},
    "kernels side by side in one": {"combo_kernels": True},
    "side by side, smaller": {"combo_kernels": True, "max_fusion_size": 24},
    "columns put together in one": {"max_pointwise_cat_inputs": 64},
    "more computed again": {"realize_reads_threshold": 16},
    "all of it": {"combo_kernels": True, "max_pointwise_cat_inputs": 64, "realize_reads_threshold": 16},
}
UNTIL_RECORDED, READY = 8, "ready"


def compile_with(asked: dict[str, Any]) -> None:
    """Have everything that is compiled from now on compiled with these options too."""
    plain: Any = torch.compile
    torch.compile = lambda function, options=None, **how: plain(  # type: ignore[assignment]
        function, options={**(options or {}), **asked} or None, **how
    )


class Contestant:
    """One way to step: the environment of a preset under `given`, or bare physics in its states."""

    def __init__(self, given: argparse.Namespace) -> None:
        config = config_of(given.preset, given.device, f"env.num_envs={given.instances}", *given.changes)
        env = build_env(config)
        assert isinstance(env, WarpEnv)
        self.env, self.steps = env, given.steps
        generator = torch.Generator().manual_seed(0)
        self.actions = (0.3 * torch.randn(16, env.num_envs, *env.spec.action.shape, generator=generator)).to(env.device)
        self.play(UNTIL_RECORDED)
        self.bare = Bare(env)
        self.bare.take_states()
        for _ in range(UNTIL_RECORDED):
            self.bare()

    def play(self, steps: int) -> None:
        for number in range(steps):
            self.env.step(self.actions[number % len(self.actions)])

    def milliseconds(self) -> dict[str, float]:
        clock = Clock(self.env.device)
        self.play(self.steps)
        found = {"environment": clock.seconds()}
        clock = Clock(self.env.device)
        for _ in range(self.steps):
            self.bare()
        found["bare"] = clock.seconds()
        return {name: round(1e3 * seconds / self.steps, 4) for name, seconds in found.items()}

    def profile(self) -> list[dict[str, Any]]:
        """What a step launches on the GPU, the longest first."""
        kinds = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=kinds) as profiler:
            self.play(self.steps)
            torch.cuda.synchronize()
        found: dict[str, list[float]] = defaultdict(list)
        for event in profiler.events():
            found[event.name].append(event.device_time)
        rows = [
            {"name": name[:100], "launches": len(times) / self.steps, "us": round(sum(times) / self.steps, 2)}
            for name, times in found.items()
        ]
        return sorted(rows, key=lambda row: -row["us"])


def contend(given: argparse.Namespace) -> int:
    """A child: make one way, say so, and time it whenever a line comes in."""
    compile_with(WAYS[given.one])
    before = made.generated_kernel_count
    contestant = Contestant(given)
    print(READY, made.generated_kernel_count - before, flush=True)
    for line in sys.stdin:
        answer: Any = contestant.profile() if line.strip() == "profile" else contestant.milliseconds()
        print(json.dumps(answer), flush=True)
    return 0


def main() -> int:
    parser = options(__doc__, instances=4096)
    parser.add_argument("--preset", default="ppo_pup12_velocity_gpu")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), metavar="WAY")
    parser.add_argument("--instances", type=int)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=7, help="ways that are made at a time")
    parser.add_argument("--one", choices=WAYS, default=None, help=argparse.SUPPRESS)
    parser.add_argument("changes", nargs="*", help="keys of the preset")
    given = parser.parse_args()
    if given.one:
        return contend(given)
    let_children_import()
    results = Results("warp_step", given, ("ways", "rounds", "jobs", "one"))
    children: dict[str, subprocess.Popen[str]] = {}
    rows: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        for start in range(0, len(given.ways), given.jobs):
            some = given.ways[start : start + given.jobs]
            children |= {way: stack.enter_context(_child(way)) for way in some}
            for way in some:
                rows[way] = {"options": WAYS[way], "kernels": _ready(children[way])}
                results.note(ways=rows)
        times: dict[str, dict[str, list[float]]] = {way: defaultdict(list) for way in children}
        for _ in range(given.rounds):
            for way, child in children.items():
                for name, value in _ask(child, "time").items():
                    times[way][name].append(value)
        for way, found in times.items():
            rows[way] |= {f"{name} ms": statistics.median(values) for name, values in found.items()}
            rows[way]["of bare"] = round(statistics.median(found["bare"]) / statistics.median(found["environment"]), 3)
        results.note(ways=rows)
        if given.device == "cuda":
            results.note(profile=_ask(children[given.ways[0]], "profile"))
        for child in children.values():
            assert child.stdin is not None
            child.stdin.close()
    return 0


def _child(way: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--one", way, *sys.argv[1:]]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _ready(child: subprocess.Popen[str]) -> int:
    """Wait until it is made; how many kernels the compiler made for it."""
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith(READY):
            return int(line.split()[1])
    raise SystemExit(f"a process ended with {child.wait()} before it was ready; what it said stands above")


def _ask(child: subprocess.Popen[str], what: str) -> Any:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(f"{what}\n")
    child.stdin.flush()
    for line in child.stdout:
        if line.startswith(("{", "[")):  # Warp prints there too
            return json.loads(line)
    raise SystemExit(f"a process ended with {child.wait()} before it answered; what it said stands above")


if __name__ == "__main__":
    sys.exit(main())
