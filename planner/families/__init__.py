"""Families: queries over the same streams and key, or on no key, sharing a chain; their filters and texts.

Doors: bands, display, families, family_names, filters.
"""
