"""The join: a family's chains of slices in one bucket.

Doors: compiled_family, family_joins, pairs.
"""
