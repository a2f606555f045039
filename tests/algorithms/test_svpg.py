"""SVPG: one particle is A2C, independent ones are several A2Cs, coupled ones follow Stein and keep apart."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from policy_gradient_cases import CHOICE, FORCES, SMALL, make_policy, rollout_of
from torch.testing import assert_close

from gaitway.agents.actor_critic import ActorCritic
from gaitway.agents.particles import Particles, ParticlesConfig
from gaitway.agents.policy import InferencePolicy
from gaitway.algorithms import svpg
from gaitway.algorithms.a2c import A2C, A2CConfig
from gaitway.algorithms.algorithm import Now, Schedule
from gaitway.algorithms.svpg import SVPG, ParticleReturns, SVPGConfig
from gaitway.cli.build import build_runner
from gaitway.cli.main import main
from gaitway.cli.train_config import EnvConfig, TrainConfig, parse
from gaitway.core.execution import Execution, ExecutionConfig
from gaitway.core.seeding import stream
from gaitway.core.workspace import Workspace
from gaitway.envs.registry import make_env
from gaitway.runners.evaluate import run_episodes
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.runner_config import RunnerConfig

FIELDS = {f.name: getattr(SMALL, f.name) for f in dataclasses.fields(SMALL)}
A2C_FIELDS = {"rollout_steps": 12, "learning_rate": 1e-2, "gamma": 0.9, "lam": 0.8, "entropy_coef": 0.02}


def agent(count, **changes):
    return ParticlesConfig(**(FIELDS | changes), particles=count)


def make_particles(count, action=CHOICE, seed=0, **changes):
    return Particles(make_policy(action).spec, agent(count, **changes), stream(seed, "parameters"))


def copies(policy):
    """The particles as policies of their own."""
    found = []
    for member in policy.members:
        alone = ActorCritic(policy.spec, policy.config)
        alone.load_state_dict(member.state_dict())
        found.append(alone)
    return found


def own(ws, i, share):
    return ws.select(torch.arange(i * share, (i + 1) * share))


def same_parameters(first, second, **tolerances):
    for (name, found), right in zip(first.named_parameters(), second.parameters(), strict=True):
        assert_close(found, right, msg=lambda text, name=name: f"{name}: {text}", **tolerances)


# --- One particle, and several without a kernel ----------------------------------------------------------------------


@pytest.mark.parametrize("limit", [None, 0.05])
@pytest.mark.parametrize("action", [CHOICE, FORCES], ids=["discrete", "continuous"])
def test_one_particle_is_a2c(action, limit):
    policy = make_particles(1, action)
    (alone,) = copies(policy)
    fields = A2C_FIELDS | {"max_grad_norm": limit, "normalise_advantage": True}
    coupled = SVPG(policy, SVPGConfig(**fields, temperature=1.0), num_envs=5)
    plain = A2C(alone, A2CConfig(**fields), num_envs=5)
    for number in range(4):
        ws = rollout_of(alone, seed=number)
        metrics = coupled.update(ws, Now(fraction=number / 10))
        expected = plain.update(ws, Now(fraction=number / 10))
        for name in ("loss/policy", "loss/value", "loss/entropy", "learning_rate"):
            assert_close(metrics[name], expected[name], atol=1e-5, rtol=1e-5)
        assert_close(metrics["particles/gradient_norm"], expected["gradient_norm"], rtol=1e-4, atol=1e-6)
        same_parameters(policy.members[0], alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("valid", [False, True])
@pytest.mark.parametrize("normalise", [False, True])
def test_uncoupled_particles_are_independent_learners(valid, normalise):
    count, share = 3, 2
    policy = make_particles(count)
    alone = copies(policy)
    fields = A2C_FIELDS | {"max_grad_norm": 0.3, "normalise_advantage": normalise}
    together = SVPG(policy, SVPGConfig(**fields, coupled=False), num_envs=count * share)
    apart = [A2C(each, A2CConfig(**fields), num_envs=share) for each in alone]
    for number in range(3):
        ws = rollout_of(policy, num_envs=count * share, seed=number, valid=valid)
        metrics = together.update(ws, Now())
        expected = [learner.update(own(ws, i, share), Now()) for i, learner in enumerate(apart)]
        for name in ("loss/policy", "loss/value", "loss/entropy"):
            assert_close(metrics[name], torch.stack([each[name] for each in expected]).mean(), atol=1e-5, rtol=1e-4)
        for member, each in zip(policy.members, alone, strict=True):
            same_parameters(member, each, atol=2e-5, rtol=1e-4)


# --- The coupled update, recomputed ----------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [CHOICE, FORCES], ids=["discrete", "continuous"])
@pytest.mark.parametrize("limit", [None, 0.3])
def test_policies_follow_stein_and_critics_their_own_gradient(action, limit):
    count, share, temperature = 4, 2, 0.05
    policy = make_particles(count, action)
    alone = copies(policy)
    fields = A2C_FIELDS | {"max_grad_norm": limit, "normalise_advantage": False}
    ws = rollout_of(policy, num_envs=count * share)
    apart = [A2C(each, A2CConfig(**fields), num_envs=share) for each in alone]
    before = [vectors(each)[0] for each in alone]
    for i, learner in enumerate(apart):
        learner.update(own(ws, i, share), Now())
    gradients = [vectors(each, gradient=True) for each in alone]

    pairs = sorted(((before[i] - before[j]) ** 2).sum().item() for i in range(count) for j in range(i))
    h = (pairs[2] + pairs[3]) / 2 / math.log(count + 1)
    algorithm = SVPG(policy, SVPGConfig(**fields, temperature=temperature), num_envs=count * share)
    metrics = algorithm.update(ws, Now())
    for i, member in enumerate(policy.members):
        phi = torch.zeros_like(before[i])
        for j in range(count):
            k = math.exp(-((before[i] - before[j]) ** 2).sum().item() / h)
            phi += k * (-gradients[j][0] / temperature + 2 / h * (before[i] - before[j])) / count
        found = vectors(member, gradient=True)
        assert_close(found[0], -phi, atol=1e-5, rtol=1e-4)
        assert_close(found[1], gradients[i][1], atol=1e-6, rtol=1e-4)
        assert (found[0] - gradients[i][0]).abs().max() > 1e-3
    assert metrics["particles/distance"].item() == pytest.approx(math.sqrt((pairs[2] + pairs[3]) / 2), rel=1e-5)
    assert 0 < metrics["particles/repulsion"].item() < 1


def vectors(policy, gradient=False):
    """Parameters (or gradients) of head and actor, and those of the critic, float64 each."""
    parts = ([*policy.head.parameters(), *policy.actor.parameters()], policy.critic.parameters())
    return [torch.cat([(p.grad if gradient else p.detach()).flatten().double() for p in part]) for part in parts]


def test_a_temperature_may_be_a_schedule():
    policy = make_particles(2)
    config = SVPGConfig(
        rollout_steps=12, temperature=Schedule(1.0, 0.01, over=1.0, kind="exponential", unit="fraction")
    )
    algorithm = SVPG(policy, config, num_envs=4)
    metrics = algorithm.update(rollout_of(policy, num_envs=4), Now(fraction=0.5))
    assert metrics["temperature"].item() == pytest.approx(0.1)


def test_bf16_products_leave_the_kernel_exact():
    found = []
    for precision in ("fp32", "bf16"):
        policy = make_particles(3)
        execution = Execution(ExecutionConfig("eager", precision))
        algorithm = SVPG(policy, SVPGConfig(rollout_steps=12), num_envs=6, execution=execution)
        metrics = algorithm.update(rollout_of(policy, num_envs=6), Now())
        found.append((metrics["particles/distance"], algorithm.engine.parameters.gradient.clone()))
    assert torch.equal(found[0][0], found[1][0])
    assert not torch.equal(found[0][1], found[1][1])
    assert torch.nn.functional.cosine_similarity(found[0][1], found[1][1], dim=0) > 0.99


# --- Repulsion -------------------------------------------------------------------------------------------------------


def spread_after(updates=200):
    """How different linear policies are, before and after updates on a flat reward with a bonus for entropy: the
    largest deviation, over particles, of a choice's probability."""
    policy = make_particles(4, actor_hidden=(), critic_hidden=())
    config = SVPGConfig(
        rollout_steps=12, learning_rate=0.02, schedule="constant", entropy_coef=1.0, temperature=1.0,
        normalise_advantage=False,
    )  # fmt: skip
    algorithm = SVPG(policy, config, num_envs=8)
    obs = torch.randn(50, 3, generator=stream(0, "look"))
    found = []
    for number in range(updates + 1):
        with torch.no_grad():
            chances = torch.stack([m.head(m.actor(obs, None)[0]).exp() for m in policy.members])
        found.append(chances.std(0).max().item())
        ws = rollout_of(policy, num_envs=8, seed=number)
        ws["env/reward"] = torch.zeros(12, 8)
        algorithm.update(ws, Now())
    return found[0], found[-1]


def test_particles_repel_where_nothing_is_to_be_earned():
    before, after = spread_after()
    assert before > 0.1
    assert after > 0.5 * before


def test_without_the_repelling_term_they_collapse(monkeypatch):
    right = svpg.stein_terms

    def driving_only(*arguments):
        driving, repelling = right(*arguments)
        return driving, torch.zeros_like(repelling)

    monkeypatch.setattr(svpg, "stein_terms", driving_only)
    before, after = spread_after()
    assert after < 0.1 * before


# --- A tiny task -----------------------------------------------------------------------------------------------------


def chance_of_the_right_choice(coupled=True, updates=60):
    """Every particle's mean probability of what is paid: choice 2 where the first number seen is positive, else 0."""
    policy = make_particles(4)
    config = SVPGConfig(rollout_steps=12, learning_rate=0.02, schedule="constant", gamma=0.0, coupled=coupled)
    algorithm = SVPG(policy, config, num_envs=16)
    for number in range(updates):
        ws = rollout_of(policy, num_envs=16, seed=number)
        right = torch.where(ws["env/obs/policy"][:12, :, 0] > 0, 2, 0)
        ws["env/reward"] = (ws["action"] == right).float()
        algorithm.update(ws, Now())
    obs = torch.randn(400, 3, generator=stream(0, "look"))
    right = torch.where(obs[:, :1] > 0, 2, 0)
    with torch.no_grad():
        return [m.head(m.actor(obs, None)[0]).gather(1, right).exp().mean().item() for m in policy.members]


@pytest.mark.parametrize("coupled", [True, False])
def test_every_particle_learns_what_is_paid(coupled):
    assert min(chance_of_the_right_choice(coupled)) > 0.8


def test_a_flipped_driving_term_teaches_the_opposite(monkeypatch):
    right = svpg.stein_terms
    monkeypatch.setattr(svpg, "stein_terms", lambda x, g, t: right(x, -g, t))
    assert max(chance_of_the_right_choice()) < 0.2


# --- Who acts --------------------------------------------------------------------------------------------------------


def test_returns_of_particles_by_hand():
    # particles 0 and 1 have two instances each; column 0 ends twice, column 3 once, in two rollouts
    returns = ParticleReturns(2, 4)
    assert returns.best() == 0
    assert returns.metrics() == {}
    ws = Workspace()
    ws["env/reward"] = torch.tensor([[1.0, 1, 1, 5], [2, 1, 1, 5], [4, 1, 1, 5]])
    ends = torch.zeros(3, 4, dtype=torch.bool)
    ends[1, 0] = True
    ws["env/terminated"], ws["env/truncated"] = ends, torch.zeros_like(ends)
    returns.add(ws)
    assert np.array_equal(returns.means(), [3.0, np.nan], equal_nan=True)
    assert set(returns.metrics()) == {"particles/return_0", "particles/return_best", "particles/return_worst"}
    ends = torch.zeros(3, 4, dtype=torch.bool)
    ends[0, 0] = ends[1, 3] = True
    ws["env/terminated"], ws["env/truncated"] = torch.zeros_like(ends), ends
    ws["env/valid"] = torch.tensor([[True] * 4, [True, True, True, False], [True] * 4])  # that end pays nothing
    returns.add(ws)
    assert returns.means() == [4.0, 20.0]  # (3 + (4 + 1)) / 2; 15 + 5
    assert returns.best() == 1
    assert returns.running.tolist() == [6.0, 6.0, 6.0, 5.0]
    assert returns.metrics()["particles/return_worst"].item() == 4.0
    twin = ParticleReturns(2, 4)
    twin.load_state_dict(returns.state_dict())
    assert (twin.means(), twin.running.tolist()) == (returns.means(), returns.running.tolist())


def make_runner(config, count=4, env="toy/cartpole", num_envs=8, total_steps=10**9, make=None, **options):
    world = make_env(env, num_envs=num_envs, seed=0, **options)
    policy = Particles(world.spec, agent(count), stream(0, "parameters"))
    algorithm = SVPG(policy, config, num_envs=num_envs)
    return OnPolicyRunner(world, algorithm, RunnerConfig(total_steps=total_steps), make_env=make)


def test_the_particle_with_the_best_recent_returns_is_evaluated():
    def make(purpose, num_envs):
        return make_env("toy/cartpole", num_envs=num_envs, seed=0, purpose=purpose)

    runner = make_runner(SVPGConfig(rollout_steps=100), total_steps=4 * 800, make=make)
    bad = runner.policy.members[0].actor.network.last  # always pushes one way: falls soonest
    with torch.no_grad():
        bad.bias.copy_(torch.tensor([20.0, -20.0]))
    runner.learn()
    means = runner.algorithm.returns.means()
    best = int(np.argmax(means))
    assert int(runner.policy.best) == best != 0
    assert means[0] == min(means)
    with make("evaluation", 10) as env:
        expected = run_episodes(env, InferencePolicy(runner.policy.members[best]), 10)["return"].mean().item()
    assert runner.last["return"] == pytest.approx(expected)


# --- The same run again ----------------------------------------------------------------------------------------------

SHORT = EnvConfig("toy/cartpole", 8, options={"max_episode_steps": 30})
CASES = {
    "coupled": TrainConfig(env=SHORT, algorithm=SVPGConfig(), agent=agent(4, normalise_observations=True)),
    "independent": TrainConfig(env=SHORT, algorithm=SVPGConfig(coupled=False), agent=agent(4)),
    "continuous": TrainConfig(
        env=EnvConfig("toy/pendulum", 4, options={"max_episode_steps": 30}), algorithm=SVPGConfig(), agent=agent(2)
    ),
}


def runner_of(config, iterations=8):
    steps = config.algorithm.rollout_steps * config.env.num_envs
    return build_runner(dataclasses.replace(config, total_steps=iterations * steps, torch_threads=1), None), steps


@pytest.mark.parametrize("name", CASES)
def test_resume_is_exact(name):
    whole, steps = runner_of(CASES[name])
    whole.learn()
    first, _ = runner_of(CASES[name])
    first.learn(3 * steps)
    second, _ = runner_of(CASES[name])
    second.load_state_dict(first.state_dict())
    second.learn()
    assert second.parameters_sha256() == whole.parameters_sha256()
    assert torch.equal(second.policy.best, whole.policy.best)
    assert second.algorithm.returns.state_dict()["recent"] == whole.algorithm.returns.state_dict()["recent"]
    assert torch.equal(
        second.algorithm.returns.state_dict()["running"], whole.algorithm.returns.state_dict()["running"]
    )
    for variable in whole.rollout:
        assert torch.equal(whole.rollout[variable], second.rollout[variable]), variable
    if name != "independent":
        other, _ = runner_of(dataclasses.replace(CASES[name], algorithm=SVPGConfig(coupled=False)))
        other.learn()
        assert other.parameters_sha256() != whole.parameters_sha256()


def test_the_command_line_trains_resumes_and_evaluates(tmp_path, capsys):
    run, small = tmp_path / "run", ["env.num_envs=16", "evaluation.interval=1000", "evaluation.episodes=2"]
    more = ["total_steps=2048", "stop.threshold=1", f"run_dir={run}", "--quiet"]  # reached by the first evaluation
    assert main(["train", "experiment=svpg_cartpole", *small, *more]) == 0
    assert json.loads((run / "summary.json").read_text())["steps"] == 1024
    assert main(["resume", str(run), "--quiet"]) == 0
    capsys.readouterr()
    assert main(["eval", str(run), "--episodes", "2", "--checkpoint", "last", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["steps"] == 2048
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert {"particles/return_0", "particles/distance", "particles/repulsion"} <= set().union(*lines)


def test_the_command_line_knows_it():
    config = parse({"algorithm": {"name": "svpg", "coupled": False}, "agent": {"particles": 3}})
    assert config.algorithm == SVPGConfig(coupled=False)
    assert config.agent == ParticlesConfig(particles=3)


def test_numbers_that_cannot_work_are_refused():
    with pytest.raises(ValueError, match=r"temperature is 0; use a number > 0"):
        SVPGConfig(temperature=0)
    with pytest.raises(ValueError, match=r"temperature reaches -1; use a number > 0"):
        SVPGConfig(temperature=Schedule(1.0, -1.0, over=3))
    with pytest.raises(ValueError, match=r"lam is 2; use a number from 0 to 1"):
        SVPGConfig(lam=2)
    with pytest.raises(ValueError, match="6 instances cannot be split among 4 particles"):
        SVPG(make_particles(4), num_envs=6)
