"""Particles: every column is that of an ordinary policy, whichever way it is computed; one of them acts."""

import dataclasses

import pytest
import torch
from policy_gradient_cases import CHOICE, FORCES, SMALL, make_policy, rollout_of
from torch.testing import assert_close

from gaitway.agents.actor_critic import ActorCritic
from gaitway.agents.actor_critic_config import DistributionConfig
from gaitway.agents.branch import MemoryConfig
from gaitway.agents.observations import Observations
from gaitway.agents.particles import Particles, ParticlesConfig
from gaitway.agents.policy import InferencePolicy
from gaitway.analysis.policy_functions import critic_function
from gaitway.core.agent import TemporalAgent
from gaitway.core.seeding import stream
from gaitway.core.workspace import Variable, Workspace
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup

N, SHARE = 3, 2
SWITCHES = ActionSpec("discrete", ("a", "b"), choices=(2, 3))
HEADS = {
    "categorical": (CHOICE, DistributionConfig()),
    "several choices": (SWITCHES, DistributionConfig()),
    "gaussian": (FORCES, DistributionConfig(init_std=0.7)),
    "scalar deviation": (FORCES, DistributionConfig(std_type="scalar")),
    "fixed deviation": (FORCES, DistributionConfig(learn_std=False)),
    "deviation by state": (FORCES, DistributionConfig(state_dependent=True)),
    "squashed": (FORCES, DistributionConfig("squashed_gaussian")),
    "beta": (FORCES, DistributionConfig("beta")),
}


def make_particles(name="categorical", count=N, seed=0, **changes):
    action, distribution = HEADS[name]
    fields = {f.name: getattr(SMALL, f.name) for f in dataclasses.fields(SMALL)} | {"distribution": distribution}
    group = ObservationGroup("policy", (Component("x", 3),), (3,))
    more = ObservationGroup("more", (Component("y", 2),), (2,))
    spec = EnvSpec("test", (group, more), action, control_dt=0.02, max_episode_steps=6)
    policy = Particles(spec, ParticlesConfig(**(fields | changes), particles=count), stream(seed, "parameters"))
    generator = stream(seed, "deviations")
    for member in policy.members:  # particles that have learnt something: actors and deviations differ
        with torch.no_grad():
            for parameter in [*member.actor.parameters(), *member.head.parameters()]:
                parameter += 0.2 * torch.rand(parameter.shape, generator=generator)
    return policy


def own(ws, i):
    return ws.select(torch.arange(i * SHARE, (i + 1) * SHARE))


@pytest.mark.parametrize("name", HEADS)
def test_every_column_is_that_of_its_particle(name):
    policy = make_particles(name)
    ws = rollout_of(policy, num_envs=N * SHARE)
    assert bool(ws["env/truncated"].any())
    raw = policy.raw_actions(ws)
    output, value = policy.outputs(policy.learner_inputs(ws)).values()
    params, log_prob, entropy = policy.head.score(output, raw)
    now, following = policy.values(ws)
    assert_close(params, ws["policy/params"])
    assert_close(policy.head.kl(params, params), torch.zeros_like(log_prob), atol=1e-6, rtol=0)
    for i, member in enumerate(policy.members):
        columns, mine = slice(i * SHARE, (i + 1) * SHARE), own(ws, i)
        expected, expected_value = member.outputs(member.learner_inputs(mine)).values()
        assert_close(output[:, columns], expected)
        assert_close(value[:, columns], expected_value)
        for found, right in zip((params, log_prob, entropy), member.head.score(expected, raw[:, columns]), strict=True):
            assert_close(found[:, columns], right)
        for found, right in zip((now, following), member.values(mine), strict=True):
            assert_close(found[:, columns], right)
    other = policy.members[1]
    borrowed = other.head(other.outputs(other.learner_inputs(own(ws, 0)))["output"])
    assert (params[:, :SHARE] - borrowed).abs().max() > 1e-3  # so a mistaken owner would show


@pytest.mark.parametrize("name", HEADS)
def test_rollouts_of_many_rows_are_those_of_single_steps(name):
    policy = make_particles(name)
    reference = rollout_of(policy, num_envs=N * SHARE)
    for stochastic in (True, False):
        found = []
        for at_once in (True, False):
            ws = Workspace.dense(policy.variables(N * SHARE, 12) | {"env/obs/policy": Variable(13, N * SHARE, (3,))})
            ws["env/obs/policy"] = reference["env/obs/policy"]
            generator = stream(5, "test")
            with torch.inference_mode():
                if at_once:
                    TemporalAgent(policy)(ws, 0, n_steps=12, stochastic=stochastic, generator=generator)
                else:
                    for t in range(12):
                        policy.step(ws, t, stochastic=stochastic, generator=generator)
            found.append(ws)
        for variable in policy.writes:
            assert torch.equal(found[0][variable], found[1][variable]), variable


def test_one_particle_is_an_actor_critic():
    one, alone = Particles(make_policy().spec, ParticlesConfig(particles=1), stream(3, "x")), make_policy()
    alone = ActorCritic(alone.spec, None, stream(3, "x"))
    for found, right in zip(one.members[0].parameters(), alone.parameters(), strict=True):
        assert torch.equal(found, right)
    first, second = rollout_of(one), rollout_of(alone)
    assert torch.equal(first["action"], second["action"])
    assert_close(first["policy/params"], second["policy/params"])


def test_gradients_stay_with_their_particle():
    policy = make_particles("gaussian")
    ws = rollout_of(policy, num_envs=N * SHARE)
    output, value = policy.outputs(policy.learner_inputs(ws)).values()
    _, log_prob, _ = policy.head.score(output, policy.raw_actions(ws))
    (log_prob[:, SHARE : 2 * SHARE].sum() + value[:, SHARE : 2 * SHARE].sum()).backward()
    for i, member in enumerate(policy.members):
        for name, parameter in member.named_parameters():
            reached = parameter.grad is not None and bool(parameter.grad.abs().sum() > 0)
            assert reached == (i == 1), f"{i} {name}"


def test_actor_and_critic_may_read_different_groups():
    observations = Observations(actor=("policy",), critic=("more", "policy"))
    policy = make_particles(observations=observations)
    generator = stream(0, "test")
    ws = Workspace()
    ws["env/obs/policy"] = torch.randn(5, N * SHARE, 3, generator=generator)
    ws["env/obs/more"] = torch.randn(5, N * SHARE, 2, generator=generator)
    ws["env/truncated"] = torch.zeros(4, N * SHARE, dtype=torch.bool)
    assert set(policy.reads) == {"env/obs/policy", "env/obs/more"}
    with torch.no_grad():
        for t in range(4):
            policy.step(ws, t, generator=generator)
        value = policy.outputs(policy.learner_inputs(ws.slice(0, 4)))["value"]
        x = torch.cat((ws["env/obs/more"], ws["env/obs/policy"]), -1)[:4, 2 * SHARE :]
        assert_close(value[:, 2 * SHARE :], policy.members[2].critic.network(x).squeeze(-1))


def test_the_best_particle_acts_and_stays_the_best_in_a_checkpoint():
    policy = make_particles("gaussian")
    obs = {"policy": torch.randn(7, 3, generator=stream(0, "test")), "more": torch.zeros(7, 2)}  # any number of rows
    actions = [member.act(obs, None, False)[0] for member in policy.members]
    assert (actions[0] - actions[2]).abs().max() > 1e-3
    assert torch.equal(policy.act(obs, None, False)[0], actions[0])
    policy.best.fill_(2)
    twin = make_particles("gaussian", seed=1)
    twin.load_state_dict({name: value.clone() for name, value in policy.state_dict().items()})
    for each in (policy, twin, policy.clone()):
        assert torch.equal(InferencePolicy(each)(obs), actions[2])
        drawn = InferencePolicy(each, True, stream(1, "a"))(obs)
        assert torch.equal(drawn, policy.members[2].act(obs, None, True, stream(1, "a"))[0])
        assert_close(critic_function(each)(obs["policy"]), policy.members[2].critic(obs["policy"], None)[0].squeeze(-1))


def test_an_agent_draws_from_its_own_seed():
    policy = make_particles("gaussian")
    obs = {"policy": torch.zeros(4, 3)}
    first, second = (policy.seed(7).act(obs, None, True)[0] for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(policy.act(obs, None, True)[0], first)


def test_statistics_of_observations_are_those_of_all_particles():
    policy = make_particles(normalise_observations=True)
    ws = rollout_of(policy, num_envs=N * SHARE)
    policy.update_normalisers(ws)
    norm = policy.members[0].normalisers.of("policy")
    assert all(member.normalisers.of("policy") is norm for member in policy.members)
    seen = ws["env/obs/policy"][:12].reshape(-1, 3)
    assert_close(policy.network_input({"policy": seen.mean(0)}, "actor"), torch.zeros(3), atol=1e-5, rtol=0)


def test_outputs_have_the_prefix():
    policy = make_particles("squashed").with_prefix("old/")
    ws = rollout_of(policy, num_envs=N * SHARE)
    assert set(policy.writes) == {"old/action", "old/policy/params", "old/policy/raw"} <= set(ws)


def test_what_cannot_work_is_refused():
    policy = make_particles()
    with pytest.raises(ValueError, match=r"8 instances cannot be split among 3 particles; .* such as 6"):
        policy.share(8)
    with pytest.raises(ValueError, match="4 instances cannot be split"):
        rollout_of(policy, num_envs=4)
    with pytest.raises(ValueError, match="particles is 0; use an integer >= 1"):
        ParticlesConfig(particles=0)
    with pytest.raises(ValueError, match=r"memory.kind is gru; particles have no memory"):
        ParticlesConfig(memory=MemoryConfig("gru"))
