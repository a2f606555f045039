"""HIRO with soft actor-critics: two levels learn at once; old goals are relabelled to fit what the low level does now.

Nachum et al. 2018, arXiv 1805.08296; with the soft actor-critics and rewards of HSD-3's baseline (Gehring et al. 2021).
The high level sets a goal g, a displacement of features s, every c steps. Both levels learn as `level_learner` says:

    low     each step: reward of what is left, g before and g' = g + s - s' after it, both over half the range of goals
            (`low_reward`: potential |g| - |g'|, ...) + fall_penalty [fell] - ctrl_cost |a|^2; discount gamma
    high    each stretch of a decision: reward the mean of its rewards, discount gamma; with `agent.dense` any step of
            it, reward what is left to come, discounted, and discount gamma^steps

A stretch ends with its c steps, a termination or a time limit; steps that only reset belong to none. The high level's
bootstrap stops at terminations, the low level's at falls alone (at terminations, where the task does not tell falls):
an end that its task brings about is not its doing. What a terminating step led to is not kept, so that such a step
changes nothing in what is left and is followed by its own observation. Before the high level learns, a stretch's goal
is replaced by that of `candidates` under which its actions were most likely for the present low level: the one that was
set, what was achieved, and draws about that. The high level learns in every c-th update, or with `dense` in all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from gaitway.agents.hiro_policy import GOAL, MEMORY, PHASE, HiroPolicy
from gaitway.algorithms.algorithm import Batch
from gaitway.algorithms.replay_algorithm import Draw, ReplayAlgorithm
from gaitway.algorithms.soft_algorithm import SoftConfig
from gaitway.core.config import configuration
from gaitway.core.execution import Execution
from gaitway.core.ranges import NotNegative, Number, Positive, Range
from gaitway.core.transitions import over_events
from gaitway.core.workspace import Workspace
from gaitway.functional.subgoals import best_candidate, candidate_goals, first_segment, subgoal_reward
from gaitway.skills.level_learner import LevelLearner

FELL = "env/metric/fell"


@configuration
class HiroConfig(SoftConfig):
    """HIRO: goals as displacements, relabelled as the low level changes."""

    one_step_because = "how far hiro looks is agent.interval"
    name: Literal["hiro"] = "hiro"
    temperature_learning_rate: Positive = 1e-4
    initial_temperature: Positive = 0.1
    low_reward: Literal["distance", "potential", "potential2", "potential3"] = "potential"
    """What the low level earns."""
    normalise_low_reward: bool = True
    """Measure what is left of a goal in units of half its range."""
    fall_penalty: Number = -1.0
    """What the low level earns besides where the robot falls, or an episode terminates if the task does not tell."""
    ctrl_cost: NotNegative = 0.0
    """What the low level pays for the sum of its squared actions."""
    relabel: bool = True
    """Replace goals by those that explain what was done."""
    candidates: Annotated[int, Range(2)] = 10
    """Goals that are compared for it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low_reward != "distance" and not self.normalise_low_reward:
            raise ValueError(
                f"low_reward is {self.low_reward!r} without normalise_low_reward, which would add metres and radians; "
                "use normalise_low_reward=true or low_reward=distance"
            )


class Hiro(ReplayAlgorithm):
    """Teaches both levels of a `HiroPolicy`."""

    config: HiroConfig
    policy: HiroPolicy

    def __init__(
        self,
        policy: HiroPolicy,
        config: HiroConfig | None = None,
        *,
        num_envs: int,
        execution: Execution | None = None,
        seed: int = 0,
    ) -> None:
        config, interval = config or HiroConfig(), policy.config.interval
        rows, actions, goals = config.batch_size, policy.low.decisions, policy.high.decisions
        draws = {
            "low": Draw((2, rows, actions)),  # now, and next
            "high": Draw((2, rows, goals)),
            "goals": Draw((config.candidates - 2, rows, goals)),
            "offset": Draw((rows,), "uniform"),
        }
        super().__init__(
            policy,
            config,
            num_envs=num_envs,
            seed=seed,
            execution=execution,
            draws=draws,
            cycle=1 if policy.config.dense else interval,
        )
        self.n_step = 2 * interval - 1 + int(policy.spec.reset_rows)  # rows within which a whole stretch lies
        del self.extras[policy.out(MEMORY)]  # what is left of the goal is stored itself
        fell = (FELL,) if "fell" in policy.spec.metrics else ()
        self.reads = (policy.out(GOAL), policy.out(PHASE), *fell)
        target_entropy = -float(actions) if config.target_entropy is None else config.target_entropy
        self.low = LevelLearner(self, "low", policy.low, target_entropy)
        self.high = LevelLearner(self, "high", policy.high, -float(goals))

    def replay_options(self, device: torch.device | str | None = None) -> dict[str, Any]:
        return super().replay_options(device) | {"whole_windows": True}  # the rows of a stretch are read one by one

    def learn(self, index: Tensor, noise: Mapping[str, Tensor], phase: int) -> None:
        self.low.learn(self.low_batch(index), noise["low"])
        if phase == 0:
            self.high.learn(self.high_batch(index, noise), noise["high"])

    @torch.no_grad()
    def low_batch(self, index: Tensor) -> Batch:
        """What the low level learns of the steps `index` [n]."""
        policy, config = self.policy, self.config
        assert self.replay is not None
        ws = self.replay.window(index, 1)
        obs, after = self._observations(ws), self._following(ws)
        terminated, action, goal = ws["env/terminated"], ws["action"][0], ws[policy.out(GOAL)][0]
        after = {name: torch.where(over_events(terminated, value), obs[name], value) for name, value in after.items()}
        here, there = (policy.features({name: value[0] for name, value in seen.items()}) for seen in (obs, after))
        left = goal + here - there
        unit = 2.0 / (policy.goal_high - policy.goal_low) if config.normalise_low_reward else 1.0
        reward = subgoal_reward(config.low_reward, goal * unit, left * unit, config.gamma)
        fell = ws[FELL][0] if FELL in self.reads else terminated[0].float()
        reward = reward + config.fall_penalty * fell - config.ctrl_cost * action.square().sum(-1)
        now, following = (
            policy.low_input(policy.normalised({name: value[0] for name, value in seen.items()}), rest)
            for seen, rest in ((obs, goal), (after, left))
        )
        return {
            "actor": now,
            "critic": now,
            "next/actor": following,
            "next/critic": following,
            "action": policy.range.unit(action),
            "reward": reward,
            "discount": config.gamma * (1.0 - fell),
        }

    @torch.no_grad()
    def high_batch(self, index: Tensor, noise: Mapping[str, Tensor]) -> Batch:
        """What the high level learns of the first whole stretches behind `index` [n]; with the goals that were set,
        `stored` [n, F], and those that are learnt, `goal` [n, F]."""
        policy, interval, gamma = self.policy, self.policy.config.interval, self.config.gamma
        assert self.replay is not None
        ws = self.replay.window(index, self.n_step)
        phase = ws[policy.out(PHASE)]
        if "env/valid" in ws:
            phase = torch.where(ws["env/valid"], phase, -1)  # nothing is decided in a row that only resets
        rows, belongs = first_segment(phase, ws["env/done"], interval)
        length = belongs.sum(0)
        obs, after = self._observations(ws), self._following(ws)
        last = rows.gather(0, (length - 1)[None])
        terminated = ws["env/terminated"].gather(0, last)[0]
        stored = _pick(ws[policy.out(GOAL)], rows[:1])[0]
        goal = stored
        if self.config.relabel:
            seen = {name: _pick(value, rows) for name, value in obs.items()}
            end = policy.features({name: _pick(value, last)[0] for name, value in after.items()})
            goal = self._relabelled(stored, seen, end, terminated, ws, rows, belongs, noise["goals"])
        reward = torch.where(belongs, self._reward(ws).gather(0, rows), 0.0)
        if policy.config.dense:
            offset = torch.minimum((noise["offset"] * length).long(), length - 1)
            ahead = torch.arange(interval, device=reward.device)[:, None] - offset
            weight = torch.where(ahead >= 0, gamma ** ahead.clamp(min=0), 0.0)
            total, discount = (reward * weight).sum(0), gamma ** (length - offset)
        else:
            offset = torch.zeros_like(length)
            total, discount = reward.sum(0) / length, torch.full_like(reward[0], gamma)
        start = rows.gather(0, offset[None])
        now = policy.inputs(policy.normalised({name: _pick(value, start)[0] for name, value in obs.items()})).networks
        then = policy.inputs(policy.normalised({name: _pick(value, last)[0] for name, value in after.items()})).networks
        return {
            "actor": now["actor"],
            "critic": self._with_phase(now["critic"], offset),
            "critic/new": self._with_phase(now["critic"], torch.zeros_like(offset)),
            "next/actor": then["actor"],
            "next/critic": self._with_phase(then["critic"], torch.zeros_like(offset)),
            "action": policy.decision_of(goal),
            "reward": total,
            "discount": discount * ~terminated,
            "stored": stored,
            "goal": goal,
        }

    def _relabelled(
        self,
        stored: Tensor,
        seen: Mapping[str, Tensor],
        end: Tensor,
        terminated: Tensor,
        ws: Workspace,
        rows: Tensor,
        belongs: Tensor,
        noise: Tensor,
    ) -> Tensor:
        """The goals [n, F] under which the actions of stretches were most likely; `seen` are groups [c, n, D]."""
        policy = self.policy
        features = policy.features(seen)  # [c, n, F]
        final = _pick(features, (belongs.sum(0) - 1)[None])[0]
        achieved = torch.where(terminated[:, None], final, end) - features[0]
        candidates = candidate_goals(stored, achieved, noise, policy.goal_low, policy.goal_high)
        left = (features[0] + candidates)[:, None] - features  # [C, c, n, F]
        observed = {
            name: value.expand(len(candidates), *value.shape) for name, value in policy.normalised(seen).items()
        }
        action = policy.range.unit(_pick(ws["action"], rows))
        density = policy.low.log_prob(policy.low_input(observed, left), action.expand(len(candidates), *action.shape))
        return best_candidate(candidates, density, belongs)

    def _reward(self, ws: Workspace) -> Tensor:
        """What the high level earns in every step, [T, n]."""
        if self.rewards is None:
            return ws["env/reward"]
        self.rewards.annotate(ws, ("drawn",))
        return ws["reward/total"]

    def _observations(self, ws: Workspace) -> dict[str, Tensor]:
        return {name: ws[f"env/obs/{name}"][: ws.T] for name in self.policy.all_groups}

    def _following(self, ws: Workspace) -> dict[str, Tensor]:
        return {name: ws.following(f"env/obs/{name}") for name in self.policy.all_groups}

    def _with_phase(self, inputs: Tensor, phase: Tensor) -> Tensor:
        return torch.cat((inputs, phase[:, None].to(inputs.dtype)), -1) if self.policy.config.dense else inputs


def _pick(values: Tensor, rows: Tensor) -> Tensor:
    """Rows [k, n] of values [T, n, ...], [k, n, ...]."""
    index = rows.view(*rows.shape, *(1 for _ in values.shape[2:])).expand(*rows.shape, *values.shape[2:])
    return values.gather(0, index)
