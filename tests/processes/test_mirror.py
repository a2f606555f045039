from __future__ import annotations

import pytest
import torch
from torch import nn

from gaitway.processes.mirror import (
    ALIGNMENT,
    BufferRecord,
    ParameterMirror,
    copy_state,
    set_training_flags,
    training_flags,
)


def network(seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1).double())


class TestParameterMirror:
    def test_the_other_side_reads_what_this_side_wrote(self):
        mine, theirs = network(0), network(1)
        mirror = ParameterMirror(mine)
        assert mirror.memory.is_shared()
        assert len(mirror.memory) == 5 * ALIGNMENT + 8  # six tensors of at most 64 bytes, the last with one double
        mirror.update(mine)
        ParameterMirror(theirs, mirror.memory).read_into(theirs)
        for name, parameter in theirs.named_parameters():
            assert torch.equal(parameter, dict(mine.named_parameters())[name])
            assert parameter.requires_grad

    def test_versions_count_changes(self):
        module = network()
        mirror = ParameterMirror(module, shared=False)
        assert not mirror.memory.is_shared()
        mirror.update(module)
        mirror.update(module)
        assert mirror.version == 1
        with torch.no_grad():
            module[0].bias.add_(1)
        mirror.update(module)
        mirror.update(module)
        assert mirror.version == 2

    def test_nothing_to_mirror(self):
        mirror = ParameterMirror(nn.Tanh())
        mirror.update(nn.Tanh())
        assert mirror.version == 0

    def test_parameters_that_are_one_tensor_count_once(self):
        first, second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        second.weight = first.weight
        assert len(ParameterMirror(nn.Sequential(first, second)).memory) == 64

    def test_another_structure_is_refused(self):
        with pytest.raises(RuntimeError, match=r"'0\.weight' \[5, 3\] is not what it was"):
            ParameterMirror(network()).update(nn.Sequential(nn.Linear(3, 5)))


class TestBufferRecord:
    def test_changes_are_reported_once(self):
        module = network()
        record = BufferRecord(module)
        assert record.changes(module) == {}
        module[1].running_mean.fill_(3.0)
        assert list(record.changes(module)) == ["1.running_mean"]
        assert record.changes(module) == {}
        assert len(BufferRecord().changes(module)) == 3

    def test_accepted_changes_are_not_sent_back(self):
        module = network()
        record = BufferRecord(module)
        memory = module[1].running_mean.data_ptr()
        record.accept(module, {"1.running_mean": torch.tensor([1.0, 2.0]), "1.running_var": torch.ones(7)})
        assert module[1].running_mean.tolist() == [1, 2]
        assert module[1].running_mean.data_ptr() == memory
        assert module[1].running_var.shape == (7,)
        assert record.changes(module) == {}


def test_training_flags_of_every_part():
    mine, theirs = network(), network()
    mine.eval()
    mine[1].train()
    set_training_flags(theirs, training_flags(mine))
    assert [part.training for part in theirs.modules()] == [False, False, True, False]


class TestCopyState:
    def test_parameters_and_buffers(self):
        target, source = network(0), network(1).double()
        source[1].running_mean.fill_(4.0)
        copy_state(target, source)
        assert torch.equal(target[0].weight, source[0].weight.float())
        assert target[0].weight.dtype is torch.float32
        assert target[1].running_mean.tolist() == [4, 4]

    def test_nothing_is_copied_from_another_structure(self):
        target, source = network(0), nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(3, 1))
        before = target[0].weight.clone()
        with pytest.raises(ValueError, match=r"differ in \['2\.weight'\]"):
            copy_state(target, source)
        assert torch.equal(target[0].weight, before)
