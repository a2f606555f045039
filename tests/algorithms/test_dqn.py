"""DQN: equal to a plain implementation with every switch, and values that broken twins get wrong."""

import copy
import itertools

import pytest
import torch
from replay_cases import filled, make
from torch.testing import assert_close

from gaitway.algorithms import dqn
from gaitway.algorithms.algorithm import Now, Schedule
from gaitway.core.workspace import Workspace
from gaitway.functional.value_losses import greedy_target


def plain_update(values, target, optimiser, drawn, double, weight=None):
    """One update of the textbook; returns the errors."""
    obs, after, action = drawn["obs/policy"], drawn["next_obs/policy"], drawn["action"] - 2
    with torch.no_grad():
        following = target(after)
        chosen = values(after).argmax(1) if double else following.argmax(1)
        goal = drawn["reward"] + drawn["discount"] * following[torch.arange(len(obs)), chosen]
    said = values(obs)[torch.arange(len(obs)), action]
    losses = torch.nn.functional.smooth_l1_loss(said, goal, reduction="none")
    optimiser.zero_grad()
    (losses.mean() if weight is None else (losses * weight).mean()).backward()
    optimiser.step()
    return (said - goal).detach()


@pytest.mark.parametrize(("double", "dueling"), list(itertools.product((True, False), repeat=2)))
def test_ten_updates_are_those_of_a_plain_implementation(double, dueling):
    one = make("dqn", double=double, networks={"dueling": dueling})
    replay, twin = filled(one), filled(one)
    values, target = copy.deepcopy((one.policy.values, one.policy.target))
    for parameter in values.parameters():
        parameter.grad = None
    optimiser = torch.optim.Adam(values.parameters(), one.config.learning_rate)
    for number in range(10):
        plain_update(values, target, optimiser, twin.gather(twin.draw((16,))), double)
        if (number + 1) % 3 == 0:
            target.load_state_dict(values.state_dict())
    one.update(replay, 10, Now())
    for ours, theirs in ((one.policy.values, values), (one.policy.target, target)):
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_prioritised_updates_weigh_their_draws_and_report_their_errors():
    one = make("dqn_prioritised", target_interval=100)
    replay, twin = filled(one), filled(one)
    twin.set_beta(0.4)
    values, target = copy.deepcopy((one.policy.values, one.policy.target))
    for parameter in values.parameters():
        parameter.grad = None
    optimiser = torch.optim.Adam(values.parameters(), one.config.learning_rate)
    for _ in range(6):
        index = twin.draw((16,))
        drawn = twin.gather(index)
        twin.update_priorities(index, plain_update(values, target, optimiser, drawn, True, drawn["weight"]))
    one.update(replay, 6, Now())
    for a, b in zip(one.policy.values.parameters(), values.parameters(), strict=True):
        assert_close(a, b, atol=1e-5, rtol=1e-5)
    assert_close(replay.tree.weights, twin.tree.weights, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(replay.tree.weights[replay.tree.weights > 0], torch.tensor(1.0, dtype=torch.float64))


def chain(algorithm):
    """A corridor: in state k action 3 goes on to k + 1, others stay; state 2 pays 1 for going on and terminates.

    With gamma 0.9 the best values of states 0, 1, 2 are 0.81, 0.9, 1.
    """
    states = torch.eye(3)
    cases = [(state, action) for state in range(3) for action in (2, 3, 4)] * 4
    steps, rows = len(cases) // 4, {}
    state = torch.tensor([case[0] for case in cases]).view(steps, 4)
    action = torch.tensor([case[1] for case in cases]).view(steps, 4)
    moves = action == 3
    rows["env/obs/policy"] = torch.cat((states[state], states[state[:1]]))
    rows["env/final_obs/policy"] = states[(state + moves.long()).clamp(max=2)]
    rows["action"] = action
    rows["env/reward"] = (moves & (state == 2)).float()
    rows["env/terminated"] = moves & (state == 2)
    rows["env/truncated"] = ~rows["env/terminated"]  # every step stands for itself
    replay = algorithm.make_replay()
    replay.add(Workspace.packed(rows))
    return replay, states


def best_values(**options):
    one = make("dqn", gamma=0.9, learning_rate=3e-3, target_interval=20, networks={"hidden": (32,)}, **options)
    replay, states = chain(one)
    one.update(replay, 1500, Now())
    return one.policy.values(states).detach().amax(-1)


def test_values_of_a_corridor_and_a_twin_that_bootstraps_past_the_end(monkeypatch):
    right = torch.tensor([0.81, 0.9, 1.0])
    assert_close(best_values(), right, atol=0.05, rtol=0.0)

    def endless(reward, discount, following, online=None):
        return greedy_target(reward, torch.full_like(discount, 0.9), following)

    monkeypatch.setattr(dqn, "double_target", endless)
    assert float((best_values() - right).abs().max()) > 1.0


def test_exploration_and_rate_follow_their_schedules():
    epsilon = Schedule(1.0, 0.0, 1.0, unit="fraction")
    one = make("dqn", epsilon=epsilon, learning_rate=Schedule(1e-3, 0.0, 1.0, unit="fraction"))
    one.update(filled(one), 1, Now(fraction=0.25))
    assert float(one.metrics()["epsilon"]) == 0.75
    assert float(one.values.learning_rate) == pytest.approx(0.75e-3)


@pytest.mark.parametrize("wrong", [{"target_interval": 0}, {"learning_rate": 0.0}, {"priority_exponent": -1.0}])
def test_settings_that_make_no_sense_are_refused_with_their_name(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        make("dqn", **wrong)
