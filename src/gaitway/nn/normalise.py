"""Running normalisation of observations, returns and rewards.

Statistics are buffers of the module that uses them, so they travel with its `state_dict`. Normalising never updates:
`update` is a call of its own, made once per rollout or once per row. No call waits for the device, and no buffer ever
moves in memory, so captured graphs that read them stay valid.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gaitway.core.ranks import here
from gaitway.functional.returns import accumulate


def batch_moments(x: Tensor, event_dims: int = 0, mask: Tensor | None = None) -> tuple[Tensor | int, Tensor, Tensor]:
    """Count, mean and biased variance (float64 `[*shape]`) over all axes of `x` but the last `event_dims`.

    `mask`, a bool over the leading axes, leaves rows out; what stands in those rows is never used, not even a NaN. The
    count is then a tensor. Two passes with a correction, so a large offset costs no digits.
    """
    leading, shape = x.shape[: x.ndim - event_dims], x.shape[x.ndim - event_dims :]
    flat = x.detach().reshape(-1, *shape)
    if flat.dtype not in (torch.float32, torch.float64):
        flat = flat.float()
    count: Tensor | int
    if mask is None:
        count = len(flat)
        mean = flat.mean(0)
        centred = flat - mean
        moments = torch.stack((mean, centred.mean(0), centred.square_().mean(0))).double()
    else:
        if mask.dtype != torch.bool or mask.shape != leading:
            raise ValueError(f"mask is {mask.dtype} {list(mask.shape)}; expected a bool {list(leading)}, one per row")
        keep = mask.reshape(-1, *(1 for _ in shape))
        count = mask.sum()
        rows = count.clamp(min=1)
        mean = torch.where(keep, flat, 0.0).sum(0) / rows
        centred = torch.where(keep, flat - mean, 0.0)
        moments = torch.stack((mean, centred.sum(0) / rows, centred.square_().sum(0) / rows)).double()
    mean, offset, square = moments.unbind(0)
    return count, mean + offset, square - offset.square()  # offset: the rounding error of the mean


class RunningNorm(nn.Module):
    """`(x - mean) / (std + eps)` with running statistics over everything seen by `update`; `x` is `[..., *shape]`.

    A batch of n rows with mean m and biased variance v changes the statistics by

        count += n;   q = n / count;   d = m - mean
        mean  += q d;   var += q (v - var + d (m - mean_new))

    so the first batch replaces the initial mean 0 and variance 1 entirely. With `until`, batches that come when
    `count` has reached it are ignored (the last one before may overshoot). `clip` bounds the normalised value. In
    eval mode `update` does nothing.

    Statistics are float64: after millions of rows a batch changes them by less than float32 can show. What `forward`
    needs is kept ready beside them in float32, so change them only by `update`, `merge` and `load_state_dict`.
    """

    mean: Tensor
    var: Tensor
    count: Tensor
    _shift: Tensor
    _inverse_std: Tensor

    def __init__(
        self, shape: int | Sequence[int], eps: float = 1e-2, clip: float | None = None, until: int | None = None
    ) -> None:
        super().__init__()
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if eps < 0:
            raise ValueError(f"eps is {eps}; it is added to the standard deviation and must not be negative")
        if clip is not None and clip <= 0:
            raise ValueError(f"clip is {clip}; use a positive bound or None")
        self.eps, self.clip, self.until = eps, clip, until
        self.register_buffer("mean", torch.zeros(self.shape, dtype=torch.float64))
        self.register_buffer("var", torch.ones(self.shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("_shift", torch.zeros(self.shape), persistent=False)
        self.register_buffer("_inverse_std", torch.full(self.shape, 1.0 / (1.0 + eps)), persistent=False)
        self.register_load_state_dict_post_hook(_refresh_after_loading)

    @property
    def std(self) -> Tensor:
        return self.var.sqrt()

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `[..., *shape]`; never changes the statistics."""
        y = (x - self._shift) * self._inverse_std
        return y if self.clip is None else y.clamp(-self.clip, self.clip)

    def of_columns(self, x: Tensor, start: int, stop: int) -> Tensor:
        """Normalise what stands in the columns `start` to `stop` of a vector, `[..., stop - start]`."""
        y = (x - self._shift[start:stop]) * self._inverse_std[start:stop]
        return y if self.clip is None else y.clamp(-self.clip, self.clip)

    def inverse(self, y: Tensor) -> Tensor:
        """The `x` that `forward` turns into `y` (before clipping)."""
        return torch.addcdiv(self._shift, y, self._inverse_std)

    def update(self, x: Tensor, weight_mask: Tensor | None = None) -> None:
        """Take a batch `[..., *shape]` into the statistics; `weight_mask` (bool, leading axes) leaves rows out."""
        if not self.training:
            return
        event_dims = len(self.shape)
        if x.ndim < event_dims or x.shape[x.ndim - event_dims :] != self.shape:
            raise ValueError(f"x is {list(x.shape)}; this normaliser takes [..., {', '.join(map(str, self.shape))}]")
        ranks = here()
        if x.numel() == 0 and ranks.is_alone:
            return
        count, mean, var = batch_moments(x, event_dims, weight_mask)
        if not ranks.is_alone:
            count, mean, var = ranks.pooled(count, mean, var)
        if self.until is not None:
            count = (self.count < self.until) * count
        self._absorb(count, mean, var)

    def symmetrise(self, order: Tensor, sign: Tensor) -> None:
        """Make the statistics those of a vector whose entry i is as `sign[i]` times entry `order[i]`, bit for bit: they
        are already, but for rounding, if every row was counted with its image."""
        self.mean.copy_(0.5 * (self.mean + self.mean[order] * sign))
        self.var.copy_(0.5 * (self.var + self.var[order]))
        self._refresh()

    def moments(self) -> tuple[Tensor, Tensor, Tensor]:
        """Copies of count, mean and biased variance."""
        return self.count.clone(), self.mean.clone(), self.var.clone()

    def merge(self, count: Tensor | int, mean: Tensor, var: Tensor) -> None:
        """Take moments measured elsewhere (another process, another normaliser) as if their rows had been seen here.

        This is an explicit order: eval mode and `until` do not stop it.
        """
        if isinstance(count, Tensor):
            count = count.to(self.count.device)
        self._absorb(count, mean.detach().to(self.mean.device), var.detach().to(self.var.device))

    def _absorb(self, count: Tensor | int, mean: Tensor, var: Tensor) -> None:
        """The formulas above, as interpolations: exact for the first batch (q = 1) and for none (q = 0)."""
        self.count.add_(count)
        share = (count / self.count.clamp(min=1).double()).to(self.mean.dtype)
        mean, var = mean.to(self.mean.dtype), var.to(self.var.dtype)
        difference = mean - self.mean
        self.mean.lerp_(mean, share)
        self.var.lerp_(torch.addcmul(var, difference, mean - self.mean), share).clamp_(min=0.0)  # rounding
        self._refresh()

    def _refresh(self) -> None:
        self._shift.copy_(self.mean)
        self._inverse_std.copy_(self.var.sqrt().add_(self.eps).reciprocal_())

    def extra_repr(self) -> str:
        return f"{list(self.shape)}, eps={self.eps}, clip={self.clip}, until={self.until}"


def _refresh_after_loading(norm: nn.Module, incompatible_keys: object) -> None:
    if isinstance(norm, RunningNorm):
        norm._refresh()


class ValueNorm(nn.Module):
    """Lets a critic predict normalised returns: targets go in normalised, predictions come out in reward units.

    One scalar mean and standard deviation over all returns seen by `update`, so order and shape of values are kept.
    """

    def __init__(self, eps: float = 1e-2, until: int | None = None) -> None:
        super().__init__()
        self.statistics = RunningNorm((), eps=eps, until=until)

    def update(self, returns: Tensor, weight_mask: Tensor | None = None) -> None:
        """Take returns of any shape into the statistics (not in eval mode)."""
        self.statistics.update(returns, weight_mask)

    def normalise(self, target: Tensor) -> Tensor:
        """Returns -> what the critic is trained to say."""
        return self.statistics(target)

    def denormalise(self, prediction: Tensor) -> Tensor:
        """What the critic says -> a value in reward units."""
        return self.statistics.inverse(prediction)


class ReturnScaler(nn.Module):
    """Divides rewards by the running standard deviation of the discounted return, without shifting them.

    Every environment carries a return `R <- gamma R + r`, recorded at each row and set to 0 after a row that ended an
    episode. The deviation is that of all recorded rows so far. While it is 0 rewards pass unchanged.
    """

    running: Tensor

    def __init__(self, num_envs: int, gamma: float, eps: float = 1e-8) -> None:
        super().__init__()
        if num_envs < 1 or not 0.0 <= gamma <= 1.0:
            raise ValueError(f"num_envs is {num_envs} and gamma {gamma}; use at least one environment, gamma in [0, 1]")
        self.gamma, self.eps = gamma, eps
        self.statistics = RunningNorm((), eps=eps)
        self.register_buffer("running", torch.zeros(num_envs))

    @torch.no_grad()
    def scale(self, reward: Tensor, done: Tensor | None = None, valid: Tensor | None = None) -> Tensor:
        """Take a rollout `[T, B]` into the statistics, then return it scaled with the new deviation, `[T, B]`.

        `done=None` lets returns run on across episodes. Rows with `valid` false (reset rows) are not recorded. In
        eval mode the statistics and the running returns stay as they are.
        """
        for name, tensor in (("reward", reward), ("done", done), ("valid", valid)):
            if tensor is not None and (tensor.shape != reward.shape or tensor.shape[1:] != self.running.shape):
                raise ValueError(f"{name} is {list(tensor.shape)}; expected [T, B] with B = {len(self.running)}")
        if done is not None and done.dtype != torch.bool:
            raise ValueError(f"done is {done.dtype}; pass terminated | truncated, a bool tensor")
        if self.training and len(reward):
            self.statistics.update(self._returns(reward, done), valid)
        std = self.statistics.std
        return reward * torch.where(std > 0, (std + self.eps).reciprocal(), 1.0)

    def _returns(self, reward: Tensor, done: Tensor | None) -> Tensor:
        """The recorded returns `[T, B]`; leaves in `running` what the next rollout goes on from."""
        rows = reward.to(self.running.dtype, copy=True)
        rows[0].add_(self.running, alpha=self.gamma)
        going_on = torch.ones_like(reward, dtype=torch.bool) if done is None else ~done
        weight = going_on.view(torch.uint8).to(rows.dtype).mul_(self.gamma)  # what a row passes on to the next one
        backwards = weight.flip(0)
        rows = accumulate(rows.flip(0), torch.cat((backwards[1:], backwards[:1]))).flip(0)
        self.running.copy_(torch.where(going_on[-1], rows[-1], 0.0))
        return rows
