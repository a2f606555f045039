"""T-COMPILE: the compiled update gives the eager numbers, compiles once, and never waits for a number on the host."""

import shutil

import pytest
import torch
import torch._dynamo
from torch.utils._python_dispatch import TorchDispatchMode

from gaitway import PPO, ActorCritic, ActorCriticConfig, OnPolicyRunner, PPOConfig, RunnerConfig, make_env
from gaitway.agents.observations import Observations
from gaitway.agents.policy import FunctionPolicy
from gaitway.agents.teacher import Teacher
from gaitway.algorithms.algorithm import Now
from gaitway.algorithms.imitation import Imitation
from gaitway.core.execution import Execution, ExecutionConfig
from gaitway.core.seeding import stream

CONFIG = PPOConfig(rollout_steps=8, epochs=2, minibatches=2, schedule="adaptive", entropy_coef=0.01)


class HostReads(TorchDispatchMode):
    """Counts operations whose result the host must wait for."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = str(function)
        self.count += any(word in name for word in ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero"))
        return function(*args, **(kwargs or {}))


EVERYTHING = "encoder, CNN, estimator, teacher"
PARTS = {
    "plain": ("HalfCheetah-v5", {}),
    EVERYTHING: (
        "toy/light",
        {
            "blocks": (
                {"name": "conv2d", "reads": ["camera"], "writes": "seen", "channels": [2], "hidden": [8], "size": 4},
                {"name": "history", "reads": ["seen"], "writes": "past", "length": 3, "size": 4, "hidden": [8]},
                {"name": "estimator", "reads": ["past"], "writes": "place", "target": ["light"], "replace": 0.5},
            ),
            "observations": Observations(("light", "past"), ("light", "seen")),
        },
    ),
}


def towards_the_light(obs):
    return 0.3 * obs["light"]


def make(mode="eager", terms=(), parts="plain"):
    env_id, agent = PARTS[parts]
    env = make_env(env_id, num_envs=4, seed=0)
    config = ActorCriticConfig(actor_hidden=(16,), critic_hidden=(16,), **agent)
    policy = ActorCritic(env.spec, config, stream(0, "parameters"))
    execution = Execution(ExecutionConfig(mode))
    cast = []
    if "teacher" in parts:
        cast = [Teacher(env.spec, policy, 4, (FunctionPolicy(towards_the_light, env.spec),), 0.5)]
        terms = [*terms, Imitation(policy)]
    algorithm = PPO(policy, CONFIG, num_envs=4, terms=terms, execution=execution)
    return OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=10**9), cast=cast)


@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling for the CPU needs g++")
@pytest.mark.parametrize("parts", ["plain", pytest.param(EVERYTHING, marks=pytest.mark.long)])
def test_the_compiled_update_equals_the_eager_one_and_compiles_once(parts, caplog):
    eager, compiled = make("eager", parts=parts), make("compiled", parts=parts)
    eager.learn(3 * 32)
    counters = torch._dynamo.utils.counters["stats"]
    graphs = []
    for iteration in range(4):  # the compiled twin learns from the eager runner's rollout
        now = Now(iteration, 32 * iteration, 0.1 * iteration)
        one, other = eager.algorithm, compiled.algorithm
        other.load_state_dict(one.state_dict())
        theirs = other.update(eager.rollout, now)
        ours = one.update(eager.rollout, now)
        graphs.append(counters["unique_graphs"])
        for name, value in ours.items():
            assert torch.allclose(theirs[name], value, rtol=1e-5, atol=1e-5), name
        assert torch.allclose(other.engine.parameters.value, one.engine.parameters.value, rtol=1e-5, atol=1e-6)
    assert not [record for record in caplog.records if "cannot be compiled" in record.message]
    assert graphs[0] >= 1
    assert len(set(graphs[1:])) == 1


def host_reads(runner):
    runner.algorithm.engine.direct = None  # the general way, which also runs on a GPU
    with HostReads() as reads:
        runner.algorithm._step_all()
    return reads.count


@pytest.mark.parametrize("parts", PARTS)
def test_no_host_synchronisation_in_the_minibatch_loop(parts):
    runner = make(parts=parts)
    runner.learn(32)
    assert host_reads(runner) == 0


class Impatient:
    """A broken term: it looks at its own value."""

    name = "impatient"
    coef = 1.0
    reads = ()

    def __call__(self, batch, now):
        loss = batch["new/value"].square().mean()
        return loss * min(loss.item(), 1.0), {}


def test_a_term_that_looks_at_its_value_is_caught():
    runner = make(terms=[Impatient()])
    runner.learn(32)
    assert host_reads(runner) == 2  # once per minibatch
