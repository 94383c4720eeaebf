"""Rings of rows by key, which nested-loops and hash joins over windows search and clear of expired rows.

Doors: ring_kernel, rings.
"""
