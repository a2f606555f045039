"""The toy robot with skills: its equations by hand, the same goals as on MuJoCo, and a controller that reaches them."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from skill_cases import make_skills

from gaitway.envs.check import check_env
from gaitway.envs.registry import make_env
from gaitway.envs.tasks.skills.facts import SkillFacts
from gaitway.envs.tasks.skills.goal_logic import GoalLogic
from gaitway.envs.tasks.skills.goal_spaces import POINT_BODY, GoalSpace
from gaitway.envs.toys.point import CEILING, DT, LIMIT, MAX_TILT, RESPONSE, SEED, TILT, PointBot, moved
from gaitway.envs.toys.toy_env import ToyEnv

Policy = Callable[[dict[str, torch.Tensor]], torch.Tensor]


def make_point(num_envs: int = 2, seed: int = 0, kind: type[PointBot] = PointBot, **options: Any) -> ToyEnv:
    """In float64, so that its numbers can be computed again."""
    return ToyEnv(kind(**options), num_envs, seed, dtype=torch.float64, id="point/skills")


def play(env: ToyEnv, steps: int, seed: int = 1) -> dict[str, torch.Tensor]:
    """Random steps: every tensor by name, [T, B, ...]."""
    drawn = np.random.default_rng(seed).uniform(-1, 1, (steps, 64, 4))[:, : env.num_envs]
    rows: dict[str, list[torch.Tensor]] = {}
    for action in torch.from_numpy(drawn):
        step = env.step(action)
        named = {"reward": step.reward, "terminated": step.terminated, "truncated": step.truncated, **step.metrics}
        named |= {f"obs/{name}": value for name, value in step.obs.items()}
        named |= {f"final_obs/{name}": value for name, value in step.final_obs.items()}
        for name, value in named.items():
            rows.setdefault(name, []).append(value.clone())
    return {name: torch.stack(values) for name, values in rows.items()}


def success(policy: Policy, rank: int, per_kind: int = 40, kind: type[PointBot] = PointBot) -> dict[str, float]:
    """Share of goals reached by task, on a plan of trials."""
    toy = kind(rank_min=rank, rank_max=rank)
    env = ToyEnv(toy, 32, dtype=torch.float64, purpose="evaluation", id="point/skills")
    named = env.call("plan_trials", per_kind)
    obs = env.reset(seed=0)
    trials = len(named) * per_kind
    share = math.ceil(trials / 32)
    left = np.clip(trials - share * np.arange(32), 0, share)
    reached: dict[int, list[float]] = {key: [] for key in named}
    while left.any():
        step = env.step(policy(obs))
        for row in np.flatnonzero((step.metrics["last_step_of_task"].numpy() > 0) & (left > 0)):
            left[row] -= 1
            reached[int(step.metrics["task_key"][row])].append(float(step.metrics["reached_goal"][row]))
        obs = step.obs
    assert all(len(values) == per_kind for values in reached.values())
    return {named[key]: float(np.mean(values)) for key, values in reached.items()}


def steady(obs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Critically damped towards the goal: v' = (limit u - v) / tau shall be 25 left - 10 v."""
    time_constant, limit = (torch.from_numpy(array[:, 0]) for array in (DT / RESPONSE, LIMIT))
    velocity = obs["observation"][:, 3:7]
    wished = 25.0 * obs["desired_goal"] - 10.0 * velocity
    return ((wished * time_constant + velocity) / limit).clamp(-1, 1)


def rushing(obs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Full speed until the goal is reached."""
    return obs["desired_goal"].sign()


def randomly(obs: dict[str, torch.Tensor], generator: Any = np.random.default_rng(0)) -> torch.Tensor:  # noqa: B008
    return torch.from_numpy(generator.uniform(-1, 1, (len(obs["task"]), 4)))


def test_a_competent_policy_reaches_all_goals_and_a_random_one_rarely():
    assert min(success(steady, 1).values()) >= 0.95
    assert min(success(steady, 4, 200).values()) >= 0.95
    single = success(randomly, 1)
    assert list(single) == ["0", "1", "2", "3"]
    assert max(single.values()) < 0.45
    assert max(success(randomly, 4).values()) < 0.05


def falls(policy: Policy) -> int:
    env = make_point(32, feature_dist={"2": 1.0, "0": 1.0}, task_map={"0": 0, "1": 1, "2": 2, "3": 3})
    obs, total = env.reset(3), 0
    for _ in range(200):
        step = env.step(policy(obs))
        obs, total = step.obs, total + int(step.metrics["fell"].sum())
    return total


def test_who_rushes_falls():
    assert falls(steady) == 0
    assert falls(rushing) > 10


def twin_with(logic: type[GoalLogic]) -> type[PointBot]:
    class Twin(PointBot):
        def attach(self, num_envs: int) -> None:
            self.logic = logic("point", self.config, self.space, 4)
            super().attach(num_envs)

    return Twin


class Unwrapped(GoalLogic):
    """Angles that do not wrap."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.space = GoalSpace(self.space.names, self.space.low, self.space.high, self.space.delta)


class Undisplaced(GoalLogic):
    """Goals for x and y that count from the origin of the world."""

    def _goals(self, uniform: np.ndarray, projected: np.ndarray) -> np.ndarray:
        return super()._goals(uniform, np.zeros_like(projected))


def test_twins_with_broken_goals_are_not_reached():
    unwrapped, undisplaced = (success(steady, 1, 200, twin_with(logic)) for logic in (Unwrapped, Undisplaced))
    assert unwrapped["3"] < 0.5
    assert unwrapped["2"] >= 0.95
    assert max(undisplaced["0"], undisplaced["1"]) < 0.5
    assert undisplaced["2"] >= 0.95


def test_one_step_by_hand():
    # x, y, z, heading, their rates, tilt, its rate, seed
    state = np.array([[1.0, 2.0, 0.5, 3.1, 0.3, 0.0, -0.6, 2.0, 0.1, 0.2, 77.0]])
    reached = moved(state, np.array([[0.6, -5.0, 0.0, 1.0]]))[0]
    # v += dt / tau (limit u - v): 0.3 + (0.6 - 0.3) / 3, -1 / 3 (clipped), -0.6 + 0.6 / 6, 2
    assert reached[4:8] == pytest.approx([0.4, -1 / 3, -0.5, 2.0])
    assert reached[:4] == pytest.approx([1.02, 2.0 - 0.05 / 3, 0.475, 3.2])
    # pull = 3.2 * 0.6 - 16 * 0.1 - 1.6 * 0.2 = 0; the tilt goes on by its rate
    assert reached[8:] == pytest.approx([0.11, 0.2, 77.0])
    assert state[0, 0] == 1.0


def test_floor_and_ceiling_stop_and_kick():
    state = np.zeros((2, 11))
    state[:, 2], state[:, 6] = (0.01, CEILING - 0.01), (-0.6, 0.6)
    reached = moved(state, np.zeros((2, 4)))  # speeds fall to 0.5 before they hit
    assert reached[:, 2].tolist() == [0.0, CEILING]
    assert reached[:, 6].tolist() == [0.0, 0.0]
    assert reached[:, 9] == pytest.approx([6.0, 6.0])
    resting = np.zeros((1, 11))
    assert moved(resting, np.array([[0.0, 0.0, -1.0, 0.0]]))[0, 9] == pytest.approx(12.0 / 6)  # 1 m/s * 1 / 6


def test_a_fall_ends_the_episode():
    env = make_point(max_steps=100, precision=1e-9)
    state = env.scenario()["state"]
    state[0, TILT] = MAX_TILT + 0.2
    env.load_scenario({"state": state})
    step = env.step(torch.zeros(2, 4, dtype=torch.float64))
    assert step.terminated.tolist() == [True, False]
    assert step.metrics["fell"].tolist() == [1, 0]
    assert float(step.reward[0]) == -1.0
    assert step.final_obs["observation"][0, 7] > MAX_TILT
    assert step.obs["observation"][0, 7] == 0.0
    assert env.elapsed.tolist() == [0, 1]
    free = make_point(allow_fallover=True)
    free.load_scenario({"state": state})
    assert not free.step(torch.zeros(2, 4, dtype=torch.float64)).terminated.any()


def test_it_looks_like_the_environments_of_robots():
    point, walker = make_env("point/skills"), make_skills(num_envs=1)
    assert point.spec.group_names == walker.spec.group_names
    assert (*point.spec.metrics, "physics_error") == walker.spec.metrics
    assert {group.name: group.shape[0] for group in point.spec.groups} == {
        "observation": 9,
        "desired_goal": 4,
        "task": 4,
        "gs_observation": 4,
    }
    assert set(point.spec.facts) == set(walker.spec.facts)
    facts = SkillFacts.from_dict(point.spec.facts["skills"])
    assert (facts.robot, facts.features, facts.groups) == ("point", "body", ("0", "1", "2", "3"))
    assert (facts.horizon, facts.precision, facts.control_dt) == (40, 0.1, 0.05)
    assert facts.space == POINT_BODY
    assert [part.unit for part in point.spec.group("desired_goal").components] == ["m", "m", "m", "rad"]
    assert point.spec.action.names == ("x", "y", "lift", "turn")
    assert [part.name for part in point.spec.group("observation").components][:3] == ["z", "cos_heading", "sin_heading"]


def test_where_episodes_begin():
    state = make_point(500).scenario()["state"]
    assert 19 < state[:, :2].abs().max() <= 20
    assert 30 < state[:, 3].abs().max() <= 10 * math.pi
    assert state[:, 2].min() >= 0
    assert 0.9 < state[:, 2].max() <= CEILING
    assert (state[:, 4:SEED] == 0).all()
    state = make_point(500, start_range=0.0, start_turns=0.5).scenario()["state"]
    assert (state[:, :2] == 0).all()
    assert 3 < state[:, 3].abs().max() <= math.pi


def test_turns_do_not_count():
    """A robot that was turned around twice sees the same and is as far from its goals."""
    env = make_point(precision=1e-9)
    state = env.scenario()["state"]
    seen = []
    for turns in (0.0, 2.0):
        turned = state.clone()
        turned[:, 3] += 2 * math.pi * turns
        env.load_scenario({"state": turned})
        seen.append(play(env, 30))
    for name in ("reward", "obs/observation", "obs/desired_goal", "distance"):
        assert torch.allclose(seen[0][name], seen[1][name], atol=1e-9), name


def test_what_is_observed():
    env = make_point(3, normalize_gs_observation=False)
    play(env, 7)
    state = env.scenario()["state"]
    step = env.step(torch.zeros(3, 4, dtype=torch.float64))
    state = env.scenario()["state"]
    heading = state[:, 3]
    expected = torch.cat([torch.stack([state[:, 2], heading.cos(), heading.sin()], 1), state[:, 4:10]], 1)
    assert torch.allclose(step.obs["observation"], expected)
    assert torch.equal(step.obs["gs_observation"], state[:, :4])
    left = torch.from_numpy(env.toy.memory["target"]) - state[:, :4]
    left[:, 3] = (left[:, 3] + math.pi) % (2 * math.pi) - math.pi
    assert torch.allclose(step.obs["desired_goal"], left * step.obs["task"])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_steps": 5, "hard_reset_interval": 3, "reset_p": 0.1, "resample_features": "soft2", "rank_max": 4},
        {"implicit_soft_resets": False, "max_steps": 4, "hard_reset_interval": 3},
    ],
)
def test_the_contract_is_kept(options):
    report = check_env(lambda num_envs, seed: make_point(num_envs, seed, **options), steps=150)
    assert report.ok, str(report)


def test_numbers_do_not_depend_on_the_batch():
    runs = [play(make_point(size, 9, max_steps=6, hard_reset_interval=4, rank_max=3), 80) for size in (2, 7)]
    assert runs[0]["soft_reset"].sum() > 8
    assert runs[0]["terminated"].any()
    assert all(torch.equal(value, runs[1][name][:, :2]) for name, value in runs[0].items())


def test_evaluation_draws_from_streams_of_its_own():
    train, evaluation = (make_env("point/skills", 2, purpose=purpose) for purpose in ("train", "evaluation"))
    seen = [env.reset(seed=0) for env in (train, evaluation)]
    assert not torch.equal(seen[0]["gs_observation"], seen[1]["gs_observation"])
    assert train.scenario()["state"][0, SEED] != evaluation.scenario()["state"][0, SEED]


def test_resuming_in_the_middle_of_a_goal_and_of_a_plan():
    options = {"max_steps": 9, "reset_p": 0.05, "reward": "potential2", "rank_max": 2}
    env, other = make_point(3, 1, **options), make_point(3, 2, **options)
    env.call("set_feature_dist", {"0,3": 1.0, "2": 3.0})
    env.call("set_model", None, 0.9)
    named = env.call("plan_trials", 4)
    assert list(named.values()) == ["0,3", "2"]
    env.reset(seed=5)
    play(env, 13)
    state = env.state_dict()
    expected = play(env, 120, 2)
    seen = other.load_state_dict(state)
    assert seen["desired_goal"].shape == (3, 4)
    resumed = play(other, 120, 2)
    assert expected["soft_reset"].sum() > 3
    assert all(torch.equal(value, resumed[name]) for name, value in expected.items())
    assert set(resumed["task_key"].unique().int().tolist()) == set(named)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))], ids=["copy", "sent"])
def test_copies_go_on_by_themselves(copied):
    env = make_point(3, 5, max_steps=6)
    play(env, 20)
    twin = copied(env)
    expected = play(env, 30, 2)
    found = play(twin, 30, 2)
    assert all(torch.equal(value, found[name]) for name, value in expected.items())


def test_states_of_others_are_refused_and_change_nothing():
    env, wider = make_point(2), make_point(3)
    before = env.state_dict()
    with pytest.raises(ValueError, match="point/skills with 2 instances"):
        env.load_state_dict(wider.state_dict())
    with pytest.raises(ValueError, match=r"has the entries .* 'memory'"):
        env.load_state_dict({name: value for name, value in before.items() if name != "memory"})
    other = make_point(2, feature_dist={"0,3": 1.0}).state_dict()
    with pytest.raises(ValueError, match="same number of instances and options"):
        env.load_state_dict({**other, "state": before["state"] + 1})
    after = env.state_dict()
    assert torch.equal(before["state"], after["state"])
    assert all(torch.equal(value, after["memory"][name]) for name, value in before["memory"].items())


def test_a_scenario_repeats_the_goals():
    env, other = make_point(seed=1, max_steps=5), make_point(seed=2, max_steps=5)
    env.reset(1)
    scenario = env.scenario()
    run = play(env, 12)
    other.load_scenario(scenario)
    again = play(other, 12)
    assert run["soft_reset"].any()
    assert all(torch.equal(run[name], again[name]) for name in run)


def test_goals_as_episodes():
    options = {"max_steps": 4, "precision": 1e-9, "hard_reset_interval": 3}
    env, plain = make_point(implicit_soft_resets=False, **options), make_point(**{**options, "hard_reset_interval": 0})
    assert torch.equal(env.reset(0)["desired_goal"], plain.reset(0)["desired_goal"])
    run, other = play(env, 11), play(plain, 11)
    assert torch.equal(run["final_obs/observation"], other["final_obs/observation"])  # robots stay as they are
    assert torch.nonzero(run["truncated"][:, 0])[:, 0].tolist() == [3, 7]
    assert not run["terminated"].any()
    assert play(env, 1)["terminated"].all()
    assert not torch.equal(run["obs/desired_goal"][3], run["final_obs/desired_goal"][3])


def test_goals_weighed_by_a_model():
    env = make_point(16, goal_sampling="r", feature_dist={"0,3": 1.0})
    shapes = []

    def prefers_ahead(groups):
        shapes.append({name: value.shape for name, value in groups.items()})
        return np.where(groups["desired_goal"][:, 0] > 0.5, 0.0, 1.0)

    env.call("set_model", prefers_ahead, 1.0)
    obs = env.reset(0)
    assert float((obs["desired_goal"][:, 0] > 0.5).double().mean()) > 0.5
    assert shapes[-1] == {"observation": (2048, 9), "desired_goal": (2048, 2), "task": (2048, 2)}


@pytest.mark.parametrize(
    ("error", "options", "words"),
    [
        (ValueError, {"horizon": 3}, "point/skills has no option 'horizon'"),
        (ValueError, {"feature_dist": "0#9"}, "features that body of point does not control"),
        (ValueError, {"feature_dist": {"0": 1.0}}, r"lacks \['heading'\]"),
        (ValueError, {"idle_steps": 2}, "nothing to settle"),
        (ValueError, {"start_range": -1.0}, "start_range is -1; use a number >= 0"),
        (ValueError, {"start_turns": math.nan}, "start_turns is nan; use a number >= 0"),
        (ValueError, {"features": "bodyfeet"}, "no goal space bodyfeet of point"),
        (ValueError, {"backproject_goal": False}, "does not wrap angles"),
        (ValueError, {"reward": "potential5"}, "did you mean"),
    ],
)
def test_mistakes_are_named_at_construction(error, options, words):
    with pytest.raises(error, match=words):
        make_env("point/skills", **options)


def test_a_toy_belongs_to_one_environment():
    toy = PointBot()
    ToyEnv(toy, 2, id="point/skills")
    with pytest.raises(ValueError, match="already belongs to an environment"):
        ToyEnv(toy, 2, id="point/skills")


def test_no_physics_engine_is_loaded():
    code = (
        "import sys; from gaitway import make_env; make_env('point/skills', 2).reset(seed=1); "
        "sys.exit('mujoco' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
