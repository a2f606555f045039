"""Transitions n steps long of step rows, for targets that look further ahead than one reward.

    fields = n_step_transitions(ws, n=3, gamma=0.99)
    goes_on = fields["n_step/discount"] * ~fields["terminated"]
    target = fields["n_step/return"] + goes_on * value(fields["next_obs/policy"])

Frame streams have `frames.pairs.n_step_pairs`; a replay that stores each step once has `data.step_replay.StepReplay`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from gaitway.core.transitions import fields_at
from gaitway.core.workspace import Workspace


def n_step_transitions(ws: Workspace, n: int, gamma: float, *, partial: bool = False) -> dict[str, Tensor]:
    """The fields of `ws.transitions()`, each `[N, *e]` by t and then by column, of steps t to t+k-1 as one transition.

    `k = min(n, steps to the end of the episode, that step included)`. `next_obs/<group>` is the observation really
    reached after k steps, `terminated` and `truncated` are flags of step t+k-1, all other fields are of step t. Added:
    `n_step/return` (sum over i < k of `gamma^i reward[t+i]`), `n_step/steps` (k, int64), `n_step/discount` (`gamma^k`).
    Only `terminated` stops the bootstrap: a time limit bootstraps from the final observation.

    Where the rows end before n steps and before the episode does, the transition is dropped, or kept with the shorter
    k if `partial`. Rows with `env/valid` false are dropped. `n=1` gives `ws.transitions()`.
    """
    if n < 1:
        raise ValueError(f"n is {n}; look at least one step ahead")
    steps, batch = ws.T, ws.B
    reward, done = ws["env/reward"], ws["env/done"] != 0
    valid = ws["env/valid"] if "env/valid" in ws else torch.ones_like(done)
    ahead = torch.zeros(steps, batch, dtype=torch.int64, device=done.device)
    total, alive = torch.zeros_like(reward), valid.clone()
    for i in range(min(n, steps)):
        rows = steps - i  # rows 0..rows-1 have a row i later
        goes_on = alive[:rows].clone()
        total = total + F.pad(gamma**i * torch.where(goes_on, reward[i:], 0.0), (0, 0, 0, i))
        ahead[:rows] += goes_on
        alive[:rows] = goes_on & ~done[i:]
    # still alive with fewer than n steps: the rows ended before the episode did
    keep = valid & (partial | ~alive | (ahead == n))
    first = keep.flatten().nonzero().squeeze(1)
    k = ahead.flatten()[first]
    powers = torch.tensor([gamma**i for i in range(n + 1)], dtype=torch.float64).to(reward.dtype).to(k.device)
    extra = {"return": total.flatten()[first], "steps": k, "discount": powers[k]}
    return fields_at(ws, first, first + (k - 1) * batch) | {f"n_step/{name}": values for name, values in extra.items()}
