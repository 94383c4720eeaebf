"""Rows that leave the state early: windows still reach them, but no query needs them any more.

Doors: needs.
"""
