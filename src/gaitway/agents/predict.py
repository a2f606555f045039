"""`predict_action`: one observation in, one action out, for scripts, robots and notebooks.

    action = predict_action(policy, observation)                        # array, tensor, or one of these per group
    obs, reward, *_ = env.step(predict_action(policy, obs, env=env))    # raw gymnasium observations and actions

The policy's normaliser is part of it. A policy with memory is passed as `InferencePolicy(policy)`, which remembers from
one call to the next and forgets with `reset()`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaitway.agents.policy import CastPolicy, InferencePolicy, Policy
from gaitway.envs.spec import ActionSpec, EnvSpec
from gaitway.envs.vec_env import Observation

Action = int | np.ndarray


def predict_action(
    policy: Policy | InferencePolicy | CastPolicy,
    observation: Any,
    *,
    env: Any = None,
    stochastic: bool = False,
    generator: torch.Generator | None = None,
    clip: bool = True,
    spec: EnvSpec | None = None,
) -> Action:
    """The action for one `observation` (no batch axis): an int for a choice, else an array of the action's shape.

    `observation` is an array or tensor, or a (nested) dict of them by group, nested keys joined by `/`. Without `env`
    it has the form of the policy's groups. `env` is a single gymnasium environment whose raw observations and actions
    are converted (one-hot states, spaces of any shape). `stochastic` and `generator` are for a bare policy; an
    `InferencePolicy` has its own. `clip` keeps continuous actions within their limits. `spec` says what the policy was
    made for, where it does not carry that itself. What is no finite number is refused.
    """
    if isinstance(policy, CastPolicy):
        return _of_cast(policy, observation, env, spec, clip)
    bare = policy.policy if isinstance(policy, InferencePolicy) else policy
    spec = spec or getattr(bare, "spec", None)
    if spec is None:
        raise TypeError(f"{type(bare).__name__} does not say what it was made for; pass spec=env.spec")
    device = _device_of(bare)
    groups = bare.actor_groups
    batch = _encoded(env, observation, groups) if env is not None else _grouped(observation, groups, spec)
    batch = {name: value.to(device) for name, value in batch.items()}
    if isinstance(policy, InferencePolicy):
        if stochastic or generator is not None:
            raise ValueError("an InferencePolicy decides itself: InferencePolicy(policy, stochastic, generator)")
        action = policy(batch)
    else:
        with torch.inference_mode():
            state = policy.initial_state(1, device)
            if state is not None:
                raise ValueError(
                    f"this {type(policy).__name__} has a memory, which one call cannot keep; make act = "
                    "InferencePolicy(policy), pass that in every step and call act.reset() before each episode"
                )
            action, _ = policy.act(batch, None, stochastic, generator)
    return _own_form(action[0].cpu(), spec.action, env, clip)


def _of_cast(cast: CastPolicy, observation: Any, env: Any, spec: EnvSpec | None, clip: bool) -> Action:
    """The same for several agents that act together."""
    if spec is None:
        raise TypeError("a cast does not say what it was made for; pass spec=env.spec")
    reads = {name.removeprefix("env/obs/") for name in cast.agents.reads if name.startswith("env/obs/")}
    groups = tuple(name for name in spec.group_names if name in reads)
    batch = _encoded(env, observation, groups) if env is not None else _grouped(observation, groups, spec)
    device = _device_of(cast.agents)
    return _own_form(cast({name: value.to(device) for name, value in batch.items()})[0].cpu(), spec.action, env, clip)


def _device_of(policy: Any) -> torch.device:
    parameter = next(iter(policy.parameters()), None) if hasattr(policy, "parameters") else None
    return torch.device("cpu") if parameter is None else parameter.device


def _grouped(observation: Any, groups: tuple[str, ...], spec: EnvSpec) -> Observation:
    """`{group: [1, *shape]}` of the groups that the actor reads."""
    if isinstance(observation, Mapping):
        parts = dict(_flat(observation))
    elif len(groups) == 1:
        parts = {groups[0]: observation}
    else:
        raise ValueError(f"the policy reads the groups {list(groups)}; pass a dict with one observation for each")
    _check_groups(parts, groups)
    batch = {}
    for name in groups:
        group = spec.group(name)
        value = as_numbers(name, parts[name])
        if tuple(value.shape) != group.shape and not (value.dim() == 0 and group.shape == (1,)):
            raise ValueError(
                f"the observation {name!r} is {list(value.shape)}; one observation is {list(group.shape)}, without a "
                "batch axis (for many at once call InferencePolicy(policy)), raw gymnasium ones take env=env"
            )
        batch[name] = value.detach().to(group.torch_dtype).reshape(1, *group.shape)
    check_finite(batch, spec)
    return batch


def as_numbers(name: str, value: Any) -> Tensor:
    """An array, a list or a number as a tensor; texts and whatever else is none are refused."""
    try:
        found = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        shown = " ".join(repr(value).split())
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        raise TypeError(f"the observation {name!r} is {shown}; pass an array, a tensor or a list of numbers") from error
    if found.is_complex():
        raise TypeError(f"the observation {name!r} holds complex numbers; pass real ones")
    return found


def check_finite(obs: Observation, spec: EnvSpec) -> None:
    """Refuse observations `[B, ...]` that hold NaN or infinities, by the name of the component."""
    for name, value in obs.items():
        if not value.is_floating_point() or bool(torch.isfinite(value).all()):
            continue
        row, *place = torch.nonzero(~torch.isfinite(value))[0].tolist()
        group, where = spec.group(name), ""
        if group.is_vector:
            ends = list(itertools.accumulate(component.size for component in group.components))
            where = f" in {group.components[next(k for k, end in enumerate(ends) if place[0] < end)].name!r}"
        bad = float(value[(row, *place)])
        raise ValueError(f"the observation {name!r} holds {bad}{where} (at {place}); pass finite numbers")


def _flat(observation: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in observation.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{key}/")
        else:
            yield f"{path}{key}", value


def _check_groups(parts: Mapping[str, Any], groups: tuple[str, ...]) -> None:
    missing = [name for name in groups if name not in parts]
    if missing:
        raise KeyError(f"the policy reads {list(groups)}; the observation has {list(parts)} and lacks {missing}")


def _encoded(env: Any, observation: Any, groups: tuple[str, ...]) -> Observation:
    """The same of a raw observation of a gymnasium environment."""
    from gaitway.envs.gym.spaces import ObservationCodec

    codec = ObservationCodec(env.observation_space)
    batch = codec.allocate(1)
    _check_groups(batch, groups)
    try:
        codec.write_row(observation, batch, 0)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ValueError(
            f"the observation {str(observation)[:60]!r} is none of {env.observation_space}: {error}"
        ) from error
    bad = next((name for name, value in batch.items() if not bool(torch.isfinite(value).all())), None)
    if bad is not None:
        raise ValueError(f"the observation {bad!r} holds numbers that are not finite; pass finite ones")
    return batch


def _own_form(action: Tensor, spec: ActionSpec, env: Any, clip: bool) -> Action:
    """One action as the environment takes it."""
    if clip and spec.kind == "continuous":
        action = action.clamp(torch.tensor(spec.low), torch.tensor(spec.high))
    values = action.numpy().copy()
    if env is not None:
        space = env.action_space
        values = values.astype(space.dtype).reshape(space.shape or ())
    return int(values) if spec.kind == "discrete" else values
