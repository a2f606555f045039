"""A skill file as what is exported: the robot's observation, what is left to go and task bits in, the action out."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Observation
from gaitway.export.acting_step import ActingStep
from gaitway.skills.skill_file import Skills


class SkillStep(ActingStep):
    """Acts by the mean of frozen skills, which remember nothing, in the skill environment of their robot."""

    def __init__(self, skills: Skills, spec: EnvSpec) -> None:
        super().__init__(skills.network, spec, tuple(skills.inputs), ())
        self.skills = skills

    def act(self, obs: Observation, states: Sequence[Tensor]) -> tuple[Tensor, Sequence[Tensor]]:
        return self.skills.mean_action(self.skills.facts.robot, {name: obs[name] for name in self.skills.inputs}), ()


class SkillActor:
    """The same for evaluations."""

    def __init__(self, skills: Skills) -> None:
        self.skills = skills

    def __call__(self, obs: Observation) -> Tensor:
        return self.skills.act(*(obs[name] for name in ("observation", "desired_goal", "task")))

    def reset(self, mask: Tensor | None = None) -> None:
        """There is nothing to forget."""
