"""Runs in Python: `gaitway.train` does what the command does, `gaitway.load` opens what it left.

run = gaitway.train("ppo_walker_run", total_steps=200_000, run_dir="runs/walker")
action = gaitway.load("runs/walker").predict(observation)
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor, nn

from gaitway.agents.policy import CastPolicy, InferencePolicy
from gaitway.agents.predict import Action, as_numbers, check_finite, predict_action
from gaitway.cli.build import load_policy
from gaitway.cli.checks import judge_run
from gaitway.cli.commands import begin
from gaitway.cli.compose import Composed, compose
from gaitway.cli.compose_run import origin_of
from gaitway.cli.export import export_run
from gaitway.cli.inspect_run import measure
from gaitway.cli.open_run import open_run
from gaitway.cli.train_config import TrainConfig, choices, effective, parse
from gaitway.core.config import ConfigError, read_config, to_config
from gaitway.core.plain import plain
from gaitway.core.seeding import stream
from gaitway.core.signals import EXIT_INTERRUPT
from gaitway.core.trust import Origin, check_trusted, speaking
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Observation
from gaitway.export.folder import Format
from gaitway.export.proof import Proof
from gaitway.runners.run_folder import RunFolder

PROGRAM = "gaitway.train"
"""Where keys of a configuration come from that a program gave."""


def train(experiment: str | Path | None = None, *, quiet: bool = False, **settings: Any) -> LoadedRun:
    """Train as `gaitway train experiment=... key=value` does, and return the run.

    `experiment` is a preset (`gaitway list experiments`) or a YAML file of yours. `settings` are keys of the
    configuration: `total_steps=200_000`, `algorithm="sac"`, `env={"id": "walker/walk", "num_envs": 16}`, or with dots,
    `**{"algorithm.gamma": 0.98}`. Objects have no place there: name their classes by `package.module:Class`, or give
    them to a runner (`OnPolicyRunner(..., folder=...)`).
    """
    if not isinstance(quiet, bool):
        raise TypeError(f"quiet is {quiet!r}; use True or False")
    files = [f"config={experiment}"] if _is_file(experiment) else []
    with speaking(origin_of(files)):
        composed = _composed(experiment, _nested(plain(settings)))
        config = effective(parse(composed.config))
    judge_run(config)
    code, path = begin(config, composed, quiet)
    if code == EXIT_INTERRUPT:
        raise KeyboardInterrupt
    if code:
        raise SystemExit(code)  # a signal ended it; the run is saved
    return load(path)


def load(
    run: str | Path, checkpoint: str | int = "best", *, device: str | None = None, trust: Sequence[str] = ()
) -> LoadedRun:
    """The policy of a run folder, ready to act; `checkpoint` is best, last or a number of steps.

    `device` takes the place of the one it was trained on. A run that was made elsewhere names parts of gaitway alone;
    `trust` lists modules, files and folders of others that it may use, as `--trust` does.
    """
    if not isinstance(run, str | os.PathLike):
        raise TypeError(f"the run is {run!r}; name its folder")
    names = (trust,) if isinstance(trust, str) else tuple(trust)
    with speaking(Origin(trusted=check_trusted(names))):
        folder, config = open_run(os.fspath(run), device)
        return LoadedRun(folder, config, str(checkpoint))


class LoadedRun:
    """A trained run: `predict` for one observation, `act` for many at once, `evaluate`, and the `policy` itself.

    Policies with a memory remember from call to call; `reset()` begins an episode.
    """

    def __init__(self, folder: RunFolder, config: TrainConfig, checkpoint: str) -> None:
        self.folder, self.config = folder, config
        self.spec = EnvSpec.from_dict(folder.read_contract())
        """What the policy reads and does: groups of observations, actions, units."""
        self._loaded = load_policy(folder, config, None, checkpoint)
        self.checkpoint, self.steps = self._loaded.which, self._loaded.steps
        self._acting: dict[tuple[str, bool], InferencePolicy | CastPolicy] = {}

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def policy(self) -> nn.Module:
        """The policy as a module."""
        return self._loaded.policy

    def predict(self, observation: Any, *, stochastic: bool = False, env: Any = None) -> Action:
        """The action for one observation, without a batch axis: an array, or a dict of them by group.

        `env` is a single gymnasium environment whose raw observations and actions are to be converted. What is no
        finite number is refused.
        """
        act = self._actor("predict", stochastic)
        return predict_action(act, observation, env=env, spec=self.spec)

    def act(self, observation: Mapping[str, Any], *, stochastic: bool = False) -> Tensor:
        """Actions `[B, ...]` for observations `{group: [B, ...]}`, as environments of `gaitway.make_env` show them."""
        if not isinstance(observation, Mapping):
            known = ", ".join(self.spec.group_names)
            raise TypeError(f"the observation is a {type(observation).__name__}; pass a mapping of groups: {known}")
        wanted = {name: self.spec.group(name) for name in observation if name in self.spec.group_names}
        lacking = [name for name in self._loaded.policy.actor_groups if name not in wanted]
        if lacking:
            raise KeyError(f"the policy reads {lacking}, and the observation has {list(observation)}; pass all of them")
        obs: Observation = {}
        for name, group in wanted.items():
            value = as_numbers(name, observation[name])
            if value.dim() < 1 or tuple(value.shape[1:]) != group.shape:
                raise ValueError(
                    f"the observation {name!r} is {list(value.shape)}; pass {['B', *group.shape]}, or one observation "
                    "to predict()"
                )
            obs[name] = value.to(self.config.device, group.torch_dtype)
        check_finite(obs, self.spec)
        return self._actor("act", stochastic)(obs)

    def reset(self) -> None:
        """Forget what was seen: a new episode begins."""
        for act in self._acting.values():
            act.reset()

    def evaluate(self, episodes: int | None = None) -> dict[str, Any]:
        """The numbers of `gaitway eval`: means over episodes on fixed seeds in the run's evaluation environment."""
        if episodes is not None and (isinstance(episodes, bool) or not isinstance(episodes, int) or episodes < 1):
            raise ValueError(f"episodes is {episodes!r}; use a positive integer, or None for the run's own number")
        return measure(self.folder, self.config, self.checkpoint, episodes)

    def export(self, out: str | Path | None = None, *, format: Format = "both", tolerance: float = 1e-5) -> Proof:
        """Write the policy as `gaitway export` does, into `out` or the folder `export` of the run; what was proven."""
        place = self.path / "export" if out is None else out
        return export_run(self.folder, self.config, place, format, self.checkpoint, tolerance=tolerance)[0]

    def __repr__(self) -> str:
        return f"LoadedRun({str(self.path)!r}, {self.config.env.id}, {self.checkpoint} checkpoint, step {self.steps:,})"

    def _actor(self, use: str, stochastic: bool) -> InferencePolicy | CastPolicy:
        """What acts; calls of `predict` and of `act` have memories of their own."""
        if (use, stochastic) not in self._acting:
            generator = stream(self.config.seed, "inference", torch.device(self.config.device)) if stochastic else None
            self._acting[use, stochastic] = self._loaded.inference(stochastic, generator)
        return self._acting[use, stochastic]


def _composed(experiment: str | Path | None, settings: dict[str, Any]) -> Composed:
    """The configuration of a preset or file and the program's own settings, which win."""
    if experiment is not None and not isinstance(experiment, str | Path):
        raise TypeError(f"the experiment is {experiment!r}; name a preset, or a YAML file")
    arguments, content = [], settings
    if _is_file(experiment):
        content = _merged(read_config(str(experiment)), settings)
    elif experiment is not None:
        arguments.append(f"experiment={experiment}")
    if isinstance(content.get("algorithm"), str):
        arguments.append(f"algorithm={content['algorithm']}")
        content = {key: value for key, value in content.items() if key != "algorithm"}
    with tempfile.TemporaryDirectory() as place:  # values of any form travel in a file, not as arguments
        file = Path(place) / "settings.yaml"
        file.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), encoding="utf-8")
        label = f"file {file}"
        try:
            composed = compose([*arguments, f"config={file}"], to_config(TrainConfig()), parse, **choices())
        except ConfigError as error:
            message = str(error).replace(label, f"arguments of {PROGRAM}").replace(str(file), PROGRAM)
            raise type(error)(message, error.key) from error
    sources = {key: PROGRAM if source == label else source for key, source in composed.sources.items()}
    return Composed(composed.config, sources, composed.experiment)


def _is_file(experiment: Any) -> bool:
    return str(experiment).endswith((".yaml", ".yml"))


def _nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as mappings in mappings."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        first, _, rest = key.partition(".")
        entry = _nested({rest: value}) if rest else value
        known = found.get(first)
        both = isinstance(known, dict) and isinstance(entry, Mapping)
        found[first] = _merged(known or {}, entry) if both else entry
    return found


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(base)
    for key, value in changes.items():
        known = found.get(key)
        both = isinstance(known, Mapping) and isinstance(value, Mapping)
        found[key] = _merged(known, value) if both else value  # type: ignore[arg-type]
    return found
