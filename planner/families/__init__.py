"""Families: queries over the same streams and key, which share a chain, with their filters and their texts.

Doors: display, families, family_names, filters.
"""
