"""What the benchmarks of MuJoCo Warp share: presets as runners, the deterministic policy judged on the grid, files."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch
from _rounds import keep, kept, machine, revision, versions

from gaitway.cli.build import build_algorithm, build_env
from gaitway.cli.compose_run import compose_run
from gaitway.cli.train_config import TrainConfig
from gaitway.core.seeding import stream
from gaitway.core.signals import EXIT_CODES
from gaitway.envs.vec_env import Actor, VecEnv
from gaitway.runners.evaluate import run_episodes
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.runner_config import RunnerConfig

PACKAGES = ("mujoco", "mujoco-warp", "warp-lang", "torch")


def options(doc: str, **defaults: Any) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None, help="JSON file, written after every part and gone on with")
    parser.add_argument("--device", default="cuda", help="cpu: Warp's own CPU device, to see that the script works")
    parser.add_argument("--commit", default=None, help="what the file names as the commit, where there is no git")
    parser.set_defaults(**defaults)
    return parser


def config_of(preset: str, device: str, *changes: str) -> TrainConfig:
    config, _ = compose_run([f"experiment={preset}", f"device={device}", *changes])
    return config


def runner_of(config: TrainConfig, env: VecEnv | None = None) -> OnPolicyRunner:
    """A runner without a folder and without evaluations, which are ours to make."""
    env = env or build_env(config)
    settings = RunnerConfig(**{each.name: getattr(config, each.name) for each in fields(RunnerConfig)})
    return OnPolicyRunner(env, build_algorithm(config, env), settings)


def learn(runner: OnPolicyRunner, steps: int) -> None:
    """So many steps; a signal that stops a runner ends the benchmark."""
    runner.learn(steps)
    if runner.stopped_by is not None:
        raise SystemExit(EXIT_CODES[runner.stopped_by])


def judged(runner: Any, env: VecEnv, episodes: int, seed: int) -> dict[str, float]:
    """What the deterministic policy achieves."""
    cast = runner.upkeep.judge.cast
    act = cast.inference(False, stream(seed, "evaluation", env.device))
    with cast.resting():
        return played(act, env, episodes)


def played(act: Actor, env: VecEnv, episodes: int) -> dict[str, float]:
    """Figures of all episodes together."""
    table = run_episodes(env, act, episodes)
    found = {name: figure(table) for name, figure in env.spec.pooled.items()}
    found |= {name: float(table[name].mean()) for name in ("return", "length", "physics_error")}
    return found | {name: float(table[name].mean()) for name in ("fell",) if name in table}


def evaluation_env(config: TrainConfig, episodes: int) -> VecEnv:
    return build_env(config, "evaluation", episodes)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Clock:
    """Seconds of work on a device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        wait(device)
        self.began = time.perf_counter()

    def seconds(self) -> float:
        wait(self.device)
        return time.perf_counter() - self.began


class Results:
    """A file that is written again whenever something was measured.

    What it holds is gone on with if it was made with the same commit, versions, device and options. `parts` names the
    options that only say which parts are measured; they may be others.
    """

    def __init__(self, name: str, given: argparse.Namespace, parts: Sequence[str] = ()) -> None:
        self._out = given.out
        asked = {key: value for key, value in vars(given).items() if key not in ("out", "commit")}
        about = {
            "benchmark": name,
            "device": torch.cuda.get_device_name() if given.device == "cuda" else "Warp's CPU device",
            "commit": given.commit or revision(),
            "versions": versions(*PACKAGES),
            "options": {key: value for key, value in asked.items() if key not in parts},
        }
        self.found: dict[str, Any] = kept(given.out, about) | about | {"machine": machine()}
        self.found["parts"] = {key: asked[key] for key in parts}

    def held(self, name: str) -> dict[str, Any]:
        """What an earlier call has noted under `name`."""
        return self.found.get(name, {})

    def note(self, **values: Any) -> None:
        self.found |= values
        print(json.dumps(values), flush=True)
        if self._out:
            keep(self._out, self.found)
