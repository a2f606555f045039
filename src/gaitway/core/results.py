"""Results of evaluations: of which less is better, and in which order they are read. Nothing that trains is imported,
so that run folders tell it too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FIRST = ("score", "success", "return", "return_std", "stochastic_return", "length")
"""What is asked first about a policy."""
COSTS = ("fell", "physics_error")
"""Those of every environment that has them."""


def costs_of(facts: Any) -> frozenset[str]:
    """All of an environment with such `facts`, those of its `EnvSpec` or of a `contract.json`: what `costs` names there
    as well."""
    named = facts.get("costs") if isinstance(facts, Mapping) else None
    own = (each for each in named if isinstance(each, str)) if isinstance(named, list | tuple) else ()
    return frozenset((*COSTS, *own))


def in_order(result: Mapping[str, Any]) -> list[str]:
    """The names of a result as they are read: what is asked first, then figures, and totals of episodes at the end."""
    places = {name: place for place, name in enumerate(FIRST)}
    return sorted(result, key=lambda name: (name.endswith("_episode"), places.get(name, len(FIRST)), name))


def told(result: Mapping[str, Any], gap: str = " ") -> str:
    """A result in one line."""
    return gap.join(f"{name} {result[name]:.4g}" for name in in_order(result))
