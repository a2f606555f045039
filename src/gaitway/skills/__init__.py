"""Behaviour in levels: skills that reach goals, and what is built on them."""
