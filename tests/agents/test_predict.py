"""One observation in, one action out: the same numbers as the batched policy, in the form of the environment."""

import gymnasium
import numpy as np
import pytest
import torch

from gaitway.agents.actor_critic import ActorCritic
from gaitway.agents.actor_critic_config import ActorCriticConfig
from gaitway.agents.branch import MemoryConfig
from gaitway.agents.observations import Observations
from gaitway.agents.policy import InferencePolicy
from gaitway.agents.predict import predict_action
from gaitway.agents.soft_actor_critic import SoftActorCritic
from gaitway.core.seeding import stream
from gaitway.envs.registry import make_env
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup


def spec(action, **groups):
    groups = groups or {"policy": 3}
    made = tuple(ObservationGroup(name, (Component("x", size),), (size,)) for name, size in groups.items())
    return EnvSpec("test", made, action, control_dt=0.02, max_episode_steps=10)


CONTINUOUS = ActionSpec("continuous", ("a", "b"), (-0.25, -3.0), (0.25, 3.0))
DISCRETE = ActionSpec("discrete", ("a",), choices=(4,), start=(3,))
SEVERAL = ActionSpec("multi_discrete", ("a", "b"), choices=(2, 5))


def lively(policy):
    """Weights that make actions differ from one observation to the next."""
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.normal_(0, 1.0, generator=stream(0, "test"))
    return policy


@pytest.mark.parametrize(
    ("make", "action"),
    [
        (ActorCritic, CONTINUOUS),
        (ActorCritic, DISCRETE),
        (ActorCritic, SEVERAL),
        (SoftActorCritic, CONTINUOUS),
        (SoftActorCritic, DISCRETE),
    ],
)
def test_the_action_of_one_observation_is_that_of_the_batch(make, action):
    policy = lively(make(spec(action), None, stream(0, "parameters")))
    observations = torch.randn(6, 3, generator=stream(1, "test"))
    expected = InferencePolicy(policy)({"policy": observations})
    found = [predict_action(policy, observation, clip=False) for observation in observations]
    assert np.allclose(np.stack(found), expected.numpy(), atol=1e-4)
    assert len({np.asarray(one).tobytes() for one in found}) > 1
    if action is DISCRETE:
        assert all(type(one) is int and 3 <= one <= 6 for one in found)
    else:
        assert all(one.shape == (2,) and one.dtype == expected.numpy().dtype for one in found)


def test_arrays_tensors_and_dicts_are_the_same_observation():
    policy = lively(ActorCritic(spec(CONTINUOUS)))
    values = [0.3, -1.0, 2.0]
    forms = [np.array(values), np.array(values, dtype=np.float32), torch.tensor(values), {"policy": np.array(values)}]
    forms += [values, {"policy": torch.tensor(values), "other": 1}]
    first, *others = [predict_action(policy, form) for form in forms]
    assert all(np.array_equal(first, other) for other in others)


def test_groups_and_nested_dicts():
    policy = lively(
        ActorCritic(
            spec(CONTINUOUS, **{"arm/joints": 2, "goal": 1, "critic": 4}),
            ActorCriticConfig(observations=Observations(actor=("goal", "arm/joints"))),
        )
    )
    flat = {"arm/joints": np.ones(2), "goal": np.array(0.5)}
    nested = {"arm": {"joints": np.ones(2)}, "goal": np.array([0.5])}
    assert np.array_equal(predict_action(policy, flat), predict_action(policy, nested))
    with pytest.raises(KeyError, match=r"lacks \['arm/joints'\]"):
        predict_action(policy, {"goal": np.ones(1)})
    with pytest.raises(ValueError, match="pass a dict"):
        predict_action(policy, np.ones(3))


def test_the_normaliser_is_included():
    policy = lively(ActorCritic(spec(CONTINUOUS)))
    observation = torch.tensor([5.0, 6.0, 7.0])
    before = predict_action(policy, observation, clip=False)
    policy.normalisers["group:policy"].update(torch.tensor([[4.0, 6.0, 8.0], [6.0, 8.0, 10.0]]))
    after = predict_action(policy, observation, clip=False)
    assert not np.allclose(before, after)
    bare = ActorCritic(spec(CONTINUOUS), ActorCriticConfig(normalise_observations=False))
    bare.load_state_dict(policy.state_dict(), strict=False)
    normalised = policy.network_input({"policy": observation[None]}, "actor")[0]
    assert np.allclose(predict_action(bare, normalised, clip=False), after, atol=1e-6)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_the_memory_is_included(kind):
    policy = lively(ActorCritic(spec(CONTINUOUS), ActorCriticConfig(memory=MemoryConfig(kind, 8))))
    observations = torch.randn(4, 3, generator=stream(2, "test"))
    act, batched = InferencePolicy(policy), InferencePolicy(policy)
    for _ in range(2):
        found = [predict_action(act, observation, clip=False) for observation in observations]
        expected = [batched({"policy": observation[None]})[0].numpy() for observation in observations]
        assert np.allclose(found, expected, atol=1e-6)
        act.reset()
        batched.reset()
    assert not np.allclose(predict_action(act, observations[1], clip=False), found[1])  # the past counts
    with pytest.raises(ValueError, match="InferencePolicy"):
        predict_action(policy, observations[0])


def test_actions_stay_within_their_limits_unless_told():
    policy = lively(ActorCritic(spec(CONTINUOUS)))
    observation = np.array([3.0, -3.0, 3.0])
    free = predict_action(policy, observation, clip=False)
    assert abs(free[0]) > 0.25
    assert np.array_equal(predict_action(policy, observation), np.clip(free, [-0.25, -3], [0.25, 3]).astype(np.float32))


def test_draws_come_from_the_generator():
    policy = lively(ActorCritic(spec(DISCRETE)))
    before = torch.get_rng_state()
    draws = [predict_action(policy, np.zeros(3), stochastic=True, generator=stream(s, "act")) for s in range(30)]
    again = [predict_action(policy, np.zeros(3), stochastic=True, generator=stream(s, "act")) for s in range(30)]
    assert draws == again
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(ValueError, match="decides itself"):
        predict_action(InferencePolicy(policy), np.zeros(3), stochastic=True)


def test_a_batch_or_another_shape_is_refused():
    policy = ActorCritic(spec(CONTINUOUS))
    for wrong in (np.zeros((1, 3)), np.zeros(4), 1.0):
        with pytest.raises(ValueError, match=r"one observation is \[3\]"):
            predict_action(policy, wrong)

    class Unknown:
        groups = {"actor": ("policy",)}  # noqa: RUF012

    with pytest.raises(TypeError, match="pass spec"):
        predict_action(Unknown(), np.zeros(3))


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1"])
def test_raw_gymnasium_environments(id):
    with make_env(f"gymnasium:{id}", seed=0) as ours:
        policy = lively(ActorCritic(ours.spec, None, stream(0, "parameters")))
    env = gymnasium.make(id)
    observation, _ = env.reset(seed=0)
    for _ in range(5):
        action = predict_action(policy, observation, env=env)
        assert env.action_space.contains(action if isinstance(action, np.ndarray) else np.int64(action))
        observation, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            observation, _ = env.reset()
    env.close()


def test_states_that_are_numbers_become_one_hot():
    with make_env("gymnasium:FrozenLake-v1", seed=0) as ours:
        policy = lively(ActorCritic(ours.spec, ActorCriticConfig(normalise_observations=False)))
    env = gymnasium.make("FrozenLake-v1")
    actions = [predict_action(policy, state, env=env) for state in range(16)]
    assert actions == [predict_action(policy, row) for row in torch.eye(16)]
    assert len(set(actions)) > 1
    env.close()
