"""What is refused, and in which words."""

import pytest
import torch

from gaitway.functional.checks import as_flag, check_alike, check_rows


def test_shapes_and_dtypes():
    check_rows(a=torch.zeros(3, 2), b=torch.zeros(3, 2))
    check_alike(a=torch.zeros(4), b=torch.zeros(4))
    with pytest.raises(ValueError, match=r"a is \[3\]; it must be \[T, B\]"):
        check_rows(a=torch.zeros(3))
    for check in (check_rows, check_alike):
        with pytest.raises(ValueError, match=r"b is \[3, 1\] but a is \[3, 2\]; .*squeeze"):
            check(a=torch.zeros(3, 2), b=torch.zeros(3, 1))
        with pytest.raises(ValueError, match=r"b is torch\.float64 but a is torch\.float32; convert"):
            check(a=torch.zeros(3, 2), b=torch.zeros(3, 2).double())
        with pytest.raises(ValueError, match=r"a is torch\.int64; it must be floating point"):
            check(a=torch.zeros(3, 2, dtype=torch.int64))


def test_flags():
    like = torch.zeros(3)
    flag = torch.tensor([True, False, True])
    assert as_flag("done", flag, like) is flag
    assert as_flag("done", torch.tensor([2.0, 0.0, -1.0]), like).tolist() == [True, False, True]
    with pytest.raises(ValueError, match=r"done is \[3, 1\] but reward is \[3\]"):
        as_flag("done", flag.unsqueeze(1), like)
