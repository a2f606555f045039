"""Execution: choices, refusals, fallbacks. What needs a GPU is in tests/gpu."""

import logging

import pytest
import torch

from gaitway.core.execution import Execution, ExecutionConfig


def test_automatic_choices_on_the_cpu():
    execution = Execution()
    assert (execution.mode, execution.precision) == ("eager", "fp32")
    assert not execution.captures
    assert not execution.compiles


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (ExecutionConfig("captured"), "CUDA graphs need a GPU; use eager or compiled"),
        (ExecutionConfig("compiled_captured"), "CUDA graphs need a GPU"),
        (ExecutionConfig(precision="tf32"), "use fp32 or bf16"),
    ],
)
def test_what_only_a_gpu_can_do_is_refused_on_the_cpu(config, words):
    with pytest.raises(ValueError, match=words):
        Execution(config, "cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_missing_gpu_is_named():
    with pytest.raises(ValueError, match="torch finds no GPU; use device=cpu"):
        Execution(device="cuda")


def test_a_program_runs_its_function_each_time():
    total = torch.zeros(())
    program = Execution().program(lambda: total.add_(1.0), "counting")
    for _ in range(5):
        program()
    assert total == 5.0
    assert not program.is_recorded


def test_what_cannot_be_compiled_runs_as_it_is_and_says_why(caplog):
    def values(x):
        return torch.tensor(x.sum().item()) + len(str(torch.Generator()))  # a graph break, which fullgraph refuses

    function = Execution(ExecutionConfig("compiled")).compiled(values)
    with caplog.at_level(logging.WARNING, "gaitway"):
        first = function(torch.ones(3))
        second = function(torch.ones(3))
    assert first.shape == second.shape == ()
    assert len([r for r in caplog.records if "cannot be compiled and runs as it is" in r.message]) == 1


def test_an_error_of_a_compiled_function_keeps_its_own_words():
    def wrong(x):
        raise ValueError("use a positive number")

    with pytest.raises(ValueError, match="use a positive number"):
        Execution(ExecutionConfig("compiled")).compiled(wrong)(torch.ones(1))


def test_bf16_holds_inside_the_block_only():
    x = torch.randn(4, 4)
    execution = Execution(ExecutionConfig(precision="bf16"))
    with execution.numerics():
        assert (x @ x).dtype == torch.bfloat16
    assert (x @ x).dtype == torch.float32


def test_the_precision_of_products_is_put_back_after_an_error():
    before = torch.get_float32_matmul_precision()
    with pytest.raises(RuntimeError), Execution(ExecutionConfig(precision="bf16")).numerics():
        raise RuntimeError
    assert torch.get_float32_matmul_precision() == before
