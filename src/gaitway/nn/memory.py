"""Recurrent memory with its state outside: GRU or LSTM, state in, state out.

The module holds weights only. Its state is one flat tensor `[B, S]`, so it can be a variable of a workspace, stored as
it was before each step. `step` serves the rollout, `sequence` the update; both give the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gaitway.functional.sequences import EpisodeLayout, chained_layout, episode_layout
from gaitway.nn.fused_memory import GRUSequence, LSTMSequence

KINDS = ("gru", "lstm")
CLOSED = -1e4
"""What closes a gate, whatever else flows into it: its sigmoid is 0 to the last bit, and so is its slope."""


class Memory(nn.Module):
    """`layers` stacked GRU or LSTM layers of width `size` = H, reading D = `inputs` numbers per step.

    The flat state `[B, S]` of a GRU is its layers one after another (S = layers * H); an LSTM's is all hidden layers,
    then all cells (S = 2 * layers * H). The output `[..., H]` is the hidden state of the last layer. Weights are those
    of `nn.GRU` and `nn.LSTM`, drawn from `generator` (None: the global one).
    """

    def __init__(
        self, kind: str, inputs: int, size: int, layers: int = 1, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.kind = kind.lower()
        if self.kind not in KINDS:
            raise ValueError(f"no memory {kind!r}; use 'gru' or 'lstm'")
        if min(inputs, size, layers) < 1:
            raise ValueError(f"inputs {inputs}, size {size} and layers {layers} must all be at least 1")
        self.inputs, self.size, self.layers = inputs, size, layers
        network = nn.GRU if self.kind == "gru" else nn.LSTM
        # On "meta" nothing is drawn: the constructors of torch would use the global generator.
        self.network = network(inputs, size, layers, device="meta").to_empty(device="cpu")
        closed = torch.tensor([CLOSED, CLOSED, 0.0, CLOSED]) if self.kind == "lstm" else torch.zeros(3)
        self.register_buffer("closing", closed.repeat_interleave(size).unsqueeze(1), persistent=False)
        bound = 1.0 / math.sqrt(size)
        with torch.no_grad():
            for parameter in self.network.parameters():
                parameter.uniform_(-bound, bound, generator=generator)

    closing: Tensor
    """Weights `[gates, 1]` of a further input that empties the state."""

    @property
    def outputs(self) -> int:
        """Size of the last axis of the result."""
        return self.size

    @property
    def state_size(self) -> int:
        """Numbers per instance in the flat state."""
        return self._parts * self.size

    @property
    def state_parts(self) -> tuple[tuple[str, int], ...]:
        """What lies in the flat state one after another, by name and size."""
        names = [f"hidden {layer}" for layer in range(self.layers)]
        names += [f"cell {layer}" for layer in range(self.layers)] if self.kind == "lstm" else []
        return tuple((name, self.size) for name in names)

    def initial(self, batch: int, device: torch.device | str | None = None) -> Tensor:
        """The state before the first step, zeros `[batch, S]` (default device: that of the weights)."""
        weight = next(self.network.parameters())
        return torch.zeros(batch, self.state_size, device=device or weight.device, dtype=weight.dtype)

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """One step: `[B, D]` and `[B, S]` -> output `[B, H]` and the next state `[B, S]`."""
        self._check(x, state, leading=1)
        before = (state,) if self._parts == 1 else state.split(self.size, -1)
        hidden: list[Tensor] = []
        cells: list[Tensor] = []
        for layer, weights in enumerate(self.network.all_weights):
            if self.kind == "gru":
                x = torch.gru_cell(x, before[layer], *weights)
            else:
                x, cell = torch.lstm_cell(x, (before[layer], before[self.layers + layer]), *weights)
                cells.append(cell)
            hidden.append(x)
        return x, (x if self._parts == 1 else torch.cat(hidden + cells, -1))

    def sequence(self, x: Tensor, state: Tensor, starts: Tensor, mode: str = "padded") -> Tensor:
        """A whole rollout: `[T, B, D]` -> `[T, B, H]`, with gradient to the weights, `x` and `state`.

        `state` `[B, S]` is the state before row 0. Where `starts` `[T, B]` is true the state is zeroed before that row
        (row 0 included), as the rollout did when an episode ended. "padded" gives every piece of an episode a column
        of its own and runs PyTorch's sequence kernels; how many there are depends on the data, and many short ones are
        mostly padding. "stepwise" walks over the rows with static shapes: for compilation and capture, and quicker
        where episodes are short.
        """
        self._check(x, state, leading=2)
        if starts.dtype != torch.bool or starts.shape != x.shape[:2]:
            raise ValueError(
                f"starts is {starts.dtype} {list(starts.shape)} but x is {list(x.shape)}; "
                f"expected a bool {list(x.shape[:2])}"
            )
        if mode == "padded":
            return self._padded(x, state, starts)
        if mode == "stepwise":
            return self._stepwise(x, state, starts)
        raise ValueError(f"mode is {mode!r}; use 'padded' or 'stepwise'")

    @property
    def _parts(self) -> int:
        """Tensors `[B, H]` in the state."""
        return self.layers if self.kind == "gru" else 2 * self.layers

    def _padded(self, x: Tensor, state: Tensor, starts: Tensor) -> Tensor:
        state = state.masked_fill(starts[0].unsqueeze(-1), 0.0)
        if self.kind == "lstm" and self.layers == 1 and x.is_cpu:
            chain = chained_layout(starts)
            if chain is not None:
                return self._chained(x, state, *chain)
        layout = episode_layout(starts)
        if layout.num_episodes == x.shape[1]:  # nothing ended: the columns are the environments
            return self._run(x, state)
        # Every environment's first piece continues from its state; the others begin with an episode, from zeros.
        initial = state.new_zeros(layout.num_episodes, self.state_size).index_copy(0, layout.column[0], state)
        return layout.join(self._run(layout.split(x, layout.longest), initial))

    def _run(self, x: Tensor, state: Tensor) -> Tensor:
        """Without resets: `[T, N, D]`, `[N, S]` -> `[T, N, H]`."""
        stacked = state.unflatten(-1, (self._parts, self.size)).transpose(0, 1).contiguous()  # [parts, N, H]
        if self.kind == "gru":
            return self.network(x, stacked)[0]
        return self.network(x, (stacked[: self.layers], stacked[self.layers :]))[0]

    def _chained(self, x: Tensor, state: Tensor, layout: EpisodeLayout, empty: Tensor) -> Tensor:
        """One LSTM layer over episodes one after another, each begun by an empty row that a further input marks.

        The mark closes all gates: neither the state nor a gradient passes the row.
        """
        if not len(empty):
            return self._run(x, state)
        weight, *others = self.network.all_weights[0]
        rows = layout.split(F.pad(x, (0, 1)), layout.longest)
        rows.flatten(0, 1).select(-1, -1).index_fill_(0, empty, 1.0)
        hidden, cell = (part.unsqueeze(0).contiguous() for part in state.split(self.size, -1))
        weights = [torch.cat((weight, self.closing), 1), *others]
        return layout.join(torch.lstm(rows, (hidden, cell), weights, True, 1, 0.0, self.training, False, False)[0])

    def _stepwise(self, x: Tensor, state: Tensor, starts: Tensor) -> Tensor:
        """Layer by layer, so that the input's half of the gates is one product over all rows."""
        before = state.split(self.size, -1)
        if x.is_cuda:
            return self._fused(x, before, starts)
        resets = starts.unsqueeze(-1).unbind(0)
        for layer, weights in enumerate(self.network.all_weights):
            input_weight, hidden_weight, input_bias, hidden_bias = weights
            gates = F.linear(x, input_weight, input_bias).unbind(0)
            hidden, outputs = before[layer], []
            if self.kind == "gru":
                for gate, reset in zip(gates, resets, strict=True):
                    hidden = hidden.masked_fill(reset, 0.0)
                    hidden = _gru_row(gate, F.linear(hidden, hidden_weight, hidden_bias), hidden)
                    outputs.append(hidden)
            else:
                cell = before[self.layers + layer]
                for gate, reset in zip(gates, resets, strict=True):
                    hidden, cell = hidden.masked_fill(reset, 0.0), cell.masked_fill(reset, 0.0)
                    hidden, cell = _lstm_row(gate + F.linear(hidden, hidden_weight, hidden_bias), cell)
                    outputs.append(hidden)
            x = torch.stack(outputs)
        return x

    def _fused(self, x: Tensor, before: Sequence[Tensor], starts: Tensor) -> Tensor:
        """The same with fused kernels."""
        keep = (~starts).to(x.dtype).unsqueeze(-1)
        for layer, (input_weight, hidden_weight, input_bias, hidden_bias) in enumerate(self.network.all_weights):
            hidden = before[layer]
            if self.kind == "gru":
                gates = F.linear(x, input_weight, input_bias)
                x = GRUSequence.apply(gates, hidden, keep, hidden_weight, hidden_bias)
            else:
                gates = F.linear(x, input_weight, input_bias + hidden_bias)
                x = LSTMSequence.apply(gates, hidden, before[self.layers + layer], keep, hidden_weight)
        return x

    def _check(self, x: Tensor, state: Tensor, leading: int) -> None:
        axes = "[B, D]" if leading == 1 else "[T, B, D]"
        if x.ndim != leading + 1 or x.shape[-1] != self.inputs:
            raise ValueError(f"x is {list(x.shape)}; expected {axes} with D = {self.inputs}")
        if state.shape != (x.shape[-2], self.state_size):
            raise ValueError(
                f"state is {list(state.shape)}; expected {[x.shape[-2], self.state_size]}: B = {x.shape[-2]} instances "
                f"of state_size {self.state_size} (initial(B) makes zeros)"
            )


def _gru_row(from_input: Tensor, from_hidden: Tensor, hidden: Tensor) -> Tensor:
    """Gates `[B, 3H]` in PyTorch's order reset, update, new -> next hidden `[B, H]`."""
    size = hidden.shape[-1]
    input_gates, input_new = from_input.split((2 * size, size), -1)
    hidden_gates, hidden_new = from_hidden.split((2 * size, size), -1)
    reset, update = torch.sigmoid(input_gates + hidden_gates).chunk(2, -1)
    new = torch.tanh(torch.addcmul(input_new, reset, hidden_new))
    return torch.lerp(new, hidden, update)


def _lstm_row(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Gates `[B, 4H]` in PyTorch's order input, forget, cell, output -> next hidden and cell `[B, H]`."""
    open_input, forget, candidate, open_output = gates.chunk(4, -1)
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(open_input) * torch.tanh(candidate)
    return torch.sigmoid(open_output) * torch.tanh(cell), cell
