"""Rules about the ends of episodes, judged on a whole recorded run."""

from __future__ import annotations

import torch
from torch import Tensor

from gaitway.envs.check_trace import Findings, Trace, same
from gaitway.envs.spec import EnvSpec


def check_reset_rows(trace: Trace, valid: Tensor, spec: EnvSpec, findings: Findings) -> None:
    """`valid` `[T, B]` is false exactly in the step after an end, if there are such rows, and nothing happens there."""
    previous_end = torch.cat([torch.zeros_like(trace.done[:1]), trace.done[:-1]])
    expected = ~previous_end if spec.reset_rows else torch.ones_like(valid)
    if not torch.equal(valid, expected):
        rule = "it must be false exactly in the step after an end" if spec.reset_rows else "the spec has no reset rows"
        findings.add("valid rows", f"valid is wrong: {rule}")
    if (~valid & (trace.done | (trace.rows["reward"] != 0))).any():
        findings.add("reset row", "a reset row (valid false) must have reward 0 and no flag")


def check_final_obs(trace: Trace, spec: EnvSpec, findings: Findings) -> None:
    """Where nothing ended final_obs is obs; where something did it is neither the new start nor the old sight."""
    before = {group: trace.before(group) for group in spec.group_names}
    obs = {group: trace.rows[f"obs/{group}"] for group in spec.group_names}
    final = {group: trace.rows[f"final_obs/{group}"] for group in spec.group_names}
    arrived = _equal(final, obs)
    if ((~trace.done | spec.reset_rows) & ~arrived).any():
        findings.add("final differs", "final_obs differs from obs where no episode was reset; they must be equal")
    done = trace.done
    if spec.final_observations == "previous":
        if (done & ~_equal(final, before)).any():
            findings.add("final", "final_obs is not the observation before the last step, which the spec says it is")
        return
    if spec.reset_rows or not done.any() or _equal(obs, before)[~done].all():
        return  # an observation that never changes says nothing about ends
    if arrived[done].all():
        findings.add(
            "final is reset",
            "final_obs equals obs at every episode end; it must be the state really reached, "
            "while obs is the first observation of the new episode",
        )
    elif _equal(final, before)[done].all():
        findings.add("final is old", "final_obs repeats the observation before the last step of an episode")


def check_lengths(trace: Trace, valid: Tensor, spec: EnvSpec, findings: Findings) -> None:
    """Episode ages, and what happens at the time limit."""
    limit = spec.max_episode_steps
    age = torch.zeros_like(trace.rows["elapsed"][0])
    falls_at_limit = 0
    for row in range(trace.length):
        age = torch.where(valid[row], age + 1, 0)
        if limit and bool((age > limit).any()):
            findings.add("too long", f"an episode is longer than max_episode_steps = {limit}")
        falls_at_limit += int((trace.rows["terminated"][row] & (age == limit)).sum()) if limit else 0
        age = age if spec.reset_rows else torch.where(trace.done[row], 0, age)
        found = trace.rows["elapsed"][row]
        if not torch.equal(found, age):
            findings.add("elapsed", f"elapsed is {found.tolist()} after step {row}; it must be {age.tolist()}")
    if falls_at_limit and not trace.rows["truncated"].any():
        findings.add(
            "timeout", f"time-outs count as falls: every episode of {limit} steps ends terminated, none truncated"
        )


def _equal(left: dict[str, Tensor], right: dict[str, Tensor]) -> Tensor:
    """bool `[T, B]`: all groups are the same."""
    return torch.stack([same(left[group], right[group]).flatten(2).all(-1) for group in left]).all(0)
