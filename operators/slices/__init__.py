"""Slices of one side of a join: their rows, and the candidate pairs that rows of the other side find there.

Doors: candidates, overlaps, sliced_join.
"""
