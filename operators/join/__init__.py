"""The join: a family's chains of slices in one bucket, and their migration between plan versions.

Doors: compiled_family, family_joins, migration, pairs.
"""
