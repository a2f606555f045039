"""Skills as one small file: a policy that brings a robot's features to goals, and all that its users must know of it.

A skill file is a state folder of `core/files.py` of the kind `skills`. `Skills.load("walker")` finds one that comes
with the library, `Skills.load(path)` any other; the run folder of a pre-training holds its own as `skills`. Everything
is stored by name: inputs and actions component by component, features with ranges and units, tasks in group spelling,
so that a file of another robot, of other features or of another heading is refused instead of misread.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gaitway.core.config import did_you_mean
from gaitway.core.files import STRUCTURE_FILE, TENSOR_FILE, load_state, save_state
from gaitway.envs.tasks.skills.facts import SkillFacts
from gaitway.envs.tasks.skills.goal_spaces import GoalSpace, combinations, groups_of, rank
from gaitway.envs.vec_env import EnvSpec
from gaitway.nn.trunks import Network

KIND = "skills"
SHIPPED = Path(__file__).parent / "files"
"""Skill files that come with the library, a folder each."""
FIGURES = ("success", "r", "q", "running")
"""By task: measured in rollouts, estimated by reachability, estimated by the critics, met while training."""
PUBLISHED_INPUTS = ("desired_goal", "observation", "task")
GROUPS = frozenset(PUBLISHED_INPUTS)
MAX_GROUPS = 16
"""Groups of features that tasks may combine: 65,535 tasks."""


class SkillFileError(ValueError):
    """A skill file does not fit; the message is one sentence that names the remedy."""


@dataclass(frozen=True)
class Architecture:
    """The shape of the network that acts: `[B, inputs] -> mean | log std [B, 2 actions]`."""

    hidden: tuple[int, ...]
    trunk: str = "d2rl"
    activation: str = "relu"
    layer_norm: bool = False

    def build(self, inputs: int, actions: int, state: Mapping[str, Tensor]) -> Network:
        """The network with these weights; a ValueError where they are of another shape or not finite.

        It is made without memory first: neither a file that claims a giant takes any, nor a random number is drawn.
        """
        if not 0 < len(self.hidden) <= len(state) or not all(type(n) is int and n > 0 for n in self.hidden):
            raise ValueError(f"its hidden layers are {list(self.hidden)[:8]} for {len(state)} tensors")
        with torch.device("meta"):
            network = Network(
                inputs,
                self.hidden,
                2 * actions,
                layers=_Unfilled(),
                trunk=self.trunk,  # type: ignore[arg-type]
                activation=self.activation,
                layer_norm=self.layer_norm,
            )
        try:
            network.load_state_dict({name: value.detach().float().cpu() for name, value in state.items()}, assign=True)
        except RuntimeError as error:
            lines = [line.strip() for line in str(error).splitlines()]
            raise ValueError(
                f"its weights are of another network ({lines[min(1, len(lines) - 1)].rstrip('.')})"
            ) from error
        for name, parameter in network.named_parameters():
            if not bool(torch.isfinite(parameter).all()):
                raise ValueError(f"its tensor {name!r} holds numbers that are not finite")
            parameter.data = parameter.data.contiguous()
        return network


class _Unfilled:
    """Layers without memory, for weights that exist already."""

    generator: torch.Generator | None = None

    def linear(self, inputs: int, outputs: int, gain: float) -> nn.Module:
        return nn.Linear(inputs, outputs, device="meta")

    def norm(self, width: int) -> nn.Module:
        return nn.LayerNorm(width, device="meta")


@dataclass
class Skills:
    """A frozen skill policy with its goal space. `act` is all that a controller above it calls."""

    facts: SkillFacts
    architecture: Architecture
    network: nn.Module
    inputs: dict[str, tuple[str, ...]]
    """What the network reads: groups in this order, with the names of their components."""
    actions: tuple[str, ...]
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    """Success of every task, by the names in `FIGURES`."""
    floors: dict[str, dict[str, float]] = field(default_factory=dict)
    """Success of every task in play without skill, by kind of play: `random`, `zero`."""
    origin: dict[str, Any] = field(default_factory=dict)
    """Where it comes from: env_steps, seed, command, commit."""

    def __post_init__(self) -> None:
        self.network.requires_grad_(False).eval()
        low, high = torch.tensor(self.action_low), torch.tensor(self.action_high)
        if not (len(low) == len(high) == len(self.actions)) or not bool(torch.isfinite(high - low).all()):
            raise ValueError(f"{len(self.actions)} actions have the limits {self.action_low} to {self.action_high}")
        _check_inputs(self.facts, self.inputs)
        self._centre, self._half = (high + low) / 2, (high - low) / 2

    @property
    def space(self) -> GoalSpace:
        return self.facts.space

    @property
    def task_map(self) -> dict[str, int]:
        return dict(self.facts.task_map)

    @property
    def groups(self) -> tuple[str, ...]:
        return self.facts.groups

    @property
    def subsets(self) -> list[str]:
        """The tasks it was trained for, in group spelling, by rank."""
        known = self.success or self.figures.get("r", {})
        return [task for task in combinations(self.groups, len(self.groups)) if not known or task in known]

    @property
    def success(self) -> dict[str, float]:
        """Success of every task in rollouts."""
        return self.figures.get("success", {})

    @torch.no_grad()
    def act(self, observation: Tensor, desired_goal: Tensor, task: Tensor) -> Tensor:
        """The mean action [B, A] for the robot's observation [B, .], what is left to go [B, K] and task bits [B, K]."""
        given = {"observation": observation, "desired_goal": desired_goal, "task": task}
        for name, value in given.items():
            width = len(self.inputs[name])
            if value.ndim != 2 or value.shape[1] != width:
                raise SkillFileError(
                    f"{name} is {list(value.shape)}; these skills of {self.facts.robot} read [B, {width}]"
                )
        joined = torch.cat([given[name] for name in self.inputs], -1).float()
        mean = self.network(joined).float().chunk(2, -1)[0].tanh()
        return mean * self._half.to(mean.device) + self._centre.to(mean.device)

    def to(self, device: torch.device | str) -> Skills:
        self.network.to(device)
        return self

    # Files

    def save(self, path: str | Path) -> None:
        """Write the file, by one rename."""
        state = {name: value.detach().cpu().clone() for name, value in self.network.state_dict().items()}
        meta = {
            "facts": self.facts.to_dict(),
            "architecture": {
                "hidden": list(self.architecture.hidden),
                "trunk": self.architecture.trunk,
                "activation": self.architecture.activation,
                "layer_norm": self.architecture.layer_norm,
            },
            "inputs": [[name, list(components)] for name, components in self.inputs.items()],
            "actions": {
                "names": list(self.actions),
                "low": list(self.action_low),
                "high": list(self.action_high),
            },
            "figures": {name: _finite(values) for name, values in self.figures.items()},
            "floors": {name: _finite(values) for name, values in self.floors.items()},
            "origin": self.origin,
        }
        save_state(path, {"network": state}, kind=KIND, meta=meta)

    @classmethod
    def load(cls, path: str | Path) -> Skills:
        """The skills at `path`, those of a run folder, or by a plain name one that comes with the library."""
        folder = find_skills(path)
        state, meta = load_state(folder, kind=KIND)
        try:
            facts = SkillFacts.from_dict(meta["facts"])
            shape = meta["architecture"]
            architecture = Architecture(
                tuple(shape["hidden"]), shape["trunk"], shape["activation"], bool(shape["layer_norm"])
            )
            inputs = {name: tuple(components) for name, components in meta["inputs"]}
            actions = meta["actions"]
            _check_inputs(facts, inputs)
            network = architecture.build(sum(map(len, inputs.values())), len(actions["names"]), state["network"])
            return cls(
                facts,
                architecture,
                network,
                inputs,
                tuple(actions["names"]),
                tuple(actions["low"]),
                tuple(actions["high"]),
                _by_task(facts, meta["figures"]),
                _by_task(facts, meta["floors"]),
                dict(meta["origin"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RuntimeError) as error:
            reason = (str(error.args[0] if error.args else error).splitlines() or [type(error).__name__])[0]
            lacks = "it lacks " if isinstance(error, KeyError) else ""
            raise SkillFileError(
                f"{path} is not a skill file that can be used: {lacks}{reason}; export it again"
            ) from error

    @classmethod
    def of_policy(cls, policy: Any, **known: Any) -> Skills:
        """The skills that a `SkillPolicy` has learnt, as they are now."""
        spec: EnvSpec = policy.spec
        config = policy.config
        if len(policy.blocks) or config.actor_network is not None or config.normalise_observations:
            raise SkillFileError(
                "a skill file holds a plain network; train without blocks, actor_network and normalise_observations"
            )
        architecture = Architecture(tuple(config.actor_hidden), config.trunk, config.activation, config.layer_norm)
        order = policy.groups["actor"]
        if set(order) != GROUPS:
            raise SkillFileError(f"the actor reads {list(order)}; a skill reads {sorted(GROUPS)}")
        inputs = {name: component_names(spec, name) for name in order}
        state = {name: value.detach().cpu().clone() for name, value in policy.actor.state_dict().items()}
        network = architecture.build(sum(map(len, inputs.values())), len(spec.action.names), state)
        action = spec.action
        return cls(SkillFacts.of(spec), architecture, network, inputs, action.names, action.low, action.high, **known)

    @classmethod
    def from_published(cls, policy: Mapping[str, Tensor], side_car: Mapping[str, Any], robot: str) -> Skills:
        """Skills published with HSD-3: `policy` holds the tensors `pi.1.layers.0.weight`, ..., `pi.2.mu.weight`, ...
        (a leading `pi.` may be missing), `side_car` what lay beside them as JSON: task_map, goal_dims, cperf, ..."""
        from gaitway.envs.registry import make_env  # knows the simulator, which reading a file of ours does not need

        named = {name.removeprefix("pi."): value for name, value in policy.items() if re.match(r"(pi\.)?[12]\.", name)}
        layers = sorted(int(found[1]) for name in named if (found := re.fullmatch(r"1\.layers\.(\d+)\.weight", name)))
        wanted = [f"2.{part}.{kind}" for part in ("mu", "log_std") for kind in ("weight", "bias")]
        wanted += [f"1.layers.{layer}.bias" for layer in layers]
        missing = [name for name in wanted if name not in named]
        if not layers or layers != list(range(len(layers))) or missing:
            lacking = (missing or ["1.layers.0.weight"])[0]
            raise SkillFileError(
                f"the policy has the tensors {sorted(policy)[:6]} ... and lacks {lacking}; it should have "
                "pi.1.layers.0.weight and so on, pi.2.mu.* and pi.2.log_std.*"
            )
        dims = side_car.get("goal_dims") or side_car.get("cperf")
        if not isinstance(dims, Mapping) or not isinstance(side_car.get("task_map"), Mapping):
            raise SkillFileError("the side-car lacks task_map or goal_dims; pass the JSON that lay beside the policy")
        tasks = {str(task): 1.0 for task in dims if task != "total"}
        options: dict[str, Any] = {
            "feature_dist": dict.fromkeys(groups_of(tasks), 1.0),
            "task_map": {str(feature): int(place) for feature, place in side_car["task_map"].items()},
            "compat": "original",
        }
        with make_env(f"{robot.lower()}/skills", num_envs=1, **options) as env:
            spec = env.spec
        inputs = {name: component_names(spec, name) for name in PUBLISHED_INPUTS}
        width, size = named["1.layers.0.weight"].shape
        if size != sum(map(len, inputs.values())):
            raise SkillFileError(
                f"the policy reads {size} numbers, and skills of {robot} over these tasks "
                f"{sum(map(len, inputs.values()))}; check robot and side-car"
            )
        architecture = Architecture((width,) * len(layers))
        state = {
            f"trunk.linears.{layer}.{kind}": named[f"1.layers.{layer}.{kind}"].float()
            for layer in layers
            for kind in ("weight", "bias")
        }
        for kind in ("weight", "bias"):
            state[f"last.{kind}"] = torch.cat((named[f"2.mu.{kind}"], named[f"2.log_std.{kind}"])).float()
        try:
            network = architecture.build(size, len(spec.action.names), state)
        except ValueError as error:
            raise SkillFileError(f"the published policy does not fit {robot}: {error}") from error
        facts = SkillFacts.of(spec)
        names = {"success": "cperf_eval", "r": "cperf_r", "q": "cperf_q", "running": "cperf_running"}
        figures = {
            ours: _published_figures(facts, side_car[theirs]) for ours, theirs in names.items() if theirs in side_car
        }
        figures.setdefault("success", _published_figures(facts, side_car.get("cperf", {})))
        action = spec.action
        return cls(
            facts,
            architecture,
            network,
            inputs,
            action.names,
            action.low,
            action.high,
            figures,
            origin={"published": True},
        )

    # Fitting an environment

    def check_fits(
        self, robot: str, features: str, heading: str, observation: Sequence[str], actions: Sequence[str]
    ) -> None:
        """Refuse a robot that these skills do not belong to, feature and component by component."""
        facts = self.facts
        misfit = facts.misfit(replace(facts, robot=robot, features=features, heading=heading))
        if misfit is not None:
            raise SkillFileError(misfit)
        lacking = [name for name in self.inputs["observation"] if name not in observation]
        if lacking:
            raise SkillFileError(
                f"these skills read {lacking[0]!r}{did_you_mean(lacking[0], observation)}, which the environment does "
                "not show; use one that shows the robot's joints"
            )
        if tuple(actions) != self.actions:
            raise SkillFileError(
                f"these skills move {', '.join(self.actions)}, the environment takes {', '.join(actions)}"
            )

    def check_env(self, spec: EnvSpec) -> None:
        """Refuse an environment with goals of its own (`SkillFacts`) in which these skills would be misread."""
        there = SkillFacts.of(spec)
        misfit = self.facts.misfit(there)
        if misfit is not None:
            raise SkillFileError(misfit)
        shown = component_names(spec, "observation")
        self.check_fits(there.robot, there.features, there.heading, shown, spec.action.names)
        for name, mine in self.inputs.items():
            if mine != component_names(spec, name):
                raise SkillFileError(
                    f"{name} has {len(component_names(spec, name))} numbers here, in another order or of another "
                    f"meaning than the {len(mine)} that these skills read; use the options they were learnt with"
                )

    def by_rank(self, figures: Mapping[str, float] | None = None) -> dict[int, float]:
        """Mean success of the tasks of each rank."""
        found = self.success if figures is None else figures
        ranks = sorted({rank(task) for task in found})
        return {n: float(np.nanmean([p for task, p in found.items() if rank(task) == n])) for n in ranks}


def shipped_skills() -> list[str]:
    """Names of the skill files that come with the library."""
    return sorted(found.name for found in SHIPPED.iterdir() if found.is_dir()) if SHIPPED.is_dir() else []


def is_shipped(path: str | Path) -> bool:
    """Whether `path` is a plain name of a skill file of ours, and no folder that holds another one."""
    return str(path) in shipped_skills() and not _holds_skills(Path(path))


def find_skills(path: str | Path) -> Path:
    """Where the skill file is that a path, a run folder or a plain name stands for."""
    text, folder = str(path), Path(path)
    if is_shipped(path):
        return SHIPPED / text
    if folder.is_file() and folder.name in (STRUCTURE_FILE, TENSOR_FILE):
        folder = folder.parent
    if folder.is_dir():
        if (folder / "config.yaml").is_file() and not (folder / KIND).is_dir():
            raise SkillFileError(
                f"the run {text} holds no skills; train with callbacks=[{{name: skill_file}}], which writes them with "
                "each checkpoint"
            )
        return folder / KIND if (folder / KIND).is_dir() else folder
    if folder.exists():
        raise SkillFileError(
            f"{text} is no skill file, which is a folder with {STRUCTURE_FILE} and {TENSOR_FILE}; name that folder"
        )
    known = shipped_skills()
    raise SkillFileError(
        f"there are no skills {text!r}{did_you_mean(text, known)}; name the folder of a run or of a skill file, or one "
        f"that comes with the library: {', '.join(known)}"
    )


def _holds_skills(folder: Path) -> bool:
    return (folder / STRUCTURE_FILE).is_file() or (folder / KIND).is_dir()


def component_names(spec: EnvSpec, group: str) -> tuple[str, ...]:
    """One name per number of a group: a component of several numbers gets an index behind its name."""
    found: list[str] = []
    for component in spec.group(group).components:
        if component.size == 1:
            found.append(component.name)
        else:
            found += [f"{component.name}[{number}]" for number in range(component.size)]
    return tuple(found)


def _published_figures(facts: SkillFacts, figures: Mapping[str, float]) -> dict[str, float]:
    """Figures of the published side-car, whose tasks may be flattened, in group spelling."""
    tasks = facts.tasks
    return {tasks.name_of(tasks.key_of(str(task))): float(p) for task, p in figures.items() if task != "total"}


def _check_inputs(facts: SkillFacts, inputs: Mapping[str, Sequence[str]]) -> None:
    if set(inputs) != GROUPS:
        raise ValueError(f"its inputs are {sorted(inputs)} instead of {sorted(GROUPS)}")
    if not 0 < len(facts.groups) <= MAX_GROUPS:
        raise ValueError(f"it names {len(facts.groups)} groups of features; tasks combine 1 to {MAX_GROUPS}")
    known = len(facts.tasks.members)  # made here, the set of tasks checks groups and task map against the goal space
    for name in ("desired_goal", "task"):
        if len(inputs[name]) != known:
            raise ValueError(f"it reads {len(inputs[name])} numbers of {name} for {known} features")


def _by_task(facts: SkillFacts, figures: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    for task in {task for values in figures.values() for task in values}:
        facts.tasks.key_of(task)  # refuses what is no task
    return {name: _finite(values) for name, values in figures.items()}


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if math.isfinite(value)}
