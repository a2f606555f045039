"""Codecs: errors within their bounds, numbers outside of the range, what is refused."""

import pytest
import torch

from gaitway.data.codecs import Codec


def numbers(low, high, count=20_001):
    return torch.linspace(low, high, count)


def test_bytes_round_to_the_nearest():
    codec = Codec.of("u8_unit")
    value = numbers(0, 1)
    error = (codec.decode(codec.encode(value)).double() - value.double()).abs()
    assert codec.encode(value).dtype is torch.uint8
    assert codec.bound == 1 / 510
    assert error.max() <= 1 / 510 + 1e-7
    truncated = (value * 255).to(torch.uint8).float() / 255  # what cutting off would do: twice the bound
    assert (truncated - value).abs().max() > 1.9 / 510
    assert codec.encode(torch.tensor([-0.5, 0.0, 0.5, 1.0, 7.0])).tolist() == [0, 0, 128, 255, 255]


def test_depths_in_a_range():
    codec = Codec.of({"name": "u16_range", "low": -1.0, "high": 5.0})
    value = numbers(-1, 5)
    assert codec.encode(value).dtype is torch.uint16
    assert (codec.decode(codec.encode(value)).double() - value.double()).abs().max() <= 6 / 131070 + 1e-6
    assert codec.decode(codec.encode(torch.tensor([-9.0, 9.0]))).tolist() == [-1.0, 5.0]


def test_halves():
    codec = Codec.of("f16")
    value = torch.cat((numbers(-60000, 60000), numbers(-1e-3, 1e-3)))
    error = (codec.decode(codec.encode(value)) - value).abs()
    assert bool((error <= value.abs() * 2**-11 + 2**-25).all())
    assert codec.decode(codec.encode(torch.tensor([1e9]))).item() == 65504


def test_what_is_refused():
    with pytest.raises(ValueError, match="there is no codec 'jpeg'; there are u8_unit, u16_range, f16"):
        Codec.of("jpeg")
    with pytest.raises(ValueError, match="use finite numbers, low below high"):
        Codec.of({"name": "u16_range", "low": 1, "high": 1})
    with pytest.raises(ValueError, match="f16 has no range"):
        Codec.of({"name": "f16", "low": 2, "high": 3})
    with pytest.raises(ValueError, match="a codec is a name, or"):
        Codec.of({"name": "f16", "size": 3})
    with pytest.raises(ValueError, match="cannot store NaN"):
        Codec.of("f16").encode(torch.tensor([float("nan")]))
    with pytest.raises(ValueError, match=r"stored as torch\.uint8, found torch\.float32"):
        Codec.of("u8_unit").decode(torch.zeros(1))
