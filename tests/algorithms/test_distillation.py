"""Distillation against a plain walk over time; memory noise; what is learnt and what rests."""

import copy
import math
import shutil

import pytest
import torch
from policy_gradient_cases import FORCES, make_policy, rollout_of
from torch.testing import assert_close

from gaitway.agents.actor_critic_config import ActorCriticConfig
from gaitway.agents.branch import MemoryConfig
from gaitway.agents.observations import Observations
from gaitway.algorithms.algorithm import DeviceNow, Now
from gaitway.algorithms.distillation import Distillation, DistillationConfig
from gaitway.algorithms.memory_noise import MemoryNoise
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.core.execution import Execution, ExecutionConfig
from gaitway.core.seeding import stream
from gaitway.core.workspace import Workspace

FLAT = {"actor_hidden": (12,), "critic_hidden": (12,), "normalise_observations": False}
MLP = ActorCriticConfig(**FLAT)
GRU = ActorCriticConfig(**FLAT, memory=MemoryConfig("gru", 6))
LSTM = ActorCriticConfig(**FLAT, memory=MemoryConfig("lstm", 5, 2))
FELT = {"name": "recurrent", "reads": ["policy"], "writes": "felt", "size": 4}
PAST = {"name": "history", "reads": ["policy"], "writes": "past", "length": 3, "size": 4}
BLOCKS = ActorCriticConfig(
    **FLAT, blocks=(PAST, FELT), memory=MemoryConfig("gru", 6), observations=Observations(("past", "felt"), ("policy",))
)
STEPS = 12


def rollout(policy):
    """A rollout with labels, from memories that are not empty."""
    played = rollout_of(policy, STEPS)
    ws, generator = Workspace(extra_row=tuple(policy.memories)), stream(5, "labels")
    for name in [each for each in played if each not in policy.memories]:
        ws[name] = played[name]
    for name, memory in policy.memories.items():
        ws[name] = torch.rand(STEPS + 1, 5, memory.size, generator=generator) - 0.5
    ws["teacher/action"] = torch.randn(STEPS, 5, 2, generator=generator)
    return ws


def learner(agent, execution=None, **options):
    policy = make_policy(FORCES, agent)
    config = DistillationConfig(rollout_steps=STEPS, **options)
    return Distillation(policy, config, num_envs=5, execution=execution)


def walked(policy, ws, epochs, length, restore=True, flush=True):
    """The same in the plainest way: row by row with autograd, Adam of torch, states detached after each step."""
    optimiser = torch.optim.Adam(policy.parameters(), 1e-3)
    observed, starts = policy.observed(ws), policy.starts(ws)
    half = torch.tensor((1.0, 2.0))
    learnt = [name for name, memory in policy.memories.items() if memory.through_time]
    states = {name: ws[name][0] for name in learnt}
    for _ in range(epochs):
        states = {name: ws[name][0] if restore else states[name].detach() for name in learnt}
        losses = []
        for t in range(STEPS):
            states = {name: state * ~starts[t].unsqueeze(-1) for name, state in states.items()}
            stored = {name: ws[name][t] for name in policy.memories if name not in learnt}
            found = policy.inputs({name: value[t] for name, value in observed.items()}, ("actor",), states | stored)
            output, after = policy.actor(found.networks["actor"], states.get("actor/memory"))
            mean = policy.head.mode(policy.head(output))
            losses.append(((mean - ws["teacher/action"][t]) / half).square().sum(-1).mean())
            moved = dict(found.states) | ({} if after is None else {"actor/memory": after})
            states = {name: moved.get(name, state) for name, state in states.items()}
            if len(losses) == length or (flush and t == STEPS - 1):
                optimiser.zero_grad()
                torch.stack(losses).mean().backward()
                optimiser.step()
                losses, states = [], {name: state.detach() for name, state in states.items()}
    return policy


def actor_parameters(policy):
    return {name: value.detach().clone() for name, value in policy.named_parameters() if not name.startswith("critic")}


@pytest.mark.parametrize("length", [1, 5, 12, 40])
@pytest.mark.parametrize("agent", [MLP, GRU, LSTM, BLOCKS], ids=["mlp", "gru", "lstm", "blocks"])
def test_as_a_walk_over_time(agent, length):
    algorithm = learner(agent, gradient_length=length, epochs=2)
    ws = rollout(algorithm.policy)
    expected = actor_parameters(walked(copy.deepcopy(algorithm.policy), ws, 2, length))
    algorithm.update(ws, Now())
    for name, value in actor_parameters(algorithm.policy).items():
        assert_close(value, expected[name], atol=2e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize("broken", [{"restore": False}, {"flush": False}], ids=["not restored", "remainder dropped"])
def test_broken_walks_are_seen(broken):
    algorithm = learner(GRU, gradient_length=5, epochs=2)
    ws = rollout(algorithm.policy)
    expected = actor_parameters(walked(copy.deepcopy(algorithm.policy), ws, 2, 5, **broken))
    algorithm.update(ws, Now())
    found = actor_parameters(algorithm.policy)
    assert any(not torch.allclose(value, expected[name], atol=1e-4) for name, value in found.items())


@pytest.mark.parametrize(("length", "epochs"), [(5, 1), (5, 3), (4, 2), (12, 2), (100, 2), (1, 1)])
def test_the_number_of_gradient_steps(length, epochs):
    """T-DIST: epochs * ceil(T / gradient_length)."""
    algorithm = learner(GRU, gradient_length=length, epochs=epochs)
    algorithm.update(rollout(algorithm.policy), Now())
    taken = int(algorithm.engine.state_dict()["optimiser"]["step"])
    assert taken == epochs * math.ceil(STEPS / length)


def test_the_critic_rests():
    algorithm = learner(LSTM, epochs=3)
    before = {name: value.clone() for name, value in algorithm.policy.critic.state_dict().items()}
    metrics = algorithm.update(rollout(algorithm.policy), Now())
    assert all(torch.equal(value, before[name]) for name, value in algorithm.policy.critic.state_dict().items())
    assert {"loss/imitation", "imitation/error/left", "learning_rate", "std"} <= set(metrics)


# --- Memory noise ----------------------------------------------------------------------------------------------------


def memories(kind):
    policy = make_policy(FORCES, ActorCriticConfig(**FLAT, memory=MemoryConfig(kind, 3, 2)))
    generator = stream(1, "states")
    batch = {f"memory/{name}": torch.randn(5, each.size, generator=generator) for name, each in policy.memories.items()}
    return policy, batch | {"starts": torch.zeros(4, 5, dtype=torch.bool)}


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_noise_takes_the_place_of_whole_memories(kind):
    """T-RESAMPLE: two layers, five trajectories, one half: all layers and parts of each, of actor and critic."""
    policy, batch = memories(kind)
    noise = MemoryNoise(policy, 0.5, stream(3, "noise"))
    counts = []
    for _ in range(200):
        found = noise(batch, DeviceNow())
        changed = [(found[name] != batch[name]) for name in ("memory/actor/memory", "memory/critic/memory")]
        rows = changed[0].any(-1)
        for each in changed:
            assert torch.equal(each, rows.unsqueeze(-1).expand_as(each))
        replaced = torch.cat([found[name][rows] for name in ("memory/actor/memory", "memory/critic/memory")], -1)
        assert bool((replaced.abs() <= 1.0).all())
        assert found["starts"] is batch["starts"]
        counts.append(rows.sum().item())
    assert abs(sum(counts) / 1000 - 0.5) < 4 * math.sqrt(0.25 / 1000)
    assert len(set(counts)) > 3


def test_without_noise_no_bit_changes():
    policy, batch = memories("lstm")
    found = MemoryNoise(policy, 0.0, stream(3, "noise"))(batch, DeviceNow())
    assert all(torch.equal(found[name], batch[name]) for name in batch)


class PerLayer(MemoryNoise):
    """Broken: the mask lies along the numbers of a state, as the original's did along its layers."""

    def __call__(self, batch, now):
        first = batch[self.fields[0]]
        chance = torch.empty(first.shape[-1]).uniform_(generator=self.generator)
        return batch | {self.fields[0]: torch.where(chance < self.share, torch.zeros_like(first), first)}


def test_noise_along_the_wrong_axis_is_seen():
    policy, batch = memories("gru")
    found = PerLayer(policy, 0.5, stream(3, "noise"))(batch, DeviceNow())
    changed = found["memory/actor/memory"] != batch["memory/actor/memory"]
    assert not torch.equal(changed, changed.any(-1, keepdim=True).expand_as(changed))


@pytest.mark.parametrize("name", ["distillation", "ppo"])
def test_noise_moves_what_is_learnt(name):
    def parameters(share):
        policy = make_policy(FORCES, GRU)
        if name == "ppo":
            config = PPOConfig(rollout_steps=STEPS, minibatches=1, memory_noise=share)
            algorithm = PPO(policy, config, num_envs=5)
        else:
            algorithm = Distillation(policy, DistillationConfig(rollout_steps=STEPS, memory_noise=share), num_envs=5)
        algorithm.update(rollout(policy), Now())
        return algorithm.flat_parameters()[0].clone()

    assert torch.equal(parameters(0.5), parameters(0.5))
    assert not torch.equal(parameters(0.5), parameters(0.0))


def test_noise_without_memory_is_refused():
    for make, config in ((PPO, PPOConfig(memory_noise=0.1)), (Distillation, DistillationConfig(memory_noise=0.1))):
        with pytest.raises(
            ValueError, match=r"algorithm.memory_noise needs a policy with memory; set agent.memory.kind"
        ):
            make(make_policy(FORCES, MLP), config, num_envs=8)


@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling for the CPU needs g++")
def test_compiled_updates_equal_eager_ones(caplog):
    """A single term is the whole loss here: a sum that began at 0 lost its gradient in the compiler."""
    eager, compiled = learner(MLP), learner(MLP, execution=Execution(ExecutionConfig("compiled")))
    ws = rollout(eager.policy)
    for algorithm in (eager, compiled):
        algorithm.update(ws, Now())
    assert_close(compiled.engine.parameters.value, eager.engine.parameters.value, rtol=1e-5, atol=1e-6)
    assert not [record for record in caplog.records if "cannot be compiled" in record.message]
