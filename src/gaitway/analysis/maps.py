"""Maps of what was learnt: a policy's actions or a critic's values over two chosen dimensions of the observation.

A `Plane` says where one looks: which two dimensions vary, between which limits, and at what the others stay. Every map
is an array `[n, n]` (or `[n, n, A]`) whose entry `[i, j]` belongs to `(x_i, y_j)`, drawn with x to the right and y up.
What is mapped is a function of observations `[N, D]`, a loaded policy, or an agent through `agent_function`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from gaitway.analysis.figures import distinct_colours, finish, legend_below, new_figure
from gaitway.analysis.plane import Plane, as_array
from gaitway.analysis.plots import STYLE
from gaitway.analysis.policy_functions import action_names, critic_function, policy_function

Function = Callable[..., Any]
TICKS = (1, 2, 2.5, 5, 10)
MAX_NAMED_ACTIONS = 12
"""Up to so many discrete actions have a colour and a line in the legend each; more are shown on a scale."""


@mpl.rc_context(STYLE)
def policy_map(
    policy: Any,
    plane: Plane,
    *,
    actions: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    title: str = "policy",
    path: str | Path | None = None,
    show: bool = False,
) -> tuple[np.ndarray, Figure]:
    """What the policy does without exploring, `[n, n, A]`, a panel per action dimension; `[n, n]` of one choice.

    `policy` gives actions `[N, A]`, or whole numbers `[N]` for a choice between actions. `actions` picks some of
    the dimensions, `names` names all of them (for a choice: its actions); a loaded policy brings its own names. A
    policy with memory is shown as it acts at the start of an episode.
    """
    observations = plane.observations()
    found = _array(_call(policy_function(policy), observations))
    names = list(action_names(policy) if names is None else names)
    if len(found) != len(observations):
        raise ValueError(
            f"the policy gives {list(found.shape)} for {len(observations)} observations; it must give one each"
        )
    portrait: np.ndarray
    if found.dtype.kind in "iub" and found.ndim == 1:
        portrait = found.astype(np.int64).reshape(plane.definition, plane.definition)
        figure = new_figure(4.6, 4.2, show=show)
        _draw_choices(figure, figure.add_subplot(), plane, portrait, names, "action")
        _title(figure, plane, title)
        return portrait, finish(figure, path=path, show=show)
    portrait = found.reshape(plane.definition, plane.definition, -1)
    chosen = range(portrait.shape[-1]) if actions is None else list(actions)
    for index in chosen:
        if not -portrait.shape[-1] <= index < portrait.shape[-1]:
            raise IndexError(f"there is no action dimension {index}; the policy has {portrait.shape[-1]}")
    names = names or [f"action {index}" for index in range(portrait.shape[-1])]
    if len(names) != portrait.shape[-1]:
        raise ValueError(f"{len(names)} names for {portrait.shape[-1]} action dimensions; name each of them")
    portrait = portrait[..., list(chosen)]
    columns = 2 if len(chosen) == 4 else min(3, len(chosen))
    rows = -(-len(chosen) // columns)
    figure = new_figure(3.7 * columns + 0.6, 3.1 * rows + 0.5, show=show)
    for panel, index in enumerate(chosen):
        axes = figure.add_subplot(rows, columns, panel + 1)
        _draw_values(figure, axes, plane, portrait[..., panel], names[index], around_zero=True)
    _title(figure, plane, title)
    return portrait, finish(figure, path=path, show=show)


@mpl.rc_context(STYLE)
def critic_map(
    critic: Any,
    plane: Plane,
    *,
    action: Sequence[float] | np.ndarray | Tensor | None = None,
    title: str | None = None,
    label: str = "value",
    path: str | Path | None = None,
    show: bool = False,
) -> tuple[np.ndarray, Figure]:
    """The value of states, `[n, n]`: V(s), or Q(s, a) of one `action` `[A]` that is the same everywhere.

    `critic` maps observations `[N, D]`, for Q also actions `[N, A]`, to `[N]` or `[N, 1]`. Of a loaded policy the
    critic is taken (the lowest of several), in the units it was trained in.
    """
    observations = plane.observations()
    function = critic_function(critic)
    if action is None:
        _refuse_missing_action(function)
        found = _array(_call(function, observations))
    else:
        given = torch.as_tensor(np.asarray(action, np.float32)).reshape(1, -1)
        found = _array(_call(function, observations, given.expand(len(observations), -1)))
    if found.shape not in ((len(observations),), (len(observations), 1)):
        raise ValueError(
            f"the critic gives {list(found.shape)} for {len(observations)} observations; it must give [N] or [N, 1]. "
            "For one value per action use action_value_map"
        )
    portrait = found.reshape(plane.definition, plane.definition)
    figure = new_figure(4.6, 3.8, show=show)
    _draw_values(figure, figure.add_subplot(), plane, portrait, label)
    _title(figure, plane, title or ("V(s)" if action is None else f"Q(s, a) of a = {_brief(action)}"))
    return portrait, finish(figure, path=path, show=show)


@mpl.rc_context(STYLE)
def action_value_map(
    critic: Any,
    plane: Plane,
    *,
    action: int | Literal["greedy"] | None = None,
    names: Sequence[str] | None = None,
    title: str | None = None,
    label: str = "value",
    path: str | Path | None = None,
    show: bool = False,
) -> tuple[np.ndarray, Figure]:
    """A critic that answers for all discrete actions at once, observations `[N, D]` -> `[N, actions]`, as `[n, n]`.

    `action` None shows the value of the best one, "greedy" shows which one that is, a number the value of that one.
    """
    observations = plane.observations()
    function = critic_function(critic)
    found = _array(_call(function, observations))
    if found.ndim != 2 or len(found) != len(observations):
        raise ValueError(f"the critic gives {list(found.shape)}; it must give [N, actions] for N = {len(observations)}")
    values = found.reshape(plane.definition, plane.definition, -1)
    count = values.shape[-1]
    labels = [str(index) for index in range(count)] if names is None else list(names)
    if len(labels) != count:
        raise ValueError(f"{len(labels)} names for {count} actions; name each of them")
    figure = new_figure(4.6, 4.2 if action == "greedy" else 3.8, show=show)
    axes = figure.add_subplot()
    if action == "greedy":
        portrait = values.argmax(-1)
        _draw_choices(figure, axes, plane, portrait, labels, "action")
        title = title or "greedy action"
    else:
        if action is not None and not 0 <= action < count:
            raise IndexError(f"there is no action {action}; the critic knows 0 to {count - 1}")
        portrait = values.max(-1) if action is None else values[..., action]
        _draw_values(figure, axes, plane, portrait, label)
        title = title or ("value of the best action" if action is None else f"value of action {labels[action]}")
    _title(figure, plane, title)
    return portrait, finish(figure, path=path, show=show)


def _call(function: Function, *values: Tensor) -> Any:
    with torch.no_grad():
        return function(*values)


def _array(value: Any) -> np.ndarray:
    array = as_array(value)
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _refuse_missing_action(function: Function) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a function without a signature says itself what it lacks
        return
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p for p in signature.parameters.values() if p.kind in kinds and p.default is inspect.Parameter.empty]
    if len(needed) > 1:
        raise ValueError("this critic is a function of observation and action; pass action=[...] to say which one")


def _draw_values(
    figure: Figure, axes: Axes, plane: Plane, portrait: np.ndarray, label: str, *, around_zero: bool = False
) -> None:
    finite = portrait[np.isfinite(portrait)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    options: dict[str, Any] = {"cmap": "viridis", "vmin": low, "vmax": high}
    if around_zero and low < 0.0 < high:
        # white is no action; purple and orange differ for every kind of colour vision
        end = max(-low, high)
        options = {"cmap": "PuOr_r", "norm": TwoSlopeNorm(0.0, -end, end)}
    image = axes.imshow(portrait.T, **_geometry(plane), **options)
    bar = figure.colorbar(image, ax=axes, label=label)
    bar.outline.set_visible(False)
    if low == high:
        bar.set_ticks([low])
    _name_axes(axes, plane)


def _draw_choices(
    figure: Figure, axes: Axes, plane: Plane, portrait: np.ndarray, names: Sequence[str], label: str
) -> None:
    first, last = int(portrait.min()), int(portrait.max())
    count = max(len(names), last + 1) if first >= 0 else last - first + 1
    start = 0 if first >= 0 else first
    colours = distinct_colours(count)
    norm = BoundaryNorm(np.arange(start, start + count + 1) - 0.5, count)
    image = axes.imshow(portrait.T, cmap=ListedColormap(colours), norm=norm, **_geometry(plane))
    if count <= MAX_NAMED_ACTIONS:
        labels = [names[index] if start + index < len(names) else str(start + index) for index in range(count)]
        handles = [Patch(facecolor=colour) for colour in colours]
        legend_below(figure, handles, labels, title=label)
    else:
        figure.colorbar(image, ax=axes, label=label)
    _name_axes(axes, plane)


def _geometry(plane: Plane) -> Mapping[str, Any]:
    """Every point is the middle of its pixel; the halves beyond the limits are cut off by the axes."""
    x, y = plane.x_values(), plane.y_values()
    half_x, half_y = (x[1] - x[0]) / 2, (y[1] - y[0]) / 2
    return {
        "origin": "lower",
        "aspect": "auto",
        "extent": (x[0] - half_x, x[-1] + half_x, y[0] - half_y, y[-1] + half_y),
        "interpolation": "nearest",
    }


def _name_axes(axes: Axes, plane: Plane) -> None:
    axes.set_xlim(plane.x_limits)
    axes.set_ylim(plane.y_limits)
    axes.set_xlabel(plane.x_label)
    axes.set_ylabel(plane.y_label)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=TICKS))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=TICKS))
    axes.grid(visible=False)


def _title(figure: Figure, plane: Plane, title: str) -> None:
    figure.suptitle(f"{title}\n{plane.elsewhere()}" if plane.size > 2 else title, fontsize=10)


def _brief(action: Any) -> str:
    numbers = [f"{value:.3g}" for value in np.asarray(action, float).reshape(-1)]
    return "(" + ", ".join(numbers[:4] + ["..."] * (len(numbers) > 4)) + ")" if len(numbers) > 1 else numbers[0]
