"""Networks by name, in the shorthand of Gehring et al. 2021: `pi_d2rl_d_1024`, `qd_d2rl_flattsg_d_256`.

    <pi|q|qd|phi>_<arch>[_variant][_d]_<width>

`pi` is a policy, `q` a critic, `qd` two critics, `phi` a classifier of skills; `_d` (the input is a mapping) may stand
there or not, since it always is one; `<width>` is that of the hidden layers, or `<layers>x<width>`.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gaitway.nn.ensemble import Ensemble
from gaitway.nn.multihead import BilinearNetwork, SkillEmbedding, expand_task_subgoal, gaussian_heads, split_task_input
from gaitway.nn.trunks import LastInit, Network, SingleLayers

LOG_STD_RANGE = (-5.0, 2.0)
BILINEAR_LOG_STD_RANGE = (-2.0, 20.0)
OUTPUT_BIAS = -3.0  # added to the last bias where critics end in a sigmoid or a softplus, so that they begin near 0
MAX_WIDTH, MAX_LAYERS = 16384, 64  # what is beyond is a slip of the pen, and would take all memory


def make_network(name: str, inputs: Mapping[str, int], outputs: int, **options: Any) -> nn.Module:
    """The network called `name` for `inputs`, sizes by name in the order in which they are concatenated.

    Its `forward` takes a mapping with an entry [B, size] for each input; its `.inputs` are these sizes in their order.
    Results: `pi` mean and standard deviation before tanh, [B, outputs] each, with several heads (`mt`) [B, D, outputs],
    D the size of the input `task`; `pi_d2rl_discrete` logits [B, outputs]; `q` [B]; `qd` and `double_q(<name of a q>)`
    [B, 2]; `phi` logits [B, outputs]. `options` are the network's own, and `generator`, from which it starts (None: the
    global one).
    """
    if not isinstance(name, str):
        raise ValueError(f"the name of a network is text such as 'pi_d2rl_d_256', found {name!r}")
    copied = re.fullmatch(r"double_q\((.*)\)", name)
    if copied:
        name, options = "double_q", options | {"q_name": copied[1].strip()}
    make, hidden = _maker(name)
    generator = options.pop("generator", None)
    asked = Asked(name, _checked_sizes(name, inputs), _checked_size(name, "outputs", outputs), hidden, generator)
    known = [*list(inspect.signature(make).parameters)[1:], "generator"]
    unknown = [key for key in options if key not in known]
    if unknown and make is not _double_q:  # whose critics check what is meant for them
        raise ValueError(f"network {name!r} has no option {unknown[0]!r}; it takes {', '.join(known)}")
    return make(asked, **options)


class Asked(NamedTuple):
    """What every network is made of."""

    name: str
    inputs: dict[str, int]
    outputs: int
    hidden: list[int]
    generator: torch.Generator | None

    def network(self, inputs: int, outputs: int, last_init: LastInit = "default") -> Network:
        layers = SingleLayers(generator=self.generator)
        return Network(inputs, self.hidden, outputs, layers=layers, trunk="d2rl", last_init=last_init)

    @property
    def total(self) -> int:
        return sum(self.inputs.values())


class NamedNetwork(nn.Module):
    """A network whose inputs have names and sizes, in an order: joins them, runs `network`, shapes what it says."""

    def __init__(
        self,
        asked: Asked,
        join: Callable[[dict[str, Tensor]], tuple[Tensor, ...]],
        network: nn.Module,
        shape: Callable[[Tensor], Any],
        unread: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        self.name, self.inputs = asked.name, dict(asked.inputs)
        self.reads = {key: size for key, size in self.inputs.items() if key not in unread}
        self.network = network
        self._join, self._shape = join, shape

    def forward(self, x: Mapping[str, Tensor]) -> Any:
        return self._shape(self.network(*self._join(_checked_values(self, self.name, self.reads, x))))


class SkillNetwork(nn.Module):
    """A policy over embedded skills: the last columns of the last input are embedded before `base` reads them. `base`
    alone is a policy whose skill is any point of the embedding."""

    def __init__(self, asked: Asked, embedding: SkillEmbedding, base: nn.Module) -> None:
        super().__init__()
        self.name, self.inputs = asked.name, dict(asked.inputs)
        self.embedding, self.base = embedding, base

    def forward(self, x: Mapping[str, Tensor]) -> Any:
        values = _checked_values(self, self.name, self.inputs, x)
        last = next(reversed(values))
        return self.base(values | {last: self.embedding(values[last])})


class DoubleNetwork(nn.Module):
    """Two critics of one kind, [B] each, side by side: [B, 2]."""

    def __init__(self, asked: Asked, q_name: str, networks: list[nn.Module]) -> None:
        super().__init__()
        self.name, self.inputs = f"double_q({q_name})", dict(asked.inputs)
        self.networks = nn.ModuleList(networks)

    def forward(self, x: Mapping[str, Tensor]) -> Tensor:
        return torch.stack([network(x) for network in self.networks], 1)


# Makers


def _pi_d2rl(asked: Asked) -> nn.Module:
    shape = partial(gaussian_heads, log_std_range=LOG_STD_RANGE)
    return NamedNetwork(asked, _join, asked.network(asked.total, 2 * asked.outputs), shape)


def _pi_d2rl_mt(asked: Asked) -> nn.Module:
    heads, rest = _task_and_rest(asked)
    shape = partial(gaussian_heads, log_std_range=LOG_STD_RANGE, heads=heads)
    return NamedNetwork(asked, _join, asked.network(rest, 2 * heads * asked.outputs), shape, unread=("task",))


def _pi_d2rl_discrete(asked: Asked) -> nn.Module:
    return NamedNetwork(asked, _join, asked.network(asked.total, asked.outputs), _unchanged)


def _pi_bilinear_d2rl(asked: Asked) -> nn.Module:
    task, rest = _task_and_rest(asked)
    network = BilinearNetwork(rest, task, asked.hidden, 2 * asked.outputs, generator=asked.generator)
    shape = partial(gaussian_heads, log_std_range=BILINEAR_LOG_STD_RANGE)
    return NamedNetwork(asked, split_task_input, network, shape)


def _q_d2rl(asked: Asked) -> nn.Module:
    _check_values_said(asked, 1)
    return NamedNetwork(asked, _join, asked.network(asked.total, 1, last_init="small"), _single)


def _q_bilinear_d2rl(asked: Asked) -> nn.Module:
    _check_values_said(asked, 1)
    task, rest = _task_and_rest(asked)
    network = BilinearNetwork(rest, task, asked.hidden, 1, last_init="zero", generator=asked.generator)
    return NamedNetwork(asked, split_task_input, network, _single)


def _qd_d2rl(asked: Asked, published_scale: bool = False) -> nn.Module:
    return NamedNetwork(asked, _join, _critics(asked, asked.total, "d2rl", "zero", published_scale), _double)


def _qd_d2rl_flattsg(asked: Asked, published_scale: bool = False) -> nn.Module:
    _check_inputs_given(asked, "task", "subgoal")
    task, subgoal = asked.inputs["task"], asked.inputs["subgoal"]
    critics = _critics(asked, asked.total - subgoal + task * subgoal, "d2rl", "zero", published_scale)
    return NamedNetwork(asked, _join_expanded, critics, _double)


def _qd_relu(asked: Asked, activation: str = "none", published_scale: bool = False) -> nn.Module:
    squash = _squash(asked.name, activation)
    critics = _critics(asked, asked.total, "mlp", "small_bias", published_scale)
    if squash is not _unchanged:
        with torch.no_grad():
            critics.network.last.get_parameter("bias").add_(OUTPUT_BIAS)
    return NamedNetwork(asked, _join, critics, partial(_double, squash=squash))


def _phi_diayn_d2rl(asked: Asked, n_skills: int | None = None, obs_dim: int | None = None) -> nn.Module:
    """`n_skills` and `obs_dim` say once more what outputs and inputs say."""
    for key, value, other, size in (
        ("n_skills", n_skills, "outputs", asked.outputs),
        ("obs_dim", obs_dim, "inputs", asked.total),
    ):
        if value is not None and value != size:
            raise ValueError(f"{key} of {asked.name!r} is {value!r}, but it has {size} {other}; make both equal")
    return _pi_d2rl_discrete(asked)


def _pi_diayn_cskill(
    asked: Asked,
    base: str = "pi_d2rl_256",
    n_skills: int | None = None,
    n_embed: int = 7,
    activation: str = "tanh",
) -> nn.Module:
    """The skill is the last `n_skills` columns of the last input; None: all of them."""
    last, size = next(reversed(asked.inputs.items()))
    skills = size if n_skills is None else _checked_size(asked.name, "n_skills", n_skills)
    if not isinstance(base, str) or not base.startswith("pi_") or base in COMPOUNDS:
        raise ValueError(f"the base of {asked.name!r} is {base!r}; use the name of a policy such as 'pi_d2rl_256'")
    if skills > size:
        raise ValueError(
            f"n_skills of {asked.name!r} is {skills}, but the last input, {last!r}, has only {size}; put skills last"
        )
    embedding = SkillEmbedding(skills, _checked_size(asked.name, "n_embed", n_embed), activation, asked.generator)
    inputs = asked.inputs | {last: size - skills + n_embed}
    return SkillNetwork(asked, embedding, make_network(base, inputs, asked.outputs, generator=asked.generator))


def _double_q(asked: Asked, q_name: str = "", **options: Any) -> nn.Module:
    _check_values_said(asked, 2)
    if not isinstance(q_name, str) or not q_name.startswith("q_"):
        raise ValueError(f"double_q makes two of a critic, found {q_name!r}; use a name such as 'q_d2rl_d_256'")
    return DoubleNetwork(
        asked,
        q_name,
        [make_network(q_name, asked.inputs, 1, generator=asked.generator, **options) for _ in range(2)],
    )


MAKERS: dict[str, Callable[..., nn.Module]] = {
    "pi_d2rl": _pi_d2rl,
    "pi_d2rl_mt": _pi_d2rl_mt,
    "pi_d2rl_discrete": _pi_d2rl_discrete,
    "pi_bilinear_d2rl": _pi_bilinear_d2rl,
    "q_d2rl": _q_d2rl,
    "q_bilinear_d2rl": _q_bilinear_d2rl,
    "qd_d2rl": _qd_d2rl,
    "qd_d2rl_flattsg": _qd_d2rl_flattsg,
    "qd_relu": _qd_relu,
    "phi_diayn_d2rl": _phi_diayn_d2rl,
}
COMPOUNDS: dict[str, Callable[..., nn.Module]] = {"pi_diayn_cskill": _pi_diayn_cskill, "double_q": _double_q}


def _maker(name: str) -> tuple[Callable[..., nn.Module], list[int]]:
    """What makes the network called `name`, and the widths of hidden layers that the name says."""
    if name in COMPOUNDS:
        return COMPOUNDS[name], []
    found = re.fullmatch(r"(?P<stem>.*?)(?P<ending>(_d)?_((?P<layers>\d{1,9})x)?(?P<width>\d{1,9}))", name, re.ASCII)
    stem, ending = (found["stem"], found["ending"]) if found else (name, "_256")
    if found is None or stem not in MAKERS:
        nearest = difflib.get_close_matches(stem.removesuffix("_d"), [*MAKERS, *COMPOUNDS], n=1)
        hint = f"did you mean {nearest[0] + (ending if nearest[0] in MAKERS else '')!r}? " if nearest else ""
        raise ValueError(
            f"no network {name!r}; {hint}known: {', '.join(MAKERS)}, each with [_d]_<width>, and {', '.join(COMPOUNDS)}"
        )
    layers, width = int(found["layers"] or (3 if stem == "qd_relu" else 4)), int(found["width"])
    if not (1 <= width <= MAX_WIDTH and 1 <= layers <= MAX_LAYERS):
        raise ValueError(
            f"network {name!r} has {layers} layers of width {width}; use 1 to {MAX_LAYERS} of width 1 to {MAX_WIDTH}"
        )
    return MAKERS[stem], [width] * layers


def _critics(asked: Asked, inputs: int, trunk: Any, last_init: LastInit, published_scale: bool) -> Ensemble:
    _check_values_said(asked, 2)
    return Ensemble(
        2,
        inputs,
        asked.hidden,
        1,
        trunk=trunk,
        last_init=last_init,
        published_scale=published_scale,
        generator=asked.generator,
    )


# Joining inputs and shaping outputs


def _join(values: Mapping[str, Tensor]) -> tuple[Tensor]:
    return (torch.cat(list(values.values()), -1),)


def _join_expanded(values: Mapping[str, Tensor]) -> tuple[Tensor]:
    """All but the subgoal, then the subgoal in the block of its task."""
    rest = [value for key, value in values.items() if key != "subgoal"]
    return (torch.cat([*rest, expand_task_subgoal(values["task"], values["subgoal"])], -1),)


def _unchanged(values: Tensor) -> Tensor:
    return values


def _single(values: Tensor) -> Tensor:
    return values.squeeze(-1)


def _double(values: Tensor, squash: Callable[[Tensor], Tensor] = _unchanged) -> Tensor:
    """[2, B, 1] -> [B, 2]."""
    return squash(values.squeeze(-1).mT)


def _squash(name: str, activation: str) -> Callable[[Tensor], Tensor]:
    """The output of `qd_relu`: `none`, `softplus`, `sigmoid`, or `sigmoid<x>`, which is x times a sigmoid."""
    if activation == "none":
        return _unchanged
    if activation == "softplus":
        return F.softplus
    found = re.fullmatch(r"sigmoid((?:\d+(?:\.\d+)?)?)", str(activation), re.ASCII)
    if found is None or (found[1] and float(found[1]) == 0.0):
        raise ValueError(
            f"the activation of {name!r} is {activation!r}; use none, softplus, sigmoid, or sigmoid<x> such as sigmoid2"
        )
    return partial(_scaled_sigmoid, scale=float(found[1] or 1.0))


def _scaled_sigmoid(values: Tensor, scale: float) -> Tensor:
    return scale * torch.sigmoid(values)


# Checks


def _checked_size(name: str, what: str, size: Any) -> int:
    if isinstance(size, bool) or not hasattr(size, "__index__") or size < 1:
        raise ValueError(f"{what} of {name!r} is {size!r}; use a whole number, at least 1")
    return int(size)


def _checked_sizes(name: str, inputs: Mapping[str, int]) -> dict[str, int]:
    if not isinstance(inputs, Mapping) or not inputs:
        raise ValueError(f"the inputs of {name!r} are {inputs!r}; give sizes by name, such as {{'observation': 59}}")
    return {key: _checked_size(name, f"the size of input {key!r}", size) for key, size in inputs.items()}


def _check_inputs_given(asked: Asked, *needed: str) -> None:
    for key in needed:
        if key not in asked.inputs:
            raise ValueError(f"network {asked.name!r} needs an input {key!r}, found {list(asked.inputs)}; add its size")


def _check_values_said(asked: Asked, values: int) -> None:
    """Two critics may be counted as two outputs, or by what each of them says."""
    if asked.outputs not in (1, values):
        raise ValueError(f"network {asked.name!r} says {values} per row, but outputs is {asked.outputs}; use {values}")


def _task_and_rest(asked: Asked) -> tuple[int, int]:
    """The size of `task`, and of all other inputs together."""
    _check_inputs_given(asked, "task")
    task = asked.inputs["task"]
    if asked.total == task:
        raise ValueError(f"network {asked.name!r} reads more than 'task', but that is its only input; add another one")
    return task, asked.total - task


def _checked_values(
    module: nn.Module, name: str, sizes: Mapping[str, int], x: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The entries of `x` that `sizes` names, in that order, each [B, size]; whole numbers and bits become floats."""
    if not isinstance(x, Mapping):
        raise ValueError(
            f"network {name!r} takes a mapping with {list(sizes)}, found {type(x).__name__}; name the inputs"
        )
    found: dict[str, Tensor] = {}
    for key, size in sizes.items():
        if key not in x:
            raise ValueError(f"network {name!r} reads {key!r}, found {list(x)}; pass {list(sizes)}")
        value = x[key]
        if not isinstance(value, Tensor):
            raise ValueError(f"the input {key!r} of {name!r} is a {type(value).__name__}; pass a tensor [B, {size}]")
        rows = value.unsqueeze(-1) if value.ndim < 2 else value.flatten(1)
        if rows.ndim != 2 or rows.shape[1] != size:
            raise ValueError(f"the input {key!r} of {name!r} is {list(value.shape)}; pass [B, {size}]")
        found[key] = rows if rows.is_floating_point() else rows.to(next(module.parameters()).dtype)
    if len({len(rows) for rows in found.values()}) > 1:
        shapes = {key: len(rows) for key, rows in found.items()}
        raise ValueError(f"the inputs of {name!r} have different numbers of rows: {shapes}; pass one batch")
    return found
