"""Normalised observations in a frame stream: the running normaliser, taught row by row.

Every row is taken into the statistics first and normalised with them afterwards. Only observations that are new count:
repeated rows of a frozen stream do not, the final observation of an episode in a compact stream does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from gaitway.envs.spec import ObservationGroup
from gaitway.envs.vec_env import Observation
from gaitway.nn.normalise import RunningNorm

CLIP = 10.0
"""Bound of normalised values, as in gymnasium's and most other implementations."""


class FrameNormaliser(nn.Module):
    """One `RunningNorm` per float group, or those given by name.

    With `update` the statistics belong to this module: in training mode every row is taken into them, and they are part
    of its `state_dict`. Without, they belong to somebody else: they are read and never changed, which is how an
    evaluation shares the statistics of a training that goes on.
    """

    def __init__(
        self, groups: Iterable[ObservationGroup], given: Mapping[str, RunningNorm] | None, update: bool
    ) -> None:
        super().__init__()
        shapes = {group.name: group.shape for group in groups if group.torch_dtype.is_floating_point}
        for name in given or {}:
            if name not in shapes:
                raise ValueError(f"{name!r} cannot be normalised; groups of floating point numbers are {list(shapes)}")
        norms = dict(given) if given is not None else {name: RunningNorm(s, clip=CLIP) for name, s in shapes.items()}
        self.groups, self.update = tuple(norms), update
        if update:
            self.owned = nn.ModuleList(norms.values())
        self._norms = [norms]  # in a list, so that shared norms are not registered here: eval() must not reach them

    @property
    def norms(self) -> dict[str, RunningNorm]:
        """The normalisers by group, for `FrameAgent(normalise=...)` of an evaluation."""
        return dict(self._norms[0])

    def check_statistics(self) -> None:
        """Refuse to normalise with statistics that nobody has taken."""
        norms = self._norms[0]
        empty = [name for name in self.groups if not int(norms[name].count)]
        if empty and not (self.update and self.training):
            raise RuntimeError(
                f"there are no statistics of {empty} to evaluate with; pass normalise=trained.normaliser.norms of the "
                "agent that was trained, or load its state_dict"
            )

    def observe(self, obs: Observation, new: Tensor | None, final_obs: Observation | None, done: Tensor) -> None:
        """Take one row into the statistics, in training mode: `obs` where `new` (everywhere if None), and `final_obs`
        where `done`."""
        if not (self.update and self.training):
            return
        norms = self._norms[0]
        for name in self.groups:
            values, mask = obs[name], new
            if final_obs is not None:
                every = torch.ones_like(done) if mask is None else mask
                values, mask = torch.cat((values, final_obs[name])), torch.cat((every, done))
            norms[name].update(values, mask)

    def forward(self, obs: Observation) -> Observation:
        """The observation with the groups of this normaliser normalised."""
        norms = self._norms[0]
        return {name: norms[name](value) if name in norms else value for name, value in obs.items()}
