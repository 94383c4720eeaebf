"""Rings of rows by key: nested-loops and hash joins over windows, with their expiry of rows.

Doors: ring_kernel, rings.
"""
