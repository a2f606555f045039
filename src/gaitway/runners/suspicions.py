"""What is suspicious about a task or a run, told by what zero and random actions achieve: a sentence each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gaitway.runners.runner_config import RunnerConfig

if TYPE_CHECKING:
    from gaitway.runners.baselines import Baselines

DOMINANT = 0.9
"""The share of a reward part of which one is warned."""
FAULTY, SOME_FAULTS = 1e-4, 10
"""The share of steps in which physics may fail, and how many failures one waits for before one speaks of it."""
NAMED = 5
"""Components that a sentence names."""


def warnings_of(found: Baselines, config: RunnerConfig) -> list[str]:
    """What is suspicious about a task, a sentence each."""
    metric, threshold = config.evaluation.metric, config.stop.threshold
    sign, stricter = (-1.0, "lower") if metric in found.spec.costs else (1.0, "higher")
    said = []
    scores = found.scores(metric)
    for name, score in scores.items():
        if threshold is not None and sign * score.mean + score.noise >= sign * threshold:
            said.append(
                f"stop.threshold is {threshold:g}, and {name} actions reach a {metric} of {score.mean:.4g} ± "
                f"{score.noise:.2g}: training would end before anything is learnt; use a {stricter} threshold"
            )
    zero, random = scores.get("zero"), scores.get("random")
    if zero is not None and random is not None and sign * (zero.mean - random.mean) > zero.noise + random.noise:
        said.append(
            f"doing nothing scores best so far, with a {metric} of {zero.mean:.4g} ± {zero.noise:.2g} against "
            f"{random.mean:.4g} ± {random.noise:.2g} of random actions: see that the task pays for more than resting"
        )
    return said + _reward_warnings(found) + _observation_warnings(found)


def _reward_warnings(found: Baselines) -> list[str]:
    parts = {name.removesuffix("_episode"): values for name, values in found.reward_parts().items()}
    sizes = {name: float(values.abs().mean()) for name, values in parts.items()}
    total = sum(sizes.values())
    constant: dict[str, list[str]] = {}
    said = []
    for name, values in parts.items():
        per_step = values / found.table["length"].clamp(min=1)
        if float(per_step.max() - per_step.min()) <= 1e-9 * max(1.0, float(per_step.abs().max())):
            constant.setdefault(f"{float(per_step[0]):.4g}", []).append(name)
        elif len(parts) > 1 and total and sizes[name] > DOMINANT * total:
            said.append(
                f"{name} makes {sizes[name] / total:.0%} of the reward, which hides the other parts from a learner"
            )
    for value, names in constant.items():
        one = len(names) == 1
        never = f"{', '.join(names)} never {'varies: it is' if one else 'vary: they are'}"
        said.append(f"{never} {value} a step, whatever is done")
    return said


def _observation_warnings(found: Baselines) -> list[str]:
    if not found.unmoved:
        return []
    more = f" and {len(found.unmoved) - NAMED} more" if len(found.unmoved) > NAMED else ""
    named = ", ".join(found.unmoved[:NAMED]) + more
    return [f"observed and never moving, with zero and with random actions: {named}"]


def faulty(faults: int, steps: int, id: str) -> str | None:
    """What to say where physics failed in so many of all steps; None where that is rare."""
    if faults < SOME_FAULTS or faults <= FAULTY * steps:
        return None
    return (
        f"physics of {id} failed in {faults} of {steps:,} steps, more than 1 in {1 / FAULTY:,.0f}: do not trust it; "
        "use a shorter time step, softer gains or smaller actions (env.options.timestep, action_limit)"
    )


def unbeaten(stored: Mapping[str, Any], best: Mapping[str, Any], steps: int, is_cost: bool = False) -> str | None:
    """What to say where the `best` evaluation does not beat what `preflight.json` holds; None where it does. `is_cost`:
    less of the metric is better."""
    metric, scores = stored.get("metric", "return"), stored.get("scores") or {}
    if not scores or metric not in best:
        return None
    sign = -1.0 if is_cost else 1.0
    name = max(scores, key=lambda each: sign * scores[each]["mean"])
    bar = scores[name]
    spread = best.get(f"{metric}_std", 0.0)  # an evaluation tells it of the return
    noise = 2.0 * spread / max(bar["episodes"], 1) ** 0.5
    if sign * (best[metric] - bar["mean"]) > noise + bar["noise"]:
        return None
    return (
        f"a third of the run is over, and {name} actions are not beaten: at step {steps:,} the best {metric} is "
        f"{best[metric]:.4g} ± {noise:.2g}, theirs {bar['mean']:.4g} ± {bar['noise']:.2g}"
    )
