"""make_env finds every kind of environment and helps with wrong names."""

from __future__ import annotations

import pytest
import torch

from gaitway.envs.registry import list_envs, make_env
from gaitway.envs.tasks import NATIVE_TASKS
from gaitway.envs.toy_env import Toy, ToyEnv
from gaitway.envs.vec_env import ActionSpec, Component


class Still(Toy):
    """A user's task: nothing moves."""

    groups = {"policy": (Component("zero"),)}  # noqa: RUF012  read only
    action = ActionSpec("discrete", ("none",), choices=(1,))
    max_episode_steps = 4
    options = {}  # noqa: RUF012

    def draw(self, generator):
        return (0.0,)

    def advance(self, state, action):
        return state, state[:, 0], torch.zeros(len(state), dtype=torch.bool)

    def observe(self, state):
        return {"policy": state}


class StillEnv(ToyEnv):
    def __init__(self, brightness=0, **common):
        super().__init__(Still(), **common)
        self.brightness = brightness


def test_toys_with_options_and_wrappers():
    env = make_env(
        "toy/cue", num_envs=3, seed=[5, 6, 7], dtype="float64", device="cpu", K=2,
        wrappers=[{"name": "history", "length": 2}, {"name": "scale_reward", "scale": 0.5}],
    )  # fmt: skip
    assert env.spec.id == "toy/cue"
    assert env.spec.group_names == ["policy", "policy_history"]
    assert env.spec.group("policy").dtype == "float64"
    assert env.num_envs == 3
    assert env.spec.options == {"K": 2}


def test_purpose_reaches_the_streams():
    train, evaluation = (make_env("toy/pendulum", 2, purpose=purpose) for purpose in ("train", "evaluation"))
    assert not torch.equal(train.reset(0)["pos"], evaluation.reset(0)["pos"])
    with pytest.raises(ValueError, match="'exam'"):
        make_env("toy/pendulum", purpose="exam")


def test_gymnasium_ids():
    with make_env("gymnasium:CartPole-v1", 2, max_episode_steps=7) as env:
        assert env.spec.id == "gymnasium:CartPole-v1"
        assert env.spec.max_episode_steps == 7
    with pytest.raises(ValueError, match="did you mean CartPole-v1"):
        make_env("gymnasium:CartPole-v9")


def test_a_class_of_the_users():
    env = make_env(f"{__name__}:StillEnv", 2, brightness=3, dtype=torch.float64)
    assert env.brightness == 3
    assert env.step(torch.zeros(2, dtype=torch.int64)).reward.dtype == torch.float64
    with pytest.raises(ValueError, match="has no 'Missing'"):
        make_env(f"{__name__}:Missing")
    with pytest.raises(ValueError, match=r"package\.module:Name"):
        make_env("no_such_package.module:Name")


def test_native_tasks():
    id = "InvertedPendulum-v5"
    assert id in NATIVE_TASKS
    with make_env(id, 2, seed=3, num_threads=1) as env:
        assert env.spec.id == id
        assert env.step(torch.zeros(2, len(env.spec.action.names))).reward.shape == (2,)


def test_wrong_names_get_the_nearest_ones():
    for wrong, right in [
        ("toy/que", "toy/cue"),
        ("CartPole-v1", "gymnasium:CartPole-v1"),
        ("toy/pendulums", "toy/pendulum"),
        ("InvertedPendulum-v4", "InvertedPendulum-v5"),
    ]:
        with pytest.raises(ValueError, match=f"did you mean .*{right}"):
            make_env(wrong)
    with pytest.raises(ValueError, match="toy/chain, gymnasium:ID"):
        make_env("xyzzy")


@pytest.mark.parametrize("number", [0, -1, 2.5, True])
def test_batch_sizes_are_checked(number):
    with pytest.raises(ValueError, match="positive integer"):
        make_env("toy/cue", num_envs=number)


def test_types_are_checked():
    with pytest.raises(ValueError, match="'int32'"):
        make_env("toy/cue", dtype="int32")


def test_the_list_names_and_describes_what_can_be_made():
    infos = {info.id: info for info in list_envs()}
    assert infos["toy/cue"].kind == "toy"
    assert infos["toy/cue"].description.startswith("Remember a sign")
    assert infos["gymnasium:CartPole-v1"].kind == "gymnasium"
    assert all(info.description for info in infos.values())
    assert set(NATIVE_TASKS) <= set(infos)


def test_choices_that_do_not_exist_are_refused():
    env = make_env("toy/cartpole", num_envs=2)
    with pytest.raises(ValueError, match=r"the action of instance 1 is 7 in .*; use 0..1"):
        env.step(torch.tensor([0, 7]))
