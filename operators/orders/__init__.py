"""Streams whose rows arrive in the order of a column: the column as a clock, and its progress.

Doors: order_clock, order_progress.
"""
