"""Slices of one side of a join: their rows, and the candidate pairs that the other side's rows find.

Doors: candidates, overlaps, sliced_join.
"""
