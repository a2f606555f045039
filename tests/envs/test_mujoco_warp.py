"""Tasks on Warp's own CPU device: the numbers of MuJoCo's batch, no look at a value, faults that stay alone."""

from __future__ import annotations

import math
from importlib import metadata
from typing import Any

import pytest
import torch
from host_reads import NoHostReads

from gaitway import make_env
from gaitway.envs import warp_capacity, warp_worlds
from gaitway.envs.check import check_env
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.mujoco_warp import WarpEnv
from gaitway.envs.tasks import NATIVE_TASKS
from gaitway.envs.vec_env import VecEnv
from gaitway.envs.warp_worlds import Capacity, WarpError

needs_warp = pytest.mark.skipif(
    warp_worlds.missing() is not None, reason=f"needs the extra gpu: {warp_worlds.missing()}"
)
ROOM = Capacity(80, 48)
STILL = {"pushes": {"kick_seconds": None}}


def on_warp(id: str, num_envs: int = 4, seed: int = 3, purpose: str = "train", **options: Any) -> WarpEnv:
    return WarpEnv(NATIVE_TASKS[id](**options), num_envs, seed, device="cpu", purpose=purpose, id=id, capacity=ROOM)


def actions(env: VecEnv, steps: int, spread: float = 0.3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return spread * torch.randn(steps, env.num_envs, *env.spec.action.shape, generator=generator)


# bad input, with or without Warp


def test_what_is_missing_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(WarpError, match=r"mujoco-warp is not installed; .*gaitway\[gpu\]"):
        make_env("pup12/velocity", num_envs=2, simulator="warp")


@pytest.mark.parametrize(("mujoco", "warp"), [("3.9.1", "1.19.0"), ("5.0.0", "1.19.0"), ("4.0.0", "1.18.2")])
def test_versions_that_do_not_fit_are_named(mujoco: str, warp: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"mujoco-warp": mujoco, "warp-lang": warp}
    monkeypatch.setattr(metadata, "version", found.__getitem__)
    with pytest.raises(WarpError, match=r"what fits together is mujoco-warp 4 and warp-lang >= 1\.19"):
        make_env("pup12/velocity", num_envs=2, simulator="warp")


def test_simulators_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warp_worlds, "missing", lambda: None)
    monkeypatch.setattr("gaitway.envs.mujoco_warp.missing", lambda: None)
    with pytest.raises(ValueError, match="simulator is 'isaac'; use one of"):
        make_env("walker/run", simulator="isaac")
    with pytest.raises(ValueError, match="brings its own; leave simulator out"):
        make_env("toy/cue", simulator="warp")
    with pytest.raises(ValueError, match="written for arrays of NumPy, which a GPU has none of"):
        make_env("HalfCheetah-v5", simulator="warp")
    with pytest.raises(ValueError, match="Warp computes in float32"):
        make_env("walker/run", simulator="warp", dtype="float64")
    with pytest.raises(ValueError, match=r"capacity is \[0, 1\]; write \[constraints, contacts\]"):
        make_env("walker/run", simulator="warp", capacity=[0, 1])
    make_env("walker/run", capacity=[160, 96]).close()  # a run of Warp that MuJoCo plays
    with pytest.raises(ValueError, match="shows forward_depth"):
        make_env("pup12/field", simulator="warp")


# on Warp


@pytest.fixture(scope="module")
def plain() -> Any:
    with on_warp("pup12/velocity", **STILL) as env:
        yield env


@needs_warp
@pytest.mark.slow
def test_a_step_looks_at_no_value(plain: WarpEnv) -> None:
    given = actions(plain, 2)
    plain.step(given[0])
    with NoHostReads():
        plain.step(given[1])


@needs_warp
@pytest.mark.slow
@pytest.mark.parametrize(
    ("id", "options", "limit"),
    [
        ("pup12/velocity", {"randomise": {"enabled": False}, **STILL}, 1e-4),
        ("pup12/velocity", {"randomise": {"delay": 3}, **STILL}, 1e-4),
        ("walker/run", {}, 1e-4),
        ("humanoid/run", {}, 1e-3),
        ("pup12/field_leap", {}, 1e-4),
        ("pup12/velocity_rough", {}, 1e-4),
    ],
)
def test_both_simulators_agree(id: str, options: dict[str, Any], limit: float) -> None:
    """Observations and rewards of the first steps, before a contact that one has and the other not yet sets them
    apart."""
    with on_warp(id, **options) as there, make_env(id, num_envs=4, seed=3, **options) as here:
        assert there.spec.metrics == here.spec.metrics
        assert there.spec.groups == here.spec.groups
        start = here.scenario()
        if not id.endswith("/run"):  # those draw others
            for name, value in there.scenario().items():
                assert torch.allclose(value, start[name], atol=1e-6, rtol=1e-6), name
        there.load_scenario({name: start[name] for name in start.keys() & there.scenario().keys()})
        here.load_scenario(start)
        for action in actions(here, 8):
            found, expected = there.step(action), here.step(action)
            for name, value in expected.final_obs.items():
                assert torch.allclose(found.final_obs[name], value, atol=limit, rtol=limit), name
            assert torch.allclose(found.reward, expected.reward, atol=limit)
            assert torch.equal(found.terminated, expected.terminated)
            for name, value in expected.metrics.items():
                assert torch.allclose(found.metrics[name], value, atol=10 * limit, rtol=10 * limit), name


@needs_warp
@pytest.mark.slow
def test_faults_end_their_own_episode_and_leave_nothing_behind(plain: WarpEnv) -> None:
    plain.reset(5)
    before = plain._steps[plain._turn].step.obs["policy"].clone()
    plain._worlds.qvel[1, 3] = math.nan
    plain._worlds.overflow[2] = 1
    faults = plain.counts()
    step = plain.step(actions(plain, 1)[0])
    assert step.metrics["physics_error"].tolist() == [0.0, 1.0, 1.0, 0.0]
    assert step.terminated.tolist() == [False, True, True, False]
    assert torch.equal(step.final_obs["policy"][1:3], before[1:3])
    assert not torch.equal(step.obs["policy"][1], before[1])
    assert plain.counts() == {**faults, "crowded": faults["crowded"] + 1, "diverged": faults["diverged"] + 1}
    for action in actions(plain, 3):
        step = plain.step(action)
        assert all(torch.isfinite(value).all() for value in (*step.obs.values(), step.reward, *step.metrics.values()))
    assert step.metrics["physics_error"].sum() == 0
    assert all(torch.isfinite(value).all() for value in plain._tensors.memory["sums"])


@needs_warp
@pytest.mark.slow
def test_an_action_that_is_not_finite_is_an_error_at_the_next_look(plain: WarpEnv) -> None:
    action = actions(plain, 1)[0]
    action[2, 5] = math.nan
    step = plain.step(action)
    assert torch.isfinite(step.obs["policy"]).all()
    with pytest.raises(ValueError, match="the action of instance 2 was not finite in 'FR_calf_joint'"):
        plain.check_workers()
    plain.check_workers()
    with pytest.raises(ValueError, match="has shape"):
        plain.step(action[:2])


@needs_warp
@pytest.mark.slow
def test_a_restored_state_goes_on_bit_for_bit_on_the_cpu(plain: WarpEnv) -> None:
    given = actions(plain, 40)
    plain.reset(7)
    plain.set_elapsed(torch.tensor([0, 998, 999, 3]))
    for action in given[:34]:  # past a derivation of constants, with episodes that began since the last one
        plain.step(action)
    state = plain.state_dict()
    runs = []
    for _ in range(2):
        plain.load_state_dict(state)
        again = plain.state_dict()
        assert all(torch.equal(value, again["physics"][name]) for name, value in state["physics"].items())
        steps = [plain.step(action) for action in given[34:]]
        runs.append((steps[-1].obs["policy"].clone(), steps[-1].reward.clone(), plain.state_dict()))
    assert torch.equal(runs[0][0], runs[1][0])
    assert torch.equal(runs[0][1], runs[1][1])
    for kind in ("physics", "memory", "layout", "constants"):
        for name, value in runs[0][2][kind].items():
            assert torch.equal(value, runs[1][2][kind][name]), (kind, name)


@needs_warp
@pytest.mark.slow
def test_episodes_of_an_instance_depend_on_nobody_else() -> None:
    with on_warp("pup12/velocity", 4) as many, on_warp("pup12/velocity", 2) as few:
        for number, action in enumerate(actions(many, 6)):
            if number == 2:
                many.set_elapsed(torch.tensor([999, 5, 6, 999]))
                few.set_elapsed(torch.tensor([999, 5]))
            one, other = many.step(action), few.step(action[:2])
            assert torch.equal(one.obs["policy"][:2], other.obs["policy"])
            assert torch.equal(one.truncated[:2], other.truncated)


@needs_warp
@pytest.mark.slow
def test_what_warp_lacks_is_named() -> None:
    import mujoco

    task = NATIVE_TASKS["walker/run"]()
    task.model.opt.solver = int(mujoco.mjtSolver.mjSOL_PGS)
    with pytest.raises(WarpError, match=r"mjSOL_PGS; change the model or use env\.simulator=mujoco"):
        WarpEnv(task, 2, device="cpu", capacity=ROOM)


@needs_warp
@pytest.mark.slow
def test_the_comparison_finds_a_delay_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from gaitway.envs.tasks.legged.on_tensors import LeggedOnTensors

    monkeypatch.setattr(LeggedOnTensors, "_delayed", lambda self, target: [target] * self.frame_skip)
    options = {"randomise": {"delay": 3}, **STILL}
    with on_warp("pup12/velocity", **options) as there, make_env("pup12/velocity", 4, 3, **options) as here:
        for action in actions(here, 3):
            found, expected = there.step(action), here.step(action)
    assert (found.final_obs["policy"] - expected.final_obs["policy"]).abs().max() > 1e-2


@needs_warp
@pytest.mark.slow
def test_pictures_show_the_state_of_an_instance(plain: WarpEnv) -> None:
    from gaitway.envs.pictures.scene import Scene

    plain.step(actions(plain, 1)[0])
    scene = Scene(plain.task)
    scene.update(2)
    assert torch.allclose(torch.from_numpy(scene.data.qpos).float(), plain._worlds.qpos[2])


# room


def test_too_many_instances_are_refused_with_the_number_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    model = NATIVE_TASKS["walker/run"]().model
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**30, 2**31))
    warp_capacity.check_memory(model, ROOM, 4096, torch.device("cuda"), "walker/run")
    with pytest.raises(WarpError, match=r"100000 instances .* about \d+ fit: use env.num_envs=16384"):
        warp_capacity.check_memory(model, ROOM, 100_000, torch.device("cuda"), "walker/run")


def test_the_probe_leaves_the_task_to_its_environment() -> None:
    task = NATIVE_TASKS["walker/run"]()
    found = warp_capacity.probed_capacity(task)
    assert found.constraints >= 64
    assert found.contacts >= 32
    with MujocoBatchEnv(task, 2) as env:
        env.step(torch.zeros(2, 6))


@needs_warp
@pytest.mark.slow
def test_the_contract_is_kept() -> None:
    report = check_env(lambda num_envs, seed: make_env("walker/run", num_envs, seed, simulator="warp"), steps=12)
    assert report.ok, str(report)


@needs_warp
@pytest.mark.slow
def test_a_state_of_one_simulator_is_refused_by_the_other(plain: WarpEnv) -> None:
    with make_env("pup12/velocity", 4, **STILL) as here:
        with pytest.raises(ValueError, match="is of Warp; go on with it by"):
            here.load_state_dict(plain.state_dict())
        with pytest.raises(ValueError, match=r"the state lacks \['since', 'words', 'constants'\]"):
            plain.load_state_dict(here.state_dict())


@needs_warp
@pytest.mark.slow
@pytest.mark.parametrize("id", ["pup12/velocity", "pup4/velocity", "pup12/recovery"])
def test_first_observations_without_a_look_are_those_with_one(id: str) -> None:
    with on_warp(id) as env:
        env.step(actions(env, 1)[0])
        env.set_elapsed(torch.full((4,), env.spec.max_episode_steps - 1))
        first = {name: value.clone() for name, value in env.step(actions(env, 1)[0]).obs.items()}
        sensors = env._worlds.field("sensordata").clone()
        env._worlds.look()
        assert torch.allclose(env._worlds.field("sensordata"), sensors, atol=2e-6)
        for name, value in env._tensors.observe(is_new=True).items():
            assert torch.allclose(value, first[name], atol=1e-5), name
        given = env.scenario()["qvel"] + 1.0  # somebody else's start, in which joints turn
        env.load_scenario({"qvel": given})
        sensors = env._worlds.field("sensordata").clone()
        env._worlds.look()
        assert torch.equal(env._worlds.field("sensordata"), sensors)
