"""Recording a dataset: a policy plays, and every step is kept.

with make_env("Pendulum-v1", num_envs=4) as env, TrajectoryWriter("data/random", env.spec) as writer:
    collect_steps(env, RandomPolicy(env.spec.action, stream(0, "policy")), writer, 10_000)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gaitway.core.transitions import over_events
from gaitway.core.workspace import Variable, Workspace
from gaitway.data.episodes import TRUNCATED, DatasetError, Episodes
from gaitway.data.trajectories import TrajectoryWriter
from gaitway.envs.env_agent import EnvAgent
from gaitway.envs.spec import ActionSpec, EnvSpec
from gaitway.envs.vec_env import Observation, VecEnv
from gaitway.runners.episodes import EpisodeStatistics
from gaitway.runners.evaluate import Actor
from gaitway.runners.upkeep import counted_steps

ROWS = 256
"""Steps of every environment that are kept in memory before the writer gets them."""
ALL = 10**9
LABEL = "teacher/action"
SUCCESS = ("success", "is_success")
"""Metrics that say that an episode reached what it was meant to."""
PATIENCE_S = 60.0
"""How long a recording may go on without a row that is kept."""


class RandomPolicy:
    """Any action, each as likely as any other; or those of another policy, with a share of such actions among them."""

    def __init__(
        self, action: ActionSpec, generator: torch.Generator, policy: Actor | None = None, share: float = 1.0
    ) -> None:
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"the share of random actions is {share}; use a number from 0 to 1")
        if action.kind == "continuous" and not all(map(math.isfinite, (*action.low, *action.high))):
            raise ValueError("the actions have no limits to draw between; record a policy instead of random actions")
        self.action, self.generator, self.policy, self.share = action, generator, policy, share

    def __call__(self, obs: Observation) -> Tensor:
        """Actions [B, ...] for observations `{group: [B, ...]}`."""
        first = next(iter(obs.values()))
        drawn = self._draw(len(first), first.device)
        if self.policy is None:
            return drawn
        chosen = torch.rand(len(first), generator=self.generator, device=first.device) < self.share
        return torch.where(over_events(chosen, drawn), drawn, self.policy(obs))

    def reset(self, mask: Tensor | None = None) -> None:
        if self.policy is not None:
            self.policy.reset(mask)

    def _draw(self, batch: int, device: torch.device) -> Tensor:
        action = self.action
        unit = torch.rand(batch, len(action.names), generator=self.generator, device=device, dtype=torch.float64)
        if action.kind == "continuous":
            low, high = (torch.tensor(limit, dtype=torch.float64, device=device) for limit in (action.low, action.high))
            return torch.lerp(low.expand_as(unit), high.expand_as(unit), unit).to(action.dtype)
        choices = torch.tensor(action.choices, device=device)
        drawn = (unit * choices).long() + torch.tensor(action.start or [0] * len(action.choices), device=device)
        return drawn.view(batch, *action.shape)


class Taught:
    """A teacher that labels every step (`teacher/action`) and drives a share of the episodes; `student` drives the
    others, all of them the teacher as long as there is none."""

    def __init__(self, teacher: Actor, generator: torch.Generator, student: Actor | None = None, share: float = 0.0):
        self.teacher, self.student, self.share, self.generator = teacher, student, share, generator
        self.label: Tensor | None = None
        """What the teacher said in the last call, [B, ...]."""
        self._drives: Tensor | None = None

    def __call__(self, obs: Observation) -> Tensor:
        self.label = self.teacher(obs)
        if self.student is None:
            return self.label
        own = self.student(obs)
        if self._drives is None:
            self._drives = self._drawn(len(own), own.device)
        return torch.where(over_events(self._drives, own), self.label.to(own.dtype), own)

    def reset(self, mask: Tensor | None = None) -> None:
        """Both forget, and who drives is drawn anew: of all instances, or of those where `mask` [B] is true."""
        for each in (self.teacher, self.student):
            if each is not None:
                each.reset(mask)
        if mask is None or self._drives is None:
            self._drives = None
        else:
            self._drives = torch.where(mask.bool(), self._drawn(len(mask), mask.device), self._drives)

    def _drawn(self, batch: int, device: torch.device) -> Tensor:
        drawn = torch.rand(batch, generator=self.generator, device=self.generator.device)
        return (drawn < self.share).to(device)


@dataclass(frozen=True)
class Least:
    """When a recording is long enough: after so many steps and so many complete episodes."""

    steps: int = 0
    episodes: int = 0


def success_metric(spec: EnvSpec) -> str | None:
    """The metric that says whether an episode succeeded; None: those that a time limit cuts off count as such."""
    return next((name for name in SUCCESS if name in spec.metrics), None)


def successful(metric: str | None) -> Callable[[Episodes], list[bool]]:
    """Which episodes succeeded: those in which `metric` was above 0, or without one those that lasted to the end."""

    def chosen(episodes: Episodes) -> list[bool]:
        if metric is not None:
            parts = torch.split(episodes.variables[f"env/metric/{metric}"], list(episodes.lengths))
            return [bool((part > 0).any()) for part in parts]
        ends = torch.tensor(episodes.lengths).cumsum(0) - 1
        return episodes.variables[TRUNCATED][ends].tolist()

    return chosen


@torch.no_grad()
def collect_steps(
    env: VecEnv,
    act: Actor,
    writer: TrajectoryWriter,
    steps: int | Least,
    report: Callable[[int, EpisodeStatistics], None] = lambda made, episodes: None,
    *,
    refresh: Callable[[], bool] = lambda: False,
    patience_s: float = PATIENCE_S,
) -> EpisodeStatistics:
    """Play at least `steps` steps from new episodes on and add them to `writer`; returns the episodes that ended.

    Those under way at the end are cut off, as if by a time limit; a writer that chooses gets none of them, and counts
    what it has kept. `refresh` is called before every few hundred rows, and ends the recording by True; `report` after
    them, with the steps so far. A minute without a row that is kept is a DatasetError.
    """
    least = steps if isinstance(steps, Least) else Least(steps)
    metrics = [name for name in env.spec.metrics if f"env/metric/{name}" in writer.extras]
    world, action = EnvAgent(env, metrics=metrics), env.spec.action
    episodes, made = EpisodeStatistics(env.num_envs, ALL, env.spec.events), 0
    writer.cut()
    before, kept, last_row = (writer.added_steps, writer.added_episodes), 0, time.monotonic()
    world.restore(env.reset())
    act.reset()
    while made < least.steps or writer.added_episodes - before[1] < least.episodes:
        if refresh():
            break
        left = math.ceil((least.steps - made) / env.num_envs)
        rows = min(ROWS, left) if left > 0 and not least.episodes and writer.choose is None else ROWS
        variables = world.variables(rows) | {"action": Variable(rows, env.num_envs, action.shape, action.dtype)}
        if LABEL in writer.extras:
            variables[LABEL] = variables["action"]
        ws = Workspace.dense(variables, env.device)
        _play(world, act, ws)
        env.check_workers()  # a device tells of bad actions when it is asked
        writer.add(ws)
        episodes.add(ws)
        made = made + counted_steps(ws) if writer.choose is None else writer.added_steps - before[0]
        if made > kept:
            kept, last_row = made, time.monotonic()
        elif time.monotonic() - last_row >= patience_s:
            writer.flush()
            raise DatasetError(
                f"no episode that is kept in {patience_s:.0f} seconds ({episodes.finished} ended, "
                f"{writer.added_episodes - before[1]} were kept); record a better policy, or without --success-only"
            )
        report(made, episodes)
    if writer.choose is None:
        writer.cut()
    else:
        writer.drop(torch.ones(env.num_envs, dtype=torch.bool))
    return episodes


def _play(world: EnvAgent, act: Actor, ws: Workspace) -> None:
    """Fill all rows of the workspace."""
    observe, advance = (part.prepared_step(ws, {}) for part in (world.observe, world.advance))
    for t in range(ws.T):
        observe(t)
        assert world.current is not None
        ws.put("action", t, act(world.current))
        if LABEL in ws:
            label = getattr(act, "label", None)
            assert label is not None, "labels are recorded, and nobody gives them"
            ws.put(LABEL, t, label)
        advance(t)
        ended = ws.at("env/done", t)
        act.reset(ended | ~ws.at("env/valid", t) if "env/valid" in ws else ended)
