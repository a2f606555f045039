"""What an episode is on tensors, for simulators whose arrays are tensors themselves.

`WarpEnv` owns time as `MujocoBatchEnv` does; a `TensorTask` owns meaning, for all instances at once. No method may look
at a value: no `.item()`, no `nonzero`, no branch on a tensor, no constant made on the way, because a step is recorded
once and replayed. Which instances a thing concerns is said by masks [B].

All but `advance` may be compiled: hundreds of operations on a few numbers per instance become a handful of kernels.
Tensors that they write must not share memory with others that they use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from gaitway.envs.episode_numbers import EpisodeNumbers
from gaitway.envs.vec_env import Observation

if TYPE_CHECKING:
    from gaitway.envs.warp_worlds import Worlds


class TensorTask:
    """Made by `BatchTask.on_tensors`; all tensors are on the device of the worlds, floats are float32.

    `layout[name]` [B, ...] is how an episode differs from others, `memory[name]` what is carried from step to step;
    both are part of the environment's stored state.
    """

    frame_skip: int
    max_episode_steps: int
    expanded: tuple[str, ...] = ()
    """Fields of the model that every world has its own values of."""
    looks: bool = True
    """Positions, velocities and their sensors are computed after physics and after restarts (`Worlds.look`)."""
    knows_starts: bool = False
    """`tell_start` writes positions and sensors of first states as they were drawn: there is no look after restarts."""
    derives: bool = False
    """Masses differ, so constants of the model that follow from them must be among `expanded`, and be derived."""
    fault_reward: float | Tensor = 0.0
    fault_metrics: tuple[str, ...] = ()
    """Those metrics that `outcome` gets right for `faulty` worlds too; all others are 0 there."""
    faulty: Tensor
    """Worlds whose physics failed in the present step [B]."""
    revision: int = 0
    """Counts changes of what is no tensor, but part of a step: it is recorded anew."""
    layout: dict[str, Tensor]
    memory: dict[str, Tensor]

    def attach(self, worlds: Worlds, numbers: EpisodeNumbers) -> None:
        """Take the arrays; subclasses allocate `layout` and `memory`."""
        self.worlds, self.numbers = worlds, numbers
        self.layout, self.memory = {}, {}

    def before_reset(self) -> None:
        """`env.reset` was called: every instance is about to begin for the first time."""

    def draw(self) -> dict[str, Tensor]:
        """Starts of new episodes of all instances: qpos [B, nq], qvel [B, nv] and the layout."""
        raise TypeError(f"{type(self).__name__} does not implement draw")

    def start(self, where: Tensor) -> None:
        """New episodes begin in `where` [B]: their state and layout are written, nothing was looked at yet."""

    def note_start(self, where: Tensor) -> None:
        """The same when positions and sensors of the first states are there."""

    def tell_start(self, where: Tensor) -> None:
        """Write them, for starts as `draw` makes them."""

    def restore(self) -> None:
        """A stored state was put back. Rebuild what follows from it."""

    def actuate(self, action: Tensor) -> None:
        """Turn finite actions [B, A] into controls."""
        self.worlds.ctrl.copy_(action)

    def advance(self) -> None:
        """The substeps of a control step; sensors are those of the last one."""
        for number in range(self.frame_skip):
            self.worlds.step(senses=number + 1 == self.frame_skip)

    def outcome(self) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Reward [B], whether the episode terminates [B], and metrics [B] by name."""
        raise TypeError(f"{type(self).__name__} does not implement outcome")

    def is_over(self) -> Tensor | None:
        """Whose episode ends for another reason than time [B]."""
        return None

    def go_on(self, ended: Tensor) -> None:
        """Ends are known [B]; those that go on may get a new command or a kick."""

    def observe(self, is_new: bool) -> Observation:
        """Groups [B, ...]; of episodes that are `is_new` in their first state."""
        raise TypeError(f"{type(self).__name__} does not implement observe")
