"""HSD-Bandit, SAC-HRL, HIRO and the switching ensemble on a GPU: recorded updates give the eager numbers, wait for
nothing, and play on recorded too."""

from typing import Any

import pytest
import torch
from hsd3_cases import HIDDEN, NUM_ENVS, point_skills

from gaitway import OffPolicyRunner, RunnerConfig, make_env
from gaitway.agents.diayn_policy import DIAYNPolicy, DIAYNPolicyConfig
from gaitway.agents.hiro_policy import HiroPolicy, HiroPolicyConfig
from gaitway.agents.switching_policy import SwitchingPolicy, SwitchingPolicyConfig
from gaitway.algorithms.algorithm import Now
from gaitway.core.execution import Execution, ExecutionConfig
from gaitway.skills.bandit_policy import BanditPolicy, BanditPolicyConfig
from gaitway.skills.continuous_skills import ContinuousSkills
from gaitway.skills.hiro import Hiro, HiroConfig
from gaitway.skills.hsd_bandit import HSDBandit, HSDBanditConfig
from gaitway.skills.sac_hrl import SACHRL, SACHRLConfig
from gaitway.skills.sac_hrl_policy import SACHRLPolicy, SACHRLPolicyConfig
from gaitway.skills.switching import SwitchingConfig, SwitchingEnsemble

DEVICE, RECORDED = "cuda", "captured"

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

LEARNER = {
    "batch_size": 60,
    "replay_size": 4000,
    "learning_starts": 200,
    "iteration_steps": 160,
    "updates_per_program": 10,
    "update_ratio": 0.25,
    "temperature_learning_rate": 1e-3,
    "steps_per_round": 5,
}
RANGES = {"x": [-0.3, 0.3], "z": [-0.2, 0.2]}
KINDS = ["hsd_bandit", "sac_hrl", "hiro", "hiro dense", "switching"]


def continuous() -> ContinuousSkills:
    sizes = DIAYNPolicyConfig(n_skills=4, n_embed=3, actor_hidden=(8,), critic_hidden=(8,), discriminator_hidden=(8,))
    with make_env("point/skills") as env:
        return ContinuousSkills.of_policy(DIAYNPolicy(env.spec, sizes, torch.Generator().manual_seed(0)))


def make(kind: str, mode: str = "eager") -> OffPolicyRunner:
    env = make_env("point/duck", num_envs=NUM_ENVS, seed=0, device=DEVICE, max_episode_steps=23)
    generator = torch.Generator().manual_seed(3)
    policy: Any
    make_algorithm: Any
    options: Any
    if kind == "hsd_bandit":
        config = BanditPolicyConfig(**HIDDEN, subsets="0#2#3")
        policy = BanditPolicy(env.spec, config, generator, skills=point_skills())
        make_algorithm, options = HSDBandit, HSDBanditConfig(**LEARNER)
    elif kind == "sac_hrl":
        policy = SACHRLPolicy(env.spec, SACHRLPolicyConfig(**HIDDEN), generator, skills=continuous())
        make_algorithm, options = SACHRL, SACHRLConfig(**LEARNER)
    elif kind == "switching":
        policy = SwitchingPolicy(env.spec, SwitchingPolicyConfig(**HIDDEN, members=3), generator)
        make_algorithm, options = SwitchingEnsemble, SwitchingConfig(**LEARNER)
    else:
        config = HiroPolicyConfig(**HIDDEN, goal_ranges=RANGES, interval=5, dense=kind == "hiro dense")
        policy = HiroPolicy(env.spec, config, generator)
        make_algorithm, options = Hiro, HiroConfig(**LEARNER)
    execution = Execution(ExecutionConfig(mode, "fp32"), DEVICE)
    algorithm = make_algorithm(policy.to(DEVICE), options, num_envs=NUM_ENVS, execution=execution)
    return OffPolicyRunner(env, algorithm, RunnerConfig(total_steps=10**9))


def flat(runner: OffPolicyRunner) -> torch.Tensor:
    return torch.cat([value.reshape(-1) for value in runner.algorithm.flat_parameters()])


@pytest.mark.parametrize("kind", KINDS)
def test_recorded_updates_equal_eager_ones_and_never_wait(kind: str) -> None:
    eager, recorded = make(kind), make(kind, RECORDED)
    eager.learn(480)
    recorded.load_state_dict(eager.state_dict())
    before = flat(eager).clone()
    for _ in range(4):
        for runner in (recorded, eager):
            runner.algorithm.update(runner.replay, 10, Now())
    assert recorded.algorithm._many.is_recorded
    length = float(flat(eager).norm())
    assert float((flat(recorded) - flat(eager)).norm()) < 1e-4 * length
    assert float((flat(eager) - before).norm()) > 1e-3 * length  # which says something: they have moved
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        recorded.algorithm.update(recorded.replay, 20, Now())
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("kind", KINDS)
def test_a_recorded_run_resumes_exactly(kind: str) -> None:
    whole, first, second = make(kind, RECORDED), make(kind, RECORDED), make(kind, RECORDED)
    whole.learn(960)
    first.learn(480)
    second.load_state_dict(first.state_dict())
    second.learn(480)
    assert torch.equal(flat(second), flat(whole))
