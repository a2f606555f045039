"""Stops training on the first NaN or infinity, with one sentence that says where it came from.

The checks cost one reduction per variable and iteration, and their outcome is one number; the search for the culprit
runs only where that number says that there may be one.
"""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from gaitway.core.files import StateFileError, atomic_write_json, save_state
from gaitway.core.user_code import SentenceError
from gaitway.core.workspace import Workspace
from gaitway.envs.spec import EnvSpec

log = logging.getLogger("gaitway")


class NotFiniteError(SentenceError):
    """Training met a number that is not finite; the message says which, where and when."""

    def __init__(self, sentence: str, where: dict[str, object]) -> None:
        super().__init__(sentence)
        self.where = where


ADVICE = "lower algorithm.learning_rate"


def all_finite(tensors: Iterable[Tensor]) -> Tensor:
    """Whether the floating point numbers among the tensors are finite, still on their device. A sum that overflows says
    no too: look closer before anything is said."""
    return torch.isfinite(torch.stack([each.sum() for each in tensors if each.dtype.is_floating_point])).all()


def check_rollout(ws: Workspace, spec: EnvSpec, first_step: int, prefix: str = "") -> None:
    """Observations, rewards (every source) and policy outputs of the rollout that began at `first_step`; only the
    variables whose name begins with `prefix`."""
    for name in ws.keys():
        if not name.startswith(prefix):
            continue
        value = ws[name]
        if value.dtype.is_floating_point and not torch.isfinite(value.sum()):
            bad = torch.nonzero(~torch.isfinite(value))
            if len(bad):
                raise _rollout_error(ws, spec, name, bad[0].tolist(), first_step)


def check_update(
    metrics: Mapping[str, float],
    parameters: Tensor,
    iteration: int,
    env_steps: int,
    advice: str = ADVICE,
) -> None:
    """Losses, gradients (through their norm) and parameters after an update; `advice` is what mends most cases."""
    when, at = f"iteration {iteration} (environment step {env_steps})", {"iteration": iteration, "env_steps": env_steps}
    for name, value in metrics.items():
        if not math.isfinite(value):
            sentence = f"{name} became {value} in {when}; {advice} or look at the rollout that was saved"
            raise NotFiniteError(sentence, {"term": name, **at})
    if not torch.isfinite(parameters.sum()):
        raise NotFiniteError(f"a parameter is not finite after {when}; {advice}", {"term": "parameters", **at})


def write_failure(folder: Path, error: NotFiniteError, ws: Workspace, last_checkpoint: Path) -> Path | None:
    """Everything needed to see it again: the rollout, and a copy of the checkpoint from which `gaitway resume` replays
    the run bit for bit up to the same failure."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_state(folder / "rollout", {name: ws[name].clone() for name in ws.keys()}, kind="rollout")
        if last_checkpoint.exists():
            shutil.copytree(last_checkpoint.resolve(), folder / "checkpoint", dirs_exist_ok=True)
        atomic_write_json(folder / "failure.json", {"sentence": str(error), **error.where})
    except (OSError, StateFileError) as problem:
        log.error("the failure could not be saved: %s", problem)
        return None
    return folder


def _rollout_error(ws: Workspace, spec: EnvSpec, name: str, index: list[int], first_step: int) -> NotFiniteError:
    row, instance = index[0], index[1]
    value = float(ws[name][tuple(index)])
    component = ""
    if name.startswith(("env/obs/", "env/final_obs/")):
        group = spec.group(name.split("/", 2)[2])
        if group.is_vector:
            names = [c.name for c in group.components for _ in range(c.size)]
            component = f" ({names[index[2]]})"
    env_step = first_step + row * ws.B
    sentence = (
        f"{name}{component} of environment {instance} is {value} at step {row} of the rollout that began at "
        f"environment step {first_step}; look at {spec.id} there, training stopped and the last checkpoint is good"
    )
    return NotFiniteError(sentence, {"term": name, "instance": instance, "row": row, "env_steps": env_step})
