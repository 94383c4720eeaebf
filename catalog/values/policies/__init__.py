"""Policies of a family: how its slices are searched, where rows wait, when closed keys take effect.

Doors: memory, probe, punctuation_policy.
"""
