"""Rows that wait until a clock has passed them.

Doors: waiting_rows.
"""
