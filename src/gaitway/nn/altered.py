"""Whether modules run as their classes say: the question of every path written by hand that stands in for them."""

from __future__ import annotations

import functools

from torch import nn


def is_altered(module: nn.Module) -> bool:
    """Whether `module` or one inside it has a method put over that of its class, is watched by hooks, or has hooks on
    the gradients of its parameters."""
    waiting: list[nn.Module | None] = [module]
    while waiting:  # not `modules()`: this is asked between the steps of small networks
        part = waiting.pop()
        if part is None:
            continue
        kind: type = type(part)
        if part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks:
            return True
        if not _methods(kind).isdisjoint(part.__dict__):
            return True
        for parameter in part._parameters.values():
            if parameter is not None and parameter._backward_hooks:
                return True
        waiting.extend(part._modules.values())
    return False


@functools.cache
def _methods(kind: type) -> frozenset[str]:
    return frozenset(name for name in dir(kind) if callable(getattr(kind, name)))
