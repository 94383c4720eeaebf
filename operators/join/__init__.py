"""The joins of a family in one bucket, each with its chain of slices.

Doors: compiled_family, family_joins, pairs.
"""
