"""The blackboard beside bbrl: collecting steps, extracting transitions, drawing from a replay, in one run.

    gaitway bench blackboard --out benchmarks/results/blackboard.json

CartPole-v1 and Pendulum-v1 with the same policy (64-64 tanh, one sample a step, the same weights), 500 rows of 16 and
of 128 environments, gradients off. bbrl steps gymnasium's environments one by one; ours are the same environments
through the adapter, and the library's own batched ones. Everybody is entered with one and with two torch threads; the
better median of each side counts. Beside them two loops that leave out what they can: gymnasium's SyncVectorEnv without
a policy, and the policy with the bare equations of the toys. Gates: a rule in place of the policy gives both sides the
same transitions from the same seeds; both policies are the same function; the toys move as gymnasium's environments do;
whatever a replay returns was put in.

The peer runs in its own virtual environment (benchmarks/peers.txt). This file is not called bbrl.py, because Python
would then take it for the library of that name.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import gymnasium
import numpy as np
import torch
from _rounds import Case, calls_for, enter_peers, gate, race, report, timed, versions
from torch import Tensor

if TYPE_CHECKING:  # what is imported from here must wait for the peers' environment
    import _bbrl_side as bbrl_side
    from _blackboard_side import Task

    from gaitway import ActorCritic

ROWS, DRAWN, STORED = 500, 256, 100_000
REPLAY_SIZES = (4, 1)
ASKED = {"gymnasium": 3.5, "toy, 16": 12.0, "toy, 128": 30.0, "transitions": 3.0, "replay": 3.0}
"""How many times faster than bbrl, at least."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=0.2, help="length of one turn with transitions or a replay")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="torch threads to try")
    parser.add_argument("--envs", type=int, nargs="+", default=[16, 128])
    parser.add_argument("--tasks", nargs="+", choices=["CartPole", "Pendulum"], default=["CartPole", "Pendulum"])
    options = parser.parse_args()
    enter_peers("bbrl")
    from _blackboard_side import TASKS

    cases, verdicts = [], {}
    for name in options.tasks:
        check_collection(TASKS[name])
        check_toy(TASKS[name])
        for envs in options.envs:
            cases.append(case := measure_collection(name, envs, options.rounds, options.threads))
            if envs == 16:
                verdicts[f"{name}, gymnasium"] = verdict(case, "gaitway, gymnasium", ASKED["gymnasium"])
            verdicts[f"{name}, toy, {envs}"] = verdict(case, "gaitway, toy", ASKED.get(f"toy, {envs}", 0.0))
        cases.append(case := measure_transitions(name, options.rounds, options.seconds, options.threads))
        verdicts[f"{name}, transitions"] = verdict(case, "gaitway", ASKED["transitions"])
    cases.append(case := measure_replay(options.rounds, options.seconds, options.threads))
    verdicts["replay"] = verdict(case, "gaitway", ASKED["replay"])
    report(
        options.out, "blackboard", cases, verdicts=verdicts, versions=versions("bbrl", "gymnasium", "torch", "numpy")
    )
    for what, found in verdicts.items():
        interval = f"{found['low']:.1f} .. {found['high']:.1f}"
        print(f"{what}: {found['median']:.1f} times faster ({interval}), asked for {found['asked']:g}; ", end="")
        print(f"{found['ours']} against {found['peer']}")


def verdict(case: Case, ours: str, asked: float) -> dict[str, object]:
    """The best of the names that begin with `ours` against the best of bbrl's."""
    sides = [[name for name in case.raw if name.startswith(side)] for side in (ours, "bbrl")]
    best, peer = (case.best(names) for names in sides)
    return {**case.faster(best, peer), "asked": asked, "ours": best, "peer": peer}


def measure_collection(name: str, envs: int, rounds: int, threads: Sequence[int]) -> Case:
    import _bbrl_side as bbrl
    import _blackboard_side as ours
    from bbrl.agents.gymnasium import make_env as bbrl_env

    from gaitway import make_env

    task = ours.TASKS[name]
    adapter, toy = make_env(f"gymnasium:{task.id}", num_envs=envs, seed=0), make_env(task.toy, num_envs=envs, seed=0)
    policy, peer = ours.make_policy(adapter.spec), bbrl.Policy(task)
    peer.copy_from(ours.linear_layers(policy.actor))
    check_policies(name, policy, peer)
    entrants = {
        "bbrl": bbrl.Collector(partial(bbrl_env, task.id, autoreset=True), envs, peer, ROWS),
        "gaitway, gymnasium": ours.Collector(adapter, policy, ROWS),
        "gaitway, toy": ours.Collector(toy, ours.make_policy(toy.spec), ROWS),
    }
    floors = {"bare Sync loop": ours.sync_loop, "bare batched loop": ours.batched_loop}
    contestants = {}
    for who, work in entrants.items():
        for count in threads:
            contestants[f"{who}, {count} torch threads"] = steps_per_second(work, envs * ROWS, count)
    for who, make in floors.items():
        contestants[who] = steps_per_second(make(task, envs, ROWS), envs * ROWS, 1)
    raw = race(contestants, rounds)
    bounds = {who: f"bare {'batched' if 'toy' in who else 'Sync'} loop" for who in raw if who not in floors}
    return Case(f"{name}: collect {envs} x {ROWS} steps", "steps/s", raw, against_bbrl(raw), bounds)


def measure_transitions(name: str, rounds: int, seconds: float, threads: Sequence[int]) -> Case:
    """From the rows that a policy has collected to transitions."""
    import _bbrl_side as bbrl
    import _blackboard_side as ours
    from bbrl.agents.gymnasium import make_env as bbrl_env

    from gaitway import make_env

    task = ours.TASKS[name]
    env = make_env(f"gymnasium:{task.id}", num_envs=16, seed=0)
    mine = ours.Collector(env, ours.make_policy(env.spec), ROWS)()
    theirs = bbrl.Collector(partial(bbrl_env, task.id, autoreset=True), 16, bbrl.Policy(task), ROWS)()
    works: dict[str, Callable[[], object]] = {
        "bbrl": theirs.get_transitions,
        "bbrl, only what is needed, as whole tensors": bbrl.needed(theirs).get_transitions,
        "gaitway": mine.transitions,
    }
    raw = race(microseconds(works, seconds, threads), rounds)
    return Case(f"{name}: transitions of 16 x {ROWS} steps", "us", raw, against_bbrl(raw))


def measure_replay(rounds: int, seconds: float, threads: Sequence[int]) -> Case:
    """A minibatch from a full buffer of transitions."""
    from _bbrl_side import MORE, Bbrl
    from _blackboard_side import Ring
    from _replay_contestants import CHUNK, BareGather, Contestant, Gaitway, stream
    from replay import check

    truth, steps = BareGather(STORED, 1, REPLAY_SIZES), Gaitway(STORED, 1, REPLAY_SIZES)
    entrants: dict[str, Contestant] = {
        "bbrl": Bbrl(STORED, MORE),
        "bbrl, only what is needed": Bbrl(STORED),
        "gaitway, Replay": Ring(STORED),
        "gaitway, StepReplay": steps,
        "bare gather": truth,
    }
    for start, chunk in zip(itertools.count(0, CHUNK), stream(STORED, 1, REPLAY_SIZES), strict=False):
        for contestant in entrants.values():
            contestant.fill(start, chunk)
    for who, contestant in entrants.items():
        check(who, contestant, contestant.sample(4096), truth)
    check("gaitway, StepReplay, same memory", steps, steps.sample_again(4096), truth)
    works = {who: partial(contestant.sample, DRAWN) for who, contestant in entrants.items()}
    works["gaitway, StepReplay, same memory"] = partial(steps.sample_again, DRAWN)
    raw = race(microseconds(works, seconds, threads), rounds)
    bound = f"bare gather, {threads[0]} torch threads"
    return Case(f"draw {DRAWN} of {STORED:,} transitions", "us", raw, against_bbrl(raw), bound)


def microseconds(
    works: Mapping[str, Callable[[], object]], seconds: float, threads: Sequence[int]
) -> dict[str, Callable[[], float]]:
    """Contestants for `race`: each of them once for every number of threads."""
    named = itertools.product(works.items(), threads)
    return {
        f"{who}, {count} torch threads": timed(work, calls_for(work, seconds), 1e-6, count)
        for (who, work), count in named
    }


def against_bbrl(names: Iterable[str]) -> list[tuple[str, str]]:
    """Each of ours with each of bbrl's."""
    return [(one, other) for one in names for other in names if one.startswith("gaitway") and other.startswith("bbrl")]


def check_collection(task: Task) -> None:
    """Both sides from the same seeds, with a rule for a policy: the same transitions, in the same order."""
    import _bbrl_side as bbrl
    import _blackboard_side as ours

    from gaitway.envs.gym.env import GymnasiumEnv

    numbers = itertools.count()
    theirs = bbrl.by_instance(
        bbrl.Collector(
            lambda: gymnasium.wrappers.Autoreset(Seeded(task.id, next(numbers))), 16, bbrl.Ruled(task.rule), ROWS
        )()
    )
    env = GymnasiumEnv([partial(Seeded, task.id, index) for index in range(16)])
    mine = ours.by_instance(ours.Collector(env, ours.Ruled(task.rule), ROWS)())
    ends = 0
    for index, (found, expected) in enumerate(zip(mine, theirs, strict=True)):
        count = len(expected["reward"])  # bbrl spends a row on every reset
        for field, value in expected.items():
            # bbrl hands over torques as float64 and ours come as float32, so that the last digit may differ
            gate(f"{task.id}, {field} of environment {index}", found[field][:count], value, 1e-5 if task.std else 0.0)
        ends += int((expected["terminated"] | expected["truncated"]).sum())
    if ends < 16:
        raise RuntimeError(f"{task.id}: only {ends} episodes ended while both sides were compared; nothing is timed")


class Seeded(gymnasium.Wrapper):
    """An environment with a seed of its own, whatever the library says: resets go on from it after the first step."""

    def __init__(self, id: str, seed: int) -> None:
        super().__init__(gymnasium.make(id))
        self.first_seed: int | None = seed

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        return self.env.reset(seed=self.first_seed, options=options)

    def step(self, action: object) -> tuple:
        self.first_seed = None
        return self.env.step(action)


def check_policies(name: str, policy: ActorCritic, peer: bbrl_side.Policy) -> None:
    """Both distributions in states drawn at random."""
    inputs = torch.randn(256, peer.network[0].in_features, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        mine, theirs = policy.head(policy.actor.network(inputs)), peer.distribution(inputs)
    if peer.std:
        gate(f"{name}, mean of the policy", mine[:, :1], theirs.loc, 1e-5)
        gate(f"{name}, standard deviation of the policy", mine[:, 1:], theirs.scale.expand(256, 1), 1e-6)
    else:
        gate(f"{name}, log-probabilities of the policy", mine, theirs.logits, 1e-5)


def check_toy(task: Task) -> None:
    """A toy and gymnasium's environments from the same states, until the first of them falls."""
    from _blackboard_side import like_gymnasium

    from gaitway import make_env

    env = make_env(task.toy, num_envs=16, seed=0)
    seen = like_gymnasium(task, env.reset(0))
    twins = [gymnasium.make(task.id).unwrapped for _ in range(16)]
    for twin, state in zip(twins, env.scenario()["state"], strict=True):
        twin.reset(seed=0)
        twin.state = state[:4].numpy().copy()
    for row in range(100):
        action = task.rule(seen)
        step = env.step(action)
        results = [twin.step(each) for twin, each in zip(twins, action.numpy(), strict=True)]
        expected: Mapping[str, Tensor | np.ndarray] = {
            "observation": np.stack([result[0] for result in results]),
            "reward": np.array([result[1] for result in results]),
            "terminated": np.array([result[2] for result in results]),
        }
        found = {"observation": like_gymnasium(task, step.final_obs), "reward": step.reward}
        found["terminated"] = step.terminated
        for field, value in expected.items():
            gate(f"{task.toy}, {field} of step {row}", found[field], value, 1e-4)
        if bool((step.terminated | step.truncated).any()):
            break
        seen = like_gymnasium(task, step.obs)


def steps_per_second(work: Callable[[], object], steps: int, threads: int) -> Callable[[], float]:
    """A contestant for `race`: one round is one call."""
    once = timed(work, 1, threads=threads)
    return lambda: steps / once()


if __name__ == "__main__":
    main()
