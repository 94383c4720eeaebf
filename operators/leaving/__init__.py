"""Rows that leave the state early: no query needs them any more, although windows still reach them.

Doors: needs.
"""
