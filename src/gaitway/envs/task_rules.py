"""What a `BatchTask` promises, looked at where it is called: a mistake is named with its method, file and line."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import mujoco
import numpy as np

from gaitway.core.config import did_you_mean
from gaitway.core.ranges import Count, WholeNumber, refusal
from gaitway.core.user_code import UserCodeError, blamed, place_of
from gaitway.envs.batch_task import BatchTask
from gaitway.envs.spec import ObservationGroup

EXPECTED = {
    "draw": "returns the start of one episode: {'qpos': [nq], 'qvel': [nv]} and what layout_shapes names",
    "draw_many": "returns the starts of instances `rows`: {'qpos': [len(rows), nq], 'qvel': [len(rows), nv], ...}",
    "outcome": "fills reward [B], terminated [B] and every metric [B] in place (reward[:] = ...) and returns nothing",
    "observe": "fills out[group] [len(rows), *shape] of every group in place and returns nothing",
    "start": "prepares the new episodes of `rows` and returns nothing",
    "attach": "takes the arrays of the batch: begin with super().attach(batch)",
    "truncate": "sets truncated [B] in place",
    "actuate": "writes self.ctrl [B, nu] and returns nothing",
    "go_on": "changes what episodes that go on show next and returns nothing",
}


ARGUMENTS = {
    "draw": ("generator",),
    "draw_many": ("generators", "rows"),
    "start": ("rows",),
    "outcome": ("action", "reward", "terminated", "metrics"),
    "observe": ("rows", "out"),
    "attach": ("batch",),
    "truncate": ("terminated", "truncated"),
    "actuate": ("action",),
    "go_on": ("ended",),
}
"""What the methods are called with."""


def check_task(task: BatchTask) -> None:
    """Refuse a task that lacks something, or declares what cannot be, before anything is simulated."""
    name = place_of(task)
    if not isinstance(task, BatchTask):
        raise UserCodeError(f"{name} is not a BatchTask; derive it from gaitway.envs.batch_task.BatchTask")
    for method in ("outcome", "observe"):
        if getattr(type(task), method) is getattr(BatchTask, method):
            raise UserCodeError(f"{name} has no {method}(); write one that {EXPECTED[method]}")
    if type(task).draw is BatchTask.draw and type(task).draw_many is BatchTask.draw_many:
        raise UserCodeError(f"{name} has no draw(); write one that {EXPECTED['draw']}")
    for method, arguments in ARGUMENTS.items():
        try:
            inspect.signature(getattr(task, method)).bind(*arguments)
        except TypeError as error:
            raise UserCodeError(
                f"{place_of(task, method)} cannot be called: {error}; write def {method}(self, {', '.join(arguments)})"
            ) from error
    wanted = {"id": "a text", "max_episode_steps": "an integer, 0 for no time limit", "groups": "ObservationGroups"}
    for attribute, kind in wanted.items():
        if not hasattr(task, attribute):
            raise UserCodeError(f"{name} does not set {attribute}; set it to {kind}")
    if not hasattr(task, "robot") and "model" not in vars(task) and type(task).model is BatchTask.model:
        raise UserCodeError(f"{name} sets neither robot nor model; set robot = Robot(name, file)")
    _check_declarations(task, name)


def check_frame_skip(task: BatchTask) -> None:
    sentence = refusal(Count, task.frame_skip, "frame_skip")
    if sentence is not None:
        raise UserCodeError(f"{place_of(task)}: {sentence}")


def _check_declarations(task: BatchTask, name: str) -> None:
    def refuse(what: str) -> None:
        raise UserCodeError(f"{name}: {what}")

    if not isinstance(task.id, str):
        refuse(f"id is {task.id!r}; use a text such as 'my/task'")
    sentence = refusal(WholeNumber, task.max_episode_steps, "max_episode_steps")
    if sentence is not None:
        refuse(sentence)
    groups = task.groups
    if isinstance(groups, ObservationGroup) or not groups or not all(isinstance(g, ObservationGroup) for g in groups):
        refuse("groups is not a tuple of ObservationGroup; write groups = (ObservationGroup(...),)")
    _check_names("groups", [group.name for group in groups], refuse)
    for key in ("metrics", "flags", "fault_metrics", "fields"):
        names = getattr(task, key)
        if isinstance(names, str) or not all(isinstance(each, str) for each in names):
            refuse(f"{key} is {names!r}; write a tuple of names, ({names!r},)" if isinstance(names, str) else key)
        _check_names(key, names, refuse)
    for key in ("flags", "fault_metrics"):
        if unknown := [each for each in getattr(task, key) if each not in task.metrics]:
            refuse(f"{key} names {unknown[0]!r}, which is not among metrics; add it there")
    fields = {each for each in dir(mujoco.MjData) if not each.startswith("_")}
    if unknown := [each for each in task.fields if each not in fields]:
        refuse(f"fields names {unknown[0]!r}, which MjData does not have{did_you_mean(unknown[0], fields)}")
    if not isinstance(task.layout_shapes, Mapping):
        refuse(f"layout_shapes is {task.layout_shapes!r}; write a mapping from names to shapes, {{'goal': (2,)}}")
    for each, shape in task.layout_shapes.items():
        if not isinstance(shape, tuple) or not all(isinstance(side, int) for side in shape):
            refuse(f"the shape of {each!r} in layout_shapes is {shape!r}; write a tuple, () for one number")
        if each in ("qpos", "qvel"):
            refuse(f"layout_shapes names {each!r}, which every draw has anyway; remove it")


def _check_names(key: str, names: Iterable[str], refuse: Any) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            refuse(f"{key} names {name!r} twice")
        seen.add(name)


def check_returned(task: BatchTask, method: str, value: Any) -> None:
    """Refuse what a method returns that should fill arrays instead."""
    if value is not None:
        deed = f"returned {_described(value)}"
        raise UserCodeError(blamed(task, method, deed, EXPECTED))


def check_drawn(task: BatchTask, method: str, drawn: Any, wanted: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse starts that lack something, have another shape than `wanted`, or are not finite."""

    def refuse(deed: str) -> None:
        raise UserCodeError(blamed(task, method, deed, EXPECTED))

    if not isinstance(drawn, Mapping):
        refuse(f"returned {_described(drawn)}")
    if lacking := [name for name in wanted if name not in drawn]:
        refuse(f"returned {', '.join(map(str, drawn)) or 'nothing'} and not {lacking[0]!r}")
    if unknown := [name for name in drawn if name not in wanted]:
        refuse(f"returned {unknown[0]!r}, which layout_shapes does not name")
    for name, shape in wanted.items():
        try:
            array = np.asarray(drawn[name], dtype=np.float64)
        except (TypeError, ValueError):
            refuse(f"returned {str(drawn[name])!r} as {name!r}, which is not an array of numbers")
        if array.shape != shape:
            refuse(f"returned {name!r} of shape {list(array.shape)}, and it is {list(shape)}")
        if not np.isfinite(array).all():
            refuse(f"returned {name!r} with numbers that are not finite")


def _described(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"an array of shape {list(shape)}"
    return "nothing (None)" if value is None else f"a {type(value).__name__}"
