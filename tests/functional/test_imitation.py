"""T-FORMS: every distance between student and teacher, its value and its gradient, against float64 arithmetic."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gaitway.functional.imitation import DISTANCES, UNIT_MARGIN, WITHIN_LIMITS, tanh

STUDENT = [[0.3, -0.8, 0.1], [-0.5, 0.25, 0.9], [0.0, 0.6, -0.95]]
TEACHER = [[0.5, -0.2, 0.1], [-0.6, -0.75, 0.2], [0.4, 0.6, -0.9]]


def expected(name: str, m: list[float], y: list[float]) -> tuple[float, list[float]]:
    """Value and gradient by the student's numbers, one sample, in plain Python."""
    gap, n = [a - b for a, b in zip(m, y, strict=True)], len(m)
    sign = [float(np.sign(d)) for d in gap]
    if name == "l2":
        length = math.sqrt(sum(d * d for d in gap))
        return length, [d / length for d in gap]
    if name == "squared":
        return sum(d * d for d in gap), [2 * d for d in gap]
    if name == "l1":
        return sum(map(abs, gap)), sign
    if name == "huber":
        inside = [abs(d) < 1.0 for d in gap]
        value = sum(d * d / 2 if near else abs(d) - 0.5 for d, near in zip(gap, inside, strict=True))
        return value, [d if near else s for d, s, near in zip(gap, sign, inside, strict=True)]
    chance, target = ([(x + 1) / 2 for x in row] for row in (m, y))
    surprise = [-(q * math.log(p) + (1 - q) * math.log(1 - p)) for p, q in zip(chance, target, strict=True)]
    entropy = 2 * sum(surprise) / n
    slope = [2 / n * ((1 - q) / (1 - p) - q / p) / 2 for p, q in zip(chance, target, strict=True)]
    if name == "tanh":
        return entropy, slope
    error = sum(map(abs, gap)) / n
    return entropy * error, [a * error + entropy * s / n for a, s in zip(slope, sign, strict=True)]


def found(name: str, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    student = torch.tensor(STUDENT, dtype=dtype, requires_grad=True)
    value = DISTANCES[name](student, torch.tensor(TEACHER, dtype=dtype))
    (gradient,) = torch.autograd.grad(value.sum(), student)
    return value, gradient


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", DISTANCES)
def test_values_and_gradients(name, dtype):
    value, gradient = found(name, dtype)
    wanted = [expected(name, m, y) for m, y in zip(STUDENT, TEACHER, strict=True)]
    assert_close(value, torch.tensor([each[0] for each in wanted], dtype=dtype))
    assert_close(gradient, torch.tensor([each[1] for each in wanted], dtype=dtype))


@pytest.mark.parametrize("name", DISTANCES)
def test_gradients_are_those_of_the_values(name):
    student = torch.tensor(STUDENT, dtype=torch.float64, requires_grad=True)
    moved = student.detach() + 0.013  # away from the kinks of absolute values
    assert torch.autograd.gradcheck(DISTANCES[name], (moved.requires_grad_(), torch.tensor(TEACHER).double()))


@pytest.mark.parametrize("shape", [(4, 3, 5), (7, 2)])
@pytest.mark.parametrize("name", DISTANCES)
def test_one_number_per_sample_whatever_the_leading_axes(name, shape):
    student, teacher = (torch.rand(shape, generator=torch.Generator().manual_seed(i)) * 2 - 1 for i in (0, 1))
    whole = DISTANCES[name](student, teacher)
    assert whole.shape == shape[:-1]
    flat = DISTANCES[name](student.flatten(0, -2), teacher.flatten(0, -2))
    assert_close(whole.flatten(), flat)


@pytest.mark.parametrize("name", WITHIN_LIMITS)
def test_finite_at_and_beyond_the_limits(name):
    student = torch.tensor([[1.0, -1.0], [1.0, 3.0], [0.0, -1.0]], requires_grad=True)
    value = DISTANCES[name](student, torch.tensor([[1.0, -1.0], [-1.0, -1.0], [1.0, 1.0]]))
    (gradient,) = torch.autograd.grad(value.sum(), student)
    assert bool(value.isfinite().all())
    assert bool(gradient.isfinite().all())
    worst = -math.log(UNIT_MARGIN)  # a student that is sure of the opposite
    assert value[1].item() == pytest.approx(2 * worst * (1.0 if name == "tanh" else 3.0), rel=1e-3)


@pytest.mark.parametrize("name", [name for name in DISTANCES if name != "tanh"])
def test_equal_is_zero_with_a_gradient_that_is_no_nan(name):
    student = torch.tensor([[0.2, -0.4]], requires_grad=True)
    value = DISTANCES[name](student, student.detach())
    (gradient,) = torch.autograd.grad(value.sum(), student)
    assert value.item() == 0.0
    assert bool(gradient.isfinite().all())


@pytest.mark.parametrize(
    "broken",
    [
        lambda m, y: tanh(m, y) / 2,  # the factor 2 is missing
        lambda m, y: tanh(m.T, y.T),  # the mean over the wrong axis
        lambda m, y: tanh(y, m),  # the student's entropy of the teacher
    ],
)
def test_broken_forms_are_seen(broken):
    value = broken(torch.tensor(STUDENT), torch.tensor(TEACHER))
    wanted = torch.tensor([expected("tanh", m, y)[0] for m, y in zip(STUDENT, TEACHER, strict=True)])
    assert not torch.allclose(value, wanted, rtol=1e-3)
