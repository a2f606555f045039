"""The epsilon-greedy policy, the deterministic one with noise, and the range of actions."""

import pytest
import torch
from torch.testing import assert_close

from gaitway.agents.action_range import ActionRange
from gaitway.agents.deterministic_actor_critic import DeterministicActorCritic, DeterministicActorCriticConfig
from gaitway.agents.value_policy import ActionValues, ValuePolicy, ValuePolicyConfig
from gaitway.core.seeding import stream
from gaitway.core.workspace import Workspace
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup

LEGS = ActionSpec("continuous", ("hip", "knee"), (-1.0, 0.0), (1.0, 4.0))
CHOICE = ActionSpec("discrete", ("push",), choices=(3,), start=(2,))


def spec(action):
    return EnvSpec("test", (ObservationGroup("policy", (Component("x", 3),), (3,)),), action, 0.02, 100)


def observations(batch, seed=0):
    return {"policy": torch.randn(batch, 3, generator=stream(seed, "obs"))}


def test_bug_81_explorers_draw_one_action_per_instance_from_their_own_stream():
    policy, obs = ValuePolicy(spec(CHOICE), generator=stream(0, "parameters")), observations(3000)
    policy.epsilon.fill_(0.3)
    action, _ = policy.act(obs, None, True, stream(1, "policy"))
    assert action.shape == (3000,)
    assert torch.equal(action, policy.act(obs, None, True, stream(1, "policy"))[0])
    greedy, _ = policy.act(obs, None, False)
    assert torch.equal(greedy, policy.values(obs["policy"]).argmax(-1) + 2)
    # of 3000, 30 % draw anew and two thirds of those another action than the greedy one: 600, deviation 22
    assert 490 < int((action != greedy).sum()) < 710
    assert set(action.tolist()) == {2, 3, 4}


def test_without_epsilon_the_policy_is_greedy_and_uniform_is_uniform():
    policy, ws = ValuePolicy(spec(CHOICE), generator=stream(0, "parameters")), Workspace()
    policy.epsilon.fill_(0.0)
    obs = observations(600)
    ws.put("env/obs/policy", 0, obs["policy"])
    policy(ws, 0, stochastic=True, generator=stream(1, "policy"))
    assert torch.equal(ws.at("action", 0), policy.act(obs, None, False)[0])
    policy(ws, 0, uniform=True, generator=stream(1, "policy"))
    counts = torch.bincount(ws.at("action", 0) - 2, minlength=3)
    assert bool(((counts - 200).abs() < 60).all())  # five deviations


def test_a_dueling_network_is_value_plus_centred_advantage():
    network = ActionValues(3, 4, ValuePolicyConfig(hidden=(8,), dueling=True), stream(0, "parameters"))
    x = torch.randn(5, 3, generator=stream(1, "x"))
    output = network.network(x)
    values = network(x)
    assert_close(values.mean(-1), output[:, 0])
    assert_close(values - values.mean(-1, keepdim=True), output[:, 1:] - output[:, 1:].mean(-1, keepdim=True))


def test_noise_is_added_in_units_of_half_the_range_and_stays_inside():
    networks = DeterministicActorCriticConfig(actor_hidden=(8,), critic_hidden=(8,), noise_std=0.1)
    policy = DeterministicActorCritic(spec(LEGS), networks, stream(0, "parameters"))
    obs = observations(4000)
    plain, _ = policy.act(obs, None, False)
    noisy, _ = policy.act(obs, None, True, stream(1, "policy"))
    low, high = torch.tensor(LEGS.low), torch.tensor(LEGS.high)
    assert bool(((noisy >= low) & (noisy <= high)).all())
    inside = (policy.range.unit(plain).abs() < 0.6).all(-1)
    difference = (noisy - plain)[inside]
    assert_close(difference.std(0), torch.tensor([0.1, 0.2]), atol=0.01, rtol=0.0)  # half ranges 1 and 2
    assert_close(plain, policy.range.action(policy.actor(obs["policy"]).tanh()))


def test_the_range_there_and_back():
    within = ActionRange(LEGS)
    action = torch.tensor([[-1.0, 0.0], [1.0, 4.0], [0.0, 3.0]])
    assert within.unit(action).tolist() == [[-1.0, -1.0], [1.0, 1.0], [0.0, 0.5]]
    assert torch.equal(within.action(within.unit(action)), action)
    drawn = within.uniform(2000, torch.device("cpu"), stream(0, "policy"))
    assert_close(drawn.mean(0), torch.tensor([0.0, 2.0]), atol=0.12, rtol=0.0)
    assert_close(drawn.amax(0), torch.tensor([1.0, 4.0]), atol=0.02, rtol=0.0)


def test_actions_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="one choice among several"):
        ValuePolicy(spec(LEGS))
    with pytest.raises(ValueError, match="needs continuous ones"):
        DeterministicActorCritic(spec(CHOICE))
    unbounded = ActionSpec("continuous", ("hip",), (-float("inf"),), (float("inf"),))
    with pytest.raises(ValueError, match="actions without limits"):
        DeterministicActorCritic(spec(unbounded))
