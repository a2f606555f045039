"""Execution: choices, refusals, fallbacks. What needs a GPU is in tests/gpu."""

import functools
import logging

import pytest
import torch

from gaitway.core.execution import Execution, ExecutionConfig, _Recording, outside
from gaitway.core.seeding import SharedStream


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


def test_a_compiler_that_fails_on_large_kernels_is_asked_for_smaller_ones(caplog, monkeypatch):
    asked, compile_ = [], torch.compile

    def fails_on_large_kernels(function, *, options, **how):
        asked.append(options)

        def fail(*arguments):
            raise RuntimeError("PassManager::run failed")

        return fail if options is None else compile_(function, options=options, **how)

    monkeypatch.setattr(torch, "compile", fails_on_large_kernels)
    function = Execution(ExecutionConfig("compiled")).compiled(lambda x: (2.0 * x).sin())
    with caplog.at_level(logging.WARNING, "gaitway"):
        for _ in range(3):
            assert torch.allclose(function(torch.ones(5)), torch.tensor(2.0).sin())
    assert asked == [None, {"max_fusion_size": 24}]
    assert function._fast is not None
    assert "cannot be compiled" not in caplog.text


def test_why_it_cannot_be_compiled_names_the_cause_in_another_process(caplog, monkeypatch):
    said = (
        "SubprocException: An exception occurred in a subprocess:\n\nTraceback\nRuntimeError: PassManager::run failed\n"
    )

    def fail(*arguments):
        raise RuntimeError(said)

    monkeypatch.setattr(torch, "compile", lambda function, **how: fail)
    function = Execution(ExecutionConfig("compiled")).compiled(lambda x: 2.0 * x)
    with caplog.at_level(logging.WARNING, "gaitway"):
        assert function(torch.ones(())) == 2.0
    assert "in a subprocess: RuntimeError: PassManager::run failed" in caplog.text


def test_an_error_of_a_compiled_function_keeps_its_own_words():
    def wrong(x):
        raise ValueError("use a positive number")

    with pytest.raises(ValueError, match="use a positive number"):
        Execution(ExecutionConfig("compiled")).compiled(wrong)(torch.ones(1))


def test_methods_of_many_objects_are_all_compiled(monkeypatch, caplog):
    """torch gives up at the ninth object that shares the code of a method."""
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph.forward

    class Scale:
        def __init__(self, factor):
            self.factor, self.sizes = factor, torch.full((3,), float(factor))

        def of(self, x, *, twice=2):
            return self.factor * self.sizes * x * twice

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    execution = Execution(ExecutionConfig("compiled"))
    functions = [execution.compiled(Scale(factor).of) for factor in range(10)]
    for _ in range(2):
        for factor, function in enumerate(functions):
            assert function(torch.ones(3)).tolist() == [2.0 * factor**2] * 3
    assert len(compiled) == 10
    assert "cannot be compiled" not in caplog.text


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


class Graph:
    """Stands for a CUDA graph, which this machine may lack: keeps what was computed while it was recorded."""

    recording = None

    def __init__(self):
        self.work = []

    def register_generator_state(self, generator):
        self.generator = generator

    def replay(self):
        for each in self.work:
            each()


class Recorded:
    """Stands for the context `torch.cuda.graph`."""

    def __init__(self, graph, pool, stream):
        self.graph = graph

    def __enter__(self):
        Graph.recording = self.graph

    def __exit__(self, *error):
        Graph.recording = None


def test_a_recording_is_cut_where_something_stands_outside_of_it(monkeypatch):
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", Recorded)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    done = []

    def compute(what):
        Graph.recording.work.append(lambda: done.append(what))

    def function():
        for minibatch in (1, 2):
            compute(f"gradient {minibatch}")
            outside(lambda minibatch=minibatch: done.append(f"all-reduce {minibatch}"))
            compute(f"step {minibatch}")

    parts = _Recording(()).of(function, None)
    assert done == []  # a recording computes nothing, so nothing may be sent
    assert len(parts) == 5
    for part in parts:
        part()
    assert done == ["gradient 1", "all-reduce 1", "step 1", "gradient 2", "all-reduce 2", "step 2"]
    outside(lambda: done.append("now"))
    assert done[-1] == "now"


def test_a_recording_that_fails_is_over(monkeypatch):
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", Recorded)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))

    def function():
        raise RuntimeError("no graph can hold this")

    with pytest.raises(RuntimeError, match="no graph"):
        _Recording(()).of(function, None)
    assert _Recording.present is None
    assert Graph.recording is None


def test_a_recording_that_cannot_begin_is_over_too(monkeypatch):
    class Strict(Graph):
        def register_generator_state(self, generator):
            raise TypeError(f"expected a Generator, but got {type(generator).__name__}")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Strict)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    with pytest.raises(TypeError, match="expected a Generator"):
        _Recording((torch.Generator(),)).of(lambda: None, None)
    done = []
    outside(lambda: done.append("now"))
    assert done == ["now"]


def test_graphs_are_given_plain_generators(monkeypatch):
    """A graph takes nothing derived from a Generator, as the one that ranks share is."""
    registered = []
    monkeypatch.setattr(Graph, "register_generator_state", lambda graph, each: registered.append(each))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", Recorded)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    own, shared, points_to_it = torch.Generator(), SharedStream(), torch.Generator()
    monkeypatch.setattr(SharedStream, "graphsafe_get_state", lambda stream: points_to_it, raising=False)
    _Recording((own, shared)).of(lambda: None, None)
    assert registered == [own, points_to_it]
