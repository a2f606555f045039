"""What the tests of skill learners share: their D2RL networks as plain float64 layers, written apart from `nn`."""

from __future__ import annotations

import torch
from torch import Tensor


def single(network, member: int | None) -> dict[str, Tensor]:
    """One network (of an ensemble: one member) as plain float64 layers on [hidden, input]."""
    network = getattr(network, "network", network)
    trunk, start, state = network.trunk, 0, {}

    def of(parameter: Tensor) -> Tensor:
        value = parameter.detach().double()
        return value.clone() if member is None else value[member].clone()

    inputs, bias = of(trunk.input.weight), of(trunk.bias).flatten()
    for number, width in enumerate(trunk.widths):
        columns = inputs[:, start : start + width]
        parts = [columns] if number == 0 else [of(trunk.hidden[number - 1].weight), columns]
        state[f"{number}.weight"] = torch.cat(parts).T.contiguous()
        state[f"{number}.bias"] = bias[start : start + width].clone()
        start += width
    last = of(network.last.weight)
    state[f"{len(trunk.widths)}.weight"] = last if member is None else last.T.contiguous()
    state[f"{len(trunk.widths)}.bias"] = of(network.last.bias).flatten()
    return state


def forward(network: dict[str, Tensor], x: Tensor) -> Tensor:
    """Outputs [n, .] of such layers for inputs [n, D]."""
    count = len(network) // 2
    h = torch.relu(x @ network["0.weight"].T + network["0.bias"])
    for layer in range(1, count - 1):
        h = torch.relu(torch.cat((h, x), -1) @ network[f"{layer}.weight"].T + network[f"{layer}.bias"])
    return h @ network[f"{count - 1}.weight"].T + network[f"{count - 1}.bias"]


def tanh_gaussian(network: dict[str, Tensor], x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Actions [n, A] of a policy for inputs [n, D] by standard normal `noise` [n, A], and their log-densities [n]."""
    mean, log_std = forward(network, x).chunk(2, -1)
    std = log_std.clamp(-5, 2).exp()
    u = mean + std * noise
    density = torch.distributions.Normal(mean, std).log_prob(u) - torch.log(1 - u.tanh() ** 2)
    return u.tanh(), density.sum(-1)


def follow(target: dict[str, Tensor], online: dict[str, Tensor], tau: float) -> None:
    """Move a target network a fraction `tau` of the way."""
    with torch.no_grad():
        for name, value in target.items():
            value += tau * (online[name] - value)


def stir_critics(policy) -> None:
    """Critics start at 0, which would hide mistakes."""
    with torch.no_grad():
        for parameter in (*policy.critic.parameters(), *policy.target.parameters()):
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
