"""An overridden method is always obeyed: by the fast paths of rollout and update, the general ones, and evaluation.

A path written by hand may stand in for a policy's methods only while these are the ones it knows (`is_plain`). So every
method, network and layer is watched while each path runs, whether it was replaced by a subclass, by an attribute that
was put over it when everything was made, by another module, or is only hooked.
"""

import copy
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import nn

from gaitway.agents.actor_critic import ActorCritic, ActorCriticConfig, MemoryConfig
from gaitway.agents.blocks import MLPEncoder
from gaitway.agents.deterministic_actor_critic import DeterministicActorCritic, DeterministicActorCriticConfig
from gaitway.agents.observations import Observations, ObservingPolicy
from gaitway.agents.particles import Particles, ParticlesConfig
from gaitway.agents.policy import InferencePolicy
from gaitway.agents.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig
from gaitway.agents.value_policy import ValuePolicy, ValuePolicyConfig
from gaitway.algorithms.a2c import A2C, A2CConfig
from gaitway.algorithms.algorithm import Now
from gaitway.algorithms.cloning import BehaviourCloning, CloningConfig
from gaitway.algorithms.ddpg import DDPG, DDPGConfig
from gaitway.algorithms.direct_soft_steps import DirectSteps
from gaitway.algorithms.dqn import DQN, DQNConfig
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.algorithms.reinforce import Reinforce, ReinforceConfig
from gaitway.algorithms.sac import SAC, SACConfig
from gaitway.algorithms.svpg import SVPG, SVPGConfig
from gaitway.algorithms.td3 import TD3, TD3Config
from gaitway.core.seeding import stream
from gaitway.core.workspace import Workspace
from gaitway.data.episodes import Episodes
from gaitway.data.mixing import dataset_replay
from gaitway.envs.registry import make_env
from gaitway.runners.off_policy import OffPolicyRunner
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.runner_config import RunnerConfig

PENDULUM, CARTPOLE = "toy/pendulum", "toy/cartpole"
ACTOR = ActorCriticConfig(actor_hidden=(6,), critic_hidden=(6,))
GRU = replace(ACTOR, memory=MemoryConfig("gru", 4))
HIDDEN = {"actor_hidden": (6,), "critic_hidden": (6,), "normalise_observations": True}
SHORT = {"batch_size": 8, "replay_size": 64, "learning_starts": 0, "iteration_steps": 32}
ON_POLICY = {"rollout_steps": 8}
ENVS = 4

KINDS = {
    "ppo": (ActorCritic, ACTOR, PPO, PPOConfig(**ON_POLICY, epochs=1, minibatches=2), PENDULUM),
    "ppo, discrete": (ActorCritic, ACTOR, PPO, PPOConfig(**ON_POLICY, epochs=1, minibatches=2), CARTPOLE),
    "ppo, gru": (ActorCritic, GRU, PPO, PPOConfig(**ON_POLICY, epochs=1, minibatches=2), PENDULUM),
    "a2c": (ActorCritic, ACTOR, A2C, A2CConfig(**ON_POLICY), PENDULUM),
    "a2c, gru": (ActorCritic, GRU, A2C, A2CConfig(**ON_POLICY), PENDULUM),
    "reinforce": (ActorCritic, ACTOR, Reinforce, ReinforceConfig(**ON_POLICY), CARTPOLE),
    "svpg": (Particles, ParticlesConfig(particles=2, actor_hidden=(6,), critic_hidden=(6,)), SVPG,
             SVPGConfig(**ON_POLICY), PENDULUM),
    "sac": (SoftActorCritic, SoftActorCriticConfig(**HIDDEN), SAC, SACConfig(**SHORT), PENDULUM),
    "sac, discrete": (SoftActorCritic, SoftActorCriticConfig(**HIDDEN), SAC, SACConfig(**SHORT), CARTPOLE),
    "ddpg": (DeterministicActorCritic, DeterministicActorCriticConfig(**HIDDEN, critics=1), DDPG, DDPGConfig(**SHORT),
             PENDULUM),
    "td3": (DeterministicActorCritic, DeterministicActorCriticConfig(**HIDDEN), TD3, TD3Config(**SHORT), PENDULUM),
    "dqn": (ValuePolicy, ValuePolicyConfig(hidden=(6,), normalise_observations=True), DQN,
            DQNConfig(**SHORT, epsilon=0.1), CARTPOLE),
    "bc": (ActorCritic, ACTOR, BehaviourCloning, CloningConfig(batch_size=8), PENDULUM),
}  # fmt: skip

ROLLOUT, UPDATE, EVALUATION = ("rollout", "general"), ("update",), ("evaluation",)
EVERYWHERE = (*ROLLOUT, *UPDATE, *EVALUATION)
ON = {
    "step": ROLLOUT, "act": EVALUATION, "outputs": UPDATE, "inputs": EVERYWHERE, "normalised": EVERYWHERE,
    "learner_inputs": UPDATE, "raw_actions": UPDATE, "states_before": ROLLOUT,
    "actor": EVERYWHERE, "actor.network": EVERYWHERE, "actor.network.layers.0": EVERYWHERE, "critic.network": UPDATE,
    "critic.network.layers.1": UPDATE,
}  # fmt: skip
OFF = {
    "step": ROLLOUT, "act": (*ROLLOUT, *EVALUATION), "choose": (*ROLLOUT, *EVALUATION), "inputs": EVERYWHERE,
    "normalised": EVERYWHERE, "read": UPDATE, "inputs_again": UPDATE,
}  # fmt: skip
NETWORKS = {"actor": EVERYWHERE, "actor.trunk": EVERYWHERE, "actor.trunk.linears.0": EVERYWHERE, "critic": UPDATE,
            "critic.network.last": UPDATE}  # fmt: skip
RECURRENT = ON | {"values": UPDATE, "actor": (*ROLLOUT, *EVALUATION), "actor.sequence": UPDATE,
                  "actor.memory.step": (*ROLLOUT, *EVALUATION), "actor.memory.sequence": UPDATE,
                  "critic.remember": ROLLOUT}  # fmt: skip
SOFT = OFF | NETWORKS | {"actor_output": EVERYWHERE, "values": UPDATE, "target": UPDATE}
DETERMINISTIC = OFF | NETWORKS | {"unit_actions": EVERYWHERE, "values": UPDATE, "target_actor": UPDATE}
PLACES = {
    "ppo": ON | {"values": UPDATE, "observed": UPDATE, "normalisers.group:pos": EVERYWHERE},
    "ppo, discrete": ON | {"values": UPDATE, "normalisers.group:policy": EVERYWHERE},
    "ppo, gru": RECURRENT | {"observed": UPDATE},
    "a2c": ON | {"values": UPDATE},
    "a2c, gru": RECURRENT,
    "reinforce": ON,
    "svpg": {
        "step": ROLLOUT, "act": EVALUATION, "outputs": UPDATE, "values": UPDATE, "learner_inputs": UPDATE,
        "members.1.inputs": EVERYWHERE, "members.1.actor": EVERYWHERE, "members.1.actor.network": EVERYWHERE,
        "members.1.actor.network.layers.0": EVERYWHERE, "members.1.critic.network.layers.1": UPDATE,
    },
    "sac": SOFT | {"propose": UPDATE, "unit_action": UPDATE},
    "sac, discrete": SOFT | {"log_probs": UPDATE},
    "ddpg": DETERMINISTIC,
    "td3": DETERMINISTIC,
    "dqn": OFF | {"values": EVERYWHERE, "values.network": EVERYWHERE, "values.network.last": EVERYWHERE,
                  "target": UPDATE},
    "bc": {"act": EVALUATION, "inputs": (*UPDATE, *EVALUATION), "read": UPDATE, "inputs_again": UPDATE,
           "actor": (*UPDATE, *EVALUATION), "actor.network": (*UPDATE, *EVALUATION),
           "actor.network.layers.0": (*UPDATE, *EVALUATION)},
}  # fmt: skip
"""What of each policy must run in which paths: its methods, and its modules by their names."""


class Trial:
    """A policy, what learns it, and the paths on which it runs."""

    def __init__(self, kind, policy_class=None, alter=lambda policy: None, agent=None, blocks=()):
        base, networks, algorithm, config, env_id = KINDS[kind]
        self.env = make_env(env_id, num_envs=ENVS, seed=0, max_episode_steps=5)
        options = {"blocks": blocks} if blocks else {}
        make = policy_class or base
        self.policy = make(self.env.spec, agent or networks, stream(0, "parameters"), **options)
        alter(self.policy)
        if isinstance(self.policy, Particles):
            self.policy.best.fill_(1)
        self.algorithm = algorithm(self.policy, config, num_envs=ENVS, seed=0)
        self.is_offline = algorithm is BehaviourCloning
        if not self.is_offline:
            runner = OffPolicyRunner if hasattr(config, "batch_size") else OnPolicyRunner
            self.runner = runner(self.env, self.algorithm, RunnerConfig(total_steps=10**6))
            self.runner._begin()

    def rollout(self):
        """As in training: in inference mode, by prepared steps."""
        if self.is_offline:
            return
        if isinstance(self.runner, OnPolicyRunner):
            self.runner._collect()
        else:
            self.runner.stage.play(0, 8, uniform=False)
            self.runner.replay.add(self.runner.rollout, 0, 8)

    def general(self):
        """Step by step in a workspace that grows, with gradients."""
        ws = Workspace(extra_row=tuple(self.policy.memories))
        for name, value in self.env.reset().items():
            ws.put(f"env/obs/{name}", 0, value.clone())
        self.policy(ws, 0)

    def update(self):
        if self.is_offline:
            self.algorithm.update(recorded(self.algorithm), 2, Now())
        elif isinstance(self.runner, OnPolicyRunner):
            self.algorithm.update(self.runner.rollout, Now())
        else:
            self.algorithm.update(self.runner.replay, 2, Now())

    def evaluation(self):
        act = InferencePolicy(self.policy)
        return act(self.env.reset(seed=0))


def recorded(algorithm):
    generator, flags = stream(0, "test"), torch.zeros(32, dtype=torch.bool)
    spec = algorithm.policy.spec
    steps = {f"env/obs/{g.name}": torch.randn(33, *g.shape, generator=generator) for g in spec.groups}
    steps |= {"action": torch.randn(32, *spec.action.shape, generator=generator), "env/reward": torch.zeros(32)}
    episodes = Episodes(steps | {"env/terminated": flags, "env/truncated": flags.clone()}, (32,))
    arguments = algorithm.replay_arguments()
    return dataset_replay(episodes, groups=arguments["groups"], action=arguments["action"], seed=0)


def subclass(kind, name, calls):
    """The policy's class with one method overridden."""

    def method(self, *args, **options):
        calls[name] += 1
        return getattr(super(mine, self), name)(*args, **options)

    mine = type("Mine", (KINDS[kind][0],), {name: method})
    return mine


def put_over(policy, place, calls):
    """A function over a method of `policy`, or over `forward` of a module (a method of a member) inside it."""
    path, _, last = place.rpartition(".")
    owner, name = (policy.get_submodule(path), last) if path else (policy, last)
    if not callable(getattr(type(owner), name, None)):
        owner, name = policy.get_submodule(place), "forward"
    old = getattr(owner, name)

    def function(*args, **options):
        calls[place] += 1
        return old(*args, **options)

    object.__setattr__(owner, name, function)


def check(trial, calls, place, kind):
    """Run every path; `place` must have been part of those that PLACES says."""
    missed = []
    for path in EVERYWHERE:
        calls.clear()
        getattr(trial, path)()
        if path in PLACES[kind].get(place, ()) and not calls[place]:
            missed.append(f"{place} in {path}")
    assert not missed, missed


@pytest.mark.parametrize("kind", KINDS)
def test_methods_of_a_subclass_run_on_every_path(kind):
    """One subclass for each method: with all of them overridden, one that goes unseen would hide behind another."""
    for name in (place for place in PLACES[kind] if callable(getattr(KINDS[kind][0], place, None))):
        calls = Counter()
        check(Trial(kind, subclass(kind, name, calls)), calls, name, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_put_over_a_method_or_a_layer_runs_on_every_path(kind):
    """Late, when runner and algorithm have been made and have played and learnt once."""
    for place in PLACES[kind]:
        trial, calls = Trial(kind), Counter()
        trial.rollout()
        trial.update()
        put_over(trial.policy, place, calls)
        check(trial, calls, place, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_hooks_run_on_every_path(kind):
    known = dict(Trial(kind).policy.named_modules())
    for place in (place for place in PLACES[kind] if place in known):
        trial, calls = Trial(kind), Counter()
        trial.rollout()
        trial.update()
        hook = trial.policy.get_submodule(place).register_forward_hook(
            lambda *_, calls=calls, place=place: calls.update([place])
        )
        check(trial, calls, place, kind)
        hook.remove()
        assert trial.policy.is_plain == (kind not in ("ppo, gru", "a2c, gru"))


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("kind", ["ppo", "sac"])
def test_hooks_on_gradients_run_where_gradients_are_written_out_by_hand(kind):
    trial, seen = Trial(kind), []
    trial.rollout()
    trial.update()
    parameter = next(trial.policy.actor.parameters())
    parameter.register_hook(lambda gradient: seen.append("parameter"))
    trial.policy.critic.register_full_backward_hook(lambda *_: seen.append("critic"))
    trial.update()
    assert {"parameter", "critic"} <= set(seen)


class Doubled(nn.Module):
    """A network of the user in front of ours: it runs twice as loud."""

    def __init__(self, network, calls, place):
        super().__init__()
        self.network, self.calls, self.place = network, calls, place
        self.gain = nn.Parameter(torch.full((), 2.0))

    def forward(self, *inputs):
        self.calls[self.place] += 1
        return self.network(*inputs) * self.gain

    def __deepcopy__(self, memo):  # targets are copies, and count with their network
        twin = Doubled(copy.deepcopy(self.network, memo), self.calls, self.place)
        twin.gain.data.copy_(self.gain.data)
        return twin


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "svpg"])
def test_a_replaced_network_runs_on_every_path_and_learns(kind):
    on_policy = KINDS[kind][0] is ActorCritic
    places = ("values",) if kind == "dqn" else ("actor", "critic")
    for place in places:
        calls = Counter()
        name = f"{place}.network" if on_policy else place

        def replaced(policy, place=place, name=name, calls=calls):
            owner = getattr(policy, place) if on_policy else policy
            last = "network" if on_policy else place
            setattr(owner, last, Doubled(getattr(owner, last), calls, name))
            for target in (f"target_{place}", "target"):
                if hasattr(policy, target) and (place != "actor" or target != "target"):
                    setattr(policy, target, copy.deepcopy(getattr(owner, last)).requires_grad_(False))

        trial = Trial(kind, alter=replaced)
        gain = trial.policy.get_submodule(name).gain
        check(trial, calls, name, kind)
        assert not trial.policy.is_plain
        if not (kind == "bc" and place == "critic"):  # which bc leaves alone
            assert gain != 2.0


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "svpg"])
def test_a_block_in_front_runs_on_every_path_and_learns(kind):
    calls = Counter()
    _, agent, _, _, env_id = KINDS[kind]
    env = make_env(env_id, num_envs=1)
    groups = tuple(env.spec.group_names)
    block = MLPEncoder({g.name: g.shape for g in env.spec.groups}, groups, "latent", 5, (6,), generator=stream(0, "b"))
    block.register_forward_hook(lambda *_: calls.update(["block"]))
    trial = Trial(kind, agent=replace(agent, observations=Observations(("latent",))), blocks=(block,))
    before = [parameter.detach().clone() for parameter in block.parameters()]
    for path in EVERYWHERE:
        calls.clear()
        getattr(trial, path)()
        assert calls["block"] or (trial.is_offline and path == "rollout"), path
    assert all(bool(parameter.grad.any()) for parameter in block.parameters())
    assert all(not torch.equal(now, old) for now, old in zip(block.parameters(), before, strict=True))


@pytest.mark.parametrize("kind", ["ppo", "svpg", "sac"])
def test_fast_paths_are_taken_and_an_override_that_changes_nothing_changes_no_number(kind):
    plain, general = Trial(kind), Trial(kind, subclass(kind, "step", Counter()))
    assert plain.policy.is_plain
    assert not general.policy.is_plain
    for trial in (plain, general):
        trial.rollout()
        trial.update()
    if kind == "ppo":
        assert plain.algorithm.engine.direct is not None
        assert general.algorithm.engine.direct is None
    if kind == "sac":
        assert isinstance(plain.algorithm.steps, DirectSteps)
        assert not isinstance(general.algorithm.steps, DirectSteps)
    torch.testing.assert_close(plain.runner.rollout["action"], general.runner.rollout["action"], rtol=1e-5, atol=1e-6)
    for one, other in zip(plain.algorithm.flat_parameters(), general.algorithm.flat_parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "name", "path"),
    [("ppo", "step", "rollout"), ("ppo", "inputs", "rollout"), ("ppo", "outputs", "update"),
     ("svpg", "step", "rollout"), ("sac", "propose", "update"), ("sac", "values", "update")],
)  # fmt: skip
def test_a_gate_that_stands_open_is_seen(kind, name, path, monkeypatch):
    """The broken twin: policies that always call themselves plain are not asked."""
    monkeypatch.setattr(KINDS[kind][0], "is_plain", property(lambda policy: True))
    calls = Counter()
    with pytest.raises(AssertionError, match=f"{name} in {path}"):
        check(Trial(kind, subclass(kind, name, calls)), calls, name, kind)


def test_every_policy_answers_whether_it_is_plain():
    """The gate's default would be an AttributeError: nobody may inherit an answer of another class."""
    for kind, (policy, *_) in KINDS.items():
        assert "is_plain" in vars(policy), kind
        assert issubclass(policy, ObservingPolicy) or policy is Particles
