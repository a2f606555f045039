"""Blocks: features made of features, what they remember, and the one way that rollout, update and evaluation share."""

import re
import sys
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from block_cases import CHOICE, KINDS, ends_of, entry, learn_once, make, played, spec

from gaitway.agents.actor_critic import ActorCritic
from gaitway.agents.actor_critic_config import ActorCriticConfig
from gaitway.agents.blocks import BLOCKS, HistoryEncoder, MLPEncoder, RecurrentEncoder, make_blocks
from gaitway.agents.branch import MemoryConfig
from gaitway.agents.observations import Observations
from gaitway.agents.policy import InferencePolicy
from gaitway.agents.predict import predict_action
from gaitway.agents.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig
from gaitway.agents.value_policy import ValuePolicy, ValuePolicyConfig
from gaitway.algorithms.algorithm import Now
from gaitway.algorithms.cloning import BehaviourCloning
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.algorithms.sac import SAC, SACConfig
from gaitway.algorithms.terms import scored
from gaitway.cli.build import build_runner
from gaitway.cli.train_config import parse
from gaitway.core.agent import Agent
from gaitway.core.config import ConfigError
from gaitway.core.seeding import stream
from gaitway.core.workspace import Workspace
from gaitway.data.episodes import DatasetError, Episodes
from gaitway.envs.registry import make_env
from gaitway.runners.off_policy import OffPolicyRunner
from gaitway.runners.offline import OfflineRunner
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.runner_config import RunnerConfig

EYE = '''
import torch
from torch import nn

from gaitway.agents.blocks import Block


class Eye(Block):
    """Two channels of 8 x 8 pixels -> `size` numbers; notes what it was shown."""

    def __init__(self, shapes, reads: tuple[str, ...], writes: str, size: int = 6, generator=None):
        super().__init__(reads, writes, size)
        channels, height, width = shapes[reads[0]]
        self.network = nn.Sequential(nn.Conv2d(channels, 3, 4, 4), nn.ELU(), nn.Flatten(), nn.Linear(12, size))
        for parameter in self.parameters():
            parameter.data.uniform_(-0.2, 0.2, generator=generator)
        self.seen = []

    def forward(self, picture):
        self.seen.append(picture.dtype)
        return self.network(picture.flatten(0, -4).float() / 255).unflatten(0, picture.shape[:-3])


class NoBlock:
    """Anything else."""
'''


# Shapes, names, gradients


@pytest.mark.parametrize("kind", KINDS)
def test_every_block_from_the_configuration_and_by_argument(kind):
    generator = stream(0, "parameters")
    options = {name: value for name, value in entry(kind).items() if name != "name"}
    options |= {"reads": ("policy",), "shapes": {"policy": (3,)}, "generator": generator}
    block = BLOCKS[kind.split()[0]](**options)
    policy = make(entry(kind))
    by_argument = ActorCritic(spec(), replace(policy.config, blocks=()), generator, [block])
    assert {name: value.tolist() for name, value in policy.state_dict().items()} == {
        name: value.tolist() for name, value in by_argument.state_dict().items()
    }
    assert policy.input_size("actor") == 3 + 5
    assert policy.output_names == ("output", "value", "latent")
    ws = played(policy)
    batch = policy.learner_inputs(ws)
    found = policy.outputs(batch)
    assert {name: tuple(value.shape) for name, value in found.items()} == {
        "output": (9, 4, policy.head.inputs),
        "value": (9, 4),
        "latent": (9, 4, 5),
    }
    assert "new/latent" in scored(policy.head, found, policy.raw_actions(ws))
    assert policy.is_recurrent == kind.startswith("recurrent")
    assert policy.column_fields == (("memory/latent/memory",) if policy.is_recurrent else ())
    assert not policy.is_plain


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("detach", [False, True])
def test_detach_cuts_the_gradient_of_the_networks_and_leaves_that_of_an_own_loss(kind, detach):
    policy = make(entry(kind, detach=detach))
    found = policy.outputs(policy.learner_inputs(played(policy)))
    parameters = list(policy.blocks.parameters())
    total = found["output"].square().sum() + found["value"].square().sum()
    by_networks = torch.autograd.grad(total, parameters, retain_graph=True, materialize_grads=True)
    by_itself = torch.autograd.grad(found["latent"].square().sum(), parameters, materialize_grads=True)
    assert any(bool(gradient.any()) for gradient in by_networks) != detach
    assert all(bool(gradient.any()) for gradient in by_itself)


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_trains_the_block(kind):
    policy = make(entry(kind))
    ws = played(policy)
    before = [parameter.detach().clone() for parameter in policy.blocks.parameters()]
    learn_once(policy, ws)
    assert all(not torch.equal(now, old) for now, old in zip(policy.blocks.parameters(), before, strict=True))


class Estimate:
    """A term: the block should say what the environment knows."""

    name, coef, reads = "estimate", 1.0, ("env/obs/truth", "new/latent")

    def __call__(self, batch, now):
        return (batch["new/latent"] - batch["env/obs/truth"]).square().mean(), {}


def test_a_term_trains_a_detached_block_and_a_misspelt_one_is_refused():
    policy = make(entry("history", detach=True), made=spec(policy=3, truth=5))
    ws = played(policy, steps=16, envs=8)
    config = PPOConfig(rollout_steps=16, epochs=8, minibatches=2, learning_rate=1e-2)
    ppo = PPO(policy, config, num_envs=8, terms=[Estimate()])
    first = ppo.update(ws, Now())["loss/estimate"]
    assert ppo.update(ws, Now())["loss/estimate"] < 0.95 * first
    term = Estimate()
    term.reads = ("new/latnt",)
    with pytest.raises(ValueError, match=r"reads 'new/latnt', which neither.*\(did you mean 'new/latent'\?\)"):
        PPO(policy, config, num_envs=8, terms=[term])


# What is remembered


def test_a_history_holds_the_last_steps_of_this_episode_and_zeros_before_it():
    policy = make(entry("history"))
    ws, block = played(policy, steps=12), policy.blocks[0]
    obs, ends, state = ws["env/obs/policy"], ends_of(ws), ws["latent/memory"]
    assert state.shape == (13, 4, 3 * 3)
    latent = policy.outputs(policy.learner_inputs(ws))["latent"]
    began = [0] * 4
    for t in range(12):
        for b in range(4):
            if t and ends[t - 1, b]:
                began[b] = t
            past = [obs[k, b] if k >= began[b] else torch.zeros(3) for k in range(t - 3, t + 1)]  # oldest first
            assert torch.equal(state[t, b], torch.cat(past[:-1]))
            torch.testing.assert_close(latent[t, b], block.network(torch.cat(past)), rtol=1e-6, atol=1e-6)
    assert max(began) > 3
    assert bool((state[0] == 0).all())


@pytest.mark.parametrize("kind", ["history", "recurrent", "recurrent lstm"])
def test_learning_from_stored_states_equals_playing_again(kind):
    """A history step by step from the state before each, a recurrent block as one sequence from that before row 0."""
    policy = make(entry(kind))
    before = torch.randn(4, policy.blocks[0].state_size, generator=stream(1, "test"))
    ws = played(policy, steps=12)
    policy_state = {"latent/memory": before}
    written, ends = [], ends_of(ws)
    with torch.no_grad():
        for t in range(12):
            if t and ends[t - 1].any():
                policy_state = {"latent/memory": policy_state["latent/memory"] * ~ends[t - 1].unsqueeze(-1)}
            ws.put("latent/memory", t, policy_state["latent/memory"])
            found = policy.inputs({"policy": ws["env/obs/policy"][t]}, states=policy_state)
            policy_state = found.states
            written.append(found.written["latent"])
        batch = policy.learner_inputs(ws)
        torch.testing.assert_close(policy.outputs(batch)["latent"], torch.stack(written), rtol=1e-5, atol=1e-6)
        # broken twins: from zeros, and without the resets
        zeros = batch | {"memory/latent/memory": torch.zeros_like(batch["memory/latent/memory"])}
        assert not torch.allclose(policy.outputs(zeros)["latent"][0], written[0], atol=1e-3)
        if policy.is_recurrent:
            endless = batch | {"starts": torch.zeros_like(batch["starts"])}
            assert not torch.allclose(policy.outputs(endless)["latent"], torch.stack(written), atol=1e-3)


@pytest.mark.parametrize("memory", ["none", "gru"])
@pytest.mark.parametrize("kind", ["history", "recurrent"])
def test_values_go_on_from_what_the_critic_remembers(kind, memory):
    """By hand: the critic's branch with its block and its own memory, the final observation where time ran out."""
    policy = make(entry(kind), actor=("policy",), critic=("policy", "latent"), critic_memory=MemoryConfig(memory, 4))
    ws = played(policy)
    with torch.no_grad():
        value, following = policy.values(ws)
        for t in range(9):
            states = {name: ws[name][t] for name in policy.memories}
            found = policy.inputs({"policy": ws["env/obs/policy"][t]}, ("critic",), states)
            output, after = policy.critic(found.networks["critic"], states.get("critic/memory"))
            torch.testing.assert_close(value[t], output[:, 0], rtol=1e-5, atol=1e-6)
            final = policy.inputs({"policy": ws["env/final_obs/policy"][t]}, ("critic",), found.states)
            at_end = policy.critic(final.networks["critic"], after)[0][:, 0]
            cut, ended = ws["env/truncated"][t], ends_of(ws)[t]
            torch.testing.assert_close(following[t][cut], at_end[cut], rtol=1e-5, atol=1e-6)
            if t < 8:
                torch.testing.assert_close(following[t][~ended], value[t + 1][~ended])
    assert bool(ws["env/truncated"].any())


def test_a_block_may_read_a_block():
    policy = make(
        entry("history", "past"),
        entry("mlp", "latent", ("past", "policy"), size=2),
        entry("recurrent", "deep", ("latent",)),
        actor=("deep",),
        critic=("latent", "policy"),
    )
    assert (policy.input_size("actor"), policy.input_size("critic")) == (5, 5)
    ws = played(policy)
    found = policy.outputs(policy.learner_inputs(ws))
    past, latent = (policy.blocks[number] for number in range(2))
    with torch.no_grad():
        told = past.advance([ws["env/obs/policy"][:9]], ws["past/memory"][:9])[0]
        assert torch.equal(found["latent"], latent(told, ws["env/obs/policy"][:9]))
    first = list(past.parameters())
    assert all(bool(g.any()) for g in torch.autograd.grad(found["output"].square().sum(), first))


def test_what_only_the_critic_reads_moves_on_while_playing():
    policy = make(
        entry("history", "seen", ("critic",)), entry("recurrent", "felt", ("critic",)),
        actor=("policy",), critic=("seen", "felt"), made=spec(policy=3, critic=2),
    )  # fmt: skip
    assert (policy.all_groups, policy.actor_groups) == (("policy", "critic"), ("policy",))
    assert policy.initial_state(4, "cpu") is None  # acting needs none of it
    assert policy.act({"policy": torch.zeros(4, 3)}, None, False)[1] is None
    ws = played(policy)
    for t in range(1, 10):
        kept = ~ends_of(ws)[t - 1]
        newest = ws["env/obs/critic"][t - 1]
        if t < 9:  # the last row is reset when the next rollout begins
            assert not bool(ws["seen/memory"][t][~kept].any())
        assert torch.equal(ws["seen/memory"][t][kept][:, -2:], newest[kept])
        assert bool(ws["felt/memory"][t][kept].any(-1).all())
    before = [parameter.detach().clone() for parameter in policy.blocks.parameters()]
    learn_once(policy, ws)
    assert all(not torch.equal(now, old) for now, old in zip(policy.blocks.parameters(), before, strict=True))


def test_actor_and_critic_may_read_different_features():
    policy = make(
        entry("mlp", "latent", ("policy",)), actor=("latent",), critic=("truth", "latent"), made=spec(policy=3, truth=2)
    )
    ws = played(policy)
    batch = policy.learner_inputs(ws)
    networks = policy._inputs_of(batch)[0].networks
    assert networks["actor"].shape == (9, 4, 5)
    assert torch.equal(networks["critic"], torch.cat((ws["env/obs/truth"][:9], networks["actor"]), -1))
    action, _ = policy.act({"policy": ws["env/obs/policy"][0]}, None, False)  # a robot does not see the truth
    assert action.shape == (4, 2)


def test_normalisers_stand_before_the_blocks():
    policy = make(entry("history"), normalise_observations=True)
    policy.normalisers["group:policy"].mean.fill_(2.0)
    ws = played(policy)
    expected = policy.normalised({"policy": ws["env/obs/policy"]})["policy"]
    kept = ~ends_of(ws)[0]
    assert torch.equal(ws["latent/memory"][1][kept][:, -3:], expected[0][kept])


# Acting with a state, outside a rollout


def mixed(**options):
    """A history block that both read, a GRU in front of the actor, an LSTM in front of the critic."""
    memories = {"memory": MemoryConfig("gru", 6), "critic_memory": MemoryConfig("lstm", 4)}
    return make(entry("history"), critic=("policy", "latent"), **memories | options)


def test_the_state_of_acting_is_flat_and_has_named_slices():
    policy = mixed()
    assert {name: (memory.size, memory.acts) for name, memory in policy.memories.items()} == {
        "latent/memory": (9, True),
        "actor/memory": (6, True),
        "critic/memory": (8, False),  # for learning alone: hidden layer and cell
    }
    state = policy.initial_state(4, "cpu")
    assert state.shape == (4, 9 + 6)
    assert not bool(state.any())
    obs = {"policy": torch.randn(4, 3, generator=stream(0, "test"))}
    with torch.no_grad():
        _, after = policy.act(obs, state, stochastic=False)
        named = policy.split_state(after)
        ws = Workspace(extra_row=tuple(policy.memories))
        ws.put("env/obs/policy", 0, obs["policy"])
        policy.step(ws, 0, stochastic=False)
    assert list(named) == ["latent/memory", "actor/memory"]
    for name, value in named.items():
        torch.testing.assert_close(value, ws.at(name, 1))
    assert torch.equal(policy.join_state(named), after)
    assert torch.equal(named["latent/memory"][:, -3:], obs["policy"])


POLICIES = {
    "history": lambda: make(entry("history")),
    "recurrent": lambda: make(entry("recurrent")),
    "both, and critics of their own": lambda: make(entry("history"), entry("recurrent", "deep", ("latent",)),
                                                   actor=("policy", "deep"), critic=("latent",)),
    "history, gru, lstm": mixed,
    "critic's memory alone": lambda: make(actor=("policy",), critic_memory=MemoryConfig("gru", 3)),
    "discrete": lambda: mixed(made=spec(CHOICE)),
    "sac": lambda: SoftActorCritic(spec(), SoftActorCriticConfig(**REPLAYED), stream(0, "parameters")),
    "sac, the critics' alone": lambda: SoftActorCritic(spec(), SoftActorCriticConfig(**REPLAYED | {
        "observations": Observations(("policy",), ("policy", "latent"))}), stream(0, "parameters")),
    "dqn": lambda: ValuePolicy(spec(CHOICE), ValuePolicyConfig(hidden=(8,), **{name: REPLAYED[name] for name in
                               ("blocks", "observations")}), stream(0, "parameters")),
}  # fmt: skip
REPLAYED = {
    "actor_hidden": (8,),
    "critic_hidden": (8,),
    "blocks": (entry("history"),),
    "observations": Observations(("policy", "latent")),
}


@pytest.mark.parametrize("name", POLICIES)
def test_evaluation_acts_as_the_rollout_did(name):
    policy = POLICIES[name]()
    ws = played(policy, steps=12, stochastic=False)
    act, forgetful = InferencePolicy(policy), InferencePolicy(policy)
    for t in range(12):
        if t:
            act.reset(ends_of(ws)[t - 1])
        torch.testing.assert_close(act({"policy": ws["env/obs/policy"][t]}), ws["action"][t])
    acts = [memory.acts for memory in policy.memories.values()]
    found = torch.stack([forgetful({"policy": ws["env/obs/policy"][t]}) for t in range(12)])
    assert torch.allclose(found.float(), ws["action"].float()) == (not any(acts))  # a broken twin: never reset


def test_one_call_keeps_no_memory_and_says_what_does():
    policy = mixed()
    with pytest.raises(ValueError, match=r"has a memory, which one call cannot keep; make act = InferencePolicy"):
        predict_action(policy, torch.zeros(3))
    act, expected = InferencePolicy(policy), InferencePolicy(policy)
    for step in range(3):
        obs = torch.full((3,), 0.1 * step)
        found = predict_action(act, obs, clip=False)
        np.testing.assert_array_equal(found, expected({"policy": obs.unsqueeze(0)})[0].numpy())


def test_one_call_reads_the_groups_behind_the_blocks():
    policy = make(entry("mlp", reads=("truth",)), actor=("latent",), made=spec(policy=3, truth=2))
    found = predict_action(policy, np.ones(2, dtype=np.float32), clip=False)
    expected = InferencePolicy(policy)({"truth": torch.ones(1, 2)})[0]
    np.testing.assert_array_equal(found, expected.numpy())
    with pytest.raises(KeyError, match="lacks \\['truth'\\]"):
        predict_action(policy, {"policy": np.ones(3)})


# Through the runners


class Notes(Agent):
    """A cast agent that keeps what was played, rollout after rollout."""

    plays = False

    def __init__(self, *names):
        super().__init__()
        self.reads, self.kept = names, {name: [] for name in (*names, "env/done")}

    def step(self, ws, t):
        pass

    def collected(self, ws, start, stop):
        for name, rows in self.kept.items():
            rows.append(ws[name][start:stop].clone())


def pendulum_runner(name, notes):
    env = make_env("toy/pendulum", num_envs=4, seed=0, max_episode_steps=7)
    blocks = (entry("history", reads=("vel",)),)
    observations = Observations(("pos", "latent"))
    if name == "ppo":
        config = ActorCriticConfig(blocks=blocks, observations=observations, normalise_observations=False)
        algorithm = PPO(ActorCritic(env.spec, config), PPOConfig(rollout_steps=5, minibatches=2), num_envs=4)
        return OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=10**6), cast=[notes])
    config = SoftActorCriticConfig(**REPLAYED | {"blocks": blocks, "observations": observations})
    sizes = SACConfig(batch_size=8, learning_starts=10, replay_size=400, iteration_steps=20, update_ratio=0.1)
    algorithm = SAC(SoftActorCritic(env.spec, config), sizes, num_envs=4)
    return OffPolicyRunner(env, algorithm, RunnerConfig(total_steps=10**6), cast=[notes])


@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_a_history_goes_on_from_rollout_to_rollout_and_ends_with_the_episode(name):
    """Rollouts of 5 steps, episodes of 7: ends fall on every row, the last one of a rollout too."""
    notes = Notes("env/obs/vel", "latent/memory")
    runner = pendulum_runner(name, notes)
    runner.learn(5 * 4 * 8)
    vel, state, done = (torch.cat(rows) for rows in notes.kept.values())
    assert len(vel) == 40
    began = [0] * 4
    for t in range(40):
        for b in range(4):
            began[b] = t if t and done[t - 1, b] else began[b]
            past = [vel[k, b] if k >= began[b] else torch.zeros(1) for k in range(t - 3, t)]
            assert torch.equal(state[t, b], torch.cat(past)), (t, b)
    assert min(began) == 35


def test_a_replay_gives_every_step_the_past_it_was_made_with():
    notes = Notes("env/obs/vel")
    runner = pendulum_runner("sac", notes)
    runner.learn(5 * 4 * 8)
    policy, block = runner.policy, runner.policy.blocks[0]
    drawn = runner.replay.gather(runner.replay.draw((64,)))
    assert bool(drawn["latent/memory"].any())
    with torch.no_grad():
        batch = policy.read(drawn)
        now = torch.cat((drawn["latent/memory"], drawn["obs/vel"]), -1)
        following = torch.cat((now[:, 1:], drawn["next_obs/vel"]), -1)
        for prefix, past, pos in (("", now, drawn["obs/pos"]), ("next/", following, drawn["next_obs/pos"])):
            expected = torch.cat((pos, block.network(past)), -1)
            torch.testing.assert_close(batch[f"{prefix}actor"], expected)
            torch.testing.assert_close(batch[f"{prefix}critic"], expected)
        torch.testing.assert_close(policy.inputs_again(batch, "critic"), batch["critic"])


def test_a_dataset_holds_no_memories():
    runner = pendulum_runner("sac", Notes())
    flags = torch.zeros(8, dtype=torch.bool)
    steps = {"env/obs/pos": torch.zeros(9, 2), "env/obs/vel": torch.zeros(9, 1), "action": torch.zeros(8, 1)}
    steps |= {"env/reward": torch.zeros(8), "env/terminated": flags, "env/truncated": flags.clone()}
    data = Episodes(steps, (8,))
    for kind, options in ((OffPolicyRunner, {"prefill": True}), (OfflineRunner, {})):
        with pytest.raises(DatasetError, match=r"the policy remembers .*leave memories and blocks that remember out"):
            kind(runner.env, runner.algorithm, data=data, **options)


# Pictures, and classes of the user


@pytest.fixture
def own_eye(tmp_path, monkeypatch):
    (tmp_path / "own_eye.py").write_text(EYE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_eye", raising=False)
    return {"name": "own_eye:Eye", "reads": ["camera"], "writes": "seen"}


class Camera(gymnasium.Env):
    """Brightness decides; what is seen are two channels of 8 x 8 pixels and a number."""

    observation_space = gymnasium.spaces.Dict(
        {
            "camera": gymnasium.spaces.Box(0, 255, (2, 8, 8), np.uint8),
            "policy": gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32),
        }
    )
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        self.steps += 1
        return self._observe(), -float((action[0] - self.bright / 128 + 1) ** 2), self.steps == 5, False, {}

    def _observe(self):
        self.bright = int(self.np_random.integers(256))
        return {"camera": np.full((2, 8, 8), self.bright, np.uint8), "policy": np.zeros(1, np.float32)}


if "gaitway-tests/Camera-v0" not in gymnasium.registry:
    gymnasium.register("gaitway-tests/Camera-v0", Camera)


def test_a_picture_stays_bytes_up_to_the_block_of_the_user_on_policy(own_eye):
    env = make_env("gymnasium:gaitway-tests/Camera-v0", num_envs=4, seed=0)
    policy = make(own_eye, actor=("seen", "policy"), made=env.spec)
    eye, before = policy.blocks[0], policy.blocks[0].network[0].weight.detach().clone()
    ppo = PPO(policy, PPOConfig(rollout_steps=8, minibatches=2, epochs=1), num_envs=4)
    runner = OnPolicyRunner(env, ppo, RunnerConfig(total_steps=10**6))
    runner.learn(64)
    assert runner.rollout["env/obs/camera"].dtype == torch.uint8
    assert ppo.batches.batches[0]["obs/camera"].dtype == torch.uint8
    assert set(eye.seen) == {torch.uint8}
    assert not torch.equal(eye.network[0].weight, before)
    assert "group:camera" not in policy.normalisers
    assert InferencePolicy(policy)(env.reset()).shape == (4, 1)
    env.close()


def test_a_picture_stays_bytes_up_to_the_block_of_the_user_in_a_replay(own_eye):
    env = make_env("gymnasium:gaitway-tests/Camera-v0", num_envs=4, seed=0)
    config = SoftActorCriticConfig(
        actor_hidden=(8,), critic_hidden=(8,), blocks=(own_eye,), observations=Observations(("seen", "policy"))
    )
    policy = SoftActorCritic(env.spec, config, stream(0, "parameters"))
    eye, before = policy.blocks[0], policy.blocks[0].network[0].weight.detach().clone()
    sac = SAC(policy, SACConfig(batch_size=8, learning_starts=16, replay_size=64, iteration_steps=32), num_envs=4)
    runner = OffPolicyRunner(env, sac, RunnerConfig(total_steps=10**6))
    runner.learn(64)
    assert runner.replay.gather(torch.arange(4))["obs/camera"].dtype == torch.uint8
    assert set(eye.seen) == {torch.uint8}
    assert not torch.equal(eye.network[0].weight, before)
    env.close()


# Mistakes


def test_an_own_class_must_be_a_block(own_eye):
    with pytest.raises(ConfigError, match=r"agent.blocks\[0\] is a NoBlock; derive it from gaitway.agents"):
        make_blocks([{"name": "own_eye:NoBlock"}], {"policy": (3,)})


IMAGE = {"policy": 3, "camera": (2, 8, 8)}
MISTAKES = {
    "made later": ((entry("mlp", "early", ["latent"]), entry("mlp")), {},
                   "agent.blocks[0] reads 'latent', which agent.blocks[1] makes later; place its maker before it"),
    "itself": ((entry("mlp", "latent", ["latent"]),), {},
               "agent.blocks[0] reads 'latent', which it writes itself; name what is there before it"),
    "two of one name": ((entry("mlp"), entry("history")), {},
                        "a block writes 'latent', which is the name of another block; give it a name of its own"),
    "named like a group": ((entry("mlp", "policy"),), {"actor": ("policy",)},
                           "a block writes 'policy', which is a group of the environment; give it a name of its own"),
    "typo in reads": ((entry("mlp", reads=["polcy"]),), {},
                      "agent.blocks[0]: no feature 'polcy' (did you mean 'policy'?); there are ['policy']"),
    "typo in what the actor reads": ((entry("mlp"),), {"actor": ("latnt",)},
                                     "agent.observations.actor names 'latnt' (did you mean 'latent'?)"),
    "a picture without a block": ((), {"actor": ("camera",), "made": spec(**IMAGE)},
                                  "networks read vectors, so let a block of agent.blocks read it, and name what that"),
    "a picture for vectors": ((entry("mlp", reads=["camera"]),), {"made": spec(**IMAGE)},
                              "the feature 'camera' has the shape (2, 8, 8); this block reads vectors"),
    "typo in the name": ((entry("mlp") | {"name": "histroy"},), {},
                         "agent.blocks[0]: there is no 'histroy' (did you mean 'history'?); use one of conv1d, conv2d"),
    "typo in an option": ((entry("history", lenght=3),), {},
                          "history has no option 'lenght' (did you mean 'length'?)"),
    "no such module": ((entry("mlp") | {"name": "no_such_package.eyes:Eye"},), {},
                       "there is no module 'no_such_package' for 'no_such_package.eyes:Eye'; install it"),
    "no such class": ((entry("mlp") | {"name": "gaitway.agents.blocks:HistoryEncodr"},), {},
                      "has no 'HistoryEncodr' (did you mean 'HistoryEncoder'?)"),
    "no length": ((entry("history", length=0),), {}, "length is 0; use an integer >= 1"),
    "nothing read": ((entry("mlp", reads=[]),), {}, "list the features that the block reads, such as [policy]"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named_with_their_fix(mistake):
    blocks, options, sentence = MISTAKES[mistake]
    with pytest.raises(ValueError, match=re.escape(sentence)):
        make(*blocks, **options)


def test_mistakes_by_argument_are_named_with_their_fix():
    shapes = {"policy": (3,), "latent": (5,), "polcy": (3,)}
    early = MLPEncoder(shapes, ("latent",), "early")
    with pytest.raises(ValueError, match="the block 'early' reads 'latent', which is made later; place it behind"):
        make(early, MLPEncoder(shapes, ("policy",), "latent"))
    with pytest.raises(ValueError, match=r"the block 'latent' reads 'polcy' \(did you mean 'policy'\?\)"):
        make(HistoryEncoder(shapes, ("polcy",), "latent"))
    with pytest.raises(ValueError, match="which is the name of another block; give it a name of its own"):
        make(entry("mlp"), MLPEncoder(shapes, ("policy",), "latent"))


def replayed(*blocks, **observations):
    config = SoftActorCriticConfig(observations=Observations(**observations), blocks=blocks)
    return SoftActorCritic(spec(policy=3, critic=2), config)


def test_what_a_replay_cannot_teach_is_refused():
    with pytest.raises(ValueError, match="gradients through time need whole rollouts; use algorithm=ppo or a2c, or a"):
        replayed(entry("recurrent"), actor=("latent",), critic=("latent",))
    with pytest.raises(ValueError, match="gradients through time need whole rollouts"):
        SoftActorCritic(spec(), blocks=[RecurrentEncoder({"policy": (3,)}, ("policy",), "latent")])
    policy = replayed(entry("history"), actor=("latent",), critic=("critic", "latent"))
    with pytest.raises(ValueError, match=r"a block that remembers is learnt from step by step; use algorithm.n_step=1"):
        SAC(policy, SACConfig(n_step=3), num_envs=4)
    with pytest.raises(ValueError, match=r"which teach no memory; use agent.memory.kind=none and no history block"):
        BehaviourCloning(make(entry("history")))


@pytest.mark.parametrize("name", ["sac", "sac, discrete", "td3", "ddpg"])
def test_off_policy_critics_train_what_they_read_and_actors_what_they_alone_read(name):
    """Two blocks: `mine` is the actor's alone, `shared` is read by both, so the critics' loss trains it."""
    env_id = "toy/cartpole" if "discrete" in name else "toy/pendulum"
    read = ["policy"] if "discrete" in name else ["pos", "vel"]
    entries = [{"name": "mlp", "reads": read, "writes": writes, "size": 4} for writes in ("mine", "shared")]
    agent = {
        "blocks": entries,
        "observations": {"actor": ["mine", "shared"], "critic": ["shared", *read]},
        "actor_hidden": [8],
        "critic_hidden": [8],
    }
    algorithm = {"name": name.partition(",")[0], "learning_starts": 32, "iteration_steps": 64, "batch_size": 16}
    config = parse({"env": {"id": env_id, "num_envs": 4}, "algorithm": algorithm, "agent": agent, "total_steps": 256})
    runner = build_runner(config, None)
    learnt = {key: engine.parameters.names for key, engine in runner.algorithm.engines.items()}
    assert sum("blocks.0" in each for each in learnt["actor"]) == 4  # two layers, weight and bias
    assert sum("blocks.0" in each for each in learnt["critic"]) == 4
    before = {key: value.clone() for key, value in runner.policy.blocks.state_dict().items()}
    runner.learn()
    for key, value in runner.policy.blocks.state_dict().items():
        assert not torch.equal(value, before[key]), key
