"""Experiments on the quadruped pup12: what the critic may know, what an estimator tells, what a student needs to see.

Velocities are judged on the evaluation grid, 120 episodes of the deterministic policy, models and kicks as in training.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gaitway import LoadedRun
from gaitway.agents.policy import InferencePolicy
from gaitway.agents.teacher import ACTION, Teacher
from gaitway.cli.build import build_env
from gaitway.core.workspace import Workspace
from gaitway.envs.motions.clip import Clip
from gaitway.envs.motions.library import MotionLibrary
from gaitway.envs.vec_env import Observation, Step, VecEnv
from gaitway.envs.wrappers import History, Wrapper
from gaitway.runners.evaluate import evaluate
from robot_learning_experiments.experiment import Arm, Claim, Figures, Job, experiment, last_of, least, most, tested

HERE = "robot_learning_experiments.legged"
EPISODES = 120
STEPS = 1_200_000
"""Of `ppo_pup12_blind`: after 400 thousand RMSD still differs by a quarter from seed to seed."""
NO_EVALUATION = {"evaluation.interval": 0}


def judged(run: LoadedRun) -> Figures:
    found = run.evaluate(EPISODES)
    return {"rmsd": found["velocity_rmsd"], "fell": found["fell"], "return": found["return"]}


class OfTheNeighbour(Wrapper):
    """Broken: these groups show what belongs to the neighbouring instance."""

    def __init__(self, env: VecEnv, groups: Sequence[str]) -> None:
        super().__init__(env)
        self.groups = tuple(groups)

    def step(self, action: Tensor) -> Step:
        step = self.env.step(action)
        return dataclasses.replace(step, obs=self.shown(step.obs), final_obs=self.shown(step.final_obs))

    def shown(self, obs: Observation) -> Observation:
        return obs | {name: obs[name].roll(1, 0) for name in self.groups if name in obs}


class Late(Wrapper):
    """Broken: a group shows what it showed ten steps ago, across the ends of episodes."""

    def __init__(self, env: VecEnv, group: str, steps: int = 10) -> None:
        super().__init__(env)
        self.group, self.steps = group, steps
        self.past: list[Tensor] = []

    def step(self, action: Tensor) -> Step:
        step = self.env.step(action)
        obs = self.shown(step.obs)
        return dataclasses.replace(step, obs=obs, final_obs={**step.final_obs, self.group: obs[self.group]})

    def shown(self, obs: Observation) -> Observation:
        self.past = [*self.past[-self.steps :], obs[self.group].clone()]
        return {**obs, self.group: self.past[0]}


class NotRefilled(History):
    """Broken: an episode begins with the frames of the one before it; the first one of all with zeros."""

    def __init__(self, env: VecEnv, group: str = "policy", length: int = 4) -> None:
        super().__init__(env, group, length)
        self._past = torch.zeros_like(self._past)

    def step(self, action: Tensor) -> Step:
        before, step = self._past, super().step(action)
        self._past = torch.cat((before[:, 1:], step.obs[self.group][:, None]), 1)
        return dataclasses.replace(step, obs=self._with(step.obs, self._past))

    def shown(self, obs: Observation) -> Observation:
        before, _ = self._past, super().shown(obs)
        self._past = torch.cat((before[:, 1:], obs[self.group][:, None]), 1)
        return self._with(obs, self._past)


tested("T-METRIC", "figures of legged robots by hand, and a trial that ends a run")

# --- E-L-PRIV --------------------------------------------------------------------------------------------------------

KNOWN = {"policy": ["policy", "phase"], "known": ["lin_vel_true", "robot_config"]}
UNSCALED = {"agent.normalise_observations": False}
"""Brought to one size, what the critic knows is no larger than noise: with normalisers nothing was saved on seeds 0 and
1, with settings sought on seeds 100 to 102."""
LEARNT = 6.0
"""Return of episodes in training, as a mean over ten iterations; chosen on seeds 100 to 102."""


def criticised(critic: Sequence[str], wrappers: Sequence[Mapping[str, Any]] = ()) -> Arm:
    """Slippery feet and loads that the actor cannot see, by critics that read these groups."""

    def run(job: Job) -> Figures:
        groups = {"actor": ["policy"], "critic": list(critic)}
        settings = {"agent.observations": groups, "env.options.observations": KNOWN, "env.wrappers": list(wrappers)}
        trained = job.train("ppo_pup12_blind", total_steps=400_000, **settings, **UNSCALED, **NO_EVALUATION)
        return judged(trained) | {"steps": steps_until(trained, "train/return", LEARNT)}

    return run


def steps_until(run: LoadedRun, name: str, limit: float) -> float:
    """When the mean of ten lines of the log first reaches `limit`; infinity where it never does."""
    rows = [row for row in map(json.loads, (run.path / "metrics.jsonl").read_text().splitlines()) if name in row]
    means = {rows[at]["step"]: sum(row[name] for row in rows[at - 9 : at + 1]) / 10 for at in range(9, len(rows))}
    return next((float(step) for step, mean in means.items() if mean >= limit), float("inf"))


experiment(
    "E-L-PRIV",
    "a critic that knows friction, load and true velocity teaches sooner than one that sees what the actor sees",
    arms={"privileged": criticised(("policy", "known")), "symmetric": criticised(("policy",))},
    twins={
        "knowledge of the neighbouring instance": criticised(
            ("policy", "known"), [{"name": f"{HERE}:OfTheNeighbour", "groups": ["known"]}]
        )
    },
    claims=lambda arms: [
        least("steps saved by what the critic knows", arms["symmetric"]["steps"] - arms["privileged"]["steps"], 1.0)
    ],
    seeds_needed=2,  # the median of three differences
)

# --- E-L-EST ---------------------------------------------------------------------------------------------------------

SHOWN = {"policy": ["policy", "phase"], "velocity": ["lin_vel_true"], "critic": ["critic", "phase"]}
HISTORY = {"name": "history", "group": "policy", "length": 5}
STALE = {"name": f"{HERE}:NotRefilled", "group": "policy", "length": 5}
FIRST = 5
"""Steps of an episode, 0.1 s, in which five frames reach back beyond its beginning."""


def explained(run: LoadedRun) -> float:
    """1 - squared error / variance of the velocity along x and y, until an episode of each of 60 instances ends."""
    policy, told, true = run.policy, [], []
    with torch.no_grad(), build_env(run.config, "evaluation", 60) as env:
        obs, state = env.reset(seed=list(range(60))), policy.initial_state(60, "cpu")
        goes_on = torch.ones(60, dtype=torch.bool)
        for _ in range(env.spec.max_episode_steps):
            found = policy.answer(obs, state)
            estimate = policy.estimators["estimate/velocity"].insertion(found.written["estimate/velocity"])
            told.append(estimate[goes_on, :2].double())
            true.append(obs["velocity"][goes_on, :2].double())
            step = env.step(policy.head.action(policy.head.mode(found.params)))
            obs, state = step.obs, found.state
            goes_on &= ~(step.terminated | step.truncated)
    estimate, target = torch.cat(told), torch.cat(true)
    return float(1.0 - (estimate - target).square().sum() / (target - target.mean(0)).square().sum())


def explained_at_first(run: LoadedRun) -> float:
    """The same over the first 0.1 s of episodes that follow another one, of 60 instances; 0 is a constant guess."""
    policy, told, true = run.policy, [], []
    with torch.no_grad(), build_env(run.config, "evaluation", 60) as env:
        obs, state = env.reset(seed=list(range(60))), policy.initial_state(60, "cpu")
        age = torch.full((60,), env.spec.max_episode_steps)  # of no interest before the first end
        for _ in range(env.spec.max_episode_steps + FIRST):
            found = policy.answer(obs, state)
            estimate = policy.estimators["estimate/velocity"].insertion(found.written["estimate/velocity"])
            told.append(estimate[age < FIRST, :2].double())
            true.append(obs["velocity"][age < FIRST, :2].double())
            step = env.step(policy.head.action(policy.head.mode(found.params)))
            obs, ended = step.obs, step.terminated | step.truncated
            state = None if found.state is None else found.state * ~ended[:, None]
            age = torch.where(ended, torch.zeros_like(age), age + 1)
    estimate, target = torch.cat(told), torch.cat(true)
    return float(1.0 - (estimate - target).square().sum() / (target - target.mean(0)).square().sum())


def by_the_velocity(run: LoadedRun) -> float:
    """RMSD of the policy as it reads the velocity itself."""
    run.policy.estimators["estimate/velocity"].inserts = ()
    with build_env(run.config, "evaluation", EPISODES) as env:
        found = evaluate(env, lambda stochastic: InferencePolicy(run.policy), run.config.evaluation, EPISODES)
    return found["velocity_rmsd"]


def estimated(
    reads: Sequence[str], memory: str = "none", *broken: Mapping[str, Any], history: Mapping[str, Any] = HISTORY
) -> Arm:
    """The actor reads the velocity of the base, or in its place, in half of the steps, what an estimator tells from
    `reads`. Measured is the one policy with the estimate and with the velocity, in an environment that nothing has
    broken: policies that were trained apart differ by a tenth of their RMSD as it is."""

    def run(job: Job) -> Figures:
        told = {"name": "estimator", "reads": list(reads), "writes": "velocity", "target": ["velocity"]}
        told |= {"memory": memory, "hidden": [128, 64], "replace": 0.5}
        settings = {
            "env.options.observations": SHOWN,
            "env.wrappers": [history, *broken],
            "evaluation.env.wrappers": [history],
            "agent.observations": {"actor": ["policy", "velocity"], "critic": ["critic", "velocity"]},
            "agent.blocks": [told],
            "total_steps": STEPS,
        }
        trained = job.train("ppo_pup12_blind", **settings, **NO_EVALUATION)
        r2 = {"r2": explained(trained), "r2 at first": explained_at_first(trained)}
        return judged(trained) | r2 | {"rmsd with the velocity": by_the_velocity(trained)}

    return run


def claims_of_estimators(arms: Mapping[str, Figures]) -> list[Claim]:
    cost = {name: found["rmsd"] / found["rmsd with the velocity"] for name, found in arms.items()}
    at_first = arms["history"].get("r2 at first")  # rows of before do not have it
    return [
        least("R^2 of the memory", arms["gru"]["r2"], 0.9),
        least("R^2 of five frames", arms["history"]["r2"], 0.8),
        # five equal frames say that an episode begins, and little of how fast; frames of another episode say how fast
        # that one was. Halfway between the two on seed 100 (-0.215 and -0.657)
        *([] if at_first is None else [least("R^2 of five frames in the first 0.1 s", at_first, -0.44)]),
        most("RMSD by the memory's estimate, of that with the velocity", cost["gru"], 1.1),
        most("RMSD by the estimate of five frames, of that with the velocity", cost["history"], 1.1),
    ]


NEIGHBOURS = {"name": f"{HERE}:OfTheNeighbour", "groups": ["velocity"]}
experiment(
    "E-L-EST",
    "a memory, or five frames, tell the velocity of the base well enough to walk by",
    arms={"gru": estimated(["policy"], "gru"), "history": estimated(["policy_history"])},
    twins={
        "target of the neighbouring instance": estimated(["policy"], "gru", NEIGHBOURS),
        "target ten steps late": estimated(["policy"], "gru", {"name": f"{HERE}:Late", "group": "velocity"}),
        "history not refilled": estimated(["policy_history"], history=STALE),
    },
    breaks={"history not refilled": "history"},
    claims=claims_of_estimators,
)

# --- E-L-DIST --------------------------------------------------------------------------------------------------------

STUDENT = ["ang_vel_unscaled", "gravity_true", "commands_unscaled", "phase", "last_actions", "dof_pos"]
BOTH = {"policy": ["gait"], "student": STUDENT}
DAGGER = {"start": 1.0, "end": 0.0, "over": 10, "kind": "decay"}


class LabelsOfTheNeighbour(Teacher):
    """Broken: labels of the neighbouring instance."""

    def step(self, ws: Workspace, t: int) -> None:
        super().step(ws, t)
        ws.put(ACTION, t, ws.at(ACTION, t).roll(1, 0))


class Unseen(Wrapper):
    """Broken: the student's group is zeros."""

    def step(self, action: Tensor) -> Step:
        step = self.env.step(action)
        return dataclasses.replace(step, obs=self.shown(step.obs), final_obs=self.shown(step.final_obs))

    def shown(self, obs: Observation) -> Observation:
        return obs | {"student": obs["student"] * 0.0} if "student" in obs else obs


def distilled(memory: str = "gru", teacher: str = "teacher", wrappers: Sequence[str] = ()) -> Arm:
    """A student that sees no velocity, of a teacher of the same seed that does."""

    def run(job: Job) -> Figures:
        with_both = {"env.options.observations": BOTH}
        expert = job.train(
            "ppo_pup12_gait_params", shared=f"teacher_{job.seed}", **with_both, **NO_EVALUATION,
            **{"agent.observations": {"actor": ["policy"], "critic": ["policy"]}},
        )  # fmt: skip
        settings = {
            "env": {"id": "pup12/gait_params", "num_envs": 128, "wrappers": [{"name": each} for each in wrappers]},
            "total_steps": 300_000,
            "algorithm": {"name": "distillation", "rollout_steps": 32, "epochs": 4, "gradient_length": 16}
            | {"learning_rate": 1e-3, "schedule": "linear"},
            "agent": {"memory": {"kind": memory, "size": 64}, "observations": {"actor": ["student"]}}
            | {"distribution": {"init_std": 0.1}},
            "cast": [{"name": teacher, "teachers": str(expert.path), "probability": DAGGER}],
            "evaluation.env.options.commands.sampler": "grid",
        }
        whole = judged(expert)
        found = judged(job.train(**settings, **with_both, **NO_EVALUATION))
        return found | {"teacher rmsd": whole["rmsd"], "behind": found["rmsd"] - whole["rmsd"]}

    return run


experiment(
    "E-L-DIST",
    "a memory that sees no velocity steers the trot as its teacher does that sees it",
    arms={"gru": distilled(), "feed-forward": distilled(memory="none")},
    twins={
        "labels of the neighbouring instance": distilled(teacher=f"{HERE}:LabelsOfTheNeighbour"),
        "zeros": distilled(wrappers=[f"{HERE}:Unseen"]),
        # in place of a teacher that always drives, with which students came as near: a trot forgives what they do
        "labels of whoever drives": distilled(teacher="robot_learning_experiments.teachers:OwnLabels"),
    },
    claims=lambda arms: [
        most("RMSD behind the teacher's", arms["gru"]["behind"], 0.03),
        least(
            "how many times as far behind a student without memory is",
            arms["feed-forward"]["behind"] / max(arms["gru"]["behind"], 1e-4),
            2.0,
        ),
    ],
)

# --- E-L-AMP ---------------------------------------------------------------------------------------------------------

FREQUENCY, DIAGONAL = 2.5, 0.5
"""Of the clips of a trot: strides per second, and when in its stride the second foot lands."""
SCORE = 0.42
"""Provisional: 0.40 on seed 100. It falls with the noise of exploration for as long as a run goes on: 0.52 after 2
million steps, 0.37 after 5 (seed 0). 0.35 had been asked for."""


STARTS = {"name": "starts", "motion": "pup12_trot", "probability": 0.85}


def style(name: str = "style", motion: str = "pup12_trot") -> list[dict[str, Any]]:
    """The rewards of the preset, with another source of style or other clips."""
    options = {"motion": motion, "scale": 2.0, "times_dt": True, "hidden": [256, 128], "gradient_penalty": 10}
    return [{"name": "task", "weight": 0.5}, {"name": name, "weight": 0.5, **options}]


def styled(steps: int = 5_000_000, **settings: Any) -> Arm:
    def run(job: Job) -> Figures:
        trained = job.train("ppo_pup12_amp_trot", **NO_EVALUATION, **{"total_steps": steps, **settings})
        found = trained.evaluate(EPISODES)
        names = ("style/score_policy", "style/score_expert", "reward/style")
        return (
            judged(trained)
            | {"frequency": found["stride_frequency"], "diagonal": found["stride_phase_1"]}
            | last_of(trained, *names)
        )

    return run


def after_other_clips(change: Callable[[Clip], Clip]) -> Arm:
    """Episodes begin in the clips as they are; the discriminator is shown them with a mistake."""

    def run(job: Job) -> Figures:
        folder = job.folder / "clips"
        for clip in MotionLibrary.load("pup12_trot").clips:
            change(clip).save(folder / clip.name)
        return styled(rewards=style(motion=str(folder)))(job)

    return run


def with_legs_swapped(clip: Clip) -> Clip:
    """Broken: the legs of the right side have each other's names, so that a trot is a bound on that side."""

    def swapped(names: Sequence[str]) -> tuple[str, ...]:
        other = {"FR": "RR", "RR": "FR"}
        return tuple(other.get(name[:2], name[:2]) + name[2:] for name in names)

    return dataclasses.replace(clip, joints=swapped(clip.joints), bodies=swapped(clip.bodies))


def at_double_speed(clip: Clip) -> Clip:
    """Broken: the rate of the frames was read as twice what it is."""
    return dataclasses.replace(clip, fps=2.0 * clip.fps).differentiated().resampled(clip.dt)


class Noisy(Wrapper):
    """Broken: what style compares is noisy, so that the discriminator tells the policy by its noise."""

    def step(self, action: Tensor) -> Step:
        step = self.env.step(action)
        return dataclasses.replace(step, obs=self.shown(step.obs), final_obs=self.shown(step.final_obs))

    def shown(self, obs: Observation) -> Observation:
        return obs | {"amp": obs["amp"] + 0.1 * torch.randn_like(obs["amp"])} if "amp" in obs else obs


def claims_of_style(arms: Mapping[str, Figures]) -> list[Claim]:
    found, free = arms["style"], arms["task alone"]
    score = (abs(found["style/score_policy"]) + abs(found["style/score_expert"])) / 2
    missed = max(abs(free["frequency"] / FREQUENCY - 1.0) / 0.1, abs(free["diagonal"] - DIAGONAL) / 0.1)
    return [
        most("stride frequency off the clip's, as a share", abs(found["frequency"] / FREQUENCY - 1.0), 0.1),
        most("diagonal phase off the clip's", abs(found["diagonal"] - DIAGONAL), 0.1),
        most("mean score of the discriminator", score, SCORE),
        most("RMSD", found["rmsd"], 0.2),
        least("how far the arm without style misses one of the two, in tolerances", missed, 1.0),
    ]


experiment(
    "E-L-AMP",
    "in the style of clips the quadruped trots as they do, and without does something else",
    arms={"style": styled(), "task alone": styled(rewards=[{"name": "task"}])},
    twins={
        "labels of the discriminator swapped": styled(
            rewards=style("robot_learning_experiments.motion_priors:SwappedLabels")
        ),
        "noise on what is compared": styled(**{"env.wrappers": [STARTS, {"name": f"{HERE}:Noisy"}]}),
        "legs of the clips swapped": after_other_clips(with_legs_swapped),
        "clips at double speed": after_other_clips(at_double_speed),
    },
    claims=claims_of_style,
)
