"""Where a cast plays: the environment as agents, rows that are filled again and again, and what goes on between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gaitway.core.ranks import shared_stream
from gaitway.core.seeding import restore_stream
from gaitway.core.wiring import check_wiring
from gaitway.core.workspace import Workspace
from gaitway.envs.env_agent import episode_ends
from gaitway.envs.vec_env import VecEnv
from gaitway.rewards.source import Rewards
from gaitway.runners.capacity import check_rows
from gaitway.runners.cast import Cast, make_world, mentions


class Stage:
    """`rows` steps of every instance of `env`, in one workspace that keeps its memory, `rollout`.

    A filling goes on from the one before: what agents remember behind the last row is carried to row 0.
    """

    def __init__(self, env: VecEnv, cast: Cast, rewards: Rewards, algorithm: Any, rows: int, seed: int) -> None:
        self.env, self.cast, self.rows = env, cast, rows
        others = mentions(cast, rewards, algorithm)
        self.world = make_world(env, cast, others)
        self.variables = self.world.variables(rows) | cast.variables(env.num_envs, rows)
        self.variables |= rewards.variables(env.num_envs, rows)
        check_rows(self.variables.values(), env.num_envs, rows, env.device)
        self.rollout = Workspace.dense(self.variables, env.device, extra_row=cast.memories())
        self.wiring = check_wiring([self.world.observe, *cast.agents, self.world.advance, *others], self.rollout)
        self.stream = shared_stream(seed, "policy", env.device)
        self._over_time = cast.over_time(self.world, algorithm.execution)
        self._was_filled = False
        self._ended: Tensor | None = None

    @torch.inference_mode()
    def play(self, start: int, stop: int, **options: Any) -> None:
        """Fill the rows `start <= t < stop`; agents get the `options` that they declare."""
        ws = self.rollout
        if start == 0 and self._was_filled:
            for name in self.cast.memories():
                ws.put(name, 0, ws.at(name, ws.T))
        ended = self._ended if start == 0 else None
        self._over_time(ws, start, n_steps=stop - start, ended=ended, stochastic=True, generator=self.stream, **options)
        if start == 0:
            self.cast.fill(ws, self.rows)
        if stop == self.rows:
            self._ended, self._was_filled = episode_ends(ws)[-1].clone(), True

    def new_episodes(self) -> None:
        """Every instance has begun a new episode: what was remembered of the old ones is dropped before the next
        row."""
        self._ended = torch.ones(self.env.num_envs, dtype=torch.bool, device=self.env.device)

    def state_dict(self) -> dict[str, Any]:
        return {
            "env": self.env.state_dict(),
            "carried": self.cast.carried(self.rollout),
            "ended": self._ended,
            "filled": self._was_filled,
            "policy_stream": self.stream.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.world.restore(self.env.load_state_dict(state["env"]))
        for name, value in state.get("carried", {}).items():  # checkpoints of off-policy runs had none once
            self.rollout.put(name, self.rows, value.to(self.env.device))
        ended = state.get("ended")
        self._ended = None if ended is None else ended.to(self.env.device)
        restore_stream(self.stream, state["policy_stream"])
        # checkpoints of before did not say it: they had been filled in every iteration
        self._was_filled = state["filled"] if "filled" in state else state["iteration"] > 0
