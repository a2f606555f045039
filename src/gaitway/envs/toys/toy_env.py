"""Small tasks on arrays: thousands of instances cost next to nothing.

`ToyEnv` owns time (steps, ends, resets, random streams, stored state); a `Toy` owns meaning: what the state `[B, S]` of
the instances is, how it moves and what is seen of it. States are float64 whatever the output type. They are NumPy
arrays, because for a few hundred instances a call of NumPy takes a third of the time of one of PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from gaitway.core.seeding import EpisodeStreams
from gaitway.envs.action_arrays import ActionReader
from gaitway.envs.episode_generator import EpisodeGenerator
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup
from gaitway.envs.step_buffers import StepBuffers
from gaitway.envs.vec_env import Observation, Step, VecEnv

Groups = dict[str, tuple[Component, ...]]
_NUMPY_DTYPE: dict[torch.dtype, type[np.floating]] = {
    torch.float16: np.float16,
    torch.float32: np.float32,
    torch.float64: np.float64,
}


class Toy:
    """One task; subclasses set the attributes and write the methods.

    Columns of the states are contiguous, and so are those of `np.empty_like(state)`: work with whole columns. Arrays
    that come in are read only; what goes out is copied before anything else happens.
    """

    groups: Groups
    pictures: Mapping[str, tuple[int, int, int]] = {}
    """Groups of bytes (channels, height, width), behind the others."""
    action: ActionSpec
    control_dt: float = 0.0
    max_episode_steps: int = 0
    metrics: tuple[str, ...] = ()
    reductions: Mapping[str, str] = {}
    """How a metric becomes one number of an episode where that is not the mean over its steps: `sum` or `last`."""
    options: Mapping[str, Any]
    """Options that differ from the defaults."""
    facts: Mapping[str, Any] = {}
    """Plain facts for `EnvSpec.facts`."""
    memory: Mapping[str, np.ndarray] = {}
    """What is carried from step to step besides the states; part of the environment's stored state."""

    def attach(self, num_envs: int) -> None:
        """Belong to an environment of so many instances; a toy with `memory` allocates it here."""

    def before_reset(self) -> None:
        """`env.reset` was called: every instance is about to begin a new episode."""

    def start(self, state: np.ndarray, rows: np.ndarray) -> None:
        """New episodes begin in `rows` of the states `[B, S]`, which may be written to."""

    def restore(self, state: np.ndarray) -> None:
        """Stored states `[B, S]` and `memory` were put back. Rebuild what follows from them."""

    def draw(self, generator: np.random.Generator) -> Sequence[float]:
        """First state of one episode, `S` numbers."""
        raise TypeError(f"{type(self).__name__} does not implement draw")

    def advance(self, state: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, ArrayLike, np.ndarray]:
        """State `[B, S]` and checked action -> next state `[B, S]`, reward `[B]` or a number, terminated bool `[B]`."""
        raise TypeError(f"{type(self).__name__} does not implement advance")

    def observe(self, state: np.ndarray) -> dict[str, np.ndarray]:
        """What is seen of the states `[B, S]`: one array `[B, D]` per group, `[B, C, H, W]` per picture."""
        raise TypeError(f"{type(self).__name__} does not implement observe")

    def observe_rows(self, state: np.ndarray, rows: np.ndarray) -> dict[str, np.ndarray]:
        """What is seen of `rows` of the states `[B, S]`."""
        return self.observe(state[rows])

    def truncate(self, terminated: np.ndarray, truncated: np.ndarray) -> None:
        """Set `truncated` [B] where an episode ends here for another reason than time, and has not `terminated` [B]."""

    def measure(self, state: np.ndarray) -> dict[str, np.ndarray]:
        """Metrics `[B]` of the states just reached."""
        return {}


class ToyEnv(VecEnv):
    """`num_envs` instances of a `Toy`. Two sets of returned tensors take turns; on a GPU they are copies."""

    def __init__(
        self,
        toy: Toy,
        num_envs: int = 1,
        seed: int | Sequence[int] = 0,
        *,
        num_threads: int | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        purpose: str = "train",
        id: str = "toy",
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs is {num_envs}; use at least 1")
        if dtype not in _NUMPY_DTYPE:
            raise ValueError(f"dtype is {dtype}; toys take {[str(kind) for kind in _NUMPY_DTYPE]}")
        self.toy = toy
        self.num_envs = num_envs
        self.device = torch.device(device)
        self._dtype = _NUMPY_DTYPE[dtype]
        self._streams = EpisodeStreams(num_envs, purpose)
        name = str(dtype).removeprefix("torch.")
        self.spec = EnvSpec(
            id=id,
            groups=(
                *(
                    ObservationGroup(group, components, (sum(component.size for component in components),), name)
                    for group, components in toy.groups.items()
                ),
                *(
                    ObservationGroup(group, (Component("pixel", math.prod(shape)),), shape, "uint8")
                    for group, shape in toy.pictures.items()
                ),
            ),
            action=toy.action,
            control_dt=toy.control_dt,
            max_episode_steps=toy.max_episode_steps,
            metrics=toy.metrics,
            reductions=dict(toy.reductions),
            options=toy.options,
            facts=toy.facts,
        )
        self._state: np.ndarray
        self._clock, self._deadline = 0, math.inf
        self._born = np.zeros(num_envs, dtype=np.int64)
        self._allocate()
        self._every = np.arange(num_envs)
        toy.attach(num_envs)
        self.reset(seed)

    def _allocate(self) -> None:
        self._read = ActionReader(self.spec, self.num_envs)
        self._generators = EpisodeGenerator(self._streams)
        self._buffers = [StepBuffers(self.spec, self.num_envs, self._dtype, self.device) for _ in range(2)]

    def __getstate__(self) -> dict[str, Any]:
        """Without the buffers: their arrays and tensors have memory in common, which a copy would not have."""
        left_out = ("_read", "_generators", "_buffers")
        return {name: value for name, value in self.__dict__.items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._allocate()

    def reset(self, seed: int | Sequence[int] | None = None) -> Observation:
        self._streams.restart(seed)
        if seed is not None:
            self._generators.forget()
        self._set_ages(0)
        self.toy.before_reset()
        first = _by_column([self.toy.draw(generator) for generator in self._generators.each(self._every)])
        self.toy.start(first, self._every)
        return self._show(first)

    def step(self, action: Tensor) -> Step:
        toy = self.toy
        reached, reward, terminated = toy.advance(self._state, self._read(action))
        out = self._next_buffers()
        out.reward[:] = reward
        out.terminated[:] = terminated
        self._clock += 1
        is_late = self._clock >= self._deadline
        ended = self._mark_ends(out, is_late)
        for name, value in toy.measure(reached).items():
            out.metrics[name][:] = value
        for name, value in toy.observe(reached).items():
            out.final_obs[name][:] = value
            out.obs[name][:] = out.final_obs[name]
        self._state = self._restarted(reached, ended, out) if len(ended) else reached
        if is_late:
            self._deadline = self._next_deadline()
        return out.as_step()

    def state_dict(self) -> dict[str, Any]:
        return {
            **self.scenario(),
            "elapsed": self.elapsed,
            **_tensors(self._streams.arrays()),
            **({"memory": _tensors(self.toy.memory)} if self.toy.memory else {}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> Observation:
        memory = self.toy.memory
        known = ["state", "elapsed", *self._streams.arrays(), *(["memory"] if memory else [])]
        if set(state) != set(known):
            raise ValueError(f"a state of {self.spec.id} has the entries {known}; got {list(state)}")
        first = self._checked(state["state"])
        stored = {name: value.cpu().numpy() for name, value in state.get("memory", {}).items()}
        shapes = {name: array.shape for name, array in memory.items()}
        if {name: array.shape for name, array in stored.items()} != shapes:
            raise ValueError(
                f"the memory of the state has other arrays than {self.spec.id}, which has {shapes}; load it with the "
                "same number of instances and options"
            )
        self._set_ages(state["elapsed"].cpu().numpy())
        for name, array in self._streams.arrays().items():
            array[...] = state[name].cpu().numpy()
        self._generators.forget()
        for name, array in stored.items():
            memory[name][...] = array
        self.toy.restore(first)
        return self._show(first)

    def scenario(self) -> dict[str, Tensor]:
        """The present states `[B, S]`."""
        return {"state": torch.from_numpy(self._state.copy(order="C")).to(self.device)}

    def load_scenario(self, scenario: Mapping[str, Any]) -> Observation:
        if set(scenario) != {"state"}:
            raise KeyError(f"a scenario of {self.spec.id} has the fields ['state']; got {list(scenario)}")
        first = self._checked(scenario["state"])
        self._set_ages(0)
        self.toy.start(first, self._every)
        return self._show(first)

    @property
    def elapsed(self) -> Tensor:
        return torch.from_numpy(self._clock - self._born).to(self.device)

    def set_elapsed(self, steps: Tensor) -> None:
        limit = self.spec.max_episode_steps
        if steps.shape != (self.num_envs,) or bool((steps < 0).any()) or (limit and bool((steps >= limit).any())):
            raise ValueError(f"ages must be {self.num_envs} integers in 0..{limit - 1}; got {steps.tolist()}")
        self._set_ages(steps.cpu().numpy())

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of this environment or of its toy."""
        method = getattr(self if hasattr(self, name) else self.toy, name, None)
        if not callable(method):
            raise AttributeError(f"neither {self.spec.id} nor its task has a method {name!r}")
        return method(*args, **kwargs)

    def _show(self, state: np.ndarray) -> Observation:
        """Go on from the states `[B, S]`; returns what is seen of them."""
        self._state = state
        out = self._next_buffers()
        for name, value in self.toy.observe(state).items():
            out.obs[name][:] = value
        return out.observation()

    def _set_ages(self, elapsed: np.ndarray | int) -> None:
        self._born[:] = self._clock - elapsed
        self._deadline = self._next_deadline()

    def _next_deadline(self) -> float:
        """When the oldest episode times out, by the clock. Until then nobody has to look."""
        limit = self.spec.max_episode_steps
        return float(self._born.min()) + limit if limit else math.inf

    def _mark_ends(self, out: StepBuffers, is_late: bool) -> np.ndarray:
        """Truncate who is late and has not terminated; returns the rows whose episodes ended."""
        if is_late:
            late = self._clock - self._born >= self.spec.max_episode_steps
            np.greater(late, out.terminated, out=out.truncated)
        else:
            out.truncated[:] = False
        self.toy.truncate(out.terminated, out.truncated)
        return (out.terminated | out.truncated).nonzero()[0]

    def _restarted(self, reached: np.ndarray, ended: np.ndarray, out: StepBuffers) -> np.ndarray:
        """`reached` with the first states of new episodes in the rows `ended`, whose observations go to `out`."""
        state = reached.copy(order="K")  # a toy may have handed out an array of its own
        self._streams.episode[ended] += 1
        self._born[ended] = self._clock
        for row, generator in zip(ended.tolist(), self._generators.each(ended), strict=True):
            state[row] = self.toy.draw(generator)
        self.toy.start(state, ended)
        for name, value in self.toy.observe_rows(state, ended).items():
            out.obs[name][ended] = value
        return state

    def _next_buffers(self) -> StepBuffers:
        """The set that nobody may still be reading."""
        self._buffers.reverse()
        self._buffers[0].settle()
        return self._buffers[0]

    def _checked(self, state: Any) -> np.ndarray:
        state = torch.as_tensor(state, dtype=torch.float64, device="cpu").numpy()
        if state.shape != self._state.shape:
            raise ValueError(
                f"the state has shape {list(state.shape)}; {self.spec.id} with {self.num_envs} instances takes "
                f"{list(self._state.shape)}"
            )
        return _by_column(state)


def _tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}


def _by_column(state: ArrayLike) -> np.ndarray:
    """A float64 copy of states `[B, S]` whose columns are contiguous."""
    return np.array(state, dtype=np.float64, order="F")
