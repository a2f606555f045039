"""Warp on a GPU: recorded steps are unrecorded ones, nobody waits for the device, a whole iteration runs on it."""

import pytest
import torch

from gaitway import make_env
from gaitway.core.execution import WARM_UP_CALLS
from gaitway.envs import warp_worlds
from gaitway.envs.mujoco_warp import DERIVE_EVERY, WarpEnv
from gaitway.envs.tasks import NATIVE_TASKS
from gaitway.envs.warp_worlds import CONSTANTS

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
    pytest.mark.skipif(warp_worlds.missing() is not None, reason=f"needs the extra gpu: {warp_worlds.missing()}"),
]


def made(mode, num_envs=32, id="pup12/velocity", **options):
    return WarpEnv(NATIVE_TASKS[id](**options), num_envs, 3, device="cuda", id=id, mode=mode)


def actions(env, steps):
    generator = torch.Generator().manual_seed(0)
    return (0.3 * torch.randn(steps, env.num_envs, *env.spec.action.shape, generator=generator)).cuda()


@pytest.mark.parametrize("mode", ["captured", "compiled_captured"])
@pytest.mark.parametrize("id", ["pup12/velocity", "walker/run"])
def test_recorded_steps_are_those_that_run_as_they_are_written(mode, id):
    """From the same states: after a contact the order of sums sets any two runs apart."""
    with made("eager", id=id) as plain, made(mode, id=id) as fast:
        for number, action in enumerate(actions(plain, 12)):
            state = plain.state_dict()
            fast.load_state_dict(state)
            one, other = plain.step(action), fast.step(action)
            assert number < 5 or all(program.is_recorded for program in fast._programs)
            for name, value in one.final_obs.items():  # a force near the threshold of a contact may fall on either side
                apart = (value - other.final_obs[name]).abs() > 2e-3 * (1.0 + value.abs())
                assert apart.float().mean() < 2e-3, (number, name)
            assert ((one.reward - other.reward).abs() > 1e-3).float().mean() < 0.1, number
            assert torch.equal(one.truncated, other.truncated)
        assert all(program.refused is None for program in fast._programs)


def test_restarts_in_a_recording_are_those_of_the_cpu():
    with made("captured", 8) as there, make_env("pup12/velocity", 8, 3) as here:
        for number, action in enumerate(actions(there, 10)):
            if number == 8:
                for env in (there, here):
                    env.set_elapsed(torch.full((8,), 999))
            one, other = there.step(action), here.step(action.cpu())
        assert one.truncated.cpu().tolist() == other.truncated.tolist()
    with made("captured", 8) as there, make_env("pup12/velocity", 8, 3) as here:
        for env in (there, here):
            env.reset()
        for name, value in here.scenario().items():
            assert torch.allclose(there.scenario()[name], value, atol=1e-6), name


def test_recorded_steps_follow_what_a_robot_is_told():
    with made("captured", 4, commands={"sampler": "grid"}) as env:
        for command in (None, (0.5, 0.0, 0.0), (0.0, 0.0, 0.4)):
            if command is not None:
                env.call("tell", command)
            for action in actions(env, 8):
                env.step(action)
            assert all(program.is_recorded for program in env._programs)
            env.set_elapsed(torch.full((4,), env.spec.max_episode_steps - 1))
            assert env.step(actions(env, 1)[0]).truncated.all()
            told = env._tensors.memory["command"]
            assert (told == told[0]).all() == (command is not None)
            assert command is None or torch.allclose(told[0].cpu(), torch.tensor(command))


def step_without_waiting(env, given):
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for action in given:
            env.step(action)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_nobody_waits_in_a_step():
    with made("auto", 64) as env:
        given = actions(env, 10)
        for action in given:
            env.step(action)
        step_without_waiting(env, given)
        env.check_workers()


def test_constants_are_recorded_and_nobody_waits_for_them():
    """They follow from masses every `DERIVE_EVERY` steps: `WARM_UP_CALLS` times as written, then as a recording."""
    with made("auto", 64, randomise={"enabled": True}) as env:
        assert env._tensors.derives
        until_recorded = (WARM_UP_CALLS + 1) * DERIVE_EVERY
        for action in actions(env, until_recorded):
            env.step(action)
        assert env._derive.refused is None
        assert env._derive.is_recorded
        given = actions(env, DERIVE_EVERY + 4)
        step_without_waiting(env, given)
        assert until_recorded + len(given) >= 130
        assert env._since == 4, "constants were computed anew in between"
        own = env._simulation().own
        env._derive()
        recorded = {name: own[name].clone() for name in CONSTANTS if name in own}
        env._derive_constants()
        for name, value in recorded.items():
            torch.testing.assert_close(value, own[name], rtol=1e-4, atol=1e-6)
        env.check_workers()


def test_nobody_waits_while_a_rollout_is_collected_and_learnt_from():
    from gaitway import PPO, ActorCritic, OnPolicyRunner, PPOConfig, RunnerConfig

    with made("auto", 64) as env:
        policy = ActorCritic(env.spec).to("cuda")
        algorithm = PPO(policy, PPOConfig(rollout_steps=8, epochs=2, minibatches=2), num_envs=64)
        runner = OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=10**9, finite_checks=False))
        runner.learn(64 * 8 * 4)
        collect, update = runner._collect, algorithm.update
        calls, waits = [], []

        def guarded(function):
            def call(*arguments, **named):
                calls.append(function.__name__)
                torch.cuda.set_sync_debug_mode("error")
                try:
                    return function(*arguments, **named)
                except RuntimeError as error:
                    waits.append(str(error).splitlines()[0])
                    raise
                finally:
                    torch.cuda.set_sync_debug_mode("default")

            return call

        runner._collect, algorithm.update = guarded(collect), guarded(update)
        runner.learn(64 * 8 * 2)
        assert waits == []
        assert calls == ["_collect", "update"] * 2


def test_a_restored_state_is_the_same_bit_for_bit():
    with made("auto", 16) as env:
        for action in actions(env, 8):
            env.step(action)
        state = env.state_dict()
        for action in actions(env, 3):
            env.step(action)
        env.load_state_dict(state)
        again = env.state_dict()
        for kind in ("physics", "layout", "memory", "constants", "obs"):
            for name, value in state[kind].items():
                assert torch.equal(value, again[kind][name]), (kind, name)
        assert not env.spec.exact_state
        assert env.spec.keeps_episodes


def test_too_many_instances_are_refused_with_the_number_that_fits():
    with pytest.raises(warp_worlds.WarpError, match=r"about \d+ fit, .*: use env.num_envs="):
        make_env("pup12/velocity", 500_000_000, device="cuda", simulator="warp")


def test_physics_on_the_cpu_beside_a_gpu_says_what_would_be_faster(caplog):
    with caplog.at_level("INFO", "gaitway"), make_env("pup12/velocity", 2, device="cuda"):
        assert "env.simulator=warp" in caplog.text
