"""Which results are costs, by the facts of environments and by those of files that anybody may have written."""

import pytest

from gaitway.core.results import COSTS, costs_of, in_order, told
from gaitway.envs.registry import make_env


@pytest.mark.parametrize("facts", [None, {}, 7, {"costs": None}, {"costs": "slip"}, {"costs": [["slip"], 3]}])
def test_what_every_environment_has_is_known_without_facts(facts):
    assert costs_of(facts) == {"fell", "physics_error"} == set(COSTS)


def test_a_legged_task_names_its_own():
    with make_env("pup12/velocity", 1, num_threads=1) as env:
        assert {"velocity_rmsd", "falls_per_1000_s", "fell"} <= env.spec.costs == costs_of(env.spec.to_dict()["facts"])
        assert {"return", "length"}.isdisjoint(env.spec.costs)


def test_what_is_asked_first_comes_first_and_totals_last():
    result = {
        "torques_episode": -0.5,
        "length": 250.0,
        "fell": 0.0,
        "a_episode": 1.0,
        "return": 12.34567,
        "success": 0.5,
    }
    assert in_order(result) == ["success", "return", "length", "fell", "a_episode", "torques_episode"]
    assert told(result) == "success 0.5 return 12.35 length 250 fell 0 a_episode 1 torques_episode -0.5"
