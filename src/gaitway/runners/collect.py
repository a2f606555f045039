"""Recording a dataset: a policy plays, and every step is kept.

with make_env("Pendulum-v1", num_envs=4) as env, TrajectoryWriter("data/random", env.spec) as writer:
    collect_steps(env, RandomPolicy(env.spec.action, stream(0, "policy")), writer, 10_000)
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from gaitway.core.transitions import over_events
from gaitway.core.workspace import Variable, Workspace
from gaitway.data.trajectories import TrajectoryWriter
from gaitway.envs.env_agent import EnvAgent
from gaitway.envs.vec_env import ActionSpec, Observation, VecEnv
from gaitway.runners.episodes import EpisodeStatistics
from gaitway.runners.evaluate import Actor
from gaitway.runners.upkeep import counted_steps

ROWS = 256
"""Steps of every environment that are kept in memory before the writer gets them."""
ALL = 10**9


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


@torch.no_grad()
def collect_steps(
    env: VecEnv,
    act: Actor,
    writer: TrajectoryWriter,
    steps: int,
    report: Callable[[int, EpisodeStatistics], None] = lambda made, episodes: None,
) -> EpisodeStatistics:
    """Play at least `steps` steps from new episodes on and add them to `writer`; returns the episodes that ended.

    Those under way at the end are cut off, as if by a time limit. `report` is called now and then, with the steps so
    far.
    """
    world, action = EnvAgent(env, metrics=()), env.spec.action
    episodes, made = EpisodeStatistics(env.num_envs, ALL, env.spec.events), 0
    writer.cut()
    world.restore(env.reset())
    act.reset()
    while made < steps:
        rows = min(ROWS, math.ceil((steps - made) / env.num_envs))
        variables = world.variables(rows) | {"action": Variable(rows, env.num_envs, action.shape, action.dtype)}
        ws = Workspace.dense(variables, env.device)
        _play(world, act, ws)
        writer.add(ws)
        episodes.add(ws)
        made += counted_steps(ws)
        report(made, episodes)
    writer.cut()
    return episodes


def _play(world: EnvAgent, act: Actor, ws: Workspace) -> None:
    """Fill all rows of the workspace."""
    observe, advance = (part.prepared_step(ws, {}) for part in (world.observe, world.advance))
    for t in range(ws.T):
        observe(t)
        assert world.current is not None
        ws.put("action", t, act(world.current))
        advance(t)
        ended = ws.at("env/done", t)
        act.reset(ended | ~ws.at("env/valid", t) if "env/valid" in ws else ended)
