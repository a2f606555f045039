"""The seam through which every gradient step runs.

An algorithm hands over its trainable modules and a function `loss(batch) -> (total, statistics)`. The engine owns
what makes a step fast and static: one flat buffer for all parameters and one for all gradients (views per layer), a
fused optimiser whose learning rate is a tensor, and a device vector in which statistics add up until somebody reads it.
Nothing here looks at a tensor's value, so the same step can run eagerly, compiled or inside a recorded `Program`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gaitway.algorithms.algorithm import Batch
from gaitway.algorithms.flat_adam import EntryAdam, FlatAdam
from gaitway.algorithms.flat_descent import FlatRMSprop, FlatSGD
from gaitway.core.execution import Execution, ExecutionConfig
from gaitway.core.ranks import here

LossFunction = Callable[[Batch], tuple[Tensor, dict[str, Tensor]]]
DirectGradientFunction = Callable[[Batch], dict[str, Tensor]]
BeforeStep = Callable[[dict[str, Tensor], Tensor], None]
"""Called with the statistics and the learning-rate tensor before the parameters move."""

ALIGNMENT = 16
"""Every parameter begins at a multiple of this many numbers: fast matrix products ask for it."""
PIECES = ((36 * 4096, 4096), (72 * 16384, 16384))
"""(parameters up to, length of a piece): a GPU's optimiser takes 36 tensors at a time and gives each block of threads
one of them, or 65536 numbers of it. One flat tensor would keep most processors idle if it is small; the many pieces of
a large one would be worked off in turn. Larger ones stay whole."""


class FlatParameters:
    """The parameters of `module` as views of one tensor, `value`; names keep `module`'s order.

    Those that require a gradient, with one flat `gradient` beside them; or, for a target network, those that the
    network which it is the `target_of` learns, as constants.
    """

    def __init__(self, module: nn.Module, target_of: nn.Module | None = None) -> None:
        gradients = target_of is None
        learner = module if target_of is None else target_of
        learnt = {name for name, p in learner.named_parameters() if p.requires_grad}
        named = [(name, p) for name, p in module.named_parameters() if name in learnt]
        if not named:
            raise ValueError("there is nothing to learn: no parameter of the module requires a gradient")
        if len({(p.dtype, p.device) for _, p in named}) > 1:
            raise ValueError("all parameters must have one dtype and one device; move the module with .to() first")
        self.names = [name for name, _ in named]
        self.shapes = [list(p.shape) for _, p in named]
        self.views = [p for _, p in named]
        self._gaps = [p.new_zeros(-p.numel() % ALIGNMENT) for p in self.views]
        self.value = nn.Parameter(self._flat([p.detach() for p in self.views]), requires_grad=gradients)
        for parameter, piece in zip(self.views, self._pieces(self.value.data), strict=True):
            parameter.data = piece
            parameter.requires_grad_(gradients)
        if gradients:
            self.value.grad = torch.zeros_like(self.value)
            for parameter, piece in zip(self.views, self._pieces(self.value.grad), strict=True):
                parameter.grad = piece
        self.pieces = self._for_optimiser() if gradients else []
        """What an optimiser is given: the flat tensor, on a GPU in pieces."""

    def take_over(self) -> None:
        """Be the home of the parameters again, with the values they have now, after another flat tensor was."""
        for parameter, piece in zip(self.views, self._pieces(self.value.data), strict=True):
            piece.copy_(parameter.data)
            parameter.data = piece
        for parameter, piece in zip(self.views, self._pieces(self.gradient), strict=True):
            parameter.grad = piece

    @property
    def gradient(self) -> Tensor:
        gradient = self.value.grad
        assert gradient is not None
        return gradient

    def differentiate(self, total: Tensor) -> None:
        """Overwrite `gradient` by that of `total`: one copy, nothing to zero and nothing to add to."""
        self.write_gradient(torch.autograd.grad(total, self.views, materialize_grads=True))

    def mask(self, names: Collection[str]) -> Tensor:
        """A flat tensor with 1 where the parameters of these names stand and 0 elsewhere."""
        ones = [torch.full_like(p, float(name in names)) for name, p in zip(self.names, self.views, strict=True)]
        return self._flat([each.detach() for each in ones])

    def write_gradient(self, gradients: Sequence[Tensor]) -> None:
        """Overwrite `gradient` by one tensor per view."""
        self._flat(gradients, out=self.gradient)

    def parts(self, prefixes: Sequence[str]) -> dict[str, list[Tensor]]:
        """The gradients of the parameters whose names begin with each of `prefixes`, and of the `rest`."""
        found: dict[str, list[Tensor]] = {}
        for name, view in zip(self.names, self.views, strict=True):
            part = next((prefix for prefix in prefixes if name.startswith(prefix)), "rest")
            assert view.grad is not None
            found.setdefault(part.rstrip("."), []).append(view.grad)
        return found

    def _for_optimiser(self) -> list[nn.Parameter]:
        if self.value.device.type != "cuda":
            return [self.value]
        length = next((piece for limit, piece in PIECES if self.value.numel() <= limit), self.value.numel())
        pieces = []
        for piece, gradient in zip(self.value.data.split(length), self.gradient.split(length), strict=True):
            pieces.append(nn.Parameter(piece))
            pieces[-1].grad = gradient
        return pieces

    def _flat(self, tensors: Sequence[Tensor], out: Tensor | None = None) -> Tensor:
        """One tensor of all, each followed by the zeros that let the next one begin aligned."""
        parts = [tensor.reshape(-1) for tensor in tensors]
        return torch.cat([part for pair in zip(parts, self._gaps, strict=True) for part in pair if len(part)], out=out)

    def _pieces(self, flat: Tensor) -> list[Tensor]:
        sizes = [size for p, gap in zip(self.views, self._gaps, strict=True) for size in (p.numel(), gap.numel())]
        return [piece.view_as(p) for piece, p in zip(flat.split(sizes)[::2], self.views, strict=True)]


class Engine:
    """Runs gradient steps: forward, backward, clip, optimiser, statistics.

    The gradient's norm is limited as a whole, or with `clip_apart` for the parameters whose names begin with each of
    these, and for the rest. With `entrywise` a number whose gradient is exactly 0 does not move, and its moments do not
    either: a vector of which a batch concerns some entries alone, such as a temperature for each of several tasks.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: LossFunction,
        *,
        learning_rate: float,
        max_grad_norm: float | None,
        optimiser: str = "adam",
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        before_step: BeforeStep | None = None,
        execution: Execution | None = None,
        entrywise: bool = False,
        momentum: float = 0.0,
        clip_apart: Sequence[str] = (),
    ) -> None:
        self.parameters = FlatParameters(module)
        self._clipped = self.parameters.parts(clip_apart) if clip_apart else {}
        device = self.parameters.value.device
        self.execution = execution or Execution(ExecutionConfig("eager"), device)
        self.loss = self.execution.compiled(loss)
        # pieces of the gradient and the whole of it in one compiled function would be two names of one memory
        self._finish = self._settle if self._clipped else self.execution.compiled(self._settle)
        self.direct: DirectGradientFunction | None = None
        """If set, called instead of `loss`: writes the gradient itself and returns the statistics."""
        self.mask: Tensor | None = None
        """If set, gradients are multiplied by it before anything else: what it holds at 0 rests."""
        self.before_step = before_step
        self.max_grad_norm = max_grad_norm
        self.learning_rate = torch.tensor(learning_rate, dtype=torch.float32, device=device)
        self.optimiser: FlatAdam | EntryAdam | FlatSGD | FlatRMSprop
        if optimiser == "sgd":
            self.optimiser = FlatSGD(self.parameters.pieces, self.learning_rate, momentum, weight_decay)
        elif optimiser == "rmsprop":
            self.optimiser = FlatRMSprop(self.parameters.pieces, self.learning_rate, 0.99, eps, weight_decay)
        elif entrywise:
            self.optimiser = EntryAdam(self.parameters.pieces, lr=self.learning_rate, eps=eps)
        else:
            self.optimiser = FlatAdam(
                self.parameters.pieces,
                lr=self.learning_rate,
                eps=eps,
                weight_decay=weight_decay,
                decoupled_weight_decay=optimiser == "adamw",
                capturable=device.type == "cuda",
            )
        self.tells = True
        """Whether steps count their statistics; a loss that sees it is off may leave them out."""
        self.statistics: tuple[str, ...] = ()
        self.totals = torch.zeros(0, device=device)
        self._places = torch.zeros(0, dtype=torch.int64, device=device)
        self._one = torch.ones((), device=device)

    def step(self, batch: Batch) -> None:
        """One gradient step on one minibatch."""
        if self.direct is not None:
            statistics = self.direct(batch)
        else:
            total, statistics = self.loss(batch)
            self.parameters.differentiate(total)
        self.apply(statistics)

    @torch.no_grad()
    def apply(self, statistics: dict[str, Tensor]) -> None:
        """What follows the backward pass: clip, move the parameters by the gradient that lies there, count."""
        statistics = self.share(statistics)
        if self.mask is not None:
            self.parameters.gradient.mul_(self.mask)
        if self.tells and not self.statistics:
            self._name_statistics(statistics)
        self._finish(self.parameters.gradient, self.learning_rate, self.totals, statistics)
        self.optimiser.step()

    def _settle(self, gradient: Tensor, rate: Tensor, totals: Tensor, statistics: dict[str, Tensor]) -> None:
        """Limit the gradient's norm, let the rate be adapted and add up statistics: passes over numbers that wait for
        each other, which a compiler makes a few of."""
        norm = torch.linalg.vector_norm(gradient) if self.tells or self.max_grad_norm is not None else None
        if self._clipped:
            statistics = statistics | self._clip_apart()
        elif self.max_grad_norm is not None:
            assert norm is not None
            gradient.mul_((self.max_grad_norm / (norm + 1e-6)).clamp(max=1.0))
        if self.before_step is not None:
            self.before_step(statistics, rate)
        if self.tells:
            assert norm is not None
            found = statistics | {"gradient_norm": norm}
            # behind the number of steps they are of: a recorded step must count itself
            totals += self._side_by_side([self._one, *(found[name].detach() for name in self.statistics)])

    def share(self, statistics: dict[str, Tensor]) -> dict[str, Tensor]:
        """Where several processes train together, let gradient and statistics be their means over all of them: one
        message."""
        if here().is_alone:
            return statistics
        gradient = self.parameters.gradient
        said = [value.detach().to(gradient).reshape(1) for value in statistics.values()]
        whole = here().mean_(torch.cat([gradient, *said]))
        gradient.copy_(whole[: len(gradient)])
        return dict(zip(statistics, whole[len(gradient) :].unbind(), strict=True))

    def _clip_apart(self) -> dict[str, Tensor]:
        """Limit the gradient's norm of each part by itself; the norms before."""
        norms = {}
        for name, pieces in self._clipped.items():
            norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(piece) for piece in pieces]))
            if self.max_grad_norm is not None:
                scale = (self.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
                for piece in pieces:
                    piece.mul_(scale)
            norms[f"gradient_norm/{name}"] = norm
        return norms

    def read(self) -> dict[str, Tensor]:
        """Mean of every statistic since the last call, as tensors."""
        if not self.statistics:
            return {}
        mean = self.totals[1:] / self.totals[0].clamp(min=1.0)
        self.totals.zero_()
        return dict(zip(self.statistics, mean.unbind(), strict=True))

    def set_learning_rate(self, value: float) -> None:
        self.learning_rate.fill_(value)

    def reset_optimiser(self) -> None:
        """Let the optimiser begin anew, as if it had made no step."""
        for piece in self.parameters.pieces:
            for value in self.optimiser.state[piece].values():
                value.zero_()  # into the same memory: a recorded step reads that

    def state_dict(self) -> dict[str, Any]:
        states = [self.optimiser.state[piece] for piece in self.parameters.pieces]
        moments = {name: torch.cat([state[name] for state in states]) for name in states[0] if name != "step"}
        return {
            "names": list(self.parameters.names),
            "shapes": [list(shape) for shape in self.parameters.shapes],
            "learning_rate": self.learning_rate.clone(),
            "optimiser": {name: states[0][name].clone() for name in ("step",) if name in states[0]} | moments,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The parameters themselves are the module's business; this restores the optimiser and its rate."""
        if (
            list(state["names"]) != self.parameters.names
            or [list(s) for s in state["shapes"]] != self.parameters.shapes
        ):
            raise ValueError(
                "the optimiser state belongs to another network: its parameters are "
                f"{list(state['names'])}, here they are {self.parameters.names}"
            )
        self.learning_rate.copy_(state["learning_rate"])
        held = [self.optimiser.state[piece] for piece in self.parameters.pieces]
        sizes = [len(piece) for piece in self.parameters.pieces]
        for name, value in state["optimiser"].items():  # into the same memory: a recorded step reads that
            parts = value.to(self.learning_rate.device).expand(len(held)) if name == "step" else value.split(sizes)
            for own, part in zip(held, parts, strict=True):
                own[name].copy_(part)

    def _side_by_side(self, numbers: Sequence[Tensor]) -> Tensor:
        """Numbers [] as one vector."""
        if not torch.compiler.is_compiling():
            return torch.stack(list(numbers))
        vector = torch.zeros_like(self.totals)  # a compiler copies what is stacked one by one, but fuses choices
        for place, number in enumerate(numbers):
            vector = torch.where(self._places == place, number, vector)
        return vector

    def _name_statistics(self, statistics: dict[str, Tensor]) -> None:
        """Make room for the sums of what the first step tells."""
        norms = [f"gradient_norm/{name}" for name in self._clipped]
        self.statistics = (*statistics, *norms, "gradient_norm")
        self.totals = torch.zeros(1 + len(self.statistics), device=self.learning_rate.device)
        self._places = torch.arange(len(self.totals), device=self.learning_rate.device)


class JointEngine:
    """Several engines that learn from one loss and one backward pass, each with its own learning rate and its own limit
    of the gradient's norm. Statistics are those of the first."""

    def __init__(self, engines: Sequence[Engine], loss: LossFunction, execution: Execution | None = None) -> None:
        self.engines = list(engines)
        self.loss = loss if execution is None else execution.compiled(loss)

    def step(self, batch: Batch) -> None:
        """One gradient step of all of them on one minibatch."""
        total, statistics = self.loss(batch)
        views = [view for engine in self.engines for view in engine.parameters.views]
        gradients = list(torch.autograd.grad(total, views, materialize_grads=True))
        for engine in self.engines:
            count = len(engine.parameters.views)
            engine.parameters.write_gradient(gradients[:count])
            del gradients[:count]
        for number, engine in enumerate(self.engines):
            engine.apply({} if number else statistics)


def copied_state(module: nn.Module) -> dict[str, Any]:
    """The module's state as it is now, not as views that go on changing; extra state is a copy already."""
    return {name: value.clone() if isinstance(value, Tensor) else value for name, value in module.state_dict().items()}
