"""A VecEnv as two agents: `observe` opens a step, `advance` closes it.

In a cast the policy stands between them: `Agents(world.observe, policy, world.advance)`. Row t then holds what was
seen, what was done and what came of it; observation variables hold one row more, the observation after the last step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Self

import torch
from torch import Tensor

from gaitway.core.agent import Agent
from gaitway.core.seeding import check_seed
from gaitway.core.workspace import Variable, Workspace
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Observation, Step, VecEnv


class EnvAgent:
    """The environment and where it stands; `observe` and `advance` are its two agents.

    `groups` are the observation groups to write (all by default); `final_obs` those of them whose final observation
    somebody reads where an episode ended (True: all, False: none); `metrics` are the metrics to keep.
    """

    def __init__(
        self,
        env: VecEnv,
        groups: Iterable[str] | None = None,
        final_obs: bool | Iterable[str] = True,
        metrics: Iterable[str] | None = None,
    ) -> None:
        self.env = env
        self.groups = tuple(env.spec.group_names if groups is None else groups)
        self.final_groups = self.groups if final_obs is True else () if final_obs is False else tuple(final_obs)
        unwritten = [name for name in self.final_groups if name not in self.groups]
        if unwritten:
            raise ValueError(f"final_obs names {unwritten}, but groups is {list(self.groups)}; name them there too")
        self.metrics = tuple(env.spec.metrics if metrics is None else metrics)
        self.current: Observation | None = None
        self.next_seed: int | None = None
        """With which seed the next reset restarts the random streams; None goes on with the present ones."""
        self.written: int | None = None
        """Within a run: the row that already holds `current`."""
        self.simulation_seconds = 0.0
        self.meanwhile: Callable[[], None] | None = None
        """Called between an action and its simulation: work started here on a GPU goes on while the CPU simulates."""
        self._known: dict[int, Tensor] = {}
        """By row: which instances a time limit ended, where the CPU knows it."""
        self.observe = Observe(self)
        self.advance = Advance(self)

    def restore(self, observation: Observation) -> None:
        """Go on from `observation`, as `load_state_dict` or `reset` of the environment returned it."""
        self.current = {name: value.clone() for name, value in observation.items()}

    def truncated(self, start: int, stop: int) -> Tensor | None:
        """bool [stop - start, B] on the CPU: `env/truncated` of the last rows with these numbers, without waiting for a
        device; None where only the device knows it."""
        found = [self._known.get(t) for t in range(start, stop)]
        flags = [each for each in found if each is not None]
        return torch.stack(flags) if flags and len(flags) == len(found) else None

    def note(self, t: int, step: Step) -> None:
        """Remember of row t what the CPU knows; a wrapper may have put other flags in the place of the simulator's."""
        self._known.pop(t, None)
        if step.known is not None and step.known[0] is step.truncated:
            self._known[t] = step.known[1].clone()

    def variables(self, rows: int) -> dict[str, Variable]:
        """The dense variables a rollout of `rows` steps needs for this environment."""
        return env_variables(self.env.spec, self.env.num_envs, rows, self.groups, self.final_groups, self.metrics)


class _EnvPart(Agent):
    def with_prefix(self, prefix: str) -> Self:
        raise TypeError("environment agents write env/*, which everything else reads; use a second workspace instead")


class Observe(_EnvPart):
    """Writes `env/obs/<group>` of row t. Resets only if the environment has never run or when asked."""

    def __init__(self, world: EnvAgent) -> None:
        super().__init__()
        self._world = [world]  # in a list, so that nn.Module does not register or copy it
        self.writes = tuple(f"env/obs/{group}" for group in world.groups)
        self.reads: tuple[str, ...] = ()

    def seed(self, seed: int) -> Self:
        """The next row begins new episodes, which depend on this seed alone."""
        self._world[0].next_seed = check_seed(seed)
        self._world[0].current = None
        return self

    def step(self, ws: Workspace, t: int, *, reset: bool = False) -> None:
        self.prepared_step(ws, {"reset": reset})(t)

    def prepared_step(self, ws: Workspace, options: Mapping[str, Any]) -> Callable[[int], None]:
        world, reset = self._world[0], options.get("reset", False)
        copiers = [(group, ws.copier(name)) for group, name in zip(world.groups, self.writes, strict=True)]
        world.written = None

        def step(t: int) -> None:
            if reset or world.current is None:
                world.current = world.env.reset(world.next_seed)
                world.next_seed = None
            elif world.written == t:
                return
            for group, put in copiers:
                put(t, world.current[group])

        return step


class Advance(_EnvPart):
    """Reads `action` of row t, steps the environment, writes what came of it and the observation of row t+1."""

    def __init__(self, world: EnvAgent) -> None:
        super().__init__()
        self._world = [world]
        self.reads = ("action",)
        writes = ["env/reward", "env/terminated", "env/truncated", *(f"env/metric/{name}" for name in world.metrics)]
        writes += [f"env/final_obs/{group}" for group in world.final_groups]
        if world.env.spec.reset_rows:
            writes.append("env/valid")
        self.writes = tuple(writes)

    def step(self, ws: Workspace, t: int) -> None:
        self.prepared_step(ws, {})(t)

    def prepared_step(self, ws: Workspace, options: Mapping[str, Any]) -> Callable[[int], None]:
        world = self._world[0]
        # copies, because the environment will use the memory of its results again
        metrics, groups, ended = list(world.metrics), list(world.groups), list(world.final_groups)
        names = ["env/reward", "env/terminated", "env/truncated", *(f"env/metric/{name}" for name in metrics)]
        names += [*(f"env/obs/{group}" for group in groups), *(f"env/final_obs/{group}" for group in ended)]
        put = ws.copiers(names, [int(name.startswith("env/obs/")) for name in names])
        put_valid = ws.copier("env/valid")

        def step(t: int) -> None:
            action = ws.at("action", t)
            if world.meanwhile is not None:
                action = fetched(action, world.meanwhile, to_host=not world.env.is_on_device)
            started = time.perf_counter()
            result = world.env.step(action)
            world.simulation_seconds += time.perf_counter() - started
            world.current = result.obs
            world.note(t, result)
            values = [result.reward.float(), result.terminated, result.truncated]
            values += [result.metrics[name].float() for name in metrics]
            values += [result.obs[group] for group in groups]
            values += [result.final_obs[group] for group in ended]
            put(t, values)
            if result.valid is not None:
                put_valid(t, result.valid)
            world.written = t + 1

        return step


def fetched(action: Tensor, meanwhile: Callable[[], None], to_host: bool = True) -> Tensor:
    """The action on the CPU, or with `to_host=False` where it is. What `meanwhile` starts on a device is queued behind
    the action and not waited for."""
    if not action.is_cuda or not to_host:
        meanwhile()
        return action
    here = torch.empty(action.shape, dtype=action.dtype, pin_memory=True)
    here.copy_(action, non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record(torch.cuda.current_stream(action.device))
    meanwhile()
    arrived.synchronize()
    return here


def env_variables(
    spec: EnvSpec,
    num_envs: int,
    rows: int,
    groups: Iterable[str],
    final_groups: Collection[str],
    metrics: Iterable[str],
) -> dict[str, Variable]:
    """What the environment writes in `rows` steps, for `Workspace.dense`."""

    def step_variable(dtype: torch.dtype) -> Variable:
        return Variable(rows, num_envs, (), dtype)

    variables: dict[str, Variable] = {}
    for name in groups:
        group = spec.group(name)
        variables[f"env/obs/{name}"] = Variable(rows + 1, num_envs, group.shape, group.torch_dtype)
        if name in final_groups:
            variables[f"env/final_obs/{name}"] = Variable(rows, num_envs, group.shape, group.torch_dtype)
    variables["env/reward"] = step_variable(torch.float32)
    variables["env/terminated"] = step_variable(torch.bool)
    variables["env/truncated"] = step_variable(torch.bool)
    if spec.reset_rows:
        variables["env/valid"] = step_variable(torch.bool)
    for name in metrics:
        variables[f"env/metric/{name}"] = step_variable(torch.float32)
    return variables


def episode_ends(ws: Workspace) -> Tensor:
    """bool [T, B]: the row after this one belongs to another episode (an end, or a reset row)."""
    ended = ws["env/done"]
    return ended | ~ws["env/valid"] if "env/valid" in ws else ended
