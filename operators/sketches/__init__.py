"""Sketches: frequent keys and join sizes of two streams in bounded memory.

Doors: join_selectivity.
"""
