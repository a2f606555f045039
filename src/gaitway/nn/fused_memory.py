"""LSTM and GRU over a sequence with resets, for a GPU: fixed shapes, two kernels per row, weight gradients in one go.

cuDNN cannot reset a state in the midst of a sequence, so sequences with episode ends are usually cut and padded, with
shapes that depend on the data. Here the rows are walked one by one with PyTorch's fused cells. The product that all
rows share stays outside (the input's half of the gates), and the gradient of the hidden weights is one product over
all rows instead of one per row.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.amp import custom_bwd, custom_fwd

aten = torch.ops.aten


class LSTMSequence(torch.autograd.Function):
    """`gates` `[T, B, 4H]` (input's half, both biases included), hidden, cell `[B, H]`, `keep` `[T, B, 1]` (0 where the
    state is emptied before the row), hidden weight `[4H, H]` -> `[T, B, H]`."""

    @staticmethod
    @custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(ctx: Any, gates: Tensor, hidden: Tensor, cell: Tensor, keep: Tensor, weight: Tensor) -> Tensor:
        outputs, hiddens, cells_before, cells_after, workspaces = [], [], [], [], []
        transposed = weight.t()
        for gate, mask in zip(gates.unbind(0), keep.unbind(0), strict=True):
            hidden, cell = hidden * mask, cell * mask
            hiddens.append(hidden)
            cells_before.append(cell)
            hidden, cell, workspace = aten._thnn_fused_lstm_cell(gate, hidden @ transposed, cell)
            outputs.append(hidden)
            cells_after.append(cell)
            workspaces.append(workspace)
        ctx.save_for_backward(keep, weight, *hiddens, *cells_before, *cells_after, *workspaces)
        return torch.stack(outputs)

    @staticmethod
    @custom_bwd(device_type="cuda")
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        keep, weight, *rows = ctx.saved_tensors
        steps, (gradient,) = len(keep), gradients
        hiddens, before, after, workspaces = (rows[part * steps : (part + 1) * steps] for part in range(4))
        for_gates: list[Tensor] = []
        for_hidden = torch.zeros_like(gradient[0])
        for_cell = torch.zeros_like(gradient[0])
        for t in reversed(range(steps)):
            row, for_cell, _ = aten._thnn_fused_lstm_cell_backward_impl(
                gradient[t] + for_hidden, for_cell, before[t], after[t], workspaces[t], False
            )
            for_gates.append(row)
            for_hidden = (row @ weight).mul_(keep[t])
            for_cell = for_cell.mul_(keep[t])
        gates = torch.stack(for_gates[::-1])
        for_weight = gates.flatten(0, 1).t() @ torch.cat(hiddens)
        return gates, for_hidden, for_cell, None, for_weight


class GRUSequence(torch.autograd.Function):
    """`gates` `[T, B, 3H]` (input's half with its bias), hidden `[B, H]`, `keep` `[T, B, 1]`, hidden weight `[3H, H]`
    and bias `[3H]` -> `[T, B, H]`."""

    @staticmethod
    @custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(ctx: Any, gates: Tensor, hidden: Tensor, keep: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        steps, batch, size = gates.shape[0], gates.shape[1], hidden.shape[-1]
        outputs = gates.new_empty(steps, batch, size)
        hiddens, workspaces = gates.new_empty(steps, batch, size), []
        transposed = weight.t()
        for t in range(steps):
            hidden = torch.mul(hidden, keep[t], out=hiddens[t])
            hidden, workspace = aten._thnn_fused_gru_cell(gates[t], torch.addmm(bias, hidden, transposed), hidden)
            outputs[t] = hidden
            workspaces.append(workspace)
        ctx.save_for_backward(keep, weight, hiddens, *workspaces)
        return outputs

    @staticmethod
    @custom_bwd(device_type="cuda")
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        keep, weight, hiddens, *workspaces = ctx.saved_tensors
        (gradient,) = gradients
        from_input = gradient.new_empty(*gradient.shape[:2], weight.shape[0])
        from_hidden = torch.empty_like(from_input)
        for_hidden = torch.zeros_like(gradient[0])
        for t in reversed(range(len(keep))):
            inputs, hidden, direct, _, _ = aten._thnn_fused_gru_cell_backward(
                gradient[t] + for_hidden, workspaces[t], False
            )
            from_input[t] = inputs
            from_hidden[t] = hidden
            for_hidden = torch.addmm(direct, hidden, weight).mul_(keep[t])
        flat = from_hidden.flatten(0, 1)
        return from_input, for_hidden, None, flat.t() @ hiddens.flatten(0, 1), flat.sum(0)
