"""Skills on a continuous scale as one small file: the part of a DIAYN-C policy that reads points instead of numbers.

A state folder of `core/files.py` of the kind `continuous_skills`. The policy that was trained is an embedding of its
discrete skills and a network behind it; the file holds the network, by its architecture, with its inputs by name in
their order (`observation`, `skill`), and the points at which the trained skills lie. A controller above it chooses any
point of (-1, 1)^n.

    skills = ContinuousSkills.load("runs/walker_diaync")
    action = skills.act(observation, skill)                      # [B, .], [B, 7] -> [B, A], the mean
    action = skills.act(observation, skills.points[[3] * B])     # the fourth of the trained skills
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from gaitway.agents.diayn_policy import DIAYNPolicy
from gaitway.core.files import load_state
from gaitway.envs.spec import EnvSpec
from gaitway.skills.frozen_policy import (
    FrozenPolicy,
    Inputs,
    SkillFileError,
    component_names,
    export,
    read_inputs,
    read_policy,
    robot_of,
    usable,
)
from gaitway.skills.places import CONTINUOUS_SKILLS, find_skill_file

KIND = CONTINUOUS_SKILLS
INPUTS = ("observation", "skill")
"""What the network reads, in this order."""


@dataclass(kw_only=True)
class ContinuousSkills(FrozenPolicy):
    """A frozen policy over a continuous scale of skills. `act` is all that a controller above it calls."""

    kind: ClassVar[str] = KIND
    robot: str
    """Whose skills they are: the robot of the goal space, or the environment they were learnt in."""
    points: Tensor
    """Where the trained skills lie, [n_skills, n_embed]."""
    control_dt: float
    """Seconds per step."""
    accuracy: list[float] = field(default_factory=list)
    """Of each trained skill, the share of steps in which the discriminator knew it, where that was measured."""

    def act(self, observation: Tensor, skill: Tensor) -> Tensor:
        """The mean action [B, A] for the robot's observation [B, .] and points of the scale of skills [B, n_embed]."""
        return self.mean_action(self.robot, {"observation": observation, "skill": skill})

    def to(self, device: torch.device | str) -> Self:
        self.points = self.points.to(device)
        return super().to(device)

    # Files

    def save(self, path: str | Path) -> None:
        """Write the file, by one rename."""
        meta = {"robot": self.robot, "control_dt": self.control_dt, "accuracy": list(self.accuracy)}
        self.write(path, KIND, meta, {"points": self.points})

    @classmethod
    def load(cls, path: str | Path) -> ContinuousSkills:
        """The skills at `path`, or those of a run folder."""
        state, meta = load_state(find_skill_file(path, (KIND,)), kind=KIND)
        with usable(path):
            inputs = read_inputs(meta)
            _check_contents(meta["robot"], inputs, state["points"])
            return cls(
                **read_policy(state, meta, inputs),
                robot=meta["robot"],
                points=state["points"].float(),
                control_dt=float(meta["control_dt"]),
                accuracy=[float(share) for share in meta["accuracy"]],
            )

    @classmethod
    def of_policy(cls, policy: DIAYNPolicy, **known: Any) -> ContinuousSkills:
        """The skills that a policy with an embedding (`agent.n_embed`) has learnt, as they are now."""
        check_exportable(policy)
        config, spec = policy.config, policy.spec
        inputs = {
            "observation": _observed_names(spec, policy.groups["actor"]),
            "skill": tuple(f"skill[{number}]" for number in range(config.n_embed or 0)),
        }
        embedding, base = policy.actor.get_submodule("embedding"), policy.actor.get_submodule("base")
        with torch.no_grad():
            points = embedding(torch.eye(config.n_skills, device=policy.places.device)).cpu()
        return cls(
            **export(config, spec, inputs, base.state_dict()),
            robot=spec.facts.get("skills", {}).get("robot") or robot_of(spec) or spec.id,
            points=points,
            control_dt=spec.control_dt,
            **known,
        )

    # Fitting an environment

    def check_fits(self, robot: str, observation: Sequence[str], actions: Sequence[str]) -> None:
        """Refuse a robot that these skills do not belong to, component by component."""
        if robot != self.robot:
            raise SkillFileError(
                f"these are skills of {self.robot} and the robot is {robot}; use the skill file of that robot"
            )
        self.check_components(observation, actions)


def check_exportable(policy: DIAYNPolicy) -> None:
    """Refuse a policy that no file of continuous skills can hold."""
    config = policy.config
    if config.n_embed is None:
        raise SkillFileError("skills without an embedding are no continuous scale; train with agent.n_embed=7")
    if config.actor_network is not None or config.normalise_observations:
        raise SkillFileError(
            "a file of continuous skills holds a plain network; train without actor_network and normalise_observations"
        )


def _check_contents(robot: Any, inputs: Inputs, points: Any) -> None:
    """Refuse what no file of ours says, in a sentence about it."""
    if not isinstance(robot, str):
        raise ValueError(f"its robot is {robot!r} instead of a name")
    if tuple(inputs) != INPUTS:
        raise ValueError(f"its inputs are {list(inputs)} instead of {list(INPUTS)}")
    is_table = isinstance(points, Tensor) and points.ndim == 2 and len(points) > 0
    if not is_table or points.shape[1] != len(inputs["skill"]) or not bool(torch.isfinite(points).all()):
        raise ValueError(f"its points are no finite numbers, {len(inputs['skill'])} for every skill")


def _observed_names(spec: EnvSpec, groups: Sequence[str]) -> tuple[str, ...]:
    """One name per number of the observation; of several groups, with the group's name before it."""
    if len(groups) == 1:
        return component_names(spec, groups[0])
    return tuple(f"{group}/{name}" for group in groups for name in component_names(spec, group))
