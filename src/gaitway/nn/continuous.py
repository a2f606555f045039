"""Heads for continuous actions: Gaussian, Gaussian squashed by tanh, Beta."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gaitway.core.seeding import fill
from gaitway.nn.head import Head
from gaitway.nn.tanh_bijector import TanhBijector

LOG_2 = math.log(2.0)
HALF_LOG_2_PI = 0.5 * math.log(2.0 * math.pi)
UNIT_MARGIN = 1e-6  # how far Beta keeps its sample from 0 and 1, where the density may be infinite

Limits = float | Sequence[float] | None


class Gaussian(Head):
    """Independent normal distributions; params are mean | std `[..., 2A]`, raw is the action.

    With finite limits and `rescale` the network speaks in units of the action range: mean = centre + half_range * out
    and std = half_range * std, per dimension (dimensions without both limits keep their own unit). Samples are not
    clipped: environments do that, and the density stays exact.

    `init_std`, `std_range` and `std_floor`, a least deviation for each action, are in linear units, before rescaling.
    `std_type` "log" keeps the logarithm of the standard deviation as the parameter, "scalar" the standard deviation
    itself; both are clamped whenever params are built, so a standard deviation is positive by construction. Outside the
    range the gradient is 0: watch `at_bound`. `state_dependent` lets the network emit mean | std (in logarithms for
    "log"); call `init_last_layer` so that they start at `init_std`. `mean_activation` "tanh" keeps the mean, but not
    samples, within the limits.
    """

    centre: Tensor
    half_range: Tensor
    _floor: Tensor

    def __init__(
        self,
        size: int,
        low: Limits = None,
        high: Limits = None,
        init_std: float = 1.0,
        std_range: tuple[float, float] = (1e-6, 1e6),
        std_type: str = "log",
        learn_std: bool = True,
        state_dependent: bool = False,
        rescale: bool = True,
        std_floor: Sequence[float] = (),
        mean_activation: str = "none",
    ) -> None:
        super().__init__()
        smallest, largest = std_range
        if len(std_floor) not in (0, size):
            raise ValueError(f"std_floor is {list(std_floor)}; give one number for each of the {size} actions, or none")
        if not all(smallest <= floor <= init_std for floor in std_floor):
            raise ValueError(
                f"std_floor is {list(std_floor)}; each must lie between {smallest} and init_std, {init_std}"
            )
        if mean_activation not in ("none", "tanh"):
            raise ValueError(f"mean_activation is {mean_activation!r}; use none or tanh")
        self.mean_activation = mean_activation
        if std_type not in ("log", "scalar"):
            raise ValueError(f"std_type is {std_type!r}; use 'log' or 'scalar'")
        if not 1e-6 <= smallest < largest:
            raise ValueError(f"std_range is {tuple(std_range)}; it must increase and start at 1e-6 or above")
        if not smallest <= init_std <= largest:
            raise ValueError(f"init_std is {init_std}; it must lie in std_range {tuple(std_range)}")
        if state_dependent and not learn_std:
            raise ValueError("learn_std=False fixes one deviation for all states; drop state_dependent=True")
        self.size, self.init_std, self.std_range, self.std_type = size, init_std, (smallest, largest), std_type
        self.state_dependent = state_dependent
        self.has_floor = bool(std_floor)
        if std_floor:
            floor = torch.tensor(std_floor)
            self.register_buffer("_floor", floor.log() if std_type == "log" else floor, persistent=False)
        self.inputs = 2 * size if state_dependent else size
        self.num_params, self.raw_shape = 2 * size, (size,)
        lower, upper = _limits(size, low, high)
        bounded = torch.isfinite(lower) & torch.isfinite(upper) & rescale
        self.register_buffer("centre", torch.where(bounded, (upper + lower) / 2, 0.0), persistent=False)
        self.register_buffer("half_range", torch.where(bounded, (upper - lower) / 2, 1.0), persistent=False)
        self._shifts = bool((self.centre != 0).any())
        self._scales = bool((self.half_range != 1).any())
        if not state_dependent:
            # Two names, so that weights saved with the other std_type are refused instead of misread.
            self._spread_name = "log_std" if std_type == "log" else "linear_std"
            start = torch.full((size,), self._to_parameter(init_std))
            if learn_std:
                self.register_parameter(self._spread_name, nn.Parameter(start))
            else:
                self.register_buffer(self._spread_name, start)

    def from_mean_std(self, mean: Tensor, std: Tensor) -> Tensor:
        """params from a mean `[..., A]` and a deviation that broadcasts to it, both in units of raw."""
        return torch.cat((mean, std.expand_as(mean)), -1)

    def forward(self, output: Tensor) -> Tensor:
        if self.state_dependent:
            output, spread = output.chunk(2, -1)
        else:
            spread = self.spread
        mean, std = self._scaled_mean(output), self._scaled_std(spread)
        return torch.cat((mean, std.expand_as(mean)), -1)

    def score(self, output: Tensor, raw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.state_dependent:
            return super().score(output, raw)
        # One deviation for all rows: its logarithm is [A] numbers instead of [..., A], and comes without a logarithm.
        mean, log_std = self._scaled_mean(output), self._to_log_std(self.spread)
        if self._scales:
            log_std = log_std + self.half_range.log()
        total = log_std.sum()
        z = (raw - mean) * (-log_std).exp()
        log_prob = torch.add(-self.size * HALF_LOG_2_PI - total, (z * z).sum(-1), alpha=-0.5)
        entropy = (total + self.size * (0.5 + HALF_LOG_2_PI)).expand(log_prob.shape)
        return torch.cat((mean, log_std.exp().expand_as(mean)), -1), log_prob, entropy

    @property
    def spread(self) -> Tensor:
        """The parameter `[A]` of a deviation that all states share, in logarithms for "log"."""
        return getattr(self, self._spread_name)

    def sample(self, params: Tensor, generator: torch.Generator) -> Tensor:
        """Reparametrised: differentiable in `params`."""
        mean, std = params.chunk(2, -1)
        noise = fill(torch.empty_like(mean, memory_format=torch.contiguous_format), generator)
        return torch.addcmul(mean, std, noise)

    def sampler(self, generator: torch.Generator | None) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        if self.state_dependent:
            return super().sampler(generator)
        std = self._scaled_std(self.spread).detach()
        params = mean = noise = raw = std.new_empty(0)

        def draw(output: Tensor) -> tuple[Tensor, Tensor]:
            nonlocal params, mean, noise, raw
            if noise.shape != output.shape:
                params = torch.cat((output, std.expand_as(output)), -1)
                mean, noise, raw = self.mode(params), torch.empty_like(output), torch.empty_like(output)
            mean.copy_(self._scaled_mean(output))
            if generator is None:
                return params, mean
            return params, torch.addcmul(mean, std, fill(noise, generator), out=raw)

        return draw

    def mode(self, params: Tensor) -> Tensor:
        return params[..., : self.size]

    def log_prob(self, params: Tensor, raw: Tensor) -> Tensor:
        mean, std = params.chunk(2, -1)
        z = (raw - mean) / std
        return -self.size * HALF_LOG_2_PI - torch.addcmul(std.log(), z, z, value=0.5).sum(-1)

    def entropy(self, params: Tensor) -> Tensor:
        return params[..., self.size :].log().sum(-1) + self.size * (0.5 + HALF_LOG_2_PI)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        old_mean, old_std = old.chunk(2, -1)
        new_mean, new_std = new.chunk(2, -1)
        ratio = old_std / new_std
        distance = (old_mean - new_mean) / new_std
        return (0.5 * (ratio.square() + distance.square() - 1.0) - ratio.log()).sum(-1)

    def std(self, params: Tensor) -> Tensor:
        return params[..., self.size :]

    def at_bound(self, params: Tensor) -> Tensor:
        std = params[..., self.size :]
        smallest, largest = self.std_range
        margin = 1e-5  # rounding of exp(log(bound)) and of the rescaling
        least: float | Tensor = smallest
        if self.has_floor:
            least = self._floor.exp() if self.std_type == "log" else self._floor
        low, high = self.half_range * (least * (1 + margin)), self.half_range * (largest * (1 - margin))
        return ((std <= low) | (std >= high)).sum()

    @torch.no_grad()
    def init_last_layer(self, layer: nn.Linear) -> None:
        super().init_last_layer(layer)
        if self.state_dependent:
            if layer.bias is None:
                raise ValueError("the last layer has no bias; state-dependent deviations start from it")
            layer.weight[self.size :] = 0.0
            layer.bias[self.size :] = self._to_parameter(self.init_std)

    def set_std(self, std: float) -> None:
        smallest, largest = self.std_range
        if self.state_dependent:
            super().set_std(std)
        if not smallest <= std <= largest:
            raise ValueError(f"std is {std}; it must lie in std_range {self.std_range}")
        if self.has_floor and bool((self._floor > self._to_parameter(std)).any()):
            raise ValueError(f"std is {std}, which is below std_floor; use a larger one")
        with torch.no_grad():
            self.spread.fill_(self._to_parameter(std))

    def _to_parameter(self, std: float) -> float:
        return math.log(std) if self.std_type == "log" else std

    def _scaled_std(self, parameter: Tensor) -> Tensor:
        std = self._to_log_std(parameter).exp() if self.std_type == "log" else self._bounded(parameter)
        return std * self.half_range if self._scales else std

    def _to_log_std(self, parameter: Tensor) -> Tensor:
        return self._bounded(parameter) if self.std_type == "log" else self._bounded(parameter).log()

    def _bounded(self, parameter: Tensor) -> Tensor:
        """The parameter within its bounds, in its own units."""
        smallest, largest = map(math.log, self.std_range) if self.std_type == "log" else self.std_range
        bounded = parameter.clamp(smallest, largest)
        return torch.maximum(bounded, self._floor) if self.has_floor else bounded

    def _scaled_mean(self, mean: Tensor) -> Tensor:
        if self.mean_activation == "tanh":
            mean = mean.tanh()
        if self._shifts:
            return torch.addcmul(self.centre, mean, self.half_range)
        return mean * self.half_range if self._scales else mean


class SquashedGaussian(Head):
    """`action = centre + half_range * tanh(u)` with u Gaussian; params are mean | std of u, raw is u.

    The density is exact: `log p(action) = log N(u) - sum(2 (log 2 - u - softplus(-2u)) + log half_range)`. Entropy has
    no closed form: `entropy` is that of u; for the action's take the mean of `-log_prob` over samples. KL is that of
    the Gaussians, exact because tanh is a bijection. `mode` is u = mean, the median of the action. Options are those
    of `Gaussian`.
    """

    raw_is_action = False
    entropy_is_exact = False
    centre: Tensor
    half_range: Tensor

    def __init__(
        self,
        size: int,
        low: Limits = -1.0,
        high: Limits = 1.0,
        init_std: float = 1.0,
        std_range: tuple[float, float] = (1e-6, 1e6),
        std_type: str = "log",
        learn_std: bool = True,
        state_dependent: bool = False,
        std_floor: Sequence[float] = (),
        mean_activation: str = "none",
    ) -> None:
        super().__init__()
        if mean_activation != "none":
            raise ValueError(f"mean_activation is {mean_activation!r}; a squashed Gaussian has its tanh, use none")
        self.gaussian = Gaussian(
            size, None, None, init_std, std_range, std_type, learn_std, state_dependent, std_floor=std_floor
        )
        self.size, self.inputs = size, self.gaussian.inputs
        self.num_params, self.raw_shape = 2 * size, (size,)
        lower, upper = _finite_limits("SquashedGaussian", size, low, high)
        self.register_buffer("centre", (upper + lower) / 2, persistent=False)
        self.register_buffer("half_range", (upper - lower) / 2, persistent=False)
        self._log_scale = math.fsum(math.log(value) for value in self.half_range.tolist()) + 2.0 * size * LOG_2

    def from_mean_std(self, mean: Tensor, std: Tensor) -> Tensor:
        """params from a mean `[..., A]` and a deviation that broadcasts to it, both of u."""
        return self.gaussian.from_mean_std(mean, std)

    def forward(self, output: Tensor) -> Tensor:
        return self.gaussian(output)

    def sample(self, params: Tensor, generator: torch.Generator) -> Tensor:
        """u, reparametrised: differentiable in `params`."""
        return self.gaussian.sample(params, generator)

    def sampler(self, generator: torch.Generator | None) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        return self.gaussian.sampler(generator)

    def mode(self, params: Tensor) -> Tensor:
        return self.gaussian.mode(params)

    def set_std(self, std: float) -> None:
        self.gaussian.set_std(std)

    def score(self, output: Tensor, raw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        params, log_prob, entropy = self.gaussian.score(output, raw)
        return params, log_prob + self._log_shrinkage(raw), entropy

    def log_prob(self, params: Tensor, raw: Tensor) -> Tensor:
        return self.gaussian.log_prob(params, raw) + self._log_shrinkage(raw)

    def entropy(self, params: Tensor) -> Tensor:
        return self.gaussian.entropy(params)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        return self.gaussian.kl(old, new)

    def action(self, raw: Tensor) -> Tensor:
        return torch.addcmul(self.centre, self.half_range, raw.tanh())

    def raw(self, action: Tensor) -> Tensor:
        """Actions on or beyond a limit count as just inside it."""
        return TanhBijector.inverse((action - self.centre) / self.half_range, torch.finfo(action.dtype).eps)

    def support(self) -> tuple[object, ...]:
        return self.size, self.centre.tolist(), self.half_range.tolist()

    def _log_shrinkage(self, raw: Tensor) -> Tensor:
        """What squashing adds to the log-density; without it the entropy of a saturated policy would grow for ever.

        Minus the sum of `TanhBijector.log_prob_correction` and of log half_range, in fewer operations.
        """
        return 2.0 * (raw + F.softplus(-2.0 * raw)).sum(-1) - self._log_scale

    def std(self, params: Tensor) -> Tensor:
        return self.gaussian.std(params)

    def at_bound(self, params: Tensor) -> Tensor:
        return self.gaussian.at_bound(params)

    def init_last_layer(self, layer: nn.Linear) -> None:
        self.gaussian.init_last_layer(layer)


class Beta(Head):
    """Independent Beta distributions stretched over the limits; params are alpha | beta `[..., 2A]`.

    `alpha, beta = softplus(out) + 1`, so there is one mode, inside the range (Chou et al. 2017). raw is the unit
    variable, kept within [1e-6, 1 - 1e-6]; `log_prob` is the density of the action and includes `-log(range)`;
    `entropy` is that of the unit variable.
    """

    raw_is_action = False
    entropy_is_exact = False
    _low: Tensor
    _range: Tensor

    def __init__(self, size: int, low: Limits = -1.0, high: Limits = 1.0) -> None:
        super().__init__()
        self.size, self.inputs = size, 2 * size
        self.num_params, self.raw_shape = 2 * size, (size,)
        lower, upper = _finite_limits("Beta", size, low, high)
        self.register_buffer("_low", lower, persistent=False)
        self.register_buffer("_range", upper - lower, persistent=False)
        self._log_range = math.fsum(math.log(value) for value in self._range.tolist())

    def forward(self, output: Tensor) -> Tensor:
        return F.softplus(output) + 1.0

    def sample(self, params: Tensor, generator: torch.Generator) -> Tensor:
        gammas = torch._standard_gamma(params, generator=generator)
        first, second = gammas.chunk(2, -1)
        return (first / (first + second)).clamp(UNIT_MARGIN, 1.0 - UNIT_MARGIN)

    def mode(self, params: Tensor) -> Tensor:
        # The small number makes the flat distribution (alpha = beta = 1) answer with the centre.
        alpha, beta = (params - (1.0 - UNIT_MARGIN)).chunk(2, -1)
        return (alpha / (alpha + beta)).clamp(UNIT_MARGIN, 1.0 - UNIT_MARGIN)

    def log_prob(self, params: Tensor, raw: Tensor) -> Tensor:
        alpha, beta = params.chunk(2, -1)
        unit = raw.clamp(UNIT_MARGIN, 1.0 - UNIT_MARGIN)
        density = torch.addcmul((alpha - 1.0) * unit.log(), beta - 1.0, (-unit).log1p())
        return (density - _log_beta(alpha, beta)).sum(-1) - self._log_range

    def entropy(self, params: Tensor) -> Tensor:
        alpha, beta = params.chunk(2, -1)
        total = alpha + beta
        digammas = (total - 2.0) * total.digamma() - (alpha - 1.0) * alpha.digamma() - (beta - 1.0) * beta.digamma()
        return (_log_beta(alpha, beta) + digammas).sum(-1)

    def action_entropy(self, params: Tensor) -> Tensor:
        return self.entropy(params) + self._log_range  # stretching adds the logarithm of its factor

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        alpha, beta = old.chunk(2, -1)
        new_alpha, new_beta = new.chunk(2, -1)
        alpha_change, beta_change = alpha - new_alpha, beta - new_beta
        expected = alpha_change * alpha.digamma() + beta_change * beta.digamma()
        expected = expected - (alpha_change + beta_change) * (alpha + beta).digamma()
        return (_log_beta(new_alpha, new_beta) - _log_beta(alpha, beta) + expected).sum(-1)

    def action(self, raw: Tensor) -> Tensor:
        return torch.addcmul(self._low, self._range, raw)

    def raw(self, action: Tensor) -> Tensor:
        return ((action - self._low) / self._range).clamp(UNIT_MARGIN, 1.0 - UNIT_MARGIN)

    def support(self) -> tuple[object, ...]:
        return self.size, self._low.tolist(), self._range.tolist()

    def std(self, params: Tensor) -> Tensor:
        """Of the action, in its own units."""
        alpha, beta = params.chunk(2, -1)
        total = alpha + beta
        return self._range * (alpha * beta / (total + 1.0)).sqrt() / total


def _log_beta(alpha: Tensor, beta: Tensor) -> Tensor:
    return alpha.lgamma() + beta.lgamma() - (alpha + beta).lgamma()


def _limits(size: int, low: Limits, high: Limits) -> tuple[Tensor, Tensor]:
    """Lower and upper limits `[size]`, infinite where there are none."""
    if size < 1:
        raise ValueError(f"size is {size}; an action has at least one dimension")
    lower = torch.as_tensor(-math.inf if low is None else low, dtype=torch.float32)
    upper = torch.as_tensor(math.inf if high is None else high, dtype=torch.float32)
    for name, limit in (("low", lower), ("high", upper)):
        if limit.shape not in ((), (size,)):
            raise ValueError(f"{name} has shape {list(limit.shape)}; give one number or one per dimension ({size})")
    lower, upper = lower.expand(size).clone(), upper.expand(size).clone()
    if not bool((lower < upper).all()):
        raise ValueError(f"low {lower.tolist()} must lie below high {upper.tolist()} in every dimension")
    return lower, upper


def _finite_limits(kind: str, size: int, low: Limits, high: Limits) -> tuple[Tensor, Tensor]:
    lower, upper = _limits(size, low, high)
    if not bool(torch.isfinite(lower).all() and torch.isfinite(upper).all()):
        raise ValueError(
            f"{kind} needs finite limits, found {lower.tolist()} to {upper.tolist()}; give low and high, "
            f"or use Gaussian, which does without"
        )
    return lower, upper
