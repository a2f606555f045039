"""Advantages and returns of a rollout (GAE) against stable-baselines3, rsl_rl, torchrl, tianshou and skrl.

    gaitway bench gae --out benchmarks/results/gae.json

Every contestant runs its own library's code on the same rollout (5 % of steps end an episode, half of them by the time
limit) and must agree with a float64 recomputation before anything is timed. Peers that fold the bootstrap of a time
limit into the reward get it folded in beforehand. rsl_rl is timed with and skrl is always with the standardisation of
advantages, so ours is entered with it too. The floor is the larger of one pass over the memory (17 bytes an element,
as a copy measured in the same rounds) and the chain of dependent multiply-adds (T x 8 cycles).
"""

from __future__ import annotations

import argparse
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
from _rounds import Case, calls_for, enter_peers, gate, race, report, timed, versions

GAMMA, LAMBDA = 0.99, 0.95
SHAPES = ((2048, 1), (128, 64), (24, 4096))
PEERS = ("stable-baselines3", "rsl-rl-lib", "torchrl", "tianshou", "skrl")
Contestant = Callable[[], object]
Arrays = dict[str, np.ndarray]


def rollout(steps: int, envs: int) -> Arrays:
    """A rollout [T, B]; `next_value` is the value of the state really reached, `folded` the reward with gamma times
    that value added where the time limit struck."""
    random = np.random.default_rng(0)
    value = random.normal(size=(steps + 1, envs)).astype(np.float32)
    reward = random.normal(size=(steps, envs)).astype(np.float32)
    ends = random.random((steps, envs)) < 0.05
    truncated = ends & (random.random((steps, envs)) < 0.5)
    final = random.normal(size=(steps, envs)).astype(np.float32)
    next_value = np.where(ends, final, value[1:])
    folded = (reward + GAMMA * next_value * truncated).astype(np.float32)
    return {
        "reward": reward,
        "folded": folded,
        "value": value[:-1].copy(),
        "next_value": next_value,
        "last_value": value[-1].copy(),
        "terminated": ends & ~truncated,
        "truncated": truncated,
        "done": ends,
    }


def expected(data: Arrays) -> np.ndarray:
    """The advantages in float64, written from the definition."""
    advantage, carry = np.zeros(data["reward"].shape), np.zeros(data["reward"].shape[1])
    for t in reversed(range(len(advantage))):
        reached = np.where(data["terminated"][t], 0.0, data["next_value"][t].astype(np.float64))
        delta = data["reward"][t] + GAMMA * reached - data["value"][t]
        carry = delta + GAMMA * LAMBDA * np.where(data["done"][t], 0.0, carry)
        advantage[t] = carry
    return advantage


class Entries:
    """Each method returns what one call does and a function that reads the advantages [T, B] it left behind."""

    def __init__(self, data: Arrays) -> None:
        import torch

        self.data = data
        self.tensors = {name: torch.from_numpy(array) for name, array in data.items()}
        self.steps, self.envs = data["reward"].shape

    def gaitway(self, standardised: bool = False) -> tuple[Contestant, Callable[[], np.ndarray]]:
        from gaitway.functional.policy_losses import standardise
        from gaitway.functional.returns import gae

        t, out = self.tensors, {}

        def run() -> None:
            advantage = gae(t["reward"], t["value"], t["next_value"], t["terminated"], t["done"], GAMMA, LAMBDA)
            out["returns"] = advantage + t["value"]
            out["advantage"] = standardise(advantage) if standardised else advantage

        return run, lambda: out["advantage"].numpy()

    def stable_baselines3(self) -> tuple[Contestant, Callable[[], np.ndarray]]:
        from gymnasium.spaces import Box
        from stable_baselines3.common.buffers import RolloutBuffer

        space = Box(-1.0, 1.0, (1,), np.float32)
        buffer = RolloutBuffer(self.steps, space, space, "cpu", LAMBDA, GAMMA, self.envs)
        buffer.rewards[:], buffer.values[:] = self.data["folded"], self.data["value"]
        buffer.episode_starts[1:] = self.data["done"][:-1]
        buffer.advantages.fill(np.nan)
        last = self.tensors["last_value"]
        return lambda: buffer.compute_returns_and_advantage(last, self.data["done"][-1]), lambda: buffer.advantages

    def rsl_rl(self, standardised: bool = False) -> tuple[Contestant, Callable[[], np.ndarray]]:
        import torch
        from rsl_rl.algorithms import PPO
        from rsl_rl.storage import RolloutStorage
        from tensordict import TensorDict

        obs = TensorDict({"policy": torch.zeros(self.envs, 1)}, batch_size=[self.envs])
        storage = RolloutStorage("rl", self.envs, self.steps, obs, [1], "cpu")
        storage.rewards.copy_(self.tensors["folded"].unsqueeze(-1))
        storage.values.copy_(self.tensors["value"].unsqueeze(-1))
        storage.dones.copy_(self.tensors["done"].unsqueeze(-1))
        storage.returns.fill_(float("nan"))
        last = self.tensors["last_value"].unsqueeze(-1)
        algorithm = PPO.__new__(PPO)  # compute_returns alone: no networks, the last value is given
        algorithm.storage, algorithm.gamma, algorithm.lam = storage, GAMMA, LAMBDA
        algorithm.normalize_advantage_per_mini_batch = not standardised
        algorithm.critic = _LastValue(last)

        def run() -> None:
            with torch.inference_mode():
                algorithm.compute_returns(obs)

        return run, lambda: storage.advantages.squeeze(-1).numpy()

    def torchrl(self, layout: str) -> tuple[Contestant, Callable[[], np.ndarray]]:
        from torchrl.objectives.value.functional import (
            generalized_advantage_estimate,
            vec_generalized_advantage_estimate,
        )

        names = ("value", "next_value", "reward", "done", "terminated")
        rows = [self.tensors[name].unsqueeze(-1) for name in names]
        if layout != "loop":
            rows = [row.transpose(0, 1).contiguous() for row in rows]  # [B, T, 1]
        function = generalized_advantage_estimate if layout == "loop" else vec_generalized_advantage_estimate
        time_dim, out = (0 if layout == "loop" else 1), {}

        def run() -> None:
            out["advantage"], out["returns"] = function(GAMMA, LAMBDA, *rows, time_dim=time_dim)

        def read() -> np.ndarray:
            found = out["advantage"].squeeze(-1)
            return (found if layout == "loop" else found.T).numpy()

        return run, read

    def tianshou(self) -> tuple[Contestant, Callable[[], np.ndarray]]:
        from tianshou.algorithm import algorithm_base

        def flat(array: np.ndarray) -> np.ndarray:
            return np.ascontiguousarray(array.T).reshape(-1)  # environment after environment, as its buffer has it

        data, ends = self.data, self.data["done"].copy()
        ends[-1] = True
        value, reward, flags = flat(data["value"]), flat(data["reward"]), flat(ends)
        reached, out = flat(data["next_value"] * ~data["terminated"]), {}

        def run() -> None:
            out["advantage"] = algorithm_base._gae(value, reached, reward, flags, GAMMA, LAMBDA)
            out["returns"] = out["advantage"] + value

        return run, lambda: out["advantage"].reshape(self.envs, self.steps).T

    def skrl(self) -> tuple[Contestant, Callable[[], np.ndarray]]:
        from skrl.agents.torch.ppo.ppo import compute_gae

        t, out = self.tensors, {}

        def run() -> None:
            out["returns"], out["advantage"] = compute_gae(
                rewards=t["folded"],
                terminated=t["terminated"],
                truncated=t["truncated"],
                values=t["value"],
                last_values=t["last_value"],
                discount_factor=GAMMA,
                lambda_coefficient=LAMBDA,
                time_limit_bootstrap=True,
            )

        return run, lambda: out["advantage"].numpy()


class _LastValue:
    """What compute_returns asks of a critic."""

    def __init__(self, value: object) -> None:
        self.value = types.SimpleNamespace(detach=lambda: value)

    def __call__(self, obs: object) -> object:
        return self.value

    def get_hidden_state(self) -> None:
        return None

    def reset(self, **_: object) -> None:
        return None


def floor(data: Arrays) -> Contestant:
    import torch

    source = torch.zeros(max(1, data["reward"].size * 17 // 2), dtype=torch.uint8)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def measure(steps: int, envs: int, rounds: int, seconds: float) -> Case:
    data = rollout(steps, envs)
    entries, exact = Entries(data), expected(data)
    plain = {
        "gaitway": entries.gaitway,
        "stable-baselines3 (NumPy loop)": entries.stable_baselines3,
        "rsl_rl": entries.rsl_rl,
        "torchrl vectorised": lambda: entries.torchrl("vectorised"),
        "torchrl loop": lambda: entries.torchrl("loop"),
        "tianshou (numba)": entries.tianshou,
    }
    standardised = {
        "gaitway, standardised": lambda: entries.gaitway(True),
        "rsl_rl, standardised": lambda: entries.rsl_rl(True),
        "skrl, standardised": entries.skrl,
    }
    contestants, errors, notes = {}, [], []
    for group, wanted in ((plain, exact), (standardised, (exact - exact.mean()) / exact.std(ddof=1))):
        for name, make in group.items():
            try:
                run, read = make()
                run()
            except Exception as error:
                notes.append(f"{name} did not run: {error}")
                continue
            errors.append(gate(name, read(), wanted, 1e-5))
            contestants[name] = timed(run, calls_for(run, seconds), 1e-6)
    notes.append(f"all agree with float64 to {max(errors):.1e}")
    copy = floor(data)
    copied, chain = timed(copy, calls_for(copy, seconds), 1e-6), steps * 8 / cycles_per_microsecond()
    raw = race(contestants | {"floor": lambda: max(copied(), chain)}, rounds)
    pairs = [("gaitway", name) for name in plain if name != "gaitway" and name in raw]
    pairs += [("gaitway, standardised", name) for name in list(standardised)[1:] if name in raw]
    return Case(f"GAE {steps} x {envs}", "us", raw, pairs, "floor", notes)


def cycles_per_microsecond() -> float:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return max([float(line.split(":")[1]) for line in lines if line.startswith("cpu MHz")], default=3000.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.2, help="length of one contestant's turn")
    options = parser.parse_args()
    enter_peers("stable_baselines3", "rsl_rl", "torchrl")
    cases = [measure(steps, envs, options.rounds, options.seconds) for steps, envs in SHAPES]
    report(options.out, "gae", cases, threads=1, versions=versions("torch", "numpy", *PEERS))


if __name__ == "__main__":
    main()
