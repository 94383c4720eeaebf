"""The join: a family's chains of slices in one bucket, and their migration from plan to plan.

Doors: compiled_family, family_joins, migration, pairs.
"""
