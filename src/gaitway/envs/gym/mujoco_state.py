"""The physics of a gymnasium environment as plain numbers; apart, so that those without MuJoCo do not load it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
import torch


def encode_data(owner: Any, data: mujoco.MjData) -> dict[str, Any]:
    """The integration state, and the derived arrays, which after a step are those of the last substep.

    Rewards of several gymnasium tasks read derived positions before they step; computed afresh they would belong to the
    present position and the first reward after a resume would differ.
    """
    model = _model_of(owner)
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(model, kind))
    mujoco.mj_getState(model, data, state, kind)
    return {
        "integration": torch.from_numpy(state),
        "derived": {name: torch.from_numpy(array.copy()) for name, array in _derived(data).items()},
    }


def decode_data(owner: Any, data: mujoco.MjData, stored: Mapping[str, Any]) -> None:
    model = _model_of(owner)
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    state = stored["integration"].cpu().numpy()
    if len(state) != mujoco.mj_stateSize(model, kind):
        raise ValueError(
            f"the stored physics state has {len(state)} numbers, this model {mujoco.mj_stateSize(model, kind)}; "
            "resume with the same environment, options and MuJoCo version"
        )
    mujoco.mj_setState(model, data, state, kind)
    for name, array in _derived(data).items():
        if name in stored["derived"] and tuple(stored["derived"][name].shape) == array.shape:
            array[...] = stored["derived"][name].cpu().numpy()


def _derived(data: mujoco.MjData) -> dict[str, np.ndarray]:
    """Float arrays whose size depends on the model alone, i.e. not those of the constraints of the moment."""
    arrays = {name: getattr(data, name) for name in _data_fields()}
    return {name: array for name, array in arrays.items() if array.dtype == np.float64 and array.size}


def _model_of(owner: Any) -> mujoco.MjModel:
    for value in vars(owner).values():
        if isinstance(value, mujoco.MjModel):
            return value
    raise TypeError("MjData without its MjModel")


@functools.cache
def _data_fields() -> tuple[str, ...]:
    data = mujoco.MjData(mujoco.MjModel.from_xml_string("<mujoco/>"))
    constraints = ("efc_", "iefc_", "efm_", "iacc", "ifrc", "island", "map_")
    names = (name for name in dir(data) if not name.startswith(("_", *constraints)))
    return tuple(name for name in names if isinstance(getattr(data, name), np.ndarray))
