"""Reward sources: what writes `reward/<name>` into a workspace and may learn from it."""

from gaitway.rewards.novelty import RandomNetworkDistillation
from gaitway.rewards.source import TaskReward

SOURCES = {"task": TaskReward, "rnd": RandomNetworkDistillation}
"""Sources by the names that `rewards` in a configuration uses."""
