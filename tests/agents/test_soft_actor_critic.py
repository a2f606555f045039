"""The soft actor-critic: what it reads, what it writes, in which units it thinks, and the policy it becomes."""

import math

import pytest
import torch
from torch.testing import assert_close

from gaitway.agents.observations import Observations
from gaitway.agents.policy import InferencePolicy
from gaitway.agents.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig
from gaitway.core.seeding import stream
from gaitway.core.workspace import Workspace
from gaitway.envs.registry import make_env
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup

LEGS = ActionSpec("continuous", ("hip", "knee"), (-1.0, 0.0), (1.0, 4.0))
CHOICE = ActionSpec("discrete", ("push",), choices=(3,), start=(2,))


def spec(action=LEGS, **groups):
    made = tuple(ObservationGroup(name, (Component("x", size),), (size,)) for name, size in groups.items())
    return EnvSpec("test", made, action, control_dt=0.02, max_episode_steps=10)


def make(action=LEGS, groups=None, **options):
    config = SoftActorCriticConfig(actor_hidden=(8, 8), critic_hidden=(8, 8), **options)
    return SoftActorCritic(spec(action, **(groups or {"policy": 3})), config, stream(0, "parameters"))


def obs_of(policy, rows=6, seed=0):
    generator = stream(seed, "test")
    return {name: torch.randn(rows, *policy.spec.group(name).shape, generator=generator) for name in policy.all_groups}


def test_step_writes_the_action_alone():
    policy = make()
    ws = Workspace()
    obs = obs_of(policy)
    ws.put("env/obs/policy", 0, obs["policy"])
    policy.step(ws, 0, generator=stream(0, "policy"))
    assert set(policy.variables(6, 1)) == set(policy.writes) == {"action"} == set(ws.keys()) - {"env/obs/policy"}
    action, state = policy.act(obs, policy.initial_state(6, "cpu"), True, stream(0, "policy"))
    assert state is None
    assert torch.equal(ws.at("action", 0), action)
    policy.step(ws, 0, stochastic=False)
    assert torch.equal(ws.at("action", 0), policy.act(obs, None, False)[0])


def test_actions_stay_within_the_limits_and_the_mode_is_the_squashed_mean():
    policy = make()
    obs = obs_of(policy, rows=200)
    action, _ = policy.act(obs, None, True, stream(0, "policy"))
    low, high = torch.tensor(LEGS.low), torch.tensor(LEGS.high)
    assert bool(((action > low) & (action < high)).all())
    mean = policy.actor(obs["policy"])[:, :2]
    assert_close(policy.act(obs, None, False)[0], torch.stack((mean[:, 0].tanh(), 2 + 2 * mean[:, 1].tanh()), -1))


def test_playing_and_learning_see_the_same_distribution():
    policy = make()
    obs = obs_of(policy, rows=5)
    noise = torch.randn(5, 2, generator=stream(3, "noise"))
    unit, log_prob = policy.propose(policy.network_input(obs, "actor"), noise)
    played, _ = policy.act(obs, None, True, stream(3, "noise"))  # draws the same noise
    assert_close(policy.unit_action(played), unit)
    # the head's density is that of the environment's action: the ranges differ by 1 and by 2
    params = policy.head(policy.actor_output(obs["policy"]))
    assert_close(log_prob, policy.head.log_prob(params, policy.head.raw(played)) + math.log(2.0), atol=1e-4, rtol=1e-4)


def test_uniform_actions():
    policy = make()
    obs = {"policy": torch.zeros(4000, 3)}
    ws = Workspace()
    ws.put("env/obs/policy", 0, obs["policy"])
    policy.step(ws, 0, uniform=True, generator=stream(0, "policy"))
    action = ws.at("action", 0)
    assert_close(action.mean(0), torch.tensor([0.0, 2.0]), atol=0.05, rtol=0)
    assert_close(action.std(0), torch.tensor([2.0, 4.0]) / 12**0.5, atol=0.03, rtol=0)
    assert bool((action[:, 1] >= 0).all())
    chosen = make(CHOICE).uniform_action(obs, stream(0, "policy"))
    assert chosen.unique().tolist() == [2, 3, 4]


def test_own_stream_where_no_generator_is_given():
    first, second = make().seed(7), make().seed(7)
    obs = obs_of(first)
    assert torch.equal(first.act(obs, None, True)[0], second.act(obs, None, True)[0])
    assert not torch.equal(first.act(obs, None, True)[0], second.seed(8).act(obs, None, True)[0])


def test_actor_and_critics_read_their_own_groups():
    groups = {"policy": 3, "critic": 5, "extra": 2}
    policy = make(groups=groups, observations=Observations(actor=("extra", "policy")))
    assert policy.groups == {"actor": ("extra", "policy"), "critic": ("critic",)}
    assert policy.reads == ("env/obs/extra", "env/obs/policy", "env/obs/critic")
    obs = obs_of(policy)
    assert torch.equal(policy.network_input(obs, "actor"), torch.cat((obs["extra"], obs["policy"]), -1))
    values = policy.values(policy.critic, policy.network_input(obs, "critic"), torch.zeros(6, 2))
    assert values.shape == (2, 6)
    obs["critic"] = obs["critic"] + 1.0
    assert not torch.equal(policy.values(policy.critic, policy.network_input(obs, "critic"), torch.zeros(6, 2)), values)
    action, _ = policy.act({name: obs[name] for name in ("extra", "policy")}, None, False)  # the critic's is not needed
    assert action.shape == (6, 2)


def test_critics_read_the_action_in_units_of_half_its_range():
    policy = make()
    action = torch.tensor([[-1.0, 0.0], [1.0, 4.0], [0.5, 3.0]])
    assert policy.unit_action(action).tolist() == [[-1.0, -1.0], [1.0, 1.0], [0.5, 0.5]]
    obs = obs_of(policy, rows=3)["policy"]
    unit = policy.unit_action(action)
    expected = policy.critic(torch.cat((obs, unit), -1)).squeeze(-1)
    assert_close(policy.values(policy.critic, obs, unit), expected)


def test_discrete_actions():
    policy = make(CHOICE, critics=3)
    obs = obs_of(policy)
    assert policy.values(policy.critic, obs["policy"]).shape == (3, 6, 3)
    log_probs = policy.log_probs(obs["policy"])
    assert_close(log_probs.exp().sum(-1), torch.ones(6))
    action, _ = policy.act(obs, None, False)
    assert torch.equal(action, log_probs.argmax(-1) + 2)
    drawn, _ = policy.act({"policy": obs["policy"][:1].expand(5000, 3)}, None, True, stream(0, "policy"))
    share = torch.bincount(drawn - 2, minlength=3) / 5000
    assert_close(share, log_probs[0].exp(), atol=0.03, rtol=0)


def test_the_target_starts_as_a_copy_and_is_not_learnt():
    policy = make()
    for own, target in zip(policy.critic.parameters(), policy.target.parameters(), strict=True):
        assert torch.equal(own, target)
        assert own.data_ptr() != target.data_ptr()
        assert not target.requires_grad


def test_parameters_depend_on_the_generator_alone():
    torch.manual_seed(1)
    first = make()
    torch.manual_seed(2)
    second = make()
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_normalisers_are_those_of_the_groups():
    policy = make(normalise_observations=True)
    ws = Workspace()
    for t in range(3):
        ws.put("env/obs/policy", t, torch.full((2, 3), float(t)))
        if t < 2:
            ws.put("env/reward", t, torch.zeros(2))
    policy.update_normalisers(ws)
    assert policy.normalisers["group:policy"].mean.tolist() == [0.5, 0.5, 0.5]
    # 4 rows with mean and deviation 0.5: 1 becomes 0.5 / 0.51
    assert_close(policy.network_input({"policy": torch.ones(1, 3)}, "critic"), torch.full((1, 3), 0.5 / 0.51))
    assert "normalisers.group:policy.mean" in policy.state_dict()


@pytest.mark.parametrize("trunk", ["mlp", "d2rl", "residual"])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_every_trunk_plays_and_answers(trunk, layer_norm):
    policy = make(trunk=trunk, layer_norm=layer_norm, activation="silu", init="orthogonal")
    obs = obs_of(policy)
    unit, log_prob = policy.propose(obs["policy"], torch.zeros(6, 2))
    assert policy.values(policy.target, obs["policy"], unit).shape == (2, 6)
    assert log_prob.shape == (6,)


def test_the_deployed_policy_needs_no_memory():
    policy = make()
    act = InferencePolicy(policy)
    obs = obs_of(policy)
    assert torch.equal(act(obs), policy.act(obs, None, False)[0])
    act.reset(torch.tensor([True, False, True, False, True, False]))
    act.reset()
    assert act(obs).shape == (6, 2)


def test_what_it_cannot_do_is_named():
    with pytest.raises(ValueError, match="algorithm=ppo"):
        make(ActionSpec("multi_discrete", ("a", "b"), choices=(2, 3)))
    with pytest.raises(ValueError, match="finite"):
        make(ActionSpec("continuous", ("a",), (-math.inf,), (1.0,)))
    with pytest.raises(ValueError, match="critics is 0"):
        make(critics=0)
    with pytest.raises(ValueError, match="write the smaller number first"):
        make(log_std_range=(2.0, -5.0))
    make(log_std_range=(-5.0, -1.0))  # a range without 1 is fine


def test_values_start_at_zero_where_that_is_asked_for():
    with make_env("gymnasium:Pendulum-v1", num_envs=1) as env:
        spec = env.spec
    inputs = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    found = {}
    for zero in (False, True):
        config = SoftActorCriticConfig(
            actor_hidden=(8,), critic_hidden=(8, 8), critics=3, trunk="d2rl", zero_critics=zero
        )
        policy = SoftActorCritic(spec, config, torch.Generator().manual_seed(1))
        found[zero] = policy
        for critics in (policy.critic, policy.target):
            values = critics(inputs)
            assert values.shape == (3, 5, 1)
            assert bool((values == 0).all()) == zero
    plain, zeroed = (dict(found[zero].critic.named_parameters()) for zero in (False, True))
    for name, value in plain.items():
        assert torch.equal(value, zeroed[name]) == ("last" not in name)
