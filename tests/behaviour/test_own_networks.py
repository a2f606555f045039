"""Networks of the user, as arguments and by configuration: trained by the real runner, stored, resumed bit for bit."""

import copy
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

from gaitway.agents.actor_critic import ActorCritic, ActorCriticConfig, MemoryConfig
from gaitway.agents.deterministic_actor_critic import DeterministicActorCritic, DeterministicActorCriticConfig
from gaitway.agents.policy import InferencePolicy
from gaitway.agents.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig
from gaitway.agents.value_policy import ValuePolicy, ValuePolicyConfig
from gaitway.algorithms.a2c import A2C, A2CConfig
from gaitway.algorithms.ddpg import DDPG, DDPGConfig
from gaitway.algorithms.dqn import DQN, DQNConfig
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.algorithms.sac import SAC, SACConfig
from gaitway.algorithms.td3 import TD3, TD3Config
from gaitway.cli.build import build_runner, load_policy
from gaitway.cli.config_file import write_config
from gaitway.cli.train_config import EnvConfig, TrainConfig, parse
from gaitway.core.config import ConfigError, to_config
from gaitway.core.seeding import stream
from gaitway.envs.registry import make_env
from gaitway.runners.checkpoint import CheckpointConfig
from gaitway.runners.evaluate import EvaluationConfig
from gaitway.runners.off_policy import OffPolicyRunner
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.run_folder import RunFolder
from gaitway.runners.runner_config import RunnerConfig

STEPS = 64
PENDULUM, CARTPOLE = "toy/pendulum", "toy/cartpole"
MODULE = '''
import torch
from torch import nn


class Waves(nn.Module):
    """Sines of a linear map, and a linear map of these; notes what it was made of."""

    def __init__(self, inputs, outputs, generator=None, width: int = 8):
        super().__init__()
        self.first, self.last = nn.Linear(inputs, width), nn.Linear(width, outputs)
        self.frozen = nn.Parameter(torch.ones(width), requires_grad=False)
        for parameter in [*self.first.parameters(), *self.last.parameters()]:
            parameter.data.uniform_(-0.3, 0.3, generator=generator)
        self.sizes = (inputs, outputs, width)

    def forward(self, x):
        return self.last(torch.sin(self.first(x)) * self.frozen)


class Loner(nn.Module):
    """Takes no generator."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)

    def forward(self, x):
        return self.layer(x)
'''
WAVES = {"name": "own_waves:Waves", "width": 6}


@pytest.fixture(autouse=True)
def own_waves(tmp_path, monkeypatch):
    (tmp_path / "own_waves.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_waves", raising=False)


class Sums(nn.Module):
    """Two critics (inputs, actions) -> [2, B, outputs] that share their first layer."""

    def __init__(self, inputs, actions, outputs):
        super().__init__()
        self.first, self.action = nn.Linear(inputs, 8), nn.Linear(max(actions, 1), 8)
        self.heads = nn.ModuleList(nn.Linear(8, outputs) for _ in range(2))

    def forward(self, x, action=None):
        h = self.first(x) if action is None else self.first(x) + self.action(action)
        return torch.stack([head(torch.tanh(h)) for head in self.heads])


def drawn(module):
    """From a generator of its own, because PyTorch's layers draw from the global one."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(-0.3, 0.3, generator=stream(0, f"{parameter.shape}"))
    return module


def plain(inputs, outputs):
    return drawn(nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, outputs)))


REPLAY = {"batch_size": 8, "replay_size": 100, "learning_starts": 16, "iteration_steps": STEPS, "update_ratio": 0.2}
BY_ARGUMENT = {
    "ppo": (PENDULUM, PPO, PPOConfig(rollout_steps=16, epochs=2), lambda spec: ActorCritic(
        spec, None, stream(0, "parameters"), actor=plain(3, 1), critic=plain(3, 1))),
    "ppo, gru": (PENDULUM, PPO, PPOConfig(rollout_steps=16, epochs=2), lambda spec: ActorCritic(
        spec, ActorCriticConfig(memory=MemoryConfig("gru", 5)), stream(0, "parameters"), actor=plain(5, 1))),
    "a2c, discrete": (CARTPOLE, A2C, A2CConfig(rollout_steps=16), lambda spec: ActorCritic(
        spec, None, stream(0, "parameters"), critic=plain(4, 1))),
    "sac": (PENDULUM, SAC, SACConfig(**REPLAY), lambda spec: SoftActorCritic(
        spec, None, stream(0, "parameters"), actor=plain(3, 2), critic=drawn(Sums(3, 1, 1)))),
    "sac, discrete": (CARTPOLE, SAC, SACConfig(**REPLAY), lambda spec: SoftActorCritic(
        spec, None, stream(0, "parameters"), actor=plain(4, 2), critic=drawn(Sums(4, 0, 2)))),
    "td3": (PENDULUM, TD3, TD3Config(**REPLAY), lambda spec: DeterministicActorCritic(
        spec, None, stream(0, "parameters"), actor=plain(3, 1), critic=drawn(Sums(3, 1, 1)))),
    "ddpg": (PENDULUM, DDPG, DDPGConfig(**REPLAY), lambda spec: DeterministicActorCritic(
        spec, None, stream(0, "parameters"), actor=plain(3, 1))),
    "dqn": (CARTPOLE, DQN, DQNConfig(**REPLAY, target_interval=5), lambda spec: ValuePolicy(
        spec, None, stream(0, "parameters"), values=plain(4, 2))),
}  # fmt: skip


def runner_of(name):
    env_id, algorithm, config, make = BY_ARGUMENT[name]
    env = make_env(env_id, num_envs=4, seed=0)
    learner = algorithm(make(env.spec), config, num_envs=4, seed=0)
    runner = OffPolicyRunner if hasattr(config, "replay_size") else OnPolicyRunner
    return runner(env, learner, RunnerConfig(total_steps=10**6))


@pytest.mark.parametrize("name", BY_ARGUMENT)
def test_networks_by_argument_learn_and_go_on_bit_for_bit(name):
    whole, first, second = (runner_of(name) for _ in range(3))
    before = copy.deepcopy(whole.policy.state_dict())
    whole.learn(6 * STEPS)
    moved = {key for key, value in whole.policy.state_dict().items() if not torch.equal(value, before[key])}
    own = [key for key, _ in whole.policy.named_parameters() if not key.startswith("head")]
    # without an action the layer that reads one rests
    assert [key for key in own if key not in moved and not (name == "sac, discrete" and ".action." in key)] == []
    first.learn(3 * STEPS)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    second.learn(3 * STEPS)
    assert second.parameters_sha256() == whole.parameters_sha256()
    obs = whole.env.reset(seed=0)
    assert torch.equal(InferencePolicy(second.policy)(obs), InferencePolicy(whole.policy)(obs))


SMALL = {"actor_hidden": (6,), "critic_hidden": (6,)}
BY_CONFIGURATION = {
    "ppo": ("ppo", PENDULUM, ActorCriticConfig(actor_network=WAVES, critic_network=WAVES), {"rollout_steps": 16}),
    "ppo, gru": ("ppo", PENDULUM, ActorCriticConfig(critic_network=WAVES, memory=MemoryConfig("gru", 5)),
                 {"rollout_steps": 16}),
    "a2c, discrete": ("a2c", CARTPOLE, ActorCriticConfig(actor_network=WAVES), {"rollout_steps": 16}),
    "sac": ("sac", PENDULUM, SoftActorCriticConfig(actor_network=WAVES, critic_network=WAVES), REPLAY),
    "sac, actor": ("sac", PENDULUM, SoftActorCriticConfig(**SMALL, actor_network=WAVES), REPLAY),
    "sac, discrete": ("sac", CARTPOLE, SoftActorCriticConfig(**SMALL, critic_network=WAVES), REPLAY),
    "td3": ("td3", PENDULUM, DeterministicActorCriticConfig(actor_network=WAVES, critic_network=WAVES), REPLAY),
    "dqn": ("dqn", CARTPOLE, ValuePolicyConfig(network=WAVES), REPLAY | {"target_interval": 5}),
}  # fmt: skip
CONFIGS = {"ppo": PPOConfig, "a2c": A2CConfig, "sac": SACConfig, "td3": TD3Config, "dqn": DQNConfig}


def config_of(name):
    algorithm, env_id, agent, options = BY_CONFIGURATION[name]
    return TrainConfig(
        env=EnvConfig(env_id, 4),
        algorithm=CONFIGS[algorithm](**options),
        agent=agent,
        total_steps=6 * STEPS,
        torch_threads=1,
        evaluation=EvaluationConfig(interval=0, episodes=2, max_steps=20),
        checkpoints=CheckpointConfig(interval=STEPS, keep_all=True),
    )


@pytest.mark.parametrize("name", BY_CONFIGURATION)
def test_networks_by_configuration_are_stored_and_resumed_bit_for_bit(name, tmp_path):
    config = config_of(name)
    parsed = parse(to_config(config))
    assert parsed == config  # they survive the file
    runners = {}
    for part in ("whole", "parts"):
        folder = RunFolder.create(tmp_path / part)
        write_config(folder.config, to_config(config), {})
        runners[part] = build_runner(config, folder)
        folder.write_contract(runners[part].env.spec.to_dict())
    made = [m for m in runners["whole"].policy.modules() if type(m).__name__ == "Waves" and m.sizes[2] == 6]
    assert made
    before = [m.first.weight.detach().clone() for m in made]
    runners["whole"].learn()
    assert all(not torch.equal(m.first.weight, old) for m, old in zip(made, before, strict=True))
    assert all(bool((m.frozen == 1).all()) for m in made)
    runners["parts"].learn(3 * STEPS)
    for runner in runners.values():
        runner.close()
    folder = RunFolder.open(tmp_path / "parts")
    second = build_runner(config, folder)
    assert second.resume() == 3 * STEPS
    second.learn()
    second.close()
    assert second.parameters_sha256() == runners["whole"].parameters_sha256()
    loaded = load_policy(RunFolder.open(tmp_path / "whole"), config, None, "last")
    obs = runners["whole"].env.reset(seed=0)
    assert torch.equal(loaded.inference()(obs), InferencePolicy(runners["whole"].policy)(obs))


@pytest.mark.parametrize("name", ["sac", "td3", "dqn"])
def test_a_target_follows_its_network_past_parameters_that_are_frozen(name):
    config = replace(config_of(name), total_steps=2 * STEPS)
    with_soft_updates = {} if name == "dqn" else {"tau": 1.0}
    config = replace(config, algorithm=replace(config.algorithm, **with_soft_updates))
    runner = build_runner(config, None)
    runner.learn()
    policy, algorithm = runner.policy, runner.algorithm
    if name == "dqn":
        algorithm.soft_update("values", algorithm.values, 1.0)
        pairs = [(policy.values, policy.target)]
    elif name == "sac":
        pairs = [(policy.critic, policy.target)]
    else:
        algorithm.soft_update("critic", algorithm.critic, 1.0)
        algorithm.soft_update("actor", algorithm.actor, 1.0)
        pairs = [(policy.critic, policy.target_critic), (policy.actor, policy.target_actor)]
    for network, target in pairs:
        assert all(torch.equal(p, q) for p, q in zip(network.parameters(), target.parameters(), strict=True))


MISTAKES = {
    "option": ({"name": "own_waves:Waves", "widht": 6}, r"agent.actor_network: .* has no option 'widht'.*mean 'width'"),
    "sizes": ({"name": "own_waves:Waves", "inputs": 6}, r"gets its inputs from the run; remove that option"),
    "class": ({"name": "own_waves:Wavs"}, r"agent.actor_network: .*has no 'Wavs' \(did you mean 'Waves'\?\)"),
    "module": ({"name": "own_wave:Waves"}, r"there is no module 'own_wave' for 'own_wave:Waves'; install it or start"),
    "no reference": ({"name": "Waves"}, r"there is no 'Waves'; use package.module:Class"),
    "no name": ({"width": 6}, r"has no name; write \{name: ...\} with package.module:Class"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("make", [(ActorCritic, ActorCriticConfig), (SoftActorCritic, SoftActorCriticConfig)])
def test_mistakes_are_named_with_their_fix(mistake, make):
    entry, sentence = MISTAKES[mistake]
    policy, config = make
    with pytest.raises(ConfigError, match=sentence):
        policy(make_env(PENDULUM, num_envs=1).spec, config(actor_network=entry))


def test_a_network_is_given_what_it_asks_for():
    spec = make_env(PENDULUM, num_envs=1).spec
    twins = [
        ActorCritic(spec, ActorCriticConfig(actor_network=WAVES), stream(seed, "parameters")) for seed in (0, 0, 1)
    ]
    first, second, third = (policy.actor.network for policy in twins)
    assert first.sizes == (3, 1, 6)
    assert torch.equal(first.first.weight, second.first.weight)
    assert not torch.equal(first.first.weight, third.first.weight)
    config = SoftActorCriticConfig(critics=3, critic_network={"name": "own_waves:Loner"})
    critics = SoftActorCritic(spec, config).critic
    assert critics(torch.zeros(5, 3), torch.zeros(5, 1)).shape == (3, 5, 1)
    assert len({p.sum().item() for p in critics.parameters()}) == 6  # each of its own
