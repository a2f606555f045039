"""Tasks on Warp's own CPU device: the numbers of MuJoCo's batch, no look at a value, faults that stay alone."""

from __future__ import annotations

import dataclasses
import gc
import logging
import math
import re
import weakref
from importlib import metadata
from typing import Any

import pytest
import torch
from host_reads import NoHostReads

from gaitway import make_env
from gaitway.envs import warp_capacity, warp_worlds
from gaitway.envs.check import check_env
from gaitway.envs.legged.presets import PRESETS
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.mujoco_warp import DERIVE_EVERY, WarpEnv
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


def test_nobody_installs_warp_for_a_task_that_it_cannot_play(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gaitway.envs.mujoco_warp.missing", lambda: "mujoco-warp is not installed")
    with pytest.raises(ValueError, match="HalfCheetah-v5 is written for arrays of NumPy"):
        make_env("HalfCheetah-v5", simulator="warp")
    with pytest.raises(ValueError, match="pup12/field shows forward_depth"):
        make_env("pup12/field", simulator="warp")


def installed(monkeypatch: pytest.MonkeyPatch, mujoco_warp: str, warp: str, mujoco: str) -> None:
    found = {"mujoco-warp": mujoco_warp, "warp-lang": warp, "mujoco": mujoco}
    monkeypatch.setattr(metadata, "version", found.__getitem__)


@pytest.mark.parametrize(
    ("versions", "sentence"),
    [
        (("3.9.1", "1.19.0", "4.0.0"), "mujoco-warp is 3.9.1, and what fits is mujoco-warp>=4.0,<5; "),
        (("5.0.0", "1.19.0", "4.0.0"), "mujoco-warp is 5.0.0, and what fits is mujoco-warp>=4.0,<5; "),
        (("4.0.0", "1.18.2", "4.0.0"), "warp-lang is 1.18.2, and what fits is warp-lang>=1.19,<2; "),
        (("4.0.0", "2.0.0", "4.0.0"), "warp-lang is 2.0.0, and what fits is warp-lang>=1.19,<2; "),
        (("4.0.0", "1.19.0", "3.16.4"), "mujoco is 3.16.4, and what fits is mujoco>=3.17; "),
    ],
)
def test_versions_that_do_not_fit_are_named(
    versions: tuple[str, str, str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, *versions)
    with pytest.raises(WarpError, match=re.escape(f"env.simulator is warp, but {sentence}{warp_worlds.INSTALL}")):
        make_env("pup12/velocity", num_envs=2, simulator="warp")


def test_versions_that_were_not_tried_together_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    installed(monkeypatch, "4.0.0", "1.19.0", "4.0.0")
    assert warp_worlds.missing() is warp_worlds.untried(gpu) is warp_worlds.untried(cpu) is None
    installed(monkeypatch, "4.0.0", "1.19.0", "3.17.0")
    assert warp_worlds.untried(cpu) is None
    sentence = warp_worlds.untried(gpu)
    assert sentence is not None
    assert "mujoco 3.17.0 were not tried together on cuda" in sentence
    assert sentence.endswith("install mujoco-warp 4.0.0, warp-lang 1.19.0, mujoco 4.0.0")
    installed(monkeypatch, "4.1.0", "1.20.1", "4.2.0")
    assert warp_worlds.missing() is None
    assert "mujoco-warp 4.1.0, warp-lang 1.20.1, mujoco 4.2.0" in str(warp_worlds.untried(cpu))


def test_simulators_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warp_worlds, "missing", lambda: None)
    monkeypatch.setattr("gaitway.envs.mujoco_warp.missing", lambda: None)
    with pytest.raises(ValueError, match="simulator is 'isaac'; use one of"):
        make_env("walker/run", simulator="isaac")
    with pytest.raises(ValueError, match="brings its own; leave simulator out"):
        make_env("toy/cue", simulator="warp")
    with pytest.raises(ValueError, match="no environment 'pup12/velocty'; did you mean pup12/velocity"):
        make_env("pup12/velocty", simulator="warp")
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


EVENTFUL = {
    "pushes": {"kick_seconds": [0.1, 0.2], "push_seconds": [0.1, 0.2]},
    "latency": {"most": 3, "seconds": 0.1},
    "randomise": {"delay": 5},
    "commands": {"curriculum": True, "heading": True, "seconds": [0.1, 0.2]},
}
"""All that may happen to a legged robot."""
PLAYED = [
    *((id, "train", {}) for id in PRESETS if id not in ("legged:velocity", "pup12/field")),
    *((id, "train", {}) for id in ("walker/run", "walker/walk", "walker/stand", "humanoid/run", "humanoid/stand")),
    ("legged:velocity", "train", {"robot": "pup12"}),
    *(("pup12/velocity", purpose, EVENTFUL) for purpose in ("train", "evaluation")),
]


@needs_warp
@pytest.mark.slow
@pytest.mark.parametrize(("id", "purpose", "options"), PLAYED)
def test_a_step_looks_at_no_value(id: str, purpose: str, options: dict[str, Any]) -> None:
    """Of all tasks that Warp plays; the constants that follow from masses are computed in between."""
    with on_warp(id, 2, purpose=purpose, **options) as env:
        given = actions(env, 2)
        env.step(given[0])
        env.set_elapsed(torch.tensor([env.spec.max_episode_steps - 1, 0]))
        env._since = DERIVE_EVERY
        with NoHostReads():
            step = env.step(given[1])
        assert step.truncated.tolist() == [True, False]
        assert env._since == 0 or not env._tensors.derives


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
    set_bit(plain, "NEFC", 2)
    faults = plain.counts()
    step = plain.step(actions(plain, 1)[0])
    assert step.metrics["physics_error"].tolist() == [0.0, 1.0, 1.0, 0.0]
    assert step.terminated.tolist() == [False, True, True, False]
    assert torch.equal(step.final_obs["policy"][1:3], before[1:3])
    assert not torch.equal(step.obs["policy"][1], before[1])
    assert plain.counts() == {**faults, **{name: faults[name] + 1 for name in ("crowded", "diverged", "NEFC")}}
    for action in actions(plain, 3):
        step = plain.step(action)
        assert all(torch.isfinite(value).all() for value in (*step.obs.values(), step.reward, *step.metrics.values()))
    assert step.metrics["physics_error"].sum() == 0
    assert all(torch.isfinite(value).all() for value in plain._tensors.memory["sums"])


@needs_warp
@pytest.mark.slow
@pytest.mark.parametrize("value", [1e10, -1e20, math.inf, math.nan])
@pytest.mark.parametrize("name", ["qpos", "qvel"])
def test_a_state_without_bounds_is_not_sound(plain: WarpEnv, name: str, value: float) -> None:
    plain.reset(5)
    plain._worlds.state[name][2, 1] = value
    plain._worlds.state[name][1, 1] = 9e9
    assert plain._worlds.faults()[0].tolist() == [False, False, True, False]
    plain.reset(5)


@needs_warp
@pytest.mark.slow
def test_a_world_that_is_torn_apart_ends_as_on_mujoco(plain: WarpEnv) -> None:
    """Its velocities are still far below the limit, its accelerations are not: those of the humanoid without contacts,
    where the solver leaves others as they were."""
    plain.reset(5)
    plain._worlds.field("qacc")[2, 1] = -2e10
    assert plain._worlds.faults()[0].tolist() == [False, False, True, False]
    for id in ("walker/velocity", "humanoid/run"):
        with on_warp(id) as env:
            start = env.scenario()
            start["qvel"][1] = 1e6
            env.load_scenario(start)
            step = env.step(torch.zeros(4, *env.spec.action.shape))
            assert step.metrics["physics_error"].tolist() == [0.0, 1.0, 0.0, 0.0]
            assert float(step.reward[1]) == pytest.approx(env.task.fault_reward)


@needs_warp
@pytest.mark.slow
def test_a_fault_costs_what_a_termination_does_by_now(plain: WarpEnv) -> None:
    plain.reset(5)
    state = plain.state_dict()
    plain.call("set_reward_weight", "termination", -25.0)
    kept = plain.state_dict()
    paid = []
    for loaded in (kept, state):
        plain.load_state_dict(loaded)
        set_bit(plain, "NEFC", 2)
        paid.append(float(plain.step(actions(plain, 1)[0]).reward[2]))
    assert paid == pytest.approx([-25.0 * 0.02, plain.task.fault_reward])


def set_bit(env: WarpEnv, name: str, *worlds: int) -> None:
    import mujoco_warp

    env._worlds.overflow[list(worlds)] |= int(mujoco_warp.OverflowType[name])


@needs_warp
@pytest.mark.slow
@pytest.mark.parametrize("bit", warp_worlds.OWN_OVERFLOW)
def test_a_world_without_room_of_its_own_ends_alone(plain: WarpEnv, bit: str, caplog: pytest.LogCaptureFixture) -> None:
    plain.reset(5)
    plain.check_workers()
    plain.counted()
    set_bit(plain, bit, 1, 3)
    step = plain.step(actions(plain, 1)[0])
    assert step.terminated.tolist() == [False, True, False, True]
    told = {name: values.tolist() for name, values in step.metrics.items()}
    assert told["physics_error"] == told["fell"] == told["falls_episode"] == [0.0, 1.0, 0.0, 1.0]  # a fault is a fall
    assert told["seconds_episode"] == pytest.approx([0.02] * 4)
    assert [told["velocity_error"][world] for world in (1, 3)] == [0.0, 0.0]
    assert plain.counted() == {"warp/diverged": 0.0, "warp/crowded": 2.0, "warp/full_pool": 0.0}
    with caplog.at_level(logging.WARNING, "gaitway"):
        plain.check_workers()
    assert f"2 worlds of pup12/velocity ran out of room and began anew ({bit}; " in caplog.text
    assert "give more by env.options.capacity=[160, 96]" in caplog.text


@needs_warp
@pytest.mark.slow
@pytest.mark.parametrize("bit", warp_worlds.POOL_OVERFLOW)
def test_a_full_pool_ends_nobody_and_is_counted_once_a_step(
    plain: WarpEnv, bit: str, caplog: pytest.LogCaptureFixture
) -> None:
    plain.reset(5)
    plain.check_workers()
    plain.counted()
    for action in actions(plain, 2):
        set_bit(plain, bit, 0, 1, 2, 3)
        step = plain.step(action)
        assert not step.terminated.any()
        assert step.metrics["physics_error"].sum() == 0
    assert plain.counted() == {"warp/diverged": 0.0, "warp/crowded": 0.0, "warp/full_pool": 2.0}
    assert plain.counted()["warp/full_pool"] == 0.0
    with caplog.at_level(logging.WARNING, "gaitway"):
        plain.check_workers()
        plain.check_workers()
    assert caplog.text.count("in 2 steps of pup12/velocity the pool of contacts was full") == 1
    assert f"left out ({bit}; " in caplog.text
    assert "give more by env.options.capacity=[160, 96]" in caplog.text


@needs_warp
@pytest.mark.slow
def test_limits_that_mujoco_has_too_end_nobody(plain: WarpEnv) -> None:
    import mujoco_warp

    told = (*warp_worlds.OWN_OVERFLOW, *warp_worlds.POOL_OVERFLOW, "NONE", "ALL")
    others = [name for name in mujoco_warp.OverflowType.__members__ if name not in told]
    assert {"ITERATIONS", "CONTACT_MATCH"} <= set(others)
    plain.reset(5)
    before = plain.counts()
    for name in others:
        set_bit(plain, name, 0, 1, 2, 3)
    assert not plain.step(actions(plain, 1)[0]).terminated.any()
    assert plain.counts() == before


@needs_warp
@pytest.mark.slow
def test_a_pool_that_is_full_is_found_by_warp_itself() -> None:
    with WarpEnv(NATIVE_TASKS["pup12/velocity"](**STILL), 4, 3, device="cpu", capacity=ROOM) as env:
        env._worlds._data.naconmax = 2  # the arrays keep their length: fewer contacts are allowed
        for action in actions(env, 30):
            step = env.step(action)
        assert env.counts()["full_pool"] == env.counts()["BROADPHASE"] > 0
        assert env.counts()["crowded"] == 0
        assert step.metrics["physics_error"].sum() == 0


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
def test_nobody_is_told_the_return_of_actions_that_are_not_finite() -> None:
    from gaitway.runners.baselines import ZeroPolicy
    from gaitway.runners.evaluate import run_episodes

    class Broken(ZeroPolicy):
        def __call__(self, obs: Any) -> torch.Tensor:
            return super().__call__(obs) * math.nan

    with on_warp("pup12/velocity", 2, purpose="evaluation", episode_seconds=0.1) as env:
        with pytest.raises(ValueError, match="the action of instance 0 was not finite"):
            run_episodes(env, Broken(env.spec.action), 2)
        assert run_episodes(env, ZeroPolicy(env.spec.action), 2)["length"].tolist() == [5.0, 5.0]


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
def test_another_environment_goes_on_bit_for_bit_from_a_stored_state(plain: WarpEnv) -> None:
    """As another process would, whose models and constants were those of another seed."""
    given = actions(plain, 40)
    plain.reset(7)
    for action in given[:34]:
        plain.step(action)
    state = plain.state_dict()
    with on_warp("pup12/velocity", seed=11, **STILL) as other:
        other.load_state_dict(state)
        for action in given[34:]:
            one, same = plain.step(action), other.step(action)
            assert torch.equal(one.obs["policy"], same.obs["policy"])
            assert torch.equal(one.reward, same.reward)
        for name, value in plain.state_dict()["physics"].items():
            assert torch.equal(value, other.state_dict()["physics"][name]), name


@needs_warp
@pytest.mark.slow
def test_what_derive_writes_is_stored(plain: WarpEnv) -> None:
    """A value that worlds share would be that of the first world, and unknown to whoever goes on from a state."""

    def arrays(owner: Any) -> dict[str, Any]:
        found = {}
        for field in dataclasses.fields(owner):
            value = getattr(owner, field.name, None)
            if dataclasses.is_dataclass(value):
                found |= {f"{field.name}.{name}": array for name, array in arrays(value).items()}
            elif hasattr(value, "numpy"):
                found[field.name] = value.numpy().copy()
        return found

    plain.reset(5)
    model = plain._worlds._model
    plain._worlds.own["body_mass"].mul_(1.3)
    before = arrays(model)
    plain._worlds.derive()
    after = arrays(model)
    changed = {name for name in before if (before[name] != after[name]).any()}
    assert changed == set(plain.state_dict()["constants"]) == set(warp_worlds.constants_of(plain.task.model))
    plain.reset(5)


@needs_warp
@pytest.mark.slow
@pytest.mark.parametrize("id", ["pup12/velocity", "pup12/velocity_rough", "walker/run"])
def test_sensors_of_the_last_substep_are_enough(id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trajectory and observations of all sensors in all substeps and room for 64 matches, bit for bit."""
    with on_warp(id) as fast, on_warp(id) as whole:
        step = whole._worlds.step
        monkeypatch.setattr(whole._worlds, "step", lambda senses: step(senses=True))
        whole._worlds._model.opt.contact_sensor_maxmatch = 64
        touched = 0.0
        for action in actions(fast, 25):
            one, other = fast.step(action), whole.step(action)
            for name, value in other.obs.items():
                assert torch.equal(one.obs[name], value), name
            assert torch.equal(one.reward, other.reward)
            for name, value in whole._worlds.state.items():
                assert torch.equal(fast._worlds.state[name], value), name
            sensors = whole._worlds.field("sensordata")
            assert torch.equal(fast._worlds.field("sensordata"), sensors)
            touched += float(sensors.abs().sum())
        assert id == "walker/run" or touched > 0.0
        assert fast._worlds.overflow.sum() == 0


@needs_warp
@pytest.mark.slow
def test_a_closed_environment_keeps_no_worlds() -> None:
    env = on_warp("pup12/velocity", 2)
    env.step(actions(env, 1)[0])
    worlds, task = weakref.ref(env._worlds), weakref.ref(env._tensors)
    gc.disable()
    try:
        env.close()
        assert worlds() is None
        assert task() is None
    finally:
        gc.enable()
    env.close()
    for ask in (env.reset, env.state_dict, env.scenario, lambda: env.step(torch.zeros(2, 12))):
        with pytest.raises(RuntimeError, match="pup12/velocity was closed; make a new environment"):
            ask()


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
@pytest.mark.parametrize(
    ("id", "options", "name", "value", "sentence"),
    [
        ("pup12/velocity", {}, "payload", -100.0, "has -100 kg"),
        ("pup12/velocity", {"randomise": {"delay": 2}}, "delay", 9.0, "keep the targets of 0.01 s"),
        ("pup12/velocity_rough", {}, "level", 50.0, "'level' has 50; use whole numbers"),
        ("pup12/field_leap", {}, "kind", 55.0, "'kind' has 55; use whole numbers"),
    ],
)
def test_scenarios_that_do_not_exist_are_refused(
    id: str, options: dict[str, Any], name: str, value: float, sentence: str
) -> None:
    with on_warp(id, 2, **options) as env:
        found = env.scenario()
        env.load_scenario(found)
        with pytest.raises(ValueError, match=sentence):
            env.load_scenario({name: torch.full_like(found[name], value)})
        assert all(torch.equal(one, other) for one, other in zip(env.scenario().values(), found.values(), strict=True))


@needs_warp
@pytest.mark.slow
def test_a_delay_as_float32_has_it_is_no_longer_than_the_longest() -> None:
    with on_warp("pup12/velocity", 2, randomise={"delay": 60}) as env:
        longest = torch.full((2, 1), 0.3)
        assert longest.double().max() > 0.3 + 1e-9
        env.load_scenario({"delay": longest})
        env.load_scenario(env.scenario())


@needs_warp
@pytest.mark.slow
def test_a_robot_that_is_watched_goes_where_it_is_told() -> None:
    from gaitway.cli.steering import Steering

    with on_warp("pup12/velocity", 2, purpose="evaluation", commands={"sampler": "grid"}, **STILL) as env:
        first = env.spec.group("critic").columns("commands_0").start
        scale = torch.tensor([part.scale for part in env.spec.group("critic").components if "commands" in part.name])
        steering = Steering.of(env, None)
        assert steering is not None
        assert steering.command == [0.6, 0.0, 0.0]  # ahead, where the grid says: stand
        again = env._tensors.revision
        for _ in range(3):
            steering.press("left")
        assert env._tensors.revision == again == 1
        for obs in (env.step(torch.zeros(2, 12)).obs, env.reset(1)):
            assert torch.allclose(obs["critic"][:, first : first + 3] / scale, torch.tensor([0.6, 0.0, 0.3]))


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


@needs_warp
@pytest.mark.slow
def test_a_clip_is_recorded_on_warp() -> None:
    from gaitway.envs.motions.recording import record
    from gaitway.runners.baselines import ZeroPolicy

    with on_warp("pup12/velocity", 1, purpose="evaluation", **STILL) as env:
        clip = record(env, ZeroPolicy(env.spec.action), seconds=0.2, warmup=0.04)
        assert len(clip.frames) == 11
        last = env.scenario()["qpos"][0, :3]
        assert torch.allclose(torch.from_numpy(clip.frames.body_positions[-1, 0]).double(), last, atol=1e-6)


@needs_warp
@pytest.mark.slow
@pytest.mark.parametrize("wrapper", [{"name": "starts", "motion": "trot.npz"}, {"name": "features"}])
def test_wrappers_that_read_arrays_of_mujoco_say_so(wrapper: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"MuJoCo alone, and Warp moves walker/run; use env\.simulator=mujoco"):
        make_env("walker/run", 2, simulator="warp", capacity=[80, 48], wrappers=[wrapper])


# room


def test_too_many_instances_are_refused_with_the_number_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    model = NATIVE_TASKS["walker/run"]().model
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**30, 2**31))
    warp_capacity.check_memory(model, ROOM, 4096, torch.device("cuda"), "walker/run")
    with pytest.raises(WarpError, match=r"100000 instances .* about \d+ fit, .*: use env.num_envs=16384"):
        warp_capacity.check_memory(model, ROOM, 100_000, torch.device("cuda"), "walker/run")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**12, 2**31))
    with pytest.raises(WarpError, match="where nothing is free; end what runs there, or use"):
        warp_capacity.check_memory(model, ROOM, 4096, torch.device("cuda"), "walker/run")


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
