"""Models of legged robots that differ from instance to instance, on MuJoCo's batch."""

from __future__ import annotations

from collections.abc import Mapping

import mujoco
import numpy as np
import torch
from mujoco.batch import Batch
from torch import Tensor

from gaitway.envs.legged.randomise import MODEL_FIELDS, Places, write_model
from gaitway.envs.robots.legged import LeggedView
from gaitway.envs.tasks.legged.model import tensor_of

DELAY_SAMPLES = 4
"""Remembered targets beyond the longest delay."""


def keep_targets(spec: mujoco.MjSpec, delay: int) -> None:
    """Let motors remember what they were told in the last `delay` substeps."""
    for actuator in spec.actuators:
        actuator.nsample = delay + DELAY_SAMPLES
        actuator.interp = 0  # what was sent last counts until something newer arrives
        actuator.delay = 0.0


class OwnModels:
    """Fields of which every instance has its own values, written from the nominal ones by what an episode has drawn."""

    def __init__(self, batch: Batch, model: mujoco.MjModel, view: LeggedView, delay: int) -> None:
        """`delay` is the longest one of the motors, in substeps; 0: they obey at once."""
        names = (*MODEL_FIELDS, *(("actuator_delay",) if delay else ()))
        self.fields: dict[str, Tensor] = {name: tensor_of(batch.expand(name)) for name in names}
        nominal = {name: getattr(model, name) for name in names if "." not in name}
        nominal |= {"opt.gravity": model.opt.gravity, "kp": model.actuator_gainprm[:, 0]}
        nominal["kd"] = -model.actuator_biasprm[:, 2]
        self.nominal = {name: torch.from_numpy(np.array(array)) for name, array in nominal.items()}
        self._places = Places(view.base, torch.from_numpy(view.foot_geoms.reshape(-1)))
        self._samples, self._history = delay + DELAY_SAMPLES, None
        if delay:
            size = 2 + 2 * self._samples
            self._history = tensor_of(batch.bind("history")).unflatten(1, (model.nu, size))

    def write(self, rows: Tensor, layout: Mapping[str, Tensor]) -> None:
        """Fields of the models of `rows` follow from their layout; MuJoCo's own constants do not yet."""
        write_model(self.fields, self.nominal, layout, rows, self._places)

    def refill(self, rows: Tensor, targets: Tensor) -> None:
        """Delayed motors obey remembered targets, which are zeros after a reset; each has (user, cursor, times,
        values)."""
        if self._history is not None:
            self._history[rows, :, 2 + self._samples :] = targets[..., None].expand(-1, -1, self._samples)
