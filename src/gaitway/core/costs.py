"""Results of evaluations of which less is better; nothing that trains is imported, so that run folders tell it too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COSTS = ("fell", "physics_error")
"""Those of every environment that has them."""


def costs_of(facts: Any) -> frozenset[str]:
    """All of an environment with such `facts`, those of its `EnvSpec` or of a `contract.json`: what `costs` names there
    as well."""
    named = facts.get("costs") if isinstance(facts, Mapping) else None
    own = (each for each in named if isinstance(each, str)) if isinstance(named, list | tuple) else ()
    return frozenset((*COSTS, *own))
