"""The arguments of `gaitway train` as the configuration of a run, under the name of whoever wrote them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gaitway.cli.compose import DEFAULT, Composed, compose
from gaitway.cli.from_run import Base
from gaitway.cli.train_config import TrainConfig, choices, effective, parse
from gaitway.core.config import to_config
from gaitway.core.trust import Origin, run_folder_around, speaker, speaking
from gaitway.runners.run_folder import RunFolder


def compose_run(
    overrides: Sequence[str],
    config_dir: str | Path | None = None,
    cores: int | None = None,
    base: Base | None = None,
) -> tuple[TrainConfig, Composed]:
    """The configuration with every automatic choice made, and where its values come from; `cores` are those that the
    run may use (default: all), `base` is what the arguments are laid over (default: what the dataclasses say)."""
    base = base or Base(to_config(TrainConfig()), choices(), origin_of(overrides))
    with speaking(base.origin):
        arguments = [*base.arguments, *overrides]
        composed = compose(arguments, base.defaults, parse, config_dir=config_dir, **base.choices)
        config = effective(parse(composed.config), cores)
    for key, source in composed.sources.items():
        if source == DEFAULT and key.partition(".")[0] in base.sections:
            composed.sources[key] = base.source
    return config, composed


def origin_of(overrides: Sequence[str]) -> Origin:
    """Who speaks in the arguments of `train`: the person, or the run whose configuration is their config=FILE."""
    files = [text.removeprefix("config=") for text in overrides if text.startswith("config=")]
    around = [run_folder_around(os.path.dirname(os.path.realpath(file))) for file in files]
    origins = [RunFolder(folder).origin() for folder in around if folder is not None]
    return next((origin for origin in origins if not origin.is_person), speaker())
