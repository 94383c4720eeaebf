"""Windows that are not of event time: rows, and the order of streams.

Doors: orders, rows.
"""
