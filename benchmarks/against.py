"""This checkout beside another one, on the workloads of the other benchmarks, in interleaved rounds.

    gaitway bench against --other ../before --out benchmarks/results/against.json
    python benchmarks/against.py --other ../before --device cuda

A change that is not about speed should leave it alone: each workload runs in worker processes of both checkouts, which
take turns, and the ratio within a round counts (above 1: this checkout is faster). A second pair of workers, of this
checkout against itself, shows how far two equal programs differ here. `term` is one update of PPO with a further loss
term against the same without it, in this checkout.

Results are written after every round. A call that was stopped is gone on with by the same call: rounds that `--out`
holds are not run again, if the commit, the other folder and the device are the same.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
PACKAGE = "src/gaitway/__init__.py"
ROUNDS = {"cpu": 15, "cuda": 11}
FASTEST = {"cpu": ("compiled", "fp32"), "cuda": ("compiled_captured", "tf32")}


def ppo(device: str) -> None:
    from ppo_end_to_end import ours

    ours(64, 32, 4)


def sac(device: str) -> None:
    from sac_end_to_end import ours

    ours(4, 1000, 1)


def blackboard(name: str, device: str) -> None:
    import _blackboard_side as side
    from ppo_end_to_end import serve

    from gaitway import make_env

    toy = make_env(side.TASKS[name].toy, num_envs=16, seed=0)
    work = side.Collector(toy, side.make_policy(toy.spec), 500)
    serve(lambda: [work() for _ in range(8)], 8 * 16 * 500)


def gpu_ppo(device: str, memory: int = 0, mode: str = "auto", precision: str = "auto") -> None:
    import torch
    from _ppo_iteration import Ours, Sizes
    from ppo_end_to_end import serve

    sizes = Sizes(memory=memory)
    sizes = sizes if device == "cuda" else sizes.quick()
    entrant = Ours(sizes, device, mode, precision)
    for _ in range(6):
        entrant()

    def work() -> None:
        for _ in range(10):
            entrant()
        if device == "cuda":
            torch.cuda.synchronize()

    serve(work, 10 * sizes.envs * sizes.steps)


def gpu_ppo_fused(device: str) -> None:
    """The same with `nn/fused_dense.py` in the place of plain layers; a checkout without it runs as it is."""
    from gaitway.core import execution

    execution.FUSES_PRODUCTS = True
    gpu_ppo(device, 0, *FASTEST[device])


def gpu_sac(device: str) -> None:
    import torch
    from _sac_contestants import Ours, Workload
    from ppo_end_to_end import serve

    entrant = Ours(Workload(updates=32, capacity=100_000), device, "auto", "auto")
    for _ in range(6):
        entrant()

    def work() -> None:
        for _ in range(50):
            entrant.update()
        if device == "cuda":
            torch.cuda.synchronize()

    serve(work, 50 * 32)


def sac_preset(device: str, *changes: str) -> None:
    """`sac_halfcheetah` as it comes, but that learning begins early: environment steps, each with its update."""
    from ppo_end_to_end import serve

    from gaitway import RunnerConfig
    from gaitway.cli.build import build_algorithm, build_env
    from gaitway.cli.compose_run import compose_run
    from gaitway.runners.off_policy import OffPolicyRunner

    begin, steps = 1000, 4000 if device == "cuda" else 1000
    settings = [f"device={device}", f"algorithm.learning_starts={begin}", *changes]
    config, _ = compose_run(["experiment=sac_halfcheetah", *settings])
    env = build_env(config)
    runner = OffPolicyRunner(env, build_algorithm(config, env), RunnerConfig(total_steps=10**9))
    runner.learn(begin + steps)

    def work() -> None:
        updates = runner.updates
        runner.learn(steps)
        if runner.updates - updates != steps:
            raise RuntimeError(f"{runner.updates - updates} updates were made instead of {steps}")

    serve(work, steps)


def term(further: bool, device: str) -> None:
    """Updates of PPO on one rollout, 16 environments x 128 steps in minibatches of 512, with and without a term."""
    import torch
    from ppo_end_to_end import serve

    from gaitway import PPO, ActorCritic, ActorCriticConfig, OnPolicyRunner, PPOConfig, RunnerConfig, make_env
    from gaitway.algorithms.algorithm import Now

    class Effort:
        name, coef, reads = "effort", 0.01, ()

        def __call__(self, batch, now):  # type: ignore[no-untyped-def]
            return batch["new/mean"].square().sum(-1).mean(), {}

    torch.set_num_threads(1)
    env = make_env("HalfCheetah-v5", num_envs=16, seed=0)
    config = PPOConfig(rollout_steps=128, epochs=5, minibatches=4, schedule="constant")
    policy = ActorCritic(env.spec, ActorCriticConfig(normalise_observations=False))
    algorithm = PPO(policy, config, num_envs=16, terms=[Effort()] if further else ())
    runner = OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=10**9))
    runner.learn(2048)
    serve(lambda: [algorithm.update(runner.rollout, Now()) for _ in range(10)], 10 * 2048)


WORK = {
    "ppo": ppo,
    "sac": sac,
    "blackboard_cartpole": lambda device: blackboard("CartPole", device),
    "blackboard_pendulum": lambda device: blackboard("Pendulum", device),
    "gpu_ppo": gpu_ppo,
    "gpu_recurrent_ppo": lambda device: gpu_ppo(device, memory=256),
    "gpu_sac": gpu_sac,
    "gpu_ppo_compiled": lambda device: gpu_ppo(device, 0, *FASTEST[device]),
    "gpu_ppo_fused": gpu_ppo_fused,
    "sac_preset": sac_preset,
    "sac_preset_in_turns": lambda device: sac_preset(device, "algorithm.overlap=false"),
    "term": lambda device: term(True, device),
    "no_term": lambda device: term(False, device),
}
ON = {
    "cpu": ("ppo", "sac", "blackboard_cartpole", "blackboard_pendulum"),
    "cuda": ("gpu_ppo", "gpu_recurrent_ppo", "gpu_sac"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", default=None, help="folder of the other checkout")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument(
        "--work", nargs="*", choices=list(WORK), default=None, help="nothing: the price of a term alone"
    )
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--out", default=None)
    parser.add_argument("--commit", default=None, help="the commit of this checkout, where there is no git to ask")
    parser.add_argument("--other-commit", default=None, help="the commit of the other one, to be written down")
    parser.add_argument("--worker", default=None, help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, default=HERE, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        sys.path.pop(0)  # this folder; PYTHONPATH names that of the checkout to be run
        check_library(options.root)
        WORK[options.worker](options.device)
        return
    sides = {"this": HERE, "this again": HERE}
    if options.other is not None:
        sides["other"] = Path(options.other).resolve()
        if not (sides["other"] / PACKAGE).is_file():
            parser.error(f"{sides['other']} holds no {PACKAGE}; --other is the folder of a whole checkout")
    measure(options, sides)


def check_library(root: Path) -> None:
    """Refuse to time a library that is not the one of `root`: it would be compared with itself."""
    import gaitway

    if Path(gaitway.__file__).resolve() != (root / PACKAGE).resolve():
        raise SystemExit(f"gaitway comes from {gaitway.__file__} instead of {root / PACKAGE}; nothing is timed")


def measure(options: argparse.Namespace, sides: dict[str, Path]) -> None:
    from _rounds import Case, Contestant, compete, keep, kept, machine, revision, show

    def enter(label: str, root: Path, work: str) -> Contestant:
        before = os.environ.get("PYTHONPATH")
        paths = [str(root / "benchmarks"), str(root / "src"), *([before] if before else [])]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # the worker's, in front of an installed package
        try:
            command = [sys.executable, __file__, "--worker", work, "--device", options.device, "--root", str(root)]
            return Contestant(label, command, threads=1)
        finally:
            os.environ["PYTHONPATH"] = before or ""

    rounds = options.rounds or ROUNDS[options.device]
    about = {"commit": options.commit or revision(), "device": options.device}
    about |= {"other": options.other, "other_commit": options.other_commit}
    known = kept(options.out, about).get("cases", {})
    asked: dict[str, tuple[dict[str, tuple[Path, str]], list[tuple[str, str]]]] = {}
    for work in ON[options.device] if options.work is None else options.work:
        pairs = [("this", other) for other in sides if other != "this"]
        asked[work] = {label: (root, work) for label, root in sides.items()}, pairs
    if not options.work and options.device == "cpu":
        entrants = {name: (HERE, name) for name in ("term", "no_term")}
        asked["an update of PPO with a further term"] = entrants, [("term", "no_term")]
    cases: list[Case] = []
    for name, (entrants, pairs) in asked.items():
        raw = known.get(name, {}).get("raw", {})
        if set(raw) != set(entrants):
            raw = {label: [] for label in entrants}
        case = Case(name, "steps/s", raw, pairs)

        def note(found: dict[str, dict[str, float]], case: Case = case) -> None:
            for label, row in found.items():
                case.raw[label].append(row["steps_per_second"])  # type: ignore[attr-defined]
            known[case.name] = case.result()
            if options.out:
                keep(options.out, {"benchmark": "against", "machine": machine(), **about, "cases": known})

        left = rounds - min(map(len, raw.values()))
        if left > 0:
            compete([enter(label, root, work) for label, (root, work) in entrants.items()], left, note=note)
        cases.append(case)
    show(cases)


if __name__ == "__main__":
    main()
