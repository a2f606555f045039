"""Experiments of datasets, recorders and stages."""
