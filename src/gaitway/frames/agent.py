"""An environment as one agent that comes first in a cast and writes frames: row t opens with its arrival.

    world = FrameAgent("CartPole-v1", num_envs=4, mode="framed")
    TemporalAgent(Agents(world, policy)).run(ws, n_steps=100)

Row t is what came of `action` of row t-1, so that a transition is a pair of rows (`Workspace.transitions(pairs=True)`,
`frames.pairs.pair_fields`). Row 0 resets every environment; rows after it go on, also those of a workspace whose row 0
was copied from the end of the last epoch (`frames.pairs.copy_last`). Two-step episodes with rewards 1 and 5,
observation `episode.step`, rows 0..5:

| mode | `env/obs` | done | `env/reward` | `env/cumulated_reward` | `env/timestep` |
|---|---|---|---|---|---|
| frozen  | 0.0 0.1 0.2 0.2 0.2 0.2 | 0 0 1 1 1 1 | 0 1 5 0 0 0 | 0 1 6 6 6 6 | 0 1 2 2 2 2 |
| framed  | 0.0 0.1 0.2 1.0 1.1 1.2 | 0 0 1 0 0 1 | 0 1 5 0 1 5 | 0 1 6 0 1 6 | 0 1 2 0 1 2 |
| compact | 0.0 0.1 1.0 1.1 2.0 2.1 | 0 0 1 0 1 0 | 0 1 5 1 5 1 | 0 1 6 1 6 1 | 0 1 2 1 2 1 |

A compact stream also has `env/final_obs/<group>`, the state really reached: 0.0 0.1 0.2 1.1 1.2 2.1. The house stream
is another one, step rows (`EnvAgent`); `frames.streams` converts exactly, both ways.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, Self

import gymnasium
import numpy as np
import torch
from torch import Tensor

from gaitway.core.agent import Agent
from gaitway.core.seeding import check_seed
from gaitway.core.transitions import over_events
from gaitway.core.workspace import Variable, Workspace
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Observation
from gaitway.frames.gymnasium_sources import Source, make_source
from gaitway.frames.normalise import FrameNormaliser
from gaitway.frames.sources import MODES
from gaitway.nn.normalise import RunningNorm

REWARDS = ("arrival", "departure")
POSITION = ("terminated", "truncated", "cumulated_reward", "timestep")
"""What a row says about where its episode stands."""


class FrameAgent(Agent):
    """Environments that write `env/obs/<group>`, `env/terminated`, `env/truncated`, `env/reward`,
    `env/cumulated_reward` and `env/timestep` of row t after reading `action` of row t-1.

    `source` is a gymnasium id, a factory (of one environment, of a vector environment or of a VecEnv), a list of
    factories or of environments, one environment, a gymnasium VectorEnv or a VecEnv. `mode` is "framed", "compact" or
    "frozen"; None is what the source does by itself: next-step resets (also an `Autoreset` wrapper) give framed,
    same-step resets compact, environments without any reset frozen. `reward` says where the reward for acting on row t
    stands: in row t+1 ("arrival") or in row t ("departure", 0 on the last row until the next step fills it in).

    `normalise` is True for own running statistics of every float group, or the normalisers to use by group; with
    `update_statistics=False` they are only read. `raw` also writes `env/raw_obs/<group>`. `one_hot` writes discrete
    observations as `GymnasiumEnv` does. `clip_actions` clips boxes on the way in; the workspace keeps what was written.
    """

    _place: Tensor

    def __init__(
        self,
        source: Source,
        num_envs: int | None = None,
        *,
        mode: str | None = None,
        reward: str = "arrival",
        seed: int = 0,
        action: str = "action",
        clip_actions: bool = False,
        one_hot: bool = False,
        normalise: bool | Mapping[str, RunningNorm] = False,
        update_statistics: bool = True,
        raw: bool = False,
        device: torch.device | str | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        if reward not in REWARDS:
            raise ValueError(f"reward is {reward!r}; use one of {REWARDS}")
        if mode is not None and mode not in MODES:
            raise ValueError(f"mode is {mode!r}; use one of {MODES}")
        self.source = make_source(source, num_envs, action, clip_actions, one_hot)
        self.mode = mode or self.source.modes[0]
        if self.mode not in self.source.modes:
            raise ValueError(f"{self.source.id} cannot give a {self.mode} stream: {self.source.remedy}")
        self.reward, self.num_envs = reward, self.source.num_envs
        self.normaliser: FrameNormaliser | None = None
        if normalise is not False:
            given = None if normalise is True else normalise
            self.normaliser = FrameNormaliser(self.source.groups, given, update_statistics)
        if raw and self.normaliser is None:
            raise ValueError("raw=True without normalise: the observations are raw already")
        self._raw_groups = self.normaliser.groups if raw and self.normaliser is not None else ()
        self.register_buffer("_place", torch.zeros(0), persistent=False)  # where `to` has put this agent
        self.to(self.source.device if device is None else device)
        self._restarts = 0
        self._position: dict[str, Tensor] | None = None
        self._shown: Observation = {}
        self.seed(seed)

    @property
    def writes(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(self.variables(1))

    @property
    def device(self) -> torch.device:
        """Where the rows are written."""
        return self._place.device

    @property
    def spec(self) -> EnvSpec:
        """What a policy is built from."""
        if self.source.spec is None:
            raise TypeError(
                f"the actions of {self.source.id} are no single variable; see action_space and action/<key>"
            )
        return self.source.spec

    @property
    def observation_space(self) -> gymnasium.Space:
        """Of one environment, where the source is gymnasium's."""
        return self.source.space("observation_space")

    @property
    def action_space(self) -> gymnasium.Space:
        return self.source.space("action_space")

    def variables(self, rows: int) -> dict[str, Variable]:
        """The variables of `rows` rows, for `Workspace.dense`; a frame stream has no extra row."""
        shapes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
        prefixes = ("env/obs/", "env/final_obs/") if self.mode == "compact" else ("env/obs/",)
        for group in self.source.groups:
            raw = ("env/raw_obs/",) if group.name in self._raw_groups else ()
            shapes |= {prefix + group.name: (group.shape, group.torch_dtype) for prefix in (*prefixes, *raw)}
        flags = ("terminated", "truncated", "done") if self.prefix else ("terminated", "truncated")
        shapes |= {f"env/{flag}": ((), torch.bool) for flag in flags}  # env/done is derived where there is no prefix
        shapes |= {"env/reward": ((), torch.float32), "env/cumulated_reward": ((), torch.float32)}
        shapes["env/timestep"] = ((), torch.int64)
        return {self.out(name): Variable(rows, self.num_envs, *value) for name, value in shapes.items()}

    def seed(self, seed: int) -> Self:
        """Restart the seeds: the j-th call at t=0 from now on resets environment k with `frame_seeds(seed, j, B)[k]`.
        Automatic resets pass no seed."""
        self._seed, self._restarts = check_seed(seed), 0
        return self

    def step(self, ws: Workspace, t: int, *, reset: bool = False) -> None:
        """Write row t. Row 0 starts new episodes everywhere, as does any row with `reset=True`."""
        self.prepared_step(ws, {"reset": reset})(t)

    def prepared_step(self, ws: Workspace, options: Mapping[str, Any]) -> Callable[[int], None]:
        reset = options.get("reset", False)
        put = {name: ws.copier(name) for name in self.writes}  # copies: the memory of a row is used again
        reward = self.out("env/reward")

        def step(t: int) -> None:
            starts = t == 0 or reset
            row = self._start() if starts else self._arrive(ws, t)
            if self.reward == "departure" and not starts:
                put[reward](t - 1, row[reward])
                row[reward] = torch.zeros_like(row[reward])
            for name, value in row.items():
                put[name](t, value)

        return step

    def render(self, index: int = 0, width: int = 640, height: int = 480) -> np.ndarray:
        """A picture of one environment as it stands, uint8 `[height, width, 3]`."""
        return self.source.render(index, width, height)

    def env_state_dict(self) -> dict[str, Any]:
        """The running episodes, seeds and counters: nested dicts of tensors and numbers. Statistics of the normaliser
        are in `state_dict`."""
        return {
            "seed": self._seed,
            "restarts": self._restarts,
            "position": dict(self._position or {}),
            "shown": {name: value.clone() for name, value in self._shown.items()},
            "source": self.source.state_dict() if self._position is not None else {},
        }

    def load_env_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `env_state_dict` was called: the next call at t > 0 continues the episodes, where the environment
        can be restored; where it cannot, a warning says so and the next call must start at t=0."""
        self._seed, self._restarts = int(state["seed"]), int(state["restarts"])
        self._position, self._shown = None, {}
        if not state["position"]:
            return
        found = len(state["position"]["timestep"])
        if found != self.num_envs:
            raise ValueError(f"the state holds {found} environments, this agent has {self.num_envs}")
        if not state["source"]:
            warnings.warn(f"the state of {self.source.id} could not be stored; start again at t=0", stacklevel=2)
            return
        self._position = {name: value.clone().to(self.source.device) for name, value in state["position"].items()}
        self._shown = {name: value.clone().to(self.device) for name, value in state["shown"].items()}
        self.source.load_state_dict(state["source"], self._ended(self._position))

    def close(self) -> None:
        """Free what the environments hold."""
        self.source.close()

    def _start(self) -> dict[str, Tensor]:
        if self.normaliser is not None:
            self.normaliser.check_statistics()
        obs = self.source.reset(frame_seeds(self._seed, self._restarts, self.num_envs))
        self._restarts += 1
        zeros = torch.zeros(self.num_envs, device=self.source.device)
        self._position = dict(zip(POSITION, (zeros.bool(), zeros.bool(), zeros, zeros.long()), strict=True))
        return self._row(obs, obs, zeros, None, self._position["terminated"])

    def _arrive(self, ws: Workspace, t: int) -> dict[str, Tensor]:
        before = self._position
        if before is None:
            raise RuntimeError(f"row {t} has no episode to go on with; start at t=0 (or with reset=True)")
        ended = self._ended(before)
        step = self.source.step(ws, t - 1, ended, self.mode)
        reward, terminated, truncated = step.reward.float(), step.terminated, step.truncated
        total, count, new = before["cumulated_reward"], before["timestep"], None
        if self.mode == "compact":
            total, count = torch.where(ended, 0.0, total) + reward, torch.where(ended, 0, count) + 1
            terminated, truncated = terminated.clone(), truncated.clone()  # the source will use their memory again
        else:
            reward = torch.where(ended, 0.0, reward)
            if self.mode == "framed":  # an ended row is followed by one that only resets
                total, count = torch.where(ended, 0.0, total + reward), torch.where(ended, 0, count + 1)
                terminated, truncated = terminated & ~ended, truncated & ~ended
            else:
                total, count, new = total + reward, count + ~ended, ~ended
                terminated = torch.where(ended, before["terminated"], terminated)
                truncated = torch.where(ended, before["truncated"], truncated)
        self._position = dict(zip(POSITION, (terminated, truncated, total, count), strict=True))
        obs = step.final_obs if self.mode == "frozen" else step.obs
        return self._row(obs, step.final_obs, reward, new, terminated | truncated)

    def _row(
        self, obs: Observation, final_obs: Observation, reward: Tensor, new: Tensor | None, done: Tensor
    ) -> dict[str, Tensor]:
        """All variables of the row at the present position; `new` bool `[B]` is false where the last is repeated."""
        place = self.device
        obs = {name: value.to(place) for name, value in obs.items()}
        final = {name: value.to(place) for name, value in final_obs.items()} if self.mode == "compact" else {}
        raw = {name: obs[name] for name in self._raw_groups}
        if self.normaliser is not None:
            self.normaliser.observe(obs, None if new is None else new.to(place), final or None, done.to(place))
            obs, final = self.normaliser(obs), self.normaliser(final)
        named = {f"env/obs/{name}": value for name, value in obs.items()}
        named |= {f"env/final_obs/{name}": value for name, value in final.items()}
        named |= {f"env/raw_obs/{name}": value for name, value in raw.items()}
        if self.mode == "frozen":
            if new is not None:
                new = new.to(place)
                named = {
                    name: torch.where(over_events(new, value), value, self._shown[name])
                    for name, value in named.items()
                }
            self._shown = dict(named)
        assert self._position is not None
        named |= {f"env/{name}": value.to(place) for name, value in self._position.items()}
        named["env/reward"] = reward.to(place)
        if self.prefix:
            named["env/done"] = done.to(place)
        return {self.out(name): value for name, value in named.items()}

    @staticmethod
    def _ended(position: Mapping[str, Tensor]) -> Tensor:
        return position["terminated"] | position["truncated"]


def frame_seeds(seed: int, restart: int, num_envs: int) -> list[int]:
    """The seeds of all environments in start number `restart` under base seed `seed`: integers below 2^31."""
    sequences = [np.random.SeedSequence(seed, spawn_key=(restart, instance)) for instance in range(num_envs)]
    return [int(sequence.generate_state(1)[0]) & 0x7FFFFFFF for sequence in sequences]
