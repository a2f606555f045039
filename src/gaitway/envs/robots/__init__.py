"""Robots: a model, its proprioception and its fall test, one file each."""

ROBOTS = {"walker": "planar biped of 28.5 kg with six motors (hip, knee, ankle), from the DeepMind Control Suite"}
"""Robot name -> one line about it; tasks are named <robot>/<task>."""
