"""Parts of robot learning as arguments of `gaitway train`, any of them together, on one toy that can do all of them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any

import yaml

PARTS = ("memory", "encoder", "estimator", "teacher", "style", "symmetry", "reward groups", "dataset stage")
PAIRS = tuple(combinations(PARTS, 2))
REFUSED = ("memory", "symmetry")
"""The one pair that is refused: nobody knows what a mirror makes of a state."""
STEPS = 8 * 16
"""Environment steps of one iteration."""

ESTIMATOR = {"name": "estimator", "reads": ["policy.position", "phase"], "writes": "speed",
             "target": ["policy.velocity"], "hidden": [8], "replace": 0.5}  # fmt: skip
ENCODER = {"name": "mlp", "reads": ["policy", "phase"], "writes": "latent", "size": 4, "hidden": [8]}
TEACHER = {"name": "teacher", "teachers": "gaitway.envs.toys.controllers:follow_reference", "probability": 0.5}
STYLE = {"name": "style", "motion": "oscillator", "hidden": [16], "batch_size": 32, "updates": 3, "replay": 300,
         "expert_pairs": 512}  # fmt: skip
RND = {"name": "rnd", "weight": 0.5, "batch_size": 32}
TURNED = {"policy": {"position": "-position", "velocity": "-velocity"}, "phase": {"sin": "-sin", "cos": "-cos"}}
SYMMETRY = {"name": "symmetry", "mirror": {**TURNED, "action": {"force": "-force"}}, "coef": 0.1}


def arguments(parts: Iterable[str], dataset: str, iterations: int = 8) -> list[str]:
    """A short run with these parts; `dataset` is one of `toy/oscillator`, read where a dataset stage is among them."""
    parts = set(parts)
    unknown = sorted(parts - set(PARTS))
    if unknown:
        raise ValueError(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")

    def having(part: str, *entries: Any) -> list[Any]:
        return list(entries) if part in parts else []

    blocks = having("estimator", ESTIMATOR) + having("encoder", ENCODER)
    sources = having("style", STYLE) + having("reward groups", RND)
    groups = having("reward groups", {"name": "new", "sources": ["rnd"], "gamma": 0.9, "episodic": False})
    settings: dict[str, Any] = {
        "env": {"id": "toy/oscillator", "num_envs": 8, "options": {"max_episode_steps": 23}},
        "torch_threads": 1,
        "total_steps": iterations * STEPS,
        "algorithm": {
            "rollout_steps": 16,
            "minibatches": 4,
            "epochs": 2,
            "terms": having("teacher", "imitation") + having("symmetry", SYMMETRY),
            "reward_groups": groups,
        },
        "agent": {
            "actor_hidden": [16],
            "critic_hidden": [16],
            "blocks": blocks,
            "observations": {"actor": ["policy", "phase", *having("encoder", "latent")], "critic": ["policy", "phase"]},
            "memory": {"kind": "gru" if "memory" in parts else "none", "size": 8},
        },
        "rewards": [*sources, {"name": "task", "weight": 0.5}] if sources else [],
        "cast": having("teacher", TEACHER),
        "evaluation": {"interval": 3 * STEPS, "episodes": 2, "max_steps": 50},
        "checkpoints": {"interval": STEPS},
    }
    if "dataset stage" in parts:
        settings |= {"data": {"path": dataset}, "pretrain": {"iterations": 5, "gradient_length": 6}}
    return [f"{key}={_flow(value)}" for key, value in _flat(settings)]


def _flat(settings: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Leaves by dotted keys; lists stay whole."""
    found: list[tuple[str, Any]] = []
    for key, value in settings.items():
        found += _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]
    return found


def _flow(value: Any) -> str:
    """A value on one line, as it stands behind `key=`."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")
