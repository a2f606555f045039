"""Wrappers change what they say they change and pass check_env."""

from __future__ import annotations

import gymnasium
import pytest
import torch
from gymnasium.vector import SyncVectorEnv

from gaitway.envs.check import check_env
from gaitway.envs.gym.env import GymnasiumEnv
from gaitway.envs.toys.toy_env import ToyEnv
from gaitway.envs.toys.toys import CartPole, Pendulum
from gaitway.envs.wrappers import History, ScaleReward, SelectComponents, Wrapper, make_wrapper


class Doubled(Wrapper):
    """A wrapper of a user, found by its path."""

    def __init__(self, env, factor=2):
        super().__init__(env)
        self.factor = factor


def cartpole(num_envs=2, seed=0, limit=12):
    return ToyEnv(CartPole(max_episode_steps=limit), num_envs, seed, id="toy/cartpole")


def next_step_cartpole(num_envs=2, seed=0):
    factories = [lambda: gymnasium.make("CartPole-v1", max_episode_steps=12)] * num_envs
    return GymnasiumEnv(SyncVectorEnv(factories), seed=seed)


def test_selecting_components_by_name_and_position():
    plain, env = cartpole(), SelectComponents(cartpole(), keep={"policy": ["angle", 0]})
    assert [part.name for part in env.spec.group("policy").components] == ["position", "angle"]
    assert env.spec.group("policy").shape == (2,)
    assert torch.equal(env.reset(3)["policy"], plain.reset(3)["policy"][:, [0, 2]])
    for _ in range(15):
        step, expected = env.step(torch.ones(2, dtype=torch.int64)), plain.step(torch.ones(2, dtype=torch.int64))
        assert torch.equal(step.obs["policy"], expected.obs["policy"][:, [0, 2]])
        assert torch.equal(step.final_obs["policy"], expected.final_obs["policy"][:, [0, 2]])
    dropped = SelectComponents(cartpole(), drop={"policy": ["velocity", -1]})
    assert torch.equal(dropped.reset(3)["policy"], env.reset(3)["policy"])


def test_selection_mistakes_are_named():
    for options, words in [
        ({"keep": {"policy": ["speed"]}}, "no component 'speed'"),
        ({"keep": {"policy": [4]}}, "no component 4"),
        ({"keep": {"critic": [0]}}, "no observation group 'critic'"),
    ]:
        with pytest.raises(KeyError, match=words):
            SelectComponents(cartpole(), **options)
    with pytest.raises(ValueError, match="nothing"):
        SelectComponents(cartpole())
    with pytest.raises(ValueError, match="is left"):
        SelectComponents(cartpole(), keep={"policy": []})
    with pytest.raises(ValueError, match="in keep and in drop"):
        SelectComponents(cartpole(), keep={"policy": [0]}, drop={"policy": [1]})


def test_scaling_the_reward():
    plain, env = ToyEnv(Pendulum(), 3), ScaleReward(ToyEnv(Pendulum(), 3), 0.1)
    action = torch.ones(3, 1)
    assert torch.equal(env.step(action).reward, plain.step(action).reward * 0.1)
    with pytest.raises(ValueError, match="other than 0"):
        ScaleReward(plain, 0.0)


def test_history_restarts_with_the_episode_and_ends_with_what_was_reached():
    env = History(cartpole(limit=3), length=2, name="past")
    first = env.reset(0)
    seen = first["policy"].clone()
    assert torch.equal(first["past"], torch.cat([seen, seen], -1))
    for number in range(1, 8):
        step = env.step(torch.tensor([0, 1]))
        reached = step.final_obs["policy"]
        assert torch.equal(step.final_obs["past"], torch.cat([seen, reached], -1))
        done = number % 3 == 0
        assert step.truncated.tolist() == [done, done]
        expected = [step.obs["policy"]] * 2 if done else [seen, reached]
        assert torch.equal(step.obs["past"], torch.cat(expected, -1))
        seen = step.obs["policy"].clone()
    names = [part.name for part in env.spec.group("past").components]
    assert names[0] == "position@-1"
    assert names[4] == "position@0"


def test_history_over_reset_rows():
    env = History(next_step_cartpole(1), length=2)
    seen = env.reset(0)["policy"].clone()
    resets = 0
    for _ in range(40):
        step = env.step(torch.tensor([1]))
        fresh = not step.valid.item()
        resets += fresh
        expected = [step.obs["policy"]] * 2 if fresh else [seen, step.obs["policy"]]
        assert torch.equal(step.obs["policy_history"], torch.cat(expected, -1))
        assert torch.equal(step.final_obs["policy_history"], step.obs["policy_history"])
        seen = step.obs["policy"].clone()
    assert resets > 1


def test_history_mistakes_are_named():
    with pytest.raises(ValueError, match="length is 0"):
        History(cartpole(), length=0)
    with pytest.raises(ValueError, match="already has a group 'policy'"):
        History(cartpole(), name="policy")
    with pytest.raises(KeyError, match="no observation group 'pos'"):
        History(cartpole(), group="pos")


@pytest.mark.parametrize(
    "options",
    [
        [{"name": "select_components", "keep": {"policy": [0, 2]}}],
        [{"name": "scale_reward", "scale": 0.5}],
        [{"name": "history", "length": 3}],
        [{"name": "history", "length": 2}, {"name": "select_components", "drop": {"policy_history": [0]}}],
    ],
)
@pytest.mark.parametrize("build", [cartpole, next_step_cartpole])
def test_wrapped_environments_are_sound(options, build):
    def wrapped(num_envs, seed):
        env = build(num_envs, seed)
        for entry in options:
            env = make_wrapper(env, entry)
        return env

    report = check_env(wrapped, steps=30)
    assert report.ok, report


def test_everything_else_is_forwarded():
    env = make_wrapper(next_step_cartpole(), {"name": f"{__name__}:Doubled", "factor": 3})
    assert env.factor == 3
    assert env.spec is env.env.spec
    assert env.call("get_wrapper_attr", "gravity") == (9.8, 9.8)
    env.set_elapsed(torch.tensor([3, 4]))
    assert env.elapsed.tolist() == [3, 4]
    with pytest.raises(ValueError, match="rgb_array"):
        env.render()
    with pytest.raises(ValueError, match="no scenarios"):
        env.scenario()
    env.close()


def test_wrapper_names():
    with pytest.raises(ValueError, match="did you mean 'scale_reward'"):
        make_wrapper(cartpole(), {"name": "scale_rewards", "scale": 2})
    with pytest.raises(ValueError, match="has no name"):
        make_wrapper(cartpole(), {"scale": 2})


@pytest.mark.parametrize("name", ["os:system", "builtins:dict", "gymnasium:Wrapper"])
def test_what_wraps_no_environment_is_not_called(name):
    with pytest.raises(ValueError, match=f"'{name}' cannot be used here, it wraps no environment"):
        make_wrapper(cartpole(), {"name": name})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": f"{__name__}:Nope"}, f"the module '{__name__}' has no 'Nope'"),
        ({"name": f"{__name__}:Dubled"}, "did you mean 'Doubled'"),
        ({"name": "no_such_package:Nope"}, "there is no module 'no_such_package'"),
        ({"name": f"{__name__}:__name__"}, "name a class or a function"),
        (
            {"name": "history", "lenth": 3},
            r"no option 'lenth' \(did you mean 'length'\?\); it has group, length$",
        ),
        ({"name": f"{__name__}:Doubled", "factr": 3}, "did you mean 'factor'"),
        ({"name": "scale_reward"}, "scale_reward needs scale; write {name: scale_reward, scale: ...}"),
        ({"name": "xyzzy"}, r"^env.wrappers: there is no 'xyzzy'; use one of features, .* or package\.module:Class$"),
        ("history", "env.wrappers is 'history', which has no name"),
        ({"name": "history", "length": "long"}, "env.wrappers.length is the text 'long'; expected an integer"),
        ({"name": "history", "length": 0}, "env.wrappers.length is 0"),
        ({"name": "history", "group": "pos"}, "env.wrappers: .* has no observation group 'pos'"),
        ({"name": "history", "env": "toy/cartpole"}, "history has no option 'env'"),
        ({"name": "builtins:object"}, "'builtins:object' cannot be used here"),
    ],
)
def test_mistakes_in_a_configuration_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        make_wrapper(cartpole(), options)
