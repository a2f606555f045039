"""Critics of tasks and goals: slices of the weights against wide rows and against critics taken one by one."""

import pytest
import torch
from torch.testing import assert_close

from gaitway.nn.constant_skip import runs_in_place
from gaitway.nn.ensemble import constant_twin
from gaitway.nn.multihead import expand_task_subgoal
from gaitway.nn.task_goal_critics import TaskGoalCritics

INPUTS, TASKS, GOAL, ROWS = 6, 5, 3, 7


def make(trunk: str = "d2rl", **options: object) -> TaskGoalCritics:
    generator = torch.Generator().manual_seed(0)
    critics = TaskGoalCritics(2, INPUTS, TASKS, GOAL, (16, 16, 16), trunk=trunk, generator=generator, **options)
    with torch.no_grad():
        for parameter in critics.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return critics.double()


@pytest.mark.parametrize(
    ("trunk", "options"), [("d2rl", {}), ("d2rl", {"layer_norm": True}), ("mlp", {}), ("residual", {})]
)
def test_all_tasks_at_once_are_each_for_itself(trunk, options):
    critics = make(trunk, **options)
    x, goals = torch.randn(ROWS, INPUTS, dtype=torch.float64), torch.randn(ROWS, TASKS, GOAL, dtype=torch.float64)
    goals.requires_grad_(True)
    found = critics.everywhere(x, goals)
    assert found.shape == (2, ROWS, TASKS)
    for task in range(TASKS):
        one_hot = torch.zeros(ROWS, TASKS, dtype=torch.float64)
        one_hot[:, task] = 1.0
        expected = critics(x, one_hot, goals[:, task])
        assert_close(found[:, :, task], expected)
        wide = torch.cat((x, one_hot, expand_task_subgoal(one_hot, goals[:, task])), -1)
        assert wide.shape[1] == INPUTS + TASKS + TASKS * GOAL
        assert_close(critics.critics(wide).squeeze(-1), expected)
    weight = torch.randn(found.shape, dtype=torch.float64)
    parameters = [goals, *critics.parameters()]
    ours = torch.autograd.grad((found * weight).sum(), parameters)
    theirs = torch.autograd.grad((critics._by_wide_rows(x, goals) * weight).sum(), parameters)
    for one, other in zip(ours, theirs, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize(("hidden", "members"), [((16, 16, 16), 2), ((8, 12, 4), 3), ((8,), 1)])
def test_constant_critics_in_place_are_those_of_autograd(hidden, members):
    generator = torch.Generator().manual_seed(1)
    critics = TaskGoalCritics(members, INPUTS, TASKS, GOAL, hidden, trunk="d2rl", generator=generator).double()
    with torch.no_grad():
        for parameter in critics.parameters():
            parameter += 0.5 * torch.randn(parameter.shape, generator=generator)
    twin = constant_twin(critics)
    assert runs_in_place(twin.critics.network)
    assert not runs_in_place(critics.critics.network)
    x = torch.randn(ROWS, INPUTS, dtype=torch.float64, generator=generator)
    goals = torch.randn(ROWS, TASKS, GOAL, dtype=torch.float64, generator=generator).requires_grad_(True)
    before = [parameter.clone() for parameter in twin.parameters()]
    weight = torch.randn(members, ROWS, TASKS, dtype=torch.float64, generator=generator)
    found = {}
    for name, each in (("learnt", critics), ("constant", twin)):
        values = each.everywhere(x, goals)
        found[name] = values.detach(), *torch.autograd.grad((values * weight).sum(), goals)
    for ours, theirs in zip(found["constant"], found["learnt"], strict=True):
        assert_close(ours, theirs)
    assert float(found["learnt"][1].abs().max()) > 0.0
    assert all(torch.equal(one, other) for one, other in zip(before, twin.parameters(), strict=True))
    with torch.no_grad():  # as the target is asked
        assert torch.equal(twin.everywhere(x, goals), found["constant"][0])


def test_other_networks_and_those_put_over_take_the_plain_way():
    for options in ({"layer_norm": True}, {"activation": "tanh"}):
        assert not runs_in_place(constant_twin(make(**options)).critics.network)
    twin = constant_twin(make())
    twin.critics.network.trunk.hidden[0].register_forward_hook(lambda *_: None)
    assert not runs_in_place(twin.critics.network)


def test_values_start_at_zero():
    critics = TaskGoalCritics(2, INPUTS, TASKS, GOAL, (8, 8), trunk="d2rl")
    x, goals = torch.randn(ROWS, INPUTS), torch.randn(ROWS, TASKS, GOAL)
    assert torch.equal(critics.everywhere(x, goals), torch.zeros(2, ROWS, TASKS))


def test_permuted_tasks_permute_the_values():
    critics, order = make(), torch.tensor([3, 0, 4, 1, 2])
    x, goals = torch.randn(ROWS, INPUTS, dtype=torch.float64), torch.randn(ROWS, TASKS, GOAL, dtype=torch.float64)
    before = critics.everywhere(x, goals)
    weight = critics.critics.network.trunk.input.weight
    blocks = torch.arange(TASKS * GOAL).view(TASKS, GOAL)[order].flatten()
    rows = torch.cat((torch.arange(INPUTS), INPUTS + order, INPUTS + TASKS + blocks))
    with torch.no_grad():
        weight.copy_(weight[:, rows].clone())
    assert_close(critics.everywhere(x, goals[:, order]), before[:, :, order])
