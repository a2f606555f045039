"""Our runner beside rsl_rl's on the same robots of MuJoCo Warp: steps a second, and seconds until they walk as told.

    gaitway bench warp_beside --preset ppo_go1_velocity_gpu --out benchmarks/results/warp_beside_go1.json

rsl_rl's `OnPolicyRunner` (pip install rsl-rl-lib==5.5.1 tensordict) gets the environment of the preset through
`as_rsl_rl_env`, with the networks, passes, minibatches, rates and weights of the preset, and products in TF32 on a GPU
as ours. Each side has an environment of its own. `speed`: whole iterations in interleaved rounds, medians and the ratio
within a round, asked 1.8. `walking`: seconds of training until the deterministic policy has a velocity RMSD of at most
so much on the grid and falls in at most 2 % of the episodes, as `warp_walks` counts them. Rounds and seeds that `--out`
holds are not run again.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import importlib.util
import io
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from _gpu import precision
from _rounds import ratio, versions
from _warp import Clock, Results, config_of, evaluation_env, judged, learn, options, played, runner_of
from foreign_simulators import Theirs
from warp_walks import ASKED, climbed, median_of

from gaitway.cli.build import build_env
from gaitway.cli.train_config import TrainConfig
from gaitway.envs.foreign.rsl_rl_env import RslRlEnv, as_rsl_rl_env
from gaitway.envs.vec_env import VecEnv

SIDES = ("gaitway", "rsl_rl")
WANTED = 1.8


class Ours:
    """A run of ours: an iteration, and what its policy achieves."""

    def __init__(self, config: TrainConfig, env: VecEnv, warm_up: int) -> None:
        self.config, self.rows = config, config.env.num_envs * config.algorithm.rollout_steps
        env.reset(config.seed)
        self.runner = runner_of(config, env)
        self.iterate()
        state = copy.deepcopy(self.runner.state_dict())
        self.iterate(warm_up)  # compiles and records; then training goes on from where it was
        self.runner.load_state_dict(state)

    def iterate(self, count: int = 1) -> None:
        learn(self.runner, count * self.rows)

    def judged(self, judge: VecEnv, episodes: int) -> dict[str, float]:
        return judged(self.runner, judge, episodes, self.config.seed)


class Peer:
    """The same by rsl_rl."""

    def __init__(self, config: TrainConfig, env: VecEnv, warm_up: int) -> None:
        from rsl_rl.runners import OnPolicyRunner

        torch.manual_seed(config.seed)
        env.reset(config.seed)
        self.kind = "tf32" if env.device.type == "cuda" else "fp32"
        door = as_rsl_rl_env(env)
        with contextlib.redirect_stdout(io.StringIO()):
            self.runner = OnPolicyRunner(door, settings(config, door), None, str(env.device))
        self.is_new = True
        self.iterate()

    def iterate(self, count: int = 1) -> None:
        with precision(self.kind), contextlib.redirect_stdout(io.StringIO()):
            self.runner.learn(count, init_at_random_ep_len=self.is_new)
        self.is_new = False

    def judged(self, judge: VecEnv, episodes: int) -> dict[str, float]:
        with precision(self.kind):
            found = played(Theirs(self.runner.get_inference_policy()), judge, episodes)
        self.runner.alg.train_mode()
        return found


def settings(config: TrainConfig, env: RslRlEnv) -> dict[str, Any]:
    """The preset in rsl_rl's words."""
    mine, networks = config.algorithm, config.agent
    low, high = (torch.tensor(limit) for limit in (env.env.spec.action.low, env.env.spec.action.high))
    std = networks.distribution.init_std * float((high - low).mean() / 2)  # ours is in units of half the range
    network = {"class_name": "MLPModel", "activation": networks.activation, "obs_normalization": False}
    distribution = {"class_name": "GaussianDistribution", "init_std": std, "std_type": "log"}
    critic = "critic" if "critic" in env.env.spec.group_names else "policy"
    return {
        "algorithm": {
            **{"class_name": "PPO", "num_learning_epochs": mine.epochs, "num_mini_batches": mine.minibatches},
            **{"learning_rate": mine.learning_rate, "schedule": mine.schedule, "desired_kl": mine.desired_kl},
            **{"gamma": mine.gamma, "lam": mine.lam, "clip_param": mine.clip, "entropy_coef": mine.entropy_coef},
            **{"value_loss_coef": mine.value_coef, "use_clipped_value_loss": mine.value_clip is not None},
            **{"max_grad_norm": mine.max_grad_norm},
        },
        "actor": network | {"hidden_dims": list(networks.actor_hidden), "distribution_cfg": distribution},
        "critic": network | {"hidden_dims": list(networks.critic_hidden)},
        "obs_groups": {"actor": ["policy"], "critic": [critic]},
        "num_steps_per_env": mine.rollout_steps,
        "save_interval": 10**9,
    }


RUNS: dict[str, Callable[[TrainConfig, VecEnv, int], Ours | Peer]] = {"gaitway": Ours, "rsl_rl": Peer}


def raced(
    configs: dict[str, TrainConfig], envs: dict[str, VecEnv], given: Any, known: dict[str, Any], note: Any
) -> None:
    """Rounds of `given.iterations` iterations that are not `known` yet."""
    raw: dict[str, list[float]] = known.get("raw") or {side: [] for side in SIDES}
    if len(raw["rsl_rl"]) >= given.rounds:
        return
    runs = {side: RUNS[side](configs[side], envs[side], given.warm_up) for side in SIDES}
    steps = given.iterations * configs["gaitway"].env.num_envs * configs["gaitway"].algorithm.rollout_steps
    for side in SIDES:
        runs[side].iterate()
    while len(raw["rsl_rl"]) < given.rounds:
        found = {}
        for side in SIDES if len(raw["rsl_rl"]) % 2 == 0 else reversed(SIDES):
            clock = Clock(envs[side].device)
            runs[side].iterate(given.iterations)
            found[side] = steps / clock.seconds()
        raw = {side: [*raw[side], round(found[side], 1)] for side in SIDES}
        medians = {f"{side} steps/s": round(statistics.median(raw[side]), 1) for side in SIDES}
        note({**medians, "times faster": ratio(raw["gaitway"], raw["rsl_rl"]), "raw": raw})


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--preset", default="ppo_go1_velocity_gpu")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--iterations", type=int, default=5, help="of a round")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2], help="of walking; none: speed alone")
    parser.add_argument("--seconds", type=float, default=120.0, help="of training, at most")
    parser.add_argument("--piece", type=float, default=3.0)
    parser.add_argument("--episodes", type=int, default=480)
    parser.add_argument("--warm-up", type=int, default=3, help="iterations of ours that compile and record")
    parser.add_argument("--mode", default="captured", help="execution.mode of our updates")
    parser.add_argument("--changes", nargs="*", default=[], help="key=value")
    given = parser.parse_args()
    given.whole = False
    for name in ("rsl_rl", "tensordict"):
        if importlib.util.find_spec(name) is None:
            parser.error(f"{name} is not installed; pip install rsl-rl-lib==5.5.1 tensordict")
    results = Results("warp_beside", given, ("seeds", "rounds"))
    results.note(peer=versions("rsl-rl-lib", "tensordict"))
    changes = (f"execution.mode={given.mode}", "evaluation.interval=0", *given.changes)

    def configured(seed: int) -> TrainConfig:
        return config_of(given.preset, given.device, f"seed={seed}", *changes)

    config = configured(0)
    envs = {side: build_env(config) for side in SIDES}
    configs = dict.fromkeys(SIDES, config)
    raced(configs, envs, given, results.held("speed"), lambda found: results.note(speed=found))
    gc.collect()
    judge = None
    for seed in given.seeds:
        for side in SIDES:
            if "wall s" in results.held(side).get(str(seed), {}):
                continue
            judge = judge or evaluation_env(config, given.episodes)
            began = time.monotonic()
            run = RUNS[side](configured(seed), envs[side], given.warm_up)
            run.judged(judge, given.episodes)
            preparing = time.monotonic() - began

            def note(row: dict[str, Any], side: str = side, seed: int = seed) -> None:
                results.note(**{side: results.held(side) | {str(seed): copy.deepcopy(row)}})

            def tried(run: Ours | Peer = run, judge: VecEnv = judge) -> dict[str, float]:
                return run.judged(judge, given.episodes)

            rows = config.env.num_envs * config.algorithm.rollout_steps
            found = climbed(run.iterate, tried, rows, judge.device, given, note)
            note(found | {"preparing s": round(preparing, 1), "wall s": round(time.monotonic() - began, 1)})
            del run, tried
            gc.collect()
    medians = {
        side: {
            limit: median_of({str(seed): results.held(side)[str(seed)] for seed in given.seeds}, limit)
            for limit in ASKED
        }
        for side in SIDES
        if given.seeds
    }
    results.note(medians=medians)
    return 0 if given.device == "cpu" or results.held("speed")["times faster"]["median"] >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
