"""What sources that judge novelty look at: the observations that steps led to."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gaitway.agents.observations import Observations, default_groups
from gaitway.core.workspace import Workspace
from gaitway.envs.spec import EnvSpec


def judged_groups(spec: EnvSpec, groups: Sequence[str]) -> tuple[str, ...]:
    """The observation groups that novelty is judged by; without any, those that an actor reads by default."""
    chosen = tuple(groups) or default_groups(spec, "actor", Observations())
    vectors = [known.name for known in spec.groups if known.is_vector]
    if not set(chosen) <= set(vectors):
        raise ValueError(f"groups is {list(chosen)}; novelty is judged by vectors, of which there are {vectors}")
    return chosen


def reached(ws: Workspace, groups: Sequence[str]) -> Tensor:
    """The observations that steps led to, side by side, [T, B, D]."""
    return torch.cat([ws.following(f"env/obs/{name}").float() for name in groups], -1)
