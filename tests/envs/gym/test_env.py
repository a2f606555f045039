"""The gymnasium adapter shows the stream of a plain loop over the environments, in every mode, and can resume it."""

from __future__ import annotations

import time
import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from torch.testing import assert_close

from gaitway.envs.check import check_env
from gaitway.envs.gym.env import GymnasiumEnv
from gaitway.envs.gym.spaces import ActionCodec, ObservationCodec
from gaitway.envs.gym.state import decode, encode
from gaitway.envs.vec_env import VecEnv

MODES = list(AutoresetMode)


class Counter(gymnasium.Env):
    """Observation (episode, step), reward the step number; falls after `length` steps. Episode 0 is the first reset."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Box(np.array([-1.0, -2.0], np.float32), np.array([1.0, 2.0], np.float32))
    render_mode = "rgb_array"

    def __init__(self, length=2, **attributes):
        self.length, self.episode, self.steps, self.taken = length, -1, 0, None
        self.__dict__.update(attributes)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.steps = self.episode + 1, 0
        return self._obs(), {}

    def step(self, action):
        self.steps += 1
        self.taken = np.array(action)
        return self._obs(), float(self.steps), self.steps >= self.length, False, {"speed": 10 * self.steps, "name": "x"}

    def render(self):
        return np.arange(12, dtype=np.uint8).reshape(2, 2, 3)

    def greet(self, word):
        return f"{word} {self.steps}"

    def _obs(self):
        return np.array([self.episode, self.steps], dtype=np.float64)


class Sleepy(Counter):
    def step(self, action):
        time.sleep(20)
        return super().step(action)


class Shows(gymnasium.Env):
    """Shows fixed values of a given space and remembers the action."""

    def __init__(self, space, value, action_space=None):
        self.observation_space, self.value = space, value
        self.action_space = action_space or spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return self.value, {}

    def step(self, action):
        self.taken = action
        return self.value, 0.0, False, False, {}


def random_actions(env: VecEnv, steps: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    action = env.spec.action
    if action.kind == "continuous":
        return torch.rand(steps, env.num_envs, len(action.names), generator=generator) * 2 - 1
    return torch.randint(action.choices[0], (steps, env.num_envs), generator=generator)


def roll(env: VecEnv, actions: torch.Tensor) -> torch.Tensor:
    rows = []
    for action in actions:
        step = env.step(action)
        parts = [*step.obs.values(), *step.final_obs.values(), step.reward, step.terminated, step.truncated]
        rows.append(torch.cat([part.double().flatten() for part in parts]))
    return torch.stack(rows)


def seed_of(seed: int, index: int, *spawn_key: int) -> int:
    """Decision 8, written out once more."""
    return int(np.random.SeedSequence([seed, index, 0], spawn_key=spawn_key).generate_state(1)[0])


def test_an_id_gives_the_stream_of_a_plain_loop():
    env = GymnasiumEnv("CartPole-v1", 3, seed=4, max_episode_steps=15)
    actions = random_actions(env, 60)
    plain = [gymnasium.make("CartPole-v1", max_episode_steps=15) for _ in range(3)]
    first = [single.reset(seed=seed_of(4, index))[0] for index, single in enumerate(plain)]
    assert torch.equal(env.reset(4)["policy"], torch.tensor(np.array(first)))
    ends = {"fall": 0, "time": 0}
    for action in actions:
        step = env.step(action)
        for index, single in enumerate(plain):
            obs, reward, terminated, truncated, _ = single.step(int(action[index]))
            assert np.array_equal(step.final_obs["policy"][index], obs)
            assert (step.reward[index], step.terminated[index]) == (reward, terminated)
            assert step.truncated[index] == (truncated and not terminated)
            if terminated or truncated:
                ends["fall" if terminated else "time"] += 1
                obs, _ = single.reset()
            assert np.array_equal(step.obs["policy"][index], obs)
    assert ends["fall"] > 2
    assert ends["time"] > 2
    assert env.spec.max_episode_steps == 15
    assert env.spec.options == {"max_episode_steps": 15}


def test_seeds_by_list_and_purpose():
    env = GymnasiumEnv("CartPole-v1", 3, seed=4)
    alone = GymnasiumEnv("CartPole-v1", 1, seed=[9])
    assert torch.equal(env.reset([4, 9, 4])["policy"][1:2], alone.reset([9])["policy"])
    assert torch.equal(env.reset([4, 9, 4])["policy"][0], env.reset(4)["policy"][0])
    train = env.reset(4)["policy"].clone()
    evaluation = GymnasiumEnv("CartPole-v1", 3, seed=4, purpose="evaluation")
    plain = gymnasium.make("CartPole-v1").reset(seed=seed_of(4, 2, 1))[0]
    assert np.array_equal(evaluation.reset(4)["policy"][2], plain)
    assert not torch.equal(evaluation.reset(4)["policy"], train)
    assert not torch.equal(env.reset()["policy"], train), "reset() goes on with the next episodes"


def test_processes_give_the_same_numbers_as_one_process():
    sync = GymnasiumEnv("CartPole-v1", 2, seed=3, max_episode_steps=15)
    actions = random_actions(sync, 40)
    options = {"context": "fork", "shared_memory": False, "copy": True, "daemon": True, "reset_timeout_s": 60.0}
    for async_options in ({"context": "fork", "step_timeout_s": 60.0}, options):
        with GymnasiumEnv(
            "CartPole-v1", 2, seed=3, vectorization="async", async_options=async_options, max_episode_steps=15
        ) as env:
            assert not env.spec.exact_state
            assert env.spec.max_episode_steps == 15
            named = {"max_episode_steps": 15, "vectorization": "async", "async_options": async_options}
            assert env.spec.options == named
            sync.reset(3)
            assert torch.equal(roll(sync, actions), roll(env, actions))
            env.set_elapsed(torch.tensor([14, 3]))
            assert env.step(actions[0]).truncated.tolist() == [True, False]
            with pytest.warns(UserWarning, match="cannot be restored"):
                env.load_state_dict(env.state_dict())
    with pytest.raises(ValueError, match="did you mean 'context'"):
        GymnasiumEnv("CartPole-v1", async_options={"contxt": "fork"})


def test_a_slow_process_is_a_timeout_that_names_its_option():
    options = {"context": "fork", "step_timeout_s": 0.3}
    env = GymnasiumEnv([Sleepy], vectorization="async", async_options=options)
    with pytest.raises(TimeoutError, match=r"async_options\.step_timeout_s"):
        env.step(torch.zeros(1, 2))
    env.close()


@pytest.mark.parametrize("vector_class", [SyncVectorEnv, AsyncVectorEnv])
@pytest.mark.parametrize("mode", MODES)
def test_ready_vectors_in_every_mode(mode, vector_class):
    """Two instances with episodes of 2 and 3 steps, written out by hand."""
    factories = [lambda: Counter(2), lambda: Counter(3)]
    with GymnasiumEnv(vector_class(factories, autoreset_mode=mode)) as env:
        assert env.num_envs == 2
        assert env.spec.reset_rows == (mode is AutoresetMode.NEXT_STEP)
        copies = [copy_of(env.step(torch.zeros(2, 2))) for _ in range(5)]
        if mode is AutoresetMode.NEXT_STEP:
            assert [row["obs"][0] for row in copies] == [[0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
            assert [row["obs"][1] for row in copies] == [[0, 1], [0, 2], [0, 3], [1, 0], [1, 1]]
            assert all(row["final"] == row["obs"] for row in copies)
            assert [row["valid"] for row in copies] == [[1, 1], [1, 1], [0, 1], [1, 0], [1, 1]]
            assert [row["reward"] for row in copies] == [[1, 1], [2, 2], [0, 3], [1, 0], [2, 1]]
            assert [row["terminated"] for row in copies] == [[0, 0], [1, 0], [0, 1], [0, 0], [1, 0]]
            assert env.elapsed.tolist() == [2, 1]
        else:
            assert [row["obs"][0] for row in copies] == [[0, 1], [1, 0], [1, 1], [2, 0], [2, 1]]
            assert [row["obs"][1] for row in copies] == [[0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
            assert [row["final"][0] for row in copies] == [[0, 1], [0, 2], [1, 1], [1, 2], [2, 1]]
            assert [row["final"][1] for row in copies] == [[0, 1], [0, 2], [0, 3], [1, 1], [1, 2]]
            assert [row["valid"] for row in copies] == [None] * 5
            assert [row["reward"] for row in copies] == [[1, 1], [2, 2], [1, 3], [2, 1], [1, 2]]
            assert env.elapsed.tolist() == [1, 2]


def test_nothing_happens_in_a_reset_row_whatever_the_environment_says():
    class Chatty(SyncVectorEnv):
        def step(self, actions):
            obs, reward, terminated, truncated, infos = super().step(actions)
            resetting = obs[:, 1] == 0
            return obs, np.where(resetting, 7.0, reward), terminated, truncated | resetting, infos

    env = GymnasiumEnv(Chatty([lambda: Counter(2)]))
    steps = [env.step(torch.zeros(1, 2)) for _ in range(2)]
    assert [steps[1].terminated.item(), steps[1].valid.item()] == [True, True]
    row = env.step(torch.zeros(1, 2))
    assert (row.valid.item(), row.reward.item(), row.truncated.item()) == (False, 0.0, False)


def copy_of(step):
    return {
        "obs": step.obs["policy"].tolist(),
        "final": step.final_obs["policy"].tolist(),
        "reward": step.reward.tolist(),
        "terminated": step.terminated.tolist(),
        "valid": None if step.valid is None else step.valid.tolist(),
    }


@pytest.mark.parametrize("mode", MODES)
def test_check_env_accepts_every_mode(mode):
    def build(num_envs: int, seed: int) -> VecEnv:
        factories = [lambda: gymnasium.make("CartPole-v1", max_episode_steps=12)] * num_envs
        return GymnasiumEnv(SyncVectorEnv(factories, autoreset_mode=mode), seed=seed)

    report = check_env(build, steps=40)
    assert report.ok, report


@pytest.mark.parametrize(
    "id",
    ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "FrozenLake-v1", "HalfCheetah-v5", "Humanoid-v5"],
)
def test_resuming_is_exact_to_the_bit(id):
    env = GymnasiumEnv(id, 2, seed=1, max_episode_steps=25)
    assert env.spec.exact_state
    actions = random_actions(env, 60)
    roll(env, actions[:20])
    state, ages = env.state_dict(), env.elapsed
    expected = roll(env, actions[20:])
    other = GymnasiumEnv(id, 2, seed=8, max_episode_steps=25)
    roll(other, actions[:7])
    other.load_state_dict(state)
    assert torch.equal(other.elapsed, ages)
    assert torch.equal(roll(other, actions[20:]), expected)


@pytest.mark.parametrize("id", ["Pendulum-v1", "FrozenLake-v1"])
def test_check_env_accepts_ids(id):
    report = check_env(lambda num_envs, seed: GymnasiumEnv(id, num_envs, seed, max_episode_steps=12), steps=30)
    assert report.ok, report


def test_state_that_nobody_understands_makes_new_episodes_and_a_warning():
    env = GymnasiumEnv(lambda: Counter(5, machine=object()), 2)
    assert not env.spec.exact_state
    env.step(torch.zeros(2, 2))
    state = env.state_dict()
    assert state["instances"] == []
    with pytest.warns(UserWarning, match=r"Counter\.machine"):
        obs = env.load_state_dict(state)
    assert obs["policy"][:, 1].tolist() == [0.0, 0.0]
    assert env.elapsed.tolist() == [0, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.load_state_dict(state)
    with pytest.raises(ValueError, match="holds 2 instances"):
        GymnasiumEnv(Counter, 3).load_state_dict(state)


def test_check_env_accepts_an_environment_whose_state_cannot_be_stored():
    def cartpole_with_a_secret() -> gymnasium.Env:
        env = gymnasium.make("CartPole-v1", max_episode_steps=12)
        env.unwrapped.machine = object()
        return env

    env = GymnasiumEnv(cartpole_with_a_secret, 2, seed=3)
    state = env.state_dict()
    with pytest.warns(UserWarning, match=r"CartPoleEnv\.machine"):
        fresh = env.load_state_dict(state)["policy"].clone()
    expected = gymnasium.make("CartPole-v1").reset(
        seed=int(np.random.SeedSequence([3, 1, 1]).generate_state(1)[0])  # the first restart of instance 1
    )[0]
    assert np.array_equal(fresh[1], expected)
    report = check_env(lambda num_envs, seed: GymnasiumEnv(cartpole_with_a_secret, num_envs, seed), steps=30)
    assert report.ok, report


def test_values_survive_encoding_with_their_types():
    values = [
        None, True, 3, 2**100, -0.0, float("inf"), "text", (1, [2.5, None], {"a": (1,)}), {3: {1, 2}}, [],
        np.float32(0.1), np.int64(7), np.bool_(True), np.array([[1, 2]], np.uint16), np.array(b"ab"), np.zeros((0, 3)),
    ]  # fmt: skip
    for value in values:
        back = decode(encode(value))
        assert type(back) is type(value)
        assert np.array_equal(back, value) if isinstance(value, np.ndarray) else back == value
    assert decode(encode(np.array([1.5], np.float16))).dtype == np.float16
    assert np.isnan(decode(encode(float("nan"))))
    generator = np.random.Generator(np.random.MT19937(3))
    twin = decode(encode(generator))
    assert np.array_equal(generator.random(5), twin.random(5))


def test_actions_are_clipped_on_the_way_in_only():
    env = GymnasiumEnv(Counter, 2)
    action = torch.tensor([[5.0, -1.5], [-5.0, 9.0]])
    env.step(action)
    assert action.tolist() == [[5.0, -1.5], [-5.0, 9.0]]
    taken = [single.taken for single in env._single_envs()]
    assert_close(np.array(taken), np.array([[1.0, -1.5], [-1.0, 2.0]], np.float32))
    with pytest.raises(ValueError, match="instance 1 is nan"):
        env.step(torch.tensor([[0.0, 0.0], [float("nan"), 0.0]]))


def test_termination_wins_over_a_time_limit_in_the_same_step():
    env = GymnasiumEnv([lambda: gymnasium.wrappers.TimeLimit(Counter(2), 2)])
    env.step(torch.zeros(1, 2))
    step = env.step(torch.zeros(1, 2))
    assert (step.terminated.item(), step.truncated.item()) == (True, False)
    assert env.spec.max_episode_steps == 2


def test_metrics_are_those_of_the_step_also_where_an_episode_ends():
    for vectorization in ("sync", "async"):
        with GymnasiumEnv(
            [lambda: Counter(2), lambda: Counter(3)],
            vectorization=vectorization,
            metrics=("speed",),
            async_options={"context": "fork"},
        ) as env:
            speeds = [env.step(torch.zeros(2, 2)).metrics["speed"].tolist() for _ in range(3)]
            assert speeds == [[10, 10], [20, 20], [10, 30]]
    ready = GymnasiumEnv(SyncVectorEnv([lambda: Counter(2)]), metrics=("speed",))
    assert [ready.step(torch.zeros(1, 2)).metrics["speed"].item() for _ in range(4)] == [10, 20, 0, 10]
    with pytest.raises(KeyError, match="'wind'"):
        GymnasiumEnv(Counter, metrics=("wind",)).step(torch.zeros(1, 2))


def test_ages():
    env = GymnasiumEnv("Pendulum-v1", 3)
    env.set_elapsed(torch.tensor([199, 5, 198]))
    assert env.elapsed.tolist() == [199, 5, 198]
    assert env.step(torch.zeros(3, 1)).truncated.tolist() == [True, False, False]
    assert env.elapsed.tolist() == [0, 6, 199]
    with pytest.raises(ValueError, match=r"0\.\.199"):
        env.set_elapsed(torch.tensor([200, 0, 0]))
    with pytest.raises(ValueError, match="stagger_timeouts"):
        GymnasiumEnv(Counter, 1).set_elapsed(torch.zeros(1))
    assert env.spec.control_dt == 0.05


def test_pictures_calls_and_closing():
    env = GymnasiumEnv(Counter, 2)
    picture = env.render(1, width=4, height=2)
    assert picture.shape == (2, 4, 3)
    assert picture[0, 0].tolist() == picture[0, 1].tolist() == [0, 1, 2]
    assert picture[1, 3].tolist() == [9, 10, 11]
    assert env.call("greet", "hello") == ("hello 0", "hello 0")
    env.close()
    env.close()
    with pytest.raises(ValueError, match="render_mode='rgb_array'"):
        GymnasiumEnv("CartPole-v1").render()


def test_a_vector_environment_with_one_generator():
    env = GymnasiumEnv(gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="vector_entry_point"), seed=5)
    first = env.reset(5)["policy"].clone()
    assert env.spec.reset_rows
    assert env.spec.max_episode_steps == 500
    assert not env.spec.exact_state
    assert torch.equal(env.reset(5)["policy"], first)
    assert not torch.equal(env.reset(6)["policy"], first)
    silent = SyncVectorEnv([Counter])
    del silent.metadata["autoreset_mode"]
    with pytest.raises(ValueError, match=r"metadata\['autoreset_mode'\]"):
        GymnasiumEnv(silent)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="CartPole-v1"):
        GymnasiumEnv("CartPole-v7")
    with pytest.raises(ValueError, match="HalfCheetah-v5"):
        GymnasiumEnv("HalfCheeta-v5")
    with pytest.raises(ValueError, match="'sync' or 'async'"):
        GymnasiumEnv("CartPole-v1", vectorization="threads")
    with pytest.raises(ValueError, match=r"go to gymnasium\.make"):
        GymnasiumEnv(Counter, length=3)
    with pytest.raises(ValueError, match="at least 1"):
        GymnasiumEnv("CartPole-v1", 0)


def test_bad_numbers_are_passed_on_and_check_env_reports_them():
    class Bad(Counter):
        def step(self, action):
            obs, _, *rest = super().step(action)
            return obs * np.nan, np.inf, *rest

    step = GymnasiumEnv(lambda: Bad(9)).step(torch.zeros(1, 2))
    assert torch.isnan(step.obs["policy"]).all()
    assert step.reward.item() == float("inf")
    problems = check_env(lambda num_envs, seed: GymnasiumEnv(lambda: Bad(9), num_envs, seed)).problems
    assert any("the reward of instance 0 is not finite" in sentence for sentence in problems)
    assert any("group 'policy' of the observation" in sentence for sentence in problems)


NESTED = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (2, 2, 1), np.uint8),
        "inner": spaces.Tuple([spaces.Discrete(3, start=5), spaces.MultiBinary(2)]),
        "count": spaces.Box(-9, 9, (2,), np.int32),
        "scalar": spaces.Box(-1.0, 1.0, (), np.float64),
        "pair": spaces.MultiDiscrete([2, 3]),
    }
)


def test_nested_observations_become_groups():
    value = {
        "image": np.full((2, 2, 1), 200, np.uint8),
        "inner": (np.int64(6), np.array([1, 0], np.int8)),
        "count": np.array([-3, 4], np.int32),
        "scalar": np.float64(0.25),
        "pair": np.array([1, 2]),
    }
    env = GymnasiumEnv(lambda: Shows(NESTED, value), 2)
    obs = env.step(torch.zeros(2, dtype=torch.int64)).obs
    expected = {
        "count": ([-3, 4], torch.int64),
        "image": ([[[200], [200]], [[200], [200]]], torch.uint8),
        "inner/0": ([0.0, 1.0, 0.0], torch.float32),
        "inner/1": ([1.0, 0.0], torch.float32),
        "pair": ([0.0, 1.0, 0.0, 0.0, 1.0], torch.float32),
        "scalar": ([0.25], torch.float32),
    }
    assert set(obs) == set(expected)
    assert list(obs) == env.spec.group_names
    for name, (numbers, dtype) in expected.items():
        assert obs[name].dtype == dtype
        assert obs[name].tolist() == [numbers, numbers]
    assert [part.name for part in env.spec.group("inner/0").components] == ["inner/0=5", "inner/0=6", "inner/0=7"]
    assert [part.name for part in env.spec.group("pair").components][1:3] == ["pair_0=1", "pair_1=0"]
    assert env.spec.group("image").shape == (2, 2, 1)
    report = check_env(lambda num_envs, seed: GymnasiumEnv(lambda: Shows(NESTED, value), num_envs, seed), steps=20)
    assert report.ok, report


@pytest.mark.parametrize(
    ("space", "group"),
    [
        (spaces.Box(0, 255, (2, 3, 1), np.uint8), (2, 3, 1)),
        (spaces.Box(-9.0, 9.0, (4,), np.float64), (4,)),
        (spaces.Box(-9.0, 9.0, (), np.float32), (1,)),
    ],
)
def test_every_instance_has_its_own_row(space, group):
    values = [np.full(space.shape, number, space.dtype) for number in (3, 1, 2)]
    env = GymnasiumEnv([lambda value=value: Shows(space, value) for value in values])
    for _ in range(2):
        obs = env.step(torch.zeros(3, dtype=torch.int64)).obs["policy"]
        assert obs.shape == (3, *group)
        assert obs.flatten(1).double().mean(1).tolist() == [3.0, 1.0, 2.0]
    env._single_envs()[1].value = np.zeros((*space.shape, 2), space.dtype)
    with pytest.raises(ValueError, match=r"shape|dimension"):
        env.step(torch.zeros(3, dtype=torch.int64))


def test_flat_observations_are_the_group_policy():
    codec = ObservationCodec(spaces.Box(-1, 1, (3,), np.float32), torch.float64)
    assert [(group.name, group.shape, group.dtype) for group in codec.groups] == [("policy", (3,), "float64")]
    assert [part.name for part in codec.groups[0].components] == ["policy_0", "policy_1", "policy_2"]
    with pytest.raises(ValueError, match="Text"):
        ObservationCodec(spaces.Text(3))
    with pytest.raises(ValueError, match="bfloat16"):
        ObservationCodec(spaces.Discrete(3), torch.bfloat16)


@pytest.mark.parametrize(
    ("space", "action", "taken"),
    [
        (spaces.Discrete(3, start=2), torch.tensor([4]), np.array([4])),
        (spaces.MultiDiscrete([2, 3]), torch.tensor([[1, 2]]), np.array([[1, 2]])),
        (spaces.MultiBinary(3), torch.tensor([[1, 0, 1]]), np.array([[1, 0, 1]])),
        (spaces.Box(-1, 1, (2, 2)), torch.tensor([[0.5, 2.0, -3.0, 0.0]]), np.array([[[0.5, 1.0], [-1.0, 0.0]]])),
        (spaces.Box(-1.0, 1.0, ()), torch.tensor([[3.0]]), np.array([1.0])),
    ],
)
def test_actions_reach_the_environment_in_its_own_form(space, action, taken):
    codec = ActionCodec(space)
    values = codec.to_numpy(action)
    assert np.array_equal(values, taken)
    assert values.dtype == space.dtype
    env = GymnasiumEnv(lambda: Shows(spaces.Discrete(2), 0, space))
    assert env.spec.action == codec.spec
    env.step(action)
    (single,) = env._single_envs()
    assert np.array_equal(single.taken, taken[0])
    assert space.contains(np.asarray(single.taken))


def test_choices_outside_the_space_and_unknown_spaces_are_refused():
    with pytest.raises(ValueError, match=r"instance 1 is 5 .* 2 to 4"):
        ActionCodec(spaces.Discrete(3, start=2)).to_numpy(torch.tensor([2, 5]))
    with pytest.raises(ValueError, match="Box of floats, Discrete, MultiDiscrete and MultiBinary"):
        ActionCodec(spaces.Dict({"a": spaces.Discrete(2)}))
    with pytest.raises(ValueError, match="Box of floats"):
        ActionCodec(spaces.Box(0, 9, (2,), np.int64))
