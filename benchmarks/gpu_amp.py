"""An update of PPO with a motion prior (AMP) on a GPU, in every mode and precision, against skrl.

    python benchmarks/gpu_amp.py --out benchmarks/results/gpu_amp.json

4096 instances x 16 steps, 48 observations, 12 actions, pairs of 2 x 48 motion features; policy, critic and
discriminator 1024-512 (ReLU); 6 passes. Case `4096 rows`: 16 minibatches, so that each of the 96 gradient steps learns
from 4096 rows of the rollout, and the discriminator from 3 x 4096 pairs (clips, rollout, former rollouts). Case `32768
rows`: 2 minibatches, skrl's own default. Both libraries run their whole update: style reward, advantages, policy,
critic, discriminator with gradient penalty and weight decay; ours with skrl's loss of the discriminator in the place of
the least squares. Gates before timing: gradients of both discriminators agree on the same pairs; every mode ends at the
parameters of the eager program; a captured update never waits for the device.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from _gpu import (
    TOLERANCE,
    Entrant,
    Phases,
    Session,
    Stopwatch,
    modes,
    options,
    precision,
    precisions,
    standard_pairs,
)
from _ppo_iteration import RECOMMENDED, Playback, Sizes
from _rounds import Case
from torch import Tensor, nn

from gaitway.agents.actor_critic import ActorCritic, ActorCriticConfig
from gaitway.algorithms.algorithm import Now
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.core.execution import Execution, ExecutionConfig
from gaitway.envs.motions.clip import Clip
from gaitway.envs.motions.features import MotionFeatures
from gaitway.envs.motions.frames import make_frames
from gaitway.envs.spec import Component, ObservationGroup
from gaitway.envs.vec_env import Observation, Step
from gaitway.functional.adversarial import Form
from gaitway.rewards.style import CURRENT, EXPERT, OLD, StyleReward
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.runner_config import RunnerConfig

DT, JOINTS = 0.02, tuple(f"j{index}" for index in range(24))
HEAD, DECAY, PENALTY = 0.05, 1e-4, 5.0
"""skrl's weights: squares of the last layer, squares of all layers, squared gradient."""
SIZES = Sizes(steps=16, hidden=(1024, 512), epochs=6, minibatches=16)


def entropy_loss(expert: Tensor, policy: Tensor) -> tuple[Tensor, Tensor]:
    """Half the binary cross entropy of either side, from scores that are logits."""
    loss = nn.functional.binary_cross_entropy_with_logits
    return 0.5 * loss(expert, torch.ones_like(expert)), 0.5 * loss(policy, torch.zeros_like(policy))


def entropy_reward(score: Tensor) -> Tensor:
    return -torch.log((1.0 - torch.sigmoid(score)).clamp(min=1e-4))


ENTROPY = Form(entropy_loss, entropy_reward, 0.0, False, False)
"""skrl's game, in our words."""


class Moving(Playback):
    """Motion features beside the observations, from a table too."""

    def __init__(self, sizes: Sizes, device: str) -> None:
        super().__init__(sizes, device)
        count = 2 * len(JOINTS)
        features = MotionFeatures(JOINTS, "fixed", ())
        group = ObservationGroup("amp", tuple(Component(f"f{index}") for index in range(count)), (count,))
        self.spec = replace(self.spec, groups=(*self.spec.groups, group), control_dt=DT, facts={"amp": features.facts})
        generator = torch.Generator().manual_seed(1)
        self.features = torch.randn(sizes.steps, sizes.envs, count, generator=generator).to(device)

    def reset(self, seed: object = None) -> Observation:
        return super().reset(seed) | {"amp": self.features[0]}

    def step(self, action: Tensor) -> Step:
        found = super().step(action)
        obs = found.obs | {"amp": self.features[self.row]}
        return replace(found, obs=obs, final_obs=obs)


def clip(folder: str) -> str:
    """Four seconds of joints that swing, as a file."""
    times = np.arange(0.0, 4.0, DT)[:, None]
    angles = np.sin(2 * np.pi * times * np.linspace(0.5, 2.0, len(JOINTS)))
    frames = make_frames(angles, np.zeros((len(times), 0, 3)), np.zeros((len(times), 0, 4)))
    Clip(frames, 1 / DT, JOINTS, name="swing").differentiated().save(f"{folder}/swing")
    return f"{folder}/swing"


class Ours:
    """What the runner does with a rollout: style speaks, learns, and PPO learns."""

    def __init__(self, sizes: Sizes, device: str, mode: str, kind: str, batch: int | None = None) -> None:
        env = Moving(sizes, device)
        widths: dict[str, Any] = {"actor_hidden": sizes.hidden, "critic_hidden": sizes.hidden, "activation": "relu"}
        networks = ActorCriticConfig(**widths, normalise_observations=False)
        self.policy = ActorCritic(env.spec, networks, torch.Generator().manual_seed(0)).to(device)
        config = PPOConfig(
            rollout_steps=sizes.steps,
            epochs=sizes.epochs,
            minibatches=sizes.minibatches,
            learning_rate=5e-5,
            value_coef=2.5,
            value_clip=0.2,
            entropy_coef=0.0,
            max_grad_norm=0.5,
        )
        execution = Execution(ExecutionConfig(mode, kind), device)  # type: ignore[arg-type]
        self.algorithm = PPO(self.policy, config, num_envs=sizes.envs, execution=execution)
        rows = min(sizes.envs * sizes.steps // sizes.minibatches, 4096) if batch is None else batch
        with tempfile.TemporaryDirectory() as folder:
            self.style = StyleReward(
                env.spec,
                clip(folder),
                hidden=sizes.hidden,
                learning_rate=5e-5,
                max_grad_norm=0.5,
                gradient_penalty=PENALTY,
                trunk_decay=2 * DECAY,
                head_decay=2 * (HEAD + DECAY),
                updates=sizes.epochs * sizes.minibatches,
                batch_size=rows,
                replay=4 * sizes.envs * sizes.steps,
                device=device,
                execution=execution,
            )
        self.style.form = ENTROPY
        run = RunnerConfig(total_steps=10**9)
        self.runner = OnPolicyRunner(env, self.algorithm, run, rewards=[self.style])
        self.runner._begin()
        self.runner._collect()
        self.watch = Stopwatch(device)

    def __call__(self) -> Phases:
        self.watch.start()
        self.update()
        return {"update": self.watch.lap()}

    def update(self) -> None:
        now = Now(self.runner.iteration)
        self.runner._annotate(now)
        self.algorithm.update(self.runner.rollout, now)
        self.runner.iteration += 1

    @property
    def parameters(self) -> Tensor:
        learnt = self.algorithm.engine.parameters.value, self.style.engine.parameters.value
        return torch.cat([value.detach() for value in learnt])


class Skrl:
    """skrl's agent on a memory that was filled by the same tables."""

    def __init__(self, sizes: Sizes, device: str, kind: str | None, plain: bool = False) -> None:
        """`plain`: one pass, one minibatch, no normaliser, all pairs: what the gate compares."""
        import gymnasium
        from skrl.agents.torch.amp import AMP
        from skrl.memories.torch import RandomMemory
        from skrl.resources.preprocessors.torch import RunningStandardScaler

        self.kind, env = kind, Moving(sizes, device)
        pair = 4 * len(JOINTS)

        def box(count: int) -> Any:
            return gymnasium.spaces.Box(-np.inf, np.inf, (count,))

        observation, action, motion = box(sizes.observations), box(sizes.actions), box(pair)
        rows = sizes.envs * sizes.steps
        drawn = partial(torch.randn, generator=torch.Generator(device).manual_seed(2), device=device)
        self.clips = drawn(rows, pair)
        with contextlib.redirect_stdout(sys.stderr):
            models = networks_of_skrl(observation, action, motion, sizes, device)
            self.agent = AMP(
                models=models,
                memory=RandomMemory(memory_size=sizes.steps, num_envs=sizes.envs, device=device, replacement=False),
                observation_space=observation,
                action_space=action,
                device=device,
                amp_observation_space=motion,
                motion_dataset=RandomMemory(memory_size=rows, device=device, replacement=not plain),
                reply_buffer=RandomMemory(memory_size=4 * rows, device=device),
                collect_reference_motions=lambda count: self.clips[:count],
                cfg={
                    "rollouts": sizes.steps,
                    "learning_epochs": sizes.epochs,
                    "mini_batches": sizes.minibatches,
                    "amp_batch_size": rows,
                    "discriminator_batch_size": 0 if plain else 4096,
                    "discriminator_loss_scale": 1.0,
                    "grad_norm_clip": 0 if plain else 0.5,
                    "amp_observation_preprocessor": None if plain else RunningStandardScaler,
                    "amp_observation_preprocessor_kwargs": {} if plain else {"size": motion, "device": device},
                    "experiment": {"write_interval": 0, "checkpoint_interval": 0},
                },
            )
            self.agent.init()
        self.agent.enable_training_mode(True)
        agent, pairs = self.agent, torch.cat((env.features, env.features.roll(-1, 0)), -1)
        self.pairs = pairs.flatten(0, 1)
        with torch.no_grad(), precision(kind):
            for row in range(sizes.steps):
                told = env.observations[row]
                actions, _ = agent.act(told, None, timestep=row, timesteps=sizes.steps)
                agent.record_transition(
                    observations=told,
                    states=None,
                    actions=actions,
                    rewards=env.rewards[row][:, None],
                    next_observations=told,
                    next_states=None,
                    terminated=env.terminated[row][:, None],
                    truncated=env.truncated[row][:, None],
                    infos={"amp_obs": pairs[row]},
                    timestep=row,
                    timesteps=sizes.steps,
                )
        agent.enable_models_training_mode(True)
        self.watch = Stopwatch(device)

    def __call__(self) -> Phases:
        with precision(self.kind):
            self.watch.start()
            self.agent.update(timestep=0, timesteps=1)
            return {"update": self.watch.lap()}


def networks_of_skrl(observation: Any, action: Any, motion: Any, sizes: Sizes, device: str) -> dict[str, Any]:
    """Policy, critic and discriminator as its examples write them."""
    from skrl.models.torch import DeterministicMixin, GaussianMixin, Model

    def layers(inputs: int, outputs: int) -> nn.Sequential:
        first, second = sizes.hidden
        hidden = nn.Linear(inputs, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU()
        return nn.Sequential(*hidden, nn.Linear(second, outputs))

    class Policy(GaussianMixin, Model):
        def __init__(self) -> None:
            Model.__init__(self, observation_space=observation, action_space=action, device=device)
            GaussianMixin.__init__(self)
            self.net = layers(sizes.observations, sizes.actions)
            self.log_std = nn.Parameter(torch.zeros(sizes.actions))

        def compute(self, inputs: dict[str, Any], role: str = "") -> tuple[Tensor, dict[str, Any]]:
            return self.net(inputs["observations"]), {"log_std": self.log_std}

    class Score(DeterministicMixin, Model):
        def __init__(self, of: Any) -> None:
            Model.__init__(self, observation_space=of, action_space=action, device=device)
            DeterministicMixin.__init__(self)
            self.net = layers(of.shape[0], 1)

        def compute(self, inputs: dict[str, Any], role: str = "") -> tuple[Tensor, dict[str, Any]]:
            return self.net(inputs["observations"]), {}

    return {
        "policy": Policy().to(device),
        "value": Score(observation).to(device),
        "discriminator": Score(motion).to(device),
    }


def check_same_work(session: Session, sizes: Sizes) -> None:
    """Gradients of both discriminators on the same pairs, from the same parameters, must agree.

    skrl learns from all pairs at once, each as current and as old; ours is given these.
    """
    once = replace(sizes, envs=min(sizes.envs, 256), epochs=1, minibatches=1)
    peer = Skrl(once, session.device, "fp32", plain=True)
    rows = len(peer.pairs)
    ours = Ours(once, session.device, "eager", "fp32", batch=rows)
    theirs = [layer for layer in peer.agent.discriminator.net if isinstance(layer, nn.Linear)]
    mine = [*ours.style.discriminator.trunk, ours.style.discriminator.head]
    with torch.no_grad():
        for a, b in zip(mine, theirs, strict=True):
            a.weight.copy_(b.weight)
            a.bias.copy_(b.bias)
        batch = ours.style._batch["pairs"]
        scale = 1.0 + ours.style.normaliser.eps  # by which the normaliser divides at first
        batch[EXPERT] = scale * peer.clips.unflatten(-1, (2, -1))
        batch[CURRENT] = batch[OLD] = scale * peer.pairs.unflatten(-1, (2, -1))
    ours.style.engine.max_grad_norm = None
    with precision("fp32"):
        ours.style._learn()
        peer()
    found, expected = (
        torch.cat([_gradient(parameter) for layer in side for parameter in layer.parameters()])
        for side in (mine, theirs)
    )
    session.gate("gradient of our discriminator against skrl's on the same pairs, fp32", found, expected, 1e-4)


def _gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad.flatten()


def make_ours(session: Session, sizes: Sizes, mode: str, kind: str, case: str) -> Entrant:
    """Ours in one mode, after its gates: the parameters of the eager program after a pass, and no waiting."""
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


def main() -> None:
    chosen = options(__doc__ or "")
    device = chosen.device
    sizes = replace(SIZES.quick(), hidden=(32, 16)) if chosen.quick else SIZES
    session = Session("gpu_amp", chosen, sizes=vars(sizes), features=2 * len(JOINTS))
    session.stages = 2
    with session.errors("same work as skrl"):
        check_same_work(session, sizes)
    for minibatches in (sizes.minibatches, 2):
        of = replace(sizes, minibatches=minibatches)
        case = f"{of.envs * of.steps // minibatches} rows"
        makers: dict[str, Any] = {f"skrl {kind}": partial(Skrl, of, device, kind) for kind in precisions(device)}
        if device != "cpu":
            makers["skrl default"] = partial(Skrl, of, device, None)
        for mode, kind in modes(device, chosen.quick):
            makers[f"gaitway {mode} {kind}"] = partial(make_ours, session, of, mode, kind, case)
        raw = session.race(session.enter(makers, f"{case}: "), 1, f"{case}: ")
        if "update" not in raw:
            continue
        result = Case(f"gpu_amp, {case}: update", "ms", raw["update"])
        default = "skrl default" if device != "cpu" else "skrl fp32"
        recommended = RECOMMENDED if device != "cpu" else "gaitway eager fp32"
        session.add(replace(result, pairs=standard_pairs(result, default, recommended)))
    session.finish()


if __name__ == "__main__":
    main()
