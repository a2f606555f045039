"""Gymnasium ids: which there are, what they stand for, and how they become known."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from dataclasses import fields

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

from gaitway.envs.gym import registration
from gaitway.envs.registry import list_envs
from gaitway.envs.tasks import NATIVE_TASKS
from gaitway.envs.tasks.bisk import BENCHMARK_TASKS
from gaitway.envs.tasks.bisk.base import BiskTask

# pytest puts aside the filter that registering sets
pytestmark = pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")

SPECS = {spec.id: spec for spec in registration.gymnasium_specs()}
TASKS = {
    name: getattr(importlib.import_module(f"gaitway.envs.tasks.bisk.{task.module}"), task.builder)
    for name, task in BENCHMARK_TASKS.items()
}


def run(code: str) -> tuple[str, str]:
    """What a fresh interpreter prints, and what it complains about."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


@pytest.mark.parametrize(
    ("id", "arguments"),
    [
        ("BiskHurdlesWalker-v1", {"task": "walker/hurdles"}),
        ("BiskLimboHumanoid-v2", {"task": "humanoid/limbo-fixed"}),
        ("BiskHurdlesLimboShapedHumanoidPC-v1", {"task": "humanoidpc/hurdleslimbo", "shaped": True}),
        ("BiskGapsCHalfCheetah-v1", {"task": "halfcheetah/gaps", "allow_falls": True}),
        ("BiskStairsShapedCCube-v2", {"task": "cube/stairs-fixed", "shaped": True, "allow_falls": True}),
        ("BiskGoalWallCube2d-v1", {"task": "cube2d/goalwall"}),
        ("BiskPoleBalanceCWalker-v2", {"task": "walker/polebalance-fixed", "allow_falls": True}),
    ],
)
def test_ids_stand_for_native_tasks_and_options(id, arguments):
    assert gymnasium.spec(f"gaitway/{id}").kwargs == arguments


def test_every_native_task_has_its_two_or_four_ids():
    plain = {spec.kwargs["task"] for spec in SPECS.values() if len(spec.kwargs) == 1}
    assert plain == {name for name in NATIVE_TASKS if name.partition("/")[2].removesuffix("-fixed") in BENCHMARK_TASKS}
    assert len(SPECS) == sum(4 if BENCHMARK_TASKS[_task_of(name)].shaped == "option" else 2 for name in plain)
    assert all(spec.id in gymnasium.registry for spec in SPECS.values())


@pytest.mark.parametrize("name", TASKS)
def test_tables_agree_with_the_tasks(name):
    defaults = {field.name: field.default for field in fields(TASKS[name].config_class)}
    assert issubclass(TASKS[name], BiskTask)
    assert ("shaped" in defaults) == (BENCHMARK_TASKS[name].shaped == "option")
    assert defaults["max_episode_steps"] == BENCHMARK_TASKS[name].max_episode_steps
    assert TASKS[name].__name__.removesuffix("Task").lower() == name


def test_what_has_a_shaped_form_alone_is_called_so():
    names = {spec.name for spec in SPECS.values() if _task_of(spec.kwargs["task"]) == "rundir"}
    assert "BiskRunDirShapedWalker" in names
    assert all("Shaped" in name for name in names)


@pytest.mark.parametrize("name", TASKS)
def test_every_id_can_be_made(name):
    made = [spec for spec in SPECS.values() if _task_of(spec.kwargs["task"]) == name]
    assert made
    for spec in made:
        env = gymnasium.make(spec.id, disable_env_checker=True)
        obs, info = env.reset(seed=0)
        assert obs in env.observation_space
        assert info == {}
        assert env.unwrapped._native.env.spec.id == spec.kwargs["task"]
        assert env.spec.max_episode_steps == BENCHMARK_TASKS[name].max_episode_steps
        env.close()


@pytest.mark.filterwarnings("ignore:.*Box observation space (mini|maxi)mum value is -?infinity:UserWarning")
@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize(
    "id",
    ["HurdlesWalker-v1", "GapsShapedHumanoid-v1", "StairsCHalfCheetah-v2", "GoalWallHumanoidPC-v1", "LimboCube-v1"],
)
def test_gymnasiums_own_checker_is_content(id):
    env = gymnasium.make(f"gaitway/Bisk{id}", disable_env_checker=True).unwrapped
    check_env(env, skip_render_check=True)  # a window cannot be opened everywhere; pictures have tests of their own
    env.close()


IDS = ("gaitway/BiskHurdlesWalker-v1", "gaitway:gaitway/BiskHurdlesWalker-v1")


@pytest.mark.parametrize(
    "code",
    [
        f"import gaitway, gymnasium; env = gymnasium.make({IDS[0]!r})",
        f"import gymnasium, gaitway; env = gymnasium.make({IDS[0]!r})",
        f"import gymnasium; env = gymnasium.make({IDS[1]!r})",
        f"import gymnasium; env = gymnasium.make_vec({IDS[1]!r}, 2)",
        f"from gaitway.envs.registry import make_env; import gymnasium; env = gymnasium.make({IDS[0]!r})",
    ],
)
def test_importing_the_library_makes_the_ids_known(code):
    """And makes them without a word: gymnasium would call a v1 out of date because there is a v2."""
    printed, warned = run(f"{code}\nprint(type(env.unwrapped).__name__)")
    assert printed == ("BiskVectorEnv" if "make_vec" in code else "BiskEnv")
    assert "out of date" not in warned


def test_registering_loads_nothing_that_simulates_or_learns():
    heavy = ("torch", "mujoco", "gaitway.envs.gym.export")
    code = f"import sys, json, gaitway, gymnasium; print(json.dumps([n for n in {heavy} if n in sys.modules]))"
    assert json.loads(run(code)[0]) == []


def test_registering_twice_changes_nothing():
    before = dict(gymnasium.registry)
    registration.register_gymnasium_ids()
    assert gymnasium.registry == before


def test_wrong_names_are_answered_with_the_nearest():
    with pytest.raises(gymnasium.error.NameNotFound, match="Did you mean: `BiskHurdlesWalker`"):
        gymnasium.make("gaitway/BiskHurdlesWalkr-v1")
    with pytest.raises(gymnasium.error.NameNotFound):
        gymnasium.make("gaitway/BiskButterfliesWalker-v1")


def test_our_own_list_has_them_once():
    ids = [info.id for info in list_envs()]
    assert "walker/hurdles" in ids
    assert not [id for id in ids if "Bisk" in id]


def _task_of(native: str) -> str:
    return native.partition("/")[2].removesuffix("-fixed")
