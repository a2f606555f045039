"""A step of a policy as files: a `torch.export` program, and one-file ONNX made of the same program."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

from gaitway.export.acting_step import ActingStep

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
EXAMPLE_BATCH = 3
"""Rows of the example that is traced; 0 and 1 are special to torch, and any number of rows runs afterwards."""


TRACES = ("stack_trace", "from_node", "torch_fn", "source_fn_stack")
"""What torch notes of the lines that made an operation: paths of this machine, which nobody needs elsewhere."""


class ExportError(ValueError):
    """A policy cannot be exported, or the export is not the policy; the message is one sentence."""


def need_onnx() -> None:
    """Refuse to go on without the packages that write and run ONNX."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ExportError(
            f"ONNX needs {missing[0]}, which is not installed: pip install gaitway[export], or export with "
            "--format torch"
        )


def trace(step: ActingStep) -> ExportedProgram:
    """The step as a program for any number of rows, with the parameters it uses and no others: no critics."""
    example = step.example(EXAMPLE_BATCH)
    batch = Dim("batch")
    rows = tuple({0: batch} for _ in example)
    with torch.no_grad(), _told("one program"):
        whole = torch.export.export(step, example, dynamic_shapes=(rows,))
        program = torch.export.export(_without_unused(whole.module()), example, dynamic_shapes=rows)
    for node in program.graph.nodes:
        for name in TRACES:
            node.meta.pop(name, None)
    return program


def write_torch(program: ExportedProgram, path: Path) -> None:
    """A .pt2 file."""
    with _told("a .pt2 file"):
        torch.export.save(program, path)


def load_torch(path: Path) -> Any:
    """The program of a .pt2 file that this process has written, as a function of tensors."""
    with _told("a .pt2 file that can be read"):
        return torch.export.load(path).module()


def write_onnx(program: ExportedProgram, step: ActingStep, path: Path) -> None:
    """One .onnx file, parameters included, with the names of the step."""
    rows = tuple({0: "batch"} for _ in step.input_names)
    with _told("ONNX"):
        made = torch.onnx.export(
            program,
            (),
            input_names=step.input_names,
            output_names=step.output_names,
            dynamic_shapes=rows,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        assert made is not None
        for node in made.model.graph:
            node.metadata_props.clear()
        made.save(str(path), external_data=False)


def _without_unused(module: Any) -> Any:
    """A traced module without what its results do not depend on."""
    module.graph.eliminate_dead_code()
    used = {node.target for node in module.graph.nodes if node.op == "get_attr"}
    held: list[tuple[str, Tensor]] = [*module.named_parameters(), *module.named_buffers()]
    for name, _ in held:
        if name not in used:
            owner, _, attribute = name.rpartition(".")
            delattr(module.get_submodule(owner), attribute)
    module.recompile()
    return module


@contextmanager
def _told(form: str) -> Iterator[None]:
    """Whatever a part of the user's does that the exporter cannot write becomes one sentence."""
    try:
        with _quiet():
            yield
    except OSError:
        raise  # of the disk
    except Exception as error:
        raise ExportError(f"the policy cannot be written as {form}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if "specialized it to be a constant" in str(error):
        return "a part of it fixes the number of rows, most often by len(x); write x.shape[0] there"
    said = " ".join(str(error).partition("\n")[0].split()) or type(error).__name__
    return f"{said.rstrip('.;')}; a part of it may look at values of tensors, which docs/export.md says how to avoid"


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks on packages that are not there and on its own deprecations."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    levels = [each.level for each in loggers]
    try:
        for each in loggers:
            each.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)
