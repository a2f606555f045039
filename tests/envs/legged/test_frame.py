"""Sums over a few numbers: the bits of torch's own."""

import pytest
import torch

from gaitway.envs.legged.frame import FEW, norm, summed


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", range(1, FEW + 3))
def test_sums_are_those_of_torch_to_the_last_bit(count: int, dtype: torch.dtype) -> None:
    """Sizes differ by seven orders of magnitude, so that another order of adding would show."""
    generator = torch.Generator().manual_seed(count)
    for rows in (1, 3, 16, 257):
        wide = torch.randn(rows, 5, count + 2, generator=generator, dtype=dtype)
        wide *= 10.0 ** torch.randint(-3, 4, wide.shape, generator=generator)
        for values in (wide[..., 1:-1], wide[..., 1:-1].contiguous(), wide[:, 0, 1:-1].T.contiguous().T):
            assert torch.equal(summed(values), values.sum(-1))
            assert torch.equal(norm(values), values.square().sum(-1).sqrt())
        assert torch.equal(summed(wide[:, :, 1:-1].transpose(1, 2), 1), wide[:, :, 1:-1].sum(2))


def test_another_order_of_adding_would_show() -> None:
    values = torch.tensor([1.0, 1e8, -1e8])
    assert summed(values).item() == 0.0  # (1 + 1e8) - 1e8
    assert summed(values.flip(0)).item() == 1.0


def test_what_holds_is_counted() -> None:
    assert summed(torch.tensor([[True, True, False]])).tolist() == [2]
    assert summed(torch.zeros(2, 0)).tolist() == [0.0, 0.0]
