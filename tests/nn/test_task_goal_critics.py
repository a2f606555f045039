"""Critics of tasks and goals: slices of the weights against wide rows and against critics taken one by one."""

import pytest
import torch
from torch.testing import assert_close

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
