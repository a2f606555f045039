"""Thousands of robots on one GPU: MuJoCo Warp, with task, ends and restarts beside it on the same device.

A step is one program that reads and writes tensors which stay where they are: on a GPU it is recorded once for each of
the two sets of output buffers and replayed after that. Nothing of it is looked at by the host. What the host must know,
actions that were not finite and worlds that ran out of room, is counted on the device and read between iterations.

Physics is float32, and on a GPU sums are made in the order in which threads come by: the same state and actions lead
to nearly the same numbers, not to the same bits (`exact_state` is false there). On Warp's CPU device they are equal.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import logging
import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from gaitway.core.execution import Execution, ExecutionConfig, Mode
from gaitway.core.seeding import PURPOSES, instance_seeds
from gaitway.envs.batch_task import NUMBERS, BatchTask
from gaitway.envs.episode_numbers import EpisodeNumbers
from gaitway.envs.mujoco_batch import environment_spec
from gaitway.envs.spec import EnvSpec
from gaitway.envs.step_buffers import FAULT_METRIC
from gaitway.envs.vec_env import Observation, Step, VecEnv, check_action
from gaitway.envs.warp_capacity import check_memory, probed_capacity, world_bytes
from gaitway.envs.warp_worlds import (
    CONSTANTS,
    OWN_OVERFLOW,
    POOL_OVERFLOW,
    Capacity,
    WarpError,
    Worlds,
    missing,
    state_bytes,
    untried,
    warp_modules,
)

if TYPE_CHECKING:
    from gaitway.envs.pictures.scene import Camera

log = logging.getLogger("gaitway")

COUNTS = ("bad_actions", "diverged", "crowded", "full_pool", *OWN_OVERFLOW, *POOL_OVERFLOW)
"""What is counted on the device: instances with an action that was not finite; worlds whose state was not sound; worlds
without room of their own; steps in which the pool of contacts that all share was full. The last two also by Warp's
names for them."""
LOGGED = ("diverged", "crowded", "full_pool")
WORTH_COMPILING = 256
"""Instances from which on compiling what surrounds physics, which takes about a minute, is worth it."""
DERIVE_EVERY = 32
"""Steps after which constants that follow from masses are computed anew: it takes a fifth of a step, so a new episode
begins with those of the one before it, for a few steps."""


class WarpEnv(VecEnv):
    """`num_envs` instances of a task that has a form on tensors.

    Returned tensors belong to two alternating sets of buffers, so they stay unchanged until the call after the next
    one. A world whose state is not sound, or which ran out of room of its own, ends its own episode: terminated, the
    task's `fault_reward`, metric `physics_error` 1 and all others 0 but the task's `fault_metrics`, its final
    observation the last one before. When the pool of contacts that all worlds share is full, some go without a contact
    for a substep; that ends nobody's episode, and is counted (`counted`) and warned of.

    A bad action is an error when `check_workers` is called, between iterations; until then it counts as 0.
    """

    def __init__(
        self,
        task: BatchTask,
        num_envs: int,
        seed: int | Sequence[int] = 0,
        num_threads: int | None = None,
        device: torch.device | str = "cuda",
        dtype: torch.dtype = torch.float32,
        purpose: str = "train",
        id: str | None = None,
        capacity: Capacity | None = None,
        mode: Mode = "auto",
    ) -> None:
        """`mode` is how a step is run, as of `execution.mode`; auto: as it is written on the CPU, recorded on a GPU,
        compiled too where many instances train. Without `capacity` a short probe finds one."""
        if num_envs < 1:
            raise ValueError(f"num_envs is {num_envs}; use at least 1")
        if dtype != torch.float32:
            raise WarpError(f"dtype is {dtype}, and Warp computes in float32; use dtype=float32 or simulator=mujoco")
        if purpose not in PURPOSES:
            raise ValueError(f"purpose is {purpose!r}; use one of {sorted(PURPOSES)}")
        self.task, self.num_envs, self.device = task, num_envs, torch.device(device)
        self.num_threads, self.purpose = num_threads, purpose
        self.is_on_device = on_gpu = self.device.type == "cuda"
        self._tensors = tensors = task.on_tensors(torch.zeros(0, device=self.device))
        if (reason := missing()) is not None:  # nobody installs it for a task that it cannot play
            raise WarpError(f"env.simulator is warp, but {reason}, or use env.simulator=mujoco")
        self.capacity = capacity or probed_capacity(task)
        self.spec = dataclasses.replace(
            environment_spec(task, id or task.id, dtype), exact_state=not on_gpu, restores_state=True
        )
        if on_gpu:
            check_memory(task.model, self.capacity, num_envs, self.device, self.spec.id, self._shown_numbers())
        self._worlds: Worlds | None = Worlds(
            task.model, num_envs, self.device, self.capacity, tensors.expanded, self.spec.id
        )
        with torch.inference_mode(False):
            self._allocate()
        if mode == "auto":
            pays = purpose == "train" and num_envs >= WORTH_COMPILING
            mode = ("compiled_captured" if pays else "captured") if on_gpu else "eager"
        if (sentence := untried(self.device)) is not None:
            log.warning("%s", sentence)
        execution = Execution(ExecutionConfig(mode=mode, precision="fp32"), self.device)
        self._is_compiled = execution.compiles
        self._act = execution.compiled(self._take_action)
        self._end = execution.compiled(self._end_episodes)
        self._begin = execution.compiled(self._begin_episodes)
        self._programs = [
            execution.program(functools.partial(self._advance, each), f"a step of {self.spec.id} on Warp")
            for each in range(2)
        ]
        self._derive = execution.program(self._derive_constants, f"constants of {self.spec.id} on Warp")
        self._since = 0
        """Steps since constants were derived."""
        self._turn = 0
        drawn: Any = self.task
        drawn.batch = self._worlds  # pictures ask it for states
        self._camera: Camera | None = None
        self._told, self._logged = dict.fromkeys(COUNTS, 0), dict.fromkeys(COUNTS, 0)
        began = time.monotonic()
        if on_gpu:
            log.info("Warp compiles its kernels for %s; the first time this takes one to two minutes", self.spec.id)
            if purpose == "train":
                log.info(
                    "%s on Warp: a resumed run goes on from the same physical state, but not bit for bit (exact_state "
                    "is false)",
                    self.spec.id,
                )
        else:
            log.warning("Warp on the CPU is for tests, and far slower than env.simulator=mujoco; use device=cuda")
        self.reset(seed)
        self.compile_seconds = time.monotonic() - began

    def _allocate(self) -> None:
        count, device = self.num_envs, self.device
        whole = functools.partial(torch.zeros, count, dtype=torch.int64, device=device)
        self._entropy, self._episode, self._elapsed = whole(2), whole(), whole()
        self._numbers = EpisodeNumbers(
            self._entropy, self._episode, self._elapsed, self.purpose, dtype=torch.float32, looks=False
        )
        self._words = torch.zeros(count, dtype=torch.float64, device=device)
        assert self._worlds is not None
        self._tensors.attach(self._worlds, self._numbers)
        self._action = torch.zeros(count, *self.spec.action.shape, device=device)
        self._wrong = torch.zeros(count, *self.spec.action.shape, dtype=torch.bool, device=device)
        self._counts = torch.zeros(len(COUNTS), dtype=torch.int64, device=device)
        self._everyone = torch.ones(count, dtype=torch.bool, device=device)
        self._steps = [_Buffers(self.spec, count, device) for _ in range(2)]

    # VecEnv

    def reset(self, seed: int | Sequence[int] | None = None) -> Observation:
        self._simulation()
        if seed is None:
            self._episode += 1
        else:
            self._entropy.copy_(torch.from_numpy(instance_seeds(seed, self.num_envs).view(np.int64)))
            self._episode.zero_()
            self._numbers.note_seeds()
        self._tensors.before_reset()
        return self._restart_all({})

    def step(self, action: Tensor) -> Step:
        self._simulation()
        if not isinstance(action, Tensor) or action.shape != self._action.shape or not action.is_floating_point():
            check_action(action, self.spec, self.num_envs)  # says what is wrong with it
        self._action.copy_(action.detach())
        self._turn ^= 1
        self._programs[self._turn].on(self._tensors.revision)()
        self._since += 1
        if self._tensors.derives and self._since >= DERIVE_EVERY:
            self._derive()
            self._since = 0
        now = self._steps[self._turn].step
        return dataclasses.replace(now, obs=dict(now.obs), final_obs=dict(now.final_obs), metrics=dict(now.metrics))

    def check_workers(self) -> None:
        """Read what the device counted: with `counted` the one place of a run where the host waits for this
        environment."""
        counts, told = self.counts(), self._told
        self._told = counts
        if counts["bad_actions"]:
            row, column = self._wrong.nonzero()[0].tolist()
            self._counts.zero_()
            self._wrong.zero_()
            self._told, self._logged = dict.fromkeys(COUNTS, 0), dict.fromkeys(COUNTS, 0)
            raise ValueError(
                f"the action of instance {row} was not finite in {self.spec.action.names[column]!r} (dimension "
                f"{column}) since the last look; {self.spec.id} takes finite numbers"
            )
        more = f"env.options.capacity=[{2 * self.capacity.constraints}, {2 * self.capacity.contacts}]"
        for name, bits, happened in (
            ("crowded", OWN_OVERFLOW, "%d worlds of %s ran out of room and began anew"),
            ("full_pool", POOL_OVERFLOW, "in %d steps of %s the pool of contacts was full and some were left out"),
        ):
            if counts[name] > told[name]:
                new = [bit for bit in bits if counts[bit] > told[bit]]
                log.warning(
                    f"{happened} (%s; %d so far); give more by %s",
                    counts[name] - told[name], self.spec.id, ", ".join(new), counts[name], more,
                )  # fmt: skip

    def counts(self) -> dict[str, int]:
        """What the device counted so far, by name."""
        return dict(zip(COUNTS, self._counts.tolist(), strict=True))

    def counted(self) -> dict[str, float]:
        counts, before = self.counts(), self._logged
        self._logged = counts
        return {f"warp/{name}": float(counts[name] - before[name]) for name in LOGGED}

    @property
    def elapsed(self) -> Tensor:
        return self._elapsed.clone()

    def set_elapsed(self, steps: Tensor) -> None:
        ages = torch.as_tensor(steps)
        if ages.shape != (self.num_envs,) or ages.is_floating_point():
            raise ValueError(f"ages are {ages.dtype} {list(ages.shape)}; pass {self.num_envs} integers")
        limit = self.spec.max_episode_steps
        least, most = int(ages.min()), int(ages.max())
        if least < 0 or (limit and most >= limit):
            raise ValueError(f"ages reach from {least} to {most}; they must lie in 0..{limit - 1}")
        self._elapsed.copy_(ages)

    def scenario(self) -> dict[str, Tensor]:
        """The present `qpos` [B, nq] and `qvel` [B, nv] and the layout of the episode, float64 on the CPU."""
        return {name: value.double().cpu() for name, value in self._scenario().items()}

    def load_scenario(self, scenario: Mapping[str, Any]) -> Observation:
        """Restart the present episodes from `scenario`; what it does not name is as it was drawn for them."""
        known, given = self._scenario(), {}
        for name, value in scenario.items():
            if name not in known:
                raise KeyError(f"{self.spec.id} has no scenario field {name!r}; it has {list(known)}")
            found = torch.as_tensor(value).to(known[name])
            if found.shape != known[name].shape:
                raise ValueError(
                    f"scenario field {name!r} has shape {list(found.shape)}; {self.spec.id} with {self.num_envs} "
                    f"instances takes {list(known[name].shape)} (all fields: {list(known)})"
                )
            if not bool(torch.isfinite(found).all()):
                raise ValueError(f"scenario field {name!r} is not finite; pass finite numbers")
            given[name] = found
        self.task.check_scenario({name: value.double().cpu().numpy() for name, value in given.items()})
        return self._restart_all(given)

    def state_dict(self) -> dict[str, Any]:
        flat, nested = self._stored()
        return {
            "task": self.task.id,
            "since": self._since,
            **{name: value.cpu().clone() for name, value in flat.items()},
            **{kind: {name: value.cpu().clone() for name, value in each.items()} for kind, each in nested.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> Observation:
        """The physical state is that of `state` bit for bit; what follows is as `exact_state` says."""
        self._simulation()
        flat, nested = self._stored()
        missing_names = [name for name in ("task", "since", *flat, *nested) if name not in state]
        if missing_names:
            raise ValueError(
                f"the state lacks {missing_names}; {self.spec.id} on Warp loads what its state_dict() gave"
            )
        if state["task"] != self.task.id:
            raise ValueError(f"this state belongs to {state['task']!r}, the environment runs {self.task.id!r}")
        targets = [(name, target, state[name]) for name, target in flat.items()]
        for kind, each in nested.items():
            if set(each) != set(state[kind]):
                raise KeyError(f"{kind} of the state holds {sorted(state[kind])}; {self.spec.id} has {sorted(each)}")
            targets += [(f"{kind}/{name}", target, state[kind][name]) for name, target in each.items()]
        for name, target, value in targets:
            if value.shape != target.shape:
                raise ValueError(
                    f"{name} of the state has shape {list(value.shape)}, this environment {list(target.shape)}; "
                    "load it with the same number of instances, task options and versions"
                )
        for _, target, value in targets:
            target.copy_(value)
        self._since = int(state["since"])
        self._numbers.note_seeds()
        self._numbers.follow(self._words)
        with self._simulation().on_stream():
            self._tensors.restore()
            if self._tensors.looks:
                self._simulation().look()
        return dict(self._steps[self._turn].step.obs)

    def render(self, index: int = 0, width: int = 640, height: int = 480) -> np.ndarray:
        from gaitway.envs.pictures.scene import Camera

        self._simulation()
        if self._camera is None:
            self._camera = Camera(self)
        self._camera.index = index
        return self._camera(width, height)

    def instance_bytes(self) -> int:
        """On the host: what a checkpoint holds of an instance."""
        flat, nested = self._stored()
        return super().instance_bytes() + state_bytes(flat) + sum(state_bytes(each) for each in nested.values())

    def device_bytes(self) -> int:
        if not self.is_on_device:
            return 0
        tensors = sum(state_bytes(each) for each in (self._tensors.layout, self._simulation().own))
        return world_bytes(self.task.model, self.capacity, self._shown_numbers()) + tensors

    def _shown_numbers(self) -> int:
        return sum(math.prod(group.shape) for group in self.spec.groups) + len(self.spec.metrics)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of this environment or of its task."""
        self._simulation()
        owner: Any = next((each for each in (self, self._tensors, self.task) if hasattr(each, name)), None)
        if not callable(getattr(owner, name, None)):
            raise AttributeError(f"neither {self.spec.id} nor its task has a method {name!r}")
        return getattr(owner, name)(*args, **kwargs)

    def close(self) -> None:
        if self._camera is not None:
            self._camera.close()
            self._camera = None
        if self._worlds is None:
            return
        self._worlds = None
        self.task.__dict__.pop("batch", None)
        # everything that holds memory of the device; whoever asks for it now is told that it was closed
        del self._tensors, self._steps, self._programs, self._derive, self._act, self._end, self._begin
        if self._is_compiled:
            gc.collect()  # what torch compiled refers to itself

    # a step

    def _advance(self, turn: int) -> None:
        """Move all instances by `_action` and fill the buffers of `turn`: what is recorded."""
        with torch.inference_mode(False), torch.no_grad(), self._simulation().on_stream():
            self._move(self._steps[turn], self._steps[turn ^ 1])

    def _move(self, now: _Buffers, before: _Buffers) -> None:
        task, worlds = self._tensors, self._simulation()
        self._act()
        task.advance()
        if task.looks:
            worlds.look()
        scalars, ended, final = self._end(before.step.obs)
        if task.looks and not task.knows_starts:
            worlds.look()
        seen = self._begin(ended[0] | ended[1], final, not task.knows_starts)
        now.scalars.copy_(scalars)
        now.flags.copy_(ended)
        for name in final:
            now.step.final_obs[name].copy_(final[name])
            now.step.obs[name].copy_(seen[name])

    def _take_action(self) -> None:
        wrong = ~torch.isfinite(self._action)
        self._wrong.logical_or_(wrong)
        self._counts[0].add_(wrong.flatten(1).any(1).sum())
        self._tensors.actuate(torch.where(wrong, 0.0, self._action))

    def _end_episodes(self, before: Observation) -> tuple[Tensor, Tensor, Observation]:
        """Reward and metrics [1 + M, B], who terminated and who is truncated [2, B], and final observations, after
        physics; `before` are the observations that led here. New episodes have been begun."""
        task = self._tensors
        diverged, own, pool = self._simulation().faults()
        crowded = own.any(0)
        task.faulty = faulty = diverged | crowded
        happened = torch.stack((diverged.sum(), crowded.sum(), pool.any().long()))
        self._counts[1:].add_(torch.cat((happened, own.sum(1), pool.long())))
        reward, terminated, metrics = task.outcome()
        self._elapsed.add_(1)
        terminated = terminated | faulty
        over = task.is_over()
        late = torch.zeros_like(faulty) if over is None else over
        if task.max_episode_steps:
            late = late | (self._elapsed >= task.max_episode_steps)
        truncated = late & ~terminated
        ended = terminated | truncated
        paid = torch.where(faulty, task.fault_reward, reward)
        told = [
            metrics[name] if name in task.fault_metrics else torch.where(faulty, 0.0, metrics[name])
            for name in self.spec.metrics
            if name != FAULT_METRIC
        ]
        scalars = torch.stack((paid, *(each.to(reward.dtype) for each in told), faulty.to(reward.dtype)))
        task.go_on(ended)
        final = {
            name: torch.where(_as(faulty, value), before[name], value)
            for name, value in task.observe(is_new=False).items()
        }
        self._episode.add_(ended)
        self._restart(ended, {})
        return scalars, torch.stack((terminated, truncated)), final

    def _begin_episodes(self, where: Tensor, final: Observation, has_looked: bool) -> Observation:
        """Observations for the next action; of episodes that begin in `where` [B] the first ones."""
        if not has_looked:
            self._tensors.tell_start(where)
        self._tensors.note_start(where)
        return {
            name: torch.where(_as(where, value), value, final[name])
            for name, value in self._tensors.observe(is_new=True).items()
        }

    def _restart_all(self, given: Mapping[str, Tensor]) -> Observation:
        self._turn ^= 1
        now, worlds = self._steps[self._turn].step, self._simulation()
        with torch.inference_mode(False), torch.no_grad(), worlds.on_stream():
            self._restart(self._everyone, given)
            if self._tensors.derives:
                worlds.derive()
            self._since = 0
            if self._tensors.looks:
                worlds.look()
            for name, value in self._begin_episodes(self._everyone, now.obs, True).items():
                now.obs[name].copy_(value)
        return dict(now.obs)

    def _restart(self, where: Tensor, given: Mapping[str, Tensor]) -> None:
        """Begin the present episodes of `where` [B] as drawn, except for what is `given` [B, ...]."""
        task, worlds = self._tensors, self._simulation()
        words = given.get(NUMBERS, self._numbers.begin())
        self._words.copy_(torch.where(where, words, self._words))
        self._numbers.follow(self._words)
        self._elapsed.masked_fill_(where, 0)
        drawn = {**task.draw(), **given}
        worlds.restart(where, drawn["qpos"], drawn["qvel"])
        for name, target in task.layout.items():
            target.copy_(torch.where(_as(where, target), drawn[name], target))
        task.start(where)

    # parts

    def _derive_constants(self) -> None:
        with self._simulation().on_stream():
            self._simulation().derive()

    def _simulation(self) -> Worlds:
        if self._worlds is None:
            raise RuntimeError(f"{self.spec.id} was closed; make a new environment")
        return self._worlds

    def _scenario(self) -> dict[str, Tensor]:
        worlds = self._simulation()
        return {"qpos": worlds.qpos, "qvel": worlds.qvel, **self._tensors.layout, NUMBERS: self._words}

    def _stored(self) -> tuple[dict[str, Tensor], dict[str, dict[str, Tensor]]]:
        """The tensors that make up the state, by name, and by kind and name."""
        flat = {"entropy": self._entropy, "episode": self._episode, "elapsed": self._elapsed, "words": self._words}
        worlds, tensors = self._simulation(), self._tensors
        return flat, {
            "physics": dict(worlds.state),
            "constants": {name: worlds.own[name] for name in CONSTANTS if name in worlds.own},
            "layout": tensors.layout,
            "memory": tensors.memory,
            "obs": self._steps[self._turn].step.obs,
        }


def kernel_cache() -> str:
    """Where Warp keeps compiled kernels."""
    warp, _ = warp_modules()
    return str(warp.config.kernel_cache_dir)


class _Buffers:
    """Room for everything that a step returns: `scalars` [1 + M, B] are the reward and the metrics, `flags` [2, B] who
    terminated and who is truncated."""

    def __init__(self, spec: EnvSpec, count: int, device: torch.device) -> None:
        def rooms() -> Observation:
            return {
                group.name: torch.zeros(count, *group.shape, dtype=group.torch_dtype, device=device)
                for group in spec.groups
            }

        self.scalars = torch.zeros(1 + len(spec.metrics), count, device=device)
        self.flags = torch.zeros(2, count, dtype=torch.bool, device=device)
        metrics = dict(zip(spec.metrics, self.scalars[1:].unbind(), strict=True))
        self.step = Step(rooms(), self.scalars[0], self.flags[0], self.flags[1], rooms(), metrics)


def _as(mask: Tensor, value: Tensor) -> Tensor:
    """A mask [B] in the shape of `value` [B, ...]."""
    return mask.view(-1, *(1,) * (value.dim() - 1))
