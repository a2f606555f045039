"""Action distributions: all heads under one roof, and the choice of one for an environment.

A head turns network outputs into parameters and is pure in them; `gaitway.nn.head` explains the interface.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Sequence
from typing import Any, Protocol

from gaitway.nn.continuous import Beta, Gaussian, SquashedGaussian
from gaitway.nn.discrete import Bernoulli, Categorical, MultiCategorical
from gaitway.nn.head import Head

__all__ = [
    "KINDS",
    "Bernoulli",
    "Beta",
    "Categorical",
    "Gaussian",
    "Head",
    "MultiCategorical",
    "SquashedGaussian",
    "make_distribution",
]

KINDS: dict[str, type[Head]] = {
    "gaussian": Gaussian,
    "squashed_gaussian": SquashedGaussian,
    "beta": Beta,
    "categorical": Categorical,
    "multi_categorical": MultiCategorical,
    "bernoulli": Bernoulli,
}
LIMITS = ("low", "high")


class ActionLike(Protocol):
    """What `make_distribution` reads of an environment's `ActionSpec`."""

    @property
    def kind(self) -> str: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def low(self) -> tuple[float, ...]: ...
    @property
    def high(self) -> tuple[float, ...]: ...
    @property
    def choices(self) -> tuple[int, ...]: ...
    @property
    def start(self) -> tuple[int, ...]: ...


def make_distribution(action: ActionLike, kind: str = "auto", **options: Any) -> Head:
    """The head of `kind` for an action; "auto" takes gaussian, categorical or multi_categorical.

    Sizes, limits and offsets come from the action. `options` are the other arguments of the head's constructor; for
    continuous actions `low` and `high` among them replace the environment's limits, e.g. where it states none.
    """
    if kind != "auto" and kind not in KINDS:
        nearest = difflib.get_close_matches(kind, KINDS, n=1)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise ValueError(f"no distribution {kind!r}; {hint}known: auto, {', '.join(KINDS)}")
    sizes = _sizes(action, options)
    chosen = next(iter(sizes)) if kind == "auto" else kind
    if chosen not in sizes:
        raise ValueError(f"{chosen!r} does not fit {_describe(action)}; use {' or '.join(sizes)}")
    fixed = sizes[chosen]
    known = [name for name in inspect.signature(KINDS[chosen]).parameters if name not in fixed or name in LIMITS]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ValueError(f"{chosen!r} has no option {', '.join(unknown)}; you can set {', '.join(known) or 'none'}")
    return KINDS[chosen](**{**options, **fixed})


def _sizes(action: ActionLike, options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The kinds that fit, the automatic one first, each with the arguments that the action decides."""
    if action.kind == "continuous":
        low, high = options.get("low", action.low), options.get("high", action.high)
        box = {"size": len(action.names), "low": low, "high": high}
        bounded = _finite(low) and _finite(high)
        return dict.fromkeys(("gaussian", "squashed_gaussian", "beta") if bounded else ("gaussian",), box)
    if action.kind == "discrete":
        return {"categorical": {"n": action.choices[0], "start": action.start[0] if action.start else 0}}
    fitting: dict[str, dict[str, Any]] = {"multi_categorical": {"dims": action.choices, "start": action.start}}
    if set(action.choices) == {2}:
        fitting["bernoulli"] = {"n": len(action.choices), "start": action.start, "as_int": True}
    return fitting


def _finite(limit: float | Sequence[float] | None) -> bool:
    if limit is None:
        return False
    return all(math.isfinite(value) for value in ([limit] if isinstance(limit, int | float) else limit))


def _describe(action: ActionLike) -> str:
    if action.kind == "continuous":
        return f"a continuous action with limits {list(action.low)} to {list(action.high)}"
    return f"a {action.kind} action with {list(action.choices)} choices"
