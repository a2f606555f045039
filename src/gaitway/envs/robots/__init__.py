"""Robots: a model, its proprioception and its fall test, one file each; `robot.py` finds them by name."""

ROBOTS = {
    "walker": "planar biped of 28.5 kg with six motors (hip, knee, ankle), from the DeepMind Control Suite",
    "humanoid": "humanoid of 40.8 kg with 21 torque motors, from the DeepMind Control Suite",
    "humanoidpc": "the same humanoid with position control: an action is a position between the joint's limits",
    "halfcheetah": "planar cheetah of 14 kg with six motors, from Gym",
    "cube": "box of 0.32 kg that slides along x, y and z, for testing tasks with scripts",
    "cube2d": "the same box in the x-z plane",
}
"""Robot name -> one line about it; tasks are named <robot>/<task>. Nothing here imports MuJoCo."""
