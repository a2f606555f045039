"""Legged locomotion as functions of tensors: nothing here knows a simulator, NumPy, or one row from another."""
