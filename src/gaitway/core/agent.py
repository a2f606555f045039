"""Agents read and write a Workspace; a *cast* is a sequence of them, and time is a loop over the cast.

An agent says what it `reads` and `writes` and does `step(ws, t)`; its only effect is what it writes. `Agents` runs a
cast in order, `TemporalAgent` repeats it over rows and tells agents with memory where episodes ended. Options such as
`stochastic=False` go to the agents whose `step` declares them. No agent keeps a reference to a workspace.
"""

from __future__ import annotations

import copy
import functools
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Self

import torch
from torch import Tensor, nn

from gaitway.core.seeding import check_seed
from gaitway.core.workspace import Workspace


class Agent(nn.Module):
    """A module that reads and writes variables. Subclasses write `step`, and `reset` if they carry memory."""

    reads: tuple[str, ...] = ()
    """Variables that must be written before `step`."""
    writes: tuple[str, ...] = ()
    """Variables that `step` writes, prefix included."""
    reads_after: tuple[str, ...] = ()
    """Variables that `collected` reads besides, of complete rows: also what is written behind this agent, such as final
    observations (`env/final_obs/<group>`), which are stored for groups that somebody names."""
    memories: Mapping[str, Any] = MappingProxyType({})
    """Variables, without prefix, that hold the state before each row, and one row more; `step` writes row t + 1."""
    plays = True
    """Whether it has a part in evaluations and in what is loaded from a run; one that watches, or acts in training
    alone, has none."""
    is_recordable = False
    """Whether `step` is work on tensors alone that looks at no value, reads and writes row t (memories: writes t + 1):
    a GPU may then record it."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self.name = name
        self.prefix = ""

    def step(self, ws: Workspace, t: int) -> None:
        """Read rows that exist, write row t. A subclass may add options as keywords: `stochastic: bool = True`."""
        raise TypeError(f"{type(self).__name__} does not implement step(ws, t)")

    def reset(self, ws: Workspace, t: int, mask: Tensor) -> None:
        """Called before row t; `mask` `[B]` is true where an episode ended at row t-1. Nothing to do without memory."""

    def begin(self, now: Any) -> None:
        """An iteration begins; `now` says where training stands (`core.schedules.Now`). Called by runners."""

    def metrics(self) -> Mapping[str, float]:
        """Numbers for the log, of what happened since the last call. Called by runners once per iteration."""
        return {}

    def collected(self, ws: Workspace, start: int, stop: int) -> None:
        """Rows `start <= t < stop` are complete, rewards and ends included; called by runners."""

    def load_state_dict(self, state_dict: Mapping[str, Any], *arguments: Any, **options: Any) -> Any:
        """As that of every module; what does not fit is a ValueError that names one parameter."""
        try:
            return super().load_state_dict(state_dict, *arguments, **options)
        except RuntimeError as error:
            if type(error) is not RuntimeError:  # an agent's own complaint, about a file for example
                raise
            raise ValueError(f"the stored {type(self).__name__} does not fit: {misfit_of(self, state_dict)}") from error

    def close(self) -> None:
        """The run is over; called by runners. For agents that hold files or windows."""

    def __call__(self, ws: Workspace, t: int = 0, **options: Any) -> Any:
        """Run `step` on row t."""
        return self.step(ws, t, **options)

    def prepared_step(self, ws: Workspace, options: Mapping[str, Any]) -> Callable[[int], Any]:
        """`step` on `ws` with these options, for a run over many rows: a function of t.

        Override it to look up once what stays the same during a run: networks, names, options. Parameters do too.
        """
        return functools.partial(self, ws, **options)

    def declared_options(self) -> frozenset[str] | None:
        """Options that `step` takes, or None if it takes any."""
        return _keyword_options(type(self).step)

    @property
    def resets(self) -> bool:
        """Whether `reset` does anything."""
        return type(self).reset is not Agent.reset

    def parts(self) -> tuple[Agent, ...]:
        """The agents that do the work, in the order they run: an ordinary agent is its own only part."""
        return (self,)

    def is_running(self) -> bool:
        """Whether work goes on in another process; never for an agent of this one."""
        return False

    def seed(self, seed: int) -> Self:
        """Restart the random streams of this agent and the agents inside; nothing to do without randomness."""
        check_seed(seed)
        return self

    def set_name(self, name: str | None) -> Self:
        self.name = name
        return self

    def get_by_name(self, name: str | None) -> list[Agent]:
        """Agents of this tree called `name`: a container before its children, children left to right."""
        return [] if name is None else [m for m in self.modules() if isinstance(m, Agent) and m.name == name]

    def with_prefix(self, prefix: str) -> Self:
        """Put `prefix` before every output name, so that two copies of an agent write side by side."""
        local = [name.removeprefix(self.prefix) for name in self.writes]
        self.prefix = prefix
        if not isinstance(inspect.getattr_static(type(self), "writes"), property):  # a property calls `out` itself
            self.writes = tuple(prefix + name for name in local)
        return self

    def out(self, local_name: str) -> str:
        """Name under which this agent writes its output `local_name`."""
        return self.prefix + local_name

    def clone(self) -> Self:
        """A deep copy; its parameters have no gradients, while this agent keeps its own, and its random state."""
        return copy.deepcopy(self)

    def constructor_arguments(self) -> dict[str, Any] | None:
        """Keyword arguments that make such an agent again, plain values only; None if it cannot be said with those.

        An agent that returns them may be rebuilt from a file by `core.agent_files.load_agent`.
        """
        return None


def misfit_of(module: nn.Module, state: Mapping[str, Any]) -> str:
    """The first stored parameter that a module lacks or has in another shape, in words."""
    own = module.state_dict()
    for name, value in state.items():
        if name not in own:
            return f"it has {name!r}, which the configuration makes no place for; use the one it was trained with"
        shapes = [list(each.shape) for each in (value, own[name]) if hasattr(each, "shape")]
        if len(shapes) == 2 and shapes[0] != shapes[1]:
            made = f"the configuration makes it {shapes[1]}"
            return f"{name!r} is {shapes[0]} there, and {made}; use the sizes it was trained with"
    missing = next((name for name in own if name not in state), None)
    return f"it lacks {missing!r}; use the configuration it was trained with"


class Agents(Agent):
    """A cast: agents that run in order on the same workspace."""

    def __init__(self, *agents: Agent, name: str | None = None) -> None:
        super().__init__(name)
        for agent in agents:
            if not isinstance(agent, Agent):
                raise TypeError(f"Agents takes agents, found {type(agent).__name__}; derive it from Agent")
        self.agents = nn.ModuleList(agents)
        self._plans: dict[tuple[str, ...], tuple[tuple[str, ...], ...]] = {}

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        """What no agent of the cast wrote before it is read."""
        written: set[str] = set()
        needed: dict[str, None] = {}
        for agent in self:
            needed.update(dict.fromkeys(name for name in agent.reads if name not in written))
            written.update(agent.writes)
        return tuple(needed)

    @property
    def writes(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(dict.fromkeys(name for agent in self for name in agent.writes))

    def step(self, ws: Workspace, t: int, **options: Any) -> None:
        if not options:
            for agent in self.agents:
                agent(ws, t)
            return
        for agent, names in zip(self.agents, self._plan(tuple(options)), strict=True):
            agent(ws, t, **{name: options[name] for name in names})

    def prepared_step(self, ws: Workspace, options: Mapping[str, Any]) -> Callable[[int], Any]:
        plan = zip(self, self._plan(tuple(options)), strict=True)
        steps = [agent.prepared_step(ws, {name: options[name] for name in names}) for agent, names in plan]

        def step(t: int) -> None:
            for each in steps:
                each(t)

        return step

    def _plan(self, options: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        """Which of the options each agent gets; found once per set of options, because signatures are slow to read."""
        plan = self._plans.get(options)
        if plan is None:
            check_declared(self, options)
            declared = [agent.declared_options() for agent in self]
            plan = tuple(tuple(name for name in options if known is None or name in known) for known in declared)
            self._plans[options] = plan
        return plan

    def reset(self, ws: Workspace, t: int, mask: Tensor) -> None:
        for agent in self:
            if agent.resets:
                agent.reset(ws, t, mask)

    def declared_options(self) -> frozenset[str] | None:
        known: frozenset[str] = frozenset()
        for agent in self:
            declared = agent.declared_options()
            if declared is None:
                return None
            known |= declared
        return known

    @property
    def resets(self) -> bool:
        return any(agent.resets for agent in self)

    def parts(self) -> tuple[Agent, ...]:
        return tuple(part for agent in self for part in agent.parts())

    def seed(self, seed: int) -> Self:
        for agent in self:
            agent.seed(seed)
        return super().seed(seed)

    def with_prefix(self, prefix: str) -> Self:
        raise TypeError("a cast has no prefix, because its agents read each other; call with_prefix on single agents")

    def __getitem__(self, index: int) -> Agent:
        agent = self.agents[index]
        if not isinstance(agent, Agent):
            raise TypeError(f"a cast is indexed by one integer, found {index!r}")
        return agent

    def __len__(self) -> int:
        return len(self.agents)

    def __iter__(self) -> Iterator[Agent]:
        return iter(self.agents)  # type: ignore[arg-type]


class Around(Agent):
    """An agent around another one, which it stands for in every respect but how it is run."""

    def __init__(self, agent: Agent, name: str | None = None) -> None:
        super().__init__(name)
        if not isinstance(agent, Agent):
            raise TypeError(f"{type(self).__name__} takes an agent, found {type(agent).__name__}; derive it from Agent")
        self.agent = agent

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.agent.reads

    @property
    def writes(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.agent.writes

    def reset(self, ws: Workspace, t: int, mask: Tensor) -> None:
        self.agent.reset(ws, t, mask)

    def declared_options(self) -> frozenset[str] | None:
        return self.agent.declared_options()

    @property
    def resets(self) -> bool:
        return self.agent.resets

    def parts(self) -> tuple[Agent, ...]:
        return self.agent.parts()

    def seed(self, seed: int) -> Self:
        self.agent.seed(seed)
        return super().seed(seed)

    def with_prefix(self, prefix: str) -> Self:
        self.agent.with_prefix(prefix)
        return self


class TemporalAgent(Around):
    """Repeats an agent over rows: the interaction loop."""

    def __call__(self, ws: Workspace, t: int = 0, **options: Any) -> int:
        return self.run(ws, t, **options)

    def step(self, ws: Workspace, t: int, **options: Any) -> None:
        self.run(ws, t, **options)

    def run(
        self,
        ws: Workspace,
        t: int = 0,
        n_steps: int | None = None,
        stop_variable: str | None = None,
        ended: Tensor | None = None,
        reset: bool = False,
        **options: Any,
    ) -> int:
        """Run rows t, t+1, ... and return how many.

        Stops after `n_steps` rows, or after the row in which every element of `stop_variable` is true; that row is
        written. Before each row agents with memory are reset where an episode ended in the row before. `ended` `[B]`
        says so for the first row, when the row before it belongs to an earlier rollout in the same workspace. `reset`
        starts anew at the first row: environments begin new episodes, memories are emptied.
        """
        if n_steps is None and stop_variable is None:
            raise ValueError("nothing would stop this run; pass n_steps, stop_variable or both")
        if n_steps is not None and operator.index(n_steps) < 0:
            raise ValueError(f"n_steps is {n_steps}; use 0 or more rows")
        first = {**options, "reset": True} if reset else options
        check_declared(self.agent, tuple(first))
        agent, resets, count = self.agent, self.agent.resets, 0
        step = agent.prepared_step(ws, options)
        if reset and len(ws):
            ended = torch.ones(ws.B, dtype=torch.bool, device=ws[next(iter(ws))].device)
        while n_steps is None or count < n_steps:
            row = t + count
            if resets:
                mask = ended if count == 0 and ended is not None else ended_before(ws, row)
                if mask is not None:
                    agent.reset(ws, row, mask)
            if reset and count == 0:
                agent(ws, row, **first)
            else:
                step(row)
            count += 1
            if stop_variable is not None and bool(ws.at(stop_variable, row).all()):
                break
        return count

    def declared_options(self) -> frozenset[str] | None:
        declared = self.agent.declared_options()
        return None if declared is None else declared | {"n_steps", "stop_variable", "ended", "reset"}


def ended_before(ws: Workspace, t: int) -> Tensor | None:
    """Where the episode ended at row t-1, bool `[B]`: done there, or a row that only reset; None if nothing says."""
    if t == 0 or "env/done" not in ws:
        return None
    try:
        ended = ws.at("env/done", t - 1) != 0
        return ended | ~ws.at("env/valid", t - 1) if "env/valid" in ws else ended
    except IndexError:  # the run starts behind the rows written so far, so there is no row before it
        return None


@functools.cache
def _keyword_options(step: Callable[..., Any]) -> frozenset[str] | None:
    """Parameters of a `step` method after self, ws and t; None if it takes any keyword."""
    parameters = list(inspect.signature(step).parameters.values())
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):  # also of `step(self, *args, **more)`
        return None
    return frozenset(parameter.name for parameter in parameters[3:] if parameter.kind is not parameter.VAR_POSITIONAL)


def check_declared(agent: Agent, options: tuple[str, ...]) -> None:
    """Refuse an option that no agent, at any depth, declares."""
    declared = agent.declared_options() if options else None
    unknown = [] if declared is None else [name for name in options if name not in declared]
    if unknown:
        raise TypeError(
            f"no agent declares the options {unknown}; declared are {sorted(declared or ())}. Add the option to "
            "step() of the agent that should have it"
        )
