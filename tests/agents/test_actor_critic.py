"""The actor-critic: which groups it reads, what it writes, and the policy it becomes."""

import pytest
import torch

from gaitway.agents.actor_critic import ActorCritic
from gaitway.agents.actor_critic_config import ActorCriticConfig, DistributionConfig
from gaitway.agents.branch import MemoryConfig
from gaitway.agents.observations import Observations
from gaitway.agents.policy import InferencePolicy, learnt_parameters
from gaitway.algorithms.a2c import A2C
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.algorithms.terms import Surrogate
from gaitway.core.seeding import stream
from gaitway.core.workspace import Variable, Workspace
from gaitway.envs.registry import make_env
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup


def spec(*groups, action=None):
    made = tuple(ObservationGroup(name, (Component("x", size),), (size,)) for name, size in groups)
    action = action or ActionSpec("continuous", ("a",), (-1.0,), (1.0,))
    return EnvSpec("test", made, action, control_dt=0.02, max_episode_steps=10)


def test_the_order_of_groups_is_the_order_of_inputs():
    policy = ActorCritic(
        spec(("a", 1), ("b", 2)),
        ActorCriticConfig(observations=Observations(actor=("b", "a")), normalise_observations=False),
    )
    obs = {"a": torch.tensor([[1.0]]), "b": torch.tensor([[2.0, 3.0]])}
    assert policy.network_input(obs, "actor").tolist() == [[2.0, 3.0, 1.0]]


def test_parameters_depend_on_the_generator_alone():
    torch.manual_seed(1)
    first = learnt_parameters({"policy": ActorCritic(spec(("policy", 3)), None, stream(0, "parameters"))})
    torch.manual_seed(2)
    second = learnt_parameters({"policy": ActorCritic(spec(("policy", 3)), None, stream(0, "parameters"))})
    third = learnt_parameters({"policy": ActorCritic(spec(("policy", 3)), None, stream(1, "parameters"))})
    assert list(first) == sorted(first)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], third[name]) for name in first)


def test_the_first_policy_is_nearly_the_same_everywhere():
    policy = ActorCritic(spec(("policy", 3)), None, stream(0, "parameters"))
    obs = {"policy": torch.randn(100, 3, generator=stream(0, "test"))}
    action, _ = policy.act(obs, None, stochastic=False)
    assert action.abs().max() < 0.05


def test_normalisers_count_each_row_once_and_travel_with_the_policy():
    policy = ActorCritic(spec(("policy", 2)))
    ws = Workspace()
    for t in range(4):
        ws.put("env/obs/policy", t, torch.tensor([[float(t), 1.0], [float(t), 3.0]]))
    for t in range(3):
        ws.put("env/reward", t, torch.zeros(2))
    policy.update_normalisers(ws)  # rows 0..2; row 3 opens the next rollout
    norm = policy.normalisers["group:policy"]
    assert norm.count == 6
    assert norm.mean.tolist() == pytest.approx([1.0, 2.0])
    assert norm.var.tolist() == pytest.approx([2 / 3, 1.0])
    policy.eval()
    policy.update_normalisers(ws)
    assert norm.count == 6
    twin = ActorCritic(spec(("policy", 2)))
    twin.load_state_dict(policy.state_dict())
    obs = {"policy": torch.tensor([[5.0, -1.0]])}
    assert torch.equal(twin.network_input(obs, "actor"), policy.network_input(obs, "actor"))


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_inference_remembers_and_forgets(kind):
    policy = ActorCritic(spec(("policy", 2)), ActorCriticConfig(memory=MemoryConfig(kind, 8), init="default"))
    act = InferencePolicy(policy)
    obs = {"policy": torch.ones(2, 2)}
    first, second = act(obs), act(obs)
    assert not torch.equal(first, second)
    act.reset(torch.tensor([True, False]))
    third = act(obs)
    assert torch.equal(third[0], first[0])
    assert not torch.equal(third[1], first[1])
    act.reset()
    assert torch.equal(act(obs), first)


def test_inference_equals_the_rollout_agent():
    """The policy as a function gives what the agent writes into a workspace, memory included."""
    env = make_env("toy/cue", num_envs=3, seed=0, K=3)
    policy = ActorCritic(env.spec, ActorCriticConfig(memory=MemoryConfig("gru", 8), init="default"))
    act, ws, obs = InferencePolicy(policy), Workspace(extra_row=("actor/memory", "critic/memory")), env.reset(seed=0)
    for t in range(3):
        ws.put("env/obs/policy", t, obs["policy"].clone())
        with torch.no_grad():
            policy(ws, t, stochastic=False)
        torch.testing.assert_close(ws.at("action", t), act(obs))
        obs = env.step(ws.at("action", t)).obs


def test_stochastic_actions_follow_their_stream():
    policy = ActorCritic(spec(("policy", 2)))
    obs = {"policy": torch.zeros(4, 2)}
    draws = [InferencePolicy(policy, True, stream(seed, "policy"))(obs) for seed in (0, 0, 1)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


@pytest.mark.parametrize("kind", ["gaussian", "squashed_gaussian", "beta"])
def test_every_distribution_fits_continuous_actions(kind):
    action = ActionSpec("continuous", ("a", "b"), (-2.0, 0.0), (2.0, 1.0))
    config = ActorCriticConfig(distribution=DistributionConfig(kind))
    policy = ActorCritic(spec(("policy", 3), action=action), config)
    drawn, _ = policy.act({"policy": torch.zeros(64, 3)}, None, True, stream(0, "policy"))
    assert drawn.shape == (64, 2)
    if kind != "gaussian":
        assert (drawn[:, 0].abs() <= 2).all()
        assert (drawn[:, 1] >= 0).all()
        assert (drawn[:, 1] <= 1).all()


def test_a_distribution_that_does_not_fit_is_refused():
    action = ActionSpec("discrete", ("choice",), choices=(3,))
    with pytest.raises(ValueError, match="beta"):
        ActorCritic(spec(("policy", 3), action=action), ActorCriticConfig(distribution=DistributionConfig("beta")))


def test_group_names_may_be_anything():
    names = ("values", "train", "a.b", "a_b", "a%2Eb")
    policy = ActorCritic(spec(*((name, 1) for name in names)))
    assert len(policy.normalisers) == len(names)
    twin = ActorCritic(spec(*((name, 1) for name in names)))
    twin.load_state_dict(policy.state_dict())


def test_float64_observations_are_read():
    env = make_env("Hopper-v5", num_envs=2, dtype=torch.float64)
    for normalise in (True, False):
        act = InferencePolicy(ActorCritic(env.spec, ActorCriticConfig(normalise_observations=normalise)))
        assert act(env.reset()).dtype == torch.float32


def test_a_prefix_keeps_two_policies_apart():
    first = ActorCritic(spec(("policy", 2)), ActorCriticConfig(memory=MemoryConfig("gru", 4)))
    teacher = first.clone().with_prefix("teacher/")
    ws = Workspace(extra_row=("actor/memory", "critic/memory", "teacher/actor/memory", "teacher/critic/memory"))
    ws.put("env/obs/policy", 0, torch.ones(3, 2))
    with torch.no_grad():
        first(ws, 0, stochastic=False)
        teacher(ws, 0, stochastic=False)
    assert set(teacher.writes) == {f"teacher/{name}" for name in first.writes}
    assert set(teacher.writes) | set(first.writes) <= set(ws)
    assert torch.equal(ws["action"], ws["teacher/action"])


def test_a_seeded_agent_draws_the_same_actions():
    policy = ActorCritic(spec(("policy", 2)))
    draws = []
    for seed in (3, 3, 4):
        ws = Workspace()
        ws.put("env/obs/policy", 0, torch.ones(3, 2))
        with torch.no_grad():
            policy.seed(seed)(ws, 0)
        draws.append(ws["action"])
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


DISCRETE = ActionSpec("discrete", ("a",), choices=(4,), start=(2,))
SWITCHES = ActionSpec("multi_discrete", ("a", "b"), choices=(2, 3))


@pytest.mark.parametrize("is_dense", [True, False])
@pytest.mark.parametrize("stochastic", [True, False])
@pytest.mark.parametrize(
    ("kind", "action"),
    [("gaussian", None), ("squashed_gaussian", None), ("beta", None), ("auto", DISCRETE), ("auto", SWITCHES)],
)
def test_a_bound_policy_writes_what_step_writes(kind, action, stochastic, is_dense):
    config = ActorCriticConfig(distribution=DistributionConfig(kind))
    made = spec(("policy", 3), ("critic", 2), action=action or ActionSpec("continuous", ("a", "b"), (-1, 0), (1, 3)))
    policy = ActorCritic(made, config, stream(0, "parameters"))
    found = []
    for is_bound in (True, False):
        observations = {"env/obs/policy": torch.randn(3, 5, 3, generator=stream(0, "test"))}
        ws = Workspace.packed(observations | {"env/obs/critic": torch.zeros(3, 5, 2)})
        if is_dense:
            dense = Workspace.dense(
                policy.variables(5, 3) | {name: Variable(3, 5, tuple(ws[name].shape[2:])) for name in ws}
            )
            dense["env/obs/policy"] = ws["env/obs/policy"]
            ws = dense
        options = {"stochastic": stochastic, "generator": stream(0, "policy")}
        with torch.inference_mode():
            step = policy.prepared_step(ws, options) if is_bound else lambda t: policy.step(ws, t, **options)  # noqa: B023
            for t in range(3):
                step(t)
        found.append({name: ws[name] for name in policy.writes})
    for name, value in found[0].items():
        assert torch.equal(value, found[1][name]), name


def test_a_bound_policy_keeps_the_graph_where_gradients_are_on():
    policy = ActorCritic(spec(("policy", 3)), None, stream(0, "parameters"))
    ws = Workspace.packed({"env/obs/policy": torch.randn(2, 5, 3, generator=stream(0, "test"))})
    step = policy.prepared_step(ws, {"generator": stream(0, "policy")})
    step(0)
    step(1)
    assert ws["policy/params"].requires_grad
    with torch.inference_mode():
        other = ActorCritic(spec(("policy", 3)), ActorCriticConfig(memory=MemoryConfig("gru", 4))).prepared_step(ws, {})
    assert other is not None


def test_without_memory_nothing_is_reset():
    assert not ActorCritic(spec(("policy", 3))).resets
    assert ActorCritic(spec(("policy", 3)), ActorCriticConfig(memory=MemoryConfig("gru", 4))).resets


class TestDeterministic:
    """A policy that plays its mode in rollouts too, and the losses that cannot learn from that."""

    def made(self, deterministic=True, **options):
        with make_env("toy/pendulum", num_envs=3) as env:
            config = ActorCriticConfig(deterministic=deterministic, actor_hidden=(8,), critic_hidden=(8,), **options)
            return ActorCritic(env.spec, config, stream(0, "parameters"))

    @pytest.mark.parametrize("memory", ["none", "gru"])
    def test_rollouts_play_the_mode(self, memory):
        for deterministic in (True, False):
            policy = self.made(deterministic, memory=MemoryConfig(memory, 4)).seed(0)
            rows = {f"env/obs/{name}": Variable(6, 3, policy.feature_shapes[name]) for name in policy.all_groups}
            ws = Workspace.dense(rows | policy.variables(3, 6), extra_row=tuple(policy.memories))
            for name in rows:
                ws[name].copy_(torch.randn(ws[name].shape, generator=stream(0, "test")))
            with torch.no_grad():
                step = policy.prepared_step(ws, {})
                for t in range(6):
                    step(t)
            mode = policy.head.action(policy.head.mode(ws["policy/params"]))
            assert torch.equal(ws["action"], mode) == deterministic

    def test_losses_that_need_drawn_actions_refuse_it(self):
        message = "agent.deterministic is true, but the term '{}' compares probabilities of drawn actions"
        with pytest.raises(ValueError, match=message.format("surrogate")):
            PPO(self.made(), num_envs=3)
        with pytest.raises(ValueError, match=message.format("policy")):
            A2C(self.made(), num_envs=3)
        PPO(self.made(), PPOConfig(minibatches=3), num_envs=3, terms=[Surrogate(coef=0.0)])
