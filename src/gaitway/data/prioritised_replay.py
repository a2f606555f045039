"""PrioritisedReplay: a StepReplay that draws in proportion to how much there is to learn.

Schaul et al. 2016, "Prioritized experience replay" (arXiv 1511.05952), the proportional variant. Transition i has the
priority `p_i = |delta_i| + eps` of the last time it was learnt from, and is drawn with probability
`P(i) = p_i^alpha / sum_k p_k^alpha`. Its importance weight is `(N P(i))^-beta`, divided by the largest there is. New
transitions get the largest priority seen so far, so that each is likely to be learnt from at least once. What a
StepReplay would not draw (steps without their n steps, rows of a reset, rows that are too old) has priority 0.

An update is: `draw`, `gather` (which adds the field `weight`), learn, `update_priorities`. All four look at no value
and have static shapes. To record several updates as one program draw `tickets` before it and `locate` them inside:
each then sees the priorities that the update before it left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gaitway.core.workspace import Workspace
from gaitway.data.ring import Fields, Variable
from gaitway.data.step_gather import TransitionBatch
from gaitway.data.step_replay import StepReplay
from gaitway.data.sum_tree import SumTree

TICKETS = 2**53
"""Tickets are integers below this: as many as float64 has numbers of equal distance from 0 to 1."""


class PrioritisedReplay(StepReplay):
    """Arguments are those of `StepReplay`, and

    - `alpha`: how much priorities count, from 0 (draws are uniform) to 1;
    - `beta`: how much of the bias is corrected, from 0 (not at all) to 1; `set_beta` changes it;
    - `eps`: added to every error, so that nothing is lost for ever;
    - `stratified`: a batch of n takes one draw from each n-th part of the total, which varies less than n free draws.

    Windows (`sample`) are drawn uniformly, whatever their priorities.
    """

    def __init__(
        self,
        capacity: int,
        num_envs: int,
        groups: Fields,
        action: Variable | None,
        *,
        alpha: float = 0.6,
        beta: float = 0.4,
        eps: float = 1e-6,
        stratified: bool = True,
        **options: Any,
    ) -> None:
        if not (alpha >= 0.0 and 0.0 <= beta <= 1.0 and eps > 0.0):
            raise ValueError(f"alpha, beta and eps are {alpha}, {beta}, {eps}; use alpha >= 0, 0 <= beta <= 1, eps > 0")
        super().__init__(capacity, num_envs, groups, action, **options)
        self.tree = SumTree(self.num_slots, self.device)
        self.alpha, self.eps, self.stratified = alpha, eps, stratified
        with torch.inference_mode(False):
            self.beta = torch.tensor(beta, dtype=torch.float64, device=self.device)
            """A tensor that stays in place, for programs that read it."""
            self.largest = torch.ones((), dtype=torch.float64, device=self.device)
            """The largest `p^alpha` seen so far, which new transitions get."""
        self._drawn_rows = (self.first_row, self.stop_row)

    @staticmethod
    def bytes_needed(
        capacity: int, num_envs: int, groups: Fields, action: Variable | None, *, n_step: int = 1, **options: Any
    ) -> int:
        """Memory of a replay with these arguments, priorities included."""
        steps = StepReplay.bytes_needed(capacity, num_envs, groups, action, n_step=n_step, **options)
        return steps + SumTree.bytes_needed((capacity // num_envs + 2 * n_step) * num_envs)

    def add(self, ws: Workspace, start: int = 0, stop: int | None = None, truncated: Tensor | None = None) -> None:
        """As `StepReplay.add`; what can be drawn from now on gets the largest priority."""
        try:
            super().add(ws, start, stop, truncated)
        finally:  # a part may have been added before the rest was refused
            self._follow()

    def cut(self) -> None:
        """As `StepReplay.cut`."""
        super().cut()
        self._follow()

    def batch(self, n: int) -> TransitionBatch:
        """Memory for n transitions and their weights, for `gather`."""
        batch = super().batch(n)
        with torch.inference_mode(False):
            batch.fields["weight"] = torch.ones(n, device=self.device)
        return batch

    def draw(self, shape: tuple[int, ...], out: Tensor | None = None) -> Tensor:
        """Draws in proportion to `p^alpha`, int64, for `gather` and `update_priorities`; into `out` if given.

        The last axis of `shape` is a batch: strata divide it.
        """
        return self.locate(self.tickets(shape, out), out)

    def tickets(self, shape: tuple[int, ...], out: Tensor | None = None) -> Tensor:
        """Random integers, int64: each is a draw to be made by `locate`."""
        if self.size == 0:
            raise ValueError(f"the replay has no whole transition to draw; add {self.n_step} steps or more first")
        if out is None:
            out = torch.empty(shape, dtype=torch.int64, device=self.device)
        elif out.shape != shape:
            raise ValueError(f"out is {list(out.shape)} and {list(shape)} draws are asked for; both must agree")
        return out.random_(0, TICKETS, generator=self.generator)

    def locate(self, tickets: Tensor, out: Tensor | None = None) -> Tensor:
        """The transitions that `tickets` draw by the priorities of now; into `out`, which may be `tickets` itself."""
        share = tickets.to(torch.float64) / TICKETS
        if self.stratified:
            batch = tickets.shape[-1]
            share = (share + torch.arange(batch, device=self.device)) / batch
        index = self.tree.find(share.flatten()).view(tickets.shape)
        return index if out is None else out.copy_(index)

    def gather(self, index: Tensor, out: TransitionBatch | None = None) -> dict[str, Tensor]:
        """As `StepReplay.gather`, with the field `weight` [n]: `(N P)^-beta` divided by the largest in the replay."""
        fields = super().gather(index, out)
        # N and the sum of the weights are common to both: (N P_i)^-beta / (N P_least)^-beta = (P_least / P_i)^beta
        weight = (self.tree.least / self.tree.weights.index_select(0, index)).clamp_max_(1.0).pow_(self.beta)
        if out is None:
            fields["weight"] = weight.float()
        else:
            fields["weight"].copy_(weight)
        return fields

    @torch.no_grad()
    def update_priorities(self, index: Tensor, error: Tensor) -> None:
        """The transitions `index` [n] of a draw were learnt from and had these errors [n], of either sign.

        Call it before the next `add`, which may put other steps in their place. Of one drawn twice the larger counts.
        """
        if error.shape != index.shape:
            raise ValueError(f"error is {list(error.shape)} and index {list(index.shape)}; pass one error per draw")
        weight = (error.abs().to(torch.float64) + self.eps).pow_(self.alpha)
        # what is no longer drawn stays out
        weight = torch.where(self.tree.weights.index_select(0, index) > 0, weight, 0)
        self.tree.update(index, weight)
        torch.maximum(self.largest, weight.amax(), out=self.largest)

    def set_beta(self, beta: float) -> None:
        """Change how much of the bias is corrected; programs that were captured see it."""
        if not 0.0 <= beta <= 1.0:
            raise ValueError(f"beta is {beta}; use a number from 0 to 1")
        self.beta.fill_(beta)

    def to(self, device: torch.device | str) -> PrioritisedReplay:
        """Move steps, priorities, and all future additions and draws, to `device`."""
        super().to(device)
        self.tree.to(self.device)
        with torch.inference_mode(False):
            self.beta, self.largest = self.beta.to(self.device), self.largest.to(self.device)
        return self

    # State: as StepReplay, and a ReplayJournal writes it alike; priorities change, so they are part of the bookkeeping

    def clear(self, first_row: int = 0) -> None:
        """Forget all steps and priorities; the next step to come is time row `first_row`."""
        super().clear(first_row)
        self.tree.clear()
        self.largest.fill_(1.0)
        self._drawn_rows = (self.first_row, self.stop_row)

    def bookkeeping(self) -> dict[str, Any]:
        priorities = {"alpha": self.alpha, "eps": self.eps, "beta": float(self.beta), "largest": float(self.largest)}
        return super().bookkeeping() | {"priorities": priorities | {"tree": self.tree.state_dict()}}

    def check_bookkeeping(self, state: Mapping[str, Any]) -> None:
        """Refuse the bookkeeping of a replay that this one cannot go on as."""
        super().check_bookkeeping(state)
        if "priorities" not in state:
            raise ValueError("the stored replay has no priorities; read it into a StepReplay, or begin with a new one")
        for name in ("alpha", "eps"):
            mine, stored = getattr(self, name), state["priorities"][name]
            if mine != stored:
                raise ValueError(f"the stored replay has {name} {stored}, this one {mine}; make them equal")

    def load_bookkeeping(self, state: Mapping[str, Any]) -> None:
        self.check_bookkeeping(state)
        super().load_bookkeeping(state)
        priorities = state["priorities"]
        self.tree.load_state_dict(priorities["tree"])
        self.beta.fill_(priorities["beta"])
        self.largest.fill_(priorities["largest"])
        self._drawn_rows = (self.first_row, self.stop_row)

    # Private

    def _follow(self) -> None:
        """Give weight to the time rows that can be drawn since the last call, and take it from those that cannot."""
        old_first, old_stop = self._drawn_rows
        first, stop = self.first_row, self.stop_row
        self._drawn_rows = (first, stop)
        gone = self.slots(old_first, min(first, old_stop), drawn=False)
        new = self.slots(max(first, old_stop), stop)
        if len(gone) or len(new):
            # a slot may be in both, and then the larger counts
            weight = torch.cat((torch.zeros(len(gone), device=self.device), self.largest.expand(len(new))))
            self.tree.update(torch.cat((gone, new)), weight)
