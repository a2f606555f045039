"""Memories that begin a sequence with noise: a student that must not trust what it remembers too much."""

from __future__ import annotations

from typing import Any

import torch

from gaitway.algorithms.algorithm import Batch, DeviceNow


class MemoryNoise:
    """A transform of minibatches: with probability `share` the state before row 0 of a sequence, of actor and critic
    together, becomes uniform noise in [-1, 1], the range of what a GRU or LSTM puts out.

    A sequence is a column of the minibatch; the parts of it that begin with an episode begin empty as ever.
    """

    def __init__(self, policy: Any, share: float, generator: torch.Generator) -> None:
        if not policy.is_recurrent:
            raise ValueError("algorithm.memory_noise needs a policy with memory; set agent.memory.kind, or leave it 0")
        self.fields, self.share, self.generator = policy.column_fields, share, generator

    def __call__(self, batch: Batch, now: DeviceNow) -> Batch:
        first = batch[self.fields[0]]
        chance = torch.empty(len(first), 1, device=first.device).uniform_(generator=self.generator)
        noisy = {}
        for name in self.fields:
            noise = torch.empty_like(batch[name]).uniform_(-1.0, 1.0, generator=self.generator)
            noisy[name] = torch.where(chance < self.share, noise, batch[name])
        return batch | noisy
