"""The interface between a high level and a frozen skill policy: goal spaces, goals in them, what is left to go.

A high level decides on a goal space d of D (a *subset* of features) and on a subgoal [G] in [-1, 1]. Entry k of the
subgoal belongs to position k of the skills' task map, whatever the order in which a subset lists its features: G = K,
the number of positions. The skills read what is left to go, `desired_goal` [K] in feature units, and the `task` bits
[K] of the features that count. Gehring et al. 2021, arXiv 2110.10809.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from gaitway.envs.tasks.skills.goal_spaces import (
    GoalSpace,
    combinations,
    flatten_subset,
    parse_groups,
    rank,
    subset_features,
    task_bits,
)
from gaitway.envs.tasks.skills.goals import TaskSet
from gaitway.skills.frozen_policy import SkillFileError
from gaitway.skills.skill_file import Skills

FROM_SKILLS = "from_lo"
"""The subsets that the skill file says its skills attain."""


def choose_subsets(success: Mapping[str, float], eps: float, rank_min: int = 1, rank_max: int = 99) -> list[str]:
    """The subsets that skills attain with a success of at least `1 - eps`, flattened ("0,3,4"), lower ranks first.

    `success` has the subsets in group spelling ("0,3+4") as its keys, which alone tell the rank, the number of groups
    that a subset combines; an entry "total" is passed over. Within a rank the order is natural: "2" before "10".
    """
    if not 1 <= rank_min <= rank_max:
        raise ValueError(f"ranks are {rank_min} to {rank_max}; use 1 <= rank_min <= rank_max, 1 and 99 for all")
    known = {subset: value for subset, value in success.items() if subset != "total"}
    asked = {subset: value for subset, value in known.items() if rank_min <= rank(subset) <= rank_max}
    if not asked:
        ranks = sorted(map(rank, known))
        there = f"ranks are {ranks[0]} to {ranks[-1]}; widen rank_min and rank_max" if ranks else "name them in subsets"
        raise ValueError(f"no subset of ranks {rank_min} to {rank_max} is among the {len(known)} known ones; {there}")
    found = [subset for subset, value in asked.items() if value >= 1.0 - eps]
    if not found:
        raise ValueError(
            f"no subset of ranks {rank_min} to {rank_max} has a success of {1.0 - eps:g} or more among {len(asked)}, "
            f"the best of which has {max(asked.values()):.3g}; raise from_lo_eps or widen rank_min and rank_max"
        )
    return [flatten_subset(subset) for subset in sorted(found, key=lambda subset: (rank(subset), _natural(subset)))]


def subsets_of_skills(
    skills: Skills, subsets: str = FROM_SKILLS, eps: float = 1.0, rank_min: int = 1, rank_max: int = 99
) -> list[str]:
    """The goal spaces, flattened, that a configuration asks of these skills: `from_lo`, or groups as in `0#1#3+4`.

    `from_lo` is `choose_subsets` of their success, in rollouts where it was measured, else by reachability. Of groups
    there are all combinations of `rank_min` to `rank_max`: `0#1` is the goal spaces "0", "1" and "0,1", and
    `0-1-2-3+4-5+6` is one, all features of the Walker together. Features never practised together are refused.
    """
    if subsets == FROM_SKILLS:
        known = skills.success or skills.figures.get("r", {}) or dict.fromkeys(skills.subsets, 1.0)
        return choose_subsets(known, eps, rank_min, rank_max)
    tasks = skills.facts.tasks
    practised = {tasks.key_of(subset): subset for subset in skills.subsets}
    if re.fullmatch(r"[0-9]+([,+][0-9]+)*", subsets) and "," in subsets:
        raise SkillFileError(
            f"{subsets!r} is one goal space as metrics and files spell it; write {re.sub('[,+]', '-', subsets)} for it "
            "alone, or groups as in '0#1#3+4' for all their combinations"
        )
    groups = ["+".join(map(str, group)) for group in parse_groups(subsets, skills.space.names)]
    if not groups:
        raise SkillFileError(
            f"no feature matches the subsets {subsets!r}; write features as in '0#1#3+4', or {FROM_SKILLS!r} for "
            f"all that the skills attain: {dict(enumerate(skills.space.names))}"
        )
    most = min(rank_max, len(groups))
    if not 1 <= rank_min <= most:
        raise SkillFileError(
            f"the subsets {subsets!r} have {len(groups)} groups, so ranks 1 to {len(groups)}, none of which is "
            f"within {rank_min} to {rank_max}; widen rank_min and rank_max, or name more groups"
        )
    chosen = combinations(groups, most, rank_min)
    for subset in chosen:
        if any(str(feature) not in tasks.task_map for feature in subset_features(subset)) or (
            tasks.key_of(subset) not in practised
        ):
            raise SkillFileError(
                f"the skills never learnt the subset {subset!r}; choose among those they did: "
                f"{', '.join(practised.values())}"
            )
    return [flatten_subset(subset) for subset in chosen]


class GoalInterface(nn.Module):
    """Turns decisions of a high level into the inputs of a skill policy. B rows, n features, float32.

    `task_bits` [D, K] tells which positions of the task map a subset controls, `action_mask` [D, G] which entries of a
    subgoal a high level may use: the same without `mask_features`, numbers of features that keep the centre of their
    range; `entry_weight` [D, G] makes means of entries that it keeps. Acting multiplies by the mask; `translate` takes
    subgoals as they are. `members` [K] are the features by position, `subgoal_index[d]` the positions of subset d in
    the order in which it lists its features.

    With `delta_actions` every goal counts from the present features; otherwise those of delta features alone do.
    Its tensors are no parameters and stand in no checkpoint: the skill file and the configuration make them again.
    """

    task_bits: Tensor
    action_mask: Tensor
    entry_weight: Tensor
    members: Tensor
    _psi: Tensor
    _inverse: Tensor
    _offset: Tensor
    _centre: Tensor
    _stays: Tensor
    _twist: Tensor

    def __init__(
        self,
        space: GoalSpace,
        subsets: Sequence[str],
        task_map: Mapping[str, int],
        *,
        delta_actions: bool = False,
        mask_features: Sequence[int] = (),
    ) -> None:
        super().__init__()
        if not subsets:
            raise ValueError("no goal spaces are selected; name at least one subset of features, such as '0,3,4'")
        self.space, self.tasks = space, TaskSet(space, task_map)
        self.subsets = tuple(flatten_subset(subset) for subset in subsets)
        self.delta_actions = delta_actions
        positions = self.tasks.task_map
        for subset in self.subsets:
            self.tasks.key_of(subset)  # refuses what is no subset of this task map
        self.subgoal_index = [[positions[feature] for feature in subset.split(",")] for subset in self.subsets]
        bits = np.stack([task_bits(subset, positions) for subset in self.subsets])
        members = self.tasks.members
        self._fill("task_bits", bits)
        mask = self._masked(bits, mask_features)
        self._fill("action_mask", mask)
        self._fill("entry_weight", mask / mask.sum(-1, keepdims=True))
        self.register_buffer("members", torch.from_numpy(members.astype(np.int64)), persistent=False)
        self._is_diagonal = not np.count_nonzero(space.psi - np.diag(np.diag(space.psi)))
        inverse = np.linalg.inv(space.psi)
        self._fill("_psi", np.diag(space.psi)[members] if self._is_diagonal else space.psi[members])
        self._fill("_inverse", np.diag(inverse)[members] if self._is_diagonal else inverse[np.ix_(members, members)])
        self._fill("_offset", space.offset[members])
        self._fill("_centre", space.offset1[members])
        self._fill("_stays", [float(feature not in space.delta) for feature in members.tolist()])
        self._wraps = any(feature in space.twist for feature in members.tolist())
        twist = torch.tensor([feature in space.twist for feature in members.tolist()])
        self.register_buffer("_twist", twist, persistent=False)

    @property
    def num_subsets(self) -> int:
        return len(self.subsets)

    @property
    def subgoal_size(self) -> int:
        return len(self.members)

    def _fill(self, name: str, values: np.ndarray | list[float]) -> None:
        self.register_buffer(name, torch.tensor(np.asarray(values), dtype=torch.float32), persistent=False)

    def _masked(self, bits: np.ndarray, mask_features: Sequence[int]) -> np.ndarray:
        positions, mask = self.tasks.task_map, bits.copy()
        for feature in mask_features:
            if str(feature) not in positions:
                raise ValueError(
                    f"mask_features names feature {feature}, which the skills have no goals for; choose among "
                    f"{self.tasks.members.tolist()}"
                )
            mask[:, positions[str(feature)]] = 0.0
        empty = [subset for subset, row in zip(self.subsets, mask, strict=True) if not row.any()]
        if empty:
            raise ValueError(
                f"mask_features {list(mask_features)} leave nothing to decide in the subset {empty[0]!r}; leave that "
                "subset out or mask fewer features"
            )
        return mask

    def translate(self, features: Tensor, subset: Tensor, subgoal: Tensor) -> tuple[Tensor, Tensor]:
        """What is left to go and the task bits, both [B, K], of decisions: subsets int64 [B], subgoals [B, G].

        Entries of a subgoal that the subset does not control have no effect. Goals of delta features do not depend on
        where the robot is, and are not rounded by it.
        """
        task = self.task_bits[subset]
        goal, here = subgoal * task, features[:, self.members]
        if self._is_diagonal:
            away = goal * self._inverse
            if not self.delta_actions:
                away = away + self._centre - here * self._stays
        else:
            if self.delta_actions:
                goal = goal + self._project(features) * task
            away = (goal[:, None, :] * self._inverse).sum(-1) + self._centre
            away = away - (here if self.delta_actions else here * self._stays)
        return self._wrapped(away) * task, task

    def carry(self, features: Tensor, next_features: Tensor, desired_goal: Tensor, task: Tensor) -> Tensor:
        """What is left to go after a step, [B, K]: the target of the decision stays where it is."""
        moved = (features - next_features)[:, self.members]
        return self._wrapped(moved + desired_goal) * task

    def distance(self, features: Tensor, subset: Tensor, subgoal: Tensor) -> Tensor:
        """How far the features are from projected goals that count from nowhere, [B]: a diagnosis, angles unwrapped."""
        away = (subgoal - self._project(features)) * self.task_bits[subset]
        return torch.linalg.vector_norm(away, dim=-1)

    def reward(self, features: Tensor, next_features: Tensor, subset: Tensor, subgoal: Tensor) -> Tensor:
        """By how much a step lessened that distance, [B]."""
        return self.distance(features, subset, subgoal) - self.distance(next_features, subset, subgoal)

    def describe(self) -> list[str]:
        """One line per goal space: its number, its features, their names."""
        width = max(len(subset) for subset in self.subsets)
        return [
            f"{number:3d}  {subset:<{width}}  {', '.join(self.space.names[f] for f in subset_features(subset))}"
            for number, subset in enumerate(self.subsets)
        ]

    def _project(self, features: Tensor) -> Tensor:
        """The features of the task map in projected units, [B, K]."""
        if self._is_diagonal:
            return features[:, self.members] * self._psi + self._offset
        return (features[:, None, :] * self._psi).sum(-1) + self._offset

    def _wrapped(self, away: Tensor) -> Tensor:
        if not self._wraps:
            return away
        return torch.where(self._twist, torch.remainder(away + math.pi, 2.0 * math.pi) - math.pi, away)


def _natural(text: str) -> list[tuple[int, str]]:
    """A key that sorts numbers within a text by their value."""
    return [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in re.findall(r"\d+|\D+", text)]
