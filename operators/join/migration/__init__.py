"""The migration of joins: rows move from the slices of one plan version to those of the next.

Doors: migration.
"""
