"""An update of distillation on a GPU, in every mode and precision, against rsl_rl.

    python benchmarks/gpu_distillation.py --out benchmarks/results/gpu_distillation.json

4096 instances x 24 steps, 48 observations, 12 actions, student and teacher 512-256-128 (ELU), 5 passes in segments of
6 rows: 20 gradient steps. Case `feed-forward`, and `lstm`, where the student has an LSTM of 256 in front. Both
libraries run their own update on the same observations and labels. Gates before timing: gradients of both libraries
agree on the same segment; every mode ends at the parameters of the eager program; a captured update never waits for the
device.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
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
    options,
    precision,
    precisions,
    standard_pairs,
)
from _ppo_iteration import RECOMMENDED, Playback, Sizes
from _rounds import Case
from torch import Tensor, nn

from gaitway.agents.actor_critic import ActorCritic, ActorCriticConfig, MemoryConfig
from gaitway.agents.teacher import ACTION, Teacher
from gaitway.algorithms.algorithm import Now
from gaitway.algorithms.distillation import Distillation, DistillationConfig
from gaitway.core.execution import Execution, ExecutionConfig
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.runner_config import RunnerConfig

LENGTH = 6
"""Rows of a segment; it divides the rollouts of both sizes, for rsl_rl leaves a remainder out."""


class Ours:
    """The algorithm's update of a rollout that the runner collected with a teacher in the cast."""

    def __init__(self, sizes: Sizes, device: str, mode: str, kind: str) -> None:
        self.sizes, env = sizes, Playback(sizes, device)
        memory = MemoryConfig("lstm", sizes.memory) if sizes.memory else MemoryConfig()
        widths: dict[str, Any] = {"actor_hidden": sizes.hidden, "critic_hidden": (), "activation": "elu"}
        networks = ActorCriticConfig(**widths, memory=memory, normalise_observations=False)
        taught = ActorCriticConfig(**widths, normalise_observations=False)
        self.policy = ActorCritic(env.spec, networks, torch.Generator().manual_seed(0)).to(device)
        knows = ActorCritic(env.spec, taught, torch.Generator().manual_seed(1)).to(device)
        config = DistillationConfig(rollout_steps=sizes.steps, epochs=sizes.epochs, gradient_length=LENGTH)
        execution = Execution(ExecutionConfig(mode, kind), device)  # type: ignore[arg-type]
        self.algorithm = Distillation(self.policy, config, num_envs=sizes.envs, execution=execution)
        cast = [Teacher(env.spec, self.policy, sizes.envs, (knows,), 0.0)]
        self.runner = OnPolicyRunner(env, self.algorithm, RunnerConfig(total_steps=10**9), cast=cast)
        self.runner._begin()
        self.runner.cast.begin(Now())
        self.runner._collect()
        self.watch, self.iteration = Stopwatch(device), 0

    def __call__(self) -> Phases:
        self.watch.start()
        self.update()
        return {"update": self.watch.lap()}

    def update(self) -> None:
        self.algorithm.update(self.runner.rollout, Now(self.iteration))
        self.iteration += 1

    @property
    def parameters(self) -> Tensor:
        return self.algorithm.engine.parameters.value.detach().clone()


class RslRl:
    """rsl_rl's algorithm on the same observations, with labels of its own teacher; its storage is filled once."""

    def __init__(self, sizes: Sizes, device: str, kind: str | None, compile_mode: str | None = None) -> None:
        import rsl_rl.algorithms
        from tensordict import TensorDict

        self.kind, self.sizes, env = kind, sizes, Playback(sizes, device)
        rows = [TensorDict({"policy": row}, batch_size=[sizes.envs], device=device) for row in env.observations]
        plain: dict[str, Any] = {"class_name": "MLPModel", "hidden_dims": list(sizes.hidden), "activation": "elu"}
        remembers = {"class_name": "RNNModel", "rnn_type": "lstm", "rnn_hidden_dim": sizes.memory}
        spread = {"class_name": "GaussianDistribution", "init_std": 1.0, "std_type": "log"}
        config = {
            "algorithm": {"class_name": "Distillation", "num_learning_epochs": sizes.epochs, "gradient_length": LENGTH},
            "student": plain | (remembers if sizes.memory else {}) | {"distribution_cfg": spread},
            "teacher": dict(plain),
            "obs_groups": {"student": ["policy"], "teacher": ["policy"]},
            "num_steps_per_env": sizes.steps,
            "torch_compile_mode": compile_mode,
            "multi_gpu": None,
        }
        env.num_actions = sizes.actions  # type: ignore[attr-defined]
        with contextlib.redirect_stdout(sys.stderr):
            self.algorithm = rsl_rl.algorithms.Distillation.construct_algorithm(rows[0], env, config, device)
        self.algorithm.train_mode()
        with torch.inference_mode(), precision(kind):
            for number, row in enumerate(rows):
                self.algorithm.act(row)
                self.algorithm.process_env_step(row, env.rewards[number], env.done[number], {})
        self.watch = Stopwatch(device)

    def __call__(self) -> Phases:
        with precision(self.kind):
            self.watch.start()
            self.update()
            return {"update": self.watch.lap()}

    def update(self) -> None:
        self.algorithm.storage.step = self.sizes.steps  # an update empties it; the rows stay where they are
        self.algorithm.update()


def check_same_work(session: Session, sizes: Sizes, case: str) -> None:
    """Gradients of ours and of rsl_rl on one segment, from the same parameters and labels, must agree.

    rsl_rl's loss is the sum over rows of the mean over instances and actions, ours the mean over rows and instances of
    the sum over actions: known factors apart.
    """
    once = replace(sizes, steps=LENGTH, epochs=1)
    ours, peer = Ours(once, session.device, "eager", "fp32"), RslRl(once, session.device, "fp32")
    pairs = list(_matching_parameters(ours.policy, peer.algorithm.student))
    with torch.no_grad():
        for mine, theirs in pairs:
            theirs.copy_(mine)
        peer.algorithm.storage.privileged_actions.copy_(ours.runner.rollout[ACTION])
    with precision("fp32"):
        ours.update()
        peer.update()
    mine, theirs = (torch.cat([p.grad.flatten() for p in column]) for column in zip(*pairs, strict=True))
    factor = LENGTH / sizes.actions
    session.gate(f"{case}: gradient of ours against rsl_rl's on one segment, fp32", factor * mine, theirs, 1e-4)


def _matching_parameters(policy: ActorCritic, student: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    for kind in (nn.LSTM, nn.Linear):
        layers = [[m for m in module.modules() if isinstance(m, kind)] for module in (policy.actor, student)]
        for a, b in zip(*layers, strict=True):
            yield from zip(a.parameters(), b.parameters(), strict=True)


def make_ours(session: Session, sizes: Sizes, mode: str, kind: str, case: str) -> Entrant:
    """Ours in one mode, after its gates: the parameters of the eager program, and no waiting."""
    device, name = session.device, f"{case}: gaitway {mode} {kind}"
    entrant = Ours(sizes, device, mode, kind)
    if mode != "eager":
        steady = replace(sizes, epochs=1)  # rounding grows with every step of Adam
        found, eager = Ours(steady, device, mode, kind), Ours(steady, device, "eager", kind)
        found.update()
        eager.update()
        tolerance = 1e-5 if mode == "captured" else TOLERANCE[kind]
        session.gate(f"{name} against eager {kind}", found.parameters, eager.parameters, tolerance)
    if "captured" in mode:
        for _ in range(3):
            entrant()
        session.check_no_waiting(name, entrant.update)
    return entrant


def products(sizes: Sizes) -> list[tuple[tuple[int, int, int], int]]:
    """The matrix products of one update of a student without memory."""
    rows, times = sizes.envs * LENGTH, sizes.epochs * sizes.steps // LENGTH
    return layer_products(rows, (sizes.observations, *sizes.hidden, sizes.actions), times, learning=True)


def main() -> None:
    chosen = options(__doc__ or "")
    device = chosen.device
    sizes = Sizes().quick() if chosen.quick else Sizes()
    session = Session("gpu_distillation", chosen, sizes=vars(sizes), gradient_length=LENGTH)
    session.stages = 2
    for case, memory in (("feed-forward", 0), ("lstm", 16 if chosen.quick else 256)):
        of = replace(sizes, memory=memory)
        with session.errors(f"{case}: same work as rsl_rl"):
            check_same_work(session, of, case)
        makers: dict[str, Any] = {f"rsl_rl {kind}": partial(RslRl, of, device, kind) for kind in precisions(device)}
        if device != "cpu":
            makers["rsl_rl default"] = partial(RslRl, of, device, None)
        for mode, kind in modes(device, chosen.quick):
            makers[f"gaitway {mode} {kind}"] = partial(make_ours, session, of, mode, kind, case)
        for kind in precisions(device):
            makers[f"rsl_rl compiled {kind}"] = partial(RslRl, of, device, kind, "default")
        if not memory:
            for kind in precisions(device):
                makers[f"products {kind}"] = partial(Products, products(of), kind, device)
        raw = session.race(session.enter(makers, f"{case}: "), 1 if chosen.quick else 3, f"{case}: ")
        timed = raw.get("update", {}) | raw.get("total", {})
        if not timed:
            continue
        floor = {name: f"products {name.split()[-1]}" for name in timed if not name.startswith("products")}
        floor = {name: bound for name, bound in floor.items() if bound in timed}
        result = Case(f"gpu_distillation, {case}: update", "ms", timed, floor=floor or None)
        default = "rsl_rl default" if device != "cpu" else "rsl_rl fp32"
        recommended = RECOMMENDED if device != "cpu" else "gaitway eager fp32"
        session.add(replace(result, pairs=standard_pairs(result, default, recommended)))
    session.finish()


if __name__ == "__main__":
    main()
