"""What all algorithms with a replay promise: numbers that no grouping of updates changes, exact resume, errors."""

import dataclasses

import pytest
import torch
from replay_cases import KINDS, filled, make, parameters
from torch.testing import assert_close

from gaitway.algorithms.algorithm import Now, Schedule
from gaitway.algorithms.replay_algorithm import MOST_RESTS, ReplayConfig
from gaitway.cli.train_config import RECIPES
from gaitway.core.execution import Program


@pytest.mark.parametrize("kind", KINDS)
def test_how_updates_are_grouped_changes_nothing(kind):
    one, other = make(kind), make(kind, updates_per_program=1)
    here, there = filled(one), filled(other)
    for updates in (1, 7, 3, 10):
        one.update(here, updates, Now())
    for updates in (5, 5, 5, 6):
        other.update(there, updates, Now())
    assert torch.equal(parameters(one), parameters(other))


@pytest.mark.parametrize("kind", KINDS)
def test_rounds_that_are_recorded_as_they_come_change_nothing(kind, monkeypatch):
    """On a GPU a round of a few updates is a recording of its own; here its function is called."""
    one, other = make(kind, updates_per_program=8), make(kind, updates_per_program=1)
    sizes = []
    monkeypatch.setattr(Program, "__call__", lambda self: (sizes.append(self.name), self.function()))
    one.execution.captures = True
    here, there = filled(one), filled(other)
    rounds = (6, 6, 11, 3, 6, 5, 4, 2, 7)
    for updates in rounds:
        one.update(here, updates, Now())
    assert len(one._rest) <= MOST_RESTS
    assert len(sizes) < sum(rounds) / 2
    other.update(there, sum(rounds), Now())
    assert torch.equal(parameters(one), parameters(other))
    assert one.updates == other.updates == sum(rounds)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stored_learner_goes_on_bit_for_bit(kind):
    one = make(kind)
    replay = filled(one)
    one.update(replay, 5, Now())
    state, stored = one.state_dict(), replay.state_dict()
    one.update(replay, 6, Now())
    other = make(kind, seed=9)
    other.generator.manual_seed(3)
    again = other.make_replay()
    again.load_state_dict(stored)
    other.load_state_dict(state)
    other.update(again, 6, Now())
    assert torch.equal(parameters(one), parameters(other))


@pytest.mark.parametrize("kind", KINDS)
def test_statistics_are_means_since_they_were_last_read(kind):
    one = make(kind)
    assert not {name for name in one.metrics() if name.startswith("loss")}
    one.update(filled(one), 4, Now())
    found = one.metrics()
    assert any(name.startswith("loss/") for name in found)
    assert all(torch.isfinite(value) for value in found.values())
    assert not {name for name in one.metrics() if name.startswith("loss")}


@pytest.mark.parametrize("kind", KINDS)
def test_everything_learnt_moves_and_stays_finite(kind):
    one = make(kind)
    before = [values.clone() for values in one.flat_parameters()]
    one.update(filled(one), 8, Now())
    for old, new in zip(before, one.flat_parameters(), strict=True):
        assert not torch.equal(old, new)
        assert bool(torch.isfinite(new).all())


def test_targets_follow_by_the_fraction_that_is_asked_for():
    one = make("td3")
    target = one.targets["critic"].value.detach().clone()
    one.critic.parameters.value.data.add_(1.0)
    one.soft_update("critic", one.critic, 0.25)
    expected = target + 0.25 * (one.critic.parameters.value.detach() - target)
    assert_close(one.targets["critic"].value.detach(), expected)


def test_a_replay_on_another_device_is_refused():
    one = make("ddpg")
    replay = filled(one)
    one.device = torch.device("meta")
    with pytest.raises(ValueError, match="make it with make_replay"):
        one.update(replay, 1, Now())


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 0},
        {"update_ratio": 0.0},
        {"learning_starts": -1},
        {"gamma": 1.5},
        {"max_grad_norm": 0.0},
        {"n_step": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused_with_their_name(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        dataclasses.replace(ReplayConfig(), **wrong)


@pytest.mark.parametrize("name", ["multitask_sac", "diayn", "hsd3", "hsd_bandit", "sac_hrl", "switching", "hiro"])
def test_algorithms_that_learn_step_by_step_say_why(name):
    made = RECIPES[name].config
    with pytest.raises(ValueError, match=rf"^n_step is 3; {made.one_step_because}, so use n_step=1$"):
        made(n_step=3)
    assert made().n_step == 1
    assert len(made.one_step_because) > 20
    assert not ReplayConfig.one_step_because


@pytest.mark.parametrize("kind", ["ddpg", "td3", "td3_bc"])
def test_rates_follow_their_schedules_and_a_flat_one_is_its_number(kind):
    falling, flat = Schedule(1e-2, 1e-4, 1000, "exponential", "steps"), Schedule(1e-3, 1e-3, 1000, "linear", "steps")
    one = make(kind, actor_learning_rate=falling, critic_learning_rate=1e-3)
    other = make(kind, actor_learning_rate=1e-3, critic_learning_rate=flat)
    same = make(kind, actor_learning_rate=1e-3, critic_learning_rate=1e-3)
    for steps, rate in ((0, 1e-2), (500, 1e-3), (1000, 1e-4), (2000, 1e-4)):
        one.update(filled(one), 2, Now(env_steps=steps))
        told = one.metrics()
        assert float(one.engines["actor"].learning_rate) == pytest.approx(rate)
        assert float(told["learning_rate/actor"]) == pytest.approx(rate)
        assert "learning_rate/critic" not in told
    for learner in (other, same):
        learner.update(filled(learner), 6, Now(env_steps=300))
    assert torch.equal(parameters(other), parameters(same))
