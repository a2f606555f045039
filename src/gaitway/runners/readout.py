"""Numbers of an iteration on their way to the host: left where they are made, and read all at once."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def stacked(metrics: Mapping[str, Tensor]) -> Tensor:
    """Metrics of one number each as float32 [n], on the device of the first."""
    if not metrics:
        return torch.zeros(0)
    device = next(iter(metrics.values())).device
    return torch.stack([value.detach().to(device, torch.float32).reshape(()) for value in metrics.values()])


def read_at_once(tensors: Mapping[str, Tensor]) -> dict[str, list[float]]:
    """What the tensors hold, flat and as float64; the host waits once for each device on which there are some."""
    found: dict[str, list[float]] = {}
    for device in dict.fromkeys(value.device for value in tensors.values()):
        here = {name: value.detach().double().flatten() for name, value in tensors.items() if value.device == device}
        numbers, start = torch.cat(list(here.values())).tolist(), 0
        for name, value in here.items():
            found[name] = numbers[start : start + len(value)]
            start += len(value)
    return found
