"""Who plays where in `gaitway play`: a run's policy, random actions or none, in its environment or in another."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from gaitway.agents.diayn_policy import DIAYNPolicy
from gaitway.cli.arguments import device_alone, device_of
from gaitway.cli.build import LoadedPolicy, build_env, is_mutex_file, load_mutex, load_policy
from gaitway.cli.open_run import in_environment, open_run
from gaitway.cli.train_config import TrainConfig
from gaitway.core.config import ConfigError, did_you_mean
from gaitway.core.seeding import check_seed, stream
from gaitway.envs.vec_env import Observation, VecEnv
from gaitway.runners.baselines import ZeroPolicy
from gaitway.runners.collect import RandomPolicy
from gaitway.runners.evaluate import Actor
from gaitway.runners.film import Caption, captioned
from gaitway.runners.run_folder import RunFolder, RunFolderError

WITHOUT_RUN = ("random", "zero")
LONGEST_PART = 100
"""Steps for which each of several skills is shown at most, unless the command line says how long the whole is."""


@dataclass(frozen=True)
class Player:
    """What is shown."""

    env: VecEnv
    """One instance."""
    act: Actor
    config: TrainConfig
    folder: RunFolder | None
    """Of the run that was named to be played; None if an environment was."""
    what: str
    """Environment and policy in words."""
    caption: Caption
    """The same, for a corner of the picture."""
    show: int | None = None
    """Steps of a show that goes through the ends of episodes, skill after skill; None for a single episode."""


class SkillsInTurn:
    """Skills that a policy of diayn knows by number, one after the other, each for an equal part of `total` steps, then
    from the first one again. The robot is not put back in between."""

    def __init__(self, policy: DIAYNPolicy, skills: Sequence[int], total: int) -> None:
        self.policy, self.skills, self.total = policy, skills, total
        self.steps = 0
        self.skill = skills[0]
        """The one that acted last."""

    def __call__(self, obs: Observation) -> Tensor:
        """Actions [B, ...] for observations `{group: [B, ...]}`."""
        first = next(iter(obs.values()))
        self.skill = self.skills[self.steps * len(self.skills) // self.total % len(self.skills)]
        self.steps += 1
        held = self.policy.holding(torch.full((len(first),), self.skill, device=first.device))
        with torch.inference_mode():
            return self.policy.act(obs, held, False)[0]

    def reset(self, mask: Tensor | None = None) -> None:
        """Which skill it is does not depend on episodes."""


@contextmanager
def find_player(options: argparse.Namespace) -> Iterator[Player]:
    """The environment and the policy that the command line names; the environment is closed afterwards."""
    check_seed(options.seed)
    played = _folder(options.run)
    device, others = device_of(options.settings)
    if played is not None:
        device_alone(options.settings)  # a run says what its environment is
    chosen = options.policy or ("random" if played is None else str(played))
    if chosen in WITHOUT_RUN or is_mutex_file(chosen):
        plain = TrainConfig(device=device or TrainConfig.device)
        trained, config = None, plain if played is None else open_run(str(played), device)[1]
    else:
        trained, config = open_run(str(_policy_folder(chosen)), device)
    if played is None:
        stage = in_environment(config, options.run, others)
    elif trained is None or trained.path == played:
        stage = config
    else:  # two runs, each under its own name
        stage = replace(open_run(str(played), device)[1], device=config.device)
        config = replace(config, evaluation=replace(config.evaluation, env=stage.evaluation.env))
    with _environment(stage, options.run) as env:
        yield _player(env, config, trained, played, options, chosen)


def _player(
    env: VecEnv,
    config: TrainConfig,
    trained: RunFolder | None,
    played: Path | None,
    options: argparse.Namespace,
    chosen: str,
) -> Player:
    folder = None if played is None else RunFolder(played)
    env_id = env.spec.id
    if trained is None:
        if options.skill is not None:
            raise ConfigError(f"--skill chooses a skill of a diayn run, and {chosen} actions have none; leave it out")
        act: Actor = ZeroPolicy(env.spec.action)
        words = "zero actions"
        if is_mutex_file(chosen):
            act, words = load_mutex(chosen, env.spec, config.device).inference(), f"the mutex {chosen}"
        if chosen == "random":
            act = RandomPolicy(env.spec.action, stream(options.seed, "play", env.device))
            words = "random actions"
        return Player(env, act, config, folder, f"{env_id}, {words}, seed {options.seed}", (env_id, words))
    loaded = load_policy(trained, config, env.spec, options.checkpoint)
    words = f"{loaded.which} checkpoint (step {loaded.steps:,})"
    what = f"{trained.path}: {words}" if played == trained.path else f"{env_id}, {trained.path}: {words}"
    caption = (env_id, f"{loaded.steps:,} steps")
    skills = _skills(loaded, options.skill, trained)
    if skills is None:
        act = loaded.inference()
        return Player(env, act, config, folder, what, captioned(act, caption))
    total = options.steps or options.length or len(skills) * _part(env)
    act = SkillsInTurn(loaded.policy, skills, total)
    named = f"skill {skills[0]}" if len(skills) == 1 else f"skills {skills[0]} to {skills[-1]} in turn"
    show = total if len(skills) > 1 else None
    return Player(env, act, config, folder, f"{what}, {named}", lambda: (*caption, f"skill {act.skill}"), show)


def _skills(loaded: LoadedPolicy, chosen: int | None, run: RunFolder) -> Sequence[int] | None:
    """The skills to be shown; None where a policy knows none by number, or does not act alone."""
    policy = loaded.policy
    if not isinstance(policy, DIAYNPolicy) or loaded.cast.agents != [policy]:
        if chosen is not None:
            raise ConfigError(f"--skill chooses a skill of a diayn run, and {run.path} is none; leave it out")
        return None
    count = policy.config.n_skills
    if chosen is None:
        return range(count)
    if not 0 <= chosen < count:
        raise ConfigError(f"--skill is {chosen}; {run.path} has the skills 0 to {count - 1}")
    return [chosen]


def _part(env: VecEnv) -> int:
    """Steps for which a skill is shown: those of an episode, if they are known and not too many."""
    spec = env.spec
    episode = spec.facts.get("skills", {}).get("horizon") or spec.max_episode_steps or LONGEST_PART
    return min(int(episode), LONGEST_PART)


def chosen_run(path: str) -> Path:
    """The run folder itself, or the one of a folder of runs whose best evaluation has the highest return."""
    from gaitway.analysis.runs import find_runs, is_run_folder

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
        summary = RunFolder(run).read_summary()
    except RunFolderError:
        return None
    return (summary.get("best") or summary.get("last") or {}).get("return")  # no best where the metric is null


def _folder(source: str) -> Path | None:
    """The run that `source` names; None if it names no folder, and therefore an environment."""
    return chosen_run(source) if Path(source).is_dir() else None


def _policy_folder(chosen: str) -> Path:
    if not Path(chosen).is_dir():
        hint = did_you_mean(chosen, WITHOUT_RUN)
        raise ConfigError(f"--policy is {chosen!r}{hint}; use random, zero, a run folder or a mutex file")
    return chosen_run(chosen)


@contextmanager
def _environment(config: TrainConfig, source: str) -> Iterator[VecEnv]:
    try:
        env = build_env(config, "evaluation", 1)
    except ValueError as error:
        if str(error).startswith("no environment"):
            raise ConfigError(f"there is no folder {source}, and {error}") from error
        raise
    with env:
        yield env
