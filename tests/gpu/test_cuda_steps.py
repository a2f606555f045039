"""Environments on a GPU hand out the numbers of those on the CPU, and nobody waits for the device to learn them."""

import pytest
import torch

from gaitway import make_env
from gaitway.core.workspace import Variable, Workspace
from gaitway.data.step_replay import StepReplay
from gaitway.envs.env_agent import EnvAgent

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

ENVS = [("HalfCheetah-v5", {}), ("walker/skills", {}), ("toy/pendulum", {}), ("point/skills", {})]


def tensors(step):
    named = {"reward": step.reward, "terminated": step.terminated, "truncated": step.truncated}
    for kind in ("obs", "final_obs", "metrics"):
        named |= {f"{kind}/{name}": value for name, value in getattr(step, kind).items()}
    return named


@pytest.mark.parametrize(("env_id", "options"), ENVS)
def test_steps_equal_those_on_the_cpu(env_id, options):
    generator = torch.Generator().manual_seed(0)
    with (
        make_env(env_id, num_envs=5, seed=3, device="cuda", **options) as there,
        make_env(env_id, num_envs=5, seed=3, **options) as here,
    ):
        before = None
        for _ in range(250):
            action = torch.rand(5, *here.spec.action.shape, generator=generator) * 2 - 1
            found, expected = there.step(action), here.step(action)
            if before is not None:  # what the step before returned still stands
                assert all(torch.equal(value.cpu(), before[0][name]) for name, value in before[1].items())
            for name, value in tensors(expected).items():
                assert tensors(found)[name].is_cuda
                assert torch.equal(tensors(found)[name].cpu(), value), name
            assert found.known is not None
            assert found.known[0] is found.truncated
            assert torch.equal(found.known[1], expected.truncated)
            before = ({name: value.clone() for name, value in tensors(expected).items()}, tensors(found))


def test_flags_that_the_cpu_knows_fill_the_replay_as_those_of_the_device():
    steps = 230  # toy/pendulum ends after 200
    with make_env("toy/pendulum", num_envs=4, seed=0, device="cuda") as env:
        world = EnvAgent(env)
        variables = world.variables(steps) | {"action": Variable(steps, 4, env.spec.action.shape, torch.float32)}
        world.restore(env.reset())
        ws = Workspace.dense(variables, "cuda")
        groups = {group.name: (group.shape, torch.float32) for group in env.spec.groups}
        arguments = {"groups": groups, "action": (env.spec.action.shape, torch.float32), "device": "cuda"}
        replays = [StepReplay(2000, 4, **arguments, seed=0, max_episode_steps=200) for _ in range(2)]
        for t in range(steps):
            world.observe.step(ws, t)
            ws.put("action", t, torch.rand(4, *env.spec.action.shape, device="cuda") * 2 - 1)
            world.advance.step(ws, t)
            known = world.truncated(t, t + 1)
            assert known is not None
            assert torch.equal(known[0], ws.at("env/truncated", t).cpu())
            replays[0].add(ws, t, t + 1, known)
            replays[1].add(ws, t, t + 1)
        assert bool(ws["env/truncated"].any())
        one, other = (replay.gather(replay.slots(replay.first_row, replay.stop_row)) for replay in replays)
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_step_into_the_replay_does_not_wait_for_the_device():
    with make_env("toy/pendulum", num_envs=4, seed=0, device="cuda") as env:
        world = EnvAgent(env)
        variables = world.variables(8) | {"action": Variable(8, 4, env.spec.action.shape, torch.float32)}
        world.restore(env.reset())
        ws = Workspace.dense(variables, "cuda")
        groups = {group.name: (group.shape, torch.float32) for group in env.spec.groups}
        replay = StepReplay(400, 4, groups, (env.spec.action.shape, torch.float32), device="cuda", seed=0)
        action = torch.zeros(4, *env.spec.action.shape)
        for t in range(8):
            if t == 4:  # all memory has been made
                torch.cuda.set_sync_debug_mode("error")
            world.observe.step(ws, t)
            ws.put("action", t, torch.zeros(4, *env.spec.action.shape, device="cuda"))
            result = env.step(action)
            world.note(t, result)
            world.restore(result.obs)
            for name in ("reward", "terminated", "truncated"):
                ws.put(f"env/{name}", t, getattr(result, name))
            replay.add(ws, t, t + 1, world.truncated(t, t + 1))
        torch.cuda.set_sync_debug_mode("default")
