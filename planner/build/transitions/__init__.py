"""Transitions between plans: boundaries that are kept, and the primitives that migrate the state.

Doors: diff, retained_boundaries.
"""
