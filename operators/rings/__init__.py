"""Rings of rows by key: nested-loops and hash joins over windows, and how they remove expired rows.

Doors: ring_kernel, rings.
"""
