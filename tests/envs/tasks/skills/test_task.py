"""The skill environment: goals, rewards, resets and streams of the specification, and twins that get them wrong."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch
from skill_cases import actions, make_skills, play, task_with

from gaitway.envs.check import check_env
from gaitway.envs.tasks.skills.goal_logic import GoalLogic
from gaitway.envs.tasks.skills.goal_spaces import HUMANOID_BODYFEET, WALKER_BODYFEET, GoalSpace
from gaitway.envs.tasks.skills.task import SkillTask

ROBOTS = ("walker", "humanoid", "humanoidpc")
FREE = {"allow_fallover": True}


@pytest.mark.parametrize("robot", ROBOTS)
def test_groups_and_sizes(robot):
    env = make_skills(robot)
    sizes = {group.name: group.shape[0] for group in env.spec.groups}
    if robot == "walker":
        assert sizes == {"observation": 59, "desired_goal": 7, "task": 7, "gs_observation": 7}
        assert env.task.tasks.task_map == {str(feature): feature for feature in range(7)}
        assert [part.name for part in env.spec.group("observation").components[:3]] == ["rootz", "rooty", "right_hip"]
    else:
        assert sizes == {"observation": 149, "desired_goal": 10, "task": 10, "gs_observation": 12}
        assert env.task.tasks.members.tolist() == [0, 2, 3, 4, 6, 7, 8, 9, 10, 11]
        names = [part.name for part in env.spec.group("observation").components[:3]]
        assert names == ["root_z", "root_quaternion", "abdomen_z"]
    assert [part.name for part in env.spec.group("task").components][2] in ("rooty:p", "root:tz")
    assert env.spec.group("desired_goal").components[0].unit == "m"


def test_what_is_observed_is_the_state_without_the_place():
    env = make_skills()
    play(env, 5)
    step = env.step(actions(env, 1)[0])
    task = env.task
    joints = np.concatenate([task.qpos, task.qvel, np.clip(task.field["cfrc_ext"][:, 1:], -1, 1).reshape(2, -1)], 1)
    assert np.array_equal(step.obs["observation"].numpy(), np.delete(joints, 1, axis=1))
    assert np.array_equal(step.obs["gs_observation"][:, :3].numpy(), task.qpos[:, :3])
    for row in range(2):  # positions are those of the state, not those before the last substep
        data = mujoco.MjData(task.model)
        data.qpos[:] = task.qpos[row]
        mujoco.mj_kinematics(task.model, data)
        away = data.body("left_foot").xpos - data.body("torso").xpos
        foot = data.body("torso").xmat.reshape(3, 3).T @ away
        assert np.allclose(step.obs["gs_observation"][row, 3:5].numpy(), foot[[0, 2]], atol=1e-12)


def test_projection_round_trip_and_centre_of_the_height():
    goals = np.random.default_rng(0).uniform(-1, 1, (5, 7))
    assert np.allclose(WALKER_BODYFEET.project(WALKER_BODYFEET.back_project(goals)), goals, atol=1e-12)
    features = np.zeros(7)
    features[0] = 1.225
    assert abs(WALKER_BODYFEET.project(features)[0]) < 1e-6


def test_delta_goals_do_not_depend_on_where_the_robot_stands():
    env = make_skills(feature_dist={"1": 1.0, "0,1": 1.0}, max_steps=4, **FREE)
    scenario = env.scenario()
    seen = []
    for x in (0.0, 5.0):
        moved = scenario["qpos"].clone()
        moved[:, 1] += x
        first = env.load_scenario({**scenario, "qpos": moved})
        goals = [first["desired_goal"].clone()]
        goals += [env.step(action).obs["desired_goal"].clone() for action in actions(env, 12)]
        seen.append(torch.stack(goals))
    assert torch.allclose(seen[0], seen[1], atol=1e-9)
    assert seen[0][:, :, 1].abs().max() > 0.5


def test_desired_goal_decreases_by_what_was_moved():
    env = make_skills(feature_dist={"0,1,3+4": 1.0}, max_steps=100, precision=1e-9, **FREE)
    obs = env.reset(3)
    for action in actions(env, 20):
        before = {name: value.clone() for name, value in obs.items()}
        obs = env.step(action).obs
        moved = obs["gs_observation"] - before["gs_observation"]
        members = env.task.tasks.members
        assert torch.allclose(before["desired_goal"] - obs["desired_goal"], moved[:, members] * obs["task"], atol=1e-12)
        assert torch.equal(obs["desired_goal"] == 0, obs["task"] == 0)


def turned(heading: float) -> torch.Tensor:
    return torch.tensor([[np.cos(heading / 2), 0.0, 0.0, np.sin(heading / 2)]], dtype=torch.float64)


def heading_left(kind: type[SkillTask] = SkillTask) -> tuple[float, float]:
    """What is left from a heading of +3.0 to one of -3.0 rad, in rad and in normalised units."""
    env = make_skills("humanoidpc", 1, kind=kind, feature_dist={"3": 1.0})
    scenario = env.scenario()
    qpos, qvel = torch.zeros_like(scenario["qpos"]), torch.zeros_like(scenario["qvel"])
    qpos[:, 2], qpos[:, 3:7] = 1.3, turned(3.0)
    obs = env.load_scenario({"qpos": qpos, "qvel": qvel, "settle": [False]})
    assert abs(float(obs["gs_observation"][0, 3]) - 3.0) < 1e-9
    task = env.task
    goal = HUMANOID_BODYFEET.project(np.full((1, 12), -3.0))
    task.place_goals(np.array([0]), np.array([task.tasks.key_of("3")]), goal)
    out = {name: np.zeros((1, *env.spec.group(name).shape)) for name in env.spec.group_names}
    task.observe(slice(None), out)
    return float(out["desired_goal"][0, 0]), float(task.memory["distance"][0])


class UnwrappedLogic(GoalLogic):
    """Angles that do not wrap."""

    def __init__(self, *args):
        super().__init__(*args)
        self.space = GoalSpace(self.space.names, self.space.low, self.space.high, self.space.delta)


def test_twists_take_the_short_way():
    left, distance = heading_left()
    assert abs(left - (2 * np.pi - 6.0)) < 1e-9  # +0.283
    assert abs(distance - (2 * np.pi - 6.0) * 2 / 3.14) < 1e-6
    left, distance = heading_left(task_with(UnwrappedLogic))
    assert abs(left + 6.0) < 1e-9
    assert distance > 3.0


def test_time_counts_the_steps_of_a_goal():
    env = make_skills(max_steps=5, precision=1e-9, **FREE)
    run = play(env, 12)
    assert run["time"][:, 0].tolist() == [0, 1, 2, 3, 4] * 2 + [0, 1]
    assert run["last_step_of_task"][:, 0].tolist() == [0, 0, 0, 0, 1] * 2 + [0, 0]
    assert torch.equal(run["soft_reset"], run["last_step_of_task"])
    assert env.elapsed.tolist() == [12, 12]


def count_goals(kind: type[SkillTask] = SkillTask) -> list[int]:
    """Goals of the first episodes of two instances, with nothing that falls."""
    env = make_skills(kind=kind, max_steps=1, **FREE)
    run = play(env, 205, 0.1)
    ends = [torch.nonzero(run["terminated"][:, row])[:, 0].tolist() for row in range(2)]
    return [int(run["last_step_of_task"][: end[0] + 1, row].sum()) for row, end in enumerate(ends)] + [
        int(run["last_step_of_task"][end[0] + 1 : end[1] + 1, row].sum()) for row, end in enumerate(ends)
    ]


class MiscountedLogic(GoalLogic):
    """Counts the goal to come instead of the present one."""

    def _is_last_goal(self):
        return (self.memory["goals"] + 1) % self.config.hard_reset_interval == 0


def test_a_hundred_goals_between_hard_resets():
    assert count_goals() == [100, 100, 100, 100]
    assert count_goals(task_with(MiscountedLogic)) == [99, 99, 99, 99]


@pytest.mark.parametrize("robot", ["walker", "humanoidpc"])
def test_potentials_telescope_to_the_distance_covered(robot):
    env = make_skills(robot, max_steps=7, ctrl_cost=0.0, feature_dist="0#3+4" if robot == "walker" else "3#3+4", **FREE)
    totals, starts = np.zeros(2), env.task.memory["start_distance"].copy()
    finished = 0
    for action in actions(env, 40):
        step = env.step(action)
        totals += step.reward.numpy()
        for row in np.flatnonzero(step.metrics["last_step_of_task"].numpy()):
            final = float(step.metrics["distance"][row])
            assert abs(totals[row] - (starts[row] - final)) < 1e-9
            totals[row], starts[row] = 0.0, env.task.memory["start_distance"][row]
            finished += 1
    assert finished >= 10


def test_every_step_follows_the_rules():
    """The stream again, one instance and one number at a time, from features and goals alone."""
    options = {"max_steps": 6, "hard_reset_interval": 3, "precision": 0.4, "feature_dist": "0#1#2#3+4", "rank_max": 2}
    env = make_skills(num_envs=3, **options)
    space, task = WALKER_BODYFEET, env.task
    env.reset(5)
    time, goals = [0] * 3, [1] * 3
    counts = {"soft": 0, "hard": 0, "fell": 0, "reached": 0}
    for action in actions(env, 150, 1.5):
        goal, key = task.memory["goal"].copy(), task.memory["task_key"].copy()
        before = task.memory["features"].copy()
        step = env.step(action)
        for row in range(3):
            chosen = [feature for feature in range(7) if key[row] >> task.tasks.task_map.get(str(feature), 9) & 1]
            after = step.final_obs["gs_observation"][row].numpy()

            def distance(features, row=row, chosen=chosen, goal=goal):
                return (
                    sum((goal[row, f] - (space.psi[f, f] * features[f] + space.offset[f])) ** 2 for f in chosen) ** 0.5
                )

            near, far = distance(after), distance(before[row])
            fell = after[0] < 0.9 or abs(after[2]) > 1.4
            reached = near < 0.4 and not fell
            reward = -1.0 if fell else far - near - 0.001 * float((action[row] ** 2).sum())
            done = fell or reached or time[row] + 1 >= 6
            hard = done and (fell or goals[row] == 3)
            assert abs(float(step.reward[row]) - reward) < 1e-9
            found = {name: float(values[row]) for name, values in step.metrics.items()}
            assert abs(found["distance"] - near) < 1e-9
            assert abs(found["potential"] - (far - near)) < 1e-9
            assert (found["reached_goal"], found["fell"], found["time"]) == (reached, fell, time[row])
            assert (found["last_step_of_task"], found["soft_reset"]) == (done, done and not hard)
            assert found["task_key"] == key[row]
            assert bool(step.terminated[row]) == hard
            assert not bool(step.truncated[row])
            time[row] = 0 if done else time[row] + 1
            goals[row] = 1 if hard else goals[row] + done
            for name, happened in zip(counts, (done and not hard, hard, fell, reached), strict=True):
                counts[name] += bool(happened)
    assert all(count >= 5 for count in counts.values()), counts


def test_a_soft_reset_changes_the_goal_and_nothing_else():
    env, plain = (make_skills(max_steps=steps, precision=1e-9, **FREE) for steps in (4, 1000))
    run, other = play(env, 20), play(plain, 20)
    assert torch.equal(run["obs/observation"], other["obs/observation"])
    assert torch.equal(run["obs/desired_goal"], run["final_obs/desired_goal"])
    changed = (run["obs/desired_goal"][3] - other["obs/desired_goal"][3]).abs().amax(-1)
    assert (changed > 1e-6).all()
    assert not run["terminated"].any()
    assert not run["truncated"].any()


class LateMetricsTask(SkillTask):
    """Reports the task after the soft reset, as the published system did."""

    def outcome(self, action, reward, terminated, metrics):
        super().outcome(action, reward, terminated, metrics)
        metrics["task_key"][:] = self.memory["task_key"]


def mislabelled(kind: type[SkillTask]) -> int:
    """Steps whose `task_key` is not the task that the policy saw."""
    env = make_skills(kind=kind, max_steps=2, **FREE)
    obs, wrong = env.reset(0), 0
    for action in actions(env, 30):
        seen = obs["task"].clone()
        step = env.step(action)
        bits = env.task.tasks.bits(step.metrics["task_key"].numpy().astype(np.int64))
        wrong += int((torch.from_numpy(bits) != seen).any(-1).sum())
        obs = step.obs
    return wrong


def test_metrics_belong_to_the_goal_that_was_pursued():
    assert mislabelled(SkillTask) == 0
    assert mislabelled(LateMetricsTask) > 10


def test_ends_show_the_old_goal_and_starts_the_new_one():
    env = make_skills(max_steps=3, hard_reset_interval=2, precision=1e-9, **FREE)
    obs = env.reset(0)
    for number, action in enumerate(actions(env, 6)):
        target = obs["desired_goal"] + obs["gs_observation"] * obs["task"]
        step = env.step(action)
        final = step.final_obs
        ended = number == 5
        assert bool(step.terminated.all()) == ended
        if number != 2:  # a soft reset comes there
            assert torch.allclose(final["desired_goal"] + final["gs_observation"] * final["task"], target, atol=1e-9)
        assert torch.equal(final["gs_observation"], step.obs["gs_observation"]) != ended
        obs = {name: value.clone() for name, value in step.obs.items()}


def test_subsets_are_drawn_by_their_weights():
    weights = {"0": 1.0, "1,2": 2.0, "3+4": 3.0, "0,3+4,5+6": 4.0}
    env = make_skills(num_envs=32, max_steps=1, precision=1e-9, feature_dist=weights, hard_reset_interval=20, **FREE)
    run = play(env, 80, 0.2)
    keys = run["task_key"].flatten()
    found = np.array([int((keys == env.task.tasks.key_of(subset)).sum()) for subset in weights], dtype=float)
    assert found.sum() == len(keys) == 2560
    expected = np.array(list(weights.values())) / 10 * len(keys)
    assert ((found - expected) ** 2 / expected).sum() < 16.27  # 3 degrees of freedom, p = 0.001
    wrong = np.full(4, len(keys) / 4)
    assert ((found - wrong) ** 2 / wrong).sum() > 100


def test_goals_fill_their_range():
    env = make_skills(num_envs=32, max_steps=1, feature_dist={"0,1,2,3,4,5,6": 1.0}, **FREE)
    goals = []
    for action in actions(env, 40, 0.1):
        drawn = env.task.memory["goal"].copy()
        drawn[:, 1] -= WALKER_BODYFEET.project(env.task.memory["features"])[:, 1]
        goals.append(drawn)
        env.step(action)
    values = np.sort(np.concatenate(goals), axis=0)
    assert values.min() >= -1
    assert values.max() < 1
    steps = np.arange(1, len(values) + 1)[:, None] / len(values)
    assert np.abs((values + 1) / 2 - steps).max() < 1.95 / np.sqrt(len(values))  # Kolmogorov-Smirnov, p = 0.001


class SharedDrawsLogic(GoalLogic):
    """Draws goals from one generator for all instances."""

    shared = np.random.default_rng(0)

    def _goals(self, uniform, projected):
        return super()._goals(self.shared.random(uniform.shape), projected)


@pytest.mark.parametrize("robot", ["walker", "humanoidpc"])
def test_the_contract_is_kept(robot):
    options = {"max_steps": 5, "hard_reset_interval": 3, "reset_p": 0.1, "resample_features": "soft2"}
    report = check_env(lambda num_envs, seed: make_skills(robot, num_envs, seed, **options), steps=70)
    assert report.ok, str(report)


def test_draws_that_are_shared_break_the_contract():
    kind = task_with(SharedDrawsLogic)
    report = check_env(lambda num_envs, seed: make_skills("walker", num_envs, seed, kind=kind), steps=40)
    assert any("not deterministic" in sentence for sentence in report.problems)


def test_numbers_depend_neither_on_the_batch_nor_on_threads():
    options = {"max_steps": 6, "hard_reset_interval": 4, "rank_max": 3}
    runs = [
        play(make_skills("humanoidpc", size, 9, threads, **options), 50) for size, threads in ((2, 1), (7, 2), (7, 1))
    ]
    assert runs[0]["soft_reset"].sum() > 8
    assert runs[0]["terminated"].any()
    for name, value in runs[0].items():
        assert torch.equal(value, runs[1][name][:, :2]), name
        assert torch.equal(runs[1][name], runs[2][name]), name


def test_resuming_in_the_middle_of_a_goal():
    options = {"max_steps": 9, "reset_p": 0.05, "reward": "potential2", "rank_max": 2}
    env, other = make_skills(seed=1, **options), make_skills(seed=2, **options)
    env.task.set_feature_dist({"0,3+4": 1.0, "5+6": 3.0})
    env.task.set_model(None, 0.9)
    play(env, 25)
    state = env.state_dict()
    expected = play(env, 40)
    other.load_state_dict(state)
    resumed = play(other, 40)
    assert expected["soft_reset"].sum() > 3
    for name, value in expected.items():
        assert torch.equal(value, resumed[name]), name
    assert set(np.unique(resumed["task_key"][20:])) <= {other.task.tasks.key_of(name) for name in ("0,3+4", "5+6")}


def test_a_scenario_repeats_the_episode_and_its_goals():
    env, other = make_skills(seed=1, max_steps=5), make_skills(seed=2, max_steps=5)
    first = {name: value.clone() for name, value in env.reset(1).items()}
    scenario = env.scenario()
    assert scenario["settle"].all()
    assert scenario["goal_seed"].shape == (2,)
    run = play(env, 12)
    started = other.load_scenario(scenario)
    assert all(torch.equal(first[name], started[name]) for name in first)
    again = play(other, 12)
    assert run["soft_reset"].any()
    assert all(torch.equal(run[name], again[name]) for name in run)
    with pytest.raises(ValueError, match="goal_seed"):
        other.load_scenario({"goal_seed": [0.5, 1.0]})
    with pytest.raises(ValueError, match="settle"):
        other.load_scenario({"settle": [2.0, 1.0]})
