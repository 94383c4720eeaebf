"""Lazy segments: large segments of long windows, whose rows are read only if new rows may match them.

Doors: lazy_segment.
"""
