"""Streams whose rows come in the order of a column: the column as a clock, and how far it has come.

Doors: order_clock, order_progress.
"""
