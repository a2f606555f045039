"""What off-policy algorithms share: they draw transitions from a replay and make gradient steps on them.

An algorithm lists its `engines` (what is learnt) and `targets` (what follows slowly) and writes `learn`, one update on
the transitions it is given. Drawing, recording several updates as one CUDA graph, metrics and state are done here, so
that its own file holds its equations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from gaitway.algorithms.algorithm import Batch, Now, PositiveCoefficient, Schedule, value_at
from gaitway.algorithms.engine import Engine, FlatParameters, copied_state
from gaitway.core.config import configuration
from gaitway.core.execution import Execution, Program
from gaitway.core.ranges import Count, NotNegative, Positive, Share, WholeNumber
from gaitway.core.ranks import own_stream
from gaitway.core.seeding import restore_stream
from gaitway.core.workspace import Variable, Workspace
from gaitway.data.prioritised_replay import PrioritisedReplay
from gaitway.data.step_gather import TransitionBatch
from gaitway.data.step_replay import StepReplay
from gaitway.data.step_rows import Decisions


@configuration
class ReplayConfig:
    """How an off-policy algorithm plays, remembers and learns."""

    one_step_because: ClassVar[str] = ""
    """Why `n_step` must be 1; empty where it may be more."""
    update_ratio: Positive = 1.0
    """Updates per environment step."""
    batch_size: Count = 256
    replay_size: Count = 1_000_000
    """Transitions that are kept."""
    learning_starts: WholeNumber = 1000
    """Environment steps with uniform actions before learning begins."""
    steps_per_round: Count = 1
    """Steps of every environment between updates."""
    iteration_steps: Count = 1000
    """Environment steps, of all environments together, between log lines."""
    overlap: bool | Literal["auto"] = False
    """Make the updates of a round while the next step is simulated, so that a GPU learns while the CPU simulates. The
    policy then acts one round behind, in every run alike. `auto`: where a GPU learns and the CPU simulates."""
    gamma: Share = 0.99
    """Discount."""
    n_step: Count = 1
    """Rewards that are added up before the critics take over."""
    max_grad_norm: Positive | None = None
    """Limit of the gradient's norm, of each network; null for none."""
    optimiser: Literal["adam", "adamw"] = "adam"
    weight_decay: NotNegative = 0.0
    adam_eps: Positive = 1e-8
    updates_per_program: Count = 16
    """Updates recorded together as one CUDA graph, at most; a round with fewer has a recording of its own."""

    def __post_init__(self) -> None:
        if self.replay_size < self.batch_size:
            raise ValueError(
                f"replay_size is {self.replay_size}, less than batch_size, {self.batch_size}; keep at least one batch"
            )
        if self.one_step_because and self.n_step != 1:
            raise ValueError(f"n_step is {self.n_step}; {self.one_step_because}, so use n_step=1")


class Draw(NamedTuple):
    """Random numbers that an update needs: standard normal, or uniform in [0, 1)."""

    shape: tuple[int, ...]
    distribution: Literal["normal", "uniform"] = "normal"

    def fill(self, out: Tensor, generator: torch.Generator) -> None:
        if self.distribution == "normal":
            out.normal_(generator=generator)
        else:
            out.uniform_(generator=generator)


NO_DRAWS: Mapping[str, Draw] = {}
NO_DECISIONS: Decisions | None = None
MOST_RESTS = 3
"""Numbers of left-over updates that get a recording; others run one by one."""


class AnnotatedRewards(Protocol):
    """What a replay algorithm asks of the reward sources of a run (`rewards.source.Rewards`)."""

    is_plain: bool

    @property
    def reads(self) -> tuple[str, ...]: ...

    def stored(self) -> tuple[str, ...]: ...

    def annotate(self, ws: Workspace, when: Sequence[Any] = ...) -> None: ...


class ReplayAlgorithm:
    """Learns from batches of a replay; a leaf class writes `learn`.

    `cycle` is after how many updates they repeat (a delayed actor: 2); `learn` is told where in the cycle it stands,
    and recordings hold whole cycles. `draws` names the random numbers that an update needs, with their shapes and
    distributions.
    """

    config: ReplayConfig
    reads: tuple[str, ...] = ()
    tells_always = True
    """Whether statistics are those of every update, or of the last one in each recording alone."""

    def __init__(
        self,
        policy: Any,
        config: ReplayConfig,
        *,
        num_envs: int,
        seed: int,
        execution: Execution | None,
        draws: Mapping[str, Draw] = NO_DRAWS,
        cycle: int = 1,
    ) -> None:
        self.policy, self.config, self.num_envs, self.seed = policy, config, num_envs, seed
        self.device = next(policy.parameters()).device
        self.execution = execution or Execution(device=self.device)
        if self.device.type == "cpu":
            _keep_freed_memory()
        self.engines: dict[str, Engine] = {}
        """What is learnt, by name."""
        self._schedules: list[tuple[Engine, Schedule]] = []
        """Learning rates that change, and whose they are."""
        self.targets: dict[str, FlatParameters] = {}
        """What follows slowly, by name."""
        self.modules: dict[str, nn.Module] = {"policy": policy}
        """What holds parameters, for checkpoints."""
        self.cycle, self.draws = cycle, dict(draws)
        self.updates = 0
        """Updates so far: says where in the cycle the next one stands."""
        together = max(1, config.updates_per_program // cycle) * cycle
        name = type(self).__name__
        self.generator = own_stream(seed, name.lower(), self.device)
        self._index = torch.zeros(together, config.batch_size, dtype=torch.int64, device=self.device)
        self._noise = [
            {name: torch.zeros(draw.shape, device=self.device) for name, draw in self.draws.items()}
            for _ in range(together)
        ]
        self._many = self._program(together)
        self._rest: dict[int, Program] = {}
        """Recordings of fewer updates, by their number: what is left over, or all that a round has."""
        self._single = [
            self.execution.program(partial(self._learn_one, phase), f"an update of {name}") for phase in range(cycle)
        ]
        self.replay: StepReplay | None = None
        self.groups = tuple(policy.all_groups)
        """Observation groups that the replay keeps."""
        self.extras: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            policy.out(name): ((memory.size,), torch.float32) for name, memory in policy.memories.items()
        }
        """Further step variables that it keeps: what the policy remembers, what `reads` names, some rewards."""
        self.n_step, self.decisions = config.n_step, NO_DECISIONS
        """How many steps a transition spans at most, and, if the policy decides for several steps, how it does."""
        if policy.memories and config.n_step > 1:
            raise ValueError("a block that remembers is learnt from step by step; use algorithm.n_step=1")
        self.rewards: AnnotatedRewards | None = None
        self._replay_version = 0
        self._batch: TransitionBatch | None = None
        self._has_news = False

    def learn(self, index: Tensor, noise: Mapping[str, Tensor], phase: int) -> None:
        """One update on the transitions `index` [n], with the random numbers `noise` that `draws` names."""
        raise TypeError(f"{type(self).__name__} does not implement learn")

    # Called by the runner

    def keep(self, variables: Mapping[str, Variable], groups: Sequence[str], rewards: AnnotatedRewards) -> None:
        """What the replay keeps of step rows with these `variables`: what is read when transitions are drawn."""
        if self.decisions is not None:  # further groups tell the low level how to act, and nobody learns from them
            groups = [name for name in groups if f"env/obs/{name}" in rewards.reads]
        self.groups = tuple(dict.fromkeys((*self.groups, *groups)))
        names = [name for name in self.reads if not name.startswith("env/obs/")]
        if not rewards.is_plain:
            self.rewards = rewards
            names += [*rewards.stored(), *(name for name in rewards.reads if name.startswith("env/metric/"))]
        for name in names:
            if name in ("action", "env/reward", "env/terminated", "env/truncated"):
                continue
            if name not in variables:
                raise ValueError(
                    f"{type(self).__name__} reads {name!r} from the replay; let the agent that writes it declare its "
                    "shape in variables(num_envs, rows)"
                )
            self.extras[name] = (variables[name].shape, variables[name].dtype)

    def callbacks(self) -> tuple[Any, ...]:
        """What the algorithm itself does between iterations, as callbacks of the run."""
        return ()

    def make_replay(self, device: torch.device | str | None = None) -> StepReplay:
        """An empty replay for what the policy reads and does."""
        return StepReplay(**self.replay_options(device))

    def replay_bytes(self, size: int) -> int:
        """What a replay of `size` transitions takes."""
        return StepReplay.bytes_needed(size, **self.replay_arguments())

    def update(self, replay: StepReplay, updates: int, now: Now) -> None:
        """Make `updates` updates; statistics add up until `metrics` is called.

        Indices and noise are drawn update by update, so that how updates are grouped does not change what is learnt.
        """
        self._attach(replay)
        for engine, schedule in self._schedules:
            engine.set_learning_rate(schedule(now))
        self._has_news |= updates > 0
        left = updates
        while left:
            made, program = self._next(left)
            self._draw(made)
            program()
            self.updates += made
            left -= made

    def metrics(self) -> dict[str, Tensor]:
        """Mean losses and statistics since the last call, as tensors; nothing without an update."""
        found: dict[str, Tensor] = {}
        if not self._has_news:
            return found
        self._has_news = False
        for name, engine in self.engines.items():
            read = engine.read()
            found |= {f"{key}/{name}" if key == "gradient_norm" else key: value for key, value in read.items()}
            if any(engine is other for other, _ in self._schedules):
                found[f"learning_rate/{name}"] = engine.learning_rate.clone()
        return found

    def flat_parameters(self) -> list[Tensor]:
        """All that is learnt, as flat tensors."""
        flat = [*(engine.parameters for engine in self.engines.values()), *self.targets.values()]
        return [parameters.value.detach() for parameters in flat]

    def reset_running_returns(self) -> None:
        """Every environment begins a new episode; nothing here depends on it."""

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {name: copied_state(module) for name, module in self.modules.items()}
        engines = {name: engine.state_dict() for name, engine in self.engines.items()}
        return state | {"engines": engines, "noise_stream": self.generator.get_state(), "updates": self.updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, module in self.modules.items():
            module.load_state_dict(state[name])
        for name, engine in self.engines.items():
            engine.load_state_dict(state["engines"][name])
        restore_stream(self.generator, state["noise_stream"])
        self.updates = state["updates"]
        self._forget_programs()  # they may know of an optimiser that had no state yet

    # For the leaf classes

    def engine(self, module: nn.Module, learning_rate: PositiveCoefficient) -> Engine:
        """An engine with the optimiser of the config; its `loss` is set once the parameters have found their place. A
        rate that is a schedule is followed from round to round."""
        config = self.config
        engine = Engine(
            module,
            unset_loss,
            learning_rate=value_at(learning_rate, Now()),
            max_grad_norm=config.max_grad_norm,
            optimiser=config.optimiser,
            eps=config.adam_eps,
            weight_decay=config.weight_decay,
        )
        if isinstance(learning_rate, Schedule):
            self._schedules.append((engine, learning_rate))
        return engine

    def replay_options(self, device: torch.device | str | None = None) -> dict[str, Any]:
        """All arguments of the replay."""
        device = torch.device(device or self.device)
        sizes = {"capacity": self.config.replay_size, "gamma": self.config.gamma}
        return (
            self.replay_arguments() | sizes | {"device": device, "generator": own_stream(self.seed, "replay", device)}
        )

    def replay_arguments(self) -> dict[str, Any]:
        """What shapes and sizes the replay, besides its capacity."""
        spec = self.policy.spec
        return {
            "num_envs": self.num_envs,
            "groups": {name: (spec.group(name).shape, spec.group(name).torch_dtype) for name in self.groups},
            "action": None if self.decisions is not None else (spec.action.shape, spec.action.dtype),
            "n_step": self.n_step,
            "decisions": self.decisions,
            "max_episode_steps": spec.max_episode_steps or None,
            "reset_rows": spec.reset_rows,
            "extras": self.extras,
        }

    def transitions(self, index: Tensor) -> Batch:
        """The drawn transitions as networks read them: `actor`, `critic`, `next/actor`, `next/critic` [n, D], `action`,
        `reward` and `discount` [n], which is 0 after a termination, and `weight` [n] where the replay gives one. Where
        a policy decides for several steps, what it decided is among `reads`, and there is no `action`."""
        assert self.replay is not None
        drawn = self.replay.gather(index, self._batch if len(index) == self.config.batch_size else None)
        batch: Batch = {name: drawn[name] for name in ("action", "reward", "discount", "weight") if name in drawn}
        with torch.no_grad():
            if self.rewards is not None:
                batch["reward"] = self._total_reward(self.rewards, index, drawn.get("steps"))
            plain = [name for name in self.reads if name.startswith("env/obs/") or name == "env/truncated"]
            further = {name: drawn[name.removeprefix("env/")] for name in plain}
            further |= {name: drawn[name] for name in self.reads if name in self.extras}
            return batch | self.policy.read(drawn) | further

    def soft_update(self, name: str, source: Engine, tau: float) -> None:
        """Soft (Polyak) update of the target network `name`: a fraction `tau` of the way to what `source` learns."""
        with torch.no_grad():
            target = self.targets[name].value
            target.lerp_(source.parameters.value[: len(target)], tau)  # behind it lie blocks, which have no target

    # Private

    def _total_reward(self, rewards: AnnotatedRewards, index: Tensor, length: Tensor | None = None) -> Tensor:
        """The discounted sum of `reward/total` over the steps of each transition, [n], with what sources say now; those
        steps are n, or `length` [n]."""
        assert self.replay is not None
        steps = self.replay.window(index, self.n_step)
        rewards.annotate(steps, ("drawn",))
        alive = torch.ones_like(steps["reward/total"][0])
        total = torch.zeros_like(alive)
        for k, (reward, done) in enumerate(zip(steps["reward/total"], steps["env/done"], strict=True)):
            total = total + self.config.gamma**k * alive * reward
            alive = alive * (~done if length is None else ~done & (k + 1 < length))
        return total

    def _attach(self, replay: StepReplay) -> None:
        """Learn from `replay` from now on; recordings that read from other memory are dropped."""
        if replay is self.replay and replay.version == self._replay_version:
            return
        if replay.device != self.device:
            raise ValueError(
                f"the replay lies on {replay.device}, the networks on {self.device}; make it with make_replay()"
            )
        self.replay, self._replay_version = replay, replay.version
        self._batch = replay.batch(self.config.batch_size)
        self._forget_programs()

    def _forget_programs(self) -> None:
        for program in (self._many, *self._single, *self._rest.values()):
            program.forget()

    def _program(self, updates: int) -> Program:
        name = f"{updates} updates of {type(self).__name__}"
        return self.execution.program(partial(self._learn_many, updates), name)

    def _next(self, left: int) -> tuple[int, Program]:
        """How many of the updates that are left come next, and what makes them: as many as can be recorded together."""
        together, phase = len(self._index), self.updates % self.cycle
        if phase == 0 and left >= together:
            return together, self._many
        rest = left - left % self.cycle
        if phase or rest < 2 or not self.execution.captures:
            return 1, self._single[phase]
        if rest not in self._rest:
            if len(self._rest) == MOST_RESTS:
                return 1, self._single[phase]
            self._rest[rest] = self._program(rest)
        return rest, self._rest[rest]

    def _draw(self, updates: int) -> None:
        """Indices and noise of the next `updates` updates, into memory that recordings read."""
        replay = self.replay
        assert replay is not None
        # priorities change with every update, so those draws are completed within it
        locate = replay.tickets if isinstance(replay, PrioritisedReplay) else replay.draw
        for index, noise in zip(self._index[:updates], self._noise, strict=False):
            locate((self.config.batch_size,), out=index)
            for name, draw in self.draws.items():
                draw.fill(noise[name], self.generator)

    def _learn_many(self, updates: int) -> None:
        for number, (index, noise) in enumerate(zip(self._index[:updates], self._noise, strict=False), start=1):
            self._tell(self.tells_always or number == updates)
            self.learn(index, noise, (number - 1) % self.cycle)

    def _learn_one(self, phase: int) -> None:
        self._tell(True)
        self.learn(self._index[0], self._noise[0], phase)

    def _tell(self, tells: bool) -> None:
        for engine in self.engines.values():
            engine.tells = tells


def unset_loss(batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    raise TypeError("this engine was given no loss")


def _keep_freed_memory() -> None:
    """Let the C library keep blocks of megabytes that are freed, instead of fetching them anew at every update.

    glibc returns large blocks to the kernel, and taking them back costs a page fault per 4 kB: a tenth of an update on
    the CPU. It stops doing so for blocks up to the largest that it has seen come and go, at most 32 MB.
    """
    torch.empty(2**25 - 2**16, dtype=torch.uint8)
