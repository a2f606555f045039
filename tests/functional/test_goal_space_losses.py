"""HSD-3's losses against enumeration in float64, by hand where it is short, and the properties they must have."""

import math

import pytest
import torch
from torch.testing import assert_close

from gaitway.functional.goal_space_losses import (
    choice_entropy,
    hsd3_actor_loss,
    hsd3_target,
    hsd3_temperature_gradients,
    mean_log_density,
)

B, D, G, N = 6, 4, 5, 2


def case(dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)  # noqa: E731
    return {
        "reward": draw(B),
        "discount": torch.tensor([0.0, 0.95, 0.9, 0.99, 0.0, 0.5], dtype=dtype),
        "values": 3 * draw(N, B, D),
        "log_probs": draw(B, D).log_softmax(-1),
        "log_density": draw(B, D),
        "alpha_c": draw(D).exp(),
        "alpha_d": draw(()).exp(),
    }


def enumerated(values, log_probs, log_density, alpha_c, alpha_d):
    """V of every row by a loop over goal spaces, plain floats of float64."""
    found = []
    for b in range(B):
        total, entropy = 0.0, 0.0
        for d in range(D):
            p = math.exp(log_probs[b, d])
            least = min(float(values[n, b, d]) for n in range(N))
            total += p * (least - float(alpha_c[d]) * float(log_density[b, d]))
            entropy -= p * float(log_probs[b, d])
        found.append(total + float(alpha_d) * (entropy - math.log(D)))
    return torch.tensor(found, dtype=torch.float64)


def choices(given):
    return [given[name] for name in ("values", "log_probs", "log_density", "alpha_c", "alpha_d")]


def test_target_and_actor_loss_equal_enumeration():
    given, exact = case(), case(torch.float64)
    value = enumerated(*choices(exact))
    target = hsd3_target(*given.values())
    assert (target.dtype, target.shape) == (torch.float32, (B,))
    assert_close(target.double(), exact["reward"] + exact["discount"] * value, atol=2e-6, rtol=1e-5)
    assert_close(hsd3_actor_loss(*choices(given)).double(), -value.mean(), atol=2e-6, rtol=1e-5)


def test_by_hand_with_two_goal_spaces():
    # p = (1/4, 3/4), min Q = (1, 2), l = (-1, 2), alpha_c = (0.5, 0.1), alpha_d = 0.2
    # H = log 4 - 3/4 log 3;  V = 1/4 (1 + 0.5) + 3/4 (2 - 0.2) + 0.2 (H - log 2)
    entropy = math.log(4) - 0.75 * math.log(3)
    value = 0.375 + 1.35 + 0.2 * (entropy - math.log(2))
    given = (
        torch.tensor([[[1.0, 5.0]], [[4.0, 2.0]]]),
        torch.tensor([[0.25, 0.75]]).log(),
        torch.tensor([[-1.0, 2.0]]),
        torch.tensor([0.5, 0.1]),
        torch.tensor(0.2),
    )
    assert_close(hsd3_target(torch.tensor([3.0]), torch.tensor([0.9]), *given), torch.tensor([3.0 + 0.9 * value]))
    assert_close(hsd3_actor_loss(*given), torch.tensor(-value))
    goals, choice = hsd3_temperature_gradients(
        given[1], given[2], torch.tensor([0.5, 0.1]).log(), torch.tensor(0.2).log(), -1.0, 0.5 * math.log(2)
    )
    assert_close(goals, torch.tensor([-0.5 * 0.25 * (-1 - 1), -0.1 * 0.75 * (2 - 1)]))
    assert_close(choice, torch.tensor(0.2 * (entropy - 0.5 * math.log(2))))


def test_gradients_equal_finite_differences_of_the_enumeration():
    exact = case(torch.float64)
    logits = torch.randn(B, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    inputs = {"values": exact["values"], "logits": logits, "log_density": exact["log_density"]}
    small = {name: tensor.float().requires_grad_() for name, tensor in inputs.items()}
    loss = hsd3_actor_loss(
        small["values"],
        small["logits"].log_softmax(-1),
        small["log_density"],
        exact["alpha_c"].float(),
        exact["alpha_d"].float(),
    )
    found = torch.autograd.grad(loss, tuple(small.values()))

    def plain(given):
        log_probs = given["logits"].log_softmax(-1)
        return -enumerated(given["values"], log_probs, given["log_density"], exact["alpha_c"], exact["alpha_d"]).mean()

    for (name, tensor), gradient in zip(inputs.items(), found, strict=True):
        expected = torch.zeros_like(tensor)
        for index in range(tensor.numel()):
            changed = [tensor.clone() for _ in range(2)]
            for copy, change in zip(changed, (1e-6, -1e-6), strict=True):
                copy.view(-1)[index] += change
            up, down = (plain(inputs | {name: copy}) for copy in changed)
            expected.view(-1)[index] = (up - down) / 2e-6
        assert_close(gradient.double(), expected, atol=2e-6, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


def test_temperature_gradients_equal_those_of_the_losses():
    exact = case(torch.float64)
    log_alpha_c, log_alpha_d = exact["alpha_c"].log().requires_grad_(), exact["alpha_d"].log().requires_grad_()
    probability = exact["log_probs"].exp()
    goals = -(probability * log_alpha_c.exp() * (exact["log_density"] - 1.0)).sum(-1).mean()
    entropy = -(probability * exact["log_probs"]).sum(-1)
    choice = log_alpha_d.exp() * (entropy.mean() - 0.7)
    expected = torch.autograd.grad(goals + choice, (log_alpha_c, log_alpha_d))
    given = case()
    found = hsd3_temperature_gradients(
        given["log_probs"], given["log_density"], given["alpha_c"].log(), given["alpha_d"].log(), -1.0, 0.7
    )
    for mine, theirs in zip(found, expected, strict=True):
        assert_close(mine.double(), theirs, atol=1e-6, rtol=1e-5)
        assert not mine.requires_grad


def test_the_temperature_of_the_choice_rises_while_its_entropy_is_below_the_target():
    settled = torch.tensor([[10.0, 0.0, 0.0]]).log_softmax(-1)
    even = torch.zeros(1, 3).log_softmax(-1)
    target, alpha = 0.5 * math.log(3), torch.zeros(())
    gradient = lambda log_probs: hsd3_temperature_gradients(  # noqa: E731
        log_probs, torch.zeros(1, 3), torch.zeros(3), alpha, -1.0, target
    )[1]
    assert gradient(settled) < 0 < gradient(even), "descent raises log alpha where the gradient is negative"


def test_temperatures_may_be_plain_numbers():
    given = case()
    options = (given["log_probs"], given["log_density"], given["alpha_c"].log())
    for log_alpha_d in (-0.5, 0):
        found = hsd3_temperature_gradients(*options, log_alpha_d, -1.0, 0.7)
        expected = hsd3_temperature_gradients(*options, torch.tensor(float(log_alpha_d)), -1.0, 0.7)
        assert_close(found, expected)


def test_a_goal_space_that_is_never_chosen_counts_nothing():
    # p = (1/2, 1/2, 0): p log p is 0 where log p is -inf; V = (1 + 3) / 2 + 2 (log 2 - log 3)
    log_probs = torch.tensor([[0.5, 0.5, 0.0]]).log().requires_grad_()
    values, nothing = torch.tensor([[[1.0, 3.0, 99.0]]]), torch.zeros(1, 3)
    value = 2.0 + 2.0 * (math.log(2) - math.log(3))
    target = hsd3_target(torch.ones(1), torch.full((1,), 0.9), values, log_probs, nothing, torch.ones(3), 2.0)
    assert_close(target, torch.tensor([1.0 + 0.9 * value]))
    loss = hsd3_actor_loss(values, log_probs, nothing, torch.ones(3), 2.0)
    assert_close(loss, torch.tensor(-value))
    loss.backward()
    assert log_probs.grad is not None
    assert torch.isfinite(log_probs.grad).all()
    assert_close(choice_entropy(log_probs), torch.tensor([math.log(2)]))
    goals, choice = hsd3_temperature_gradients(log_probs, nothing, torch.zeros(3), 0.0, -1.0, 0.5)
    assert goals.tolist() == [0.5, 0.5, 0.0]
    assert_close(choice, torch.tensor(math.log(2) - 0.5))


def test_permuting_goal_spaces_permutes_what_belongs_to_them():
    given, order = case(), torch.tensor([2, 0, 3, 1])
    permuted = given | {name: given[name][..., order] for name in ("values", "log_probs", "log_density", "alpha_c")}
    assert_close(hsd3_target(*permuted.values()), hsd3_target(*given.values()))
    gradients = [
        hsd3_temperature_gradients(
            each["log_probs"], each["log_density"], each["alpha_c"].log(), each["alpha_d"].log(), -1.0, 0.7
        )[0]
        for each in (given, permuted)
    ]
    assert_close(gradients[1], gradients[0][order])


def test_one_goal_space_is_soft_actor_critic():
    # H = 0 and log 1 = 0: the temperature of the choice has no say
    given = case()
    one = [
        given["values"][..., :1],
        torch.zeros(B, 1),
        given["log_density"][:, :1],
        given["alpha_c"][:1],
        torch.tensor(9.0),
    ]
    expected = given["values"][..., 0].amin(0) - given["alpha_c"][0] * given["log_density"][:, 0]
    assert_close(hsd3_actor_loss(*one), -expected.mean())


def test_the_bonus_for_the_choice_is_never_positive():
    nothing = torch.zeros(1, 1, 3)
    for logits in ([0.0, 0.0, 0.0], [4.0, 0.0, -2.0]):
        log_probs = torch.tensor([logits]).log_softmax(-1)
        loss = hsd3_actor_loss(nothing, log_probs, nothing[0], torch.ones(3), torch.tensor(1.0))
        assert loss >= -1e-6


def test_mean_log_density_by_hand_and_without_gradient_where_masked():
    density = torch.tensor([[[1.0, 2.0, 6.0], [3.0, math.inf, 5.0], [1.0, 1.0, 1.0]]], requires_grad=True)
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    mean = mean_log_density(density, mask)
    assert mean.tolist() == [[1.5, 4.0, 0.0]], "an empty row is 0, and a masked entry is not even looked at"
    mean.sum().backward()
    assert density.grad is not None
    assert density.grad.tolist() == [[[0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.0, 0.0]]]


@pytest.mark.parametrize("twin", ["sign of alpha_c", "sign of alpha_d", "no shift", "mean of critics"])
def test_broken_twins_differ_from_the_enumeration(twin):
    given, exact = case(), case(torch.float64)
    value = enumerated(*choices(exact))
    if twin == "sign of alpha_c":
        given["alpha_c"] = -given["alpha_c"]
    elif twin == "sign of alpha_d":
        given["alpha_d"] = -given["alpha_d"]
    elif twin == "mean of critics":
        given["values"] = given["values"].mean(0, keepdim=True)
    loss = hsd3_actor_loss(*choices(given))
    if twin == "no shift":
        loss = loss - given["alpha_d"] * math.log(D)
    assert abs(float(loss) + float(value.mean())) > 0.05


def test_shapes_that_would_broadcast_are_refused():
    given = case()
    given["log_density"] = given["log_density"][:, 0]
    with pytest.raises(ValueError, match=r"log_density is \[6\] and log_probs \[6, 4\]"):
        hsd3_target(*given.values())
    with pytest.raises(ValueError, match=r"the mask \[4, 3\]"):
        mean_log_density(torch.zeros(B, D, G), torch.ones(D, 3))
