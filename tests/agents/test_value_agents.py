"""Small critics: shapes without a trailing axis, prefixes, groups, and values by hand."""

import pytest
import torch
from torch.testing import assert_close

from gaitway.agents.value_agents import ContinuousQCritic, DiscreteQCritic, ObservationInput, ValueCritic
from gaitway.core.agent import Agents, TemporalAgent
from gaitway.core.seeding import stream
from gaitway.core.wiring import check_wiring
from gaitway.core.workspace import Workspace
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup

LEGS = ActionSpec("continuous", ("hip", "knee"), (-1.0, 0.0), (1.0, 4.0))
CHOICE = ActionSpec("discrete", ("push",), choices=(3,), start=(2,))


def spec(action=LEGS, **groups):
    groups = groups or {"policy": 3}
    made = tuple(ObservationGroup(name, (Component("x", size),), (size,)) for name, size in groups.items())
    return EnvSpec("test", made, action, control_dt=0.02, max_episode_steps=10)


def rollout(action=LEGS, steps=4, batch=5, **groups):
    """Step rows: one observation more than actions."""
    generator = stream(0, "test")
    ws = Workspace()
    for name, size in (groups or {"policy": 3}).items():
        ws[f"env/obs/{name}"] = torch.randn(steps + 1, batch, size, generator=generator)
    if action.kind == "continuous":
        ws["action"] = torch.randn(steps, batch, 2, generator=generator)
    else:
        ws["action"] = torch.randint(2, 5, (steps, batch), generator=generator)
    return ws


def test_values_have_no_trailing_axis():
    ws = rollout()
    critic, q = ValueCritic(spec()), ContinuousQCritic(spec())
    TemporalAgent(Agents(critic, q))(ws, 0, n_steps=4)
    assert ws["value"].shape == ws["q_value"].shape == (4, 5)
    assert ws["value"].requires_grad
    assert_close(ws["value"], critic.values(ws)[:4])
    assert critic.values(ws).shape == (5, 5)  # with the row after the last step
    by_hand = critic.network(ws["env/obs/policy"])[..., 0]
    assert_close(critic.values(ws), by_hand)
    both = torch.cat((ws["env/obs/policy"][:4], ws["action"]), -1)
    assert_close(ws["q_value"], q.network(both)[..., 0])
    assert_close(q.q_value(ws["env/obs/policy"][0, 0], ws["action"][0, 0]), ws["q_value"][0, 0])


def test_q_values_of_all_actions_and_of_one():
    ws = rollout(CHOICE)
    q = DiscreteQCritic(spec(CHOICE))
    TemporalAgent(q)(ws, 0, n_steps=4)
    assert ws["q_values"].shape == (4, 5, 3)
    chosen = q.of_action(ws["q_values"], ws["action"])
    assert chosen.shape == (4, 5)
    for t in range(4):
        for b in range(5):
            assert chosen[t, b] == ws["q_values"][t, b, ws["action"][t, b] - 2]  # actions count from 2
    with pytest.raises(ValueError, match=r"one action per row of values is \[4, 5\]"):
        q.of_action(ws["q_values"], ws["action"].unsqueeze(-1))


def test_prefixes_keep_copies_apart():
    ws = rollout(CHOICE)
    q = DiscreteQCritic(spec(CHOICE), name="q")
    target = q.clone().with_prefix("target/")
    assert target.writes == ("target/q_values",)
    cast = Agents(q, target)
    check_wiring(cast, given=("env/obs/policy",))
    cast(ws, 0)
    assert torch.equal(ws.at("q_values", 0), ws.at("target/q_values", 0))
    with torch.no_grad():
        for parameter in q.parameters():
            parameter.add_(1.0)
    cast(ws, 0)
    assert not torch.equal(ws.at("q_values", 0), ws.at("target/q_values", 0))
    assert [agent.prefix for agent in cast.get_by_name("q")] == ["", "target/"]


def test_groups_are_those_of_the_environment_or_the_chosen_ones():
    groups = {"policy": 3, "critic": 2, "map": 4}
    ws = rollout(**groups)
    assert ValueCritic(spec(**groups)).reads == ("env/obs/critic",)
    chosen = ValueCritic(spec(**groups), groups=("map", "policy"))
    chosen(ws, 1)
    both = torch.cat((ws["env/obs/map"][1], ws["env/obs/policy"][1]), -1)
    assert_close(ws.at("value", 1), chosen.value(both))
    assert ObservationInput(spec(**groups), "actor").groups == ("policy",)
    assert ObservationInput(spec(**groups), "actor").steps(rollout(**groups)).shape == (4, 5, 3)
    with pytest.raises(ValueError, match="names 'sound'"):
        ValueCritic(spec(**groups), groups=("sound",))


def test_start_comes_from_the_generator():
    first, again, other = (ValueCritic(spec(), generator=stream(seed, "parameters")) for seed in (0, 0, 1))
    assert torch.equal(first.network.layers[0].weight, again.network.layers[0].weight)
    assert not torch.equal(first.network.layers[0].weight, other.network.layers[0].weight)


def test_actions_of_the_wrong_kind_are_refused():
    with pytest.raises(ValueError, match="ContinuousQCritic reads an action"):
        DiscreteQCritic(spec(LEGS))
    with pytest.raises(ValueError, match="DiscreteQCritic answers"):
        ContinuousQCritic(spec(CHOICE))
