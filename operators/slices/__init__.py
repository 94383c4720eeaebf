"""Slices of one side of a join: their rows, and the candidate pairs of these rows with the other side's rows.

Doors: candidates, overlaps, sliced_join.
"""
