"""Native environments for other libraries: what is seen, told and drawn, seeds, options and limits."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from export_cases import ID, NATIVE, make_vec, row_of, table
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode

from gaitway.envs.gym import export as gymnasium_export
from gaitway.envs.gym.export import BiskEnv
from gaitway.envs.pictures.render import rendering_problem
from gaitway.envs.pictures.viewer import ScreenError
from gaitway.envs.registry import make_env

pytestmark = pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")
needs_gl = pytest.mark.skipif(rendering_problem() is not None, reason=str(rendering_problem()))


def test_scores_are_summed():
    env = gymnasium.make("gaitway/BiskPoleBalanceWalker-v1", max_episode_steps=5)
    env.reset(seed=0)
    infos = [env.step(np.zeros(6, dtype=np.float32))[-1] for _ in range(3)]
    assert [info["score"] for info in infos] == [1.0, 1.0, 1.0]
    assert [info["episode_score"] for info in infos] == [1.0, 2.0, 3.0]
    assert infos[2] == {
        **{"score": 1.0, "fell_over": False, "physics_error": False},
        **{"episode_score": 3.0, "episode_return": 3.0, "episode_length": 3},
    }


@pytest.mark.parametrize(
    ("task", "key", "walker", "humanoid"),
    [
        ("Hurdles", "next_hurdle", 3, 3),
        ("Limbo", "next_bar", 3, 3),
        ("HurdlesLimbo", "next_obstacle", 4, 4),
        ("Gaps", "next_gap_platform", 3, 3),
        ("Stairs", "next_steps", 3, 3),
        ("GoalWall", "ball", 6, 9),
        ("PoleBalance", "pole", 2, 7),
    ],
)
def test_keys_and_sizes_are_those_of_the_benchmark(task, key, walker, humanoid):
    for robot, size, features, num_actions in (("Walker", walker, 60, 6), ("Humanoid", humanoid, 151, 21)):
        env = gymnasium.make(f"gaitway/Bisk{task}{robot}-v1")
        obs, _ = env.reset(seed=0)
        assert [(name, value.shape, value.dtype) for name, value in obs.items()] == [
            (key, (size,), np.float32),
            ("observation", (features,), np.float32),
        ]
        assert list(env.observation_space) == list(obs)
        flat = gymnasium.wrappers.FlattenObservation(env).reset(seed=0)[0]
        native = make_env(f"{robot.lower()}/{task.lower()}", seed=[0])
        assert np.array_equal(
            flat, native.reset([0])["policy"][0].numpy()
        )  # the order of the vector that baselines read
        assert env.action_space == gymnasium.spaces.Box(-1.0, 1.0, (num_actions,), np.float32)
        env.close()


def test_vectors_of_single_environments_keep_the_order_of_keys():
    sync = gymnasium.make_vec("gaitway/BiskPoleBalanceWalker-v1", 2, "sync", disable_env_checker=True)
    obs, _ = sync.reset(seed=0)
    assert list(sync.observation_space) == list(obs) == ["pole", "observation"]  # not the alphabet's


def test_options_reach_the_task():
    env = gymnasium.make(ID, fixed_height=True, max_height=0.2, goal_space=True, dtype="float64")
    obs, _ = env.reset(seed=1)
    assert env.unwrapped._native.env.task.config.max_height == 0.2
    assert list(obs) == list(env.observation_space) == ["next_hurdle", "observation", "goal_space"]
    assert {value.dtype for value in obs.values()} == {np.dtype(np.float64)}
    assert obs in env.observation_space
    vector = gymnasium.make_vec(ID, 2, fixed_height=True, max_height=0.2, goal_space=True, dtype="float64")
    many, _ = vector.reset(seed=1)
    assert many in vector.observation_space
    assert data_equivalence(row_of(many, 0), obs, exact=True)


def test_the_corrected_edition_differs_where_the_first_one_errs():
    poles = [gymnasium.make(f"gaitway/BiskPoleBalanceWalker-v{n}").reset(seed=0)[0]["pole"] for n in (1, 2)]
    assert poles[0][0] == poles[1][0]
    assert poles[0][1] != poles[1][1]


@pytest.mark.parametrize("make", [gymnasium.make, gymnasium.make_vec])
def test_wrong_arguments_are_explained(make):
    with pytest.raises(TypeError, match=r"walker/hurdles has no option 'fixed_heigth' \(did you mean 'fixed_height'"):
        make(ID, fixed_heigth=True)
    with pytest.raises(TypeError, match="'fixed_height' of walker/hurdles is 'yes'; it takes bool"):
        make(ID, fixed_height="yes")
    with pytest.raises(TypeError, match="walker/polebalance has no option 'shaped'"):
        make("gaitway/BiskPoleBalanceWalker-v1", shaped=True)
    with pytest.raises(ValueError, match=r"observations are torch\.float32 or torch\.float64"):
        make(ID, dtype="float16")


def test_wrong_tasks_and_modes_are_explained():
    with pytest.raises(ValueError, match=r"no native task 'walkr/hurdles' \(did you mean 'walker/hurdles'"):
        BiskEnv("walkr/hurdles")
    with pytest.raises(ValueError, match=r"walker/run is not of the .* benchmark; use make_env\('walker/run'\)"):
        BiskEnv("walker/run", max_episode_steps=1000)
    with pytest.raises(ValueError, match="render_mode is 'ansi'"):
        BiskEnv(NATIVE, render_mode="ansi")
    with pytest.raises(ValueError, match=r"autoreset_mode is 'never'; use one of .*'DISABLED'"):
        make_vec("never")
    for name in ("NEXT_STEP", "NextStep"):
        assert make_vec(name).metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP


def test_a_seed_is_an_episode_and_none_goes_on():
    env = gymnasium.make(ID)
    first, second = env.reset(seed=5)[0], env.reset()[0]
    env.step(env.action_space.sample())
    assert not data_equivalence(first, second)
    assert data_equivalence(env.reset(seed=5)[0], first, exact=True)
    assert data_equivalence(env.reset()[0], second, exact=True)
    for wrong in (-1, 1.5, "1", True):
        with pytest.raises(ValueError, match="use an integer >= 0"):
            env.reset(seed=wrong)
        with pytest.raises(ValueError, match="use an integer >= 0"):
            make_vec().reset(seed=wrong)
    with pytest.raises(ValueError, match="reset has no option 'mask'; it takes none"):
        env.reset(options={"mask": 1})


def test_without_a_seed_every_environment_is_another():
    vector = make_vec()
    starts = [gymnasium.make(ID).reset()[0]["observation"] for _ in range(2)]
    starts += list(vector.reset()[0]["observation"])
    starts += list(make_vec().reset()[0]["observation"])
    assert len({start.tobytes() for start in starts}) == len(starts)


def test_lists_of_seeds():
    env = make_vec()
    first, _ = env.reset(seed=[3, 9, 3, 4])
    assert data_equivalence(row_of(first, 0), row_of(first, 2), exact=True)
    assert data_equivalence(row_of(first, 1), gymnasium.make(ID).reset(seed=9)[0], exact=True)
    second, _ = env.reset()
    mixed, _ = env.reset(seed=[3, None, 5, None])
    single = gymnasium.make(ID)
    for index, seed in ((0, 3), (2, 5)):
        assert data_equivalence(row_of(mixed, index), single.reset(seed=seed)[0], exact=True)
    third = [single.reset(seed=9), single.reset(), single.reset()][-1][0]
    assert data_equivalence(row_of(mixed, 1), third, exact=True)
    assert not data_equivalence(row_of(second, 1), row_of(mixed, 1))
    with pytest.raises(ValueError, match="2 seeds for 4 instances"):
        env.reset(seed=[1, 2])


def limits(env: gymnasium.Env) -> list[int]:
    """Of all TimeLimit wrappers around an environment."""
    found = []
    while isinstance(env, gymnasium.Wrapper):
        found += [env._max_episode_steps] if isinstance(env, gymnasium.wrappers.TimeLimit) else []
        env = env.env
    return found


@pytest.mark.parametrize(
    ("given", "expected"), [({}, 250), ({"max_episode_steps": 3}, 3), ({"max_episode_steps": 260}, 260)]
)
def test_time_is_limited_once(given, expected):
    id = "gaitway/BiskGoalWallCCube2d-v1"  # a cube at rest neither falls nor meets the ball
    env = gymnasium.make(id, disable_env_checker=True, **given)
    assert limits(env) == [expected]
    vector = gymnasium.make_vec(id, 2, autoreset_mode="DISABLED", **given)
    env.reset(seed=0)
    vector.reset(seed=0)
    still = np.zeros((2, 2), dtype=np.float32)
    for step in range(1, expected + 1):
        _, _, terminated, truncated, info = env.step(still[0])
        assert (terminated, truncated) == (False, step == expected)
        _, _, terminations, truncations, infos = vector.step(still)
        assert not terminations.any()
        assert truncations.tolist() == [step == expected] * 2
    assert info["episode_length"] == expected
    assert infos["episode_length"].tolist() == [expected] * 2


def test_no_limit_at_all():
    assert limits(gymnasium.make(ID, max_episode_steps=-1)) == []
    for env in (gymnasium.make(ID), gymnasium.make_vec(ID, 1, max_episode_steps=-1)):
        assert env.unwrapped._native.env.spec.max_episode_steps == 0
    assert gymnasium.make_vec(ID, 1).unwrapped._native.env.spec.max_episode_steps == 1000


def test_falls_do_not_end_the_episodes_of_variant_c():
    env = gymnasium.make("gaitway/BiskHurdlesCWalker-v1", max_episode_steps=60)
    env.reset(seed=0)
    infos = [env.step(np.zeros(6, dtype=np.float32)) for _ in range(60)]
    assert infos[-1][4]["fell_over"]
    assert [step[2:4] for step in infos] == [(False, False)] * 59 + [(False, True)]


def test_what_was_returned_stays_as_it_was():
    env = make_vec()
    kept = [env.reset(seed=0)[0]]
    copies = [{key: value.copy() for key, value in kept[0].items()}]
    for action in table(steps=30):
        obs, reward, *_ = env.step(action)
        kept += [{**obs, "reward": reward}]
        copies += [{key: value.copy() for key, value in kept[-1].items()}]
    assert data_equivalence(kept, copies, exact=True)
    assert all(value.flags.c_contiguous for value in kept[-1].values())


@needs_gl
def test_pictures():
    env = gymnasium.make(ID, render_mode="rgb_array", width=96, height=64)
    env.reset(seed=0)
    before = env.render()
    assert (before.shape, before.dtype) == ((64, 96, 3), np.uint8)
    assert before.any()
    assert env.metadata["render_fps"] == 40
    while not env.step(np.ones(6, dtype=np.float32))[2]:
        pass
    fallen = env.render()  # the end is still there to be seen
    assert not np.array_equal(fallen, before)
    env.reset(seed=0)
    assert np.array_equal(env.render(), before)
    env.close()
    assert gymnasium.make(ID, render_mode="rgb_array").unwrapped._size == (480, 480)
    vector = gymnasium.make_vec("gaitway/BiskGapsCube-v1", 2, render_mode="rgb_array", width=32, height=32)
    vector.reset(seed=0)
    assert [frame.shape for frame in vector.render()] == [(32, 32, 3)] * 2
    assert vector.metadata["render_fps"] == 20
    vector.close()


def test_without_a_mode_nothing_is_drawn():
    for env in (BiskEnv(NATIVE), make_vec()):
        with pytest.warns(UserWarning, match="render_mode='rgb_array'"):
            assert env.render() is None


def test_windows_show_every_state_until_they_are_closed(monkeypatch):
    shown = []

    class Window:
        is_open = True

        def show(self):
            shown.append(env.unwrapped._native.env.elapsed.item())

        def close(self):
            shown.append("closed")

    window = Window()
    monkeypatch.setattr(gymnasium_export, "open_screen", lambda batch, size: window)
    env = gymnasium.make(ID, render_mode="human")
    env.reset(seed=0)
    for _ in range(2):
        env.step(np.zeros(6, dtype=np.float32))
        assert env.render() is None
    window.is_open = False
    env.step(np.zeros(6, dtype=np.float32))
    env.close()
    env.close()
    assert shown == [0, 1, 2, "closed"]


def test_without_a_screen_the_reason_is_given(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    with pytest.raises(ScreenError, match="there is no screen here"):
        gymnasium.make(ID, render_mode="human").reset()


def test_closed_environments_say_so():
    env, vector = BiskEnv(NATIVE), make_vec()
    for each in (env, vector):
        each.reset(seed=0)
        each.close()
        each.close()
        with pytest.raises(RuntimeError, match="was closed"):
            each.reset()
