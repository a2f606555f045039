"""make_env finds every kind of environment and helps with wrong names."""

from __future__ import annotations

import copy
import functools
import pickle

import gymnasium
import pytest
import torch

from gaitway.envs.registry import list_envs, make_env
from gaitway.envs.spec import ActionSpec, Component
from gaitway.envs.tasks import NATIVE_TASKS
from gaitway.envs.toys.toy_env import Toy, ToyEnv


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
    with pytest.raises(ValueError, match="there is no module 'no_such_package'"):
        make_env("no_such_package.module:Name")
    words = "no environment 'legged:velocty' .did you mean 'legged:velocity'.., and env.id: the.* module 'legged'"
    with pytest.raises(ValueError, match=words):
        make_env("legged:velocty")


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
    with pytest.raises(ValueError, match="gymnasium:ID, envpool:ID"):
        make_env("xyzzy")


def test_native_tasks_are_suggested_before_gymnasiums():
    with pytest.raises(ValueError, match="did you mean HalfCheetah-v5 or"):
        make_env("HalfCheeta-v5")


@pytest.mark.parametrize("wrong", ["HalfCheetah-v3", "Ant-v2", "GymV21Environment-v0", "GymV26Environments-v0"])
def test_ids_that_gymnasium_cannot_make_are_not_suggested(wrong):
    with pytest.raises(ValueError, match="no environment") as error:
        make_env(wrong)
    suggestion = str(error.value).partition("; ")[2]
    assert not any(word in suggestion for word in ("-v2", "-v3", "GymV2"))


@pytest.mark.parametrize("number", [0, -1, 2.5, True])
def test_batch_sizes_are_checked(number):
    with pytest.raises(ValueError, match="positive integer"):
        make_env("toy/cue", num_envs=number)


def test_types_are_checked():
    with pytest.raises(ValueError, match="'int32'"):
        make_env("toy/cue", dtype="int32")
    for id in (None, 3, ["toy/cue"]):
        with pytest.raises(TypeError, match="use a string such as 'walker/run'"):
            make_env(id)


@pytest.mark.parametrize("seed", [1.5, "1", None, True, -1])
def test_seeds_are_checked(seed):
    with pytest.raises(ValueError, match="use an integer >= 0"):
        make_env("toy/cue", seed=seed)
    assert make_env("toy/cue", num_envs=2, seed=range(2)).num_envs == 2


def test_devices_are_checked(monkeypatch):
    with pytest.raises(ValueError, match="device is 'gpu'; use cpu, cuda or cuda:0"):
        make_env("toy/cue", device="gpu")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match="device is 'cuda', but torch finds no GPU; use device=cpu"):
        make_env("toy/cue", device="cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match="'cuda:1', but torch sees 1 "):
        make_env("toy/cue", device="cuda:1")


def test_the_list_names_and_describes_what_can_be_made():
    infos = {info.id: info for info in list_envs()}
    assert infos["toy/cue"].kind == "toy"
    assert infos["toy/cue"].description.startswith("Remember a sign")
    assert infos["gymnasium:CartPole-v1"].kind == "gymnasium"
    assert all(info.description for info in infos.values())
    assert set(NATIVE_TASKS) <= set(infos)
    assert "gymnasium:HalfCheetah-v4" in infos
    left_out = {"HalfCheetah-v2", "HalfCheetah-v3", "Reacher-v2", "GymV21Environment-v0", "GymV26Environment-v0"}
    assert not {f"gymnasium:{name}" for name in left_out} & set(infos)


def test_descriptions_are_plain_sentences():
    gymnasium.register("GaitwayLambda-v0", entry_point=lambda: gymnasium.make("CartPole-v1"))
    gymnasium.register("GaitwayPartial-v0", entry_point=functools.partial(gymnasium.make, "CartPole-v1"))
    try:
        infos = {info.id: info.description for info in list_envs()}
    finally:
        del gymnasium.registry["GaitwayLambda-v0"], gymnasium.registry["GaitwayPartial-v0"]
    assert "gymnasium:GaitwayLambda-v0" in infos
    assert "gymnasium:GaitwayPartial-v0" in infos
    assert not any(sign in text for text in infos.values() for sign in ("<", " at 0x", "\n"))
    assert infos["gymnasium:CartPole-v1"].startswith("CartPoleEnv of gymnasium.envs.classic_control")
    native = {name: infos[name] for name in NATIVE_TASKS}
    assert len(set(native.values())) == len(native)
    assert not any(name in text for name, text in native.items())


def test_choices_that_do_not_exist_are_refused():
    env = make_env("toy/cartpole", num_envs=2)
    with pytest.raises(ValueError, match=r"the action of instance 1 is 7 in .*; use 0..1"):
        env.step(torch.tensor([0, 7]))


@pytest.mark.parametrize("id", ["toy/cartpole", "Hopper-v5", "gymnasium:CartPole-v1"])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))], ids=["copy", "sent"])
def test_a_copy_of_an_environment_goes_on_by_itself(id, copied):
    env = make_env(id, num_envs=3, seed=4, wrappers=[{"name": "history", "length": 2}] if id == "Hopper-v5" else [])
    shape = (3, *env.spec.action.shape)
    action = torch.zeros(shape, dtype=env.spec.action.dtype)
    for _ in range(4):
        env.step(action)
    twin = copied(env)
    rows = [[each.step(action) for _ in range(3)] for each in (env, twin)]
    for ours, theirs in zip(*rows, strict=True):
        for name, value in ours.obs.items():
            assert torch.equal(value, theirs.obs[name])
        assert torch.equal(ours.reward, theirs.reward)
        assert bool((ours.reward != 0).any())
    env.step(action)
    assert not torch.equal(env.elapsed, twin.elapsed)  # apart from each other
