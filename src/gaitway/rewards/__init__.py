"""Reward sources: what writes `reward/<name>` into a workspace and may learn from it."""

from gaitway.rewards.novelty import RandomNetworkDistillation
from gaitway.rewards.sim_hash import SimHashReward
from gaitway.rewards.source import TaskReward

SOURCES: dict[str, type | str] = {
    "task": TaskReward,
    "rnd": RandomNetworkDistillation,
    "sim_hash": SimHashReward,
    "style": "gaitway.rewards.style:StyleReward",
    "tracking": "gaitway.rewards.tracking:TrackingReward",
}
"""Sources by the names that `rewards` in a configuration uses."""
