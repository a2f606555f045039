"""Action distributions: all heads under one roof, the choice of one for an environment, and heads as distributions.

A head turns network outputs into parameters and is pure in them; `gaitway.nn.head` explains the interface, which is
what algorithms use. `Distribution` is a head with its parameters, for those who think in distributions.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from gaitway.nn.continuous import Beta, Gaussian, SquashedGaussian
from gaitway.nn.discrete import Bernoulli, Categorical, MultiCategorical
from gaitway.nn.head import Head
from gaitway.nn.state_dependent_noise import StateDependentNoise
from gaitway.nn.tanh_bijector import TanhBijector

__all__ = [
    "KINDS",
    "Bernoulli",
    "Beta",
    "Categorical",
    "Distribution",
    "Gaussian",
    "Head",
    "MultiCategorical",
    "SquashedGaussian",
    "StateDependentNoise",
    "TanhBijector",
    "kl_divergence",
    "make_distribution",
]

KINDS: dict[str, type[Head]] = {
    "gaussian": Gaussian,
    "squashed_gaussian": SquashedGaussian,
    "beta": Beta,
    "categorical": Categorical,
    "multi_categorical": MultiCategorical,
    "bernoulli": Bernoulli,
    "state_dependent_noise": StateDependentNoise,
}
LIMITS = ("low", "high")


@dataclass(frozen=True)
class Distribution:
    """A head and its parameters `[..., P]`: a distribution of actions for each of the leading elements.

    Actions are those of the environment: squashed, stretched, in its own numbering. The event is the last axis and is
    summed once; a categorical action is a number and has none.
    """

    head: Head
    params: Tensor
    generator: torch.Generator | None = None
    """What `sample` draws from unless it is given another one."""

    def __post_init__(self) -> None:
        if self.params.dim() < 1 or self.params.shape[-1] != self.head.num_params:
            raise ValueError(
                f"params are {list(self.params.shape)}, but {type(self.head).__name__} has {self.head.num_params} per "
                "action, on the last axis; make them with head(network_output)"
            )

    @property
    def shape(self) -> torch.Size:
        """The leading shape: of log-probabilities, entropies and divergences."""
        return self.params.shape[:-1]

    def sample(self, n: int | None = None, generator: torch.Generator | None = None) -> Tensor:
        """One action per element `[..., *action]`, or n of them `[n, ..., *action]`; differentiable where the head's
        `sample` is."""
        return self.head.action(self._raw(n, generator))

    def sample_and_log_prob(
        self, n: int | None = None, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """`sample` with log-probabilities `[n, ...]`, exact also where tanh has rounded an action to its limit."""
        raw = self._raw(n, generator)
        return self.head.action(raw), self.head.log_prob(self._repeated(n), raw)

    def mode(self) -> Tensor:
        """The action of the deterministic policy."""
        return self.head.action(self.head.mode(self.params))

    def action(self, stochastic: bool = True, generator: torch.Generator | None = None) -> Tensor:
        """`sample` or `mode`."""
        return self.sample(generator=generator) if stochastic else self.mode()

    def log_prob(self, action: Tensor, raw: Tensor | None = None) -> Tensor:
        """Of actions `[..., *action]`, or of several per element `[n, ..., *action]`. `raw`, where it was kept, is the
        value that `action` was made of (before tanh), for which the density is exact."""
        values = self.head.raw(action) if raw is None else raw
        expected = (*self.shape, *self.head.raw_shape)
        extra = values.dim() - len(expected)
        if extra < 0 or values.shape[extra:] != expected:
            raise ValueError(
                f"the actions are {list(values.shape)}; one per element is {list(expected)}, n of them "
                f"{['n', *expected]}. Reshape or expand them"
            )
        return self.head.log_prob(self.params.expand(*values.shape[:extra], *self.params.shape), values)

    def entropy(self) -> Tensor | None:
        """Of the action, `[...]`; None where there is no closed form (tanh): see `estimated_entropy`."""
        return self.head.action_entropy(self.params)

    def estimated_entropy(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """The mean of `-log_prob` over n samples, `[...]`."""
        return -self.sample_and_log_prob(n, generator)[1].mean(0)

    def kl(self, other: Distribution) -> Tensor:
        """`kl_divergence(self, other)`."""
        return kl_divergence(self, other)

    def _raw(self, n: int | None, generator: torch.Generator | None) -> Tensor:
        generator = generator or self.generator
        if generator is None:
            raise ValueError("no random stream to draw from; pass generator= here or to Distribution")
        return self.head.sample(self._repeated(n), generator)

    def _repeated(self, n: int | None) -> Tensor:
        if n is None:
            return self.params
        if n < 0:
            raise ValueError(f"n is {n}; draw 0 or more samples")
        return self.params.expand(n, *self.params.shape)


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """Exact KL(p || q), summed over the event: `[...]`, for every kind.

    Both must be of one kind and over the same actions. Squashing and stretching are bijections, so that the divergence
    is that of the distributions behind them.
    """
    if type(p.head) is not type(q.head):
        raise TypeError(
            f"no divergence between a {type(p.head).__name__} and a {type(q.head).__name__}; both must be of one kind"
        )
    if p.head.support() != q.head.support():
        raise ValueError(
            f"the two {type(p.head).__name__} are over different actions: {p.head.support()} and {q.head.support()}; "
            "give both the same sizes, limits and offsets"
        )
    return p.head.kl(p.params, q.params)


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
    continuous actions `low` and `high` among them replace the environment's limits, e.g. where it states none. For a
    gymnasium space there is `gaitway.envs.gym.space_distribution.distribution_for`.
    """
    if kind != "auto" and kind not in KINDS:
        nearest = difflib.get_close_matches(kind, KINDS, n=1)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise ValueError(f"no distribution {kind!r}; {hint}known: auto, {', '.join(KINDS)}")
    if not hasattr(action, "kind"):
        raise TypeError(
            f"make_distribution takes an ActionSpec (env.spec.action), found {type(action).__name__}; for a gymnasium "
            "space call gaitway.envs.gym.space_distribution.distribution_for"
        )
    sizes = _sizes(action, options)
    chosen = next(iter(sizes)) if kind == "auto" else kind
    if chosen not in sizes:
        fitting = [name for name in sizes if not _required(name, sizes[name])]
        raise ValueError(f"{chosen!r} does not fit {_describe(action)}; use {' or '.join(fitting)}")
    fixed = sizes[chosen]
    known = [name for name in inspect.signature(KINDS[chosen]).parameters if name not in fixed or name in LIMITS]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ValueError(f"{chosen!r} has no option {', '.join(unknown)}; you can set {', '.join(known) or 'none'}")
    missing = [name for name in _required(chosen, fixed) if name not in options]
    if missing:
        raise ValueError(f"{chosen!r} needs the option {', '.join(missing)}")
    return KINDS[chosen](**{**options, **fixed})


def _required(kind: str, fixed: dict[str, Any]) -> list[str]:
    """Arguments without a default that the action does not decide."""
    parameters = inspect.signature(KINDS[kind]).parameters.values()
    return [each.name for each in parameters if each.default is each.empty and each.name not in fixed]


def _sizes(action: ActionLike, options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The kinds that fit, the automatic one first, each with the arguments that the action decides."""
    if action.kind == "continuous":
        low, high = options.get("low", action.low), options.get("high", action.high)
        box = {"size": len(action.names), "low": low, "high": high}
        bounded = ("squashed_gaussian", "beta") if _finite(low) and _finite(high) else ()
        return dict.fromkeys(("gaussian", *bounded, "state_dependent_noise"), box)
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
