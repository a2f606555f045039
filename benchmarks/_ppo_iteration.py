"""One PPO iteration without physics, ours and rsl_rl's: the workload of gpu_ppo.py and gpu_recurrent_ppo.py.

Observations, rewards and ends come from tensors made beforehand. Ours is the runner's collection and `PPO.update`;
rsl_rl's is what its runner calls: act, process_env_step, compute_returns, update.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from _gpu import (
    TOLERANCE,
    Entrant,
    Phases,
    Products,
    Session,
    Stopwatch,
    layer_products,
    modes,
    precision,
    precisions,
    standard_pairs,
)
from _rounds import Case
from torch import Tensor, nn

from gaitway.agents.actor_critic import ActorCritic, ActorCriticConfig, MemoryConfig
from gaitway.algorithms.algorithm import LossTerm, Now
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.core.execution import Execution, ExecutionConfig
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup
from gaitway.envs.vec_env import Observation, Step, VecEnv
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.runner_config import RunnerConfig


@dataclass(frozen=True)
class Sizes:
    """The workload; the defaults are rsl_rl's usual ones for legged robots."""

    envs: int = 4096
    steps: int = 24
    observations: int = 48
    actions: int = 12
    hidden: tuple[int, ...] = (512, 256, 128)
    memory: int = 0
    """Width of an LSTM in front of each network, 0 for none."""
    epochs: int = 5
    minibatches: int = 4
    ends: float = 0.02
    """Fraction of steps that end an episode; half of them by a time limit."""

    def quick(self) -> Sizes:
        return replace(self, envs=32, steps=6, hidden=(32, 16), memory=16 if self.memory else 0, epochs=2)


class Playback(VecEnv):
    """Observations, rewards and ends from a table of `steps` rows, over and over; actions change nothing."""

    def __init__(self, sizes: Sizes, device: str, time_limits: bool = True) -> None:
        self.num_envs, self.device = sizes.envs, torch.device(device)
        names = tuple(f"a{index}" for index in range(sizes.actions))
        infinity = (float("inf"),) * sizes.actions
        group = ObservationGroup("policy", (Component("all", sizes.observations),), (sizes.observations,))
        action = ActionSpec("continuous", names, tuple(-x for x in infinity), infinity)
        self.spec = EnvSpec("playback", (group,), action, 0.0, 0)
        generator = torch.Generator().manual_seed(0)
        shape = (sizes.steps, sizes.envs)
        self.observations = torch.randn(*shape, sizes.observations, generator=generator).to(device)
        self.rewards = torch.randn(shape, generator=generator).to(device)
        ends = torch.rand(shape, generator=generator) < sizes.ends
        limits = (torch.rand(shape, generator=generator) < 0.5) & time_limits
        self.terminated, self.truncated = (ends & ~limits).to(device), (ends & limits).to(device)
        self.done = self.terminated | self.truncated
        self.row = 0

    def reset(self, seed: object = None) -> Observation:
        self.row = 0
        return {"policy": self.observations[0]}

    def step(self, action: Tensor) -> Step:
        row = self.row
        self.row = (row + 1) % len(self.rewards)
        obs = {"policy": self.observations[self.row]}
        return Step(obs, self.rewards[row], self.terminated[row], self.truncated[row], obs, {})


RECOMMENDED = "gaitway compiled_captured tf32"


class Ours:
    """The runner's collection and the algorithm's update."""

    def __init__(
        self,
        sizes: Sizes,
        device: str,
        mode: str,
        kind: str,
        time_limits: bool = True,
        make_terms: Callable[[ActorCritic], Sequence[LossTerm]] = lambda policy: (),
        **changes: Any,
    ) -> None:
        self.env = Playback(sizes, device, time_limits)
        memory = MemoryConfig("lstm", sizes.memory) if sizes.memory else MemoryConfig()
        networks = ActorCriticConfig(
            actor_hidden=sizes.hidden,
            critic_hidden=sizes.hidden,
            activation="elu",
            memory=memory,
            normalise_observations=False,
        )
        self.policy = ActorCritic(self.env.spec, networks, torch.Generator().manual_seed(0)).to(device)
        defaults: dict[str, Any] = {
            "rollout_steps": sizes.steps,
            "epochs": sizes.epochs,
            "minibatches": sizes.minibatches,
            "learning_rate": 1e-3,
            "schedule": "adaptive",
            "value_coef": 1.0,
            "value_clip": 0.2,
            "entropy_coef": 0.01,
            "max_grad_norm": 1.0,
        }
        config = PPOConfig(**(defaults | changes))
        execution = Execution(ExecutionConfig(mode, kind), device)  # type: ignore[arg-type]
        terms = make_terms(self.policy)
        self.algorithm = PPO(self.policy, config, num_envs=sizes.envs, terms=terms, execution=execution)
        self.runner = OnPolicyRunner(self.env, self.algorithm, RunnerConfig(total_steps=10**9))
        self.runner._begin()
        self.watch = Stopwatch(device)

    def __call__(self) -> Phases:
        self.watch.start()
        self.collect()
        rollout = self.watch.lap()
        self.update()
        update = self.watch.lap()
        return {"rollout": rollout, "update": update, "total": rollout + update}

    def collect(self) -> None:
        self.runner._collect()
        self.runner.iteration += 1

    def update(self) -> None:
        self.algorithm.update(self.runner.rollout, Now(self.runner.iteration))

    @property
    def parameters(self) -> Tensor:
        return self.algorithm.engine.parameters.value.detach().clone()


class RslRl:
    """rsl_rl's algorithm, driven as its own runner drives it, without the runner's logging and checks for NaN."""

    def __init__(
        self,
        sizes: Sizes,
        device: str,
        kind: str | None,
        compile_mode: str | None = None,
        mixed: bool = False,
        time_limits: bool = True,
        **changes: Any,
    ) -> None:
        import rsl_rl.algorithms
        from tensordict import TensorDict

        self.kind, self.sizes = kind, sizes
        self.env = env = Playback(sizes, device, time_limits)
        self.rows = [TensorDict({"policy": row}, batch_size=[sizes.envs], device=device) for row in env.observations]
        network: dict[str, Any] = {"class_name": "MLPModel", "hidden_dims": list(sizes.hidden), "activation": "elu"}
        if sizes.memory:
            network |= {"class_name": "RNNModel", "rnn_type": "lstm", "rnn_hidden_dim": sizes.memory}
        settings = {"num_learning_epochs": sizes.epochs, "num_mini_batches": sizes.minibatches}
        distribution = {"class_name": "GaussianDistribution", "init_std": 1.0, "std_type": "log"}
        config = {
            "algorithm": {"class_name": "PPO", "use_mixed_precision": mixed} | settings | changes,
            "actor": network | {"distribution_cfg": distribution},
            "critic": dict(network),
            "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
            "num_steps_per_env": sizes.steps,
            "torch_compile_mode": compile_mode,
            "multi_gpu": None,
        }
        env.num_actions = sizes.actions  # type: ignore[attr-defined]
        with contextlib.redirect_stdout(sys.stderr):
            self.algorithm = rsl_rl.algorithms.PPO.construct_algorithm(self.rows[0], env, config, device)
        self.algorithm.train_mode()
        self.watch = Stopwatch(device)

    def __call__(self) -> Phases:
        with precision(self.kind):
            self.watch.start()
            self.collect()
            rollout = self.watch.lap()
            self.algorithm.update()
            update = self.watch.lap()
        return {"rollout": rollout, "update": update, "total": rollout + update}

    def collect(self) -> None:
        algorithm, env = self.algorithm, self.env
        with torch.inference_mode():
            for row in range(self.sizes.steps):
                algorithm.act(self.rows[row])
                following = self.rows[(row + 1) % self.sizes.steps]
                extras = {"time_outs": env.truncated[row]}
                algorithm.process_env_step(following, env.rewards[row], env.done[row], extras)
            algorithm.compute_returns(self.rows[0])


def check_same_work(session: Session, sizes: Sizes) -> None:
    """Gradients of ours and of rsl_rl on one rollout, from the same parameters and actions, must agree.

    One pass over one minibatch, ends without time limits (rsl_rl estimates the value of a final state differently).
    """
    once = replace(sizes, epochs=1, minibatches=1)
    plain: dict[str, Any] = {"max_grad_norm": 1e9, "learning_rate": 1e-3}
    ours = Ours(once, session.device, "eager", "fp32", time_limits=False, schedule="constant", **plain)
    peer = RslRl(once, session.device, "fp32", time_limits=False, schedule="fixed", **plain)
    pairs = list(_matching_parameters(ours.policy, peer.algorithm))
    with torch.no_grad():
        for mine, theirs in pairs:
            theirs.copy_(mine)
    with precision("fp32"):
        ours.collect()
        peer.collect()
        storage, ws, head = peer.algorithm.storage, ours.runner.rollout, ours.policy.head
        storage.actions.copy_(ws["action"])
        storage.actions_log_prob.copy_(head.log_prob(ws["policy/params"], ws["action"]).unsqueeze(-1))
        ours.update()
        peer.algorithm.update()
    mine, theirs = (torch.cat([p.grad.flatten() for p in column]) for column in zip(*pairs, strict=True))
    session.gate("gradient of ours against rsl_rl's on one rollout, fp32", mine, theirs, 1e-4)


def _matching_parameters(policy: ActorCritic, peer: Any) -> Iterator[tuple[Tensor, Tensor]]:
    for mine, theirs in ((policy.actor, peer.actor), (policy.critic, peer.critic)):
        for kind in (nn.LSTM, nn.Linear):
            layers = [[m for m in module.modules() if isinstance(m, kind)] for module in (mine, theirs)]
            for a, b in zip(*layers, strict=True):
                yield from zip(a.parameters(), b.parameters(), strict=True)
    spread = policy.head.log_std
    assert isinstance(spread, Tensor)
    yield spread, peer.actor.distribution.log_std_param


def make_ours(session: Session, sizes: Sizes, mode: str, kind: str) -> Entrant:
    """Ours in one mode, after its gates.

    A captured iteration ends at the parameters of the eager one; compiled code rounds otherwise, which Adam amplifies,
    so there the gradient on one rollout is compared; other precisions are compared with fp32 after ten updates. A warm
    update never waits for the device.
    """
    device, name = session.device, f"gaitway {mode} {kind}"
    entrant = Ours(sizes, device, mode, kind)
    if mode == "captured":
        entrant()
        session.gate(f"{name} against eager {kind}", entrant.parameters, _after(sizes, device, "eager", kind), 1e-5)
    elif "compiled" in mode:
        # that of fp32 is the truth for TF32, in which programs round differently
        once, truth = replace(sizes, epochs=1, minibatches=1), "fp32" if kind == "tf32" else kind
        compiled, eager = Ours(once, device, mode, kind), Ours(once, device, "eager", truth)
        compiled.collect()
        eager.collect()
        for variable in compiled.runner.rollout:  # the same actions
            eager.runner.rollout[variable] = compiled.runner.rollout[variable]
        compiled.update()
        eager.update()
        found, expected = (ours.algorithm.engine.parameters.gradient for ours in (compiled, eager))
        session.gate(f"{name}: gradient against eager {truth}", found, expected, TOLERANCE[kind])
    if kind != "fp32" and "compiled" not in mode:
        ten = replace(sizes, epochs=5, minibatches=2)
        found, expected = _after(ten, device, mode, kind), _after(ten, device, "eager", "fp32")
        with session.errors(f"{name} against eager fp32 after ten updates"):
            session.gate(f"{name} against eager fp32 after ten updates", found, expected, TOLERANCE[kind])
    if "captured" in mode:
        for _ in range(3):
            entrant()
        session.check_no_waiting(name, entrant.update)
    return entrant


def _after(sizes: Sizes, device: str, mode: str, kind: str) -> Tensor:
    """The parameters after one iteration."""
    ours = Ours(sizes, device, mode, kind)
    ours()
    return ours.parameters


def products(sizes: Sizes) -> list[tuple[tuple[int, int, int], int]]:
    """The matrix products of one iteration: acting, values of the rollout, and the passes of both networks."""
    rows, times = sizes.envs * sizes.steps // sizes.minibatches, sizes.epochs * sizes.minibatches
    chains = [(*sizes.hidden, outputs) for outputs in (sizes.actions, 1)]
    first = (sizes.observations,) if not sizes.memory else (sizes.memory,)
    found = []
    for chain in chains:
        found += layer_products(rows, first + chain, times, learning=True)
        found += layer_products(sizes.envs, first + chain, sizes.steps, learning=False)
        if sizes.memory:
            gates, columns = 4 * sizes.memory, sizes.envs // sizes.minibatches
            found += layer_products(rows, (sizes.observations, gates), times, learning=True)
            found += layer_products(sizes.envs, (sizes.observations, gates), sizes.steps, learning=False)
            found.append(((sizes.envs, sizes.memory, gates), sizes.steps))
            found.append(((columns, sizes.memory, gates), times * sizes.steps))  # one step after the other
            found.append(((columns, gates, sizes.memory), times * sizes.steps))
            found.append(((gates, rows, sizes.memory), times))
            found.append(((rows, sizes.memory, sizes.hidden[0]), times))  # gradient of the memory's output
    return found


def main(benchmark: str, sizes: Sizes, options: argparse.Namespace) -> None:
    sizes = sizes.quick() if options.quick else sizes
    session = Session(benchmark, options, sizes=vars(sizes))
    device = options.device
    with session.errors("same work as rsl_rl"):
        check_same_work(session, sizes)
    makers: dict[str, Any] = {}
    for kind in precisions(device):
        makers[f"rsl_rl {kind}"] = partial(RslRl, sizes, device, kind)
    if device != "cpu":
        makers["rsl_rl default"] = partial(RslRl, sizes, device, None)
    for mode, kind in modes(device, options.quick):
        makers[f"gaitway {mode} {kind}"] = partial(make_ours, session, sizes, mode, kind)
    for kind in precisions(device):
        makers[f"rsl_rl compiled {kind}"] = partial(RslRl, sizes, device, kind, "default")
    entrants = session.enter(makers)
    floors = {"fp32": "products fp32"} | ({"tf32": "products tf32", "bf16": "products bf16"} if device != "cpu" else {})
    bounds = session.enter({name: partial(Products, products(sizes), k, device) for k, name in floors.items()})
    raw = session.race(entrants | bounds, repeat=1 if options.quick else 3)
    for phase in ("total", "rollout", "update"):
        if phase not in raw:
            continue
        floor = {name: floors[name.split()[-1]] for name in raw[phase] if name.split()[-1] in floors}
        floor = {name: bound for name, bound in floor.items() if phase == "total" and bound in raw[phase]}
        case = Case(f"{benchmark}: {phase}", "ms", raw[phase], floor=floor or None)
        default = "rsl_rl default" if device != "cpu" else "rsl_rl fp32"
        recommended = RECOMMENDED if device != "cpu" else "gaitway eager fp32"
        session.add(replace(case, pairs=standard_pairs(case, default, recommended)))
    session.finish()
