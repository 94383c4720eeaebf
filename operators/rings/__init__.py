"""Rings of rows by key, for nested-loops and hash joins over windows: search and removal of expired rows.

Doors: ring_kernel, rings.
"""
