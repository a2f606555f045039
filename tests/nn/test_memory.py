"""Recurrent memory: two ways over a sequence, one step at a time, and cell by cell in float64."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from gaitway.functional.sequences import chained_layout, episode_starts
from gaitway.nn.memory import Memory

CASES = [("gru", 1), ("gru", 2), ("lstm", 1), ("lstm", 2)]
T, B, D, H = 12, 5, 3, 4


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rollout(memory: Memory, rate: float = 0.25) -> tuple[Tensor, Tensor, Tensor]:
    source = generator(7)
    x = torch.randn(T, B, D, generator=source)
    state = torch.randn(B, memory.state_size, generator=source)
    starts = episode_starts(torch.rand(T, B, generator=source) < rate, first=torch.arange(B) == 2)
    return x, state, starts


def textbook(memory: Memory, x: Tensor, state: Tensor, starts: Tensor) -> Tensor:
    """Equations of the cells, one environment and one row at a time, in float64."""
    outputs = torch.zeros(len(x), x.shape[1], memory.size, dtype=torch.float64)
    for b in range(x.shape[1]):
        parts = list(state[b].double().split(memory.size))
        for t in range(len(x)):
            if starts[t, b]:
                parts = [torch.zeros_like(part) for part in parts]
            flow = x[t, b].double()
            for layer in range(memory.layers):
                w_in, w_hidden, b_in, b_hidden = (w.double() for w in memory.network.all_weights[layer])
                hidden = parts[layer]
                if memory.kind == "gru":
                    r_in, z_in, n_in = (w_in @ flow + b_in).split(memory.size)
                    r_h, z_h, n_h = (w_hidden @ hidden + b_hidden).split(memory.size)
                    update = torch.sigmoid(z_in + z_h)
                    candidate = torch.tanh(n_in + torch.sigmoid(r_in + r_h) * n_h)
                    parts[layer] = (1 - update) * candidate + update * hidden
                else:
                    i, f, g, o = (w_in @ flow + b_in + w_hidden @ hidden + b_hidden).split(memory.size)
                    cell = torch.sigmoid(f) * parts[memory.layers + layer] + torch.sigmoid(i) * torch.tanh(g)
                    parts[memory.layers + layer] = cell
                    parts[layer] = torch.sigmoid(o) * torch.tanh(cell)
                flow = parts[layer]
            outputs[t, b] = flow
    return outputs.detach()


def stepped(memory: Memory, x: Tensor, state: Tensor, starts: Tensor) -> Tensor:
    outputs = []
    for t in range(len(x)):
        y, state = memory.step(x[t], state.masked_fill(starts[t].unsqueeze(-1), 0.0))
        outputs.append(y)
    return torch.stack(outputs)


@pytest.mark.parametrize(("kind", "layers"), CASES)
@pytest.mark.parametrize("rate", [0.0, 0.25, 1.0])
def test_all_ways_agree(kind, layers, rate):
    memory = Memory(kind, D, H, layers, generator=generator())
    x, state, starts = rollout(memory, rate)
    expected = textbook(memory, x, state, starts).float()
    assert memory.state_size == state.shape[1] == (layers if kind == "gru" else 2 * layers) * H
    for y in (
        memory.sequence(x, state, starts),
        memory.sequence(x, state, starts, mode="stepwise"),
        stepped(memory, x, state, starts),
    ):
        assert y.shape == (T, B, H)
        assert_close(y, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("kind", "layers"), CASES)
def test_gradients_agree(kind, layers):
    memory = Memory(kind, D, H, layers, generator=generator())
    x, state, starts = rollout(memory)
    weight = torch.randn(T, B, H, generator=generator(3))
    found = {}
    for mode in ("padded", "stepwise", "step"):
        leaves = [x.clone().requires_grad_(), state.clone().requires_grad_(), *memory.parameters()]
        if mode == "step":
            y = stepped(memory, leaves[0], leaves[1], starts)
        else:
            y = memory.sequence(leaves[0], leaves[1], starts, mode=mode)
        found[mode] = torch.autograd.grad((y * weight).sum(), leaves)
    for padded, stepwise, step in zip(*found.values(), strict=True):
        assert_close(padded, stepwise, atol=1e-5, rtol=1e-5)
        assert_close(padded, step, atol=1e-5, rtol=1e-5)
    assert not found["padded"][1][2].any()  # environment 2 starts anew at row 0: its stored state has no influence
    assert found["padded"][1][0].any()


@pytest.mark.parametrize(("kind", "layers"), CASES)
@pytest.mark.parametrize("mode", ["padded", "stepwise"])
def test_mutations_fail(kind, layers, mode):
    memory = Memory(kind, D, H, layers, generator=generator())
    x, state, starts = rollout(memory)
    expected = textbook(memory, x, state, starts).float()
    mutations = {
        "memory not reset at done": (state, torch.zeros_like(starts)),
        "mask one row late": (state, starts.roll(1, 0)),
        "mask one row early": (state, starts.roll(-1, 0)),
        "state zeroed at the start of the rollout": (torch.zeros_like(state), starts),
        "state of another environment": (state.roll(1, 0), starts),
    }
    for name, (wrong_state, wrong_starts) in mutations.items():
        y = memory.sequence(x, wrong_state, wrong_starts, mode=mode)
        assert (y - expected).abs().max() > 1e-3, name


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_nothing_passes_the_empty_row_between_chained_episodes(scale):
    memory = Memory("lstm", D, H, generator=generator())
    with torch.no_grad():
        for parameter in memory.parameters():
            parameter.mul_(scale)
    x, state, _ = rollout(memory)
    starts = torch.zeros(T, B, dtype=torch.bool)
    starts[5, 1] = starts[7, 3] = True
    assert chained_layout(starts) is not None
    x, state = x.requires_grad_(), state.requires_grad_()
    y = memory.sequence(x, state, starts)
    assert_close(y.detach(), textbook(memory, x.detach(), state.detach(), starts).float(), atol=1e-5, rtol=0)
    for_x, for_state = torch.autograd.grad(y[5:, 1].sum() + y[7:, 3].sum(), (x, state))
    assert not for_x[:5, 1].any()
    assert not for_x[:7, 3].any()
    assert not for_state.any()
    assert for_x[5:, 1].any()
    memory.closing.zero_()  # the twin: an empty row that closes no gate
    assert (memory.sequence(x, state, starts) - y).abs().max() > 1e-3


def test_same_weights_as_torch_and_only_from_the_generator():
    torch.manual_seed(4)
    theirs = torch.nn.GRU(D, H, 2)
    torch.manual_seed(4)
    ours = Memory("GRU", D, H, 2)
    for expected, parameter in zip(theirs.parameters(), ours.network.parameters(), strict=True):
        assert torch.equal(parameter, expected)
    before = torch.get_rng_state()
    first, second = (Memory("lstm", D, H, generator=generator(1)) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)


def test_state_outside_means_weights_only_inside():
    memory = Memory("lstm", D, H, 2, generator=generator())
    copy = Memory("lstm", D, H, 2, generator=generator(9))
    copy.load_state_dict(memory.state_dict())
    x, state, starts = rollout(memory)
    memory.step(x[0], state)
    assert_close(copy.sequence(x, state, starts), memory.sequence(x, state, starts))
    assert torch.equal(memory.initial(6), torch.zeros(6, 16))
    assert memory.outputs == H


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="use 'gru' or 'lstm'"):
        Memory("rnn", D, H)
    with pytest.raises(ValueError, match="at least 1"):
        Memory("gru", D, 0)
    memory = Memory("lstm", D, H)
    x, state, starts = rollout(memory)
    with pytest.raises(ValueError, match="state_size 8"):
        memory.step(x[0], state[:, :H])
    with pytest.raises(ValueError, match="D = 3"):
        memory.sequence(x[..., :2], state, starts)
    with pytest.raises(ValueError, match="expected a bool"):
        memory.sequence(x, state, starts.float())
    with pytest.raises(ValueError, match="'padded' or 'stepwise'"):
        memory.sequence(x, state, starts, mode="packed")
