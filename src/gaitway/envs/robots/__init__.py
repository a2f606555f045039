"""Robots: a model, its proprioception and its fall test, one file each; `registry.py` lists them by name."""
