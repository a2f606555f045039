"""Discrete heads against torch.distributions in float64."""

import math

import pytest
import torch
from torch import Tensor
from torch import distributions as reference
from torch.testing import assert_close

from gaitway.nn.discrete import Bernoulli, Categorical, MultiCategorical
from gaitway.nn.head import Head

LEADING = [(), (4,), (5, 4)]
HEADS: dict[str, Head] = {
    "categorical": Categorical(5),
    "shifted": Categorical(5, start=-2),
    "multi": MultiCategorical((3, 1, 4)),
    "multi equal": MultiCategorical([3, 3], start=(1, 0)),
    "bernoulli": Bernoulli(4),
    "bernoulli int": Bernoulli(3, start=(0, 1, 2), as_int=True),
}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def logits_of(head: Head, leading: tuple[int, ...], seed: int = 0) -> Tensor:
    return 2 * torch.randn(*leading, head.inputs, generator=generator(seed), dtype=torch.float64)


def twins(head: Head, logits: Tensor) -> list[reference.Distribution]:
    """Independent parts, by torch, from what the network said."""
    if isinstance(head, MultiCategorical):
        return [reference.Categorical(logits=part) for part in logits.split(head.dims, -1)]
    if isinstance(head, Bernoulli):
        return [reference.Independent(reference.Bernoulli(logits=logits), 1)]
    return [reference.Categorical(logits=logits)]


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("leading", LEADING)
def test_against_torch(head, leading):
    logits, others = logits_of(head, leading), logits_of(head, leading, seed=1)
    old, new = head(logits), head(others)
    assert old.shape == (*leading, head.num_params)
    raw = head.sample(old, generator(2))
    assert raw.shape == (*leading, *head.raw_shape)
    assert raw.dtype == head.raw_dtype
    parts, other_parts = twins(head, logits), twins(head, others)
    chosen = raw.unbind(-1) if isinstance(head, MultiCategorical) else [raw.double()]
    assert_close(head.log_prob(old, raw), sum(p.log_prob(r) for p, r in zip(parts, chosen, strict=True)))
    assert_close(head.entropy(old), sum(p.entropy() for p in parts))
    divergence = sum(reference.kl_divergence(p, q) for p, q in zip(parts, other_parts, strict=True))
    assert_close(head.kl(old, new), divergence)
    assert head.log_prob(old, raw).shape == head.entropy(old).shape == head.kl(old, new).shape == leading


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_frequencies(head):
    logits = logits_of(head, ())
    params = head(logits)
    draws = 40_000
    raw = head.sample(params.expand(draws, -1), generator(3))
    if isinstance(head, Bernoulli):
        found, expected = raw.double().mean(0), logits.sigmoid()
    elif isinstance(head, MultiCategorical):
        found = torch.cat([torch.bincount(r, minlength=n) for r, n in zip(raw.t(), head.dims, strict=True)]) / draws
        expected = torch.cat([part.softmax(-1) for part in logits.split(head.dims)])
    else:
        found, expected = torch.bincount(raw, minlength=head.n) / draws, logits.softmax(-1)
    tolerance = 4.5 * (expected * (1 - expected) / draws).sqrt() + 1e-9
    assert ((found - expected).abs() <= tolerance).all()


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_sampling_uses_the_given_generator_only(head):
    params = head(logits_of(head, (64,)).float())
    before = torch.get_rng_state()
    first, second, other = (head.sample(params, generator(seed)) for seed in (5, 5, 6))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_gradients_are_finite_in_extreme_places(head):
    output = (50 * logits_of(head, (32,)).float()).requires_grad_()
    params = head(output)
    raw = head.sample(params, generator())
    total = head.log_prob(params, raw) + head.entropy(params) + head.kl(params.detach(), params)
    total.sum().backward()
    assert torch.isfinite(total).all()
    assert torch.isfinite(output.grad).all()
    assert head.std(params) is None
    assert head.at_bound(params).item() == 0


def test_gradient_of_padded_parts():
    head = MultiCategorical((2, 4))
    logits = logits_of(head, (6,)).requires_grad_()
    raw = torch.tensor([[1, 3]]).expand(6, 2)
    (ours,) = torch.autograd.grad(head.log_prob(head(logits), raw).sum(), logits)
    parts = twins(head, logits)
    (theirs,) = torch.autograd.grad(sum(p.log_prob(r) for p, r in zip(parts, raw.t(), strict=True)).sum(), logits)
    assert_close(ours, theirs)
    assert (head.sample(head(logits).expand(2000, 6, -1), generator())[..., 0] < 2).all()  # never a padded choice


def test_modes():
    logits = torch.tensor([[0.1, 0.5, -3.0], [2.0, 1.0, 0.0]])
    assert Categorical(3).mode(Categorical(3)(logits)).tolist() == [1, 0]
    multi = MultiCategorical((1, 2))
    assert multi.mode(multi(torch.tensor([-9.0, 0.2, 0.1]))).tolist() == [0, 0]
    assert Bernoulli(3).mode(Bernoulli(3)(logits)).tolist() == [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0]]


def test_fix_63_offsets_reach_the_environment():
    shifted = Categorical(5, start=-2)
    assert shifted.action(torch.tensor([0, 4])).tolist() == [-2, 2]
    assert shifted.raw(torch.tensor([-2, 2])).tolist() == [0, 4]
    assert not shifted.raw_is_action
    assert Categorical(5).raw_is_action
    multi = HEADS["multi equal"]
    assert multi.action(torch.tensor([[0, 2]])).tolist() == [[1, 2]]
    assert multi.raw(torch.tensor([[1, 2]])).tolist() == [[0, 2]]
    switches = HEADS["bernoulli int"]
    assert switches.action(torch.tensor([1, 1, 0])).tolist() == [1, 2, 2]
    assert switches.raw(torch.tensor([1, 2, 2])).tolist() == [1, 1, 0]
    assert switches.raw_dtype == torch.int64
    assert HEADS["bernoulli"].raw_is_action


def test_fix_62_dims_are_a_tuple_of_integers():
    head = MultiCategorical(torch.tensor([3, 2]).numpy())
    assert head.dims == (3, 2)
    assert all(type(n) is int for n in head.dims)
    assert math.isclose(head.entropy(head(torch.zeros(5))).item(), math.log(6), rel_tol=1e-6)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="at least one choice"):
        Categorical(0)
    with pytest.raises(ValueError, match="number of choices"):
        MultiCategorical((2, 0))
    with pytest.raises(ValueError, match="one per part"):
        MultiCategorical((2, 2), start=(1,))
    with pytest.raises(ValueError, match="as_int"):
        Bernoulli(2, start=(1, 1))
    with pytest.raises(ValueError, match="at least one switch"):
        Bernoulli(0)


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_bug_59_the_event_is_the_last_axis_and_summed_once(head):
    params = head(logits_of(head, (7, 6)))
    raw = head.sample(params, generator())
    for found in (head.log_prob(params, raw), head.entropy(params), head.kl(params, params)):
        assert found.shape == (7, 6)
    assert_close(head.log_prob(params[1, 2], raw[1, 2]), head.log_prob(params, raw)[1, 2])


def test_bug_62_numpy_dims_compare():
    numpy_dims = torch.tensor([3, 2]).numpy()
    first, second = MultiCategorical(numpy_dims), MultiCategorical((3, 2))
    assert first.support() == second.support()
    params = first(torch.tensor([0.0, 0.0, math.log(2), 0.0, 0.0]))  # 1/4, 1/4, 1/2 and 1/2, 1/2
    uniform = second(torch.zeros(5))
    expected = 0.5 * math.log(3 / 4) + 0.5 * math.log(3 / 2)
    assert math.isclose(first.kl(params, uniform).item(), expected, rel_tol=1e-5)


def test_bug_63_modes_and_offsets_for_any_leading_shape():
    logits = torch.tensor([[[0.0, 2.0, 1.0], [3.0, 2.0, 1.0]]])  # [1, 2, 3]: over axis 1 the answer would be [1, 3]
    head = Categorical(3, start=5)
    assert head.action(head.mode(head(logits))).tolist() == [[6, 5]]
    assert head.support() != Categorical(3).support()
