"""Cart-pole swing-up in plain tensor operations: thousands of instances on any device, nothing on the host.

The pole starts at any angle and must be swung up and balanced by a force on the cart. Equations of motion as in Barto,
Sutton and Anderson 1983 ("Neuronlike adaptive elements that can solve difficult learning control problems") without
friction, semi-implicit Euler. Finished instances restart within the step by masking, so shapes never change and the
whole step can be recorded as a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gaitway.core.execution import Execution, ExecutionConfig
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup
from gaitway.envs.vec_env import Observation, Step, VecEnv

GRAVITY, CART_MASS, POLE_MASS, HALF_LENGTH = 9.8, 1.0, 0.1, 0.5
FORCE, DT, RAIL = 10.0, 0.02, 3.0
"""Newtons at action 1, seconds per step, metres from the middle to either end."""
COMPONENTS = (
    Component("position", 1, "3 m"),
    Component("velocity", 1, "3 m/s"),
    Component("cosine", 1),
    Component("sine", 1),
    Component("angular_velocity", 1, "10 rad/s"),
)


class TensorCartPole(VecEnv):
    """`num_envs` swing-ups. The reward is the height of the pole's tip (0 to 1), less where it spins, and a little less
    away from the middle; leaving the rail terminates, `max_episode_steps` truncates.

    The two sets of output buffers take turns, so that what `step` returned stays unchanged until the call after the
    next one. `execution` records the step on a GPU.
    """

    def __init__(
        self,
        num_envs: int,
        seed: int = 0,
        *,
        device: torch.device | str = "cpu",
        max_episode_steps: int = 500,
        execution: Execution | None = None,
    ) -> None:
        self.num_envs, self.device = num_envs, torch.device(device)
        action = ActionSpec("continuous", ("force",), (-1.0,), (1.0,))
        group = ObservationGroup("policy", COMPONENTS, (len(COMPONENTS),))
        self.spec = EnvSpec("tensor_cartpole", (group,), action, DT, max_episode_steps)
        execution = execution or Execution(ExecutionConfig("eager", "fp32"), device)
        self.generator = torch.Generator(self.device)
        self.state = torch.zeros(4, num_envs, device=self.device)  # position, velocity, angle, angular velocity
        self._start_range = torch.tensor([[0.05], [0.05], [torch.pi], [0.05]], device=self.device)
        self.age = torch.zeros(num_envs, dtype=torch.int64, device=self.device)
        self.action = torch.zeros(num_envs, 1, device=self.device)
        self._buffers = [self._new_step() for _ in range(2)]
        self._programs = [
            execution.program(partial(self._advance, out), "the step of the cart-poles", [self.generator])
            for out in self._buffers
        ]
        self._turn = 0
        self.reset(seed)

    def reset(self, seed: int | Sequence[int] | None = None) -> Observation:
        if isinstance(seed, Sequence):
            raise ValueError("tensor_cartpole draws from one stream for all instances; pass one integer as seed")
        if seed is not None:
            self.generator.manual_seed(seed)
        self.state.copy_(self._starts())
        self.age.zero_()
        return {"policy": _observe(self.state)}

    @torch.no_grad()
    def step(self, action: Tensor) -> Step:
        self.action.copy_(action)
        self._turn = 1 - self._turn
        self._programs[self._turn]()
        return self._buffers[self._turn]

    @property
    def elapsed(self) -> Tensor:
        return self.age.clone()

    def set_elapsed(self, steps: Tensor) -> None:
        self.age.copy_(steps)

    def state_dict(self) -> dict[str, Any]:
        return {"state": self.state.clone(), "age": self.age.clone(), "generator": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> Observation:
        self.state.copy_(state["state"])
        self.age.copy_(state["age"])
        self.generator.set_state(state["generator"].cpu())
        return {"policy": _observe(self.state)}

    def _advance(self, out: Step) -> None:
        """One step of all instances from `state`, `age` and `action`, written to `out` and back."""
        position, velocity, angle, spin = self.state.unbind(0)
        force = FORCE * self.action.squeeze(-1).clamp(-1.0, 1.0)
        acceleration, angular = _accelerations(angle, spin, force)
        velocity = velocity + DT * acceleration
        spin = spin + DT * angular
        reached = torch.stack([position + DT * velocity, velocity, angle + DT * spin, spin])
        age = self.age + 1
        position, height = reached[0], 0.5 + 0.5 * torch.cos(reached[2])
        terminated = position.abs() > RAIL
        truncated = (age >= self.spec.max_episode_steps) & ~terminated
        done = terminated | truncated
        calm = torch.exp(-0.02 * reached[3].square())  # else spinning would earn half of what balancing does
        out.reward.copy_(height * calm * (1.0 - 0.05 * position.square()))
        out.terminated.copy_(terminated)
        out.truncated.copy_(truncated)
        out.final_obs["policy"].copy_(_observe(reached))
        self.state.copy_(torch.where(done, self._starts(), reached))
        self.age.copy_(torch.where(done, 0, age))
        out.obs["policy"].copy_(_observe(self.state))

    def _starts(self) -> Tensor:
        """Near the middle and nearly at rest, the pole anywhere: `[4, B]`."""
        unit = torch.rand(4, self.num_envs, generator=self.generator, device=self.device)
        return (2.0 * unit - 1.0) * self._start_range

    def _new_step(self) -> Step:
        def rows(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(self.num_envs, *shape, dtype=dtype, device=self.device)

        flags = rows(dtype=torch.bool), rows(dtype=torch.bool)
        obs, final = {"policy": rows(len(COMPONENTS))}, {"policy": rows(len(COMPONENTS))}
        return Step(obs, rows(), *flags, final, {})


def _accelerations(angle: Tensor, spin: Tensor, force: Tensor) -> tuple[Tensor, Tensor]:
    """Of the cart and of the pole."""
    sine, cosine = torch.sin(angle), torch.cos(angle)
    mass = CART_MASS + POLE_MASS
    push = (force + POLE_MASS * HALF_LENGTH * spin.square() * sine) / mass
    angular = (GRAVITY * sine - cosine * push) / (HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * cosine.square() / mass))
    return push - POLE_MASS * HALF_LENGTH * angular * cosine / mass, angular


def _observe(state: Tensor) -> Tensor:
    """`[4, B]` -> `[B, 5]`."""
    position, velocity, angle, spin = state.unbind(0)
    return torch.stack([position / RAIL, velocity / RAIL, torch.cos(angle), torch.sin(angle), spin / 10.0], -1)
