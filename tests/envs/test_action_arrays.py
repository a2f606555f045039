"""Actions on their way to NumPy: the quick way and `check_action` accept and refuse the same ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gaitway.envs.action_arrays import ActionReader
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup

GROUP = ObservationGroup("policy", (Component("x"),), (1,))


def reader(action: ActionSpec, num_envs: int = 2) -> ActionReader:
    return ActionReader(EnvSpec("test", (GROUP,), action, 0.0, 0), num_envs)


CONTINUOUS = ActionSpec("continuous", ("a", "b"), (-1.0, -1.0), (1.0, 1.0))
DISCRETE = ActionSpec("discrete", ("choice",), choices=(3,))
SHIFTED = ActionSpec("discrete", ("choice",), choices=(3,), start=(-1,))
MULTI = ActionSpec("multi_discrete", ("left", "right"), choices=(2, 3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_continuous_values_pass_as_they_are(dtype: torch.dtype) -> None:
    values = reader(CONTINUOUS)(torch.tensor([[0.5, -7.0], [1e4, 0.0]], dtype=dtype))
    assert values.tolist() == [[0.5, -7.0], [torch.tensor(1e4, dtype=dtype).item(), 0.0]]
    assert values.dtype == (np.float32 if dtype is torch.float32 else np.float64)


def test_large_values_are_finite() -> None:
    """Their sum overflows, they do not."""
    assert reader(CONTINUOUS)(torch.full((2, 2), 3e38)).tolist() == torch.full((2, 2), 3e38).tolist()


def test_gradients_stay_behind() -> None:
    action = torch.ones(2, 2, requires_grad=True)
    assert reader(CONTINUOUS)(action).tolist() == [[1, 1], [1, 1]]
    assert reader(CONTINUOUS)(torch.nn.Parameter(torch.ones(2, 2))).tolist() == [[1, 1], [1, 1]]


def test_the_memory_is_that_of_the_action() -> None:
    action = torch.ones(2, 2)
    assert np.shares_memory(reader(CONTINUOUS)(action), action.numpy())


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_named(wrong: float) -> None:
    with pytest.raises(ValueError, match=r"instance 1 is (nan|inf|-inf) in 'a'"):
        reader(CONTINUOUS)(torch.tensor([[0.0, 0.0], [wrong, 0.0]]))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_choices_pass_as_they_are(dtype: torch.dtype) -> None:
    assert reader(DISCRETE)(torch.tensor([2, 0], dtype=dtype)).tolist() == [2, 0]
    assert reader(MULTI)(torch.tensor([[1, 2], [0, 0]], dtype=dtype)).tolist() == [[1, 2], [0, 0]]


def test_choices_that_do_not_exist_are_named() -> None:
    assert reader(SHIFTED)(torch.tensor([-1, 1])).tolist() == [-1, 1]
    for action, values, message in (
        (DISCRETE, [2, 3], r"instance 1 is 3 in 'choice'; use 0\.\.2"),
        (DISCRETE, [-1, 0], r"instance 0 is -1 in 'choice'; use 0\.\.2"),
        (SHIFTED, [1, 2], r"instance 1 is 2 in 'choice'; use -1\.\.1"),
        (SHIFTED, [-2, 0], r"instance 0 is -2 in 'choice'; use -1\.\.1"),
        (MULTI, [[1, 2], [2, 0]], r"instance 1 is 2 in 'left'; use 0\.\.1"),
        (MULTI, [[1, 3], [1, 0]], r"instance 0 is 3 in 'right'; use 0\.\.2"),
    ):
        with pytest.raises(ValueError, match=message):
            reader(action)(torch.tensor(values))


def test_wrong_forms_are_named() -> None:
    with pytest.raises(ValueError, match=r"has shape \[3, 2\]; test takes \[2, 2\]"):
        reader(CONTINUOUS)(torch.zeros(3, 2))
    with pytest.raises(ValueError, match=r"has shape \[2, 1\]; test takes \[2\]"):
        reader(DISCRETE)(torch.zeros(2, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match="takes floating point numbers"):
        reader(CONTINUOUS)(torch.zeros(2, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="takes int64 choices"):
        reader(DISCRETE)(torch.zeros(2))
    with pytest.raises(TypeError, match=r"is a ndarray; test takes a torch\.Tensor"):
        reader(CONTINUOUS)(np.zeros((2, 2)))  # type: ignore[arg-type]
