"""The migration of joins: rows move from the slices of one plan version to the slices of the next version.

Doors: migration.
"""
