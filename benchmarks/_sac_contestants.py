"""SAC updates from a filled replay, ours and stable-baselines3's: the workload of sac_update.py and gpu_sac.py."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import gymnasium
import numpy as np
import torch
from _gpu import Phases, Session, Stopwatch, layer_products, precision
from torch import Tensor, nn

from gaitway.agents.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig
from gaitway.algorithms.algorithm import Now
from gaitway.algorithms.sac import SAC, SACConfig
from gaitway.core.execution import Execution, ExecutionConfig
from gaitway.core.workspace import Variable, Workspace
from gaitway.data.step_replay import StepReplay
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup

CHUNK = 50_000
_REPLAYS: dict[tuple[int, int, int, str], StepReplay] = {}


@dataclass(frozen=True)
class Workload:
    """Networks and minibatches; the defaults are those of HalfCheetah-v5 everywhere."""

    hidden: tuple[int, ...] = (256, 256)
    batch: int = 256
    updates: int = 1
    """Gradient steps per call."""
    capacity: int = 1_000_000
    observations: int = 17
    actions: int = 6

    def experience(self) -> list[dict[str, np.ndarray]]:
        return experience(self.capacity, self.observations, self.actions)

    @property
    def title(self) -> str:
        return f"{'-'.join(map(str, self.hidden))}, batch {self.batch}, {self.updates} updates a call"


@functools.cache
def experience(capacity: int, observations: int, actions: int) -> list[dict[str, np.ndarray]]:
    """Random steps of one instance in chunks; the last observation of a chunk is the first of the next."""
    random = np.random.default_rng(0)
    following = random.standard_normal(observations, dtype=np.float32)
    chunks = []
    for start in range(0, capacity, CHUNK):
        count = min(CHUNK, capacity - start)
        obs = random.standard_normal((count + 1, observations), dtype=np.float32)
        obs[0], following = following, obs[-1]
        ends = random.random(count) < 2e-3
        truncated = ends & (random.random(count) < 0.5)
        chunk = {
            "obs": obs,
            "next_obs": np.where(ends[:, None], obs[1:] + 0.5, obs[1:]).astype(np.float32),
            "action": random.uniform(-1.0, 1.0, (count, actions)).astype(np.float32),
            "reward": random.standard_normal(count, dtype=np.float32),
            "terminated": ends & ~truncated,
            "truncated": truncated,
        }
        chunks.append(chunk)
    return chunks


class Ours:
    """`SAC.update` on a replay of its own."""

    def __init__(self, work: Workload, device: str, mode: str, kind: str, threads: int = 1) -> None:
        limits = (1.0,) * work.actions
        action = ActionSpec(
            "continuous", tuple(f"a{i}" for i in range(work.actions)), tuple(-x for x in limits), limits
        )
        group = ObservationGroup("policy", (Component("all", work.observations),), (work.observations,))
        spec = EnvSpec("random", (group,), action, 0.0, 1000)
        networks = SoftActorCriticConfig(actor_hidden=work.hidden, critic_hidden=work.hidden)
        self.policy = SoftActorCritic(spec, networks, torch.Generator().manual_seed(0)).to(device)
        config = SACConfig(batch_size=work.batch, replay_size=work.capacity)
        execution = Execution(ExecutionConfig(mode, kind), device)  # type: ignore[arg-type]
        self.algorithm = SAC(self.policy, config, num_envs=1, execution=execution)
        self.replay = self._filled(work, device)
        self.work, self.watch, self.threads = work, Stopwatch(device), threads

    def _filled(self, work: Workload, device: str) -> StepReplay:
        """A full replay; all contestants of one size share one."""
        key = (work.capacity, work.observations, work.actions, device)
        if key not in _REPLAYS:
            replay = self.algorithm.make_replay(torch.device(device))
            for chunk in work.experience():
                replay.add(_workspace(chunk, device))
            _REPLAYS[key] = replay
        return _REPLAYS[key]

    def same_draws(self) -> None:
        """Begin the replay's random stream anew."""
        self.replay.generator.manual_seed(0)

    def __call__(self) -> Phases:
        torch.set_num_threads(self.threads)
        self.watch.start()
        self.update()
        return {"total": self.watch.lap() / self.work.updates}

    def update(self, updates: int | None = None) -> None:
        self.algorithm.update(self.replay, updates or self.work.updates, Now())

    @property
    def parameters(self) -> Tensor:
        return torch.cat([tensor.detach().flatten() for tensor in self.algorithm.flat_parameters()])


class StableBaselines3:
    """`SAC.train` on its own buffer, which lies in the memory of the host, as it always does."""

    def __init__(self, work: Workload, device: str, kind: str | None, threads: int = 1) -> None:
        import stable_baselines3
        from stable_baselines3.common.logger import Logger

        self.model = stable_baselines3.SAC(
            "MlpPolicy",
            _Spaces(work),
            buffer_size=work.capacity,
            batch_size=work.batch,
            policy_kwargs={"net_arch": list(work.hidden)},
            device=device,
            seed=0,
        )
        self.model.set_logger(Logger(None, []))
        buffer, start = self.model.replay_buffer, 0
        assert buffer is not None
        for chunk in work.experience():
            rows = slice(start, start + len(chunk["reward"]))
            buffer.observations[rows, 0], buffer.next_observations[rows, 0] = chunk["obs"][:-1], chunk["next_obs"]
            buffer.actions[rows, 0], buffer.rewards[rows, 0] = chunk["action"], chunk["reward"]
            buffer.dones[rows, 0] = chunk["terminated"] | chunk["truncated"]
            buffer.timeouts[rows, 0] = chunk["truncated"]
            start = rows.stop
        buffer.full = True
        self.work, self.watch, self.kind, self.threads = work, Stopwatch(device), kind, threads

    def __call__(self) -> Phases:
        torch.set_num_threads(self.threads)
        with precision(self.kind):
            self.watch.start()
            self.model.train(self.work.updates, self.work.batch)
            return {"total": self.watch.lap() / self.work.updates}


class _Spaces(gymnasium.Env):
    """An environment that is never stepped: stable-baselines3 reads its spaces."""

    def __init__(self, work: Workload) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (work.observations,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (work.actions,), np.float32)


def products(work: Workload) -> list[tuple[tuple[int, int, int], int]]:
    """The matrix products of one call. An update needs the actor on both observations and its gradients; of each of two
    critics the target's values, the values and their gradients, and in the actor's step values and the gradients of
    their inputs alone."""
    actor = (work.observations, *work.hidden, 2 * work.actions)
    critic = (work.observations + work.actions, *work.hidden, 1)
    found = layer_products(work.batch, actor, work.updates, learning=True)
    found += layer_products(work.batch, actor, work.updates, learning=False)
    found += layer_products(work.batch, critic, 2 * work.updates, learning=True)
    found += layer_products(work.batch, critic, 4 * work.updates, learning=False)
    found += [((work.batch, outputs, inputs), 2 * work.updates) for inputs, outputs in itertools.pairwise(critic)]
    return found


def check_same_work(session: Session, work: Workload, updates: int = 10) -> None:
    """The same start, transitions and noise must lead both libraries to the same parameters.

    stable-baselines3 adds 1e-6 within the logarithm of its density, where ours is exact; here it does not. With it the
    actors differ by 2e-4 after 10 updates, and everything else is equal.
    """
    work = replace(work, capacity=min(work.capacity, 10_000))
    ours = Ours(work, session.device, "eager", "fp32")
    peer = StableBaselines3(work, session.device, "fp32")
    peer.model.actor.action_dist.epsilon = 0.0
    with torch.no_grad():
        for mine, theirs in matching_parameters(ours, peer):
            theirs.copy_(mine)
    for _ in range(updates):
        ours.update(1)
        noise = ours.algorithm._noise[0]["actions"].clone()  # what this update drew
        drawn = ours.replay.gather(ours.algorithm._index[0])
        with precision("fp32"), given(peer, drawn, list(noise)):
            peer.model.train(1, work.batch)
    pairs = list(matching_parameters(ours, peer))
    mine, theirs = (torch.cat([p.detach().flatten() for p in column]) for column in zip(*pairs, strict=True))
    # Adam amplifies the rounding of gradients that are nearly zero, and wide networks have many of those
    tolerance = 1e-5 if max(work.hidden) <= 256 else 5e-4
    session.gate(f"{work.title}: ours against stable-baselines3 after {updates} updates", mine, theirs, tolerance)


def matching_parameters(ours: Ours, peer: StableBaselines3) -> Iterator[tuple[Tensor, Tensor]]:
    policy, model, actions = ours.policy, peer.model, ours.work.actions
    mine = [m for m in policy.actor.modules() if isinstance(m, nn.Linear)]
    theirs = [m for m in model.actor.latent_pi.modules() if isinstance(m, nn.Linear)]
    for a, b in zip(mine[:-1], theirs, strict=True):
        yield from zip(a.parameters(), b.parameters(), strict=True)
    for rows, head in ((slice(None, actions), model.actor.mu), (slice(actions, None), model.actor.log_std)):
        yield mine[-1].weight[rows], head.weight
        yield mine[-1].bias[rows], head.bias
    for ensemble, critics in ((policy.critic, model.critic), (policy.target, model.critic_target)):
        stacked = list(ensemble.parameters())  # weight [N, inputs, outputs] and bias [N, 1, outputs] of each layer
        for index, network in enumerate(critics.q_networks):
            for own, other in zip(stacked, network.parameters(), strict=True):
                yield (own[index].T if other.ndim == 2 else own[index, 0]), other
    assert model.log_ent_coef is not None
    yield ours.algorithm.temperature.log_value.reshape(1), model.log_ent_coef


@contextmanager
def given(peer: StableBaselines3, drawn: dict[str, Tensor], noise: list[Tensor]) -> Iterator[None]:
    """stable-baselines3 with these transitions and this noise instead of its own draws."""
    from stable_baselines3.common.type_aliases import ReplayBufferSamples
    from torch.distributions import normal

    batch = ReplayBufferSamples(
        observations=drawn["obs/policy"],
        actions=drawn["action"],
        next_observations=drawn["next_obs/policy"],
        dones=(drawn["discount"] == 0).float().unsqueeze(-1),
        rewards=drawn["reward"].unsqueeze(-1),
    )
    buffer, draw = peer.model.replay_buffer, normal._standard_normal
    assert buffer is not None
    left = iter(noise)
    buffer.sample = lambda *_, **__: batch
    normal._standard_normal = lambda *_, **__: next(left)
    try:
        yield
    finally:
        del buffer.sample
        normal._standard_normal = draw


def _workspace(chunk: dict[str, np.ndarray], device: str) -> Workspace:
    names = {"env/obs/policy": "obs", "env/final_obs/policy": "next_obs", "action": "action", "env/reward": "reward"}
    names |= {"env/terminated": "terminated", "env/truncated": "truncated"}
    tensors = {name: torch.from_numpy(chunk[field]).unsqueeze(1).to(device) for name, field in names.items()}
    variables = {name: Variable(len(t), 1, tuple(t.shape[2:]), t.dtype) for name, t in tensors.items()}
    ws = Workspace.dense(variables, device)
    for name, value in tensors.items():
        ws[name].copy_(value)
    return ws
