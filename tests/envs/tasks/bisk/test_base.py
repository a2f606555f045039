"""What all tasks of the bipedal-skills benchmark share: sizes, settling, falls, scenarios, options, soundness."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from bisk_cases import PAIRS, TASKS, WALKER_TASKS, begin, make, random_actions
from mujoco.batch import Batch, SimulationError
from scipy.stats import kstest

from gaitway.core.seeding import instance_generator
from gaitway.envs.check import check_env
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.registry import make_env
from gaitway.envs.robots.registry import get_robot
from gaitway.envs.tasks import NATIVE_TASKS
from gaitway.envs.tasks.bisk import BENCHMARK_ENDINGS
from gaitway.envs.tasks.bisk.corridor import Progress
from gaitway.runners.evaluate import run_episodes

OBSERVATION = {"walker": 60, "humanoid": 151, "humanoidpc": 151, "halfcheetah": 60, "cube": 12, "cube2d": 10}
TASK_SIZES = {
    **{"hurdles": 3, "limbo": 3, "hurdleslimbo": 4, "gaps": 3, "stairs": 3, "stairscont": 3},
    **{"velocitycontrol": 4, "rundir": 0, "butterflies": 100},
}
PLANAR_SIZES = {"goalwall": 6, "polebalance": 2, "gototargets": 2, "gotosphere": 1}
OTHER_SIZES = {"goalwall": 9, "polebalance": 7, "gototargets": 6, "gotosphere": 3}
KEYS = {
    "hurdles": "next_hurdle",
    "limbo": "next_bar",
    "hurdleslimbo": "next_obstacle",
    "gaps": "next_gap_platform",
    "stairs": "next_steps",
    "goalwall": "ball",
    "polebalance": "pole",
    "stairscont": "next_steps",
    "gototargets": "targets",
    "gotosphere": "targets",
    "velocitycontrol": "target",
    "butterflies": "butterflies",
}
LIMITS = {"goalwall": 250}


def test_every_robot_has_its_tasks() -> None:
    assert len(TASKS) == 13
    assert len(PAIRS) == 6 * 12 + 1  # the net is the cube's alone
    assert ("cube", "butterflies") in PAIRS
    assert all(f"{robot}/{task}-fixed" in NATIVE_TASKS for robot, task in PAIRS)


@pytest.mark.parametrize(("robot", "task"), PAIRS)
def test_sizes_names_and_keys(robot: str, task: str) -> None:
    made = NATIVE_TASKS[f"{robot}/{task}"]()
    planar = get_robot(robot).is_planar
    size = {**TASK_SIZES, **(PLANAR_SIZES if planar else OTHER_SIZES)}[task]
    assert made.groups[0].shape == (size + OBSERVATION[robot],)
    keys = {KEYS[task]: slice(0, size)} if size else {}
    assert made.views == {**keys, "observation": slice(size, size + OBSERVATION[robot])}
    assert list(made.views) == [*keys, "observation"]
    names = [component.name for component in made.groups[0].components]
    assert len(set(names)) == len(names)
    assert names[-2:] == [f"{get_robot(robot).bodies[-1]}_torque", f"{get_robot(robot).bodies[-1]}_force"]
    assert made.max_episode_steps == LIMITS.get(task, 1000)
    has_shaped = task not in ("polebalance", "butterflies")
    assert made.metrics == (("score", "fell", "shaped_reward") if has_shaped else ("score", "fell"))
    assert made.reductions == {"score": "sum"}
    assert made.fault_reward == -1.0
    assert made.options == {}


class Resting:
    def __call__(self, obs: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.zeros(6, 6)

    def reset(self, mask: torch.Tensor | None = None) -> None: ...


def test_the_score_of_an_episode_is_a_sum() -> None:
    """Steps of balance are points, so an evaluation that took the mean would prefer who falls at once."""
    with make_env("walker/polebalance", 6, num_threads=1, max_episode_steps=40, purpose="evaluation") as env:
        found = run_episodes(env, Resting(), 6)
    assert found["length"].unique().numel() > 1
    # every step but that of the end pays a point; a fall costs one of the return, and none of the score
    assert torch.equal(found["score"], found["return"] + found["fell"])
    assert bool((found["score"] >= found["length"] - 1).all())


@pytest.mark.parametrize("ending", BENCHMARK_ENDINGS)
@pytest.mark.parametrize(("robot", "task"), PAIRS)
def test_every_task_is_sound(robot: str, task: str, ending: str) -> None:
    id = f"{robot}/{task}{ending}"
    report = check_env(
        lambda num_envs, seed: make_env(id, num_envs, seed, num_threads=1, max_episode_steps=5), steps=11
    )
    assert report.ok, report
    assert not report.skipped


@pytest.mark.parametrize(
    ("id", "options"),
    [
        ("walker/limbo", {"notouch": True}),
        ("humanoid/hurdleslimbo-fixed", {"notouch": True, "goal_space": True}),
        ("walker/goalwall", {"touch_ball_reward": 0.1}),
        ("humanoid/stairs-fixed", {"goal_space": True}),
        ("walker/gaps-fixed", {"goal_space": True, "shaped": True}),
        ("humanoid/polebalance-fixed", {"n_poles": 2}),
        ("humanoid/goalwall", {"shaped": True, "allow_falls": True}),
        ("humanoid/gototargets-fixed", {"shaped": True, "tolerance": 3.0, "goal_space": True}),
        ("humanoid/gotosphere", {"shaped": True, "tolerance": 3.97}),
        ("humanoid/velocitycontrol-fixed", {"shaped": True, "steps_before_changing_velocity": 2, "goal_space": True}),
        ("cube/butterflies", {"net_radius": 2.0}),
    ],
)
def test_variants_are_sound(id: str, options: dict[str, Any]) -> None:
    report = check_env(
        lambda num_envs, seed: make_env(id, num_envs, seed, num_threads=1, max_episode_steps=5, **options), steps=11
    )
    assert report.ok, report


@pytest.mark.parametrize("id", ["walker/hurdles", "humanoidpc/stairs", "halfcheetah/gaps", "humanoid/polebalance"])
def test_the_first_observation_is_one_idle_step_after_the_drawn_state(id: str) -> None:
    env = make(id, 2)
    start = env.scenario()
    assert start["settle"].tolist() == [True, True]
    obs = env.reset(3)["policy"]
    task, model = env.task, env.task.batch.get_model(1)
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = start["qpos"][1].numpy(), start["qvel"][1].numpy()
    if model.nmocap:
        data.mocap_pos[:] = task.batch.bind("mocap_pos")[1]
    mujoco.mj_step(model, data, task.frame_skip)
    np.testing.assert_array_equal(task.qpos[1], data.qpos)
    seen, robot = obs[1, task.views["observation"]].numpy(), task.robot
    expected = np.concatenate([data.qpos[task.view.qpos], data.qvel[task.view.qvel]])
    if task.relative_height:
        assert seen[robot.height_index] == task.height(np.array([1]))[0]
        expected[robot.height_index] = seen[robot.height_index]
    np.testing.assert_array_equal(seen[: len(expected)], expected)
    forces = data.cfrc_ext[[model.body(body).id for body in robot.bodies]].reshape(-1)
    np.testing.assert_array_equal(seen[len(expected) :], np.clip(forces, -1, 1))
    assert env.elapsed.tolist() == [0, 0]


def test_without_settling_the_first_observation_is_the_given_state() -> None:
    env = make("walker/hurdles", 2)
    qpos = torch.zeros(2, 9, dtype=torch.float64)
    qpos[:, 0] = torch.tensor([1.29, 2.0])  # feet in the floor, in the air
    qvel = torch.arange(18, dtype=torch.float64).reshape(2, 9) / 10
    seen = env.load_scenario({"qpos": qpos, "qvel": qvel, "settle": [False, False]})["policy"][:, 3:]
    assert torch.equal(seen[:, :18], torch.cat([qpos, qvel], 1))
    assert seen[0, 18:].abs().sum() > 1
    assert not seen[1, 18:].any()
    mixed = env.load_scenario({"qpos": qpos, "qvel": qvel, "settle": [False, True]})["policy"][:, 3:]
    assert torch.equal(mixed[0], seen[0])
    assert not torch.equal(mixed[1], seen[1])


@pytest.mark.parametrize(
    ("id", "persistent", "num_threads"),
    [
        *(("walker/hurdles", persistent, threads) for persistent in (False, True) for threads in (1, 2)),
        *(("humanoid/gaps", True, threads) for threads in (1, 2)),  # looks at forces after another call
    ],
)
def test_batch_equals_a_loop(id: str, persistent: bool, num_threads: int) -> None:
    task = NATIVE_TASKS[id](allow_falls=True)
    task.persistent = persistent
    env = MujocoBatchEnv(task, 2, 5, num_threads, dtype=torch.float64)
    begin(env, 3.9)
    model = task.batch.get_model(1)
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = task.qpos[1], task.qvel[1]
    bodies = [model.body(body).id for body in task.robot.bodies]
    compared = 0
    for action in random_actions(env, 60):
        if model.nmocap:
            data.mocap_pos[:] = task.batch.bind("mocap_pos")[1]
        data.ctrl[:] = action[1].numpy()
        step = env.step(action)
        mujoco.mj_step(model, data, task.frame_skip)
        seen = step.final_obs["policy"][1, task.views["observation"]].numpy()
        np.testing.assert_array_equal(seen[: model.nq], data.qpos)
        np.testing.assert_array_equal(seen[model.nq : model.nq + model.nv], data.qvel)
        np.testing.assert_array_equal(seen[model.nq + model.nv :], np.clip(data.cfrc_ext[bodies], -1, 1).reshape(-1))
        compared += 1
        if bool(step.terminated[1]):  # lava
            break
    assert compared > (30 if id == "walker/hurdles" else 5)


@pytest.mark.parametrize(
    "id",
    [
        *("walker/hurdles", "humanoid/gaps", "cube/stairs", "walker/goalwall"),
        *("humanoid/gototargets", "walker/velocitycontrol", "cube/butterflies"),
    ],
)
def test_layouts_and_trajectories_depend_on_seed_and_instance_alone(id: str) -> None:
    traces = []
    for num_envs, num_threads in ((4, 1), (4, 2), (2, 1)):
        env = make(id, num_envs, num_threads, seed=5, max_episode_steps=12)
        rows = []
        for action in random_actions(make(id, 4), 20):
            step = env.step(action[:num_envs])
            rows.append(torch.cat([step.obs["policy"][:2], step.reward[:2, None], step.metrics["score"][:2, None]], 1))
        rows += [value[:2].double().reshape(2, -1) for value in env.scenario().values()]
        traces.append(torch.cat([row.reshape(-1) for row in rows]))
        for name, value in env.scenario().items():
            assert name == "settle" or not torch.equal(value[0], value[1])  # instances differ
    assert torch.equal(traces[0], traces[1])
    assert torch.equal(traces[0], traces[2])


def test_episodes_draw_from_their_own_streams_however_many_there_were() -> None:
    env, task = make("walker/stairs", 2, seed=6), NATIVE_TASKS["walker/stairs"]()
    for _ in range(12):
        env.reset()
    drawn = task.draw(instance_generator((6, 1), 12))
    assert torch.equal(env.scenario()["step_length"][1], torch.from_numpy(drawn["step_length"]))
    env.reset([4, 9])
    drawn = task.draw(instance_generator((9, 0), 0))
    assert torch.equal(env.scenario()["qpos"][1], torch.from_numpy(drawn["qpos"]))


@pytest.mark.parametrize("robot", ["walker", "humanoid"])
def test_the_first_state_is_the_robots_own_draw(robot: str) -> None:
    task = NATIVE_TASKS[f"{robot}/hurdles"]()
    drawn = task.draw(np.random.default_rng(2))
    generator = np.random.default_rng(2)
    qpos, qvel = get_robot(robot).draw_state(generator)
    np.testing.assert_allclose(drawn["qpos"], qpos, atol=1e-15)
    np.testing.assert_array_equal(drawn["qvel"], qvel)
    np.testing.assert_allclose(drawn["position"], 1.0 + np.cumsum(generator.uniform(3, 6, 200)), rtol=1e-15)


def test_noise_of_the_first_state() -> None:
    task = NATIVE_TASKS["walker/hurdles"]()
    generator = np.random.default_rng(0)
    draws = [task.draw(generator) for _ in range(1200)]
    qpos = np.stack([draw["qpos"] for draw in draws]) - task.robot.initial_qpos()
    qvel = np.stack([draw["qvel"] for draw in draws])
    assert kstest(qpos.reshape(-1), "uniform", args=(-0.1, 0.2)).pvalue > 0.01
    assert kstest(qvel.reshape(-1), "norm", args=(0, 0.1)).pvalue > 0.01
    assert kstest(qpos.reshape(-1), "uniform", args=(-0.11, 0.22)).pvalue < 1e-6  # the test can tell


@pytest.mark.parametrize("task", WALKER_TASKS)
def test_a_lying_walker_has_fallen(task: str) -> None:
    env = make(f"walker/{task}")
    begin(env, 0.0)
    env.task.qpos[0, :3] = 0.5, 0.0, 1.5
    step = env.step(torch.zeros(1, 6))
    assert step.reward.tolist() == [-1.0]
    assert step.terminated.tolist() == [True]
    assert step.metrics["fell"].tolist() == [1.0]
    assert task == "rundir" or step.metrics["score"].tolist() == [0.0]


@pytest.mark.parametrize("task", [task for task in WALKER_TASKS if task != "polebalance"])  # the pole falls too
def test_an_idle_walker_falls_and_a_tolerated_one_runs_out_of_time(task: str) -> None:
    env = make(f"walker/{task}", 3)
    tolerant = make(f"walker/{task}", 3, allow_falls=True, max_episode_steps=120)
    ended = torch.zeros(3, dtype=torch.bool)
    for number in range(120):
        step, tolerated = env.step(torch.zeros(3, 6)), tolerant.step(torch.zeros(3, 6))
        ended |= step.terminated
        assert torch.equal(step.reward == -1, step.terminated)
        assert not tolerated.terminated.any()
        assert not (tolerated.reward == -1).any()
        assert tolerated.truncated.all() == (number == 119)
    assert ended.all()
    assert tolerated.metrics["fell"].all()


def test_a_scenario_is_the_beginning_of_the_episode() -> None:
    env = make("walker/hurdles", 2, seed=8)
    plan = random_actions(env, 8)
    drawn = env.scenario()
    first = [env.step(action).obs["policy"].clone() for action in plan]
    assert torch.equal(env.scenario()["qpos"], drawn["qpos"])  # not where the robot is now
    other = make("walker/hurdles", 2, seed=99)
    other.load_scenario(drawn)
    for action, seen in zip(plan, first, strict=True):
        assert torch.equal(other.step(action).obs["policy"], seen)
    # what is missing is as drawn
    env.load_scenario({"qpos": drawn["qpos"] + 0.001})
    assert torch.equal(env.scenario()["position"], drawn["position"])
    assert torch.equal(env.scenario()["qvel"], drawn["qvel"])
    assert env.scenario()["settle"].all()
    with pytest.raises(ValueError, match=r"'settle' of walker/hurdles is \[2\.0, 1\.0\]; use true or false"):
        env.load_scenario({"settle": [2.0, 1.0]})
    with pytest.raises(KeyError, match=r"'gap'.*'position', 'height'"):
        env.load_scenario({"gap": np.zeros((2, 200))})


def test_a_settling_step_that_fails_ends_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    env = make("walker/hurdles", 2)

    def refuse(numbers: np.ndarray) -> None:
        raise SimulationError(numbers, "the arena is full")

    monkeypatch.setattr(env.task, "settle", refuse)
    obs = env.reset(0)["policy"]
    assert torch.isfinite(obs).all()
    assert torch.equal(torch.from_numpy(env.task.qpos), env.scenario()["qpos"])


@pytest.mark.parametrize(
    ("id", "start"),
    [
        ("cube/gaps", {"qpos": [4.35, 0.0, 0.14], "gap": 0.7, "platform": 2.0}),
        ("cube2d/goalwall", {"qpos": [0.0, 0.3, 6.34, 1.0, 0.0], "qvel": [0.0, 0.0, 5.0, 0.0, 0.0]}),
        ("cube/limbo", {"qpos": [4.8, 0.0, 1.1], "position": 5.0 + 4.0 * np.arange(200), "height": 1.0}),
    ],
)
def test_a_step_that_fails_repeats_nothing_of_the_one_before(
    id: str, start: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    env = make(id, 2, **({"notouch": True} if id == "cube/limbo" else {}))
    state = env.scenario()
    state["qvel"][:] = 0.0
    for name, value in start.items():
        state[name][0] = torch.as_tensor(value)
    env.load_scenario({**state, "settle": [False, False]})
    step = env.step(torch.zeros(2, *env.spec.action.shape))
    assert step.terminated[0] or step.metrics["score"][0] == -1.0  # lava, a hit, a touch

    def fail(self: Batch, *given: Any, **named: Any) -> None:
        raise SimulationError(np.array([1]), "the arena is full")

    monkeypatch.setattr(Batch, "rollout", fail)
    if id == "cube/limbo":
        env.task.memory["touched"][:] = False
    step = env.step(torch.zeros(2, *env.spec.action.shape))
    assert step.terminated.tolist() == [False, True]
    assert step.metrics["physics_error"].tolist() == [0.0, 1.0]
    assert step.metrics["score"].tolist() == [0.0, 0.0]


def test_goal_space_and_other_features() -> None:
    env = make("humanoid/hurdles", 2, goal_space=True)
    assert env.spec.group("goal_space").shape == (12,)
    step = env.step(random_actions(env, 1)[0])
    data = mujoco.MjData(env.task.model)
    data.qpos[:] = env.task.qpos[1]
    mujoco.mj_kinematics(env.task.model, data)
    np.testing.assert_array_equal(step.obs["goal_space"][1, :3], data.qpos[:3])
    pelvis, foot = data.body("pelvis"), data.body("left_foot")
    assert step.obs["goal_space"][1, 8].item() == pytest.approx(foot.xpos[2] - pelvis.xpos[2], abs=1e-12)
    assert make("walker/hurdles", features="bodyfeet").spec.group("policy").shape == (10,)
    with pytest.raises(ValueError, match="stairs alone; walker/hurdles takes 'joints'"):
        make("walker/hurdles", features="joints-relz")
    with pytest.raises(ValueError, match="cube has no feet"):
        make("cube/hurdles", goal_space=True)


def test_corrected_ids_differ_in_their_defaults() -> None:
    plain, fixed = NATIVE_TASKS["humanoid/hurdles"](), NATIVE_TASKS["humanoid/hurdles-fixed"]()
    assert (plain.config.heading, fixed.config.heading) == ("original", "corrected")
    assert (fixed.id, fixed.options) == ("humanoid/hurdles-fixed", {})
    assert NATIVE_TASKS["humanoid/hurdles-fixed"](heading="original").options == {"heading": "original"}
    pole = NATIVE_TASKS["walker/polebalance-fixed"]()
    assert pole.config.pole_velocity
    assert not NATIVE_TASKS["walker/polebalance"]().config.pole_velocity


def test_options_that_make_no_sense() -> None:
    with pytest.raises(TypeError, match=r"no option 'max_heigth' \(did you mean 'max_height'\?\)"):
        make("walker/hurdles", max_heigth=0.2)
    with pytest.raises(ValueError, match="heading is 'west'; use one of"):
        make("walker/hurdles", heading="west")
    with pytest.raises(ValueError, match="max_episode_steps is -1"):
        make("walker/hurdles", max_episode_steps=-1)
    with pytest.raises(TypeError, match="'notouch' of walker/limbo is 1; it takes bool"):
        make("walker/limbo", notouch=1)


def test_progress_by_hand() -> None:
    progress = Progress(3, 4)
    progress.positions[:] = [1.0, 2.0, 3.0, 4.0]
    progress.begin(slice(None), np.array([0.0, 2.5, 9.0]))
    assert progress.next.tolist() == progress.best.tolist() == [0, 2, 4]
    assert progress.update(np.array([1.0, 0.0, 9.0])).tolist() == [False, False, False]  # at 1.0 it is not passed
    assert progress.next.tolist() == [0, 0, 4]
    assert progress.fresh(slice(None)).tolist() == [True, False, True]
    assert progress.update(np.array([3.5, 2.5, -9.0])).tolist() == [True, False, False]  # three at once
    assert progress.best.tolist() == [3, 2, 4]
    assert progress.entries(slice(None), progress.padded).tolist() == [4.0, 3.0, 1.0]
    assert progress.entries(np.array([0, 2]), progress.padded, offset=1).tolist() == [np.inf, 2.0]
    generator = np.random.default_rng(0)
    many = Progress(50, 200)
    many.positions[:] = np.cumsum(generator.uniform(0, 1, (50, 200)), axis=1)
    x = np.zeros(50)
    many.begin(slice(None), x)
    for _ in range(200):
        x = x + generator.normal(0.3, 3.0, 50)
        many.update(x)
        np.testing.assert_array_equal(many.next, (many.positions < x[:, None]).sum(axis=1))
