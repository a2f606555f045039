"""Random numbers of the counter-based stream on a GPU: those of the CPU, bit for bit."""

import pytest
import torch

from gaitway.functional import counter_random

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def keys(count):
    edges = torch.tensor([0, 1, -1, 2**63 - 1, -(2**63), 1 << 32, 1 << 24])
    drawn = torch.randint(-(2**63), 2**63 - 1, (count,), generator=torch.Generator().manual_seed(0))
    return torch.cat((edges, drawn))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 13, 100])
def test_uniform_numbers_are_those_of_the_cpu(count, dtype):
    words = keys(20_000)
    here, there = (counter_random.uniform(words.to(device), count, dtype) for device in ("cpu", "cuda"))
    assert there.dtype == dtype
    assert torch.equal(here, there.cpu())


def test_words_and_keys_are_those_of_the_cpu():
    words = keys(100_000)
    here, there = (counter_random.fold(words.to(device), words.flip(0).to(device)) for device in ("cpu", "cuda"))
    assert torch.equal(here, there.cpu())
    assert torch.equal(counter_random.random_bits(here, 17), counter_random.random_bits(there, 17).cpu())


def test_compiled_and_recorded_they_are_the_same():
    words = keys(2000)
    expected = counter_random.uniform(words, 12, torch.float32)
    there, found = words.cuda(), torch.zeros(len(words), 12, device="cuda")
    counter_random.uniform(there, 12, torch.float32)  # makes the table that compilers must find
    compiled = torch.compile(counter_random.uniform, dynamic=False, fullgraph=True)
    assert torch.equal(compiled(there, 12, torch.float32).cpu(), expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found.copy_(counter_random.uniform(there, 12, torch.float32))
    graph.replay()
    assert torch.equal(found.cpu(), expected)
