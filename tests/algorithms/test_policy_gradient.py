"""What REINFORCE and A2C share: schedules, weights, refusals, state; the same run again, whole or in two parts."""

import dataclasses

import pytest
import torch
from policy_gradient_cases import SMALL, gradients_of, make_policy, make_runner, rollout_of
from torch.testing import assert_close

from gaitway.agents.actor_critic import ActorCritic, ActorCriticConfig, MemoryConfig
from gaitway.algorithms.a2c import A2C, A2CConfig
from gaitway.algorithms.algorithm import Now, Schedule
from gaitway.algorithms.policy_gradient import PolicyGradient, PolicyGradientConfig
from gaitway.algorithms.reinforce import Reinforce, ReinforceConfig
from gaitway.cli.build import build_runner
from gaitway.cli.train_config import EnvConfig, TrainConfig, parse
from gaitway.core.execution import Execution, ExecutionConfig
from gaitway.envs.registry import make_env

BOTH = [(A2C, A2CConfig), (Reinforce, ReinforceConfig)]
GRU = dataclasses.replace(SMALL, memory=MemoryConfig("gru", 8), normalise_observations=True)
LSTM = dataclasses.replace(SMALL, memory=MemoryConfig("lstm", 8))
SHORT = EnvConfig("toy/cartpole", 4, options={"max_episode_steps": 20})


@pytest.mark.parametrize(("make", "config"), BOTH)
@pytest.mark.parametrize(("schedule", "expected"), [("linear", 0.75e-3), ("cosine", 0.8535534e-3), ("constant", 1e-3)])
def test_planned_schedules(make, config, schedule, expected):
    policy = make_policy()
    algorithm = make(policy, config(rollout_steps=12, learning_rate=1e-3, schedule=schedule), num_envs=5)
    metrics = algorithm.update(rollout_of(policy), Now(fraction=0.25))
    assert metrics["learning_rate"].item() == pytest.approx(expected)


@pytest.mark.parametrize(("make", "config"), BOTH)
def test_losses_add_up_with_their_weights(make, config):
    policy = make_policy()
    weights = {"value_coef": 0.3, "entropy_coef": Schedule(0.4, 0.0, over=10)}
    algorithm = make(policy, config(rollout_steps=12, **weights), num_envs=5)
    metrics = algorithm.update(rollout_of(policy), Now(iteration=5))
    total = metrics["loss/policy"] + 0.3 * metrics["loss/value"] + 0.2 * metrics["loss/entropy"]
    assert_close(metrics["loss/total"], total)


@pytest.mark.parametrize(("make", "config"), BOTH)
def test_long_gradients_are_cut(make, config):
    policy = make_policy()
    algorithm = make(policy, config(rollout_steps=12, max_grad_norm=0.01), num_envs=5)
    metrics = algorithm.update(rollout_of(policy), Now())
    assert metrics["gradient_norm"] > 0.01
    length = torch.cat([g.flatten() for g in gradients_of(algorithm).values()]).norm()
    assert length.item() == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize(("make", "config"), BOTH)
def test_observations_are_counted_after_the_update(make, config):
    """The policy that is learnt from is the one that acted: statistics move afterwards."""
    env = make_env("toy/pendulum", num_envs=4, seed=0, max_episode_steps=10)
    runner = make_runner(env, make, config(rollout_steps=10), ActorCriticConfig(actor_hidden=(8,)))
    seen = []
    loss = runner.algorithm.engine.loss
    runner.algorithm.engine.loss = lambda batch: (seen.append(batch["obs/pos"].clone()), loss(batch))[1]
    runner.learn(40)
    assert_close(1.01 * seen[0][..., :2], runner.rollout["env/obs/pos"][:10])  # mean 0, deviation 1 + 0.01
    runner.learn(40)
    assert (1.01 * seen[1][..., :2] - runner.rollout["env/obs/pos"][:10]).abs().max() > 0.05


@pytest.mark.parametrize(("make", "config"), BOTH)
def test_bf16_products_learn_the_same_direction(make, config):
    found = []
    for precision in ("fp32", "bf16"):
        policy = make_policy()
        ws = rollout_of(policy)
        execution = Execution(ExecutionConfig("eager", precision))
        algorithm = make(policy, config(rollout_steps=12, max_grad_norm=None), num_envs=5, execution=execution)
        algorithm.update(ws, Now())
        found.append(torch.cat([g.flatten() for g in gradients_of(algorithm).values()]))
    assert not torch.equal(*found)
    assert torch.nn.functional.cosine_similarity(*found, dim=0) > 0.99


def test_numbers_that_cannot_work_are_refused():
    for changes, match in [
        ({"rollout_steps": 0}, "rollout_steps is 0; use an integer >= 1"),
        ({"learning_rate": 0.0}, r"learning_rate is 0; use a number > 0"),
        ({"max_grad_norm": 0.0}, r"max_grad_norm is 0; use a number > 0, or null"),
        ({"gamma": 1.5}, r"gamma is 1.5; use a number from 0 to 1"),
    ]:
        for config in (A2CConfig, ReinforceConfig):
            with pytest.raises(ValueError, match=match):
                config(**changes)
    with pytest.raises(ValueError, match="lam is -1; use a number from 0 to 1"):
        A2CConfig(lam=-1)


def test_a_leaf_that_lacks_its_equations_says_so():
    policy = make_policy()
    algorithm = PolicyGradient(policy, PolicyGradientConfig(), [], num_envs=5, terms=(), execution=None)
    with pytest.raises(TypeError, match="PolicyGradient does not implement prepare"):
        algorithm.update(rollout_of(policy), Now())


@pytest.mark.parametrize("name", ["a2c", "reinforce"])
def test_the_command_line_knows_both(name):
    config = parse({"algorithm": {"name": name, "entropy_coef": 0.01}})
    assert config.algorithm.name == name
    assert config.algorithm.entropy_coef == 0.01
    assert config.agent == ActorCriticConfig()


# --- The same run again ----------------------------------------------------------------------------------------------

CASES = {
    "a2c": TrainConfig(env=SHORT, algorithm=A2CConfig(entropy_coef=0.01), agent=ActorCriticConfig(actor_hidden=(8,))),
    "a2c, gru": TrainConfig(env=SHORT, algorithm=A2CConfig(), agent=GRU),
    "a2c, gymnasium": TrainConfig(env=EnvConfig("gymnasium:CartPole-v1", 4), algorithm=A2CConfig(), agent=LSTM),
    "reinforce": TrainConfig(env=SHORT, algorithm=ReinforceConfig(rollout_steps=25)),
    "reinforce, lstm": TrainConfig(env=SHORT, algorithm=ReinforceConfig(rollout_steps=20), agent=LSTM),
    "reinforce, continuous": TrainConfig(
        env=EnvConfig("toy/pendulum", 4, options={"max_episode_steps": 20}),
        algorithm=ReinforceConfig(rollout_steps=25, baseline=False),
    ),
}


def runner_of(config, iterations=8):
    steps = config.algorithm.rollout_steps * config.env.num_envs
    return build_runner(dataclasses.replace(config, total_steps=iterations * steps, torch_threads=1), None), steps


@pytest.mark.parametrize("name", CASES)
def test_resume_is_exact_and_the_same_seed_gives_the_same_run(name):
    whole, steps = runner_of(CASES[name])
    whole.learn()

    first, _ = runner_of(CASES[name])
    first.learn(3 * steps)
    second, _ = runner_of(CASES[name])
    second.load_state_dict(first.state_dict())
    second.learn()
    assert second.env_steps == whole.env_steps
    assert second.parameters_sha256() == whole.parameters_sha256()
    for variable in whole.rollout:
        assert torch.equal(whole.rollout[variable], second.rollout[variable]), variable

    other, _ = runner_of(dataclasses.replace(CASES[name], seed=1))
    other.learn()
    assert other.parameters_sha256() != whole.parameters_sha256()


@pytest.mark.parametrize("missing", ["optimiser", "policy_stream", "env"])
@pytest.mark.parametrize("name", ["a2c", "reinforce"])
def test_a_state_that_lacks_something_is_not_exact(name, missing):
    whole, steps = runner_of(CASES[name])
    whole.learn(3 * steps)
    state = whole.state_dict()
    whole.learn(2 * steps)
    twin, _ = runner_of(CASES[name])
    fresh = twin.state_dict()
    if missing == "optimiser":
        state["algorithm"]["engine"] = fresh["algorithm"]["engine"]
    else:
        state[missing] = fresh[missing]
    twin.load_state_dict(state)
    twin.learn(2 * steps)
    assert twin.parameters_sha256() != whole.parameters_sha256()


def test_what_is_learnt_is_the_policy():
    env = make_env("toy/pendulum", num_envs=2, seed=0)
    policy = ActorCritic(env.spec, SMALL)
    algorithm = A2C(policy, num_envs=2)
    assert sum(p.numel() for p in policy.parameters()) <= sum(p.numel() for p in algorithm.flat_parameters())
    assert algorithm.config == A2CConfig()
