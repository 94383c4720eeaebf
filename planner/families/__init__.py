"""Families: queries over the same streams and key, or on no key, sharing a chain; their filters and texts.

Doors: display, families, filters.
"""
