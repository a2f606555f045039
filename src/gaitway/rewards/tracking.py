"""Tracking: a policy earns reward for being where a clip is at the same time (DeepMimic, Peng et al. 2018).

    reward/tracking = exp(-k d^2),   d^2 = mean over features of ((s - r(t)) / std)^2

`s` are the motion features that a step led to, `r(t)` those of the clip at the time that a clock shows, `std` their
standard deviation over the clip, so that `d` has no unit. The clock is an observation group with sine and cosine of the
phase: 0 at the first frame, a full turn over the clip.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gaitway.algorithms.algorithm import Coefficient, Now
from gaitway.core.config import did_you_mean
from gaitway.core.ranges import Positive
from gaitway.core.transitions import final_observations
from gaitway.core.workspace import Workspace
from gaitway.envs.motions.features import MotionFeatures
from gaitway.envs.motions.frames import MotionError
from gaitway.envs.motions.library import MotionLibrary
from gaitway.envs.spec import EnvSpec
from gaitway.rewards.source import When

PHASES = 1024
"""At how many phases the clip is looked up once; between them features are linear."""
STILL = 1e-3
"""Features that move less than this share of the largest count as if they moved so much."""


class TrackingReward(nn.Module):
    """How near a step comes to a clip, at the time that a clock of the task shows."""

    name = "tracking"
    when: When = "drawn"
    reference: Tensor
    scale: Tensor

    def __init__(
        self,
        spec: EnvSpec,
        motion: str,
        weight: Coefficient = 1.0,
        k: Positive = 1.0,
        times_dt: bool = False,
        group: str = "amp",
        clock: str = "phase",
        features: tuple[str, ...] = (),
        device: torch.device | str = "cpu",
    ) -> None:
        """`features` are the components of `group` that count (none named: all)."""
        super().__init__()
        known = MotionFeatures.of_spec(spec, group)
        library = MotionLibrary.load(motion)
        library.need_fit(known.robot, spec.control_dt, spec.id)
        if len(library) > 1:
            raise MotionError(f"{motion} holds {len(library)} clips; a clock runs along one, name it")
        self.weight, self.k = weight, k
        self.factor = spec.control_dt if times_dt else 1.0
        self.motions = library.fingerprint
        self._clock = _sine_and_cosine(spec, clock)
        self.reads = (f"env/obs/{group}", f"env/obs/{clock}", "env/terminated", *final_observations((group, clock)))
        columns = _columns(known, features, group)
        times = np.arange(PHASES + 1) / PHASES * library.durations[0]
        table = known.at(library, np.zeros(PHASES + 1, dtype=np.int64), times)[:, columns]
        spread = table[:-1].std(0)
        self.register_buffer("columns", torch.tensor(columns), persistent=False)
        self.register_buffer("reference", torch.from_numpy(table).float(), persistent=False)  # [PHASES + 1, D]
        self.register_buffer(
            "scale", torch.from_numpy(np.maximum(spread, STILL * max(spread.max(), 1e-12))).float(), persistent=False
        )
        self.to(device)

    columns: Tensor

    def annotate(self, ws: Workspace) -> None:
        reward = self.factor * torch.exp(-self.k * self.square_distance(ws))
        ws["reward/tracking"] = torch.where(ws["env/terminated"][: ws.T], 0.0, reward)

    def square_distance(self, ws: Workspace) -> Tensor:
        """d^2 of what each step led to, [T, B]."""
        reached = ws.following(self.reads[0]).float().index_select(-1, self.columns)
        shown = ws.following(self.reads[1]).float()
        wanted = self.at_phase(torch.atan2(shown[..., self._clock[0]], shown[..., self._clock[1]]) / (2 * math.pi))
        return ((reached - wanted) / self.scale).square().mean(-1)

    def at_phase(self, turns: Tensor) -> Tensor:
        """The clip's features [..., D] at phases in turns, of which whole ones do not count."""
        place = (turns - turns.floor()) * PHASES
        before = place.floor().clamp(max=PHASES - 1)
        index = before.long()
        return torch.lerp(self.reference[index], self.reference[index + 1], (place - before).unsqueeze(-1))

    def update(self, ws: Workspace, now: Now) -> dict[str, Tensor]:
        return {"tracking/distance": self.square_distance(ws).sqrt().mean()}

    def get_extra_state(self) -> dict[str, Any]:
        return {"motions": self.motions}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        if state["motions"] != self.motions:
            raise MotionError("the clip of tracking is not that of the stored state; put the former one back")


def _sine_and_cosine(spec: EnvSpec, clock: str) -> tuple[int, int]:
    """Where a group shows sine and cosine of the phase."""
    names = spec.group_names
    if clock not in names:
        raise MotionError(
            f"{spec.id} has no group {clock!r}{did_you_mean(clock, names)} that shows a clock; it has {list(names)}"
        )
    places = {}
    start = 0
    for component in spec.group(clock).components:
        places[component.name] = start
        start += component.size
    if not {"sin", "cos"} <= set(places):
        raise MotionError(f"the group {clock!r} has no components sin and cos of a phase; it has {list(places)}")
    return places["sin"], places["cos"]


def _columns(known: MotionFeatures, wanted: tuple[str, ...], group: str) -> list[int]:
    """The columns of the features that count, by the names of their components."""
    places: dict[str, list[int]] = {}
    start = 0
    for component in known.components:
        places[component.name] = list(range(start, start + component.size))
        start += component.size
    unknown = [name for name in wanted if name not in places]
    if unknown:
        raise MotionError(
            f"features names {unknown[0]!r}{did_you_mean(unknown[0], places)}, which {group!r} lacks; it has "
            f"{list(places)}"
        )
    return [column for name in wanted or places for column in places[name]]
