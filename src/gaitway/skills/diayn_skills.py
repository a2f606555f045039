"""What happens between iterations of DIAYN: skills are played one by one, and a file of them is written."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from gaitway.core.ranges import Count
from gaitway.skills.continuous_skills import KIND, ContinuousSkills, check_exportable
from gaitway.skills.diayn import DIAYN, play_skills
from gaitway.skills.frozen_policy import origin_of

log = logging.getLogger("gaitway")


class DiaynSkills:
    """After each evaluation plays every skill for `episodes` episodes and logs how well it is told apart,
    `eval/accuracy`; with an embedding (DIAYN-C) writes the skills beside each checkpoint, as `continuous_skills` in the
    run folder."""

    name = "diayn_skills"

    def __init__(self, algorithm: Any, episodes: Count = 5, max_steps: Count = 10_000) -> None:
        """Episodes longer than `max_steps` are cut."""
        if not isinstance(algorithm, DIAYN):
            raise ValueError("diayn_skills plays the skills of a discriminator; use it with algorithm=diayn")
        self.algorithm, self.episodes, self.max_steps = algorithm, episodes, max_steps
        self.writes_file = algorithm.policy.config.n_embed is not None
        if self.writes_file:
            check_exportable(algorithm.policy)
        self.accuracy: list[float] = []
        """Of each skill, after the last evaluation."""

    def after_evaluation(self, moment: Any) -> None:
        if moment.evaluation_env is None:  # one of several processes, and not the one that evaluates
            return
        self.accuracy = play_skills(moment.evaluation_env, self.algorithm.policy, self.episodes, self.max_steps)
        mean = sum(self.accuracy) / len(self.accuracy)
        found = {f"eval/accuracy/{skill}": share for skill, share in enumerate(self.accuracy)}
        moment.log({"eval/accuracy": mean} | found)
        log.info("step %d: skills told apart in %.3f of the steps", moment.now.env_steps, mean)

    def after_checkpoint(self, moment: Any) -> None:
        if moment.folder is None or not self.writes_file:
            return
        origin = origin_of(moment.folder, moment.now.env_steps, self.algorithm.updates, self.algorithm.seed)
        skills = ContinuousSkills.of_policy(self.algorithm.policy, accuracy=self.accuracy, origin=origin)
        skills.save(moment.folder / KIND)

    def state_dict(self) -> dict[str, Any]:
        return {"accuracy": list(self.accuracy)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.accuracy = list(state["accuracy"])
