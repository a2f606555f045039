"""The toys against paper, against gymnasium, and against their promises about streams."""

from __future__ import annotations

import math

import gymnasium
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gaitway.core.seeding import instance_generator
from gaitway.envs.toys.toy_env import ToyEnv
from gaitway.envs.toys.toys import TOYS, oscillator_reference


def make(id: str, num_envs: int = 2, seed=0, dtype=torch.float64, **options) -> ToyEnv:
    return ToyEnv(TOYS[id](**options), num_envs, seed, dtype=dtype, id=id)


def test_constant():
    env = make("toy/constant", 3)
    for number in range(1, 21):
        step = env.step(torch.randn(3, 1, generator=torch.Generator().manual_seed(number)))
        assert step.reward.tolist() == [1, 1, 1]
        assert step.obs["policy"].tolist() == step.final_obs["policy"].tolist() == [[1], [1], [1]]
        assert not step.terminated.any()
        assert step.truncated.tolist() == [number % 10 == 0] * 3


def test_cue_rewards_only_the_last_answer():
    env = make("toy/cue", 64, K=3)
    first = env.reset(1)["policy"]
    cue = first[:, 0].clone()
    assert set(cue.tolist()) == {-1.0, 1.0}
    assert not first[:, 1].any()
    for clock in (1 / 3, 2 / 3, 1.0):
        step = env.step(torch.full((64, 1), 5.0))
        assert_close(step.obs["policy"], torch.tensor([[0.0, clock]], dtype=torch.float64).expand(64, 2))
        assert not step.reward.any()
        assert not step.terminated.any()
    step = env.step(torch.full((64, 1), 5.0))
    assert_close(step.reward, -((5.0 - cue) ** 2))  # the unclipped answer counts: -16 or -36
    assert step.terminated.all()
    assert not step.truncated.any()
    assert (step.obs["policy"][:, 0].abs() == 1).all()
    assert not step.final_obs["policy"][:, 0].any()
    assert env.spec.max_episode_steps == 0
    assert make("toy/cue").toy.delay == 8


def test_chain_values_on_paper():
    env = make("toy/chain", 64)
    seen = env.reset(0)["policy"].clone()
    step = env.step(torch.zeros(64, 1))
    in_a = seen[:, 0] == 1
    assert 0 < in_a.sum() < 64
    assert_close(step.reward, torch.where(in_a, -9.0, 1.0).double())
    assert step.truncated.all()
    assert step.final_obs["policy"].tolist() == [[0.0, 1.0]] * 64
    # gamma 0.9: V(B) = 1 + 0.9 V(B) = 10, V(A) = -9 + 0.9 V(B) = 0
    value = torch.where(step.final_obs["policy"][:, 1] == 1, 10.0, 0.0)
    assert_close((step.reward + 0.9 * value)[in_a], torch.zeros(int(in_a.sum()), dtype=torch.float64))


def test_lock_opens_to_its_combination_alone():
    env = make("toy/lock", 3, length=4)
    combination = torch.from_numpy(env.toy.combination)
    assert env.reset()["policy"].tolist() == [[1, 0, 0, 0]] * 3
    for place, right in enumerate(combination):
        # the first goes on; the second begins anew with a wrong push at place 2; the third never pushes right
        wrong = (right + 1) % 3
        first = int(env.scenario()["state"][2, 0])
        step = env.step(torch.stack([right, wrong if place == 2 else right, (combination[first] + 2) % 3]))
        opened = place == 3
        assert step.reward.tolist() == step.terminated.tolist() == [opened, False, False]
        expected = torch.eye(5, 4, dtype=torch.float64)[place + 1].tolist()  # nothing is seen of an open lock
        assert step.final_obs["policy"][0].tolist() == expected
        assert step.final_obs["policy"][2].tolist() == [1, 0, 0, 0]
        assert step.metrics["place"][0] == place + 1
    assert env.scenario()["state"][:, 0].tolist() == [0, 0 if combination[3] != combination[0] else 1, 0]
    assert step.obs["policy"][0].tolist() == [1, 0, 0, 0]
    assert make("toy/lock").spec.max_episode_steps == 100


def test_the_light_is_where_the_camera_sees_it():
    env = make("toy/light", 200, seed=1)
    seen = env.reset()
    assert seen["camera"].dtype is torch.uint8
    assert env.spec.group("camera").shape == (1, 12, 12)
    assert (env.spec.group("camera").dtype, env.spec.group("light").dtype) == ("uint8", "float64")
    places = torch.linspace(-1.0, 1.0, 12, dtype=torch.float64)
    for _ in range(30):  # through an end and turns at the borders
        step = env.step(seen["light"] + torch.tensor([0.0, 0.5]))
        assert_close(step.reward, torch.full((200,), -0.25, dtype=torch.float64))
        seen = {name: value.clone() for name, value in step.obs.items()}
        brightness = seen["camera"][:, 0].double()
        for axis, summed in ((0, brightness.sum(1)), (1, brightness.sum(2))):  # x goes across, y down
            inside = seen["light"][:, axis].abs() < 0.6
            centre = (summed * places).sum(1) / summed.sum(1)
            assert (centre - seen["light"][:, axis]).abs()[inside].max() < 0.02
        assert seen["light"].abs().max() <= 1.0
    assert env.scenario()["state"][:, :2].std() > 0.3


def test_bandit_pays_means_and_noise_and_swaps_the_ends():
    env = make("toy/bandit", 4000, arms=4, swap_after=1)
    arms = torch.arange(4).repeat(1000)
    for means in ([0.0, 0.3, 0.6, 0.9], [0.9, 0.3, 0.6, 0.0]):
        step = env.step(arms)
        assert step.terminated.all()
        assert step.metrics["mean"][:4].tolist() == pytest.approx(means)
        rewards = step.reward.view(1000, 4)
        assert_close(rewards.mean(0), torch.tensor(means).double(), atol=0.04, rtol=0)
        assert_close(rewards.std(0), torch.full((4,), 0.3).double(), atol=0.03, rtol=0)
    env.reset()
    assert env.step(arms).metrics["mean"][3] == pytest.approx(0.9)
    with pytest.raises(ValueError, match="arms is 0"):
        make("toy/bandit", arms=0)


def test_random_pushes_open_a_short_lock_as_often_as_they_should():
    env = make("toy/lock", 1000, length=2)
    generator = torch.Generator().manual_seed(0)
    opened = sum(int(env.step(torch.randint(3, (1000,), generator=generator)).terminated.sum()) for _ in range(200))
    # 3 + 9 = 12 pushes on average until two right ones stand in a row: 200,000 / 12 = 16,667 times, +- 130
    assert 16_100 < opened < 17_200


def test_pendulum_is_gymnasiums():
    env = make("toy/pendulum", 5, seed=3)
    twins = [gymnasium.make("Pendulum-v1").unwrapped for _ in range(5)]
    for twin, state in zip(twins, env.scenario()["state"], strict=True):
        twin.reset(seed=0)
        twin.state = state.numpy().copy()
    generator = torch.Generator().manual_seed(0)
    for _ in range(150):
        action = torch.randn(5, 1, generator=generator, dtype=torch.float64) * 3
        step = env.step(action)
        for index, twin in enumerate(twins):
            obs, reward, *_ = twin.step(action[index].numpy())
            assert_close(step.reward[index].item(), float(reward), rtol=1e-9, atol=1e-9)
            assert_close(step.obs["pos"][index].numpy(), obs[:2].astype(float), rtol=1e-5, atol=1e-5)
            assert_close(step.obs["vel"][index].item() * 8, float(obs[2]), rtol=1e-5, atol=1e-5)
    assert env.spec.group_names == ["pos", "vel"]
    assert env.spec.max_episode_steps == 200


def test_cartpole_is_gymnasiums():
    env = make("toy/cartpole", 6, seed=3)
    twins = [gymnasium.make("CartPole-v1").unwrapped for _ in range(6)]
    alive = set(range(6))
    for twin, state in zip(twins, env.scenario()["state"], strict=True):
        twin.reset(seed=0)
        twin.state = state[:4].numpy().copy()
    generator = torch.Generator().manual_seed(0)
    while alive:
        action = torch.randint(2, (6,), generator=generator)
        step = env.step(action)
        for index in list(alive):
            _, reward, terminated, *_ = twins[index].step(int(action[index]))
            assert_close(step.final_obs["policy"][index].numpy(), twins[index].state, rtol=1e-9, atol=1e-12)
            assert (step.reward[index], step.terminated[index]) == (reward, terminated)
            assert_close(step.metrics["angle"][index].item(), abs(twins[index].state[2]))
            if terminated:
                alive.remove(index)


def test_cartpole_metric_totals():
    env = make("toy/cartpole", 1, max_episode_steps=5)
    steps = [{k: v.item() for k, v in env.step(torch.tensor([i % 2])).metrics.items()} for i in range(6)]
    assert_close(steps[4]["angle_episode"], sum(step["angle"] for step in steps[:5]))
    assert_close(steps[5]["angle_episode"], steps[5]["angle"])


def test_oscillator_on_paper():
    env = make("toy/oscillator", 1)
    env.load_scenario({"state": torch.tensor([[0.2, 1.0, 0.0]])})
    step = env.step(torch.tensor([[3.0]]))  # clipped to 1: qd = 1 + (30 - 2) 0.02 = 1.56, q = 0.2 + 1.56 * 0.02
    assert_close(step.obs["policy"], torch.tensor([[0.2312, 1.56]], dtype=torch.float64))
    assert torch.equal(step.obs["amp"], step.obs["policy"])
    angle = 2 * math.pi * 0.02
    error = (0.2312 - 0.5 * math.sin(angle)) ** 2 + ((1.56 - math.pi * math.cos(angle)) / (2 * math.pi)) ** 2
    assert_close(step.reward.item(), math.exp(-4 * error))
    assert_close(step.metrics["tracking_error"].item(), abs(0.2312 - 0.5 * math.sin(angle)))
    start = make("toy/oscillator", 50).scenario()["state"]
    position, velocity = oscillator_reference(start[:, 2].numpy())
    assert_close(start[:, :2].numpy(), np.stack([position, velocity], -1))
    assert start[:, 2].unique().numel() == 50


def test_streams_are_those_of_the_seeding_rule():
    env = make("toy/pendulum", 3, seed=7, max_episode_steps=2)
    for _ in range(2):
        env.step(torch.zeros(3, 1))
    generator = instance_generator(np.array([7, 2]), 1)
    expected = [generator.uniform(-math.pi, math.pi), generator.uniform(-1, 1)]
    assert env.scenario()["state"][2].tolist() == expected
    env.reset()
    generator = instance_generator(np.array([7, 2]), 2)
    assert env.scenario()["state"][2, 0].item() == generator.uniform(-math.pi, math.pi)
    evaluation = ToyEnv(TOYS["toy/pendulum"](), 3, 7, purpose="evaluation")
    generator = instance_generator(np.array([7, 0]), 0, "evaluation")
    assert evaluation.scenario()["state"][0, 0].item() == generator.uniform(-math.pi, math.pi)


def test_streams_stay_those_of_the_rule_over_many_episodes_and_new_seeds():
    env = make("toy/pendulum", 2, seed=7, max_episode_steps=1)
    for seed, episodes in ((7, 150), (2**40 + 3, 20)):
        env.reset(seed)
        for episode in range(episodes):
            generator = instance_generator(np.array([seed, 1]), episode)
            assert env.scenario()["state"][1].tolist() == [generator.uniform(-np.pi, np.pi), generator.uniform(-1, 1)]
            env.step(torch.zeros(2, 1))
        env.step(torch.zeros(2, 1))
        state = env.state_dict()
        state["episode"] = torch.tensor([3, 40])  # a stored state may lie anywhere
        env.load_state_dict(state)
        env.step(torch.zeros(2, 1))
        generator = instance_generator(np.array([seed, 1]), 41)
        assert env.scenario()["state"][1, 0].item() == generator.uniform(-np.pi, np.pi)


def test_ages_can_be_spread():
    env = make("toy/pendulum", 3)
    env.set_elapsed(torch.tensor([199, 0, 198]))
    assert env.step(torch.zeros(3, 1)).truncated.tolist() == [True, False, False]
    assert env.step(torch.zeros(3, 1)).truncated.tolist() == [False, False, True]
    assert env.elapsed.tolist() == [1, 2, 0]
    ends = [env.step(torch.zeros(3, 1)).truncated.tolist() for _ in range(200)]
    assert [row for row, flags in enumerate(ends) if any(flags)] == [197, 198, 199]  # each in its own 200th step
    assert [ends[row] for row in (197, 198, 199)] == [[False, True, False], [True, False, False], [False, False, True]]
    with pytest.raises(ValueError, match=r"0\.\.199"):
        env.set_elapsed(torch.tensor([0, 0, 200]))


def test_returned_tensors_are_the_callers_own():
    env = make("toy/constant", 2)
    env.reset(0)["policy"].fill_(99.0)
    step = env.step(torch.zeros(2, 1))
    step.reward.fill_(99.0)
    assert env.step(torch.zeros(2, 1)).reward.tolist() == [1, 1]


def test_wrong_uses_are_named():
    with pytest.raises(ValueError, match="K is 0"):
        make("toy/cue", K=0)
    with pytest.raises(ValueError, match="length is 0"):
        make("toy/lock", length=0)
    with pytest.raises(ValueError, match="max_episode_steps is -1"):
        make("toy/pendulum", max_episode_steps=-1)
    with pytest.raises(ValueError, match="at least 1"):
        make("toy/pendulum", 0)
    with pytest.raises(ValueError, match=r"takes \[2, 2\]"):
        make("toy/pendulum").load_scenario({"state": torch.zeros(3, 2)})
    assert make("toy/cue", K=3).spec.options == {"K": 3}
    assert make("toy/cue", K=8).spec.options == {}
