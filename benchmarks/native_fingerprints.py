"""What every native task gives, as one hash each: a change of what they share must change none of them.

    gaitway bench native_fingerprints --out benchmarks/results/native_fingerprints.json
    gaitway bench native_fingerprints --against benchmarks/results/native_fingerprints.json --out compared.json

Three instances of each task are reset with seed 0 and take 1,000 random steps. The hash covers every observation,
final observation, reward, flag and metric of every step, bit for bit. `--against` compares with a stored result, for
as many steps as asked for (hashes are kept after 50 steps and after all); the exit code is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path

import torch
from _rounds import machine, revision, versions

from gaitway import make_env
from gaitway.envs.tasks import NATIVE_TASKS
from gaitway.envs.vec_env import Step

INSTANCES, SHORT, STEPS = 3, 50, 1000


def tensors_of(step: Step) -> list[torch.Tensor]:
    observed = [each[name] for each in (step.obs, step.final_obs) for name in sorted(each)]
    measured = [step.metrics[name] for name in sorted(step.metrics)]
    return [*observed, step.reward, step.terminated, step.truncated, *measured]


def fingerprints(id: str, steps: int) -> dict[str, str]:
    """Hashes of the first `SHORT` and of all steps."""
    found, digest = {}, hashlib.sha256()
    generator = torch.Generator().manual_seed(0)
    with make_env(id, num_envs=INSTANCES, seed=0, num_threads=1) as env:
        low = torch.tensor(env.spec.action.low).clamp(min=-1.0)
        high = torch.tensor(env.spec.action.high).clamp(max=1.0)
        for value in env.reset(0).values():
            digest.update(value.contiguous().numpy().tobytes())
        for number in range(1, steps + 1):
            step = env.step(low + (high - low) * torch.rand(INSTANCES, len(low), generator=generator))
            for value in tensors_of(step):
                digest.update(value.contiguous().numpy().tobytes())
            if number in (SHORT, STEPS):
                found[str(number)] = digest.hexdigest()[:32]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None)
    parser.add_argument("--against", default=None)
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    stored = json.loads(Path(options.against).read_text()) if options.against else {"tasks": {}}
    before = stored["tasks"]
    rows = {}
    for id in before or NATIVE_TASKS:
        rows[id] = fingerprints(id, options.steps)
        print(f"{id:42}", rows[id], flush=True)
    differing = [
        id for id, row in before.items() if any(rows[id][steps] != row[steps] for steps in row if steps in rows[id])
    ]
    if options.out:
        about = {"benchmark": "native_fingerprints", "machine": machine(), "versions": versions("mujoco", "torch")}
        result = {**about, "commit": revision(), "instances": INSTANCES, "tasks": rows}
        if before:
            result |= {"against": stored["commit"], "differing": differing}
        Path(options.out).write_text(json.dumps(result, indent=1) + "\n")
    if before:
        print(f"{len(before)} tasks compared after {options.steps} steps; {len(differing)} differ: {differing}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
