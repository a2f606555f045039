"""`gaitway play`: watch the best policy of a run, or of a folder of runs, as a film or in a window."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from gaitway.agents.actor_critic import InferencePolicy
from gaitway.analysis.runs import find_runs, is_run_folder
from gaitway.cli.build import TrainConfig, build_env
from gaitway.cli.inspect_run import console, load_policy, open_run
from gaitway.core.agent import Agent, Agents, TemporalAgent
from gaitway.core.config import ConfigError
from gaitway.core.workspace import Workspace
from gaitway.envs.env_agent import EnvAgent
from gaitway.envs.rendering_agent import Window, screen_problem
from gaitway.envs.vec_env import VecEnv
from gaitway.runners.run_folder import RunFolder
from gaitway.runners.video import record_episode


def play(options: argparse.Namespace) -> int:
    folder, config = open_run(str(chosen_run(options.run)))
    wants_window = options.window
    problem = screen_problem() if wants_window else None
    if problem is not None:
        console.print(problem.split("; the run goes on")[0] + "; a video is written instead")
        wants_window = False
    with build_env(config, "evaluation", 1) as env:
        policy, steps, which = load_policy(folder, config, env, options.checkpoint)
        what = f"{folder.path}: {which} checkpoint (step {steps:,})"
        if wants_window or options.no_video:
            length, total = watch(
                env, policy, options.seed, options.length or config.evaluation.max_steps, wants_window
            )
            console.print(f"{what}, {length} steps, return {total:.4g}", soft_wrap=True)
            return 0
        return _film(env, policy, folder, config, options, what)


def watch(env: VecEnv, policy: Agent, seed: int, max_steps: int, in_window: bool) -> tuple[int, float]:
    """Play one episode without noise, in a window if asked for; returns its length and its return."""
    world = EnvAgent(env, final_obs=False, metrics=())
    window = Window(world)
    shown = [window] if in_window else []
    cast = TemporalAgent(Agents(world.observe, *shown, policy, world.advance))
    ws = Workspace()
    world.restore(env.reset(seed=[seed]))
    with torch.inference_mode():
        length = cast(ws, n_steps=max_steps, stop_variable="env/done", stochastic=False)
    window.close()
    counted = ws["env/valid"] if "env/valid" in ws else torch.ones_like(ws["env/done"])
    return length, float((ws["env/reward"].double() * counted).sum())


def chosen_run(path: str) -> Path:
    """The run folder itself, or the one of a folder of runs whose best evaluation is the best."""
    folder = Path(path)
    if is_run_folder(folder) or not folder.is_dir():
        return folder
    found = {run: _best_return(run) for run in find_runs([folder])}
    known = {run: value for run, value in found.items() if value is not None}
    if not known:
        raise ConfigError(f"no run in {folder} has been evaluated yet; name one run folder, or wait")
    return max(known, key=lambda run: known[run])


def _best_return(run: Path) -> float | None:
    try:
        summary = json.loads((run / "summary.json").read_text())
    except (OSError, ValueError):
        return None
    return (summary.get("best") or {}).get("return")


def _film(
    env: VecEnv, policy: Agent, folder: RunFolder, config: TrainConfig, options: argparse.Namespace, what: str
) -> int:
    path = Path(options.video) if options.video else folder.videos / "play.mp4"
    shown = record_episode(
        env,
        InferencePolicy(policy),  # type: ignore[arg-type]
        path,
        length=options.length or config.video.length,
        size=config.video.size,
        annotations=config.video.annotations,
        seed=options.seed,
    )
    if shown is None:
        console.print("no video was written; the line above says why")
        return 1
    console.print(f"{path}: {what}, {shown['frames']} frames, return {shown['return']:.4g}", soft_wrap=True)
    return 0
