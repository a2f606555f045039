"""What `check_env` looks at: one step in isolation, and whole runs laid side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Observation, Step, VecEnv


class Findings:
    """Sentences about what is wrong; of each kind only the first one is kept, since one cause shows in every step."""

    def __init__(self) -> None:
        self.sentences: dict[str, str] = {}

    def add(self, kind: str, sentence: str) -> None:
        self.sentences.setdefault(kind, sentence)


@dataclass(frozen=True)
class Trace:
    """A run, copied: `first` is the observation it started from, `rows` maps names to `[T, B, ...]`."""

    first: Observation
    rows: dict[str, Tensor]

    @property
    def done(self) -> Tensor:
        return self.rows["terminated"] | self.rows["truncated"]

    @property
    def length(self) -> int:
        return len(self.rows["reward"])

    def before(self, group: str) -> Tensor:
        """What was seen before each step, `[T, B, ...]`."""
        return torch.cat([self.first[group][None], self.rows[f"obs/{group}"][:-1]])


def record(env: VecEnv, first: Observation, actions: Tensor) -> Trace:
    """Step `env` through `actions` `[T, B, ...]` from the observation `first`."""
    first = copied(first)
    collected: dict[str, list[Tensor]] = {}
    for action in actions:
        for name, value in flat(env.step(action.clone())).items():
            collected.setdefault(name, []).append(value.clone())
        collected.setdefault("elapsed", []).append(env.elapsed.clone())
    return Trace(first, {name: torch.stack(values) for name, values in collected.items()})


def flat(step: Step) -> dict[str, Tensor]:
    """Every tensor of a step by name."""
    tensors = {"reward": step.reward, "terminated": step.terminated, "truncated": step.truncated}
    tensors |= {f"obs/{name}": value for name, value in step.obs.items()}
    tensors |= {f"final_obs/{name}": value for name, value in step.final_obs.items()}
    tensors |= {f"metric/{name}": value for name, value in step.metrics.items()}
    return tensors if step.valid is None else tensors | {"valid": step.valid}


def copied(obs: Observation) -> Observation:
    return {name: value.clone() for name, value in obs.items()}


def same(left: Tensor, right: Tensor) -> Tensor:
    """Elementwise bit equality, NaN being equal to NaN."""
    equal = left == right
    return equal | (left.isnan() & right.isnan()) if left.dtype.is_floating_point else equal


def first_difference(left: Trace, right: Trace, until_end: bool = False) -> str | None:
    """Where two runs first differ, in words; None if they do not. Compares the instances and steps both have.

    `until_end` compares each instance only through the end of its first episode.
    """
    for name, value in left.first.items():
        rows = min(len(value), len(right.first[name]))
        if not same(value[:rows], right.first[name][:rows]).all():
            return f"the first observation ({name!r})"
    length = min(left.length, right.length)
    batch = min(left.done.shape[1], right.done.shape[1])
    ended = left.done[:length, :batch].cumsum(0) > 0
    after = torch.cat([torch.zeros_like(ended[:1]), ended[:-1]]) if until_end else torch.zeros_like(ended)
    found: tuple[int, int, str] | None = None
    for name, value in left.rows.items():
        equal = same(value[:length, :batch], right.rows[name][:length, :batch]).reshape(length, batch, -1).all(-1)
        restarted = ended if until_end and name.startswith(("obs/", "elapsed")) else after
        wrong = (~equal & ~restarted).nonzero()
        if len(wrong) and (found is None or wrong[0, 0].item() < found[0]):
            found = (int(wrong[0, 0]), int(wrong[0, 1]), name)
    return None if found is None else f"{found[2]} of instance {found[1]} in step {found[0]}"


def inspect_observation(obs: Any, spec: EnvSpec, env: VecEnv, where: str, findings: Findings) -> None:
    """Groups, shapes, types, device and finiteness of one observation."""
    if not isinstance(obs, Mapping):
        findings.add("obs-kind", f"{where} is a {type(obs).__name__}; it must be a dict of groups")
        return
    missing = [name for name in spec.group_names if name not in obs]
    extra = [name for name in obs if name not in spec.group_names]
    if missing:
        findings.add(f"missing {where}", f"{where} lacks the groups {missing} that the spec promises")
    if extra:
        findings.add(f"extra {where}", f"{where} has groups {extra} that the spec does not name")
    for group in spec.groups:
        if group.name in obs:
            expected = (env.num_envs, *group.shape)
            label = f"group {group.name!r} of {where}"
            inspect_tensor(obs[group.name], expected, group.torch_dtype, env, label, findings)


def inspect_step(step: Step, env: VecEnv, where: str, findings: Findings) -> None:
    """The form of one step: everything that can be said without knowing the steps around it."""
    spec, scalar = env.spec, (env.num_envs,)
    inspect_observation(step.obs, spec, env, "the observation", findings)
    inspect_observation(step.final_obs, spec, env, "final_obs", findings)
    inspect_tensor(step.reward, scalar, None, env, "the reward", findings)
    inspect_tensor(step.terminated, scalar, torch.bool, env, "terminated", findings)
    inspect_tensor(step.truncated, scalar, torch.bool, env, "truncated", findings)
    if set(step.metrics) != set(spec.metrics):
        findings.add("metrics", f"metrics are {sorted(step.metrics)}; the spec promises {sorted(spec.metrics)}")
    for name, value in step.metrics.items():
        inspect_tensor(value, scalar, None, env, f"metric {name!r}", findings)
    if spec.reset_rows and step.valid is None:
        findings.add("valid", "valid is None although the spec says reset_rows; mark the rows that reset")
    elif step.valid is not None:
        inspect_tensor(step.valid, scalar, torch.bool, env, "valid", findings)
    if findings.sentences:
        return
    both = step.terminated & step.truncated
    if both.any():
        row = int(both.nonzero()[0, 0])
        findings.add("both", f"terminated and truncated are both true ({where}, instance {row}); termination wins")


def inspect_tensor(
    value: Any, shape: tuple[int, ...], dtype: torch.dtype | None, env: VecEnv, label: str, findings: Findings
) -> None:
    """Shape, type (None: any floating type), device and finiteness of one tensor."""
    if not isinstance(value, Tensor):
        findings.add(f"kind {label}", f"{label} is a {type(value).__name__}; it must be a torch.Tensor")
        return
    if tuple(value.shape) != shape:
        findings.add(f"shape {label}", f"{label} has shape {list(value.shape)}; it must be {list(shape)}")
    if dtype is None and not value.dtype.is_floating_point:
        findings.add(f"dtype {label}", f"{label} is {value.dtype}; it must be floating point")
    if dtype is not None and value.dtype != dtype:
        findings.add(f"dtype {label}", f"{label} is {value.dtype}; it must be {dtype}")
    if value.device.type != env.device.type:
        findings.add(f"device {label}", f"{label} is on {value.device}; the environment says {env.device}")
    if value.dtype.is_floating_point and not torch.isfinite(value).all():
        row = int((~torch.isfinite(value)).nonzero()[0, 0]) if value.ndim else 0
        findings.add(f"finite {label}", f"{label} of instance {row} is not finite")


def not_plain(state: Any, path: str = "state") -> Iterator[str]:
    """Everything in a state that is not a dict with string keys, a list, a tensor, a number or a string."""
    if isinstance(state, Mapping):
        for key, value in state.items():
            if not isinstance(key, str):
                yield f"{path} has the key {key!r}; keys must be strings"
            yield from not_plain(value, f"{path}/{key}")
    elif isinstance(state, list):
        for index, value in enumerate(state):
            yield from not_plain(value, f"{path}/{index}")
    elif not isinstance(state, Tensor) and type(state) not in (bool, int, float, str):
        yield f"{path} is a {type(state).__name__}"


def rebuilt(state: Any) -> Any:
    """A deep copy of a plain state, as if it had been written to a file and read back."""
    if isinstance(state, Mapping):
        return {key: rebuilt(value) for key, value in state.items()}
    if isinstance(state, list):
        return [rebuilt(value) for value in state]
    return state.clone() if isinstance(state, Tensor) else state


def equal_states(left: Any, right: Any) -> bool:
    if isinstance(left, Mapping):
        return left.keys() == right.keys() and all(equal_states(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(equal_states(a, b) for a, b in zip(left, right, strict=True))
    return bool(same(left, right).all()) if isinstance(left, Tensor) else left == right
