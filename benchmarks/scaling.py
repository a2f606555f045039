"""Steps per second by cores and processes, what the all-reduce costs, and a model of both; writes docs/scaling.md.

    gaitway bench scaling --out benchmarks/results/scaling.json [--page docs/scaling.md]

Training of ppo_walker_run with 1 process on 1 core, on 2, and with 2 processes on a core each; the all-reduce of
gradients of several sizes between two ranks. Contestants take turns, medians of rounds count. The model says what
two processes should need for an iteration: what two runs that share nothing need for half the instances each, at the
same time, because two cores may share caches and more; and the messages of an iteration, counted with their sizes.
The page between the marks is made of the raw file alone (`--page` without measuring: `--from FILE`).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _provenance import add_commit, let_children_import, provenance

SIZES = (1_000, 10_000, 100_000, 1_000_000)
ENVS, ROLLOUT, EPOCHS, MINIBATCHES = 64, 32, 4, 8
ITERATIONS = 40
BEGIN, END = "<!-- measured -->\n", "<!-- end -->\n"
APART = "2 runs at once, a core and half the instances each"
CASES = {
    "1 process, 1 core": (1, ENVS, 1, 1),
    "1 process, 2 cores": (1, ENVS, 2, 1),
    "2 processes, a core each": (2, ENVS, 1, 1),
    "1 process, 1 core, half the instances": (1, ENVS // 2, 1, 1),
    APART: (1, ENVS // 2, 1, 2),
}
"""Processes, instances of all of them, threads of each, and so many such runs at once."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None)
    parser.add_argument("--page", default=None)
    parser.add_argument("--from", dest="source", default=None, help="a raw file to make the page of")
    parser.add_argument("--rounds", type=int, default=3)
    add_commit(parser)
    options = parser.parse_args()
    if options.source:
        result = json.loads(Path(options.source).read_text())
    else:
        out = None if options.out is None else Path(options.out).resolve()
        result = provenance("scaling", options.commit)
        let_children_import()
        for found in measured(options.rounds):  # a result after every round, so that none is lost
            result |= found
            result["machine"]["load_at_end"] = os.getloadavg()[0]
            if out is not None:
                out.write_text(json.dumps(result, indent=1) + "\n")
    if options.page:
        page = Path(options.page)
        text = page.read_text()
        head, tail = text.partition(BEGIN)[0], text.partition(END)[2]
        page.write_text(head + BEGIN + table(result) + END + tail)
    print(table(result))


def measured(rounds: int) -> Iterator[dict[str, Any]]:
    """What is known after each of the rounds."""
    home, sizes = os.getcwd(), messages_of_iteration()
    raw: dict[str, list[float]] = {name: [] for name in CASES}
    messages: dict[str, list[float]] = {str(size): [] for size in SIZES}
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        for number in range(rounds):
            for name, case in CASES.items():
                raw[name].append(seconds_of_iteration(*case, f"{number}-{'-'.join(map(str, case))}"))
            for size, seconds in all_reduce().items():
                messages[size].append(seconds)
            yield concluded(raw, messages, sizes)
        os.chdir(home)


def concluded(raw: dict[str, list[float]], messages: dict[str, list[float]], sizes: dict[int, float]) -> dict[str, Any]:
    """Medians, and what the model makes of them; `sizes` are the messages of an iteration."""
    found = {name: statistics.median(each) for name, each in raw.items()}
    sent = {size: statistics.median(each) for size, each in messages.items()}
    seconds = sum(count * interpolated(sent, size) for size, count in sizes.items())
    predicted = found[APART] + seconds
    two = found["2 processes, a core each"]
    return {
        "seconds_per_iteration": found,
        "steps_per_second": {
            name: CASES[name][1] * CASES[name][3] * ROLLOUT / seconds for name, seconds in found.items()
        },
        "seconds_per_all_reduce": sent,
        "messages_per_iteration": sizes,
        "model": {"message_seconds": seconds, "predicted_seconds": predicted, "measured_seconds": two,
                  "error": predicted / two - 1.0},
        "raw": {"iterations": raw, "messages": messages},
    }  # fmt: skip


def arguments_of(envs: int, threads: int) -> list[str]:
    last = envs * ROLLOUT * ITERATIONS
    return ["experiment=ppo_walker_run", f"env.num_envs={envs}", f"total_steps={last}", f"evaluation.interval={last}",
            "evaluation.episodes=1", f"checkpoints.interval={last}", f"env.num_threads={threads}", "torch_threads=1",
            f"algorithm.epochs={EPOCHS}", f"algorithm.minibatches={MINIBATCHES}", "preflight=false"]  # fmt: skip


def seconds_of_iteration(processes: int, envs: int, threads: int, runs: int, name: str) -> float:
    """Median over the iterations of a short run, the first ones left out; of the first one of several."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *(launch if processes > 1 else []), "-m", "gaitway", "train", "--quiet"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = [
        subprocess.Popen(
            [*command, *arguments_of(envs, threads), f"run_dir={name}-{number}"],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            **quiet,
        )
        for number in range(runs)
    ]
    ended = [each.wait() for each in started]
    if any(ended):
        raise RuntimeError(f"{' '.join(started[0].args)} ended with an error; run it to see which")
    lines = [json.loads(line) for line in (Path(f"{name}-0") / "metrics.jsonl").read_text().splitlines()]
    times = [line["time/seconds"] for line in lines if "time/seconds" in line]
    return statistics.median(later - earlier for earlier, later in itertools.pairwise(times[5:]))


RANK = """
import json, os, time, torch
from gaitway.runners.distributed import joined
torch.set_num_threads(1)
with joined() as ranks:
    found, matrix = {}, torch.randn(200, 200)
    for size in json.loads(os.environ["SIZES"]):
        tensor = torch.ones(size)
        times = []
        for number in range(350):
            computed = time.perf_counter() + 0.001
            while time.perf_counter() < computed:
                matrix @ matrix
            began = time.perf_counter()
            ranks.mean_(tensor)
            times.append(time.perf_counter() - began)
        found[str(size)] = sum(times[50:]) / 300
    if ranks.is_first:
        print(json.dumps(found), flush=True)
"""


def all_reduce() -> dict[str, float]:
    """Mean seconds of an all-reduce of float32 numbers between two ranks that compute for a millisecond before each, by
    their count. The mean, because an iteration waits for all of its messages, the slow ones too."""
    Path("rank.py").write_text(RANK)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "rank.py"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "SIZES": json.dumps(SIZES)}
    done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))


def messages_of_iteration() -> dict[int, float]:
    """How many messages of how many numbers a rank sends in an iteration, counted in a rank that is the only one."""
    from gaitway.cli.build import build_runner
    from gaitway.cli.compose_run import compose_run
    from gaitway.core.ranks import Ranks
    from gaitway.runners.distributed import joined

    sizes: list[int] = []
    call = Ranks._call

    def counted(ranks: Ranks, function: Any, *tensors: Any, **options: Any) -> None:
        sizes.append(tensors[-1].numel())
        call(ranks, function, *tensors, **options)

    variables = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    os.environ |= variables
    Ranks._call = counted  # type: ignore[method-assign]
    try:
        with joined():
            runner = build_runner(compose_run(arguments_of(ENVS, 1))[0], None)
            runner.learn(2 * ENVS * ROLLOUT)
            sizes.clear()
            runner.learn(10 * ENVS * ROLLOUT)
    finally:
        Ranks._call = call  # type: ignore[method-assign]
        for name in variables:
            del os.environ[name]
    return {size: sizes.count(size) / 10 for size in sorted(set(sizes))}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def interpolated(sent: dict[str, float], size: int) -> float:
    """Seconds of a message of `size` numbers, along a line between the sizes that were measured."""
    known = sorted((int(name), seconds) for name, seconds in sent.items())
    for (low, least), (high, most) in itertools.pairwise(known):
        if size <= high:
            return least + (most - least) * max(size - low, 0) / (high - low)
    return known[-1][1] * size / known[-1][0]


def table(result: dict[str, Any]) -> str:
    lines = ["| ppo_walker_run | ms an iteration | steps/s |", "|---|---|---|"]
    for name, seconds in result["seconds_per_iteration"].items():
        lines.append(f"| {name} | {1000 * seconds:.0f} | {result['steps_per_second'][name]:,.0f} |")
    lines += ["", "| numbers all-reduced, two ranks | ms |", "|---|---|"]
    lines += [f"| {int(size):,} | {1000 * seconds:.2f} |" for size, seconds in result["seconds_per_all_reduce"].items()]
    model, machine = result["model"], result["machine"]
    milliseconds = {name: 1000 * model[f"{name}_seconds"] for name in ("message", "predicted", "measured")}
    busy = machine["load_at_beginning"] + 2 > machine["cores"] + 0.5
    state = "busy with other work: do not rely on these figures" if busy else "free for two processes"
    counts = {int(size): count for size, count in result["messages_per_iteration"].items()}
    large = max(counts)
    lines += [
        "",
        f"The model: {counts[large]:.0f} messages of {large:,} numbers and {sum(counts.values()) - counts[large]:.0f} "
        f"small ones, {milliseconds['message']:.1f} ms together, beside half the instances on each core: "
        f"{milliseconds['predicted']:.0f} ms an iteration predicted, {milliseconds['measured']:.0f} ms measured "
        f"({100 * model['error']:+.0f} %).",
        f"Measured on {machine['processor']}, {machine['cores']} cores, load {machine['load_at_beginning']:.1f} at the "
        f"beginning and {machine['load_at_end']:.1f} at the end (the machine was {state}), commit {result['commit']}.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
