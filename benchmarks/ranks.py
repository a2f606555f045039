"""Two processes train what one does: a rank that is killed, refusals, and walker/run by one process and by two.

    gaitway bench ranks kill --out benchmarks/results/ranks_kill.json
    gaitway bench ranks learning --out benchmarks/results/ranks_learning.json [--steps 1000000] [--seeds 0 1 2]
    gaitway bench ranks nccl --out benchmarks/results/ranks_nccl.json

`kill`: PPO and SAC on a pendulum by two ranks of `torchrun --max-restarts`, once undisturbed, once with rank 1
killed (SIGKILL) in the middle, which `--or-resume` goes on with: both `parameters_sha256` must be the same. Without
restarts the job must be over within 60 seconds, and a rank that raises must show its traceback.

`learning`: final returns of the preset ppo_walker_run, one process and two, a run per seed; the mean of each must lie
in the other's 95 % interval (Student's t over the seeds).

`nccl`: five iterations of the Walker on a GPU by `gaitway train` and by one rank of `torchrun`, recorded and eager: the
parameters after the first iteration must differ by 1e-6 at most. A rank more than there are GPUs must be refused.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _provenance import add_commit, let_children_import, provenance

T_95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
"""Student's t of a two-sided 95 % interval, by degrees of freedom."""
COMMON = [
    "env.id=toy/pendulum", "env.num_envs=8", "total_steps=12800", "agent.actor_hidden=[16]", "agent.critic_hidden=[16]",
    "evaluation.interval=6400", "evaluation.episodes=2", "checkpoints.interval=1280", "env.num_threads=1",
    "torch_threads=1", "seed=3",
]  # fmt: skip
ALGORITHMS = {
    "ppo": ["algorithm.name=ppo", "algorithm.rollout_steps=32", "algorithm.minibatches=2", "algorithm.epochs=2"],
    "sac": ["algorithm=sac", "algorithm.learning_starts=512", "algorithm.iteration_steps=256",
            "algorithm.batch_size=32", "algorithm.replay_size=8000", "algorithm.update_ratio=0.05"],
}  # fmt: skip
MODES = ("captured", "eager")
RAISES = """
class Raises:
    def after_iteration(self, moment):
        import os
        if moment.now.env_steps > 2000 and os.environ["RANK"] == "1":
            raise RuntimeError("rank 1 has had enough")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["kill", "learning", "nccl"])
    parser.add_argument("--out", default=None)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    add_commit(parser)
    options = parser.parse_args()
    options.out = options.out and os.path.abspath(options.out)
    facts = provenance("ranks", options.commit)
    let_children_import()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        if options.what == "learning":
            result = learning(options.seeds, options.steps, facts, options.out)
        else:
            result = facts | (kill() if options.what == "kill" else nccl())
    write(result, options.out)
    print(json.dumps(result, indent=1))


def write(result: dict[str, Any], out: str | None) -> None:
    result["machine"]["load_at_end"] = os.getloadavg()[0]
    if out:
        Path(out).write_text(json.dumps(result, indent=1) + "\n")


def together(arguments: list[str], restarts: int = 0, processes: int = 2) -> list[str]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return [*torchrun, "--max-restarts", str(restarts), "-m", "gaitway", "train", *arguments, "--quiet"]


def kill() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, algorithm in ALGORITHMS.items():
        arguments = [*algorithm, *COMMON]
        subprocess.run(together([*arguments, f"run_dir={name}/whole"]), check=True)
        job = subprocess.Popen(together([*arguments, f"run_dir={name}/killed", "--or-resume"], restarts=2))
        at = kill_rank(job, Path(name) / "killed", 4000)
        code = job.wait()
        whole, killed = (fingerprint(f"{name}/{which}") for which in ("whole", "killed"))
        found[name] = {"killed_at_step": at, "exit_code": code, "undisturbed": whole, "restarted": killed,
                       "equal": whole == killed}  # fmt: skip
    arguments = [*ALGORITHMS["ppo"], *COMMON]
    job = subprocess.Popen(together([*arguments, "run_dir=dies"]), stderr=subprocess.PIPE, text=True)
    at = kill_rank(job, Path("dies"), 4000)
    began = time.perf_counter()
    said = job.communicate()[1]
    found["dies"] = {"killed_at_step": at, "exit_code": job.returncode, "seconds": time.perf_counter() - began,
                     "said": [line for line in said.splitlines() if line.startswith("gaitway: ")]}  # fmt: skip
    Path("raises.py").write_text(RAISES)
    os.environ["PYTHONPATH"] += os.pathsep + os.getcwd()
    began = time.perf_counter()
    done = subprocess.run(
        together([*arguments, "run_dir=raises", "callbacks=[raises:Raises]"]),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found["raises"] = {"exit_code": done.returncode, "seconds": time.perf_counter() - began,
                       "traceback": "RuntimeError: rank 1 has had enough" in done.stderr,
                       "said": [line for line in done.stderr.splitlines() if line.startswith("gaitway: ")]}  # fmt: skip
    return found


def kill_rank(job: subprocess.Popen[Any], run: Path, steps: int) -> int:
    """Kill rank 1 of a job when its run has gone so many steps; returns how many it had gone."""
    while (gone := steps_of(run)) < steps:
        if job.poll() is not None:
            raise RuntimeError(f"the job ended with {job.returncode} before it could be disturbed")
        time.sleep(0.02)
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            variables = (path / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"RANK=1" in variables and f"run_dir={run}".encode() in words:
            os.kill(int(path.name), signal.SIGKILL)
            return gone
    raise RuntimeError("there is no rank 1")


def steps_of(run: Path) -> int:
    try:
        return int(json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["step"])
    except (OSError, ValueError, IndexError, KeyError):
        return 0


def fingerprint(run: str) -> str:
    command = [sys.executable, "-m", "gaitway", "info", run, "--verify", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return str(json.loads(done.stdout.splitlines()[-1])["parameters_sha256"])


def learning(seeds: list[int], steps: int, facts: dict[str, Any], out: str | None) -> dict[str, Any]:
    returns: dict[str, dict[int, float]] = {"one process": {}, "two processes": {}}
    seconds: dict[str, dict[int, float]] = {name: {} for name in returns}
    result = facts | {"experiment": "ppo_walker_run", "steps": steps, "returns": returns, "seconds": seconds}
    for seed in seeds:
        for name, found in returns.items():
            run = f"{name.replace(' ', '_')}_{seed}"
            arguments = ["experiment=ppo_walker_run", f"seed={seed}", f"total_steps={steps}", f"run_dir={run}",
                         f"evaluation.interval={steps}", "evaluation.episodes=20", "env.num_threads=1",
                         "torch_threads=1"]  # fmt: skip
            alone = [sys.executable, "-m", "gaitway", "train", *arguments, "--quiet"]
            began = time.perf_counter()
            subprocess.run(alone if name == "one process" else together(arguments), check=True)
            seconds[name][seed] = round(time.perf_counter() - began, 1)
            found[seed] = json.loads((Path(run) / "summary.json").read_text())["last"]["return"]
            write(result, out)
    intervals = {name: interval(list(found.values())) for name, found in returns.items()}
    means = {name: statistics.fmean(found.values()) for name, found in returns.items()}
    one, two = returns
    pairs = ((one, two), (two, one))
    inside = {f"{a} in that of {b}": intervals[b][0] <= means[a] <= intervals[b][1] for a, b in pairs}
    return result | {"means": means, "intervals": intervals, "inside": inside}


def nccl() -> dict[str, Any]:
    import torch

    iteration = 8 * 16
    common = [
        "experiment=ppo_walker_run", "env.num_envs=8", "algorithm.rollout_steps=16", "algorithm.minibatches=2",
        "algorithm.epochs=2", "algorithm.schedule=adaptive", f"total_steps={5 * iteration}", "device=cuda", "seed=0",
        f"checkpoints.interval={iteration}", "checkpoints.keep_all=true", f"evaluation.interval={5 * iteration}",
        "evaluation.episodes=1", "evaluation.max_steps=10", "execution.precision=fp32", "preflight=false",
        "logging.code=none", "env.num_threads=1", "torch_threads=1",
    ]  # fmt: skip
    found: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    jobs = {}
    for mode in MODES:
        arguments = [*common, f"execution.mode={mode}"]
        alone = [sys.executable, "-m", "gaitway", "train", *arguments, f"run_dir={mode}/alone", "--quiet"]
        rank = together([*arguments, f"run_dir={mode}/rank"], processes=1)
        jobs[mode] = [subprocess.Popen(command) for command in (alone, rank)]
    for mode, pair in jobs.items():
        codes = [job.wait() for job in pair]
        if any(codes):
            found[mode] = {"exit_codes": codes}  # what they said stands above
            continue
        differences = {
            number: parameter_difference(f"{mode}/alone", f"{mode}/rank", number * iteration) for number in range(1, 6)
        }
        said = Path(mode, "rank", "run.log").read_text()
        found[mode] = {"largest_difference_after_iteration": differences, "within_1e-6": differences[1] <= 1e-6,
                       "runs_eagerly_after_all": "runs eagerly" in said}  # fmt: skip
    count = torch.cuda.device_count() + 1
    refused = subprocess.run(
        together([*common, "run_dir=refused"], processes=count), capture_output=True, text=True, check=False
    )
    found["a rank too many"] = {
        "exit_code": refused.returncode,
        "said": [line for line in refused.stderr.splitlines() if line.startswith("gaitway: ")],
    }
    return found


def parameter_difference(one: str, other: str, step: int) -> float:
    """The largest difference between the parameters of two runs after so many steps."""
    from safetensors.torch import load_file

    stored = [load_file(Path(run, "checkpoints", str(step), "state.safetensors")) for run in (one, other)]
    names = [name for name in stored[0] if name.startswith("state/algorithm/policy/") and "normalisers" not in name]
    return max(float((stored[0][name] - stored[1][name]).abs().max()) for name in names)


def interval(values: list[float]) -> tuple[float, float]:
    """The 95 % interval of a mean."""
    half = T_95[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))
    return statistics.fmean(values) - half, statistics.fmean(values) + half


if __name__ == "__main__":
    main()
