"""What a policy chose, as a NumPy array for environments that compute with those."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import check_action


class ActionReader:
    """`check_action` for every step of one environment, followed by the way to NumPy.

    The usual action (on the CPU, of the usual type, every value allowed) is seen to be right with a few cheap calls:
    for small batches a dozen tensor operations cost more than the step itself. All others go through `check_action`.
    """

    def __init__(self, spec: EnvSpec, num_envs: int) -> None:
        action = spec.action
        self._spec, self._num_envs = spec, num_envs
        self._shape = (num_envs, *action.shape)
        self._is_continuous = action.kind == "continuous"
        self._usual = (torch.float32, torch.float64) if self._is_continuous else (torch.int64,)
        # choices from 0 on can be compared without their sign, which makes the negative ones too large
        self._from_zero = not any(action.start)
        self._limit = np.array(action.choices[0] if action.kind == "discrete" else action.choices, dtype=np.uint64)

    def __call__(self, action: Tensor) -> np.ndarray:
        """The checked values `[B, *shape]`. They may lie in the memory of `action`: read only."""
        if action.__class__ is Tensor and action.dtype in self._usual and action.is_cpu and not action.requires_grad:
            values = action.numpy()
            if values.shape == self._shape and self._are_allowed(values):
                return values
        checked = check_action(action, self._spec, self._num_envs).cpu()
        return checked.double().numpy() if self._is_continuous else checked.numpy()

    def _are_allowed(self, values: np.ndarray) -> bool:
        """False sends them to `check_action`, which says what is wrong, if anything is."""
        if self._is_continuous:
            return np.count_nonzero(np.isfinite(values)) == values.size
        return self._from_zero and not np.count_nonzero(values.view(np.uint64) >= self._limit)
