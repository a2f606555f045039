"""Experiments of robot learning, by topic; `gaitway bench robot_learning` runs them.

Each topic registers its experiments as it is imported. To add one, write it beside its kind with `experiment(...)`, or
with `tested(...)` where it is fast enough to be a test.
"""

from robot_learning_experiments import (
    data,
    family,
    legged,
    legged_field,
    motion_priors,
    policies,
    robot_style,
    teachers,
)
from robot_learning_experiments.experiment import EXPERIMENTS

__all__ = [
    "EXPERIMENTS",
    "data",
    "family",
    "legged",
    "legged_field",
    "motion_priors",
    "policies",
    "robot_style",
    "teachers",
]
