"""What happens between iterations while skills are learnt: the curriculum of tasks, and the skill file."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from gaitway.agents.action_range import ActionRange
from gaitway.core.config import from_config, unknown_key
from gaitway.core.ranges import Count, WholeNumber
from gaitway.core.ranks import here
from gaitway.core.seeding import stream
from gaitway.envs.tasks.skills.goal_spaces import rank
from gaitway.envs.trials import run_trials
from gaitway.envs.vec_env import Observation, VecEnv
from gaitway.skills.controllability import Estimates, estimate_controllability
from gaitway.skills.curriculum import Curriculum, CurriculumConfig
from gaitway.skills.estimates import check_joint_space
from gaitway.skills.frozen_policy import origin_of
from gaitway.skills.multitask_sac import MultitaskSAC
from gaitway.skills.skill_file import Skills

log = logging.getLogger("gaitway")


class TaskCurriculum:
    """Decides which tasks are practised, and how often: reviews them at the beginning, then every `interval` steps, or
    with null after each evaluation.

    `estimate_joint_spaces` (gmm or kmeans) lets the estimates try goals where features were visited together, instead
    of goals over the whole range. The other options are those of `CurriculumConfig`. With `eval_mode: rollouts` success
    is that of the last evaluation, so reviews follow evaluations, which come every `evaluation_interval` steps of the
    run. Processes that train together review means of what each of them found, and decide alike.
    """

    name = "curriculum"

    def __init__(
        self,
        algorithm: Any,
        interval: Count | None = 100_000,
        estimate_joint_spaces: str | None = None,
        evaluation_interval: WholeNumber | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(algorithm, MultitaskSAC):
            raise ValueError("the curriculum chooses among the tasks of skills; use it with algorithm=multitask_sac")
        if interval is not None and interval < 1:
            raise ValueError(f"interval is {interval}; use environment steps, or null for after each evaluation")
        if estimate_joint_spaces is not None:
            check_joint_space(estimate_joint_spaces)
        self.algorithm, self.interval, self.joint_space = algorithm, interval, estimate_joint_spaces
        known = ["interval", "estimate_joint_spaces", *(each.name for each in fields(CurriculumConfig))]
        for name in options:
            if name not in known:
                raise unknown_key("callbacks.curriculum", name, known)
        self.config = from_config(CurriculumConfig, options, "callbacks.curriculum")
        if evaluation_interval == 0 and self._follows_evaluations:
            raise ValueError(
                "reviews follow evaluations (eval_mode: rollouts, or interval: null), and evaluation.interval is 0, "
                "for only at the end; set it to the environment steps between reviews, such as 100000"
            )
        tasks = algorithm.facts.tasks
        self.curriculum = Curriculum(
            algorithm.facts.groups, self.config, name_of=lambda task: tasks.name_of(tasks.key_of(task))
        )
        self.measured: dict[str, float] = {}
        """Success in the last evaluation."""
        self.running: dict[str, float] = {}
        """Success in training lately."""
        self.reviewed: int | None = None
        """Environment steps of the last review."""

    def begin(self, moment: Any) -> None:
        if self.reviewed is None:
            self._review(moment)
        self._set(moment)

    def after_iteration(self, moment: Any) -> None:
        self.running |= _by_task(moment.numbers, "env/success/")
        steps, last = moment.now.env_steps, self.reviewed or 0
        if self.interval and not self._follows_evaluations and steps // self.interval > last // self.interval:
            self._review(moment)
            self._set(moment)
        self._show_evaluation(moment)

    def after_evaluation(self, moment: Any) -> None:
        self.measured = _by_task(moment.numbers, "success/")
        ranks = sorted({rank(task) for task in self.measured})
        by_rank = {n: [p for task, p in self.measured.items() if rank(task) == n] for n in ranks}
        moment.log({f"eval/success_rank/{n}": sum(found) / len(found) for n, found in by_rank.items()})
        log.info("success by rank: %s", " ".join(f"{n}: {sum(p) / len(p):.3f}" for n, p in by_rank.items()))
        if self._follows_evaluations:
            self._review(moment)
            self._set(moment)

    @property
    def _follows_evaluations(self) -> bool:
        return self.interval is None or self.config.eval_mode == "rollouts"

    def _review(self, moment: Any) -> None:
        tasks = list(self.curriculum.weights)
        estimates = Estimates(*map(here().means, estimate_controllability(self.algorithm, tasks, self.joint_space)))
        mode = self.config.eval_mode
        success: Mapping[str, float]
        if mode == "rollouts":
            success = {task: p for task, p in self.measured.items() if math.isfinite(p)}
        elif mode == "running_avg":
            success = self.running
        else:
            success = estimates.r if mode == "reachability" else estimates.q
        errors = here().means(self.algorithm.td_errors())
        weights = self.curriculum.review(success, moment.now.env_steps, errors)
        self.reviewed = moment.now.env_steps
        if self.curriculum.new:
            log.info("step %d: %d tasks, new are %s", self.reviewed, len(weights), " ".join(self.curriculum.new))
        found = {"curriculum/tasks": float(len(weights))}
        found |= {f"curriculum/weight/{task}": weight for task, weight in weights.items()}
        found |= {f"curriculum/r/{task}": p for task, p in estimates.r.items()}
        found |= {f"curriculum/q/{task}": p for task, p in estimates.q.items()}
        found |= {f"curriculum/progress/{task}": p for task, p in self.curriculum.progress.items()}
        moment.log(found)

    def _set(self, moment: Any) -> None:
        moment.env.call("set_feature_dist", self.curriculum.weights)
        self._show_evaluation(moment)

    def _show_evaluation(self, moment: Any) -> None:
        """Let evaluations measure every task that is practised."""
        if moment.evaluation_env is not None:
            moment.evaluation_env.call("set_feature_dist", dict.fromkeys(self.curriculum.weights, 1.0))

    def state_dict(self) -> dict[str, Any]:
        return {
            "curriculum": self.curriculum.state_dict(),
            "measured": dict(self.measured),
            "running": dict(self.running),
            "reviewed": self.reviewed,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.curriculum.load_state_dict(state["curriculum"])
        self.measured, self.running = dict(state["measured"]), dict(state["running"])
        self.reviewed = state["reviewed"]


class SkillFileWriter:
    """Writes the skills as they are beside each checkpoint, as `skills` in the run folder.

    Success is that of the last evaluation. With `floors` goals of every task are tried without skill too, once there is
    a new task: by uniform random actions and by no action at all, `trials` goals each.
    """

    name = "skill_file"

    def __init__(self, algorithm: Any, floors: bool = True, trials: Count = 50) -> None:
        if not isinstance(algorithm, MultitaskSAC):
            raise ValueError("a skill file holds goal-reaching skills; use it with algorithm=multitask_sac")
        if trials < 1:
            raise ValueError(f"trials is {trials}; use at least 1")
        Skills.of_policy(algorithm.policy)  # what no file can hold is refused now, and not at the first checkpoint
        self.algorithm, self.measures_floors, self.trials = algorithm, floors, trials
        self.figures: dict[str, dict[str, float]] = {"success": {}, "running": {}}
        self.floors: dict[str, dict[str, float]] = {}

    def after_iteration(self, moment: Any) -> None:
        self.figures["running"] |= _by_task(moment.numbers, "env/success/")

    def after_evaluation(self, moment: Any) -> None:
        self.figures["success"] = _by_task(moment.numbers, "success/")
        known, env = self.floors.get("zero", {}), moment.evaluation_env
        if self.measures_floors and env is not None and any(task not in known for task in self.figures["success"]):
            self.floors = measure_floors(env, self.trials, self.algorithm.seed)
            for kind, found in self.floors.items():
                moment.log({f"floor/{kind}/{task}": p for task, p in found.items()})

    def after_checkpoint(self, moment: Any) -> None:
        if moment.folder is None:
            return
        estimates = estimate_controllability(self.algorithm, self.figures["success"] or self.algorithm.facts.groups)
        figures = self.figures | {"r": estimates.r, "q": estimates.q}
        origin = origin_of(moment.folder, moment.now.env_steps, self.algorithm.updates, self.algorithm.seed)
        skills = Skills.of_policy(self.algorithm.policy, figures=figures, floors=self.floors, origin=origin)
        skills.save(moment.folder / "skills")

    def state_dict(self) -> dict[str, Any]:
        return {"figures": {name: dict(found) for name, found in self.figures.items()}, "floors": dict(self.floors)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.figures = {name: dict(found) for name, found in state["figures"].items()}
        self.floors = {name: dict(found) for name, found in state["floors"].items()}


def measure_floors(env: VecEnv, trials: int, seed: int = 0, max_steps: int = 100_000) -> dict[str, dict[str, float]]:
    """Success of every task without skill: `random`, uniform actions; `zero`, the middle of every action's range."""
    found = {}
    for kind in ("random", "zero"):
        played = run_trials(env, _WithoutSkill(env, kind == "random", seed), trials, max_steps)
        found[kind] = _by_task(played, "success/")
    return found


class _WithoutSkill:
    """Actions that do not look."""

    def __init__(self, env: VecEnv, is_random: bool, seed: int) -> None:
        self.range, self.count, self.device = ActionRange(env.spec.action), env.num_envs, env.device
        self.generator = stream(seed, "floors") if is_random else None

    def __call__(self, obs: Observation) -> Tensor:
        if self.generator is None:
            action = self.range.centre.expand(self.count, -1)
        else:
            action = self.range.uniform(self.count, torch.device("cpu"), self.generator)
        return action.to(self.device)

    def reset(self, mask: Tensor | None = None) -> None:
        """There is nothing to forget."""


def _by_task(numbers: Mapping[str, float], prefix: str) -> dict[str, float]:
    return {name.removeprefix(prefix): value for name, value in numbers.items() if name.startswith(prefix)}
