"""Families: queries over the same streams and key, or on no key, sharing a chain; their filters and bands.

Doors: bands, families, filters.
"""
