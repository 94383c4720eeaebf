"""Segments: immutable, key-sorted runs of rows, their columns, and their merging.

Doors: layout, merge, segment.
"""
