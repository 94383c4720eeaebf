"""Families: queries over the same two streams with the same key or none; their filters and bands.

Doors: bands, families, filters.
"""
