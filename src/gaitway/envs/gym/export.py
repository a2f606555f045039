"""Native environments of the bipedal-skills benchmark as gymnasium environments: one instance, or many in one batch.

Both are views of the same batch, so that instance i of a `BiskVectorEnv` reset with seed s gives the numbers of a
`BiskEnv` reset with seed s + i, whatever the number of instances and threads. Without a seed a reset goes on with the
next episode of the same stream; the first one draws a seed.

Observations are dictionaries, the task's own keys first and then `observation`. Every step's info holds `score`,
`fell_over`, `physics_error` and other metrics of the task; the totals `episode_score`, `episode_return` and
`episode_length` belong to episodes that ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import DTypeLike

from gaitway.core.seeding import check_seed
from gaitway.envs.gym.held_batch import Arrays, ExportedBatch, Seeds
from gaitway.envs.pictures.viewer import Screen, open_screen
from gaitway.envs.vec_env import Observation

PICTURE = 480
"""Pixels per side of the benchmark's pictures."""
NO_PICTURE = "there is nothing to draw on; make the environment with render_mode='rgb_array'"


class BiskEnv(gymnasium.Env[Arrays, np.ndarray]):
    """One instance. `task` is a native id such as `walker/hurdles`; `options` are those of the task.

    Time limits are gymnasium's: `gymnasium.make` puts a TimeLimit around it, as long as the task's own, and takes
    another with `max_episode_steps`. Because only the wrapper knows when time is over, the info of every step holds the
    sums of the episode so far, which are its totals at the end.
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array"], "render_fps": 40}  # noqa: RUF012  gymnasium's

    def __init__(
        self,
        task: str,
        render_mode: str | None = None,
        width: int = PICTURE,
        height: int = PICTURE,
        dtype: DTypeLike = "float32",
        **options: Any,
    ) -> None:
        self.render_mode = _checked_mode(render_mode, self.metadata)
        self._native = ExportedBatch(task, 1, 1, dtype, {"max_episode_steps": 0, **options})
        self.observation_space = self._native.observation_space()
        self.action_space = self._native.action_space()
        self.metadata = {**self.metadata, "render_fps": round(1.0 / self.dt)}
        self._size = (width, height)
        self._screen: Screen | None = None
        self._has_ended = False

    @property
    def dt(self) -> float:
        """Seconds per step."""
        return self._native.env.spec.control_dt

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Arrays, dict[str, Any]]:
        super().reset(seed=None if seed is None else check_seed(seed))
        _refuse(options, ())
        obs = self._native.restart(np.zeros(1, dtype=np.int64), [seed], self.np_random)
        self._has_ended = False
        self._show()
        return self._native.observation(obs, 0), {}

    def step(self, action: np.ndarray) -> tuple[Arrays, float, bool, bool, dict[str, Any]]:
        if self._has_ended:
            raise gymnasium.error.ResetNeeded("the episode has ended; call reset() before the next step()")
        step, reward, info, sums = self._native.step(np.array(action, dtype=np.float64)[None])
        terminated, truncated = bool(step.terminated[0]), bool(step.truncated[0])
        self._has_ended = terminated or truncated
        self._show()
        told = {name: value[0].item() for name, value in (info | sums).items()}
        return self._native.observation(step.final_obs, 0), float(reward[0]), terminated, truncated, told

    def render(self) -> Any:
        """A picture, uint8 [height, width, 3], in mode rgb_array; windows (human) are drawn by reset and step."""
        if self.render_mode == "rgb_array":
            return self._native.env.render(0, *self._size)
        if self.render_mode is None:
            gymnasium.logger.warn(NO_PICTURE)
        return None

    def close(self) -> None:
        if self._screen is not None:
            self._screen.close()
            self._screen = None
        self._native.env.close()

    def _show(self) -> None:
        if self.render_mode != "human":
            return
        if self._screen is None:
            self._screen = open_screen(self._native.env, self._size)
        if self._screen.is_open:
            self._screen.show()


class BiskVectorEnv(VectorEnv[Arrays, np.ndarray, np.ndarray]):
    """`num_envs` instances in one native batch on `num_threads` threads (None: one per CPU).

    `autoreset_mode` says when ended instances begin anew: in the same step (`final_obs` and `final_info` then hold what
    was reached), in the next one, whose action is ignored and whose reward is 0, or by
    `reset(options={"reset_mask": mask})` alone. Infos are arrays [B]; `_score` and the like say where they are valid:
    for metrics wherever a step was taken, for the sums of episodes where one ended.
    """

    def __init__(
        self,
        num_envs: int,
        task: str,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        num_threads: int | None = None,
        render_mode: str | None = None,
        width: int = PICTURE,
        height: int = PICTURE,
        dtype: DTypeLike = "float32",
        **options: Any,
    ) -> None:
        if max_episode_steps is not None:
            # gymnasium writes -1 for no limit
            options["max_episode_steps"] = 0 if max_episode_steps == -1 else max_episode_steps
        self.autoreset_mode = _autoreset_mode(autoreset_mode)
        self.metadata = {"render_modes": ["rgb_array"], "autoreset_mode": self.autoreset_mode}
        self.render_mode = _checked_mode(render_mode, self.metadata)
        self._native = ExportedBatch(task, num_envs, num_threads, dtype, options)
        self.metadata["render_fps"] = round(1.0 / self._native.env.spec.control_dt)
        self.num_envs = num_envs
        self.single_observation_space = self._native.observation_space()
        self.observation_space = self._native.observation_space(num_envs)
        self.single_action_space = self._native.action_space()
        self.action_space = self._native.action_space(num_envs)
        self._size = (width, height)
        self._ended = np.zeros(num_envs, dtype=bool)

    def reset(
        self, *, seed: int | Seeds | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Arrays, dict[str, Any]]:
        """Begin new episodes, in all instances or in those of `options["reset_mask"]` (bool [B]).

        An integer s gives instance i the seed s + i; a list may hold None for instances that go on with their stream.
        """
        _refuse(options, ("reset_mask",))
        seeds = self._seeds(seed)
        super().reset(seed=seeds[0] if isinstance(seed, int | np.integer) else None)
        rows = np.flatnonzero(self._mask((options or {}).get("reset_mask")))
        obs = self._native.restart(rows, [seeds[row] for row in rows.tolist()], self.np_random)
        self._ended[rows] = False
        return self._native.observation(obs), {}

    def step(self, actions: np.ndarray) -> tuple[Arrays, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        waiting = self._ended
        action = np.array(actions, dtype=np.float64)
        if waiting.any():
            if self.autoreset_mode is AutoresetMode.DISABLED:
                raise gymnasium.error.ResetNeeded(
                    f"the episodes of instances {np.flatnonzero(waiting).tolist()} have ended; "
                    'call reset(options={"reset_mask": terminated | truncated}) before the next step'
                )
            if action.shape == self.action_space.shape:
                action[waiting] = 0.0  # whatever stands there is not for them
        step, reward, values, sums = self._native.step(action)
        moved = ~waiting
        terminated, truncated = step.terminated.numpy() & moved, step.truncated.numpy() & moved
        ended = terminated | truncated
        info = _masked(values, moved)
        if ended.any():
            info |= _masked(sums, ended)
        obs, begins = step.obs, waiting
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            begins = ended
            if ended.any():
                info |= {"final_obs": self._rows(step.final_obs, ended), "_final_obs": ended.copy()}
                info |= {"final_info": _masked(values | sums, ended), "_final_info": ended.copy()}
        if begins.any():
            # those that waited were moved along with the others, which their new beginning undoes
            rows = np.flatnonzero(begins)
            obs = self._native.restart(rows, [None] * len(rows), self.np_random)
            reward[waiting] = 0.0
        self._ended = ended & ~begins
        return self._native.observation(obs), reward, terminated, truncated, info

    def render(self) -> tuple[Any, ...] | None:
        """A picture of every instance, uint8 [height, width, 3] each."""
        if self.render_mode is None:
            gymnasium.logger.warn(NO_PICTURE)
            return None
        return tuple(self._native.env.render(index, *self._size) for index in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        self._native.env.close()

    def _rows(self, obs: Observation, mask: np.ndarray) -> np.ndarray:
        """Observations as gymnasium keeps final ones: an array of objects [B], a dictionary where `mask` holds."""
        rows = np.flatnonzero(mask)
        taken = self._native.observation(obs, rows)
        final = np.full(self.num_envs, None, dtype=object)
        for place, row in enumerate(rows.tolist()):
            final[row] = {key: value[place] for key, value in taken.items()}
        return final

    def _seeds(self, seed: int | Seeds | None) -> Seeds:
        if seed is None:
            return [None] * self.num_envs
        if not isinstance(seed, Sequence | np.ndarray) or isinstance(seed, str):
            return [check_seed(seed) + index for index in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(f"{len(seed)} seeds for {self.num_envs} instances; pass one integer or one per instance")
        return [None if each is None else check_seed(each) for each in seed]

    def _mask(self, given: Any) -> np.ndarray:
        if given is None:
            return np.ones(self.num_envs, dtype=bool)
        mask = np.asarray(given)
        if mask.dtype != bool or mask.shape != (self.num_envs,):
            raise ValueError(f"reset_mask is {mask.dtype} {list(mask.shape)}; pass {self.num_envs} booleans")
        return mask


def _masked(values: Mapping[str, np.ndarray], mask: np.ndarray) -> dict[str, Any]:
    """Infos as gymnasium's vector environments give them: arrays [B] that are 0 where `_name` is false."""
    info: dict[str, Any] = {}
    for name, value in values.items():
        info[name], info[f"_{name}"] = np.where(mask, value, np.zeros_like(value)), mask.copy()
    return info


def _checked_mode(mode: str | None, metadata: Mapping[str, Any]) -> str | None:
    if mode is not None and mode not in metadata["render_modes"]:
        raise ValueError(f"render_mode is {mode!r}; use one of {metadata['render_modes']} or None")
    return mode


def _autoreset_mode(mode: AutoresetMode | str) -> AutoresetMode:
    for known in AutoresetMode:
        if mode in (known, known.name, known.value):
            return known
    raise ValueError(f"autoreset_mode is {mode!r}; use one of {[known.name for known in AutoresetMode]}")


def _refuse(options: Mapping[str, Any] | None, known: Sequence[str]) -> None:
    for name in options or {}:
        if name not in known:
            raise ValueError(f"reset has no option {name!r}; it takes {list(known) or 'none'}")
