"""What an environment says of itself, on paper and back."""

import json
import math
from dataclasses import replace

import pytest

from gaitway.core.files import finite
from gaitway.envs.registry import make_env
from gaitway.envs.spec import ActionSpec, Component, Drive, EnvSpec, ObservationGroup

GROUP = ObservationGroup("policy", (Component("joints", 2, "rad"), Component("speed", 1, "m/s")), (3,))
ACTION = ActionSpec("continuous", ("hip", "knee"), (-1.0, -1.0), (1.0, 1.0), unit="rad")
SPEC = EnvSpec("robot", (GROUP,), ACTION, control_dt=0.02, max_episode_steps=100)


def on_disk(spec):
    return json.loads(json.dumps(finite(spec.to_dict()), allow_nan=False))


class TestContract:
    def test_what_is_not_said_is_not_written(self):
        plain = on_disk(SPEC)
        assert plain["groups"][0]["components"][0] == {"name": "joints", "size": 2, "unit": "rad"}
        assert set(plain["action"]) == {"kind", "names", "low", "high", "choices", "start", "unit"}
        assert EnvSpec.from_dict(plain) == SPEC

    def test_scales_and_histories_travel(self):
        joints = Component("joints", 6, "rad", scale=0.5, history=3)
        group = replace(GROUP, components=(joints, Component("speed", 1, "m/s", steps_ago=2)), shape=(7,))
        said = replace(SPEC, groups=(group,), action=replace(ACTION, scale=(0.25, 0.5), offset=(0.1, -0.8)))
        found = EnvSpec.from_dict(on_disk(said))
        assert found == said
        assert found.groups[0].components[0] == joints
        assert found.groups[0].components[1].steps_ago == 2
        assert found.action.offset == (0.1, -0.8)

    def test_what_a_robot_needs_travels(self):
        drive = Drive(("hip", "knee"), (0.0, 0.9), (60.0, 60.0), (1.5, 1.5), (23.7, 35.5), physics_dt=0.005)
        speed = Component("speed", 1, "m/s", scale=2.0, offset=0.5, clip=100.0, noise=0.1, frame="base")
        group = replace(GROUP, components=(GROUP.components[0], speed))
        said = replace(SPEC, groups=(group,), drive=drive, action=replace(ACTION, meaning="joint_offset"))
        found = EnvSpec.from_dict(on_disk(said))
        assert found == said
        assert (found.groups[0].components[1].noise, found.drive) == (0.1, drive)
        assert replace(speed, noise=0.0) == speed  # a policy does not mind less noise
        with pytest.raises(ValueError, match="kp has 1 numbers for 2 joints"):
            replace(drive, kp=(60.0,))

    def test_limits_that_are_not_there_are_read_back(self):
        free = replace(SPEC, action=replace(ACTION, low=(-math.inf, -1.0), high=(math.inf, 2.0)))
        assert on_disk(free)["action"]["low"] == [None, -1.0]  # JSON has no infinities
        assert EnvSpec.from_dict(on_disk(free)) == free

    def test_another_scale_is_another_number(self):
        assert Component("x", 1, "m", scale=2.0) != Component("x", 1, "m")
        assert Component("x@-1", 1, "m", steps_ago=1) == Component("x@-1", 1, "m")  # old contracts have the name alone

    @pytest.mark.parametrize(
        ("make", "words"),
        [
            (lambda: Component("joints", 5, history=2), "'joints' has a size of 5, which 2 steps"),
            (lambda: replace(ACTION, scale=(1.0,)), "scale has 1 numbers for 2 continuous actions"),
            (
                lambda: ActionSpec("discrete", ("push",), choices=(2,), offset=(1.0,)),
                "offset has 1 numbers for 1 discr",
            ),
        ],
    )
    def test_sizes_that_do_not_fit_are_refused(self, make, words):
        with pytest.raises(ValueError, match=words):
            make()


def test_the_history_wrapper_says_how_old_its_components_are():
    with make_env("toy/pendulum", num_envs=1, wrappers=({"name": "history", "group": "vel", "length": 3},)) as env:
        components = env.spec.group("vel_history").components
    assert [part.steps_ago for part in components] == [2, 1, 0]
    assert [part.name.rpartition("@")[2] for part in components] == ["-2", "-1", "0"]
