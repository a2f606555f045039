"""The contract every environment honours: many instances, tensors in, tensors out.

A `VecEnv` steps `B` instances at once and describes itself with an `EnvSpec` (`envs/spec.py`). `check_env` proves that
an environment keeps the rules written here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from gaitway.envs.spec import EnvSpec

Observation = dict[str, Tensor]


@dataclass(slots=True)
class Step:
    """The result of `VecEnv.step`. Every tensor has `B` rows and is reused after the next call; clone it to keep it.

    `obs` is the observation for the next action: where an episode ended, the first one of the new episode. `final_obs`
    is the final observation of the episode where it ended, and equal to `obs` elsewhere. `terminated` and `truncated`
    are never both true. `valid` is None or, for environments that reset in a step of their own, false where the action
    was ignored. `known`: `truncated` as it is on its device and as the simulator left it on the CPU, where the
    simulator runs there: what is read from the second does not wait for the first.
    """

    obs: Observation
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    final_obs: Observation
    metrics: dict[str, Tensor]
    valid: Tensor | None = None
    known: tuple[Tensor, Tensor] | None = None


class Actor(Protocol):
    """Anything that maps observations to actions and can forget: an `InferencePolicy`, a script."""

    def __call__(self, obs: Observation) -> Tensor: ...

    def reset(self, mask: Tensor | None = None) -> None: ...


class VecEnv:
    """`num_envs` instances of one environment. Subclasses write the methods that raise here.

    The constructor resets all instances with its seed. `step` takes the unclipped action of the policy: the environment
    clips it to its limits; NaN or a wrong shape is a ValueError, where a device finds the NaN in `check_workers`.
    Finished instances are reset within the same call (auto-reset).
    """

    spec: EnvSpec
    num_envs: int
    device: torch.device
    is_on_device: bool = False
    """Whether a GPU simulates; False: the CPU does, and results are sent to `device`."""
    recipe: Callable[[], VecEnv] | None = None
    """Makes another environment like this one; set by `make_env`. Copies, also those sent to other processes, are made
    by calling it and loading this environment's state, because simulators cannot be cloned."""

    def reset(self, seed: int | Sequence[int] | None = None) -> Observation:
        """Start a new episode in every instance. `seed`, an integer or a list of `num_envs` integers, restarts the
        random streams; None continues them."""
        raise TypeError(f"{type(self).__name__} does not implement reset")

    def step(self, action: Tensor) -> Step:
        raise TypeError(f"{type(self).__name__} does not implement step")

    def state_dict(self) -> dict[str, Any]:
        """The state from which `step` continues bit for bit: nested dicts of tensors, numbers, strings and lists."""
        raise TypeError(f"{type(self).__name__} does not implement state_dict")

    def load_state_dict(self, state: Mapping[str, Any]) -> Observation:
        """Restore `state_dict()`; returns the observation for the next action."""
        raise TypeError(f"{type(self).__name__} does not implement load_state_dict")

    def scenario(self) -> dict[str, Tensor]:
        """Physical state and layout of every instance, from which `load_scenario` starts the same episode elsewhere."""
        raise ValueError(f"{self.spec.id} has no scenarios; native MuJoCo tasks and the toys do")

    def load_scenario(self, scenario: Mapping[str, Any]) -> Observation:
        """Start episodes at elapsed step 0 from `scenario` (tensors or arrays with `B` rows)."""
        raise ValueError(f"{self.spec.id} has no scenarios; native MuJoCo tasks and the toys do")

    @property
    def elapsed(self) -> Tensor:
        """Steps taken in the present episode, int64 `[B]`."""
        raise TypeError(f"{type(self).__name__} does not implement elapsed")

    def set_elapsed(self, steps: Tensor) -> None:
        """Set the ages of the present episodes, to spread their time-outs. The physical state does not change."""
        raise ValueError(f"{self.spec.id} cannot set episode ages; use stagger_timeouts=false")

    def render(self, index: int = 0, width: int = 640, height: int = 480) -> np.ndarray:
        """A picture of one instance, uint8 `[height, width, 3]`."""
        raise ValueError(f"{self.spec.id} cannot be drawn")

    def on_end(self, callback: Callable[[], None] | None) -> bool:
        """Have `callback` called in steps that end an episode, before its instance is restarted: what is drawn there is
        the final state. None ends that. False: this environment cannot tell."""
        return False

    def instance_bytes(self) -> int:
        """About how much memory one more instance takes; a run that asks for too many is refused by it."""
        numbers = sum(math.prod(group.shape) * group.torch_dtype.itemsize for group in self.spec.groups)
        return 1000 + 8 * numbers  # several sets of buffers, and what every instance carries besides

    def device_bytes(self) -> int:
        """About how much memory of the GPU that simulates one more instance takes; 0 where the CPU does."""
        return 0

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the environment behind an adapter (of every instance, where there are many)."""
        method = getattr(self, name, None)
        if method is None:
            raise AttributeError(f"{self.spec.id} has no method {name!r}")
        return method(*args, **kwargs)

    def check_workers(self) -> None:
        """Raise if the environment cannot go on: a process that it runs in has ended, a device found an action that is
        not finite. Called between iterations."""

    def counted(self) -> dict[str, float]:
        """What happened since this was asked last and no metric of an instance tells, by the name it is logged under;
        asked wherever a line of metrics is written."""
        return {}

    def close(self) -> None:
        """Free threads, processes and windows; may be called twice."""

    def __enter__(self) -> VecEnv:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.recipe is None:
            return super().__reduce_ex__(protocol)
        return _remade, (self.recipe, self.state_dict() if self.spec.keeps_episodes else None)


def _remade(recipe: Callable[[], VecEnv], state: Mapping[str, Any] | None) -> VecEnv:
    env = recipe()
    if state is not None:
        env.load_state_dict(state)
    return env


def check_action(action: Tensor, spec: EnvSpec, num_envs: int) -> Tensor:
    """Refuse an action of the wrong shape or kind, or one with NaN; returns it detached."""
    expected = (num_envs, *spec.action.shape)
    if not isinstance(action, Tensor):
        raise TypeError(f"the action is a {type(action).__name__}; {spec.id} takes a torch.Tensor {list(expected)}")
    if tuple(action.shape) != expected:
        raise ValueError(f"the action has shape {list(action.shape)}; {spec.id} takes {list(expected)}")
    action = action.detach()
    if spec.action.kind == "continuous":
        if not action.dtype.is_floating_point:
            raise ValueError(f"the action is {action.dtype}; {spec.id} takes floating point numbers")
        if not math.isfinite(action.sum()):  # one reduction; the search below runs only when it fails
            bad = torch.nonzero(~torch.isfinite(action))
            if len(bad):
                row, column = bad[0].tolist()
                value = action[row, column].item()
                raise ValueError(
                    f"the action of instance {row} is {value} in {spec.action.names[column]!r} (dimension {column}); "
                    f"{spec.id} takes finite numbers"
                )
    elif action.dtype.is_floating_point:
        raise ValueError(f"the action is {action.dtype}; {spec.id} takes int64 choices")
    else:
        _check_choices(action, spec)
    return action


def _check_choices(action: Tensor, spec: EnvSpec) -> None:
    """Refuse a choice that does not exist."""
    first = torch.tensor(spec.action.start or [0] * len(spec.action.choices), device=action.device)
    choices = torch.tensor(spec.action.choices, device=action.device)
    wrong = (action.reshape(len(action), -1) < first) | (action.reshape(len(action), -1) >= first + choices)
    if bool(wrong.any()):
        row, column = wrong.nonzero()[0].tolist()
        low, high = int(first[column]), int(first[column] + choices[column]) - 1
        value = int(action.reshape(len(action), -1)[row, column])
        raise ValueError(f"the action of instance {row} is {value} in {spec.action.names[column]!r}; use {low}..{high}")
