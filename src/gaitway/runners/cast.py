"""The cast of a run: the agents between `observe` and `advance`, the policy among them, and what is kept of them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from gaitway.agents.captured import rollout_agent
from gaitway.agents.policy import CastPolicy, InferencePolicy, Policy, acting_part
from gaitway.algorithms.engine import copied_state
from gaitway.core.agent import Agent, Agents, TemporalAgent
from gaitway.core.execution import Execution
from gaitway.core.schedules import Now
from gaitway.core.small_agents import SeedableAgent
from gaitway.core.transitions import FINAL, OBSERVATION, final_observations
from gaitway.core.wiring import Mention
from gaitway.core.workspace import Variable, Workspace
from gaitway.data.episodes import Episodes, EpisodeSource
from gaitway.envs.env_agent import EnvAgent
from gaitway.envs.vec_env import VecEnv
from gaitway.rewards.source import Rewards

log = logging.getLogger("gaitway")

AGENTS = {"recorder": "gaitway.agents.recorder:Recorder", "teacher": "gaitway.agents.teacher:Teacher"}
"""Agents by the names that `cast` in a configuration uses; `policy` says where the policy stands among them."""


class Cast:
    """A policy and further agents, in the order in which they act; a list without the policy runs behind it."""

    def __init__(self, policy: Policy, agents: Sequence[Agent] = (), seed: int = 0) -> None:
        self.policy = policy
        self.agents: list[Any] = list(agents) if any(agent is policy for agent in agents) else [policy, *agents]
        self.others: dict[str, Agent] = {}
        for agent in self.agents:
            if agent is policy:
                continue
            if not isinstance(agent, Agent):
                raise TypeError(f"the cast holds a {type(agent).__name__}; derive it from gaitway.Agent")
            name = agent.name or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(agent).__name__).lower()
            if name in self.others or name == "policy":
                raise ValueError(f"two agents of the cast are called {name!r}; give one another name")
            self.others[name] = agent.to(next(policy.parameters()).device)
            agent.seed(seed)

    def over_time(self, world: EnvAgent, execution: Execution) -> TemporalAgent:
        """The loop of a rollout: observe, the agents as `execution` runs them, advance."""
        played = [rollout_agent(agent, execution) for agent in self.agents]
        return TemporalAgent(Agents(world.observe, *played, world.advance))

    def reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for agent in self.agents for name in agent.reads))

    def writes(self) -> tuple[str, ...]:
        """What the agents besides the policy write."""
        return tuple(dict.fromkeys(name for agent in self.others.values() for name in agent.writes))

    def variables(self, num_envs: int, rows: int) -> dict[str, Variable]:
        found: dict[str, Variable] = {}
        for agent in self.agents:
            if hasattr(agent, "variables"):  # others write into memory that is made at their first step
                found |= agent.variables(num_envs, rows)
        return found

    def memories(self) -> tuple[str, ...]:
        """Variables that hold the state before each row, and one row more."""
        return tuple(agent.out(name) for agent in self.agents for name in agent.memories)

    def fill(self, ws: Workspace, rows: int) -> None:
        """Give what was made at its first step all its rows, so that a workspace in the making has one length."""
        for name in (*self.writes(), *self.memories()):
            missing = rows + ws.may_have_extra_row(name) - ws.rows(name) if name in ws else 0
            if missing > 0:
                ws[name] = torch.cat((ws[name], ws[name].new_zeros(missing, *ws[name].shape[1:])))

    def carried(self, ws: Workspace) -> dict[str, Any]:
        """What agents remember behind the last row of a rollout; nothing before the first."""
        return {name: ws.at(name, ws.T).clone() for name in self.memories() if name in ws}

    def begin(self, now: Now) -> None:
        for agent in self.others.values():
            agent.begin(now)

    def metrics(self) -> dict[str, float]:
        """What the agents besides the policy say of an iteration."""
        return {name: value for agent in self.others.values() for name, value in agent.metrics().items()}

    def collected(self, ws: Workspace, start: int, stop: int) -> None:
        for agent in self.agents:  # the policy too: one that asks a bandit tells it what episodes brought
            agent.collected(ws, start, stop)

    def inference(
        self, stochastic: bool = False, generator: torch.Generator | None = None
    ) -> InferencePolicy | CastPolicy:
        """What acts, as a function: the policy, with those agents that the action depends on."""
        acting = acting_part(self.agents)
        if acting == [self.policy]:
            return InferencePolicy(self.policy, stochastic, generator)
        return CastPolicy(acting, stochastic, generator)

    def train(self, mode: bool = True) -> None:
        for agent in self.agents:
            agent.train(mode)

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Around an evaluation: no statistics move, and random streams stand afterwards where they stood before."""
        streams = {name: _streams_of(agent) for name, agent in self.others.items()}
        self.train(False)
        try:
            yield
        finally:
            self.train()
            for name, agent in self.others.items():
                _load_streams(agent, streams[name])

    def modules(self) -> dict[str, Any]:
        """The further agents with parameters that are learnt, by `cast.<name>`."""
        learning = {f"cast.{name}": agent for name, agent in self.others.items()}
        return {name: agent for name, agent in learning.items() if any(p.requires_grad for p in agent.parameters())}

    def state_dict(self) -> dict[str, Any]:
        """What the agents besides the policy, which belongs to the algorithm, know: parameters and random streams."""
        return {name: _state_of(agent) for name, agent in self.others.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, agent in self.others.items():
            if name in state:
                agent.load_state_dict(state[name]["state"])
                _load_streams(agent, state[name]["streams"])


def _state_of(agent: Agent) -> dict[str, Any]:
    return {"state": copied_state(agent), "streams": _streams_of(agent)}


def _streams_of(agent: Agent) -> list[dict[str, Any]]:
    return [part.stream_states() for part in _seeded(agent)]


def _load_streams(agent: Agent, streams: Sequence[Mapping[str, Any]]) -> None:
    for part, states in zip(_seeded(agent), streams, strict=True):
        part.load_stream_states(states)


def _seeded(agent: Agent) -> list[SeedableAgent]:
    return [module for module in agent.modules() if isinstance(module, SeedableAgent)]


class CastEpisodes:
    """A dataset as the agents besides the policy see it: with what they write of every step."""

    def __init__(self, source: EpisodeSource, cast: Cast) -> None:
        self.source, self.num_steps = source, source.num_steps
        self.agents = [agent for agent in cast.others.values() if agent.writes]
        for name, agent in cast.others.items():
            if agent.memories:
                raise ValueError(f"{name} remembers, and steps of a dataset come in no order; leave it out of the cast")

    @torch.no_grad()
    def chunks(self) -> Iterator[Episodes]:
        for chunk in self.source.chunks():
            fields = chunk.transitions()
            step = {f"env/{name}": value for name, value in fields.items() if name.startswith("obs/")}
            ws = Workspace.packed({name: value[None] for name, value in (step | {"action": fields["action"]}).items()})
            for agent in self.agents:
                agent.step(ws, 0)
            written = {name: ws[name][0] for agent in self.agents for name in agent.writes}
            yield Episodes({**chunk.variables, **written}, chunk.lengths)

    def variables(self) -> dict[str, Variable]:
        """Shapes of what the agents write."""
        first = next(iter(self.chunks()))
        names = [name for agent in self.agents for name in agent.writes]
        return {
            name: Variable(1, 1, tuple(first.variables[name].shape[1:]), first.variables[name].dtype) for name in names
        }


def mentions(cast: Cast, rewards: Rewards, algorithm: Any) -> list[Mention]:
    """Who reads and writes variables besides the agents' steps: reward sources, losses, the algorithm, a replay, and
    agents that look at complete rows."""
    found = []
    if not rewards.is_plain:
        found = [Mention(f"reward {s.name}", tuple(s.reads), (f"reward/{s.name}",)) for s in rewards.sources]
        single = len(rewards.sources)  # behind what sources write come the sums
        found.append(Mention("rewards", rewards.writes[:single], rewards.writes[single:]))
    for term in algorithm.terms.terms if hasattr(algorithm, "terms") else ():
        found.append(Mention(f"loss {term.name}", tuple(name for name in term.reads if not name.startswith("new/"))))
    known = {name for mention in found for name in mention.reads}
    more = tuple(name for name in algorithm.reads if name not in known)
    if more:
        found.append(Mention(type(algorithm).__name__, more))
    after = {name: agent.reads_after for name, agent in cast.others.items() if agent.reads_after}
    found += [Mention(f"{name}, of complete rows", names) for name, names in after.items()]
    if hasattr(algorithm, "make_replay"):  # it keeps what every step led to
        observed = _groups((*cast.reads(), *(name for mention in found for name in mention.reads)))
        found.append(Mention("replay", final_observations(observed)))
    return found


def _groups(names: Iterable[str], prefix: str = OBSERVATION) -> tuple[str, ...]:
    """The observation groups among variables."""
    return tuple(dict.fromkeys(name.removeprefix(prefix) for name in names if name.startswith(prefix)))


def make_world(env: VecEnv, cast: Cast, others: Sequence[Mention]) -> EnvAgent:
    """The environment as agents that write the groups somebody reads, and the final observations of those that somebody
    reads there (`env/final_obs/<group>` in `reads`); says which groups nobody reads."""
    read = (*cast.reads(), *(name for mention in others for name in mention.reads))
    groups = _groups(read)
    unread = [name for name in env.spec.group_names if name not in groups]
    if unread:
        advice = "agent.observations, a block, a loss or a reward source may name them"
        log.warning("nobody reads the observation groups %s of %s; %s", unread, env.spec.id, advice)
    known = tuple(name for name in groups if name in env.spec.group_names)
    return EnvAgent(env, known, final_obs=tuple(name for name in known if name in _groups(read, FINAL)))
