"""State-dependent exploration (gSDE; Raffin, Kober, Stulp 2021): noise that is a function of the state.

A matrix `E ~ N(0, std)` is drawn now and then, and the noise of a step is `latent @ E`: the same state gets the same
noise until the matrix is drawn again, so that a robot explores smoothly instead of trembling. For one step, with E
unknown, the action is Gaussian with the variance `latent^2 @ std^2 + epsilon`: that is the density that is learnt from.

    head = StateDependentNoise(size=2, latent=64)
    params = head(latent)                                 # mean | std of that density [..., 2A]
    weights = head.sample_weights(generator, batch_size)
    raw = head.mode(params) + head.noise(latent, weights)
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gaitway.nn.continuous import Gaussian, Limits, SquashedGaussian
from gaitway.nn.head import Head
from gaitway.nn.mlp import linear


@dataclass(frozen=True)
class ExplorationWeights:
    """Exploration matrices; the noise stays the same function of the state as long as these are used."""

    single: Tensor
    """`[L, A]`."""
    each: Tensor | None = None
    """One per batch element, `[B, L, A]`; None if they were drawn without a batch size."""

    def where(self, mask: Tensor, other: ExplorationWeights) -> ExplorationWeights:
        """Those of `other` for the elements where `mask` `[B]` is true."""
        if self.each is None or other.each is None:
            raise ValueError("there are no matrices per element; draw them with sample_weights(generator, batch_size)")
        return ExplorationWeights(self.single, torch.where(mask[:, None, None], other.each, self.each))


class StateDependentNoise(Head):
    """gSDE as a head: the network emits features `[..., latent]`, a linear map makes the mean of them, and `log_std`
    `[L, A]` (`[L, 1]` without `full_std`) the noise. params are mean | std of one step's density `[..., 2A]`, all that
    scoring a stored rollout needs.

    `sampler` draws one matrix per row when it is first called and keeps it: noise is constant over a rollout.
    `sample`, which knows params alone, draws from the same density independently every time. `expln` grows the
    deviation like a logarithm above 1 instead of exponentially. `squash` puts the action through tanh; the rest is as
    in `SquashedGaussian`, otherwise as in `Gaussian` (limits rescale mean and noise). Features get a gradient from the
    mean only, unless `learn_features`.
    """

    def __init__(
        self,
        size: int,
        latent: int,
        low: Limits = None,
        high: Limits = None,
        init_std: float = math.exp(-2.0),
        full_std: bool = True,
        expln: bool = False,
        squash: bool = False,
        learn_features: bool = False,
        epsilon: float = 1e-6,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if latent < 1:
            raise ValueError(f"latent is {latent}; give the number of features that the network emits")
        if init_std <= 0 or epsilon <= 0:
            raise ValueError(f"init_std is {init_std} and epsilon is {epsilon}; both must be positive")
        self.size, self.latent, self.inputs = size, latent, latent
        self.num_params, self.raw_shape = 2 * size, (size,)
        self.full_std, self.expln, self.squash = full_std, expln, squash
        self.learn_features, self.epsilon = learn_features, epsilon
        self.density: Gaussian | SquashedGaussian
        if squash:
            limits = (-1.0 if low is None else low, 1.0 if high is None else high)
            self.density = SquashedGaussian(size, *limits, state_dependent=True)
        else:
            self.density = Gaussian(size, low, high, state_dependent=True)
        self.raw_is_action = self.density.raw_is_action
        self.entropy_is_exact = self.density.entropy_is_exact
        # small, so that the first policy is nearly the same everywhere
        self.mean = linear(latent, size, generator, orthogonal_gain=0.01)
        start = math.expm1(init_std - 1.0) if expln and init_std > 1.0 else math.log(init_std)
        self.log_std = nn.Parameter(torch.full((latent, size if full_std else 1), start))

    def weight_std(self) -> Tensor:
        """Deviations of the matrix's entries, `[L, A]`."""
        if self.expln:
            # each side sees only its own half, so that no infinity of the other reaches the gradient
            grown = self.log_std.clamp(min=0.0).log1p() + 1.0
            std = torch.where(self.log_std > 0, grown, self.log_std.clamp(max=0.0).exp())
        else:
            std = self.log_std.exp()
        return std.expand(self.latent, self.size)

    def forward(self, output: Tensor) -> Tensor:
        mean, std = (
            self.mean(output),
            (self._features(output).square() @ self.weight_std().square() + self.epsilon).sqrt(),
        )
        if isinstance(self.density, Gaussian):
            mean, std = torch.addcmul(self.density.centre, mean, self.density.half_range), std * self.density.half_range
        return torch.cat((mean, std), -1)

    def sample_weights(self, generator: torch.Generator, batch_size: int | None = None) -> ExplorationWeights:
        """New matrices: a single one, and one per element of a batch; differentiable in `log_std`."""
        std = self.weight_std()

        def draw(*leading: int) -> Tensor:
            return std * torch.empty(*leading, *std.shape, dtype=std.dtype, device=std.device).normal_(
                generator=generator
            )

        return ExplorationWeights(draw(), None if batch_size is None else draw(batch_size))

    def noise(self, output: Tensor, weights: ExplorationWeights) -> Tensor:
        """What exploration adds to the mean, `[..., A]`, for features `[..., L]`.

        With matrices per element the axis before the last must be the batch they were drawn for; where it is not, all
        rows get the single matrix, with a warning.
        """
        features = self._features(output)
        noise = None
        if weights.each is not None:
            if features.dim() > 1 and features.shape[-2] == len(weights.each):
                noise = torch.einsum("...bl,bla->...ba", features, weights.each)
            else:
                warnings.warn(
                    f"the exploration matrices were drawn for {len(weights.each)} rows but the features are "
                    f"{list(features.shape)}; all rows share the single matrix. Call sample_weights for this batch",
                    stacklevel=2,
                )
        if noise is None:
            noise = features @ weights.single
        return noise * self.density.half_range if isinstance(self.density, Gaussian) else noise

    def sampler(self, generator: torch.Generator | None) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        if generator is None:
            return super().sampler(None)
        weights: ExplorationWeights | None = None

        def draw(output: Tensor) -> tuple[Tensor, Tensor]:
            nonlocal weights
            batch_size = output.shape[-2] if output.dim() > 1 else None
            if weights is None or batch_size != (None if weights.each is None else len(weights.each)):
                weights = self.sample_weights(generator, batch_size)
            params = self(output)
            return params, self.mode(params) + self.noise(output, weights)

        return draw

    def sample(self, params: Tensor, generator: torch.Generator) -> Tensor:
        """Independent draws from the density of one step; `noise` is what stays the same over steps."""
        return self.density.sample(params, generator)

    def mode(self, params: Tensor) -> Tensor:
        return self.density.mode(params)

    def log_prob(self, params: Tensor, raw: Tensor) -> Tensor:
        return self.density.log_prob(params, raw)

    def entropy(self, params: Tensor) -> Tensor:
        return self.density.entropy(params)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        return self.density.kl(old, new)

    def support(self) -> tuple[object, ...]:
        return self.squash, *self.density.support()

    def action(self, raw: Tensor) -> Tensor:
        return self.density.action(raw)

    def raw(self, action: Tensor) -> Tensor:
        return self.density.raw(action)

    def std(self, params: Tensor) -> Tensor:
        return self.density.std(params)

    def _features(self, output: Tensor) -> Tensor:
        return output if self.learn_features else output.detach()
