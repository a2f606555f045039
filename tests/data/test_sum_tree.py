"""SumTree: against a list of numbers that are added up anew each time."""

import pytest
import torch
from scipy.stats import chi2

from gaitway.data import sum_tree
from gaitway.data.sum_tree import SumTree


@pytest.fixture(params=[2, 64])
def branches(request, monkeypatch):
    """Also a narrow tree, which has many levels already when it is small."""
    monkeypatch.setattr(sum_tree, "BRANCHES", request.param)
    return request.param


def naive_find(weights: list[float], share: float) -> int:
    """The first entry at which the running sum passes the share of the total."""
    target, before = share * sum(weights), 0.0
    for entry, weight in enumerate(weights):
        before += weight
        if weight > 0 and target < before:
            return entry
    return max(entry for entry, weight in enumerate(weights) if weight > 0)


def check_invariants(tree: SumTree, weights: list[float]) -> None:
    """Every sum is that of its branches, every least weight the least of them, and the leaves are `weights`."""
    assert tree.weights.tolist() == weights
    assert tree._sums[0][tree.size :].abs().sum() == 0
    for below in range(len(tree._sums) - 1):
        parts = tree._sums[below].view(-1, sum_tree.BRANCHES)
        assert torch.allclose(tree._sums[below + 1][: len(parts)], parts.sum(-1), rtol=1e-14, atol=0)
        least = tree._least[below].view(-1, sum_tree.BRANCHES).amin(-1)
        assert torch.equal(tree._least[below + 1][: len(parts)], least)
    assert float(tree.total) == pytest.approx(sum(weights), rel=1e-12)
    assert float(tree.least) == min((weight for weight in weights if weight > 0), default=float("inf"))


class TestUpdates:
    @pytest.mark.parametrize("size", [1, 2, 5, 64, 65, 300])
    def test_random_updates_keep_the_invariants(self, size, branches):
        generator = torch.Generator().manual_seed(size)
        tree, weights = SumTree(size), [0.0] * size
        check_invariants(tree, weights)
        for _ in range(12):
            index = torch.randperm(size, generator=generator)[
                : int(torch.randint(1, size + 1, (), generator=generator))
            ]
            values = torch.rand(len(index), generator=generator, dtype=torch.float64)
            values[torch.rand(len(index), generator=generator) < 0.3] = 0.0
            tree.update(index, values)
            for entry, value in zip(index.tolist(), values.tolist(), strict=True):
                weights[entry] = value
            check_invariants(tree, weights)

    def test_an_entry_named_twice_takes_the_larger(self, branches):
        tree = SumTree(10)
        tree.update(torch.tensor([3]), torch.tensor([9.0]))
        tree.update(torch.tensor([3, 4, 3, 3]), torch.tensor([2.0, 1.0, 5.0, 0.0]))
        assert tree.weights.tolist() == [0, 0, 0, 5, 1, 0, 0, 0, 0, 0]
        check_invariants(tree, tree.weights.tolist())

    def test_build_equals_updates(self, branches):
        weights = torch.rand(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        one, other = SumTree(200), SumTree(200)
        one.build(weights)
        other.update(torch.arange(200), weights)
        check_invariants(one, weights.tolist())
        check_invariants(other, weights.tolist())
        one.clear()
        check_invariants(one, [0.0] * 200)

    def test_nothing_drifts(self):
        # sums that are changed by differences would keep a rest of 1e20
        tree = SumTree(1000)
        tree.update(torch.tensor([5, 700]), torch.tensor([1e20, 1.0], dtype=torch.float64))
        tree.update(torch.tensor([5]), torch.tensor([0.0]))
        assert float(tree.total) == 1.0

    def test_what_is_refused(self):
        tree = SumTree(10)
        for weight in (-1.0, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="finite ones, 0 or more"):
                tree.update(torch.tensor([1, 2]), torch.tensor([1.0, weight]))
        for entry in (-1, 10):
            with pytest.raises(IndexError, match=r"0\.\.9"):
                tree.update(torch.tensor([entry]), torch.tensor([1.0]))
        with pytest.raises(ValueError, match=r"both must be \[n\]"):
            tree.update(torch.tensor([1, 2]), torch.tensor([1.0]))
        with pytest.raises(ValueError, match=r"takes \[10\]"):
            tree.build(torch.ones(11))
        with pytest.raises(ValueError, match="at least one"):
            SumTree(0)
        assert float(tree.total) == 0.0
        tree.update(torch.zeros(0, dtype=torch.int64), torch.zeros(0))


class TestFinding:
    def test_by_hand(self, branches):
        # side by side: entry 1 is 0..1, entry 3 is 1..4, entry 4 is 4..8
        tree = SumTree(6)
        tree.build(torch.tensor([0.0, 1.0, 0.0, 3.0, 4.0, 0.0]))
        share = torch.tensor([0.0, 0.12, 0.125, 0.49, 0.5, 0.99, 1.0], dtype=torch.float64)
        assert tree.find(share).tolist() == [1, 1, 3, 3, 4, 4, 4]

    @pytest.mark.parametrize("size", [1, 7, 200, 5000])
    def test_equals_the_running_sum(self, size, branches):
        generator = torch.Generator().manual_seed(size)
        weights = torch.randint(0, 4, (size,), generator=generator).double()  # whole numbers: sums are exact
        weights[size // 2] = 1.0
        tree = SumTree(size)
        tree.build(weights)
        share = torch.rand(100, generator=generator, dtype=torch.float64)
        assert tree.find(share).tolist() == [naive_find(weights.tolist(), each) for each in share.tolist()]

    def test_weight_zero_is_never_found(self, branches):
        generator = torch.Generator().manual_seed(1)
        for _ in range(30):
            # weights of very different size, so that rounding has its say at every level
            weights = 10.0 ** torch.randint(-12, 12, (150,), generator=generator).double()
            weights *= torch.rand(150, generator=generator, dtype=torch.float64)
            weights[torch.rand(150, generator=generator) < 0.7] = 0.0
            weights[3] = 1e-300
            tree = SumTree(150)
            tree.build(weights)
            edges = (weights.cumsum(0) / weights.sum()).clamp(0, 1)  # where one entry ends and the next begins
            share = torch.cat((torch.rand(300, generator=generator, dtype=torch.float64), edges, torch.zeros(1)))
            assert (weights[tree.find(share)] > 0).all()

    def test_draws_follow_the_law(self, branches):
        generator = torch.Generator().manual_seed(2)
        weights = torch.rand(90, generator=generator, dtype=torch.float64) + 0.1
        tree = SumTree(90)
        tree.build(weights)
        draws = 40_000
        counts = torch.bincount(tree.find(torch.rand(draws, generator=generator, dtype=torch.float64)), minlength=90)
        expected = draws * weights / weights.sum()
        assert ((counts - expected) ** 2 / expected).sum().item() < chi2.ppf(1 - 1e-6, 89)
        uniform = torch.full((90,), draws / 90)  # the test would notice if weights did not count
        assert ((expected - uniform) ** 2 / uniform).sum().item() > 4 * chi2.ppf(1 - 1e-6, 89)


class TestState:
    def test_a_restored_tree_finds_the_same(self):
        generator = torch.Generator().manual_seed(0)
        one, other = SumTree(500), SumTree(500)
        for _ in range(20):
            index = torch.randint(500, (40,), generator=generator)
            one.update(index, torch.rand(40, generator=generator, dtype=torch.float64))
        other.update(torch.arange(500), torch.rand(500, generator=generator))
        other.load_state_dict(one.state_dict())
        share = torch.rand(1000, generator=generator, dtype=torch.float64)
        assert torch.equal(one.find(share), other.find(share))
        for mine, theirs in zip(one._sums + one._least, other._sums + other._least, strict=True):
            assert torch.equal(mine, theirs)
        state = one.state_dict()
        state["sums"][0].zero_()
        assert float(one.total) > 0  # a copy
        with pytest.raises(ValueError, match="make them equal"):
            SumTree(501).load_state_dict(state)

    @pytest.mark.parametrize("size", [1, 64, 65, 5000])
    def test_bytes_needed(self, size):
        tree = SumTree(size)
        assert SumTree.bytes_needed(size) == sum(level.nbytes for level in tree._sums + tree._least)

    def test_moving(self):
        tree = SumTree(70)
        tree.update(torch.tensor([65]), torch.tensor([2.0]))
        tree.to("cpu")
        assert tree.find(torch.tensor([0.5], dtype=torch.float64)).tolist() == [65]
        assert tree.device.type == "cpu"
