"""An environment as agents: rows that hold one step each, one observation row more, no silent resets."""

import pytest
import torch

from gaitway.core.agent import Agent, Agents, TemporalAgent
from gaitway.core.workspace import Variable, Workspace
from gaitway.envs.env_agent import EnvAgent, episode_ends
from gaitway.envs.registry import make_env
from gaitway.envs.vec_env import Step
from gaitway.envs.wrappers import Wrapper


class Push(Agent):
    """Acts with a constant and counts the resets it is told about."""

    reads = ("env/obs/policy",)
    writes = ("action",)

    def __init__(self, value):
        super().__init__()
        self.value, self.resets_seen = value, []

    def step(self, ws, t):
        ws.put("action", t, torch.full((len(ws.at("env/obs/policy", t)), 1), self.value))

    def reset(self, ws, t, mask):
        if mask.any():
            self.resets_seen.append((t, mask.nonzero().flatten().tolist()))


def cast(env_id="toy/cue", num_envs=3, **options):
    world = EnvAgent(make_env(env_id, num_envs=num_envs, seed=0, **options))
    push = Push(0.5)
    return world, push, TemporalAgent(Agents(world.observe, push, world.advance))


def test_a_row_is_what_was_seen_done_and_what_came_of_it():
    _, _, loop = cast(K=2)
    ws = Workspace()
    loop(ws, 0, n_steps=7)
    assert ws["env/obs/policy"].shape == (8, 3, 2)
    assert ws["env/reward"].shape == (7, 3)
    sign = ws["env/obs/policy"][0, :, 0]  # the cue of the first episode
    assert torch.equal(ws["env/terminated"][:, 0], torch.tensor([False, False, True, False, False, True, False]))
    torch.testing.assert_close(ws["env/reward"][2], -((0.5 - sign) ** 2))
    # the observation after an end opens the next episode; final_obs is the state really reached
    assert (ws["env/obs/policy"][3, :, 0].abs() == 1).all()
    assert (ws["env/final_obs/policy"][2, :, 0] == 0).all()
    assert torch.equal(ws["env/final_obs/policy"][0], ws["env/obs/policy"][1])


def test_growing_and_dense_storage_hold_the_same_rows():
    _, _, loop = cast(K=2)
    growing = Workspace()
    loop(growing, 0, n_steps=9)
    twin, _, twin_loop = cast(K=2)
    dense = Workspace.dense(twin.variables(9) | {"action": Variable(9, 3, (1,), torch.float32)})
    twin_loop(dense, 0, n_steps=9)
    for name in dense:
        assert torch.equal(growing[name], dense[name]), name


def test_rollouts_go_on_where_the_last_one_ended_and_reset_only_when_asked():
    world, _, loop = cast(K=8)
    first, second, third = Workspace(), Workspace(), Workspace()
    loop(first, 0, n_steps=4)
    loop(second, 0, n_steps=3)
    assert torch.equal(second["env/obs/policy"][0], first["env/obs/policy"][4])
    assert second["env/obs/policy"][0, 0, 1] == pytest.approx(4 / 8)
    loop(third, 0, n_steps=3, reset=True)  # at the first row alone
    assert (third["env/obs/policy"][0, :, 0].abs() == 1).all()
    assert world.env.elapsed.tolist() == [3, 3, 3]
    with pytest.raises(TypeError, match="second workspace"):
        world.observe.with_prefix("other/")


def test_agents_with_memory_hear_of_ends_before_the_next_row():
    _, push, loop = cast(K=2)
    ws = Workspace()
    loop(ws, 0, n_steps=5)
    assert push.resets_seen == [(3, [0, 1, 2])]
    assert torch.equal(episode_ends(ws), ws["env/done"])


def test_only_declared_groups_and_final_observations_are_written():
    env = make_env("toy/pendulum", num_envs=2, seed=0)
    world = EnvAgent(env, groups=("pos",), final_obs=False)
    assert world.observe.writes == ("env/obs/pos",)
    names = set(world.variables(4))
    assert names == {"env/obs/pos", "env/reward", "env/terminated", "env/truncated"}
    assert world.variables(4)["env/obs/pos"].rows == 5


def test_reset_rows_are_marked():
    pytest.importorskip("envpool")
    world = EnvAgent(make_env("envpool:CartPole-v1", num_envs=2, seed=0))
    variables = world.variables(30)
    assert "env/valid" in variables
    ws = Workspace.dense(variables | {"action": Variable(30, 2, (), torch.int64)})
    for t in range(30):
        world.observe(ws, t)
        ws.put("action", t, torch.ones(2, dtype=torch.int64))
        world.advance(ws, t)
    rows, columns = ws["env/done"].nonzero(as_tuple=True)
    inside = rows < 29
    assert inside.any()
    assert not ws["env/valid"][rows[inside] + 1, columns[inside]].any()
    assert episode_ends(ws)[rows[inside] + 1, columns[inside]].all()


def test_a_seed_begins_new_episodes_that_depend_on_it_alone():
    def first_row(seed, played):
        _, _, loop = cast("toy/oscillator")
        if played:
            loop(Workspace(), 0, n_steps=5)
        loop.seed(seed)
        ws = Workspace()
        loop(ws, 0, n_steps=2)
        return torch.cat([ws[name][0] for name in ws if name.startswith("env/obs/")], -1)

    assert torch.equal(first_row(7, played=True), first_row(7, played=False))
    assert not torch.equal(first_row(7, played=False), first_row(8, played=False))


class Script(Wrapper):
    """Hands out the tensors of a list, one after the other, as rewards."""

    rewards: list[torch.Tensor]

    def step(self, action):
        step = self.env.step(action)
        return Step(step.obs, self.rewards.pop(0), step.terminated, step.truncated, step.final_obs, step.metrics)


@pytest.mark.parametrize("kind", ["dense", "shared", "growing"])
def test_rows_hold_what_tensors_held_when_they_came(kind):
    """Tensors that come again with other numbers in them, and others in between."""
    env = Script(make_env("toy/constant", num_envs=2, seed=0))
    world = EnvAgent(env)
    push = Push(0.0)
    dense = Workspace.dense(world.variables(40) | {"action": Variable(40, 2, (1,))})
    ws = {"growing": Workspace(), "dense": dense, "shared": dense.share_memory()}[kind]
    buffers = [torch.zeros(2) for _ in range(3)]
    turns = [(0, 1, 0, 1, 0, 2, 2, 0, 1, 2)[i % 10] for i in range(40)]
    env.rewards = [buffers[turn] if i % 7 else torch.zeros(2) for i, turn in enumerate(turns)]
    expected, coming = [], list(env.rewards)

    class Fill(Agent):
        writes = ("unused",)

        def step(self, ws, t):
            coming[t].copy_(torch.tensor([t + 1.0, -t]))
            expected.append(coming[t].clone())

    TemporalAgent(Agents(world.observe, push, Fill(), world.advance)).run(ws, n_steps=40)
    assert ws.kind("env/reward") == kind
    assert torch.equal(ws["env/reward"], torch.stack(expected))


def test_rows_beyond_the_end_and_other_shapes_are_refused_as_ever():
    world, _, loop = cast("toy/constant", num_envs=2)
    ws = Workspace.dense(world.variables(6) | {"action": Variable(9, 2, (1,))})
    with pytest.raises(IndexError, match=r"row 6 of variable 'env/reward' is outside 0\.\.5"):
        loop(ws, 0, n_steps=9)
    env = Script(make_env("toy/constant", num_envs=2, seed=0))
    env.rewards = [torch.zeros(2)] * 4 + [torch.zeros(2, 1)]
    world = EnvAgent(env)
    ws = Workspace.dense(world.variables(6) | {"action": Variable(6, 2, (1,))})
    with pytest.raises(ValueError, match=r"'env/reward' has rows \[2\]"):
        TemporalAgent(Agents(world.observe, Push(0.0), world.advance)).run(ws, n_steps=6)
