"""Critics of a choice among D tasks and of a goal in the chosen one, evaluated for all tasks at once.

Each critic reads X numbers, the task as one-hot columns, and the goal [G] in the columns of its task, all others 0: an
input of X + D + D G numbers (Gehring et al. 2021, "Hierarchical skills for efficient exploration"). Of these at most
X + 1 + G differ from 0, so the first product of a row that pursues task d needs those rows of the weights alone. For
all tasks of all observations the wide input is never written: with D2RL trunks, whose layers share one product of the
input, task d takes [x, goal, 1] times its own slice of the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gaitway.nn.constant_skip import in_place_values, runs_in_place
from gaitway.nn.ensemble import Ensemble
from gaitway.nn.multihead import expand_task_subgoal
from gaitway.nn.trunks import SkipTrunk

ALIGNMENT = 8
"""Rows of the sliced weights are filled up to a multiple of this many: fast matrix products ask for it."""


class TaskGoalCritics(nn.Module):
    """N critics of `inputs` numbers, one of `tasks` tasks and `goal` numbers; their values start at 0."""

    def __init__(self, members: int, inputs: int, tasks: int, goal: int, hidden: Sequence[int], **options: Any) -> None:
        """`options` are those of `Ensemble`."""
        super().__init__()
        self.inputs, self.tasks, self.goal = inputs, tasks, goal
        wide = inputs + tasks + tasks * goal
        self.critics = Ensemble(members, wide, hidden, 1, last_init="zero", **options)

    def forward(self, x: Tensor, task: Tensor, goal: Tensor) -> Tensor:
        """Values [N, B] of rows [B, X] with one-hot tasks [B, D] and goals [B, G]."""
        return self.critics(torch.cat((x, task, expand_task_subgoal(task, goal)), -1)).squeeze(-1)

    def everywhere(self, x: Tensor, goals: Tensor) -> Tensor:
        """Values [N, B, D] of rows [B, X] and a goal for each task, [B, D, G]."""
        network = self.critics.network
        trunk = network.trunk
        if not isinstance(trunk, SkipTrunk):
            return self._by_wide_rows(x, goals)
        rows, slices = self._sliced(trunk, x, goals)
        if runs_in_place(network):
            values = in_place_values(network, rows, slices)
        else:
            product = torch.bmm(rows, slices).view(self.critics.members, -1, slices.shape[-1])
            values = network.last(trunk.behind_input(product))  # of [N, D * B, sum of widths]
        return values.view(-1, self.tasks, len(x)).transpose(1, 2)

    def _sliced(self, trunk: SkipTrunk, x: Tensor, goals: Tensor) -> tuple[Tensor, Tensor]:
        """Rows [N * D, B, .] and slices of the weights [N * D, ., sum of widths], one of each per critic and task: the
        product of both is the part that the input has in all layers, biases included."""
        weight, bias, members = trunk.input.weight, trunk.bias, self.critics.members
        shared, chosen, wide = weight.split((self.inputs, self.tasks, self.tasks * self.goal), 1)
        slices = torch.cat(
            (
                shared.unsqueeze(1).expand(-1, self.tasks, -1, -1),
                wide.unflatten(1, (self.tasks, self.goal)),
                (chosen + bias).unsqueeze(2),
            ),
            2,
        )  # [N, D, X + G + 1, sum of widths]
        one = x.new_ones(self.tasks, len(x), 1)
        rows = torch.cat((x.expand(self.tasks, *x.shape), goals.transpose(0, 1), one), -1)  # [D, B, X + G + 1]
        missing = -rows.shape[-1] % ALIGNMENT
        if missing:
            slices, rows = F.pad(slices, (0, 0, 0, missing)), F.pad(rows, (0, missing))
        return rows.expand(members, *rows.shape).flatten(0, 1), slices.flatten(0, 1)

    def _by_wide_rows(self, x: Tensor, goals: Tensor) -> Tensor:
        """The same for any trunk, with the wide input written out."""
        count = len(x)
        tasks = torch.eye(self.tasks, dtype=x.dtype, device=x.device).repeat(count, 1)
        values = self(x.repeat_interleave(self.tasks, 0), tasks, goals.flatten(0, 1))
        return values.view(-1, count, self.tasks)
