"""The commands that make objects to look at them: `eval`, `check`, `bench`, `info --verify`. None changes a run."""

from __future__ import annotations

import argparse
import json
import logging
import runpy
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gaitway.agents.policy import CastPolicy, InferencePolicy, Policy, learnt_parameters
from gaitway.analysis.runs import is_run_folder
from gaitway.cli.arguments import device_alone, device_of, env_options
from gaitway.cli.build import LoadedPolicy, build_env, is_mutex_file, load_learnt, load_mutex, load_policy
from gaitway.cli.console import console
from gaitway.cli.open_run import in_environment, open_run
from gaitway.cli.train_config import RECIPES, TrainConfig
from gaitway.core.config import ConfigError
from gaitway.core.results import in_order
from gaitway.core.seeding import stream
from gaitway.envs.check import check_env
from gaitway.envs.observation_wrappers import HiddenObservation
from gaitway.envs.registry import list_envs, make_env
from gaitway.envs.robots.registry import LEGGED_ROBOTS, ROBOTS, get_legged_robot
from gaitway.envs.spec import EnvSpec
from gaitway.envs.trials import Trials
from gaitway.envs.vec_env import VecEnv
from gaitway.runners.checkpoint import Checkpoints, parameters_sha256
from gaitway.runners.evaluate import evaluate as evaluate_policy
from gaitway.runners.evaluate import evaluation_instances
from gaitway.runners.run_folder import RunFolder

log = logging.getLogger("gaitway")

WARM_UP_STEPS = 8
"""Enough to record both programs of a step."""
TRAINED = 4096
"""Instances of the presets for GPUs: what torch compiles is for one number of them."""


def evaluate(options: argparse.Namespace) -> int:
    if options.policy is not None:
        config, result = measure_there(options)
    else:
        folder, config = open_run(options.run, device_alone(options.settings))
        result = measure(
            folder, config, options.checkpoint, options.episodes, options.hide, not options.without_estimates
        )
    if options.json:
        print(json.dumps(result))
        return 0
    episodes, which = result.get("episodes"), result["checkpoint"]
    who = f"the mutex {options.policy}" if which == "mutex" else f"{which} checkpoint (step {result['steps']:,})"
    console.print(
        f"{config.env.id}, {who}, "
        + (f"{episodes} episodes on seeds 0..{episodes - 1}" if episodes else f"{result['trials']} trials a kind")
    )
    if options.hide:
        console.print(f"  hidden: {', '.join(options.hide)}")
    if options.without_estimates:
        console.print("  without estimates")
    for name in in_order(result):
        if isinstance(result[name], float):
            console.print(f"  {name:24s} {result[name]:.4g}")
    return 0


def measure(
    folder: RunFolder,
    config: TrainConfig,
    which: str,
    episodes: int | None,
    hide: Sequence[str] = (),
    estimates: bool = True,
) -> dict[str, Any]:
    """What a checkpoint of a run achieves in its evaluation environment, with what was measured; `hide` is NaN then.
    Without `estimates` the actor reads the values that its estimators would replace."""
    contract = EnvSpec.from_dict(folder.read_contract())

    def load(spec: EnvSpec) -> LoadedPolicy:
        loaded = load_policy(folder, config, spec, which)
        if not estimates:
            _remove_estimates(loaded.policy, folder)
        return loaded

    return _measured(config, contract, load, episodes, hide) | ({} if estimates else {"estimates": False})


def _remove_estimates(policy: Policy, folder: RunFolder) -> None:
    replacing = [each for each in getattr(policy, "estimators", {}).values() if each.inserts]
    if not replacing:
        raise ConfigError(
            f"--without-estimates: no estimator of {folder.path} replaces what its actor reads; "
            "train one with a block `estimator` that has `replace` above 0"
        )
    for each in replacing:
        each.inserts = ()


def measure_there(options: argparse.Namespace) -> tuple[TrainConfig, dict[str, Any]]:
    """What the policy of a run or of a mutex file achieves in the environment that is named, or in that of a run."""
    if options.without_estimates:
        raise ConfigError("--without-estimates measures a run in its own environment; leave out --policy")
    place, chosen, (device, others) = options.run, options.policy, device_of(options.settings)
    stage = None
    if is_run_folder(Path(place)):  # a run says what its environment is
        stage = open_run(place, device_alone(options.settings))[1]
    if is_mutex_file(chosen):
        config = stage or in_environment(TrainConfig(device=device or TrainConfig.device), place, others)

        def load(spec: EnvSpec) -> LoadedPolicy:
            return load_mutex(chosen, spec, config.device)

    else:
        folder, own = open_run(chosen, device)
        config = in_environment(own, place, others) if stage is None else replace(stage, device=own.device)

        def load(spec: EnvSpec) -> LoadedPolicy:
            return load_policy(folder, own, spec, options.checkpoint)

    with build_env(config, "evaluation", 1) as env:
        spec = env.spec
    return config, _measured(config, spec, load, options.episodes, options.hide)


def _measured(
    config: TrainConfig,
    contract: EnvSpec,
    load: Callable[[EnvSpec], LoadedPolicy],
    episodes: int | None,
    hide: Sequence[str] = (),
) -> dict[str, Any]:
    evaluation = config.evaluation
    if episodes:  # goals of each task, where the task counts goals
        evaluation = replace(evaluation, trials=episodes)
    episodes = episodes or evaluation.episodes
    with build_env(config, "evaluation", evaluation_instances(contract, episodes)) as made:
        if hide and made.spec.action.kind != "continuous":
            raise ConfigError(f"--hide: {made.spec.id} takes choices, which NaN would not stop; leave it out here")
        env = HiddenObservation(made, hide) if hide else made
        loaded = load(env.spec)

        def make_policy(stochastic: bool) -> InferencePolicy | CastPolicy:
            return loaded.inference(stochastic, stream(config.seed, "evaluation", env.device))

        result: dict[str, Any] = dict(evaluate_policy(env, make_policy, evaluation, episodes))
    how = {"episodes": episodes} if Trials.of(contract) is None else {"trials": evaluation.trials}
    hidden = {"hidden": list(hide)} if hide else {}
    return result | how | hidden | {"checkpoint": loaded.which, "steps": loaded.steps}


def checkpoint_facts(path: str, settings: Sequence[str]) -> dict[str, Any]:
    """What the last checkpoint of a run says about itself, computed from its state."""
    folder, config = open_run(path, device_alone(settings))
    state, _ = Checkpoints(folder.checkpoints, folder.run_id).load("last")
    contract = EnvSpec.from_dict(folder.read_contract())
    # what a program gave as objects cannot be made here, and what is not made cannot be counted
    learnt = None if config.objects else load_learnt(config, contract, state)
    return {
        "parameters_sha256": learnt and parameters_sha256(learnt_parameters(learnt)),
        "parameters": learnt and sum(p.numel() for p in learnt["policy"].parameters() if p.requires_grad),
        "version": state["version"],
        "best": state["best"],
        "last": state["last"],
    }


def list_parts(what: str) -> list[dict[str, str]]:
    """The environments, robots or algorithms there are."""
    if what == "envs":
        return [{"id": env.id, "kind": env.kind, "description": env.description} for env in list_envs()]
    if what == "robots":
        known = LEGGED_ROBOTS | ROBOTS  # some are in both, with other motors
        return [{"id": name, "description": known[name].description} for name in ROBOTS | LEGGED_ROBOTS]
    return [
        {"id": name, "description": (recipe.config.__doc__ or "").split("\n")[0]} for name, recipe in RECIPES.items()
    ]


def robot_report(name: str) -> str:
    """What a legged robot consists of, by its name or its YAML file."""
    from gaitway.envs.robots import world
    from gaitway.envs.robots.legged import LeggedView

    legged = get_legged_robot(name)
    view = LeggedView(legged, world.compile_model(legged.robot.spec()))
    view.mirrored()  # one that does not fit is refused here as it is by a task
    return view.report()


def warm_up(options: argparse.Namespace) -> int:
    """Have Warp compile and keep what an environment needs, so that training begins at once."""
    settings = {"device": "cuda", **env_options(options.options)}
    if settings.pop("simulator", "warp") != "warp":
        raise ConfigError("warm-up compiles what simulator=warp needs; leave simulator out")
    settings.setdefault("num_envs", TRAINED if str(settings["device"]).startswith("cuda") else 64)
    from gaitway.envs.mujoco_warp import kernel_cache

    began = time.monotonic()
    with make_env(options.env, simulator="warp", **settings) as env:
        action = env.spec.action.idle().to(env.device).expand(env.num_envs, *env.spec.action.shape)
        for _ in range(WARM_UP_STEPS):
            env.step(action)
        env.check_workers()
    seconds = time.monotonic() - began
    console.print(f"{options.env} is ready after {seconds:.1f} s; kernels are in {kernel_cache()}", markup=False)
    return 0


def check(options: argparse.Namespace) -> int:
    settings = env_options(options.options)

    def factory(num_envs: int, seed: int) -> VecEnv:
        return make_env(options.env, num_envs=num_envs, seed=seed, **settings)

    report = check_env(factory)
    console.print(str(report), markup=False)
    return 0 if report.ok else 1


def bench(options: argparse.Namespace) -> int:
    checkout = Path(__file__).resolve().parents[3]  # never the folder one stands in, which may be anybody's
    folder = checkout / "benchmarks"
    if not (folder.is_dir() and (checkout / "pyproject.toml").is_file()):
        raise ConfigError(
            "gaitway is not installed from a checkout, and benchmarks are not part of the package; clone the "
            "repository and run `pip install -e .` in it"
        )
    scripts = {path.stem: path for path in sorted(folder.glob("*.py")) if not path.stem.startswith("_")}
    if options.name is None:
        for name, path in scripts.items():
            summary = next((line for line in path.read_text().splitlines() if line.startswith('"""')), "").strip('"')
            console.print(f"{name:24s} {summary}", markup=False)
        return 0
    if options.name not in scripts:
        raise ConfigError(f"there is no benchmark {options.name!r}; there are {sorted(scripts)}")
    sys.argv = [str(scripts[options.name]), *options.arguments]
    sys.path.insert(0, str(folder))
    runpy.run_path(str(scripts[options.name]), run_name="__main__")
    return 0
